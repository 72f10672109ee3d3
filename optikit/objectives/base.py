"""The interface of what agents minimise: a whole block of agents at once."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.arrays import as_float_array


@dataclass
class OracleCalls:
    """How often the oracle was asked: evaluations of the whole block of agents held here."""

    values: int = 0
    gradients: int = 0
    hessians: int = 0
    hessian_vectors: int = 0
    samples: int = 0


class Objective(ABC):
    """f_m for each agent m held here, evaluated for all of them at once.

    Attributes
    ----------
    n_agents : int
        Agents of the whole problem.
    agents : numpy.ndarray of int64, shape (n_local,)
        Global numbers of the agents held here.
    dim : int
        Dimension d of a point.
    dtype, xp
        Floating dtype and array namespace of points, values and gradients.
    calls : OracleCalls
        What has been asked so far.
    """

    n_agents: int
    agents: np.ndarray
    dim: int
    dtype: Any
    xp: Any
    calls: OracleCalls

    @property
    def n_local(self) -> int:
        """Agents held here."""
        return self.agents.size

    def _point(self, X: Any, name: str = "X") -> Any:
        """X once its shape is known to be that of a point, or of one point per agent held here."""
        if not hasattr(X, "shape"):
            X = as_float_array(X, name=name, xp=self.xp)
        if X.shape != (self.n_local, self.dim) and X.shape != (self.dim,):
            raise ValueError(
                f"{name} must have shape ({self.n_local}, {self.dim}) or ({self.dim},), got {tuple(X.shape)}."
            )
        return X

    @abstractmethod
    def value(self, X: Any) -> Any:
        """Values ``(n_local,)`` at X ``(n_local, d)``, or at one point ``(d,)`` for every agent."""

    @abstractmethod
    def gradient(self, X: Any) -> Any:
        """Gradients (or subgradients) ``(n_local, d)``, a new array."""

    def value_and_gradient(self, X: Any) -> tuple[Any, Any]:
        """Both, sharing what they have in common."""
        return self.value(X), self.gradient(X)

    def hessian(self, X: Any) -> Any:
        """Hessians ``(n_local, d, d)``."""
        raise NotImplementedError(f"{type(self).__name__} has no Hessian.")

    def hessian_vector(self, X: Any, V: Any) -> Any:
        """Hessian-vector products ``(n_local, d)``; V is ``(n_local, d)``, or ``(d,)`` for every agent."""
        return self.hessian(X) @ V if V.ndim == 1 else (self.hessian(X) @ V[:, :, None])[:, :, 0]

    def stochastic_gradient(self, X: Any, batch_size: int, streams: Any, step: int) -> Any:
        """Unbiased gradients from `batch_size` samples of each agent, keyed by (agent, step)."""
        raise NotImplementedError(f"{type(self).__name__} has no samples to draw from.")

    @abstractmethod
    def subset(self, agents: Any) -> Objective:
        """The objective of some of the agents held here."""

    @abstractmethod
    def digests(self) -> list[int]:
        """One SHA-256 integer per agent held here, of everything that defines its function."""

    def fingerprint(self) -> str:
        """Hexadecimal sum of `digests`: blocks of agents add up."""
        return f"{sum(self.digests()) % 2**256:064x}"


def places_of(wanted: Any, held: np.ndarray) -> np.ndarray:
    """Where the agents `wanted` stand among those `held`.

    Raises
    ------
    ValueError
        When one of them is not held here, or they do not increase.
    """
    wanted = np.asarray(wanted, dtype=np.int64)
    places = np.searchsorted(held, wanted)
    known = wanted.size == 0 or (places.max() < held.size and np.array_equal(held[places], wanted))
    if wanted.ndim != 1 or not known or np.any(np.diff(wanted) <= 0):
        raise ValueError(f"agents must be increasing and among those held here, got {wanted.tolist()}.")
    return places


def digest_arrays(label: str, *arrays: np.ndarray) -> int:
    """SHA-256 of a label and arrays as an integer."""
    digest = hashlib.sha256(label.encode())
    for array in arrays:
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).data)
    return int.from_bytes(digest.digest(), "little")
