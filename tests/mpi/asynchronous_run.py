"""Program of the MPI tests: ``asynchronous_run.py CASE [ARGUMENT]``, rank 0 serves and prints."""

import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI
from sklearn.datasets import load_breast_cancer

from optikit.agent_data import AgentData
from optikit.objectives import LinearModel, Quadratic
from optikit.runtime.star import workers_of
from solvers.asynchronous.baselines import PIAG, AsynchronousSGD
from solvers.asynchronous.bundle import AsynchronousBundle

rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
OPTIMUM = 0.059829471882


def cancer(n, sparse=False):
    X, y = load_breast_cancer(return_X_y=True)
    X = np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(569)])
    if sparse:
        from scipy.sparse import csr_array

        X = csr_array(np.where(np.abs(X) > 1.0, X, 0.0))
    parts = np.array_split(np.random.default_rng(0).permutation(569), n)
    return LinearModel(AgentData.from_blocks([(X[p], 2.0 * y[p] - 1.0) for p in parts]), "logistic", 1e-3)


class Slowed(LinearModel):
    """Agents that take their time, or fail at a given call."""

    delays = (0.0, 0.0, 0.02)
    fail_at = None
    asked = 0

    def subset(self, agents):
        part = LinearModel.subset(self, agents)
        part.__class__ = type(self)
        return part

    def value_and_gradient(self, X):
        Slowed.asked += 1
        time.sleep(self.delays[int(self.agents[0]) % 3])
        if Slowed.fail_at is not None and rank == 2 and Slowed.asked >= Slowed.fail_at:
            raise ArithmeticError("the disk of this site is full")
        return LinearModel.value_and_gradient(self, X)


def slowed(n):
    model = cancer(n)
    model.__class__ = Slowed
    return model


def say(*words):
    if rank == 0:
        print(*words, flush=True)


def converges(n):
    """The same optimum as on the virtual clock, the certificate, and an exact replay."""
    objective = cancer(int(n))
    solver = AsynchronousBundle(client_weights="samples", L_scale=0.3)
    result = solver.solve(objective, max_rounds=20_000, tol=1e-9)
    assert result.status == "converged"
    assert abs(result.objective - OPTIMUM) <= 1e-9
    assert result.certificate.gap <= 1e-9
    assert result.certificate.lower_bound <= OPTIMUM + 1e-12
    everywhere = MPI.COMM_WORLD.allgather((result.x.tobytes(), result.history["objective"].tobytes()))
    assert len(set(everywhere)) == 1
    if rank == 0:
        trace = result.state.trace
        assert len(trace) == result.iterations
        assert sum(map(len, trace.batches)) + int(n) == result.state.gradients
        curve = result.history["objective"]
        assert np.isfinite(curve).sum() >= 100 or np.isfinite(curve).all()
        polled = result.history["polled_objective"]
        assert np.isfinite(polled).any()
        again = replay(solver, objective, trace)
        np.testing.assert_array_equal(again.x, result.x)
        both = np.isfinite(curve)
        np.testing.assert_allclose(curve[both], again.history["objective"][both], rtol=0, atol=1e-14)
    say("converged", result.iterations)


def replay(solver, objective, trace):
    from optikit.network import Network
    from optikit.runtime.communicator import SerialCommunicator

    alone = Network(n_agents=objective.n_agents, communicator=SerialCommunicator())
    return replace(solver, trace=trace).solve(objective, alone, max_rounds=None, max_iterations=len(trace))


def methods():
    """Every method and form runs on ranks and replays exactly."""
    objective = cancer(3)
    for solver in (
        PIAG(client_weights="samples"),
        AsynchronousSGD(client_weights="samples", step_size=0.01),
        AsynchronousBundle(client_weights="samples", policy="sync"),
        AsynchronousBundle(client_weights="samples", policy="each", weights="smoothness"),
        AsynchronousBundle(client_weights="samples", policy="k_wait", k_wait=2, poll_every=5),
        AsynchronousBundle(client_weights="samples", stochastic="component", batch_size=40, L0="auto"),
        AsynchronousBundle(
            client_weights="samples", stochastic="sampled", batch_size=8, weights="smoothness", eta=0.5
        ),
    ):
        result = solver.solve(objective, max_rounds=150)
        assert result.iterations == 150
        if rank == 0:
            again = replay(solver, objective, result.state.trace)
            np.testing.assert_array_equal(again.x, result.x, err_msg=repr(solver))
        if solver.policy == "sync" and rank == 0:
            assert all(len(batch) == 3 for batch in result.state.trace.batches)
    sparse = AsynchronousBundle(client_weights="samples", L_scale=0.3)
    result = sparse.solve(cancer(3, sparse=True), max_rounds=5000, tol=1e-7)
    assert result.status == "converged"
    say("replayed")


def local_data():
    """Each rank holds its own workers' data alone."""
    whole = cancer(5)
    mine = whole.subset(list(workers_of(rank, size, 5)))
    result = AsynchronousBundle(client_weights="samples").solve(mine, max_rounds=5000, tol=1e-7)
    assert result.status == "converged"
    assert abs(result.objective - OPTIMUM) <= 1e-7
    say("local")


def stops():
    """Twenty runs in a row end cleanly, most with replies in flight."""
    objective = slowed(3)
    for k in range(20):
        idle = ("block", "backoff")[k % 2]
        result = AsynchronousBundle(client_weights="samples", idle=idle).solve(objective, max_rounds=k % 7)
        assert result.iterations == k % 7
    say("stopped")


def stragglers():
    """A slow worker does not hold up the others."""
    result = AsynchronousBundle(client_weights="samples").solve(slowed(3), max_rounds=120)
    if rank == 0:
        replies = np.bincount([w for batch in result.state.trace.batches for w in batch], minlength=3)
        assert replies[2] < 0.5 * replies[0], replies
        assert result.history["staleness"].max() >= 2
    say("went on")


def fails():
    """A worker's exception ends all ranks with that error."""
    Slowed.fail_at = 9
    with pytest.raises(RuntimeError, match="worker 1 failed: ArithmeticError: the disk of this site is full"):
        AsynchronousBundle(client_weights="samples").solve(slowed(3), max_rounds=2000)
    print(f"rank {rank} told", flush=True)


def uncaught():
    """The same in a plain script: the launch ends with the error, nobody hangs."""
    Slowed.fail_at = 9
    AsynchronousBundle(client_weights="samples").solve(slowed(3), max_rounds=2000)


def refuses():
    """Bad input is one error on every rank, and the ranks go on."""
    objective = cancer(3)
    for solver, options, message in (
        (AsynchronousBundle(L0=[1.0, 2.0]), {}, "L0 must be positive"),
        (AsynchronousBundle(client_weights=[1.0]), {}, "client_weights must be 3"),
        (AsynchronousBundle(), {"x0": np.zeros(4)}, "x0 must have shape"),
        (AsynchronousBundle(), {"max_rounds": -1}, "max_rounds must be"),
        (AsynchronousBundle(stochastic="component", batch_size=1000), {}, "batch_size must be at most"),
        (PIAG(rule="fixed"), {}, "max_delay is needed"),
        (AsynchronousBundle(weights=[1e-4] * 3, client_weights="samples"), {}, "weights must exceed"),
    ):
        with pytest.raises(ValueError, match=message):
            solver.solve(objective, **({"max_rounds": 10} | options))
    with pytest.raises(ValueError, match="there are only 2 agents"):
        AsynchronousBundle().solve(cancer(2), max_rounds=10)
    say("refused")


def diverges():
    """Divergence is a status on every rank, with the last finite iterate."""
    H = np.array([np.diag([1.0, 10.0])] * 3)
    objective = Quadratic(H, np.ones((3, 2)))
    result = AsynchronousBundle(model="latest", weights=np.full(3, 1.0)).solve(objective, max_rounds=5000)
    assert result.status == "diverged", result
    assert np.all(np.isfinite(result.x))
    say("diverged")


def checkpoint(path):
    """Stop, resume, and reach the optimum; a resumed run continues from the stored iterate."""
    objective, solver = cancer(3), AsynchronousBundle(client_weights="samples", L_scale=0.3)
    first = solver.solve(objective, max_rounds=40, checkpoint=path, checkpoint_every=10)
    more = solver.solve(objective, max_rounds=41, checkpoint=path, resume=True)
    assert more.iterations == 41
    assert first.iterations == 40
    last = solver.solve(objective, max_rounds=20_000, tol=1e-9, checkpoint=path, resume=True)
    assert last.status == "converged"
    assert last.iterations > 41
    assert abs(last.objective - OPTIMUM) <= 1e-9
    with pytest.raises(ValueError, match="belongs to another run"):
        replace(solver, L_scale=1.0).solve(objective, max_rounds=50, checkpoint=path, resume=True)
    say("resumed")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
