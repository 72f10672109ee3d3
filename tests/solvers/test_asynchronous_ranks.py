"""Asynchronous methods on MPI ranks: rank 0 serves, the others answer (programs in tests/mpi)."""

from pathlib import Path

import pytest

from optikit.runtime.star import workers_of

PROGRAM = Path(__file__).parents[1] / "mpi" / "asynchronous_run.py"
pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(("ranks", "agents"), [(2, 3), (4, 3), (4, 9)])
def test_ranks_reach_the_optimum_of_the_virtual_clock_and_replay_exactly(mpi_run, ranks, agents):
    assert "converged" in mpi_run(ranks, PROGRAM, "converges", agents).stdout


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("methods", "replayed"),
        ("local_data", "local"),
        ("stops", "stopped"),
        ("stragglers", "went on"),
        ("refuses", "refused"),
        ("diverges", "diverged"),
    ],
)
def test_asynchronous_case(mpi_run, case, said):
    assert said in mpi_run(4, PROGRAM, case).stdout


def test_an_exception_of_a_worker_reaches_every_rank(mpi_run):
    done = mpi_run(4, PROGRAM, "fails")
    assert all(f"rank {rank} told" in done.stdout for rank in range(4))


def test_an_uncaught_exception_of_a_worker_ends_the_launch(mpi_run):
    done = mpi_run(4, PROGRAM, "uncaught", check=False, timeout=60)
    assert done.returncode != 0
    assert "the disk of this site is full" in done.stderr


def test_a_run_on_ranks_resumes_from_its_checkpoint(mpi_run, tmp_path):
    assert "resumed" in mpi_run(3, PROGRAM, "checkpoint", tmp_path / "run.npz").stdout


def test_workers_are_blocked_over_the_ranks_after_the_server():
    assert [list(workers_of(rank, 4, 5)) for rank in range(4)] == [[], [0], [1, 2], [3, 4]]
    with pytest.raises(ValueError, match="there are only 2 agents"):
        workers_of(0, 4, 2)
