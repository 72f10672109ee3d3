"""Random time-varying sequences: round q is drawn from a stream keyed by (seed, q).

The matrix of a round is therefore random-access and the same on every rank, whatever was asked before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from optikit.graphs import Graph, erdos_renyi
from optikit.mixing.matrix import MixingMatrix
from optikit.mixing.sequences import TopologySequence
from optikit.mixing.weights import metropolis
from optikit.validation import check_integer, check_real

WeightRule = Callable[[Graph], MixingMatrix]

#: Rounds kept by each sequence: a solver asks for the same round several times in a row.
_KEPT_ROUNDS = 16


class RandomSequence(TopologySequence):
    """Base of the sequences drawn anew each round; aperiodic.

    Parameters
    ----------
    n : int
    weights : callable
        From the round's `Graph` to its `MixingMatrix`.
    seed : int
        At least 0.
    """

    def __init__(self, n: int, weights: WeightRule, seed: int) -> None:
        if not callable(weights):
            raise TypeError(f"weights must be a function from Graph to MixingMatrix, got {weights!r}.")
        self.n, self.period = check_integer(n, "n", minimum=1), None
        self.seed, self.weights = check_integer(seed, "seed", minimum=0), weights
        self._cached = lru_cache(maxsize=_KEPT_ROUNDS)(lambda q: weights(self.graph(q)))
        self.kind = self.matrix(0).kind

    def graph(self, q: int) -> Graph:
        """The graph of round q."""
        raise NotImplementedError

    def matrix(self, q: int) -> MixingMatrix:
        """The matrix of round q >= 0."""
        return self._cached(check_integer(q, "q", minimum=0))

    def _rng(self, q: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence([self.seed, q]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, kind={self.kind!r}, seed={self.seed})"


class ErdosRenyiSequence(RandomSequence):
    """A fresh G(n, p) every round.

    Parameters
    ----------
    n : int
    p : float
        Probability of each link, in (0, 1].
    seed : int, default 0
    weights : callable, default `metropolis`
    connected : bool, default True
        Draw each round again until it is connected (at most 1000 times); False leaves it as it falls, so
        that single rounds may have chi = inf.
    """

    def __init__(
        self, n: int, p: float, seed: int = 0, *, weights: WeightRule = metropolis, connected: bool = True
    ) -> None:
        self.p = check_real(p, "p", minimum=0.0, maximum=1.0, open_low=True)
        self.connected = bool(connected)
        super().__init__(n, weights, seed)

    def graph(self, q: int) -> Graph:
        return erdos_renyi(self.n, self.p, int(self._rng(q).integers(2**63)), connected=self.connected)


class LinkFailures(RandomSequence):
    """Every link of a base graph fails with probability p in each round; the weights follow the survivors.

    Parameters
    ----------
    graph : Graph
        Undirected.
    p : float
        Probability that a link fails, in [0, 1].
    seed : int, default 0
    weights : callable, default `metropolis`
    """

    def __init__(self, graph: Graph, p: float, seed: int = 0, *, weights: WeightRule = metropolis) -> None:
        if not isinstance(graph, Graph) or graph.directed:
            raise TypeError(f"graph must be an undirected Graph, got {graph!r}.")
        self.base, self.p = graph, check_real(p, "p", minimum=0.0, maximum=1.0)
        super().__init__(graph.n, weights, seed)

    def graph(self, q: int) -> Graph:
        edges = self.base.edges
        return Graph(self.n, edges[self._rng(q).random(len(edges)) >= self.p])


class RandomMatchings(RandomSequence):
    """Random pairs average in each round (gossip in pairs); with odd n one agent idles.

    Parameters
    ----------
    n : int
    seed : int, default 0
    weights : callable, default `metropolis`
        Metropolis weights give each of a pair one half.
    """

    def __init__(self, n: int, seed: int = 0, *, weights: WeightRule = metropolis) -> None:
        super().__init__(n, weights, seed)

    def graph(self, q: int) -> Graph:
        order = self._rng(q).permutation(self.n)
        return Graph(self.n, order[: self.n - self.n % 2].reshape(-1, 2))
