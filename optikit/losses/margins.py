"""Losses of a margin ``y z``, for labels -1 / +1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.arrays import array_namespace
from optikit.losses.base import Loss, infinite_outside, sigmoid, xlogx


@dataclass(frozen=True)
class Logistic(Loss):
    """``log(1 + exp(-y z))`` with labels y in {-1, +1}."""

    name: ClassVar[str] = "logistic"
    targets: ClassVar[str] = "binary"
    smoothness: ClassVar[float] = 0.25
    lipschitz: ClassVar[float] = 1.0

    def value(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        t = y * z
        return xp.maximum(-t, xp.zeros_like(t)) + xp.log1p(xp.exp(-xp.abs(t)))

    def derivative(self, z: Any, y: Any) -> Any:
        return -y * sigmoid(-y * z, array_namespace(z))

    def second_derivative(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = xp.exp(-xp.abs(y * z))
        return e / (1.0 + e) ** 2

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        xp = array_namespace(y)
        zero = xp.zeros_like(y)
        return xp.where(y > 0, -y, zero), xp.where(y > 0, zero, -y)

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        a = -y * u  # in [0, 1] on the domain
        inside = (a >= 0) & (a <= 1)
        a = xp.where(inside, a, 0.5 + 0.0 * a)
        return infinite_outside(inside, xlogx(a, xp) + xlogx(1.0 - a, xp), xp)


@dataclass(frozen=True)
class Hinge(Loss):
    """``max(0, 1 - y z)`` with labels y in {-1, +1}."""

    name: ClassVar[str] = "hinge"
    targets: ClassVar[str] = "binary"
    lipschitz: ClassVar[float] = 1.0

    def value(self, z: Any, y: Any) -> Any:
        slack = 1.0 - y * z
        xp = array_namespace(z)
        return xp.where(slack > 0, slack, xp.zeros_like(slack))

    def derivative(self, z: Any, y: Any) -> Any:
        active = y * z < 1.0
        return array_namespace(z).where(active, -y + 0.0 * z, 0.0 * z)

    def second_derivative(self, z: Any, y: Any) -> Any:
        return 0.0 * (z * y)

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        xp = array_namespace(y)
        zero = xp.zeros_like(y)
        return xp.where(y > 0, -y, zero), xp.where(y > 0, zero, -y)

    def conjugate(self, u: Any, y: Any) -> Any:
        a = y * u
        return infinite_outside((a >= -1) & (a <= 0), a, array_namespace(u))

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        xp = array_namespace(z)
        t = y * z
        return y * xp.where(t < 1.0 - step, t + step, xp.where(t < 1.0, 1.0 + 0.0 * t, t))


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """``max(0, 1 - y z)^2 / 2`` with labels y in {-1, +1}."""

    name: ClassVar[str] = "squared_hinge"
    targets: ClassVar[str] = "binary"
    smoothness: ClassVar[float] = 1.0

    def _slack(self, z: Any, y: Any) -> Any:
        slack = 1.0 - y * z
        xp = array_namespace(z)
        return xp.where(slack > 0, slack, xp.zeros_like(slack))

    def value(self, z: Any, y: Any) -> Any:
        return 0.5 * self._slack(z, y) ** 2

    def derivative(self, z: Any, y: Any) -> Any:
        return -y * self._slack(z, y)

    def second_derivative(self, z: Any, y: Any) -> Any:
        one = 1.0 + 0.0 * (z * y)
        return array_namespace(z).where(y * z < 1.0, one, 0.0 * one)

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        xp = array_namespace(y)
        zero = xp.zeros_like(y)
        edge = math.inf + zero
        return xp.where(y > 0, -edge, zero), xp.where(y > 0, zero, edge)

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        a = y * u
        inside = a <= 0
        kept = xp.where(inside, a, xp.zeros_like(a))
        return infinite_outside(inside, 0.5 * kept**2 + kept, xp)

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        t = y * z
        return y * array_namespace(z).where(t < 1.0, (t + step) / (1.0 + step), t)
