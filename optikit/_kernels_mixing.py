"""Compiled row kernels of the gossip step (imported only when a network first mixes).

One kernel serves one process and many ranks, so their results agree bit for bit: every output row adds
its terms in the order of the sorted global columns, whatever part of them lives in the ghost buffer.
No fastmath: the compiler may neither reorder nor contract the sums.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def mix_rows(indptr, columns, values, own, ghost, stride, offset, width, block, out):
    """``out[i] = sum_k values[k] * source[columns[k]]`` over the entries k of row i, in their order.

    `own`, `ghost` and `out` are C-contiguous matrices seen as vectors. Column c >= 0 is row c of `own`
    (`width` numbers long); column c < 0 is row ``-c - 1`` of `ghost`, whose rows are `stride` long and hold
    this block from `offset` on. Columns are worked through `block` at a time, so that the rows read
    again by later output rows are still in cache. Up to four terms are added per pass over a row: a row
    of the usual sparse graphs is read and written once.
    """
    n_rows = indptr.size - 1
    for start in range(0, width, block):
        length = min(block, width - start)
        for i in range(n_rows):
            first = indptr[i]
            last = indptr[i + 1]
            target = out[i * width + start : i * width + start + length]
            if first == last:
                for k in range(length):
                    target[k] = 0
            entry = first
            while entry < last:
                terms = min(4, last - entry)
                v0 = values[entry]
                c = columns[entry]
                x0 = own[c * width + start :] if c >= 0 else ghost[(-c - 1) * stride + offset + start :]
                x1 = x2 = x3 = x0
                v1 = v2 = v3 = v0
                if terms > 1:
                    v1 = values[entry + 1]
                    c = columns[entry + 1]
                    x1 = own[c * width + start :] if c >= 0 else ghost[(-c - 1) * stride + offset + start :]
                if terms > 2:
                    v2 = values[entry + 2]
                    c = columns[entry + 2]
                    x2 = own[c * width + start :] if c >= 0 else ghost[(-c - 1) * stride + offset + start :]
                if terms > 3:
                    v3 = values[entry + 3]
                    c = columns[entry + 3]
                    x3 = own[c * width + start :] if c >= 0 else ghost[(-c - 1) * stride + offset + start :]
                if entry == first:
                    if terms == 1:
                        for k in range(length):
                            target[k] = v0 * x0[k]
                    elif terms == 2:
                        for k in range(length):
                            target[k] = v0 * x0[k] + v1 * x1[k]
                    elif terms == 3:
                        for k in range(length):
                            target[k] = (v0 * x0[k] + v1 * x1[k]) + v2 * x2[k]
                    else:
                        for k in range(length):
                            target[k] = ((v0 * x0[k] + v1 * x1[k]) + v2 * x2[k]) + v3 * x3[k]
                else:
                    if terms == 1:
                        for k in range(length):
                            target[k] = target[k] + v0 * x0[k]
                    elif terms == 2:
                        for k in range(length):
                            target[k] = (target[k] + v0 * x0[k]) + v1 * x1[k]
                    elif terms == 3:
                        for k in range(length):
                            target[k] = ((target[k] + v0 * x0[k]) + v1 * x1[k]) + v2 * x2[k]
                    else:
                        for k in range(length):
                            target[k] = (((target[k] + v0 * x0[k]) + v1 * x1[k]) + v2 * x2[k]) + v3 * x3[k]
                entry += terms


@njit(cache=True, nogil=True)
def pack_rows(rows, source, width, buffer, stride, offset):
    """Copy row ``rows[k]`` of `source` to row k of `buffer`, whose rows are `stride` long, from `offset` on.

    `source` and `buffer` are C-contiguous matrices seen as vectors.
    """
    for k in range(rows.size):
        origin = rows[k] * width
        target = k * stride + offset
        for j in range(width):
            buffer[target + j] = source[origin + j]


def warm_up(dtype: np.dtype) -> None:
    """Compile (or load from the cache) the kernels for `dtype`."""
    indptr = np.array([0, 1])
    columns = np.zeros(1, dtype=np.int64)
    one = np.ones(1, dtype=dtype)
    mix_rows(indptr, columns, one, one, one, 1, 0, 1, 1, np.empty(1, dtype=dtype))
    pack_rows(columns, one, 1, np.empty(1, dtype=dtype), 1, 0)
