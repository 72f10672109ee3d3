"""Compiled sketching kernels: fast Walsh-Hadamard transform, sparse sign sketches, LESS rows.

All walk over C-ordered rows, so the innermost loop runs along the features and vectorises.
"""

from __future__ import annotations

from typing import Any

from numba import njit

#: Entries of a block of rows that is transformed while it is in the second-level cache.
BLOCK = 65_536


@njit(cache=True)
def fwht_rows(X: Any) -> None:
    """Unnormalised Walsh-Hadamard transform along axis 0, in place; ``X.shape[0]`` is a power of two.

    Radix 4, two levels per pass over the array: passes limit the speed, so blocks of rows that fit in the
    cache take their levels first.
    """
    n, d = X.shape
    rows = n
    while rows * d > BLOCK and rows > 4:
        rows //= 2
    for start in range(0, n, rows):
        _levels(X[start : start + rows], 1)
    _levels(X, rows)


@njit(cache=True)
def _levels(X: Any, h: int) -> None:
    """The levels from distance h on."""
    n, d = X.shape
    while 4 * h <= n:
        for start in range(0, n, 4 * h):
            for i in range(start, start + h):
                for j in range(d):
                    a, b, c, e = X[i, j], X[i + h, j], X[i + 2 * h, j], X[i + 3 * h, j]
                    s, t, u, v = a + b, a - b, c + e, c - e
                    X[i, j] = s + u
                    X[i + h, j] = t + v
                    X[i + 2 * h, j] = s - u
                    X[i + 3 * h, j] = t - v
        h *= 4
    if h < n:
        for i in range(h):
            for j in range(d):
                a, b = X[i, j], X[i + h, j]
                X[i, j] = a + b
                X[i + h, j] = a - b


@njit(cache=True)
def scatter_signs(A: Any, rows: Any, values: Any, out: Any) -> None:
    """Add ``values[i, l] A[i]`` to ``out[rows[i, l]]``: column-sparse sketches (CountSketch, SASO)."""
    n, k = rows.shape
    d = A.shape[1]
    for i in range(n):
        for c in range(k):
            target, value = rows[i, c], values[i, c]
            for j in range(d):
                out[target, j] += value * A[i, j]


@njit(cache=True)
def gather_signs(A: Any, columns: Any, values: Any, out: Any) -> None:
    """``out[s] = sum_l values[s, l] A[columns[s, l]]``: row-sparse sketches (LESS, row sampling).

    Eight rows at a time: their loads overlap, which is worth a factor of two on rows far apart.
    """
    m, k = columns.shape
    d = A.shape[1]
    for s in range(m):
        c = 0
        if k < 8:
            for j in range(d):
                out[s, j] = 0
        while c + 8 <= k:
            r0, r1, r2, r3 = columns[s, c], columns[s, c + 1], columns[s, c + 2], columns[s, c + 3]
            r4, r5, r6, r7 = columns[s, c + 4], columns[s, c + 5], columns[s, c + 6], columns[s, c + 7]
            v0, v1, v2, v3 = values[s, c], values[s, c + 1], values[s, c + 2], values[s, c + 3]
            v4, v5, v6, v7 = values[s, c + 4], values[s, c + 5], values[s, c + 6], values[s, c + 7]
            for j in range(d):
                low = v0 * A[r0, j] + v1 * A[r1, j] + v2 * A[r2, j] + v3 * A[r3, j]
                high = v4 * A[r4, j] + v5 * A[r5, j] + v6 * A[r6, j] + v7 * A[r7, j]
                out[s, j] = low + high if c == 0 else out[s, j] + low + high
            c += 8
        while c < k:
            source, value = columns[s, c], values[s, c]
            if value != 0:
                for j in range(d):
                    out[s, j] += value * A[source, j]
            c += 1


@njit(cache=True)
def distinct_rows(uniforms: Any, m: int, rows: Any) -> None:
    """`k` distinct values of 0..m-1 per line from uniforms, by Floyd's algorithm."""
    n, k = rows.shape
    for i in range(n):
        for c in range(k):
            top = m - k + c
            candidate = int(uniforms[i, c] * (top + 1))
            for e in range(c):
                if rows[i, e] == candidate:
                    candidate = top
                    break
            rows[i, c] = candidate
