"""An asynchronous method on MPI ranks: rank 0 runs the driver and the server, the others answer queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.network import Network
from optikit.objectives.base import Objective, OracleCalls
from optikit.result import Certificate, History, Result
from optikit.runtime.communicator import SerialCommunicator, abort_on_error
from optikit.runtime.star import RankStar, workers_of
from optikit.runtime.star_run import agree, run_star, share_result
from optikit.solver import IterativeSolver, Progress
from solvers.asynchronous.cluster import Facts, RankCluster, facts_of, merged
from solvers.asynchronous.workers import Workers

#: Iterates kept for the curve of F that is computed after the run; every second one goes when it is full.
CURVE = 256


class RemoteObjective(Objective):
    """What the server holds in place of data: sizes, and the cluster that has the oracles."""

    def __init__(self, n: int, d: int, cluster: RankCluster, digests: list[int]) -> None:
        self.n_agents, self.agents, self.dim = n, np.arange(n), d
        self.dtype, self.xp, self.calls = np.float64, np, OracleCalls()
        self.cluster, self._digests = cluster, digests

    def value(self, X: Any) -> Any:
        raise RuntimeError("the workers hold the data: the server cannot evaluate the objective.")

    gradient = value

    def subset(self, agents: Any) -> Objective:
        chosen = [self._digests[a] for a in np.atleast_1d(agents)]
        return RemoteObjective(len(chosen), self.dim, self.cluster, chosen)

    def digests(self) -> list[int]:
        return self._digests


@dataclass
class Curve:
    """Iterates at some of the records, evenly spread however long the run is."""

    stride: int = 1
    seen: int = 0

    def __post_init__(self) -> None:
        self.iterations: list[int] = []
        self.points: list[np.ndarray] = []

    def __call__(self, iteration: int, x: np.ndarray) -> None:
        if self.seen % self.stride == 0:
            self.iterations.append(iteration)
            self.points.append(x)
            if len(self.points) == CURVE:
                self.iterations, self.points = self.iterations[::2], self.points[::2]
                self.stride *= 2
        self.seen += 1


def solve_on_ranks(
    method: Any, objective: Any, communicator: Any, x0: Any, options: dict[str, Any]
) -> Result:
    """`AsynchronousMethod.solve` on at least two ranks; collective, the same result on all of them."""
    comm = communicator
    # A diverging run overflows before its status says so; a warning would only repeat it.
    with abort_on_error(comm), np.errstate(over="ignore", invalid="ignore"):
        n, d = objective.n_agents, objective.dim
        workers, facts, problem = _try(lambda: _prepare(method, objective, comm))
        agree(comm, problem)
        pieces = comm.gather((facts, workers.objective.digests()), root=0)
        curve = Curve()
        result = run_star(
            comm,
            n,
            2 + 2 * d,
            2 + d,
            lambda star: _serve_run(method, star, pieces, n, d, x0, options, curve),
            _answer(workers, d),
            idle=method.idle,
        )
        _evaluate_curve(comm, workers, n, result, curve)
        return share_result(comm, result, n, method)


def _prepare(method: Any, objective: Any, comm: Any) -> tuple[Workers, Facts, None]:
    method.validate(objective, None)
    if method.runs > 1:
        raise ValueError(f"runs must be 1 on MPI ranks, got {method.runs}.")
    if method.trace is not None:
        raise ValueError("a trace is replayed on one process: run without mpiexec, or with trace=None.")
    if method.service is not None or method.failures or method.latency or method.server_time:
        raise ValueError(
            "service, failures, latency and server_time set a virtual clock; on ranks time is real."
        )
    mine = list(workers_of(comm.Get_rank(), comm.Get_size(), objective.n_agents))
    here = objective if np.array_equal(objective.agents, mine) else objective.subset(mine)
    rows = getattr(getattr(here, "data", None), "n_samples", 0)
    total = sum(comm.allgather(rows))
    workers = method.make_workers(here, total)
    _compile(workers)
    return workers, facts_of(workers, method.needs_smoothness), None


def _compile(workers: Workers) -> None:
    """Compile the kernels before the clock starts: a first call would stall the run for a second."""
    for agent in workers.agents[:1].tolist():
        workers.evaluate(agent, 0, 0, np.zeros(workers.d))
        workers.value(agent, np.zeros(workers.d))


def _try(call: Any) -> tuple[Any, Any, BaseException | None]:
    try:
        return call()
    except (ValueError, TypeError) as error:
        return None, None, error


def _answer(workers: Workers, d: int) -> Any:
    def answer(worker: int, part: int, number: int, points: np.ndarray) -> np.ndarray:
        f, g = workers.evaluate(worker, part, number, points[:d])
        polled = [workers.value(worker, points[d:])] if points.size > d else []
        return np.concatenate([[f], g, polled])

    return answer


def _serve_run(
    method: Any,
    star: RankStar,
    pieces: list[Any],
    n: int,
    d: int,
    x0: Any,
    options: dict[str, Any],
    curve: Curve,
) -> Result:
    facts = merged(part for part, _ in pieces)
    digests = [digest for _, own in pieces for digest in own]
    needed = {"each": 1, "drain": 1, "k_wait": method.k_wait, "sync": n}[method.policy]
    cluster = RankCluster(star, facts, d, needed, 1 if method.policy == "each" else None)
    own_callback = options.pop("callback", None)

    def record(progress: Progress) -> bool | None:
        curve(progress.iteration, progress.state.x)
        return None if own_callback is None else own_callback(progress)

    network = Network(n_agents=n, communicator=SerialCommunicator())
    remote = RemoteObjective(n, d, cluster, digests)
    return IterativeSolver.solve(method, remote, network, x0, callback=record, **options)


def _evaluate_curve(comm: Any, workers: Workers, n: int, result: Any, curve: Curve) -> None:
    """F at the iterates kept and at the last one, by the workers after the run, into the result on rank 0."""
    root = comm.Get_rank() == 0
    count = comm.bcast(len(curve.points) + 1 if root else None, root=0)
    points = np.array([*curve.points, result.x]) if root else np.empty((count, workers.d))
    comm.Bcast(points, root=0)
    own, values = np.zeros((n, count)), np.zeros((n, count))
    for agent in workers.agents.tolist():
        own[agent] = [workers.value(agent, x) for x in points]
    comm.Allreduce(own, values)
    if not root:
        return
    F = values.sum(axis=0) + [result.state.server.h.value(x) for x in points]
    columns, length = result.history.columns, len(result.history)
    place = {int(k): row for row, k in enumerate(columns["iteration"])}
    objective = np.full(length, np.nan)
    for iteration, value in zip(curve.iterations, F):
        if iteration in place:
            objective[place[iteration]] = value
    objective[-1] = result.objective = float(F[-1])
    counters = {"capacity": max(length, 4), "stride": 1, "seen": length}
    result.history = History.restored(columns | {"objective": objective}, counters)
    own_bounds = result.certificate
    if own_bounds is not None:
        upper = [v for v in (own_bounds.upper_bound, result.objective) if v is not None and np.isfinite(v)]
        result.certificate = Certificate(
            own_bounds.kind, own_bounds.lower_bound, min(upper) if upper else None, own_bounds.details
        )
