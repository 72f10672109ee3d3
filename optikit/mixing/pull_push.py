"""Networks that pull in one round and push in the next: row- and column-stochastic matrices in turn."""

from __future__ import annotations

import math

from optikit.graphs import Graph
from optikit.mixing.matrix import MixingMatrix
from optikit.mixing.sequences import Static, TopologySequence
from optikit.mixing.weights import col_stochastic, row_stochastic


class PullPush(TopologySequence):
    """Rounds 0, 2, 4, ... use matrices of kind row, rounds 1, 3, 5, ... of kind col.

    For methods that send one variable by a row-stochastic and another by a column-stochastic matrix, such
    as AB / Push-Pull. Its kind is ``"pull-push"``, which no other method accepts.

    Parameters
    ----------
    pull : MixingMatrix, TopologySequence or Graph
        Of kind row (or mixing); a graph gets ``1 / (1 + indegree)``.
    push : MixingMatrix, TopologySequence or Graph, optional
        Of kind col (or mixing); by default the graph given as `pull`, with ``1 / (1 + outdegree)``.
    """

    kind = "pull-push"

    def __init__(
        self,
        pull: MixingMatrix | TopologySequence | Graph,
        push: MixingMatrix | TopologySequence | Graph | None = None,
    ) -> None:
        if push is None and not isinstance(pull, Graph):
            raise ValueError("push is needed unless pull is a graph, got None.")
        push = pull if push is None else push
        if isinstance(pull, Graph):
            pull = row_stochastic(pull)
        if isinstance(push, Graph):
            push = col_stochastic(push)
        self.pull, self.push = _sequence(pull, "pull", "row"), _sequence(push, "push", "col")
        if self.pull.n != self.push.n:
            raise ValueError(f"pull and push must have the same agents, got {self.pull.n} and {self.push.n}.")
        self.n = self.pull.n
        periods = (self.pull.period, self.push.period)
        self.period = None if None in periods else 2 * math.lcm(*periods)  # type: ignore[arg-type]

    def matrix(self, q: int) -> MixingMatrix:
        """Matrix ``q // 2`` of `pull` for even q, of `push` for odd q."""
        return (self.push if q % 2 else self.pull).matrix(q // 2)

    def __repr__(self) -> str:
        return f"PullPush({self.pull!r}, {self.push!r})"


def _sequence(topology: MixingMatrix | TopologySequence, name: str, kind: str) -> TopologySequence:
    sequence = Static(topology) if isinstance(topology, MixingMatrix) else topology
    if not isinstance(sequence, TopologySequence):
        raise TypeError(
            f"{name} must be a MixingMatrix, TopologySequence or Graph, got {type(topology).__name__}."
        )
    if sequence.kind not in (kind, "mixing"):
        raise ValueError(f"{name} must be of kind {kind!r} or 'mixing', got {sequence.kind!r}.")
    return sequence
