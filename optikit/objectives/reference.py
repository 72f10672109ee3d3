r"""Reference optima through cvxpy, for gaps and tests, with a certificate that does not trust the solver.

For linear models the gap is Fenchel's: with shares :math:`c_i = p_m / n_m` and
:math:`r(x) = \tfrac\lambda2 \|x\|^2 + l_1 \|x\|_1`,

.. math:: \min_x \sum_i c_i \phi(\langle x_i, x\rangle, y_i) + r(x) \ge
          -\sum_i c_i \phi^*(u_i, y_i) - r^*\bigl(-\textstyle\sum_i c_i u_i x_i\bigr)

for every u; the solver's multipliers give u. For quadratics plus :math:`l_1` the bound is
:math:`-\tfrac12 (b - v)^T A^{-1} (b - v)` for any :math:`\|v\|_\infty \le l_1`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.arrays import to_numpy
from optikit.losses import (
    Absolute,
    Gamma,
    Hinge,
    Huber,
    LeastSquares,
    Logistic,
    Loss,
    NegativeBinomial,
    Poisson,
    Quantile,
    SquaredHinge,
)
from optikit.objectives.base import Objective
from optikit.objectives.linear import LinearModel
from optikit.objectives.quadratic import Quadratic
from optikit.validation import check_probability_vector, check_real

_NOT_ATTAINED = "separable data and unbounded problems have no minimiser; add l2"


@dataclass(frozen=True)
class ReferenceOptimum:
    """A minimiser and what is known about it.

    Attributes
    ----------
    x : numpy.ndarray, shape (d,)
    value : float
        The objective at x.
    status : {"optimal", "optimal_inaccurate"}
        What the solver says.
    dual_gap : float or None
        ``value`` exceeds the minimum by no more than this (up to rounding); None where no bound is at hand,
        that is without l2 or l1 in a linear model, or for a singular quadratic.
    """

    x: np.ndarray
    value: float
    status: str
    dual_gap: float | None = None


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
        When the minimum is not attained (unbounded, separable data), the problem is not convex, or the
        solver fails.
    TypeError
        For objectives without a conic form.
    """
    l2, l1 = check_real(l2, "l2", minimum=0.0), check_real(l1, "l1", minimum=0.0)
    n = objective.n_agents
    if objective.n_local != n:
        raise ValueError(f"objective must hold all {n} agents, got {objective.n_local} of them.")
    p = np.full(n, 1.0 / n) if weights is None else check_probability_vector(weights, "weights", n)
    if isinstance(objective, LinearModel):
        return _linear(objective, p, objective.l2 + l2, l1, solver)
    if isinstance(objective, Quadratic):
        return _quadratic(objective, p, l2, l1, solver)
    raise TypeError(f"objective must be a LinearModel or a Quadratic, got {type(objective).__name__}.")


def _linear(objective: LinearModel, p: np.ndarray, l2: float, l1: float, solver: str) -> ReferenceOptimum:
    import cvxpy

    data, loss = objective.data, objective.loss
    features: Any = data.features if data.is_sparse else to_numpy(data.features)
    features, y = features.astype(np.float64), to_numpy(objective.targets).astype(np.float64)
    shares = np.repeat(p / data.sizes, data.sizes)
    if not l2 and not l1 and _recedes(loss, features[shares > 0], y[shares > 0]):
        raise ValueError(f"the minimum of the {loss.name} loss is not attained ({_NOT_ATTAINED}).")
    x, z = cvxpy.Variable(objective.dim), cvxpy.Variable(y.size)
    link = z == features @ x
    expression = shares @ _atom(loss, z, y, cvxpy)
    if l2:
        expression = expression + 0.5 * l2 * cvxpy.sum_squares(x)
    if l1:
        expression = expression + l1 * cvxpy.norm1(x)
    status = _solve(cvxpy.Problem(cvxpy.Minimize(expression), [link]), solver)
    point = np.asarray(x.value)
    penalty = 0.5 * l2 * float(point @ point) + l1 * float(np.abs(point).sum())
    value = float(shares @ loss.value(features @ point, y)) + penalty
    if link.dual_value is None or not (l2 or l1):
        return ReferenceOptimum(point, value, status)
    slopes = -np.asarray(link.dual_value) / np.where(shares > 0, shares, 1.0)
    slopes = np.clip(slopes, *loss.slope_range(y))
    pull = np.abs(features.T @ (shares * slopes))
    if l2:
        conjugate = float(np.sum(np.maximum(pull - l1, 0.0) ** 2)) / (2.0 * l2)
    else:  # the conjugate of l1 ||.||_1 is 0 within a box, to which the slopes are shrunk
        slopes, conjugate = slopes * min(1.0, l1 / max(float(pull.max(initial=0.0)), 1e-300)), 0.0
    bound = -float(shares @ loss.conjugate(slopes, y)) - conjugate
    return ReferenceOptimum(point, value, status, max(0.0, value - bound))


def _quadratic(objective: Quadratic, p: np.ndarray, l2: float, l1: float, solver: str) -> ReferenceOptimum:
    import cvxpy

    A = np.einsum("m,mij->ij", p, to_numpy(objective.A)) + l2 * np.eye(objective.dim)
    b, c = p @ to_numpy(objective.b), float(p @ to_numpy(objective.c))
    spectrum = np.linalg.eigvalsh(A)
    scale = float(np.abs(spectrum).max(initial=0.0))
    if spectrum[0] < -1e-10 * scale:
        raise ValueError(
            "the weighted mean of A must be positive semidefinite, "
            f"got an eigenvalue of {float(spectrum[0])!r}."
        )
    x = cvxpy.Variable(objective.dim)
    expression = 0.5 * cvxpy.quad_form(x, cvxpy.psd_wrap(A)) - b @ x
    if l1:
        expression = expression + l1 * cvxpy.norm1(x)
    status = _solve(cvxpy.Problem(cvxpy.Minimize(expression)), solver)
    point = np.asarray(x.value)
    value = float(point @ (0.5 * (A @ point) - b)) + l1 * float(np.abs(point).sum())
    if spectrum[0] <= 1e-12 * scale:
        return ReferenceOptimum(point, value + c, status)
    rest = b - np.clip(b - A @ point, -l1, l1)
    bound = -0.5 * float(rest @ np.linalg.solve(A, rest))
    return ReferenceOptimum(point, value + c, status, max(0.0, value - bound))


def _solve(problem: Any, solver: str) -> str:
    import cvxpy

    try:
        with warnings.catch_warnings():
            # The status says it, and the caller of the reference reads it there.
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")
            problem.solve(solver=solver)
    except cvxpy.error.SolverError as error:
        raise ValueError(f"the solver {solver!r} failed: {error}") from error
    status: str = problem.status
    if status not in {"optimal", "optimal_inaccurate"} or problem.variables()[0].value is None:
        raise ValueError(
            f"the minimum is not attained or was not found: {solver} ended with status {status!r} "
            f"({_NOT_ATTAINED})."
        )
    return status


def _recedes(loss: Loss, features: Any, y: np.ndarray) -> bool:
    """Whether some direction lowers the mean loss for ever, decided by a linear programme.

    Only losses that approach their infimum without reaching it can do so: the logistic loss when a direction
    has no negative and some positive margin [1]_, the Poisson loss when one lowers scores of zero counts and
    leaves the others alone.

    References
    ----------
    .. [1] A. Albert, J. Anderson, *On the existence of maximum likelihood estimates in logistic regression
       models*, Biometrika 71, 1984.
    """
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    if isinstance(loss, Logistic):
        signs, most = y, np.ones(y.size)
    elif isinstance(loss, Poisson | NegativeBinomial):
        signs, most = -np.ones(y.size), np.where(y > 0, 0.0, 1.0)
    else:
        return False
    gains = sparse.diags_array(signs) @ features if sparse.issparse(features) else signs[:, None] * features
    # Gains are a cone cut at 1: the greatest total is 0 or at least 1. (No variable is integer.)
    result = milp(
        -np.asarray(gains.sum(axis=0)).ravel(),
        constraints=LinearConstraint(sparse.csc_array(gains), np.zeros(y.size), most),
        bounds=Bounds(-np.inf, np.inf),
    )
    return bool(result.status == 0 and -result.fun > 0.5)


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
    if isinstance(loss, NegativeBinomial):
        softplus = cvxpy.logistic(z + np.log(loss.alpha))
        return cvxpy.multiply(y + 1.0 / loss.alpha, softplus) - cvxpy.multiply(y, z)
    if isinstance(loss, Gamma):
        return cvxpy.multiply(y, cvxpy.exp(-z)) + z
    raise TypeError(f"no conic form of the loss {loss.name!r} is known.")
