"""Every law accepts what it states, rejects what it does not, and says when it cannot tell."""

import numpy as np
import pytest
from toy_claims import make

from theory_checks import (
    Coverage,
    Equality,
    Invariant,
    LinearRate,
    LowerBound,
    Measurement,
    Monotone,
    PowerLaw,
    RatioConstant,
    Regime,
    Sweep,
    UpperBound,
    Value,
)

POINTS = (1, 2, 4, 8, 16)


def judge(law, measure, points=POINTS, seeds=1, **sweep):
    claim = make(
        "a.claim", law, measure, lambda point, seed: 1.0, sweep=Sweep("k", points, **sweep), seeds=seeds
    )
    results = [(i, s, measure(point, s)) for i, point in enumerate(points) for s in range(seeds)]
    return law.judge(claim.observe("measure", "quick", results))


def noise(point, seed, scale=0.05):
    return float(np.exp(scale * np.random.default_rng((seed, int(point))).standard_normal()))


@pytest.mark.parametrize(
    ("law", "measure", "verdict"),
    [
        (PowerLaw(-1, 0.05), lambda p, s: 3 / p, "pass"),
        (PowerLaw(-1, 0.05), lambda p, s: 3 / p**1.2, "fail"),
        (PowerLaw(-1, (np.inf, 0.0)), lambda p, s: p**-1.2, "pass"),
        (PowerLaw(-1, (0.0, np.inf)), lambda p, s: p**-1.2, "fail"),
        (PowerLaw(-1, 0.05), lambda p, s: np.nan if p == 4 else 1 / p, "fail"),
        (PowerLaw(-1, 0.05), lambda p, s: 0.0 if p == 16 else 1 / p, "fail"),
        (PowerLaw(-1, 0.05, regime=Regime(floor=0.0)), lambda p, s: 0.0 if p == 16 else 1 / p, "pass"),
        (PowerLaw(-1, 0.05, regime=Regime(x_min=5)), lambda p, s: 1 / p, "inconclusive"),
        (PowerLaw(-1, 0.05, regime=Regime(x_min=50)), lambda p, s: 1 / p, "inconclusive"),
        (PowerLaw(0, 0.2, max_residual=0.1), lambda p, s: 1 + (p == 4), "fail"),
        (LinearRate(0.5, 0.01), lambda p, s: p * 0.5 ** np.arange(10), "pass"),
        (LinearRate(0.5, 0.01), lambda p, s: p * 0.52 ** np.arange(10), "fail"),
        (LinearRate(0.9, (np.inf, 0.0)), lambda p, s: p * 0.5 ** np.arange(10), "pass"),
        (Value(2.0, rel=1e-3), lambda p, s: 2.001, "pass"),
        (Value(2.0, rel=1e-3), lambda p, s: 2.01 if p == 8 else 2.0, "fail"),
        (Value({p: p**2 for p in POINTS}, abs=1e-9), lambda p, s: p * p, "pass"),
        (Value(lambda p: p + 1, abs=1e-9), lambda p, s: p, "fail"),
        (Value(2.0, rel=1e-3), lambda p, s: np.inf, "fail"),
        (Equality(rel=1e-12), lambda p, s: Measurement(0.1 + 0.2, 0.3), "pass"),
        (Equality(exact=True), lambda p, s: Measurement(0.1 + 0.2, 0.3), "fail"),
        (Equality(exact=True), lambda p, s: Measurement(np.ones(3), np.ones(3)), "pass"),
        (RatioConstant(1.4), lambda p, s: 20 + p, "fail"),
        (RatioConstant(1.9, low=10, high=40), lambda p, s: 20 + p, "pass"),
        (RatioConstant(1.9, low=10, high=30), lambda p, s: 20 + p, "fail"),
        (UpperBound(1.0), lambda p, s: 1 / p, "pass"),
        (UpperBound(1.0), lambda p, s: 2 / p, "fail"),
        (UpperBound(0.0, abs=1e-12), lambda p, s: 1e-13, "pass"),
        (UpperBound(), lambda p, s: Measurement(np.array([1.0, 3.0]), np.array([1.0, 2.0])), "fail"),
        (LowerBound(lambda p: 0.5 / p), lambda p, s: 1 / p, "pass"),
        (LowerBound(0.5), lambda p, s: 1 / p, "fail"),
        (LowerBound(0.5), lambda p, s: np.nan, "fail"),
        (Monotone(), lambda p, s: 1 / p, "pass"),
        (Monotone(), lambda p, s: np.array([3.0, 1.0, 2.0]), "fail"),
        (Monotone(abs=1.5), lambda p, s: np.array([3.0, 1.0, 2.0]), "pass"),
        (Monotone(strict=True), lambda p, s: 1.0, "fail"),
        (Monotone("increasing", strict=True), lambda p, s: p, "pass"),
        (Coverage(0.9, 0.08), lambda p, s: Measurement(270, 300), "pass"),
        (Coverage(0.9, 0.08), lambda p, s: Measurement(180, 300), "fail"),
        (Coverage(0.9, 0.08), lambda p, s: Measurement(9, 10), "inconclusive"),
        (Coverage(0.9, (0.0, np.inf)), lambda p, s: Measurement(300, 300), "pass"),
        (Invariant(), lambda p, s: True, "pass"),
        (Invariant(), lambda p, s: np.array([True, p != 4]), "fail"),
    ],
)  # fmt: skip
def test_the_law_gives_the_verdict(law, measure, verdict):
    judgement = judge(law, measure)
    assert judgement.verdict == verdict, judgement.message
    assert judgement.message


def test_a_noisy_slope_is_judged_by_its_interval():
    assert judge(PowerLaw(-1, 0.1), lambda p, s: noise(p, s) / p, seeds=6).verdict == "pass"
    assert judge(PowerLaw(-1, 0.1), lambda p, s: noise(p, s, 2.0) / p, seeds=3).verdict == "inconclusive"


def test_a_mean_over_seeds_is_judged_by_its_interval():
    assert judge(Value(1.0, abs=0.05), noise, seeds=20).verdict == "pass"
    assert judge(Value(1.0, abs=0.05), lambda p, s: noise(p, s, 1.0), seeds=4).verdict != "pass"
    assert judge(Value(1.0, abs=0.05, over="each"), noise, seeds=20).verdict == "fail"


def test_a_bound_on_an_expectation_may_be_crossed_by_single_seeds():
    assert judge(UpperBound(1.05), noise, seeds=20).verdict == "fail"
    assert judge(UpperBound(1.05, over="mean"), noise, seeds=20).verdict == "pass"
    assert judge(UpperBound(1.001, over="mean"), noise, seeds=4).verdict == "inconclusive"


def test_a_monotone_mean_allows_noise_of_single_seeds():
    def curve(point, seed):
        return 10.0 - np.arange(4) + np.random.default_rng(seed).standard_normal(4)

    assert judge(Monotone(), curve, points=(1,), seeds=40).verdict == "fail"
    assert judge(Monotone(over="mean"), curve, points=(1,), seeds=40).verdict == "pass"


def test_a_ratio_that_noise_can_explain_is_inconclusive():
    assert judge(RatioConstant(1.02), lambda p, s: noise(p, s, 0.2), seeds=4).verdict == "inconclusive"


def test_each_group_has_its_own_slope_and_the_worst_counts():
    points = [(name, x) for name in ("ring", "star") for x in (1, 2, 4)]
    exponents = {"ring": -1.0, "star": -2.0}
    judgement = judge(
        PowerLaw(-1, 0.1),
        lambda p, s: 2 * p[1] ** exponents[p[0]],
        points=points,
        x=lambda p: p[1],
        group=lambda p: p[0],
    )
    assert judgement.verdict == "fail"
    assert [(e.group, round(e.value, 6)) for e in judgement.estimates] == [("ring", -1), ("star", -2)]
    assert "star" in judgement.message


def test_rows_marked_unused_are_not_judged():
    values, used = np.array([np.nan, 1.0, 5.0]), np.array([False, True, False])
    assert judge(UpperBound(2.0), lambda p, s: Measurement(values, used=used)).verdict == "pass"


def test_a_divergence_is_named_with_its_place():
    judgement = judge(PowerLaw(-1, 0.1), lambda p, s: np.inf if p == 4 and s == 1 else 1 / p, seeds=2)
    assert judgement.verdict == "fail"
    assert "inf at 4 (seed 1)" in judgement.message


def test_a_measurement_may_bring_its_own_abscissa():
    law = PowerLaw(-1, 0.01)
    assert judge(law, lambda p, s: Measurement(1 / (p + 3), x=p + 3)).verdict == "pass"


def test_a_missing_reference_is_named():
    with pytest.raises(ValueError, match=r"the bound at 1 must be a number"):
        judge(UpperBound(), lambda p, s: 1.0)


@pytest.mark.parametrize(
    "build",
    [
        lambda: PowerLaw(np.nan, 0.1),
        lambda: PowerLaw(-1, -0.1),
        lambda: PowerLaw(-1, np.inf),
        lambda: PowerLaw(-1, 0.1, average="median"),
        lambda: PowerLaw(-1, 0.1, min_points=1),
        lambda: LinearRate(0.0, 0.1),
        lambda: Value(1.0),
        lambda: Value(1.0, rel=1e-3, over="all"),
        lambda: Equality(),
        lambda: Equality(rel=1e-3, exact=True),
        lambda: RatioConstant(0.5),
        lambda: Monotone("flat"),
        lambda: Coverage(1.5, 0.1),
        lambda: UpperBound(1.0, confidence=1.0),
    ],
)
def test_a_senseless_law_cannot_be_made(build):
    with pytest.raises(ValueError):
        build()


@pytest.mark.parametrize("value", [1j, "1", None, np.zeros((2, 2))])
def test_a_measurement_must_be_real_numbers(value):
    with pytest.raises(TypeError, match="must be a real number"):
        Measurement(value).columns()


def test_the_axis_of_a_series_must_increase():
    with pytest.raises(ValueError, match="increasing"):
        Measurement(np.ones(3), x=[1, 3, 2]).columns()
