r"""Decentralised communication sliding (DCS) for non-smooth functions on a static network.

Primal-dual with a Laplacian L, k = 1, 2, ...:

.. math::

    \tilde x = a_k (\hat x^{k-1} - x^{k-2}) + x^{k-1}, \quad y \leftarrow y + L \tilde x / \tau_k, \quad
    w = L y,

then T inner subgradient steps on :math:`f_i + \frac r2\|x\|^2 + \langle w_i, x\rangle` anchored at
:math:`x^{k-1}` with weight :math:`\eta_k`, whose last point is :math:`x^k` and whose weighted average is
:math:`\hat x^k`. Parameters :math:`a_k = k/(k+1)`, :math:`\eta_k = k r/2`,
:math:`\tau_k = 4 \|L\|^2 / ((k+1) r)`; the output averages :math:`\hat x^k` with weights k + 1. Two rounds
per iteration.

Reference: G. Lan, S. Lee, Y. Zhou, *Communication-efficient algorithms for decentralized and stochastic
optimization*, Mathematical Programming 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.arrays import array_namespace
from optikit.solver import IterativeSolver, cached, per_agent, replicated
from optikit.validation import check_integer, check_real
from solvers.decentralized.composite import composite_metrics
from solvers.decentralized.sliding_procedure import sliding_procedure


@dataclass(frozen=True)
class SlidingState:
    """Last point, last average, the point before, the dual and the output average."""

    x: Any = per_agent()
    x_hat: Any = per_agent()
    x_previous: Any = per_agent()
    dual: Any = per_agent()
    x_bar: Any = per_agent()
    weight: float = replicated(default=0.0)
    iteration: int = replicated(default=0)
    norm: float = cached(default=1.0)


@dataclass(frozen=True)
class CommunicationSliding(IterativeSolver):
    """DCS on a static symmetric network.

    Parameters
    ----------
    r : float
        Weight of ``(r/2)||x||^2``, > 0; the objective holds the f_i only.
    inner_steps : int, default 10
        Subgradient steps T per iteration, >= 1.
    """

    name: ClassVar[str] = "decentralised communication sliding"
    kinds: ClassVar[tuple[str, ...] | None] = ("mixing", "gossip")

    r: float = 0.1
    inner_steps: int = 10

    def __post_init__(self) -> None:
        check_real(self.r, "r", minimum=0.0, open_low=True)
        check_integer(self.inner_steps, "inner_steps", minimum=1)

    def validate(self, objective: Any, network: Any) -> None:
        if network.topology.period != 1 or not network.topology.matrix(0).is_symmetric:
            raise ValueError(f"{self.name} needs a static symmetric network, got {network.topology!r}.")

    def init(self, objective: Any, network: Any, x0: Any) -> SlidingState:
        from optikit.mixing.spectra import laplacian_extremes

        zero = array_namespace(x0).zeros_like(x0)
        laplacian = network.topology.matrix(0).to_gossip().csr
        return SlidingState(x0, x0, x0, zero, zero, norm=laplacian_extremes(laplacian)[1])

    def step(self, objective: Any, network: Any, state: SlidingState) -> SlidingState:
        k = state.iteration + 1
        a, eta, tau = k / (k + 1), k * self.r / 2, 4 * state.norm**2 / ((k + 1) * self.r)
        x_tilde = a * (state.x_hat - state.x_previous) + state.x
        dual = state.dual + network.gossip(x_tilde) / tau
        w = network.gossip(dual)
        slid = sliding_procedure(objective, state.x, eta * state.x - w, self.r + eta, self.inner_steps)
        weight = state.weight + k + 1
        x_bar = state.x_bar + ((k + 1) / weight) * (slid.average - state.x_bar)
        return SlidingState(slid.last, slid.average, state.x, dual, x_bar, weight, k, state.norm)

    def iterate(self, state: SlidingState) -> Any:
        return state.x_bar

    def exchanged(self, state: SlidingState) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return state.x, state.x_hat, state.dual

    def metrics(
        self, objective: Any, network: Any, state: SlidingState, *, final: bool = False
    ) -> dict[str, float]:
        return composite_metrics(objective, network, state.x_bar, self.r)
