r"""The master problem: :math:`\min_x h(x) + \sum_i m_i(x) + \sum_i \frac{L_i}2 \|x - z_i\|^2`, by its dual.

With cut weights lam in a product of simplices, :math:`L = \sum L_i`, :math:`\bar z = \sum L_i z_i / L`,

.. math::

    p(\lambda) = prox_{h/L}(\bar z - G'\lambda/L), \qquad c = G p - v, \qquad
    gap(\lambda) = \sum_i \max_j c_{ij} - \lambda'c \ge 0 .

A quadratic h makes the dual a QP on the Gram matrix of the cuts, independent of the dimension; l1, box and
elastic net take a few semismooth Newton steps, each such a QP; any other h goes through FISTA.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from optikit.simplex_qp import solve_simplex_product
from solvers.asynchronous.models import Bundle
from solvers.asynchronous.regularizers import Prox, Regularizer


@dataclass(frozen=True)
class MasterSolution:
    """Point, duality gap, iterations; the weights are left in the bundle."""

    x: np.ndarray
    gap: float
    iterations: int


def solve_master(bundle: Bundle, h: Regularizer, L: np.ndarray, delta: float) -> MasterSolution:
    """Solve the master to the duality gap `delta`, warm-started from the bundle's weights."""
    bundle.refresh()
    active, sizes = bundle.active(), bundle.sizes()
    total = float(L.sum())
    shares = L / total
    z_bar = shares @ bundle.anchors
    lam = bundle.weights.ravel()[active]
    v = bundle.offsets.ravel()[active]
    if h.smooth:
        q = h.quadratic
        e = (total / (total + q)) * (bundle.cross[active] @ shares) - v
        Q = bundle.gram[np.ix_(active, active)] / (total + q)
        solution = solve_simplex_product(Q, e, sizes, start=lam, delta=delta)
        lam, gap, iterations = solution.weights, solution.gap, solution.steps
        flat = bundle.cuts.reshape(-1, bundle.d)
        support = lam > 0
        x = (total * z_bar - lam[support] @ flat[active[support]]) / (total + q)
    else:
        G = bundle.cuts.reshape(-1, bundle.d)[active]
        method = _fista if isinstance(h, Prox) else _semismooth_newton
        lam, x, gap, iterations = method(G, v, z_bar, total, h, sizes, lam, delta)
    bundle.weights.ravel()[active] = lam
    return MasterSolution(x, gap, iterations)


def _evaluate(
    G: np.ndarray, v: np.ndarray, z_bar: np.ndarray, L: float, h: Regularizer, lam: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """p(lam), cut values there, and the dual value (up to the block-constant terms)."""
    s = lam @ G
    p = h.prox(z_bar - s / L, 1.0 / L)
    c = G @ p - v
    dual = float(lam @ c) + h.value(p) + 0.5 * L * float((p - z_bar) @ (p - z_bar))
    return p, c, dual


def _gap(c: np.ndarray, lam: np.ndarray, starts: np.ndarray) -> float:
    return float(np.sum(np.maximum.reduceat(c, starts[:-1])) - lam @ c)


def _semismooth_newton(
    G: np.ndarray,
    v: np.ndarray,
    z_bar: np.ndarray,
    L: float,
    h: Regularizer,
    sizes: np.ndarray,
    lam: np.ndarray,
    delta: float,
) -> tuple[np.ndarray, np.ndarray, float, int]:
    starts = np.concatenate(([0], np.cumsum(sizes)))
    lam = _feasible(lam, starts)
    p, c, dual = _evaluate(G, v, z_bar, L, h, lam)
    gap = _gap(c, lam, starts)
    for iteration in range(100):
        if gap <= delta:
            return lam, p, gap, iteration
        free = G[:, h.active(p)]
        Q = free @ free.T / (L + h.quadratic)
        Q[np.diag_indices_from(Q)] += 1e-12 * max(float(np.trace(Q)) / Q.shape[0], np.finfo(float).tiny)
        target = solve_simplex_product(
            Q, c + Q @ lam, sizes, start=lam, delta=max(0.1 * delta, 1e-15)
        ).weights
        direction, step = target - lam, 1.0
        slope = float(c @ direction)
        while step > 1e-10:
            trial = _feasible(lam + step * direction, starts)
            p_new, c_new, dual_new = _evaluate(G, v, z_bar, L, h, trial)
            if dual_new >= dual + 1e-4 * step * slope - 1e-15 * (1.0 + abs(dual)):
                break
            step *= 0.5
        stalled = dual_new <= dual and _gap(c_new, trial, starts) >= gap
        lam, p, c, dual = trial, p_new, c_new, dual_new
        gap = _gap(c, lam, starts)
        if stalled:
            break
    return lam, p, gap, 100


def _feasible(lam: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Clip rounding below zero and make each block sum to exactly one."""
    lam = np.maximum(lam, 0.0)
    for low, high in pairwise(starts):
        total = lam[low:high].sum()
        lam[low:high] = lam[low:high] / total if total > 0 else 1.0 / (high - low)
    return lam


def _project(y: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Euclidean projection on the product of simplices, by sorting; blocks are shifted by their maximum."""
    out = np.empty_like(y)
    for low, high in pairwise(starts):
        block = y[low:high] - y[low:high].max()
        ranked = np.sort(block)[::-1]
        sums = np.cumsum(ranked) - 1.0
        rho = int(np.flatnonzero(ranked - sums / np.arange(1, ranked.size + 1) > 0)[-1])
        out[low:high] = np.maximum(block - sums[rho] / (rho + 1), 0.0)
    return _feasible(out, starts)


def _fista(
    G: np.ndarray,
    v: np.ndarray,
    z_bar: np.ndarray,
    L: float,
    h: Regularizer,
    sizes: np.ndarray,
    lam: np.ndarray,
    delta: float,
    max_iterations: int = 20_000,
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Accelerated projected ascent with adaptive restart and a backtracking constant that may decrease."""
    starts = np.concatenate(([0], np.cumsum(sizes)))
    lam = _feasible(lam, starts)
    y, t, bound = lam, 1.0, float(np.max(np.sum(G * G, axis=1))) / (L + h.quadratic)
    p, c, _ = _evaluate(G, v, z_bar, L, h, lam)
    gap = _gap(c, lam, starts)
    for iteration in range(max_iterations):
        if gap <= delta:
            return lam, p, gap, iteration
        _, gradient, dual = _evaluate(G, v, z_bar, L, h, y)
        bound *= 0.95
        while True:
            trial = _project(y + gradient / bound, starts)
            move = trial - y
            p, c, value = _evaluate(G, v, z_bar, L, h, trial)
            if value >= dual + float(gradient @ move) - 0.5 * bound * float(move @ move) - 1e-15 * (
                1 + abs(dual)
            ):
                break
            bound *= 2.0
        if float((y - trial) @ (trial - lam)) > 0:  # momentum points backwards: restart
            t, y = 1.0, trial
        else:
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
            y = trial + ((t - 1.0) / following) * (trial - lam)
            t = following
        lam = trial
        gap = _gap(c, lam, starts)
    return lam, p, gap, max_iterations
