"""Losses of generalised linear models with log link: counts and positive targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.arrays import array_namespace, from_numpy, to_numpy
from optikit.losses.base import Loss, exp_or_inf, infinite_outside, sigmoid, xlogx
from optikit.validation import check_real


@dataclass(frozen=True)
class Poisson(Loss):
    """Negative log-likelihood of counts with log link, ``exp(z) - y z`` (the factorial term left out)."""

    name: ClassVar[str] = "poisson"
    targets: ClassVar[str] = "count"

    def value(self, z: Any, y: Any) -> Any:
        return exp_or_inf(z) - y * z

    def derivative(self, z: Any, y: Any) -> Any:
        return exp_or_inf(z) - y

    def second_derivative(self, z: Any, y: Any) -> Any:
        return exp_or_inf(z) + 0.0 * y

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        return -y, math.inf + array_namespace(y).zeros_like(y)

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        mean = u + y
        inside = mean >= 0
        kept = xp.where(inside, mean, 1.0 + 0.0 * mean)
        return infinite_outside(inside, xlogx(kept, xp) - kept, xp)

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        # t = c - W with c = z + step y and W = step e^t, that is W + log W = c + log(step): Wright's omega.
        from scipy.special import wrightomega

        c = to_numpy(z + step * y)
        log_step = np.log(to_numpy(step))
        omega = wrightomega(c.astype(np.float64) + log_step)
        # c - W cancels where W is large, log W where it is small.
        large = omega > 1.0
        t = np.where(large, np.log(np.where(large, omega, 1.0)) - log_step, c - omega)
        return from_numpy(np.asarray(t, dtype=c.dtype), array_namespace(z))


@dataclass(frozen=True)
class NegativeBinomial(Loss):
    """Negative log-likelihood of overdispersed counts with log link (terms without z left out).

    ``(y + 1/alpha) log(1 + alpha exp(z)) - y z``: variance ``mu + alpha mu^2``; Poisson as alpha tends to 0.

    Parameters
    ----------
    alpha : float, default 1.0
        Dispersion, > 0.
    """

    name: ClassVar[str] = "negative_binomial"
    targets: ClassVar[str] = "count"

    alpha: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_real(self.alpha, "alpha", minimum=0.0, open_low=True))

    def _shifted(self, z: Any) -> Any:
        return z + math.log(self.alpha)

    def value(self, z: Any, y: Any) -> Any:
        xp, t = array_namespace(z), self._shifted(z)
        softplus = xp.where(t > 0, t, 0.0 * t) + xp.log1p(xp.exp(-xp.abs(t)))
        return (y + 1.0 / self.alpha) * softplus - y * z

    def derivative(self, z: Any, y: Any) -> Any:
        return (y + 1.0 / self.alpha) * sigmoid(self._shifted(z), array_namespace(z)) - y

    def second_derivative(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = xp.exp(-xp.abs(self._shifted(z)))
        return (y + 1.0 / self.alpha) * (e / (1.0 + e) ** 2)

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        return -y, 1.0 / self.alpha + array_namespace(y).zeros_like(y)

    def conjugate(self, u: Any, y: Any) -> Any:
        xp, scale = array_namespace(u), y + 1.0 / self.alpha
        s = (u + y) / scale
        inside = (s >= 0) & (s <= 1)
        s = xp.where(inside, s, 0.5 + 0.0 * s)
        entropy = xlogx(s, xp) + xlogx(1.0 - s, xp) - s * math.log(self.alpha)
        return infinite_outside(inside, scale * entropy, xp)


@dataclass(frozen=True)
class Gamma(Loss):
    """Negative log-likelihood of positive targets with log link, ``y exp(-z) + z`` (up to the shape)."""

    name: ClassVar[str] = "gamma"
    targets: ClassVar[str] = "positive"

    def value(self, z: Any, y: Any) -> Any:
        return y * exp_or_inf(-z) + z

    def derivative(self, z: Any, y: Any) -> Any:
        return 1.0 - y * exp_or_inf(-z)

    def second_derivative(self, z: Any, y: Any) -> Any:
        return y * exp_or_inf(-z)

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        zeros = array_namespace(y).zeros_like(y)
        return -math.inf + zeros, 1.0 + zeros

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        rest = 1.0 - u
        inside = rest >= 0
        kept = xp.where(inside, rest, 1.0 + 0.0 * rest)
        return infinite_outside(inside, xlogx(kept, xp) - kept * (xp.log(y) + 1.0), xp)
