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
from solvers.asynchronous.latest import LatestServer
from solvers.asynchronous.models import MODELS
from solvers.asynchronous.regularizers import Quadratic
from theory_checks import Claim, Equality, Measurement, PowerLaw, Regime, Sweep, UpperBound, Value

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
    start, steps = float(best @ best), np.arange(1.0, len(now))  # a diverging control ends early
    if quantity == "fejer":
        return Measurement(np.array(now[1:]), np.array(before[1:]) + 1e-12 * start, x=steps)
    total = float(L.sum())
    bound = (total / (total + mu)) ** (trace.epochs()[: len(steps)] + 1.0) * start + 2e-13 / mu
    return Measurement(np.array(now[1:]), bound, x=steps)


def convex_run(point: str, scale: float = 1.0, steps: int = 1500) -> tuple[Any, Any, Any]:
    """Best gap, bound of T1 and epochs along a run on a diagonal quadratic whose sources need not be small.

    Eigenvalues j/d and minimiser ``1/sqrt(lambda_j)``, so that the gap really falls like one over the epochs.
    """
    d, n = 400, 6
    eigenvalues, shares = np.arange(1.0, d + 1) / d, np.arange(1.0, n + 1) / 21.0
    best = 1.0 / np.sqrt(eigenvalues)
    objective = Quadratics(
        shares[:, None, None] * np.diag(eigenvalues), shares[:, None] * (eigenvalues * best)
    )
    if point == "sync":
        trace = simulate_star(n, Ticks([1] * n), steps=220, policy="sync")
    else:
        trace = simulate_star(n, LAWS[point](), steps=steps)
    gaps: list[float] = []

    def record(progress: Any) -> None:
        gaps.append(0.5 * float(eigenvalues @ (progress.state.x - best) ** 2))

    solver = AsynchronousBundle(trace=trace, weights=shares, L_scale=scale, bundle_size=5, delta=1e-13)
    solver.solve(objective, max_rounds=None, max_iterations=len(trace), callback=record)
    epochs = trace.epochs()[: len(gaps) - 1]
    return np.minimum.accumulate(gaps)[1:], float(best @ best) / (2.0 * (epochs + 1.0)), epochs


def convex_bound(point: str, scale: float = 1.0) -> Measurement:
    """T1 as a bound, step by step."""
    gap, bound, _ = convex_run(point, scale)
    return Measurement(gap, bound, x=np.arange(1.0, gap.size + 1))


def convex_slope(point: str, scale: float = 1.0) -> Measurement:
    """The best gap at the end of each epoch."""
    gap, _, epochs = convex_run(point, scale)
    numbers, first = np.unique(epochs, return_index=True)
    kept = numbers >= 5
    return Measurement(gap[first[kept]], x=numbers[kept].astype(float))


def closed_form(tau: int, weight: float = 1.0) -> Measurement:
    """Distances of `latest` on one diagonal Hessian under a uniform delay, against the closed form."""
    d, n = 12, 4
    eigenvalues, shares = np.logspace(-2, 0, d), np.arange(1.0, n + 1) / 10.0
    best = np.random.default_rng(0).standard_normal(d)
    server = LatestServer(n, (d,), Quadratic(), L=weight * shares)
    points, anchors, found, expected = [np.zeros(d)], [-1] * n, [], []
    for k in range(60):
        stamp = max(0, k - tau)
        for i in range(n):
            if anchors[i] != stamp:
                anchors[i] = stamp
                x = points[stamp]
                e = x - best
                gradient = shares[i] * eigenvalues * e
                server.receive(i, x, 0.5 * float(e @ gradient), gradient)
        points.append(server.step())
        found.append(float(np.linalg.norm(points[-1] - best)))
        expected.append(float(np.linalg.norm((1.0 - eigenvalues) ** -(-(k + 1) // (tau + 1)) * best)))
    return Measurement(np.array(found), np.array(expected), x=np.arange(1.0, 61.0))


def identical_hessians(kappa: float, scale: float = 1.0, model: str = "latest") -> int:
    """Synchronous iterations to a relative squared distance of 1e-8 when all workers share one Hessian."""
    n, d = 6, 20
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    H = Q @ np.diag(np.logspace(-np.log10(kappa), 0, d)) @ Q.T
    H = 0.5 * (H + H.T)
    b = np.array([H @ rng.standard_normal(d) / n for _ in range(n)])
    best, steps = np.linalg.solve(H, b.sum(0)), [0]
    solver = AsynchronousBundle(
        trace=simulate_star(n, Ticks([1] * n), steps=int(12 * kappa * scale) + 60, policy="sync"),
        model=model,
        weights=np.full(n, scale / n),
    )

    def close(progress: Any) -> bool:
        steps[0] = progress.iteration + 1
        return float(np.sum((progress.state.x - best) ** 2)) <= 1e-8 * float(best @ best)

    solver.solve(Quadratics(np.array([H / n] * n), b), max_rounds=10**6, callback=close)
    return steps[0]


@cache
def inexact_floor(gap: float, direction: str, steps: int = 1500) -> tuple[float, float, float]:
    """Floor of the squared distance when every master is off by `gap`; also ``2 gap/mu`` and ``L/mu``.

    The exact master point is moved by ``sqrt(2 gap/L)``, which costs at most `gap`: in random directions, or
    straight away from the optimum.
    """
    objective = quadratics(0, 4, 10, 30)
    A, b = objective.A, objective.b
    best, L = np.linalg.solve(A.sum(0), b.sum(0)), np.linalg.eigvalsh(A)[:, -1]
    mu, rng = float(np.linalg.eigvalsh(A.sum(0))[0]), np.random.default_rng(1)
    server = BundleServer(4, (10,), Quadratic(), size=5, L=L, delta=1e-14)
    x, distances = np.zeros(10), []
    for k in range(steps):
        for i in range(4):
            server.receive(i, x, float(0.5 * x @ A[i] @ x - b[i] @ x), A[i] @ x - b[i])
        x = server.step()
        e = rng.standard_normal(10) if direction == "random" else x - best
        x = x + np.sqrt(2.0 * gap / L.sum()) * e / max(float(np.linalg.norm(e)), 1e-300)
        if k >= steps // 3:
            distances.append(float(np.sum((x - best) ** 2)))
    return float(np.mean(distances)), 2.0 * gap / mu, float(L.sum()) / mu


def _worst_case(gap: float, direction: str) -> Measurement:
    floor, bound, ratio = inexact_floor(gap, direction)
    return Measurement(floor / bound, ratio)


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
    Claim(
        name="async_bundle.convex_bound",
        theorem="Convex case: the best gap is at most L a(x0)/(2 (epochs + 1)).",
        formula=r"\min_{l\leq K} F(x_l) - F^* \leq L\,a(x_0)/(2(m(K)+1))",
        reference=PAPER,
        provenance="reconstructed",
        quantity="best objective gap",
        law=UpperBound(rel=1e-9),
        measure=lambda point, seed: convex_bound(point),
        control=lambda point, seed: convex_bound(point, scale=20.0),
        control_text="prox weights twenty times too large",
        sweep=Sweep("law", ("sync", "ticks"), ("sync", *LAWS), axis="step"),
        control_sweep=Sweep("law", ("sync",), axis="step"),
        tags=("async", "bound"),
    ),
    Claim(
        name="async_bundle.convex_rate",
        theorem="Convex case: the gap falls at least like one over the epochs.",
        reference=PAPER,
        provenance="reconstructed",
        quantity="best objective gap",
        law=PowerLaw(-0.95, (np.inf, 0.0), regime=Regime(x_min=5, x_max=200)),
        measure=lambda point, seed: convex_slope(point),
        control=lambda point, seed: convex_slope(point, scale=50.0),
        control_text="prox weights fifty times too large: the regime is never reached",
        sweep=Sweep("law", ("sync", "ticks"), ("sync", *LAWS), group=str, axis="epochs"),
        control_sweep=Sweep("law", ("sync",), group=str, axis="epochs"),
        tags=("async", "slope"),
    ),
    Claim(
        name="async_bundle.closed_form",
        theorem="One diagonal Hessian, newest cut, uniform delay tau: the iterates have a closed form.",
        formula=r"x_K - x^* = (1 - \lambda/L)^{\lceil K/(\tau+1)\rceil}(x_0 - x^*)",
        reference=DERIVED,
        provenance="derived",
        quantity="distance to the optimum",
        law=Equality(rel=1e-11, abs=1e-14),
        measure=lambda tau, seed: closed_form(tau),
        control=lambda tau, seed: closed_form(tau, weight=1.05),
        control_text="prox weights five per cent larger",
        sweep=Sweep("delay tau", (0, 1, 3), (0, 1, 3, 7, 15), axis="iteration"),
        tags=("async", "value"),
    ),
    Claim(
        name="async_bundle.condition_number",
        theorem="Newest cut, one Hessian, synchronous: the iterations grow linearly in L/mu.",
        formula=r"a(x_{k+1}) \leq \frac{L-\mu}{L+\mu}\,a(x_k)",
        reference=DERIVED,
        provenance="derived",
        quantity="iterations to a(x) <= 1e-8 a(x0)",
        law=PowerLaw(1.0, 0.05),
        measure=lambda kappa, seed: float(identical_hessians(kappa)),
        control=lambda kappa, seed: float(identical_hessians(kappa, scale=np.sqrt(kappa))),
        control_text="prox weights that grow with the condition number",
        sweep=Sweep("condition number", (30, 100, 300), (10, 30, 100, 300, 1000)),
        control_sweep=Sweep("condition number", (10, 30, 100)),
        tags=("async", "slope"),
    ),
    Claim(
        name="async_bundle.strong_rate",
        theorem="Newest cut, strongly convex workers: the squared distance falls by (L-mu)/(L+mu) per round.",
        reference=DERIVED,
        provenance="derived",
        quantity="mean factor per round",
        law=UpperBound(rel=1e-9),
        measure=lambda kappa, seed: Measurement(
            1e-8 ** (1.0 / identical_hessians(kappa)), (kappa - 1.0) / (kappa + 1.0)
        ),
        control=lambda kappa, seed: Measurement(
            1e-8 ** (1.0 / identical_hessians(kappa, scale=2.0)), (kappa - 1.0) / (kappa + 1.0)
        ),
        control_text="prox weights twice too large",
        sweep=Sweep("condition number", (30, 100), (10, 30, 100, 300, 1000)),
        tags=("async", "bound"),
    ),
    Claim(
        name="async_bundle.inexact_slope",
        theorem="Masters solved to a gap delta leave a floor proportional to delta.",
        formula=r"\limsup a(x_k) \leq 2\delta/\mu",
        reference=DERIVED,
        provenance="derived",
        quantity="floor of the squared distance, random errors",
        law=PowerLaw(1.0, 0.05),
        measure=lambda gap, seed: inexact_floor(gap, "random")[0],
        control=lambda gap, seed: inexact_floor(gap * gap, "random")[0],
        control_text="errors that fall with the square of delta",
        sweep=Sweep("master gap delta", (1e-2, 1e-4, 1e-6), (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)),
        control_sweep=Sweep("master gap delta", (1e-1, 1e-2, 1e-3)),
        tags=("async", "slope"),
    ),
    Claim(
        name="async_bundle.inexact_bound",
        theorem="Errors without a preferred direction keep the floor under 2 delta/mu.",
        reference=DERIVED,
        provenance="derived",
        quantity="floor of the squared distance",
        law=UpperBound(),
        measure=lambda gap, seed: Measurement(*inexact_floor(gap, "random")[:2]),
        control=lambda gap, seed: Measurement(*inexact_floor(gap, "outward")[:2]),
        control_text="errors straight away from the optimum",
        sweep=Sweep("master gap delta", (1e-2, 1e-6), (1e-2, 1e-4, 1e-6, 1e-8)),
        tags=("async", "bound"),
    ),
    Claim(
        name="async_bundle.inexact_worst_case",
        theorem="Errors straight away from the optimum leave exactly L/mu times the floor 2 delta/mu.",
        formula=r"\lim a(x_k) = \frac{2\delta}{\mu}\cdot\frac{L}{\mu}",
        reference=DERIVED,
        provenance="derived",
        quantity="floor of the squared distance over 2 delta/mu",
        law=Equality(rel=1e-5),
        measure=lambda gap, seed: _worst_case(gap, "outward"),
        control=lambda gap, seed: _worst_case(gap, "random"),
        control_text="errors without a preferred direction",
        sweep=Sweep("master gap delta", (1e-2, 1e-4)),
        tags=("async", "value"),
    ),
]
