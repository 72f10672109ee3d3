"""Sub-sampled Newton with a server on MPI rank 0 that drops late workers."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from optikit.network import Network
from optikit.result import Result
from optikit.runtime.communicator import SerialCommunicator, abort_on_error
from optikit.runtime.star import RankStar, workers_of
from optikit.runtime.star_run import agree, run_star, share_result
from optikit.solver import IterativeSolver
from solvers.newton.arrivals import Arrivals, Clock, RankArrivals, answer_with
from solvers.newton.glm import GLM
from solvers.newton.subsampled import DirectionOracle, SubsampledNewton


@dataclass(frozen=True)
class _Served(SubsampledNewton):
    """The method on rank 0: its workers are other ranks."""

    ranks: Any = None

    def _arrivals(self, objective: GLM, clock: Clock) -> Arrivals:
        clock.busy_with[:] = -1  # nothing is in flight yet, in a resumed run neither
        return self.ranks

    def describe(self) -> str:
        return _plain(self).describe()


def _plain(method: SubsampledNewton) -> SubsampledNewton:
    return SubsampledNewton(**{f.name: getattr(method, f.name) for f in fields(SubsampledNewton)})


def solve_served(
    method: SubsampledNewton, objective: Any, communicator: Any, x0: Any, options: dict[str, Any]
) -> Result:
    """`SubsampledNewton.solve` with `first` or `deadline` on at least two ranks; the same result on all."""
    with abort_on_error(communicator):
        agree(communicator, _problem(method, objective, communicator.Get_size()))
        d, q = objective.dim, objective.n_agents

        def server(star: RankStar) -> Result:
            arrivals = RankArrivals(star, method.first or q, method.deadline or math.inf)
            values = {f.name: getattr(method, f.name) for f in fields(SubsampledNewton)}
            alone = Network(n_agents=q, communicator=SerialCommunicator())
            served = _Served(**values, ranks=arrivals)
            return IterativeSolver.solve(served, objective, alone, x0, **options)

        oracle = DirectionOracle(method, objective)
        result = run_star(communicator, q, 2 + 2 * d, 2 + d, server, answer_with(oracle, d))
        return share_result(communicator, result, q, method)


def _problem(method: SubsampledNewton, objective: Any, size: int) -> Exception | None:
    try:
        method.validate(objective, None)
        if method.service is not None:
            raise ValueError("service sets a virtual clock; MPI ranks take the time they take.")
        if objective.n_local != objective.n_agents:
            raise ValueError("first and deadline need all rows on every rank: pass the whole GLM.")
        workers_of(0, size, objective.n_agents)
    except (ValueError, TypeError) as error:
        return error
    return None
