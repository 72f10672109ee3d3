"""A claim: a theorem, what is measured, the law expected of it, and a wrong variant the law must reject.

A `Claim` without a negative control cannot be made: a check that accepts everything checks nothing. The
law (`theory_checks.laws`) judges the measurement and, on the same terms, the control:

========================  =======================  =====================================================
law on the measurement    law on the control       verdict of the claim
========================  =======================  =====================================================
pass                      fail                     pass
fail                      fail or inconclusive     fail
any                       pass                     broken: the check cannot tell right from wrong
inconclusive              fail                     inconclusive
pass or inconclusive      inconclusive             inconclusive
an exception in either                             error
========================  =======================  =====================================================
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from optikit.validation import check_choice, check_integer

if TYPE_CHECKING:
    from theory_checks.laws import Law

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
EFFORTS = ("quick", "full")
PROVENANCES = ("stated", "reconstructed", "derived")


class Verdict(StrEnum):
    """What a check found; the worst of several is the one listed last."""

    PASS = "pass"
    INCONCLUSIVE = "inconclusive"
    FAIL = "fail"
    BROKEN = "broken"
    ERROR = "error"

    @property
    def severity(self) -> int:
        """0 for a pass, up to 4 for an error."""
        return list(Verdict).index(self)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The most severe of `verdicts`; inconclusive when there are none."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.INCONCLUSIVE)


def combine(measured: Verdict, control: Verdict) -> Verdict:
    """The verdict of a claim from those of its measurement and of its negative control (table above)."""
    if Verdict.ERROR in (measured, control):
        return Verdict.ERROR
    if control is Verdict.PASS:
        return Verdict.BROKEN
    if measured is Verdict.PASS and control is not Verdict.FAIL:
        return Verdict.INCONCLUSIVE
    return measured


def judge_interval(value: float, low: float, high: float, band_low: float, band_high: float) -> Verdict:
    """Judge an estimate with confidence interval ``[low, high]`` against ``[band_low, band_high]``.

    - fail: the interval and the band have no point in common.
    - pass: the estimate lies in the band, and the interval lies in it too or is no wider than it. So a
      pass bounds the true value to the band and half its width beyond, at the interval's confidence.
      A band with an infinite end has no width to compare with: there the interval must lie inside.
    - inconclusive: everything else. The data exclude neither the law nor its negation.
    """
    if math.isnan(value) or low > band_high or high < band_low:
        return Verdict.FAIL
    inside = band_low <= low and high <= band_high
    narrow = math.isfinite(band_high - band_low) and high - low <= band_high - band_low
    if band_low <= value <= band_high and (inside or narrow):
        return Verdict.PASS
    return Verdict.INCONCLUSIVE


@dataclass(frozen=True)
class Sweep:
    """The points at which a claim is measured.

    Parameters
    ----------
    name : str
        What is swept, as an axis label: ``"local steps K"``.
    quick : sequence
        Points of ``--quick``: numbers, or anything that `measure` understands (tuples, names).
    full : sequence, optional
        Points of ``--full``; the quick ones by default.
    x : callable, optional
        ``x(point) -> float``, the abscissa. Default: the point itself if it is a number, else its index.
    group : callable, optional
        ``group(point) -> str``: points of one group make one curve, e.g. one curve per graph.
    label : callable, default str
        ``label(point) -> str``, as messages name the point.
    axis : str, optional
        Label of the axis of a measured series (`Measurement.x`); `name` by default.
    """

    name: str
    quick: Sequence[Any]
    full: Sequence[Any] | None = None
    x: Callable[[Any], float] | None = None
    group: Callable[[Any], str] | None = None
    label: Callable[[Any], str] = str
    axis: str | None = None

    def __post_init__(self) -> None:
        for effort in EFFORTS:
            if len(self.points(effort)) == 0:
                raise ValueError(f"sweep {self.name!r} must have at least one {effort} point, got none.")

    @classmethod
    def once(cls, name: str = "measurement") -> Sweep:
        """A single point 0: for a claim about one number."""
        return cls(name, (0,))

    def points(self, effort: str) -> Sequence[Any]:
        """The points of ``"quick"`` or ``"full"``."""
        return self.quick if effort == "quick" or self.full is None else self.full

    @property
    def has_axis(self) -> bool:
        """Whether every point has a number that a curve can be drawn over."""
        return self.x is not None or all(_is_number(p) for e in EFFORTS for p in self.points(e))

    def abscissa(self, point: Any, index: int) -> float:
        """The x of `point`, which is number `index` of its list."""
        if self.x is not None:
            return float(self.x(point))
        return float(point) if _is_number(point) else float(index)


@dataclass(frozen=True)
class Measurement:
    """What `measure` may return when one number is not enough.

    Parameters
    ----------
    value : float, bool or 1-D array
        The quantity; an array is a series along an axis, e.g. the loss after each round of one run.
    reference : float or 1-D array, optional
        What the value is held against: a bound, a prediction, the other side of an equality, a number of
        trials (`Coverage`).
    x : float or 1-D array, optional
        The series' axis, increasing; 1, 2, 3, ... by default. For a single number: its abscissa, in place
        of the sweep's.
    used : bool or 1-D boolean array, default True
        False where the law does not speak about the value (outside the regime); such points are drawn
        but not judged.
    """

    value: Any
    reference: Any = None
    x: Any = None
    used: Any = True

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """``(x, value, reference, used)`` as 1-D arrays of one length; x is NaN for a single number."""
        value = np.asarray(self.value)
        if value.dtype.kind not in "biuf" or value.ndim > 1:
            raise TypeError(
                f"a measurement must be a real number or a 1-D array of them, got {self.value!r}."
            )
        size = value.size
        if self.x is not None:
            x = np.atleast_1d(np.asarray(self.x, dtype=np.float64))
        else:
            x = np.array([np.nan]) if value.ndim == 0 else np.arange(1.0, size + 1)
        if x.shape != (size,) or (size > 1 and not np.all(np.diff(x) > 0)):
            raise ValueError(f"x of a series must be {size} increasing numbers, got shape {x.shape}.")
        reference = np.asarray(np.nan if self.reference is None else self.reference, dtype=np.float64)
        for name, array in (("reference", reference), ("used", np.asarray(self.used))):
            if array.ndim and array.shape != (size,):
                raise ValueError(f"{name} must be one number or {size} of them, got shape {array.shape}.")
        used = np.broadcast_to(np.asarray(self.used, dtype=bool), (size,)).copy()
        return x, value.astype(np.float64).reshape(size), np.broadcast_to(reference, (size,)).copy(), used


@dataclass(frozen=True)
class Observations:
    """All that was measured for a claim (or its control): one row per number.

    Attributes
    ----------
    points : list
        The sweep's point of each row.
    labels, groups : list of str
        The point as messages name it; the curve the row belongs to.
    x, value, reference : float64 arrays
        `reference` is NaN where the measurement gave none.
    seed : int64 array
    used : bool array
    """

    points: list[Any]
    labels: list[str]
    groups: list[str]
    x: np.ndarray
    value: np.ndarray
    reference: np.ndarray
    seed: np.ndarray
    used: np.ndarray

    def __len__(self) -> int:
        return self.value.size

    def place(self, row: int) -> str:
        """Where row `row` was measured, in words."""
        repeated = self.seed.size > 0 and bool(np.any(self.seed != self.seed[0]))
        return f"{self.labels[row]} (seed {self.seed[row]})" if repeated else self.labels[row]

    def curves(self) -> dict[str, list[np.ndarray]]:
        """For each group the row numbers of each seed's curve, in the order of x."""
        table: dict[str, dict[int, list[int]]] = {}
        for row, group in enumerate(self.groups):
            table.setdefault(group, {}).setdefault(int(self.seed[row]), []).append(row)
        return {
            group: [np.array(sorted(rows, key=lambda row: self.x[row])) for rows in seeds.values()]
            for group, seeds in table.items()
        }

    def repetitions(self) -> list[np.ndarray]:
        """Row numbers of the same place (group, point and x) under all seeds, used rows only."""
        table: dict[tuple[str, str, float], list[int]] = {}
        for row in np.flatnonzero(self.used):
            table.setdefault((self.groups[row], self.labels[row], float(self.x[row])), []).append(int(row))
        return [np.array(rows) for rows in table.values()]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A theorem with the measurement that tests it.

    Parameters
    ----------
    name : str
        Unique, e.g. ``"local_gd.small_step.slope_in_local_steps"``: letters, digits and ``_ . + -``.
    theorem : str
        The statement in words.
    reference : str
        Where it is from (authors, title, venue, number of the theorem).
    quantity : str
        What is measured, as an axis label.
    law : Law
        What the theorem says about the quantity, and the tolerance (`theory_checks.laws`).
    measure : callable
        ``measure(point, seed)`` -> float, bool, 1-D array or `Measurement`. A pure function: the order of
        the calls and the process they run in must not matter.
    sweep : Sweep
    control : callable
        ``control(point, seed)``: the same measurement of a deliberately wrong variant. The law must
        reject it. A control that diverges should return NaN, which every law rejects by name.
    control_text : str
        What is wrong in it: ``"step size 1/K: more local steps do not help"``.
    seeds : int or (int, int), default 1
        Repetitions, the same or ``(quick, full)``. Slopes need 4 or more for a narrow interval; 1 says that
        the measurement is deterministic.
    control_sweep, control_seeds : optional
        For a cheaper control; those of the measurement by default.
    formula : str, optional
        The statement as a formula, in the TeX that matplotlib reads, without dollars.
    provenance : {"stated", "reconstructed", "derived"}
        Stated in the reference, reconstructed from its public record, or derived by us.
    tags : tuple of str
        For selection by ``--tag``.
    """

    name: str
    theorem: str
    reference: str
    quantity: str
    law: Law
    measure: Callable[[Any, int], Any]
    sweep: Sweep
    control: Callable[[Any, int], Any]
    control_text: str
    seeds: int | tuple[int, int] = 1
    control_sweep: Sweep | None = None
    control_seeds: int | tuple[int, int] | None = None
    formula: str = ""
    provenance: str = "stated"
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"name must be letters, digits and _ . + - only, got {self.name!r}.")
        for field in ("theorem", "reference", "quantity", "control_text"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{field} of claim {self.name!r} must be a non-empty text, got {value!r}.")
        for field in ("measure", "control"):
            if not callable(getattr(self, field)):
                raise TypeError(
                    f"{field} of claim {self.name!r} must be callable, got {getattr(self, field)!r}."
                )
        if self.control is self.measure:
            raise ValueError(f"control of claim {self.name!r} must not be its measure.")
        if isinstance(self.tags, str):
            raise TypeError(f"tags of claim {self.name!r} must be a tuple of texts, got {self.tags!r}.")
        for sweep in (self.sweep, self.control_sweep or self.sweep):
            if self.law.needs_axis and not sweep.has_axis and sweep.axis is None:
                raise ValueError(
                    f"the law of claim {self.name!r} needs an axis: sweep numbers, give Sweep(x=...), or "
                    "name the axis of a measured series with Sweep(axis=...)."
                )
        check_choice(self.provenance, "provenance", PROVENANCES)
        for effort in EFFORTS:
            self.repetitions("measure", effort)
            self.repetitions("control", effort)

    def repetitions(self, role: str, effort: str) -> int:
        """Number of seeds of ``"measure"`` or ``"control"`` under ``"quick"`` or ``"full"``."""
        own = role == "control" and self.control_seeds is not None
        seeds = self.control_seeds if own else self.seeds
        if isinstance(seeds, tuple):
            if len(seeds) != 2:
                raise ValueError(f"seeds must be one number or (quick, full), got {seeds!r}.")
            seeds = seeds[EFFORTS.index(effort)]
        return check_integer(seeds, f"seeds of claim {self.name!r}", minimum=1)

    def sweep_of(self, role: str) -> Sweep:
        """The sweep of ``"measure"`` or ``"control"``."""
        return self.control_sweep if role == "control" and self.control_sweep is not None else self.sweep

    def observe(self, role: str, effort: str, results: Sequence[tuple[int, int, Any]]) -> Observations:
        """Lay out ``(point index, seed, returned value)`` triples as rows.

        A scalar is a point of its group's curve; a series is a curve of its own, one per point.
        """
        sweep = self.sweep_of(role)
        points = sweep.points(effort)
        rows: list[tuple[Any, str, str]] = []
        columns: list[list[np.ndarray]] = [[], [], [], [], []]
        for index, seed, returned in sorted(results, key=lambda result: result[:2]):
            point = points[index]
            measurement = returned if isinstance(returned, Measurement) else Measurement(returned)
            x, value, reference, used = measurement.columns()
            group = sweep.group(point) if sweep.group is not None else ""
            label = str(sweep.label(point))
            if np.ndim(measurement.value) == 1:
                group = f"{group} {label}".strip() if len(points) > 1 else str(group)
            elif measurement.x is None:
                x = np.array([sweep.abscissa(point, index)])
            if np.ndim(measurement.value) == 1:
                axis = sweep.axis or "x ="
                places = [f"{label}, {axis} {at:.6g}" if len(points) > 1 else f"{axis} {at:.6g}" for at in x]
            else:
                places = [label]
            rows += [(point, place, str(group)) for place in places]
            for column, array in zip(columns, (x, value, reference, np.full(value.size, seed), used)):
                column.append(array)
        joined = [np.concatenate(column) if column else np.empty(0) for column in columns]
        return Observations(
            points=[row[0] for row in rows],
            labels=[row[1] for row in rows],
            groups=[row[2] for row in rows],
            x=joined[0],
            value=joined[1],
            reference=joined[2],
            seed=joined[3].astype(np.int64),
            used=joined[4].astype(bool),
        )


def _is_number(point: Any) -> bool:
    return isinstance(point, int | float | np.integer | np.floating) and not isinstance(point, bool)
