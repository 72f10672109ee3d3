r"""Linear models: averages of a scalar loss over each agent's rows.

.. math:: f_m(w) = \frac1{n_m} \sum_i \phi(\langle x_{mi}, w\rangle, y_{mi}) + \frac{l_2}2 \|w\|^2

The rows of all agents lie in one array (`AgentData`), dense or CSR, and are not copied on NumPy: compiled
kernels walk over it, so an agent's numbers are bitwise the same whoever shares its rank. Other namespaces use
batched products, ragged blocks padded once (`optikit.objectives.rows`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from optikit.agent_data import AgentData
from optikit.arrays import from_numpy, is_numpy, to_numpy
from optikit.losses import Loss, get_loss
from optikit.objectives.base import Objective, OracleCalls, digest_arrays
from optikit.objectives.rows import HostRows, StackedRows, rows_of
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
        targets = self.loss.check_targets(data.targets, data.place)
        self.targets = self.xp.astype(targets, self.dtype) if targets.dtype != self.dtype else targets
        shares = np.repeat(1.0 / np.maximum(data.sizes, 1), data.sizes).astype(_numpy_dtype(self.dtype))
        self._shares = from_numpy(shares, self.xp)
        self._products = rows_of(data)

    def scores(self, X: Any) -> Any:
        """``<x_mi, X_m>`` for every row, ``(N_local,)``."""
        return self._products.scores(self._point(X))  # the kernels do not check bounds

    def adjoint(self, s: Any) -> Any:
        """``sum_i s_mi x_mi`` for every agent, ``(n_local, d)``, from one number per row."""
        if tuple(s.shape) != (self.data.n_samples,):
            raise ValueError(f"s must have shape ({self.data.n_samples},), got {tuple(s.shape)}.")
        return self._products.adjoint(s)

    # -- the oracle ---------------------------------------------------------------------------------------

    def value(self, X: Any) -> Any:
        X = self._point(X)
        self.calls.values += 1
        losses = self.loss.value(self._products.scores(X), self.targets)
        return self._penalised(self._products.sums(losses * self._shares), X)

    def gradient(self, X: Any) -> Any:
        X = self._point(X)
        self.calls.gradients += 1
        self.calls.samples += self.data.n_samples
        slopes = self.loss.derivative(self._products.scores(X), self.targets)
        return self._shrunk(self._products.adjoint(slopes * self._shares), X)

    def value_and_gradient(self, X: Any) -> tuple[Any, Any]:
        X = self._point(X)
        self.calls.values += 1
        self.calls.gradients += 1
        self.calls.samples += self.data.n_samples
        z = self._products.scores(X)
        losses, slopes = self.loss.value(z, self.targets), self.loss.derivative(z, self.targets)
        value = self._penalised(self._products.sums(losses * self._shares), X)
        return value, self._shrunk(self._products.adjoint(slopes * self._shares), X)

    def _penalised(self, value: Any, X: Any) -> Any:
        if not self.l2:
            return value
        if is_numpy(self.xp):  # NumPy sums in the order of memory: of one agent as of many
            X = np.ascontiguousarray(X)
        return value + 0.5 * self.l2 * self.xp.sum(X * X, axis=-1)

    def _shrunk(self, gradient: Any, X: Any) -> Any:
        return gradient + self.l2 * X if self.l2 else gradient

    def hessian_vector(self, X: Any, V: Any) -> Any:
        V = self._point(V, "V")
        self.calls.hessian_vectors += 1
        curvature = self.loss.second_derivative(self.scores(X), self.targets)
        products = self._products.adjoint(curvature * self._products.scores(V) * self._shares)
        return self._shrunk(products, V)

    def hessian(self, X: Any) -> Any:
        self.calls.hessians += 1
        curvature = self.loss.second_derivative(self.scores(X), self.targets)
        blocks = self._products.gram(curvature * self._shares)
        return blocks + self.l2 * self.xp.eye(self.dim, dtype=self.dtype) if self.l2 else blocks

    def stochastic_gradient(self, X: Any, batch_size: int, streams: Any, step: int) -> Any:
        """Mean gradient over `batch_size` rows of each agent, drawn with replacement.

        Parameters
        ----------
        X : array, shape (n_local, d) or (d,)
        batch_size : int
            At least 1; may exceed an agent's rows.
        streams : optikit.random.AgentStreams
            The draw is keyed by (agent, step), whichever rank an agent is on.
        step : int
        """
        X, xp, data = self._point(X), self.xp, self.data
        batch_size = check_integer(batch_size, "batch_size", minimum=1)
        drawn = streams.integers(self.agents, step, data.sizes, batch_size)
        rows = (data.offsets[:-1, None] + drawn).ravel()
        self.calls.samples += rows.size
        index = from_numpy(rows, xp)
        batch: HostRows | StackedRows
        if is_numpy(xp):
            batch = HostRows(data.features[rows], batch_size * np.arange(self.n_local + 1))
        else:
            shape = (self.n_local, batch_size, self.dim)
            batch = StackedRows(xp.reshape(xp.take(data.features, index, axis=0), shape), xp)
        slopes = self.loss.derivative(batch.scores(X), xp.take(self.targets, index))
        return self._shrunk(batch.adjoint(slopes / batch_size), X)

    @cached_property
    def compiled_oracle(self) -> tuple[Any, ...] | None:
        """The first arguments of `optikit._kernels_oracle.block_oracle`, then the offsets of agents' rows.

        None off the host and for losses without a compiled form. For methods that compile a loop of many
        oracle steps of their own; they also count its calls.
        """
        if not isinstance(self._products, HostRows):
            return None
        from optikit._kernels_oracle import compiled_loss

        found = compiled_loss(self.loss)
        if found is None:
            return None
        features: Any = self._products.features
        none = np.zeros(0, dtype=self.dtype)
        no_index = np.zeros(0, dtype=np.int32)
        if self.data.is_sparse:
            arrays = (np.zeros((0, 0), self.dtype), features.data, features.indices, features.indptr)
        else:
            arrays = (features, none, no_index, no_index)
        return (self.data.is_sparse, *arrays, self.targets, *found, self.l2, self.data.offsets)

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
        if np.isinf(self.loss.smoothness):  # also for rows of zeros
            return self.xp.full((self.n_local,), np.inf, dtype=self.xp.float64)
        return from_numpy(self.loss.smoothness * self._top_eigenvalues + self.l2, self.xp)

    @property
    def strong_convexity(self) -> Any:
        """The ridge weight, the part that is known without looking at the data."""
        return self.xp.full((self.n_local,), self.l2, dtype=self.xp.float64)

    @property
    def lipschitz(self) -> Any:
        """``sup |phi'| * max row norm`` of each agent; inf when the loss has no bound or l2 > 0."""
        if self.l2 or np.isinf(self.loss.lipschitz):
            return self.xp.full((self.n_local,), np.inf, dtype=self.xp.float64)
        features = self.data.features
        if self.data.is_sparse:
            squares = np.asarray(features.multiply(features).sum(axis=1)).ravel()
        else:
            dense = to_numpy(features)
            squares = np.einsum("ij,ij->i", dense, dense)
        largest = np.maximum.reduceat(squares, self.data.offsets[:-1]) if self.n_local else np.zeros(0)
        return from_numpy(self.loss.lipschitz * np.sqrt(largest.astype(np.float64)), self.xp)

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
    block = block.astype(np.float64, copy=False)
    if min(n, d) <= EXACT_EIGENVALUES:
        gram = block @ block.T if n <= d else block.T @ block
        gram = gram.toarray() if hasattr(gram, "toarray") else gram
        return max(0.0, float(np.linalg.eigvalsh(gram)[-1]))
    from scipy.sparse.linalg import svds

    # A fixed start, but no special vector: centred data are orthogonal to ones.
    start = np.random.Generator(np.random.PCG64(0)).standard_normal(min(n, d))
    return float(svds(block, k=1, v0=start, return_singular_vectors=False)[0]) ** 2
