"""The driver's cost over the bare loop ``X <- W X - a g(X)``, n = 100 agents, d = 50, quadratics.

The baseline is the loop a careful author would write by hand with NumPy and SciPy; the run goes through
Network, objective, records and stopping rules. Target: at most 1.3 times the bare loop of the same oracle.
"""

import _timing  # noqa: F401 (pins threads before NumPy is imported)
import numpy as np
from _timing import best_seconds, print_ratios

from optikit.graphs import ring
from optikit.network import Network
from optikit.objectives import Quadratic
from solvers.decentralized.gradient_descent import DecentralizedGradientDescent

n, d, rounds, step = 100, 50, 500, 0.01
rng = np.random.default_rng(0)
root = rng.standard_normal((n, d, d))
A, b = root @ np.swapaxes(root, 1, 2) / d, rng.standard_normal((n, d))
objective, network = Quadratic(A, b), Network(ring(n))
W = network.topology.matrix(0).csr
solver = DecentralizedGradientDescent(step)


def hand_written(gradient):
    X = np.zeros((n, d))
    for _ in range(rounds):
        X = W @ X - step * gradient(X)
    return X


def run(**options):
    return solver.solve(objective, network, max_rounds=rounds, **options)


seconds = best_seconds(
    {
        "bare loop, the same oracle": lambda: hand_written(objective.gradient),
        "bare loop, batched matmul": lambda: hand_written(lambda X: (A @ X[:, :, None])[:, :, 0] - b),
        "driver, a record every 100 rounds": lambda: run(record_every=100),
        "driver, a record every 10 rounds": lambda: run(record_every=10),
        "driver, a record every round": lambda: run(),
    },
    repeats=5,
)
per_round = {name: value / rounds for name, value in seconds.items()}
print_ratios("One round", per_round, "bare loop, the same oracle", "driver <= 1.3 x the bare loop")
