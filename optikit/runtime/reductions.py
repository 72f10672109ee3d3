"""Reductions over agents and ranks: one packed host buffer, one collective call."""

from __future__ import annotations

from typing import Any

import numpy as np

from optikit.arrays import array_namespace, from_numpy, is_numpy, to_numpy
from optikit.runtime.exchange import private_communicator


class Reducer:
    """Sums, extremes and gathers over the ranks of a communicator; on one rank no copy and no MPI."""

    def __init__(self, communicator: Any) -> None:
        self.comm = private_communicator(communicator)
        self.size = self.comm.Get_size()

    def sum(self, arrays: list[Any]) -> list[Any]:
        """Sum each array over axis 0 and all ranks (a scalar over the ranks) by one Allreduce."""
        local = [_sum_rows(array) for array in arrays]
        if self.size == 1 or not local:
            return local
        from mpi4py import MPI

        host = [np.asarray(to_numpy(array)) for array in local]
        buffer = np.concatenate([array.reshape(-1).astype(np.float64) for array in host])
        self.comm.Allreduce(MPI.IN_PLACE, buffer, op=MPI.SUM)
        return _unpack(buffer, host, local)

    def extreme(self, v: Any, which: str) -> Any:
        """Largest ("max") or smallest ("min") entry over axis 0 and all ranks; NaN anywhere gives NaN."""
        sign = 1.0 if which == "max" else -1.0
        host = sign * np.asarray(to_numpy(v) if hasattr(v, "shape") else v, dtype=np.float64)
        if host.ndim:
            host = np.max(host, axis=0, initial=-np.inf)
        if self.size > 1:
            from mpi4py import MPI

            # MPI.MAX leaves NaN undefined: it travels as a flag.
            buffer = np.concatenate(
                [np.where(np.isnan(host), -np.inf, host).reshape(-1), np.isnan(host).reshape(-1)]
            )
            self.comm.Allreduce(MPI.IN_PLACE, buffer, op=MPI.MAX)
            values, flags = np.split(buffer, 2)
            host = np.where(flags > 0, np.nan, values).reshape(np.shape(host))
        host = np.asarray(sign * host)
        return _like(host, v)

    def allgather(self, X: Any, n: int) -> Any:
        """Rows (n_local, ...) of all ranks, in order, shape (n, ...)."""
        if self.size == 1:
            return X
        host = np.ascontiguousarray(to_numpy(X))
        each = int(np.prod(host.shape[1:], dtype=np.int64))
        bounds = np.arange(self.size + 1, dtype=np.int64) * n // self.size
        gathered = np.empty((n, *host.shape[1:]), dtype=host.dtype)
        self.comm.Allgatherv(host, [gathered, (np.diff(bounds) * each, bounds[:-1] * each)])
        return _like(gathered, X)

    def check_agreement(self, n: int, period: int | None, digest: str) -> None:
        """Raise RuntimeError on every rank unless all were given the same number of agents and topology."""
        mine = np.array([n, -1 if period is None else period, int(digest[:15], 16)], dtype=np.int64)
        found = np.empty((self.size, 3), dtype=np.int64)
        self.comm.Allgather(mine, found)
        for column, name in enumerate(("number of agents", "period of the topology", "topology")):
            other = np.flatnonzero(found[:, column] != found[0, column])
            if other.size:
                values = "" if column == 2 else f": {found[0, column]} and {found[other[0], column]}"
                raise RuntimeError(
                    f"ranks 0 and {other[0]} were given different values for the {name}{values}."
                )


def _sum_rows(array: Any) -> Any:
    if type(array) is np.ndarray and array.ndim and array.dtype.kind == "f":  # the hot path of server methods
        return np.add.reduce(array, axis=0)
    if not hasattr(array, "shape"):
        array = np.asarray(array)
    xp = array_namespace(array)
    if not xp.isdtype(array.dtype, "real floating"):
        if not xp.isdtype(array.dtype, ("bool", "integral")):
            raise TypeError(f"arrays must be real numbers, got dtype {array.dtype}.")
        array = xp.astype(array, xp.float64)
    return array if array.ndim == 0 else xp.sum(array, axis=0)


def _unpack(buffer: np.ndarray, host: list[np.ndarray], local: list[Any]) -> list[Any]:
    results, offset = [], 0
    for array, original in zip(host, local):
        part = buffer[offset : offset + array.size].reshape(array.shape).astype(array.dtype)
        results.append(_like(part, original))
        offset += array.size
    return results


def _like(host: np.ndarray, original: Any) -> Any:
    """`host` in the namespace (and on the device) of `original`; NumPy scalars for 0-d results."""
    if not hasattr(original, "shape"):
        return host[()]
    xp = array_namespace(original)
    if is_numpy(xp):
        return host[()]
    return from_numpy(host, xp, device=_device(original))


def _device(array: Any) -> Any:
    from array_api_compat import device

    return device(array)
