"""Program of the MPI tests: gossip, sums and pulls of one network per topology, gathered in an .npz file.

``gossip.py FILE``; the tests compare FILE written by 2, 3 and 4 ranks with `compute` on one process.
"""

import sys

import numpy as np

from optikit import graphs
from optikit.arrays import from_numpy, resolve_namespace, to_numpy
from optikit.ledger import CommunicationLedger
from optikit.mixing import (
    Cyclic,
    TopologySequence,
    circulant,
    col_stochastic,
    laplacian_gossip,
    max_degree,
    metropolis,
    row_stochastic,
)
from optikit.network import Network


class RandomRounds(TopologySequence):
    """A new random graph each round: aperiodic, so that messages go without persistent requests."""

    kind, period = "mixing", None

    def __init__(self, n):
        self.n = n

    def matrix(self, q):
        return metropolis(graphs.erdos_renyi(self.n, 0.3, seed=q, connected=False))


def topologies():
    random = [metropolis(graphs.erdos_renyi(13, 0.25, seed)) for seed in range(7)]
    directed = graphs.from_edges(
        7, [(0, 3), (3, 0), (3, 6), (6, 5), (5, 1), (1, 2), (2, 4), (4, 0)], directed=True
    )
    return {
        "ring": metropolis(graphs.ring(10)),
        "complete": metropolis(graphs.complete(13)),
        "random rounds of 7": Cyclic(random),
        "exponential": max_degree(graphs.static_exponential(13)),
        "one peer": Cyclic([circulant(11, [(0, 0.5), (2**j, 0.5)]) for j in range(4)]),
        "star": metropolis(graphs.star(9, centre=4)),
        "row": row_stochastic(directed),
        "col": col_stochastic(directed),
        "aperiodic": RandomRounds(13),
        "three agents": metropolis(graphs.path(3)),
        "two agents": metropolis(graphs.path(2)),
        "one agent": metropolis(graphs.ring(1)),
        "no links": metropolis(graphs.from_edges(6, [])),
    }


def compute(communicator=None, debug=False):
    """Results by name, all agents' rows, the same on every rank."""
    results = {}
    for name, topology in topologies().items():
        network = Network(topology, communicator=communicator, debug=debug)
        results |= {f"{name}: {key}": value for key, value in walk(network).items()}
    network = Network(laplacian_gossip(graphs.grid(3, 4)), communicator=communicator)
    X = network.scatter(np.random.default_rng(1).standard_normal((12, 4)))
    for _ in range(20):
        X = X - 0.5 * network.gossip(X)
    results["laplacian"] = network.allgather(X)
    strict = from_numpy(X, resolve_namespace("array_api_strict"))  # staged through the host on several ranks
    assert np.allclose(to_numpy(network.gossip(strict)), network.gossip(X), rtol=0, atol=1e-14)
    assert np.allclose(to_numpy(network.total(strict)), network.total(X), rtol=0, atol=1e-14)
    assert network.mean(strict).shape == (4,)
    assert network.pull(strict).rows.shape == (network.pull(X).rows.shape)
    return results


def walk(network):
    """Rounds of every kind on one network."""
    rng = np.random.default_rng(0)
    n = network.n_agents
    X, Y, Z = (network.scatter(rng.standard_normal(shape)) for shape in ((n, 5), (n, 2, 3), (n,)))
    F = network.scatter(rng.standard_normal((n, 3)).astype(np.float32))
    integers = network.scatter(np.arange(2 * n).reshape(n, 2))
    for _ in range(40):
        X, Y = network.mix(X, Y)
        Z, F = network.mix(Z, F)  # float32 beside float64 in one message
        first = network.imix(X)
        second = network.imix(Y, Z)  # two rounds in flight
        X = first.wait()
        Y, Z = second.wait()
    network.mix(X, out=X)
    mixed = network.mix(integers)
    pulled = network.pull(X)
    heard = np.zeros((network.n_local, 2))
    for k in range(network.n_local):
        entries = slice(pulled.indptr[k], pulled.indptr[k + 1])
        # Order matters to the last bit: what is pulled arrives in the order of the global agents.
        heard[k] = np.cumsum(pulled.vals[entries, None] * pulled.rows[pulled.cols[entries], :2], axis=0)[-1]
    found = {"X": X, "Y": Y, "Z": Z, "F": F, "mixed": mixed, "heard": heard}
    if network.topology.kind == "mixing":
        found["gossip"] = network.gossip(X)
    found = {key: network.allgather(value) for key, value in found.items()}
    assert found["F"].dtype == np.float32
    total, count = network.total(X, np.ones(network.n_local), floats_down=5)
    network.total(F, new_round=False, participants=np.arange(n) % 2 == 0)
    found |= {"total": total, "count": count, "mean": network.mean(Y), "sum": network.sum(Z)}
    found |= {"scalar": network.sum(float(network.n_local)), "max": network.max(X), "min": network.min(Z)}
    found["nan"] = network.max(np.where(network.agents == n - 1, np.nan, 1.0))
    saved = network.state()
    ledger = CommunicationLedger(n)
    ledger.restore(saved["ledger"])
    assert ledger.as_dict() == network.ledger.as_dict()
    counts = network.ledger.as_dict()
    assert (counts.pop("bytes_on_wire") > 0) == (network.size > 1 and n > 0)
    found["ledger"] = np.array(list(counts.values()))
    found["per agent"] = network.ledger.floats_sent_per_agent
    found["round"] = network.round
    return found


if __name__ == "__main__":
    results = compute(debug="debug" in sys.argv)
    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_rank() == 0:
        np.savez(sys.argv[1], **results)
