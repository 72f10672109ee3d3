"""The state of an asynchronous run: queries in flight, the poll under way, and how far it has come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.checkpoint import cached, replicated
from optikit.runtime.trace import Trace
from solvers.asynchronous.regularizers import Regularizer


@dataclass
class Poll:
    """One exact evaluation of F at a fixed point, collected from the workers' own messages.

    Attributes
    ----------
    point : array
        Where; NaN while no poll is under way.
    asked, waiting : boolean array (n,)
        Workers that have the question, and those whose answer is missing.
    values : array (n,)
    best, latest : float
        Smallest and last polled F so far; inf and NaN before the first.
    """

    point: np.ndarray = replicated()
    asked: np.ndarray = replicated()
    waiting: np.ndarray = replicated()
    values: np.ndarray = replicated()
    best: float = replicated(default=math.inf)
    latest: float = replicated(default=math.nan)

    @classmethod
    def idle(cls, n: int, shape: tuple[int, ...]) -> Poll:
        none = np.zeros(n, dtype=bool)
        return cls(np.full(shape, np.nan), none, none.copy(), np.zeros(n))

    def start(self, x: np.ndarray) -> None:
        self.point = x
        self.asked[:] = False
        self.waiting[:] = True

    def ask(self, worker: int) -> np.ndarray | None:
        """The point for this worker's next query, if it has not got it yet."""
        if not self.waiting[worker] or self.asked[worker]:
            return None
        self.asked[worker] = True
        return self.point

    def answer(self, worker: int, value: float, h: Regularizer) -> None:
        self.values[worker] = value
        self.waiting[worker] = False
        if not self.waiting.any():
            self.latest = math.fsum(self.values) + h.value(self.point)
            self.best = min(self.best, self.latest)


@dataclass(frozen=True)
class AsynchronousState:
    """The server, the queries in flight, the poll, and how far the run has come.

    Attributes
    ----------
    x : array
    server : Server
    in_flight : array (n, d) or (n, runs, d)
        Points that the workers are evaluating.
    polled_in_flight : boolean array (n,)
        Whether the query carries the poll's point too.
    stamps, parts, queries : arrays (n,)
        Iterate number, part of the data and number of each worker's query.
    poll : Poll
    heard : array (n,)
        Time of each worker's last reply.
    anchored : array (n,)
        Iterate number of each worker's last reply.
    epoch, boundary : int
        Completed epochs, and the iterate that the current one began with.
    gradients : int
        Replies absorbed, the n first evaluations included.
    """

    x: Any = replicated()
    server: Any = replicated()
    in_flight: Any = replicated()
    polled_in_flight: Any = replicated()
    stamps: Any = replicated()
    parts: Any = replicated()
    queries: Any = replicated()
    poll: Any = replicated()
    heard: Any = replicated()
    anchored: Any = replicated()
    epoch: int = replicated(default=0)
    boundary: int = replicated(default=0)
    iteration: int = replicated(default=0)
    gradients: int = replicated(default=0)
    scale: float = replicated(default=1.0)
    cluster: Any = cached(default=None)

    @property
    def trace(self) -> Trace:
        """Who was absorbed when in this run: pass it to ``replace(solver, trace=...)`` to run it again."""
        return self.cluster.trace()
