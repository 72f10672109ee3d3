"""Claims about what the asynchronous bundle method certifies, and what its models promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from optikit.agent_data import AgentData
from optikit.objectives import LinearModel, reference_optimum
from optikit.runtime.timing import Exponential, simulate_star
from optikit.runtime.trace import Trace
from solvers.asynchronous.bundle import AsynchronousBundle, dave_rpg
from solvers.asynchronous.bundle_server import BundleServer
from solvers.asynchronous.models import MODELS
from solvers.asynchronous.regularizers import ElasticNet, Quadratic, Regularizer
from theory_checks import Claim, Equality, Measurement, Sweep, UpperBound

DERIVED = "derived for this toolkit"
RIDGE = 1e-3


@cache
def logistic(n: int = 9, rows: int = 200, d: int = 30) -> tuple[LinearModel, np.ndarray, float, np.ndarray]:
    """Logistic regression over n workers: objective, shares, optimal value, smoothness constants."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal(d) / np.sqrt(d)
    blocks = []
    for _ in range(n):
        X = rng.standard_normal((rows, d))
        blocks.append((X, np.where(rng.random(rows) < 1 / (1 + np.exp(-3 * X @ w)), 1.0, -1.0)))
    objective = LinearModel(AgentData.from_blocks(blocks), "logistic")
    shares = np.full(n, 1.0 / n)
    whole = LinearModel(objective.data, "logistic", RIDGE)
    return objective, shares, float(reference_optimum(whole).value), shares * np.asarray(objective.smoothness)


@dataclass
class Aliased(BundleServer):
    """The classic bug: a reply's anchor is taken to be the current iterate, not the point that was sent."""

    def _store(self, i: int, q: np.ndarray, f: Any, g: np.ndarray) -> None:
        super()._store(i, self.x if self.steps else q, f, g)


@dataclass(frozen=True)
class AliasedBundle(AsynchronousBundle):
    """The method on the aliased server."""

    broken: bool = field(default=True)

    def make_server(self, cluster: Any, h: Regularizer, x0: np.ndarray) -> Any:
        right = super().make_server(cluster, h, x0)
        return Aliased(
            right.n, right.shape, h, L=right.L, kind=right.kind, model=self.cuts, size=self.bundle_size
        )


def bounds_along(weights: str, side: str, broken: bool = False, ridge: float = RIDGE) -> Measurement:
    """Certificate of every step of one run against the optimal value (of a bound from above: negated)."""
    objective, shares, optimum, L = logistic()
    cls = AliasedBundle if broken else AsynchronousBundle
    solver = cls(
        h=Quadratic(ridge),
        client_weights=shares,
        weights=L if weights == "valid" else "secant",
        service=Exponential(1.0, 3),
    )
    history = solver.solve(objective, max_rounds=400).history
    if side == "lower":
        bounds = history["lower_bound"]
        return Measurement(bounds, optimum, x=history["iteration"] + 1.0)
    bounds = history["upper_bound"][1:]
    return Measurement(-bounds, -optimum, x=history["iteration"][1:])


def minorants(model: str, seed: int, aliased: bool = False) -> Measurement:
    """Largest of ``m_i(x) - f_i(x)`` and ``newest cut - m_i(x)`` at random points during a run."""
    objective, _, _, L = logistic(4, 40, 8)
    parts = [objective.subset([i]) for i in range(4)]
    kind = Aliased if aliased else BundleServer
    server = kind(
        4,
        (8,),
        Quadratic(0.1),
        L=4.0 * L * 4,
        model=model,
        size=4,
        f_low=np.zeros(4),
        delta=1e-11,
    )
    trace = simulate_star(4, Exponential(1.0, 7), steps=60)
    rng = np.random.default_rng([seed, 1])

    def ask(i: int, x: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = parts[i].value_and_gradient(x[None, :])
        return float(f[0]), np.asarray(g[0])

    start = np.zeros(8)
    for i in range(4):
        server.receive(i, start, *ask(i, start))
    in_flight = np.tile(server.step(), (4, 1))
    worst = []
    for batch in trace.batches:
        for i in batch:
            q = in_flight[i].copy()
            server.receive(i, q, *ask(i, q))
        x = server.step()
        in_flight[batch] = x
        points = x + rng.standard_normal((5, 8)) * rng.choice([1e-3, 0.1, 1.0, 10.0], size=(5, 1))
        for y in points:
            models = server.bundle.values(y)
            truth = np.array([ask(i, y)[0] for i in range(4)])
            newest = [
                server.bundle.cuts[i, s] @ y - server.bundle.offsets[i, s]
                for i, s in enumerate(server.bundle.newest)
            ]
            worst.append(max(float((models - truth).max()), float((np.array(newest) - models).max())))
    return Measurement(np.array(worst), 0.0)


def reference_dave_rpg(
    trace: Trace, h: Regularizer, step: float, shares: np.ndarray, steps: int
) -> np.ndarray:
    """DAve-RPG (one inner step) as its authors write it: workers send differences, the server adds them."""
    objective, n, d = logistic(5, 40, 8)[0], 5, 8
    parts = [objective.subset([i]) for i in range(n)]

    def gradient(i: int, z: np.ndarray) -> np.ndarray:
        return shares[i] * np.asarray(parts[i].gradient(z[None, :])[0])

    def y_of(i: int, z: np.ndarray) -> np.ndarray:
        return z - (step / shares[i]) * gradient(i, z)

    old = np.array([y_of(i, np.zeros(d)) for i in range(n)])
    x_bar = shares @ old
    sent = np.tile(h.prox(x_bar, step), (n, 1))
    out = [sent[0].copy()]
    for batch in trace.batches[:steps]:
        for i in batch:
            new = y_of(i, sent[i])
            x_bar = x_bar + shares[i] * (new - old[i])
            old[i] = new
        sent[batch] = h.prox(x_bar, step)
        out.append(h.prox(x_bar, step))
    return np.array(out)


def dave_identity(name: str, shift: float = 1.0) -> Measurement:
    """Iterates of the bundle method with the newest cut against DAve-RPG's, relative to their size."""
    objective = logistic(5, 40, 8)[0]
    shares = np.arange(1.0, 6.0) / 15.0
    step = float(np.min(shares / (shares * np.asarray(objective.smoothness))))
    h: Regularizer = ElasticNet(0.01) if name == "l1" else Quadratic()
    trace, found = simulate_star(5, Exponential(1.0, 2), steps=300), []
    solver = dave_rpg(shift * step, shares=shares, client_weights=shares, h=h, trace=trace)

    def record(progress: Any) -> None:
        found.append(progress.state.x)

    solver.solve(objective, max_rounds=300, callback=record)
    wanted = reference_dave_rpg(trace, h, step, shares, 300)
    sizes = np.linalg.norm(wanted, axis=1)
    error = np.linalg.norm(np.array(found) - wanted, axis=1)
    return Measurement(sizes + error, sizes, x=np.arange(1.0, 302.0))


CLAIMS = [
    Claim(
        name="async_bundle.lower_bound",
        theorem="The certificate's lower bound never exceeds the optimal value, whatever the weights.",
        formula=r"-v'\lambda - h^*(-G'\lambda) \leq F^*",
        reference=DERIVED,
        provenance="derived",
        quantity="lower bound",
        law=UpperBound(rel=1e-12, abs=1e-12),
        measure=lambda weights, seed: bounds_along(weights, "lower"),
        control=lambda weights, seed: bounds_along(weights, "lower", ridge=2.0 * RIDGE),
        control_text="the conjugate of a ridge twice as strong",
        sweep=Sweep("weights", ("valid", "secant"), axis="step"),
        tags=("async", "bound"),
    ),
    Claim(
        name="async_bundle.upper_bound",
        theorem="With valid weights the certificate's upper bound never falls below the optimal value.",
        reference=DERIVED,
        provenance="derived",
        quantity="minus the upper bound",
        law=UpperBound(rel=1e-12, abs=1e-12),
        measure=lambda weights, seed: bounds_along(weights, "upper"),
        control=lambda weights, seed: bounds_along(weights, "upper", broken=True),
        control_text="anchors aliased to the current iterate",
        sweep=Sweep("weights", ("valid",), axis="step"),
        tags=("async", "bound"),
    ),
    Claim(
        name="async_bundle.models_are_minorants",
        theorem="Every model stays below its function and contains the newest cut.",
        formula=r"f_i(z_i) + g_i'(x - z_i) \leq m_i(x) \leq f_i(x)",
        reference=DERIVED,
        provenance="derived",
        quantity="largest violation",
        law=UpperBound(abs=1e-10),
        measure=lambda model, seed: minorants(model, seed),
        control=lambda model, seed: minorants(model, seed, aliased=True),
        control_text="anchors aliased to the current iterate",
        sweep=Sweep("model", MODELS, axis="point"),
        control_sweep=Sweep("model", ("cutting_plane",), axis="point"),
        tags=("async", "bound"),
    ),
    Claim(
        name="async_bundle.dave_rpg_identity",
        theorem="DAve-RPG with one inner step is the bundle method with the newest cut and L_i = pi_i/gamma.",
        reference=DERIVED,
        provenance="derived",
        quantity="norm of the iterate plus the difference",
        law=Equality(rel=1e-12, abs=1e-14),
        measure=lambda name, seed: dave_identity(name),
        control=lambda name, seed: dave_identity(name, shift=1.01),
        control_text="a step size one per cent larger",
        sweep=Sweep("h", ("none", "l1"), axis="step"),
        tags=("async", "value"),
    ),
]
