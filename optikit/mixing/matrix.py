"""Mixing matrices: four kinds, told apart by type, and the converters between them.

``W[i, j]`` is the weight agent i puts on the message it *receives from* j. Four kinds:

========  ==============================  ==================================================
kind      sums                            use
========  ==============================  ==================================================
mixing    rows and columns 1              averaging: ``X <- W X`` keeps the mean
row       rows 1                          directed, "pull"
col       columns 1                       directed, "push" (push-sum)
gossip    rows and columns 0              ``I - W`` or a scaled Laplacian: ``X <- X - a G X``
========  ==============================  ==================================================

Nothing converts implicitly: see `MixingMatrix.to_gossip` and `MixingMatrix.to_mixing`.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from optikit.graphs import Graph
from optikit.mixing import spectra

KINDS = ("mixing", "row", "col", "gossip")


class MixingMatrix:
    """A square sparse matrix of weights with a kind, checked when it is made and read-only afterwards.

    Parameters
    ----------
    matrix : array_like or scipy sparse matrix, shape (n, n)
        Real weights; stored as float64 CSR with sorted columns and without explicit zeros.
    kind : {"mixing", "row", "col", "gossip"}
        Which sums are 1 or 0, see the module.
    nonneg : bool, default False
        Refuse negative weights (of a gossip matrix: positive off-diagonal entries).
    validate : bool, default True
        Check the sums and the entries.

    Raises
    ------
    TypeError
        If the entries are not real numbers.
    ValueError
        If the matrix is not square, not finite or not of the kind stated.
    """

    def __init__(self, matrix: Any, kind: str, *, nonneg: bool = False, validate: bool = True) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}.")
        self.kind = kind
        self.csr = _as_csr(matrix)
        self.n = self.csr.shape[0]
        if validate:
            self.validate(nonneg=nonneg)
        for array in (self.csr.data, self.csr.indices, self.csr.indptr):
            array.flags.writeable = False

    # -- structure ----------------------------------------------------------------------------------------

    @property
    def nnz(self) -> int:
        """Number of stored weights."""
        return int(self.csr.nnz)

    @cached_property
    def in_degrees(self) -> np.ndarray:
        """Number of agents that each agent hears, itself not counted; int64 (n,)."""
        return np.diff(self.csr.indptr).astype(np.int64) - self._has_diagonal

    @cached_property
    def out_degrees(self) -> np.ndarray:
        """Number of agents that hear each agent, itself not counted; int64 (n,)."""
        heard = np.bincount(self.csr.indices, minlength=self.n).astype(np.int64)
        return heard - self._has_diagonal

    def degrees(self) -> np.ndarray:
        """Number of agents that each agent hears, itself not counted; int64 (n,)."""
        return self.in_degrees

    @cached_property
    def _has_diagonal(self) -> np.ndarray:
        return (self.csr.diagonal() != 0).astype(np.int64)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether ``W`` equals its transpose to 1e-14."""
        difference = self.csr - self.csr.T
        return difference.nnz == 0 or bool(abs(difference).max() <= 1e-14)

    @cached_property
    def shifts(self) -> tuple[tuple[int, float], ...] | None:
        """``((s, w), ...)`` if W is circulant, else None.

        ``W = sum_s w S^s`` with the cyclic shift ``(S x)_i = x_{i+1 mod n}``; shifts ascending.
        """
        counts = np.diff(self.csr.indptr)
        if counts[0] == 0 or np.any(counts != counts[0]):
            return None
        taps = int(counts[0])
        offsets = (self.csr.indices.reshape(self.n, taps) - np.arange(self.n)[:, None]) % self.n
        order = np.argsort(offsets, axis=1, kind="stable")
        offsets = np.take_along_axis(offsets, order, axis=1)
        weights = np.take_along_axis(self.csr.data.reshape(self.n, taps), order, axis=1)
        if np.any(offsets != offsets[0]) or np.any(weights != weights[0]):
            return None
        return tuple((int(s), float(w)) for s, w in zip(offsets[0], weights[0]))

    def toarray(self) -> np.ndarray:
        """A dense copy, float64 (n, n)."""
        return self.csr.toarray()

    def graph(self) -> Graph:
        """The graph of who hears whom, self loops left out; undirected if the pattern is symmetric."""
        return Graph.from_scipy(self.csr)

    def __matmul__(self, X: Any) -> Any:
        """``W @ X`` for a NumPy array X (n, ...): for set-up and tests; solvers use a network."""
        X = np.asarray(X)
        return np.asarray(self.csr @ X.reshape(self.n, -1)).reshape(X.shape)

    def digest(self) -> str:
        """Hex digest of kind, pattern and weights (to 9 decimals, so that ranks of different CPUs agree)."""
        hasher = hashlib.sha256(f"{self.kind} {self.n} ".encode())
        hasher.update(self.csr.indptr.astype(np.int64).tobytes())
        hasher.update(self.csr.indices.astype(np.int64).tobytes())
        hasher.update((np.round(self.csr.data, 9) + 0.0).tobytes())
        return hasher.hexdigest()

    # -- checks and converters ------------------------------------------------------------------------------

    def validate(self, tol: float = 1e-12, *, nonneg: bool = False) -> None:
        """Raise ValueError unless the sums are those of the kind, to ``tol n`` (`nonneg`: signs too)."""
        if not np.all(np.isfinite(self.csr.data)):
            raise ValueError("matrix must have finite entries, got NaN or infinity.")
        target = 0.0 if self.kind == "gossip" else 1.0
        for axis, name, kinds in (
            (1, "rows", {"mixing", "row", "gossip"}),
            (0, "columns", {"mixing", "col", "gossip"}),
        ):
            if self.kind not in kinds:
                continue
            sums = self._sums(axis)
            error = np.abs(sums - target)
            if error.size and error.max() > tol * self.n:
                worst = int(error.argmax())
                raise ValueError(
                    f"a matrix of kind {self.kind!r} must have {name} that sum to {target:g} "
                    f"within {tol * self.n:.1e}, but {name[:-1]} {worst} sums to {sums[worst]:.15g}."
                    f"{self._hint()}"
                )
        if nonneg:
            entries = self.csr.tocoo()
            wrong = (
                (entries.data > 0) & (entries.row != entries.col)
                if self.kind == "gossip"
                else entries.data < 0
            )
            if np.any(wrong):
                k = int(np.flatnonzero(wrong)[0])
                raise ValueError(
                    f"matrix must have non-negative weights, but entry ({entries.row[k]}, {entries.col[k]}) "
                    f"is {entries.data[k]!r}."
                )

    def _sums(self, axis: int) -> np.ndarray:
        """Sums of the rows (axis 1) or the columns (axis 0)."""
        counts = np.diff(self.csr.indptr)
        places = self.csr.indices if axis == 0 else np.repeat(np.arange(self.n), counts)
        return np.bincount(places, self.csr.data, minlength=self.n)

    def _hint(self) -> str:
        rows = np.abs(self._sums(1) - 1).max(initial=0.0)
        columns = np.abs(self._sums(0) - 1).max(initial=0.0)
        small = 1e-12 * self.n
        if self.kind != "gossip" and rows <= small < columns:
            return " Its rows do sum to 1: is it of kind 'row'?"
        if self.kind != "gossip" and columns <= small < rows:
            return " Its columns do sum to 1: is it of kind 'col', or transposed?"
        if self.kind == "gossip" and max(rows, columns) <= small:
            return " Its rows and columns sum to 1: it is of kind 'mixing'; convert it with to_gossip()."
        return ""

    def to_gossip(self) -> MixingMatrix:
        """``I - W`` of kind gossip (a gossip matrix returns itself)."""
        return self._complement("gossip")

    def to_mixing(self) -> MixingMatrix:
        """``I - G`` of kind mixing (a mixing matrix returns itself)."""
        return self._complement("mixing")

    def _complement(self, kind: str) -> MixingMatrix:
        if self.kind == kind:
            return self
        if self.kind in ("row", "col"):
            raise ValueError(
                f"only mixing and gossip matrices convert into each other, got kind {self.kind!r}."
            )
        other = MixingMatrix(sp.eye_array(self.n, format="csr") - self.csr, kind, validate=False)
        return other

    def transpose(self) -> MixingMatrix:
        """``W^T``: kinds row and col change places, mixing and gossip stay."""
        kind = {"row": "col", "col": "row"}.get(self.kind, self.kind)
        return MixingMatrix(self.csr.T, kind, validate=False)

    # -- spectra ------------------------------------------------------------------------------------------

    def lam(self) -> float:
        r"""Contraction factor :math:`\lambda = \|W - J\|_2` of one round (of ``I - G`` for kind gossip)."""
        return self._spectrum.lam

    def gap(self) -> float:
        r"""Spectral gap :math:`1 - \lambda`, free of cancellation if W is symmetric; 0 if not connected."""
        return self._spectrum.gap

    def chi(self) -> float:
        r"""Condition number :math:`\chi = 1/(1 - \|P - G P\|_2^2)` of gossip; inf if not connected."""
        return self._spectrum.chi

    @cached_property
    def _spectrum(self) -> spectra.Spectrum:
        if self.kind in ("row", "col"):
            raise ValueError(
                f"lam, gap and chi are defined for kinds 'mixing' and 'gossip', got {self.kind!r} "
                "(see its Perron vector instead)."
            )
        gossip = self.to_gossip()
        return spectra.gossip_spectrum(gossip.csr, symmetric=self.is_symmetric, shifts=gossip.shifts)

    def __repr__(self) -> str:
        return f"MixingMatrix(n={self.n}, kind={self.kind!r}, nnz={self.nnz})"


def _as_csr(matrix: Any) -> sp.csr_array:
    if isinstance(matrix, MixingMatrix):
        matrix = matrix.csr
    if not sp.issparse(matrix):
        matrix = np.asarray(matrix)
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"matrix must have real entries, got dtype {matrix.dtype}.")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 1:
        raise ValueError(f"matrix must be square with at least one row, got shape {matrix.shape}.")
    csr = sp.csr_array(matrix, dtype=np.float64, copy=True)
    csr.sum_duplicates()  # also sorts the columns of each row: the order in which the kernels add
    if not csr.data.all():
        csr.eliminate_zeros()
    return csr
