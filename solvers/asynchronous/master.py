r"""The master problem: :math:`\min_x h(x) + \sum_i m_i(x) + \sum_i \frac{L_i}2 \|x - z_i\|^2`, by its dual.

With cut weights lam in a product of simplices, :math:`L = \sum L_i`, :math:`\bar z = \sum L_i z_i / L`,

.. math::

    p(\lambda) = prox_{h/L}(\bar z - G'\lambda/L), \qquad c = G p - v, \qquad
    gap(\lambda) = \sum_i \max_j c_{ij} - \lambda'c \ge 0 .

A quadratic h makes the dual a QP on the Gram matrix of the cuts, independent of the dimension; l1, box and
elastic net take a few semismooth Newton steps, each such a QP; any other h goes through FISTA.

Without the prox terms the same dual bounds the optimal value from below: `best_lower_bound` where h is
strongly convex, `lp_lower_bound` where it is polyhedral.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optikit.simplex_qp import SimplexSolution, solve_simplex_product
from optikit.validation import check_real
from solvers.asynchronous.models import Bundle
from solvers.asynchronous.regularizers import Box, ElasticNet, Prox, Quadratic, Regularizer

#: Newton steps and FISTA iterations at most.
MAX_NEWTON, MAX_FISTA = 100, 20_000


@dataclass(frozen=True)
class MasterSolution:
    """Point, duality gap, iterations; the weights are left in the bundle."""

    x: np.ndarray
    gap: float
    iterations: int


def default_delta(h: Regularizer, F0: float) -> float:
    """Duality gap of the masters: ``1e-10 max(1, |F(x0)|)``, with 1e-8 for a general proximal map."""
    size = abs(F0) if np.isfinite(F0) else 1.0
    return (1e-8 if isinstance(h, Prox) else 1e-10) * max(1.0, size)


def solve_master(bundle: Bundle, h: Regularizer, L: np.ndarray, delta: float) -> MasterSolution:
    """Solve the master to the duality gap `delta`, warm-started from the bundle's weights.

    Parameters
    ----------
    bundle : Bundle
        Every worker has a cut. Its `weights` are replaced by the solution's.
    h : Regularizer
    L : array (n,)
        Prox weights, > 0.
    delta : float
        > 0. Rounding may keep the gap above it: the solution says which gap was reached.
    """
    total = float(L.sum())
    dual = _Dual(bundle, h, total, L / total)
    lam, x, gap, iterations = dual.maximise(bundle.weights.ravel(), delta)
    bundle.weights[...] = lam.reshape(bundle.weights.shape)
    return MasterSolution(x, gap, iterations)


def compile_kernels() -> None:
    """Compile or load what masters call, before a clock starts: a first call may take a second."""
    bundle = Bundle("cutting_plane", 1, 1, 2)
    for point in (1.0, -1.0):
        bundle.put(0, np.array([point]), 0.5, np.array([point]))
    for h in (Quadratic(1.0), ElasticNet(0.1)):
        solve_master(bundle, h, np.ones(1), 1e-8)


class _Dual:
    """``max_lam min_x h(x) + lam'(G x - v) + (L/2)||x - z||^2`` over the slots of a bundle.

    Unused slots stay where they are, with rows of zeros and values of -inf, so that neither the cuts nor
    their Gram matrix is ever copied.

    Parameters
    ----------
    bundle : Bundle
    h : Regularizer
    L : float
    shares : array (n,) or None
        z is this combination of the anchors; None for zero.
    """

    def __init__(self, bundle: Bundle, h: Regularizer, L: float, shares: np.ndarray | None) -> None:
        self.bundle, self.h, self.L, self.shares = bundle, h, L, shares
        self.G = bundle.flat
        self.used = bundle.used.ravel()
        # A constant per worker moves the dual value alone: taken off before it costs the products digits.
        base = np.min(bundle.offsets, axis=1, keepdims=True, where=bundle.used, initial=np.inf)
        self.v = np.where(bundle.used, bundle.offsets - base, 0.0).ravel()
        self.shape = (bundle.n, bundle.slots)

    def maximise(self, start: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray, float, int]:
        """Weights, minimiser, gap, iterations."""
        if self.h.smooth:
            return self._quadratic(start, delta)
        self.z = np.zeros(self.bundle.d) if self.shares is None else self.shares @ self.bundle.anchors
        return (self._fista if isinstance(self.h, Prox) else self._newton)(start, delta)

    def qp(
        self, Q: np.ndarray, scale: float, e: np.ndarray, start: np.ndarray, delta: float
    ) -> SimplexSolution:
        """The QP over the used slots; a gap of NaN where the run has diverged beyond numbers."""
        if not np.all(np.isfinite(e[self.used])):
            return SimplexSolution(start, np.nan, 0)
        sizes = np.full(self.shape[0], self.shape[1])
        return solve_simplex_product(Q, e, sizes, start=start, delta=delta, scale=scale)

    def _quadratic(self, start: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray, float, int]:
        bundle, total = self.bundle, self.L + self.h.quadratic
        bundle.refresh()
        centre = 0.0 if self.shares is None else (self.L / total) * (bundle.cross @ self.shares)
        solution = self.qp(
            bundle.gram, 1.0 / total, np.where(self.used, centre - self.v, -np.inf), start, delta
        )
        x = np.full(bundle.d, np.nan if np.isnan(solution.gap) else 0.0)
        if self.shares is not None:
            add_rows(self.shares, bundle.anchors, self.L / total, x)
        add_rows(solution.weights, self.G, -1.0 / total, x)
        return solution.weights, x, solution.gap, solution.steps

    def evaluate(self, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """p(lam), cut values there (-inf in unused slots), and the dual value."""
        shifted = self.z.copy()
        add_rows(lam, self.G, -1.0 / self.L, shifted)
        p = self.h.prox(shifted, 1.0 / self.L)
        c = self.G @ p - self.v
        dual = float(lam @ c) + self.h.value(p) + 0.5 * self.L * float((p - self.z) @ (p - self.z))
        return p, np.where(self.used, c, -np.inf), dual

    def gap(self, c: np.ndarray, lam: np.ndarray) -> float:
        """``sum_i max_j c_ij - lam'c`` as a sum of non-negative terms."""
        values = c.reshape(self.shape)
        below = np.where(self.bundle.used, values.max(axis=1, keepdims=True) - values, 0.0)
        return float(np.vdot(lam.reshape(self.shape), below))

    def feasible(self, lam: np.ndarray) -> np.ndarray:
        """Clip rounding below zero and make each block sum to exactly one."""
        blocks = np.where(self.bundle.used, np.maximum(lam.reshape(self.shape), 0.0), 0.0)
        totals = blocks.sum(axis=1, keepdims=True)
        count = self.bundle.used.sum(axis=1, keepdims=True)
        uniform = self.bundle.used / np.maximum(count, 1)
        return np.where(totals > 0, blocks / np.where(totals > 0, totals, 1.0), uniform).ravel()

    def project(self, y: np.ndarray) -> np.ndarray:
        """Euclidean projection on the product of simplices, by sorting.

        Blocks are shifted by their maximum: only entries within one of it can stay positive, and large ones
        would lose the sum to one.
        """
        blocks = np.where(self.bundle.used, y.reshape(self.shape), -np.inf)
        blocks = np.maximum(blocks - blocks.max(axis=1, keepdims=True), -2.0)
        ranked = -np.sort(-blocks, axis=1)
        thresholds = (np.cumsum(ranked, axis=1) - 1.0) / np.arange(1, ranked.shape[1] + 1)
        last = np.count_nonzero(ranked > thresholds, axis=1) - 1
        return self.feasible(np.maximum(blocks - thresholds[np.arange(last.size), last][:, None], 0.0))

    def curvature(self, p: np.ndarray) -> np.ndarray:
        """``G D G'`` with D the 0-1 derivative of the proximal map at p, from its ones or its zeros."""
        free = self.h.active(p)
        if 2 * np.count_nonzero(free) <= free.size:
            rows = self.G[:, np.flatnonzero(free)]
            return rows @ rows.T
        self.bundle.refresh()
        rows = self.G[:, np.flatnonzero(~free)]
        return self.bundle.gram - rows @ rows.T

    def _newton(self, start: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray, float, int]:
        """Semismooth Newton: a QP with the curvature at lam gives the direction, Armijo halving the step."""
        lam, scale = self.feasible(start), 1.0 / (self.L + self.h.quadratic)
        p, c, dual = self.evaluate(lam)
        gap = self.gap(c, lam)
        best = lam, p, gap
        for iteration in range(MAX_NEWTON):
            if not gap > delta:
                return lam, p, gap, iteration
            Q = self.curvature(p)
            ridge = 1e-12 * max(float(np.trace(Q)) / Q.shape[0], np.finfo(float).tiny)
            Q[np.diag_indices_from(Q)] += ridge
            target = self.qp(Q, scale, c + scale * (Q @ lam), lam, max(0.1 * delta, 1e-15)).weights
            direction, step = target - lam, 1.0
            slope = float(np.where(self.used, c, 0.0) @ direction)
            while True:
                trial = self.feasible(lam + step * direction)
                p, c, trial_dual = self.evaluate(trial)
                if trial_dual >= dual + 1e-4 * step * slope - 1e-15 * (1.0 + abs(dual)) or step < 1e-10:
                    break
                step *= 0.5
            # Dual values agree to rounding long before the gap does: only both at rest are an end.
            rising, lam, dual, gap = trial_dual > dual, trial, trial_dual, self.gap(c, trial)
            if not rising and gap >= best[2]:
                return *best, iteration + 1
            if gap < best[2]:
                best = lam, p, gap
        return *best, MAX_NEWTON

    def _fista(self, start: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray, float, int]:
        """Accelerated projected ascent, with adaptive restart and a constant that may decrease again."""
        lam = self.feasible(start)
        largest = float(np.max(np.einsum("ij,ij->i", self.G, self.G)))
        y, t, bound = lam, 1.0, max(largest, np.finfo(float).tiny) / (self.L + self.h.quadratic)
        p, c, _ = self.evaluate(lam)
        gap = self.gap(c, lam)
        for iteration in range(MAX_FISTA):
            if not gap > delta:
                return lam, p, gap, iteration
            _, c, dual = self.evaluate(y)
            gradient = np.where(self.used, c, 0.0)
            bound *= 0.95
            while True:
                trial = self.project(y + gradient / bound)
                move = trial - y
                p, c, value = self.evaluate(trial)
                model = dual + float(gradient @ move) - 0.5 * bound * float(move @ move)
                if not value < model - 1e-15 * (1.0 + abs(dual)):
                    break
                bound *= 2.0
            if float((y - trial) @ (trial - lam)) > 0:  # momentum points backwards: restart
                t, y = 1.0, trial
            else:
                following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
                y = trial + ((t - 1.0) / following) * (trial - lam)
                t = following
            lam = trial
            gap = self.gap(c, lam)
        return lam, p, gap, MAX_FISTA


def add_rows(weights: np.ndarray, rows: np.ndarray, factor: float, out: np.ndarray) -> None:
    """``out += factor weights @ rows``, reading only rows whose weight is not zero."""
    try:
        from solvers.asynchronous import _kernels_bundle
    except ImportError:
        support = np.flatnonzero(weights)
        out += factor * (weights[support] @ rows[support])
        return
    _kernels_bundle.add_rows(weights, rows, factor, out)


def best_lower_bound(
    bundle: Bundle, h: Regularizer, *, start: np.ndarray | None = None, delta: float = 1e-10
) -> tuple[float | None, np.ndarray]:
    """The largest lower bound ``-v'lam - h*(-G'lam)`` on the optimal value that the cuts allow.

    Parameters
    ----------
    bundle : Bundle
        Not changed, but for its products being brought up to date.
    h : Regularizer
        With ``quadratic > 0``, for which this is the master's dual with q as the only prox weight.
    start : array (n, slots), optional
        Warm start, such as the weights returned before; the bundle's own by default.
    delta : float
        Gap to the best bound, > 0.

    Returns
    -------
    bound : float or None
        Valid for any weights, so whatever the gap; None when ``quadratic`` is zero: see `lp_lower_bound`.
    weights : array (n, slots)
    """
    lam = (bundle.weights if start is None else np.asarray(start, dtype=np.float64)).ravel()
    if h.quadratic > 0:
        dual = _Dual(bundle, h.with_quadratic(-h.quadratic), h.quadratic, None)
        lam = dual.feasible(dual.maximise(lam, delta)[0])
    weights = lam.reshape(bundle.weights.shape).copy()
    return (_bound(bundle, h, lam) if h.quadratic > 0 else None), weights


def _bound(bundle: Bundle, h: Regularizer, lam: np.ndarray) -> float | None:
    s = np.zeros(bundle.d)
    add_rows(lam, bundle.flat, 1.0, s)
    conjugate = h.negative_conjugate(s)
    return None if conjugate is None else conjugate - float(lam @ bundle.offsets.ravel())


def lp_lower_bound(bundle: Bundle, h: Regularizer, radius: float | None = None) -> float | None:
    """The exact minimum of the model ``h + sum_i m_i``, a linear program, for h without a quadratic.

    Parameters
    ----------
    bundle : Bundle
    h : Quadratic(0), ElasticNet(l1) or Box
        For which the certificate has no, or no sharp, closed form.
    radius : float, optional
        A bound on the largest entry of a minimiser, in magnitude; makes every model bounded below.

    Returns
    -------
    bound : float or None
        None when the model is unbounded below, as it is without h until the cuts surround a minimiser; also
        when, without h and `radius`, rounding leaves a slope in a direction without end.

    Notes
    -----
    The value is computed from the dual solution of HiGHS, made feasible first: it is a bound to rounding, not
    to the tolerance of the solver. The program has 2 d + n variables for l1: call it now and then.
    """
    if not isinstance(h, Quadratic | ElasticNet | Box) or h.quadratic > 0:
        raise ValueError(f"h must be nothing, l1 or a box, without a quadratic; got {h!r}.")
    if radius is not None:
        radius = check_real(radius, "radius", minimum=0.0)
    l1 = h.l1 if isinstance(h, ElasticNet) else 0.0
    reach = np.inf if radius is None else radius
    low = np.maximum(h.low if isinstance(h, Box) else -np.inf, -reach) * np.ones(bundle.d)
    high = np.minimum(h.high if isinstance(h, Box) else np.inf, reach) * np.ones(bundle.d)
    margin = 0.0
    for _ in range(3):
        lam = _lp_weights(bundle, l1, low, high, margin)
        if lam is None:
            return None
        s = np.zeros(bundle.d)
        add_rows(lam, bundle.flat, 1.0, s)
        # Towards an infinite end the slope may not be negative, not even by the rounding of the solver.
        descent = np.maximum(np.where(high == np.inf, -(l1 + s), 0.0), np.where(low == -np.inf, s - l1, 0.0))
        if (worst := float(descent.max())) <= 0.0:
            ends = [np.where(np.isfinite(end), end, 0.0) for end in (low, high, np.clip(0.0, low, high))]
            minima = np.min([l1 * np.abs(x) + s * x for x in ends], axis=0)
            return float(minima.sum()) - float(lam @ bundle.offsets.ravel())
        margin += 4.0 * worst
    return None


def _lp_weights(
    bundle: Bundle, l1: float, low: np.ndarray, high: np.ndarray, margin: float
) -> np.ndarray | None:
    """Dual weights of the cuts in the linear program; slopes towards infinite ends lowered by `margin`."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack

    n, active = bundle.n, bundle.active()
    G, v = bundle.flat[active], bundle.offsets.ravel()[active]
    owner = csr_array(
        (np.ones(active.size), (np.arange(active.size), active // bundle.slots)), (active.size, n)
    )
    if l1 > 0.0:  # the interval is symmetric, and x the difference of its parts
        matrix, cost = np.hstack([G, -G]), np.full(2 * bundle.d, l1)
        bounds = np.column_stack([np.zeros(2 * bundle.d), np.concatenate([high, -low])])
        cost -= np.where(np.isinf(bounds[:, 1]), margin, 0.0)
    else:
        matrix, bounds = G, np.column_stack([low, high])
        cost = margin * (np.isinf(low).astype(np.float64) - np.isinf(high))
    answer = linprog(
        np.concatenate([cost, np.ones(n)]),
        A_ub=hstack([csr_array(matrix), -owner], format="csr"),
        b_ub=v,
        bounds=np.vstack([bounds, np.tile([-np.inf, np.inf], (n, 1))]),
        method="highs",
        options={"dual_feasibility_tolerance": 1e-10, "primal_feasibility_tolerance": 1e-10},
    )
    if answer.status != 0:
        return None
    lam = np.zeros(bundle.used.size)
    lam[active] = np.maximum(-answer.ineqlin.marginals, 0.0)
    totals = lam.reshape(n, -1).sum(axis=1)
    return None if np.any(totals <= 0) else lam / np.repeat(totals, bundle.slots)
