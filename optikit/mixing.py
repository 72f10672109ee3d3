r"""Mixing matrices and sequences of them: kinds, weight rules, converters.

``W[i, j]`` is the weight agent i puts on the message it *receives from* j. Four kinds, told apart by type:

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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from optikit import spectra
from optikit.graphs import Graph

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
        """``((s, w), ...)`` with ``W = sum_s w S^s``, ``(S x)_i = x_{i+1 mod n}``, if W is circulant, else None."""
        counts = np.diff(self.csr.indptr)
        if self.n == 0 or np.any(counts != counts[0]):
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
        """Raise ValueError unless the sums are those of the kind, to ``tol n`` (and entries have their sign)."""
        if not np.all(np.isfinite(self.csr.data)):
            raise ValueError("matrix must have finite entries, got NaN or infinity.")
        target = 0.0 if self.kind == "gossip" else 1.0
        for axis, name, kinds in (
            (1, "rows", {"mixing", "row", "gossip"}),
            (0, "columns", {"mixing", "col", "gossip"}),
        ):
            if self.kind not in kinds:
                continue
            sums = np.asarray(self.csr.sum(axis=axis)).ravel()
            error = np.abs(sums - target)
            if error.size and error.max() > tol * self.n:
                worst = int(error.argmax())
                raise ValueError(
                    f"a matrix of kind {self.kind!r} must have {name} that sum to {target:g} within {tol * self.n:.1e}, "
                    f"but {name[:-1]} {worst} sums to {sums[worst]!r}.{self._hint()}"
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

    def _hint(self) -> str:
        rows = np.abs(np.asarray(self.csr.sum(axis=1)).ravel() - 1).max(initial=0.0)
        columns = np.abs(np.asarray(self.csr.sum(axis=0)).ravel() - 1).max(initial=0.0)
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

    # -- spectra ----------------------------------------------------------------------------------------------

    def lam(self) -> float:
        r"""Contraction factor :math:`\lambda = \|W - J\|_2` of one mixing round (of ``I - G`` for kind gossip)."""
        return self._spectrum.lam

    def gap(self) -> float:
        r"""Spectral gap :math:`1 - \lambda`, without cancellation where W is symmetric; 0 if not connected."""
        return self._spectrum.gap

    def chi(self) -> float:
        r"""Condition number :math:`\chi = 1/(1 - \|P - G P\|_2^2)` of the gossip matrix; inf if not connected."""
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
    csr.eliminate_zeros()
    return csr


# -- weight rules -------------------------------------------------------------------------------------------


def from_matrix(matrix: Any, kind: str, *, nonneg: bool = False) -> MixingMatrix:
    """A user's matrix (array, SciPy sparse) as a `MixingMatrix` of the stated kind, validated."""
    return MixingMatrix(matrix, kind, nonneg=nonneg)


def circulant(n: int, taps: Iterable[tuple[int, float]], kind: str = "mixing") -> MixingMatrix:
    """``sum_s w S^s`` with ``(S x)_i = x_{i+1 mod n}``; shifts that coincide mod n are added up.

    Parameters
    ----------
    n : int
        Number of agents, >= 1.
    taps : iterable of (shift, weight)
        Shifts are any integers.
    kind : {"mixing", "gossip"}
    """
    n = _check_size(n)
    pairs = [(int(s) % n, float(w)) for s, w in taps]
    rows = np.tile(np.arange(n), len(pairs))
    columns = np.concatenate([(np.arange(n) + s) % n for s, _ in pairs]) if pairs else rows
    weights = np.repeat([w for _, w in pairs], n)
    return MixingMatrix(sp.coo_array((weights, (rows, columns)), shape=(n, n)), kind)


def metropolis(graph: Graph, lazy: bool = False) -> MixingMatrix:
    """Metropolis-Hastings weights ``1 / (1 + max(deg_i, deg_j))`` (Xiao, Boyd 2004); lazy: ``(I + W) / 2``."""
    _require_undirected(graph, "metropolis", "max_degree, row_stochastic or col_stochastic")
    links = graph.adjacency.tocoo()
    degrees = graph.degrees
    weights = 1.0 / (1.0 + np.maximum(degrees[links.row], degrees[links.col]))
    if lazy:
        weights = 0.5 * weights
    return _fill_diagonal(graph, links, weights, "mixing")


def max_degree(graph: Graph) -> MixingMatrix:
    """Weights ``1 / (1 + deg_max)`` on every link; directed graphs need in-degree = out-degree at each node."""
    if graph.directed and np.any(graph.degrees != graph.out_degrees):
        raise ValueError(
            "max_degree on a directed graph needs in-degree = out-degree at every node, but node "
            f"{int(np.flatnonzero(graph.degrees != graph.out_degrees)[0])} differs; "
            "use row_stochastic or col_stochastic."
        )
    links = graph.adjacency.tocoo()
    weights = np.full(links.nnz, 1.0 / (1.0 + graph.degrees.max(initial=0)))
    return _fill_diagonal(graph, links, weights, "mixing")


def laplacian_mixing(graph: Graph) -> MixingMatrix:
    """Best constant edge weight: ``I - 2 L / (l_max + l_2)`` (Xiao, Boyd 2004); entries may be negative."""
    return laplacian_gossip(graph, "optimal").to_mixing()


def laplacian_gossip(graph: Graph, scale: str = "optimal") -> MixingMatrix:
    """Scaled Laplacian of kind gossip: ``2 L / (l_max + l_2)`` ("optimal") or ``L / l_max`` ("max").

    With ``kappa = l_max / l_2`` their chi is ``(kappa + 1)^2 / (4 kappa)`` and ``kappa^2 / (2 kappa - 1)``.
    """
    _require_undirected(graph, "laplacian_gossip", "row_stochastic or col_stochastic")
    if scale not in ("optimal", "max"):
        raise ValueError(f"scale must be 'optimal' or 'max', got {scale!r}.")
    laplacian = graph.laplacian()
    if graph.n == 1:
        return MixingMatrix(laplacian, "gossip")
    low, high = spectra.laplacian_extremes(laplacian)
    if not graph.is_connected:
        raise ValueError("laplacian_gossip needs a connected graph: l_2 of this one is 0.")
    factor = 2.0 / (high + low) if scale == "optimal" else 1.0 / high
    return MixingMatrix(laplacian * factor, "gossip")


def row_stochastic(graph: Graph) -> MixingMatrix:
    """``1 / (1 + indeg_i)`` on the links into i and on i itself; kind row."""
    links = graph.adjacency.tocoo()
    degrees = graph.degrees
    own = 1.0 / (1.0 + degrees)
    return MixingMatrix(_with_diagonal(graph.n, links, own[links.row], own), "row")


def col_stochastic(graph: Graph) -> MixingMatrix:
    """``1 / (1 + outdeg_j)`` on the links out of j and on j itself; kind col."""
    links = graph.adjacency.tocoo()
    own = 1.0 / (1.0 + graph.out_degrees)
    return MixingMatrix(_with_diagonal(graph.n, links, own[links.col], own), "col")


def default_weights(graph: Graph) -> MixingMatrix:
    """The rule a network uses for a bare graph: `metropolis`, or `max_degree` if it is directed."""
    return max_degree(graph) if graph.directed else metropolis(graph)


def _fill_diagonal(graph: Graph, links: sp.coo_array, weights: np.ndarray, kind: str) -> MixingMatrix:
    diagonal = 1.0 - np.bincount(links.row, weights, minlength=graph.n)
    diagonal[np.abs(diagonal) < 1e-15 * graph.n] = 0.0
    return MixingMatrix(_with_diagonal(graph.n, links, weights, diagonal), kind)


def _with_diagonal(n: int, links: sp.coo_array, weights: np.ndarray, diagonal: np.ndarray) -> sp.coo_array:
    nodes = np.arange(n)
    entries = np.concatenate([weights, diagonal])
    positions = (np.concatenate([links.row, nodes]), np.concatenate([links.col, nodes]))
    return sp.coo_array((entries, positions), shape=(n, n))


def _require_undirected(graph: Graph, rule: str, remedy: str) -> None:
    if graph.directed:
        raise ValueError(f"{rule} needs an undirected graph, got a directed one; use {remedy}.")


def _check_size(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"n must be an integer >= 1, got {n!r}.")
    return int(n)


# -- sequences ----------------------------------------------------------------------------------------------


class TopologySequence(ABC):
    """Matrices ``matrix(0), matrix(1), ...`` of one kind, one per round; random access, the same on all ranks.

    Attributes
    ----------
    n : int
        Number of agents.
    kind : str
        Kind of every matrix.
    period : int or None
        ``matrix(q + period)`` is ``matrix(q)``; None for aperiodic sequences.
    """

    n: int
    kind: str
    period: int | None

    @abstractmethod
    def matrix(self, q: int) -> MixingMatrix:
        """The matrix of round q >= 0."""

    def digest(self) -> str:
        """Hex digest by which ranks check that they hold the same sequence."""
        rounds = range(4 if self.period is None else min(self.period, 64))
        text = " ".join(self.matrix(q).digest() for q in rounds)
        return hashlib.sha256(f"{type(self).__name__} {self.n} {self.period} {text}".encode()).hexdigest()

    def window(self, q: int, length: int) -> sp.csr_array:
        """Product of the `length` matrices from round q on, newest on the left; for kind gossip of ``I - G``."""
        product = sp.eye_array(self.n, format="csr")
        for round_number in range(q, q + length):
            matrix = self.matrix(round_number)
            product = (matrix.to_mixing() if self.kind == "gossip" else matrix).csr @ product
        return sp.csr_array(product)

    def chi(self, length: int = 1, *, rounds: int | None = None) -> float:
        r"""Worst :math:`1/(1 - \|M - J\|_2^2)` over the windows M of `length` rounds.

        Periodic sequences are searched over one period, others over the first `rounds` (default 100) rounds.
        """
        starts = self.period if self.period is not None else (rounds or 100)
        if length == 1:
            return max(self.matrix(q).chi() for q in range(starts))
        windows = (self.window(q, length) for q in range(starts))
        return max(MixingMatrix(window, "mixing", validate=False).chi() for window in windows)

    def is_b_connected(self, length: int, *, rounds: int | None = None) -> bool:
        """Whether the union of the graphs of any `length` consecutive rounds is (strongly) connected."""
        starts = self.period if self.period is not None else (rounds or 100)
        for first in range(starts):
            union = sum(
                (abs(self.matrix(q).csr) for q in range(first, first + length)),
                sp.csr_array((self.n, self.n)),
            )
            if not Graph.from_scipy(union).is_connected:
                return False
        return True


class Static(TopologySequence):
    """The same matrix in every round."""

    def __init__(self, matrix: MixingMatrix) -> None:
        if not isinstance(matrix, MixingMatrix):
            raise TypeError(f"matrix must be a MixingMatrix, got {type(matrix).__name__}.")
        self.n, self.kind, self.period = matrix.n, matrix.kind, 1
        self._matrix = matrix

    def matrix(self, q: int) -> MixingMatrix:
        """The matrix."""
        return self._matrix

    def __repr__(self) -> str:
        return f"Static({self._matrix!r})"


class Cyclic(TopologySequence):
    """The given matrices over and over: ``matrix(q) = matrices[q mod len(matrices)]``."""

    def __init__(self, matrices: Sequence[MixingMatrix]) -> None:
        matrices = list(matrices)
        if not matrices:
            raise ValueError("matrices must hold at least one MixingMatrix, got none.")
        for matrix in matrices:
            if not isinstance(matrix, MixingMatrix):
                raise TypeError(f"matrices must be MixingMatrix objects, got {type(matrix).__name__}.")
        first = matrices[0]
        if any(matrix.n != first.n or matrix.kind != first.kind for matrix in matrices):
            found = sorted({(matrix.n, matrix.kind) for matrix in matrices})
            raise ValueError(f"matrices must agree in n and kind, got {found}.")
        self.n, self.kind, self.period = first.n, first.kind, len(matrices)
        self._matrices = matrices

    def matrix(self, q: int) -> MixingMatrix:
        """Matrix ``q mod period``."""
        return self._matrices[q % len(self._matrices)]

    def __repr__(self) -> str:
        return f"Cyclic(period={self.period}, n={self.n}, kind={self.kind!r})"
