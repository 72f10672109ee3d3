"""What happened on a tree of servers: typed events in order, and any method run along them.

A message is a worker's *reply* to its server, a server's *up* message to its parent, or the parent's *down*
answer. A server answers a child's message at once, and may send up itself at that moment. Between a node and
its parent at most one message is on its way, so a run is known from who received what in which order and
after which events a server sent up: a `TreeTrace`. `replay_events` drives a method's handlers along it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from optikit.checkpoint import digest_of, read_arrays, write_arrays
from optikit.validation import check_integer

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
        Seconds.
    kind : Kind
    node : int
        The lower end of the link: the worker of a REPLY, the sender of an UP, the receiver of a DOWN.
    version : int
        Messages that the upper end had absorbed when it sent what this one answers: its count now less
        `version` is the staleness of a REPLY or an UP. For a DOWN, the upper end's count when it answered.
    reports : bool
        Whether the receiver sent up to its own parent at once.
    """

    time: float
    kind: Kind
    node: int
    version: int
    reports: bool


class TreeTrace:
    """The order of events of one run on a tree.

    Parameters
    ----------
    parents : array (n,) of int
        Parent of each node, -1 for the root.
    times : array (E,)
        Seconds, finite, non-decreasing.
    kinds, nodes : arrays (E,) of int
        See `Event`.
    reports : array (E,) of bool
        See `Event`.
    names : sequence of n str, optional
        For pictures; default "root", "server 1", "worker 2" by the node's number.

    Attributes
    ----------
    versions : array (E,) of int
        See `Event`; for a worker, its start model's age in its server's updates.

    Raises
    ------
    ValueError
        For an order that cannot be: a reply of a server, a message up that nobody sent, an answer to nothing.
    """

    def __init__(
        self,
        parents: Any,
        times: Any,
        kinds: Any,
        nodes: Any,
        reports: Any,
        names: Sequence[str] | None = None,
    ) -> None:
        self.parents = np.array(check_parents(parents))
        self.times = np.asarray(times, dtype=np.float64)
        self.kinds, self.nodes = np.asarray(kinds, dtype=np.int64), np.asarray(nodes, dtype=np.int64)
        self.reports = np.asarray(reports, dtype=bool)
        shapes = {array.shape for array in (self.times, self.kinds, self.nodes, self.reports)}
        if len(shapes) != 1 or self.times.ndim != 1:
            raise ValueError("times, kinds, nodes and reports must be arrays of one length.")
        if not np.all(np.isfinite(self.times)) or np.any(np.diff(self.times) < 0):
            raise ValueError("times must be finite and must not decrease.")
        if not np.all(np.isin(self.kinds, list(Kind))):
            raise ValueError(f"kinds must be 0 (reply), 1 (up) or 2 (down), got {np.unique(self.kinds)}.")
        if np.any(self.nodes < 0) or np.any(self.nodes >= self.n):
            raise ValueError(f"nodes must be below {self.n}, got {self.nodes.min()} to {self.nodes.max()}.")
        self.names = names_of(self.parents.tolist(), names)
        self.versions, self._ages, self._lost, self._sent = self._walk()

    def _walk(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Version, staleness and time of sending of each event's message, updates lost by each node."""
        parents, servers = self.parents.tolist(), set(self.parents.tolist())
        absorbed, lost = [0] * self.n, [0] * self.n
        version, since = [0] * self.n, [0.0] * self.n  # of the message between each node and its parent
        due = [Kind.UP if v in servers else Kind.REPLY for v in range(self.n)]
        sent_up = [v not in servers for v in range(self.n)]  # a worker always has a query out
        versions, ages, sent = [], [], []
        for e, (time, kind, node, reports) in enumerate(
            zip(self.times.tolist(), self.kinds.tolist(), self.nodes.tolist(), self.reports.tolist())
        ):
            above = parents[node]
            if above == -1 or kind != due[node] or not sent_up[node]:
                raise ValueError(f"event {e} cannot be: no {Kind(kind).name} of node {node} was on its way.")
            versions.append(version[node])
            sent.append(since[node])
            since[node] = time
            if kind == Kind.DOWN:
                if reports:
                    raise ValueError(f"event {e} cannot be: a server sends up when it absorbs, not merges.")
                ages.append(-1)
                due[node], sent_up[node] = Kind.UP, False
                continue
            ages.append(absorbed[above] - version[node])
            absorbed[above] += 1
            version[node] = absorbed[above]
            lost[above] += sent_up[above]
            if kind == Kind.UP:
                due[node] = Kind.DOWN
            if reports:
                if sent_up[above] or parents[above] == -1:
                    raise ValueError(f"event {e} cannot be: node {above} may not send up here.")
                sent_up[above], since[above] = True, time
                version[above] = absorbed[parents[above]]
        return (
            np.array(versions, dtype=np.int64),
            np.array(ages, dtype=np.int64),
            np.array(lost),
            np.array(sent),
        )

    def __len__(self) -> int:
        return self.times.size

    def __iter__(self) -> Iterator[Event]:
        columns = (self.times, self.kinds, self.nodes, self.versions, self.reports)
        for time, kind, node, version, reports in zip(*(column.tolist() for column in columns)):
            yield Event(time, Kind(kind), node, version, reports)

    @property
    def n(self) -> int:
        """Nodes."""
        return self.parents.size

    @property
    def workers(self) -> tuple[int, ...]:
        """Nodes without children."""
        return tuple(sorted(set(range(self.n)) - set(self.parents.tolist())))

    def counts(self, kind: Kind) -> np.ndarray:
        """Events of a kind by node, ``(n,)``."""
        return np.bincount(self.nodes[self.kinds == kind], minlength=self.n)

    def absorbed(self) -> np.ndarray:
        """Messages of children that each node absorbed, ``(n,)``."""
        return np.bincount(self.parents[self.nodes[self.kinds != Kind.DOWN]], minlength=self.n)

    def absorbed_in_flight(self) -> np.ndarray:
        """Those that came while the node's own message up, or the answer to it, was on its way, ``(n,)``.

        A server whose base is reset by the answer never sends these up: one that reports at its K-th message
        and absorbs `rate` a second passes on the share ``K / (K + round trip * rate)`` of all.
        """
        return self._lost.copy()

    def staleness(self) -> np.ndarray:
        """What a receiver absorbed between the message that a REPLY or UP answers and it; -1 for a DOWN."""
        return self._ages.copy()

    def describe(self) -> str:
        """Digest of the order of events: what a checkpoint compares."""
        arrays = (self.parents, self.times, self.kinds, self.nodes, self.reports)
        return digest_of(*(array.tobytes().hex() for array in arrays))

    def save(self, path: str | Path) -> None:
        """Write to an npz file, atomically: a reader sees the old file or the new one."""
        arrays = {name: getattr(self, name) for name in _COLUMNS}
        write_arrays(path, **arrays, names=np.array(self.names))

    @classmethod
    def load(cls, path: str | Path) -> TreeTrace:
        """Read a file that `save` wrote; a ValueError names a file that is something else."""
        parents, times, kinds, nodes, reports, names = read_arrays(path, (*_COLUMNS, "names"), "tree trace")
        try:
            return cls(parents, times, kinds, nodes, reports, names.tolist())
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a readable tree trace: {error}") from error

    def plot(self, *, last: float = math.inf, ax: Axes | None = None) -> Axes:
        """Timeline: a bar for each turn of a worker, a line for each message between servers.

        A turn is all from one reply to the next: the model's way down, the work, the result's way up.
        Messages up are drawn solid, answers dashed, from the sender's row and time to the receiver's.

        Parameters
        ----------
        last : float, optional
            Draw what arrived up to this time.
        ax : matplotlib Axes, optional
        """
        from matplotlib.collections import LineCollection

        from optikit.plotting import new_axes

        ax = new_axes(8.0, 0.3 * self.n + 1.5) if ax is None else ax
        shown = self.times <= last
        for worker in self.workers:
            mine = shown & (self.nodes == worker)
            bars = list(zip(self._sent[mine].tolist(), (self.times - self._sent)[mine].tolist()))
            color = f"C{self.parents[worker] % 10}"
            ax.broken_barh(bars, (worker - 0.35, 0.7), facecolor=color, ec="w", lw=0.3)
        for kind, style in ((Kind.UP, "-"), (Kind.DOWN, "--")):
            mine = shown & (self.kinds == kind)
            node, above = self.nodes[mine], self.parents[self.nodes[mine]]
            rows = (node, above) if kind == Kind.UP else (above, node)
            ends = np.stack([self._sent[mine], rows[0], self.times[mine], rows[1]], axis=1)
            ax.add_collection(
                LineCollection(list(ends.reshape(-1, 2, 2)), colors="k", lw=0.8, linestyles=style)
            )
        ax.set_yticks(range(self.n), self.names)
        ax.set(
            xlabel="time", ylim=(self.n - 0.5, -0.5), xlim=(0.0, self.times[shown].max(initial=0.0) or None)
        )
        return ax

    def __repr__(self) -> str:
        replies, up, down = (int(np.sum(self.kinds == kind)) for kind in Kind)
        return f"TreeTrace({replies} replies, {up} up, {down} down, {self.n} nodes)"


_COLUMNS = ("parents", "times", "kinds", "nodes", "reports")


def check_parents(parents: Any) -> tuple[int, ...]:
    """Parents as integers; a ValueError unless they make one tree with at least one worker."""
    numbers = tuple(check_integer(p, "parents", minimum=-1) for p in parents)
    n, roots = len(numbers), numbers.count(-1)
    if roots != 1:
        raise ValueError(f"parents must name one root by -1, got {roots} of {n} nodes.")
    if n < 2:
        raise ValueError("a tree needs at least one worker below its root, got the root alone.")
    for v, p in enumerate(numbers):
        if p >= n:
            raise ValueError(f"parents must be nodes below {n} or -1, got {p} for node {v}.")
    good = {numbers.index(-1)}  # nodes known to lead to the root
    for v in range(n):
        path = [v]
        while path[-1] not in good and len(path) <= n:
            path.append(numbers[path[-1]])
        if path[-1] not in good:
            raise ValueError(f"parents must lead to the root, but from node {v} they lead to a cycle.")
        good.update(path)
    return numbers


def names_of(parents: Sequence[int], names: Sequence[str] | None = None) -> tuple[str, ...]:
    """The given names of nodes, checked, or ones that tell the root, servers and workers."""
    if names is not None:
        if len(names) != len(parents) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"names must be {len(parents)} strings, one per node, got {names!r}.")
        return tuple(names)
    servers = set(parents)
    roles = ("root" if p == -1 else "server" if v in servers else "worker" for v, p in enumerate(parents))
    return tuple(role if role == "root" else f"{role} {v}" for v, role in enumerate(roles))


class TreeHandlers(Protocol):
    """What a method does at the nodes of a tree, by node number.

    A message is any object, an array ``(d,)`` for one run or ``(S, d)`` for S seeds at once. It travels for a
    while: what was sent must not be written to afterwards, so send a new array or a copy.
    """

    def work(self, worker: int, model: Any) -> Any:
        """The result that `worker` sends for the model it was sent."""

    def absorb(self, server: int, child: int, message: Any) -> None:
        """`server` takes in a child's result or report."""

    def report(self, server: int) -> Any:
        """What `server` sends up, right after absorbing."""

    def answer(self, server: int, child: int) -> Any:
        """The model `server` sends to the child whose message it absorbed, and to each worker at first."""

    def merge(self, server: int, model: Any) -> None:
        """`server` takes in the answer from above."""


def replay_events(
    trace: TreeTrace,
    handlers: TreeHandlers,
    *,
    start: int = 0,
    stop: int | None = None,
    in_flight: list[Any] | None = None,
) -> list[Any]:
    """Run a method along a recorded order, each message with what it was when it was sent.

    At an event the receiver absorbs, reports if the trace says so, and answers, in this order. A worker's
    result is worked out when it arrives: it depends on the model sent to it only.

    Parameters
    ----------
    trace : TreeTrace
    handlers : TreeHandlers
    start, stop : int
        Events from `start` up to but not including `stop`, default all.
    in_flight : list of n, optional
        What an earlier call returned, needed when `start` > 0: the message between each node and its parent
        (a worker's model, a server's report or the answer to it), None where there is none.

    Returns
    -------
    list of n
        The same after the last event, with which a later call goes on.
    """
    start = check_integer(start, "start", minimum=0, maximum=len(trace))
    stop = len(trace) if stop is None else check_integer(stop, "stop", minimum=start, maximum=len(trace))
    parents = trace.parents.tolist()
    if in_flight is None:
        if start:
            raise ValueError(f"in_flight is needed to go on from event {start}.")
        messages: list[Any] = [None] * trace.n
        for worker in trace.workers:
            messages[worker] = handlers.answer(parents[worker], worker)
    else:
        if len(in_flight) != trace.n:
            raise ValueError(f"in_flight must have {trace.n} entries, one per node, got {len(in_flight)}.")
        messages = list(in_flight)
    columns = (trace.kinds, trace.nodes, trace.reports)
    for kind, node, reports in zip(*(column[start:stop].tolist() for column in columns)):
        message, messages[node] = messages[node], None
        if kind == Kind.DOWN:
            handlers.merge(node, message)
            continue
        above = parents[node]
        handlers.absorb(above, node, handlers.work(node, message) if kind == Kind.REPLY else message)
        if reports:
            messages[above] = handlers.report(above)
        messages[node] = handlers.answer(above, node)
    return messages
