"""Claims about directed networks: Perron bounds, exactness of Pull-Diag, linear speed-up, several rounds."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from optikit.graphs import Graph, erdos_renyi
from optikit.mixing import MixingMatrix, matrix_power, perron_metrics, perron_vector, row_stochastic
from optikit.network import Network
from optikit.objectives import Quadratic
from optikit.runtime.communicator import SerialCommunicator
from solvers.decentralized.pull_diag import (
    MGPullDiagGT,
    PullDiagGD,
    PullDiagGT,
    RowStochasticTracking,
)
from theory_checks import Claim, Measurement, PowerLaw, Sweep, UpperBound, Value

PAPER = (
    "Liang, Chen, Luo, Yuan, Near-optimal decentralized optimization over row-stochastic networks, ICML 2025"
)
LR = 0.02


def digraph(n: int, p: float, seed: int) -> Graph:
    """A directed ring, so that it is strongly connected, and further links with probability p."""
    rng = np.random.default_rng(seed)
    nodes = np.arange(n)
    ring = np.stack([nodes, (nodes + 1) % n], axis=1)
    return Graph(n, np.concatenate([ring, np.argwhere(rng.random((n, n)) < p)]), directed=True)


def quadratics(n: int, d: int = 5, seed: int = 0) -> Quadratic:
    """Random curvatures, scaled so that the mean Hessian has mean eigenvalue 1."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((n, d, d))
    A = B @ np.swapaxes(B, 1, 2) / d + 0.5 * np.eye(d)
    return Quadratic(A * d / np.trace(A.mean(axis=0)), rng.standard_normal((n, d)))


def weighted_optimum(objective: Quadratic, weights: np.ndarray) -> np.ndarray:
    """Minimiser of the weighted sum of the agents' quadratics."""
    return np.linalg.solve(np.einsum("i,ijk->jk", weights, objective.A), weights @ objective.b)


def distance(solver: Any, n: int, seed: int, iterations: int, perron: bool = False) -> float:
    """Largest distance of an agent from the optimum (or the Perron-weighted one) after a run."""
    A = row_stochastic(digraph(n, 0.3, seed))
    objective = quadratics(n, seed=seed)
    weights = perron_vector(A) if perron else np.full(n, 1 / n)
    network = Network(A, communicator=SerialCommunicator())
    result = solver.solve(
        objective, network, max_rounds=None, max_iterations=iterations, record_every=iterations
    )
    return float(np.abs(result.iterate - weighted_optimum(objective, weights)).max())


# -- the bound on powers ---------------------------------------------------------------------------------


def power_distance(rate: str) -> Any:
    """``||A^k - 1 pi^T||_2`` over k against ``sqrt(kappa) rate^k``, rate beta or an eigenvalue's modulus."""

    def measure(point: tuple[int, float], seed: int) -> Measurement:
        n, p = point
        A = row_stochastic(digraph(n, p, seed))
        metrics = perron_metrics(A)
        factor = metrics.beta
        if rate == "eigenvalue":
            factor = float(np.sort(np.abs(np.linalg.eigvals(A.toarray())))[-2])
        powers = np.array([1, 2, 5, 10, 20, 50])
        found = [float(np.linalg.norm(matrix_power(A, int(k)).toarray() - metrics.vector, 2)) for k in powers]
        return Measurement(found, math.sqrt(metrics.kappa) * factor**powers, x=powers)

    return measure


def return_weights(fraction: float) -> Any:
    """Extreme ratio of ``[A^R]_ii`` to its limit, R the default number of rounds times `fraction`."""

    def measure(point: tuple[int, float], seed: int) -> float:
        n, p = point
        A = row_stochastic(digraph(n, p, seed))
        metrics = perron_metrics(A)
        rounds = max(1, int(fraction * metrics.rounds_for_diagonal()))
        ratio = matrix_power(A, rounds).csr.diagonal() / metrics.vector
        return float(ratio[np.argmax(np.abs(ratio - 1))])

    return measure


# -- noise -----------------------------------------------------------------------------------------------


class NoisyDistances(Quadratic):
    """Half squared distances with unit normal noise in every gradient sample."""

    def stochastic_gradient(self, X: Any, batch_size: int, streams: Any, step: int) -> Any:
        noise = np.random.default_rng((streams.seed, step)).standard_normal(X.shape)
        return self.gradient(X) + noise / math.sqrt(batch_size)


@cache
def noise_floor(n: int, seed: int, lr: float = LR, rounds: int = 1, batches: bool = True) -> float:
    """Mean squared distance of the mean iterate from the optimum, in the stationary phase.

    With R > 1 rounds: R mini-batches per gradient, or (`batches` False) a single one.
    """
    d = 20
    A: MixingMatrix = row_stochastic(erdos_renyi(n, 0.5, seed=100 + seed))
    if not batches:
        A, rounds = matrix_power(A, rounds), 1
    target = np.random.default_rng(seed).standard_normal((n, d))
    objective = NoisyDistances(np.tile(np.eye(d), (n, 1, 1)), target)
    network = Network(A, communicator=SerialCommunicator())
    solver: Any = PullDiagGT(lr, batch_size=1, seed=seed)
    if rounds > 1:
        solver = MGPullDiagGT(lr, batch_size=1, seed=seed, rounds=rounds)
    optimum = target.mean(axis=0)
    state, total, steps, burn_in = solver.init(objective, network, np.tile(optimum, (n, 1))), 0.0, 4000, 500
    for k in range(steps):
        state = solver.step(objective, network, state)
        if k >= burn_in:
            total += float(np.sum((state.x.mean(axis=0) - optimum) ** 2))
    return total / (steps - burn_in)


GRAPHS = Sweep(
    "agents and density", ((8, 0.0), (16, 0.1), (16, 0.3)), ((8, 0.0), (16, 0.1), (16, 0.3), (64, 0.05))
)

CLAIMS = [
    Claim(
        name="directed.power_bound",
        theorem="Powers of a row-stochastic matrix approach their limit at the rate beta, up to sqrt(kappa).",
        formula=r"\|A^k - 1\pi^T\|_2 \leq \sqrt{\kappa_A}\,\beta_A^k",
        reference=PAPER,
        provenance="stated",
        quantity="distance of the power from its limit",
        law=UpperBound(rel=1e-9, abs=1e-13),
        measure=power_distance("beta"),
        control=power_distance("eigenvalue"),
        control_text="the second eigenvalue's modulus in place of beta: wrong for non-normal matrices",
        sweep=GRAPHS,
        seeds=(3, 10),
        tags=("directed", "bound"),
    ),
    Claim(
        name="directed.default_rounds",
        theorem="With the default R every return weight is within half of its limit.",
        formula=r"[A^R]_{ii} \in [\pi_i/2, 3\pi_i/2]",
        reference="derived for this toolkit from the bound on powers",
        provenance="derived",
        quantity="extreme ratio of return weight to limit",
        law=Value(1.0, abs=0.5, over="each"),
        measure=return_weights(1.0),
        control=return_weights(0.1),
        control_text="a tenth of the rounds",
        sweep=GRAPHS,
        seeds=(3, 10),
        tags=("directed", "bound"),
    ),
    Claim(
        name="directed.pull_diag_is_exact",
        theorem="Pull-Diag-GT converges to the optimum of the mean objective, whatever the Perron vector.",
        reference=PAPER,
        provenance="stated",
        quantity="distance from the optimum after 1000 iterations",
        law=UpperBound(1e-13),
        measure=lambda n, seed: distance(PullDiagGT(0.3), n, seed, 1000),
        control=lambda n, seed: distance(PullDiagGD(0.3), n, seed, 1000),
        control_text="no tracking (Pull-Diag-GD): a constant step leaves a bias",
        sweep=Sweep("agents n", (12, 16), (8, 12, 16, 24, 32)),
        seeds=(2, 5),
        tags=("directed", "rate"),
    ),
    Claim(
        name="directed.row_tracking_is_biased",
        theorem="Without the correction, tracking finds the optimum of the Perron-weighted objective.",
        formula=r"\lim x = \arg\min \sum_i \pi_i f_i(x)",
        reference=PAPER,
        provenance="stated",
        quantity="distance from the Perron-weighted optimum",
        law=UpperBound(1e-12),
        measure=lambda n, seed: distance(RowStochasticTracking(0.2), n, seed, 1500, perron=True),
        control=lambda n, seed: distance(PullDiagGT(0.3), n, seed, 1500, perron=True),
        control_text="with the correction: another optimum, that of the mean",
        sweep=Sweep("agents n", (12, 16), (8, 12, 16, 24, 32)),
        seeds=(2, 5),
        tags=("directed", "rate"),
    ),
    Claim(
        name="directed.linear_speedup",
        theorem="The noise floor of Pull-Diag-GT falls like 1/n: linear speed-up.",
        formula=r"E\|\bar x - x^*\|^2 \propto \sigma^2 / n",
        reference=PAPER,
        provenance="stated",
        quantity="mean squared error of the mean iterate",
        law=PowerLaw(-1.0, 0.1),
        measure=lambda n, seed: noise_floor(n, seed),
        control=lambda n, seed: noise_floor(n, seed, lr=LR * n / 4),
        control_text="the step a in place of n a kept fixed: the floor stays where it is",
        sweep=Sweep("agents n", (4, 8, 16, 32), (4, 8, 16, 32, 64)),
        seeds=(4, 10),
        tags=("directed", "slope"),
    ),
    Claim(
        name="directed.batches_divide_noise",
        theorem="R mini-batches per gradient divide the noise floor by R, without further exchanges.",
        reference=PAPER,
        provenance="stated",
        quantity="floor of Pull-Diag-GT / floor of MG-Pull-Diag-GT",
        law=Value(lambda R: float(R), rel=0.05),
        measure=lambda R, seed: noise_floor(8, seed) / noise_floor(8, seed, rounds=R),
        control=lambda R, seed: noise_floor(8, seed) / noise_floor(8, seed, rounds=R, batches=False),
        control_text="R gossip rounds with one mini-batch",
        sweep=Sweep("rounds R", (2, 5), (2, 5, 10)),
        seeds=(3, 10),
        tags=("directed", "noise"),
    ),
]
