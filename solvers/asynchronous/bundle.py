r"""The asynchronous bundle method: the server never waits for all workers, and certifies what it has.

Minimise :math:`F(x) = \sum_i f_i(x) + h(x)`: worker i owns the convex smooth :math:`f_i`, the server a simple
convex h. After every absorbed batch of replies the server solves the master

.. math:: x_{k+1} = \arg\min_x h(x) + \sum_i \big[ m_i(x) + \tfrac{L_i}2 \|x - z_i\|^2 \big]

with the bundle models :math:`m_i` and the anchors :math:`z_i` (the points of the last replies), and sends
:math:`x_{k+1}` to exactly the workers it has just heard.

Reference: D. Cederberg, X. Wu, S. Boyd, M. Johansson, *An asynchronous bundle method for distributed learning
problems*, ICLR 2025. Update rule, dual master and secant weights are those of the authors' public code;
theorem statements are derived for this toolkit and may differ from the paper's in constants. The mini-batch
forms, the models beyond the cutting planes and the certificate are reconstructions.

Guarantee, for valid L_i and any delays, in epochs m(K):
:math:`\|x_K - x^*\|^2 \le (L/(L+\mu))^{m(K)+1} \|x_0 - x^*\|^2` (strongly convex),
:math:`\min_l F(x_l) - F^* \le L \|x_0 - x^*\|^2 / (2(m(K)+1))` (convex).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.validation import check_choice, check_integer, check_real
from solvers.asynchronous.bundle_server import BundleServer
from solvers.asynchronous.cluster import Cluster
from solvers.asynchronous.latest import LatestServer
from solvers.asynchronous.master import compile_kernels, default_delta
from solvers.asynchronous.method import AsynchronousMethod
from solvers.asynchronous.models import MODELS
from solvers.asynchronous.regularizers import ElasticNet, Prox, Regularizer
from solvers.asynchronous.server import GROWTH, ProximalServer

WEIGHTS = ("secant", "secant_max", "smoothness")
#: Length of the probing step of ``L0="auto"``, relative to the size of the start.
PROBE = 1e-3


@dataclass(frozen=True)
class AsynchronousBundle(AsynchronousMethod):
    """The asynchronous bundle method, on a virtual clock, along a recorded trace or on MPI ranks.

    Parameters
    ----------
    model : {"latest", "cutting_plane", "two_cut", "polyak", "polyak_cutting_plane", "average"}
        Bundle model; default "cutting_plane", or "latest" for sampled gradients.
    bundle_size : int, default 10
        Cuts per worker of the cutting-plane models, >= 1.
    eviction : {"fifo", "least_active"}, default "fifo"
        Which cut goes when a worker has `bundle_size`; never the newest.
    weights : {"secant", "secant_max", "smoothness"}, array (n,) or callable worker -> float
        Prox weights L_i: secant estimates (default), their maximum over the last five, the smoothness
        constants of the data, or numbers: smoothness constants of the f_i (the theory mode). The shift is
        taken off.
    L0 : float, array (n,) or "auto", default 1.0
        Weights before the first secant, > 0. "auto" takes a first secant along each gradient, one more
        evaluation per worker.
    L_scale : float, default 1.0
        Multiplies every L_i, > 0. 0.1 to 0.3 with 10 cuts is faster on ill-conditioned data; theory needs
        >= 1 with valid L_i.
    delta : float or None
        Duality gap of the masters; default ``1e-10 max(1, |F(x0)|)``, 1e-8 for a general proximal map.
    f_low : float or array, optional
        Lower bounds on the f_i (as weighted and shifted), for the polyak models; with them an l1 penalty
        alone has a certificate too, a slow one.
    lower_every : int or None
        Steps between maximisations of the lower bound over all dual weights, the master's QP without its prox
        term. None: the master's own weights, which gain little less.
    eta : float, array (n,) or None
        For sampled gradients: added to the weights, times a power of the step.
    eta_growth : {"constant", "sqrt", "linear"}, default "constant"
        The power: 0, 1/2 (convex), 1 (strongly convex).
    warmup : (int, float), optional
        Multiply the weights by the second number in the first so many steps.
    check_convexity : bool, default False
        Refuse values below a worker's own cuts.

    Notes
    -----
    The remaining parameters are those of `solvers.asynchronous.method.AsynchronousMethod`.
    """

    name: ClassVar[str] = "asynchronous bundle method"

    model: str | None = None
    bundle_size: int = 10
    eviction: str = "fifo"
    weights: Any = "secant"
    L0: Any = 1.0
    L_scale: float = 1.0
    delta: float | None = None
    f_low: Any = None
    lower_every: int | None = None
    eta: Any = None
    eta_growth: str = "constant"
    warmup: tuple[int, float] | None = None
    check_convexity: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model is not None:
            check_choice(self.model, "model", MODELS)
        check_integer(self.bundle_size, "bundle_size", minimum=1)
        check_choice(self.eviction, "eviction", ("fifo", "least_active"))
        if isinstance(self.weights, str):
            check_choice(self.weights, "weights", WEIGHTS)
        if isinstance(self.L0, str):
            check_choice(self.L0, "L0", ("auto",))
        check_real(self.L_scale, "L_scale", minimum=0.0, open_low=True)
        if self.lower_every is not None:
            check_integer(self.lower_every, "lower_every", minimum=1)
        if self.delta is not None:
            check_real(self.delta, "delta", minimum=0.0, open_low=True)
        check_choice(self.eta_growth, "eta_growth", GROWTH)
        if self.warmup is not None:
            check_integer(self.warmup[0], "warmup[0]", minimum=0)
            check_real(self.warmup[1], "warmup[1]", minimum=0.0, open_low=True)
        if self.cuts.startswith("polyak") and self.f_low is None:
            raise ValueError(f"f_low, lower bounds on the f_i, is needed by model {self.cuts!r}; got None.")
        if self.stochastic == "sampled":
            if self._secants:
                raise ValueError(
                    f"weights={self.weights!r} would compare gradients of two samples: give constants or "
                    '"smoothness" with stochastic="sampled".'
                )
            if not self.closed_form and self.cuts != "polyak":
                warnings.warn(
                    f"model {self.cuts!r} takes the maximum over cuts of different samples, which is biased "
                    'upwards: its floor is several times that of "latest".',
                    stacklevel=3,
                )
        elif self.eta is not None:
            raise ValueError(f'eta is for stochastic="sampled", got eta={self.eta!r}.')

    @property
    def cuts(self) -> str:
        """The bundle model in use."""
        return self.model or ("latest" if self.stochastic == "sampled" else "cutting_plane")

    @property
    def _secants(self) -> bool:
        return isinstance(self.weights, str) and self.weights != "smoothness"

    @property
    def closed_form(self) -> bool:
        """Whether the master needs no QP."""
        return self.cuts == "latest" or (self.cuts == "cutting_plane" and self.bundle_size == 1)

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        return self.closed_form and (self.h is None or not isinstance(self.h, Prox))

    @property
    def needs_smoothness(self) -> bool:
        return isinstance(self.weights, str) and self.weights == "smoothness"

    def validate(self, objective: Any, network: Any) -> None:
        super().validate(objective, network)
        n = objective.n_agents
        for name, value in (("weights", self.weights), ("L0", self.L0)):
            if not isinstance(value, str) and not callable(value):
                _positive(value, name, n)
        if self.f_low is not None:
            _numbers(self.f_low, "f_low", n)
        if self.eta is not None and not np.all(_numbers(self.eta, "eta", n) >= 0):
            raise ValueError(f"eta must be at least 0, got {self.eta!r}.")

    def make_server(self, cluster: Cluster, h: Regularizer, x0: np.ndarray) -> ProximalServer:
        facts = cluster.facts
        common: dict[str, Any] = {
            "L": self._weights(cluster),
            "kind": self.weights if self._secants else "fixed",
            "L_scale": self.L_scale,
            "f_low": None if self.f_low is None else _spread(self.f_low, facts.counts),
            "eta": None if self.eta is None else _spread(self.eta, facts.counts),
            "growth": self.eta_growth,
            "warmup": self.warmup,
            "sampled": self.stochastic == "sampled",
            "check_convexity": self.check_convexity,
        }
        n = int(facts.counts.sum())
        if not self.closed_form:
            compile_kernels()  # before the clock starts
        if self.closed_form:
            return LatestServer(n, cluster.shape, h, **common)
        return BundleServer(
            n,
            cluster.shape,
            h,
            **common,
            model=self.cuts,
            size=self.bundle_size,
            eviction=self.eviction,
            lower_every=self.lower_every,
            delta=self.delta or 1e-10,
        )

    def _weights(self, cluster: Cluster) -> np.ndarray:
        facts = cluster.facts
        if isinstance(self.weights, str) and self.weights == "smoothness":
            assert facts.smoothness is not None
            if not np.all(np.isfinite(facts.smoothness)):
                raise ValueError('weights="smoothness" needs smooth losses, got one without a constant.')
            return np.maximum(facts.smoothness, np.finfo(float).tiny)
        if isinstance(self.weights, str):
            return _spread(1.0 if isinstance(self.L0, str) else self.L0, facts.counts)
        given = self.weights
        if callable(given):
            given = _positive([given(worker) for worker in range(cluster.n)], "weights", cluster.n)
        # The constants are those of the unshifted f_i; mini-batches share their worker's by size.
        left = _spread(
            np.broadcast_to(np.asarray(given, dtype=np.float64), (cluster.n,)) - facts.shifts, facts.counts
        )
        if not np.all(left > 0):
            raise ValueError(
                f"weights must exceed the strong convexity that is moved to h, got {given!r}: "
                "give smoothness constants of the f_i, or shift=0."
            )
        return left

    def prepare(self, server: Any, cluster: Cluster, replies: list[Any], x0: np.ndarray) -> None:
        if isinstance(server, BundleServer) and self.delta is None:
            server.delta = default_delta(server.h, self._start_value(server, replies, x0))
        if isinstance(server.h, ElasticNet) and server.h.quadratic == 0 and server.f_low is not None:
            above = self._start_value(server, replies, x0) - float(np.sum(server.f_low))
            server.radius = above / server.h.l1 if server.h.l1 > 0 else None
        if isinstance(self.L0, str) and server.kind != "fixed":
            self._probe(server, cluster, replies, x0)

    @staticmethod
    def _start_value(server: Any, replies: list[Any], x0: np.ndarray) -> float:
        return math.fsum(f for f, _ in replies) + server.h.value(x0)

    def _probe(self, server: Any, cluster: Cluster, replies: list[Any], x0: np.ndarray) -> None:
        """A first secant of every function, along its gradient."""
        counts, size = cluster.facts.counts, max(1.0, float(np.linalg.norm(x0)))
        first = np.cumsum(counts) - counts
        for part in range(int(counts.max())):
            for worker in np.flatnonzero(counts > part).tolist():
                g = replies[first[worker] + part][1]
                norm = float(np.linalg.norm(g))
                x = x0 - (PROBE * size / norm if norm > 0 else 0.0) * g
                cluster.post(worker, part, part, x, None)
            for worker, (_, g, _) in cluster.gather():
                i = int(first[worker] + part)
                turned = float(np.linalg.norm(g - replies[i][1]))
                if turned > 0:
                    server.set_secant(i, turned / (PROBE * size))


def dave_rpg(
    step_size: float | None = None, *, shares: Any, smoothness: Any = None, **options: Any
) -> AsynchronousBundle:
    r"""DAve-RPG with one inner step: the bundle method with the newest cut and :math:`L_i = \pi_i/\gamma`.

    The two are the same iteration, so there is one code. With :math:`f_i` = `shares[i]` times a local loss.

    Parameters
    ----------
    step_size : float, optional
        gamma, at most ``2/(mu + Lloc)``; default ``1/Lloc``, ``Lloc = max_i smoothness[i]/shares[i]``.
    shares : array (n,)
        pi_i > 0, N_i/N in the reference.
    smoothness : array (n,), optional
        Smoothness constants of the f_i, for the default step.
    **options
        Further parameters of `AsynchronousBundle`.

    References
    ----------
    K. Mishchenko, F. Iutzeler, J. Malick, M.-R. Amini, *A delay-tolerant proximal-gradient algorithm for
    distributed learning*, ICML 2018.
    """
    pi = np.asarray(shares, dtype=np.float64)
    if pi.ndim != 1 or not np.all(np.isfinite(pi)) or not np.all(pi > 0):
        raise ValueError(f"shares must be positive numbers, one per worker, got {shares!r}.")
    if step_size is None:
        if smoothness is None:
            raise ValueError("dave_rpg needs a step_size, or smoothness to take 1/max(smoothness/shares).")
        step_size = 1.0 / float(np.max(_positive(smoothness, "smoothness", pi.size) / pi))
    step_size = check_real(step_size, "step_size", minimum=0.0, open_low=True)
    return AsynchronousBundle(model="latest", weights=pi / step_size, shift=0.0, **options)


def _numbers(value: Any, name: str, n: int) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), (n,)) or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, one or {n} numbers, got {value!r}.")
    return array


def _positive(value: Any, name: str, n: int) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), (n,)) or not np.all(np.isfinite(array)) or not np.all(array > 0):
        raise ValueError(f"{name} must be positive and finite, one or {n} numbers, got {value!r}.")
    return array


def _spread(value: Any, counts: np.ndarray) -> np.ndarray:
    """One number per function: a worker's divided over its mini-batches."""
    per_worker = np.broadcast_to(np.asarray(value, dtype=np.float64), counts.shape)
    return np.repeat(per_worker / counts, counts)
