"""The bundle method's server as a state machine without a transport: `receive`, `step`, `bounds`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from solvers.asynchronous.master import MasterSolution, solve_master
from solvers.asynchronous.models import Bundle
from solvers.asynchronous.regularizers import Regularizer


class NonFiniteOracleError(FloatingPointError):
    """A worker answered with NaN or infinity; `worker` names it."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        super().__init__(f"worker {worker} answered with a value or gradient that is not finite.")


class NonConvexityError(ValueError):
    """A worker's own later value lies below one of its cuts: its function is not convex."""


class LowerBoundError(ValueError):
    """A worker's value lies below the lower bound that was stated for it."""


class BundleServer:
    """Anchors, cuts and prox weights of n workers; knows nothing of how messages travel.

    Parameters
    ----------
    n, d : int
    h : Regularizer
    model, size, f_low
        As in `solvers.asynchronous.models.Bundle`.
    weights : "secant", "secant_max" or array (n,)
        Prox weights L_i: secant estimates, their maximum over the last five, or fixed.
    L0 : array (n,)
        Starting weights.
    L_scale : float
        Multiplies every L_i.
    delta : float
        Duality gap of the masters.
    check_convexity : bool
    warmup : (int, float) or None
        Multiply the weights by the second number in the first so many steps.
    """

    def __init__(
        self,
        n: int,
        d: int,
        h: Regularizer,
        *,
        model: str,
        size: int,
        f_low: np.ndarray | None,
        weights: Any,
        L0: np.ndarray,
        L_scale: float,
        delta: float,
        check_convexity: bool = False,
        warmup: tuple[int, float] | None = None,
    ) -> None:
        self.h, self.bundle = h, Bundle(model, n, d, size, f_low)
        self.kind = weights if isinstance(weights, str) else "fixed"
        self.L = np.array(L0 if self.kind != "fixed" else weights, dtype=np.float64)
        self.L_scale, self.delta, self.f_low = L_scale, delta, f_low
        self.values, self.gradients = np.zeros(n), np.zeros((n, d))
        self.secants: list[list[float]] = [[] for _ in range(n)]
        self.largest = 0.0
        self.check_convexity, self.warmup = check_convexity, warmup
        self.steps, self.lower = 0, -math.inf
        self.last: MasterSolution | None = None
        self.known = np.zeros(n, dtype=bool)

    @property
    def weights(self) -> np.ndarray:
        """Prox weights of the next master."""
        boost = self.warmup[1] if self.warmup is not None and self.steps < self.warmup[0] else 1.0
        return self.L * (self.L_scale * boost)

    def receive(self, i: int, q: np.ndarray, f: float, g: np.ndarray) -> None:
        """Absorb worker i's reply: value and gradient at the point q that was sent to it."""
        if not (math.isfinite(f) and np.all(np.isfinite(g))):
            raise NonFiniteOracleError(i)
        if self.f_low is not None and f < self.f_low[i] - 1e-9 * (1.0 + abs(f)):
            raise LowerBoundError(f"worker {i} has f = {f!r} below its stated lower bound {self.f_low[i]!r}.")
        if self.known[i]:
            if self.check_convexity and f < self.bundle.values(q)[i] - 1e-8 * (1.0 + abs(f)):
                raise NonConvexityError(
                    f"worker {i} has a value below one of its own cuts: f_i is not convex."
                )
            if self.kind != "fixed":
                self._secant(i, q, g)
        self.bundle.put(i, q, f, g)
        self.values[i], self.gradients[i], self.known[i] = f, g, True

    def _secant(self, i: int, q: np.ndarray, g: np.ndarray) -> None:
        moved = float(np.linalg.norm(q - self.bundle.anchors[i]))
        turned = float(np.linalg.norm(g - self.gradients[i]))
        eps = np.finfo(float).eps
        if moved <= 1e-14 * (1.0 + float(np.linalg.norm(q))) or turned <= 1e3 * eps * float(
            np.linalg.norm(g)
        ):
            return
        secant = turned / moved
        if self.kind == "secant_max":
            self.secants[i] = [*self.secants[i][-4:], secant]
            secant = max(self.secants[i])
        self.largest = max(self.largest, secant)
        self.L[i] = min(max(secant, 1e-6 * self.largest), self.largest)

    def step(self) -> np.ndarray:
        """Solve the master; the next iterate."""
        self.last = solve_master(self.bundle, self.h, self.weights, self.delta)
        self.steps += 1
        bound = self.lower_bound()
        if bound is not None:
            self.lower = max(self.lower, bound)
        return self.last.x

    def lower_bound(self) -> float | None:
        """``-v'lam - h*(-G'lam)`` at the master's weights: below the optimal value whatever the L_i."""
        bundle = self.bundle
        lam = bundle.weights / bundle.weights.sum(axis=1, keepdims=True)
        s = np.einsum("ij,ijk->k", lam, bundle.cuts)
        conjugate = self.h.negative_conjugate(s)
        return None if conjugate is None else conjugate - float(np.sum(lam * bundle.offsets))

    def upper_bound(self) -> float:
        """``h(x) + sum_i [f_i(z_i) + g_i'(x - z_i) + (L_i/2)||x - z_i||^2]``: valid when the L_i are."""
        assert self.last is not None
        x, anchors = self.last.x, self.bundle.anchors
        moves = x - anchors
        terms = self.values + np.sum(self.gradients * moves, axis=1) + 0.5 * self.L * np.sum(moves**2, axis=1)
        return self.h.value(x) + float(np.sum(terms))

    def bounds(self) -> tuple[float | None, float | None]:
        """Lower bound (running maximum) and, with fixed weights, the upper bound."""
        lower = self.lower if math.isfinite(self.lower) else None
        return lower, self.upper_bound() if self.kind == "fixed" and self.last is not None else None
