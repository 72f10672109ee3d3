"""What a run of the checks found: plain data, its JSON, and the table in the terminal.

A report holds everything the HTML page (`theory_checks.html`) shows, so a page can be made later from the
JSON file alone.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from theory_checks.claim import Claim, Observations, Verdict, combine
from theory_checks.laws import Estimate, Judgement

if TYPE_CHECKING:
    from rich.table import Table

FORMAT = 1
MOST_ROWS = 600  # rows kept per side of a claim: enough for a picture, bounded for long series
_ROW_COLUMNS = ("label", "group", "x", "seed", "value", "reference", "used")


@dataclass
class Side:
    """The measurement of a claim, or its negative control, as judged by the law.

    Attributes
    ----------
    verdict, message, estimates
        See `theory_checks.laws.Judgement`; for an error the message is the exception.
    rows : dict of str to list
        Columns label, group, x, seed, value, reference, used: the numbers, thinned evenly to `MOST_ROWS`.
    measured : int
        Numbers measured before thinning.
    seconds : float
        Wall time of the measurements.
    traceback : str
        Of an exception, else empty.
    warnings : list of str
        Distinct warnings the measurements gave.
    """

    verdict: Verdict
    message: str
    estimates: list[Estimate] = field(default_factory=list)
    rows: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _ROW_COLUMNS})
    measured: int = 0
    seconds: float = 0.0
    traceback: str = ""
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def judged(cls, judgement: Judgement, data: Observations, reference: np.ndarray) -> Side:
        """From a law's judgement of `data`."""
        used = data.used if judgement.used is None else judgement.used
        kept = np.unique(np.linspace(0, len(data) - 1, min(len(data), MOST_ROWS)).round().astype(int))
        rows = {
            "label": [data.labels[row] for row in kept],
            "group": [data.groups[row] for row in kept],
            "x": data.x[kept].tolist(),
            "seed": data.seed[kept].tolist(),
            "value": data.value[kept].tolist(),
            "reference": reference[kept].tolist(),
            "used": used[kept].tolist(),
        }
        return cls(judgement.verdict, judgement.message, list(judgement.estimates), rows, len(data))

    @classmethod
    def failed(cls, traceback: str) -> Side:
        """From the traceback of an exception."""
        lines = traceback.strip().splitlines() or ["unknown error"]
        return cls(Verdict.ERROR, lines[-1], traceback=traceback)


@dataclass
class ClaimReport:
    """One claim with what was measured for it."""

    name: str
    verdict: Verdict
    message: str
    theorem: str
    formula: str
    reference: str
    provenance: str
    quantity: str
    swept: str
    numeric_axis: bool
    expected: str
    scale: str
    control_text: str
    tags: list[str]
    measured: Side
    control: Side

    @property
    def seconds(self) -> float:
        """Wall time of the measurement and the control together."""
        return self.measured.seconds + self.control.seconds

    @classmethod
    def of(cls, claim: Claim, measured: Side, control: Side) -> ClaimReport:
        """Combine the two sides of `claim`."""
        verdict = combine(measured.verdict, control.verdict)
        return cls(
            name=claim.name,
            verdict=verdict,
            message=_explain(verdict, measured, control),
            theorem=claim.theorem,
            formula=claim.formula,
            reference=claim.reference,
            provenance=claim.provenance,
            quantity=claim.quantity,
            swept=claim.sweep.axis or claim.sweep.name,
            numeric_axis=claim.sweep.has_axis or claim.sweep.axis is not None,
            expected=claim.law.expected(),
            scale=claim.law.scale,
            control_text=claim.control_text,
            tags=list(claim.tags),
            measured=measured,
            control=control,
        )

    @classmethod
    def unreadable(cls, module: str, traceback: str) -> ClaimReport:
        """A module of claims that could not be imported."""
        side = Side.failed(traceback)
        return cls(
            name=module,
            verdict=Verdict.ERROR,
            message=f"This module of claims cannot be read: {side.message}",
            theorem="",
            formula="",
            reference="",
            provenance="stated",
            quantity="",
            swept="",
            numeric_axis=False,
            expected="",
            scale="auto",
            control_text="",
            tags=[],
            measured=side,
            control=Side(Verdict.ERROR, "not run"),
        )


@dataclass
class Report:
    """All claims of one run.

    Attributes
    ----------
    effort : {"quick", "full"}
    seed : int
    claims : list of ClaimReport
        In the order of the registry, however they were computed.
    interrupted : bool
        Ctrl-C ended the run; the claims not judged by then are named in `unfinished`.
    started : str
        ISO time of the start.
    seconds : float
        Wall time of the whole run.
    jobs, ranks : int
        Processes and MPI ranks that shared the work.
    environment : dict of str to str
        Versions.
    """

    effort: str
    seed: int
    claims: list[ClaimReport]
    interrupted: bool = False
    unfinished: list[str] = field(default_factory=list)
    started: str = ""
    seconds: float = 0.0
    jobs: int = 1
    ranks: int = 1
    environment: dict[str, str] = field(default_factory=dict)

    def counts(self) -> dict[Verdict, int]:
        """How many claims have each verdict, zero counts included."""
        found = Counter(claim.verdict for claim in self.claims)
        return {verdict: found[verdict] for verdict in Verdict}

    def exit_status(self, *, strict: bool = False) -> int:
        """0 when no claim failed, is broken or raised, else 1; 130 after Ctrl-C.

        Under `strict` an inconclusive claim counts as a failure.
        """
        if self.interrupted:
            return 130
        limit = Verdict.PASS if strict else Verdict.INCONCLUSIVE
        return int(any(claim.verdict.severity > limit.severity for claim in self.claims))

    def summary(self) -> str:
        """One line: ``"12 claims: 11 pass, 1 fail (quick, 31.2 s)"``."""
        parts = [f"{count} {verdict}" for verdict, count in self.counts().items() if count]
        text = f"{len(self.claims)} claim{'s' if len(self.claims) != 1 else ''}"
        text += f": {', '.join(parts)}" if parts else ""
        if self.interrupted:
            text += f"; interrupted, {len(self.unfinished)} not judged"
        return f"{text} ({self.effort}, {self.seconds:.1f} s)"

    def to_json(self) -> str:
        """JSON text; numbers that JSON lacks are the strings "nan", "inf" and "-inf"."""
        return json.dumps({"optikit_check": FORMAT, **_encode(self)}, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that `to_json` wrote.

        Raises
        ------
        ValueError
            When the text is no such report, or of another format.
        """
        content = json.loads(text)
        version = content.pop("optikit_check", None) if isinstance(content, dict) else None
        if version != FORMAT:
            raise ValueError(f"the text must be a report of format {FORMAT}, got format {version!r}.")
        claims = []
        for entry in content.pop("claims"):
            measured, control = _decode_side(entry.pop("measured")), _decode_side(entry.pop("control"))
            verdict = Verdict(entry.pop("verdict"))
            claims.append(ClaimReport(verdict=verdict, measured=measured, control=control, **entry))
        return cls(claims=claims, **content)

    def table(self) -> Table:
        """The verdicts as a rich table."""
        from rich.table import Table
        from rich.text import Text

        colours = {"pass": "green", "inconclusive": "yellow"}
        table = Table(title=None, expand=False, show_lines=False)
        for heading, kind in (("claim", "left"), ("verdict", "left"), ("found", "left"), ("s", "right")):
            table.add_column(heading, justify=kind, overflow="fold")  # type: ignore[arg-type]
        for claim in self.claims:
            style = colours.get(claim.verdict, "bold red")
            found = claim.message
            if claim.verdict is Verdict.PASS and "expected" not in found:
                found = f"{claim.message}\nExpected: {claim.expected}."
            cells = (claim.name, claim.verdict.value, found, f"{claim.seconds:.1f}")
            table.add_row(*(Text(plain(cell), style=style if i == 1 else "") for i, cell in enumerate(cells)))
        return table


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` atomically; characters that UTF-8 lacks become escapes."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def plain(text: str) -> str:
    """`text` without control characters, which would move a terminal's cursor."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _explain(verdict: Verdict, measured: Side, control: Side) -> str:
    if verdict is Verdict.BROKEN:
        return f"The negative control passes, so the check proves nothing. Control: {control.message}"
    if verdict is Verdict.ERROR:
        which = "measurement" if measured.verdict is Verdict.ERROR else "negative control"
        side = measured if measured.verdict is Verdict.ERROR else control
        return f"The {which} raised: {side.message}"
    if control.verdict is Verdict.INCONCLUSIVE and measured.verdict is Verdict.PASS:
        return f"{measured.message} But the negative control is not rejected: {control.message}"
    return measured.message


def _encode(thing: Any) -> Any:
    if isinstance(thing, Verdict):
        return thing.value
    if isinstance(thing, float) and not math.isfinite(thing):
        return str(thing)
    if hasattr(thing, "__dataclass_fields__"):
        return {item.name: _encode(getattr(thing, item.name)) for item in fields(thing)}
    if isinstance(thing, dict):
        return {key: _encode(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [_encode(value) for value in thing]
    if isinstance(thing, np.generic):
        return _encode(thing.item())
    return thing


def _decode_side(entry: dict[str, Any]) -> Side:
    estimates = []
    for one in entry.pop("estimates"):
        words: dict[str, Any] = {
            "name": one.pop("name"),
            "group": one.pop("group"),
            "verdict": Verdict(one.pop("verdict")),
        }
        estimates.append(Estimate(**words, **dict(zip(one, map(float, one.values())))))
    rows = entry.pop("rows")
    for column in ("x", "value", "reference"):
        rows[column] = [float(number) for number in rows[column]]
    return Side(verdict=Verdict(entry.pop("verdict")), estimates=estimates, rows=rows, **entry)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
