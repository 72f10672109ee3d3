"""Who answers when: service laws, failures, and the timeline of an asynchronous run.

Simulated timing does not depend on data, so the whole order of events is drawn first, as a `Trace`, and any
method (or many seeds of one, stacked) is then run along it. A run on MPI ranks records a `Trace` too and can
be replayed. Timing draws come from streams of their own: they never share numbers with sampling.
"""

from __future__ import annotations

import copy
import heapq
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.random import AgentStreams
from optikit.runtime.trace import Trace
from optikit.validation import check_choice, check_integer, check_real

POLICIES = ("each", "drain", "k_wait", "sync")

#: Arrivals per worker at one instant before a simulation is refused: turns that take no time never end.
STANDSTILL = 1000


class ServiceLaw(ABC):
    """How long worker i takes for its j-th query, in units of the virtual clock."""

    @abstractmethod
    def draw(self, worker: int, query: int) -> float:
        """Duration of one evaluation; called once per (worker, query), in increasing query order."""

    def describe(self) -> str:
        """Parameters and seed, the same in every process: what a checkpoint compares."""
        public = {name: value for name, value in sorted(vars(self).items()) if not name.startswith("_")}
        shown = {
            name: getattr(value, "__qualname__", value) if callable(value) else _plain(value)
            for name, value in public.items()
        }
        seeds = [repr(value) for value in vars(self).values() if isinstance(value, AgentStreams)]
        return f"{type(self).__name__}({shown}, {seeds})"

    def check(self, n: int) -> None:  # noqa: B027 (an optional hook)
        """Raise ValueError where the law does not fit n workers."""

    def restarted(self) -> ServiceLaw:
        """This law before its first query; one that remembers nothing is its own.

        Simulations draw from a restarted law, so the same law gives the same timeline each time.
        """
        return self

    def duration(self, worker: int, query: int) -> float:
        """`draw`, checked: a ValueError names worker and query where it is not finite and >= 0."""
        seconds = self.draw(worker, query)
        if type(seconds) is float and 0.0 <= seconds < math.inf:  # the usual case, in one comparison
            return seconds
        return _duration(seconds, f"worker {worker}, query {query}")


def _duration(value: Any, of: str) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:  # NaN too
        raise ValueError(f"service times must be finite and >= 0, got {value!r} for {of}.")
    return seconds


class Ticks(ServiceLaw):
    """Constant durations, one per worker.

    Parameters
    ----------
    durations : sequence of float
        Each > 0.
    """

    def __init__(self, durations: Sequence[float]) -> None:
        self.durations = [check_real(t, "durations", minimum=0.0, open_low=True) for t in durations]

    def draw(self, worker: int, query: int) -> float:
        return self.durations[worker]

    def check(self, n: int) -> None:
        if len(self.durations) != n:
            raise ValueError(f"durations must be one per worker, {n}, got {len(self.durations)}.")


class _Random(ServiceLaw):
    def __init__(self, seed: int) -> None:
        self._streams = AgentStreams(seed, "service times")
        self._generators: dict[int, np.random.Generator] = {}

    def _rng(self, worker: int) -> np.random.Generator:
        if worker not in self._generators:
            self._generators[worker] = self._streams.generator(worker)
        return self._generators[worker]

    def restarted(self) -> ServiceLaw:
        fresh = copy.copy(self)
        fresh._generators = {}
        return fresh


class Exponential(_Random):
    """Exponential durations with the given means (one, or one per worker)."""

    def __init__(self, mean: Any = 1.0, seed: int = 0) -> None:
        super().__init__(seed)
        self.mean = np.atleast_1d(np.asarray(mean, dtype=np.float64))
        if self.mean.ndim != 1 or not np.all(self.mean > 0) or not np.all(np.isfinite(self.mean)):
            raise ValueError(f"mean must be > 0, got {mean!r}.")

    def draw(self, worker: int, query: int) -> float:
        return float(self._rng(worker).exponential(self.mean[worker % self.mean.size]))

    def check(self, n: int) -> None:
        if self.mean.size not in (1, n):
            raise ValueError(f"mean must be one number or one per worker, {n}, got {self.mean.size}.")


class Uniform(_Random):
    """Durations uniform on [low, high]."""

    def __init__(self, low: float = 0.5, high: float = 1.5, seed: int = 0) -> None:
        super().__init__(seed)
        self.low = check_real(low, "low", minimum=0.0)
        self.high = check_real(high, "high", minimum=self.low)

    def draw(self, worker: int, query: int) -> float:
        return float(self._rng(worker).uniform(self.low, self.high))


class LogNormalSpeeds(_Random):
    """A log-normal speed per worker, drawn once; exponential jitter around it if asked for.

    Parameters
    ----------
    sigma : float, default 0.7
    jitter : float, default 0
        Share of each duration that is exponential, in [0, 1].
    """

    def __init__(self, sigma: float = 0.7, jitter: float = 0.0, seed: int = 0) -> None:
        super().__init__(seed)
        self.sigma = check_real(sigma, "sigma", minimum=0.0)
        self.jitter = check_real(jitter, "jitter", minimum=0.0, maximum=1.0)
        self._base: dict[int, float] = {}

    def restarted(self) -> ServiceLaw:
        fresh: Any = super().restarted()
        fresh._base = {}
        return fresh

    def draw(self, worker: int, query: int) -> float:
        rng = self._rng(worker)
        base = self._base.setdefault(worker, float(np.exp(self.sigma * rng.standard_normal())))
        return base * (1.0 - self.jitter + self.jitter * float(rng.exponential()))


class Pareto(_Random):
    """Heavy-tailed durations ``1 + Pareto(shape)``: infinite variance for shape <= 2."""

    def __init__(self, shape: float = 1.5, seed: int = 0) -> None:
        super().__init__(seed)
        self.shape = check_real(shape, "shape", minimum=0.0, open_low=True)

    def draw(self, worker: int, query: int) -> float:
        return 1.0 + float(self._rng(worker).pareto(self.shape))


class Scripted(ServiceLaw):
    """Durations from a function ``delay(query, worker)``."""

    def __init__(self, delay: Callable[[int, int], float]) -> None:
        if not callable(delay):
            raise TypeError(f"delay must be a function (query, worker) -> seconds, got {delay!r}.")
        self.delay = delay

    def draw(self, worker: int, query: int) -> float:
        return self.delay(query, worker)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class Failure:
    """Worker silent on [start, end): a reply that would arrive then arrives at `end`."""

    worker: int
    start: float
    end: float

    def __post_init__(self) -> None:
        check_integer(self.worker, "worker", minimum=0)
        if not self.start < self.end < math.inf:
            raise ValueError(f"a failure must start before it ends, got {self.start!r} to {self.end!r}.")


class _Silences:
    """Disjoint silent intervals of each worker, looked up by bisection."""

    def __init__(self, failures: Iterable[Failure], n: int) -> None:
        self._starts: dict[int, list[float]] = {}
        self._ends: dict[int, list[float]] = {}
        for failure in sorted(failures, key=lambda f: f.start):
            if failure.worker >= n:
                raise ValueError(f"failures must be of workers below {n}, got {failure}.")
            starts = self._starts.setdefault(failure.worker, [])
            ends = self._ends.setdefault(failure.worker, [])
            if ends and failure.start <= ends[-1]:
                ends[-1] = max(ends[-1], failure.end)
            else:
                starts.append(failure.start)
                ends.append(failure.end)

    def heard(self, worker: int, time: float) -> float:
        """When a reply due at `time` arrives."""
        starts = self._starts.get(worker)
        if starts is None:
            return time
        last = bisect_right(starts, time) - 1
        return max(time, self._ends[worker][last]) if last >= 0 else time


ServerTime = float | ServiceLaw | Callable[[int, int], float]


def _server_clock(server_time: ServerTime) -> Callable[[int, int], float]:
    """Seconds of a server step from its number and how many replies it absorbed."""
    if isinstance(server_time, ServiceLaw):
        server_time.check(1)
        law = server_time.restarted()
        return lambda step, size: _duration(law.draw(0, step), f"the server, step {step}")
    if callable(server_time):
        return lambda step, size: _duration(server_time(step, size), f"the server, step {step}")
    constant = check_real(server_time, "server_time", minimum=0.0)
    return lambda step, size: constant


def check_end(until: float, **limits: int | None) -> None:
    """Refuse a simulation without an end, a NaN as its last time, and counts that are negative."""
    if math.isnan(until):
        raise ValueError("until must be a time, got NaN.")
    for name, limit in limits.items():
        if limit is not None:
            check_integer(limit, name, minimum=0)
    if all(limit is None for limit in limits.values()) and until == math.inf:
        raise ValueError(f"a simulation needs an end: give {', '.join(limits)} or until.")


def simulate_star(
    n: int,
    service: ServiceLaw,
    *,
    steps: int | None = None,
    replies: int | None = None,
    until: float = math.inf,
    policy: str = "drain",
    k: int = 1,
    latency: Any = 0.0,
    server_time: ServerTime = 0.0,
    failures: Iterable[Failure] = (),
) -> Trace:
    """The timeline of one server and n workers on a virtual clock.

    All workers first evaluate the starting point (the only barrier, not part of the trace) and are queried
    again by the first server step at time 0.

    Parameters
    ----------
    n : int
        Workers, >= 1.
    service : ServiceLaw
        Drawn from its first query on, whatever was drawn before.
    steps, replies : int, optional
        End after so many server steps, or with the step that absorbs this many replies; at least one limit is
        needed.
    until : float
        End at this time.
    policy : {"each", "drain", "k_wait", "sync"}
        Absorb one reply at a time; all that have arrived; at least `k` and then all that have arrived; all n.
    k : int, default 1
        For "k_wait", 1 <= k <= n.
    latency : float or sequence (n,), default 0
        One-way message time, of all links or of each worker's, in the clock's units.
    server_time : float, ServiceLaw or callable (step, batch size) -> float, default 0
        Duration of a server step, >= 0. Step 0 is the one before time 0's queries, on the n first replies;
        the trace's k-th step (from 0) is followed by step k + 1. A law is drawn as its worker 0, so a random
        one needs a seed of its own.
    failures : iterable of Failure

    Returns
    -------
    Trace
        With `spans`; replies that are absorbed together come in the order of their workers, and of those
        that arrive at one instant "each" takes the lowest worker's first.

    Raises
    ------
    ValueError
        For a limit that is missing or NaN, a law or latencies that do not fit n workers, a duration that is
        not finite and >= 0 (worker and query are named), a failure of a worker that is none, and where time
        stands still because turns take none.
    """
    n = check_integer(n, "n", minimum=1)
    check_choice(policy, "policy", POLICIES)
    k = check_integer(k, "k", minimum=1, maximum=n)
    check_end(until, steps=steps, replies=replies)
    delays = np.asarray(latency, dtype=np.float64)
    if delays.shape not in ((), (n,)) or not np.all(np.isfinite(delays)) or not np.all(delays >= 0):
        raise ValueError(f"latency must be finite and >= 0, one number or {n}, got {latency!r}.")
    trips = np.broadcast_to(2.0 * delays, (n,)).tolist()
    needed = {"each": 1, "drain": 1, "k_wait": k, "sync": n}[policy]
    service.check(n)
    law, clock, silences = service.restarted(), _server_clock(server_time), _Silences(failures, n)

    queries, sent = [0] * n, [0.0] * n
    heap: list[tuple[float, int]] = []  # (arrival, worker): ties go to the lower worker

    def ask(worker: int, now: float) -> None:
        due = now + trips[worker] + law.duration(worker, queries[worker])
        sent[worker] = now
        queries[worker] += 1
        heapq.heappush(heap, (silences.heard(worker, due), worker))

    free = clock(0, n)
    for worker in range(n):
        ask(worker, free)
    times: list[float] = []
    batches: list[list[int]] = []
    spans: list[tuple[float, float]] = []
    still = 0  # replies since the clock last moved
    while (steps is None or len(times) < steps) and (replies is None or len(spans) < replies):
        arrivals: list[tuple[int, float]] = []
        now = free
        while heap and (len(arrivals) < needed or (policy != "each" and heap[0][0] <= now)):
            t, worker = heapq.heappop(heap)
            now = max(now, t)
            arrivals.append((worker, t))
        if now > until:
            break
        still = still + len(arrivals) if times and now == times[-1] else 0
        if still > STANDSTILL * n:
            raise ValueError(f"time stands still at {now!r}: turns of workers must take time.")
        arrivals.sort()
        times.append(now)
        batches.append([worker for worker, _ in arrivals])
        spans += [(sent[worker], t) for worker, t in arrivals]
        free = now + clock(len(times), len(arrivals))
        for worker, _ in arrivals:
            ask(worker, free)
    return Trace(n, np.array(times), batches, np.array(spans).reshape(-1, 2))


def random_order(weights: Any, replies: int, seed: int = 0) -> Trace:
    """An order without a clock: who replies next is drawn with probabilities proportional to `weights`.

    Each step absorbs one reply, of a query posted at that worker's previous turn; times count the steps.

    Parameters
    ----------
    weights : array (n,)
        Each > 0 and finite.
    replies : int
        Steps, >= 0; a longer order of the same seed begins with the shorter one.
    seed : int, default 0
    """
    shares = np.asarray(weights, dtype=np.float64)
    if shares.ndim != 1 or not shares.size or not np.all(shares > 0) or not np.all(np.isfinite(shares)):
        raise ValueError(f"weights must be finite and > 0, one per worker, got {weights!r}.")
    replies = check_integer(replies, "replies", minimum=0)
    rng = AgentStreams(seed, "order of replies").generator()
    drawn = rng.choice(shares.size, size=replies, p=shares / shares.sum())
    return Trace(shares.size, np.arange(1.0, replies + 1.0), drawn[:, None].tolist())
