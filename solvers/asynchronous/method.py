"""What every asynchronous server method shares: workers, clock or ranks, polls, records, stopping.

A method derives from `AsynchronousMethod` and says which server it runs (`make_server`). The driver's
`step` is one server step: absorb the replies that are in, compute the next iterate, send it to exactly the
workers just heard. Started on several MPI ranks, `solve` makes rank 0 the server and the others workers
(`solvers.asynchronous.ranks`).
"""

from __future__ import annotations

import copy
import math
import warnings
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from optikit.arrays import to_numpy
from optikit.random import AgentStreams
from optikit.result import Certificate, Result
from optikit.runtime.communicator import default_communicator
from optikit.runtime.star import IDLE
from optikit.runtime.timing import POLICIES, Exponential, ServiceLaw, simulate_star
from optikit.runtime.trace import Trace
from optikit.solver import IterativeSolver
from optikit.validation import check_choice, check_integer, check_real
from solvers.asynchronous.cluster import Cluster, VirtualCluster
from solvers.asynchronous.identity import settings_of
from solvers.asynchronous.regularizers import Quadratic, Regularizer
from solvers.asynchronous.server import Server
from solvers.asynchronous.state import AsynchronousState, Poll
from solvers.asynchronous.workers import STOCHASTIC, Workers

#: A run has diverged when its iterate is this much larger than its start.
BLOW_UP = 1e12
#: Hyper-parameters that say when a run ends or how ranks wait: a resumed run may change them.
STOPPING = frozenset(
    {"eps_rel", "target", "eps_x", "max_gradients", "max_time", "worker_timeout", "idle", "poll_every"}
)


@dataclass(frozen=True)
class AsynchronousMethod(IterativeSolver):
    """Base of the asynchronous methods; the fields here are common to all.

    Parameters
    ----------
    h : Regularizer, optional
        The server's simple convex function, default none: `Quadratic`, `ElasticNet`, `Box` or `Prox` of
        `solvers.asynchronous.regularizers`.
    client_weights : array (n,) or "samples" or None
        f_i is this weight times the objective's f_i; None means 1, "samples" the shares of the rows.
    shift : float or None
        Strong convexity moved from every f_i to h; None: the objective's known ``l2``; 0: nothing.
    service : ServiceLaw, optional
        Virtual clock; exponential with mean 1 by default.
    policy : {"drain", "each", "k_wait", "sync"}, default "drain"
        Replies a step absorbs: all that are in, one, at least `k_wait` and then all that are in, all n.
    k_wait : int, default 1
        For "k_wait", 1 to n.
    latency : float, default 0
        One-way message time on the virtual clock.
    server_time : float, default 0
        Duration of a server step on the virtual clock.
    failures : tuple of optikit.runtime.timing.Failure
        Workers that fall silent and come back.
    trace : Trace, optional
        Replay this order of events instead, e.g. one recorded on MPI ranks.
    stochastic : {None, "sampled", "component"}
        "sampled": every query draws a fresh mini-batch, an unbiased estimate. "component": the rows of each
        worker are cut once into mini-batches, each with an anchor of its own; a query names one, and the
        theory of the deterministic method holds as it stands.
    batch_size : int or None
        Rows of a mini-batch, >= 1.
    order : {"cyclic", "random"}, default "cyclic"
        Which mini-batch a query of the component form names.
    seed : int, default 0
        Decides every draw of samples; service laws have seeds of their own.
    runs : int, default 1
        Stacked runs with independent samples along the same timeline, iterates ``(runs, d)``, the first that
        of ``runs=1``; for sampled gradients and methods whose step is elementwise.
    poll_every : int or None
        Server steps between two polls: each worker's next query asks for its f_i at the poll's point as
        well, so that F there is exact after n replies, without a barrier. None: never on a virtual clock,
        where records evaluate F for free; every 5 n steps on MPI ranks.
    eps_rel : float, default 0
        The run has converged when ``gap <= tol + eps_rel |upper|``.
    target : float or None
        Stop when a known value of F is at most this.
    eps_x : float or None
        Stop when no anchor is farther than this from the iterate.
    max_gradients : int or None
        Stop after so many replies.
    max_time : float or None
        Stop at this time, of the virtual clock or of the wall.
    worker_timeout : float or None
        Warn of workers that have been silent for this long.
    idle : {"auto", "block", "backoff"}, default "auto"
        How MPI ranks wait: "backoff" sleeps between tests, default where ranks exceed cores.
    """

    stacked: ClassVar[bool] = False
    needs_topology: ClassVar[bool] = False
    criterion: ClassVar[str | None] = "gap"
    in_place: ClassVar[bool] = True
    #: Whether the server's step works on (S, d) points.
    elementwise: ClassVar[bool] = True

    h: Regularizer | None = None
    client_weights: Any = None
    shift: float | None = None
    service: ServiceLaw | None = None
    policy: str = "drain"
    k_wait: int = 1
    latency: float = 0.0
    server_time: float = 0.0
    failures: tuple[Any, ...] = ()
    trace: Trace | None = None
    stochastic: str | None = None
    batch_size: int | None = None
    order: str = "cyclic"
    seed: int = 0
    runs: int = 1
    poll_every: int | None = None
    eps_rel: float = 0.0
    target: float | None = None
    eps_x: float | None = None
    max_gradients: int | None = None
    max_time: float | None = None
    worker_timeout: float | None = None
    idle: str = "auto"

    def __post_init__(self) -> None:
        if self.h is not None and not isinstance(self.h, Regularizer):
            raise TypeError(
                f"h must be a Regularizer (Quadratic, ElasticNet, Box, Prox), got {type(self.h).__name__}."
            )
        check_choice(self.policy, "policy", POLICIES)
        check_integer(self.k_wait, "k_wait", minimum=1)
        check_choice(self.stochastic, "stochastic", STOCHASTIC)
        check_choice(self.order, "order", ("cyclic", "random"))
        check_choice(self.idle, "idle", IDLE)
        check_integer(self.seed, "seed", minimum=0)
        check_integer(self.runs, "runs", minimum=1)
        check_real(self.eps_rel, "eps_rel", minimum=0.0)
        for name in ("shift", "eps_x", "max_time"):
            if getattr(self, name) is not None:
                check_real(getattr(self, name), name, minimum=0.0)
        if self.worker_timeout is not None:
            check_real(self.worker_timeout, "worker_timeout", minimum=0.0, open_low=True)
        if self.target is not None:
            check_real(self.target, "target")
        for name in ("batch_size", "poll_every", "max_gradients"):
            if getattr(self, name) is not None:
                check_integer(getattr(self, name), name, minimum=1)
        if self.trace is not None and not isinstance(self.trace, Trace):
            raise TypeError(f"trace must be a Trace, got {type(self.trace).__name__}.")
        if self.runs > 1 and self.stochastic != "sampled":
            raise ValueError(
                f'runs={self.runs} differ only in sampled gradients: give stochastic="sampled", or runs=1.'
            )

    # -- what a method writes -----------------------------------------------------------------------------

    @abstractmethod
    def make_server(self, cluster: Cluster, h: Regularizer, x0: np.ndarray) -> Server:
        """The server before any reply; `h` holds the shift already."""

    @property
    def needs_smoothness(self) -> bool:
        """Whether `make_server` reads the smoothness constants of the workers."""
        return False

    def prepare(self, server: Server, cluster: Cluster, replies: list[Any], x0: np.ndarray) -> None:
        """A last word after all functions were evaluated at x0: `replies` holds (f, g) of each."""

    # -- the driver's hooks -------------------------------------------------------------------------------

    def solve(self, objective: Any, network: Any = None, x0: Any = None, **options: Any) -> Result:
        """Run the method, see `IterativeSolver.solve`.

        On several MPI ranks, rank 0 becomes the server and the n agents are blocked over the others. Every
        rank calls `solve` with the same arguments and gets the same result; `objective` may hold all agents
        on every rank, or on each rank those that `optikit.runtime.star.workers_of` says.
        """
        communicator = default_communicator() if network is None else network.communicator
        if communicator.Get_size() == 1:
            return super().solve(objective, network, x0, **options)
        from solvers.asynchronous.ranks import solve_on_ranks

        return solve_on_ranks(self, objective, communicator, x0, options)

    def validate(self, objective: Any, network: Any) -> None:
        n = objective.n_agents
        if self.trace is not None and self.trace.n != n:
            raise ValueError(f"trace must be of {n} workers, got {self.trace.n}.")
        check_integer(self.k_wait, "k_wait", minimum=1, maximum=n)
        (self.h or Quadratic()).check_dimension(objective.dim)
        if self.runs > 1 and not self.elementwise:
            raise ValueError(
                f"runs must be 1 here: the step of this {self.name} is not elementwise, got {self.runs}."
            )

    def make_workers(self, objective: Any, total_rows: int | None = None) -> Workers:
        """The oracles of the agents of `objective`."""
        return Workers(
            objective,
            total_rows=total_rows,
            client_weights=self.client_weights,
            shift=self.shift,
            stochastic=self.stochastic,
            batch_size=self.batch_size,
            seed=self.seed,
            runs=self.runs,
        )

    def _cluster(self, objective: Any) -> Cluster:
        ready = getattr(objective, "cluster", None)
        if ready is not None:
            return ready
        simulate = self.trace if self.trace is not None else self._simulate(objective.n_agents)
        return VirtualCluster(self.make_workers(objective), simulate, smoothness=self.needs_smoothness)

    def _simulate(self, n: int) -> Any:
        def draw(steps: int) -> Trace:
            # A law remembers its streams: each simulation starts from an untouched copy.
            return simulate_star(
                n,
                copy.deepcopy(self.service or Exponential()),
                steps=steps,
                policy=self.policy,
                k=self.k_wait,
                latency=self.latency,
                server_time=self.server_time,
                failures=self.failures,
            )

        return draw

    def init(self, objective: Any, network: Any, x0: Any) -> AsynchronousState:
        cluster = self._cluster(objective)
        n, shape, counts = cluster.n, cluster.shape, cluster.facts.counts
        start = np.broadcast_to(to_numpy(x0).astype(np.float64), shape).copy()
        h = (self.h or Quadratic()).with_quadratic(float(cluster.facts.shifts.sum()))
        server = self.make_server(cluster, h, start)
        first = np.concatenate(([0], np.cumsum(counts)))
        replies: list[Any] = [None] * int(first[-1])
        for part in range(int(counts.max())):  # the only barrier
            for worker in np.flatnonzero(counts > part).tolist():
                cluster.post(worker, part, part, start, None)
            for worker, (f, g, _) in cluster.gather():
                replies[first[worker] + part] = (f, np.array(g))
        self.prepare(server, cluster, replies, start)
        for i, (f, g) in enumerate(replies):
            server.receive(i, start, f, g)
        state = AsynchronousState(
            x=server.step(),
            server=server,
            in_flight=np.empty((n, *shape)),
            polled_in_flight=np.zeros(n, dtype=bool),
            stamps=np.zeros(n, dtype=np.int64),
            parts=np.zeros(n, dtype=np.int64),
            queries=counts.copy(),
            poll=Poll.idle(n, shape),
            heard=np.zeros(n),
            anchored=np.zeros(n, dtype=np.int64),
            gradients=len(replies),
            scale=1.0 + float(np.linalg.norm(start)),
            cluster=cluster,
        )
        self._send(state, range(n))
        return state

    def restored(self, objective: Any, network: Any, state: AsynchronousState) -> AsynchronousState:
        cluster = self._cluster(objective)
        if isinstance(cluster, VirtualCluster):
            cluster.skip(state.iteration)
        else:
            cluster.gather()  # the queries of `init`, whose state is replaced
        for worker in range(cluster.n):
            poll = state.poll.point if state.polled_in_flight[worker] else None
            cluster.post(
                worker,
                int(state.parts[worker]),
                int(state.queries[worker]) - 1,
                state.in_flight[worker].copy(),
                poll,
            )
        return replace(state, cluster=cluster)

    def _send(self, state: AsynchronousState, workers: Any) -> None:
        """Send the iterate to idle workers."""
        cluster, counts = state.cluster, state.cluster.facts.counts
        for worker in workers:
            number = int(state.queries[worker])
            part = self._part(worker, number, int(counts[worker]))
            poll = state.poll.ask(worker)
            state.in_flight[worker], state.stamps[worker] = state.x, state.server.steps
            state.parts[worker], state.polled_in_flight[worker] = part, poll is not None
            state.queries[worker] = number + 1
            cluster.post(worker, part, number, state.x, poll)

    def _part(self, worker: int, number: int, count: int) -> int:
        if count == 1:
            return 0
        if self.order == "cyclic":
            return number % count
        streams = AgentStreams(self.seed, "order of mini-batches")
        return int(streams.integers([worker], number, count, 1)[0, 0])

    def step(self, objective: Any, network: Any, state: AsynchronousState) -> AsynchronousState:
        cluster, server, poll = state.cluster, state.server, state.poll
        if cluster.ended():
            return replace(state, iteration=state.iteration + 1)
        first = np.cumsum(cluster.facts.counts) - cluster.facts.counts
        batch = []
        for worker, (f, g, polled) in cluster.wait():
            i = int(first[worker] + state.parts[worker])
            server.receive(i, state.in_flight[worker].copy(), f, g, int(state.stamps[worker]))
            if polled is not None:
                poll.answer(worker, polled, server.h)
            batch.append(worker)
        state.anchored[batch] = state.stamps[batch]
        k, epoch, boundary = server.steps, state.epoch, state.boundary
        if state.anchored.min() > boundary:
            epoch, boundary = epoch + 1, k
        x = server.step()
        norm = float(np.linalg.norm(x))
        if not norm <= BLOW_UP * state.scale:  # NaN too
            raise FloatingPointError(f"the iterate has norm {norm:.3g}, {BLOW_UP:g} times that of the start")
        state = replace(
            state,
            x=x,
            epoch=epoch,
            boundary=boundary,
            iteration=state.iteration + 1,
            gradients=state.gradients + len(batch),
        )
        if self._poll_due(state) and not poll.waiting.any():
            poll.start(x)
        self._watch(state, batch)
        self._send(state, batch)
        self._account(network, state, batch)
        return state

    def _poll_due(self, state: AsynchronousState) -> bool:
        every = self.poll_every
        if every is None:
            if isinstance(state.cluster, VirtualCluster):
                return False
            every = 5 * state.cluster.n
        return state.iteration % every == 0

    def _watch(self, state: AsynchronousState, batch: list[int]) -> None:
        now, heard = state.cluster.now(), state.heard
        if self.worker_timeout is not None:
            for worker in np.flatnonzero(now - heard > self.worker_timeout).tolist():
                if worker not in batch and math.isfinite(heard[worker]):
                    warnings.warn(
                        f"worker {worker} has been silent since time {heard[worker]:.4g}, for more than "
                        f"worker_timeout={self.worker_timeout:g}.",
                        stacklevel=2,
                    )
                    heard[worker] = math.inf  # once per silence
        heard[batch] = now

    def _account(self, network: Any, state: AsynchronousState, batch: list[int]) -> None:
        taking_part = np.zeros(network.n_agents, dtype=bool)
        taking_part[batch] = True
        numbers = math.prod(state.cluster.shape)
        polled = state.polled_in_flight[batch].any()
        network.ledger.record_phase(numbers + 1, (2 if polled else 1) * numbers + 2, participants=taking_part)
        network.round += 1

    def iterate(self, state: AsynchronousState) -> Any:
        return state.x

    def snapshot(self, state: AsynchronousState) -> AsynchronousState:
        return state  # a diverging run keeps its last finite x: servers make a new one each step

    def solution(self, objective: Any, network: Any, state: AsynchronousState) -> Any:
        return state.x

    # -- records and stopping -----------------------------------------------------------------------------

    def metrics(
        self, objective: Any, network: Any, state: AsynchronousState, *, final: bool = False
    ) -> dict[str, float]:
        server, poll = state.server, state.poll
        record = {
            "gradients": float(state.gradients),
            "time": state.cluster.now(),
            "staleness": float(max(server.steps - 1 - int(state.anchored.min()), 0)),
            "epoch": float(state.epoch),
            **server.report(),
        }
        value = state.cluster.total(state.x)
        if value is not None:
            values = np.atleast_1d(value) + np.array([server.h.value(x) for x in np.atleast_2d(state.x)])
            record["objective"] = float(values.mean())
            if values.size > 1:
                record["objective_sd"] = float(values.std(ddof=1))
        if not math.isnan(poll.latest):
            record["polled_objective"] = poll.latest
        lower, upper = server.bounds()
        known = [v for v in (upper, poll.best, record.get("objective")) if v is not None and v < math.inf]
        if lower is not None:
            record["lower_bound"] = lower
        if upper is not None:
            record["upper_bound"] = upper
        if lower is not None and known:
            record["gap"] = (upper if upper is not None and not final else min(known)) - lower
        return record

    def converged(self, metrics: dict[str, float], tol: float) -> bool:
        if "gap" not in metrics:
            return False
        upper = metrics["gap"] + metrics["lower_bound"]
        return metrics["gap"] <= tol + self.eps_rel * abs(upper)

    def finished(self, state: AsynchronousState, metrics: dict[str, float]) -> str | None:
        if (reason := state.cluster.ended()) is not None:
            return reason
        if self.max_gradients is not None and state.gradients >= self.max_gradients:
            return f"{state.gradients} gradients were absorbed"
        if self.max_time is not None and metrics["time"] >= self.max_time:
            return f"the time {self.max_time:g} is over"
        if self.target is not None:
            known = min(metrics.get("objective", math.inf), state.poll.best)
            if known <= self.target:
                return f"the objective is at most the target {self.target:g}"
        if self.eps_x is not None:
            farthest = float(state.server.distances(state.x).max())
            if farthest <= self.eps_x:
                return f"every anchor is within {farthest:.3g} of the iterate"
        return None

    def certificate(self, objective: Any, network: Any, state: AsynchronousState) -> Certificate | None:
        lower, upper = state.server.bounds()
        values = [v for v in (upper, state.poll.best) if v is not None and v < math.inf]
        if len(state.cluster.shape) == 1 and (value := state.cluster.total(state.x)) is not None:
            values.append(value + state.server.h.value(state.x))
        if lower is None and self.stochastic == "sampled":
            return None
        return Certificate("optimality gap", lower, min(values) if values else None)

    # -- identity of a run --------------------------------------------------------------------------------

    def describe(self) -> str:
        """Name and hyper-parameters that decide the iterates; laws and traces by their content."""
        name, settings = settings_of(self)
        return repr((name, [(field, value) for field, value in settings if field not in STOPPING]))
