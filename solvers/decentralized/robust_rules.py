r"""Robust sums: what an agent makes of its neighbours' vectors when some neighbours lie.

Agent i forms the differences :math:`z_j = x_i - x_j` to all neighbours, honest or not, and wants the sum
:math:`\sum_{j\ \mathrm{honest}} w_j z_j` without knowing who is honest. F is a *(b, rho)-robust sum* if

.. math::

    \Bigl\| F(z) - \sum_{j\ \mathrm{honest}} w_j z_j \Bigr\|^2
        \le \rho\, b \sum_{j\ \mathrm{honest}} w_j \|z_j\|^2

whatever the other vectors are, of weight at most b together. With the neighbours sorted by :math:`\|z_j\|`,
W their total weight:

================  =====  =====================================================================================
rule              rho    F
================  =====  =====================================================================================
cs+               2      clip all to tau, the largest norm with weight 2b strictly after it (0 if none)
gts               4      sum of the smallest up to weight W - b, the boundary one in part; this is NNA
clipped_gossip    --     clip all to tau, ``tau^2 = (1/b) sum w_j ||z_j||^2`` up to the weight W - b
trimmed_mean      --     coordinate by coordinate, sum without the weight b at either end
ios               --     drop the farthest from the running weighted mean until the weight b is gone
average           --     plain sum
================  =====  =====================================================================================

With general weights the weight after a vector may jump over 2b; tau is then the first norm with less than 2b
after it. (Taking the last with more, as one may read the rule, has no rho: one honest unit vector beside a
zero, unit weights and b = 1/4 would give F = 0 and a ratio of 1/b = 4.)

Vectors that are not finite, or whose norm overflows, are dropped and count as Byzantine: b shrinks by their
weight.

References: R. Gaucher, A. Dieuleveut, H. Hendrikx, *Unified breakdown analysis for Byzantine robust gossip*,
ICML 2025 (cs+, gts); L. He, S. P. Karimireddy, M. Jaggi, *Byzantine-robust decentralized learning via
ClippedGossip*, 2022; S. Farhadkhani et al., *Robust collaborative learning with linear gradient overhead*,
ICML 2023 (NNA); Z. Wu, T. Chen, Q. Ling, *Byzantine-resilient decentralized stochastic optimization with
robust aggregation rules*, IEEE TSP 2023 (IOS).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optikit.arrays import array_namespace, as_float_array, from_numpy, is_numpy, to_numpy
from optikit.validation import check_choice

#: Constant rho of each rule; None where no finite one is known to hold.
RULES: dict[str, float | None] = {
    "cs+": 2.0,
    "gts": 4.0,
    "clipped_gossip": None,
    "trimmed_mean": None,
    "ios": None,
    "average": None,
}
# Sums of weights are compared with b up to this fraction of the total: they may be rounded.
SLACK = 1e-12


@dataclass(frozen=True)
class Links:
    """Who hears what: receiver i hears rows ``cols[indptr[i]:indptr[i+1]]`` with the weights beside them.

    Attributes
    ----------
    indptr, cols : numpy.ndarray of int64
    weights : numpy.ndarray of float64
        Positive.
    self_weights : numpy.ndarray of float64, shape (n_receivers,)
        Weight of the receiver itself in IOS's running mean.
    """

    indptr: np.ndarray
    cols: np.ndarray
    weights: np.ndarray
    self_weights: np.ndarray

    @cached_property
    def receivers(self) -> np.ndarray:
        """Receiver of each link."""
        return np.repeat(np.arange(self.indptr.size - 1), np.diff(self.indptr))

    @cached_property
    def totals(self) -> np.ndarray:
        """Weight that each receiver hears in all."""
        return self.per_receiver(self.weights)

    def per_receiver(self, values: np.ndarray) -> np.ndarray:
        """Sums of one number per link over the links of each receiver."""
        return np.bincount(self.receivers, values, minlength=self.indptr.size - 1)

    @cached_property
    def padding(self) -> tuple[np.ndarray, np.ndarray]:
        """``(slots, real)``, both (n_receivers, most links): the links of each receiver, then repetitions."""
        counts = np.diff(self.indptr)
        place = np.arange(int(counts.max(initial=0)))[None, :]
        real = place < counts[:, None]
        return np.where(real, self.indptr[:-1, None] + place, 0), real


def robust_sums(own: Any, rows: Any, links: Links, b: Any, rule: str) -> Any:
    """``F_i`` for every receiver: a robust version of ``sum_j w_ij (own_i - rows_j)``.

    Parameters
    ----------
    own : array, shape (m, d)
        The receivers' own vectors.
    rows : array, shape (k, d)
        What was sent.
    links : Links
    b : float or numpy.ndarray of shape (m,)
        Bound on the Byzantine weight that a receiver hears; in [0, half of what it hears].
    rule : str
        One of `RULES`.

    Returns
    -------
    array, shape (m, d)
    """
    check_choice(rule, "rule", RULES)
    bound = np.broadcast_to(np.asarray(b, dtype=np.float64), links.totals.shape)
    norms = _edge_norms(own, rows, links)
    bad = ~np.isfinite(norms)
    weights = links.weights
    if bad.any():
        bound = np.maximum(bound - links.per_receiver(np.where(bad, weights, 0.0)), 0.0)
        weights = np.where(bad, 0.0, weights)
    if rule == "trimmed_mean":
        return _trimmed_sums(own, rows, links, weights, bound)
    if rule == "ios":
        return _outlier_sums(own, rows, links, weights, bound)
    return edge_sums(own, rows, links, weights * _scales(rule, norms, weights, links, bound))


def robust_sum(z: Any, b: float, *, rule: str = "cs+", weights: Any = None) -> Any:
    """Robust sum of the differences that one agent sees.

    Parameters
    ----------
    z : array, shape (k, d)
        Differences to the k neighbours.
    b : float
        Bound on the Byzantine weight among them, in [0, half of the total weight].
    rule : str, default "cs+"
        One of `RULES`.
    weights : array_like, shape (k,), optional
        Positive weights; ones by default.

    Returns
    -------
    array, shape (d,)
    """
    z = as_float_array(z, name="z", ndim=2, finite=False)
    xp = array_namespace(z)
    k = z.shape[0]
    w = np.ones(k) if weights is None else to_numpy(as_float_array(weights, name="weights", shape=(k,)))
    if np.any(w <= 0):
        raise ValueError(f"weights must be > 0, got {float(w.min())!r}.")
    own_weight = np.array([w.mean() if k else 1.0])
    links = Links(np.array([0, k]), np.arange(k), w.astype(np.float64), own_weight)
    check_bound(b, links.totals, np.array([0]))
    zero = xp.zeros((1, z.shape[1]), dtype=z.dtype)
    return robust_sums(zero, -z, links, b, rule)[0, :]


def check_bound(b: Any, totals: np.ndarray, agents: np.ndarray) -> None:
    """Raise ValueError unless ``0 <= b <= W_i / 2`` for every receiver."""
    bound = np.broadcast_to(np.asarray(b, dtype=np.float64), totals.shape)
    if not np.all(np.isfinite(bound)) or np.any(bound < 0):
        raise ValueError(f"b must be a finite number >= 0, got {b!r}.")
    excess = bound - totals / 2
    if np.any(excess > SLACK * totals):
        worst = int(excess.argmax())
        raise ValueError(
            f"b must be at most half of the weight each agent hears, but agent {int(agents[worst])} hears "
            f"{totals[worst]:g} in all and b is {bound[worst]:g}."
        )


# -- rules that scale each difference by a number made of norms ---------------------------------------------


def _scales(rule: str, norms: np.ndarray, weights: np.ndarray, links: Links, b: np.ndarray) -> np.ndarray:
    """Factor in [0, 1] of each link; decided on the host, d times less data than the vectors."""
    if rule == "average" or norms.size == 0:
        return np.ones_like(norms)
    slots, real = links.padding
    heard = np.where(real, weights[slots], 0.0)
    sizes = np.where(heard > 0, norms[slots], np.inf)  # padding and dropped vectors come last
    order = np.argsort(sizes, axis=1, kind="stable")
    heard = np.take_along_axis(heard, order, axis=1)
    sizes = np.take_along_axis(sizes, order, axis=1)
    reached = np.cumsum(heard, axis=1)
    total, b = reached[:, -1:], b[:, None]
    slack = SLACK * total
    if rule == "gts":
        share = np.clip(total - b - (reached - heard), 0.0, heard)
        factors = np.divide(share, heard, out=np.zeros_like(share), where=heard > 0)
    else:
        if rule == "cs+":
            tau = _clipping_threshold(sizes, heard, total - reached, 2 * b, slack)
        else:
            inside = (reached <= total - b + slack) & (heard > 0)
            squares = np.sum(heard * np.where(inside, sizes, 0.0) ** 2, axis=1, keepdims=True)
            tau = np.sqrt(np.divide(squares, b, out=np.full_like(squares, np.inf), where=b > 0))
        factors = np.ones_like(sizes)
        np.divide(tau, sizes, out=factors, where=(sizes > tau) & np.isfinite(sizes))
    scales = np.empty_like(norms)
    places = np.take_along_axis(slots, order, axis=1)
    taken = np.take_along_axis(real, order, axis=1)
    scales[places[taken]] = factors[taken]
    return scales


def _clipping_threshold(
    sizes: np.ndarray, heard: np.ndarray, after: np.ndarray, wanted: np.ndarray, slack: np.ndarray
) -> np.ndarray:
    """The threshold tau (m, 1) of cs+: norm of the last vector with weight >= 2b after it, or the next norm.

    The proof of rho = 2 needs honest weight <= 2b strictly above tau and >= b at tau or above. Where weights
    hit 2b exactly (unit weights, integer b) the last vector with that much after it will do; otherwise more
    than 2b would be clipped, and tau has to be the norm of the vector after it. Zero comes before them all.
    """
    enough = (after >= wanted - slack) & (heard > 0)
    last = np.sum(enough, axis=1, keepdims=True)  # they come first in the order; 0 is the zero before them
    padded = np.concatenate([np.zeros_like(wanted), sizes], axis=1)
    left = np.concatenate([after[:, :1] + heard[:, :1], after], axis=1)
    exact = np.take_along_axis(left, last, axis=1) <= wanted + slack
    tau = np.take_along_axis(padded, np.where(exact, last, np.minimum(last + 1, sizes.shape[1])), axis=1)
    return np.where(np.isfinite(tau), tau, 0.0)


def _edge_norms(own: Any, rows: Any, links: Links) -> np.ndarray:
    xp = array_namespace(own, rows)
    if is_numpy(xp):
        from solvers.decentralized import _kernels_robust as kernels

        norms = np.empty(links.cols.size)
        kernels.edge_norms(own, rows, links.indptr, links.cols, norms)
        return norms
    with np.errstate(over="ignore", invalid="ignore"):  # a norm that overflows is a verdict, not an accident
        z = _differences(own, rows, links, xp)
        return to_numpy(xp.sqrt(xp.sum(z * z, axis=1))).astype(np.float64)


def edge_sums(own: Any, rows: Any, links: Links, coefficients: np.ndarray) -> Any:
    """``sum_e coefficients[e] (own_i - rows[cols[e]])`` for each receiver i, shape (m, d)."""
    xp = array_namespace(own, rows)
    if is_numpy(xp):
        from solvers.decentralized import _kernels_robust as kernels

        out = np.empty_like(own)
        kernels.edge_sums(own, rows, links.indptr, links.cols, coefficients, out)
        return out
    padded, heard = _padded(own, rows, links, coefficients, xp)
    return xp.sum(heard[:, :, None] * padded, axis=1)


# -- rules that look at the vectors themselves --------------------------------------------------------------


def _trimmed_sums(own: Any, rows: Any, links: Links, weights: np.ndarray, b: np.ndarray) -> Any:
    xp = array_namespace(own, rows)
    if is_numpy(xp):
        from solvers.decentralized import _kernels_robust as kernels

        out = np.empty_like(own)
        kernels.trimmed_sums(own, rows, links.indptr, links.cols, weights, b, out)
        return out
    padded, heard = _padded(own, rows, links, weights, xp)
    m, k, d = padded.shape
    if k == 0:
        return xp.zeros_like(own)
    order = xp.argsort(xp.where(heard[:, :, None] > 0, padded, xp.inf), axis=1, stable=True)
    values = _along(padded, order, xp)
    sizes = _along(xp.broadcast_to(heard[:, :, None], (m, k, d)), order, xp)
    reached = xp.cumulative_sum(sizes, axis=1)
    bound = xp.astype(from_numpy(np.ascontiguousarray(b), xp), own.dtype)[:, None, None]
    low, high = xp.maximum(reached - sizes, bound), xp.minimum(reached, reached[:, -1:, :] - bound)
    return xp.sum(xp.where(high > low, (high - low) * values, 0.0), axis=1)


def _outlier_sums(own: Any, rows: Any, links: Links, weights: np.ndarray, b: np.ndarray) -> Any:
    xp = array_namespace(own, rows)
    if is_numpy(xp):
        from solvers.decentralized import _kernels_robust as kernels

        out = np.empty_like(own)
        kernels.outlier_sums(own, rows, links.indptr, links.cols, weights, links.self_weights, b, out)
        return out
    padded, heard = _padded(own, rows, links, weights, xp)
    k = padded.shape[1]
    places = xp.arange(k)[None, :]
    itself = xp.astype(from_numpy(links.self_weights, xp), own.dtype)
    wanted = xp.astype(from_numpy(np.ascontiguousarray(b), xp), own.dtype)
    total = xp.sum(heard, axis=1)
    for _ in range(k):
        open_ = (total - xp.sum(heard, axis=1) + SLACK * total < wanted) & xp.any(heard > 0, axis=1)
        if not bool(xp.any(open_)):
            break
        left = (xp.sum(heard, axis=1) + itself)[:, None]
        mean = xp.sum(heard[:, :, None] * padded, axis=1) / left
        off = xp.sum((padded - mean[:, None, :]) ** 2, axis=2)
        farthest = xp.argmax(xp.where(heard > 0, off, -1.0), axis=1)
        heard = xp.where(open_[:, None] & (places == farthest[:, None]), 0.0, heard)
    return xp.sum(heard[:, :, None] * padded, axis=1)


def _differences(own: Any, rows: Any, links: Links, xp: Any) -> Any:
    mine = xp.take(own, from_numpy(links.receivers, xp), axis=0)
    return mine - xp.take(rows, from_numpy(np.ascontiguousarray(links.cols), xp), axis=0)


def _padded(own: Any, rows: Any, links: Links, weights: np.ndarray, xp: Any) -> tuple[Any, Any]:
    """Differences (m, k, d) and weights (m, k), zero where a receiver has fewer than k links."""
    slots, real = links.padding
    m, k = slots.shape
    if links.cols.size == 0:
        return xp.zeros((m, k, own.shape[1]), dtype=own.dtype), xp.zeros((m, k), dtype=own.dtype)
    z = xp.take(_differences(own, rows, links, xp), from_numpy(slots.ravel(), xp), axis=0)
    heard = np.where(real, weights[slots], 0.0)
    used = from_numpy(heard != 0, xp)[:, :, None]
    z = xp.where(used, xp.reshape(z, (m, k, own.shape[1])), 0.0)
    return z, xp.astype(from_numpy(heard, xp), own.dtype)


def _along(array: Any, order: Any, xp: Any) -> Any:
    """``take_along_axis(array, order, axis=1)`` of arrays (m, k, d), by one flat gather."""
    m, k, d = array.shape
    flat = (xp.arange(m)[:, None, None] * k + order) * d + xp.arange(d)[None, None, :]
    return xp.reshape(xp.take(xp.reshape(array, (-1,)), xp.reshape(flat, (-1,)), axis=0), (m, k, d))
