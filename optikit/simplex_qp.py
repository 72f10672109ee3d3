r"""QP on a product of simplices: :math:`\max e'\lambda - \frac12 \lambda'Q\lambda`, blocks summing to one.

The dual of bundle masters (and of any problem whose models are maxima of affine functions). Pairwise ascent
with second-order partner choice works on the Gram matrix alone, whatever its rank, and warm-starts from any
feasible point; interior-point codes need a positive definite Q and start anew each time.

With :math:`r = e - Q\lambda`, a step takes, over all blocks, the pair of the largest :math:`r_i` of the block
and a partner j of positive weight with the largest gain

.. math:: d\,t - \tfrac12 c\,t^2, \quad d = r_i - r_j, \quad c = Q_{ii} + Q_{jj} - 2Q_{ij}, \quad
          t = \min(\lambda_j, d/c)

(the full step where :math:`c \le 0`: duplicate entries), until the duality gap
:math:`\sum_b \max_b r - \lambda'r` is at most `delta`. Pair steps find the entries that matter quickly, their
weights slowly where cuts are nearly parallel: after each burst of them, conjugate gradients go to the best
weights on that face (measured: 14 hard masters of 64 workers took 900 pair steps instead of 640 000).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.validation import check_integer, check_real

#: A run that needs more pair steps is diverging.
MAX_STEPS = 200_000
#: Pair steps between two ascents on the face they have found, and conjugate gradients of one such ascent.
BURST, CAP = 50, 100
#: Renewals of r in a row without progress that end the search.
PATIENCE = 50


@dataclass(frozen=True)
class SimplexSolution:
    """Weights, exact duality gap, pair steps taken."""

    weights: np.ndarray
    gap: float
    steps: int


def solve_simplex_product(
    Q: Any,
    e: Any,
    sizes: Any,
    *,
    start: Any = None,
    delta: float = 1e-10,
    max_steps: int = MAX_STEPS,
    scale: float = 1.0,
) -> SimplexSolution:
    """Maximise ``e'lam - scale lam'Q lam / 2`` over a product of simplices.

    Parameters
    ----------
    Q : array (N, N)
        Symmetric positive semi-definite, any rank; not copied when it is float64 and C-contiguous.
    e : array (N,)
        -inf keeps the weight of an entry at zero.
    sizes : sequence of int
        Entries of each block, in order; their sum is N.
    start : array (N,), optional
        Warm start, clipped and renormalised per block; uniform weights by default.
    delta : float, default 1e-10
        Stop at this duality gap, > 0. Rounding may stop the search before: see the gap of the solution.
    max_steps : int, default 200000
        A run that gets there is handed to PIQP, where that is installed, and polished once more.
    scale : float, default 1.0
        Multiplies Q, > 0.

    Raises
    ------
    ValueError
        For shapes that disagree, NaN or +inf in e, or parameters out of range.
    """
    Q, e = np.ascontiguousarray(Q, dtype=np.float64), np.ascontiguousarray(e, dtype=np.float64)
    sizes = np.asarray(sizes, dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    N = int(starts[-1])
    if np.any(sizes < 0):
        raise ValueError(f"sizes must be non-negative, got {sizes!r}.")
    if Q.shape != (N, N) or e.shape != (N,):
        raise ValueError(f"Q and e must have {N} rows, the sum of sizes, got {Q.shape} and {e.shape}.")
    if not np.all(e < np.inf):
        raise ValueError("e must be finite, or -inf where a weight is to stay zero; got NaN or inf.")
    delta = check_real(delta, "delta", minimum=0.0, open_low=True)
    scale = check_real(scale, "scale", minimum=0.0, open_low=True)
    max_steps = check_integer(max_steps, "max_steps", minimum=1)
    lam = np.zeros(N) if start is None else np.array(start, dtype=np.float64)
    if lam.shape != (N,) or not np.all(np.isfinite(lam)):
        raise ValueError(f"start must be {N} finite weights, got {start!r}.")
    ascent = _kernel()
    gap, steps = ascent(Q, scale, e, lam, starts, delta, max_steps, BURST, CAP, PATIENCE)
    if steps >= max_steps and gap > delta and (other := interior_point(Q, scale, e, starts)) is not None:
        other_gap, more = ascent(Q, scale, e, other, starts, delta, max_steps, BURST, CAP, PATIENCE)
        steps += more
        if other_gap < gap:
            lam, gap = other, other_gap
    return SimplexSolution(lam, float(gap), int(steps))


def _kernel() -> Any:
    """The compiled ascent, or its NumPy reference where numba does not import."""
    try:
        from optikit._kernels_simplex import pairwise_ascent
    except ImportError:
        return pairwise_ascent_numpy
    return pairwise_ascent


def interior_point(Q: np.ndarray, scale: float, e: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
    """Weights found by PIQP, to be clipped and normalised; None without PIQP or where it breaks down.

    Any finite answer serves, whatever PIQP thinks of its accuracy: pair steps go on from it.
    """
    try:
        import piqp
    except ImportError:
        return None
    free = np.flatnonzero(e > -np.inf)
    block = np.repeat(np.arange(starts.size - 1), np.diff(starts))[free]
    present, row = np.unique(block, return_inverse=True)
    sums = np.zeros((present.size, free.size))
    sums[row, np.arange(free.size)] = 1.0
    shift = np.full(present.size, -np.inf)
    np.maximum.at(shift, row, e[free])
    solver = piqp.DenseSolver()
    solver.setup(
        scale * Q[np.ix_(free, free)],
        shift[row] - e[free],
        sums,
        np.ones(present.size),
        x_l=np.zeros(free.size),
    )
    solver.solve()
    lam = np.zeros(e.size)
    lam[free] = solver.result.x
    return lam if np.all(np.isfinite(lam)) else None


def pairwise_ascent_numpy(
    Q: np.ndarray,
    scale: float,
    e: np.ndarray,
    lam: np.ndarray,
    starts: np.ndarray,
    delta: float,
    max_steps: int,
    burst: int = BURST,
    cap: int = CAP,
    patience: int = PATIENCE,
) -> tuple[float, int]:
    """The kernel's algorithm in NumPy calls: its reference in tests, and its stand-in without numba."""
    sizes = np.diff(starts)
    block = np.repeat(np.arange(sizes.size), sizes)
    filled = sizes > 0  # reduceat cannot skip empty blocks
    first, owner = starts[:-1][filled], (np.cumsum(filled) - 1)[block]
    if not lam.size:
        return 0.0, 0

    def per_block(reduction: Any, values: np.ndarray) -> np.ndarray:
        return reduction.reduceat(values, first)[owner]

    allowed = e > -np.inf
    top = per_block(np.maximum, e)
    e = np.where(allowed, e - np.where(np.isfinite(top), top, 0.0), -np.inf)

    def fresh() -> tuple[np.ndarray, float]:
        lam[:] = np.where(allowed, np.maximum(lam, 0.0), 0.0)
        total, count = per_block(np.add, lam), per_block(np.add, allowed.astype(np.float64))
        lam[:] = np.where(total > 0, lam / np.where(total > 0, total, 1.0), allowed / np.maximum(count, 1.0))
        r, support = e.copy(), np.flatnonzero(lam > 0)
        for j in support:
            r -= (scale * lam[j]) * Q[j]
        level = max(np.abs(e[support]).max(initial=0.0), np.abs(r[support]).max(initial=0.0))
        return r, float(np.finfo(float).eps) * level

    r, noise = fresh()
    steps, since, best_gap, waited = 0, 0, np.inf, 0
    while True:
        # The first entry that attains its block's maximum.
        at_top = np.flatnonzero(r == per_block(np.maximum, r))
        leader = at_top[np.unique(owner[at_top], return_index=True)[1]]
        j = np.flatnonzero(lam > 0)
        i = leader[owner[j]]
        d = r[i] - r[j]
        gap = float(np.sum(lam[j] * d))
        c = scale * (Q[i, i] + Q[j, j] - 2.0 * Q[i, j])
        short = c * lam[j] > d
        t = np.where(short, d / np.where(short, c, 1.0), lam[j])
        gains = np.where(d > noise, t * (d - 0.5 * c * t), 0.0)
        best = int(np.argmax(gains)) if gains.size else -1
        done = gap <= delta or best < 0 or not gains[best] > 0 or steps >= max_steps
        if done and since == 0:
            return gap, steps
        if done or since >= burst:
            best_gap, waited = (gap, 0) if gap < 0.9 * best_gap else (best_gap, waited + 1)
            if waited >= patience:
                max_steps = steps
            elif not done:
                _face_ascent_numpy(Q, scale, lam, r, owner, noise, cap)
            r, noise = fresh()
            since = 0
            continue
        a, b, move = int(i[best]), int(j[best]), float(t[best])
        lam[a] += move
        lam[b] = lam[b] - move if move < lam[b] else 0.0
        steps, since = steps + 1, since + 1
        r -= (scale * move) * (Q[a] - Q[b])


def _face_ascent_numpy(
    Q: np.ndarray, scale: float, lam: np.ndarray, r: np.ndarray, owner: np.ndarray, noise: float, cap: int
) -> None:
    """Conjugate gradients among the entries with weight, in place; one that reaches zero stays there."""
    support = np.flatnonzero(lam > 0)
    block, x, slope = owner[support], lam[support], r[support].copy()
    A = scale * Q[np.ix_(support, support)]
    fixed = np.zeros(support.size, dtype=bool)

    def centred() -> np.ndarray:
        counts = np.bincount(block, ~fixed, minlength=block.max() + 1)
        totals = np.bincount(block, np.where(fixed, 0.0, slope), minlength=counts.size)
        return np.where(fixed, 0.0, slope - (totals / np.maximum(counts, 1))[block])

    direction = g = centred()
    for _ in range(cap):
        if g @ g <= noise * noise * x.size:
            break
        curved = A @ direction
        curvature = float(direction @ curved)
        reach = np.where(direction < 0, -x / np.where(direction < 0, direction, -1.0), np.inf)
        step = float(g @ g) / curvature if curvature > 0 else np.inf
        bounded = reach.min() <= step
        step = min(step, float(reach.min()))
        if step == np.inf:
            break
        x = np.maximum(x + step * direction, 0.0)
        slope -= step * curved
        if bounded:
            x[np.argmin(reach)], fixed[np.argmin(reach)] = 0.0, True
        previous, g = float(g @ g), centred()
        direction = g if bounded else g + (float(g @ g) / previous) * direction
    lam[support] = x
