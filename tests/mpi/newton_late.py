"""Sub-sampled Newton that drops late workers, on ranks: ``newton_late.py CASE [PATH]``."""

import sys
import time

import numpy as np
import pytest
from mpi4py import MPI

from optikit.runtime.timing import Exponential
from solvers.newton import subsampled
from solvers.newton.glm import GLM
from solvers.newton.subsampled import SubsampledNewton

rank = MPI.COMM_WORLD.Get_rank()
rng = np.random.default_rng(0)
X = rng.standard_normal((1201, 6))
y = rng.random(1201) < 1 / (1 + np.exp(-X @ rng.standard_normal(6)))


def glm(workers=6):
    return GLM(X, y, "logistic", l2=1e-3, intercept=True, workers=workers)


def say(*words):
    if rank == 0:
        print(*words, flush=True)


def converges():
    """The optimum of the exact method, the same result on every rank."""
    exact = SubsampledNewton(sketch="exact").solve(glm(), max_rounds=20, tol=1e-12)
    for options in ({"first": 4}, {"first": 6}, {"deadline": 0.5}, {"first": 2, "average": "determinantal"}):
        result = SubsampledNewton(m=80, **options).solve(glm(), max_rounds=200, tol=1e-12)
        assert result.status in ("converged", "finished"), result
        np.testing.assert_allclose(result.x, exact.x, atol=1e-5)
        assert len(set(MPI.COMM_WORLD.allgather(result.x.tobytes()))) == 1
    say("converged")


class SlowOracle(subsampled.DirectionOracle):
    """The worker on the last rank takes its time."""

    def __call__(self, *arguments):
        if rank == MPI.COMM_WORLD.Get_size() - 1:
            time.sleep(0.2)
        return super().__call__(*arguments)


def drops():
    """The slow workers are dropped, and do not hold up the others."""
    from solvers.newton import served

    served.DirectionOracle = SlowOracle
    began = time.perf_counter()
    result = SubsampledNewton(m=80, first=4, step_rule="theory").solve(glm(), max_rounds=30)
    elapsed = time.perf_counter() - began
    if rank == 0:
        dropped = result.state.clock.dropped
        asked = result.state.clock.queries
        assert asked[:4].min() > asked[4:].max(), asked
        say("dropped", dropped, f"in {elapsed:.1f} s, answers asked {asked.tolist()}")


def refuses():
    for options, message in (
        ({"first": 7}, "first must be"),
        ({"first": 2, "service": Exponential()}, "service sets a virtual clock"),
        ({"first": 2, "m": 3, "debias": "none"}, None),
    ):
        if message is None:
            continue
        with pytest.raises(ValueError, match=message):
            SubsampledNewton(**options).solve(glm(), max_rounds=3)
    with pytest.raises(ValueError, match="there are only 2 agents"):
        SubsampledNewton(first=1).solve(glm(2), max_rounds=3)
    say("refused")


def fails():
    """An error of one worker's direction ends all ranks with it."""

    def broken(self, *arguments):
        raise ArithmeticError("no memory at this worker")

    if rank == 2:
        subsampled.DirectionOracle.__call__ = broken
    with pytest.raises(RuntimeError, match="no memory at this worker"):
        SubsampledNewton(m=80, first=6).solve(glm(), max_rounds=5)
    say("told")


def resumes(path):
    whole = SubsampledNewton(m=80, first=4).solve(glm(), max_rounds=100, tol=1e-12)
    solver = SubsampledNewton(m=80, first=4)
    solver.solve(glm(), max_rounds=3, checkpoint=path)
    rest = solver.solve(glm(), max_rounds=100, tol=1e-12, checkpoint=path, resume=True)
    assert rest.iterations > 3
    np.testing.assert_allclose(rest.x, whole.x, atol=1e-5)
    say("resumed")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
