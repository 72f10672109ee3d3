"""A server's program and its workers' on MPI ranks: errors that end all ranks alike, a shared result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from optikit.ledger import CommunicationLedger
from optikit.result import History, Result
from optikit.runtime.communicator import raised_on_every_rank
from optikit.runtime.star import RankStar, serve

#: Classes that an error keeps on the other ranks.
KNOWN: tuple[type[Exception], ...] = (ValueError, TypeError, FloatingPointError, OSError, RuntimeError)


def run_star(
    communicator: Any,
    n: int,
    query_size: int,
    reply_size: int,
    server: Callable[[RankStar], Any],
    answer: Callable[[int, int, int, np.ndarray], np.ndarray],
    *,
    idle: str = "auto",
) -> Any:
    """Run `server` on rank 0 while the other ranks answer its queries (collective).

    Parameters
    ----------
    communicator, n, query_size, reply_size, idle
        As in `optikit.runtime.star.RankStar`.
    server : callable (star) -> result
        When it ends, however it ends, every worker is stopped.
    answer : callable (worker, part, number, points) -> array
        As in `optikit.runtime.star.serve`.

    Returns
    -------
    object
        What `server` returned on rank 0, None on the others. An error of the server, or of a worker's
        `answer`, is raised on every rank.
    """
    error: BaseException | None = None
    result = None
    if communicator.Get_rank() == 0:
        star = RankStar(communicator, n, query_size, reply_size, idle=idle)
        try:
            result = server(star)
        except BaseException as raised:
            error = raised
        star.close()
    else:
        with _deaf_to_interrupts():
            serve(communicator, n, query_size, answer, idle=idle)
    agree(communicator, error)
    return result


def agree(communicator: Any, error: BaseException | None) -> None:
    """Raise on every rank when one has an error: its own there, the first elsewhere (collective)."""
    told = communicator.allgather(None if error is None else (_base_of(error), str(error)))
    first = next((entry for entry in told if entry is not None), None)
    if first is None:
        return
    if error is not None and not isinstance(error, Exception):
        raise error
    raise raised_on_every_rank(KNOWN[first[0]](first[1]) if error is None else error)


def _base_of(error: BaseException) -> int:
    return next((k for k, known in enumerate(KNOWN) if isinstance(error, known)), len(KNOWN) - 1)


def share_result(communicator: Any, result: Result | None, n: int, solver: Any) -> Result:
    """The result of rank 0 on every rank, but for its state, which stays there (collective)."""
    root = communicator.Get_rank() == 0
    header = None
    if root:
        assert result is not None
        header = (
            result.x.shape,
            list(result.history.columns),
            len(result.history),
            (result.status, result.message, result.iterations, result.rounds, result.seconds),
            result.objective,
            result.certificate,
            result.ledger.state(),
        )
    shape, names, length, words, objective, certificate, counts = communicator.bcast(header, root=0)
    x = np.ascontiguousarray(result.x, dtype=np.float64) if result is not None else np.empty(shape)
    communicator.Bcast(x, root=0)
    table = np.empty((len(names), length))
    if result is not None:
        table[:] = [result.history[name] for name in names]
    communicator.Bcast(table, root=0)
    if result is not None:
        return result
    history = History.restored(
        dict(zip(names, table)), {"capacity": max(length, 4), "stride": 1, "seen": length}
    )
    ledger = CommunicationLedger(n)
    ledger.restore(counts)
    status, message, iterations, rounds, seconds = words
    return Result(
        x=x,
        iterate=x,
        status=status,
        message=message,
        iterations=iterations,
        rounds=rounds,
        objective=objective,
        history=history,
        certificate=certificate,
        ledger=ledger,
        seconds=seconds,
        state=None,
        solver=solver,
    )


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ctrl-C reaches every rank; the server's driver ends the run, workers wait for its word."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
