"""Static graphs of agents: the classical families, a user's edges, NetworkX and SciPy in and out.

A graph says who hears whom. Self loops are never stored and never counted in degrees; multiple edges are one.
A directed edge ``(source, target)`` carries messages from source to target: agent *target* hears *source*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optikit.validation import check_integer, check_real

if TYPE_CHECKING:
    import networkx

#: Random graphs are drawn again until they are connected, at most this many times.
MAX_TRIES = 1000


class Graph:
    """A graph on agents 0..n-1, read-only.

    Parameters
    ----------
    n : int
        Number of agents, >= 1.
    edges : array_like of int, shape (m, 2), optional
        Pairs of agents; for a directed graph (source, target). Self loops are dropped, duplicates merged.
    directed : bool, default False

    Attributes
    ----------
    adjacency : scipy.sparse.csr_array of float64, shape (n, n)
        ``adjacency[i, j] = 1`` if agent i hears agent j; columns sorted.

    Raises
    ------
    TypeError
        If the edges are not integers.
    ValueError
        If an edge names an agent outside 0..n-1 or the shape is not (m, 2).
    """

    def __init__(self, n: int, edges: Any = (), directed: bool = False) -> None:
        self.n = check_integer(n, "n", minimum=1)
        self.directed = bool(directed)
        pairs = np.asarray(edges)
        if pairs.size == 0:
            pairs = np.zeros((0, 2), dtype=np.int64)
        if pairs.dtype.kind not in "iu":
            raise TypeError(f"edges must be integers, got dtype {pairs.dtype}.")
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(f"edges must have shape (m, 2), got {pairs.shape}.")
        if pairs.size and (pairs.min() < 0 or pairs.max() >= self.n):
            bad = pairs[np.any((pairs < 0) | (pairs >= self.n), axis=1)][0]
            raise ValueError(f"edges must join agents 0..{self.n - 1}, got ({bad[0]}, {bad[1]}).")
        pairs = pairs[pairs[:, 0] != pairs[:, 1]].astype(np.int64)
        heard, hearer = pairs[:, 0], pairs[:, 1]
        if not self.directed:
            heard, hearer = np.concatenate([heard, hearer]), np.concatenate([hearer, heard])
        self.adjacency = _pattern(self.n, hearer, heard)
        for array in (self.adjacency.data, self.adjacency.indices, self.adjacency.indptr):
            array.flags.writeable = False

    @cached_property
    def degrees(self) -> np.ndarray:
        """Number of agents each agent hears, int64 (n,)."""
        return np.diff(self.adjacency.indptr).astype(np.int64)

    @cached_property
    def out_degrees(self) -> np.ndarray:
        """Number of agents that hear each agent, int64 (n,)."""
        return np.bincount(self.adjacency.indices, minlength=self.n).astype(np.int64)

    @cached_property
    def edges(self) -> np.ndarray:
        """Edges, int64 (m, 2): (i, j) with i < j once each, or (source, target) if directed."""
        links = self.adjacency.tocoo()
        pairs = np.stack([links.col, links.row], axis=1).astype(np.int64)
        if not self.directed:
            pairs = pairs[pairs[:, 0] < pairs[:, 1]]
        return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]

    @property
    def n_edges(self) -> int:
        """Number of edges (of directed links if the graph is directed)."""
        return int(self.adjacency.nnz if self.directed else self.adjacency.nnz // 2)

    @cached_property
    def is_connected(self) -> bool:
        """Whether every agent reaches every other (along the directions if the graph is directed)."""
        from scipy.sparse.csgraph import connected_components

        count = connected_components(
            self.adjacency, directed=self.directed, connection="strong", return_labels=False
        )
        return int(count) == 1

    def laplacian(self) -> sp.csr_array:
        """``L = D - A``, float64 (n, n); undirected graphs only."""
        if self.directed:
            raise ValueError("laplacian needs an undirected graph, got a directed one.")
        return sp.csr_array(sp.diags_array(self.degrees.astype(np.float64)) - self.adjacency)

    def to_scipy(self) -> sp.csr_array:
        """A copy of the adjacency matrix."""
        return self.adjacency.copy()

    @classmethod
    def from_scipy(cls, adjacency: Any, directed: bool | None = None) -> Graph:
        """The pattern of a square matrix (SciPy sparse or array): entry (i, j) means that i hears j.

        `directed` defaults to whether the pattern is not symmetric; False demands a symmetric one.
        """
        matrix = adjacency if sp.issparse(adjacency) else np.asarray(adjacency)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"adjacency must be a square matrix, got shape {matrix.shape}.")
        links = sp.coo_array(matrix)
        present = links.data != 0
        pairs = np.stack([links.col[present], links.row[present]], axis=1)
        graph = cls(matrix.shape[0], pairs, directed=True)
        symmetric = (graph.adjacency != graph.adjacency.T).nnz == 0
        if directed is False and not symmetric:
            raise ValueError(
                "adjacency must be symmetric for an undirected graph, got an asymmetric pattern."
            )
        return graph if (not symmetric or directed) else cls(graph.n, pairs, directed=False)

    def to_networkx(self) -> networkx.Graph | networkx.DiGraph:
        """A NetworkX Graph or DiGraph with nodes 0..n-1."""
        import networkx

        graph = networkx.DiGraph() if self.directed else networkx.Graph()
        graph.add_nodes_from(range(self.n))
        graph.add_edges_from(map(tuple, self.edges.tolist()))
        return graph

    @classmethod
    def from_networkx(cls, graph: networkx.Graph | networkx.DiGraph) -> Graph:
        """From NetworkX: agent k is the k-th node of ``list(graph.nodes)``; edge data are ignored."""
        number = {node: k for k, node in enumerate(graph.nodes)}
        pairs = [(number[edge[0]], number[edge[1]]) for edge in graph.edges]
        return cls(len(number), np.array(pairs, dtype=np.int64).reshape(-1, 2), directed=graph.is_directed())

    def __repr__(self) -> str:
        return f"Graph(n={self.n}, edges={self.n_edges}{', directed' if self.directed else ''})"


def _pattern(n: int, rows: np.ndarray, columns: np.ndarray) -> sp.csr_array:
    """Ones at the given places, duplicates merged, columns sorted.

    By hand: SciPy's conversions cost a quarter of a millisecond, which changing graphs pay in every round.
    """
    keys = np.unique(rows * n + columns)
    indptr = np.searchsorted(keys, np.arange(n + 1) * n)
    return sp.csr_array((np.ones(keys.size), keys % n, indptr), shape=(n, n))


# -- families -----------------------------------------------------------------------------------------------


def ring(n: int) -> Graph:
    """Cycle ``i - i+1 mod n`` (n = 2: one edge, n = 1: none)."""
    n = check_integer(n, "n", minimum=1)
    nodes = np.arange(n)
    return Graph(n, np.stack([nodes, (nodes + 1) % n], axis=1))


def path(n: int) -> Graph:
    """Path ``i - i+1`` without the wrap."""
    n = check_integer(n, "n", minimum=1)
    nodes = np.arange(n - 1)
    return Graph(n, np.stack([nodes, nodes + 1], axis=1))


def complete(n: int) -> Graph:
    """Everybody hears everybody."""
    n = check_integer(n, "n", minimum=1)
    return Graph(n, np.stack(np.triu_indices(n, 1), axis=1))


def star(n: int, centre: int = 0) -> Graph:
    """`centre` hears everybody and everybody hears the centre."""
    n = check_integer(n, "n", minimum=1)
    centre = check_integer(centre, "centre", minimum=0, maximum=n - 1)
    nodes = np.arange(n)
    return Graph(n, np.stack([np.full(n, centre), nodes], axis=1))


def grid(a: int, b: int) -> Graph:
    """a x b rectangle; agent ``i b + j`` sits in row i, column j and hears its (up to) four neighbours."""
    return _lattice(a, b, wrap=False)


def torus(a: int, b: int) -> Graph:
    """Grid with opposite sides joined; sides of length <= 2 are not wrapped (the edge is there already)."""
    return _lattice(a, b, wrap=True)


def _lattice(a: int, b: int, wrap: bool) -> Graph:
    a = check_integer(a, "a", minimum=1)
    b = check_integer(b, "b", minimum=1)
    nodes = np.arange(a * b).reshape(a, b)
    pairs = [(nodes[:-1], nodes[1:]), (nodes[:, :-1], nodes[:, 1:])]
    if wrap and a > 2:
        pairs.append((nodes[-1], nodes[0]))
    if wrap and b > 2:
        pairs.append((nodes[:, -1], nodes[:, 0]))
    return Graph(a * b, np.concatenate([np.stack([u.ravel(), v.ravel()], axis=1) for u, v in pairs]))


def hypercube(t: int) -> Graph:
    """``2^t`` agents; i and j are linked if their numbers differ in one bit."""
    t = check_integer(t, "t", minimum=0, maximum=24)
    nodes = np.arange(2**t)
    pairs = [np.stack([nodes, nodes ^ (1 << bit)], axis=1) for bit in range(t)]
    return Graph(2**t, np.concatenate(pairs) if pairs else ())


def static_exponential(n: int) -> Graph:
    """Directed: agent i hears ``i + 2^j mod n`` for ``j < ceil(log2 n)`` (Ying et al. 2021)."""
    n = check_integer(n, "n", minimum=1)
    nodes = np.arange(n)
    pairs = [np.stack([(nodes + (1 << j)) % n, nodes], axis=1) for j in range((n - 1).bit_length())]
    return Graph(n, np.concatenate(pairs) if pairs else (), directed=True)


def erdos_renyi(n: int, p: float, seed: int, *, connected: bool = True) -> Graph:
    """G(n, p): each pair is linked with probability p, drawn again until connected.

    Parameters
    ----------
    n : int
        Number of agents, >= 1.
    p : float
        In [0, 1].
    seed : int
        The graph depends on (n, p, seed) alone.
    connected : bool, default True
        False keeps the first draw.

    Raises
    ------
    ValueError
        If none of 1000 draws is connected.
    """
    n = check_integer(n, "n", minimum=1)
    p = check_real(p, "p", minimum=0.0, maximum=1.0)
    rng = np.random.default_rng(np.random.SeedSequence(check_integer(seed, "seed", minimum=0)))
    return _until_connected(lambda: Graph(n, _bernoulli_pairs(n, p, rng)), connected, f"p={p!r}")


def _bernoulli_pairs(n: int, p: float, rng: np.random.Generator) -> np.ndarray:
    """Each pair i < j kept with probability p, by geometric jumps over the list of pairs: O(edges) memory."""
    total = n * (n - 1) // 2
    if p == 0.0 or total == 0:
        return np.zeros((0, 2), dtype=np.int64)
    position, kept = -1, []
    while position < total:
        expected = (total - position) * p
        jumps = rng.geometric(p, size=int(expected + 4 * expected**0.5) + 8)
        places = position + np.cumsum(np.minimum(jumps, total + 1))  # the cap avoids overflow for tiny p
        kept.append(places[places < total])
        position = int(places[-1])
    places = np.concatenate(kept)
    # Pair number k of row i: k = i (2n - i - 1) / 2 + (j - i - 1); the root is corrected for rounding.
    starts = np.arange(n) * (2 * n - np.arange(n) - 1) // 2
    i = np.searchsorted(starts, places, side="right") - 1
    i = np.minimum(i, n - 2)
    return np.stack([i, places - starts[i] + i + 1], axis=1)


def random_geometric(n: int, radius: float, seed: int, *, connected: bool = True) -> Graph:
    """Agents at uniform points of the unit square, linked within `radius`; drawn again until connected."""
    n = check_integer(n, "n", minimum=1)
    radius = check_real(radius, "radius", minimum=0.0, open_low=True)
    rng = np.random.default_rng(np.random.SeedSequence(check_integer(seed, "seed", minimum=0)))

    def draw() -> Graph:
        from scipy.spatial import cKDTree

        return Graph(n, cKDTree(rng.random((n, 2))).query_pairs(radius, output_type="ndarray"))

    return _until_connected(draw, connected, f"radius={radius!r}")


def _until_connected(draw: Any, connected: bool, parameter: str) -> Graph:
    for _ in range(MAX_TRIES if connected else 1):
        graph = draw()
        if not connected or graph.is_connected:
            return graph
    raise ValueError(
        f"none of {MAX_TRIES} random graphs with n={graph.n}, {parameter} was connected; enlarge it."
    )


def two_worlds(n: int, h: int) -> Graph:
    """Two cliques of n/2 agents; each agent hears h agents of the other clique, at offsets 0..h-1.

    The second Laplacian eigenvalue is 2 h as long as that is the smallest non-zero one.
    """
    n = check_integer(n, "n", minimum=2)
    if n % 2:
        raise ValueError(f"n must be even, got {n!r}.")
    half = n // 2
    h = check_integer(h, "h", minimum=0, maximum=half)
    clique = np.stack(np.triu_indices(half, 1), axis=1)
    nodes = np.arange(half)
    bridges = [np.stack([nodes, half + (nodes + offset) % half], axis=1) for offset in range(h)]
    return Graph(n, np.concatenate([clique, clique + half, *bridges]))


# -- a user's graph -----------------------------------------------------------------------------------------


def from_edges(n: int, edges: Iterable[tuple[int, int]], directed: bool = False) -> Graph:
    """Graph on n agents with the given pairs, see `Graph`."""
    pairs = edges if isinstance(edges, np.ndarray) else np.array(list(edges))
    return Graph(n, pairs, directed)


def read_edge_list(file: str | Path, n: int | None = None, directed: bool = False) -> Graph:
    """Graph from a text file: one edge ``i j`` per line (spaces, tabs or commas), agents numbered from 0.

    Further columns, empty lines and what follows ``#`` or ``%`` are ignored. `n` defaults to the largest
    number + 1.

    Raises
    ------
    ValueError
        Naming the file and the line that is not an edge.
    """
    pairs: list[tuple[int, int]] = []
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            words = re.split(r"[\s,;]+", re.split("[#%]", line, maxsplit=1)[0].strip())
            if words == [""]:
                continue
            if len(words) < 2 or not (words[0].isdigit() and words[1].isdigit()):
                raise ValueError(
                    f"{file}, line {number}: an edge is two agent numbers >= 0, got {line.strip()!r}."
                )
            pairs.append((int(words[0]), int(words[1])))
            if n is not None and max(pairs[-1]) >= n:
                raise ValueError(f"{file}, line {number}: agents are 0..{n - 1}, got {line.strip()!r}.")
    if not pairs and n is None:
        raise ValueError(f"{file} holds no edge.")
    return Graph(n if n is not None else 1 + max(map(max, pairs)), np.array(pairs).reshape(-1, 2), directed)
