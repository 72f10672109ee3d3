"""Servers of asynchronous methods as state machines without a transport: `receive`, `step`, `bounds`.

A server knows nothing of clocks or messages. Everything it remembers lies in dataclass fields, so that a
checkpoint holds all of it and a resumed run goes on bit by bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.checkpoint import cached, replicated
from solvers.asynchronous.regularizers import ElasticNet, Regularizer, l1_negative_conjugate

#: A secant is believed when the point has moved and the gradient has turned by more than rounding.
SMALLEST_MOVE, SMALLEST_TURN = 1e-14, 1e3 * float(np.finfo(float).eps)
#: Secants below this share of the largest seen are clamped to it.
SMALLEST_SECANT = 1e-6
#: Secants remembered by "secant_max".
WINDOW = 5
GROWTH = ("constant", "sqrt", "linear")


class NonFiniteOracleError(FloatingPointError):
    """A worker answered with NaN or infinity; `worker` names it."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        super().__init__(f"worker {worker} answered with a value or gradient that is not finite.")


class NonConvexityError(ValueError):
    """A worker's own later value lies below one of its cuts: its function is not convex."""


class LowerBoundError(ValueError):
    """A worker's value lies below the lower bound that was stated for it."""


@dataclass
class Server(ABC):
    """What every server has: n oracles, a simple h, the number of steps taken.

    Attributes
    ----------
    n : int
        Functions: the workers, or their mini-batches in the component form.
    shape : tuple of int
        Of a point: (d,), or (S, d) for S stacked runs.
    h : Regularizer
    steps : int
    """

    n: int = cached()
    shape: tuple[int, ...] = cached()
    h: Regularizer = cached()
    steps: int = replicated(default=0, kw_only=True)

    def receive(self, i: int, q: np.ndarray, f: Any, g: np.ndarray, stamp: int = 0) -> None:
        """Absorb a reply: value and gradient of function i at q, the iterate number `stamp` sent to it."""
        if not (np.all(np.isfinite(f)) and np.all(np.isfinite(g))):
            raise NonFiniteOracleError(i)
        self._absorb(i, q, f, g, stamp)

    @abstractmethod
    def _absorb(self, i: int, q: np.ndarray, f: Any, g: np.ndarray, stamp: int) -> None: ...

    @abstractmethod
    def step(self) -> np.ndarray:
        """The next iterate, a new array."""

    def bounds(self) -> tuple[float | None, float | None]:
        """Lower and upper bound on the optimal value, None where there is none."""
        return None, None

    def distances(self, x: np.ndarray) -> np.ndarray:
        """``||x - z_i||`` over the anchors z_i, for the stall test; inf where a server keeps none."""
        return np.full(self.n, math.inf)

    def report(self) -> dict[str, float]:
        """Numbers of the last step for the record."""
        return {}


@dataclass
class ProximalServer(Server):
    """Servers with a prox weight L_i per function: secant estimates or constants, bounds.

    Attributes
    ----------
    L : array (n,)
        Current weights.
    kind : str
        "secant", "secant_max" or "fixed".
    L_scale : float
        Multiplies every L_i.
    f_low : array (n,) or None
        Stated lower bounds on the functions, checked at every reply.
    eta : array (n,) or None
        Added to L_i when gradients are sampled, times a power of the step: see `growth`.
    growth : {"constant", "sqrt", "linear"}
    warmup : (int, float) or None
        Multiply the weights by the second number in the first so many steps.
    sampled : bool
        Values and gradients are estimates: no bounds hold.
    radius : float or None
        Bound on the l1 norm of a minimiser, where h is an l1 penalty alone.
    """

    L: np.ndarray = replicated(kw_only=True)
    kind: str = cached(default="fixed", kw_only=True)
    L_scale: float = cached(default=1.0, kw_only=True)
    f_low: np.ndarray | None = cached(default=None, kw_only=True)
    eta: np.ndarray | None = cached(default=None, kw_only=True)
    growth: str = cached(default="constant", kw_only=True)
    warmup: tuple[int, float] | None = cached(default=None, kw_only=True)
    sampled: bool = cached(default=False, kw_only=True)
    check_convexity: bool = cached(default=False, kw_only=True)
    radius: float | None = cached(default=None, kw_only=True)
    values: np.ndarray = replicated(default=None, kw_only=True)
    known: np.ndarray = replicated(default=None, kw_only=True)
    secants: np.ndarray = replicated(default=None, kw_only=True)
    largest: float = replicated(default=0.0, kw_only=True)
    lower: float = replicated(default=-math.inf, kw_only=True)
    x: np.ndarray = replicated(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.values is None:
            self.L = np.array(self.L, dtype=np.float64)
            self.values = np.zeros((self.n, *self.shape[:-1]))
            self.known = np.zeros(self.n, dtype=bool)
            self.secants = np.zeros((self.n, WINDOW))
            self.x = np.zeros(self.shape)

    @property
    @abstractmethod
    def anchors(self) -> np.ndarray:
        """z_i, ``(n, d)`` or ``(n, runs, d)``."""

    @abstractmethod
    def newest_gradient(self, i: int) -> np.ndarray:
        """The gradient of function i at its anchor."""

    @abstractmethod
    def _model_value(self, i: int, q: np.ndarray) -> float:
        """The model of function i at q."""

    @abstractmethod
    def _store(self, i: int, q: np.ndarray, f: Any, g: np.ndarray) -> None:
        """Move the anchor of function i to q."""

    @abstractmethod
    def lower_bound(self) -> float | None:
        """A lower bound on the optimal value from the last master, or None."""

    def negative_conjugate(self, s: np.ndarray) -> float | None:
        """``min_x h(x) + s'x`` over all x, or over those where a minimiser must lie; None if that is -inf."""
        found = self.h.negative_conjugate(s)
        if found is None and self.radius is not None and isinstance(self.h, ElasticNet):
            return l1_negative_conjugate(s, self.h.l1, self.radius)
        return found

    @property
    def weights(self) -> np.ndarray:
        """Prox weights of the next master, ``(n,)``."""
        boost = self.warmup[1] if self.warmup is not None and self.steps < self.warmup[0] else 1.0
        weights = self.L * (self.L_scale * boost)
        if self.eta is None:
            return weights
        k = self.steps + 1.0
        return weights + self.eta * {"constant": 1.0, "sqrt": math.sqrt(k), "linear": k}[self.growth]

    def _absorb(self, i: int, q: np.ndarray, f: Any, g: np.ndarray, stamp: int) -> None:
        if self.f_low is not None and np.any(f < self.f_low[i] - 1e-9 * (1.0 + np.abs(f))):
            raise LowerBoundError(f"worker {i} has f = {f!r} below its stated lower bound {self.f_low[i]!r}.")
        if self.known[i]:
            if self.check_convexity and f < self._model_value(i, q) - 1e-8 * (1.0 + abs(f)):
                raise NonConvexityError(
                    f"worker {i} has a value below one of its own cuts: f_i is not convex."
                )
            if self.kind != "fixed":
                self._secant(i, q, g)
        self._store(i, q, f, g)
        self.values[i], self.known[i] = f, True

    def _secant(self, i: int, q: np.ndarray, g: np.ndarray) -> None:
        """``||g - g_prev|| / ||q - z_prev||``: never above the true constant, so it cannot overshoot."""
        moved = float(np.linalg.norm(q - self.anchors[i]))
        turned = float(np.linalg.norm(g - self.newest_gradient(i)))
        if moved <= SMALLEST_MOVE * (1.0 + float(np.linalg.norm(q))):
            return
        if turned <= SMALLEST_TURN * float(np.linalg.norm(g)):
            return
        self.set_secant(i, turned / moved)

    def set_secant(self, i: int, secant: float) -> None:
        """Take a secant of function i as its weight."""
        if self.kind == "secant_max":
            self.secants[i] = np.roll(self.secants[i], 1)
            self.secants[i, 0] = secant
            secant = float(self.secants[i].max())
        self.largest = max(self.largest, secant)
        self.L[i] = min(max(secant, SMALLEST_SECANT * self.largest), self.largest)

    def step(self) -> np.ndarray:
        self.x = self._solve()
        self.steps += 1
        if not self.sampled and (bound := self.lower_bound()) is not None:
            self.lower = max(self.lower, bound)
        return self.x

    @abstractmethod
    def _solve(self) -> np.ndarray:
        """The minimiser of the master."""

    def upper_bound(self) -> float:
        """``h(x) + sum_i [f_i(z_i) + g_i'(x - z_i) + (L_i/2)||x - z_i||^2]``: valid when the L_i are."""
        moves = self.x - self.anchors
        linear = sum(float(self.newest_gradient(i) @ moves[i]) for i in range(self.n))
        squares = float(self.L @ np.sum(moves**2, axis=1))
        return self.h.value(self.x) + math.fsum(self.values) + linear + 0.5 * squares

    def bounds(self) -> tuple[float | None, float | None]:
        """Lower bound (running maximum) and, with fixed weights, the upper bound of the last master."""
        if self.sampled or len(self.shape) > 1:
            return None, None
        lower = self.lower if math.isfinite(self.lower) else None
        return lower, self.upper_bound() if self.kind == "fixed" and self.steps else None

    def distances(self, x: np.ndarray) -> np.ndarray:
        return np.linalg.norm((x - self.anchors).reshape(self.n, -1), axis=1)

    def report(self) -> dict[str, float]:
        return {"weight_sum": float(self.L.sum())}
