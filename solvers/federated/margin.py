r"""Largest margin of linearly separable data through the origin, and proof when there is none.

For rows x_i (labels multiplied in) the margin and its direction are

.. math:: \gamma = \max_{\|w\|=1} \min_i \langle w, x_i\rangle
          = \min_{\alpha \ge 0,\; 1^T\alpha = 1} \|X^T\alpha\|,

the second form being the distance of the origin from the convex hull of the rows. It is found by non-negative
least squares (least-distance programming; C. Lawson, R. Hanson, *Solving Least Squares Problems*, 1974,
chapter 23):

.. math:: \alpha = \arg\min_{\alpha\ge 0} \|E\alpha - f\|, \quad E = \begin{pmatrix} X^T \\ 1^T\end{pmatrix},
          \; f = e_{d+1}, \quad \rho = E\alpha - f, \quad u = -\rho_{1:d}/\rho_{d+1}, \quad
          \gamma = 1/\|u\|.

Guarantee: finite and exact up to rounding. If :math:`\rho = 0` the rows are not separable, and
:math:`\alpha/1^T\alpha` proves it: a convex combination of rows that is zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.arrays import to_numpy
from optikit.runtime.communicator import raised_on_every_rank
from optikit.validation import check_choice, check_real

#: Largest number of rows that goes to non-negative least squares whole.
NNLS_ROWS = 5000
#: A margin holds when every score is at least gamma times one minus this.
RELATIVE_SLACK = 1e-9
#: Passes in which candidates without weight are dropped; later ones only add, so that none repeats.
PRUNING_SWEEPS = 100


class NotSeparableError(ValueError):
    """No vector has a positive score on every row.

    Attributes
    ----------
    alpha : numpy.ndarray, shape (n_samples,)
        The certificate: non-negative, sum 1, with ``alpha @ (y * X)`` zero up to rounding.
    """

    def __init__(self, message: str, alpha: np.ndarray) -> None:
        super().__init__(message)
        self.alpha = alpha


@dataclass(frozen=True, eq=False)
class Margin:
    """The largest margin of a data set.

    Attributes
    ----------
    gamma : float
        The margin, > 0, in the units of the rows given.
    direction : numpy.ndarray, shape (d,)
        The unit vector that attains it.
    alpha : numpy.ndarray, shape (n_samples,)
        Convex weights with ``||alpha @ (y * X)|| = gamma``; non-zero on support vectors only. They prove that
        no margin is larger.
    scale : float
        Largest row norm; ``gamma / scale`` is the margin of the data normalised to norm at most 1.
    """

    gamma: float
    direction: np.ndarray
    alpha: np.ndarray
    scale: float

    @property
    def normalized(self) -> float:
        """The margin of the data divided by the largest row norm."""
        return self.gamma / self.scale

    @property
    def support(self) -> np.ndarray:
        """Numbers of the rows with positive weight."""
        return np.flatnonzero(self.alpha)


def max_margin(features: Any, targets: Any = None, *, method: str = "auto", tol: float = 1e-10) -> Margin:
    """The largest margin through the origin, with its direction and its proof.

    Parameters
    ----------
    features : array or SciPy sparse matrix, shape (n_samples, d)
        At least one row.
    targets : array, shape (n_samples,), optional
        Labels in {-1, 1}; by default they are in the rows already.
    method : {"auto", "nnls", "candidates", "qp"}, default "auto"
        "nnls" takes all rows at once. "candidates" takes a few rows, adds those that violate the margin
        found, and repeats: exact too, for any number of rows. "qp" solves the hard-margin quadratic programme
        with cvxpy and finishes by "candidates" from its support vectors. "auto" is "nnls" up to 5000 dense
        rows, else "candidates".
    tol : float, default 1e-10
        Margins below `tol` times the largest row norm count as zero.

    Returns
    -------
    Margin

    Raises
    ------
    NotSeparableError
        When no margin above the tolerance exists; carries the certificate `alpha`.
    ValueError
        For arguments out of range.
    """
    check_choice(method, "method", ("auto", "nnls", "candidates", "qp"))
    tol = check_real(tol, "tol", minimum=0.0, open_low=True)
    rows = _Rows(features, targets)
    if method == "auto":
        method = "nnls" if rows.count <= NNLS_ROWS and not rows.is_sparse else "candidates"
    if method == "nnls":
        X = rows.take(np.arange(rows.count))
        direction, alpha = _nearest_point(X, rows.scale, tol)
        gamma, lowest = float(np.linalg.norm(alpha @ X)), float((X @ direction).min())
        if lowest >= _threshold(gamma, rows.scale):
            return Margin(gamma, direction, alpha, rows.scale)
        return _by_candidates(rows, rows.count, 0, rows.scale, tol, lambda x: x, np.flatnonzero(alpha))
    start = _qp_support(rows) if method == "qp" else None
    return _by_candidates(rows, rows.count, 0, rows.scale, tol, lambda x: x, start)


def pooled_margin(data: Any, network: Any, *, tol: float = 1e-10) -> Margin:
    """`max_margin` of all agents' rows together, the same on every rank.

    On several ranks only candidate rows travel (see `max_margin`, method "candidates"): the data stay where
    they are. Set-up traffic, not counted in the ledger.

    Parameters
    ----------
    data : AgentData
        The rows of this rank's agents, with targets in {-1, 1}.
    network : Network

    Raises
    ------
    NotSeparableError
        On every rank; `alpha` is in the order of the pooled rows.
    """
    features, targets = data.features, to_numpy(data.targets)
    if not data.is_sparse:
        features = to_numpy(features)
    if network.size == 1:
        return max_margin(features, targets, tol=tol)
    rows = _Rows(features, targets)
    counts = _gather(network.communicator, np.array([float(rows.count)])).astype(np.int64)
    scale = float(network.max(np.array([rows.scale])))
    first = int(counts[: network.rank].sum())
    gather = lambda x: _gather(network.communicator, x)  # noqa: E731
    try:
        return _by_candidates(rows, int(counts.sum()), first, scale, tol, gather, None)
    except NotSeparableError as error:
        raise raised_on_every_rank(error) from None


class _Rows:
    """Signed rows ``y_i x_i`` without a copy of the data."""

    def __init__(self, features: Any, targets: Any) -> None:
        from scipy import sparse

        self.is_sparse = sparse.issparse(features)
        if self.is_sparse:
            self.X = sparse.csr_array(features)
        else:
            self.X = np.asarray(to_numpy(features), dtype=np.float64)
            if self.X.ndim != 2:
                raise ValueError(f"features must have 2 axes, got shape {self.X.shape}.")
        self.count, self.dim = self.X.shape
        if targets is None:
            self.y = np.ones(self.count)
        else:
            self.y = np.asarray(to_numpy(targets), dtype=np.float64)
            if self.y.shape != (self.count,) or not np.all(np.abs(self.y) == 1.0):
                raise ValueError(f"targets must be {self.count} labels in {{-1, 1}}, got {targets!r}.")
        if self.is_sparse:
            squares = np.asarray(self.X.multiply(self.X).sum(axis=1)).reshape(-1)
        else:
            squares = np.einsum("ij,ij->i", self.X, self.X)
        if not np.all(np.isfinite(squares)):
            raise ValueError(
                f"features must be finite, got NaN or infinity in row {int(np.argmin(np.isfinite(squares)))}."
            )
        self.scale = math.sqrt(float(squares.max(initial=0.0)))

    def scores(self, w: np.ndarray) -> np.ndarray:
        return self.y * (self.X @ w)

    def take(self, where: np.ndarray) -> np.ndarray:
        block = self.X[where]
        return self.y[where, None] * (block.toarray() if self.is_sparse else block)

    def mean(self) -> np.ndarray:
        return np.asarray(self.X.T @ self.y).reshape(-1)


def _nearest_point(X: np.ndarray, scale: float, tol: float) -> tuple[np.ndarray, np.ndarray]:
    """Direction (unit) and convex weights of the point of the rows' hull nearest to the origin."""
    from scipy.optimize import nnls

    n, d = X.shape
    if n == 0:
        raise ValueError("features must have at least one row, got none.")
    unit = scale if scale > 0 else 1.0
    E = np.empty((d + 1, n))
    E[:d], E[d] = X.T / unit, 1.0
    f = np.zeros(d + 1)
    f[d] = 1.0
    alpha, _ = nnls(E, f, maxiter=50 * n)
    rho = E @ alpha - f
    if float(np.linalg.norm(rho)) <= tol:
        alpha = alpha / alpha.sum()
        raise NotSeparableError(
            f"the data are not linearly separable through the origin: a convex combination of "
            f"{np.count_nonzero(alpha)} rows is zero (its weights are in `alpha`).",
            alpha,
        )
    u = -rho[:d] / rho[d]
    return u / np.linalg.norm(u), alpha / alpha.sum()


def _by_candidates(
    rows: _Rows,
    total: int,
    first: int,
    scale: float,
    tol: float,
    gather: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray | None,
) -> Margin:
    """The margin of all ranks' rows from the few that bind.

    Row i here has the global number ``first + i``. Every pass solves for the candidates, the same on every
    rank, and adds each rank's worst violators: finite, since a row is added once.
    """
    if total == 0:
        raise ValueError("features must have at least one row, got none.")
    batch = 2 * rows.dim + 16
    if start is None:
        # Rows that the mean row scores lowest: the support vectors are usually among them.
        mean = gather(rows.mean()).reshape(-1, rows.dim).sum(axis=0)
        start = _lowest(rows.scores(mean), batch)
    ids, chosen = np.empty(0, dtype=np.int64), np.empty((0, rows.dim))
    new = start
    for sweep in itertools.count():
        message = np.column_stack([(first + new).astype(np.float64), rows.take(new)])
        heard = gather(message.reshape(-1)).reshape(-1, rows.dim + 1)
        if heard.shape[0] == 0:
            break
        ids = np.concatenate([ids, heard[:, 0].astype(np.int64)])
        chosen = np.concatenate([chosen, heard[:, 1:]])
        try:
            direction, alpha = _nearest_point(chosen, scale, tol)
        except NotSeparableError as error:
            raise NotSeparableError(str(error), _spread(error.alpha, ids, total)) from None
        gamma = float(np.linalg.norm(alpha @ chosen))
        scores = rows.scores(direction)
        scores[ids[(ids >= first) & (ids < first + rows.count)] - first] = math.inf
        low = _lowest(scores, batch)
        new = low[scores[low] < _threshold(gamma, scale)]
        if ids.size > 4 * batch and sweep < PRUNING_SWEEPS:
            # The weighted rows alone keep the distance that was reached, so the sequence still decreases.
            kept = alpha > 0.0
            ids, chosen, alpha = ids[kept], chosen[kept], alpha[kept]
    # Candidates are not added twice, but must hold too.
    lowest = gather(np.array([rows.scores(direction).min(initial=math.inf)])).min()
    return _checked(gamma, direction, _spread(alpha, ids, total), scale, float(lowest))


def _checked(gamma: float, direction: np.ndarray, alpha: np.ndarray, scale: float, lowest: float) -> Margin:
    if lowest < _threshold(gamma, scale):
        # Only for margins near the rounding of the data: what the direction attains is certain.
        if lowest <= 0.0:
            raise NotSeparableError(
                f"the data are not separable beyond rounding: the largest margin is at most {gamma:.3g}.",
                alpha,
            )
        gamma = lowest
    return Margin(gamma, direction, alpha, scale)


def _threshold(gamma: float, scale: float) -> float:
    return gamma * (1.0 - RELATIVE_SLACK) - 1e-14 * scale


def _lowest(scores: np.ndarray, count: int) -> np.ndarray:
    if scores.size <= count:
        return np.arange(scores.size)
    return np.sort(np.argpartition(scores, count)[:count])


def _spread(alpha: np.ndarray, ids: np.ndarray, total: int) -> np.ndarray:
    whole = np.zeros(total)
    whole[ids] = alpha
    return whole


def _gather(communicator: Any, x: np.ndarray) -> np.ndarray:
    """The ranks' vectors one after the other, on every rank."""
    size = communicator.Get_size()
    counts = np.empty(size, dtype=np.int64)
    communicator.Allgather(np.array([x.size], dtype=np.int64), counts)
    whole = np.empty(int(counts.sum()))
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    communicator.Allgatherv(np.ascontiguousarray(x, dtype=np.float64), [whole, (counts, starts)])
    return whole


def _qp_support(rows: _Rows) -> np.ndarray:
    """Rows with a positive multiplier in the hard-margin quadratic programme, by an interior-point method."""
    import cvxpy as cp

    unit = rows.scale if rows.scale > 0 else 1.0
    signed = rows.X.multiply(rows.y[:, None]).tocsr() if rows.is_sparse else rows.y[:, None] * rows.X
    alpha, point = cp.Variable(rows.count, nonneg=True), cp.Variable(rows.dim)
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(point)), [signed.T @ alpha / unit == point, cp.sum(alpha) == 1]
    )
    problem.solve(solver=cp.CLARABEL)
    if alpha.value is None:
        raise RuntimeError(f"the quadratic programme of the margin ended as {problem.status!r}.")
    return np.flatnonzero(alpha.value > 1e-7 * alpha.value.max())
