"""Averaging the directions of the workers that answer first; those of late workers are dropped.

Debiased directions are unbiased whichever worker they come from, so dropping some costs variance only:
kappa is divided by the number that arrived. A server holds the iterate, the gradient and the step; idle
workers are asked for a direction at (b, g), and an answer to an older question is discarded on arrival.
"""

from __future__ import annotations

import heapq
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.checkpoint import replicated
from optikit.runtime.star import RankStar
from optikit.runtime.timing import ServiceLaw

#: ``oracle(worker, iteration, m, b, g)``: direction, variance kappa and log-determinant, ``(d + 2,)``.
Oracle = Callable[[int, int, int, np.ndarray, np.ndarray], np.ndarray]


@dataclass
class Clock:
    """Where the simulated workers stand.

    Attributes
    ----------
    now : float
    busy_until : array (q,)
        Time of each worker's next answer.
    busy_with : array (q,)
        Iteration that it answers; -1 for an idle worker.
    queries : array (q,)
    dropped : int
        Answers that came too late so far.
    """

    busy_until: np.ndarray = replicated()
    busy_with: np.ndarray = replicated()
    queries: np.ndarray = replicated()
    now: float = replicated(default=0.0)
    dropped: int = replicated(default=0)

    @classmethod
    def start(cls, q: int) -> Clock:
        return cls(np.zeros(q), np.full(q, -1), np.zeros(q, dtype=np.int64))


class Arrivals(ABC):
    """The workers as the server sees them."""

    @abstractmethod
    def collect(self, clock: Clock, iteration: int, m: int, b: np.ndarray, g: np.ndarray) -> np.ndarray:
        """Answers of the first workers, ``(k, d + 2)``, by increasing worker; `clock` moves on."""


class VirtualArrivals(Arrivals):
    """Workers of this process on a virtual clock.

    Parameters
    ----------
    service : ServiceLaw
        Untouched: draws begin anew here.
    oracle : Oracle
    first : int
        Answers to wait for.
    deadline : float
        Time after which one answer is enough.
    clock : Clock
        State to take up; the draws that lie behind it are made again.
    """

    def __init__(
        self, service: ServiceLaw, oracle: Oracle, first: int, deadline: float, clock: Clock
    ) -> None:
        self.service, self.oracle, self.first, self.deadline = service, oracle, first, deadline
        for worker, count in enumerate(clock.queries.tolist()):
            for query in range(count):
                service.draw(worker, query)

    def _ask(self, clock: Clock, worker: int, iteration: int, at: float) -> None:
        duration = float(self.service.draw(worker, int(clock.queries[worker])))
        if not 0.0 <= duration < math.inf:
            raise ValueError(f"service times must be finite and >= 0, got {duration!r} for worker {worker}.")
        clock.busy_until[worker], clock.busy_with[worker] = at + duration, iteration
        clock.queries[worker] += 1

    def collect(self, clock: Clock, iteration: int, m: int, b: np.ndarray, g: np.ndarray) -> np.ndarray:
        began = clock.now
        arrived: list[int] = []
        for worker in np.flatnonzero(clock.busy_with < 0).tolist():
            self._ask(clock, worker, iteration, began)
        heap = [(at, worker) for worker, at in enumerate(clock.busy_until.tolist())]
        heapq.heapify(heap)
        while heap and len(arrived) < self.first:
            at, worker = heap[0]
            if arrived and at > began + self.deadline:
                clock.now = max(clock.now, began + self.deadline)
                break
            heapq.heappop(heap)
            clock.now = max(clock.now, at)
            if clock.busy_with[worker] == iteration:
                clock.busy_with[worker] = -1
                arrived.append(worker)
                continue
            clock.dropped += 1  # the answer to an older question
            self._ask(clock, worker, iteration, clock.now)
            heapq.heappush(heap, (float(clock.busy_until[worker]), worker))
        return np.array([self.oracle(worker, iteration, m, b, g) for worker in sorted(arrived)])


class RankArrivals(Arrivals):
    """Workers of other MPI ranks.

    Parameters
    ----------
    star : RankStar
    first, deadline
        As for `VirtualArrivals`; seconds.
    """

    def __init__(self, star: RankStar, first: int, deadline: float) -> None:
        self.star, self.first, self.deadline = star, first, deadline

    def _ask(self, clock: Clock, worker: int, iteration: int, m: int, b: np.ndarray, g: np.ndarray) -> None:
        clock.busy_with[worker] = iteration
        clock.queries[worker] += 1
        self.star.post(worker, m, iteration, b, g)

    def collect(self, clock: Clock, iteration: int, m: int, b: np.ndarray, g: np.ndarray) -> np.ndarray:
        began = time.perf_counter()
        arrived: dict[int, np.ndarray] = {}
        for worker in np.flatnonzero(clock.busy_with < 0).tolist():
            self._ask(clock, worker, iteration, m, b, g)
        while len(arrived) < self.first:
            left = self.deadline - (time.perf_counter() - began)
            if arrived and left <= 0.0:
                break
            patience = max(left, 0.0) if arrived and math.isfinite(left) else None
            for worker, numbers in self.star.wait(1, patience=patience):
                if clock.busy_with[worker] == iteration:
                    clock.busy_with[worker] = -1
                    arrived[worker] = numbers.copy()
                else:
                    clock.dropped += 1
                    self._ask(clock, worker, iteration, m, b, g)
        clock.now += time.perf_counter() - began
        return np.array([arrived[worker] for worker in sorted(arrived)])


def answer_with(oracle: Oracle, d: int) -> Any:
    """What a worker rank answers to a query of `RankArrivals`."""

    def answer(worker: int, part: int, number: int, points: np.ndarray) -> np.ndarray:
        return oracle(worker, number, part, points[:d].copy(), points[d:].copy())

    return answer
