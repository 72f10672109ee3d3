"""Where the workers are: on a virtual clock in this process, or on other MPI ranks.

Both kinds of cluster answer the same calls, so that a method never asks which one it runs on. Queries carry
points ``(d,)``, or ``(S, d)`` for S stacked runs; a reply is ``(value, gradient, polled value or None)``.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.runtime.star import RankStar
from optikit.runtime.trace import Trace
from solvers.asynchronous.workers import Workers


@dataclass(frozen=True)
class Facts:
    """What the server knows of its workers from the start.

    Attributes
    ----------
    counts : array (n,)
        Parts of each worker: 1, or its mini-batches in the component form.
    shifts : array (n,)
        Strong convexity that was moved to h.
    smoothness : array (sum of counts,) or None
        Smoothness constants of all parts, where they were asked for.
    """

    counts: np.ndarray
    shifts: np.ndarray
    smoothness: np.ndarray | None


def facts_of(workers: Workers, smoothness: bool) -> Facts:
    """The facts of the workers here."""
    constants = workers.smoothness() if smoothness else None
    none_here = np.zeros(0)
    return Facts(
        workers.counts,
        workers.shifts,
        None if constants is None else np.concatenate([none_here, *constants]),
    )


Reply = tuple[Any, Any, Any]


class Cluster(ABC):
    """n workers that answer in an order of their own."""

    n: int
    shape: tuple[int, ...]
    facts: Facts

    @abstractmethod
    def post(self, worker: int, part: int, number: int, x: np.ndarray, poll: np.ndarray | None) -> None:
        """Query a worker at x; with `poll`, ask for its whole f_i there too."""

    @abstractmethod
    def gather(self) -> list[tuple[int, Reply]]:
        """Wait for every outstanding query: the start, before any asynchrony."""

    @abstractmethod
    def wait(self) -> list[tuple[int, Reply]]:
        """The replies of the next server step, by increasing worker."""

    @abstractmethod
    def now(self) -> float:
        """Time of the last `wait`."""

    def total(self, x: np.ndarray) -> Any:
        """Sum of the f_i at x, where that is free (monitoring); None on ranks."""
        return None

    def ended(self) -> str | None:
        """Why no further replies will come, or None."""
        return None

    @abstractmethod
    def trace(self) -> Trace:
        """Who was absorbed when, so far."""


class VirtualCluster(Cluster):
    """All workers in this process, answering in the order of a trace.

    Parameters
    ----------
    workers : Workers
    trace : Trace or callable (steps) -> Trace
        A recorded order of events, or a simulation that is prolonged when the run needs more steps.
    smoothness : bool
        Whether the method asks for smoothness constants.
    """

    #: Steps drawn at first; doubled whenever the run goes on.
    FIRST = 4096

    def __init__(
        self,
        workers: Workers,
        trace: Trace | Callable[[int], Trace],
        *,
        smoothness: bool = False,
    ) -> None:
        self.workers, self.n = workers, workers.n
        self.shape = (workers.d,) if workers.runs == 1 else (workers.runs, workers.d)
        self.facts = facts_of(workers, smoothness)
        self._simulate = None if isinstance(trace, Trace) else trace
        self._trace = trace if isinstance(trace, Trace) else trace(self.FIRST)
        self._position = 0
        self._queries: dict[int, tuple[int, int, np.ndarray, np.ndarray | None]] = {}

    def post(self, worker: int, part: int, number: int, x: np.ndarray, poll: np.ndarray | None) -> None:
        # The server makes a new array each step and never writes to an old one: no copy is needed.
        self._queries[worker] = (part, number, x, poll)

    def gather(self) -> list[tuple[int, Reply]]:
        return [(worker, self._answer(worker)) for worker in sorted(self._queries)]

    def wait(self) -> list[tuple[int, Reply]]:
        while self._position >= len(self._trace):
            if self._simulate is None:
                raise RuntimeError("the trace has ended: no further reply will come")
            self._trace = self._simulate(2 * len(self._trace))
        batch = self._trace.batches[self._position]
        self._position += 1
        return [(worker, self._answer(worker)) for worker in batch]

    def skip(self, steps: int) -> None:
        """Take up a run after so many server steps."""
        self._position = steps

    def _answer(self, worker: int) -> Reply:
        part, number, x, poll = self._queries.pop(worker)
        f, g = self.workers.evaluate(worker, part, number, x)
        return f, g, None if poll is None else self.workers.value(worker, poll)

    def now(self) -> float:
        return float(self._trace.times[self._position - 1]) if self._position else 0.0

    def total(self, x: np.ndarray) -> Any:
        values = [self.workers.value(worker, x) for worker in range(self.n)]
        return np.sum(values, axis=0) if x.ndim == 2 else math.fsum(values)

    def ended(self) -> str | None:
        over = self._simulate is None and self._position >= len(self._trace)
        return "the trace has ended" if over else None

    def trace(self) -> Trace:
        whole = self._trace
        return Trace(self.n, whole.times[: self._position], whole.batches[: self._position])


class RankCluster(Cluster):
    """The workers of other ranks, behind a `RankStar`.

    Parameters
    ----------
    star : RankStar
    facts : Facts
        Of all workers.
    d : int
    minimum : int
        Replies that a server step waits for.
    most : int or None
        Replies that it absorbs at most.
    """

    def __init__(self, star: RankStar, facts: Facts, d: int, minimum: int, most: int | None) -> None:
        self.star, self.facts, self.n, self.shape = star, facts, star.n, (d,)
        self.minimum, self.most = minimum, most
        self._began = time.perf_counter()
        self._times: list[float] = []
        self._batches: list[list[int]] = []

    def post(self, worker: int, part: int, number: int, x: np.ndarray, poll: np.ndarray | None) -> None:
        self.star.post(worker, part, number, x, *(() if poll is None else (poll,)))

    def gather(self) -> list[tuple[int, Reply]]:
        replies = self.star.wait(self.star.outstanding)
        return [(worker, self._read(numbers)) for worker, numbers in replies]

    def wait(self) -> list[tuple[int, Reply]]:
        replies = self.star.wait(self.minimum, most=self.most)
        self._times.append(time.perf_counter() - self._began)
        self._batches.append([worker for worker, _ in replies])
        return [(worker, self._read(numbers)) for worker, numbers in replies]

    def _read(self, numbers: np.ndarray) -> Reply:
        d = self.shape[0]
        # Gradients are copied into cuts or sums before the buffer's next receive is posted.
        return float(numbers[0]), numbers[1 : 1 + d], float(numbers[1 + d]) if numbers.size > 1 + d else None

    def now(self) -> float:
        return self._times[-1] if self._times else 0.0

    def trace(self) -> Trace:
        return Trace(self.n, np.array(self._times), self._batches)


def merged(parts: Iterable[Facts]) -> Facts:
    """The facts of all workers from those of the ranks, in the order of the ranks."""
    parts = list(parts)
    constants = [part.smoothness for part in parts if part.smoothness is not None]
    return Facts(
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.shifts for part in parts]),
        np.concatenate(constants) if constants else None,
    )
