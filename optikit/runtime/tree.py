"""Trees of servers on a virtual clock: workers, regional servers, a global one; a star has depth one.

When a server sends up is a rule of counts (`EveryK`), so timing does not depend on data: the whole order of
events is drawn first, as a `TreeTrace`, and any method, or many seeds of one stacked as ``(S, d)``, is run
along it by `replay_events`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optikit.runtime.timing import STANDSTILL, ServiceLaw, check_end
from optikit.runtime.tree_trace import (
    Event,
    Kind,
    TreeHandlers,
    TreeTrace,
    check_parents,
    names_of,
    replay_events,
)
from optikit.validation import check_integer, check_real

__all__ = [
    "Event",
    "EveryK",
    "Kind",
    "Tree",
    "TreeHandlers",
    "TreeTrace",
    "replay_events",
    "ring_allreduce_time",
    "ring_bandwidth",
    "simulate_tree",
]

#: Largest number of regions whose best ring is searched for: its cost is 2**regions.
MAX_RING = 16
#: Replies without a message at the root before a simulation that waits for one is refused.
PATIENCE = 1_000_000


@dataclass(frozen=True)
class Tree:
    """Who talks to whom, over which links.

    Nodes without children are workers, all others servers: a server without workers below it cannot be said.

    Parameters
    ----------
    parents : sequence of n int
        Parent of each node, -1 for the one root.
    latency : float or sequence (n,), default 0
        Seconds, one way, of the link from each node to its parent, finite and >= 0.
    bandwidth : float or sequence (n,), default inf
        Bits per second of that link, > 0.
    bits : float, default 0
        Size of a message, >= 0.
    names : sequence of n str, optional
        Default "root", "server 1", "worker 2" by the node's number.

    Raises
    ------
    ValueError
        Without exactly one root, with a cycle, without workers, for negative latencies or bandwidths.
    """

    parents: Sequence[int]
    latency: Any = 0.0
    bandwidth: Any = math.inf
    bits: float = 0.0
    names: Sequence[str] | None = None
    children: tuple[tuple[int, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parents = check_parents(self.parents)
        n = len(parents)
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
            ("latency", tuple(latency.tolist())),  # tuples: trees compare and hash
            ("bandwidth", tuple(bandwidth.tolist())),
            ("bits", check_real(self.bits, "bits", minimum=0.0)),
            ("names", names_of(parents, self.names)),
            ("children", tuple(map(tuple, children))),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def regions(
        cls,
        sizes: Sequence[int],
        *,
        latency: Any = 0.0,
        bandwidth: Any = math.inf,
        home: int = 0,
        **options: Any,
    ) -> Tree:
        """A global server (node 0), one regional server per entry of `sizes`, so many workers below each.

        Parameters
        ----------
        sizes : sequence of R int
            Workers of each region, >= 1; region r's server is node r + 1, its workers follow all servers.
        latency, bandwidth : float, sequence of one per node, or array (R, R)
            A matrix, symmetric, holds the links between regions, on its diagonal those inside each.
        home : int, default 0
            The region of the global server; needed with matrices only.
        """
        R = len(sizes)
        if not R or min(sizes) < 1:
            raise ValueError(f"every region needs at least one worker, got sizes {list(sizes)!r}.")
        home = check_integer(home, "home", minimum=0, maximum=R - 1)
        region = [r for r, size in enumerate(sizes) for _ in range(size)]

        def links(value: Any, name: str) -> Any:
            if np.ndim(value) != 2:
                return value
            between = _symmetric(value, name, R)
            return np.array([between[home, home], *between[:, home], *between[region, region]])

        return cls(
            [-1] + [0] * R + [r + 1 for r in region],
            latency=links(latency, "latency"),
            bandwidth=links(bandwidth, "bandwidth"),
            **options,
        )

    @classmethod
    def star(cls, n: int, **options: Any) -> Tree:
        """One server (node 0) and n workers (nodes 1 to n)."""
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
        """Seconds that a message takes between `node` and its parent: latency + bits / bandwidth."""
        seconds: float = self.latency[node] + self.bits / self.bandwidth[node]
        return seconds


def _per_node(value: Any, name: str, n: int) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), (n,)) or np.any(np.isnan(array)):
        raise ValueError(f"{name} must be one number or {n}, one per node, got {value!r}.")
    return np.broadcast_to(array, (n,))


def _symmetric(value: Any, name: str, regions: int | None = None) -> np.ndarray:
    matrix = np.asarray(value, dtype=np.float64)
    if matrix.ndim != 2 or len(set(matrix.shape) | {regions or len(matrix)}) != 1 or not matrix.size:
        needed = "square" if regions is None else f"({regions}, {regions})"
        raise ValueError(f"{name} between regions must be {needed}, got shape {matrix.shape}.")
    if not np.array_equal(matrix, matrix.T):  # NaN too
        raise ValueError(f"{name} between regions must be symmetric and without NaN.")
    return matrix


def ring_bandwidth(bandwidth: Any) -> float:
    """Smallest link of the best ring through all regions: the largest there is, in the unit of `bandwidth`.

    Parameters
    ----------
    bandwidth : array (R, R)
        Symmetric, > 0 off the diagonal, R <= 16; for R = 1 the entry itself.
    """
    links = _symmetric(bandwidth, "bandwidth")
    R = len(links)
    if R > MAX_RING:
        raise ValueError(f"bandwidth must be of at most {MAX_RING} regions, got {R}.")
    if not np.all(links[~np.eye(R, dtype=bool)] > 0) or (R == 1 and not links[0, 0] > 0):
        raise ValueError("bandwidth between regions must be > 0.")
    if R == 1:
        return float(links[0, 0])
    # best[visited][v]: smallest link of the best path from region 0 to v through exactly the regions visited.
    best = np.full((1 << R, R), -np.inf)
    best[1, 0] = np.inf
    for visited in range(1, 1 << R, 2):  # region 0 belongs to every path
        onward = np.max(np.minimum(best[visited][:, None], links), axis=0)
        for v in range(1, R):
            if not visited >> v & 1:
                best[visited | 1 << v, v] = max(best[visited | 1 << v, v], onward[v])
    return float(np.max(np.minimum(best[-1, 1:], links[1:, 0])))


def ring_allreduce_time(n: int, bits: float, bandwidth: float) -> float:
    """Seconds of a ring all-reduce of `bits` over n workers: ``2 (n - 1)/n bits / bandwidth``."""
    n = check_integer(n, "n", minimum=1)
    bits = check_real(bits, "bits", minimum=0.0)
    speed = check_real(bandwidth, "bandwidth", minimum=0.0, open_low=True, allow_inf=True)
    return 2.0 * (n - 1) / n * bits / speed


@dataclass(frozen=True)
class EveryK:
    """A server sends up at exactly its k-th message since the last answer from above.

    Later messages do not send again before that answer comes, which resets the count: what arrives in between
    is never counted for a next time.

    Parameters
    ----------
    k : int
        >= 1.
    """

    k: int

    def __post_init__(self) -> None:
        check_integer(self.k, "k", minimum=1)

    def __call__(self, node: int, since_merge: int) -> bool:
        return since_merge == self.k


def simulate_tree(
    tree: Tree,
    service: ServiceLaw,
    *,
    send_up: Callable[[int, int], bool] | None = None,
    replies: int | None = None,
    roots: int | None = None,
    until: float = math.inf,
) -> TreeTrace:
    """The timeline of a tree: all workers are sent their server's model at time 0.

    Parameters
    ----------
    tree : Tree
    service : ServiceLaw
        ``draw(j, query)`` is the duration, in seconds, of the j-th worker's evaluation; drawn from its first
        query on, whatever was drawn before.
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

    Raises
    ------
    ValueError
        For a limit that is missing or NaN, a law that does not fit the workers, a duration that is not finite
        and >= 0 (worker and query are named), where time stands still because turns take none, and where
        `roots` is waited for but servers never send up.
    """
    check_end(until, replies=replies, roots=roots)
    workers = tree.workers
    service.check(len(workers))
    law, rule = service.restarted(), EveryK(1) if send_up is None else send_up
    number = {v: j for j, v in enumerate(workers)}
    root, parents = tree.root, list(tree.parents)
    absorbed, merged_at = [0] * tree.n, [0] * tree.n  # messages of children
    waiting, queries = [False] * tree.n, [0] * tree.n
    link = [0.0 if v == root else tree.link_time(v) for v in range(tree.n)]
    reply, up, down = (int(kind) for kind in Kind)
    heap: list[tuple[float, int, int]] = []  # (arrival, node, kind): ties go to the lower node

    def work(worker: int, sent: float) -> None:
        """A worker's whole turn: the model travels down, the evaluation, the result travels up."""
        arrival = sent + 2.0 * link[worker] + law.duration(number[worker], queries[worker])
        queries[worker] += 1
        heapq.heappush(heap, (arrival, worker, reply))

    for worker in workers:
        work(worker, 0.0)
    times: list[float] = []
    kinds: list[int] = []
    nodes: list[int] = []
    reports: list[bool] = []
    answered = at_root = still = silent = 0
    while (replies is None or answered < replies) and (roots is None or at_root < roots):
        time, node, kind = heapq.heappop(heap)
        if time > until:
            break
        still = still + 1 if times and time == times[-1] else 0
        silent = 0 if parents[node] == root and kind != down else silent + 1
        if still > STANDSTILL * tree.n:
            raise ValueError(f"time stands still at {time!r}: turns of workers must take time.")
        if roots is not None and silent > PATIENCE:
            raise ValueError(f"roots will not be reached: {silent} events without a message at the root.")
        times.append(time)
        kinds.append(kind)
        nodes.append(node)
        if kind == down:
            merged_at[node], waiting[node] = absorbed[node], False
            reports.append(False)
            continue
        receiver = parents[node]
        absorbed[receiver] += 1
        answered += kind == reply
        at_root += receiver == root
        sends = (
            receiver != root
            and not waiting[receiver]
            and bool(rule(receiver, absorbed[receiver] - merged_at[receiver]))
        )
        reports.append(sends)
        if sends:
            waiting[receiver] = True
            heapq.heappush(heap, (time + link[receiver], receiver, up))
        if kind == reply:
            work(node, time)
        else:
            heapq.heappush(heap, (time + link[node], node, down))
    return TreeTrace(parents, times, kinds, nodes, reports, names=tree.names)
