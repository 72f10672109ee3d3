"""Program of the MPI tests: ``failures.py CASE`` goes wrong on one rank, in one way per case."""

import sys

import numpy as np
import pytest
from mpi4py import MPI

from optikit import graphs
from optikit.mixing import TopologySequence, metropolis
from optikit.network import Network
from optikit.runtime.communicator import abort_on_error, default_communicator

rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()


def guarded_error():
    """One rank raises where the others wait for its message."""
    network = Network(graphs.ring(6))
    with abort_on_error(network.communicator):
        if rank == 1:
            raise ArithmeticError("the oracle of rank 1 failed")
        network.mix(np.zeros((network.n_local, 2)))
        network.sum(np.zeros(network.n_local))


def uncaught_error():
    """The same in a plain script without a guard."""
    network = Network(graphs.ring(6))
    if rank == 1:
        raise ArithmeticError("the oracle of rank 1 failed")
    network.sum(np.zeros(network.n_local))


def refused_on_one_rank():
    """Bad input on one rank alone, before the ranks have exchanged anything."""
    default_communicator()
    Network(graphs.ring(6), backend="fast" if rank == 1 else "auto")


def clean_exit():
    """SystemExit with status 0 inside a guard is no error."""
    with abort_on_error(default_communicator()):
        sys.exit(0)


def other_agents():
    """Ranks that were given different numbers of agents."""
    caught(lambda: Network(graphs.ring(6 + rank)), "number of agents: 6 and 7")


def other_topology():
    """Ranks that drew different graphs."""
    caught(lambda: Network(graphs.erdos_renyi(8, 0.5, seed=rank)), "topology")


class OtherRounds(TopologySequence):
    """Agrees in its first rounds, which construction compares, and differs by rank later."""

    n, kind, period = 6, "mixing", None

    def matrix(self, q):
        return metropolis(graphs.ring(6) if q < 5 or rank == 0 else graphs.complete(6))


def other_rounds():
    """Mismatched neighbour lists: the classic hang."""
    network = Network(OtherRounds(), debug=True)
    X = np.ones((network.n_local, 2))
    for _ in range(5):
        X = network.mix(X)
    caught(lambda: network.mix(X), "ranks disagree about an exchange")


def other_width():
    """Blocks of different widths on two ranks."""
    network = Network(graphs.ring(6), debug=True)
    caught(lambda: network.mix(np.ones((network.n_local, 2 + rank))), "ranks disagree about an exchange")


def caught(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()
    print(f"rank {rank} refused", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
