"""The picture of a claim: what was measured, the fit, the law, and the negative control."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from theory_checks.report import ClaimReport, Side

MEASURED, CONTROL, LAW = "#1b5e9b", "#b3402a", "#3c7d3c"
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "optikit",  # the same report gives the same bytes
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def picture(claim: ClaimReport) -> str | None:
    """An SVG of `claim` as a ``data:`` URI, or None where there is nothing to draw."""
    if claim.scale == "none" or not claim.measured.rows["value"]:
        return None
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5.6, 3.7), layout="constrained")
        axes = figure.add_subplot()
        if claim.scale == "estimates":
            _draw_estimates(axes, claim)
            return _data_uri(figure)
        positions = None if claim.numeric_axis else _categories(axes, claim)
        log_x, log_y = _scales(claim)
        axes.set_xscale("log" if log_x and positions is None else "linear")
        axes.set_yscale("log" if log_y else "linear")
        for side, colour, marker, name in (
            (claim.measured, MEASURED, "o", "measured"),
            (claim.control, CONTROL, "x", "negative control"),
        ):
            _draw_side(axes, side, colour, marker, name, log_y, positions)
            _draw_fits(axes, side, colour, claim.scale)
        _draw_expected(axes, claim, log_y, positions)
        axes.set_xlabel(_literal(claim.swept))
        axes.set_ylabel(_literal(claim.quantity))
        axes.legend(frameon=False, fontsize=8)
        return _data_uri(figure)


def formula_picture(formula: str) -> str | None:
    """An SVG of a formula as a ``data:`` URI, or None when matplotlib cannot read it."""
    if not formula:
        return None
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser

    text, font = f"${formula}$", FontProperties(size=12)
    with matplotlib.rc_context(_STYLE):
        try:
            width, height, depth, _, _ = MathTextParser("path").parse(text, dpi=72, prop=font)
        except (ValueError, RuntimeError):
            return None
        figure = Figure(figsize=(width / 72, height / 72))
        figure.text(0, depth / height, text, fontproperties=font)
        figure.patch.set_alpha(0)
        return _data_uri(figure)


def _data_uri(figure: Any) -> str:
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return _encode(stream.getvalue())


def _encode(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")


def _literal(text: str) -> str:
    """`text` as matplotlib shows it literally: one line, no mathematics."""
    shown = "".join(c if c.isprintable() else " " for c in text).replace("\\", r"\\").replace("$", r"\$")
    return shown if len(shown) <= 70 else shown[:69] + "…"


def _columns(side: Side) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rows = side.rows
    return (
        np.array(rows["x"], dtype=float),
        np.array(rows["value"], dtype=float),
        np.array(rows["reference"], dtype=float),
        np.array(rows["used"], dtype=bool),
    )


def _scales(claim: ClaimReport) -> tuple[bool, bool]:
    """Whether x and y are logarithmic."""
    if claim.scale == "loglog":
        return True, True
    if claim.scale == "semilogy":
        return False, True
    if claim.scale == "linear":
        return False, False
    x, value, _, used = _columns(claim.measured)
    return _spans(x[used]), _spans(np.concatenate([value[used], _columns(claim.control)[1]]))


def _spans(numbers: np.ndarray) -> bool:
    finite = numbers[np.isfinite(numbers)]
    return bool(finite.size and np.all(finite > 0) and finite.max() > 20 * finite.min())


def _categories(axes: Any, claim: ClaimReport) -> dict[str, int]:
    names = list(dict.fromkeys(claim.measured.rows["label"] + claim.control.rows["label"]))
    if len(names) <= 12:
        axes.set_xticks(range(len(names)), [_literal(name)[:24] for name in names], rotation=20)
    return {name: position for position, name in enumerate(names)}


def _place(side: Side, positions: dict[str, int] | None) -> np.ndarray:
    if positions is None:
        return np.array(side.rows["x"], dtype=float)
    return np.array([positions[label] for label in side.rows["label"]], dtype=float)


def _draw_side(
    axes: Any,
    side: Side,
    colour: str,
    marker: str,
    name: str,
    log_y: bool,
    positions: dict[str, int] | None,
) -> None:
    _, value, _, used = _columns(side)
    x = _place(side, positions)
    shown = np.isfinite(value) & ((value > 0) | (not log_y))
    size = 22 if value.size < 100 else 6
    inside = shown & used
    alpha = 0.8 if len(set(side.rows["seed"])) == 1 else 0.45
    if np.any(inside):
        axes.scatter(
            x[inside], value[inside], s=size, color=colour, marker=marker, alpha=alpha, label=name, zorder=3
        )
    outside = shown & ~used
    if np.any(outside):
        hollow = {"facecolors": "none", "edgecolors": colour} if marker == "o" else {"color": colour}
        label = f"{name}, outside the regime"
        axes.scatter(x[outside], value[outside], s=size, marker=marker, alpha=0.35, label=label, **hollow)


def _draw_fits(axes: Any, side: Side, colour: str, scale: str) -> None:
    if scale not in ("loglog", "semilogy"):
        return
    x, _, _, used = _columns(side)
    groups = np.array(side.rows["group"])
    labelled = False
    for estimate in side.estimates:
        if not np.isfinite(estimate.intercept):
            continue
        rows = used & ((groups == estimate.group) | (estimate.group == ""))
        if not np.any(rows):
            continue
        ends = _ends(x[rows], scale)
        slope = estimate.value if scale == "loglog" else np.log(estimate.value)
        text = f"fit {estimate.name} {estimate.value:.4g}" if not labelled else None
        line = np.exp(estimate.intercept + slope * (np.log(ends) if scale == "loglog" else ends))
        axes.plot(ends, line, color=colour, linewidth=1.2, label=text)
        labelled = True


def _draw_expected(axes: Any, claim: ClaimReport, log_y: bool, positions: dict[str, int] | None) -> None:
    """The law: its slope through the middle of the points, or what each value is held against."""
    side = claim.measured
    x, value, reference, used = _columns(side)
    if claim.scale in ("loglog", "semilogy"):
        usable = used & np.isfinite(value) & (value > 0) & (x > 0 if claim.scale == "loglog" else True)
        groups = np.array(side.rows["group"])
        for number, estimate in enumerate(side.estimates):
            rows = usable & ((groups == estimate.group) | (estimate.group == ""))
            limits = [b for b in (estimate.expected_low, estimate.expected_high) if np.isfinite(b)]
            if not np.any(rows) or not limits or (claim.scale == "semilogy" and min(limits) <= 0):
                continue
            target = float(np.mean(limits))
            if claim.scale == "loglog":
                across, slope = np.log(x[rows]), target
            else:
                across, slope = x[rows], np.log(target)
            ends = _ends(x[rows], claim.scale)
            moved = (np.log(ends) if claim.scale == "loglog" else ends) - across.mean()
            line = np.exp(np.log(value[rows]).mean() + slope * moved)
            label = f"law: {estimate.name} {target:.4g}" if number == 0 else None
            axes.plot(ends, line, color=LAW, linestyle="--", linewidth=1.4, label=label)
        return
    shown = np.isfinite(reference) & ((reference > 0) | (not log_y))
    if np.any(shown):
        at = _place(side, positions)
        axes.scatter(
            at[shown],
            reference[shown],
            marker="_",
            s=90,
            color=LAW,
            label="law: predicted or bound",
            zorder=4,
        )


def _draw_estimates(axes: Any, claim: ClaimReport) -> None:
    """The judged numbers with their intervals, on the band that the law allows."""
    for side, colour, marker, name, shift in (
        (claim.measured, MEASURED, "o", "measured", -0.08),
        (claim.control, CONTROL, "x", "negative control", 0.08),
    ):
        values = np.array([[e.value, e.low, e.high] for e in side.estimates]).reshape(-1, 3)
        ends = np.abs(values[:, 1:].T - values[:, 0])
        at = np.arange(len(values)) + shift
        axes.errorbar(at, values[:, 0], ends, fmt=marker, color=colour, capsize=3, label=name)
    estimates = claim.measured.estimates
    if estimates:
        band = (estimates[0].expected_low, estimates[0].expected_high)
        axes.axhspan(*band, color=LAW, alpha=0.15, label="law and tolerance")
        axes.set_xticks(range(len(estimates)), [_literal(e.name)[:24] for e in estimates], rotation=15)
    axes.set_ylabel(_literal(claim.quantity))
    axes.legend(frameon=False, fontsize=8)


def _ends(x: np.ndarray, scale: str) -> np.ndarray:
    finite = x[np.isfinite(x) & ((x > 0) | (scale != "loglog"))]
    return np.array([finite.min(), finite.max()])
