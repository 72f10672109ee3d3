"""Neighbour exchange between ranks: which rows go where, and the messages that carry them.

Every rank derives its send and receive lists from the same matrix, so nobody asks. A round is one message per
pair of ranks that share a link, all blocks of the round fused in it. Rows of periodic sequences travel by
persistent requests, set up once per (matrix, width, dtype); others by ``Isend``/``Irecv``, the round as tag.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import scipy.sparse as sp

_TAG_LIMIT = 32768  # MPI guarantees tags up to 32767


class LocalRows:
    """The rows of a matrix that belong to one rank, with own and ghost columns told apart.

    Attributes
    ----------
    indptr, columns, values : int64, int64 and float64 arrays
        CSR structure of the rows; within a row entries keep the order of the global columns.
    own_first, own_last : int64 arrays, shape (n_local,)
        Entries ``own_first[i] .. own_last[i] - 1`` of row i have columns of this rank, numbered from 0; those
        before and after are ghosts of lower and of higher number, numbered as in `ghosts`.
    ghosts : int64 array
        Global numbers of the agents of other ranks that are heard here, ascending: ghosts of one rank are
        neighbours in it, so a message is received in place.
    receive, send : list of (rank, start, stop)
        Parts of `ghosts` by owner; parts of `send_rows` by destination.
    send_rows : int64 array
        Local rows to send, grouped by destination, ascending within each.
    out_degrees : int64 array, shape (n,)
        Number of agents that hear each agent, on all ranks.
    links, wire_rows : int
        Directed links of the whole graph, and rows that cross ranks in one round, over all ranks.
    """

    def __init__(self, matrix: sp.csr_array, rank: int, size: int) -> None:
        n = matrix.shape[0]
        bounds = np.arange(size + 1, dtype=np.int64) * n // size
        low, high = int(bounds[rank]), int(bounds[rank + 1])
        first, last = int(matrix.indptr[low]), int(matrix.indptr[high])
        self.n_local = high - low
        self.indptr = matrix.indptr[low : high + 1].astype(np.int64) - first
        columns = matrix.indices[first:last].astype(np.int64)
        self.values = np.ascontiguousarray(matrix.data[first:last])
        self._by_dtype = {np.dtype(np.float64): self.values}

        all_columns = matrix.indices.astype(np.int64)
        all_rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
        off_diagonal = all_columns != all_rows
        self.out_degrees = np.bincount(all_columns[off_diagonal], minlength=n).astype(np.int64)
        self.links = int(np.count_nonzero(off_diagonal))
        self.ghosts = np.zeros(0, dtype=np.int64)
        self.send_rows = np.zeros(0, dtype=np.int64)
        self.receive: list[tuple[int, int, int]] = []
        self.send: list[tuple[int, int, int]] = []
        self.wire_rows = 0
        if size == 1:
            self.columns = columns
            self.own_first, self.own_last = self.indptr[:-1], self.indptr[1:]
        else:
            row_owner = np.searchsorted(bounds, all_rows, side="right") - 1
            column_owner = np.searchsorted(bounds, all_columns, side="right") - 1
            crossing = row_owner != column_owner
            # One number per (hearing rank, heard agent): unique, hence sorted by rank and then by agent.
            parcels = np.unique(row_owner[crossing] * n + all_columns[crossing])
            hearer, heard = parcels // n, parcels % n
            self.wire_rows = int(parcels.size)
            self.ghosts = heard[hearer == rank]
            self.receive = _parts(np.searchsorted(bounds, self.ghosts, side="right") - 1)
            mine = (heard >= low) & (heard < high)
            self.send_rows = heard[mine] - low
            self.send = _parts(hearer[mine])
            own = (columns >= low) & (columns < high)
            self.columns = np.where(own, columns - low, np.searchsorted(self.ghosts, columns))
            self.own_first = self.indptr[:-1] + _count_by_row(columns < low, self.indptr)
            self.own_last = self.indptr[1:] - _count_by_row(columns >= high, self.indptr)
        self.n_low = int(np.count_nonzero(self.ghosts < low))

    def values_as(self, dtype: np.dtype) -> np.ndarray:
        """The weights in the given real dtype."""
        values = self._by_dtype.get(dtype)
        if values is None:
            values = self._by_dtype[dtype] = self.values.astype(dtype)
        return values

    def stacked_columns(self) -> np.ndarray:
        """Columns as rows of the stack (low ghosts, own rows, high ghosts), which is in global order."""
        entry = np.arange(self.columns.size)
        counts = np.diff(self.indptr)
        stacked = np.where(entry < np.repeat(self.own_first, counts), self.columns, self.columns + self.n_low)
        # High ghosts follow the own rows; their numbers count the low ghosts already.
        return np.where(entry < np.repeat(self.own_last, counts), stacked, self.columns + self.n_local)


def _count_by_row(marked: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """How many entries of each CSR row are marked."""
    return np.diff(np.concatenate([[0], np.cumsum(marked)])[indptr])


def _parts(owners: np.ndarray) -> list[tuple[int, int, int]]:
    """Runs of equal entries of a sorted array as (value, start, stop)."""
    if owners.size == 0:
        return []
    starts = np.flatnonzero(np.concatenate([[True], owners[1:] != owners[:-1]]))
    stops = np.append(starts[1:], owners.size)
    return [(int(owners[a]), int(a), int(b)) for a, b in zip(starts, stops)]


class Exchange:
    """Buffers and requests that carry `width` numbers per row for one `LocalRows`; used again and again.

    ``start()`` posts receives and sends of what was packed into `outgoing`; after ``finish()`` the ghosts'
    rows are in `incoming`. An exchange in flight is `busy`.
    """

    def __init__(
        self, comm: Any, rows: LocalRows, width: int, dtype: np.dtype, *, persistent: bool, tag: int
    ) -> None:
        from mpi4py import MPI

        self.outgoing = np.empty((rows.send_rows.size, width), dtype=dtype)
        self.incoming = np.empty((rows.ghosts.size, width), dtype=dtype)
        self.busy = False
        self._mpi, self._comm, self._rows = MPI, comm, rows
        self._requests: list[Any] = []
        self._persistent = persistent
        self.tag = tag % _TAG_LIMIT
        if persistent:
            self._requests = [
                comm.Recv_init(self.incoming[a:b], source=rank, tag=self.tag) for rank, a, b in rows.receive
            ] + [comm.Send_init(self.outgoing[a:b], dest=rank, tag=self.tag) for rank, a, b in rows.send]
            self._finalizer = weakref.finalize(self, _free, MPI, self._requests)

    def start(self) -> None:
        """Post the messages of this round."""
        self.busy = True
        if self._persistent:
            if self._requests:
                self._mpi.Prequest.Startall(self._requests)
            return
        comm, rows = self._comm, self._rows
        self._requests = [
            comm.Irecv(self.incoming[a:b], source=rank, tag=self.tag) for rank, a, b in rows.receive
        ]
        self._requests += [
            comm.Isend(self.outgoing[a:b], dest=rank, tag=self.tag) for rank, a, b in rows.send
        ]

    def finish(self) -> None:
        """Wait until this round's messages have arrived and left."""
        if self._requests:
            self._mpi.Request.Waitall(self._requests)
        self.busy = False

    def free(self) -> None:
        """Give the persistent requests back to MPI."""
        if self._persistent and not self.busy:
            self._finalizer()


def _free(mpi: Any, requests: list[Any]) -> None:
    if mpi.Is_finalized():
        return
    for request in requests:
        if request != mpi.REQUEST_NULL:
            request.Free()


class Exchanger:
    """What the exchanges of one network share: a private communicator and the debug check."""

    def __init__(self, comm: Any, debug: bool) -> None:
        self.comm = private_communicator(comm)
        self.debug = debug

    def check(self, rows: LocalRows, round_number: int, width: int, dtype: np.dtype) -> None:
        """Debug mode: RuntimeError on all ranks unless every sender and receiver expect the same message."""
        from mpi4py import MPI

        size = self.comm.Get_size()
        said = np.zeros((size, 4), dtype=np.int64)
        said[:, 0], said[:, 1], said[:, 2] = round_number, width, dtype.itemsize
        for rank, a, b in rows.send:
            said[rank, 3] = b - a
        heard = np.empty_like(said)
        self.comm.Alltoall(said, heard)
        expected = said.copy()
        expected[:, 3] = 0
        for rank, a, b in rows.receive:
            expected[rank, 3] = b - a
        wrong = np.flatnonzero(np.any(heard != expected, axis=1))
        verdict = np.array([wrong.size], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, verdict, op=MPI.SUM)
        if verdict[0]:
            here = f"rank {self.comm.Get_rank()} is not concerned itself"
            if wrong.size:
                other = int(wrong[0])
                here = (
                    f"rank {self.comm.Get_rank()} expects (round, floats, bytes per float, rows) = "
                    f"{tuple(expected[other].tolist())} from rank {other}, "
                    f"which has {tuple(heard[other].tolist())}"
                )
            raise RuntimeError(f"ranks disagree about an exchange: {here}; all must make the same calls.")


_KEYVAL: list[int] = []


def private_communicator(comm: Any) -> Any:
    """A duplicate of `comm` for optikit's own messages, made once (collective) and kept with `comm`.

    One per user communicator, not one per network: MPI has few communicators to give.
    """
    if comm.Get_size() == 1:
        return comm
    from mpi4py import MPI

    if not _KEYVAL:
        _KEYVAL.append(MPI.Comm.Create_keyval())
    duplicate = comm.Get_attr(_KEYVAL[0])
    if duplicate is None:
        duplicate = comm.Dup()
        comm.Set_attr(_KEYVAL[0], duplicate)
    return duplicate
