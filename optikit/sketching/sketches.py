r"""Random sketches S (m x n) with E[S'S] = I, as classes.

A sketch of A has an unbiased Gram matrix, ``E[(SA)'SA] = A'A``, but a biased inverse; `gram_factor` is the
number that makes the inverse (nearly) unbiased when the sketch's Gram matrix is multiplied by it (see
`optikit.sketching.debias`).

==================  ==================================================  ==============  ====================
name                definition                                          cost of SA      Gram factor
==================  ==================================================  ==============  ====================
gaussian            iid N(0, 1/m)                                       2 m n d         m/(m-d_eff)
rademacher          iid +-1/sqrt(m)                                     2 m n d         m/(m-d_eff)
srht                subsampled randomised Hadamard transform            N d log2 N      m/(m-d_eff); see below
countsketch         one +-1 per column                                  nnz(A)          m/(m-d_eff)
saso                k distinct rows of +-1/sqrt(k) per column           k nnz(A)        m/(m-d_eff)
less                s leverage-sampled entries per row                  m s d           m/(m-d_eff)
less_uniform        s uniform distinct entries per row                  m s d           m/(m-d_eff) [1]_
==================  ==================================================  ==============  ====================

.. [1] On incoherent data only.

SRHT without replacement has the factor ``m (1 - d_eff/N) / (m - d_eff)`` with N the padded size.

References: M. Derezinski, Z. Liao, E. Dobriban, M. Mahoney, COLT 2021 (LESS); M. Derezinski, J. Lacotte,
M. Pilanci, M. Mahoney, NeurIPS 2021 (Newton-LESS); C. Niu, Z. Liao, Z. Ling, M. Mahoney, ICML 2025.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.sketching.door import check_dimension, check_scores
from optikit.sketching.operators import (
    ColumnSparseOperator,
    DenseOperator,
    HadamardOperator,
    RowSparseOperator,
    SketchOperator,
    padded_size,
)
from optikit.validation import check_integer


class SketchTooSmall(ValueError):
    """A sketch with too few rows for its inverse to make sense; names the least size.

    Attributes
    ----------
    m : int
        Rows of the sketch.
    d_eff : float
        Effective dimension it has to exceed.
    """

    def __init__(self, m: float, d_eff: float) -> None:
        self.m, self.d_eff = m, d_eff
        least = f"the least m is {math.floor(d_eff) + 1}, and " if math.isfinite(d_eff) else ""
        super().__init__(
            f"the sketch must have more rows than the effective dimension {d_eff:.4g}, got m={m}; "
            f"{least}2 to 10 times the dimension is usual."
        )


def seed_sequence(rng: Any) -> np.random.SeedSequence:
    """A seed sequence from an int, a SeedSequence or a Generator (which is advanced)."""
    if isinstance(rng, np.random.SeedSequence):
        return rng
    if isinstance(rng, np.random.Generator):
        return np.random.SeedSequence(rng.integers(0, 2**63, 2).tolist())
    return np.random.SeedSequence(check_integer(rng, "rng", minimum=0))


def scalar_factor(m: float, d_eff: float) -> float:
    """``m / (m - d_eff)``, or `SketchTooSmall`."""
    d_eff = check_dimension(d_eff)
    if m <= d_eff:
        raise SketchTooSmall(m, d_eff)
    return m / (m - d_eff)


class Sketch(ABC):
    """A distribution of m x n matrices.

    Parameters
    ----------
    m : int
        Rows of the sketch, >= 1.
    """

    name: ClassVar[str]
    m: int

    def __post_init__(self) -> None:
        check_integer(self.m, "m", minimum=1)

    def draw(self, n: int, rng: Any) -> Any:
        """One sketch for n >= 1 data rows, a `SketchOperator`; `rng`: Generator, int or SeedSequence."""
        return self._draw(check_integer(n, "n", minimum=1), rng)

    @abstractmethod
    def _draw(self, n: int, rng: Any) -> SketchOperator: ...

    def apply(self, A: Any, rng: Any, scale: np.ndarray | None = None) -> Any:
        """Draw a sketch and return ``S diag(scale) A``, dense (m, d).

        The same seed gives the same sketch for dense, CSR and CSC input.
        """
        return self.draw(A.shape[0], rng).apply(A, scale)

    def gram_factor(self, d_eff: float, n: int | None = None) -> float:
        """What the sketch's Gram matrix is multiplied by for a (nearly) unbiased inverse."""
        return scalar_factor(self.m, d_eff)

    @abstractmethod
    def cost(self, n: int, d: int, nnz: int | None = None) -> float:
        """Floating-point operations of one application, to leading order."""


@dataclass(frozen=True)
class Gaussian(Sketch):
    """Independent N(0, 1/m) entries: the reference every law is exact for, and the dearest to apply."""

    name: ClassVar[str] = "gaussian"
    m: int

    def _draw(self, n: int, rng: Any) -> SketchOperator:
        return DenseOperator(self.m, n, seed_sequence(rng), "gaussian")

    def cost(self, n: int, d: int, nnz: int | None = None) -> float:
        return 2.0 * self.m * (nnz if nnz is not None else n * d)


@dataclass(frozen=True)
class Rademacher(Sketch):
    """Independent +-1/sqrt(m) entries."""

    name: ClassVar[str] = "rademacher"
    m: int

    def _draw(self, n: int, rng: Any) -> SketchOperator:
        return DenseOperator(self.m, n, seed_sequence(rng), "rademacher")

    def cost(self, n: int, d: int, nnz: int | None = None) -> float:
        return 2.0 * self.m * (nnz if nnz is not None else n * d)


@dataclass(frozen=True)
class SRHT(Sketch):
    """Subsampled randomised Hadamard transform; rows are padded to a power of two.

    Parameters
    ----------
    m : int
    replacement : bool, default True
        Keep rows with replacement, or without (m at most the padded size).
    """

    name: ClassVar[str] = "srht"
    m: int
    replacement: bool = True

    def _draw(self, n: int, rng: Any) -> SketchOperator:
        generator, padded = np.random.default_rng(seed_sequence(rng)), padded_size(n)
        if not self.replacement and self.m > padded:
            raise ValueError(f"m must be at most the padded size {padded} without replacement, got {self.m}.")
        signs = 2.0 * generator.integers(0, 2, n) - 1.0
        if self.replacement:
            kept = generator.integers(0, padded, self.m)
        else:
            kept = generator.permutation(padded)[: self.m]
        return HadamardOperator(signs, kept)

    def gram_factor(self, d_eff: float, n: int | None = None) -> float:
        factor = scalar_factor(self.m, d_eff)
        if self.replacement:
            return factor
        if n is None:
            raise ValueError("n, the number of data rows, is needed for SRHT without replacement; got None.")
        return factor * (1.0 - d_eff / padded_size(n))

    def cost(self, n: int, d: int, nnz: int | None = None) -> float:
        padded = padded_size(n)
        return float(padded * d * math.log2(max(padded, 2)))


@dataclass(frozen=True)
class SASO(Sketch):
    """Sparse sign sketch: k distinct rows of +-1/sqrt(k) in every column.

    Parameters
    ----------
    m : int
    k : int, default 4
        Nonzeros per column, 1 <= k <= m.
    """

    name: ClassVar[str] = "saso"
    m: int
    k: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(self.k, "k", minimum=1, maximum=self.m)

    def _draw(self, n: int, rng: Any) -> SketchOperator:
        from optikit import _kernels_sketching as kernels

        generator = np.random.default_rng(seed_sequence(rng))
        rows = np.empty((n, self.k), dtype=np.int64)
        kernels.distinct_rows(generator.random((n, self.k)), self.m, rows)
        values = (2.0 * generator.integers(0, 2, (n, self.k)) - 1.0) / math.sqrt(self.k)
        return ColumnSparseOperator(rows, values, self.m)

    def cost(self, n: int, d: int, nnz: int | None = None) -> float:
        return 2.0 * self.k * (nnz if nnz is not None else n * d)


@dataclass(frozen=True)
class CountSketch(SASO):
    """One +-1 in every column: SASO with k = 1."""

    name: ClassVar[str] = "countsketch"
    k: int = 1


@dataclass(frozen=True, eq=False)
class LESS(Sketch):
    """Leverage score sparsified: every row mixes s data rows drawn by their leverage.

    A row holds ``+-sqrt(b_j / (s pi_j)) / sqrt(m)`` at each drawn index j, b_j its multiplicity.

    Parameters
    ----------
    m : int
    probabilities : array, shape (n,)
        pi, close to leverage scores; non-negative, normalised here.
    s : int, default 8
        Draws per row, >= 1.
    """

    name: ClassVar[str] = "less"
    m: int
    probabilities: np.ndarray
    s: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(self.s, "s", minimum=1)

    def _draw(self, n: int, rng: Any) -> SketchOperator:
        generator = np.random.default_rng(seed_sequence(rng))
        pi = check_scores(self.probabilities, "probabilities", n)
        pi = pi / pi.sum()
        columns = np.sort(draw_indices(pi, self.m * self.s, generator).reshape(self.m, self.s))
        first = np.ones_like(columns, dtype=bool)
        first[:, 1:] = columns[:, 1:] != columns[:, :-1]
        # Multiplicity of each index at its first place; the repeats hold zero.
        groups = np.cumsum(first.ravel()) - 1
        counts = np.bincount(groups)
        values = np.zeros(columns.size)
        places = np.flatnonzero(first.ravel())
        drawn = columns.ravel()[places]
        signs = 2.0 * generator.integers(0, 2, places.size) - 1.0
        values[places] = signs * np.sqrt(counts / (self.s * pi[drawn] * self.m))
        return RowSparseOperator(columns, values.reshape(columns.shape), n)

    def cost(self, n: int, d: int, nnz: int | None = None) -> float:
        return 2.0 * self.m * self.s * (d if nnz is None else nnz / n)


@dataclass(frozen=True)
class LESSUniform(Sketch):
    """LESS with uniform distinct indices: the cheapest sketch, for incoherent data.

    Parameters
    ----------
    m : int
    s : int, default 8
        Distinct data rows per sketch row.
    """

    name: ClassVar[str] = "less_uniform"
    m: int
    s: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(self.s, "s", minimum=1)

    def _draw(self, n: int, rng: Any) -> SketchOperator:
        from optikit import _kernels_sketching as kernels

        generator, s = np.random.default_rng(seed_sequence(rng)), min(self.s, n)
        columns = np.empty((self.m, s), dtype=np.int64)
        kernels.distinct_rows(generator.random((self.m, s)), n, columns)
        signs = 2.0 * generator.integers(0, 2, (self.m, s)) - 1.0
        return RowSparseOperator(columns, signs * math.sqrt(n / (self.m * s)), n)

    def cost(self, n: int, d: int, nnz: int | None = None) -> float:
        return 2.0 * self.m * self.s * (d if nnz is None else nnz / n)


def draw_indices(probabilities: Any, size: int, generator: np.random.Generator) -> np.ndarray:
    """`size` indices i.i.d. from `probabilities` by one cumulative sum and binary searches."""
    cumulative = np.cumsum(np.asarray(probabilities, dtype=np.float64))
    found = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    return np.minimum(found, cumulative.size - 1)  # a product that rounds up to the last sum
