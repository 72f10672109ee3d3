"""Claims about the asynchronous bundle method with sampled gradients: noise floors and growing weights."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from optikit.agent_data import AgentData
from optikit.objectives import LinearModel
from optikit.runtime.timing import Exponential
from solvers.asynchronous.bundle import AsynchronousBundle
from theory_checks import Claim, Measurement, PowerLaw, Regime, Sweep, UpperBound

DERIVED = "derived for this toolkit; growing weights: expected rate, not a proved constant"


@cache
def least_squares() -> tuple[LinearModel, np.ndarray, np.ndarray]:
    """Four workers with 128 rows of 8 features and unit noise; the optimum; smoothness constants."""
    rng = np.random.default_rng(0)
    w, scales = rng.standard_normal(8), np.logspace(0, -0.1, 8)
    blocks = []
    for _ in range(4):
        X = rng.standard_normal((128, 8)) * scales
        blocks.append((X, X @ w + rng.standard_normal(128)))
    objective = LinearModel(AgentData.from_blocks(blocks), "least_squares", 0.1)
    H = sum(X.T @ X / 128 + 0.1 * np.eye(8) for X, _ in blocks)
    best = np.linalg.solve(H, sum(X.T @ y / 128 for X, y in blocks))
    return objective, best, np.asarray(objective.smoothness)


def distances(
    seed: int,
    batch_size: int,
    eta: Any,
    steps: int,
    *,
    runs: int = 32,
    growth: str = "constant",
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean squared distance over stacked runs from the optimum, every twentieth step; started there."""
    objective, best, L = least_squares()
    found: list[float] = []

    def record(progress: Any) -> None:
        found.append(float(np.mean(np.sum((progress.state.x - best) ** 2, axis=-1))))

    solver = AsynchronousBundle(
        stochastic="sampled",
        batch_size=batch_size,
        weights=L,
        eta=eta,
        eta_growth=growth,
        runs=runs,
        seed=seed,
        service=Exponential(1.0, 5),
        **options,
    )
    solver.solve(objective, x0=best, max_rounds=None, max_iterations=steps, record_every=20, callback=record)
    return 20.0 * np.arange(len(found)) + 1.0, np.array(found)


def floor(seed: int, batch_size: int = 4, eta: float = 2.0, steps: int = 2000, **options: Any) -> float:
    """Mean over the last three quarters of the runs; eta in units of the smoothness constants."""
    _, found = distances(seed, batch_size, eta * least_squares()[2], steps, **options)
    return float(np.mean(found[found.size // 4 :]))


def decay(seed: int, growth: str, eta: float, steps: int = 5000) -> Measurement:
    """Binned means along runs with weights that grow."""
    k, found = distances(seed, 4, eta * np.ones(4), steps, growth=growth)
    edges = np.geomspace(300.0, steps, 7)
    place = np.digitize(k, edges)
    bins = [place == j for j in range(1, edges.size)]
    return Measurement(
        np.array([found[chosen].mean() for chosen in bins]), x=np.array([k[chosen].mean() for chosen in bins])
    )


def noise_bound(batch_size: int, eta: float) -> float:
    """``(1/mu) sum_i s_i^2/eta_i`` with the exact variance of mini-batch gradients at the optimum."""
    objective, best, L = least_squares()
    H, total = np.zeros((8, 8)), 0.0
    for i in range(4):
        data = objective.subset([i]).data
        X, residual = data.features, data.features @ best - data.targets
        H += X.T @ X / 128 + 0.1 * np.eye(8)
        rows = residual[:, None] * X
        variance = np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)) / batch_size
        total += variance / (eta * L[i])
    return float(total / np.linalg.eigvalsh(H)[0])


CLAIMS = [
    Claim(
        name="async_bundle.noise_bound",
        theorem="Sampled gradients, constant eta: variances over eta and mu bound the noise floor.",
        formula=r"\limsup E\,a(x_k) \leq \frac1\mu \sum_i s_i^2/\eta_i",
        reference=DERIVED,
        provenance="derived",
        quantity="mean squared distance to the optimum",
        law=UpperBound(),
        measure=lambda b, seed: Measurement(floor(seed, batch_size=b), noise_bound(b, 2.0)),
        control=lambda b, seed: Measurement(
            floor(seed, batch_size=b, eta=1e-3, L_scale=0.1), noise_bound(b, 2.0)
        ),
        control_text="prox weights ten times too small, and eta a two-thousandth of what the bound is told",
        sweep=Sweep("batch size b", (4, 16)),
        seeds=(1, 2),
        tags=("async", "stochastic"),
    ),
    Claim(
        name="async_bundle.floor_over_batch",
        theorem="Sampled gradients, constant eta: the noise floor falls like one over the batch size.",
        formula=r"\limsup E\,a(x_k) \leq \frac1\mu \sum_i s_i^2/\eta_i, \quad s_i^2 \propto 1/b",
        reference=DERIVED,
        provenance="derived",
        quantity="mean squared distance to the optimum",
        law=PowerLaw(-1.0, 0.15),
        measure=lambda b, seed: floor(seed, batch_size=b),
        control=lambda b, seed: floor(seed, batch_size=b, eta=0.25, runs=1, model="two_cut"),
        control_text="the maximum of cuts of different samples: biased upwards",
        sweep=Sweep("batch size b", (1, 4, 16, 64)),
        seeds=(2, 4),
        tags=("async", "stochastic"),
    ),
    Claim(
        name="async_bundle.floor_over_eta",
        theorem="Sampled gradients, constant eta: the noise floor falls like one over eta.",
        reference=DERIVED,
        provenance="derived",
        quantity="mean squared distance to the optimum",
        law=PowerLaw(-1.0, 0.15),
        measure=lambda eta, seed: floor(seed, eta=eta),
        control=lambda eta, seed: floor(seed, eta=4.0),
        control_text="eta left where it was",
        sweep=Sweep("eta over L", (2.0, 8.0, 32.0)),
        seeds=(2, 4),
        tags=("async", "stochastic"),
    ),
    Claim(
        name="async_bundle.growing_sqrt",
        theorem="eta growing like the square root of the steps: the error falls like their power -1/2.",
        reference=DERIVED,
        provenance="derived",
        quantity="mean squared distance to the optimum",
        law=PowerLaw(-0.5, 0.15, regime=Regime(x_min=300)),
        measure=lambda point, seed: decay(seed, "sqrt", 1.0),
        control=lambda point, seed: decay(seed, "constant", 4.0),
        control_text="constant eta: a floor",
        sweep=Sweep.once(),
        seeds=(4, 8),
        tags=("async", "stochastic"),
    ),
    Claim(
        name="async_bundle.growing_linear",
        theorem="eta growing like the steps, strongly convex: the error falls like their inverse.",
        reference=DERIVED,
        provenance="derived",
        quantity="mean squared distance to the optimum",
        law=PowerLaw(-1.0, (0.2, 0.25), regime=Regime(x_min=300)),
        measure=lambda point, seed: decay(seed, "linear", 0.05),
        control=lambda point, seed: decay(seed, "sqrt", 1.0),
        control_text="eta growing too slowly",
        sweep=Sweep.once(),
        seeds=(4, 8),
        tags=("async", "stochastic"),
    ),
]
