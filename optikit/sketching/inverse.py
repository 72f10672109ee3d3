"""The debiased inverse of a sketched Gram matrix, and what a scheme's bias is on a given matrix."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sla

from optikit.sketching.debias import debias_weights, second_order_correction
from optikit.sketching.door import (
    check_dimension,
    check_matrix,
    check_scale,
    check_sketched,
    check_vectors,
    penalty_matrix,
)
from optikit.sketching.leverage import (
    approximate_leverage,
    effective_dimension,
    effective_dimension_from_gram,
    exact_leverage,
    gram,
    leverage_from_sketch,
    leverage_of_rows,
)
from optikit.sketching.rows import PoissonRows, RowOperator, Rows
from optikit.sketching.sketches import SRHT, Sketch, SketchTooSmall, seed_sequence
from optikit.validation import check_choice, check_integer

#: Eigenvalues below this times d times the largest count as zero: rounding of a Gram matrix of many rows.
RANK_TOLERANCE = 64 * np.finfo(float).eps


class RankDeficientWarning(UserWarning):
    """The (sketched) Hessian is singular; the minimum-norm solution is returned."""


@dataclass
class DebiasedInverse:
    """``Q = (At'W At + C)^{-1}``, factored.

    Attributes
    ----------
    gram : array (d, d)
        The weighted Gram matrix ``At'W At``.
    C : array (d, d)
    m : int
        Rows of the sketch.
    d_eff : float
        Effective dimension used or estimated.
    rule : str
    variance : float
        Relative variance kappa of a direction ``Q g``, where somebody estimated it; NaN otherwise.
    """

    gram: np.ndarray
    C: np.ndarray
    m: int
    d_eff: float
    rule: str
    variance: float = math.nan

    def __post_init__(self) -> None:
        H = self.gram + self.C
        d = H.shape[0]
        jitter = np.finfo(float).eps * max(float(np.trace(H)), np.finfo(float).tiny) / d
        self._pinv: np.ndarray | None = None
        for attempt in range(4):
            try:
                shifted = H if attempt == 0 else H + jitter * 100**attempt * np.eye(d)
                self._factor = sla.cho_factor(shifted, lower=True)
            except np.linalg.LinAlgError:
                if self._is_singular(H):
                    break
                continue
            pivots = np.diag(self._factor[0])
            if pivots.min() > 1e-6 * pivots.max() or not self._is_singular(H):
                return
            break
        values, vectors = np.linalg.eigh(H)
        kept = values > values[-1] * d * RANK_TOLERANCE
        warnings.warn(
            f"the Hessian has rank {int(kept.sum())} of {d}: the minimum-norm direction is used; a penalty "
            "would make it unique.",
            RankDeficientWarning,
            stacklevel=3,
        )
        self._pinv = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T

    @staticmethod
    def _is_singular(H: np.ndarray) -> bool:
        values = np.linalg.eigvalsh(H)
        return bool(values[0] <= values[-1] * H.shape[0] * RANK_TOLERANCE)

    def _once(self, x: np.ndarray) -> np.ndarray:
        return self._pinv @ x if self._pinv is not None else sla.cho_solve(self._factor, x)

    def solve(self, x: Any) -> np.ndarray:
        """``Q x`` (with the second-order correction under that rule)."""
        x = np.asarray(x, dtype=np.float64)
        p = self._once(x)
        if self.rule == "second_order":
            p = second_order_correction(p, self._once, self.gram, self.C, self.m)
        return p

    @property
    def logdet(self) -> float:
        """Log-determinant of the sketched Hessian."""
        if self._pinv is not None:
            return -np.inf
        return 2.0 * float(np.sum(np.log(np.diag(self._factor[0]))))


def default_rule(sketch: Sketch) -> str:
    """The rule that fits a sketch: fine or poisson for rows, srht_wor, else scalar."""
    if isinstance(sketch, Rows):
        return "fine"
    if sketch.name in ("rows_poisson", "rows_wor"):
        return "poisson"
    if isinstance(sketch, SRHT) and not sketch.replacement:
        return "srht_wor"
    return "scalar"


def sketched_inverse(
    A: Any,
    C: Any,
    sketch: Sketch,
    rng: Any,
    *,
    rule: str = "auto",
    leverage: Any = "sketch",
    d_eff: Any = "sketch",
    on_heavy: str = "raise",
    scale: np.ndarray | None = None,
) -> DebiasedInverse:
    """Sketch A once and return the debiased inverse of ``A'A + C``.

    Parameters
    ----------
    A : array or sparse matrix, shape (n, d)
    C : number, diagonal or matrix
        Penalty.
    sketch : Sketch
    rng : int, SeedSequence or Generator
    rule : str, default "auto"
        A rule of `optikit.sketching.debias`; "auto" is `default_rule`.
    leverage : "sketch", "exact", or array (n,)
        Where the leverage of the sampled rows comes from (row rules): the sample alone, an exact computation,
        or given scores (or a lower Cholesky factor (d, d) of H, from which the scores are computed).
    d_eff : "sketch", "exact" or float
    on_heavy : {"raise", "clip"}
    scale : array (n,), optional
        Multiplies the rows of A.
    """
    # Only the sketch is tested for NaN: a pass over all of A would cost more than sketching it.
    A = check_matrix(A, finite=False)
    d = A.shape[1]
    C, scale = penalty_matrix(C, d, definite=True), check_scale(scale, A.shape[0])
    rule = default_rule(sketch) if rule == "auto" else rule
    operator = sketch.draw(A.shape[0], rng)
    with np.errstate(invalid="ignore"):  # infinity is named next
        At = np.asarray(operator.apply(A, scale), dtype=np.float64)
    check_sketched(At)
    m = At.shape[0] if isinstance(operator, RowOperator) and operator.replacement else sketch.m
    if not C.any() and At.shape[0] < d:
        raise SketchTooSmall(At.shape[0], d)
    if rule in ("fine", "poisson", "second_order"):
        if not isinstance(operator, RowOperator):
            raise ValueError(
                f"rule {rule!r} is for row sampling, got the sketch {sketch.name!r}; use 'scalar'."
            )
        weights = _row_weights(rule, operator, At, A, C, leverage, on_heavy, m, scale)
        G = At.T @ (weights[:, None] * At)
        dimension = float("nan")
    else:
        G = At.T @ At
        if isinstance(d_eff, str):
            check_choice(d_eff, "d_eff", ("sketch", "exact"))
            exact = d_eff == "exact"
            dimension = effective_dimension(A, C, scale) if exact else effective_dimension_from_gram(G, C, m)
        else:
            dimension = check_dimension(d_eff)
        G = debias_weights(rule, m=m, d_eff=dimension, n=A.shape[0]) * G
    return DebiasedInverse(G, C, m, dimension, rule)


def _row_weights(
    rule: str,
    operator: RowOperator,
    At: np.ndarray,
    A: Any,
    C: np.ndarray,
    leverage: Any,
    on_heavy: str,
    m: int,
    scale: np.ndarray | None,
) -> np.ndarray:
    expected = operator.probabilities
    if isinstance(leverage, str) and leverage in ("sketch", "plug"):
        weights = leverage_from_sketch(At, C, plug=leverage == "plug")
        if rule != "poisson":
            return weights
        ratio = 1.0 - 1.0 / weights  # l / p of each row
        scores = np.minimum(ratio, 0.9) * expected
    elif isinstance(leverage, str):
        check_choice(leverage, "leverage", ("sketch", "plug", "exact"))
        scores = exact_leverage(A, C, scale)[operator.indices]
    else:
        given = np.asarray(leverage, dtype=np.float64)
        if given.shape == (At.shape[1], At.shape[1]):
            scores = leverage_of_rows(At * np.sqrt(expected)[:, None], given)
        elif given.shape == (A.shape[0],):
            scores = given[operator.indices]
        else:
            raise ValueError(
                f"leverage must have shape ({A.shape[0]},), or be a factor of H ({At.shape[1]} x "
                f"{At.shape[1]}), got shape {given.shape}."
            )
    return debias_weights(rule, m=m, leverage=scores, probabilities=expected, on_heavy=on_heavy)


def inverse_times(
    A: Any,
    C: Any,
    x: Any,
    *,
    sketch: Sketch | None = None,
    rng: Any = 0,
    workers: int = 1,
    **options: Any,
) -> np.ndarray:
    """``(A'A + C)^{-1} x`` from sketches: for leverage, designs and uncertainties.

    Parameters
    ----------
    A : array or sparse matrix, shape (n, d)
    C : number, diagonal or matrix
    x : array (d,) or (d, k)
    sketch : Sketch, optional
        Default: Poisson row sampling of 10 d rows by approximate leverage.
    rng : int, SeedSequence or Generator
    workers : int, default 1
        Independent sketches to average; their error falls like 1/workers since the bias is removed.
    **options
        Passed to `sketched_inverse`.
    """
    check_integer(workers, "workers", minimum=1)
    A = check_matrix(A)
    n, d = A.shape
    C, x = penalty_matrix(C, d, definite=True), check_vectors(x, d)
    seeds = seed_sequence(rng).spawn(workers + 1)
    if sketch is None:
        scores, root = approximate_leverage(A, C, seeds[-1])
        total_score = float(scores.sum())  # 0 for a matrix of zeros
        scores = 0.9 * scores / total_score + 0.1 / n if total_score > 0 else np.full(n, 1.0 / n)
        sketch = PoissonRows(min(n, 10 * d), scores)
        options.setdefault("leverage", root)
        options.setdefault("on_heavy", "clip")
    total = np.zeros_like(x)
    for seed in seeds[:workers]:
        total += sketched_inverse(A, C, sketch, seed, **options).solve(x)
    return total / workers


@dataclass(frozen=True)
class BiasReport:
    """Bias of a sketched inverse on a matrix, measured.

    Attributes
    ----------
    bias : float
        ``||H^{1/2} E[Q] H^{1/2} - I||_2``, with a control variate.
    noise : float
        Half the distance of two half-sample estimates: the error bar of `bias`.
    rule, sketch : str
    m : int
    d_eff : float
        Exact effective dimension.
    coherence : float
        ``n max_i l_i / d_eff``: how much worse than leverage sampling uniform sampling is.
    failures : int
        Draws whose sketch was too small.
    """

    bias: float
    noise: float
    rule: str
    sketch: str
    m: int
    d_eff: float
    coherence: float
    failures: int

    def __str__(self) -> str:
        advice = ""
        if self.coherence > 20 and self.sketch in ("less_uniform", "rows", "rows_wor"):
            advice = " The data are coherent: sample by leverage, or use a sketch that does not need it."
        return (
            f"{self.sketch} with m={self.m} rows, rule {self.rule}: bias {self.bias:.3g} +- "
            f"{self.noise:.1g}, effective dimension {self.d_eff:.2f}, coherence {self.coherence:.1f}.{advice}"
        )


def bias_report(
    A: Any, C: Any, sketch: Sketch, *, rule: str = "auto", draws: int = 400, rng: Any = 0, **given: Any
) -> BiasReport:
    """Measure the bias of a sketch and rule on the user's matrix.

    Averages ``Q + (whitened weighted Gram - its mean)`` over draws: the Gram term is known in mean and
    cancels the first-order noise. Leverage and d_eff are exact by default, so that the rule itself is judged.

    Parameters
    ----------
    A, C, sketch, rule, rng
        As in `sketched_inverse`.
    draws : int, default 400
    **given
        Passed to `sketched_inverse`.
    """
    check_integer(draws, "draws", minimum=2)
    A = check_matrix(A)
    d = A.shape[1]
    penalty = penalty_matrix(C, d, definite=True)
    G = gram(A)
    try:
        root = sla.cholesky(G + penalty, lower=True)
    except np.linalg.LinAlgError:
        raise ValueError(
            "A'A + C must be positive definite for its inverse to have a bias: A has dependent columns, "
            "add a penalty C."
        ) from None
    scores = exact_leverage(A, penalty)
    options: dict[str, Any] = {"leverage": scores, "d_eff": float(scores.sum()), "on_heavy": "clip"} | given
    halves, counts, failures = np.zeros((2, d, d)), np.zeros(2), 0
    whiten = lambda M: sla.solve_triangular(root, sla.solve_triangular(root, M, lower=True).T, lower=True)  # noqa: E731
    for draw, seed in enumerate(seed_sequence(rng).spawn(draws)):
        try:
            inverse = sketched_inverse(A, penalty, sketch, seed, rule=rule, **options)
        except (SketchTooSmall, np.linalg.LinAlgError):
            failures += 1
            continue
        Q = root.T @ inverse.solve(root)
        halves[draw % 2] += Q + whiten(inverse.gram)
        counts[draw % 2] += 1
    if counts.min() == 0:
        raise SketchTooSmall(sketch.m, effective_dimension(A, penalty))
    means = halves / counts[:, None, None]
    expected = whiten(_expected_gram(A, G, sketch, rule, options, scores))
    deviation = 0.5 * (means[0] + means[1]) - expected - np.eye(d)
    spread = 0.5 * np.linalg.norm(means[0] - means[1], 2)
    d_eff = float(scores.sum())
    return BiasReport(
        float(np.linalg.norm(0.5 * (deviation + deviation.T), 2)),
        float(spread),
        default_rule(sketch) if rule == "auto" else rule,
        sketch.name,
        sketch.m,
        d_eff,
        float(A.shape[0] * scores.max() / d_eff),
        failures,
    )


def _expected_gram(
    A: Any, G: np.ndarray, sketch: Sketch, rule: str, options: dict[str, Any], scores: np.ndarray
) -> np.ndarray:
    """Mean of the weighted Gram matrix: known, since every rule's weights depend on the row alone."""
    rule = default_rule(sketch) if rule == "auto" else rule
    n = A.shape[0]
    if rule == "none":
        return G
    if rule in ("fine", "poisson", "second_order"):
        if isinstance(sketch, Rows):
            pi = np.full(n, 1 / n) if sketch.probabilities is None else np.asarray(sketch.probabilities)
            expected = sketch.m * pi / pi.sum()
        elif isinstance(sketch, PoissonRows):
            expected = sketch.inclusion(n)
        else:
            expected = np.full(n, sketch.m / n)
        used = expected > 0
        weights = np.zeros(n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weights[used] = debias_weights(
                rule,
                m=sketch.m,
                leverage=scores[used],
                probabilities=expected[used],
                on_heavy=options["on_heavy"],
            )
        return gram(A, np.sqrt(weights))
    return debias_weights(rule, m=sketch.m, d_eff=options["d_eff"], n=n) * G
