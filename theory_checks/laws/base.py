"""What every law shares: how it reports, and how it treats numbers no law can use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.validation import check_choice, check_real
from theory_checks.claim import Observations, Verdict, worst

Expected = float | Callable[[Any], float] | Mapping[Any, float] | None


@dataclass(frozen=True)
class Estimate:
    """One judged number.

    Attributes
    ----------
    name : str
        ``"slope"``, ``"value at 16"``, ...
    value, low, high : float
        The number and its confidence interval (no width for a deterministic value).
    expected_low, expected_high : float
        The band the law allows, tolerance included.
    verdict : Verdict
    group : str
        The curve it belongs to; empty when there is one curve, or for a single place.
    intercept : float
        Of the fitted line in its transformed coordinates, for the picture; NaN without a fit.
    """

    name: str
    value: float
    low: float
    high: float
    expected_low: float
    expected_high: float
    verdict: Verdict
    group: str = ""
    intercept: float = float("nan")

    def __post_init__(self) -> None:
        for name in ("value", "low", "high", "expected_low", "expected_high", "intercept"):
            object.__setattr__(self, name, float(getattr(self, name)))  # no NumPy scalars in reports


@dataclass(frozen=True)
class Judgement:
    """What a law says of a set of observations.

    Attributes
    ----------
    verdict : Verdict
    message : str
        One or two sentences with the numbers that decided.
    estimates : tuple of Estimate
    used : bool array or None
        Rows that entered the fit, where a regime left some out.
    """

    verdict: Verdict
    message: str
    estimates: tuple[Estimate, ...] = ()
    used: np.ndarray | None = None


class Law(ABC):
    """Base of all laws; subclasses are frozen dataclasses of their parameters."""

    scale: ClassVar[str] = "linear"
    """The picture: axes "loglog", "semilogy", "linear" or "auto" (logarithmic where the numbers span much),
    "estimates" for the judged numbers in place of the measured ones, "none" for no picture."""
    needs_axis: ClassVar[bool] = False
    """Whether the sweep's points must be numbers (or the measurement a series)."""

    @abstractmethod
    def expected(self) -> str:
        """The law and its tolerance in words: ``"slope in [-1.03, -0.97]"``."""

    def references(self, data: Observations) -> np.ndarray:
        """What each row is held against, for the picture; NaN where there is nothing."""
        return data.reference

    @abstractmethod
    def judge(self, data: Observations) -> Judgement:
        """Hold `data` against the law."""


def no_data() -> Judgement:
    """The judgement of an empty set of observations."""
    return Judgement(Verdict.INCONCLUSIVE, "no value lies in the regime of the law")


def unusable(data: Observations, rows: np.ndarray, *, positive: bool = False) -> Judgement | None:
    """A failure naming the rows that are not finite (or not positive); None when all are usable.

    Such a value is never dropped in silence: a divergence or a loss of exactly zero refutes a law about
    positive finite numbers. A claim that knows it to be outside the law says so with `Regime` or
    `Measurement.used`.
    """
    value = data.value[rows]
    bad = ~np.isfinite(value) | ((value <= 0) if positive else False)
    if not np.any(bad):
        return None
    need = "positive and finite" if positive else "finite"
    text = f"{int(bad.sum())} of {value.size} values not {need}: {name_rows(data, rows[bad])}"
    return Judgement(Verdict.FAIL, text)


def name_rows(data: Observations, rows: np.ndarray, most: int = 3) -> str:
    """The first few of `rows` in words, with their values."""
    named = [f"{data.value[row]:.6g} at {data.place(row)}" for row in rows[:most]]
    return ", ".join(named) + (f" and {rows.size - most} more" if rows.size > most else "")


def from_estimates(estimates: list[Estimate], message: str = "", used: np.ndarray | None = None) -> Judgement:
    """The worst of `estimates`, with a sentence on those that decided."""
    if not estimates:
        return no_data()
    verdict = worst([estimate.verdict for estimate in estimates])
    decisive = [estimate for estimate in estimates if estimate.verdict is verdict]
    text = "; ".join(describe(estimate) for estimate in decisive[:3])
    if len(decisive) > 3:
        text += f"; and {len(decisive) - 3} more"
    if verdict is Verdict.PASS and message and len(estimates) > 1:
        text = ""  # the sentence tells more than a list of numbers that are all right
    elif text:
        text += "."
    return Judgement(verdict, f"{text} {message}".strip(), tuple(estimates), used)


def describe(estimate: Estimate) -> str:
    """An estimate in words: value, interval and band."""
    numbers = (estimate.value, estimate.expected_low, estimate.expected_high)
    digits = 6 if len({f"{number:.6g}" for number in numbers}) == len(set(numbers)) else 12
    text = f"{estimate.name} = {estimate.value:.{digits}g}"
    if np.isnan(estimate.value):
        text = f"no {estimate.name}"
    if estimate.group:
        text = f"{estimate.group}: {text}"
    low, high = f"{estimate.low:.{digits}g}", f"{estimate.high:.{digits}g}"
    if low != high and not np.isnan(estimate.value):
        text += f" [{low}, {high}]"
    return f"{text}, expected {band(estimate.expected_low, estimate.expected_high, digits)}"


def band(low: float, high: float, digits: int = 6) -> str:
    """A band in words."""
    if low == high:
        return f"{low:.{digits}g}"
    if np.isinf(low):
        return f"<= {high:.{digits}g}"
    if np.isinf(high):
        return f">= {low:.{digits}g}"
    return f"in [{low:.{digits}g}, {high:.{digits}g}]"


def check_tolerance(tolerance: float | tuple[float, float], name: str = "tolerance") -> tuple[float, float]:
    """``(below, above)``, both >= 0, possibly infinite."""
    below, above = tolerance if isinstance(tolerance, tuple) else (tolerance, tolerance)
    below = check_real(below, name, minimum=0, allow_inf=True)
    above = check_real(above, name, minimum=0, allow_inf=True)
    if np.isinf(below) and np.isinf(above):
        raise ValueError(f"{name} must be finite on one side at least, got {tolerance!r}.")
    return below, above


def check_over(over: str) -> None:
    """Raise unless `over` is "each" or "mean"."""
    check_choice(over, "over", ("each", "mean"))


def check_confidence(confidence: float) -> None:
    """Raise unless `confidence` lies strictly between 0 and 1."""
    check_real(confidence, "confidence", minimum=0, maximum=1, open_low=True, open_high=True)


def expected_at(expected: Expected, data: Observations, row: int, what: str) -> float:
    """The expected number of a row: a constant, a function or table of the point, or the reference."""
    if expected is None:
        number = float(data.reference[row])
    elif callable(expected):
        number = float(expected(data.points[row]))
    elif isinstance(expected, Mapping):
        number = float(expected[data.points[row]])
    else:
        number = float(expected)
    if np.isnan(number):
        raise ValueError(
            f"{what} at {data.place(row)} must be a number, got {number!r}: give it to the law, "
            "or return Measurement(value, reference)."
        )
    return number


def all_expected(expected: Expected, data: Observations) -> np.ndarray:
    """`expected_at` of every row, NaN where it is unknown."""
    if expected is None:
        return data.reference
    return np.array([expected_at(expected, data, row, "the expected value") for row in range(len(data))])


def places(data: Observations, over: str) -> Iterator[np.ndarray]:
    """Rows that are judged together: one at a time, or the seeds of one place."""
    if over == "mean":
        yield from data.repetitions()
    else:
        for row in np.flatnonzero(data.used):
            yield np.array([row])
