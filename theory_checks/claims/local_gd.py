"""Claims about Local GD for heterogeneous separable logistic regression (steps and two stages).

Local gradient flow, the quadratic counter-example and the margins are in `theory_checks.claims.local_flow`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from optikit.agent_data import AgentData
from optikit.data import prepare_features
from optikit.generators import random_separable, two_point
from optikit.objectives import LinearModel
from optikit.splits import split_by_similarity
from solvers.federated import LocalGD, TwoStageLocalGD, local_gd_path, max_margin
from theory_checks import (
    Claim,
    LowerBound,
    Measurement,
    PowerLaw,
    RatioConstant,
    Regime,
    Sweep,
    UpperBound,
    Value,
)

ICLR = "Crawshaw, Woodworth, Liu, Local Steps Speed Up Local GD, ICLR 2025"
ICML = "Crawshaw, Woodworth, Liu, Constant Stepsize Local GD, ICML 2025"
DERIVED = "derived for this toolkit from the self-bounding of the logistic loss"
R = 2048
K_QUICK, K_FULL = (1, 4, 16, 64), (1, 4, 16, 64, 256)

Measure = Callable[[Any, int], Any]


@cache
def margin_of(g: float, beta: float) -> float:
    return max_margin(two_point(g, beta).features).gamma


def loss_after(data: AgentData, step: float, K: int, rounds: int) -> float:
    """F(w_rounds): the path gives F(w_0) .. F(w_{rounds-1}), so one more round is walked."""
    return float(local_gd_path(data, step, K, rounds + 1)[1][rounds])


def over_local_steps(step: Callable[[int], float]) -> Measure:
    return lambda K, seed: loss_after(two_point(0.3, 0.5), step(K), K, R)


def over_rounds(step: float, K: int) -> Measure:
    """The whole path of one run; only the stable late phase is judged."""

    def measure(point: Any, seed: int) -> Measurement:
        values = local_gd_path(two_point(0.3, 0.5), step, K, R + 1)[1]
        rounds = np.unique(np.geomspace(256, R, 13).astype(int))
        return Measurement(values[rounds], x=rounds.astype(float))

    return measure


# -- two stages -------------------------------------------------------------------------------------------


def tuned_local_steps(eps: float) -> int:
    """K of the corollary, ``ceil(gamma / sqrt(42 M eps))`` with gamma = 0.6, M = 2."""
    return math.ceil(0.6 / math.sqrt(84 * eps))


def two_stage_rounds(switch: str) -> Measure:
    def measure(eps: float, seed: int) -> Measurement:
        solver = TwoStageLocalGD(tuned_local_steps(eps), switch=switch, margin=False, gamma=0.6)
        run = solver.solve(
            LinearModel(two_point(0.6, 1.0), "logistic"),
            max_rounds=200_000,
            tol=eps,
            record_every=10_000,
            check_every=1,
        )
        return Measurement(float(run.rounds), x=1 / eps)

    return measure


def small_step_rounds(eps: float, seed: int) -> Measurement:
    """Rounds of the small step 1/K; they do not depend on K, so K = 1 walks the long runs."""
    values = local_gd_path(two_point(0.6, 1.0), 1.0, 1, 4_000_000, stop_below=eps)[1]
    return Measurement(float(len(values) - 1), x=1 / eps)


def switch_round(step_factor: float) -> Measure:
    """First round with F below theta at the small step; theory: ``42 eta2 K M / (gamma^4 eta1 K)``."""

    def measure(K: int, seed: int) -> Measurement:
        theta = 0.36 / (42 * K * 2)
        values = local_gd_path(two_point(0.6, 1.0), step_factor / K, K, 400_000, stop_below=theta)[1]
        predicted = 42 * K * 2 / (0.6**4 * (1 / K) * K)
        return Measurement(float(len(values) - 1), predicted, x=float(K))

    return measure


def conserved(points: int, seed: int, *, factor: float = 1.0) -> Measurement:
    """``F(w_R) (1/F(w_r0) + eta2 gamma^2 K (R - r0))`` along stage 2 of the reference run."""
    K, theta, gamma = 16, 0.36 / (42 * 16 * 2), 0.6
    data = two_point(0.6, 1.0)
    w, _ = local_gd_path(data, 1 / K, K, 60_000, stop_below=theta)
    values = local_gd_path(data, 1.0, K, points + 1, x0=w)[1]
    s = np.arange(1, points + 1)
    return Measurement(values[1:] * (1 / values[0] + factor * gamma**2 * K * s), x=s.astype(float))


# -- the stage-2 theorem and the late phase ---------------------------------------------------------------


def increments(pooled: bool) -> Measure:
    """Smallest ``(1/F_{r+1} - 1/F_r) / (eta K gamma^2)`` from a teleported start, one instance per seed."""

    def measure(point: Any, seed: int) -> float:
        rng = np.random.default_rng(seed)
        M, n, d = int(rng.integers(2, 6)), int(rng.integers(1, 5)), int(rng.integers(3, 9))
        data = random_separable(M, n, d, seed)
        step, K = float(rng.choice([0.25, 1.0, 4.0])), int(rng.choice([1, 4, 16]))
        margin = max_margin(data.features)
        gamma = margin.gamma
        theta = min(gamma**2 / (42 * step * K * M), math.log(2) / (n * M))
        start, objective = margin.direction, LinearModel(data, "logistic")
        while np.mean(objective.value(start)) > theta:
            start = 1.2 * start
        values = local_gd_path(data, step, K, 200, x0=start)[1]
        if not pooled:  # the margin of the first client alone: larger, and not what the theorem speaks of
            gamma = 3.0 * max_margin(data.features[: max(1, n)]).gamma
        return float(np.min(np.diff(1 / values)) / (step * K * gamma**2))

    return measure


def phi(rounds: int, wrong_margin: float = 1.0) -> Measure:
    """Normalised loss ``F(w_R) gamma^2 eta K R`` where ``eta K R gamma^2 >= 20``."""

    def measure(point: tuple[float, float, float, int], seed: int) -> Measurement:
        g, beta, step, K = point
        gamma = wrong_margin * margin_of(g, beta)
        progress = step * K * rounds * margin_of(g, beta) ** 2
        value = loss_after(two_point(g, beta), step, K, rounds) * gamma**2 * step * K * rounds
        return Measurement(value, used=progress >= 20)

    return measure


# -- large constant steps ---------------------------------------------------------------------------------


def constant_step_bound(divide: float = 1.0) -> Measure:
    """Running mean of F against the bound of the follow-up, every round of an unstable run."""

    def measure(point: tuple[float, float, float, int], seed: int) -> Measurement:
        g, beta, step, K = point
        values = local_gd_path(two_point(g, beta), step, K, 1024)[1]
        gamma, r = margin_of(g, beta), np.arange(1, values.size + 1)
        mean = np.cumsum(values) / r
        bound = 26 * (1 + np.log(K + step * K * gamma**2 * r) ** 2 + (step * K) ** 2) / (step * gamma**4 * r)
        return Measurement(mean, bound / divide, x=r.astype(float))

    return measure


def stable_phase(scale: float = 1.0) -> Measure:
    """``F(w_r) <= 16/(eta gamma^2 K (r - tau))``, tau the entry into the stable phase."""

    def measure(point: tuple[float, float, float, int], seed: int) -> Measurement:
        g, beta, step, K = point
        gamma, M = margin_of(g, beta), 2
        rounds = int(3 * 70 * M / gamma**3)  # F reaches the threshold after about a third of these
        values = local_gd_path(two_point(g, beta), step, K, rounds)[1]
        entered = np.flatnonzero(values <= gamma / (70 * step * K * M))
        tau = int(entered[0]) if entered.size else values.size - 1
        r = np.arange(tau + 1, values.size)
        return Measurement(values[r], scale * 16 / (step * gamma**2 * K * (r - tau)), x=r.astype(float))

    return measure


def tuned_for_horizon(K: int) -> Measure:
    """F after R rounds at ``eta K = gamma^3 R / M``."""

    def measure(rounds: int, seed: int) -> float:
        gamma = margin_of(0.3, 0.5)
        return loss_after(two_point(0.3, 0.5), gamma**3 * rounds / 2 / K, K, rounds)

    return measure


def fixed_product(product: float) -> Measure:
    """Final loss at a fixed ``eta K``: more local steps hardly change it."""
    return lambda K, seed: loss_after(two_point(0.3, 0.5), product / K, K, R)


# -- real data --------------------------------------------------------------------------------------------


@cache
def digits_split() -> AgentData:
    """Digits 0 against 1 on 5 clients, half of the rows dealt by label."""
    from sklearn.datasets import load_digits

    table = load_digits()
    rows = np.isin(table.target, [0, 1])
    X, _ = prepare_features(table.data[rows])
    y = np.where(table.target[rows] == 1, 1.0, -1.0)
    return split_by_similarity(X, y, 5, 0.5, seed=0)


def on_digits(step: Callable[[int], float]) -> Measure:
    def measure(K: int, seed: int) -> float:
        solver = LocalGD(step(K), K, margin=False)
        return solver.solve(
            LinearModel(digits_split(), "logistic"), max_rounds=512, record_every=512
        ).objective

    return measure


EPS_QUICK, EPS_FULL = (1e-3, 1e-4, 1e-5), (1e-3, 1e-4, 1e-5, 1e-6)
EPS_FINE = tuple(10.0 ** (-0.5 * k) for k in range(6, 13))  # half decades: the slope bends at first
PHI_POINTS = tuple(
    (g, beta, step, K)
    for g, beta in ((0.3, 0.5), (0.6, 1.0), (0.1, 0.3))
    for step in (0.0625, 1.0, 16.0)
    for K in (1, 16, 64)
)
UNSTABLE = ((0.1, 0.3, 256.0, 64), (0.3, 0.5, 16.0, 16), (0.3, 0.5, 64.0, 4))
STEPS_OVER_K = Sweep("local steps K", K_QUICK, K_FULL)

CLAIMS = [
    Claim(
        name="local_gd.small_step.local_steps",
        theorem="At the small step 1/K more local steps do not help: the guarantee is O(1/(gamma^2 R)).",
        reference=ICLR,
        provenance="stated",
        quantity="F(w_R)",
        law=PowerLaw(0.0, 0.02),
        measure=over_local_steps(lambda K: 1 / K),
        control=over_local_steps(lambda K: 1.0),
        control_text="a step that does not shrink with K: slope -1",
        sweep=STEPS_OVER_K,
        tags=("local_gd", "slope"),
    ),
    Claim(
        name="local_gd.small_step.rounds",
        theorem="At the small step the loss falls like 1/R.",
        reference=ICLR,
        provenance="stated",
        quantity="F(w_r)",
        law=PowerLaw(-1.0, 0.06, regime=Regime(x_min=256)),
        measure=over_rounds(1 / 16, 16),
        control=lambda point, seed: Measurement(
            np.sqrt(over_rounds(1 / 16, 16)(point, seed).value), x=over_rounds(1 / 16, 16)(point, seed).x
        ),
        control_text="the square root of the loss: the rate of general non-smooth problems",
        sweep=Sweep("run", (0,), axis="round"),
        tags=("local_gd", "slope"),
    ),
    Claim(
        name="local_gd.fixed_step.local_steps",
        theorem="At a fixed step the final loss falls like 1/K: local steps speed Local GD up.",
        formula=r"F(w_R) \sim 1/(\eta\gamma^2 K R)",
        reference=ICLR,
        provenance="stated",
        quantity="F(w_R)",
        law=PowerLaw(-1.0, 0.03),
        measure=over_local_steps(lambda K: 1.0),
        control=over_local_steps(lambda K: 1 / K),
        control_text="step 1/K: more local steps do not help",
        sweep=STEPS_OVER_K,
        tags=("local_gd", "slope"),
    ),
    Claim(
        name="local_gd.fixed_step.rounds",
        theorem="At a fixed step the loss falls like 1/R.",
        reference=ICLR,
        provenance="stated",
        quantity="F(w_r)",
        law=PowerLaw(-1.0, 0.06, regime=Regime(x_min=256, after_last_increase=True)),
        measure=over_rounds(1.0, 16),
        control=lambda point, seed: Measurement(
            over_rounds(1.0, 16)(point, seed).value ** 2, x=over_rounds(1.0, 16)(point, seed).x
        ),
        control_text="the square of the loss: the rate of a step tuned to the horizon",
        sweep=Sweep("run", (0,), axis="round"),
        tags=("local_gd", "slope"),
    ),
    Claim(
        name="local_gd.fixed_step.step_size",
        theorem="The final loss falls like 1/eta.",
        reference=ICLR,
        provenance="derived",
        quantity="F(w_R)",
        law=PowerLaw(-1.0, 0.03),
        measure=lambda step, seed: loss_after(two_point(0.3, 0.5), step, 16, R),
        control=lambda step, seed: loss_after(two_point(0.3, 0.5), step, max(1, round(16 / step)), R),
        control_text="as many local steps fewer: the product eta K is what counts",
        sweep=Sweep("step size eta", (0.25, 1.0, 4.0, 16.0), (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)),
        tags=("local_gd", "slope"),
    ),
    Claim(
        name="local_gd.two_stage.rounds_over_eps",
        theorem="Two stages with K of order gamma/sqrt(M eps) need of order eps^(-1/2) rounds.",
        formula=r"R = O(\sqrt{M}/(\gamma^3\sqrt{\epsilon}))",
        reference=ICLR,
        provenance="stated",
        quantity="rounds to F <= eps",
        law=PowerLaw(0.5, 0.06),
        measure=two_stage_rounds("loss"),
        control=small_step_rounds,
        control_text="small steps throughout: slope 1 in 1/eps",
        sweep=Sweep("1/eps", EPS_FINE, label=lambda eps: f"eps={eps:.2g}"),
        control_sweep=Sweep("1/eps", EPS_QUICK, label=lambda eps: f"eps={eps:g}"),
        tags=("local_gd", "slope"),
    ),
    Claim(
        name="local_gd.two_stage.practical_switch",
        theorem="The practical switch, which needs no margin, keeps the rate eps^(-1/2).",
        reference=DERIVED,
        provenance="derived",
        quantity="rounds to F <= eps",
        law=PowerLaw(0.5, 0.08),
        measure=two_stage_rounds("practical"),
        control=small_step_rounds,
        control_text="small steps throughout: slope 1 in 1/eps",
        sweep=Sweep("1/eps", EPS_FINE, label=lambda eps: f"eps={eps:.2g}"),
        control_sweep=Sweep("1/eps", EPS_QUICK, label=lambda eps: f"eps={eps:g}"),
        tags=("local_gd", "slope"),
    ),
    Claim(
        name="local_gd.small_step.rounds_over_eps",
        theorem="Every small-step guarantee needs of order 1/eps rounds.",
        reference=ICLR,
        provenance="stated",
        quantity="rounds to F <= eps",
        law=PowerLaw(1.0, 0.03),
        measure=small_step_rounds,
        control=two_stage_rounds("loss"),
        control_text="two stages: slope 1/2",
        sweep=Sweep("1/eps", EPS_QUICK, EPS_FULL, label=lambda eps: f"eps={eps:g}"),
        tags=("local_gd", "slope"),
    ),
    Claim(
        name="local_gd.two_stage.warm_up_formula",
        theorem="The first stage takes 42 eta2 K M / (gamma^4 eta1 K) rounds to leading order.",
        reference=DERIVED,
        provenance="derived",
        quantity="first round with F <= theta",
        law=Value(rel=0.01),
        measure=switch_round(1.0),
        control=switch_round(2.0),
        control_text="a first step twice as large: half the rounds",
        sweep=Sweep("local steps K", (4, 16), (4, 16, 64)),
        tags=("local_gd", "value"),
    ),
    Claim(
        name="local_gd.two_stage.conserved_quantity",
        theorem="In stage 2 on the two-point family 1/F grows by exactly eta2 K gamma^2 a round.",
        formula=r"F(w_R)\,(1/F(w_{r_0}) + \eta_2\gamma^2 K (R - r_0)) = 1",
        reference=DERIVED,
        provenance="derived",
        quantity="F (1/F_r0 + eta gamma^2 K s)",
        law=Value(1.0, abs=0.005),
        measure=lambda point, seed: conserved(4604, seed),
        control=lambda point, seed: conserved(4604, seed, factor=0.9),
        control_text="an increment ten per cent too small",
        sweep=Sweep("run", (0,), axis="rounds of stage 2"),
        tags=("local_gd", "value"),
    ),
    Claim(
        name="local_gd.stage_two.increments",
        theorem="After the trigger 1/F grows by at least half of eta K gamma^2 in every round.",
        formula=r"1/F(w_{r+1}) \geq 1/F(w_r) + \eta K\gamma^2/2",
        reference=DERIVED,
        provenance="derived",
        quantity="smallest increment of 1/F over eta K gamma^2",
        law=LowerBound(0.5),
        measure=increments(True),
        control=increments(False),
        control_text="three times one client's own margin in place of the pooled one",
        sweep=Sweep.once("random instance"),
        seeds=(20, 100),
        tags=("local_gd", "bound"),
    ),
    Claim(
        name="local_gd.late_phase.normalised_loss",
        theorem="Late, the gradient aligns with the max-margin direction and F gamma^2 eta K r tends to 1.",
        formula=r"\Phi_r = F(w_r)\gamma^2\eta K r \to 1",
        reference=DERIVED,
        provenance="derived",
        quantity="normalised loss after 2048 rounds",
        law=RatioConstant(1.25 / 0.9, low=0.9, high=1.25),
        measure=phi(R),
        control=phi(R, wrong_margin=1.5),
        control_text="a margin half as large again",
        sweep=Sweep("(g, beta, eta, K)", PHI_POINTS),
        tags=("local_gd", "value"),
    ),
    Claim(
        name="local_gd.constant_step.bound",
        theorem="For every step and every K the running mean of F obeys the explicit bound.",
        reference=ICML,
        provenance="stated",
        quantity="mean of F(w_0)..F(w_{r-1})",
        law=UpperBound(),
        measure=constant_step_bound(),
        control=constant_step_bound(divide=1e13),
        control_text="the bound divided by 1e13: it is loose by about 1e11, not by more",
        sweep=Sweep("(g, beta, eta, K)", UNSTABLE, axis="round"),
        tags=("local_gd", "bound"),
    ),
    Claim(
        name="local_gd.constant_step.stable_phase",
        theorem="From the entry tau into the stable phase F <= 16/(eta gamma^2 K (r - tau)).",
        reference=ICML,
        provenance="stated",
        quantity="F(w_r)",
        law=UpperBound(),
        measure=stable_phase(),
        control=stable_phase(1 / 32),
        control_text="half of the late-phase law itself, 1/(2 eta gamma^2 K (r - tau))",
        sweep=Sweep("(g, beta, eta, K)", ((0.6, 1.0, 16.0, 16), (0.3, 0.5, 16.0, 16)), axis="round"),
        tags=("local_gd", "bound"),
    ),
    Claim(
        name="local_gd.tuned_step.rounds",
        theorem="With eta K = gamma^3 R / M the loss after R rounds falls like R^-2.",
        formula=r"F(w_R) = O(M/(\gamma^5 R^2))",
        reference=ICML,
        provenance="stated",
        quantity="F(w_R)",
        law=PowerLaw(-2.0, 0.06),
        measure=tuned_for_horizon(16),
        control=lambda rounds, seed: loss_after(two_point(0.3, 0.5), 1.0, 16, rounds),
        control_text="a step that does not grow with the horizon: slope -1",
        sweep=Sweep("rounds R", (256, 512, 1024, 2048), (256, 512, 1024, 2048, 4096, 8192)),
        tags=("local_gd", "slope"),
    ),
    Claim(
        name="local_gd.fixed_product",
        theorem="At a fixed product eta K more local steps hardly change the final loss.",
        reference="the honest reading of both papers; measured",
        provenance="derived",
        quantity="F(w_R)",
        law=RatioConstant(1.1),
        measure=fixed_product(64.0),
        control=over_local_steps(lambda K: 1.0),
        control_text="a fixed step: the loss falls like 1/K",
        sweep=Sweep("local steps K", K_QUICK),
        tags=("local_gd", "value"),
    ),
    Claim(
        name="local_gd.digits.local_steps",
        theorem="On digits 0 against 1 (5 clients) a fixed step gives a loss that falls nearly like 1/K.",
        reference=ICLR,
        provenance="stated",
        quantity="F(w_512)",
        law=PowerLaw(-0.894, 0.05),
        measure=on_digits(lambda K: 16.0),
        control=on_digits(lambda K: 1 / K),
        control_text="step 1/K: slope 0",
        sweep=Sweep("local steps K", (1, 2, 4, 8, 16, 32, 64)),
        tags=("local_gd", "slope", "real data"),
    ),
]
