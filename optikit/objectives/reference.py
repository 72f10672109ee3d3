"""Reference optima through cvxpy, for gaps and tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.arrays import to_numpy
from optikit.losses import (
    Absolute,
    Hinge,
    Huber,
    LeastSquares,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    SquaredHinge,
)
from optikit.objectives.base import Objective
from optikit.objectives.linear import LinearModel
from optikit.objectives.quadratic import Quadratic
from optikit.validation import check_probability_vector, check_real


@dataclass(frozen=True)
class ReferenceOptimum:
    """Minimiser, optimal value, and the solver's status ("optimal" or "optimal_inaccurate")."""

    x: np.ndarray
    value: float
    status: str


def reference_optimum(
    objective: Objective,
    *,
    weights: Any = None,
    l2: float = 0.0,
    l1: float = 0.0,
    solver: str = "CLARABEL",
) -> ReferenceOptimum:
    r"""Minimise ``sum_m p_m f_m(x) + (l2/2)||x||^2 + l1 ||x||_1`` with a conic solver.

    Parameters
    ----------
    objective : LinearModel or Quadratic
        Holding all agents.
    weights : array (n_agents,), optional
        p_m, summing to 1; uniform by default.
    l2, l1 : float, default 0
        Penalties added to the objective's own.
    solver : str, default "CLARABEL"
        Any solver that cvxpy knows.

    Raises
    ------
    ValueError
        When the minimum is not attained (unbounded, separable data) or the solver fails.
    """
    import cvxpy

    check_real(l2, "l2", minimum=0.0)
    check_real(l1, "l1", minimum=0.0)
    n = objective.n_agents
    if objective.n_local != n:
        raise ValueError(f"objective must hold all {n} agents, got {objective.n_local} of them.")
    p = np.full(n, 1.0 / n) if weights is None else check_probability_vector(weights, "weights", n)
    x = cvxpy.Variable(objective.dim)
    if isinstance(objective, LinearModel):
        data = objective.data
        features = data.features if data.is_sparse else to_numpy(data.features)
        shares = np.repeat(p / data.sizes, data.sizes)
        terms = _atom(objective.loss, features @ x, to_numpy(objective.targets), cvxpy)
        expression = shares @ terms + 0.5 * objective.l2 * cvxpy.sum_squares(x)
    elif isinstance(objective, Quadratic):
        A = np.einsum("m,mij->ij", p, to_numpy(objective.A))
        b, c = p @ to_numpy(objective.b), p @ to_numpy(objective.c)
        expression = 0.5 * cvxpy.quad_form(x, cvxpy.psd_wrap(A)) - b @ x + c
    else:
        raise TypeError(f"objective must be a LinearModel or a Quadratic, got {type(objective).__name__}.")
    if l2:
        expression = expression + 0.5 * l2 * cvxpy.sum_squares(x)
    if l1:
        expression = expression + l1 * cvxpy.norm1(x)
    problem = cvxpy.Problem(cvxpy.Minimize(expression))
    problem.solve(solver=solver)
    if problem.status not in {"optimal", "optimal_inaccurate"} or x.value is None:
        raise ValueError(
            f"the minimum is not attained or was not found: {solver} ended with status {problem.status!r} "
            "(separable data and unbounded problems have no minimiser; add l2)."
        )
    return ReferenceOptimum(np.asarray(x.value), float(problem.value), problem.status)


def _atom(loss: Loss, z: Any, y: np.ndarray, cvxpy: Any) -> Any:
    if isinstance(loss, Logistic):
        return cvxpy.logistic(-cvxpy.multiply(y, z))
    if isinstance(loss, LeastSquares):
        return 0.5 * cvxpy.square(z - y)
    if isinstance(loss, Absolute):
        return cvxpy.abs(z - y)
    if isinstance(loss, Quantile):
        e = y - z
        return cvxpy.maximum(loss.level * e, (loss.level - 1.0) * e)
    if isinstance(loss, Hinge):
        return cvxpy.pos(1 - cvxpy.multiply(y, z))
    if isinstance(loss, SquaredHinge):
        return 0.5 * cvxpy.square(cvxpy.pos(1 - cvxpy.multiply(y, z)))
    if isinstance(loss, Huber):
        return 0.5 * cvxpy.huber(z - y, loss.delta)
    if isinstance(loss, Poisson):
        return cvxpy.exp(z) - cvxpy.multiply(y, z)
    raise TypeError(f"no conic form of the loss {loss.name!r} is known.")
