"""Every decentralised method of the toolkit with a network on which the chain's lower bound applies to it.

On the rotating star, and on a path whose ends are the two groups of the chain, information needs m + 1 rounds
from one group to the other. Methods for time-varying networks run on the star, those for static ones on the
path.
"""

from __future__ import annotations

from typing import Any

from optikit.graphs import path
from optikit.mixing import (
    PullPush,
    TopologySequence,
    col_stochastic,
    laplacian_gossip,
    metropolis,
    rotating_star,
    row_stochastic,
)
from optikit.network import Network
from solvers.decentralized.adom import ADOMPlus
from solvers.decentralized.gradient_descent import DecentralizedGradientDescent
from solvers.decentralized.gradient_tracking import GradientTracking
from solvers.decentralized.nonsmooth import NonsmoothTimeVarying
from solvers.decentralized.nonsmooth_prox import NonsmoothProx
from solvers.decentralized.pull_diag import (
    FROST,
    MGPullDiagGT,
    PullDiagGD,
    PullDiagGT,
    RowStochasticTracking,
)
from solvers.decentralized.push_diging import PushDIGing
from solvers.decentralized.push_pull import PushPull
from solvers.decentralized.sliding import CommunicationSliding
from solvers.decentralized.subgradient import DecentralizedSubgradient, SubgradientPush
from theory_checks.hard_instances import ChainInstance, support

M, R = 1.0, 0.1


def chain(m: int = 3, d: int = 12) -> ChainInstance:
    """The instance on which the methods are watched."""
    return ChainInstance(m, d, M, R)


def span_methods(m: int = 3) -> dict[str, tuple[Any, TopologySequence | Any]]:
    """Name -> (solver, topology) of every method whose iterates stay in the span of what it has seen."""
    n, centres = 3 * m, range(m, 2 * m)
    gossip = rotating_star(n, centres, laplacian_gossip)
    mixing = rotating_star(n, centres, metropolis)
    pushing = rotating_star(n, centres, col_stochastic)
    line = path(n)
    chi = gossip.chi()
    return {
        "optimal": (NonsmoothTimeVarying(r=R, inner_steps=5, chi=chi), gossip),
        "optimal, two rounds a step": (NonsmoothTimeVarying(r=R, inner_steps=5, gossip_steps=2), gossip),
        "optimal, prox form": (NonsmoothProx(r=R, chi=chi), gossip),
        "DSM": (DecentralizedSubgradient(0.5, R), mixing),
        "DGD": (DecentralizedGradientDescent(0.05), mixing),
        "subgradient-push": (SubgradientPush(0.5, R), pushing),
        "gradient tracking": (GradientTracking(0.05, R), mixing),
        "ADOM+": (ADOMPlus(1.0, 0.1, r=R, chi=chi), gossip),
        "sliding": (CommunicationSliding(R, 5), laplacian_gossip(line)),
        "Push-DIGing": (PushDIGing(0.02), pushing),
        "Push-Pull": (PushPull(0.02), PullPush(line)),
        "Pull-Diag-GT": (PullDiagGT(0.02), row_stochastic(line)),
        "MG-Pull-Diag-GT": (MGPullDiagGT(0.02, rounds=2), row_stochastic(line)),
        "Pull-Diag-GD": (PullDiagGD(0.02), row_stochastic(line)),
        "FROST": (FROST(0.02), row_stochastic(line)),
        "row-stochastic tracking": (RowStochasticTracking(0.02), row_stochastic(line)),
    }


def excess_support(solver: Any, topology: Any, *, m: int = 3, rounds: int = 60) -> tuple[bool, int]:
    """Whether a variable was ever nonzero beyond reach, and how far the last iterate had come."""
    instance, broken, reached = chain(m), [], [0]

    def check(progress: Any) -> None:
        reached.append(support(*solver.exchanged(progress.state)))
        broken.append(reached[-1] > instance.reachable(progress.round))

    solver.solve(instance, Network(topology), max_rounds=rounds, callback=check, record_every=1)
    return any(broken), reached[-1]
