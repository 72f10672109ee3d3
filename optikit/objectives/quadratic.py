"""Quadratics ``1/2 x'A x - b'x + c``, one per agent."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from optikit.arrays import array_namespace, as_float_array, from_numpy, to_numpy
from optikit.objectives.base import Objective, OracleCalls, digest_arrays, places_of


class Quadratic(Objective):
    """``f_m(x) = 1/2 x'A_m x - b_m'x + c_m``.

    Parameters
    ----------
    A : array, shape (n, d, d)
        Symmetric matrices.
    b : array, shape (n, d)
    c : array, shape (n,), optional
        Zeros by default.
    agents : array of int, shape (n,), optional
        Global numbers of the agents held here; 0..n-1 by default.
    n_agents : int, optional
        Agents of the whole problem; n by default.

    Raises
    ------
    ValueError
        For shapes that disagree, data that are not finite, or a matrix that is not symmetric (its agent is
        named).
    """

    def __init__(
        self, A: Any, b: Any, c: Any = None, *, agents: Any = None, n_agents: int | None = None
    ) -> None:
        self.A = as_float_array(A, name="A", ndim=3)
        self.xp = xp = array_namespace(self.A)
        n, d, _ = self.A.shape
        self.A = as_float_array(self.A, name="A", shape=(n, d, d))
        self.b = as_float_array(b, name="b", xp=xp, shape=(n, d))
        self.c = (
            xp.zeros((n,), dtype=self.A.dtype)
            if c is None
            else as_float_array(c, name="c", xp=xp, shape=(n,))
        )
        self.agents = np.arange(n) if agents is None else np.asarray(agents, dtype=np.int64)
        self.n_agents = n if n_agents is None else n_agents
        self.dim, self.dtype, self.calls = d, self.A.dtype, OracleCalls()
        self._check_symmetry()

    def _check_symmetry(self) -> None:
        xp = self.xp
        if self.A.size == 0:
            return
        tolerance = 1e-10 if self.A.dtype == xp.float64 else 1e-5
        skew = xp.max(xp.abs(self.A - xp.matrix_transpose(self.A)), axis=(1, 2))
        wrong = to_numpy(skew > tolerance * (1.0 + xp.max(xp.abs(self.A), axis=(1, 2))))
        if wrong.any():
            agent = int(self.agents[np.argmax(wrong)])
            raise ValueError(
                f"A must hold symmetric matrices, got one of agent {agent} that differs from its transpose "
                f"by {float(to_numpy(skew)[np.argmax(wrong)]):.3g}."
            )

    def _product(self, X: Any) -> Any:
        if X.ndim == 1:
            return self.A @ X
        return (self.A @ X[:, :, None])[:, :, 0]

    def value(self, X: Any) -> Any:
        X = self._point(X)
        self.calls.values += 1
        return self.xp.sum((0.5 * self._product(X) - self.b) * X, axis=1) + self.c

    def gradient(self, X: Any) -> Any:
        X = self._point(X)
        self.calls.gradients += 1
        return self._product(X) - self.b

    def value_and_gradient(self, X: Any) -> tuple[Any, Any]:
        X = self._point(X)
        self.calls.values += 1
        self.calls.gradients += 1
        product = self._product(X)
        return self.xp.sum((0.5 * product - self.b) * X, axis=1) + self.c, product - self.b

    def hessian(self, X: Any) -> Any:
        self.calls.hessians += 1
        return self.A

    def hessian_vector(self, X: Any, V: Any) -> Any:
        V = self._point(V, "V")
        self.calls.hessian_vectors += 1
        return self._product(V)

    @cached_property
    def _spectra(self) -> np.ndarray:
        return np.linalg.eigvalsh(to_numpy(self.A))

    @property
    def smoothness(self) -> Any:
        """Largest eigenvalue of each A_m, ``(n_local,)``."""
        return from_numpy(np.ascontiguousarray(self._spectra[:, -1]), self.xp)

    @property
    def strong_convexity(self) -> Any:
        """Smallest eigenvalue of each A_m, ``(n_local,)``."""
        return from_numpy(np.ascontiguousarray(self._spectra[:, 0]), self.xp)

    def subset(self, agents: Any) -> Quadratic:
        places = places_of(agents, self.agents)
        rows = slice(int(places[0]), int(places[-1]) + 1) if places.size else slice(0, 0)
        if places.size and not np.all(np.diff(places) == 1):
            index = from_numpy(places, self.xp)
            parts = [self.xp.take(array, index, axis=0) for array in (self.A, self.b, self.c)]
        else:
            parts = [array[rows, ...] for array in (self.A, self.b, self.c)]
        return Quadratic(*parts, agents=self.agents[places], n_agents=self.n_agents)

    def digests(self) -> list[int]:
        A, b, c = (to_numpy(array) for array in (self.A, self.b, self.c))
        return [
            digest_arrays(f"quadratic {agent}", A[k], b[k], c[k : k + 1])
            for k, agent in enumerate(self.agents)
        ]
