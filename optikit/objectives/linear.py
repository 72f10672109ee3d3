r"""Linear models: averages of a scalar loss over each agent's rows.

.. math:: f_m(w) = \frac1{n_m} \sum_i \phi(\langle x_{mi}, w\rangle, y_{mi}) + \frac{l_2}2 \|w\|^2

The rows of all agents lie in one array (`AgentData`), dense or CSR, and are not copied on NumPy: the kernels
of `optikit._kernels_linear` walk over it, so an agent's numbers are bitwise the same whoever shares its rank.
Other namespaces use batched products, ragged blocks padded once.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from optikit.agent_data import AgentData
from optikit.arrays import from_numpy, is_numpy, to_numpy
from optikit.losses import Loss, get_loss
from optikit.objectives.base import Objective, OracleCalls, digest_arrays
from optikit.validation import check_integer, check_real

#: Up to this size of the smaller Gram matrix its eigenvalues are computed exactly, beyond by Lanczos.
EXACT_EIGENVALUES = 1500


class LinearModel(Objective):
    """Average loss of a linear model over each agent's rows.

    Parameters
    ----------
    data : AgentData
    loss : Loss or str
        A loss, or its name in `optikit.losses`.
    l2 : float, default 0
        Ridge weight in every f_m, >= 0.

    Raises
    ------
    ValueError
        If an agent holds no rows, or targets do not fit the loss; agent and row are named.
    """

    def __init__(self, data: AgentData, loss: Loss | str, l2: float = 0.0) -> None:
        if not isinstance(data, AgentData):
            raise TypeError(f"data must be an AgentData, got {type(data).__name__}.")
        self.data, self.loss = data, get_loss(loss)
        self.l2 = check_real(l2, "l2", minimum=0.0)
        self.agents: np.ndarray = data.agents  # type: ignore[assignment]
        self.n_agents: int = data.n_agents  # type: ignore[assignment]
        self.dim, self.xp, self.calls = data.dim, data.xp, OracleCalls()
        self.dtype = data.features.dtype
        if np.any(data.sizes == 0):
            raise ValueError(
                f"every agent needs data, but agent {self.agents[np.argmin(data.sizes)]} has no rows."
            )
        xp = self.xp
        targets = self.loss.check_targets(data.targets)
        self.targets = xp.astype(targets, self.dtype) if targets.dtype != self.dtype else targets
        shares = np.repeat(1.0 / np.maximum(data.sizes, 1), data.sizes).astype(_numpy_dtype(self.dtype))
        self._shares = from_numpy(shares, xp)
        self._stack: Any = None
        self._features: Any = None
        self._uniform = data.is_uniform
        if is_numpy(xp):
            self._features = data.features if data.is_sparse else np.ascontiguousarray(data.features)
        elif self._uniform:
            self._stack = data.stacked()
        else:
            self._pad()

    # -- scores and sums over rows ------------------------------------------------------------------------

    def scores(self, X: Any) -> Any:
        """``<x_mi, X_m>`` for every row, ``(N_local,)``."""
        if self._stack is not None:
            products = self._stack @ (X if X.ndim == 1 else X[:, :, None])
            return self._flat(products if X.ndim == 1 else products[:, :, 0])
        from optikit import _kernels_linear as kernels

        if X.ndim == 1:
            X = np.broadcast_to(X, (self.n_local, self.dim))
        X = np.ascontiguousarray(X, dtype=self.dtype)
        features, offsets = self._features, self.data.offsets
        out = np.empty(self.data.n_samples, dtype=self.dtype)
        if self.data.is_sparse:
            kernels.csr_scores(features.data, features.indices, features.indptr, offsets, X, out)
        else:
            kernels.dense_scores(features, offsets, X, out)
        return out

    def adjoint(self, s: Any) -> Any:
        """``sum_i s_mi x_mi`` for every agent, ``(n_local, d)``."""
        if self._stack is not None:
            rows = self._rows(s)
            return (rows[:, None, :] @ self._stack)[:, 0, :]
        from optikit import _kernels_linear as kernels

        features, offsets = self._features, self.data.offsets
        out = np.zeros((self.n_local, self.dim), dtype=self.dtype)
        s = np.ascontiguousarray(s, dtype=self.dtype)
        if self.data.is_sparse:
            kernels.csr_adjoint(features.data, features.indices, features.indptr, offsets, s, out)
        else:
            kernels.dense_adjoint(features, offsets, s, out)
        return out

    def _pad(self) -> None:
        """Ragged blocks as one (n, m, d) array with zero rows at the ends, and where the true rows are."""
        xp, sizes = self.xp, self.data.sizes
        longest = int(sizes.max(initial=0))
        features = to_numpy(self.data.features)
        padded = np.zeros((self.n_local, longest, self.dim), dtype=features.dtype)
        mask = np.arange(longest)[None, :] < sizes[:, None]
        padded[mask] = features
        self._stack = from_numpy(padded, xp)
        self._true_rows = from_numpy(np.flatnonzero(mask), xp)
        # For every padded place the row it holds; padding points at an extra zero appended to the rows.
        places = np.full(mask.size, features.shape[0])
        places[mask.ravel()] = np.arange(features.shape[0])
        self._places = from_numpy(places, xp)

    def _flat(self, rows: Any) -> Any:
        flat = self.xp.reshape(rows, (-1,))
        return flat if self._uniform else self.xp.take(flat, self._true_rows)

    def _rows(self, flat: Any) -> Any:
        xp = self.xp
        if not self._uniform:
            flat = xp.take(xp.concat((flat, xp.zeros((1,), dtype=flat.dtype))), self._places)
        return xp.reshape(flat, self._stack.shape[:2])

    def _mean(self, per_row: Any) -> Any:
        """Mean over each agent's rows, ``(n_local,)``."""
        weighted = per_row * self._shares
        if self._stack is not None:
            return self.xp.sum(self._rows(weighted), axis=1)
        if not self.n_local:
            return np.zeros(0, dtype=self.dtype)
        return np.add.reduceat(weighted, self.data.offsets[:-1])

    # -- the oracle ---------------------------------------------------------------------------------------

    def value(self, X: Any) -> Any:
        self.calls.values += 1
        return self._penalised(self._mean(self.loss.value(self.scores(X), self.targets)), X)

    def gradient(self, X: Any) -> Any:
        self.calls.gradients += 1
        self.calls.samples += self.data.n_samples
        slope = self.loss.derivative(self.scores(X), self.targets)
        return self._shrunk(self.adjoint(slope * self._shares), X)

    def value_and_gradient(self, X: Any) -> tuple[Any, Any]:
        self.calls.values += 1
        self.calls.gradients += 1
        self.calls.samples += self.data.n_samples
        z = self.scores(X)
        value = self._penalised(self._mean(self.loss.value(z, self.targets)), X)
        return value, self._shrunk(self.adjoint(self.loss.derivative(z, self.targets) * self._shares), X)

    def _penalised(self, value: Any, X: Any) -> Any:
        return value + 0.5 * self.l2 * self.xp.sum(X * X, axis=-1) if self.l2 else value

    def _shrunk(self, gradient: Any, X: Any) -> Any:
        return gradient + self.l2 * X if self.l2 else gradient

    def hessian_vector(self, X: Any, V: Any) -> Any:
        curvature = self.loss.second_derivative(self.scores(X), self.targets)
        return self._shrunk(self.adjoint(curvature * self.scores(V) * self._shares), V)

    def hessian(self, X: Any) -> Any:
        self.calls.hessians += 1
        weights = self.loss.second_derivative(self.scores(X), self.targets) * self._shares
        xp, data = self.xp, self.data
        if self._stack is not None:
            blocks = xp.matrix_transpose(self._stack * self._rows(weights)[:, :, None]) @ self._stack
        else:
            from optikit import _kernels_linear as kernels

            features, blocks = self._features, np.zeros((self.n_local, self.dim, self.dim), dtype=self.dtype)
            if data.is_sparse:
                csr = (features.data, features.indices, features.indptr)
                kernels.csr_gram(*csr, data.offsets, weights, blocks)
            else:
                kernels.dense_gram(features, data.offsets, weights, blocks)
        return blocks + self.l2 * xp.eye(self.dim, dtype=self.dtype) if self.l2 else blocks

    def stochastic_gradient(self, X: Any, batch_size: int, streams: Any, step: int) -> Any:
        """Mean gradient over `batch_size` rows of each agent, drawn with replacement."""
        batch_size = check_integer(batch_size, "batch_size", minimum=1)
        data, xp = self.data, self.xp
        drawn = streams.integers(self.agents, step, data.sizes, batch_size)
        rows = (data.offsets[:-1, None] + drawn).ravel()
        index = rows if is_numpy(xp) else from_numpy(rows, xp)
        self.calls.samples += rows.size
        if data.is_sparse:
            features, targets = data.features[rows], self.targets[rows]
        else:
            features, targets = xp.take(data.features, index, axis=0), xp.take(self.targets, index)
        offsets = batch_size * np.arange(self.n_local + 1)
        batch = LinearModel(
            AgentData(features, targets, offsets, self.agents, self.n_agents), self.loss, self.l2
        )
        return batch.gradient(X)

    @cached_property
    def compiled_oracle(self) -> tuple[Any, ...] | None:
        """The first arguments of `optikit._kernels_oracle.block_oracle`, up to the ridge; None off the host.

        For methods that compile a loop of many oracle steps of their own; they also count its calls.
        """
        if self._features is None:
            return None
        from optikit._kernels_oracle import compiled_loss

        found = compiled_loss(self.loss)
        if found is None:
            return None
        features, none = self._features, np.zeros(0, dtype=self.dtype)
        no_index = np.zeros(0, dtype=np.int32)
        if self.data.is_sparse:
            arrays = (np.zeros((0, 0), self.dtype), features.data, features.indices, features.indptr)
        else:
            arrays = (features, none, no_index, no_index)
        return (self.data.is_sparse, *arrays, self.targets, *found, self.l2)

    # -- constants ----------------------------------------------------------------------------------------

    @cached_property
    def _top_eigenvalues(self) -> np.ndarray:
        data = self.data
        features = data.features if data.is_sparse else to_numpy(data.features)
        blocks = (features[a:b] for a, b in zip(data.offsets[:-1], data.offsets[1:]))
        return np.array([_largest_gram_eigenvalue(block) / block.shape[0] for block in blocks])

    @property
    def smoothness(self) -> Any:
        """``sup phi'' * lambda_max(X_m'X_m) / n_m + l2`` of each agent; inf without a curvature bound."""
        return from_numpy(self.loss.smoothness * self._top_eigenvalues + self.l2, self.xp)

    @property
    def strong_convexity(self) -> Any:
        """The ridge weight, the part that is known without looking at the data."""
        return self.xp.full((self.n_local,), self.l2, dtype=self.xp.float64)

    @property
    def lipschitz(self) -> Any:
        """``sup |phi'| * max row norm`` of each agent; inf when the loss has no bound or l2 > 0."""
        features = self.data.features
        if self.data.is_sparse:
            norms = np.sqrt(np.asarray(features.multiply(features).sum(axis=1)).ravel())
        else:
            norms = np.linalg.norm(to_numpy(features), axis=1)
        largest = np.maximum.reduceat(norms, self.data.offsets[:-1]) if self.n_local else np.zeros(0)
        bound = self.loss.lipschitz * largest
        return from_numpy(np.full_like(bound, np.inf) if self.l2 else bound, self.xp)

    # -- parts --------------------------------------------------------------------------------------------

    def subset(self, agents: Any) -> LinearModel:
        return LinearModel(self.data.subset(agents), self.loss, self.l2)

    def to(self, xp: Any, device: Any = None) -> LinearModel:
        """The same model with its data in another array namespace."""
        return LinearModel(self.data.to(xp, device), self.loss, self.l2)

    def digests(self) -> list[int]:
        label = f"linear model {self.loss.describe()} l2={self.l2!r} "
        return [digest_arrays(label + f"{number:x}") for number in self.data.digests()]

    def __repr__(self) -> str:
        kind = "sparse" if self.data.is_sparse else "dense"
        return (
            f"LinearModel({self.loss.describe()}, l2={self.l2:g}, agents={self.n_agents}, "
            f"rows={self.data.n_samples}, dim={self.dim}, {kind})"
        )


def _numpy_dtype(dtype: Any) -> Any:
    return np.float32 if "32" in str(dtype) else np.float64


def _largest_gram_eigenvalue(block: Any) -> float:
    """Largest eigenvalue of ``block' block``."""
    n, d = block.shape
    if min(n, d) <= EXACT_EIGENVALUES:
        gram = block @ block.T if n <= d else block.T @ block
        gram = gram.toarray() if hasattr(gram, "toarray") else gram
        return max(0.0, float(np.linalg.eigvalsh(np.asarray(gram, dtype=np.float64))[-1]))
    from scipy.sparse.linalg import svds

    start = np.full(min(n, d), 1.0)
    return float(svds(block, k=1, v0=start, return_singular_vectors=False)[0]) ** 2
