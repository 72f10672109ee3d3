r"""AB / Push-Pull: gradient tracking with a row-stochastic A for the iterates, a column-stochastic B for u.

.. math:: x^+ = A (x - a u), \qquad u^+ = B (u + \nabla f(x^+) - \nabla f(x)), \qquad u^0 = \nabla f(x^0).

A keeps consensus a fixed point, B keeps ``sum u = sum of gradients``; no eigenvector has to be estimated,
but agents need to know their out-degree. The network alternates both matrices: see
`optikit.mixing.PullPush`.

Reference: R. Xin, U. Khan, *A linear algorithm for optimization over directed graphs with geometric
convergence*, IEEE Control Syst. Lett. 2018; S. Pu, W. Shi, J. Xu, A. Nedic, *Push-pull gradient methods for
distributed optimization in networks*, IEEE TAC 2021.

Guarantee: linear convergence to the exact optimum for smooth strongly convex objectives and small a. With
:math:`\pi^T A = \pi^T` and :math:`B \phi = \phi` (both of sum 1) the iterates descend the mean objective by
steps :math:`a\, n \langle \pi, \phi \rangle`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.solver import per_agent, replicated
from solvers.decentralized.directed import TrackingMethod, check_step
from solvers.decentralized.push_diging import tracked_mean


@dataclass(frozen=True)
class PushPullState:
    """Iterate, tracker of the sum of the gradients, and the last gradients."""

    x: Any = per_agent()
    tracker: Any = per_agent()
    gradient: Any = per_agent()
    iteration: int = replicated(default=0)


@dataclass(frozen=True)
class PushPull(TrackingMethod):
    """AB / Push-Pull on networks of kind pull-push (or mixing); two rounds per iteration.

    Parameters
    ----------
    step_size : float
        The step a, > 0.
    batch_size : int, optional
        Samples per agent and gradient; None for exact gradients.
    seed : int, default 0
        Of the samples.
    """

    name: ClassVar[str] = "Push-Pull"

    step_size: float = 0.1
    batch_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_step(self.step_size, "step_size")
        self._check_oracle()

    def validate(self, objective: Any, network: Any) -> None:
        network.require_kind("pull-push", "mixing", by=self.name)

    def init(self, objective: Any, network: Any, x0: Any) -> PushPullState:
        gradient = self._gradient(objective, x0, 0)
        return PushPullState(x0, gradient, gradient)

    def step(self, objective: Any, network: Any, state: PushPullState) -> PushPullState:
        k = state.iteration + 1
        x = network.mix(state.x - self.step_size * state.tracker)
        gradient = self._gradient(objective, x, k)
        tracker = network.mix(state.tracker + gradient - state.gradient)
        return PushPullState(x, tracker, gradient, k)

    def iterate(self, state: PushPullState) -> Any:
        return state.x

    def exchanged(self, state: PushPullState) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return state.x, state.tracker

    def estimate(self, network: Any, state: PushPullState) -> float:
        return tracked_mean(network, state.tracker)
