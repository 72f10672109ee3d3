r"""Push-sum averaging and Push-DIGing, for directed networks whose agents know their out-degree.

With column-stochastic matrices C (agent j divides what it sends by its out-degree + 1), push-sum corrects
the skewed weights by a ratio,

.. math:: x \leftarrow C x, \quad y \leftarrow C y, \quad z = x / y \to \tfrac1n \textstyle\sum_i x_i^0

(y starts at 1), and Push-DIGing adds gradient tracking (u starts at the gradients):

.. math::

    x^+ = C (x - a u), \quad y^+ = C y, \quad z^+ = x^+ / y^+, \quad
    u^+ = C (u + \nabla f(z^+) - \nabla f(z)) .

x and y travel in one round, u in the next. Since :math:`u_i / y_i` estimates the *mean* gradient, the step a
is that of gradient descent on the mean objective.

Reference: D. Kempe, A. Dobra, J. Gehrke, *Gossip-based computation of aggregate information*, FOCS 2003;
A. Nedic, A. Olshevsky, W. Shi, *Achieving geometric convergence for distributed optimization over
time-varying graphs*, SIAM J. Optim. 2017.

Guarantee: linear convergence to the exact optimum for smooth strongly convex objectives and small a, also
over uniformly strongly connected time-varying directed networks; the sums of x and y, and sum u = sum of
gradients, are preserved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.arrays import array_namespace
from optikit.solver import per_agent, replicated
from optikit.validation import check_integer
from solvers.decentralized.directed import TrackingMethod, check_connected, check_step, check_weights


def push_sum(network: Any, X: Any, *, rounds: int) -> Any:
    """Averages over a directed network: each agent's estimate of the mean of all rows of X.

    Parameters
    ----------
    network : Network
        Of kind col (or mixing).
    X : array, shape (n_local, d)
    rounds : int
        Rounds to spend, >= 0.

    Returns
    -------
    array, shape (n_local, d)
    """
    network.require_kind("col", "mixing", by="push-sum")
    xp = array_namespace(X)
    weights = xp.ones_like(X[:, :1])
    for _ in range(check_integer(rounds, "rounds", minimum=0)):
        X, weights = network.mix(X, weights)
    check_weights(weights, network.agents, "push-sum", what="the weight")
    return X / weights


@dataclass(frozen=True)
class PushDIGingState:
    """Numerators x, push-sum weights y, their ratios z, tracker u and the gradients at z."""

    x: Any = per_agent()
    weights: Any = per_agent()
    z: Any = per_agent()
    tracker: Any = per_agent()
    gradient: Any = per_agent()
    iteration: int = replicated(default=0)


@dataclass(frozen=True)
class PushDIGing(TrackingMethod):
    """Push-DIGing on networks of kind col (or mixing); two rounds per iteration.

    Parameters
    ----------
    step_size : float
        The step a on the mean objective, > 0.
    batch_size : int, optional
        Samples per agent and gradient; None for exact gradients.
    seed : int, default 0
        Of the samples.
    """

    name: ClassVar[str] = "Push-DIGing"

    step_size: float = 0.1
    batch_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_step(self.step_size, "step_size")
        self._check_oracle()

    def validate(self, objective: Any, network: Any) -> None:
        network.require_kind("col", "mixing", by=self.name)
        check_connected(network, self.name)

    def init(self, objective: Any, network: Any, x0: Any) -> PushDIGingState:
        gradient = self._gradient(objective, x0, 0)
        ones = array_namespace(x0).ones_like(x0[:, :1])
        return PushDIGingState(x0, ones, x0, gradient, gradient)

    def step(self, objective: Any, network: Any, state: PushDIGingState) -> PushDIGingState:
        k = state.iteration + 1
        x, weights = network.mix(state.x - self.step_size * state.tracker, state.weights)
        check_weights(weights, network.agents, self.name, what="the push-sum weight")
        z = x / weights
        gradient = self._gradient(objective, z, k)
        tracker = network.mix(state.tracker + gradient - state.gradient)
        return PushDIGingState(x, weights, z, tracker, gradient, k)

    def iterate(self, state: PushDIGingState) -> Any:
        return state.z

    def exchanged(self, state: PushDIGingState) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return state.x, state.z, state.tracker

    def estimate(self, network: Any, state: PushDIGingState) -> float:
        return tracked_mean(network, state.tracker)


def tracked_mean(network: Any, tracker: Any) -> float:
    """Norm of the mean of all trackers: that of the mean of the gradients they were fed."""
    mean = network.mean(tracker)
    return math.sqrt(float(array_namespace(mean).sum(mean * mean)))
