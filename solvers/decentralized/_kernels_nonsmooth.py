"""The update of the communication-sliding inner loop, fused: three arrays read, two written."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from optikit.arrays import is_numpy


def reference_inner_step(
    U: Any, S: Any, h: Any, pull: Any, b: float, scale: float, weight: float
) -> tuple[Any, Any]:
    """``U <- (pull - h + b U) scale`` and ``S <- S + weight U`` in any array namespace."""
    U = (pull - h + b * U) * scale
    return U, S + weight * U


@cache
def inner_step_for(xp: Any) -> Callable[..., tuple[Any, Any]]:
    """The fused kernel for NumPy (it overwrites U and S), the reference elsewhere."""
    if not is_numpy(xp):
        return reference_inner_step
    from numba import njit

    @njit(cache=True)
    def fused(U, S, h, pull, b, scale, weight):
        n, d = U.shape
        for i in range(n):
            for j in range(d):
                u = (pull[i, j] - h[i, j] + b * U[i, j]) * scale
                U[i, j] = u
                S[i, j] += weight * u
        return U, S

    return fused
