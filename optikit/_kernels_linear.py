"""Compiled kernels of linear models: scores and weighted row sums, agent by agent.

Every agent's result depends on its own rows alone, so it is bitwise the same whichever agents share a rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

#: Blocks with at most this many entries are walked by plain loops: a BLAS call costs more than they do.
SMALL_BLOCK = 512


@njit(cache=True)
def dense_scores(features: Any, offsets: Any, X: Any, out: Any) -> None:
    """``out[i] = <features[i], X[agent of row i]>``, by BLAS, or by plain loops for a small block."""
    d = features.shape[1]
    quads = d - d % 4
    for m in range(offsets.size - 1):
        low, high = offsets[m], offsets[m + 1]
        x = X[m]
        if (high - low) * d > SMALL_BLOCK:
            np.dot(features[low:high], x, out[low:high])
            continue
        for i in range(low, high):
            out[i] = 0.0
            a = b = c = e = out[i]  # a zero of the data's precision; four sums need not wait for each other
            for j in range(0, quads, 4):
                a += features[i, j] * x[j]
                b += features[i, j + 1] * x[j + 1]
                c += features[i, j + 2] * x[j + 2]
                e += features[i, j + 3] * x[j + 3]
            for j in range(quads, d):
                a += features[i, j] * x[j]
            out[i] = (a + b) + (c + e)


@njit(cache=True)
def dense_adjoint(features: Any, offsets: Any, s: Any, out: Any) -> None:
    """``out[m] = sum over the rows i of agent m of s[i] features[i]``; `out` must be zero."""
    d = features.shape[1]
    for m in range(offsets.size - 1):
        low, high = offsets[m], offsets[m + 1]
        if (high - low) * d > SMALL_BLOCK:
            np.dot(s[low:high], features[low:high], out[m])
            continue
        row = out[m]
        for i in range(low, high):
            weight = s[i]
            for j in range(d):
                row[j] += weight * features[i, j]


@njit(cache=True)
def dense_gram(features: Any, offsets: Any, s: Any, out: Any) -> None:
    """``out[m] = sum_i s[i] x_i x_i'`` over the rows of agent m."""
    for m in range(offsets.size - 1):
        low, high = offsets[m], offsets[m + 1]
        rows = features[low:high]
        scaled = np.empty_like(rows)
        for i in range(high - low):
            for j in range(rows.shape[1]):
                scaled[i, j] = rows[i, j] * s[low + i]
        np.dot(scaled.T, rows, out[m])


@njit(cache=True)
def csr_scores(data: Any, indices: Any, indptr: Any, offsets: Any, X: Any, out: Any) -> None:
    """As `dense_scores` for CSR rows."""
    for m in range(offsets.size - 1):
        point = X[m]
        for i in range(offsets[m], offsets[m + 1]):
            out[i] = 0.0
            total = out[i]  # a zero of the data's precision
            for k in range(indptr[i], indptr[i + 1]):
                total += data[k] * point[indices[k]]
            out[i] = total


@njit(cache=True)
def csr_adjoint(data: Any, indices: Any, indptr: Any, offsets: Any, s: Any, out: Any) -> None:
    """As `dense_adjoint` for CSR rows; `out` must be zero."""
    for m in range(offsets.size - 1):
        row = out[m]
        for i in range(offsets[m], offsets[m + 1]):
            for k in range(indptr[i], indptr[i + 1]):
                row[indices[k]] += s[i] * data[k]


@njit(cache=True)
def csr_gram(data: Any, indices: Any, indptr: Any, offsets: Any, s: Any, out: Any) -> None:
    """``out[m] = sum_i s[i] x_i x_i'`` over the CSR rows of agent m; `out` must be zero."""
    for m in range(offsets.size - 1):
        block = out[m]
        for i in range(offsets[m], offsets[m + 1]):
            for k in range(indptr[i], indptr[i + 1]):
                weight = s[i] * data[k]
                for j in range(indptr[i], indptr[i + 1]):
                    block[indices[k], indices[j]] += weight * data[j]
