"""The server's convex function h: value, proximal map, and what the certificate needs of its conjugate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.validation import check_real


class Regularizer(ABC):
    """A simple convex h plus a quadratic ``(q/2)||x||^2`` that the strong-convexity shift may add.

    Attributes
    ----------
    quadratic : float
        q, >= 0.
    """

    quadratic: float = 0.0

    @property
    def smooth(self) -> bool:
        """Whether h is only the quadratic: the master's dual is then a plain QP."""
        return False

    @abstractmethod
    def value(self, x: np.ndarray) -> float:
        """h(x), the quadratic included; inf outside the domain."""

    @abstractmethod
    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """``argmin h(y) + ||y - x||^2 / (2 step)``."""

    @abstractmethod
    def active(self, p: np.ndarray) -> np.ndarray:
        """Mask of coordinates where the proximal map has derivative 1/(1 + q step) at its output p."""

    @abstractmethod
    def negative_conjugate(self, s: np.ndarray) -> float | None:
        """``min_x h(x) + s'x = -h*(-s)``; None when it is -inf for some s."""

    @abstractmethod
    def with_quadratic(self, extra: float) -> Regularizer:
        """The same h with ``(extra/2)||x||^2`` added."""


@dataclass(frozen=True)
class Quadratic(Regularizer):
    """h = (q/2)||x||^2; q = 0 is no regulariser."""

    quadratic: float = 0.0

    def __post_init__(self) -> None:
        check_real(self.quadratic, "quadratic", minimum=0.0)

    @property
    def smooth(self) -> bool:
        return True

    def value(self, x: np.ndarray) -> float:
        return 0.5 * self.quadratic * float(x @ x)

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        return x / (1.0 + self.quadratic * step)

    def active(self, p: np.ndarray) -> np.ndarray:
        return np.ones(p.shape, dtype=bool)

    def negative_conjugate(self, s: np.ndarray) -> float | None:
        return None if self.quadratic == 0 else -float(s @ s) / (2.0 * self.quadratic)

    def with_quadratic(self, extra: float) -> Quadratic:
        return Quadratic(self.quadratic + extra)


@dataclass(frozen=True)
class ElasticNet(Regularizer):
    """h = r||x||_1 + (q/2)||x||^2."""

    l1: float = 0.0
    quadratic: float = 0.0

    def __post_init__(self) -> None:
        check_real(self.l1, "l1", minimum=0.0)
        check_real(self.quadratic, "quadratic", minimum=0.0)

    def value(self, x: np.ndarray) -> float:
        return self.l1 * float(np.sum(np.abs(x))) + 0.5 * self.quadratic * float(x @ x)

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        shrunk = np.sign(x) * np.maximum(np.abs(x) - self.l1 * step, 0.0)
        return shrunk / (1.0 + self.quadratic * step)

    def active(self, p: np.ndarray) -> np.ndarray:
        return p != 0.0

    def negative_conjugate(self, s: np.ndarray) -> float | None:
        if self.quadratic == 0:
            return None
        excess = np.maximum(np.abs(s) - self.l1, 0.0)
        return -float(excess @ excess) / (2.0 * self.quadratic)

    def with_quadratic(self, extra: float) -> ElasticNet:
        return ElasticNet(self.l1, self.quadratic + extra)


@dataclass(frozen=True)
class Box(Regularizer):
    """Indicator of ``low <= x <= high`` plus (q/2)||x||^2."""

    low: Any = -1.0
    high: Any = 1.0
    quadratic: float = 0.0

    def __post_init__(self) -> None:
        check_real(self.quadratic, "quadratic", minimum=0.0)
        if np.any(np.asarray(self.low) > np.asarray(self.high)):
            raise ValueError(f"low must be at most high everywhere, got {self.low!r} and {self.high!r}.")

    def value(self, x: np.ndarray) -> float:
        inside = np.all(x >= np.asarray(self.low) - 1e-12) and np.all(x <= np.asarray(self.high) + 1e-12)
        return 0.5 * self.quadratic * float(x @ x) if inside else np.inf

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        return np.clip(x / (1.0 + self.quadratic * step), self.low, self.high)

    def active(self, p: np.ndarray) -> np.ndarray:
        return (p > self.low) & (p < self.high)

    def negative_conjugate(self, s: np.ndarray) -> float | None:
        if self.quadratic:
            x = np.clip(-s / self.quadratic, self.low, self.high)
        else:
            x = np.where(s > 0, self.low, self.high) * np.ones_like(s)
        return float(s @ x) + 0.5 * self.quadratic * float(x @ x)

    def with_quadratic(self, extra: float) -> Box:
        return Box(self.low, self.high, self.quadratic + extra)


@dataclass(frozen=True)
class Prox(Regularizer):
    """Any convex h given by its value and proximal map, plus (q/2)||x||^2.

    Parameters
    ----------
    function : callable x -> float
    map : callable (x, step) -> array
    """

    function: Callable[[np.ndarray], float]
    map: Callable[[np.ndarray, float], np.ndarray]
    quadratic: float = 0.0

    def value(self, x: np.ndarray) -> float:
        return float(self.function(x)) + 0.5 * self.quadratic * float(x @ x)

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        shrink = 1.0 + self.quadratic * step
        return np.asarray(self.map(x / shrink, step / shrink), dtype=np.float64)

    def active(self, p: np.ndarray) -> np.ndarray:
        raise NotImplementedError("a general proximal map has no known derivative")

    def negative_conjugate(self, s: np.ndarray) -> float | None:
        if self.quadratic == 0:
            return None
        x = self._minimiser(s)
        return self.value(x) + float(s @ x)

    def _minimiser(self, s: np.ndarray) -> np.ndarray:
        """``argmin h(x) + s'x`` with the quadratic as the proximal term."""
        return np.asarray(self.map(-s / self.quadratic, 1.0 / self.quadratic), dtype=np.float64)

    def with_quadratic(self, extra: float) -> Prox:
        return Prox(self.function, self.map, self.quadratic + extra)
