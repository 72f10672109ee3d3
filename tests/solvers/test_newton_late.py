"""Sub-sampled Newton that averages over the first workers to answer: virtual clock and MPI ranks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optikit.runtime.timing import Exponential, Scripted, Ticks
from solvers.newton.glm import GLM
from solvers.newton.subsampled import SubsampledNewton

PROGRAM = Path(__file__).parents[1] / "mpi" / "newton_late.py"


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1201, 6))
    y = rng.random(1201) < 1 / (1 + np.exp(-X @ rng.standard_normal(6)))
    return GLM(X, y, "logistic", l2=1e-3, intercept=True, workers=6)


def test_waiting_for_all_is_the_average_over_all(problem):
    plain = SubsampledNewton(m=80, sketch="less_uniform").solve(problem, max_rounds=None, max_iterations=5)
    late = SubsampledNewton(m=80, sketch="less_uniform", first=6)
    served = late.solve(problem, max_rounds=None, max_iterations=5)
    np.testing.assert_allclose(served.x, plain.x, rtol=1e-9)
    assert served.state.clock.dropped == 0


def test_an_iteration_takes_the_time_of_the_worker_waited_for(problem):
    # Workers of 1 to 6 ticks; the first three of an idle pool answer at 3.
    solver = SubsampledNewton(m=80, first=3, service=Ticks([1, 2, 3, 4, 5, 6]), step_rule="theory")
    result = solver.solve(problem, max_rounds=None, max_iterations=1)
    assert result.state.clock.now == 3.0
    # In the second iteration (from 3) the fast ones answer at 4, 5 and 6; the late answers of workers 4 and 5
    # come at 4 and 5 and are dropped, the third at 6 ends the iteration.
    second = solver.solve(problem, max_rounds=None, max_iterations=2)
    assert second.state.clock.now == 6.0
    assert second.state.clock.dropped == 2


def test_a_deadline_takes_what_has_arrived(problem):
    solver = SubsampledNewton(m=80, deadline=2.5, service=Ticks([1, 2, 30, 40, 50, 60]))
    result = solver.solve(problem, max_rounds=None, max_iterations=1)
    assert result.state.clock.now == 2.5
    assert (result.state.clock.busy_with < 0).sum() == 2
    # Nothing in by the deadline: the first answer ends the iteration.
    slow = SubsampledNewton(m=80, deadline=0.5, service=Ticks([1, 2, 30, 40, 50, 60]))
    assert slow.solve(problem, max_rounds=None, max_iterations=1).state.clock.now == 1.0


def test_dropping_workers_costs_variance_only(problem):
    # kappa is divided by the number that arrived: the error of one step grows like one over it.
    exact = SubsampledNewton(sketch="exact").solve(problem, max_rounds=30, tol=1e-14)
    start = exact.x + 1e-3

    def error(first):
        found = []
        for seed in range(40):
            solver = SubsampledNewton(
                m=60,
                first=first,
                seed=seed,
                step_rule=1.0,
                sketch="less_uniform",
                service=Exponential(1.0, seed),
            )
            x = solver.solve(problem, x0=start, max_rounds=None, max_iterations=1).x
            found.append(np.sum((x - exact.x) ** 2))
        return np.mean(found)

    assert 1.5 < error(1) / error(2) < 2.7
    assert 2.0 < error(2) / error(6) < 4.2


def test_late_workers_do_not_stop_convergence(problem):
    exact = SubsampledNewton(sketch="exact").solve(problem, max_rounds=30, tol=1e-14)
    for average in ("mean", "determinantal"):
        solver = SubsampledNewton(m=80, first=2, average=average, service=Exponential(1.0, 3))
        result = solver.solve(problem, max_rounds=300, tol=1e-12)
        assert result.status == "converged"
        np.testing.assert_allclose(result.x, exact.x, atol=1e-5)
        assert result.history["dropped"][-1] > 0


def test_a_resumed_run_is_the_uninterrupted_one(problem, tmp_path):
    solver, path = SubsampledNewton(m=80, first=2, service=Exponential(1.0, 3)), tmp_path / "run.npz"
    whole = solver.solve(problem, max_rounds=12)
    solver.solve(problem, max_rounds=5, checkpoint=path)
    rest = solver.solve(problem, max_rounds=12, checkpoint=path, resume=True)
    np.testing.assert_allclose(rest.x, whole.x, rtol=1e-11)  # margins are computed anew: rounding
    assert rest.state.clock.now == whole.state.clock.now
    with pytest.raises(ValueError, match="belongs to another run"):
        replace(solver, service=Exponential(1.0, 4)).solve(
            problem, max_rounds=12, checkpoint=path, resume=True
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": 0}, "first must be"),
        ({"deadline": 0.0}, "deadline must be"),
        ({"first": 2, "mode": "local"}, "are for mode='independent'"),
        ({"first": 2, "refresh": 3}, "need fresh scores"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SubsampledNewton(**options)


def test_what_does_not_fit_the_workers_is_named(problem):
    with pytest.raises(ValueError, match="first must be"):
        SubsampledNewton(first=7).solve(problem)
    with pytest.raises(ValueError, match="one per worker, 6, got 2"):
        SubsampledNewton(first=2, service=Ticks([1, 2])).solve(problem)
    with pytest.raises(ValueError, match="service times must be finite"):
        SubsampledNewton(m=80, first=2, service=Scripted(lambda q, w: -1.0)).solve(problem)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("case", "said"),
    [("converges", "converged"), ("drops", "dropped"), ("refuses", "refused"), ("fails", "told")],
)
def test_late_workers_on_ranks(mpi_run, case, said):
    assert said in mpi_run(4, PROGRAM, case).stdout


@pytest.mark.mpi
def test_a_run_on_ranks_resumes(mpi_run, tmp_path):
    assert "resumed" in mpi_run(3, PROGRAM, "resumes", tmp_path / "run.npz").stdout
