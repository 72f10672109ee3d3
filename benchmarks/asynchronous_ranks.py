"""Three workers and a server on MPI ranks, one worker twenty times slower: asynchronous against synchronous.

Started on one process it runs itself under ``mpiexec -n 4``. Least squares at d = 400; workers sleep for
their delays. Printed: the gradients that each server absorbed in three seconds, and how near it came to the
optimum.
"""

import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import _timing  # noqa: F401 (pins threads before NumPy is imported)
import numpy as np

SECONDS, D, ROWS = 3.0, 400, 800
DELAYS = (0.005, 0.005, 0.1)


def problem():
    """Least squares over three agents, whose gradients take `DELAYS`."""
    from optikit.agent_data import AgentData
    from optikit.objectives import LinearModel

    class Slow(LinearModel):
        def subset(self, agents):
            part = LinearModel.subset(self, agents)
            part.__class__ = Slow
            return part

        def value_and_gradient(self, X):
            time.sleep(DELAYS[int(self.agents[0])])
            return LinearModel.value_and_gradient(self, X)

    rng = np.random.default_rng(0)
    w = rng.standard_normal(D)
    blocks = []
    for _ in range(3):
        X = rng.standard_normal((ROWS, D)) * np.logspace(0, -1, D)
        blocks.append((X, X @ w + rng.standard_normal(ROWS)))
    model = LinearModel(AgentData.from_blocks(blocks), "least_squares", 1e-2)
    model.__class__ = Slow
    return model


def main():
    from mpi4py import MPI

    from solvers.asynchronous.bundle import AsynchronousBundle

    comm, model, found = MPI.COMM_WORLD, problem(), {}
    for policy in ("drain", "sync"):
        solver = AsynchronousBundle(client_weights="samples", policy=policy)
        result = solver.solve(model, max_rounds=None, max_seconds=SECONDS, record_every=5)
        found[policy] = result
    if comm.Get_rank():
        return
    best = min(result.objective for result in found.values())
    print(f"\n{SECONDS:g} s, 3 workers, one 20 times slower, d = {D}   (prototype: 397 against 99 gradients)")
    for policy, result in found.items():
        gradients = result.history["gradients"][-1]
        print(
            f"  {policy:<8}{gradients:6.0f} gradients {result.iterations:6d} steps   "
            f"objective - best {result.objective - best:.2e}   certified gap {result.certificate.gap:.2e}"
        )
    ratio = found["drain"].history["gradients"][-1] / found["sync"].history["gradients"][-1]
    print(f"  asynchronous over synchronous: {ratio:.1f} times the gradients")


if __name__ == "__main__":
    if "--rank" in sys.argv:
        main()
    else:
        mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
        if not mpiexec.exists():
            sys.exit("this benchmark needs mpiexec: pip install 'optikit[mpi]'")
        subprocess.run([str(mpiexec), "-n", "4", sys.executable, __file__, "--rank"], check=True, timeout=120)
