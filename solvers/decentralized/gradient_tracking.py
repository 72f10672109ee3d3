r"""Gradient tracking (DIGing, adapt-then-combine form).

.. math:: X^+ = W (X - a Y), \qquad Y^+ = W' (Y + \nabla f(X^+) - \nabla f(X)), \quad Y^0 = \nabla f(X^0).

The two exchanges follow each other, so on a time-varying network they use two different matrices; re-using
one W for both would let information travel two hops in one round.

Reference: A. Nedic, A. Olshevsky, W. Shi, *Achieving geometric convergence for distributed optimization over
time-varying graphs*, SIAM J. Optim. 2017.

Guarantee: linear convergence to the exact optimum for smooth strongly convex objectives and a step size
:math:`a = O((1-\lambda)^2 / L)`; Y keeps the mean of the gradients, ``mean Y = mean grad f(X)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.solver import IterativeSolver, per_agent
from optikit.validation import check_real
from solvers.decentralized.composite import composite_metrics


@dataclass(frozen=True)
class TrackingState:
    """Iterate, gradient tracker and the last gradient."""

    x: Any = per_agent()
    tracker: Any = per_agent()
    gradient: Any = per_agent()


@dataclass(frozen=True)
class GradientTracking(IterativeSolver):
    """Gradient tracking over any sequence of mixing matrices; two rounds per iteration.

    Parameters
    ----------
    step_size : float
        The step a, > 0.
    r : float, default 0
        Weight of ``(r/2)||x||^2`` added to every f_i, >= 0.
    """

    name: ClassVar[str] = "gradient tracking"
    kinds: ClassVar[tuple[str, ...] | None] = ("mixing",)

    step_size: float = 0.1
    r: float = 0.0

    def __post_init__(self) -> None:
        check_real(self.step_size, "step_size", minimum=0.0, open_low=True)
        check_real(self.r, "r", minimum=0.0)

    def init(self, objective: Any, network: Any, x0: Any) -> TrackingState:
        gradient = self._gradient(objective, x0)
        return TrackingState(x0, gradient, gradient)

    def step(self, objective: Any, network: Any, state: TrackingState) -> TrackingState:
        x = network.mix(state.x - self.step_size * state.tracker)
        gradient = self._gradient(objective, x)
        tracker = network.mix(state.tracker + gradient - state.gradient)
        return TrackingState(x, tracker, gradient)

    def _gradient(self, objective: Any, x: Any) -> Any:
        return objective.gradient(x) + self.r * x

    def iterate(self, state: TrackingState) -> Any:
        return state.x

    def exchanged(self, state: TrackingState) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return state.x, state.tracker

    def metrics(
        self, objective: Any, network: Any, state: TrackingState, *, final: bool = False
    ) -> dict[str, float]:
        return composite_metrics(objective, network, state.x, self.r)
