"""Claims about the optimal non-smooth method over time-varying networks, and its lower bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from optikit.graphs import complete
from optikit.mixing import metropolis
from optikit.network import Network
from optikit.objectives import reference_optimum
from solvers.decentralized.adom import ZOSADOM
from solvers.decentralized.nonsmooth import NonsmoothTimeVarying, convex_mode
from solvers.decentralized.subgradient import DecentralizedSubgradient
from theory_checks import Claim, Invariant, Measurement, PowerLaw, RatioConstant, Regime, Sweep, UpperBound
from theory_checks.hard_instances import ChainInstance, MaxInstance, first_round_within
from theory_checks.instances import as_mixing, l1_regression
from theory_checks.span_methods import chain, excess_support, span_methods

PAPER = "Kovalev, Borodich, Gasnikov, Feoktistov, NeurIPS 2024 (lower bounds and optimal algorithms)"
DERIVED = "explicit constants derived for this toolkit on the scheme of Kovalev et al., NeurIPS 2024"
M, R_STRONG = 1.0, 0.1
CHI_9 = 25 / 9
BUDGET = 20_000

Measure = Callable[[Any, int], Any]

# -- rounds to half the lower bound's gap -----------------------------------------------------------------


@cache
def optimal_rounds(m: int, d: int) -> float:
    """Rounds of the optimal method on the chain with m agents per group, r > 0."""
    chain = ChainInstance(m, d, M, R_STRONG)
    chi = chain.topology().chi()
    T = math.ceil(6 * M / (chi * math.sqrt(2 * R_STRONG * chain.half_bound)))
    solver = NonsmoothTimeVarying(r=R_STRONG, inner_steps=T, chi=chi, with_certificate=False)
    return _found(first_round_within(solver, chain, chain.topology(), chain.half_bound, BUDGET))


@cache
def dsm_rounds(m: int, d: int) -> float:
    """Rounds of the distributed subgradient method on the same instance, s = 0.5."""
    chain = ChainInstance(m, d, M, R_STRONG)
    solver = DecentralizedSubgradient(scale=0.5, r=R_STRONG, output="last")
    topology = as_mixing(chain.topology())
    return _found(first_round_within(solver, chain, topology, chain.half_bound, BUDGET))


@cache
def convex_rounds(d: int) -> float:
    """Rounds of the optimal method in convex mode, R = 1."""
    chain = ChainInstance(3, d, M, 0.0, R=1.0)
    r = convex_mode(chain.half_bound, 1.0, M)
    T = math.ceil(6 * M / (CHI_9 * math.sqrt(r * chain.half_bound)))
    solver = NonsmoothTimeVarying(r=r, inner_steps=T, chi=CHI_9, with_certificate=False)
    return _found(first_round_within(solver, chain, chain.topology(), chain.half_bound, BUDGET))


@cache
def convex_dsm_rounds(d: int) -> float:
    """Best of four step sizes of the subgradient method on the convex chain."""
    chain = ChainInstance(3, d, M, 0.0, R=1.0)
    topology = as_mixing(chain.topology())
    rounds = [
        first_round_within(
            DecentralizedSubgradient(scale=s, output="last"), chain, topology, chain.half_bound, 6000
        )
        for s in (0.1, 0.3, 1.0, 3.0)
    ]
    return min((float(n) for n in rounds if n is not None), default=math.nan)


@cache
def oracle_calls(d: int) -> float:
    """Subgradients K T on the oracle-hard maximum, T = 1, complete graph (chi = 1)."""
    instance = MaxInstance(4, d, M, R_STRONG)
    solver = NonsmoothTimeVarying(r=R_STRONG, inner_steps=1, chi=1.0, with_certificate=False)
    topology = metropolis(complete(4))
    return _found(first_round_within(solver, instance, topology, instance.half_bound, BUDGET))


def _found(rounds: int | None) -> float:
    return math.nan if rounds is None else float(rounds)


def over_eps(rounds: Callable[[int], float], strong: bool = True) -> Callable[[int, int], Measurement]:
    """Measurement of `rounds(d)` against 1/eps, eps half the lower bound of dimension d."""

    def measure(d: int, seed: int) -> Measurement:
        chain = ChainInstance(3, d, M, R_STRONG if strong else 0.0, R=1.0)
        return Measurement(rounds(d), x=1 / chain.half_bound)

    return measure


def over_chi(rounds: Callable[[int, int], float]) -> Callable[[int, int], Measurement]:
    def measure(m: int, seed: int) -> Measurement:
        return Measurement(rounds(m, 6), x=ChainInstance(m, 6, M, R_STRONG).topology().chi())

    return measure


def ratio_to_lower_bound(rounds: Callable[[int, int], float]) -> Callable[[tuple[int, int], int], float]:
    def measure(point: tuple[int, int], seed: int) -> float:
        m, d = point
        return rounds(m, d) / ChainInstance(m, d, M, R_STRONG).rounds_needed

    return measure


# -- bounds on random instances ---------------------------------------------------------------------------


@dataclass(frozen=True)
class DoubledDualStep(NonsmoothTimeVarying):
    """The wrong variant: twice the step tau_y of the theorem, which is tight on the chain."""

    def init(self, objective: Any, network: Network, x0: Any) -> Any:
        state = super().init(objective, network, x0)
        return replace(state, schedule=replace(state.schedule, tau_y=2 * state.schedule.tau_y))


def bounded(kind: str, method: type[NonsmoothTimeVarying] = NonsmoothTimeVarying) -> Measure:
    """Certified gap or consensus error against its explicit bound along a run on the chain or on E2."""

    def measure(point: tuple[str, int], seed: int) -> Measurement:
        name, T = point
        if name == "chain":
            model: Any = ChainInstance(3, 6, M, R_STRONG)
            topology = model.topology()
        else:
            model, topology = l1_regression()
        chi, r = topology.chi(), R_STRONG
        solver = method(r=r, inner_steps=T, chi=chi)
        history = solver.solve(model, Network(topology), max_rounds=800, record_every=10).history
        K = history["round"][1:]
        if kind == "gap":
            limit = M**2 / r * (121 * chi**2 / (K * (K + 1)) + 480 / ((K + 1) * (T + 3)))
            return Measurement(history["gap"][1:], limit, x=K)
        limit = M / r * (230 * chi**2 / (K * (K + 1)) + 240 / ((K + 1) * (T + 3)))
        return Measurement(history["consensus_error"][1:], limit, x=K)

    return measure


def lower_bound_below_optimum(shift: float) -> Callable[[int, int], Measurement]:
    def measure(T: int, seed: int) -> Measurement:
        model, topology = l1_regression()
        optimum = reference_optimum(model, l2=R_STRONG).value
        solver = NonsmoothTimeVarying(r=R_STRONG, inner_steps=T, chi=topology.chi())
        history = solver.solve(model, Network(topology), max_rounds=400, record_every=5).history
        bound = history["lower_bound"][1:]
        if shift:  # the minorant's value at 0 without the conjugate of the ridge term: not a lower bound
            bound = history["objective"][1:] - shift * (history["objective"][1:] - bound)
        return Measurement(bound, optimum, x=history["round"][1:])

    return measure


def gap_after(T_large: int, kind: str) -> Callable[[int, int], Measurement]:
    """Gap along the rounds of one run on the chain instance with a large T, or of DSM."""

    def measure(d: int, seed: int) -> Measurement:
        model, topology = l1_regression()
        optimum = reference_optimum(model, l2=R_STRONG).value
        if kind == "optimal":
            solver: Any = NonsmoothTimeVarying(r=R_STRONG, inner_steps=T_large, chi=topology.chi())
        else:
            solver = DecentralizedSubgradient(0.3, R_STRONG)
            topology = as_mixing(topology)
        run = solver.solve(model, Network(topology), max_rounds=1600, record_every="log")
        rounds, gap = run.history["round"], run.history["objective"] - optimum
        inside = (rounds >= 100) & (gap > 0)
        return Measurement(gap[inside], x=rounds[inside])

    return measure


# -- the support invariant --------------------------------------------------------------------------------


def within_reach(solver: Any, topology: Any) -> bool:
    """Whether every variable stays zero beyond the coordinates that the rounds so far can have reached."""
    return not excess_support(solver, topology)[0]


BOUND_SWEEP = Sweep(
    "instance and inner steps T",
    (("L1 regression", 3), ("L1 regression", 10), ("chain", 10)),
    (("L1 regression", 3), ("L1 regression", 10), ("L1 regression", 40), ("chain", 10), ("chain", 55)),
    axis="round",
)
BOUND_CONTROL = Sweep("instance and inner steps T", (("chain", 55),), axis="round")
D_QUICK, D_FULL = (4, 6, 8, 12), (4, 6, 8, 12, 16, 24)

CLAIMS = [
    Claim(
        name="nonsmooth.rounds_over_eps",
        theorem="Strongly convex case: the optimal method needs Theta(chi M / sqrt(r eps)) rounds.",
        formula=r"N = \Theta(\chi M / \sqrt{r\epsilon})",
        reference=PAPER,
        provenance="stated",
        quantity="rounds to half the lower bound's gap",
        law=PowerLaw(0.5, 0.05),
        measure=over_eps(lambda d: optimal_rounds(3, d)),
        control=over_eps(lambda d: dsm_rounds(3, d)),
        control_text="the distributed subgradient method: slope 1 in 1/eps",
        sweep=Sweep("1/eps", D_QUICK, D_FULL, label=lambda d: f"d={d}"),
        control_sweep=Sweep("1/eps", (4, 6, 8), (4, 6, 8, 12, 16), label=lambda d: f"d={d}"),
        tags=("nonsmooth", "slope"),
    ),
    Claim(
        name="nonsmooth.dsm_rounds_over_eps",
        theorem="The distributed subgradient method needs rounds proportional to 1/eps on the same instance.",
        reference=PAPER,
        provenance="derived",
        quantity="rounds to half the lower bound's gap",
        law=PowerLaw(1.0, 0.1),
        measure=over_eps(lambda d: dsm_rounds(3, d)),
        control=over_eps(lambda d: optimal_rounds(3, d)),
        control_text="the optimal method: slope 1/2",
        sweep=Sweep("1/eps", (4, 6, 8), (4, 6, 8, 12, 16), label=lambda d: f"d={d}"),
        tags=("nonsmooth", "slope"),
    ),
    Claim(
        name="nonsmooth.rounds_over_chi",
        theorem="The rounds grow linearly in chi; no square root is possible when links change arbitrarily.",
        formula=r"N = \Theta(\chi)",
        reference=PAPER,
        provenance="stated",
        quantity="rounds to half the lower bound's gap",
        law=PowerLaw(1.0, 0.1),
        measure=over_chi(optimal_rounds),
        control=over_chi(lambda m, d: math.sqrt(optimal_rounds(m, d) * optimal_rounds(2, d))),
        control_text="the rounds that an accelerated dependence sqrt(chi) would give",
        sweep=Sweep("chi", (2, 4, 8, 16), label=lambda m: f"m={m}"),
        tags=("nonsmooth", "slope"),
    ),
    Claim(
        name="nonsmooth.ratio_to_lower_bound",
        theorem="Rounds needed over rounds that every span method needs: a constant, here between 10 and 30.",
        reference=DERIVED,
        provenance="derived",
        quantity="N / N_lower",
        law=RatioConstant(1.4, low=10, high=30),
        measure=ratio_to_lower_bound(optimal_rounds),
        control=ratio_to_lower_bound(dsm_rounds),
        control_text="the distributed subgradient method moves away from the lower bound as eps falls",
        sweep=Sweep(
            "instance (m, d)",
            ((3, 4), (3, 6), (3, 8), (2, 6), (4, 6)),
            ((3, 4), (3, 6), (3, 8), (3, 12), (3, 16), (3, 24), (2, 6), (4, 6), (8, 6), (16, 6)),
        ),
        control_sweep=Sweep("instance (m, d)", ((3, 4), (3, 6), (3, 8))),
        tags=("nonsmooth", "lower bound"),
    ),
    Claim(
        name="nonsmooth.convex_rounds_over_eps",
        theorem="Convex case: the optimal method needs Theta(chi M R / eps) rounds.",
        formula=r"N = \Theta(\chi M R/\epsilon)",
        reference=PAPER,
        provenance="stated",
        quantity="rounds to half the lower bound's gap",
        law=PowerLaw(1.0, 0.05),
        measure=over_eps(convex_rounds, strong=False),
        control=over_eps(convex_dsm_rounds, strong=False),
        control_text="the distributed subgradient method, best of four step sizes: slope 2",
        sweep=Sweep("1/eps", (4, 6, 8), (4, 6, 8, 12, 16), label=lambda d: f"d={d}"),
        tags=("nonsmooth", "slope"),
    ),
    Claim(
        name="nonsmooth.oracle_calls_over_eps",
        theorem="Subgradients per agent: Theta(M^2 / (r eps)).",
        formula=r"KT = \Theta(M^2/(r\epsilon))",
        reference=PAPER,
        provenance="stated",
        quantity="K T to half the lower bound's gap",
        law=PowerLaw(1.0, 0.1),
        measure=lambda d, seed: Measurement(oracle_calls(d), x=1 / MaxInstance(4, d, M, R_STRONG).half_bound),
        control=lambda d, seed: Measurement(
            math.sqrt(oracle_calls(d)), x=1 / MaxInstance(4, d, M, R_STRONG).half_bound
        ),
        control_text="the square root of the calls: the rate of the rounds, impossible for the oracle",
        sweep=Sweep("1/eps", (16, 32, 64, 128, 256), label=lambda d: f"d={d}"),
        tags=("nonsmooth", "slope"),
    ),
    Claim(
        name="nonsmooth.gap_bound",
        theorem="The certified gap obeys the explicit bound at every round.",
        formula=r"gap \leq (M^2/r)\,[121\chi^2/(K(K+1)) + 480/((K+1)(T+3))]",
        reference=DERIVED,
        provenance="derived",
        quantity="certified gap",
        law=UpperBound(),
        measure=bounded("gap"),
        control=bounded("gap", DoubledDualStep),
        control_text="tau_y doubled: the condition of the theorem is tight, the chain diverges",
        control_sweep=BOUND_CONTROL,
        sweep=BOUND_SWEEP,
        tags=("nonsmooth", "bound"),
    ),
    Claim(
        name="nonsmooth.consensus_bound",
        theorem="The consensus error of the averages obeys its explicit bound at every round.",
        formula=r"\|P\bar X\|_F/\sqrt{n} \leq (M/r)\,[230\chi^2/(K(K+1)) + 240/((K+1)(T+3))]",
        reference=DERIVED,
        provenance="derived",
        quantity="consensus error (RMS)",
        law=UpperBound(),
        measure=bounded("consensus"),
        control=bounded("consensus", DoubledDualStep),
        control_text="tau_y doubled: the condition of the theorem is tight, the chain diverges",
        control_sweep=BOUND_CONTROL,
        sweep=BOUND_SWEEP,
        tags=("nonsmooth", "bound"),
    ),
    Claim(
        name="nonsmooth.certificate_is_a_lower_bound",
        theorem="The affine minorant gives a lower bound on the optimal value at every round.",
        reference=DERIVED,
        provenance="derived",
        quantity="lower bound against p*",
        law=UpperBound(abs=1e-8),
        measure=lower_bound_below_optimum(0.0),
        control=lower_bound_below_optimum(0.01),
        control_text="the certified gap divided by a hundred: no longer a lower bound",
        sweep=Sweep("inner steps T", (5,), (5, 20), axis="round"),
        tags=("nonsmooth", "bound", "certificate"),
    ),
    Claim(
        name="nonsmooth.gap_over_rounds",
        theorem="On a fixed instance with many inner steps the gap falls like K^-2 (slope at most -1.6).",
        reference=DERIVED,
        provenance="derived",
        quantity="p(x) - p*",
        law=PowerLaw(-2.0, (math.inf, 0.4), regime=Regime(floor=1e-10)),
        measure=gap_after(100, "optimal"),
        control=gap_after(0, "dsm"),
        control_text="the distributed subgradient method: about K^-1",
        sweep=Sweep.once("random L1 regression"),
        tags=("nonsmooth", "slope"),
    ),
    Claim(
        name="nonsmooth.support_invariant",
        theorem="After N rounds on the chain no span method has reached past coordinate 1 + floor(N/(m+1)).",
        reference=PAPER,
        provenance="derived",
        quantity="all exchanged variables within reach",
        law=Invariant(),
        measure=lambda name, seed: within_reach(*span_methods()[name]),
        control=lambda name, seed: within_reach(ZOSADOM(M, R_STRONG, 0.1, chi=CHI_9), chain().topology()),
        control_text="ZO-SADOM: its random directions leave the span of the subgradients",
        sweep=Sweep("method", tuple(span_methods())),
        control_sweep=Sweep.once("ZO-SADOM"),
        tags=("nonsmooth", "lower bound", "invariant"),
    ),
]
