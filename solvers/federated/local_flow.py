r"""Local gradient flow: Local GD in the limit of infinitely many, infinitely small local steps.

Between two averages every client follows its gradient flow for a time T, which plays the role of
:math:`\eta K`,

.. math:: \dot v = -\nabla F_m(v), \quad v(0) = w_r, \quad t \in [0, T]; \qquad w_{r+1} = \sum_m p_m v_m(T).

One row x per client has a closed form [D]: with :math:`z = \langle w, x\rangle`, :math:`\tau = \|x\|^2 T` the
margin obeys :math:`z(T) + e^{z(T)} = z + e^z + \tau`, that is :math:`z(T) = \log\omega(z + e^z + \tau)` with
Wright's omega, and :math:`v = w + (y/\|x\|^2)\,x` where the displacement y solves
:math:`y + e^z(e^y - 1) = \tau`. Mutually orthogonal rows of a client decouple, each with time :math:`T/n_m`.
Other clients are integrated in Gram space,

.. math:: \dot a = \sigma(-z), \quad z = z_0 + G_m a / n_m, \quad a(0) = 0; \qquad v = w + X_m^T a / n_m,

by an explicit method of order 8 (DOP853): the curvature falls like 1/t, so the problem is not stiff.

Reference: M. Crawshaw, B. Woodworth, M. Liu, *Local Steps Speed Up Local GD for Heterogeneous Distributed
Logistic Regression*, ICLR 2025 (the statement); marks as in `solvers.federated.local_gd`.

Guarantee [P, M = 2, n = 1]: :math:`F = O(1/(\gamma^2 T (r - \tau)))` after a transition time; and [D] the
largest local displacement :math:`\max_m \|v_m - w_r\|` never increases from round to round there (false for M
>= 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from optikit.arrays import array_namespace, from_numpy, is_numpy, to_numpy
from optikit.validation import check_real
from solvers.federated.local_method import LocalMethod, LocalState
from solvers.federated.local_solvers import gram_of, is_logistic, signed_targets

#: Rows of one client count as orthogonal when no two have a larger cosine.
ORTHOGONAL = 1e-14
#: Largest z at which log omega(z + e^z + tau) - z still has digits to start Newton's method from.
LARGE_MARGIN = 30.0


def flow_displacement(z: Any, tau: Any) -> Any:
    r"""The solution y >= 0 of :math:`y + e^z (e^y - 1) = \tau`, elementwise.

    This is how far the margin of a single row moves in flow time :math:`\tau/\|x\|^2` from z. To 2e-16
    relative for z in [-600, 690] and tau in [1e-8, 1e8]; neither ``c - omega(c) - z`` nor ``log omega(c) -
    z`` is, for large z.

    Parameters
    ----------
    z, tau : float64 arrays that broadcast; tau >= 0
        In any array namespace.

    Returns
    -------
    array
    """
    xp = array_namespace(z, tau)
    if is_numpy(xp):
        z, tau = np.broadcast_arrays(np.asarray(z, dtype=np.float64), np.asarray(tau, dtype=np.float64))
    else:
        z, tau = z + 0.0 * tau, tau + 0.0 * z
    large = z > LARGE_MARGIN
    near = xp.where(large, xp.zeros_like(z), z)
    log_omega = _log_omega(near + xp.exp(near) + tau, xp)
    y = xp.where(large, xp.log1p(tau * xp.exp(-xp.abs(z))), log_omega - near)
    y = xp.where(y > 0.0, y, xp.zeros_like(y))
    for _ in range(3):
        q = xp.where(z + y > 0.0, z + y, xp.zeros_like(z))
        small = y < LARGE_MARGIN
        # Both forms of e^z (e^y - 1), scaled by e^-q so that nothing overflows.
        grown = xp.exp(z + y - q)
        a = xp.where(
            small,
            xp.exp(z - q) * xp.expm1(xp.where(small, y, xp.zeros_like(y))),
            grown - xp.exp(z - q),
        )
        y = y - ((y - tau) * xp.exp(-q) + a) / (xp.exp(-q) + grown)
    return y


def _log_omega(c: Any, xp: Any) -> Any:
    """log of Wright's omega: the u with ``u + e^u = c``."""
    if is_numpy(xp):
        from scipy.special import wrightomega

        # For c below -700 omega underflows; there u = c to the last bit.
        return np.where(c > -700.0, np.log(wrightomega(np.maximum(c, -700.0))), c)
    positive = c > 1.0
    u = xp.where(positive, xp.log(xp.where(positive, c, xp.ones_like(c))), c)
    for _ in range(6):  # u + e^u - c is convex and increasing
        e = xp.exp(u)
        u = u - (u + e - c) / (1.0 + e)
    return u


class FlowSteps:
    """The clients' flows; called as ``flow(w, time)`` like the local steps of Local GD.

    Parameters
    ----------
    data : AgentData
    weights : numpy.ndarray, shape (n_local,)
    rtol, atol : float
        Tolerances of the integrator, for clients without a closed form.
    method : {"auto", "ode"}
        "ode" integrates every client.
    """

    def __init__(
        self, data: Any, weights: np.ndarray, rtol: float = 1e-8, atol: float = 1e-10, method: str = "auto"
    ) -> None:
        self.data, self.y, self.rtol, self.atol = data, signed_targets(data), rtol, atol
        self.X, sizes = data.features, data.sizes
        self.shares = np.repeat(1.0 / sizes, sizes)
        self.weights = np.repeat(weights, sizes)
        squares = self.X.multiply(self.X) if data.is_sparse else self.X * self.X
        self.squares = to_numpy(squares.sum(axis=1) if data.is_sparse else data.xp.sum(squares, axis=1))
        self.grams: dict[int, np.ndarray] = {}
        for m in range(sizes.size):  # set-up, once per run
            G = gram_of(data, self.y, m) if sizes[m] > 1 or method == "ode" else None
            if G is not None and (method == "ode" or not _orthogonal(G)):
                self.grams[m] = G
        integrated = np.isin(np.repeat(np.arange(sizes.size), sizes), list(self.grams))
        self.closed = np.flatnonzero(~integrated & (self.squares > 0.0))

    def losses(self, w: Any) -> Any:
        """``p_m F_m(w)``, shape (n_local, 1)."""
        return self._deliver(self._loss_rows(self.y * to_numpy(self.X @ w)), w)

    def _loss_rows(self, z: np.ndarray) -> np.ndarray:
        return self._by_client(self.weights * self.shares) @ np.logaddexp(0.0, -z)[:, None]

    def __call__(self, w: Any, time: float) -> Any:
        """Rows ``[p_m (v_m - w), p_m F_m(w)]``."""
        z = self.y * to_numpy(self.X @ w)
        b, closed = np.zeros(z.size), self.closed
        tau = self.squares[closed] * self.shares[closed] * time
        b[closed] = flow_displacement(z[closed], tau) / self.squares[closed]
        for m, G in self.grams.items():  # one adaptive integration per client that has no closed form
            rows = slice(int(self.data.offsets[m]), int(self.data.offsets[m + 1]))
            b[rows] = self._integrate(G, z[rows], time) / G.shape[0]
        coefficients = self._by_client(self.weights * self.y * b)
        moved = coefficients @ (self.X if self.data.is_sparse else to_numpy(self.X))
        moved = moved.toarray() if sparse.issparse(moved) else moved
        return self._deliver(np.concatenate([moved, self._loss_rows(z)], axis=1), w)

    def _by_client(self, values: np.ndarray) -> Any:
        """One number per row as a matrix (n_local, N_local): a product sums over each client's rows."""
        offsets = self.data.offsets
        return sparse.csr_array(
            (values, np.arange(values.size), offsets), shape=(offsets.size - 1, values.size)
        )

    def _deliver(self, rows: np.ndarray, w: Any) -> Any:
        xp = array_namespace(w)
        return rows if is_numpy(xp) else xp.astype(from_numpy(rows, xp), w.dtype)

    def _integrate(self, G: np.ndarray, z: np.ndarray, time: float) -> np.ndarray:
        """``a(time)``, the integral of the slopes."""
        from scipy.integrate import solve_ivp
        from scipy.special import expit

        mean = G / G.shape[0]
        solution = solve_ivp(
            lambda t, a: expit(-(z + mean @ a)),
            (0.0, time),
            np.zeros(z.size),
            method="DOP853",
            rtol=self.rtol,
            atol=self.atol,
        )
        if not solution.success:
            raise FloatingPointError(f"the local flow could not be integrated: {solution.message}")
        return solution.y[:, -1]


def _orthogonal(G: np.ndarray) -> bool:
    norms = np.sqrt(np.diag(G))
    off = np.abs(G - np.diag(np.diag(G)))
    return bool(np.all(off <= ORTHOGONAL * np.outer(norms, norms)))


@dataclass(frozen=True)
class LocalGradientFlow(LocalMethod):
    """Local gradient flow: every client follows its flow for `time` between two averages.

    Parameters
    ----------
    time : float, default 1.0
        T > 0, any size: T = eta K corresponds to K local steps eta.
    rtol, atol : float, default 1e-8 and 1e-10
        Tolerances of the integration, for clients whose rows are not orthogonal.
    method : {"auto", "ode"}, default "auto"
        "auto" takes the closed form where there is one; "ode" never does.
    **options
        `weights`, `normalize`, `average`, `margin`, `gamma` of `LocalMethod`.
    """

    name: ClassVar[str] = "Local gradient flow"

    time: float = 1.0
    rtol: float = 1e-8
    atol: float = 1e-10
    method: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_real(self.time, "time", minimum=0.0, open_low=True)
        check_real(self.rtol, "rtol", minimum=0.0, maximum=1.0, open_low=True)
        check_real(self.atol, "atol", minimum=0.0, open_low=True)
        if self.method not in ("auto", "ode"):
            raise ValueError(f"method must be one of 'auto', 'ode'; got {self.method!r}.")

    def validate(self, objective: Any, network: Any) -> None:
        super().validate(objective, network)
        if not is_logistic(objective):
            raise ValueError(f"{self.name} needs the unregularised logistic loss of a linear model.")

    def make_local(self, objective: Any, weights: np.ndarray) -> FlowSteps:
        return FlowSteps(objective.data, weights, self.rtol, self.atol, self.method)

    def contributions(self, state: LocalState) -> Any:
        setup = state.setup
        return setup.local(state.w, self.time / (setup.scale * setup.scale))


def largest_displacement(contributions: Any, weights: np.ndarray) -> float:
    r"""The Lyapunov function :math:`\max_m \|v_m - w_r\|` from the clients' contributions [D].

    It never increases for two clients with one row each under `LocalGradientFlow`; for three it may.
    """
    moved = to_numpy(contributions)[:, :-1] / weights[:, None]
    return math.sqrt(float((moved * moved).sum(axis=1).max(initial=0.0)))
