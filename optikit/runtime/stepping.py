"""One gossip round on this rank: the `Stepper` behind `Network.mix`, one per matrix of the sequence.

NumPy arrays go through the compiled row kernel (or BLAS, on request), arrays of other namespaces through
rolls, gathers or a dense product of their own library; on several ranks these are staged through the host.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from optikit.arrays import array_namespace, from_numpy, is_numpy, to_numpy
from optikit.mixing import MixingMatrix
from optikit.runtime.exchange import Exchange, Exchanger, LocalRows

if TYPE_CHECKING:
    from optikit.network import Network, Pulled

BACKENDS = ("auto", "csr", "dense", "shift")
#: Columns worked through at a time: rows of 8 kB, of which a cache holds many; shorter blocks cost more in
#: loop starts than they save (measured at n=1024, d=1000: 128 columns 3x slower than 1024).
BLOCK = 1024
#: Exchanges (buffers and requests) kept per matrix.
EXCHANGE_CACHE = 16
_FLOAT64, _FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)
_NO_GHOST = {dtype: np.zeros(1, dtype=dtype) for dtype in (_FLOAT64, _FLOAT32)}


def choose_backend(matrix: MixingMatrix, wanted: str, *, host: bool = True) -> str:
    """The back-end for NumPy arrays (`host`) or others on one process, see `Network`.

    Raises ValueError if `shift` is wanted and the matrix is not circulant.
    """
    if wanted == "shift" and matrix.shifts is None:
        raise ValueError(
            "backend='shift' needs circulant matrices, got one that is not; use 'auto' or 'csr'."
        )
    if wanted != "auto":
        return wanted
    if matrix.shifts is not None and len(matrix.shifts) <= 3:
        return "shift"
    # BLAS is 2 to 4 times faster than the row kernel on complete graphs and no faster at a density of 0.3,
    # but its bits would depend on the number of ranks: on the host it is for those who ask.
    if host or 4 * matrix.nnz < matrix.n**2 or matrix.n > 128:
        return "csr"
    return "dense"


class Stepper:
    """Applies one matrix to stacked arrays and accounts for it."""

    def __init__(
        self,
        network: Network,
        matrix: MixingMatrix,
        rows: LocalRows,
        backend: str,
        exchanger: Exchanger | None,
        persistent: bool,
    ) -> None:
        from optikit._kernels_mixing import mix_rows, pack_rows

        self.network, self.matrix, self.rows = network, matrix, rows
        self.backend = choose_backend(matrix, backend)
        self.backend_elsewhere = choose_backend(matrix, backend, host=False)
        self.exchanger, self.persistent = exchanger, persistent
        self._mix_rows, self._pack_rows = mix_rows, pack_rows
        self._exchanges: dict[tuple[int, np.dtype], list[Exchange]] = {}
        self._device_copies: dict[Any, Any] = {}

    # -- one process --------------------------------------------------------------------------------------

    def apply(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """The round at once; see `Network.mix`."""
        if self.exchanger is not None:
            return self.start(arrays).wait(out)
        if out is not None and len(arrays) > 1:  # an output may be another block's input
            return _deliver_all(self.apply(arrays, None), _as_outputs(arrays, out))
        outs = _as_outputs(arrays, out)
        results, width = [], 0
        for array, target in zip(arrays, outs):
            if type(array) is np.ndarray or is_numpy(array_namespace(array)):
                X = self._checked(array)
                results.append(self._on_host(X, target))
                width += X.size
            else:
                self._check_shape(array)
                results.append(self._elsewhere(array))
                width += math.prod(array.shape)
        self._account(width // self.network.n_agents)
        return results[0] if len(results) == 1 else tuple(results)

    def _on_host(self, X: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        target = _target(X, out)
        if self.backend == "dense":
            weights = self._copy_for(X.dtype, lambda: self.matrix.toarray().astype(X.dtype))
            n = self.network.n_agents
            np.matmul(weights, X.reshape(n, -1), out=target.reshape(n, -1))
        else:
            self._run_rows(X, _NO_GHOST[X.dtype], 0, 0, target)
        return _deliver(target, out)

    def _run_rows(
        self, X: np.ndarray, ghost: np.ndarray, stride: int, offset: int, target: np.ndarray
    ) -> None:
        rows = self.rows
        if rows.n_local == 0:
            return
        width = X.size // rows.n_local
        values = rows.values if X.dtype is _FLOAT64 else rows.values_as(X.dtype)
        self._mix_rows(
            rows.indptr,
            rows.own_first,
            rows.own_last,
            rows.columns,
            values,
            X.reshape(-1),
            width,
            ghost,
            stride,
            offset,
            BLOCK,
            target.reshape(-1),
        )

    def _checked(self, array: Any) -> np.ndarray:
        """The array as C-contiguous float32 or float64 with one row per agent here."""
        X = np.asarray(array)
        if X.dtype is not _FLOAT64 and X.dtype != _FLOAT64 and X.dtype != _FLOAT32:
            if X.dtype.kind not in "biuf":
                raise TypeError(f"arrays to mix must hold real numbers, got dtype {X.dtype}.")
            X = X.astype(np.float64)
        self._check_shape(X)
        return X if X.flags.c_contiguous else np.ascontiguousarray(X)

    def _check_shape(self, array: Any) -> None:
        if array.ndim == 0 or array.shape[0] != self.network.n_local:
            raise ValueError(
                f"arrays to mix must have {self.network.n_local} rows, one per agent of this rank, "
                f"got shape {tuple(array.shape)}."
            )

    def _account(self, width: int, wire_bytes: int = 0) -> None:
        rows, network = self.rows, self.network
        network.ledger.record_exchange(rows.out_degrees, rows.links, width, wire_bytes)
        network.round += 1

    # -- other namespaces ---------------------------------------------------------------------------------

    def _elsewhere(self, array: Any) -> Any:
        xp = array_namespace(array)
        array = _promoted(array, xp)
        n = self.network.n_agents
        X = xp.reshape(array, (n, -1)) if array.ndim != 2 else array
        if self.backend_elsewhere == "shift":
            shifts = self.matrix.shifts
            assert shifts is not None
            mixed = sum((w * xp.roll(X, -s, axis=0) for s, w in shifts[1:]), _first_shift(xp, X, shifts[0]))
        elif self.backend_elsewhere == "csr" and (table := self._neighbour_table(xp, X)) is not None:
            columns, weights = table
            mixed = weights[0] * xp.take(X, columns[0], axis=0)
            for column, weight in zip(columns[1:], weights[1:]):
                mixed = mixed + weight * xp.take(X, column, axis=0)
        else:
            dense = self._copy_for(
                (xp.__name__, X.dtype, _device(X)), lambda: _send(self.matrix.toarray(), xp, X)
            )
            mixed = dense @ X
        return xp.reshape(mixed, array.shape)

    def _neighbour_table(self, xp: ModuleType, X: Any) -> tuple[list[Any], list[Any]] | None:
        """Columns (n,) and weights (n, 1) tap by tap, short rows padded with weight 0; None if too ragged."""
        counts = np.diff(self.rows.indptr)
        taps = int(counts.max(initial=0))
        if taps == 0 or taps * counts.size > 4 * max(counts.sum(), 1):
            return None

        def build() -> tuple[list[Any], list[Any]]:
            columns = np.zeros((taps, counts.size), dtype=np.int64)
            weights = np.zeros((taps, counts.size))
            row = np.repeat(np.arange(counts.size), counts)
            tap = np.arange(row.size) - np.repeat(self.rows.indptr[:-1], counts)
            columns[tap, row], weights[tap, row] = self.rows.columns, self.rows.values
            indices = [from_numpy(c, xp, device=_device(X)) for c in columns]
            return indices, [_send(w[:, None], xp, X) for w in weights]

        return self._copy_for(("taps", xp.__name__, X.dtype, _device(X)), build)

    def _copy_for(self, key: Any, build: Any) -> Any:
        copy = self._device_copies.get(key)
        if copy is None:
            copy = self._device_copies[key] = build()
        return copy

    # -- several ranks ------------------------------------------------------------------------------------

    def start(self, arrays: tuple[Any, ...]) -> MixRequest:
        """Post the exchange of the round and account for it; see `Network.imix`."""
        if self.exchanger is None:
            return MixRequest(result=self.apply(arrays, None))
        hosts = []
        for array in arrays:
            xp = array_namespace(array) if hasattr(array, "shape") else np
            hosts.append(self._checked(array if is_numpy(xp) else to_numpy(array)))
        exchange = self._post(hosts)
        return MixRequest(self, exchange, arrays, hosts)

    def _post(self, hosts: list[np.ndarray]) -> Exchange:
        assert self.exchanger is not None
        widths = [math.prod(X.shape[1:]) for X in hosts]
        width = sum(widths)
        # float32 beside float64 travels as float64: widening and narrowing again loses nothing.
        dtype = np.result_type(*hosts) if hosts else _FLOAT64
        if self.exchanger.debug:
            self.exchanger.check(self.rows, self.network.round, width, dtype)
        exchange = self._exchange(width, dtype)
        offset = 0
        for X, w in zip(hosts, widths):
            if exchange.outgoing.size:
                source = X if X.dtype == dtype else X.astype(dtype)
                self._pack_rows(
                    self.rows.send_rows, source.reshape(-1), w, exchange.outgoing.reshape(-1), width, offset
                )
            offset += w
        exchange.start()
        self._account(width, self.rows.wire_rows * width * dtype.itemsize)
        return exchange

    def _exchange(self, width: int, dtype: np.dtype) -> Exchange:
        assert self.exchanger is not None
        pool = self._exchanges.pop((width, dtype), [])
        self._exchanges[(width, dtype)] = pool  # now the most recently used
        for exchange in pool:
            if not exchange.busy:
                return exchange
        # Persistent messages match in the order they are started, which all ranks share: one tag serves all.
        tag = 0 if self.persistent else self.network.round
        exchange = Exchange(self.exchanger.comm, self.rows, width, dtype, persistent=self.persistent, tag=tag)
        pool.append(exchange)
        if len(self._exchanges) > EXCHANGE_CACHE:
            for old in self._exchanges.pop(next(iter(self._exchanges))):
                old.free()
        return exchange

    def finish(self, exchange: Exchange, hosts: list[np.ndarray], outs: list[Any]) -> list[np.ndarray]:
        """Wait for the ghosts and apply the rows to each block."""
        exchange.finish()
        incoming, width = exchange.incoming, exchange.incoming.shape[1]
        results, offset = [], 0
        for X, out in zip(hosts, outs):
            ghost = incoming if incoming.dtype == X.dtype else incoming.astype(X.dtype)
            flat = ghost.reshape(-1) if ghost.size else _NO_GHOST[X.dtype]
            target = _target(X, out)
            self._run_rows(X, flat, width, offset, target)
            results.append(_deliver(target, out))
            offset += math.prod(X.shape[1:])
        return results

    def pull(self, X: Any) -> Pulled:
        """See `Network.pull`."""
        from optikit.network import Pulled

        rows = self.rows
        if self.exchanger is None:
            if not hasattr(X, "shape"):
                X = np.asarray(X)
            self._check_shape(X)
            X = _promoted(X, array_namespace(X))
            self._account(math.prod(X.shape[1:]))
            return Pulled(rows.indptr, rows.columns, rows.values, X)
        request = self.start((X,))
        stack = request.stacked()
        return Pulled(rows.indptr, rows.stacked_columns(), rows.values, stack)

    def free(self) -> None:
        """Release the requests of all exchanges."""
        for pool in self._exchanges.values():
            for exchange in pool:
                exchange.free()
        self._exchanges.clear()


class MixRequest:
    """A round in flight; ``wait()`` returns what `Network.mix` would have returned."""

    def __init__(
        self,
        stepper: Stepper | None = None,
        exchange: Exchange | None = None,
        arrays: tuple[Any, ...] = (),
        hosts: list[np.ndarray] | None = None,
        result: Any = None,
    ) -> None:
        self._stepper, self._exchange, self._arrays, self._hosts = stepper, exchange, arrays, hosts
        self._result = result

    def wait(self, out: Any = None) -> Any:
        """Wait for the neighbours' rows and return the mixed arrays; again: the same arrays."""
        if self._exchange is not None:
            assert self._stepper is not None
            assert self._hosts is not None
            outs = _as_outputs(self._arrays, out)
            direct = outs if len(outs) == 1 else [None] * len(outs)
            mixed = self._stepper.finish(self._exchange, self._hosts, direct)
            results = [_back(host, array) for host, array in zip(mixed, self._arrays)]
            self._exchange = self._hosts = None
            if out is not None and len(results) > 1:
                self._result = _deliver_all(tuple(results), outs)
            else:
                self._result = results[0] if len(results) == 1 else tuple(results)
        return self._result

    def stacked(self) -> Any:
        """Wait, and return ghosts and own rows in global order instead of mixing them."""
        assert self._exchange is not None
        assert self._stepper is not None
        assert self._hosts is not None
        self._exchange.finish()
        X, low = self._hosts[0], self._stepper.rows.n_low
        ghosts = self._exchange.incoming.reshape(-1, *X.shape[1:])
        stack = np.concatenate([ghosts[:low], X, ghosts[low:]])
        self._exchange = None
        return _back(stack, self._arrays[0])


def _as_outputs(arrays: tuple[Any, ...], out: Any) -> list[Any]:
    if out is None:
        return [None] * len(arrays)
    outs = [out] if isinstance(out, np.ndarray) else list(out)
    if len(outs) != len(arrays):
        raise ValueError(f"out must hold {len(arrays)} arrays, one per input, got {len(outs)}.")
    return outs


def _target(X: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """Where the kernel writes: `out` itself if it is fit and shares no memory with X, else a new array."""
    if out is None:
        return np.empty(X.shape, dtype=X.dtype)
    if not isinstance(out, np.ndarray) or out.shape != X.shape or out.dtype != X.dtype:
        raise ValueError(
            f"out must be a NumPy array of shape {X.shape} and dtype {X.dtype}, got "
            f"{getattr(out, 'dtype', type(out).__name__)} {getattr(out, 'shape', '')}."
        )
    if out.flags.c_contiguous and not np.may_share_memory(X, out):
        return out
    return np.empty(X.shape, dtype=X.dtype)


def _deliver(target: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    if out is None or target is out:
        return target
    out[...] = target
    return out


def _deliver_all(results: tuple[Any, ...], outs: list[Any]) -> tuple[Any, ...]:
    for result, out in zip(results, outs):
        _target(result, out)  # refuses an output of another shape or dtype
    return tuple(_deliver(result, out) for result, out in zip(results, outs))


def _promoted(array: Any, xp: ModuleType) -> Any:
    if xp.isdtype(array.dtype, "real floating"):
        return array
    if xp.isdtype(array.dtype, ("bool", "integral")):
        return xp.astype(array, xp.float64)
    raise TypeError(f"arrays to mix must hold real numbers, got dtype {array.dtype}.")


def _first_shift(xp: ModuleType, X: Any, tap: tuple[int, float]) -> Any:
    shift, weight = tap
    return weight * (xp.roll(X, -shift, axis=0) if shift else X)


def _send(host: np.ndarray, xp: ModuleType, X: Any) -> Any:
    return xp.astype(from_numpy(host, xp, device=_device(X)), X.dtype)


def _back(host: np.ndarray, original: Any) -> Any:
    if not hasattr(original, "shape"):
        return host
    xp = array_namespace(original)
    return host if is_numpy(xp) else from_numpy(host, xp, device=_device(original))


def _device(array: Any) -> Any:
    from array_api_compat import device

    return device(array)
