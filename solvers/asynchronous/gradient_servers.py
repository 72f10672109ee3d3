r"""Servers of the baselines: PIAG with fixed and delay-adaptive steps, asynchronous (proximal) SGD.

PIAG: :math:`x_{k+1} = prox_{\gamma_k h}\big(x_k - \gamma_k \sum_i \nabla f_i(z_i)\big)` with the newest
gradient of every worker, however old. Asynchronous SGD applies each reply at once and forgets it:
:math:`x \leftarrow prox_{\gamma h}(x - \gamma n g_i)`; workers that answer more often then pull harder, so
its fixed point is biased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.checkpoint import cached, replicated
from solvers.asynchronous.server import Server

#: Share of the admissible step that "adaptive1" takes.
ALPHA = 0.9


@dataclass
class PIAGServer(Server):
    """Proximal incremental aggregated gradient.

    Attributes
    ----------
    x : array
        The iterate, shape (d,) or (S, d).
    base : float
        The step size of "fixed"; gamma' of the adaptive rules.
    rule : {"fixed", "adaptive1", "adaptive2"}
    """

    x: np.ndarray = replicated(kw_only=True)
    base: float = cached(kw_only=True)
    rule: str = cached(default="fixed", kw_only=True)
    gradients: np.ndarray = replicated(default=None, kw_only=True)
    points: np.ndarray = replicated(default=None, kw_only=True)
    stamps: np.ndarray = replicated(default=None, kw_only=True)
    #: ``taken[k]``: sum of the steps before step k.
    taken: np.ndarray = replicated(default=None, kw_only=True)
    step_size: float = replicated(default=math.nan, kw_only=True)

    def __post_init__(self) -> None:
        if self.gradients is None:
            self.gradients = np.zeros((self.n, *self.shape))
            self.points = np.zeros((self.n, *self.shape))
            self.stamps = np.zeros(self.n, dtype=np.int64)
            self.taken = np.zeros(64)

    def _absorb(self, i: int, q: np.ndarray, f: Any, g: np.ndarray, stamp: int) -> None:
        self.gradients[i], self.points[i], self.stamps[i] = g, q, stamp

    def step(self) -> np.ndarray:
        k = self.steps
        if k + 1 >= self.taken.size:
            self.taken = np.concatenate([self.taken, np.zeros(self.taken.size)])
        self.step_size = gamma = self._step_size(k)
        self.taken[k + 1] = self.taken[k] + gamma
        self.steps += 1
        if gamma > 0:
            self.x = self.h.prox(self.x - gamma * self.gradients.sum(axis=0), gamma)
        return self.x

    def _step_size(self, k: int) -> float:
        if self.rule == "fixed":
            return self.base
        delay = k - int(self.stamps.min())
        left = self.base - float(self.taken[k] - self.taken[max(k - delay, 0)])
        if self.rule == "adaptive1":
            return ALPHA * max(left, 0.0)
        wanted = self.base / (delay + 1.0)
        return wanted if wanted <= left else 0.0

    def distances(self, x: np.ndarray) -> np.ndarray:
        return np.linalg.norm((x - self.points).reshape(self.n, -1), axis=1)

    def report(self) -> dict[str, float]:
        return {"step_size": self.step_size}


@dataclass
class AsynchronousSGDServer(Server):
    """Every reply moves the iterate at once.

    Attributes
    ----------
    x : array
    base : float
    decay : {"constant", "sqrt", "linear"}
        Step size ``base``, ``base/sqrt(k+1)`` or ``base/(k+1)`` at the k-th reply.
    replies : int
    """

    x: np.ndarray = replicated(kw_only=True)
    base: float = cached(kw_only=True)
    decay: str = cached(default="constant", kw_only=True)
    replies: int = replicated(default=0, kw_only=True)

    def _absorb(self, i: int, q: np.ndarray, f: Any, g: np.ndarray, stamp: int) -> None:
        k = self.replies + 1.0
        gamma = self.base / {"constant": 1.0, "sqrt": math.sqrt(k), "linear": k}[self.decay]
        self.x = self.h.prox(self.x - gamma * self.n * g, gamma)
        self.replies += 1

    def step(self) -> np.ndarray:
        self.steps += 1
        return self.x
