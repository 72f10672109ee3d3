"""decent-bench against optikit: decentralised gradient descent, n = 100 agents, d = 50, quadratics on a ring.

decent-bench needs Python 3.13, so it lives in a virtual environment of its own; this script starts its
interpreter as a second process and compares times of the same run. It is optional:

    python3.13 -m venv peer && peer/bin/pip install decent-bench
    DECENT_BENCH_PYTHON=peer/bin/python python benchmarks/peer_decent_bench.py

Target: one driver-run step of ours is at least 20 times faster. Both must reach the same iterates.
"""

import json
import os
import subprocess
import sys
import tempfile

import _timing  # noqa: F401 (pins threads before NumPy is imported)
import numpy as np
from _timing import best_seconds

from optikit.graphs import ring
from optikit.network import Network
from optikit.objectives import Quadratic
from solvers.decentralized.gradient_descent import DecentralizedGradientDescent

PEER = """
import json, sys, time
import networkx as nx
import numpy as np
from decent_bench.agents import Agent
from decent_bench.algorithms.p2p import DGD
from decent_bench.costs import QuadraticCost
from decent_bench.networks import P2PNetwork
from decent_array import interoperability

interoperability.set_backend("numpy")
asarray = interoperability.asarray

data = np.load(sys.argv[1])
rounds, step = int(sys.argv[2]), float(sys.argv[3])
n = len(data["b"])

def run():
    costs = [QuadraticCost(asarray(A), asarray(-b)) for A, b in zip(data["A"], data["b"])]
    agents = [Agent(cost, state_snapshot_period=10**9) for cost in costs]
    network = P2PNetwork(nx.cycle_graph(n), agents)
    began = time.perf_counter()
    DGD(step_size=step).run(network, rounds)
    seconds = (time.perf_counter() - began) / rounds
    return seconds, np.stack([np.asarray(a.x.value) for a in agents])

best = min(run()[0] for _ in range(3))
seconds, x = run()
json.dump({"seconds": min(best, seconds), "x": x.tolist()}, sys.stdout)
"""

n, d, rounds, step = 100, 50, 60, 0.01
python = os.environ.get("DECENT_BENCH_PYTHON")
if not python:
    sys.exit(
        print(
            "skipped: set DECENT_BENCH_PYTHON to a Python that has decent-bench (see this file's docstring)"
        )
    )
rng = np.random.default_rng(0)
root = rng.standard_normal((n, d, d))
A, b = root @ np.swapaxes(root, 1, 2) / d, rng.standard_normal((n, d))
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "problem.npz")
    np.savez(file, A=A, b=b)
    command = [python, "-c", PEER, file, str(rounds), str(step)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the peer failed:\n{done.stderr}")
    peer = json.loads(done.stdout)

objective, network, solver = Quadratic(A, b), Network(ring(n)), DecentralizedGradientDescent(step)


def ours(record_every: int):
    return solver.solve(objective, network, max_rounds=rounds, record_every=record_every)


difference = float(np.abs(np.array(peer["x"]) - ours(rounds).iterate).max())
seconds = best_seconds({"record once": lambda: ours(rounds), "record every round": lambda: ours(1)})
print(f"largest difference of the iterates after {rounds} rounds: {difference:.1e}")
print(f"decent-bench {peer['seconds'] * 1e3:.3f} ms a round")
for name, value in seconds.items():
    each = value / rounds
    print(f"optikit, {name:<20} {each * 1e3:.4f} ms a round   {peer['seconds'] / each:.0f} x faster")
