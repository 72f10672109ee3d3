"""Program of the MPI tests: Local GD and its relatives on several ranks, gathered in an .npz file.

``local_gd.py FILE``; the tests compare FILE written by 1, 2 and 3 ranks with `compute` on one process. Some
problems have two clients, so that one of three ranks holds none.
"""

import sys

import numpy as np

from optikit.agent_data import AgentData
from optikit.generators import random_separable, two_point
from optikit.network import Network
from optikit.objectives import LinearModel
from solvers.federated import LocalGD, LocalGradientFlow, LocalSGD, TwoStageLocalGD, pooled_margin


def ragged():
    """Five clients with 3 to 40 rows: all three ways of local steps at once."""
    data = random_separable(1, 93, 7, seed=4)
    bounds = np.array([0, 3, 20, 60, 64, 93])
    return AgentData(data.features, data.targets, bounds)


def runs():
    two, five = two_point(0.3, 0.5), ragged()
    return {
        "two clients": (two, LocalGD(1.0, 16)),
        "unstable": (two_point(0.1, 0.3), LocalGD(256.0, 64)),
        "ragged": (five, LocalGD(8.0, 5, weights="samples")),
        "weights": (five, LocalGD(8.0, 5, weights=[0.1, 0.2, 0.3, 0.4, 0.0], average=True, margin=False)),
        "practical": (
            five,
            TwoStageLocalGD(4, switch="practical", stage1_step_size=2.0, practical_constant=10.0),
        ),
        "exact": (two_point(0.6, 1.0), TwoStageLocalGD(2, switch_constant=6.0, exact_switch=True)),
        "flow": (five, LocalGradientFlow(4.0, margin=False)),
        "sgd": (five, LocalSGD(2.0, 3, batch_size=2, seed=1, margin=False)),
    }


def compute(communicator=None):
    """Results by name, the same on every rank."""
    results = {}
    for name, (data, solver) in runs().items():
        network = Network(n_agents=data.n_agents, communicator=communicator)
        result = solver.solve(LinearModel(data, "logistic"), network, max_rounds=12)
        results[f"{name}: x"] = result.x
        results[f"{name}: objective"] = result.history["objective"]
        results[f"{name}: floats"] = result.ledger.total_floats
        details = result.certificate.details
        for key in ("gamma", "normalized_margin", "switch_round", "switch_objective", "average"):
            if details.get(key) is not None:
                results[f"{name}: {key}"] = details[key]
    network = Network(n_agents=5, communicator=communicator)
    margin = pooled_margin(network.objective_for(LinearModel(ragged(), "logistic")).data, network)
    results["direction"], results["alpha"] = margin.direction, margin.alpha
    return results


if __name__ == "__main__":
    found = compute()
    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_rank() == 0:
        np.savez(sys.argv[1], **found)
