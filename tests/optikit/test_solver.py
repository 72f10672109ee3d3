"""The driver: stopping, records, divergence, callbacks, interruption, checkpoints."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from optikit.checkpoint import CheckpointError, read_checkpoint
from optikit.graphs import complete, ring
from optikit.network import Network
from optikit.objectives import Quadratic
from optikit.result import History
from optikit.solver import IterativeSolver, replicated
from solvers.decentralized.gradient_descent import DecentralizedGradientDescent

PROGRAM = Path(__file__).parents[1] / "mpi" / "checkpointed_run.py"


def quadratics(n=6, d=3, seed=0):
    """Random well-conditioned quadratics; the mean's minimiser in closed form."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, d, d))
    matrices = root @ np.swapaxes(root, 1, 2) / d + np.eye(d)
    linear = rng.standard_normal((n, d))
    return Quadratic(matrices, linear), np.linalg.solve(matrices.sum(0), linear.sum(0))


@dataclass(frozen=True)
class ScalarState:
    x: object = replicated()
    count: int = replicated(default=0)


@dataclass(frozen=True)
class Halving(IterativeSolver):
    """x <- factor x: every quantity of the run is known in closed form."""

    name = "halving"
    stacked = False
    needs_topology = False
    criterion = "objective"

    factor: float = 0.5

    def init(self, objective, network, x0):
        return ScalarState(x0)

    def step(self, objective, network, state):
        network.total(np.zeros((network.n_local, 1)))
        return ScalarState(self.factor * state.x, state.count + 1)

    def iterate(self, state):
        return state.x

    def metrics(self, objective, network, state, *, final=False):
        return {"objective": float(state.x @ state.x)}


def halve(factor=0.5, **options):
    objective, _ = quadratics(2, 1)
    return Halving(factor).solve(objective, Network(n_agents=2), np.array([1.0]), **options)


def test_decentralised_gradient_descent_reaches_its_own_fixed_point():
    # DGD's fixed point solves (I - W) X + a grad f(X) = 0: a linear system for quadratics.
    objective, _ = quadratics()
    network, step = Network(ring(6)), 0.05
    W = network.topology.matrix(0).csr.toarray()
    A, b = objective.A, objective.b
    n, d = b.shape
    system = np.kron(np.eye(n) - W, np.eye(d))
    for i in range(n):
        system[i * d : (i + 1) * d, i * d : (i + 1) * d] += step * A[i]
    expected = np.linalg.solve(system, step * b.ravel()).reshape(n, d)
    result = DecentralizedGradientDescent(step).solve(objective, network, max_rounds=3000)
    np.testing.assert_allclose(result.iterate, expected, atol=1e-12)
    assert result.status == "max_rounds"
    assert result.ledger.total_floats == 3000 * 6 * 2 * 3


def test_tolerance_ends_the_run_at_the_first_round_that_meets_it():
    result = halve(tol=1e-6)  # 4^-k <= 1e-6 first at k = 10
    assert (result.status, result.iterations, result.success) == ("converged", 10, True)
    assert result.objective == 4.0**-10


@pytest.mark.parametrize(
    ("options", "status", "iterations"),
    [
        ({"max_rounds": 7}, "max_rounds", 7),
        ({"max_rounds": 0}, "max_rounds", 0),
        ({"max_iterations": 5}, "max_iterations", 5),
        ({"max_floats": 12.0}, "budget", 6),  # two agents send one float per round
        ({"max_seconds": 0.0}, "budget", 0),
        ({"callback": lambda progress: progress.iteration == 3}, "callback", 3),
    ],
)
def test_each_limit_ends_the_run_with_its_own_status(options, status, iterations):
    result = halve(**options)
    assert (result.status, result.iterations) == (status, iterations)
    assert result.x[0] == 0.5**iterations


def test_stop_iteration_in_a_callback_stops():
    def callback(progress):
        raise StopIteration

    assert halve(callback=callback).status == "callback"


def test_a_run_without_progress_stalls():
    result = halve(factor=1.0, max_stall=4)
    assert (result.status, result.iterations, result.success) == ("stalled", 4, False)


def test_divergence_returns_the_last_finite_state():
    result = halve(factor=1e30, max_rounds=1000)
    assert result.status == "diverged"
    assert not result.success
    assert np.isfinite(result.x).all()
    assert np.isfinite(result.history["objective"][:-1]).all()


def test_records_follow_the_asked_interval_and_keep_both_ends():
    assert halve(max_rounds=10, record_every=4).history["iteration"].tolist() == [0, 4, 8, 10]
    logarithmic = halve(max_rounds=1000, record_every="log").history["iteration"]
    assert logarithmic[0] == 0
    assert logarithmic[-1] == 1000
    assert len(logarithmic) < 100
    assert np.all(np.diff(logarithmic) > 0)


def test_tests_of_the_tolerance_need_not_wait_for_a_record():
    assert halve(tol=1e-6, record_every=1000, check_every=1).iterations == 10


def test_history_is_bounded_evenly_sampled_and_keeps_the_last_record():
    history = History(capacity=16)
    for k in range(1000):
        history.append({"k": k}, last=k == 999)
    kept = history["k"]
    assert len(history) <= 16
    assert kept[0] == 0
    assert kept[-1] == 999
    assert len(set(np.diff(kept[:-1]))) == 1


def test_history_fills_missing_quantities_with_nan():
    history = History()
    history.append({"a": 1.0})
    history.append({"a": 2.0, "b": 3.0})
    history.append({"b": 4.0})
    np.testing.assert_array_equal(history["a"], [1.0, 2.0, np.nan])
    np.testing.assert_array_equal(history["b"], [np.nan, 3.0, 4.0])
    assert history.to_dataframe().shape == (3, 2)
    with pytest.raises(KeyError, match="it has a, b"):
        history["c"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rounds": -1}, "max_rounds must be an integer >= 0"),
        ({"max_rounds": 2.5}, "max_rounds must be an integer"),
        ({"tol": math.nan}, "tol must be a finite number >= 0"),
        ({"record_every": "sometimes"}, "record_every must be a positive integer or 'log'"),
        ({"record_every": 0}, "record_every must be an integer >= 1"),
        ({"max_rounds": None}, "a run needs an end"),
        ({"resume": True}, "needs checkpoint"),
        ({"checkpoint": "/nonexistent-folder/run.npz"}, "checkpoint must lie in an existing folder"),
        ({"checkpoint": "/"}, "checkpoint must be a file"),
        ({"checkpoint": os.devnull}, "checkpoint must be a file"),
    ],
)
def test_bad_options_are_named_before_any_work(options, message):
    with pytest.raises(ValueError, match=message):
        halve(**options)


def test_mismatched_problem_network_and_start_are_refused():
    objective, _ = quadratics()
    solver = DecentralizedGradientDescent(0.1)
    with pytest.raises(ValueError, match="pass network="):
        solver.solve(objective)
    with pytest.raises(ValueError, match="its network needs a graph"):
        solver.solve(objective, Network(n_agents=6))
    with pytest.raises(ValueError, match="same agents, got 6 and 5"):
        solver.solve(objective, Network(ring(5)))
    with pytest.raises(ValueError, match=r"x0 must have shape \(3,\) or \(6, 3\), got \(4,\)"):
        solver.solve(objective, Network(ring(6)), np.zeros(4))
    with pytest.raises(ValueError, match="x0 must be finite"):
        solver.solve(objective, Network(ring(6)), np.full(3, np.nan))
    with pytest.raises(ValueError, match="no optimality measure"):
        solver.solve(objective, Network(ring(6)), tol=1e-3)
    with pytest.raises(ValueError, match="step_size must be a finite number > 0, got -1"):
        DecentralizedGradientDescent(-1.0)


def test_other_objects_than_objectives_and_networks_are_named():
    objective, _ = quadratics()
    solver = DecentralizedGradientDescent(0.1)
    with pytest.raises(TypeError, match=r"objective must be an Objective .*, got ndarray"):
        solver.solve(np.zeros(3), Network(ring(6)))
    with pytest.raises(TypeError, match=r"network must be a Network, got Graph; use Network\(graph\)"):
        solver.solve(objective, ring(6))


def test_a_network_is_reset_so_that_every_run_starts_at_round_zero():
    objective, _ = quadratics()
    network = Network(ring(6))
    first = DecentralizedGradientDescent(0.1).solve(objective, network, max_rounds=5)
    second = DecentralizedGradientDescent(0.1).solve(objective, network, max_rounds=5)
    assert second.rounds == 5
    assert first.ledger.rounds == 5
    np.testing.assert_array_equal(first.x, second.x)


def test_the_starting_point_is_not_modified():
    objective, _ = quadratics()
    x0 = np.ones((6, 3))
    DecentralizedGradientDescent(0.1).solve(objective, Network(ring(6)), x0, max_rounds=3)
    assert np.all(x0 == 1.0)


def test_ctrl_c_returns_the_partial_result():
    def press(progress):
        if progress.iteration == 3:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    result = halve(callback=press, max_rounds=100)
    assert result.status == "interrupted"
    assert result.iterations in (3, 4)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_between_records_is_seen_too():
    @dataclass(frozen=True)
    class Pressing(Halving):
        def step(self, objective, network, state):
            if state.count == 5:
                os.kill(os.getpid(), signal.SIGINT)
            return super().step(objective, network, state)

    objective, _ = quadratics(2, 1)
    result = Pressing().solve(objective, None, np.array([1.0]), max_rounds=100_000, record_every=100_000)
    assert result.status == "interrupted"
    assert result.iterations <= 7


def test_a_resumed_run_ends_with_the_iterates_and_records_of_an_uninterrupted_one(tmp_path):
    objective, _ = quadratics()
    solver, network = DecentralizedGradientDescent(0.1), Network(ring(6))
    whole = solver.solve(objective, network, max_rounds=50)
    path = tmp_path / "run.npz"
    solver.solve(objective, network, max_rounds=23, checkpoint=path)
    resumed = solver.solve(objective, network, max_rounds=50, checkpoint=path, resume=True)
    np.testing.assert_array_equal(resumed.iterate, whole.iterate)
    np.testing.assert_array_equal(resumed.history["round"], whole.history["round"])
    np.testing.assert_array_equal(resumed.history["objective"], whole.history["objective"])
    assert resumed.ledger.as_dict() == whole.ledger.as_dict()
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]


def test_a_checkpoint_of_another_problem_method_or_network_is_refused(tmp_path):
    objective, _ = quadratics()
    path = tmp_path / "run.npz"
    options = {"max_rounds": 5, "checkpoint": path}
    DecentralizedGradientDescent(0.1).solve(objective, Network(ring(6)), **options)
    options |= {"resume": True}
    with pytest.raises(CheckpointError, match="belongs to another run"):
        DecentralizedGradientDescent(0.2).solve(objective, Network(ring(6)), **options)
    other, _ = quadratics(seed=1)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        DecentralizedGradientDescent(0.1).solve(other, Network(ring(6)), **options)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        DecentralizedGradientDescent(0.1).solve(objective, Network(complete(6)), **options)


@pytest.mark.parametrize("content", [b"", b"not a zip archive", b"PK\x03\x04 torn"])
def test_an_unreadable_checkpoint_is_named(tmp_path, content):
    path = tmp_path / "run.npz"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"run\.npz is not a readable optikit checkpoint"):
        halve(checkpoint=path, resume=True)


def test_a_checkpoint_of_a_later_format_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    np.savez(path, header=np.array(json.dumps({"version": 999})))
    with pytest.raises(CheckpointError, match="format 999"):
        read_checkpoint(path)


def test_resume_without_a_file_starts_from_the_beginning(tmp_path):
    assert halve(max_rounds=3, checkpoint=tmp_path / "run.npz", resume=True).iterations == 3


def test_a_run_killed_at_any_moment_resumes_to_the_same_iterates(tmp_path):
    reference, path = tmp_path / "reference.npy", tmp_path / "run.npz"
    subprocess.run([sys.executable, PROGRAM, "none", reference, "400"], check=True, timeout=120)
    kills = 0
    for delay in (0.02, 0.05, 0.01, 0.08, 0.03):
        command = [sys.executable, PROGRAM, path, tmp_path / "out.npy", "400", "0.002"]
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # the loop has begun
        time.sleep(delay)
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        process.stdout.close()
    assert kills == 5
    subprocess.run([sys.executable, PROGRAM, path, tmp_path / "out.npy", "400"], check=True, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.load(reference))
    header, _ = read_checkpoint(path)
    assert header["iteration"] == 400


@pytest.mark.mpi
def test_ranks_give_the_iterates_of_one_and_resume_on_another_number_of_ranks(tmp_path, mpi_run):
    outputs = {}
    for ranks in (1, 2, 3):
        outputs[ranks] = tmp_path / f"ranks{ranks}.npy"
        mpi_run(ranks, PROGRAM, "none", outputs[ranks], 120)
    expected = np.load(outputs[1])
    np.testing.assert_array_equal(np.load(outputs[2]), expected)
    np.testing.assert_array_equal(np.load(outputs[3]), expected)
    path = tmp_path / "run.npz"
    mpi_run(3, PROGRAM, path, tmp_path / "part.npy", 60)
    mpi_run(2, PROGRAM, path, tmp_path / "rest.npy", 120)
    np.testing.assert_array_equal(np.load(tmp_path / "rest.npy"), expected)


@pytest.mark.mpi
def test_a_run_on_two_ranks_that_is_killed_resumes_to_the_same_iterates(tmp_path, mpi_run):
    mpi_run(2, PROGRAM, "none", tmp_path / "reference.npy", 200)
    path = tmp_path / "run.npz"
    killed = mpi_run(2, PROGRAM, path, tmp_path / "out.npy", 200, 0.001, 137, check=False)
    assert killed.returncode != 0
    assert 0 < read_checkpoint(path)[0]["iteration"] < 200
    mpi_run(2, PROGRAM, path, tmp_path / "out.npy", 200)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.load(tmp_path / "reference.npy"))


@pytest.mark.mpi
def test_an_error_on_one_rank_ends_all_ranks_with_that_error(tmp_path, mpi_run):
    done = mpi_run(3, PROGRAM, "none", tmp_path / "out.npy", 50, 0, 20, "raise", check=False, timeout=60)
    assert done.returncode != 0
    assert "ZeroDivisionError: rank 1 fails at iteration 20" in done.stderr
