"""Losses of a residual ``z - y``, for real targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.arrays import array_namespace
from optikit.losses.base import Loss, infinite_outside
from optikit.validation import check_real


@dataclass(frozen=True)
class LeastSquares(Loss):
    """``(z - y)^2 / 2``."""

    name: ClassVar[str] = "least_squares"
    smoothness: ClassVar[float] = 1.0

    def value(self, z: Any, y: Any) -> Any:
        return 0.5 * (z - y) ** 2

    def derivative(self, z: Any, y: Any) -> Any:
        return z - y

    def second_derivative(self, z: Any, y: Any) -> Any:
        return 1.0 + 0.0 * (z - y)

    def conjugate(self, u: Any, y: Any) -> Any:
        return 0.5 * u**2 + u * y

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        return (z + step * y) / (1.0 + step)


@dataclass(frozen=True)
class Absolute(Loss):
    """``|z - y|``."""

    name: ClassVar[str] = "absolute"
    lipschitz: ClassVar[float] = 1.0

    def value(self, z: Any, y: Any) -> Any:
        return array_namespace(z).abs(z - y)

    def derivative(self, z: Any, y: Any) -> Any:
        return array_namespace(z).sign(z - y)

    def second_derivative(self, z: Any, y: Any) -> Any:
        return 0.0 * (z - y)

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        zero = array_namespace(y).zeros_like(y)
        return zero - 1.0, zero + 1.0

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        return infinite_outside(xp.abs(u) <= 1, u * y, xp)

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        rest = xp.abs(e) - step
        return y + xp.where(rest > 0, xp.sign(e) * rest, 0.0 * e)


@dataclass(frozen=True)
class Quantile(Loss):
    """Pinball loss of level tau: ``max(tau (y - z), (tau - 1) (y - z))``.

    Parameters
    ----------
    level : float, default 0.5
        tau in (0, 1).
    """

    name: ClassVar[str] = "quantile"

    level: float = 0.5

    def __post_init__(self) -> None:
        level = check_real(self.level, "level", minimum=0.0, maximum=1.0, open_low=True, open_high=True)
        object.__setattr__(self, "level", level)  # a NumPy scalar would promote single precision

    @property
    def lipschitz(self) -> float:
        """``max(tau, 1 - tau)``."""
        return max(self.level, 1.0 - self.level)

    def value(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = y - z
        return xp.where(e >= 0, self.level * e, (self.level - 1.0) * e)

    def derivative(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = y - z
        slope = xp.where(e > 0, -self.level + 0.0 * e, 1.0 - self.level + 0.0 * e)
        return xp.where(e == 0, 0.0 * e, slope)

    def second_derivative(self, z: Any, y: Any) -> Any:
        return 0.0 * (z - y)

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        zero = array_namespace(y).zeros_like(y)
        return zero - self.level, zero + 1.0 - self.level

    def conjugate(self, u: Any, y: Any) -> Any:
        inside = (u >= -self.level) & (u <= 1.0 - self.level)
        return infinite_outside(inside, u * y, array_namespace(u))

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        above, below = (1.0 - self.level) * step, self.level * step
        return y + xp.where(e > above, e - above, xp.where(e < -below, e + below, 0.0 * e))


@dataclass(frozen=True)
class Huber(Loss):
    """Quadratic within `delta` of the target, linear beyond: ``delta (|e| - delta/2)``.

    Parameters
    ----------
    delta : float, default 1.0
        Half-width of the quadratic part, > 0.
    """

    name: ClassVar[str] = "huber"
    smoothness: ClassVar[float] = 1.0

    delta: float = 1.0

    def __post_init__(self) -> None:
        delta = check_real(self.delta, "delta", minimum=0.0, open_low=True)
        object.__setattr__(self, "delta", delta)  # a NumPy scalar would promote single precision

    @property
    def lipschitz(self) -> float:
        """``delta``."""
        return self.delta

    def value(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = xp.abs(z - y)
        near = xp.where(e <= self.delta, e, 0.0 * e)  # keeps the square of a huge error from overflowing
        return xp.where(e <= self.delta, 0.5 * near**2, self.delta * (e - 0.5 * self.delta))

    def derivative(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        return xp.where(xp.abs(e) <= self.delta, e, self.delta * xp.sign(e))

    def second_derivative(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        return xp.where(xp.abs(e) <= self.delta, 1.0 + 0.0 * e, 0.0 * e)

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        zero = array_namespace(y).zeros_like(y)
        return zero - self.delta, zero + self.delta

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        inside = xp.abs(u) <= self.delta
        kept = xp.where(inside, u, xp.zeros_like(u))  # the square of a huge u would overflow
        return infinite_outside(inside, 0.5 * kept**2 + kept * y, xp)

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        far = xp.abs(e) > self.delta * (1.0 + step)
        return y + xp.where(far, e - step * self.delta * xp.sign(e), e / (1.0 + step))
