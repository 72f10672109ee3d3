"""Laws about order: bounds from above and below, and monotone curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optikit.validation import check_choice, check_real
from theory_checks.claim import Observations, Verdict, judge_interval
from theory_checks.fit import mean_interval
from theory_checks.laws.base import (
    Estimate,
    Expected,
    Judgement,
    Law,
    all_expected,
    check_confidence,
    check_over,
    expected_at,
    from_estimates,
    no_data,
    places,
    unusable,
)


@dataclass(frozen=True)
class UpperBound(Law):
    """``value <= bound`` everywhere.

    Parameters
    ----------
    bound : float, callable, mapping or None
        A constant, a function or table of the sweep's point, or None for `Measurement.reference`.
    rel, abs : float, default 0
        Slack for rounding: ``value <= bound + rel |bound| + abs``.
    over : {"each", "mean"}, default "each"
        Hold every value under the bound, or (for a bound on an expectation) the mean over seeds: then
        the confidence interval (Bonferroni over the places) must lie under it to pass, over it to fail.
    confidence : float, default 0.95
    """

    bound: Expected = None
    rel: float = 0.0
    abs: float = 0.0
    over: str = "each"
    confidence: float = 0.95

    scale = "auto"

    def __post_init__(self) -> None:
        _check_bound(self)

    def expected(self) -> str:
        return f"value <= {_bound_text(self.bound)}{_slack_text(self.rel, self.abs)}"

    def references(self, data: Observations) -> np.ndarray:
        return all_expected(self.bound, data)

    def judge(self, data: Observations) -> Judgement:
        return _judge_bound(self, data, sign=1.0)


@dataclass(frozen=True)
class LowerBound(Law):
    """``value >= bound`` everywhere; parameters as for `UpperBound`."""

    bound: Expected = None
    rel: float = 0.0
    abs: float = 0.0
    over: str = "each"
    confidence: float = 0.95

    scale = "auto"

    def __post_init__(self) -> None:
        _check_bound(self)

    def expected(self) -> str:
        return f"value >= {_bound_text(self.bound)}{_slack_text(self.rel, self.abs)}"

    def references(self, data: Observations) -> np.ndarray:
        return all_expected(self.bound, data)

    def judge(self, data: Observations) -> Judgement:
        return _judge_bound(self, data, sign=-1.0)


@dataclass(frozen=True)
class Monotone(Law):
    """The value never rises (or never falls) along x, curve by curve.

    Parameters
    ----------
    direction : {"decreasing", "increasing"}
    strict : bool, default False
        Equal neighbours refute it too.
    rel, abs : float, default 0
        Slack for rounding: a step against the direction of at most ``rel |value| + abs`` is allowed.
    over : {"each", "mean"}, default "each"
        Hold each seed's curve to it, or the mean over seeds of the differences of neighbours, with
        confidence intervals (Bonferroni over the steps).
    confidence : float, default 0.95
    """

    direction: str = "decreasing"
    strict: bool = False
    rel: float = 0.0
    abs: float = 0.0
    over: str = "each"
    confidence: float = 0.95

    scale = "auto"
    needs_axis = True

    def __post_init__(self) -> None:
        check_choice(self.direction, "direction", ("decreasing", "increasing"))
        _check_bound(self)

    def expected(self) -> str:
        return f"{'strictly ' * self.strict}{self.direction}{_slack_text(self.rel, self.abs)}"

    def judge(self, data: Observations) -> Judgement:
        if not np.any(data.used):
            return no_data()
        refused = unusable(data, np.flatnonzero(data.used))
        if refused is not None:
            return refused
        sign = 1.0 if self.direction == "decreasing" else -1.0
        against: dict[tuple[str, float], list[float]] = {}
        places_of: dict[tuple[str, float], int] = {}
        for group, curves in data.curves().items():
            for curve in curves:
                rows = curve[data.used[curve]]
                slack = self.rel * np.abs(data.value[rows[:-1]]) + self.abs
                steps = sign * np.diff(data.value[rows]) - slack
                for row, step in zip(rows[1:], steps):
                    key = (group, float(data.x[row]))
                    against.setdefault(key, []).append(float(step))
                    places_of.setdefault(key, int(row))
        if not against:
            return Judgement(Verdict.INCONCLUSIVE, "no curve has two points to compare")
        # A step is against the direction when positive; with `strict` also when zero.
        limit = -np.finfo(float).smallest_subnormal if self.strict else 0.0
        level = 1 - (1 - self.confidence) / len(against)
        found: list[tuple[float, Estimate]] = []
        for (group, x), steps_here in against.items():
            values = np.array(steps_here)
            top = float(values.max())
            mean = mean_interval(values, level)
            value, low, high = (mean.value, mean.low, mean.high) if self.over == "mean" else (top, top, top)
            verdict = judge_interval(value, low, high, -np.inf, limit)
            name = f"step against the direction at x = {x:.6g}"
            found.append((value, Estimate(name, value, low, high, -np.inf, 0.0, verdict, group=group)))
        wrong = sum(estimate.verdict is Verdict.FAIL for _, estimate in found)
        found.sort(key=lambda pair: (-pair[1].verdict.severity, -pair[0]))
        message = f"{wrong} of {len(found)} steps against the direction."
        return from_estimates([estimate for _, estimate in found[:5]], message)


def _check_bound(law: UpperBound | LowerBound | Monotone) -> None:
    check_real(law.rel, "rel", minimum=0)
    check_real(law.abs, "abs", minimum=0)
    check_over(law.over)
    check_confidence(law.confidence)


def _judge_bound(law: UpperBound | LowerBound, data: Observations, sign: float) -> Judgement:
    groups = list(places(data, law.over))
    if not groups:
        return no_data()
    refused = unusable(data, np.flatnonzero(data.used))
    if refused is not None:
        return refused
    level = 1 - (1 - law.confidence) / len(groups)
    found: list[tuple[float, Estimate]] = []
    values: list[float] = []
    bounds: list[float] = []
    for rows in groups:
        bound = expected_at(law.bound, data, int(rows[0]), "the bound")
        limit = bound + sign * (law.rel * np.abs(bound) + law.abs)
        low, high = (-np.inf, limit) if sign > 0 else (limit, np.inf)
        mean = mean_interval(data.value[rows], level)
        verdict = judge_interval(mean.value, mean.low, mean.high, low, high)
        at = data.place(int(rows[0])) if law.over == "each" else data.labels[rows[0]]
        estimate = Estimate(f"value at {at}", mean.value, mean.low, mean.high, low, high, verdict)
        excess = sign * (mean.value - bound) / (abs(bound) or 1.0)
        found.append((float(excess), estimate))
        values.append(mean.value)
        bounds.append(bound)
    found.sort(key=lambda pair: (-pair[1].verdict.severity, -pair[0]))
    wrong = sum(estimate.verdict is Verdict.FAIL for _, estimate in found)
    message = f"{wrong} of {len(found)} values beyond the bound."
    if all(bound > 0 and np.isfinite(bound) for bound in bounds):
        ratios = [value / bound for value, bound in zip(values, bounds)]
        extreme = (
            f"Largest value / bound {max(ratios):.4g}"
            if sign > 0
            else f"Smallest value / bound {min(ratios):.4g}"
        )
    else:
        margin = min(sign * (bound - value) for value, bound in zip(values, bounds))
        extreme = f"Smallest margin {margin:.4g}"
    message += f" {extreme}."
    return from_estimates([estimate for _, estimate in found[:5]], message)


def _bound_text(bound: Expected) -> str:
    return f"{bound:.8g}" if isinstance(bound, int | float) else "the bound of the theorem"


def _slack_text(rel: float, absolute: float) -> str:
    parts = ([f"{rel:g} relative"] if rel else []) + ([f"{absolute:g} absolute"] if absolute else [])
    return f" (slack {' plus '.join(parts)})" if parts else ""
