"""Compiled kernel of the bundle master: the aggregate cut, read from the few rows that carry weight."""

from __future__ import annotations

from typing import Any

from numba import njit

#: Columns per slice: the partial sums stay in the fastest cache.
SLICE = 1024


@njit(cache=True)
def add_rows(weights: Any, rows: Any, factor: float, out: Any) -> None:
    """``out += factor weights @ rows``, reading only rows whose weight is not zero."""
    d = rows.shape[1]
    for low in range(0, d, SLICE):
        high = min(low + SLICE, d)
        target = out[low:high]
        for j in range(weights.size):
            if weights[j] != 0.0:
                weight, row = factor * weights[j], rows[j, low:high]
                for k in range(high - low):
                    target[k] += weight * row[k]
