"""Laws about slopes: powers of the swept quantity and linear convergence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from optikit.validation import check_choice, check_integer, check_real
from theory_checks.claim import Observations, Verdict, judge_interval
from theory_checks.fit import Regime, SlopeFit, fit_linear_rate, fit_power_law
from theory_checks.laws.base import (
    Estimate,
    Judgement,
    Law,
    band,
    check_confidence,
    check_tolerance,
    from_estimates,
    no_data,
    unusable,
)


@dataclass(frozen=True)
class PowerLaw(Law):
    """``value ~ C x^exponent``: the slope of log value against log x.

    Parameters
    ----------
    exponent : float
    tolerance : float or (below, above)
        The slope must lie in ``[exponent - below, exponent + above]``. An infinite side gives a one-sided
        law: ``PowerLaw(-1.6, (inf, 0))`` says at least as steep as -1.6.
    regime : Regime, optional
        Which points of each curve the law speaks about.
    min_points : int, default 3
        Fewer points in the regime: inconclusive.
    average : {"geometric", "arithmetic"}, default "geometric"
        See `theory_checks.fit.fit_power_law`; "arithmetic" for laws about an expectation.
    max_residual : float, optional
        Largest distance of the mean points from the line, in natural logarithms; beyond it the curve is
        no power law and the claim fails, whatever its mean slope.
    confidence : float, default 0.95

    Notes
    -----
    One slope is fitted per curve group (`Sweep.group`; each point of a measured series is a group), each is
    judged by `theory_checks.claim.judge_interval`, and the worst verdict counts.
    """

    exponent: float
    tolerance: float | tuple[float, float]
    regime: Regime = field(default_factory=Regime)
    min_points: int = 3
    average: str = "geometric"
    max_residual: float | None = None
    confidence: float = 0.95

    scale: ClassVar[str] = "loglog"
    needs_axis: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_real(self.exponent, "exponent")
        _check_slope_options(self)

    def expected(self) -> str:
        below, above = check_tolerance(self.tolerance)
        return f"slope {band(self.exponent - below, self.exponent + above)} in log-log"

    def judge(self, data: Observations) -> Judgement:
        below, above = check_tolerance(self.tolerance)
        limits = (self.exponent - below, self.exponent + above)
        return _judge_slopes(self, data, "slope", limits, fit_power_law, float)


@dataclass(frozen=True)
class LinearRate(Law):
    """``value ~ C factor^x``: the factor per unit of x, from the slope of log value against x.

    Parameters
    ----------
    factor : float > 0
    tolerance : float or (below, above)
        Absolute, on the factor; infinite sides as for `PowerLaw`.
    regime, min_points, average, max_residual, confidence
        As for `PowerLaw`.
    """

    factor: float
    tolerance: float | tuple[float, float]
    regime: Regime = field(default_factory=Regime)
    min_points: int = 3
    average: str = "geometric"
    max_residual: float | None = None
    confidence: float = 0.95

    scale: ClassVar[str] = "semilogy"
    needs_axis: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_real(self.factor, "factor", minimum=0, open_low=True)
        _check_slope_options(self)

    def expected(self) -> str:
        below, above = check_tolerance(self.tolerance)
        return f"factor {band(self.factor - below, self.factor + above)} per unit"

    def judge(self, data: Observations) -> Judgement:
        below, above = check_tolerance(self.tolerance)
        limits = (self.factor - below, self.factor + above)
        return _judge_slopes(self, data, "factor", limits, fit_linear_rate, lambda s: float(np.exp(s)))


SlopeLaw = PowerLaw | LinearRate


def _check_slope_options(law: SlopeLaw) -> None:
    check_tolerance(law.tolerance)
    check_integer(law.min_points, "min_points", minimum=2)
    check_choice(law.average, "average", ("geometric", "arithmetic"))
    check_confidence(law.confidence)
    if law.max_residual is not None:
        check_real(law.max_residual, "max_residual", minimum=0, open_low=True)


def _judge_slopes(
    law: SlopeLaw,
    data: Observations,
    name: str,
    limits: tuple[float, float],
    fit: Callable[..., SlopeFit],
    transform: Callable[[float], float],
) -> Judgement:
    used = np.zeros(len(data), dtype=bool)
    estimates: list[Estimate] = []
    notes: list[str] = []
    crooked = False
    groups = data.curves()
    for curves in groups.values():
        kept = [rows[law.regime.mask(data.x[rows], data.value[rows]) & data.used[rows]] for rows in curves]
        used[np.concatenate(kept)] = True
    if not np.any(used):
        return no_data()
    refused = unusable(data, np.flatnonzero(used), positive=True)
    if refused is not None:
        return replace(refused, used=used)
    if law.scale == "loglog" and np.any(data.x[used] <= 0):
        raise ValueError("a power law needs a positive axis.")
    for group, curves in groups.items():
        kept = [rows[used[rows]] for rows in curves]
        fewest = min(np.unique(data.x[rows]).size for rows in kept)
        title = group if len(groups) > 1 else ""
        if fewest < law.min_points:
            notes.append(f"{title or 'the curve'} has {fewest} points in the regime, {law.min_points} needed")
            estimates.append(
                Estimate(name, np.nan, -np.inf, np.inf, *limits, Verdict.INCONCLUSIVE, group=title)
            )
            continue
        line = fit(
            [data.x[rows] for rows in kept],
            [data.value[rows] for rows in kept],
            confidence=law.confidence,
            average=law.average,
        )
        value, low, high = (transform(s) for s in (line.slope.value, line.slope.low, line.slope.high))
        verdict = judge_interval(value, low, high, *limits)
        if law.max_residual is not None and line.residual > law.max_residual:
            crooked, verdict = True, Verdict.FAIL
            notes.append(f"{title or 'the curve'} bends: residual {line.residual:.3g} > {law.max_residual:g}")
        else:
            notes.append(
                f"{line.points} points, {line.curves} seed{'s' if line.curves > 1 else ''}, "
                f"largest residual {line.residual:.2g}"
            )
        estimates.append(
            Estimate(name, value, low, high, *limits, verdict, group=title, intercept=line.intercept)
        )
    left_out = int(np.sum(~used))
    if left_out:
        notes.append(f"{left_out} of {len(data)} values outside the regime")
    shown = notes if len(groups) == 1 or crooked else notes[-1:]
    judgement = from_estimates(estimates, used=used)
    text = "; ".join([judgement.message.rstrip("."), *shown]) + "."
    return replace(judgement, message=text)
