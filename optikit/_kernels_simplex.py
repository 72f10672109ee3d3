"""Compiled kernel of the simplex-product QP.

Rows of the symmetric Q are read where the mathematics says columns: they are contiguous. The matrix is only
ever touched in the rows of cuts that carry weight, a small part of it near a solution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

EPS = float(np.finfo(float).eps)


@njit(cache=True)
def centred(e: Any, starts: Any) -> Any:
    """`e` less the largest entry of each block: only differences matter, and a common offset costs digits."""
    out = e.copy()
    for b in range(starts.size - 1):
        low, high = starts[b], starts[b + 1]
        top = -np.inf
        for k in range(low, high):
            top = max(top, e[k])
        if top > -np.inf:
            for k in range(low, high):
                out[k] -= top
    return out


@njit(cache=True)
def normalise(lam: Any, e: Any, starts: Any) -> None:
    """Clip below zero, drop weight where e is -inf, and make every block sum to one, in place."""
    for b in range(starts.size - 1):
        total, allowed = 0.0, 0
        for k in range(starts[b], starts[b + 1]):
            if e[k] == -np.inf:
                lam[k] = 0.0
                continue
            allowed += 1
            lam[k] = max(lam[k], 0.0)
            total += lam[k]
        for k in range(starts[b], starts[b + 1]):
            if total > 0.0:
                lam[k] /= total
            elif e[k] > -np.inf:
                lam[k] = 1.0 / allowed


@njit(cache=True)
def residual(Q: Any, scale: float, e: Any, lam: Any, r: Any) -> float:
    """``r = e - scale Q lam`` from the rows that carry weight; returns the level of its rounding."""
    r[:] = e
    largest = 0.0
    for j in range(e.size):
        if lam[j] > 0.0:
            weight, row = scale * lam[j], Q[j]
            for k in range(e.size):
                r[k] -= weight * row[k]
            largest = max(largest, abs(e[j]))
    for j in range(e.size):
        if lam[j] > 0.0:
            largest = max(largest, abs(r[j]))
    return EPS * largest


@njit(cache=True)
def centre_blocks(g: Any, owner: Any, fixed: Any, totals: Any, counts: Any) -> float:
    """Project g on the directions that keep block sums and fixed entries; returns its squared norm."""
    totals[:] = 0.0
    counts[:] = 0
    for k in range(g.size):
        if not fixed[k]:
            totals[owner[k]] += g[k]
            counts[owner[k]] += 1
    square = 0.0
    for k in range(g.size):
        g[k] = 0.0 if fixed[k] else g[k] - totals[owner[k]] / counts[owner[k]]
        square += g[k] * g[k]
    return square


@njit(cache=True)
def face_ascent(Q: Any, scale: float, lam: Any, r: Any, starts: Any, noise: float, cap: int) -> None:
    """Conjugate gradients among the entries with weight, in place; one that reaches zero stays there."""
    blocks, support = starts.size - 1, np.flatnonzero(lam > 0.0)
    m = support.size
    owner = np.searchsorted(starts, support, side="right") - 1
    A, x, slope = np.empty((m, m)), lam[support], r[support]
    for i in range(m):
        row = Q[support[i]]
        for k in range(m):
            A[i, k] = scale * row[support[k]]
    fixed, totals, counts = np.zeros(m, np.bool_), np.zeros(blocks), np.zeros(blocks, np.int64)
    g, curved = slope.copy(), np.empty(m)
    square = centre_blocks(g, owner, fixed, totals, counts)
    direction = g.copy()
    for _ in range(cap):
        if square <= noise * noise * m:
            break
        curved[:] = 0.0
        for k in range(m):
            if direction[k] != 0.0:
                weight, row = direction[k], A[k]
                for i in range(m):
                    curved[i] += weight * row[i]
        curvature, step, hit = 0.0, np.inf, -1
        for k in range(m):
            curvature += direction[k] * curved[k]
            if direction[k] < 0.0 and x[k] < -step * direction[k]:
                step, hit = -x[k] / direction[k], k
        if curvature > 0.0 and square / curvature < step:
            step, hit = square / curvature, -1
        if step == np.inf:
            break
        for k in range(m):
            x[k] = max(x[k] + step * direction[k], 0.0)
            slope[k] -= step * curved[k]
            g[k] = slope[k]
        if hit >= 0:
            x[hit], fixed[hit] = 0.0, True
        previous = square
        square = centre_blocks(g, owner, fixed, totals, counts)
        ratio = 0.0 if hit >= 0 else square / previous  # a new face starts anew
        for k in range(m):
            direction[k] = g[k] + ratio * direction[k]
    lam[support] = x


@njit(cache=True)
def pairwise_ascent(
    Q: Any,
    scale: float,
    e: Any,
    lam: Any,
    starts: Any,
    delta: float,
    max_steps: int,
    burst: int,
    cap: int,
    patience: int,
) -> Any:
    """Maximise ``e'lam - scale lam'Q lam/2`` on a product of simplices by second-order pair steps, in place.

    After every `burst` of them, at most `cap` steps of conjugate gradients on the face that they have found.
    r is computed anew then, and before the end: the gap returned never rests on updates. The search ends
    early when `patience` renewals in a row have not lowered the gap: that is rounding.

    Returns the duality gap ``sum_b max r - lam'r`` with ``r = e - scale Q lam``, and the steps taken.
    """
    N, blocks = e.size, starts.size - 1
    e, r = centred(e, starts), np.empty(N)
    normalise(lam, e, starts)
    noise = residual(Q, scale, e, lam, r)
    steps, since, best_gap, waited = 0, 0, np.inf, 0
    while True:
        gap, best_gain, i, j, best_t = 0.0, 0.0, -1, -1, 0.0
        for b in range(blocks):
            low, high = starts[b], starts[b + 1]
            top = low
            for k in range(low + 1, high):
                if r[k] > r[top]:
                    top = k
            for k in range(low, high):
                if lam[k] > 0.0:
                    d = r[top] - r[k]
                    # Summed as non-negative terms: sum max r - lam'r would cancel.
                    gap += lam[k] * d
                    if d > noise:
                        c = scale * (Q[top, top] + Q[k, k] - 2.0 * Q[top, k])
                        t = lam[k] if c * lam[k] <= d else d / c
                        gain = t * (d - 0.5 * c * t)
                        if gain > best_gain:
                            best_gain, i, j, best_t = gain, top, k, t
        done = gap <= delta or i < 0 or steps >= max_steps
        if done and since == 0:
            return gap, steps
        if done or since >= burst:
            if gap < 0.9 * best_gap:
                best_gap, waited = gap, 0
            else:
                waited += 1
            if waited >= patience:
                max_steps = steps
            elif not done:
                face_ascent(Q, scale, lam, r, starts, noise, cap)
            normalise(lam, e, starts)
            noise = residual(Q, scale, e, lam, r)
            since = 0
            continue
        lam[i] += best_t
        lam[j] = lam[j] - best_t if best_t < lam[j] else 0.0
        steps += 1
        since += 1
        weight, row_i, row_j = scale * best_t, Q[i], Q[j]
        for k in range(N):
            r[k] -= weight * (row_i[k] - row_j[k])
