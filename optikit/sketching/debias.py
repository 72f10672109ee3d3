r"""Debiasing rules: weights of a sketch's Gram matrix that make its *inverse* nearly unbiased.

All weights multiply the Gram contribution, never the penalty C. With leverage :math:`l_i` given C and
effective dimension :math:`d_{eff}`:

=============  ===========================================  =============================
rule           Gram weight                                  for
=============  ===========================================  =============================
scalar         :math:`m/(m - d_{eff})`                      dense and sparse sketches
fine           :math:`m/(m - l_i/\pi_i)`                    rows with replacement
poisson        :math:`p_i (1 - l_i)/(p_i - l_i)`            independent rows, or without
                                                            replacement
srht_wor       :math:`m (1 - d_{eff}/N)/(m - d_{eff})`      SRHT without replacement
second_order   fine, then a correction of the direction     rows with replacement
determinantal  over workers, ``exp(logdet H_k)``            averages of workers
none           1                                            the biased baseline
=============  ===========================================  =============================

The scalar rule is the same as scaling the regularisation (``scaled_regularization``): with
:math:`t = 1 - d_{eff}/m`, :math:`(At'At/t + C)^{-1} = t\,(At'At + t C)^{-1}`; and as optimal shrinkage
(``shrinkage``).

References: C. Niu, Z. Liao, Z. Ling, M. Mahoney, ICML 2025 (scalar, fine, deterministic equivalent);
M. Derezinski, B. Bartan, M. Pilanci, M. Mahoney, NeurIPS 2020 (scaled regularisation); F. Zhang, M. Pilanci,
ICML 2024 (shrinkage); M. Derezinski, M. Mahoney, NeurIPS 2019 (determinantal). The Poisson,
without-replacement, SRHT and second-order rules are derived for this toolkit, checked by exact enumeration.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.linalg as sla

from optikit.sketching.door import check_matrix, check_scores, penalty_matrix
from optikit.sketching.leverage import row_chunks
from optikit.sketching.operators import padded_size
from optikit.sketching.sketches import SketchTooSmall, scalar_factor
from optikit.validation import check_choice, check_integer, check_real

RULES = (
    "none",
    "scalar",
    "scaled_regularization",
    "shrinkage",
    "fine",
    "poisson",
    "srht_wor",
    "second_order",
)
#: Under on_heavy="clip", ``l/(m pi)`` is held at this.
CLIP = 0.9


def debias_weights(
    rule: str,
    *,
    m: float | None = None,
    d_eff: float | None = None,
    n: int | None = None,
    leverage: Any = None,
    probabilities: Any = None,
    on_heavy: str = "raise",
) -> Any:
    """Multipliers of the Gram terms: one number, or one per sampled row.

    Parameters
    ----------
    rule : str
        One of `RULES`. "second_order" gives the fine weights, to be followed by `second_order_correction`.
    m : number
        Rows of the sketch (scalar kinds and "fine").
    d_eff : float
        Effective dimension (scalar kinds).
    n : int
        Data rows (srht_wor).
    leverage : array (k,)
        Leverage of the sampled rows (row rules).
    probabilities : array (k,)
        ``m pi_i`` of the sampled rows ("fine"), or inclusion probabilities p_i ("poisson").
    on_heavy : {"raise", "clip"}
        What to do about rows with ``l_i >= m pi_i`` (or p_i), for which the inverse has no mean: raise, or
        hold l at 0.9 of it with a warning.

    Returns
    -------
    float or array (k,)

    Raises
    ------
    SketchTooSmall
        When m <= d_eff, or a heavy row and on_heavy is "raise".
    """
    check_choice(rule, "rule", RULES)
    check_choice(on_heavy, "on_heavy", ("raise", "clip"))
    if rule == "none":
        return 1.0
    if rule in ("scalar", "scaled_regularization", "shrinkage", "srht_wor"):
        if m is None or d_eff is None:
            raise ValueError(f"rule {rule!r} needs m and d_eff, got m={m!r}, d_eff={d_eff!r}.")
        m = check_real(m, "m", minimum=0.0, open_low=True)
        factor = scalar_factor(m if m != int(m) else int(m), d_eff)
        if rule == "srht_wor":
            if n is None:
                raise ValueError("rule 'srht_wor' needs n, the number of data rows, got None.")
            factor *= 1.0 - float(d_eff) / padded_size(n)
        return factor
    if leverage is None or probabilities is None:
        raise ValueError(f"rule {rule!r} needs the leverage and probabilities of the sampled rows.")
    expected = check_scores(probabilities, "probabilities", None, allow_zero=True)
    if expected.size and expected.min() == 0.0:
        raise ValueError("probabilities of sampled rows must be > 0, got 0.")
    scores = np.minimum(check_scores(leverage, "leverage", None, allow_zero=True), 1.0)
    if scores.shape != expected.shape:
        raise ValueError(
            f"leverage and probabilities must have one shape, got {scores.shape}, {expected.shape}."
        )
    certain = (expected >= 1.0) if rule == "poisson" else np.zeros(expected.shape, dtype=bool)
    heavy = (scores >= expected) & ~certain
    if heavy.any():
        worst = int(np.argmax(np.where(heavy, scores / expected, 0.0)))
        if on_heavy == "raise":
            raise SketchTooSmall(int(m or 0), float(scores[worst] / expected[worst] * (m or 1)))
        warnings.warn(
            f"{int(heavy.sum())} sampled rows have leverage above their expected count; their weights are "
            "clipped. Sample by leverage, or keep them always (Poisson sampling with leverage).",
            stacklevel=2,
        )
    if rule in ("fine", "second_order"):
        ratio = np.minimum(scores / expected, CLIP) if on_heavy == "clip" else scores / expected
        return 1.0 / (1.0 - ratio)
    scores = np.where(heavy, CLIP * expected, scores)
    safe = np.where(certain, 1.0, expected - scores)
    return np.where(certain, 1.0, expected * (1.0 - scores) / safe)


def deterministic_equivalent(
    A: Any, C: Any, probabilities: Any, m: int, *, tol: float = 1e-12, max_iterations: int = 2000
) -> np.ndarray:
    r"""Diagonal D with :math:`E (A'S'SA + C)^{-1} \approx (A'DA + C)^{-1}` for m rows i.i.d. from pi.

    Fixed point of :math:`D_{ii} = m / (m + a_i'(A'DA + C)^{-1} a_i / \pi_i)` from D = I (Niu et al. 2025,
    Theorem 3.1).

    Returns
    -------
    array (n,)
    """
    A = check_matrix(A)
    n, d = A.shape
    C = penalty_matrix(C, d, definite=True)
    m = check_integer(m, "m", minimum=1)
    pi = check_scores(probabilities, "probabilities", n)
    if pi.min() == 0.0:
        raise ValueError(f"probabilities must be > 0, got 0 at row {int(pi.argmin())}.")
    D = np.ones(n)
    for _ in range(max_iterations):
        H = C.copy()
        for start, part in row_chunks(A):
            H += part.T @ (D[start : start + part.shape[0], None] * part)
        factor = sla.cho_factor(H, lower=True)
        following = np.empty(n)
        for start, part in row_chunks(A):
            rows = slice(start, start + part.shape[0])
            scores = np.einsum("ij,ji->i", part, sla.cho_solve(factor, part.T))
            following[rows] = m / (m + scores / pi[rows])
        change = float(np.max(np.abs(following - D), initial=0.0))
        D = following
        if change < tol:
            return D
    raise ArithmeticError(
        f"the fixed point did not settle in {max_iterations} iterations (change {change:.1e})."
    )


def second_order_correction(
    p: np.ndarray, solve: Any, weighted_gram: np.ndarray, C: np.ndarray, m: int
) -> np.ndarray:
    """``p + T(T p)/m`` with ``T p = Q (At'W At) p = p - Q C p``: removes the O(1/m) term of the fine rule."""
    apply = (lambda v: solve(weighted_gram @ v)) if not C.any() else (lambda v: v - solve(C @ v))
    return p + apply(apply(p)) / m


def determinantal_average(directions: np.ndarray, log_determinants: np.ndarray) -> np.ndarray:
    """``sum_k exp(logdet H_k) p_k / sum_k exp(logdet H_k)`` over workers, by log-sum-exp.

    Parameters
    ----------
    directions : array (q, d)
    log_determinants : array (q,)
    """
    directions = np.asarray(check_matrix(directions, "directions"))
    logs = np.asarray(log_determinants, dtype=np.float64)
    if logs.shape != directions.shape[:1] or not np.all(logs < np.inf):
        raise ValueError(
            f"log_determinants must be {directions.shape[0]} numbers below infinity, got {logs!r}."
        )
    top = float(np.max(logs))
    # Where every worker's Hessian is singular none outweighs the others.
    weights = np.exp(logs - top) if np.isfinite(top) else np.ones(logs.size)
    return (weights @ directions) / weights.sum()
