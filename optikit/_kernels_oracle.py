"""Compiled oracle of linear models: value and subgradient of one agent's block, for use in other kernels.

Methods that take many small oracle steps between two exchanges compile their own loop around `block_oracle`:
at a few hundred numbers per agent a step in NumPy is all call overhead. Scalar losses follow
`optikit.losses` to the letter, kinks included; the tests hold them to it.
"""

from __future__ import annotations

import math
from typing import Any

from numba import njit

from optikit import losses

#: Blocks with fewer entries are walked by plain loops: a BLAS call costs more than they do.
SMALL_BLOCK = 256

LEAST_SQUARES, ABSOLUTE, QUANTILE, HINGE, SQUARED_HINGE, HUBER, LOGISTIC = range(7)
_CODES: dict[type, int] = {
    losses.LeastSquares: LEAST_SQUARES,
    losses.Absolute: ABSOLUTE,
    losses.Quantile: QUANTILE,
    losses.Hinge: HINGE,
    losses.SquaredHinge: SQUARED_HINGE,
    losses.Huber: HUBER,
    losses.Logistic: LOGISTIC,
}


def compiled_loss(loss: losses.Loss) -> tuple[int, float] | None:
    """Code and parameter of a loss for `loss_and_slope`; None for losses without a compiled form."""
    code = _CODES.get(type(loss))
    if code is None:
        return None
    return code, float(getattr(loss, "level", getattr(loss, "delta", 0.0)))


@njit(cache=True)
def loss_and_slope(code: Any, parameter: Any, z: Any, y: Any) -> Any:
    """Value and derivative in z of the scalar loss with this code."""
    if code == ABSOLUTE:
        e = z - y
        return abs(e), (1.0 if e > 0.0 else (-1.0 if e < 0.0 else e))  # NaN stays NaN
    if code == HINGE:
        slack = 1.0 - y * z
        return (slack if slack > 0.0 or slack != slack else 0.0), (-y if y * z < 1.0 else 0.0)
    if code == QUANTILE:
        e = y - z
        if e > 0.0:
            return parameter * e, -parameter
        return (parameter - 1.0) * e, (1.0 - parameter if e < 0.0 else e)
    if code == LEAST_SQUARES:
        e = z - y
        return 0.5 * e * e, e
    if code == SQUARED_HINGE:
        slack = 1.0 - y * z
        if slack <= 0.0:
            return 0.0, 0.0
        return 0.5 * slack * slack, -y * slack
    if code == HUBER:
        e = z - y
        if abs(e) <= parameter:
            return 0.5 * e * e, e
        return parameter * (abs(e) - 0.5 * parameter), math.copysign(parameter, e)
    t = y * z
    decay = math.exp(-abs(t))
    share = decay / (1.0 + decay)
    return (-t if t < 0.0 else 0.0) + math.log1p(decay), -y * (1.0 - share if t < 0.0 else share)


@njit(cache=True)
def block_oracle(
    sparse: Any,
    features: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    targets: Any,
    code: Any,
    parameter: Any,
    l2: Any,
    low: Any,
    high: Any,
    x: Any,
    g: Any,
) -> Any:
    """Value at x (d,) of the mean loss over rows low..high-1 plus the ridge; the subgradient goes to g (d,).

    Dense rows lie in `features`, sparse ones in `data`, `indices`, `indptr`; the other arrays may be empty.
    """
    d = x.size
    share = 1.0 / (high - low)
    total = 0.0
    if not sparse and (high - low) * d > SMALL_BLOCK:
        scores = features[low:high].dot(x)
        for i in range(high - low):
            value, slope = loss_and_slope(code, parameter, scores[i], targets[low + i])
            total += value
            scores[i] = slope * share
        g[:] = scores.dot(features[low:high])
    else:
        g[:] = 0.0
        for i in range(low, high):
            score = 0.0
            if sparse:
                for k in range(indptr[i], indptr[i + 1]):
                    score += data[k] * x[indices[k]]
            else:
                for j in range(d):
                    score += features[i, j] * x[j]
            value, slope = loss_and_slope(code, parameter, score, targets[i])
            total += value
            slope *= share
            if slope == 0.0:
                continue
            if sparse:
                for k in range(indptr[i], indptr[i + 1]):
                    g[indices[k]] += slope * data[k]
            else:
                for j in range(d):
                    g[j] += slope * features[i, j]
    total *= share
    if l2 != 0.0:
        square = 0.0
        for j in range(d):
            square += x[j] * x[j]
            g[j] += l2 * x[j]
        total += 0.5 * l2 * square
    return total
