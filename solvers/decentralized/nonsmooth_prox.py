r"""Prox form of the optimal non-smooth method, for f_i whose proximal operator is cheap.

The scheme of `solvers.decentralized.nonsmooth` with the inner loop replaced by an exact saddle step and no
split of r: :math:`\eta = 1/(64 r \chi^2)`, :math:`\theta = r/(16\chi^2)`, :math:`\gamma = r/2`,
:math:`a \leftarrow (1 + \sqrt{1 + 4a^2})/2` from 0, :math:`\alpha = 1/a`, :math:`\eta_k = \eta a`,
:math:`\theta_k = \theta a`,

.. math::

    \kappa = 1/\eta_k + \theta_k, \quad C = (X/\eta_k + Y - \theta_k G)/\kappa, \quad
    X_i \leftarrow \arg\min f_i(x) + \tfrac\kappa2 \|x - C_i\|^2, \quad Y^+ = Y - \theta_k (X + G).

Reference: the companion code of Kovalev et al., NeurIPS 2024. Guarantee:
:math:`O(\chi^2 M^2 / (r K^2))` after K rounds, one prox and one exchange of 2d floats per round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.arrays import array_namespace
from optikit.solver import IterativeSolver, per_agent, replicated
from optikit.validation import check_real
from solvers.decentralized.composite import composite_metrics
from solvers.decentralized.nonsmooth_rules import gossip_chi


@dataclass(frozen=True)
class ProxState:
    """Primal X, duals Y and Z with averages, error feedback, and the a-weighted output average."""

    x: Any = per_agent()
    y: Any = per_agent()
    y_bar: Any = per_agent()
    z: Any = per_agent()
    z_bar: Any = per_agent()
    feedback: Any = per_agent()
    x_bar: Any = per_agent()
    chi: float = replicated(default=1.0)
    a: float = replicated(default=0.0)
    weight: float = replicated(default=0.0)


@dataclass(frozen=True)
class NonsmoothProx(IterativeSolver):
    """Optimal non-smooth method with one proximal step per round.

    The objective must offer ``prox(points, weight)``, whose row i is the minimiser of
    ``f_i(x) + (weight/2)||x - points_i||^2``.

    Parameters
    ----------
    r : float
        Weight of ``(r/2)||x||^2``, > 0; the objective holds the f_i only.
    chi : float or None
        Condition number of the gossip, >= 1; None computes it from the network.
    """

    name: ClassVar[str] = "optimal non-smooth method (prox form)"
    kinds: ClassVar[tuple[str, ...] | None] = ("mixing", "gossip")

    r: float = 0.1
    chi: float | None = None

    def __post_init__(self) -> None:
        check_real(self.r, "r", minimum=0.0, open_low=True)
        if self.chi is not None:
            check_real(self.chi, "chi", minimum=1.0)

    def validate(self, objective: Any, network: Any) -> None:
        if not callable(getattr(objective, "prox", None)):
            raise TypeError(
                f"{self.name} needs an objective with prox(points, weight), got {type(objective).__name__}; "
                "NonsmoothTimeVarying works with subgradients alone."
            )

    def init(self, objective: Any, network: Any, x0: Any) -> ProxState:
        chi = gossip_chi(network.topology) if self.chi is None else self.chi
        zero = array_namespace(x0).zeros_like(x0)
        return ProxState(x0, zero, zero, zero, zero, zero, zero, chi=chi)

    def step(self, objective: Any, network: Any, state: ProxState) -> ProxState:
        r, chi = self.r, state.chi
        a = (1.0 + math.sqrt(1.0 + 4.0 * state.a**2)) / 2.0
        alpha, eta, theta = 1.0 / a, a / (64.0 * r * chi**2), a * r / (16.0 * chi**2)
        y_under = alpha * state.y + (1.0 - alpha) * state.y_bar
        z_under = alpha * state.z + (1.0 - alpha) * state.z_bar
        G = (y_under + z_under) / r
        V = theta * G + state.feedback
        in_flight = network.igossip(V, G)
        kappa = 1.0 / eta + theta
        x = objective.prox((state.x / eta + state.y - theta * G) / kappa, kappa)
        y = state.y - theta * (x + G)
        WV, WG = in_flight.wait()
        weight = state.weight + a
        return ProxState(
            x=x,
            y=y,
            y_bar=y_under + alpha * (y - state.y),
            z=state.z - WV,
            z_bar=z_under - (r / 2.0) * WG,
            feedback=V - WV,
            x_bar=state.x_bar + (a / weight) * (x - state.x_bar),
            chi=chi,
            a=a,
            weight=weight,
        )

    def iterate(self, state: ProxState) -> Any:
        return state.x_bar

    def exchanged(self, state: ProxState) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return state.x, state.y, state.y_bar, state.z, state.z_bar, state.feedback

    def metrics(
        self, objective: Any, network: Any, state: ProxState, *, final: bool = False
    ) -> dict[str, float]:
        return composite_metrics(objective, network, state.x_bar, self.r)
