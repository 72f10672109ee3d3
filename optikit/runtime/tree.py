"""Trees of servers on a virtual clock: workers, regional servers, a global one; a star has depth one.

Messages are typed events: a worker's *reply* to its server, a server's *up* message to its parent, the
parent's *down* answer. A server answers each message of a child at once. When it sends up itself is a rule
of counts (`EveryK`), so timing does not depend on data: the whole order of events is drawn first, as a
`TreeTrace`, and any method, or many seeds of one stacked as ``(S, d)``, is run along it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optikit.checkpoint import read_arrays, write_arrays
from optikit.runtime.timing import ServiceLaw
from optikit.validation import check_integer, check_real

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Kind(IntEnum):
    """What an event is, by who receives it."""

    REPLY = 0  #: a server gets a worker's result
    UP = 1  #: a server gets a message of a server below it
    DOWN = 2  #: a server gets its parent's answer


@dataclass(frozen=True)
class Event:
    """One arrival.

    Attributes
    ----------
    time : float
    kind : Kind
    node : int
        The lower end of the link: the worker of a REPLY, the sender of an UP, the receiver of a DOWN.
    version : int
        Messages that the upper end had absorbed when it sent what this one answers: its count now less
        `version` is the staleness of a REPLY or an UP. For a DOWN, the upper end's count when it answered.
    """

    time: float
    kind: Kind
    node: int
    version: int


@dataclass(frozen=True)
class Tree:
    """Who talks to whom, over which links.

    Parameters
    ----------
    parents : sequence of int
        Parent of each node, -1 for the one root. Nodes without children are workers.
    latency : float or sequence, default 0
        Seconds, one way, of the link from each node to its parent.
    bandwidth : float or sequence, default inf
        Bits per second of that link, > 0.
    bits : float, default 0
        Size of a message.

    Raises
    ------
    ValueError
        Without exactly one root, with a cycle, without workers, for negative latencies or bandwidths.
    """

    parents: Sequence[int]
    latency: Any = 0.0
    bandwidth: Any = math.inf
    bits: float = 0.0
    children: tuple[tuple[int, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parents = tuple(int(p) for p in self.parents)
        n = len(parents)
        roots = [v for v, p in enumerate(parents) if p == -1]
        if len(roots) != 1:
            raise ValueError(f"parents must name one root by -1, got {len(roots)} of {n} nodes.")
        if n < 2:
            raise ValueError("a tree needs at least one worker below its root, got the root alone.")
        for v, p in enumerate(parents):
            if not -1 <= p < n:
                raise ValueError(f"parents must be nodes below {n} or -1, got {p} for node {v}.")
            seen, above = {v}, p
            while above != -1:
                if above in seen:
                    raise ValueError(f"parents must lead to the root, but node {v} lies on a cycle.")
                seen.add(above)
                above = parents[above]
        latency = _per_node(self.latency, "latency", n)
        bandwidth = _per_node(self.bandwidth, "bandwidth", n)
        if not np.all(latency >= 0) or not np.all(np.isfinite(latency)):
            raise ValueError(f"latency must be finite and >= 0, got {self.latency!r}.")
        if not np.all(bandwidth > 0):
            raise ValueError(f"bandwidth must be > 0, got {self.bandwidth!r}.")
        children: list[list[int]] = [[] for _ in range(n)]
        for v, p in enumerate(parents):
            if p != -1:
                children[p].append(v)
        for name, value in (
            ("parents", parents),
            ("latency", latency),
            ("bandwidth", bandwidth),
            ("bits", check_real(self.bits, "bits", minimum=0.0)),
            ("children", tuple(map(tuple, children))),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def regions(cls, sizes: Sequence[int], **options: Any) -> Tree:
        """A global server (node 0), one regional server per entry of `sizes`, so many workers below each."""
        if not sizes or min(sizes) < 1:
            raise ValueError(f"every region needs at least one worker, got sizes {list(sizes)!r}.")
        R = len(sizes)
        workers = [r + 1 for r, size in enumerate(sizes) for _ in range(size)]
        return cls([-1] + [0] * R + workers, **options)

    @classmethod
    def star(cls, n: int, **options: Any) -> Tree:
        """One server (node 0) and n workers."""
        return cls([-1] + [0] * check_integer(n, "n", minimum=1), **options)

    @property
    def n(self) -> int:
        """Nodes."""
        return len(self.parents)

    @property
    def root(self) -> int:
        """The global server."""
        return list(self.parents).index(-1)

    @property
    def workers(self) -> tuple[int, ...]:
        """Nodes without children, in increasing order; worker j of a service law is the j-th of them."""
        return tuple(v for v in range(self.n) if not self.children[v])

    @property
    def servers(self) -> tuple[int, ...]:
        """Nodes with children, the root included."""
        return tuple(v for v in range(self.n) if self.children[v])

    def link_time(self, node: int) -> float:
        """Seconds that a message takes between `node` and its parent."""
        return float(self.latency[node]) + self.bits / float(self.bandwidth[node])


def _per_node(value: Any, name: str, n: int) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), (n,)) or np.any(np.isnan(array)):
        raise ValueError(f"{name} must be one number or {n}, one per node, got {value!r}.")
    return np.broadcast_to(array, (n,)).copy()


@dataclass(frozen=True)
class EveryK:
    """A server sends up at exactly its k-th message since the last answer from above.

    Later messages do not send again before that answer comes, which resets the count: what arrives in between
    is never counted for a next time.
    """

    k: int

    def __post_init__(self) -> None:
        check_integer(self.k, "k", minimum=1)

    def __call__(self, node: int, since_merge: int) -> bool:
        return since_merge == self.k


class TreeTrace:
    """The order of events of one run on a tree.

    Attributes
    ----------
    tree_parents : array (n,)
    times : array (E,)
    kinds, nodes, versions : arrays (E,) of int
        See `Event`.
    """

    def __init__(self, tree_parents: Any, times: Any, kinds: Any, nodes: Any, versions: Any) -> None:
        self.tree_parents = np.asarray(tree_parents, dtype=np.int64)
        self.times = np.asarray(times, dtype=np.float64)
        self.kinds, self.nodes, self.versions = (
            np.asarray(array, dtype=np.int64) for array in (kinds, nodes, versions)
        )
        shapes = {array.shape for array in (self.times, self.kinds, self.nodes, self.versions)}
        if len(shapes) != 1 or self.times.ndim != 1:
            raise ValueError("times, kinds, nodes and versions must be arrays of one length.")
        if np.any(np.diff(self.times) < 0):
            raise ValueError("times must not decrease.")

    def __len__(self) -> int:
        return self.times.size

    def __iter__(self) -> Iterator[Event]:
        for time, kind, node, version in zip(
            self.times.tolist(), self.kinds.tolist(), self.nodes.tolist(), self.versions.tolist()
        ):
            yield Event(time, Kind(kind), node, version)

    def counts(self, kind: Kind) -> np.ndarray:
        """Events of a kind by node, ``(n,)``."""
        return np.bincount(self.nodes[self.kinds == kind], minlength=self.tree_parents.size)

    def staleness(self) -> np.ndarray:
        """What a receiver absorbed between the message that a REPLY or UP answers and it; -1 for a DOWN."""
        absorbed = np.zeros(self.tree_parents.size, dtype=np.int64)
        found = np.full(len(self), -1, dtype=np.int64)
        for e, (kind, node) in enumerate(zip(self.kinds.tolist(), self.nodes.tolist())):
            if kind != Kind.DOWN:
                receiver = self.tree_parents[node]
                found[e] = absorbed[receiver] - self.versions[e]
                absorbed[receiver] += 1
        return found

    def save(self, path: str | Path) -> None:
        """Write to an npz file, atomically."""
        write_arrays(
            path,
            parents=self.tree_parents,
            times=self.times,
            kinds=self.kinds,
            nodes=self.nodes,
            versions=self.versions,
        )

    @classmethod
    def load(cls, path: str | Path) -> TreeTrace:
        """Read a file that `save` wrote; a ValueError names a file that is something else."""
        return cls(*read_arrays(path, ("parents", "times", "kinds", "nodes", "versions"), "tree trace"))

    def plot(self, *, last: float = math.inf, ax: Axes | None = None) -> Axes:
        """Who sent when: a dot per arrival, replies in the row of the worker, up and down in the server's."""
        from optikit.plotting import new_axes

        n = self.tree_parents.size
        ax = new_axes(8.0, 0.3 * n + 1.5) if ax is None else ax
        shown = self.times <= last
        for kind, marker, label in ((0, ".", "reply"), (1, "^", "up"), (2, "v", "down")):
            chosen = shown & (self.kinds == kind)
            ax.plot(self.times[chosen], self.nodes[chosen], marker, ms=4, label=label)
        ax.set_yticks(range(n), [f"node {v}" for v in range(n)])
        ax.invert_yaxis()
        ax.set_xlabel("time")
        ax.legend(loc="upper right", fontsize=8)
        return ax

    def __repr__(self) -> str:
        kinds = [int(np.sum(self.kinds == kind)) for kind in Kind]
        return (
            f"TreeTrace({kinds[0]} replies, {kinds[1]} up, {kinds[2]} down, {self.tree_parents.size} nodes)"
        )


def simulate_tree(
    tree: Tree,
    service: ServiceLaw,
    *,
    send_up: Callable[[int, int], bool] | None = None,
    replies: int | None = None,
    roots: int | None = None,
    until: float = math.inf,
) -> TreeTrace:
    """The timeline of a tree: all workers start at time 0 with their server's model.

    Parameters
    ----------
    tree : Tree
    service : ServiceLaw
        ``draw(j, query)`` is the duration of the j-th worker's evaluation.
    send_up : callable (node, since_merge) -> bool, optional
        Asked when a server other than the root has absorbed a message, with the count since its parent's last
        answer; it is not asked while an answer is due. Default ``EveryK(1)``.
    replies, roots : int, optional
        End after so many replies in all, or messages absorbed by the root; at least one limit is needed.
    until : float
        End at this time.

    Returns
    -------
    TreeTrace
        Simultaneous arrivals come in the order of their nodes.
    """
    if replies is None and roots is None and not math.isfinite(until):
        raise ValueError("a simulation needs an end: give replies, roots or until.")
    service.check(len(tree.workers))
    rule = EveryK(1) if send_up is None else send_up
    number = {v: j for j, v in enumerate(tree.workers)}
    absorbed = [0] * tree.n  # messages of children
    merged_at, waiting = [0] * tree.n, [False] * tree.n
    queries = [0] * tree.n
    heap: list[tuple[float, int, int, int]] = []  # (arrival, node, kind, version)
    link = [0.0 if v == tree.root else tree.link_time(v) for v in range(tree.n)]

    def work(worker: int, sent: float) -> None:
        """A worker's whole turn: the model travels down, the evaluation, the result travels up."""
        duration = float(service.draw(number[worker], queries[worker]))
        if not 0.0 <= duration < math.inf:
            raise ValueError(
                f"service times must be finite and >= 0, got {duration!r} for worker {number[worker]}, "
                f"query {queries[worker]}."
            )
        queries[worker] += 1
        arrival = sent + 2.0 * link[worker] + duration
        heapq.heappush(heap, (arrival, worker, Kind.REPLY, absorbed[tree.parents[worker]]))

    for worker in tree.workers:
        work(worker, 0.0)
    events: list[tuple[float, int, int, int]] = []
    answered = at_root = 0
    while (replies is None or answered < replies) and (roots is None or at_root < roots):
        time, node, kind, version = heapq.heappop(heap)
        if time > until:
            break
        events.append((time, kind, node, version))
        if kind == Kind.DOWN:
            merged_at[node], waiting[node] = absorbed[node], False
            continue
        receiver = tree.parents[node]
        absorbed[receiver] += 1
        answered += kind == Kind.REPLY
        at_root += receiver == tree.root
        free = receiver != tree.root and not waiting[receiver]
        if free and rule(receiver, absorbed[receiver] - merged_at[receiver]):
            waiting[receiver] = True
            above = tree.parents[receiver]
            heapq.heappush(heap, (time + link[receiver], receiver, Kind.UP, absorbed[above]))
        if kind == Kind.REPLY:
            work(node, time)
        else:
            heapq.heappush(heap, (time + link[node], node, Kind.DOWN, absorbed[receiver]))
    columns = np.array(events, dtype=np.float64).reshape(-1, 4).T
    return TreeTrace(tree.parents, columns[0], columns[1], columns[2], columns[3])
