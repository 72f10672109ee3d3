"""Baselines on the same workers and clocks: PIAG, synchronous proximal gradient, asynchronous SGD.

The synchronous bundle method is ``AsynchronousBundle(policy="sync")``, DAve-RPG
`solvers.asynchronous.bundle.dave_rpg`.

References
----------
X. Wu, S. Magnusson, H. R. Feyzmahdavian, M. Johansson, *Delay-adaptive step-sizes for asynchronous learning*,
ICML 2022 (the adaptive rules of PIAG, from memory of the paper).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.validation import check_choice, check_integer, check_real
from solvers.asynchronous.cluster import Cluster
from solvers.asynchronous.gradient_servers import AsynchronousSGDServer, PIAGServer
from solvers.asynchronous.method import AsynchronousMethod
from solvers.asynchronous.regularizers import Regularizer
from solvers.asynchronous.server import GROWTH

RULES = ("fixed", "adaptive1", "adaptive2")


@dataclass(frozen=True)
class PIAG(AsynchronousMethod):
    """Proximal incremental aggregated gradient: a step along the newest gradients of all workers.

    With ``policy="sync"`` and ``max_delay=0`` it is the synchronous proximal gradient method.

    Parameters
    ----------
    rule : {"fixed", "adaptive1", "adaptive2"}
        ``c/(L (max_delay + 1/2))``, or steps that adapt to the delays seen and need no bound on them.
    c : float, default 0.99
        In (0, 1).
    smoothness : float or None
        L of the sum of the f_i; None: the sum of the workers' constants.
    max_delay : int or None
        Largest staleness, for the fixed rule; None: that of the timeline, if it is known.
    step_size : float or None
        Overrides the fixed rule's step.

    Notes
    -----
    The remaining parameters are those of `solvers.asynchronous.method.AsynchronousMethod`.
    """

    name: ClassVar[str] = "PIAG"

    rule: str = "adaptive1"
    c: float = 0.99
    smoothness: float | None = None
    max_delay: int | None = None
    step_size: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.rule, "rule", RULES)
        check_real(self.c, "c", minimum=0.0, maximum=1.0, open_low=True, open_high=True)
        for name in ("smoothness", "step_size"):
            if getattr(self, name) is not None:
                check_real(getattr(self, name), name, minimum=0.0, open_low=True)
        if self.max_delay is not None:
            check_integer(self.max_delay, "max_delay", minimum=0)

    @property
    def needs_smoothness(self) -> bool:
        return self.smoothness is None and self.step_size is None

    def make_server(self, cluster: Cluster, h: Regularizer, x0: np.ndarray) -> PIAGServer:
        n = int(cluster.facts.counts.sum())
        return PIAGServer(n, cluster.shape, h, x=x0, base=self._base(cluster), rule=self.rule)

    def _base(self, cluster: Cluster) -> float:
        if self.step_size is not None:
            return self.step_size
        L = total_smoothness(self.smoothness, cluster)
        if self.rule != "fixed":
            return self.c / L
        delay = self.max_delay
        if delay is None:
            delay = _largest_delay(self.trace)
        return self.c / (L * (delay + 0.5))


@dataclass(frozen=True)
class AsynchronousSGD(AsynchronousMethod):
    """Every reply moves the iterate at once; needs no memory, and favours fast workers.

    Parameters
    ----------
    step_size : float or None
        gamma; None: ``1/(L max(max_delay, 1))``.
    decay : {"constant", "sqrt", "linear"}, default "constant"
        Step size at the k-th reply: gamma, gamma/sqrt(k+1) or gamma/(k+1).
    smoothness : float or None
        L of the sum of the f_i; None: the sum of the workers' constants.
    max_delay : int or None
        Largest staleness; None: that of the timeline, if it is known.

    Notes
    -----
    The remaining parameters are those of `solvers.asynchronous.method.AsynchronousMethod`.
    """

    name: ClassVar[str] = "asynchronous SGD"

    step_size: float | None = None
    decay: str = "constant"
    smoothness: float | None = None
    max_delay: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.decay, "decay", GROWTH)
        for name in ("smoothness", "step_size"):
            if getattr(self, name) is not None:
                check_real(getattr(self, name), name, minimum=0.0, open_low=True)
        if self.max_delay is not None:
            check_integer(self.max_delay, "max_delay", minimum=0)

    @property
    def needs_smoothness(self) -> bool:
        return self.smoothness is None and self.step_size is None

    def make_server(self, cluster: Cluster, h: Regularizer, x0: np.ndarray) -> AsynchronousSGDServer:
        n = int(cluster.facts.counts.sum())
        gamma = self.step_size
        if gamma is None:
            delay = _largest_delay(self.trace) if self.max_delay is None else self.max_delay
            gamma = 1.0 / (total_smoothness(self.smoothness, cluster) * max(delay, 1))
        return AsynchronousSGDServer(n, cluster.shape, h, x=x0, base=gamma, decay=self.decay)


def total_smoothness(given: float | None, cluster: Cluster) -> float:
    """L of the sum of the f_i: given, or the sum of their constants."""
    if given is not None:
        return given
    assert cluster.facts.smoothness is not None
    L = float(cluster.facts.smoothness.sum())
    if not np.isfinite(L) or L <= 0:
        raise ValueError(f"the losses have no smoothness constant (the sum is {L:g}): give a step_size.")
    return L


def _largest_delay(trace: Any) -> int:
    if trace is None or not len(trace):
        raise ValueError("max_delay is needed where the timeline is not given as a trace; got None.")
    return int(trace.staleness().max())
