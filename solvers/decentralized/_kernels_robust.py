"""Compiled kernels of the robust rules: norms of edge differences, weighted sums, trimming, outliers.

Receiver i hears the rows ``rows[cols[indptr[i]:indptr[i+1]]]``; its differences are ``own[i] - row``. No
difference is ever stored: two passes over the rows are cheaper than one array of all edges. The array-API
versions in `robust_rules` are the reference.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def edge_norms(own, rows, indptr, cols, out):
    """``out[e] = ||own[i] - rows[cols[e]]||``, accumulated in float64."""
    d = own.shape[1]
    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            j = cols[e]
            total = 0.0
            for k in range(d):
                difference = own[i, k] - rows[j, k]
                total += difference * difference
            out[e] = math.sqrt(total)


@njit(cache=True, nogil=True)
def edge_sums(own, rows, indptr, cols, coefficients, out):
    """``out[i] = sum_e coefficients[e] (own[i] - rows[cols[e]])``; rows with coefficient 0 are not read."""
    d = own.shape[1]
    for i in range(indptr.size - 1):
        for k in range(d):
            out[i, k] = 0
        for e in range(indptr[i], indptr[i + 1]):
            c = coefficients[e]
            if c != 0:
                j = cols[e]
                for k in range(d):
                    out[i, k] += c * (own[i, k] - rows[j, k])


@njit(cache=True, nogil=True)
def trimmed_sums(own, rows, indptr, cols, weights, b, out):
    """Coordinate by coordinate, the weighted sum without the weight b[i] at either end of the order."""
    d = own.shape[1]
    for i in range(indptr.size - 1):
        count = 0
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            if weights[e] > 0:
                count += 1
                total += weights[e]
        values, heard = np.empty(count), np.empty(count)
        for k in range(d):
            place = 0
            for e in range(indptr[i], indptr[i + 1]):
                if weights[e] > 0:
                    value = own[i, k] - rows[cols[e], k]
                    # Insertion: neighbourhoods are small, and an argsort per coordinate would allocate.
                    spot = place
                    while spot > 0 and values[spot - 1] > value:
                        values[spot], heard[spot] = values[spot - 1], heard[spot - 1]
                        spot -= 1
                    values[spot], heard[spot] = value, weights[e]
                    place += 1
            reached, kept = 0.0, 0.0
            for place in range(count):
                below = max(reached, b[i])
                reached += heard[place]
                share = min(reached, total - b[i]) - below
                if share > 0:
                    kept += share * values[place]
            out[i, k] = kept


@njit(cache=True, nogil=True)
def outlier_sums(own, rows, indptr, cols, weights, self_weights, b, out):
    """Drop the row farthest from the weighted mean until the weight b[i] is gone; sum the rest."""
    d = own.shape[1]
    mean = np.empty(d)
    for i in range(indptr.size - 1):
        first, last = indptr[i], indptr[i + 1]
        kept = np.empty(last - first, dtype=np.bool_)
        total = 0.0
        for e in range(first, last):
            kept[e - first] = weights[e] > 0
            total += weights[e]
        gone = 0.0
        while gone + 1e-12 * total < b[i]:
            left = self_weights[i]
            mean[:] = 0
            for e in range(first, last):
                if kept[e - first]:
                    left += weights[e]
                    for k in range(d):
                        mean[k] += weights[e] * (own[i, k] - rows[cols[e], k])
            farthest, distance = -1, -1.0
            for e in range(first, last):
                if kept[e - first]:
                    square = 0.0
                    for k in range(d):
                        off = own[i, k] - rows[cols[e], k] - mean[k] / left
                        square += off * off
                    if square > distance:
                        farthest, distance = e, square
            if farthest < 0:
                break
            kept[farthest - first] = False
            gone += weights[farthest]
        for k in range(d):
            out[i, k] = 0
        for e in range(first, last):
            if kept[e - first]:
                for k in range(d):
                    out[i, k] += weights[e] * (own[i, k] - rows[cols[e], k])
