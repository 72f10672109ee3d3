"""Compiled local steps of Local GD on the logistic loss, in weight space and in Gram space.

Imported only when a solver first needs them. Rows are seen through the labels: with signed margins
``z_i = y_i <x_i, v>`` a step is ``v += rate * sum_i sigma(-z_i) y_i x_i``, ``rate = step_size / n_m``.

Nothing here depends on which other clients share the rank: per-client products go to BLAS one client at a
time, and everything else is elementwise, so an agent's result has the same bits for every blocking. No
fastmath: the compiler may neither reorder nor contract the sums.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
SHIFT = 6755399441055744.0  # 1.5 * 2**52: adding it leaves the nearest integer in the low bits
LIMIT = 707.0  # e**z and e**-z stay normal numbers
# r (e^r + 1)/(e^r - 1) = 2 + P1 r^2 + ... + P5 r^10 to 2**-59 on |r| <= ln(2)/2 (Remez; as in every libm).
P1, P2, P3 = 1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05
P4, P5 = -1.65339022054652515390e-06, 4.13813679705723846039e-08

#: Rows from which a product with one client's Gram matrix goes to BLAS.
BLAS_ROWS = 64
#: Features from which one client's margins go to BLAS.
BLAS_FEATURES = 48


@intrinsic
def _bits(typingctx, x):
    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _float_of(typingctx, bits):
    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit(inline="always", error_model="numpy")
def _power_of_two(t):
    """2**k for ``t = k + SHIFT``: k, in the low bits of t, becomes the exponent."""
    return _float_of((_bits(t) << 52) + (1023 << 52))  # type: ignore[call-arg]


@njit(inline="always", error_model="numpy")
def _minus_slope(z):
    """``sigma(-z) = 1/(1 + e^z)`` to 2 ulp, with one division and no branch: loops over it vectorise.

    ``e^r = P/Q`` with Q = 2 - c, P = Q + 2r, so the result is ``Q/(Q + 2^k P)``. NaN stays NaN.
    """
    x = LIMIT if z > LIMIT else z
    x = -LIMIT if x < -LIMIT else x
    t = x * LOG2_E + SHIFT
    k = t - SHIFT
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    q = r * r
    c = r - q * (P1 + q * (P2 + q * (P3 + q * (P4 + q * P5))))
    denominator = 2.0 - c
    scale = _power_of_two(t)
    return denominator / (denominator + scale * (denominator + 2.0 * r))


@njit(inline="always", error_model="numpy")
def _loss(z):
    """``log(1 + e^-z)`` without overflow or cancellation."""
    return math.log1p(math.exp(-z)) if z > 0.0 else math.log1p(math.exp(z)) - z


@njit(cache=True, nogil=True, error_model="numpy")
def minus_slope(z, out):
    """``out = sigma(-z)`` for vectors."""
    for i in range(z.size):
        out[i] = _minus_slope(z[i])


@njit(cache=True, nogil=True, error_model="numpy")
def dense_margins(X, y, w, z):
    """``z = y * (X w)`` for the rows of one client."""
    n, d = X.shape
    if d >= BLAS_FEATURES:
        np.dot(X, w, z)
        for i in range(n):
            z[i] *= y[i]
        return
    for i in range(n):
        total = 0.0
        for j in range(d):
            total += X[i, j] * w[j]
        z[i] = total * y[i]


@njit(cache=True, nogil=True, error_model="numpy")
def dense_adjoint(X, y, a, factor, out, coefficients):
    """``out = factor * X^T (y a)`` for the rows of one client."""
    n, d = X.shape
    if n >= 8 and d >= 8:
        for i in range(n):
            coefficients[i] = factor * (y[i] * a[i])
        np.dot(X.T, coefficients[:n], out)
        return
    for j in range(d):
        out[j] = 0.0
    for i in range(n):
        c = factor * (y[i] * a[i])
        for j in range(d):
            out[j] += c * X[i, j]


@njit(cache=True, nogil=True, error_model="numpy")
def mean_loss(z):
    """``(1/n) sum_i log(1 + e^{-z_i})``."""
    total = 0.0
    for i in range(z.size):
        total += _loss(z[i])
    return total / z.size


@njit(cache=True, nogil=True, error_model="numpy")
def gram_steps(G, z, a, rate, local_steps, s, product):
    """K steps ``z += rate G sigma(-z)`` of one client; `a` becomes the sum of the K slopes.

    `G` is the Gram matrix of the signed rows ``y_i x_i``. Below `BLAS_ROWS` rows the terms are added one
    by one in the order of the rows, as `lane_steps` does: the two agree to the last bit.
    """
    n = z.size
    for i in range(n):
        s[i] = _minus_slope(z[i])
        a[i] = s[i]
    for _ in range(1, local_steps):
        if n >= BLAS_ROWS:
            np.dot(G, s, product)
            for i in range(n):
                z[i] += rate * product[i]
        else:
            j = 0
            while j + 4 <= n:
                t0, t1, t2, t3 = rate * s[j], rate * s[j + 1], rate * s[j + 2], rate * s[j + 3]
                for i in range(n):
                    z[i] = (((z[i] + t0 * G[j, i]) + t1 * G[j + 1, i]) + t2 * G[j + 2, i]) + t3 * G[j + 3, i]
                j += 4
            while j < n:
                t0 = rate * s[j]
                for i in range(n):
                    z[i] += t0 * G[j, i]
                j += 1
        for i in range(n):
            s[i] = _minus_slope(z[i])
            a[i] += s[i]


@njit(cache=True, nogil=True, error_model="numpy")
def lane_steps(G, z, a, rates, local_steps, s):
    """`gram_steps` for clients with few rows, side by side.

    Shapes: `G` (n, n, lanes), `z`, `a`, `s` (n, lanes), `rates` (lanes,); clients with fewer rows are padded
    with zeros in `G`, which leaves their margins as they are.
    """
    n, lanes = z.shape
    for i in range(n):
        for c in range(lanes):
            s[i, c] = _minus_slope(z[i, c])
            a[i, c] = s[i, c]
            s[i, c] *= rates[c]
    if n == 1:
        for _ in range(1, local_steps):
            for c in range(lanes):
                z[0, c] += s[0, c] * G[0, 0, c]
                slope = _minus_slope(z[0, c])
                a[0, c] += slope
                s[0, c] = slope * rates[c]
        return
    for _ in range(1, local_steps):
        for i in range(n):
            zi = z[i]
            j = 0
            while j + 4 <= n:
                g0, g1, g2, g3 = G[j, i], G[j + 1, i], G[j + 2, i], G[j + 3, i]
                s0, s1, s2, s3 = s[j], s[j + 1], s[j + 2], s[j + 3]
                for c in range(lanes):
                    zi[c] = (((zi[c] + s0[c] * g0[c]) + s1[c] * g1[c]) + s2[c] * g2[c]) + s3[c] * g3[c]
                j += 4
            while j < n:
                g0, s0 = G[j, i], s[j]
                for c in range(lanes):
                    zi[c] += s0[c] * g0[c]
                j += 1
        for i in range(n):
            for c in range(lanes):
                slope = _minus_slope(z[i, c])
                a[i, c] += slope
                s[i, c] = slope * rates[c]


@njit(cache=True, nogil=True, error_model="numpy")
def primal_steps(X, y, v, z, rate, local_steps, block, s, gradient, part):
    """K steps in weight space of one dense client: `v` in, `v` out; `z` are its signed margins at `v`.

    The rows are taken `block` at a time and used twice while they are in cache: each step reads the data
    from memory once.
    """
    n, d = X.shape
    for k in range(local_steps):
        for start in range(0, n, block):
            stop = min(start + block, n)
            rows = X[start:stop]
            zb, sb = z[start:stop], s[start:stop]
            if k > 0:
                dense_margins(rows, y[start:stop], v, zb)
            for i in range(stop - start):
                sb[i] = _minus_slope(zb[i])
            dense_adjoint(rows, y[start:stop], sb, rate, part, sb)
            if start == 0:
                for j in range(d):
                    gradient[j] = part[j]
            else:
                for j in range(d):
                    gradient[j] += part[j]
        for j in range(d):
            v[j] += gradient[j]


@njit(cache=True, nogil=True, error_model="numpy")
def csr_margins(data, indices, indptr, first, y, w, z):
    """Signed margins of the rows ``first, first + 1, ...`` of a CSR matrix."""
    for i in range(z.size):
        total = 0.0
        for e in range(indptr[first + i], indptr[first + i + 1]):
            total += data[e] * w[indices[e]]
        z[i] = total * y[i]


@njit(cache=True, nogil=True, error_model="numpy")
def csr_adjoint(data, indices, indptr, first, y, a, factor, out):
    """``out += factor * X^T (y a)`` over the rows ``first, first + 1, ...`` of a CSR matrix."""
    for i in range(a.size):
        c = factor * (y[i] * a[i])
        for e in range(indptr[first + i], indptr[first + i + 1]):
            out[indices[e]] += c * data[e]


@njit(cache=True, nogil=True, error_model="numpy")
def csr_primal_steps(data, indices, indptr, first, y, v, z, rate, local_steps, s):
    """`primal_steps` of one CSR client. All slopes of a step are taken before any weight moves."""
    for k in range(local_steps):
        if k > 0:
            csr_margins(data, indices, indptr, first, y, v, z)
        for i in range(z.size):
            s[i] = _minus_slope(z[i])
        csr_adjoint(data, indices, indptr, first, y, s, rate, v)


@njit(cache=True, nogil=True, error_model="numpy")
def gram_round(offsets, clients, gram, gram_starts, lanes, rates, local_steps, z, a):
    """Local steps of all Gram clients: `z` signed margins (overwritten), `a` sums of slopes.

    Parameters
    ----------
    offsets : int64 (n_local + 1,)
    clients : int64, clients that are handled one by one
    gram, gram_starts : flat Gram matrices, and where each client's begins
    lanes : tuple (members, counts, rows, gram, starts) of the side-by-side chunks: chunk c holds
        ``counts[c]`` clients, the next ones of `members`, padded to ``rows[c]`` rows
    rates : float64 (n_local,)
    """
    longest = 1
    for m in clients:
        longest = max(longest, offsets[m + 1] - offsets[m])
    s, product = np.empty(longest), np.empty(longest)
    for m in clients:
        i0, i1 = offsets[m], offsets[m + 1]
        n = i1 - i0
        G = gram[gram_starts[m] : gram_starts[m] + n * n].reshape(n, n)
        gram_steps(G, z[i0:i1], a[i0:i1], rates[m], local_steps, s[:n], product[:n])
    members, counts, rows, lane_gram, starts = lanes
    first = 0
    for chunk in range(counts.size):
        count, n = counts[chunk], rows[chunk]
        G = lane_gram[starts[chunk] : starts[chunk] + n * n * count].reshape(n, n, count)
        zl, al, sl, rl = np.zeros((n, count)), np.empty((n, count)), np.empty((n, count)), np.empty(count)
        for c in range(count):
            m = members[first + c]
            rl[c] = rates[m]
            for i in range(offsets[m + 1] - offsets[m]):
                zl[i, c] = z[offsets[m] + i]
        lane_steps(G, zl, al, rl, local_steps, sl)
        for c in range(count):
            m = members[first + c]
            for i in range(offsets[m + 1] - offsets[m]):
                a[offsets[m] + i] = al[i, c]
        first += count


@njit(cache=True, nogil=True, error_model="numpy")
def dense_round(
    X,
    y,
    offsets,
    primal,
    block,
    clients,
    gram,
    gram_starts,
    lanes,
    weights,
    inverse_sizes,
    w,
    step,
    local_steps,
):
    """One round of all clients here: rows ``[p_m (v_m - w), p_m F_m(w)]``, shape (n_local, d + 1)."""
    n_local, d = offsets.size - 1, X.shape[1]
    z, a = np.empty(X.shape[0]), np.empty(X.shape[0])
    out = np.empty((n_local, d + 1))
    rates = step * inverse_sizes
    for m in range(n_local):
        i0, i1 = offsets[m], offsets[m + 1]
        dense_margins(X[i0:i1], y[i0:i1], w, z[i0:i1])
        out[m, d] = weights[m] * mean_loss(z[i0:i1])
    gram_round(offsets, clients, gram, gram_starts, lanes, rates, local_steps, z, a)
    if primal.size < n_local:
        done = np.zeros(n_local, dtype=np.bool_)
        for m in primal:
            done[m] = True
        for m in range(n_local):
            if not done[m]:
                i0, i1 = offsets[m], offsets[m + 1]
                dense_adjoint(X[i0:i1], y[i0:i1], a[i0:i1], weights[m] * rates[m], out[m, :d], z[i0:i1])
    if primal.size > 0:
        v, gradient, part = np.empty(d), np.empty(d), np.empty(d)
        for m in primal:
            i0, i1 = offsets[m], offsets[m + 1]
            v[:] = w
            primal_steps(
                X[i0:i1], y[i0:i1], v, z[i0:i1], rates[m], local_steps, block, a[i0:i1], gradient, part
            )
            for j in range(d):
                out[m, j] = weights[m] * (v[j] - w[j])
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def csr_round(
    data,
    indices,
    indptr,
    y,
    offsets,
    primal,
    clients,
    gram,
    gram_starts,
    lanes,
    weights,
    inverse_sizes,
    w,
    step,
    local_steps,
):
    """`dense_round` for CSR rows."""
    n_local, d = offsets.size - 1, w.size
    z, a = np.empty(y.size), np.empty(y.size)
    out = np.zeros((n_local, d + 1))
    rates = step * inverse_sizes
    for m in range(n_local):
        i0, i1 = offsets[m], offsets[m + 1]
        csr_margins(data, indices, indptr, i0, y[i0:i1], w, z[i0:i1])
        out[m, d] = weights[m] * mean_loss(z[i0:i1])
    gram_round(offsets, clients, gram, gram_starts, lanes, rates, local_steps, z, a)
    in_primal = np.zeros(n_local, dtype=np.bool_)
    for m in primal:
        in_primal[m] = True
    v = np.empty(d)
    for m in range(n_local):
        i0, i1 = offsets[m], offsets[m + 1]
        if in_primal[m]:
            v[:] = w
            csr_primal_steps(
                data, indices, indptr, i0, y[i0:i1], v, z[i0:i1], rates[m], local_steps, a[i0:i1]
            )
            for j in range(d):
                out[m, j] = weights[m] * (v[j] - w[j])
        else:
            csr_adjoint(data, indices, indptr, i0, y[i0:i1], a[i0:i1], weights[m] * rates[m], out[m, :d])
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def dense_path(arguments, w, step, local_steps, rounds, stop_below, values):
    """Whole rounds on one process: `w` is moved, ``values[r] = F(w_r)``; returns the rounds done.

    Adds the clients' rows in their order, as one process of the solver does: same bits, no Python per round.
    """
    d = w.size
    for r in range(rounds):
        out = dense_round(*arguments, w, step, local_steps)  # type: ignore[call-arg]
        total = out[0].copy()
        for m in range(1, out.shape[0]):
            for j in range(d + 1):
                total[j] += out[m, j]
        values[r] = total[d]
        if not values[r] > stop_below:
            return r
        for j in range(d):
            w[j] += total[j]
    return rounds
