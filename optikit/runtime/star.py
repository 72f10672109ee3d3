"""One server and its workers on MPI ranks: queries out, replies in, nobody waits for the slowest.

Rank 0 is the server; the n workers are blocked over the ranks 1, 2, ... Each worker has at most one query
outstanding. A query is ``[part, number, x...]``: the part of the worker's data that is meant, the number of
the query (workers draw samples by it), and one or more points; a reply holds whatever numbers `answer`
returns. The tag of a message is the worker, so several workers may share a rank.

The server keeps one posted receive per outstanding query and asks ``Waitsome``, which returns *every*
completed reply: no worker starves, and there is no probing loop. Where ranks exceed cores both sides sleep
between tests instead (``idle="backoff"``): a blocking wait spins, and would take the core from the rank it
waits for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from optikit.runtime.communicator import block_of
from optikit.validation import check_choice

IDLE = ("auto", "block", "backoff")
#: Slot 0 of a query that ends the worker.
STOP = -1.0
#: Sleeps between two tests of pending messages: doubled from the first to the last.
SHORTEST_SLEEP, LONGEST_SLEEP = 1e-5, 1e-3
#: A reply of one number announces an error, whose text follows under this tag.
ERROR_TAG = 32_000


class WorkerError(RuntimeError):
    """A worker's oracle raised; `worker` names it."""

    def __init__(self, worker: int, text: str) -> None:
        self.worker = worker
        super().__init__(f"worker {worker} failed: {text}")


def workers_of(rank: int, size: int, n: int) -> range:
    """Workers that live on `rank` of `size` ranks: none on rank 0, blocks of the n on the others.

    Parameters
    ----------
    rank, size : int
        ``0 <= rank < size``, size >= 2.
    n : int
        Workers, at least size - 1.
    """
    if n < size - 1:
        raise ValueError(
            f"{size} ranks are one server and {size - 1} workers, but there are only {n} agents."
        )
    return range(0) if rank == 0 else block_of(rank - 1, size - 1, n)


class RankStar:
    """The server's end, on rank 0.

    Parameters
    ----------
    communicator : mpi4py communicator
        At least two ranks.
    n : int
        Workers.
    query_size, reply_size : int
        Most numbers of a query (header included) and of a reply, at least 2 each.
    idle : {"auto", "block", "backoff"}
        How to wait; "auto" backs off where more ranks than cores share this machine.
    """

    def __init__(
        self, communicator: Any, n: int, query_size: int, reply_size: int, *, idle: str = "auto"
    ) -> None:
        self.communicator, self.n = communicator, n
        self.idle = resolve_idle(communicator, idle)
        size = communicator.Get_size()
        self._rank_of = {w: rank for rank in range(1, size) for w in workers_of(rank, size, n)}
        self._queries = np.empty((n, query_size))
        self._replies = np.empty((n, reply_size))
        null = _mpi().REQUEST_NULL
        self._sends: list[Any] = [null] * n
        self._receives: list[Any] = [null] * n
        self._arrived: list[int] = []  # completed, not handed out yet
        self._sizes = np.zeros(n, dtype=np.int64)
        self._unread: list[int] = []  # announced errors whose text is still on its way

    @property
    def outstanding(self) -> int:
        """Queries without a reply so far."""
        return sum(request != _mpi().REQUEST_NULL for request in self._receives) + len(self._arrived)

    def post(self, worker: int, part: int, number: int, *points: np.ndarray) -> None:
        """Send a query; the points are copied, so their arrays may change at once."""
        self._sends[worker].Wait()  # the buffer of the last query: answered, so this returns at once
        buffer = self._queries[worker]
        buffer[0], buffer[1] = part, number
        end = 2
        for point in points:
            buffer[end : end + point.size] = point.ravel()
            end += point.size
        rank = self._rank_of[worker]
        # The receive goes first: a reply never arrives unexpected, so MPI never buffers it.
        self._receives[worker] = self.communicator.Irecv(self._replies[worker], source=rank, tag=worker)
        self._sends[worker] = self.communicator.Isend(buffer[:end], dest=rank, tag=worker)

    def wait(
        self, minimum: int = 1, *, most: int | None = None, patience: float | None = None
    ) -> list[tuple[int, np.ndarray]]:
        """At least `minimum` replies, and every other one that is in, by increasing worker.

        Parameters
        ----------
        minimum : int
            At most the queries outstanding.
        most : int, optional
            Hand out at most so many, first come first served; the others stay for the next call.
        patience : float, optional
            Return after so many seconds with whatever is in, even nothing.

        Raises
        ------
        WorkerError
            When a worker's oracle raised.
        """
        arrived = self._arrived
        began, pause = time.perf_counter(), SHORTEST_SLEEP
        while len(arrived) < minimum:
            if patience is None:
                arrived += completed_soon(self._receives, self.idle, self._note)
                continue
            arrived += completed_now(self._receives, self._note)
            if time.perf_counter() - began >= patience:
                break
            time.sleep(pause)
            pause = min(2.0 * pause, LONGEST_SLEEP)
        arrived += completed_now(self._receives, self._note)
        taken, self._arrived = arrived[:most], arrived[len(arrived[:most]) :]
        taken.sort()
        for worker in taken:
            if self._sizes[worker] == 1:
                raise WorkerError(worker, self._error_of(worker))
        return [(worker, self._replies[worker, : self._sizes[worker]]) for worker in taken]

    def _note(self, worker: int, count: int) -> None:
        self._sizes[worker] = count
        if count == 1:
            self._unread.append(worker)

    def _error_of(self, worker: int) -> str:
        self._unread.remove(worker)
        rank, status = self._rank_of[worker], _mpi().Status()
        self.communicator.Probe(source=rank, tag=ERROR_TAG, status=status)
        text = bytearray(status.Get_count(_mpi().BYTE))
        self.communicator.Recv([text, _mpi().BYTE], source=rank, tag=ERROR_TAG)
        return text.decode()

    def close(self) -> None:
        """Wait for every outstanding reply, then end all workers; no barrier, whoever is last."""
        while any(request != _mpi().REQUEST_NULL for request in self._receives):
            completed_soon(self._receives, self.idle, self._note)
        for worker in list(self._unread):  # MPI wants every message received
            self._error_of(worker)
        stop = np.array([STOP, 0.0])
        requests = [
            self.communicator.Isend(stop, dest=self._rank_of[worker], tag=worker) for worker in range(self.n)
        ]
        _mpi().Request.Waitall(self._sends)
        _mpi().Request.Waitall(requests)


def serve(
    communicator: Any,
    n: int,
    query_size: int,
    answer: Callable[[int, int, int, np.ndarray], np.ndarray],
    *,
    idle: str = "auto",
) -> int:
    """A worker rank: answer queries until the server says stop.

    Parameters
    ----------
    communicator : mpi4py communicator
    n : int
        Workers in all; those of this rank are `workers_of`.
    query_size : int
        Most numbers of a query.
    answer : callable (worker, part, number, points) -> array
        The reply, of at least two numbers; `points` is a flat array.
    idle : {"auto", "block", "backoff"}

    Returns
    -------
    int
        Queries answered. An exception of `answer` is sent to the server, which ends all ranks with it.
    """
    MPI = _mpi()
    idle = resolve_idle(communicator, idle)
    mine = list(workers_of(communicator.Get_rank(), communicator.Get_size(), n))
    buffers = np.empty((len(mine), query_size))
    receives = [communicator.Irecv(buffers[k], source=0, tag=worker) for k, worker in enumerate(mine)]
    sends: list[Any] = [MPI.REQUEST_NULL] * len(mine)
    outgoing: list[Any] = [None] * len(mine)
    counts = [0] * len(mine)
    live, answered = len(mine), 0

    def note(place: int, count: int) -> None:
        counts[place] = count

    while live:
        for place in completed_soon(receives, idle, note):
            message = buffers[place, : counts[place]]
            if message[0] == STOP:
                live -= 1
                continue
            worker = mine[place]
            sends[place].Wait()
            try:
                reply = np.ascontiguousarray(
                    answer(worker, int(message[0]), int(message[1]), message[2:]), dtype=np.float64
                )
                answered += 1
            except Exception as error:
                reply = np.zeros(1)
                text = f"{type(error).__name__}: {error}".encode()
                communicator.Isend([text, MPI.BYTE], dest=0, tag=ERROR_TAG)
                keep = text
                outgoing.append(keep)  # alive until the message is gone
            receives[place] = communicator.Irecv(buffers[place], source=0, tag=worker)
            outgoing[place] = reply
            sends[place] = communicator.Isend(reply, dest=0, tag=worker)
    MPI.Request.Waitall(sends)
    return answered


def resolve_idle(communicator: Any, idle: str) -> str:
    """ "block" or "backoff": the latter where the ranks on this machine outnumber its cores (collective)."""
    check_choice(idle, "idle", IDLE)
    here = communicator.Split_type(_mpi().COMM_TYPE_SHARED)
    crowded = here.Get_size() > len(os.sched_getaffinity(0))
    here.Free()
    if idle != "auto":
        return idle
    return "backoff" if crowded else "block"


def completed_now(requests: list[Any], note: Callable[[int, int], None] | None = None) -> list[int]:
    """Places of the requests that are complete now; `note` is told place and count of numbers."""
    MPI = _mpi()
    statuses = [MPI.Status() for _ in requests]
    places = MPI.Request.Testsome(requests, statuses)
    return _noted(places, statuses, note)


def completed_soon(
    requests: list[Any], idle: str, note: Callable[[int, int], None] | None = None
) -> list[int]:
    """Places of the requests that are complete, at least one."""
    MPI = _mpi()
    if idle == "block":
        statuses = [MPI.Status() for _ in requests]
        return _noted(MPI.Request.Waitsome(requests, statuses), statuses, note)
    pause = SHORTEST_SLEEP
    while not (places := completed_now(requests, note)):
        time.sleep(pause)
        pause = min(2.0 * pause, LONGEST_SLEEP)
    return places


def _noted(
    places: list[int] | None, statuses: list[Any], note: Callable[[int, int], None] | None
) -> list[int]:
    if not places:
        return []
    if note is not None:
        for place, status in zip(places, statuses):
            note(place, status.Get_count(_mpi().DOUBLE))
    return list(places)


def _mpi() -> Any:
    from mpi4py import MPI

    return MPI
