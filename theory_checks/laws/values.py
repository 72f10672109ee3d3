"""Laws about values: a predicted number, two numbers that agree, a ratio that stays put."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optikit.validation import check_real
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
class Value(Law):
    """The value is the predicted one at every point.

    Parameters
    ----------
    expected_value : float, callable, mapping or None
        A constant, a function or table of the sweep's point, or None for `Measurement.reference`.
    rel, abs : float, default 0
        The value must lie within ``rel |expected| + abs`` of the expected one; one must be positive.
    over : {"mean", "each"}, default "mean"
        Judge the mean over seeds with its confidence interval (Bonferroni over the points), or each value.
    confidence : float, default 0.95
    """

    expected_value: Expected = None
    rel: float = 0.0
    abs: float = 0.0
    over: str = "mean"
    confidence: float = 0.95

    scale = "auto"

    def __post_init__(self) -> None:
        _check_rel_abs(self.rel, self.abs)
        check_over(self.over)
        check_confidence(self.confidence)

    def expected(self) -> str:
        if isinstance(self.expected_value, int | float):
            return f"{self.expected_value:.8g} within {_within(self.rel, self.abs)}"
        return f"the predicted value within {_within(self.rel, self.abs)}"

    def references(self, data: Observations) -> np.ndarray:
        return all_expected(self.expected_value, data)

    def judge(self, data: Observations) -> Judgement:
        return _judge_values(data, self.expected_value, self.rel, self.abs, self.over, self.confidence)


@dataclass(frozen=True)
class Equality(Law):
    """Two measurements of one quantity agree: `Measurement(value, reference)` at every point and seed.

    Parameters
    ----------
    rel, abs : float, default 0
        ``|value - reference| <= rel |reference| + abs``; one must be positive, or ``exact=True``.
    exact : bool, default False
        Bitwise equal floats.
    """

    rel: float = 0.0
    abs: float = 0.0
    exact: bool = False

    scale = "auto"

    def __post_init__(self) -> None:
        if not self.exact:
            _check_rel_abs(self.rel, self.abs)
        elif self.rel or self.abs:
            raise ValueError(f"exact equality has no tolerance, got rel={self.rel!r}, abs={self.abs!r}.")

    def expected(self) -> str:
        return "equal" if self.exact else f"equal within {_within(self.rel, self.abs)}"

    def judge(self, data: Observations) -> Judgement:
        return _judge_values(data, None, self.rel, self.abs, "each", 0.95)


@dataclass(frozen=True)
class RatioConstant(Law):
    """The value hardly changes over the sweep: ``largest / smallest <= spread``.

    Parameters
    ----------
    spread : float >= 1
    low, high : float, optional
        The values must also lie in this range.
    confidence : float, default 0.95

    Notes
    -----
    The means over seeds are compared. It fails only if the intervals of two places exclude a ratio of
    `spread` (Bonferroni over the places); a ratio of means above `spread` that noise could explain is
    inconclusive.
    """

    spread: float
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95

    scale = "auto"

    def __post_init__(self) -> None:
        check_real(self.spread, "spread", minimum=1)
        check_confidence(self.confidence)

    def expected(self) -> str:
        low = -np.inf if self.low is None else self.low
        high = np.inf if self.high is None else self.high
        inside = f", in [{low:g}, {high:g}]" if self.low is not None or self.high is not None else ""
        return f"largest / smallest <= {self.spread:g}{inside}"

    def judge(self, data: Observations) -> Judgement:
        groups = list(places(data, "mean"))
        if len(groups) < 2:
            return no_data()
        refused = unusable(data, np.flatnonzero(data.used), positive=True)
        if refused is not None:
            return refused
        confidence = 1 - (1 - self.confidence) / len(groups)
        means = [mean_interval(data.value[rows], confidence) for rows in groups]
        top = max(range(len(means)), key=lambda i: means[i].value)
        bottom = min(range(len(means)), key=lambda i: means[i].value)
        ratio = means[top].value / means[bottom].value
        low = max(1.0, max(m.low for m in means) / min(m.high for m in means))
        floor = min(m.low for m in means)
        high = max(m.high for m in means) / floor if floor > 0 else np.inf
        if low > self.spread:
            verdict = Verdict.FAIL
        else:
            verdict = Verdict.PASS if ratio <= self.spread else Verdict.INCONCLUSIVE
        estimates = [Estimate("largest / smallest", ratio, low, high, 1.0, self.spread, verdict)]
        if self.low is not None or self.high is not None:
            limits = (-np.inf if self.low is None else self.low, np.inf if self.high is None else self.high)
            for rows, mean in zip(groups, means):
                name = f"value at {data.labels[rows[0]]}"
                verdict = judge_interval(mean.value, mean.low, mean.high, *limits)
                estimates.append(Estimate(name, mean.value, mean.low, mean.high, *limits, verdict))
        where = f"Largest / smallest {ratio:.6g}, "
        where += f"largest at {data.place(groups[top][0])}, smallest at {data.place(groups[bottom][0])}."
        return from_estimates(estimates, where)


def _judge_values(
    data: Observations, expected: Expected, rel: float, absolute: float, over: str, confidence: float
) -> Judgement:
    if not np.any(data.used):
        return no_data()
    refused = unusable(data, np.flatnonzero(data.used))
    if refused is not None:
        return refused
    groups = list(places(data, over))
    level = 1 - (1 - confidence) / len(groups)
    estimates: list[Estimate] = []
    worst_error = 0.0
    for rows in groups:
        target = expected_at(expected, data, int(rows[0]), "the expected value")
        slack = rel * np.abs(target) + absolute
        mean = mean_interval(data.value[rows], level)
        worst_error = max(worst_error, abs(mean.value - target) / (abs(target) or 1.0))
        verdict = judge_interval(mean.value, mean.low, mean.high, target - slack, target + slack)
        at = data.place(int(rows[0])) if over == "each" else data.labels[rows[0]]
        estimates.append(
            Estimate(
                f"value at {at}", mean.value, mean.low, mean.high, target - slack, target + slack, verdict
            )
        )
    message = f"{len(estimates)} values, largest relative error {worst_error:.2g}."
    return from_estimates(estimates, message)


def _check_rel_abs(rel: float, absolute: float) -> None:
    check_real(rel, "rel", minimum=0)
    check_real(absolute, "abs", minimum=0)
    if rel == 0 and absolute == 0:
        raise ValueError(f"rel or abs must be > 0, got rel={rel!r} and abs={absolute!r}.")


def _within(rel: float, absolute: float) -> str:
    parts = ([f"{rel:g} relative"] if rel else []) + ([f"{absolute:g} absolute"] if absolute else [])
    return " plus ".join(parts)
