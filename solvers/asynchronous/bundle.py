r"""The asynchronous bundle method: the server never waits for all workers, and certifies what it has.

Minimise :math:`F(x) = \sum_i f_i(x) + h(x)`: worker i owns the convex smooth :math:`f_i`, the server a simple
convex h. After every absorbed batch of replies the server solves the master

.. math:: x_{k+1} = \arg\min_x h(x) + \sum_i \big[ m_i(x) + \tfrac{L_i}2 \|x - z_i\|^2 \big]

with the bundle models :math:`m_i` and the anchors :math:`z_i` (the points of the last replies), and sends
:math:`x_{k+1}` to exactly the workers it has just heard.

Reference: D. Cederberg, X. Wu, S. Boyd, M. Johansson, *An asynchronous bundle method for distributed learning
problems*, ICLR 2025. Update rule, dual master and secant weights are those of the authors' public code;
theorem statements are derived for this toolkit and may differ from the paper's in constants.

Guarantee, for valid L_i and any delays, in epochs m(K):
:math:`\|x_K - x^*\|^2 \le (L/(L+\mu))^{m(K)+1} \|x_0 - x^*\|^2` (strongly convex),
:math:`\min_l F(x_l) - F^* \le L \|x_0 - x^*\|^2 / (2(m(K)+1))` (convex).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.result import Certificate
from optikit.runtime.timing import Exponential, ServiceLaw, simulate_star
from optikit.runtime.trace import Trace
from optikit.solver import IterativeSolver, cached, replicated
from optikit.validation import check_choice, check_integer, check_real
from solvers.asynchronous.models import MODELS
from solvers.asynchronous.regularizers import Quadratic, Regularizer
from solvers.asynchronous.server import BundleServer


@dataclass(frozen=True)
class BundleState:
    """The server, the points in flight, and where the run stands in its trace."""

    x: Any = replicated()
    server: Any = cached(default=None)
    workers: Any = cached(default=None)
    in_flight: Any = cached(default=None)
    trace: Any = cached(default=None)
    iteration: int = replicated(default=0)
    gradients: int = replicated(default=0)


@dataclass(frozen=True)
class AsynchronousBundle(IterativeSolver):
    """The asynchronous bundle method on a virtual clock or along a recorded trace.

    Parameters
    ----------
    h : Regularizer, optional
        Default none; `Quadratic`, `ElasticNet`, `Box` or `Prox` of `solvers.asynchronous.regularizers`.
    model : str, default "cutting_plane"
        One of `MODELS`.
    bundle_size : int, default 10
        Cuts per worker of the cutting-plane models, >= 1.
    weights : "secant", "secant_max" or array (n,)
        Prox weights L_i. Arrays are the theory mode: smoothness constants of the f_i.
    L0 : float or array, default 1.0
        Weights before the first secant, > 0.
    L_scale : float, default 1.0
        Multiplies every L_i, > 0. 0.1 to 0.3 with 10 cuts is faster on ill-conditioned data; theory needs
        >= 1.
    delta : float or None
        Duality gap of the masters; default ``1e-10 max(1, |F(x0)|)``.
    client_weights : array (n,) or "samples" or None
        f_i is this weight times the objective's f_i; None means 1, "samples" the shares of the rows.
    shift : float or None
        Strong convexity moved from every f_i to h; default the objective's known ``l2``, 0 switches it off.
    f_low : float or array, optional
        Lower bounds on the f_i, for the polyak models.
    service : ServiceLaw, optional
        Virtual clock; exponential with mean 1 by default.
    policy, k_wait
        As in `optikit.runtime.timing.simulate_star`; "sync" is the synchronous bundle method.
    trace : Trace, optional
        Replay this order of events instead.
    warmup : (int, float), optional
        Multiply the weights by the second number in the first so many steps.
    check_convexity : bool, default False
    """

    name: ClassVar[str] = "asynchronous bundle method"
    stacked: ClassVar[bool] = False
    needs_topology: ClassVar[bool] = False
    criterion: ClassVar[str | None] = "gap"
    in_place: ClassVar[bool] = True
    resumable: ClassVar[bool] = False

    h: Regularizer | None = None
    model: str = "cutting_plane"
    bundle_size: int = 10
    weights: Any = "secant"
    L0: Any = 1.0
    L_scale: float = 1.0
    delta: float | None = None
    client_weights: Any = None
    shift: float | None = None
    f_low: Any = None
    service: ServiceLaw | None = None
    policy: str = "drain"
    k_wait: int = 1
    trace: Trace | None = None
    trace_steps: int = 10_000
    warmup: tuple[int, float] | None = None
    check_convexity: bool = False

    def __post_init__(self) -> None:
        check_choice(self.model, "model", MODELS)
        check_integer(self.bundle_size, "bundle_size", minimum=1)
        if isinstance(self.weights, str):
            check_choice(self.weights, "weights", ("secant", "secant_max"))
        check_real(self.L_scale, "L_scale", minimum=0.0, open_low=True)
        if self.delta is not None:
            check_real(self.delta, "delta", minimum=0.0, open_low=True)
        if self.shift is not None:
            check_real(self.shift, "shift", minimum=0.0)
        if self.model.startswith("polyak") and self.f_low is None:
            raise ValueError(f"f_low, lower bounds on the f_i, is needed by model {self.model!r}; got None.")

    def validate(self, objective: Any, network: Any) -> None:
        n = objective.n_agents
        if network.size > 1:
            raise ValueError(f"{self.name} on MPI ranks runs through run_mpi, not solve.")
        for name, value in (("weights", self.weights), ("L0", self.L0)):
            if not isinstance(value, str):
                array = np.asarray(value, dtype=np.float64)
                if array.shape not in ((), (n,)) or not np.all(np.isfinite(array)) or not np.all(array > 0):
                    raise ValueError(
                        f"{name} must be positive and finite, one or {n} numbers, got {value!r}."
                    )
        if self.trace is not None and self.trace.n != n:
            raise ValueError(f"trace must be of {n} workers, got {self.trace.n}.")

    def init(self, objective: Any, network: Any, x0: Any) -> BundleState:
        n, d = objective.n_agents, objective.dim
        workers = Workers(objective, self.client_weights, self.shift)
        x0 = np.array(x0, dtype=np.float64)
        replies = [workers.evaluate(i, x0) for i in range(n)]
        h = (self.h or Quadratic()).with_quadratic(float(workers.shifts.sum()))
        start = sum(f for f, _ in replies) + h.value(x0)
        fixed = not isinstance(self.weights, str)
        weights = np.broadcast_to(np.asarray(self.weights, dtype=float), (n,)) if fixed else self.weights
        server = BundleServer(
            n,
            d,
            h,
            model=self.model,
            size=self.bundle_size,
            f_low=None if self.f_low is None else np.broadcast_to(np.asarray(self.f_low, dtype=float), (n,)),
            weights=weights,
            L0=np.broadcast_to(np.asarray(self.L0, dtype=np.float64), (n,)),
            L_scale=self.L_scale,
            delta=self.delta if self.delta is not None else 1e-10 * max(1.0, abs(start)),
            check_convexity=self.check_convexity,
            warmup=self.warmup,
        )
        for i, (f, g) in enumerate(replies):
            server.receive(i, x0, f, g)
        trace = self.trace or simulate_star(
            n, self.service or Exponential(), steps=self.trace_steps, policy=self.policy, k=self.k_wait
        )
        x = server.step()
        in_flight = np.tile(x, (n, 1))
        return BundleState(x, server, workers, in_flight, trace, 0, n)

    def step(self, objective: Any, network: Any, state: BundleState) -> BundleState:
        batch = state.trace.batches[state.iteration]
        for i in batch:
            q = state.in_flight[i].copy()
            state.server.receive(i, q, *state.workers.evaluate(i, q))
        x = state.server.step()
        state.in_flight[batch] = x
        network.total(np.zeros((network.n_local, 0)))
        return BundleState(
            x,
            state.server,
            state.workers,
            state.in_flight,
            state.trace,
            state.iteration + 1,
            state.gradients + len(batch),
        )

    def iterate(self, state: BundleState) -> Any:
        return state.x

    def snapshot(self, state: BundleState) -> BundleState:
        return state

    def metrics(
        self, objective: Any, network: Any, state: BundleState, *, final: bool = False
    ) -> dict[str, float]:
        server, k = state.server, state.iteration
        record = {
            "objective": state.workers.total(state.x) + server.h.value(state.x),
            "gradients": float(state.gradients),
            "time": float(state.trace.times[k - 1]) if k else 0.0,
            "master_gap": server.last.gap,
        }
        lower, upper = server.bounds()
        if lower is not None:
            record["lower_bound"] = lower
            record["gap"] = (upper if upper is not None else record["objective"]) - lower
        return record

    def finished(self, state: BundleState, metrics: dict[str, float]) -> str | None:
        return "the trace has ended" if state.iteration >= len(state.trace) else None

    def certificate(self, objective: Any, network: Any, state: BundleState) -> Certificate | None:
        lower, upper = state.server.bounds()
        value = state.workers.total(state.x) + state.server.h.value(state.x)
        return Certificate("optimality gap", lower, value if upper is None else min(upper, value))


class Workers:
    """The workers' oracles, with client weights and the strong-convexity shift applied."""

    def __init__(self, objective: Any, client_weights: Any, shift: float | None) -> None:
        n = objective.n_agents
        self.parts = [objective.subset([i]) for i in objective.agents]
        if client_weights is None:
            self.scales = np.ones(n)
        elif isinstance(client_weights, str):
            check_choice(client_weights, "client_weights", ("samples",))
            self.scales = objective.data.sizes / objective.data.n_samples
        else:
            self.scales = np.asarray(client_weights, dtype=np.float64)
            if self.scales.shape != (n,) or not np.all(self.scales > 0):
                raise ValueError(f"client_weights must be {n} positive numbers, got {client_weights!r}.")
        known = getattr(objective, "l2", 0.0) if shift is None else shift
        self.shifts = self.scales * known
        self.calls = 0

    def evaluate(self, i: int, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Shifted value and gradient of worker i."""
        self.calls += 1
        f, g = self.parts[i].value_and_gradient(x[None, :])
        mu = self.shifts[i]
        value = self.scales[i] * float(f[0]) - 0.5 * mu * float(x @ x)
        return value, self.scales[i] * np.asarray(g[0], dtype=np.float64) - mu * x

    def total(self, x: np.ndarray) -> float:
        """Sum of the shifted f_i: monitoring, not counted."""
        calls = self.calls
        value = math.fsum(self.evaluate(i, x)[0] for i in range(len(self.parts)))
        self.calls = calls
        return value
