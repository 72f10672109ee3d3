"""Claims about Byzantine-robust gossip: robust sums, contraction and drift under attack, breakdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optikit.graphs import two_worlds
from optikit.mixing import MixingMatrix, from_matrix
from optikit.network import Network
from optikit.runtime.communicator import SerialCommunicator
from solvers.decentralized.attacks import ATTACKS
from solvers.decentralized.robust_round import RobustRound, breakdown
from solvers.decentralized.robust_rules import RULES, robust_sum
from theory_checks import Claim, LowerBound, Measurement, Sweep, UpperBound, Value

PAPER = "Gaucher, Dieuleveut, Hendrikx, Unified breakdown analysis for Byzantine robust gossip, ICML 2025"
Measure = Callable[[Any, int], Any]


# -- robust sums -----------------------------------------------------------------------------------------


def ratio(rule: str, honest: np.ndarray, byzantine: np.ndarray, told: float) -> float:
    """``||F - honest sum||^2 / (b sum ||z||^2)``, b the number of Byzantine vectors, the rule told `told`."""
    total = robust_sum(np.concatenate([honest, byzantine]), told, rule=rule)
    return float(np.sum((total - honest.sum(axis=0)) ** 2) / (len(byzantine) * np.sum(honest**2)))


def worst_ratio(told_fraction: float) -> Measure:
    """Largest ratio over random small neighbourhoods, among them the rules' worst cases."""

    def measure(rule: str, seed: int) -> Measurement:
        rng = np.random.default_rng(seed)
        honest, liar = ([[1.0], [1.0]], [[0.0]]) if rule == "cs+" else ([[1.0], [0.0]], [[-0.999]])
        found = [ratio(rule, np.array(honest), np.array(liar), told_fraction)]
        for _ in range(1500):
            f, d = int(rng.integers(1, 4)), int(rng.integers(1, 4))
            vectors = rng.choice([0.0, 0.5, 1.0, 2.0], (f + int(rng.integers(0, 5)), 1)) * _unit(rng, d)
            byzantine = rng.uniform(0, 3, (f, 1)) * _unit(rng, d)
            if np.any(vectors):
                found.append(ratio(rule, vectors, byzantine, told_fraction * f))
        rho = RULES[rule]
        assert rho is not None
        return Measurement(max(found), rho)

    return measure


def _unit(rng: np.random.Generator, d: int) -> np.ndarray:
    """A random direction: vectors along one line are the hardest, and two lines meet the Byzantine ones."""
    direction = rng.standard_normal(d)
    return direction / np.linalg.norm(direction)


# -- rounds on the two worlds ----------------------------------------------------------------------------


def worlds_graph() -> MixingMatrix:
    """26 honest agents in two cliques, 8 links each to the other: mu_min = 16, unit weights."""
    return from_matrix(two_worlds(26, 8).laplacian(), "gossip")


def run(rule: str, f: int, attack: str, rounds: int, seed: int) -> np.ndarray:
    """Rows (contraction, drift, error per coordinate) of the rounds from worlds at +-5 with unit noise."""
    X = np.random.default_rng(seed).standard_normal((26, 5)) + 5.0 * np.repeat([[1.0], [-1.0]], 13, axis=0)
    network = Network(worlds_graph(), communicator=SerialCommunicator())
    prepared = RobustRound(network, rule, float(f), attack=attack)
    start, found = X.mean(axis=0), []
    for _ in range(rounds):
        mean = X.mean(axis=0)
        before = np.sum((X - mean) ** 2)
        if before < 1e-16:
            break
        X = prepared.apply(network, X)
        moved = 26 * np.sum((X.mean(axis=0) - mean) ** 2)
        found.append((np.sum((X - mean) ** 2) / before, moved / before, np.mean((X - start) ** 2)))
    return np.array(found)


def along_rounds(column: int, naive: bool = False) -> Measure:
    """Contraction (column 0) or drift (1) of every round against the theorem; `naive`: of plain averaging."""

    def measure(point: tuple[str, int, str], seed: int) -> Measurement:
        rule, f, attack = point
        bound = breakdown(worlds_graph(), rule, f)
        found = run("average" if naive else rule, f, attack, 25, seed)
        limit = bound.contraction if column == 0 else bound.drift
        return Measurement(found[:, column], limit)

    return measure


def last_contraction(f: int) -> Measure:
    return lambda attack, seed: float(run("cs+", f, attack, 40, seed)[-1, 0])


def last_error(rule: str) -> Measure:
    return lambda f, seed: float(run(rule, f, "spectral", 40, seed)[-1, 2])


ROUNDS = Sweep(
    "rule, f and attack",
    (*(("cs+", f, attack) for f in (1, 3) for attack in ATTACKS), ("gts", 1, "spectral")),
    tuple((rule, f, a) for rule, f in (("cs+", 1), ("cs+", 2), ("cs+", 3), ("gts", 1)) for a in ATTACKS),
    axis="round",
)

CLAIMS = [
    Claim(
        name="robust.sums",
        theorem="CS+ and GTS are (b, rho)-robust sums with rho = 2 and 4, whatever the Byzantine vectors.",
        formula=r"\|F(z) - \sum_H w_j z_j\|^2 \leq \rho\, b \sum_H w_j\|z_j\|^2",
        reference=PAPER,
        provenance="stated",
        quantity="largest ratio found",
        law=UpperBound(rel=1e-9),
        measure=worst_ratio(1.0),
        control=worst_ratio(0.0),
        control_text="rules that are told b = 0: the plain sum",
        sweep=Sweep("rule", ("cs+", "gts")),
        seeds=(2, 20),
        tags=("robust", "bound"),
    ),
    Claim(
        name="robust.worst_cases",
        theorem="Both constants are attained: rho = 2 and rho = 4 cannot be lowered.",
        reference=PAPER,
        provenance="derived",
        quantity="ratio in the worst case",
        law=Value({"cs+": 2.0, "gts": 4.0}, rel=1e-2, over="each"),
        measure=lambda rule, seed: (
            ratio("cs+", np.ones((2, 1)), np.zeros((1, 1)), 1.0)
            if rule == "cs+"
            else ratio("gts", np.array([[1.0], [0.0]]), np.array([[-0.999]]), 1.0)
        ),
        control=lambda rule, seed: ratio(
            "gts" if rule == "cs+" else "cs+", np.array([[1.0], [0.0]]), np.array([[-0.999]]), 1.0
        ),
        control_text="each rule in the other's example",
        sweep=Sweep("rule", ("cs+", "gts")),
        tags=("robust", "bound"),
    ),
    Claim(
        name="robust.contraction",
        theorem="With delta < 1 squared distances to the old mean contract in every round of every attack.",
        formula=r"\sum\|x_i^+-\bar x\|^2 \leq (1-\gamma(1-\delta))\sum\|x_i-\bar x\|^2",
        reference=PAPER,
        provenance="derived",
        quantity="ratio of squared distances, per round",
        law=UpperBound(rel=1e-9),
        measure=along_rounds(0),
        control=along_rounds(0, naive=True),
        control_text="plain averaging under the same attacks",
        sweep=ROUNDS,
        tags=("robust", "bound"),
    ),
    Claim(
        name="robust.drift",
        theorem="With delta < 1 one round moves the mean of the honest agents by a bounded amount.",
        formula=r"|H|\,\|\bar x^+-\bar x\|^2 \leq \gamma\delta\sum\|x_i-\bar x\|^2",
        reference=PAPER,
        provenance="derived",
        quantity="squared move of the mean over squared distances, per round",
        law=UpperBound(rel=1e-9),
        measure=along_rounds(1),
        control=along_rounds(1, naive=True),
        control_text="plain averaging under the same attacks",
        sweep=ROUNDS,
        tags=("robust", "bound"),
    ),
    Claim(
        name="robust.breakdown_of_clipping",
        theorem="CS+ breaks down at b = mu_min / 4, where the theorem ends: the worlds stop approaching.",
        formula=r"b = \mu_{\min}/4:\ \delta = 1",
        reference=PAPER,
        provenance="derived",
        quantity="ratio of squared distances in round 40",
        law=LowerBound(0.999),
        measure=last_contraction(4),
        control=last_contraction(3),
        control_text="one liar fewer: delta = 3/4, and the worlds meet",
        sweep=Sweep("attack", ("dissensus", "spectral", "alie", "foe")),
        seeds=(1, 5),
        tags=("robust", "breakdown"),
    ),
    Claim(
        name="robust.trimming_diverges",
        theorem="Far beyond its breakdown point NNA (GTS) is driven to infinity.",
        reference=PAPER,
        provenance="reconstructed",
        quantity="mean squared error per coordinate after 40 rounds",
        law=LowerBound(1e8),
        measure=last_error("gts"),
        control=last_error("cs+"),
        control_text="CS+, which clips: stuck, but bounded",
        sweep=Sweep("Byzantine neighbours f", (6,)),
        seeds=(2, 5),
        tags=("robust", "breakdown"),
    ),
]
