"""Communicators: mpi4py's own interface, and a one-rank stand-in where MPI is absent.

optikit calls the subset of ``mpi4py.MPI.Comm`` that `Communicator` lists, under mpi4py's names and with
its meaning, so ``MPI.COMM_WORLD`` (or any communicator of the user's) *is* one. `SerialCommunicator`
implements the same calls for a single process without importing mpi4py.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

import numpy as np

# Rank and size variables of the launchers in use: Hydra (MPICH, Intel MPI), Open MPI, MVAPICH2, PMIx (Flux,
# PRRTE) and Slurm. Inside an sbatch script Slurm sets NTASKS of the whole job, but the step has one task.
_LAUNCHERS = (
    ("PMI_RANK", ("PMI_SIZE",)),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    ("MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",)),
    ("PMIX_RANK", ("PMIX_SIZE",)),
    ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)


@runtime_checkable
class Communicator(Protocol):
    """What optikit calls of ``mpi4py.MPI.Comm``: upper case moves buffers, lower case moves small objects."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def Get_rank(self) -> int: ...
    def Get_size(self) -> int: ...
    def Barrier(self) -> None: ...
    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = ...) -> None: ...
    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None: ...
    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None: ...
    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = ...) -> None: ...
    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None: ...
    def Bcast(self, buf: Any, root: int = ...) -> None: ...
    def bcast(self, obj: Any, root: int = ...) -> Any: ...
    def allreduce(self, sendobj: Any, op: Any = ...) -> Any: ...
    def gather(self, sendobj: Any, root: int = ...) -> Any: ...
    def allgather(self, sendobj: Any) -> Any: ...
    def Abort(self, errorcode: int = ...) -> None: ...


def _buffer(specification: Any) -> np.ndarray | None:
    """The array of an mpi4py buffer specification ``array`` or ``[array, ...]``; None for IN_PLACE."""
    if isinstance(specification, (list, tuple)):
        specification = specification[0]
    if specification is None or isinstance(specification, int):  # None and MPI.IN_PLACE
        return None
    return np.asarray(specification)


def _copy(sendbuf: Any, recvbuf: Any) -> None:
    source, target = _buffer(sendbuf), _buffer(recvbuf)
    if source is None or target is None:
        return
    if target.size < source.size:
        raise ValueError(f"recvbuf must hold at least {source.size} items, got {target.size}.")
    target.reshape(-1)[: source.size] = source.reshape(-1)


class SerialCommunicator:
    """One rank: the calls of `Communicator` as a single process sees them.

    Reductions and gathers copy the send buffer to the receive buffer; ``None`` or ``MPI.IN_PLACE`` as send
    buffer leaves the receive buffer alone. Point-to-point calls have no partner on one rank and raise.
    """

    rank = 0
    size = 1

    def Get_rank(self) -> int:
        """Number of this process: 0."""
        return 0

    def Get_size(self) -> int:
        """Number of processes: 1."""
        return 1

    def Barrier(self) -> None:
        """Return at once."""

    def Dup(self) -> SerialCommunicator:
        """Another communicator of the same single process."""
        return SerialCommunicator()

    def Free(self) -> None:
        """Nothing to free."""

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        """Copy `sendbuf` to `recvbuf`: every reduction over one rank is the identity."""
        _copy(sendbuf, recvbuf)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Any = None, root: int = 0) -> None:
        """Copy `sendbuf` to `recvbuf`."""
        _copy(sendbuf, recvbuf)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Copy `sendbuf` to `recvbuf`."""
        _copy(sendbuf, recvbuf)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Copy `sendbuf` to `recvbuf`."""
        _copy(sendbuf, recvbuf)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Copy `sendbuf` to `recvbuf`."""
        _copy(sendbuf, recvbuf)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Copy `sendbuf` to `recvbuf`."""
        _copy(sendbuf, recvbuf)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Copy `sendbuf` to `recvbuf`."""
        _copy(sendbuf, recvbuf)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Leave `buf` as it is: the only rank is the root."""

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Return `obj`."""
        return obj

    def allreduce(self, sendobj: Any, op: Any = None) -> Any:
        """Return `sendobj`."""
        return sendobj

    def reduce(self, sendobj: Any, op: Any = None, root: int = 0) -> Any:
        """Return `sendobj`."""
        return sendobj

    def gather(self, sendobj: Any, root: int = 0) -> list[Any]:
        """Return ``[sendobj]``."""
        return [sendobj]

    def allgather(self, sendobj: Any) -> list[Any]:
        """Return ``[sendobj]``."""
        return [sendobj]

    def scatter(self, sendobj: Any, root: int = 0) -> Any:
        """Return the only item of `sendobj`."""
        return sendobj[0]

    def alltoall(self, sendobj: Any) -> list[Any]:
        """Return ``list(sendobj)``."""
        return list(sendobj)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Any:
        """Raise: one rank has nobody to send to."""
        raise self._no_partner(dest)

    Send = Send_init = Isend

    def Irecv(self, buf: Any, source: int = -1, tag: int = -1) -> Any:
        """Raise: one rank has nobody to receive from."""
        raise self._no_partner(source)

    Recv = Recv_init = Irecv

    @staticmethod
    def _no_partner(rank: int) -> RuntimeError:
        return RuntimeError(
            f"a serial communicator has no rank to exchange messages with, got rank {rank!r}."
        )

    def Abort(self, errorcode: int = 1) -> None:
        """End the process with `errorcode`."""
        raise SystemExit(errorcode)

    def __repr__(self) -> str:
        return "SerialCommunicator()"


def launched_size() -> int:
    """Number of ranks that an MPI launcher's environment variables announce; 1 without a launcher."""
    for rank_variable, size_variables in _LAUNCHERS:
        if rank_variable in os.environ:
            for variable in size_variables:
                value = os.environ.get(variable, "")
                if value.isdigit():
                    return int(value)
            if rank_variable == "PMIX_RANK":  # PMIx need not export its size: ask MPI
                return 2
    return 1


_chosen: ContextVar[Any] = ContextVar("chosen communicator", default=None)


@contextmanager
def using_communicator(communicator: Any) -> Iterator[None]:
    """Make `communicator` the `default_communicator` inside the body.

    For programs that spread independent runs over the ranks: there each rank solves problems of its own,
    on a `SerialCommunicator`.
    """
    token = _chosen.set(communicator)
    try:
        yield
    finally:
        _chosen.reset(token)


def default_communicator() -> Any:
    """``MPI.COMM_WORLD`` when several ranks were launched, else a `SerialCommunicator`.

    Several ranks are recognised by the variables that mpiexec, mpirun and srun set, or by mpi4py being
    imported already with a world of more than one rank. mpi4py is not imported otherwise: initialising
    MPI costs about 0.3 s and binds the process to a launcher.

    Returns
    -------
    Communicator

    Raises
    ------
    RuntimeError
        If a launcher started several ranks and mpi4py cannot be imported: each would solve the whole
        problem, and all would write the same files.
    """
    if _chosen.get() is not None:
        return _chosen.get()
    launched = launched_size() > 1
    if launched and "mpi4py.MPI" not in sys.modules:
        try:
            import mpi4py.MPI  # noqa: F401
        except ImportError as error:
            raise RuntimeError(
                f"a launcher started {launched_size()} ranks, but mpi4py cannot be imported ({error}); "
                "install the extra optikit[mpi] or start a single process."
            ) from error
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and module.Is_initialized() and module.COMM_WORLD.Get_size() > 1:
        return module.COMM_WORLD
    return SerialCommunicator()


def block_of(rank: int, size: int, n: int) -> range:
    """Global numbers of the agents that `rank` of `size` ranks holds.

    Parameters
    ----------
    rank, size : int
        ``0 <= rank < size``.
    n : int
        Number of agents, >= 0. With more ranks than agents some blocks are empty.

    Returns
    -------
    range
        ``floor(n rank / size) .. floor(n (rank + 1) / size) - 1``: contiguous, sizes differ by at most one.
    """
    if not 0 <= rank < size:
        raise ValueError(f"rank must be an integer in [0, {size}), got {rank!r}.")
    if n < 0:
        raise ValueError(f"n must be an integer >= 0, got {n!r}.")
    return range(n * rank // size, n * (rank + 1) // size)


@contextmanager
def abort_on_error(communicator: Any = None) -> Iterator[None]:
    """End all ranks when the body raises on one of them, with that error on stderr.

    Without it, the rank that raised leaves while the others wait for its next message for ever. On one
    rank the exception passes through unchanged; ``SystemExit`` with a zero status always does, and so do
    errors that every rank raises alike (`raised_on_every_rank`): nobody is left waiting then.

    Parameters
    ----------
    communicator : Communicator, optional
        Default `default_communicator`.
    """
    comm = default_communicator() if communicator is None else communicator
    try:
        yield
    except BaseException as error:
        harmless = isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and not error.code)
        if comm.Get_size() == 1 or harmless or getattr(error, "on_every_rank", False):
            raise
        _report_and_abort(comm, error)
        raise


def raised_on_every_rank(error: Exception) -> Exception:
    """Mark an error that all ranks raise alike, after the same messages, so that callers may catch it."""
    error.on_every_rank = True  # type: ignore[attr-defined]
    return error


def _report_and_abort(comm: Any, error: BaseException) -> None:
    sys.stdout.flush()
    text = "".join(traceback.format_exception(error))
    sys.stderr.write(f"rank {comm.Get_rank()} of {comm.Get_size()} ends all ranks:\n{text}")
    sys.stderr.flush()
    code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    comm.Abort(code or 1)


def abort_on_uncaught(communicator: Any) -> None:
    """From now on an exception that nobody catches on this rank ends all ranks of `communicator`.

    `Network` installs this on several ranks, so that a plain script ends with its error instead of hanging
    in ``MPI_Finalize``; it is what ``python -m mpi4py`` does. Calling it twice is harmless.
    """
    if communicator.Get_size() == 1 or getattr(sys.excepthook, "aborts_ranks", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        _report_and_abort(communicator, error.with_traceback(trace))

    hook.aborts_ranks = True  # type: ignore[attr-defined]
    sys.excepthook = hook
