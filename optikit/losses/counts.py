"""Losses of generalised linear models for counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.arrays import array_namespace, from_numpy, to_numpy
from optikit.losses.base import Loss, exp_or_inf, infinite_outside, xlogx


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
