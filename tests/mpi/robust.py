"""Program of the MPI tests: robust gossip and learning, gathered in an .npz file."""

import sys

import numpy as np

from optikit import graphs
from optikit.mixing import from_matrix
from optikit.network import Network
from optikit.objectives import Quadratic
from solvers.decentralized.robust import RobustGossip, RobustLearning


def compute(communicator=None):
    """Iterates by name, after a few rounds under attacks that need more or less knowledge."""
    n, d = 11, 3
    X = np.random.default_rng(0).standard_normal((n, d))
    objective = Quadratic(np.tile(np.eye(d), (n, 1, 1)), X)
    network = Network(
        from_matrix(graphs.erdos_renyi(n, 0.6, seed=2).laplacian(), "gossip"), communicator=communicator
    )
    found = {}
    for attack in (None, "dissensus", "spectral", "alie", "mimic"):
        result = RobustGossip(b=1.0, attack=attack).solve(objective, network, x0=X, max_rounds=5)
        found[f"gossip, {attack}"] = network.allgather(result.iterate)
    for rule in ("gts", "ios", "trimmed_mean"):
        result = RobustLearning(rule=rule, b=1.0, attack="foe").solve(objective, network, max_rounds=5)
        found[f"learning, {rule}"] = network.allgather(result.iterate)
    return found


if __name__ == "__main__":
    results = compute()
    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_rank() == 0:
        np.savez(sys.argv[1], **results)
