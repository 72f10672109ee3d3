"""Products with the rows of a block of agents: scores, weighted sums, Gram matrices, means.

One dispatch point: `HostRows` walks over dense or CSR rows with compiled kernels, `StackedRows` takes batched
products of a stacked array in any namespace. The second is the reference that the first is tested against.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optikit.agent_data import AgentData
from optikit.arrays import from_numpy, is_numpy, to_numpy


class HostRows:
    """NumPy or CSR rows, agent k owning ``offsets[k]:offsets[k+1]``.

    Nothing is copied, unless dense rows are not contiguous. Each agent's numbers come from its own rows
    alone, so they are bitwise the same whichever agents share the rank.
    """

    def __init__(self, features: Any, offsets: np.ndarray) -> None:
        self.is_sparse = hasattr(features, "indptr")
        self.features = features if self.is_sparse else np.ascontiguousarray(features)
        self.offsets, self.dtype, self.dim = offsets, features.dtype, features.shape[1]
        self._csr = (features.data, features.indices, features.indptr) if self.is_sparse else None

    def scores(self, X: Any) -> Any:
        from optikit import _kernels_linear as kernels

        if X.ndim == 1:
            X = np.broadcast_to(X, (self.offsets.size - 1, self.dim))
        X = np.ascontiguousarray(X, dtype=self.dtype)
        out = np.empty(self.features.shape[0], dtype=self.dtype)
        if self._csr is not None:
            kernels.csr_scores(*self._csr, self.offsets, X, out)
        else:
            kernels.dense_scores(self.features, self.offsets, X, out)
        return out

    def adjoint(self, s: Any) -> Any:
        from optikit import _kernels_linear as kernels

        s = np.ascontiguousarray(s, dtype=self.dtype)
        out = np.zeros((self.offsets.size - 1, self.dim), dtype=self.dtype)
        if self._csr is not None:
            kernels.csr_adjoint(*self._csr, self.offsets, s, out)
        else:
            kernels.dense_adjoint(self.features, self.offsets, s, out)
        return out

    def gram(self, s: Any) -> Any:
        from optikit import _kernels_linear as kernels

        out = np.zeros((self.offsets.size - 1, self.dim, self.dim), dtype=self.dtype)
        if self._csr is not None:
            kernels.csr_gram(*self._csr, self.offsets, s, out)
        else:
            kernels.dense_gram(self.features, self.offsets, s, out)
        return out

    def sums(self, s: Any) -> Any:
        if self.offsets.size == 1:
            return np.zeros(0, dtype=self.dtype)
        return np.add.reduceat(s, self.offsets[:-1])


class StackedRows:
    """Rows of all agents as one array ``(n_local, m, d)`` of any namespace; short agents end in zero rows."""

    def __init__(self, stack: Any, xp: Any, true_rows: Any = None, places: Any = None) -> None:
        self.stack, self.xp = stack, xp
        self._true_rows, self._places = true_rows, places

    @classmethod
    def of(cls, data: AgentData) -> StackedRows:
        """A view of uniform data; a padded copy of ragged data."""
        xp, sizes = data.xp, data.sizes
        if data.is_uniform:
            return cls(data.stacked(), xp)
        features = to_numpy(data.features)
        padded = np.zeros((data.n_local, int(sizes.max()), data.dim), dtype=features.dtype)
        mask = np.arange(padded.shape[1])[None, :] < sizes[:, None]
        padded[mask] = features
        # For every padded place the row it holds; padding points at an extra zero appended to the rows.
        places = np.full(mask.size, features.shape[0])
        places[mask.ravel()] = np.arange(features.shape[0])
        true_rows = np.flatnonzero(mask)
        return cls(from_numpy(padded, xp), xp, from_numpy(true_rows, xp), from_numpy(places, xp))

    def _flat(self, rows: Any) -> Any:
        flat = self.xp.reshape(rows, (-1,))
        return flat if self._true_rows is None else self.xp.take(flat, self._true_rows)

    def _rows(self, flat: Any) -> Any:
        xp = self.xp
        if self._places is not None:
            flat = xp.take(xp.concat((flat, xp.zeros((1,), dtype=flat.dtype))), self._places)
        return xp.reshape(flat, self.stack.shape[:2])

    def scores(self, X: Any) -> Any:
        return self._flat(self.stack @ X if X.ndim == 1 else (self.stack @ X[:, :, None])[:, :, 0])

    def adjoint(self, s: Any) -> Any:
        return (self._rows(s)[:, None, :] @ self.stack)[:, 0, :]

    def gram(self, s: Any) -> Any:
        return self.xp.matrix_transpose(self.stack * self._rows(s)[:, :, None]) @ self.stack

    def sums(self, s: Any) -> Any:
        return self.xp.sum(self._rows(s), axis=1)


def rows_of(data: AgentData) -> HostRows | StackedRows:
    """The products of some data: compiled on NumPy, batched elsewhere."""
    return HostRows(data.features, data.offsets) if is_numpy(data.xp) else StackedRows.of(data)
