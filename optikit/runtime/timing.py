"""Who answers when: service laws, failures, and the timeline of an asynchronous run.

Simulated timing does not depend on data, so the whole order of events is drawn first, as a `Trace`, and any
method (or many seeds of one, stacked) is then run along it. A run on MPI ranks records a `Trace` too and can
be replayed. Timing draws come from streams of their own: they never share numbers with sampling.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.random import AgentStreams
from optikit.runtime.trace import Trace
from optikit.validation import check_choice, check_integer, check_real

POLICIES = ("each", "drain", "k_wait", "sync")


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
        self.delay = delay

    def draw(self, worker: int, query: int) -> float:
        return float(self.delay(query, worker))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class Failure:
    """Worker silent on [start, end): a reply that would arrive then arrives at `end`."""

    worker: int
    start: float
    end: float

    def __post_init__(self) -> None:
        if not self.start < self.end < math.inf:
            raise ValueError(f"a failure must start before it ends, got {self.start!r} to {self.end!r}.")


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
    server_time: float = 0.0,
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
    steps, replies : int, optional
        End after so many server steps, or replies absorbed; at least one limit is needed.
    until : float
        End at this time.
    policy : {"each", "drain", "k_wait", "sync"}
        Absorb one reply at a time; all that have arrived; at least `k` and then all that have arrived; all n.
    k : int, default 1
        For "k_wait", 1 <= k <= n.
    latency : float or sequence (n,), default 0
        One-way message time, of all links or of each worker's.
    server_time : float, default 0
        Duration of a server step.
    failures : iterable of Failure
    """
    n = check_integer(n, "n", minimum=1)
    check_choice(policy, "policy", POLICIES)
    k = check_integer(k, "k", minimum=1, maximum=n)
    if math.isnan(until):
        raise ValueError("until must be a time, got NaN.")
    if steps is None and replies is None and not math.isfinite(until):
        raise ValueError("a simulation needs an end: give steps, replies or until.")
    delays = np.asarray(latency, dtype=np.float64)
    if delays.shape not in ((), (n,)) or not np.all(np.isfinite(delays)) or not np.all(delays >= 0):
        raise ValueError(f"latency must be finite and >= 0, one number or {n}, got {latency!r}.")
    trips = np.broadcast_to(2.0 * delays, (n,)).tolist()
    server_time = check_real(server_time, "server_time", minimum=0.0)
    needed = {"each": 1, "drain": 1, "k_wait": k, "sync": n}[policy]
    service.check(n)
    silent: dict[int, list[Failure]] = {}
    for failure in sorted(failures, key=lambda f: f.start):
        if not 0 <= failure.worker < n:
            raise ValueError(f"failures must be of workers below {n}, got {failure}.")
        silent.setdefault(failure.worker, []).append(failure)

    def arrival(worker: int, sent: float, query: int) -> float:
        duration = service.draw(worker, query)
        if not 0.0 <= duration < math.inf:  # NaN too
            raise ValueError(
                f"service times must be finite and >= 0, got {duration!r} for worker {worker}, query {query}."
            )
        t = sent + trips[worker] + duration
        for failure in silent.get(worker, ()):
            if failure.start <= t < failure.end:
                t = failure.end
        return t

    queries = [0] * n
    heap: list[tuple[float, int]] = []  # (arrival, worker): ties go to the lower worker
    for worker in range(n):
        heapq.heappush(heap, (arrival(worker, server_time, 0), worker))
    times: list[float] = []
    batches: list[list[int]] = []
    absorbed, free = 0, server_time
    while (steps is None or len(times) < steps) and (replies is None or absorbed < replies):
        batch: list[int] = []
        now = free
        while heap and (len(batch) < needed or (policy != "each" and heap[0][0] <= now)):
            t, worker = heapq.heappop(heap)
            now = max(now, t)
            batch.append(worker)
        if now > until:
            break
        batch.sort()
        free = now + server_time
        times.append(now)
        batches.append(batch)
        absorbed += len(batch)
        for worker in batch:
            queries[worker] += 1
            heapq.heappush(heap, (arrival(worker, free, queries[worker]), worker))
    return Trace(n, np.array(times), batches)
