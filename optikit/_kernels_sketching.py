"""Compiled sketching kernels: fast Walsh-Hadamard transform, sparse sign sketches, LESS rows.

All walk over C-ordered rows, so the innermost loop runs along the features and vectorises.
"""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True)
def fwht_rows(X: Any) -> None:
    """Unnormalised Walsh-Hadamard transform along axis 0, in place; ``X.shape[0]`` is a power of two.

    Radix 4: two levels per pass over the array, which is what limits the speed.
    """
    n, d = X.shape
    h = 1
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
    """``out[s] = sum_l values[s, l] A[columns[s, l]]``: row-sparse sketches (LESS, row sampling)."""
    m, k = columns.shape
    d = A.shape[1]
    for s in range(m):
        for j in range(d):
            out[s, j] = 0
        for c in range(k):
            source, value = columns[s, c], values[s, c]
            if value != 0:
                for j in range(d):
                    out[s, j] += value * A[source, j]


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
