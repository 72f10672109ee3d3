"""Compiled row kernels of the gossip step (imported only when a network first mixes).

One kernel serves one process and many ranks, so their results agree bit for bit: every output row adds
its terms one after the other in the order of the sorted global columns, whatever part of them lives in
the ghost buffer. No fastmath: the compiler may neither reorder nor contract the sums.
"""

from __future__ import annotations

from numba import njit, uint64


@njit(inline="always")
def _add_run(values, columns, entry, last, fresh, source, stride, offset, out, target, length):
    """Add the terms ``entry .. last - 1``, all from `source`, to `length` numbers of `out` from `target` on.

    Four terms a pass, added one after the other: grouping changes the memory traffic, not the sums.
    Indices are unsigned: signed ones would be checked for wrap-around, which stops vectorisation.
    """
    while entry < last:
        terms = last - entry
        v0 = values[entry]
        b0 = uint64(columns[entry]) * stride + offset
        if terms >= 4:
            v1, v2, v3 = values[entry + 1], values[entry + 2], values[entry + 3]
            b1 = uint64(columns[entry + 1]) * stride + offset
            b2 = uint64(columns[entry + 2]) * stride + offset
            b3 = uint64(columns[entry + 3]) * stride + offset
            if fresh:
                for k in range(length):
                    total = (v0 * source[b0 + k] + v1 * source[b1 + k]) + v2 * source[b2 + k]
                    out[target + k] = total + v3 * source[b3 + k]
            else:
                for k in range(length):
                    total = (out[target + k] + v0 * source[b0 + k]) + v1 * source[b1 + k]
                    out[target + k] = (total + v2 * source[b2 + k]) + v3 * source[b3 + k]
            entry += 4
        elif terms == 3:
            v1, v2 = values[entry + 1], values[entry + 2]
            b1 = uint64(columns[entry + 1]) * stride + offset
            b2 = uint64(columns[entry + 2]) * stride + offset
            if fresh:
                for k in range(length):
                    out[target + k] = (v0 * source[b0 + k] + v1 * source[b1 + k]) + v2 * source[b2 + k]
            else:
                for k in range(length):
                    total = (out[target + k] + v0 * source[b0 + k]) + v1 * source[b1 + k]
                    out[target + k] = total + v2 * source[b2 + k]
            entry += 3
        elif terms == 2:
            v1 = values[entry + 1]
            b1 = uint64(columns[entry + 1]) * stride + offset
            if fresh:
                for k in range(length):
                    out[target + k] = v0 * source[b0 + k] + v1 * source[b1 + k]
            else:
                for k in range(length):
                    out[target + k] = (out[target + k] + v0 * source[b0 + k]) + v1 * source[b1 + k]
            entry += 2
        else:
            if fresh:
                for k in range(length):
                    out[target + k] = v0 * source[b0 + k]
            else:
                for k in range(length):
                    out[target + k] += v0 * source[b0 + k]
            entry += 1
        fresh = False


@njit(cache=True, nogil=True)
def mix_rows(indptr, own_first, own_last, columns, values, own, width, ghost, stride, offset, block, out):
    """``out[i] = sum_k values[k] * source(k)[columns[k]]`` over the entries k of row i, in their order.

    `own`, `ghost` and `out` are C-contiguous matrices seen as vectors. The entries of a row come in three
    runs: ghosts of lower number, own rows (``own_first[i] .. own_last[i] - 1``), ghosts of higher number.
    Rows of `own` and `out` are `width` long; rows of `ghost` are `stride` long and hold this array from
    `offset` on. Columns are worked through `block` at a time: rows read again by later output rows
    should still be in cache.
    """
    row_length, ghost_length = uint64(width), uint64(stride)
    for start in range(0, width, block):
        length = uint64(min(block, width - start))
        begin, ghost_begin = uint64(start), uint64(offset + start)
        for i in range(indptr.size - 1):
            first, last = indptr[i], indptr[i + 1]
            low, high = own_first[i], own_last[i]
            target = uint64(i) * row_length + begin
            if first == last:
                for k in range(length):
                    out[target + k] = 0
            if first < low:
                _add_run(
                    values, columns, first, low, True, ghost, ghost_length, ghost_begin, out, target, length
                )
            if low < high:
                _add_run(
                    values, columns, low, high, first == low, own, row_length, begin, out, target, length
                )
            if high < last:
                _add_run(
                    values,
                    columns,
                    high,
                    last,
                    first == high,
                    ghost,
                    ghost_length,
                    ghost_begin,
                    out,
                    target,
                    length,
                )


@njit(cache=True, nogil=True)
def pack_rows(rows, source, width, buffer, stride, offset):
    """Copy row ``rows[k]`` of `source` to row k of `buffer`, whose rows are `stride` long, from `offset` on.

    `source` and `buffer` are C-contiguous matrices seen as vectors.
    """
    length = uint64(width)
    for k in range(rows.size):
        origin = uint64(rows[k]) * length
        target = uint64(k) * uint64(stride) + uint64(offset)
        for j in range(length):
            buffer[target + j] = source[origin + j]
