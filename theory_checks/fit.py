"""Slopes, means and proportions with confidence intervals.

Every function returns an estimate and an interval of a stated confidence; none of them judges. How an
interval becomes a verdict is decided in one place, `theory_checks.claim.judge_interval`.

Where the uncertainty of a slope comes from:

- several seeds: each seed gives a curve and each curve a least-squares slope; the interval is Student's for
  the mean of these slopes. It holds whatever the correlation of the points of one curve is, which a
  regression over the pooled points would not (a run's points share their noise).
- one seed, or a deterministic measurement: the regression's own residuals. They then measure how far the
  points are from a straight line, so a curve that is no power law has a wide interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from optikit.validation import check_choice, check_integer, check_real


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval ``[low, high]``; an unknown width is infinite."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class SlopeFit:
    """A least-squares line through transformed points.

    Attributes
    ----------
    slope : Interval
    intercept : float
        Of the line in the transformed coordinates.
    points : int
        Points of the shortest curve used.
    curves : int
        Curves (seeds) used.
    residual : float
        Largest distance of a mean point from the line: 0.1 in logarithms is a factor of about 1.1.
    """

    slope: Interval
    intercept: float
    points: int
    curves: int
    residual: float


@dataclass(frozen=True)
class Regime:
    """Which points of a curve a law speaks about.

    Parameters
    ----------
    x_min, x_max : float, default unbounded
        Closed range of the axis.
    floor, ceiling : float, optional
        Values must be ``> floor`` (rounding noise below) and ``< ceiling``.
    relative_floor : float, optional
        Values must be ``>= relative_floor * |first value of the curve|``.
    after_last_increase : bool, default False
        Only the points from where the last increase along the curve (above the floor) led to: the stable
        phase of an unstable run.
    where : callable, optional
        ``where(x, values) -> boolean array``, for anything else.
    """

    x_min: float = -np.inf
    x_max: float = np.inf
    floor: float | None = None
    ceiling: float | None = None
    relative_floor: float | None = None
    after_last_increase: bool = False
    where: Callable[[np.ndarray, np.ndarray], Any] | None = None

    def mask(self, x: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Boolean array of the points of one curve (increasing `x`) that lie inside.

        Values that are not finite stay inside when the axis allows them: a law must see a divergence.
        """
        bad = ~np.isfinite(values)
        inside = (x >= self.x_min) & (x <= self.x_max)
        with np.errstate(invalid="ignore"):
            if self.floor is not None:
                inside &= bad | (values > self.floor)
            if self.ceiling is not None:
                inside &= bad | (values < self.ceiling)
            if self.relative_floor is not None and values.size:
                inside &= bad | (values >= self.relative_floor * abs(values[0]))
            if self.after_last_increase:
                kept = np.flatnonzero(inside)  # rounding noise under the floor rises for ever
                rises = np.flatnonzero(np.diff(values[kept]) > 0)
                if rises.size:
                    inside &= bad | (np.arange(values.size) > kept[rises[-1]])
        if self.where is not None:
            inside &= np.asarray(self.where(x, values), dtype=bool)
        return inside


def fit_line(
    x: Sequence[np.ndarray],
    y: Sequence[np.ndarray],
    *,
    confidence: float = 0.95,
) -> SlopeFit:
    """Common slope of the curves ``(x[s], y[s])``, each with an intercept of its own.

    Parameters
    ----------
    x, y : sequences of float arrays
        One pair per curve; at least 2 different abscissae in each.
    confidence : float in (0, 1), default 0.95

    Returns
    -------
    SlopeFit
        With one curve of two points nothing is known about the error: the interval is infinite.
    """
    confidence = check_real(confidence, "confidence", minimum=0, maximum=1, open_low=True, open_high=True)
    if len(x) == 0 or len(x) != len(y):
        raise ValueError(f"x and y must hold the same number >= 1 of curves, got {len(x)} and {len(y)}.")
    for abscissae, ordinates in zip(x, y):
        if np.unique(abscissae).size < 2:
            raise ValueError(f"each curve must have at least 2 different x, got {abscissae!r}.")
        if not (np.all(np.isfinite(abscissae)) and np.all(np.isfinite(ordinates))):
            raise ValueError("x and y must be finite after their transformation.")
    lines = [_least_squares(abscissae, ordinates) for abscissae, ordinates in zip(x, y)]
    slopes = np.array([line[0] for line in lines])
    slope, intercept = float(slopes.mean()), float(np.mean([line[1] for line in lines]))
    points = min(abscissae.size for abscissae in x)
    # Seeds that change nothing carry no information on the error: fall back on the residuals.
    repeated = len(lines) > 1 and float(np.ptp(slopes)) > 1e-12 * max(1.0, abs(slope))
    if repeated:
        half = _student_half_width(slopes, confidence)
    elif points > 2:
        half = float(stats.t.ppf(0.5 + confidence / 2, points - 2) * lines[0][2])
    else:
        half = np.inf
    return SlopeFit(
        slope=Interval(slope, slope - half, slope + half),
        intercept=intercept,
        points=points,
        curves=len(lines),
        residual=_largest_mean_residual(x, y, slope),
    )


def fit_mean_line(
    x: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
    transform: Callable[[np.ndarray], np.ndarray],
    *,
    confidence: float = 0.95,
) -> SlopeFit:
    """Slope of ``transform(mean over curves of values)``: the law of an expectation.

    The curves must share their abscissae. The interval comes from the delete-one jackknife over curves.
    """
    if len(values) < 2:
        return fit_line(x, [transform(curve) for curve in values], confidence=confidence)
    for abscissae in x:
        if abscissae.shape != x[0].shape or np.any(abscissae != x[0]):
            raise ValueError("an average over seeds needs the same abscissae for every seed.")
    stacked = np.stack(list(values))
    fit = fit_line([x[0]], [transform(stacked.mean(axis=0))], confidence=confidence)
    count = stacked.shape[0]
    left_out = np.array(
        [_least_squares(x[0], transform(np.delete(stacked, s, axis=0).mean(axis=0)))[0] for s in range(count)]
    )
    spread = np.sqrt((count - 1) / count * np.sum((left_out - left_out.mean()) ** 2))
    half = float(stats.t.ppf(0.5 + confidence / 2, count - 1) * spread)
    if half <= 1e-12 * max(1.0, abs(fit.slope.value)):
        return fit
    slope = Interval(fit.slope.value, fit.slope.value - half, fit.slope.value + half)
    return SlopeFit(slope, fit.intercept, fit.points, count, fit.residual)


def fit_power_law(
    x: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
    *,
    confidence: float = 0.95,
    average: str = "geometric",
) -> SlopeFit:
    """Exponent of ``value ~ C x^slope``: a line through ``(log x, log value)``.

    Parameters
    ----------
    x, values : sequences of positive float arrays
        One pair per seed.
    confidence : float in (0, 1), default 0.95
    average : {"geometric", "arithmetic"}
        "geometric": mean of the seeds' slopes (the default, robust to heavy tails). "arithmetic": slope
        of the logarithm of the seeds' mean, for laws about an expectation.

    Returns
    -------
    SlopeFit
        ``intercept`` is ``log C``.
    """
    return _fit(x, values, np.log, confidence, average)


def fit_linear_rate(
    x: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
    *,
    confidence: float = 0.95,
    average: str = "geometric",
) -> SlopeFit:
    """Logarithm of the factor of ``value ~ C factor^x``: a line through ``(x, log value)``.

    Parameters and result as for `fit_power_law`; the factor is ``exp(slope)``.
    """
    return _fit(x, values, np.asarray, confidence, average)


def mean_interval(values: np.ndarray, confidence: float = 0.95) -> Interval:
    """Mean and Student interval; one value, or equal values, give an interval of no width.

    A single value is taken as exact: a measurement without repetition is a deterministic one.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0:
        raise ValueError("values must hold at least one number, got none.")
    mean = float(values.mean())
    half = _student_half_width(values, confidence) if values.size > 1 and np.ptp(values) > 0 else 0.0
    return Interval(mean, mean - half, mean + half)


def proportion_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Proportion and exact (Clopper-Pearson) interval."""
    trials = check_integer(trials, "trials", minimum=1)
    successes = check_integer(successes, "successes", minimum=0, maximum=trials)
    interval = stats.binomtest(successes, trials).proportion_ci(confidence_level=confidence, method="exact")
    return Interval(successes / trials, float(interval.low), float(interval.high))


def _fit(
    x: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
    transform_x: Callable[[np.ndarray], np.ndarray],
    confidence: float,
    average: str,
) -> SlopeFit:
    check_choice(average, "average", ("geometric", "arithmetic"))
    abscissae = [np.asarray(transform_x(curve), dtype=np.float64) for curve in x]
    if average == "arithmetic":
        return fit_mean_line(abscissae, values, np.log, confidence=confidence)
    return fit_line(abscissae, [np.log(curve) for curve in values], confidence=confidence)


def _least_squares(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Slope, intercept and standard error of the slope (scipy's linregress gives NaN for a constant y)."""
    centred = x - x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ (y - y.mean())) / spread
    residuals = y - y.mean() - slope * centred
    error = np.sqrt(float(residuals @ residuals) / max(x.size - 2, 1) / spread)
    return slope, float(y.mean() - slope * x.mean()), float(error)


def _student_half_width(values: np.ndarray, confidence: float) -> float:
    quantile = stats.t.ppf(0.5 + confidence / 2, values.size - 1)
    return float(quantile * values.std(ddof=1) / np.sqrt(values.size))


def _largest_mean_residual(x: Sequence[np.ndarray], y: Sequence[np.ndarray], slope: float) -> float:
    """Largest residual, averaged over the curves that share an abscissa, about the common slope."""
    abscissae = np.concatenate(list(x))
    residuals = np.concatenate([b - b.mean() - slope * (a - a.mean()) for a, b in zip(x, y)])
    _, where = np.unique(abscissae, return_inverse=True)
    means = np.bincount(where, weights=residuals) / np.bincount(where)
    return float(np.max(np.abs(means)))
