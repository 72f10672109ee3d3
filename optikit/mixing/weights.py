"""Weight rules: from a graph, or a user's matrix, to a `MixingMatrix`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from optikit.graphs import Graph
from optikit.mixing import spectra
from optikit.mixing.matrix import MixingMatrix
from optikit.validation import check_choice, check_integer


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
    n = check_integer(n, "n", minimum=1)
    pairs = [(int(s) % n, float(w)) for s, w in taps]
    rows = np.tile(np.arange(n), len(pairs))
    columns = np.concatenate([(np.arange(n) + s) % n for s, _ in pairs]) if pairs else rows
    weights = np.repeat([w for _, w in pairs], n)
    return MixingMatrix(sp.coo_array((weights, (rows, columns)), shape=(n, n)), kind)


def metropolis(graph: Graph, lazy: bool = False) -> MixingMatrix:
    """Metropolis-Hastings: ``1 / (1 + max(deg_i, deg_j))`` (Xiao, Boyd 2004); lazy: ``(I + W) / 2``."""
    _require_undirected(graph, "metropolis", "max_degree, row_stochastic or col_stochastic")
    rows, columns = _links(graph)
    degrees = graph.degrees
    weights = 1.0 / (1.0 + np.maximum(degrees[rows], degrees[columns]))
    if lazy:
        weights = 0.5 * weights
    return _fill_diagonal(graph, rows, columns, weights, "mixing")


def max_degree(graph: Graph) -> MixingMatrix:
    """``1 / (1 + deg_max)`` on every link; a directed graph needs in-degree = out-degree at every node."""
    if graph.directed and np.any(graph.degrees != graph.out_degrees):
        raise ValueError(
            "max_degree on a directed graph needs in-degree = out-degree at every node, but node "
            f"{int(np.flatnonzero(graph.degrees != graph.out_degrees)[0])} differs; "
            "use row_stochastic or col_stochastic."
        )
    rows, columns = _links(graph)
    weights = np.full(rows.size, 1.0 / (1.0 + graph.degrees.max(initial=0)))
    return _fill_diagonal(graph, rows, columns, weights, "mixing")


def laplacian_mixing(graph: Graph) -> MixingMatrix:
    """Best constant edge weight: ``I - 2 L / (l_max + l_2)`` (Xiao, Boyd 2004); entries may be negative."""
    return laplacian_gossip(graph, "optimal").to_mixing()


def laplacian_gossip(graph: Graph, scale: str = "optimal") -> MixingMatrix:
    """Scaled Laplacian of kind gossip: ``2 L / (l_max + l_2)`` ("optimal") or ``L / l_max`` ("max").

    With ``kappa = l_max / l_2`` their chi is ``(kappa + 1)^2 / (4 kappa)`` and ``kappa^2 / (2 kappa - 1)``.
    """
    _require_undirected(graph, "laplacian_gossip", "row_stochastic or col_stochastic")
    check_choice(scale, "scale", ("optimal", "max"))
    laplacian = graph.laplacian()
    if graph.n == 1:
        return MixingMatrix(laplacian, "gossip")
    if not graph.is_connected:
        raise ValueError("laplacian_gossip needs a connected graph: l_2 of this one is 0.")
    low, high = spectra.laplacian_extremes(laplacian)
    factor = 2.0 / (high + low) if scale == "optimal" else 1.0 / high
    return MixingMatrix(laplacian * factor, "gossip")


def row_stochastic(graph: Graph) -> MixingMatrix:
    """``1 / (1 + indeg_i)`` on the links into i and on i itself; kind row."""
    rows, columns = _links(graph)
    degrees = graph.degrees
    own = 1.0 / (1.0 + degrees)
    return MixingMatrix(_with_diagonal(graph.n, rows, columns, own[rows], own), "row")


def col_stochastic(graph: Graph) -> MixingMatrix:
    """``1 / (1 + outdeg_j)`` on the links out of j and on j itself; kind col."""
    rows, columns = _links(graph)
    own = 1.0 / (1.0 + graph.out_degrees)
    return MixingMatrix(_with_diagonal(graph.n, rows, columns, own[columns], own), "col")


def default_weights(graph: Graph) -> MixingMatrix:
    """The rule a network uses for a bare graph: `metropolis`, or `max_degree` if it is directed."""
    return max_degree(graph) if graph.directed else metropolis(graph)


def _links(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Who hears, and whom: int64 arrays, one entry per directed link, in the order of the adjacency."""
    rows = np.repeat(np.arange(graph.n), graph.degrees)
    return rows, graph.adjacency.indices.astype(np.int64)


def _fill_diagonal(
    graph: Graph, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray, kind: str
) -> MixingMatrix:
    diagonal = 1.0 - np.bincount(rows, weights, minlength=graph.n)
    diagonal[np.abs(diagonal) < 1e-15 * graph.n] = 0.0
    return MixingMatrix(_with_diagonal(graph.n, rows, columns, weights, diagonal), kind)


def _with_diagonal(
    n: int, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray, diagonal: np.ndarray
) -> sp.csr_array:
    """CSR with sorted columns, by hand: SciPy's conversions are what a time-varying graph would wait for."""
    nodes = np.arange(n)
    keys = np.concatenate([rows * n + columns, nodes * (n + 1)])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    indptr = np.searchsorted(keys, np.arange(n + 1) * n)
    return sp.csr_array((np.concatenate([weights, diagonal])[order], keys % n, indptr), shape=(n, n))


def _require_undirected(graph: Graph, rule: str, remedy: str) -> None:
    if graph.directed:
        raise ValueError(f"{rule} needs an undirected graph, got a directed one; use {remedy}.")
