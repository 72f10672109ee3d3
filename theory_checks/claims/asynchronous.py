"""Claims about the asynchronous bundle method: exact delay laws, epoch rates, certificates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from optikit.objectives import Quadratic as Quadratics
from optikit.runtime.timing import Exponential, Pareto, ServiceLaw, Ticks, simulate_star
from solvers.asynchronous.bundle import AsynchronousBundle
from solvers.asynchronous.bundle_server import BundleServer
from solvers.asynchronous.models import MODELS
from solvers.asynchronous.regularizers import Quadratic
from theory_checks import Claim, Measurement, PowerLaw, Sweep, UpperBound, Value

PAPER = "Cederberg, Wu, Boyd, Johansson, An Asynchronous Bundle Method, ICLR 2025"
DERIVED = "derived for this toolkit; the paper's statement and constants may differ"

LAWS: dict[str, Callable[[], ServiceLaw]] = {
    "ticks": lambda: Ticks([1, 2, 3, 5, 8, 13]),
    "exponential": lambda: Exponential(1.0, 3),
    "pareto": lambda: Pareto(1.5, 3),
}


@cache
def quadratics(seed: int, n: int, d: int, kappa: float) -> Quadratics:
    """Random quadratics with eigenvalues over a condition number kappa."""
    rng = np.random.default_rng(seed)
    A, b = [], []
    for _ in range(n):
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        H = Q @ np.diag(np.logspace(-np.log10(kappa), 0, d) * (0.5 + rng.random())) @ Q.T
        A.append(0.5 * (H + H.T))
        b.append(A[-1] @ rng.standard_normal(d))
    return Quadratics(np.array(A), np.array(b))


@cache
def steps_to_accuracy(tau: int, frozen: int = 0, model: str = "cutting_plane", scale: float = 1.0) -> int:
    """Master steps to a relative gap of 1e-6 when every anchor is `tau` steps old (worker 0 frozen once)."""
    objective = quadratics(0, 4, 10, 30)
    A, b = objective.A, objective.b
    best = np.linalg.solve(A.sum(0), b.sum(0))
    start = 0.5 * float(b.sum(0) @ best)
    L = np.linalg.eigvalsh(A)[:, -1]
    server = BundleServer(4, (10,), Quadratic(), model=model, size=5, L=L, L_scale=scale, delta=1e-13)
    points, anchors = [np.zeros(10)], [0] * 4

    def reply(i: int, x: np.ndarray) -> None:
        server.receive(i, x, float(0.5 * x @ A[i] @ x - b[i] @ x), A[i] @ x - b[i])

    for i in range(4):
        reply(i, points[0])
    for k in range(1, 20_000):
        points.append(server.step())
        e = points[-1] - best
        if 0.5 * float(e @ A.sum(0) @ e) <= 1e-6 * start:
            return k
        for i in range(4):
            stamp = 10 if i == 0 and 10 <= k < 10 + frozen else max(0, k - tau)
            if stamp != anchors[i]:
                anchors[i] = stamp
                reply(i, points[stamp])
    return 20_000


def along_a_run(point: tuple[str, str], quantity: str, scale: float = 1.0) -> Measurement:
    """One run on random quadratics: max-norm Fejer (T0) or the epoch bound (T2)."""
    model, law = point
    objective = quadratics(1, 6, 20, 100)
    A = objective.A.sum(0)
    best = np.linalg.solve(A, objective.b.sum(0))
    L, mu = np.linalg.eigvalsh(objective.A)[:, -1], float(np.linalg.eigvalsh(A)[0])
    trace = simulate_star(6, LAWS[law](), steps=200)
    now, before = [], []

    def record(progress: Any) -> None:
        anchors = progress.state.server.anchors
        now.append(float(np.sum((progress.state.x - best) ** 2)))
        before.append(float(np.sum((anchors - best) ** 2, axis=1).max()))

    f_low = np.array([-0.5 * b @ np.linalg.solve(M, b) for M, b in zip(objective.A, objective.b)]) - 1e-9
    solver = AsynchronousBundle(trace=trace, model=model, weights=L, L_scale=scale, delta=1e-13, f_low=f_low)
    solver.solve(objective, max_rounds=None, max_iterations=200, callback=record)
    start, steps = float(best @ best), np.arange(1.0, 201.0)
    if quantity == "fejer":
        return Measurement(np.array(now[1:]), np.array(before[1:]) + 1e-12 * start, x=steps)
    total = float(L.sum())
    bound = (total / (total + mu)) ** (trace.epochs() + 1.0) * start + 2e-13 / mu
    return Measurement(np.array(now[1:]), bound, x=steps)


def pairs(models: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((model, law) for model in models for law in LAWS)


CLAIMS = [
    Claim(
        name="async_bundle.uniform_delay",
        theorem="A uniform delay tau multiplies the iterations by tau + 1 exactly.",
        formula=r"K(\tau) = (K(0) - 1)(\tau + 1) + 1",
        reference=DERIVED,
        provenance="derived",
        quantity="master steps to a relative gap of 1e-6",
        law=Value(abs=0.5),  # counts: equality
        measure=lambda tau, seed: Measurement(float(steps_to_accuracy(tau)), 46.0 * (tau + 1) + 1),
        control=lambda tau, seed: Measurement(float(steps_to_accuracy(tau, scale=2.0)), 46.0 * (tau + 1) + 1),
        control_text="prox weights twice too large: more steps",
        sweep=Sweep("delay tau", (0, 1, 2, 4, 8), (0, 1, 2, 4, 8, 16, 32, 64)),
        tags=("async", "value"),
    ),
    Claim(
        name="async_bundle.rare_delay",
        theorem="A rare long delay costs only itself: the steps grow by the delay, not by a factor.",
        reference=DERIVED,
        provenance="derived",
        quantity="master steps to a relative gap of 1e-6",
        law=Value(abs=3.0),
        measure=lambda B, seed: Measurement(
            float(steps_to_accuracy(0, frozen=B)), {0: 47, 10: 54, 30: 74, 100: 144, 300: 344}[B]
        ),
        control=lambda B, seed: Measurement(
            float(steps_to_accuracy(min(B, 20))), {0: 47, 10: 54, 30: 74, 100: 144, 300: 344}[B]
        ),
        control_text="the delay at every step",
        sweep=Sweep("frozen for B steps", (10, 30, 100), (10, 30, 100, 300)),
        tags=("async", "value"),
    ),
    Claim(
        name="async_bundle.iterations_over_delay",
        theorem="The steps grow linearly in the epoch length tau + 1.",
        reference=PAPER,
        provenance="reconstructed",
        quantity="master steps to a relative gap of 1e-6",
        law=PowerLaw(1.0, 0.03),
        measure=lambda tau, seed: Measurement(float(steps_to_accuracy(tau)), x=tau + 1.0),
        control=lambda tau, seed: Measurement(float(steps_to_accuracy(0, frozen=tau)), x=tau + 1.0),
        control_text="the same delay once: it does not multiply",
        sweep=Sweep("epoch length tau + 1", (1, 2, 4, 8, 16), label=lambda tau: f"tau={tau}"),
        tags=("async", "slope"),
    ),
    Claim(
        name="async_bundle.max_norm_fejer",
        theorem="The distance to the optimum never exceeds that of the farthest anchor, whatever the delays.",
        formula=r"\|x_{k+1}-x^*\|^2 \leq \max_i \|z_i - x^*\|^2 + 2\delta/L",
        reference=DERIVED,
        provenance="derived",
        quantity="squared distance to the optimum",
        law=UpperBound(rel=1e-9),
        measure=lambda point, seed: along_a_run(point, "fejer"),
        control=lambda point, seed: along_a_run(point, "fejer", scale=0.05),
        control_text="prox weights twenty times too small, newest cut only",
        sweep=Sweep("(model, law)", pairs(("latest", "cutting_plane")), pairs(MODELS), axis="step"),
        control_sweep=Sweep("(model, law)", pairs(("latest",)), axis="step"),
        tags=("async", "bound"),
    ),
    Claim(
        name="async_bundle.epoch_rate",
        theorem="Strongly convex case: the squared distance falls by L/(L+mu) per epoch at least.",
        formula=r"\|x_K-x^*\|^2 \leq (L/(L+\mu))^{m(K)+1}\|x_0-x^*\|^2",
        reference=PAPER,
        provenance="reconstructed",
        quantity="squared distance to the optimum",
        law=UpperBound(rel=1e-9),
        measure=lambda point, seed: along_a_run(point, "rate"),
        control=lambda point, seed: along_a_run(point, "rate", scale=0.05),
        control_text="prox weights twenty times too small, newest cut only",
        sweep=Sweep("(model, law)", pairs(("latest", "cutting_plane")), pairs(MODELS), axis="step"),
        control_sweep=Sweep("(model, law)", pairs(("latest",)), axis="step"),
        tags=("async", "bound"),
    ),
]
