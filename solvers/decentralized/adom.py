r"""ADOM+, optimal for smooth strongly convex objectives over time-varying networks, and ZO-SADOM.

ADOM+ (D. Kovalev, E. Shulgin, P. Richtarik, A. Rogozin, A. Gasnikov, *ADOM: accelerated decentralized
optimization method for time-varying networks* and its primal successor, 2021) solves the saddle-point form
with Nesterov acceleration in (x, y), error feedback m in z, and one gossip round per iteration. With

.. math::

    t_2 &= \sqrt{\mu/L},\; t_1 = (1/t_2 + 1/2)^{-1},\; \eta = 1/(L t_2),\; a = \mu/2,\; b = 1/(2L),\;
    \nu = \mu/2, \\
    s_2 &= t_2/(16\chi),\; s_1 = (1/s_2 + 1/2)^{-1},\; \theta = \nu/(4 s_2),\;
    \gamma = \nu/(14 s_2 \chi^2),\; \delta = 1/(17 L),\; \zeta = 1/2,

x and y solve the implicit 2x2 system

.. math::

    x^+ &= x + \eta a (x_g - x^+) - \eta (\nabla F(x_g) - \nu x_g - y^+) \\
    y^+ &= y + \theta b (\nabla F(x_g) - \nu x_g - y^+) - \theta (q + x^+), \qquad q = (y_g + z_g)/\nu .

Guarantee: linear, factor :math:`1 - \sqrt{\mu/L} / (32 \chi)` per round.

ZO-SADOM replaces the gradient of a non-smooth f by the two-point estimate
:math:`\frac{d}{2\tau} (f_i(x + \tau u) - f_i(x - \tau u)) u + r x`, u uniform on the sphere, whose smoothed
objective has :math:`L = \sqrt d M / \tau + r`. Its random directions leave the span of the subgradients, so
the lower bounds for span methods do not apply to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.arrays import array_namespace
from optikit.random import AgentStreams
from optikit.solver import IterativeSolver, per_agent, replicated
from optikit.validation import check_integer, check_real
from solvers.decentralized.composite import composite_metrics
from solvers.decentralized.nonsmooth_rules import gossip_chi


@dataclass(frozen=True)
class ADOMState:
    """x, y, z with their fast sequences, and the error feedback m."""

    x: Any = per_agent()
    x_fast: Any = per_agent()
    y: Any = per_agent()
    y_fast: Any = per_agent()
    z: Any = per_agent()
    z_fast: Any = per_agent()
    feedback: Any = per_agent()
    chi: float = replicated(default=1.0)
    iteration: int = replicated(default=0)


class _Accelerated(IterativeSolver):
    """The iteration that ADOM+ and ZO-SADOM share; they differ in the gradient oracle and in L."""

    chi: float | None
    r: float

    def _gradient(self, objective: Any, x: Any, iteration: int) -> Any:
        raise NotImplementedError

    def _constants(self, objective: Any) -> tuple[float, float]:
        """Smoothness L and strong convexity mu."""
        raise NotImplementedError

    def init(self, objective: Any, network: Any, x0: Any) -> ADOMState:
        chi = gossip_chi(network.topology) if self.chi is None else self.chi
        zero = array_namespace(x0).zeros_like(x0)
        return ADOMState(x0, x0, zero, zero, zero, zero, zero, chi=chi)

    def step(self, objective: Any, network: Any, state: ADOMState) -> ADOMState:
        L, mu = self._constants(objective)
        chi = state.chi
        t2 = math.sqrt(mu / L)
        t1, eta = 1 / (1 / t2 + 0.5), 1 / (L * t2)
        a, b, nu = mu / 2, 1 / (2 * L), mu / 2
        s2 = t2 / (16 * chi)
        s1, theta = 1 / (1 / s2 + 0.5), nu / (4 * s2)
        gamma, delta, zeta = nu / (14 * s2 * chi**2), 1 / (17 * L), 0.5

        x_g = t1 * state.x + (1 - t1) * state.x_fast
        y_g = s1 * state.y + (1 - s1) * state.y_fast
        z_g = s1 * state.z + (1 - s1) * state.z_fast
        q = (y_g + z_g) / nu
        slope = self._gradient(objective, x_g, state.iteration) - nu * x_g
        right_x = state.x + (eta * a) * x_g - eta * slope
        right_y = state.y + (theta * b) * slope - theta * q
        determinant = (1 + eta * a) * (1 + theta * b) + eta * theta
        x = ((1 + theta * b) * right_x + eta * right_y) / determinant
        y = ((1 + eta * a) * right_y - theta * right_x) / determinant

        v = gamma * q + state.feedback
        Wv, Wsum = network.gossip(v, y_g + z_g)
        return ADOMState(
            x=x,
            x_fast=x_g + t2 * (x - state.x),
            y=y,
            y_fast=y_g + s2 * (y - state.y),
            z=state.z + (gamma * delta) * (z_g - state.z) - Wv,
            z_fast=z_g - zeta * Wsum,
            feedback=v - Wv,
            chi=chi,
            iteration=state.iteration + 1,
        )

    def iterate(self, state: ADOMState) -> Any:
        return state.x_fast

    def exchanged(self, state: ADOMState) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return state.x, state.x_fast, state.y, state.y_fast, state.z, state.z_fast, state.feedback

    def metrics(
        self, objective: Any, network: Any, state: ADOMState, *, final: bool = False
    ) -> dict[str, float]:
        return composite_metrics(objective, network, self.iterate(state), self.r)


@dataclass(frozen=True)
class ADOMPlus(_Accelerated):
    """ADOM+ for L-smooth, mu-strongly convex objectives.

    Parameters
    ----------
    smoothness : float
        L of ``f_i + (r/2)||x||^2``, > 0.
    strong_convexity : float
        mu of the same, in (0, L].
    r : float, default 0
        Weight of ``(r/2)||x||^2`` added to every f_i, >= 0.
    chi : float or None
        Condition number of the gossip, >= 1; None computes it from the network.
    """

    name: ClassVar[str] = "ADOM+"
    kinds: ClassVar[tuple[str, ...] | None] = ("mixing", "gossip")

    smoothness: float = 1.0
    strong_convexity: float = 0.1
    r: float = 0.0
    chi: float | None = None

    def __post_init__(self) -> None:
        L = check_real(self.smoothness, "smoothness", minimum=0.0, open_low=True)
        check_real(self.strong_convexity, "strong_convexity", minimum=0.0, maximum=L, open_low=True)
        check_real(self.r, "r", minimum=0.0)
        if self.chi is not None:
            check_real(self.chi, "chi", minimum=1.0)

    def _gradient(self, objective: Any, x: Any, iteration: int) -> Any:
        return objective.gradient(x) + self.r * x

    def _constants(self, objective: Any) -> tuple[float, float]:
        return self.smoothness, self.strong_convexity


@dataclass(frozen=True)
class ZOSADOM(_Accelerated):
    """ADOM+ driven by two-point function values of non-smooth M-Lipschitz objectives.

    Parameters
    ----------
    lipschitz : float
        M of the f_i, > 0.
    r : float
        Weight of ``(r/2)||x||^2``, > 0.
    smoothing : float
        Radius tau of the two-point estimate, > 0.
    seed : int, default 0
        Seed of the directions, keyed by agent and iteration.
    chi : float or None
        Condition number of the gossip, >= 1; None computes it from the network.
    """

    name: ClassVar[str] = "ZO-SADOM"
    kinds: ClassVar[tuple[str, ...] | None] = ("mixing", "gossip")

    lipschitz: float = 1.0
    r: float = 0.1
    smoothing: float = 0.1
    seed: int = 0
    chi: float | None = None

    def __post_init__(self) -> None:
        check_real(self.lipschitz, "lipschitz", minimum=0.0, open_low=True)
        check_real(self.r, "r", minimum=0.0, open_low=True)
        check_real(self.smoothing, "smoothing", minimum=0.0, open_low=True)
        check_integer(self.seed, "seed", minimum=0)
        if self.chi is not None:
            check_real(self.chi, "chi", minimum=1.0)

    def _gradient(self, objective: Any, x: Any, iteration: int) -> Any:
        xp, tau = array_namespace(x), self.smoothing
        streams = AgentStreams(self.seed, "two-point direction")
        u = streams.normal(objective.agents, iteration, x.shape[1], xp)
        u = u / xp.sqrt(xp.sum(u * u, axis=1, keepdims=True))
        difference = objective.value(x + tau * u) - objective.value(x - tau * u)
        return (x.shape[1] / (2 * tau)) * difference[:, None] * u + self.r * x

    def _constants(self, objective: Any) -> tuple[float, float]:
        return math.sqrt(objective.dim) * self.lipschitz / self.smoothing + self.r, self.r
