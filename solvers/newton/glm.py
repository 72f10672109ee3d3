r"""Generalised linear models as the objective of (sub-sampled) Newton methods.

.. math::

    F(b) = \frac1N \sum_i \omega_i \phi(x_i'b + o_i, y_i) + \frac{l_2}2 \|b\|^2, \qquad N = \sum_i \omega_i

The intercept, if any, is the last coordinate and is not penalised. Rows are read in place: neither the
weighted matrix :math:`A(b) = diag(\sqrt{\omega_i \phi''_i / N}) X` nor the column of ones is ever formed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from optikit.arrays import as_float_array
from optikit.losses import Loss, get_loss
from optikit.objectives import Objective, OracleCalls
from optikit.objectives.base import digest_arrays
from optikit.runtime.communicator import block_of
from optikit.sketching.door import check_matrix
from optikit.validation import check_integer, check_real


class GLM(Objective):
    """A GLM whose rows are dealt in contiguous blocks to q workers.

    Parameters
    ----------
    X : array (n, d) or SciPy CSR
        float32 or float64; Gram matrices are formed in float64.
    y : array (n,)
    loss : Loss or str
    l2 : float, default 0
        Ridge weight, >= 0.
    intercept : bool, default False
    offset : array (n,), optional
        Added to the linear predictor.
    sample_weight : array (n,), optional
        Non-negative, not all zero.
    workers : int, default 1
        q; on MPI they are blocked over the ranks, on one process they are simulated with the same result.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: Loss | str,
        *,
        l2: float = 0.0,
        intercept: bool = False,
        offset: Any = None,
        sample_weight: Any = None,
        workers: int = 1,
        agents: Any = None,
        checked: bool = False,
    ) -> None:
        if sp.issparse(X):
            self.X: Any = sp.csr_array(check_matrix(X, "X", finite=not checked))
        else:
            self.X = as_float_array(X, name="X", ndim=2, finite=not checked)
        n, d = self.X.shape
        if n == 0 or d == 0:
            raise ValueError(f"X must have rows and columns, got shape {(n, d)}.")
        self.loss = get_loss(loss)
        y = np.asarray(as_float_array(y, name="y", shape=(n,), finite=not checked), dtype=np.float64)
        self.y = y if checked else np.asarray(self.loss.check_targets(y))
        self.l2 = check_real(l2, "l2", minimum=0.0)
        self.intercept = bool(intercept)
        self.offset = (
            None if offset is None else np.asarray(as_float_array(offset, name="offset", shape=(n,)))
        )
        if sample_weight is None:
            self.weight: Any = None
            self.total_weight = float(n)
        else:
            self.weight = np.asarray(as_float_array(sample_weight, name="sample_weight", shape=(n,)))
            with np.errstate(over="ignore"):
                self.total_weight = float(self.weight.sum())
            if self.weight.min() < 0 or not 0 < self.total_weight < np.inf:
                raise ValueError(
                    "sample_weight must be non-negative and not all zero, of a finite sum, got a sum of "
                    f"{self.total_weight!r}."
                )
        self.n_agents = check_integer(workers, "workers", minimum=1, maximum=n)
        self.agents = np.arange(self.n_agents) if agents is None else np.asarray(agents, dtype=np.int64)
        self.n_samples, self.n_features = n, d
        self.dim, self.dtype, self.xp, self.calls = d + self.intercept, np.float64, _numpy(), OracleCalls()
        self.penalty = np.full(self.dim, self.l2)
        if self.intercept:
            self.penalty[-1] = 0.0
        if self.agents.size:
            first = block_of(int(self.agents[0]), self.n_agents, n).start
            self.rows = slice(first, block_of(int(self.agents[-1]), self.n_agents, n).stop)
        else:
            self.rows = slice(0, 0)

    # -- rows ---------------------------------------------------------------------------------------------

    def block(self, agent: int) -> slice:
        """Rows of one worker."""
        rows = block_of(agent, self.n_agents, self.n_samples)
        return slice(rows.start, rows.stop)

    def margins(self, b: np.ndarray, rows: Any = slice(None), *, offset: bool = True) -> np.ndarray:
        """``x_i'b`` (+ offset) for the given rows."""
        if not b.any():  # the usual start: no pass over the rows
            eta = np.zeros(self.y[rows].size)
        else:
            eta = np.asarray(self.X[rows] @ b[: self.n_features], dtype=np.float64)
        if self.intercept:
            eta = eta + b[-1]
        return eta + self.offset[rows] if offset and self.offset is not None else eta

    def loss_sum(self, eta: np.ndarray, rows: Any) -> float:
        """``sum omega_i phi(eta_i) / N`` over the rows."""
        values = self.loss.value(eta, self.y[rows])
        total = np.sum(values) if self.weight is None else self.weight[rows] @ values
        return float(total) / self.total_weight

    def score_sum(self, eta: np.ndarray, rows: Any) -> np.ndarray:
        """``sum omega_i phi'(eta_i) x_i / N`` over the rows, ``(dim,)``."""
        slope = self.loss.derivative(eta, self.y[rows]) / self.total_weight
        if self.weight is not None:
            slope = slope * self.weight[rows]
        g = np.asarray(self.X[rows].T @ slope.astype(self.X.dtype), dtype=np.float64)
        return np.append(g, slope.sum()) if self.intercept else g

    def root_weights(self, eta: np.ndarray, rows: Any) -> np.ndarray:
        """``sqrt(omega_i phi''(eta_i) / N)``: the row scaling that makes X the matrix A(b)."""
        curvature = self.loss.second_derivative(eta, self.y[rows]) / self.total_weight
        if self.weight is not None:
            curvature = curvature * self.weight[rows]
        return np.sqrt(np.maximum(curvature, 0.0))

    def with_intercept(self, sketched: Any, ones: Any) -> np.ndarray:
        """A sketch of X completed by the sketch of the column of ones."""
        return np.column_stack([sketched, ones]) if self.intercept else np.asarray(sketched)

    # -- the Objective interface ---------------------------------------------------------------------------

    def _penalty_value(self, b: np.ndarray) -> float:
        return 0.5 * float(self.penalty @ (b * b))

    def _points(self, X: np.ndarray) -> np.ndarray:
        return np.broadcast_to(X, (self.n_local, self.dim)) if X.ndim == 1 else X

    def value(self, X: Any) -> Any:
        self.calls.values += 1
        q = self.n_agents
        return np.array(
            [
                q * self.loss_sum(self.margins(b, self.block(a)), self.block(a)) + self._penalty_value(b)
                for a, b in zip(self.agents, self._points(X))
            ]
        )

    def gradient(self, X: Any) -> Any:
        self.calls.gradients += 1
        q = self.n_agents
        rows = [
            q * self.score_sum(self.margins(b, self.block(a)), self.block(a)) + self.penalty * b
            for a, b in zip(self.agents, self._points(X))
        ]
        return np.array(rows).reshape(self.n_local, self.dim)

    def subset(self, agents: Any) -> GLM:
        return GLM(
            self.X,
            self.y,
            self.loss,
            l2=self.l2,
            intercept=self.intercept,
            offset=self.offset,
            sample_weight=self.weight,
            workers=self.n_agents,
            agents=agents,
            checked=True,
        )

    def digests(self) -> list[int]:
        numbers = []
        for agent in self.agents:
            rows = self.block(agent)
            part = self.X[rows]
            arrays = (part.data, part.indices, part.indptr) if sp.issparse(part) else (part,)
            extra = [v[rows] for v in (self.offset, self.weight) if v is not None]
            label = f"glm {self.loss.describe()} {self.l2!r} {self.intercept} {self.n_samples} {agent}"
            numbers.append(digest_arrays(label, *(np.asarray(a) for a in arrays), self.y[rows], *extra))
        return numbers

    def __repr__(self) -> str:
        return (
            f"GLM({self.loss.describe()}, n={self.n_samples}, d={self.n_features}, l2={self.l2:g}, "
            f"intercept={self.intercept}, workers={self.n_agents})"
        )


def _numpy() -> Any:
    from optikit.arrays import resolve_namespace

    return resolve_namespace("numpy")
