r"""Row sampling: with replacement, Poisson (independent rows), and fixed size without replacement.

With replacement, m rows are drawn i.i.d. from pi and row i is scaled by :math:`1/\sqrt{m \pi_i}`. In Poisson
sampling row i is kept independently with probability :math:`p_i = \min(1, c \cdot score_i)`,
:math:`\sum p_i = m`, and scaled by :math:`1/\sqrt{p_i}`; a row with :math:`p_i = 1` is exact. Fixed-size
sampling without replacement is its uniform sibling with :math:`p = m/n`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.sketching.door import check_scores
from optikit.sketching.operators import RowSparseOperator
from optikit.sketching.sketches import Sketch, draw_indices, seed_sequence
from optikit.validation import check_integer, check_real


class RowOperator(RowSparseOperator):
    """A drawn sample of rows.

    Attributes
    ----------
    indices : array of int, shape (k,)
        Rows drawn; repeats are possible with replacement.
    probabilities : array, shape (k,)
        ``m pi_i`` of each drawn row with replacement, its inclusion probability ``p_i`` otherwise.
    replacement : bool
    """

    def __init__(self, indices: np.ndarray, probabilities: np.ndarray, n: int, replacement: bool) -> None:
        self.indices, self.probabilities, self.replacement = indices, probabilities, replacement
        super().__init__(indices[:, None], (1.0 / np.sqrt(probabilities))[:, None], n)


class _RowSketch(Sketch):
    def cost(self, n: int, d: int, nnz: int | None = None) -> float:
        return float(self.m * (d if nnz is None else nnz / n))


@dataclass(frozen=True, eq=False)
class Rows(_RowSketch):
    """m rows drawn with replacement.

    Parameters
    ----------
    m : int
    probabilities : array, shape (n,), optional
        pi, non-negative, normalised here; uniform by default.
    """

    name: ClassVar[str] = "rows"
    m: int
    probabilities: np.ndarray | None = None

    def _draw(self, n: int, rng: Any) -> RowOperator:
        generator = np.random.default_rng(seed_sequence(rng))
        if self.probabilities is None:
            indices = generator.integers(0, n, self.m)
            return RowOperator(indices, np.full(self.m, self.m / n), n, True)
        pi = check_scores(self.probabilities, "probabilities", n)
        pi = pi / pi.sum()
        indices = draw_indices(pi, self.m, generator)
        return RowOperator(indices, self.m * pi[indices], n, True)


@dataclass(frozen=True, eq=False)
class PoissonRows(_RowSketch):
    """About m rows, each kept independently: the recommended row sampling.

    Parameters
    ----------
    m : int
        Expected number of rows.
    scores : array, shape (n,), optional
        Non-negative scores, e.g. approximate leverage; uniform by default.
    leverage : array, shape (n,), optional
        With it, rows of leverage above half their inclusion probability are always kept.
    """

    name: ClassVar[str] = "rows_poisson"
    m: int
    scores: np.ndarray | None = None
    leverage: np.ndarray | None = None

    def inclusion(self, n: int) -> np.ndarray:
        """Inclusion probabilities p, ``(n,)``."""
        if self.scores is None:
            p = np.full(n, min(1.0, self.m / n))
        else:
            p = inclusion_probabilities(check_scores(self.scores, "scores", n), self.m)
        if self.leverage is not None:
            leverage = check_scores(self.leverage, "leverage", n, allow_zero=True)
            p = np.where(leverage > 0.5 * p, 1.0, p)
        return p

    def _draw(self, n: int, rng: Any) -> RowOperator:
        generator = np.random.default_rng(seed_sequence(rng))
        p = self.inclusion(n)
        kept = np.flatnonzero(generator.random(n) < p)
        return RowOperator(kept, p[kept], n, False)


@dataclass(frozen=True)
class RowsWithoutReplacement(_RowSketch):
    """Exactly m rows, uniformly, without replacement; p = m/n.

    Parameters
    ----------
    m : int
        At most n.
    """

    name: ClassVar[str] = "rows_wor"
    m: int

    def _draw(self, n: int, rng: Any) -> RowOperator:
        check_integer(self.m, "m", minimum=1, maximum=n)
        generator = np.random.default_rng(seed_sequence(rng))
        indices = np.sort(generator.permutation(n)[: self.m])
        return RowOperator(indices, np.full(self.m, self.m / n), n, False)


def inclusion_probabilities(scores: Any, m: float) -> np.ndarray:
    """``p_i = min(1, c score_i)`` with sum m; with too few positive scores, these are all kept.

    Exact, by one sort: the rows with the largest scores saturate first.
    """
    scores = check_scores(scores, "scores", None, allow_zero=True)
    m = check_real(m, "m", minimum=0.0, open_low=True)
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    positive = int(np.count_nonzero(ranked > 0))
    if m >= positive:
        return (scores > 0).astype(np.float64)
    rest = np.cumsum(ranked[::-1])[::-1]  # sum of the scores from each rank on
    ranks = np.arange(positive)
    # With the first k saturated, c = (m - k) / rest[k]; the right k is the first with c ranked[k] <= 1.
    feasible = (m - ranks > 0) & ((m - ranks) * ranked[:positive] <= rest[:positive] * (1 + 1e-15))
    k = int(np.argmax(feasible))
    return np.minimum(1.0, scores * ((m - k) / rest[k])) if k < positive else np.minimum(1.0, scores)
