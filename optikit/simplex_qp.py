r"""QP on a product of simplices: :math:`\max e'\lambda - \frac12 \lambda'Q\lambda`, blocks summing to one.

The dual of bundle masters (and of any problem whose models are maxima of affine functions). Pairwise ascent
with second-order partner choice works on the Gram matrix alone, whatever its rank, and warm-starts from any
feasible point; interior-point codes need a positive definite Q and start anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from optikit.validation import check_integer, check_real

#: A run that needs more pair steps is diverging.
MAX_STEPS = 200_000


@dataclass(frozen=True)
class SimplexSolution:
    """Weights, exact duality gap, pair steps taken."""

    weights: np.ndarray
    gap: float
    steps: int


def solve_simplex_product(
    Q: Any, e: Any, sizes: Any, *, start: Any = None, delta: float = 1e-10, max_steps: int = MAX_STEPS
) -> SimplexSolution:
    """Maximise ``e'lam - lam'Q lam / 2`` over a product of simplices.

    Parameters
    ----------
    Q : array (N, N)
        Symmetric positive semi-definite, any rank.
    e : array (N,)
    sizes : sequence of int
        Entries of each block, in order; their sum is N.
    start : array (N,), optional
        Feasible warm start (renormalised per block); uniform weights by default.
    delta : float, default 1e-10
        Stop at this duality gap, > 0.
    max_steps : int, default 200000
    """
    from optikit._kernels_simplex import pairwise_ascent

    Q, e = np.ascontiguousarray(Q, dtype=np.float64), np.ascontiguousarray(e, dtype=np.float64)
    sizes = np.asarray(sizes, dtype=np.int64)
    N = int(sizes.sum())
    if Q.shape != (N, N) or e.shape != (N,):
        raise ValueError(f"Q and e must have {N} rows, the sum of sizes, got {Q.shape} and {e.shape}.")
    delta = check_real(delta, "delta", minimum=0.0, open_low=True)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    if start is None:
        lam = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
    else:
        lam = np.maximum(np.array(start, dtype=np.float64), 0.0)
        for low, high in pairwise(starts):
            if high > low:
                total = lam[low:high].sum()
                lam[low:high] = lam[low:high] / total if total > 0 else 1.0 / (high - low)
    # Differences within a block are all that matters: offsets shared by a block would cancel digits.
    shift = np.repeat([e[a:b].max() if b > a else 0.0 for a, b in pairwise(starts)], sizes)
    gap, steps = pairwise_ascent(
        Q, e - shift, lam, starts, delta, check_integer(max_steps, "max_steps", minimum=1)
    )
    return SimplexSolution(lam, float(gap), int(steps))
