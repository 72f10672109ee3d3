"""The communication-sliding inner loop, compiled (imported only when a method first runs one on the host)."""

from __future__ import annotations

from typing import Any

from numba import njit

from optikit._kernels_oracle import block_oracle


@njit(cache=True)
def fused_update(U: Any, S: Any, h: Any, pull: Any, b: Any, scale: Any, weight: Any) -> None:
    """``U <- (pull - h + b U) scale``, ``S <- S + weight U``: three arrays read, two written."""
    n, d = U.shape
    for i in range(n):
        for j in range(d):
            u = (pull[i, j] - h[i, j] + b * U[i, j]) * scale
            U[i, j] = u
            S[i, j] += weight * u


@njit(cache=True)
def slide(
    sparse: Any,
    features: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    targets: Any,
    code: Any,
    parameter: Any,
    l2: Any,
    offsets: Any,
    pull: Any,
    kappa: Any,
    steps: Any,
    minorant: Any,
    U: Any,
    S: Any,
    H: Any,
    phi: Any,
) -> None:
    """All inner steps of a linear model, one agent after the other: its rows stay in cache meanwhile.

    U (n, d) holds the starting points and receives the last ones; S the weighted sums of the points; H and
    phi, if `minorant`, those of the subgradients and of the minorants' values at 0.
    """
    n, d = U.shape
    g = U[0].copy() if n else U.reshape(-1).copy()
    for m in range(n):
        u, s, h, start = U[m], S[m], H[m], pull[m]
        low, high = offsets[m], offsets[m + 1]
        offset = phi[m]
        for t in range(1, steps + 1):
            weight, b = t + 1.0, kappa * t / 2.0
            scale = 1.0 / (kappa + b)
            value = block_oracle(
                sparse,
                features,
                data,
                indices,
                indptr,
                targets,
                code,
                parameter,
                l2,
                low,
                high,
                u,
                g,
            )
            if minorant:
                inner = 0.0
                for j in range(d):
                    inner += g[j] * u[j]
                    h[j] += weight * g[j]
                offset += weight * (value - inner)
            for j in range(d):
                u[j] = (start[j] - g[j] + b * u[j]) * scale
                s[j] += weight * u[j]
        phi[m] = offset
