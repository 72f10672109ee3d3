"""Program of the MPI tests: the methods for directed networks, their iterates gathered in an .npz file."""

import sys

import numpy as np

from optikit import graphs
from optikit.mixing import PullPush, col_stochastic, row_stochastic
from optikit.network import Network
from optikit.objectives import Quadratic
from solvers.decentralized.pull_diag import FROST, MGPullDiagGT, PullDiagGD, PullDiagGT, RowStochasticTracking
from solvers.decentralized.push_diging import PushDIGing
from solvers.decentralized.push_pull import PushPull


def compute(communicator=None):
    """Iterates, settled weights and ledgers of all methods by name."""
    n, d = 11, 3
    rng = np.random.default_rng(0)
    nodes = np.arange(n)
    links = np.concatenate(
        [np.stack([nodes, (nodes + 1) % n], axis=1), np.argwhere(rng.random((n, n)) < 0.3)]
    )
    graph = graphs.Graph(n, links, directed=True)
    B = rng.standard_normal((n, d, d))
    objective = Quadratic(B @ np.swapaxes(B, 1, 2) / 9 + np.eye(d) / 2, rng.standard_normal((n, d)))
    pull, push = row_stochastic(graph), col_stochastic(graph)
    runs = [
        (PullDiagGT(0.1), pull),
        (MGPullDiagGT(0.1, rounds=3), pull),
        (PullDiagGD(0.1), pull),
        (FROST(0.05), pull),
        (RowStochasticTracking(0.1), pull),
        (PushDIGing(0.1), push),
        (PushPull(0.02), PullPush(graph)),
    ]
    found = {}
    for solver, topology in runs:
        network = Network(topology, communicator=communicator)
        result = solver.solve(objective, network, max_rounds=None, max_iterations=150, record_every=150)
        found[f"{solver.name}: x"] = network.allgather(result.iterate)
        found[f"{solver.name}: floats"] = result.ledger.floats_sent_per_agent
        if isinstance(solver, PullDiagGT):
            assert result.state.weights.rows is None, "the return weights have settled by now"
            found[f"{solver.name}: inverse"] = network.allgather(result.state.weights.inverse)
    return found


if __name__ == "__main__":
    results = compute()
    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_rank() == 0:
        np.savez(sys.argv[1], **results)
