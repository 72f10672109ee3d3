"""Claims are complete or do not exist; verdicts combine by one table; names select."""

import itertools

import pytest
import toy_claims

from theory_checks import PowerLaw, Sweep, Verdict
from theory_checks.claim import combine, judge_interval, worst
from theory_checks.registry import UnknownClaimError, claim_modules, discover


def build(**changes):
    options = {"law": PowerLaw(-1, 0.1), "measure": lambda p, s: 1.0, "control": lambda p, s: 2.0}
    return toy_claims.make(changes.pop("name", "a.claim"), **(options | changes))


def test_a_claim_without_a_control_cannot_be_made():
    with pytest.raises(TypeError, match="control"):
        build(control=None)


def test_a_control_that_is_the_measurement_is_refused():
    def measure(point, seed):
        return 1.0

    with pytest.raises(ValueError, match="must not be its measure"):
        build(measure=measure, control=measure)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": "no spaces"}, ValueError),
        ({"name": "../../etc"}, ValueError),
        ({"theorem": " "}, ValueError),
        ({"control_text": ""}, ValueError),
        ({"seeds": 0}, ValueError),
        ({"seeds": (1, 2, 3)}, ValueError),
        ({"seeds": 1.5}, ValueError),
        ({"provenance": "rumour"}, ValueError),
        ({"tags": "slope"}, TypeError),
        ({"measure": 3.0}, TypeError),
    ],
)
def test_a_senseless_claim_cannot_be_made(changes, error):
    with pytest.raises(error):
        build(**changes)


def test_a_power_law_over_names_cannot_be_made():
    with pytest.raises(ValueError, match="needs an axis"):
        build(sweep=Sweep("graph", ("ring", "star")))
    build(sweep=Sweep("graph", ("ring", "star"), x=len))
    build(sweep=Sweep("graph", ("ring", "star"), axis="round"))


def test_a_sweep_needs_a_point():
    with pytest.raises(ValueError, match="at least one full point"):
        Sweep("K", (1, 2), ())


def test_seeds_and_points_follow_the_effort():
    claim = build(seeds=(2, 5), control_seeds=1, sweep=Sweep("K", (1, 2), (1, 2, 3)))
    assert [claim.repetitions("measure", effort) for effort in ("quick", "full")] == [2, 5]
    assert claim.repetitions("control", "full") == 1
    assert claim.sweep.points("full") == (1, 2, 3)


def test_verdicts_combine_by_the_table():
    table = {
        ("pass", "fail"): "pass",
        ("pass", "inconclusive"): "inconclusive",
        ("fail", "fail"): "fail",
        ("fail", "inconclusive"): "fail",
        ("inconclusive", "fail"): "inconclusive",
        ("inconclusive", "inconclusive"): "inconclusive",
        ("fail", "error"): "error",
        ("error", "pass"): "error",
    } | {(measured, "pass"): "broken" for measured in ("pass", "fail", "inconclusive")}
    for (measured, control), verdict in table.items():
        assert combine(Verdict(measured), Verdict(control)) == verdict


def test_only_a_pass_beside_a_rejected_control_passes():
    passing = [pair for pair in itertools.product(Verdict, Verdict) if combine(*pair) is Verdict.PASS]
    assert passing == [(Verdict.PASS, Verdict.FAIL)]


def test_the_worst_of_no_verdicts_is_inconclusive():
    assert worst([]) is Verdict.INCONCLUSIVE
    assert worst([Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE]) is Verdict.FAIL


INF = float("inf")


@pytest.mark.parametrize(
    ("value", "low", "high", "band", "verdict"),
    [
        (0.0, -0.5, 0.5, (-1, 1), "pass"),
        (0.9, 0.4, 1.4, (-1, 1), "pass"),  # sticks out, but is narrower than the band
        (0.0, -1.5, 1.5, (-1, 1), "inconclusive"),  # wider than the band
        (1.1, 0.9, 1.3, (-1, 1), "inconclusive"),  # outside, but not excluded
        (1.5, 1.2, 1.8, (-1, 1), "fail"),
        (1.0, 1.0, 1.0, (-1, 1), "pass"),
        (-3.0, -INF, INF, (-INF, 1), "inconclusive"),
        (0.9, 0.5, 1.3, (-INF, 1), "inconclusive"),  # a one-sided band has no width to compare with
        (0.5, 0.1, 0.9, (-INF, 1), "pass"),
        (float("nan"), -INF, INF, (-1, 1), "fail"),
    ],
)
def test_an_interval_is_judged_by_its_overlap_with_the_band(value, low, high, band, verdict):
    assert judge_interval(value, low, high, *band) == verdict


def names(claims):
    return [claim.name for claim in claims]


def test_claims_are_selected_by_name_glob_prefix_and_tag():
    registry = discover(["toy_claims"])
    assert names(registry.select(["toy.blind"])) == ["toy.blind"]
    assert names(registry.select(["*slope"])) == ["toy.true_slope", "toy.false_slope"]
    assert len(registry.select(["toy"])) == len(toy_claims.CLAIMS)
    assert names(registry.select(["toy"], ["rate", "slope"])) == ["toy.true_slope", "toy.linear"]


def test_an_unknown_name_is_answered_with_close_ones():
    with pytest.raises(UnknownClaimError, match=r"toy\.true_slope"):
        discover(["toy_claims"]).select(["toy.true_slop"])
    with pytest.raises(UnknownClaimError, match=r"tags: .*rate"):
        discover(["toy_claims"]).select(tags=["ratte"])


def test_a_module_that_cannot_be_read_does_not_hide_the_others():
    registry = discover(["no_such_module", "toy_claims"])
    assert "ModuleNotFoundError" in registry.unreadable["no_such_module"]
    assert len(registry.claims) == len(toy_claims.CLAIMS)


def test_two_claims_of_one_name_are_refused():
    with pytest.raises(ValueError, match="is in toy_claims and in toy_claims"):
        discover(["toy_claims", "toy_claims"])


def test_the_package_finds_its_own_modules():
    assert all(name.startswith("theory_checks.claims.") for name in claim_modules())
    assert discover().unreadable == {}
