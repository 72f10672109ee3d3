"""Drawn sketches as linear maps: what `Sketch.draw` returns, applied to dense, CSR or CSC matrices alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp

from optikit.arrays import array_namespace, as_float_array, from_numpy, is_numpy, to_numpy
from optikit.sketching.door import check_real_dtype

#: Rows of a dense sketch are drawn for this many data rows at a time, so memory is m times this.
CHUNK = 4096
#: Features transformed at once by the SRHT: bounds the padded copy to N times this.
HADAMARD_COLUMNS = 64


class SketchOperator(ABC):
    """A fixed m x n matrix S.

    Attributes
    ----------
    m, n : int
        Rows of the sketch and of the data.
    """

    m: int
    n: int

    @abstractmethod
    def apply(self, A: Any, scale: np.ndarray | None = None) -> Any:
        """``S diag(scale) A`` as a dense (m, d) array; A is (n, d) dense or SciPy sparse, never copied.

        Parameters
        ----------
        A : array or sparse matrix, shape (n, d)
        scale : array, shape (n,), optional
            Multiplies the rows of A on the fly.
        """

    @abstractmethod
    def tocsr(self) -> sp.csr_array:
        """S as a sparse matrix (for tests and small problems)."""

    def adjoint(self, Y: Any) -> Any:
        """``S' Y``."""
        return self.tocsr().T @ Y

    def restricted(self, rows: slice) -> SketchOperator:
        """The columns of S that belong to a range of data rows: the sketches of a partition add up."""
        raise NotImplementedError(f"{type(self).__name__} does not split over rows.")

    def _check(self, A: Any, scale: Any = None) -> None:
        if A.ndim != 2 or A.shape[0] != self.n:
            raise ValueError(f"A must have shape ({self.n}, d), got {tuple(A.shape)}.")
        check_real_dtype(A)
        if scale is not None and getattr(scale, "shape", (self.n,)) != (self.n,):
            raise ValueError(f"scale must have shape ({self.n},), got {tuple(scale.shape)}.")


def _work_dtype(A: Any) -> Any:
    return np.float32 if A.dtype == np.float32 else np.float64


class DenseOperator(SketchOperator):
    """S with independent entries drawn by columns from a stream: chunks keep memory at m x 4096."""

    def __init__(
        self, m: int, n: int, seed: np.random.SeedSequence, kind: str, rows: slice | None = None
    ) -> None:
        self._rows = slice(0, n) if rows is None else rows
        self.m, self.n, self._seed, self._kind = m, self._rows.stop - self._rows.start, seed, kind
        self._all = n

    def restricted(self, rows: slice) -> SketchOperator:
        return DenseOperator(self.m, self._all, self._seed, self._kind, rows)

    def _chunks(self) -> Any:
        """Blocks (width, m) of S' for the rows held; a chunk is keyed by its place, so ranges agree."""
        first, last = self._rows.start, self._rows.stop
        for start in range(first - first % CHUNK, last, CHUNK):
            key = (*self._seed.spawn_key, start // CHUNK)
            rng = np.random.default_rng(np.random.SeedSequence(self._seed.entropy, spawn_key=key))
            width = min(CHUNK, self._all - start)
            if self._kind == "gaussian":
                block: Any = rng.standard_normal((width, self.m))
            else:
                block = 2.0 * rng.integers(0, 2, (width, self.m), dtype=np.int8) - 1.0
            low, high = max(first, start), min(last, start + width)
            yield low - first, block[low - start : high - start] / np.sqrt(self.m)

    def apply(self, A: Any, scale: np.ndarray | None = None) -> Any:
        self._check(A, scale)
        xp = np if sp.issparse(A) else array_namespace(A)
        A = A.tocsr() if sp.issparse(A) else A
        if self.n == 0:  # a rank without rows
            return np.zeros((self.m, A.shape[1]), dtype=_work_dtype(A))
        out: Any = None
        for start, block in self._chunks():
            stop = start + block.shape[0]
            part = A[start:stop] if sp.issparse(A) else A[start:stop, :]
            if scale is not None:
                block = block * scale[start : start + block.shape[0], None]
            piece = (part.T @ block).T if sp.issparse(part) else from_numpy(block.T, xp) @ part
            out = piece if out is None else out + piece
        return out

    def tocsr(self) -> sp.csr_array:
        return sp.csr_array(np.concatenate([block for _, block in self._chunks()]).T)


class RowSparseOperator(SketchOperator):
    """S with a few nonzeros per row: row sampling and LESS.

    Parameters
    ----------
    columns, values : arrays, shape (m, k)
        Row s of S holds ``values[s, l]`` at ``columns[s, l]``.
    n : int
    """

    def __init__(self, columns: np.ndarray, values: np.ndarray, n: int) -> None:
        self.columns, self.values = columns, values
        self.m, self.n = columns.shape[0], n

    def restricted(self, rows: slice) -> SketchOperator:
        mine = (self.columns >= rows.start) & (self.columns < rows.stop)
        columns = np.where(mine, self.columns - rows.start, 0)
        return RowSparseOperator(columns, np.where(mine, self.values, 0.0), rows.stop - rows.start)

    def apply(self, A: Any, scale: np.ndarray | None = None) -> Any:
        self._check(A, scale)
        if self.n == 0:  # a rank without rows
            return np.zeros((self.m, A.shape[1]), dtype=_work_dtype(A))
        values = self.values if scale is None else self.values * scale[self.columns]
        if sp.issparse(A):
            return (self._matrix(values) @ A.tocsr()).toarray()
        xp = array_namespace(A)
        if is_numpy(xp):
            from optikit import _kernels_sketching as kernels

            out = np.empty((self.m, A.shape[1]), dtype=_work_dtype(A))
            kernels.gather_signs(np.ascontiguousarray(A), self.columns, values.astype(out.dtype), out)
            return out
        rows = xp.take(A, from_numpy(self.columns.ravel(), xp), axis=0)
        weights = xp.astype(from_numpy(np.ascontiguousarray(values.reshape(-1, 1)), xp), rows.dtype)
        shape = (self.m, self.columns.shape[1], A.shape[1])
        return xp.sum(xp.reshape(rows * weights, shape), axis=1)

    def _matrix(self, values: np.ndarray) -> sp.csr_array:
        k = self.columns.shape[1]
        indptr = np.arange(0, self.m * k + 1, k)
        matrix = sp.csr_array((values.ravel(), self.columns.ravel(), indptr), shape=(self.m, self.n))
        matrix.sum_duplicates()
        return matrix

    def tocsr(self) -> sp.csr_array:
        return self._matrix(self.values)


class ColumnSparseOperator(SketchOperator):
    """S with k nonzeros per column: CountSketch and SASO.

    Parameters
    ----------
    rows, values : arrays, shape (n, k)
        Column i of S holds ``values[i, l]`` at row ``rows[i, l]``.
    m : int
    """

    def __init__(self, rows: np.ndarray, values: np.ndarray, m: int) -> None:
        self.rows, self.values = rows, values
        self.m, self.n = m, rows.shape[0]

    def restricted(self, rows: slice) -> SketchOperator:
        return ColumnSparseOperator(self.rows[rows], self.values[rows], self.m)

    def apply(self, A: Any, scale: np.ndarray | None = None) -> Any:
        self._check(A, scale)
        values = self.values if scale is None else self.values * scale[:, None]
        if sp.issparse(A):
            return (self._matrix(values) @ A.tocsr()).toarray()
        xp = array_namespace(A)
        if is_numpy(xp):
            from optikit import _kernels_sketching as kernels

            out = np.zeros((self.m, A.shape[1]), dtype=_work_dtype(A))
            kernels.scatter_signs(np.ascontiguousarray(A), self.rows, values.astype(out.dtype), out)
            return out
        return xp.astype(from_numpy(self._matrix(values).toarray(), xp), A.dtype) @ A

    def _matrix(self, values: np.ndarray) -> sp.csr_array:
        columns = np.repeat(np.arange(self.n), self.rows.shape[1])
        return sp.coo_array((values.ravel(), (self.rows.ravel(), columns)), shape=(self.m, self.n)).tocsr()

    def tocsr(self) -> sp.csr_array:
        return self._matrix(self.values)


class HadamardOperator(SketchOperator):
    """Subsampled randomised Hadamard transform: ``sqrt(N/m) R H D / sqrt(N)`` on zero-padded rows.

    Parameters
    ----------
    signs : array, shape (n,)
        The +-1 of D.
    kept : array of int, shape (m,)
        Rows kept of the N = 2^k transformed ones.
    """

    def __init__(self, signs: np.ndarray, kept: np.ndarray) -> None:
        self.signs, self.kept = signs, kept
        self.n, self.m = signs.size, kept.size
        self.padded = padded_size(self.n)

    def apply(self, A: Any, scale: np.ndarray | None = None) -> Any:
        self._check(A, scale)
        xp = np if sp.issparse(A) else array_namespace(A)
        signs = self.signs if scale is None else self.signs * scale
        factor = 1.0 / float(np.sqrt(self.m))
        if not is_numpy(xp) and xp is not np:
            weights = xp.astype(from_numpy(signs[:, None], xp), A.dtype)
            zeros = xp.zeros((self.padded - self.n, A.shape[1]), dtype=A.dtype)
            whole = fwht(xp.concat((A * weights, zeros), axis=0))
            return xp.take(whole, from_numpy(self.kept, xp), axis=0) * factor
        dtype, d = _work_dtype(A), A.shape[1]
        A = A.tocsc() if sp.issparse(A) else A
        out = np.empty((self.m, d), dtype=dtype)
        for start in range(0, d, HADAMARD_COLUMNS):
            part = A[:, start : start + HADAMARD_COLUMNS]
            part = part.toarray() if sp.issparse(part) else part
            buffer = np.zeros((self.padded, part.shape[1]), dtype=dtype)
            np.multiply(part, signs[:, None], out=buffer[: self.n], casting="same_kind")
            fwht(buffer, out=buffer)
            out[:, start : start + HADAMARD_COLUMNS] = buffer[self.kept] * factor
        return out

    def tocsr(self) -> sp.csr_array:
        return sp.csr_array(self.apply(np.eye(self.n)))

    def adjoint(self, Y: Any) -> Any:
        Y = np.asarray(to_numpy(Y), dtype=np.float64)
        spread = np.zeros((self.padded, *Y.shape[1:]))
        np.add.at(spread, self.kept, Y)
        flat = fwht(spread.reshape(self.padded, -1))[: self.n]
        signs = self.signs.reshape(-1, *([1] * (Y.ndim - 1)))
        return flat.reshape(self.n, *Y.shape[1:]) * signs / np.sqrt(self.m)


def padded_size(n: int) -> int:
    """The least power of two >= n."""
    return 1 << max(0, int(n - 1).bit_length())


def fwht(X: Any, out: Any = None) -> Any:
    """Unnormalised fast Walsh-Hadamard transform along axis 0; ``fwht(fwht(X)) = n X``.

    Parameters
    ----------
    X : array, shape (n, ...)
        n a power of two; float32 stays float32.
    out : array, optional
        NumPy only: where to put the result; may be X itself (C-ordered).
    """
    in_place = out is not None and out is X
    X = as_float_array(X, name="X", finite=False)
    n = X.shape[0] if X.ndim else 0
    if n < 1 or n & (n - 1):
        raise ValueError(f"X must have a power of two of rows, got {n}.")
    xp = array_namespace(X)
    if not is_numpy(xp):
        return _butterflies(X, xp)
    from optikit import _kernels_sketching as kernels

    if out is None:
        out = np.array(X, dtype=_work_dtype(X), order="C")
    elif not isinstance(out, np.ndarray) or out.shape != X.shape or out.dtype not in (np.float32, np.float64):
        raise ValueError(f"out must be a float32 or float64 array of shape {X.shape}, got {_shown(out)}.")
    elif not in_place:
        out[...] = X
    if out.flags.c_contiguous:
        kernels.fwht_rows(out.reshape(n, -1))
    else:  # a reshape would copy: transform the copy and bring it back
        copy = np.ascontiguousarray(out)
        kernels.fwht_rows(copy.reshape(n, -1))
        out[...] = copy
    return out


def _shown(array: Any) -> str:
    return f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}".strip()


def _butterflies(X: Any, xp: Any) -> Any:
    """The reference in any array namespace: reshape butterflies, two halves a level."""
    n, shape, h = X.shape[0], X.shape, 1
    while h < n:
        pairs = xp.reshape(X, (n // (2 * h), 2, h, -1))
        a, b = pairs[:, 0, :, :], pairs[:, 1, :, :]
        X = xp.reshape(xp.stack((a + b, a - b), axis=1), shape)
        h *= 2
    return X
