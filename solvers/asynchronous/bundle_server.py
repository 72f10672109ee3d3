"""The bundle method's server: cuts of all workers, the master solved through its dual."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.checkpoint import cached, replicated
from solvers.asynchronous.master import best_lower_bound, solve_master
from solvers.asynchronous.models import Bundle
from solvers.asynchronous.server import ProximalServer


@dataclass
class BundleServer(ProximalServer):
    """Anchors, cuts and prox weights of n functions; points are (d,).

    Attributes
    ----------
    model, size, eviction
        As in `solvers.asynchronous.models.Bundle`.
    delta : float
        Duality gap of the masters.
    lower_every : int or None
        Steps between maximisations of the lower bound over all dual weights.
    """

    model: str = cached(default="cutting_plane", kw_only=True)
    size: int = cached(default=10, kw_only=True)
    eviction: str = cached(default="fifo", kw_only=True)
    delta: float = cached(default=1e-10, kw_only=True)
    lower_every: int | None = cached(default=None, kw_only=True)
    best_weights: np.ndarray | None = replicated(default=None, kw_only=True)
    bundle: Bundle = replicated(default=None, kw_only=True)
    master_gap: float = replicated(default=math.nan, kw_only=True)
    master_iterations: int = replicated(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bundle is None:
            d = self.shape[-1]
            self.bundle = Bundle(self.model, self.n, d, self.size, self.f_low, self.eviction)

    @property
    def anchors(self) -> np.ndarray:
        return self.bundle.anchors

    def newest_gradient(self, i: int) -> np.ndarray:
        return self.bundle.cuts[i, self.bundle.newest[i]]

    def _model_value(self, i: int, q: np.ndarray) -> float:
        return self.bundle.value(i, q)

    def _store(self, i: int, q: np.ndarray, f: Any, g: np.ndarray) -> None:
        self.bundle.put(i, q, f, g)

    def _solve(self) -> np.ndarray:
        solution = solve_master(self.bundle, self.h, self.weights, self.delta)
        self.master_gap, self.master_iterations = float(solution.gap), int(solution.iterations)
        return solution.x

    def lower_bound(self) -> float | None:
        """``-v'lam - h*(-G'lam)`` at the master's weights: below the optimal value whatever the L_i."""
        bundle = self.bundle
        lam = bundle.weights / bundle.weights.sum(axis=1, keepdims=True)
        s = lam.ravel() @ bundle.cuts.reshape(-1, bundle.d)
        conjugate = self.negative_conjugate(s)
        bound = None if conjugate is None else conjugate - float(np.sum(lam * bundle.offsets))
        if bound is None or self.lower_every is None or self.steps % self.lower_every:
            return bound
        best, self.best_weights = best_lower_bound(bundle, self.h, start=self.best_weights)
        return bound if best is None else max(bound, best)

    def report(self) -> dict[str, float]:
        own = {"master_gap": self.master_gap, "master_iterations": float(self.master_iterations)}
        return super().report() | own
