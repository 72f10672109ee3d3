"""Proximal points of scalar losses without a closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optikit.arrays import array_namespace

if TYPE_CHECKING:
    from optikit.losses import Loss


def newton_prox(loss: Loss, z: Any, step: Any, y: Any, iterations: int = 2000) -> Any:
    """Root of ``t - z + step phi'(t)``, increasing in t: Newton steps, bisection where they do not halve.

    A step must be at most half of the one before, or Newton may swing between the flat ends of a sigmoid.
    An entry rests once its residual is rounding, so it does not depend on its neighbours. A dozen iterations
    are usual; bisecting the whole range of floating numbers takes about 1100.
    """
    xp = array_namespace(z)
    z = xp.asarray(z + 0.0 * (y * step))
    rounding = 2.0 * float(xp.finfo(z.dtype).eps)
    least = xp.minimum(xp.abs(z), xp.ones_like(z))  # a kink at 0 is not bisected to denormals
    with np.errstate(over="ignore", invalid="ignore"):  # exponential losses overflow on the way to the root
        low, high = _bracket(loss, z, step, y, xp)
        t, last = z, high - low
        rests = ~xp.isfinite(t)
        for _ in range(iterations):
            push = step * loss.derivative(t, y)
            residual = t - z + push
            low, high = xp.where(residual < 0, t, low), xp.where(residual > 0, t, high)
            move = residual / (1.0 + step * loss.second_derivative(t, y))
            good = (t - move >= low) & (t - move <= high) & (xp.abs(move) <= 0.5 * last)
            settled = xp.abs(residual) <= rounding * (xp.abs(t) + xp.abs(z) + xp.abs(push))
            settled = (settled & xp.isfinite(residual)) | (high - low <= rounding * (xp.abs(t) + least))
            move = xp.where(good, move, xp.where(settled, xp.zeros_like(t), t - (0.5 * low + 0.5 * high)))
            t, last = xp.where(rests, t, t - move), xp.abs(move)
            rests = rests | settled
            if bool(xp.all(rests)):
                break
    return t


def _bracket(loss: Loss, z: Any, step: Any, y: Any, xp: Any) -> tuple[Any, Any]:
    """Where the proximal point lies: between z and one gradient step, found by doubling if that overflows."""
    push = step * loss.derivative(z, y)
    end, open_ended = z - push, xp.isinf(push) & xp.isfinite(z)
    reach = 1.0
    while bool(xp.any(open_ended)):
        far = z - xp.sign(push) * reach
        end = xp.where(open_ended, far, end)
        open_ended = open_ended & ((far - z + step * loss.derivative(far, y)) * xp.sign(push) > 0)
        reach *= 2.0
    return xp.where(push > 0, end, z), xp.where(push < 0, end, z)
