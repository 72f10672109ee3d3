"""Periodic sequences made of static graphs: cyclic lists, rotating stars, B-connected windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from optikit.graphs import Graph, ring, star
from optikit.mixing.random_sequences import WeightRule
from optikit.mixing.sequences import Cyclic
from optikit.mixing.weights import metropolis
from optikit.validation import check_integer


def cyclic(graphs: Iterable[Graph], weights: WeightRule = metropolis) -> Cyclic:
    """The given graphs over and over, each with its own weights."""
    return Cyclic([weights(graph) for graph in graphs])


def rotating_star(n: int, centres: Sequence[int] | None = None, weights: WeightRule = metropolis) -> Cyclic:
    """A star whose centre moves on every round: the worst case for chi of the lower bounds.

    Parameters
    ----------
    n : int
        At least 2.
    centres : sequence of int, optional
        Centres in turn; all agents by default.
    weights : callable, default `metropolis`
    """
    n = check_integer(n, "n", minimum=2)
    order = range(n) if centres is None else [check_integer(c, "centres", minimum=0) for c in centres]
    return cyclic([star(n, centre) for centre in order], weights)


def ring_and_star(n: int, weights: WeightRule = metropolis) -> Cyclic:
    """A ring in even rounds, a star in odd rounds whose centre moves on by one each time; period 2 n."""
    n = check_integer(n, "n", minimum=3)
    graphs = [graph for centre in range(n) for graph in (ring(n), star(n, centre))]
    return cyclic(graphs, weights)


def connected_windows(graph: Graph, length: int, seed: int = 0, weights: WeightRule = metropolis) -> Cyclic:
    """The links of a graph dealt over `length` rounds: only the union over a window is connected.

    A single round usually has chi = inf; ``sequence.chi(length)`` is finite (B-connectivity).

    Parameters
    ----------
    graph : Graph
        Undirected and connected, with at least `length` links.
    length : int
        Rounds B of a window, >= 1.
    seed : int, default 0
        Which links go to which round.
    weights : callable, default `metropolis`
    """
    length = check_integer(length, "length", minimum=1)
    if graph.directed or not graph.is_connected:
        raise ValueError("graph must be undirected and connected for its windows to be.")
    if graph.n_edges < length:
        raise ValueError(f"length must be at most the number of links {graph.n_edges}, got {length}.")
    order = np.random.default_rng(seed).permutation(graph.n_edges)
    return cyclic([Graph(graph.n, graph.edges[order[b::length]]) for b in range(length)], weights)
