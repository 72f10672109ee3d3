"""The distributed subgradient method of disropt 0.1.9 against ours, same L1 regression, 2 agents on 2 ranks.

disropt (GPL) is never imported by optikit. It needs a virtual environment of its own, named here by its
interpreter::

    python -m venv .disropt
    .disropt/bin/pip install --no-deps disropt==0.1.9
    .disropt/bin/pip install numpy scipy autograd cvxpy cvxopt osqp dill mpi4py mpich
    DISROPT_PYTHON=.disropt/bin/python python benchmarks/disropt_dsm.py

It runs one agent per rank and takes the subgradient after averaging, we before: gaps agree closely, not
to the last digit.
"""

import json
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import _timing  # noqa: F401 (pins threads before NumPy is imported)
import numpy as np

ROUNDS, ROWS, D = 1000, 8, 5


def problem():
    """Rows and targets of the two agents."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((2, ROWS, D))
    return A, A @ rng.standard_normal(D) + 0.3 * rng.standard_normal((2, ROWS))


def gap_of(x, A, b):
    return float(np.abs(A @ x - b).mean())


def peer():
    """In disropt's environment, one agent on each of 2 ranks."""
    from disropt.agents import Agent
    from disropt.algorithms.subgradient import SubgradientMethod
    from disropt.functions import Norm, Variable
    from disropt.problems import Problem
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    A, b = problem()
    agent = Agent(in_neighbors=[1 - rank], out_neighbors=[1 - rank], in_weights=[0.5, 0.5])
    x = Variable(D)
    loss = Norm(A[rank].T @ x - b[rank][:, None], order=1) / ROWS
    agent.set_problem(Problem(objective_function=loss))
    algorithm = SubgradientMethod(agent=agent, initial_condition=np.zeros((D, 1)))
    algorithm.run(iterations=20, stepsize=lambda k: 1.0 / np.sqrt(k + 1))
    algorithm = SubgradientMethod(agent=agent, initial_condition=np.zeros((D, 1)))
    comm.Barrier()
    began = time.perf_counter()
    algorithm.run(iterations=ROUNDS, stepsize=lambda k: 1.0 / np.sqrt(k + 1))
    comm.Barrier()
    seconds = time.perf_counter() - began
    mean = sum(comm.allgather(algorithm.get_result())) / 2
    report(rank, "disropt, 2 agents on 2 ranks", seconds, gap_of(np.ravel(mean), A, b))


def ours():
    """In this environment, both agents on however many ranks there are."""
    from optikit.agent_data import AgentData
    from optikit.graphs import complete
    from optikit.network import Network
    from optikit.objectives import LinearModel
    from solvers.decentralized.subgradient import DecentralizedSubgradient

    A, b = problem()
    network = Network(complete(2))
    model = LinearModel(AgentData.from_stacked(A, b), "absolute")
    solver = DecentralizedSubgradient(scale=1.0, output="last")
    solver.solve(model, network, max_rounds=20)
    began = time.perf_counter()
    result = solver.solve(model, network, max_rounds=ROUNDS, record_every=ROUNDS)
    seconds = time.perf_counter() - began
    where = f"ours, 2 agents on {network.size} rank{'s' * (network.size > 1)}"
    report(network.rank, where, seconds, gap_of(np.asarray(result.x), A, b))


def report(rank, name, seconds, value):
    """One line of JSON from the first rank."""
    if rank == 0:
        print(json.dumps({"name": name, "ms": 1e3 * seconds / ROUNDS, "value": value}))


def launch(python, role, ranks):
    """Run one role on ranks; the row it reports."""
    command = [python, __file__, role]
    if ranks > 1:
        mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
        if role == "peer":
            mpiexec = Path(python).absolute().parent / "mpiexec"
        command = [str(mpiexec), "-n", str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    """The table, or how to get disropt."""
    python = os.environ.get("DISROPT_PYTHON")
    if python is None:
        print("DISROPT_PYTHON does not name an interpreter with disropt: skipped (see this file)")
        return
    rows = [
        launch(python, "peer", 2),
        launch(sys.executable, "ours", 2),
        launch(sys.executable, "ours", 1),
    ]
    print(f"One iteration of the distributed subgradient method, L1 regression, d={D}, {ROUNDS} iterations")
    for row in rows:
        ratio = rows[0]["ms"] / row["ms"]
        print(f"  {row['name']:<32} {row['ms']:9.4f} ms   {ratio:8.1f} x disropt   f = {row['value']:.6f}")


if __name__ == "__main__":
    {"peer": peer, "ours": ours}.get(sys.argv[1] if len(sys.argv) > 1 else "", main)()
