r"""The bundle server with the newest cut alone: the master has a closed form, so many runs can be stacked.

.. math:: x_{k+1} = prox_{h/H}\Big(\bar z - \frac1H \sum_i g_i\Big), \qquad \bar z = \frac1H \sum_i H_i z_i

With :math:`H_i = L_i + \eta_i` for sampled gradients. DAve-RPG with one inner step and step size
:math:`\gamma` is the same iteration for :math:`H_i = \pi_i/\gamma`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.checkpoint import replicated
from solvers.asynchronous.server import ProximalServer


@dataclass
class LatestServer(ProximalServer):
    """Points of shape (d,), or (S, d) for S stacked runs."""

    points: np.ndarray = replicated(default=None, kw_only=True)
    gradients: np.ndarray = replicated(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.points is None:
            self.points = np.zeros((self.n, *self.shape))
            self.gradients = np.zeros((self.n, *self.shape))

    @property
    def anchors(self) -> np.ndarray:
        return self.points

    def newest_gradient(self, i: int) -> np.ndarray:
        return self.gradients[i]

    def _model_value(self, i: int, q: np.ndarray) -> float:
        return float(self.values[i] + self.gradients[i] @ (q - self.points[i]))

    def _store(self, i: int, q: np.ndarray, f: Any, g: np.ndarray) -> None:
        self.points[i], self.gradients[i] = q, g

    def _solve(self) -> np.ndarray:
        H = self.weights
        total = float(H.sum())
        # Sums over all functions anew each step, n d numbers: running sums would drift.
        centre = np.tensordot(H / total, self.points, axes=1)
        return self.h.prox(centre - self.gradients.sum(axis=0) / total, 1.0 / total)

    def lower_bound(self) -> float | None:
        if len(self.shape) > 1:
            return None
        conjugate = self.negative_conjugate(self.gradients.sum(axis=0))
        if conjugate is None:
            return None
        constants = self.values - np.einsum("ij,ij->i", self.gradients, self.points)
        return conjugate + float(constants.sum())
