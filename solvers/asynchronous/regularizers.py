"""The server's convex function h: value, proximal map, and what the certificate needs of its conjugate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.validation import check_integer, check_real


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

    def check_dimension(self, d: int) -> None:
        """Refuse points of dimension d that h is not made for."""
        check_integer(d, "d", minimum=1)


@dataclass(frozen=True)
class Quadratic(Regularizer):
    """h = (q/2)||x||^2; q = 0 is no regulariser.

    Parameters
    ----------
    quadratic : float
        q, the l2 weight, >= 0.
    """

    quadratic: float = 0.0

    def __post_init__(self) -> None:
        _check_quadratic(self.quadratic)

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
    """h = r||x||_1 + (q/2)||x||^2.

    Parameters
    ----------
    l1 : float
        r, >= 0.
    quadratic : float
        q, the l2 weight, >= 0.
    """

    l1: float = 0.0
    quadratic: float = 0.0

    def __post_init__(self) -> None:
        check_real(self.l1, "l1", minimum=0.0)
        _check_quadratic(self.quadratic)

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
    """Indicator of ``low <= x <= high`` plus (q/2)||x||^2.

    Parameters
    ----------
    low, high : float or array (d,)
        Bounds, ``low <= high``; infinite ones are none.
    quadratic : float
        q, the l2 weight, >= 0.
    """

    low: Any = -1.0
    high: Any = 1.0
    quadratic: float = 0.0

    def __post_init__(self) -> None:
        _check_quadratic(self.quadratic)
        low, high = _bound(self.low, "low"), _bound(self.high, "high")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if np.ndim(low) and np.ndim(high) and np.shape(low) != np.shape(high):
            raise ValueError(
                f"low and high must be as long as each other, got {np.size(low)} and {np.size(high)} bounds."
            )
        crossed = np.flatnonzero(np.atleast_1d(np.asarray(low) > np.asarray(high)))
        if crossed.size:
            k = int(crossed[0])
            pair = [float(np.ravel(bound)[k if np.ndim(bound) else 0]) for bound in (low, high)]
            raise ValueError(
                f"low must be at most high everywhere, got {pair[0]} and {pair[1]} at index {k}."
            )
        if np.any(np.asarray(low) == np.inf) or np.any(np.asarray(high) == -np.inf):
            raise ValueError(
                f"low must be below inf and high above -inf, got {self.low!r} and {self.high!r}."
            )

    def check_dimension(self, d: int) -> None:
        super().check_dimension(d)
        for name, bound in (("low", self.low), ("high", self.high)):
            if np.shape(bound) not in ((), (d,)):
                raise ValueError(f"{name} must be one number or {d}, one per variable, got {np.size(bound)}.")

    def value(self, x: np.ndarray) -> float:
        # Points that some arithmetic has moved off a bound by its rounding are inside.
        slack = 1e-12 * (1.0 + np.abs(x))
        inside = np.all(x >= self.low - slack) and np.all(x <= self.high + slack)
        return 0.5 * self.quadratic * float(x @ x) if inside else np.inf

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        return np.clip(x / (1.0 + self.quadratic * step), self.low, self.high)

    def active(self, p: np.ndarray) -> np.ndarray:
        return (p > self.low) & (p < self.high)

    def negative_conjugate(self, s: np.ndarray) -> float | None:
        if self.quadratic:
            x = np.clip(-s / self.quadratic, self.low, self.high)
        else:
            # The end that s points away from; where s is zero any point does, an infinite bound would not.
            x = np.where(s == 0, 0.0, np.where(s > 0, self.low, self.high))
            if not np.all(np.isfinite(x)):
                return None
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
        ``argmin function(y) + ||y - x||^2 / (2 step)``.
    quadratic : float
        q, the l2 weight, >= 0.
    """

    function: Callable[[np.ndarray], float]
    map: Callable[[np.ndarray, float], np.ndarray]
    quadratic: float = 0.0

    def __post_init__(self) -> None:
        _check_quadratic(self.quadratic)
        for name, value in (("function", self.function), ("map", self.map)):
            if not callable(value):
                raise TypeError(f"{name} must be callable, got {value!r}.")

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


def l1_negative_conjugate(s: np.ndarray, l1: float, radius: float) -> float:
    """``min r||x||_1 + s'x`` over ``||x||_1 <= radius``: what bounds l1 alone from below.

    Parameters
    ----------
    s : array (d,)
        The aggregate cut ``G'lam``.
    l1 : float
        r.
    radius : float
        Bound on the 1-norm of a minimiser: ``(F(x) - sum f_low) / r`` for any x and ``f_i >= f_low_i``.

    Notes
    -----
    Valid for every feasible lam, but slow to close (the excess falls only as fast as lam converges):
    `solvers.asynchronous.master.lp_lower_bound` is exact.
    """
    radius = check_real(radius, "radius", minimum=0.0)
    return -radius * max(0.0, float(np.abs(s).max(initial=0.0)) - l1)


def _check_quadratic(value: Any) -> None:
    check_real(value, "quadratic (the l2 weight)", minimum=0.0)


def _bound(value: Any, name: str) -> Any:
    """A bound as a float or a vector of floats without NaN."""
    bound = np.asarray(value, dtype=np.float64)
    if bound.ndim > 1 or np.any(np.isnan(bound)):
        raise ValueError(f"{name} must be one number or a vector of numbers without NaN, got {value!r}.")
    return float(bound) if bound.ndim == 0 else bound
