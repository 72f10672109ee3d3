"""Compiled kernel of the simplex-product QP."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True)
def pairwise_ascent(Q: Any, e: Any, lam: Any, starts: Any, delta: float, max_steps: int) -> Any:
    """Maximise ``e'lam - lam'Q lam/2`` on a product of simplices by second-order pair steps, in place.

    Returns the duality gap ``sum_b max r - lam'r`` with ``r = e - Q lam``, and the steps taken.
    """
    N, blocks = e.size, starts.size - 1
    r = e - Q @ lam
    steps, since = 0, 0
    while True:
        gap = -np.dot(lam, r)
        best_gain, best_i, best_j = 0.0, -1, -1
        for b in range(blocks):
            low, high = starts[b], starts[b + 1]
            if low == high:
                continue
            i = low
            for k in range(low + 1, high):
                if r[k] > r[i]:
                    i = k
            gap += r[i]
            for j in range(low, high):
                if j == i or lam[j] <= 0.0:
                    continue
                d = r[i] - r[j]
                if d <= 0.0:
                    continue
                c = Q[i, i] + Q[j, j] - 2.0 * Q[i, j]
                t = lam[j] if c <= 0.0 else min(lam[j], d / c)
                gain = d * t - 0.5 * c * t * t
                if gain > best_gain:
                    best_gain, best_i, best_j = gain, i, j
        if gap <= delta or best_i < 0 or steps >= max_steps:
            return gap, steps
        i, j = best_i, best_j
        d = r[i] - r[j]
        c = Q[i, i] + Q[j, j] - 2.0 * Q[i, j]
        t = lam[j] if c <= 0.0 else min(lam[j], d / c)
        lam[i] += t
        lam[j] = lam[j] - t if t < lam[j] else 0.0
        steps += 1
        since += 1
        if since >= 1000:  # rounding accumulates in r
            r = e - Q @ lam
            since = 0
        else:
            for k in range(N):
                r[k] -= t * (Q[k, i] - Q[k, j])
