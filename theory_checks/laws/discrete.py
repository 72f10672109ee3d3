"""Laws about yes and no: coverage of intervals, and invariants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optikit.validation import check_real
from theory_checks.claim import Observations, Verdict, judge_interval
from theory_checks.fit import proportion_interval
from theory_checks.laws.base import (
    Estimate,
    Judgement,
    Law,
    band,
    check_confidence,
    check_tolerance,
    from_estimates,
    name_rows,
    no_data,
    unusable,
)


@dataclass(frozen=True)
class Coverage(Law):
    """An event happens with the stated probability at every point, e.g. an interval covers the truth.

    `measure` returns True or False (one trial per seed), or ``Measurement(successes, trials)``.

    Parameters
    ----------
    probability : float in [0, 1]
    tolerance : float or (below, above)
        Allowed band about it, cut to [0, 1]; an infinite side gives "at least" or "at most".
    confidence : float, default 0.95
        Of the exact binomial (Clopper-Pearson) intervals, Bonferroni over the points.
    """

    probability: float
    tolerance: float | tuple[float, float]
    confidence: float = 0.95

    scale = "estimates"

    def __post_init__(self) -> None:
        check_real(self.probability, "probability", minimum=0, maximum=1)
        check_tolerance(self.tolerance)
        check_confidence(self.confidence)

    def _limits(self) -> tuple[float, float]:
        below, above = check_tolerance(self.tolerance)
        return max(0.0, self.probability - below), min(1.0, self.probability + above)

    def expected(self) -> str:
        return f"probability {band(*self._limits())}"

    def judge(self, data: Observations) -> Judgement:
        if not np.any(data.used):
            return no_data()
        refused = unusable(data, np.flatnonzero(data.used))
        if refused is not None:
            return refused
        groups = data.repetitions()
        level = 1 - (1 - self.confidence) / len(groups)
        estimates = []
        for rows in groups:
            successes, trials = self._count(data, rows)
            share = proportion_interval(successes, trials, level)
            verdict = judge_interval(share.value, share.low, share.high, *self._limits())
            name = f"share at {data.labels[rows[0]]} ({successes} of {trials})"
            estimates.append(Estimate(name, share.value, share.low, share.high, *self._limits(), verdict))
        return from_estimates(estimates)

    @staticmethod
    def _count(data: Observations, rows: np.ndarray) -> tuple[int, int]:
        value, trials = data.value[rows], data.reference[rows]
        trials = np.where(np.isnan(trials), 1.0, trials)
        if np.any(value != np.floor(value)) or np.any(value < 0) or np.any(value > trials):
            raise ValueError(
                f"coverage needs True/False or Measurement(successes, trials), got {name_rows(data, rows)}."
            )
        return int(value.sum()), int(trials.sum())


@dataclass(frozen=True)
class Invariant(Law):
    """A statement that holds every time: `measure` returns True or False, or an array of them."""

    scale = "none"

    def expected(self) -> str:
        return "true every time"

    def judge(self, data: Observations) -> Judgement:
        rows = np.flatnonzero(data.used)
        if rows.size == 0:
            return no_data()
        refused = unusable(data, rows)
        if refused is not None:
            return refused
        value = data.value[rows]
        if not np.all((value == 0) | (value == 1)):
            raise ValueError(f"an invariant needs True or False, got {name_rows(data, rows)}.")
        share = float(value.mean())
        verdict = Verdict.PASS if share == 1 else Verdict.FAIL
        message = f"true in {int(value.sum())} of {value.size} cases"
        if verdict is Verdict.FAIL:
            false = rows[value == 0]
            message += f"; false at {', '.join(data.place(row) for row in false[:3])}"
            message += f" and {false.size - 3} more" if false.size > 3 else ""
        return Judgement(
            verdict, message + ".", (Estimate("share true", share, share, share, 1.0, 1.0, verdict),)
        )
