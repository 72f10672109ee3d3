"""Communicators, blocks of agents, and errors that end all ranks."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optikit.runtime.communicator import (
    Communicator,
    SerialCommunicator,
    abort_on_error,
    abort_on_uncaught,
    block_of,
    default_communicator,
    launched_size,
)

FAILURES = Path(__file__).parents[1] / "mpi" / "failures.py"


@given(size=st.integers(1, 40), n=st.integers(0, 200))
def test_blocks_partition_the_agents_evenly(size, n):
    blocks = [block_of(rank, size, n) for rank in range(size)]
    assert [agent for block in blocks for agent in block] == list(range(n))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
    assert all(block.start == n * rank // size for rank, block in enumerate(blocks))


@pytest.mark.parametrize(("rank", "size", "n"), [(2, 2, 5), (-1, 2, 5), (0, 1, -1)])
def test_blocks_refuse_impossible_ranks(rank, size, n):
    with pytest.raises(ValueError):
        block_of(rank, size, n)


def test_one_rank_reduces_to_itself():
    comm = SerialCommunicator()
    assert isinstance(comm, Communicator)
    assert (comm.Get_rank(), comm.Get_size(), comm.rank, comm.size) == (0, 1, 0, 1)
    send, receive = np.arange(3.0), np.zeros(3)
    for call in (comm.Allreduce, comm.Reduce, comm.Allgather, comm.Allgatherv, comm.Gatherv, comm.Alltoall):
        receive[:] = 0
        call(send, [receive, (3,), (0,)])
        assert np.array_equal(receive, send)
    comm.Allreduce(None, receive)
    assert np.array_equal(receive, send)
    assert comm.bcast(5) == comm.allreduce(5) == comm.scatter([5]) == comm.reduce(5) == 5
    assert comm.gather(5) == comm.allgather(5) == comm.alltoall([5]) == [5]
    comm.Bcast(send)
    comm.Barrier()
    with pytest.raises(ValueError, match="at least 3 items"):
        comm.Allreduce(send, np.zeros(2))
    with pytest.raises(RuntimeError, match="no rank to exchange"):
        comm.Isend(send, dest=1)
    with pytest.raises(SystemExit):
        comm.Abort(3)


def test_mpi_in_place_is_understood():
    MPI = pytest.importorskip("mpi4py.MPI")
    buffer = np.arange(3.0)
    SerialCommunicator().Allreduce(MPI.IN_PLACE, buffer, op=MPI.SUM)
    assert np.array_equal(buffer, [0, 1, 2])
    assert isinstance(MPI.COMM_SELF, Communicator)


@pytest.fixture
def no_launcher(monkeypatch):
    for prefix in ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_"):
        for name in ("RANK", "SIZE"):
            monkeypatch.delenv(prefix + name, raising=False)
    for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({}, 1),
        ({"PMI_RANK": "0", "PMI_SIZE": "3"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 2),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, 4),
        # An sbatch script outside srun: the job has four tasks, this step has one.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"}, 1),
    ],
)
def test_launchers_are_recognised(no_launcher, variables, size):
    for name, value in variables.items():
        no_launcher.setenv(name, value)
    assert launched_size() == size


def test_without_a_launcher_the_communicator_is_serial(no_launcher):
    assert isinstance(default_communicator(), SerialCommunicator)


def test_on_one_rank_errors_pass_through():
    with pytest.raises(KeyError), abort_on_error(SerialCommunicator()):
        raise KeyError("x")
    import sys

    before = sys.excepthook
    abort_on_uncaught(SerialCommunicator())
    assert sys.excepthook is before


@pytest.mark.mpi
@pytest.mark.parametrize("case", ["guarded_error", "uncaught_error"])
def test_an_error_on_one_rank_ends_all_ranks_with_that_error(mpi_run, case):
    done = mpi_run(3, FAILURES, case, check=False, timeout=60)
    assert done.returncode != 0
    assert "rank 1 of 3 ends all ranks" in done.stderr
    assert "Traceback" in done.stderr
    assert "ArithmeticError: the oracle of rank 1 failed" in done.stderr


@pytest.mark.mpi
def test_bad_input_on_one_rank_ends_all_ranks(mpi_run):
    done = mpi_run(2, FAILURES, "refused_on_one_rank", check=False, timeout=60)
    assert done.returncode != 0
    assert "backend must be" in done.stderr


@pytest.mark.mpi
def test_a_clean_exit_is_no_error(mpi_run):
    assert mpi_run(2, FAILURES, "clean_exit", timeout=60).returncode == 0


@pytest.mark.mpi
@pytest.mark.parametrize("case", ["other_agents", "other_topology", "other_rounds", "other_width"])
def test_ranks_that_disagree_are_refused_on_every_rank(mpi_run, case):
    done = mpi_run(2, FAILURES, case, timeout=60)
    assert "rank 0 refused" in done.stdout
    assert "rank 1 refused" in done.stdout
