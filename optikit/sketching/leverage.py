r"""Leverage scores and effective dimension: exact, approximate, and from the sketch alone.

With :math:`H = A'A + C`, :math:`l_i = a_i' H^{-1} a_i \in [0, 1]` and :math:`d_{eff} = \sum_i l_i`.
`A` may be scaled on the fly: the rows of the matrix meant are ``scale_i a_i``.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp

from optikit.arrays import as_float_array
from optikit.sketching.door import check_matrix, check_scale, check_scores, penalty_matrix
from optikit.sketching.sketches import SASO, scalar_factor, seed_sequence
from optikit.validation import check_choice, check_integer, check_real

#: Condition number of A from which the Cholesky route loses leverage scores and QR is used.
ILL_CONDITIONED = 1e7
#: Rows handled at once where all rows are multiplied by a triangular factor: no (n, d) copy is made.
ROW_CHUNK = 8192

SCHEMES = (
    "uniform",
    "row_norm",
    "leverage",
    "ridge_leverage",
    "root_leverage",
    "shrinkage",
    "mVc",
    "mMSE",
)


def row_chunks(A: Any, scale: np.ndarray | None = None) -> Any:
    """Yield (start, dense float64 rows of diag(scale) A), a chunk at a time."""
    A = A.tocsr() if sp.issparse(A) else A
    for start in range(0, A.shape[0], ROW_CHUNK):
        part = A[start : start + ROW_CHUNK]
        part = part.toarray() if sp.issparse(part) else np.asarray(part, dtype=np.float64)
        if scale is not None:
            part = part * scale[start : start + ROW_CHUNK, None]
        yield start, part


def gram(A: Any, scale: np.ndarray | None = None) -> np.ndarray:
    """``(diag(scale) A)' (diag(scale) A)`` in float64, without an n x d copy."""
    if sp.issparse(A):
        rows = A if scale is None else sp.diags_array(scale) @ A
        return (rows.T @ rows).toarray().astype(np.float64)
    if scale is None and A.dtype == np.float64:
        return A.T @ A
    total = np.zeros((A.shape[1], A.shape[1]))
    for _, part in row_chunks(A, scale):
        total += part.T @ part
    return total


def exact_leverage(A: Any, C: Any = 0.0, scale: np.ndarray | None = None) -> np.ndarray:
    """Leverage scores ``(n,)`` by a Cholesky factor of H (QR when A is ill-conditioned); costs n d^2."""
    A = check_matrix(A)
    n, d = A.shape
    C, scale = penalty_matrix(C, d, definite=True), check_scale(scale, n)
    H = gram(A, scale) + C
    eigenvalues = np.linalg.eigvalsh(H)
    if eigenvalues[0] > 0 and eigenvalues[-1] <= ILL_CONDITIONED**2 * eigenvalues[0]:
        root = sla.cholesky(H, lower=True)
        scores = np.empty(n)
        for start, part in row_chunks(A, scale):
            half = sla.solve_triangular(root, part.T, lower=True)
            scores[start : start + part.shape[0]] = np.sum(half * half, axis=0)
        return scores
    # Rank-revealing: leverage is the squared row norm of an orthonormal basis of [A; C^(1/2)].
    values, vectors = np.linalg.eigh(C)
    stacked = np.concatenate(
        [*(part for _, part in row_chunks(A, scale)), np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T]
    )
    basis, R, _ = sla.qr(stacked, mode="economic", pivoting=True)
    pivots = np.abs(np.diag(R))
    rank = int(np.count_nonzero(pivots > pivots[0] * max(stacked.shape) * np.finfo(float).eps))
    return np.sum(basis[:n, :rank] ** 2, axis=1)


def approximate_leverage(
    A: Any,
    C: Any = 0.0,
    rng: Any = 0,
    *,
    r1: int | None = None,
    r2: int | None = None,
    scale: np.ndarray | None = None,
    check_finite: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Approximate leverage from a debiased sparse sign sketch and random projections.

    Parameters
    ----------
    A : array or sparse matrix, shape (n, d)
    C : number, diagonal or matrix
        Penalty.
    rng : int, SeedSequence or Generator
    r1 : int, optional
        Rows of the sketch, default 4 d.
    r2 : int, optional
        Random projections, default ``max(16, ceil(4 ln n))``; 0 or >= d means none (exact norms).
    scale : array (n,), optional
        Multiplies the rows of A.
    check_finite : bool, default True
        Test A for NaN and infinity; False saves a pass over data known to be finite.

    Returns
    -------
    scores : array (n,)
        Not clipped to 1; projections under-estimate some, so mix them with uniform probabilities.
    root : array (d, d)
        Lower Cholesky factor of the approximate H, to recompute leverage at chosen rows.

    References
    ----------
    P. Drineas, M. Magdon-Ismail, M. Mahoney, D. Woodruff, JMLR 2012. The debiasing of the Gram matrix is what
    makes the scores sum to the effective dimension instead of 1.33 times it.
    """
    A = check_matrix(A, finite=check_finite)
    n, d = A.shape
    C, scale = penalty_matrix(C, d, definite=True), check_scale(scale, n)
    r1 = min(max(4 * d, d + 2), n) if r1 is None else check_integer(r1, "r1", minimum=1)
    r2 = max(16, math.ceil(4 * math.log(max(n, 2)))) if r2 is None else check_integer(r2, "r2", minimum=0)
    seeds = seed_sequence(rng).spawn(2)
    if r1 >= n:
        approximate = gram(A, scale)
    else:
        sketch = SASO(r1, min(4, r1)).apply(A, seeds[0], scale)
        approximate = np.asarray(sketch, dtype=np.float64)
        approximate = approximate.T @ approximate
        approximate *= scalar_factor(r1, effective_dimension_from_gram(approximate, C, r1))
    H = approximate + C
    root = cholesky_with_jitter(H)
    if r2 == 0 or r2 >= d:
        projector = sla.solve_triangular(root, np.eye(d), lower=True, trans="T")
    else:
        omega = np.random.default_rng(seeds[1]).standard_normal((d, r2)) / math.sqrt(r2)
        projector = sla.solve_triangular(root, omega, lower=True, trans="T")
    scores = np.empty(n)
    for start, part in row_chunks(A, scale):
        projected = part @ projector
        scores[start : start + part.shape[0]] = np.sum(projected * projected, axis=1)
    return scores, root


def leverage_of_rows(rows: np.ndarray, root: np.ndarray) -> np.ndarray:
    """``a' (L L')^{-1} a`` for the given rows (k, d) by one triangular solve."""
    half = sla.solve_triangular(root, np.asarray(rows, dtype=np.float64).T, lower=True)
    return np.sum(half * half, axis=0)


def cholesky_with_jitter(H: np.ndarray) -> np.ndarray:
    """Lower Cholesky factor of H, with at most three growing multiples of eps tr(H)/d on the diagonal."""
    d = H.shape[0]
    # The zero matrix gets a factor too: every leverage is then 0, whatever the factor.
    jitter = np.finfo(float).eps * (float(np.trace(H)) or 1.0) / d
    for attempt in range(4):
        try:
            return sla.cholesky(H if attempt == 0 else H + jitter * 100**attempt * np.eye(d), lower=True)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError(
        "H = A'A + C is not positive definite: A has dependent columns, add a penalty."
    )


def effective_dimension(A: Any, C: Any = 0.0, scale: np.ndarray | None = None) -> float:
    """``d_eff = tr(G (G + C)^{-1})`` exactly, from the d x d Gram matrix."""
    A = check_matrix(A)
    C = penalty_matrix(C, A.shape[1], definite=True)
    G = gram(A, check_scale(scale, A.shape[0]))
    if not C.any():
        return float(np.linalg.matrix_rank(G, hermitian=True))
    return float(np.trace(np.linalg.solve(G + C, G)))


def effective_dimension_from_gram(sketched_gram: np.ndarray, C: Any, m: int) -> float:
    r"""d_eff from the sketch's Gram matrix alone.

    Solves :math:`x = \sum_j e_j / (e_j + (1 - x/m) c_j)` over the generalised eigenvalues of (At'At, C); each
    direction that C does not penalise counts one.
    """
    from scipy.optimize import brentq

    d = sketched_gram.shape[0]
    C = penalty_matrix(C, d)
    if not C.any():
        return float(d)
    off_diagonal = np.abs(C - np.diag(np.diag(C))).max()
    if off_diagonal == 0 and np.ptp(np.diag(C)) == 0:
        e, c = np.maximum(np.linalg.eigvalsh(sketched_gram), 0.0), np.full(d, C[0, 0])
    else:
        # Generalised eigenvalues through the sum, which is positive definite where either is.
        total = sketched_gram + C
        ratio = sla.eigvalsh(C, total + np.finfo(float).eps * np.trace(total) / d * np.eye(d))
        c = np.clip(ratio, 0.0, 1.0)
        e = 1.0 - c
        c = np.where(c < 1e-13, 0.0, c)

    def excess(x: float) -> float:
        shrunk = (1.0 - x / m) * c
        parts = np.where(c == 0.0, 1.0, e / np.where(e + shrunk > 0, e + shrunk, 1.0))
        return float(np.sum(parts)) - x

    top = float(min(d, m))
    if excess(top) >= 0:
        return top
    return float(brentq(excess, 0.0, top, xtol=1e-12))


def leverage_from_sketch(
    rows: np.ndarray, C: Any, sweeps: int = 3, *, plug: bool = False, d_eff: float | None = None
) -> np.ndarray:
    r"""Gram weights ``1/(1 - l/(m pi))`` of sampled rows from the sample alone.

    Parameters
    ----------
    rows : array, shape (k, d)
        Scaled sampled rows ``a_s / sqrt(m pi_s)``.
    C : penalty
    sweeps : int, default 3
        Fixed-point sweeps ``x <- 1/(1 - min(z, 0.9))``, ``z = q / (1 - x q)``.
    plug : bool, default False
        The one-sweep variant: q from the scalar-debiased sketch, ``w = 1/(1 - q)``.
    d_eff : float, optional
        For `plug`; from the sketch's Gram matrix by default.

    Returns
    -------
    weights : array (k,)
    """
    rows = np.asarray(check_matrix(rows, "rows"), dtype=np.float64)
    k, d = rows.shape
    C = penalty_matrix(C, d)
    check_integer(sweeps, "sweeps", minimum=1)
    if plug:
        G = rows.T @ rows
        d_eff = effective_dimension_from_gram(G, C, k) if d_eff is None else d_eff
        q = leverage_of_rows(rows, cholesky_with_jitter(scalar_factor(k, d_eff) * G + C))
        return 1.0 / (1.0 - np.minimum(q, 0.9))
    x = np.ones(k)
    for _ in range(sweeps):
        q = leverage_of_rows(rows, cholesky_with_jitter(rows.T @ (x[:, None] * rows) + C))
        z = q / np.maximum(1.0 - x * q, 1e-12)
        x = 1.0 / (1.0 - np.minimum(z, 0.9))
    return x


def sampling_probabilities(
    scheme: str,
    A: Any,
    *,
    leverage: np.ndarray | None = None,
    residual: np.ndarray | None = None,
    root: np.ndarray | None = None,
    shrinkage: float = 0.5,
    mix: float = 0.1,
    scale: np.ndarray | None = None,
) -> np.ndarray:
    """Sampling probabilities pi of the named scheme, mixed with the uniform distribution.

    Parameters
    ----------
    scheme : str
        One of `SCHEMES`.
    A : array or sparse matrix, shape (n, d)
    leverage : array (n,)
        (Approximate) leverage, needed by the leverage kinds.
    residual : array (n,)
        ``y - mu``, needed by mVc (``|y-mu| ||x||``) and mMSE (``|y-mu| ||M^-1 x||``; Wang, Zhu, Ma 2018).
    root : array (d, d)
        Lower Cholesky factor of M for mMSE.
    shrinkage : float, default 0.5
        a of ``(1-a) l/d_eff + a/n``.
    mix : float, default 0.1
        Share of the uniform distribution, in [0, 1]. mVc and mMSE ignore the Hessian's leverage and are mixed
        by at least 0.3, with a warning.
    scale : array (n,), optional
        Multiplies the rows of A.
    """
    check_choice(scheme, "scheme", SCHEMES)
    mix = check_real(mix, "mix", minimum=0.0, maximum=1.0)
    A = check_matrix(A, finite=False)  # what is read of it shows in the scores
    n = A.shape[0]
    scale = check_scale(scale, n)
    if scheme == "uniform":
        return np.full(n, 1.0 / n)
    if scheme in ("leverage", "ridge_leverage", "root_leverage", "shrinkage"):
        if leverage is None:
            raise ValueError(f"leverage is needed by the scheme {scheme!r}, got None.")
        scores = check_scores(leverage, "leverage", n)
        if scheme == "root_leverage":
            scores = np.sqrt(scores)
        if scheme == "shrinkage":
            mix = check_real(shrinkage, "shrinkage", minimum=0.0, maximum=1.0)
    elif scheme == "row_norm":
        scores = np.concatenate([np.sum(part * part, axis=1) for _, part in row_chunks(A, scale)])
    else:
        if residual is None:
            raise ValueError(f"residual is needed by the scheme {scheme!r}, got None.")
        residual = np.abs(np.asarray(as_float_array(residual, name="residual", shape=(n,)), dtype=np.float64))
        if scheme == "mMSE" and root is None:
            raise ValueError("root, a Cholesky factor of M, is needed by the scheme 'mMSE', got None.")
        if mix < 0.3:
            warnings.warn(
                f"the scheme {scheme!r} ignores the leverage of the Hessian and can miss influential rows; "
                "it is mixed with 30 % uniform sampling.",
                stacklevel=2,
            )
            mix = 0.3
        scores = residual * _norms(A, root if scheme == "mMSE" else None)
    scores = check_scores(scores, "scores", n)
    return (1.0 - mix) * scores / scores.sum() + mix / n


def _norms(A: Any, root: np.ndarray | None) -> np.ndarray:
    parts = []
    for _, part in row_chunks(A):
        if root is not None:
            part = sla.cho_solve((root, True), part.T).T
        parts.append(np.sqrt(np.sum(part * part, axis=1)))
    return np.concatenate(parts)


__all__ = [
    "SCHEMES",
    "approximate_leverage",
    "effective_dimension",
    "effective_dimension_from_gram",
    "exact_leverage",
    "leverage_from_sketch",
    "leverage_of_rows",
    "penalty_matrix",
    "sampling_probabilities",
]
