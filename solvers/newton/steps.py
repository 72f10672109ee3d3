"""Step sizes along a Newton direction: the theoretical ones, a line search, the exact minimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from solvers.newton.averaging import Direction
from solvers.newton.glm import GLM

STEPS = ("armijo", "theory", "exact", "newton_less")


@dataclass
class Ray:
    """F along ``b + mu p``, from margins alone: no pass over the rows per trial.

    Attributes
    ----------
    objective : GLM
    eta, Xp : arrays
        Margins of b, and of p without the offset, of the rows held here.
    b, p : arrays (d,)
    reduce : callable array -> array
        Sum over the ranks.
    """

    objective: GLM
    eta: np.ndarray
    Xp: np.ndarray
    b: np.ndarray
    p: np.ndarray
    reduce: Callable[[np.ndarray], np.ndarray]

    def __post_init__(self) -> None:
        penalty = self.objective.penalty
        self.start = 0.5 * float(penalty @ (self.b * self.b))
        self.linear = float(penalty @ (self.b * self.p))
        self.square = float(penalty @ (self.p * self.p))

    def value(self, mu: float) -> float:
        """F at ``b + mu p``."""
        objective = self.objective
        data = self.reduce(np.array([objective.loss_sum(self.eta + mu * self.Xp, objective.rows)]))
        return float(data[0]) + self.start + mu * self.linear + 0.5 * mu * mu * self.square

    def minimiser(self, mu: float) -> float:
        """One-dimensional Newton from `mu`."""
        objective, Xp = self.objective, self.Xp
        rows, N = objective.rows, objective.total_weight
        weight = 1.0 if objective.weight is None else objective.weight[rows]
        for _ in range(20):
            z, y = self.eta + mu * Xp, objective.y[rows]
            first = float(np.sum(weight * objective.loss.derivative(z, y) * Xp)) / N
            second = float(np.sum(weight * objective.loss.second_derivative(z, y) * Xp * Xp)) / N
            sums = self.reduce(np.array([first, second]))
            slope, curvature = sums[0] + self.linear + mu * self.square, sums[1] + self.square
            change = slope / max(curvature, np.finfo(float).tiny)
            mu -= change
            if abs(change) <= 1e-10 * (1.0 + abs(mu)):
                break
        return mu


def choose_step(
    rule: Any, ray: Ray, F: float, decrement: float, direction: Direction
) -> tuple[float, float, bool]:
    """Step size, F there, and whether no step decreases F any more.

    `rule` is one of `STEPS` or a number; F and ``decrement = -g'p`` are at b. The theoretical step is
    ``1/(1 + kappa/q)``; Newton-LESS takes ``1 - d_eff/m`` whatever the number of workers.
    """
    kappa = direction.kappa
    theory = 1.0 / (1.0 + kappa / direction.arrived)
    if rule != "armijo":
        fixed: dict[Any, float] = {"theory": theory, "newton_less": 1.0 / (1.0 + kappa)}
        mu = ray.minimiser(theory) if rule == "exact" else fixed.get(rule, rule)
        return float(mu), ray.value(float(mu)), False
    mu = theory
    # Near the optimum F cannot resolve the decrease any more: without the slack the search would stall.
    slack = 10.0 * np.finfo(float).eps * abs(F)
    for _ in range(60):
        trial = ray.value(mu)
        if trial <= F - 1e-4 * mu * decrement + slack:
            return mu, trial, False
        mu *= 0.5
    return 0.0, F, True
