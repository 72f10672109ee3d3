r"""What Local GD is compared with: gradient descent, tuned steps, minibatches, and its limit on quadratics.

At a fixed product :math:`\eta K` local steps hardly change the final loss, so gradient descent with the step
:math:`\eta K` belongs in every comparison. Schedules tuned for a horizon R:

.. math:: \eta = \gamma^2 R \quad (\text{gradient descent; } F = \tilde O(1/(\gamma^4R^2))), \qquad
          \eta K = \gamma^3 R/M \quad (\text{Local GD; } F = \tilde O(M/(\gamma^5R^2))).

References: J. Wu, P. Bartlett, M. Telgarsky, B. Yu, *Large Stepsize Gradient Descent for Logistic Loss*, COLT
2024 (the first); M. Crawshaw, B. Woodworth, M. Liu, *Constant Stepsize Local GD for Logistic Regression*,
ICML 2025 (the second) [P]. B. Woodworth, K. Patel, N. Srebro, *Minibatch vs Local SGD for Heterogeneous
Distributed Learning*, 2020, for small steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.arrays import array_namespace, from_numpy
from optikit.random import AgentStreams
from optikit.validation import check_integer, check_probability_vector, check_real
from solvers.federated.local_gd import LocalGD
from solvers.federated.local_method import LocalState


def gradient_descent(step_size: float, **options: Any) -> LocalGD:
    """Gradient descent on F, one step a round: ``w <- w - step_size grad F(w)``.

    The fair partner of Local GD with (eta, K) has ``step_size = eta K``.
    """
    return LocalGD(step_size, 1, **options)


def small_step_local_gd(local_steps: int, *, conservative: bool = False, **options: Any) -> LocalGD:
    """Local GD with ``eta = 1/K``, or the textbook's ``1/(10 H K)`` (H = 1/4) when `conservative`."""
    local_steps = check_integer(local_steps, "local_steps", minimum=1)
    return LocalGD((0.4 if conservative else 1.0) / local_steps, local_steps, **options)


def large_step_gradient_descent(gamma: float, rounds: int, **options: Any) -> LocalGD:
    """Gradient descent with ``eta = gamma^2 R``, tuned for `rounds` (Wu et al. 2024)."""
    gamma = check_real(gamma, "gamma", minimum=0.0, maximum=1.0, open_low=True)
    return LocalGD(gamma**2 * check_integer(rounds, "rounds", minimum=1), 1, **options)


def tuned_local_gd(gamma: float, rounds: int, n_agents: int, local_steps: int = 1, **options: Any) -> LocalGD:
    """Local GD with ``eta K = gamma^3 R / M``, tuned for `rounds` (Crawshaw et al. 2025)."""
    gamma = check_real(gamma, "gamma", minimum=0.0, maximum=1.0, open_low=True)
    product = gamma**3 * check_integer(rounds, "rounds", minimum=1)
    product /= check_integer(n_agents, "n_agents", minimum=1)
    return LocalGD(product / check_integer(local_steps, "local_steps", minimum=1), local_steps, **options)


@dataclass(frozen=True)
class LocalSGD(LocalGD):
    """Local SGD: Local GD with minibatches drawn with replacement.

    Parameters
    ----------
    step_size, local_steps, solver
        As in `LocalGD`; the solver is the objective's own stochastic gradient, in weight space.
    batch_size : int, default 1
        b, at least 1.
    seed : int, default 0
        Minibatches are keyed by (seed, client, round, local step): not by rank.
    """

    name: ClassVar[str] = "Local SGD"

    batch_size: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(self.batch_size, "batch_size", minimum=1)
        check_integer(self.seed, "seed", minimum=0)
        if self.solver == "gram":
            raise ValueError("solver='gram' needs full local gradients; Local SGD works in weight space.")

    def make_local(self, objective: Any, weights: np.ndarray) -> Any:
        return StochasticSteps(objective, weights, self.batch_size, AgentStreams(self.seed, "minibatch"))

    def contributions(self, state: LocalState) -> Any:
        setup = state.setup
        step = self.step_size / (setup.scale * setup.scale)
        return setup.local(state.w, step, self.local_steps, state.round)


class StochasticSteps:
    """Local steps along the objective's stochastic gradients; losses are exact."""

    def __init__(self, objective: Any, weights: np.ndarray, batch_size: int, streams: AgentStreams) -> None:
        xp = objective.xp
        self.objective, self.batch_size, self.streams = objective, batch_size, streams
        self.weights = xp.astype(from_numpy(np.asarray(weights)[:, None], xp), objective.dtype)

    def losses(self, w: Any) -> Any:
        """``p_m F_m(w)``, shape (n_local, 1)."""
        return self.weights * self.objective.value(w)[:, None]

    def __call__(self, w: Any, step: float, local_steps: int, r: int) -> Any:
        xp = array_namespace(w)
        moved = xp.zeros((self.objective.n_local, w.shape[0]), dtype=w.dtype)
        for k in range(local_steps):
            number = r * local_steps + k
            moved = moved - step * self.objective.stochastic_gradient(
                w + moved, self.batch_size, self.streams, number
            )
        return xp.concat((self.weights * moved, self.losses(w)), axis=1)


def quadratic_fixed_point(
    objective: Any, step_size: float, local_steps: int, weights: Any = None
) -> np.ndarray:
    r"""Where Local GD on quadratics :math:`\frac12 x^TA_mx - b_m^Tx` converges to: not the optimum [D].

    .. math:: w = \Big(\sum_m p_m T_m\Big)^{-1} \sum_m p_m T_m x_m^*, \qquad T_m = I - (I - \eta A_m)^K,
              \quad A_m x_m^* = b_m.

    This is why general convex theory cannot show what Local GD does on logistic losses, whose Hessian
    vanishes with the loss.

    Parameters
    ----------
    objective : Quadratic
        All agents.
    step_size : float
        eta, with ``|1 - eta a| < 1`` for every eigenvalue a.
    local_steps : int
    weights : array, shape (n_agents,), optional
        Uniform by default.

    Returns
    -------
    numpy.ndarray, shape (d,)
    """
    from optikit.arrays import to_numpy

    step_size = check_real(step_size, "step_size", minimum=0.0, open_low=True)
    local_steps = check_integer(local_steps, "local_steps", minimum=1)
    A, b = to_numpy(objective.A), to_numpy(objective.b)
    n, d = b.shape
    p = np.full(n, 1.0 / n) if weights is None else check_probability_vector(weights, "weights", n)
    # T_m x_m* = eta sum_{k<K} (I - eta A_m)^k b_m: no inverse of A_m, which may be singular.
    contraction = np.eye(d) - step_size * A
    power, series = np.broadcast_to(np.eye(d), A.shape), np.zeros(A.shape)
    for _ in range(local_steps):
        series = series + power
        power = power @ contraction
    right = step_size * np.einsum("m,mij,mj->i", p, series, b)
    left = np.eye(d) - np.einsum("m,mij->ij", p, power)
    return np.linalg.solve(left, right)
