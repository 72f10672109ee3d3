"""Sketched Newton directions of one worker: sketch A(b), debias, factor."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sla

from optikit.sketching import (
    LESS,
    SASO,
    SRHT,
    CountSketch,
    DebiasedInverse,
    Gaussian,
    LESSUniform,
    PoissonRows,
    Rademacher,
    Rows,
    RowsWithoutReplacement,
    Sketch,
    approximate_leverage,
    debias_weights,
    default_rule,
    effective_dimension_from_gram,
    exact_leverage,
    leverage_from_sketch,
    sampling_probabilities,
)
from optikit.sketching.leverage import leverage_of_rows
from optikit.sketching.operators import RowSparseOperator, SketchOperator
from optikit.sketching.rows import RowOperator
from optikit.sketching.sketches import SketchTooSmall
from solvers.newton.glm import GLM

#: Sketches that need scores of the rows of A(b).
SCORED = ("rows", "rows_poisson", "less")
SKETCHES = (
    "rows_poisson",
    "rows",
    "rows_wor",
    "less",
    "less_uniform",
    "saso",
    "countsketch",
    "srht",
    "srht_wor",
    "gaussian",
    "rademacher",
    "exact",
)
#: Sketches whose parts on the rows of a rank add up to the whole.
REDUCIBLE = tuple(name for name in SKETCHES if name not in ("srht", "srht_wor", "exact"))
#: Power iterations for the variance of a sampled direction; a few per cent below the eigenvalue is enough.
POWER_ITERATIONS = 8


@dataclass
class Scores:
    """What is known about the rows of A(b): sampling probabilities, leverage, a factor to recompute it.

    Attributes
    ----------
    probabilities : array (n,) or None
        None means uniform.
    leverage : array (n,) or None
        Exact, or approximate by random projections.
    root : array (d, d) or None
        Lower Cholesky factor of an approximate Hessian, for the leverage of chosen rows.
    """

    probabilities: np.ndarray | None = None
    leverage: np.ndarray | None = None
    root: np.ndarray | None = None


def score_rows(glm: GLM, scale: np.ndarray, scheme: str, how: str, seed: Any, residual: Any) -> Scores:
    """Scores for the sampling scheme: ``how`` is "approximate" or "exact"; "uniform" needs none."""
    if scheme == "uniform":
        return Scores()
    A = _Augmented(glm)
    if scheme == "row_norm":
        if not scale.any():
            return Scores()
        return Scores(sampling_probabilities("row_norm", A.matrix(), scale=scale))
    penalty = np.diag(glm.penalty)
    if how == "exact":
        values = exact_leverage(A.matrix(), penalty, scale)
        root = None
    else:
        values, root = approximate_leverage(A.matrix(), penalty, seed, scale=scale, check_finite=False)
    if not values.any():  # no row has curvature: none is better than another
        return Scores()
    if scheme in ("mVc", "mMSE"):
        pi = sampling_probabilities(scheme, A.matrix(), residual=residual, root=root, mix=0.3)
    else:
        pi = sampling_probabilities(scheme, A.matrix(), leverage=values)
    return Scores(pi, values, root)


class _Augmented:
    """X with the column of ones, formed only where scores of all rows are asked for with an intercept."""

    def __init__(self, glm: GLM) -> None:
        self.glm = glm

    def matrix(self) -> Any:
        glm = self.glm
        if not glm.intercept:
            return glm.X
        import scipy.sparse as sp

        ones = np.ones((glm.n_samples, 1), dtype=glm.X.dtype)
        return sp.hstack([glm.X, ones], format="csr") if sp.issparse(glm.X) else np.hstack([glm.X, ones])


def make_sketch(name: str, m: int, scores: Scores, n: int, s: int, on_heavy: str) -> Sketch:
    """The sketch called `name` with m rows."""
    if name == "rows_poisson":
        kept = scores.leverage if on_heavy == "keep" else None
        return PoissonRows(m, scores.probabilities, kept)
    if name == "rows":
        return Rows(m, scores.probabilities)
    if name == "rows_wor":
        return RowsWithoutReplacement(min(m, n))
    if name == "less":
        pi = np.full(n, 1.0 / n) if scores.probabilities is None else scores.probabilities
        return LESS(m, pi / pi.sum(), s)
    if name == "less_uniform":
        return LESSUniform(m, s)
    if name == "srht_wor":
        return SRHT(m, replacement=False)
    if name == "saso":
        return SASO(m, min(4, m))
    plain = {
        "countsketch": CountSketch,
        "srht": SRHT,
        "gaussian": Gaussian,
        "rademacher": Rademacher,
    }
    return plain[name](m)


class LazyScale:
    """Row scaling of A(b) computed at the rows that a row-sparse sketch touches, and nowhere else."""

    def __init__(self, glm: GLM, b: np.ndarray) -> None:
        self.glm, self.b = glm, b

    def __getitem__(self, columns: Any) -> np.ndarray:
        rows, where = np.unique(columns, return_inverse=True)
        return self.glm.root_weights(self.glm.margins(self.b, rows), rows)[where].reshape(np.shape(columns))


def sketch_direction(
    glm: GLM,
    b: np.ndarray,
    eta: np.ndarray | None,
    sketch: Sketch,
    scores: Scores,
    rule: str,
    seed: Any,
    on_heavy: str,
) -> DebiasedInverse:
    """Draw one sketch of A(b) and return the debiased inverse Hessian."""
    operator = sketch.draw(glm.n_samples, seed)
    scale = row_scale(glm, b, eta, operator)
    At = operator.apply(glm.X, scale)
    ones = operator.apply(np.ones((glm.n_samples, 1)), scale) if glm.intercept else None
    At = np.asarray(glm.with_intercept(At, ones), dtype=np.float64)
    return debiased(At, np.diag(glm.penalty), sketch, operator, scores, rule, glm.n_samples, on_heavy)


def row_scale(
    glm: GLM, b: np.ndarray, eta: np.ndarray | None, operator: SketchOperator, rows: slice = slice(None)
) -> Any:
    """Row scaling of A(b) on the given rows, from their margins `eta` if these are known."""
    if eta is not None:
        return glm.root_weights(eta, rows)
    if isinstance(operator, RowSparseOperator) and rows == slice(None):
        return LazyScale(glm, b)
    return glm.root_weights(glm.margins(b, rows), rows)


def debiased(
    At: np.ndarray,
    C: np.ndarray,
    sketch: Sketch,
    operator: Any,
    scores: Scores,
    rule: str,
    n: int,
    on_heavy: str,
) -> DebiasedInverse:
    """Weights, Gram matrix and factor of a sketch that is at hand."""
    d = At.shape[1]
    rule = default_rule(sketch) if rule == "auto" else rule
    if not C.any() and At.shape[0] < d:
        raise SketchTooSmall(At.shape[0], d)
    if isinstance(operator, RowOperator) and rule != "none":
        d_eff = effective_dimension_from_gram(At.T @ At, C, At.shape[0])
        if sketch.m <= d_eff:
            raise SketchTooSmall(sketch.m, d_eff)
    if isinstance(operator, RowOperator) and rule in ("fine", "poisson", "second_order"):
        weights, ratios = row_weights(At, C, operator, scores, rule, on_heavy)
        G = At.T @ (weights[:, None] * At)
        d_eff = float(np.sum(leverage_share(G, C)))
        inverse = DebiasedInverse(G, C, sketch.m, d_eff, rule)
        inverse.variance = sampling_variance(inverse, At, weights, ratios, operator)
        return inverse
    G = At.T @ At
    d_eff = effective_dimension_from_gram(G, C, At.shape[0])
    if rule != "none":
        rule = "scalar" if rule in ("fine", "poisson", "second_order") else rule
        G = debias_weights(rule, m=max(At.shape[0], 1), d_eff=d_eff, n=n) * G
    return DebiasedInverse(G, C, sketch.m, d_eff, rule)


def sampling_variance(
    inverse: DebiasedInverse, At: np.ndarray, weights: np.ndarray, ratios: np.ndarray, operator: RowOperator
) -> float:
    """Relative variance of the direction from sampled rows, estimated from the sample.

    With ratios :math:`l_i/(m \\pi_i)` (with replacement) or :math:`l_i/p_i`, the largest eigenvalue of
    :math:`\\sum_s r_s u_s u_s' - (whitened G)^2/m`, or of :math:`\\sum_s (1 - p_s) r_s u_s u_s'`, u the
    whitened sampled rows. By power iterations on :math:`Q \\sum_s ...`: two passes over the sample each.
    """
    replaced = operator.replacement
    share = weights * ratios if replaced else weights * ratios * (1.0 - operator.probabilities)
    v: np.ndarray = np.random.default_rng(0).standard_normal((At.shape[1],))
    found = size = math.nan  # Rayleigh quotient of v, and v'Hv
    for _ in range(POWER_ITERATIONS):
        image = At.T @ (share * (At @ v))
        found = float(v @ image) / size
        v = inverse.solve(image)
        size = float(v @ image)  # v'Hv, since v = H^-1 image
        if not size > 0:
            return 0.0
    repeated = (float(v @ (inverse.gram @ v)) / size) ** 2 / inverse.m if replaced else 0.0
    return max(found - repeated, 0.0)


def leverage_share(G: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Diagonal of ``G (G + C)^{-1}``, whose sum is the effective dimension of a debiased Gram matrix."""
    if not C.any():
        return np.ones(G.shape[0])
    return np.diag(sla.solve(G + C, G, assume_a="sym"))


def row_weights(
    At: np.ndarray, C: np.ndarray, operator: RowOperator, scores: Scores, rule: str, on_heavy: str
) -> tuple[np.ndarray, np.ndarray]:
    """Gram weights of sampled rows and their l/(m pi) or l/p.

    Leverage comes from the approximate Hessian, or from the sample alone.
    """
    expected = operator.probabilities
    if scores.root is not None:  # not the projected scores: those under-estimate some rows by far
        leverage = leverage_of_rows(At * np.sqrt(expected)[:, None], scores.root)
    elif scores.leverage is not None:
        leverage = scores.leverage[operator.indices]
    else:
        weights = leverage_from_sketch(At, C)
        ratios = np.minimum(1.0 - 1.0 / weights, 0.9)
        if rule != "poisson":
            return weights, ratios
        leverage = ratios * expected
    with warnings.catch_warnings():
        if on_heavy == "keep":
            warnings.simplefilter("ignore", UserWarning)
        heavy = "raise" if on_heavy == "raise" else "clip"
        weights = np.asarray(
            debias_weights(rule, m=operator.m, leverage=leverage, probabilities=expected, on_heavy=heavy)
        )
    return weights, np.minimum(leverage / expected, 1.0)
