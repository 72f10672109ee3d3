"""What a run writes: a line for people, JSON for machines, arrays, a table, a picture, a page."""

from __future__ import annotations

import base64
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from optikit.arrays import to_numpy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optikit.result import Result
    from solvers.cli.problem import Problem
    from solvers.registry import Method


def summary(result: Result, problem: Problem, parameters: dict[str, Any]) -> dict[str, Any]:
    """The outcome as plain values, ready for JSON (numbers that are not finite become None)."""
    certificate = None
    if result.certificate is not None:
        own = result.certificate
        certificate = {
            "kind": own.kind,
            "lower_bound": own.lower_bound,
            "upper_bound": own.upper_bound,
            "gap": own.gap,
            **own.details,
        }
    return _plain(
        {
            "method": result.solver.name,
            "parameters": parameters,
            "data": problem.description,
            "status": result.status,
            "success": result.success,
            "message": result.message,
            "objective": result.objective,
            "rounds": result.rounds,
            "iterations": result.iterations,
            "seconds": result.seconds,
            "ranks": problem.network.size,
            "communication": result.ledger.as_dict(),
            "certificate": certificate,
        }
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "shape"):
        return _plain(to_numpy(value).tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int | str | bool | None) else str(value)


def write_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, allow_nan=False)


def write_arrays(path: Path, result: Result, problem: Problem) -> None:
    """``x``, coefficients in the file's units, and the history, as an npz archive without objects."""
    x = to_numpy(result.x)
    coefficients, intercept = problem.coefficients(x)
    columns = {f"history.{name}": column for name, column in result.history.columns.items()}
    with open(path, "wb") as stream:
        np.savez(
            stream,
            x=x,
            coefficients=coefficients,
            intercept=np.array(intercept),
            feature_names=np.array(problem.feature_names, dtype=str),
            status=np.array(result.status),
            **columns,  # type: ignore[arg-type]
        )


def write_history(path: Path, result: Result) -> None:
    """The history as a csv table, every number to full precision."""
    result.to_dataframe().to_csv(path, index=False)


def draw(result: Result, method: Method, optimum: float) -> Axes:
    """The rate picture: objective gap against rounds, with the rate that theory promises as a guide.

    Where the method certifies its gap, that is drawn unless the optimum is known.
    """
    from optikit.plotting import add_slope, plot_history

    y = "gap" if not optimum and "gap" in result.history else "objective"
    ax = plot_history(result, y=y, optimum=optimum)
    if y == "gap":
        ax.set_ylabel("certified optimality gap")
    ax.set_title(result.solver.name)
    rounds, gap = result.history["round"], result.history[y] - optimum
    shown = (rounds > 0) & (gap > 0)
    if method.rate is not None and shown.any() and ax.get_yscale() == ax.get_xscale() == "log":
        last = np.flatnonzero(shown)[-1]
        limits = ax.get_ylim()
        add_slope(ax, method.rate, (rounds[last], gap[last]), label=f"slope {method.rate:g} (theory)")
        ax.set_ylim(limits)  # the data decide what is seen, not the guide
    return ax


def write_picture(path: Path, ax: Axes) -> None:
    """The picture, in the format that the file's name says."""
    figure: Any = ax.figure
    figure.savefig(path, dpi=150)


def report_section(document: dict[str, Any], ax: Axes, result: Result) -> Markup:
    """Settings, outcome, picture and history of a run as HTML, for a page of one or several sections."""
    picture = io.BytesIO()
    figure: Any = ax.figure
    figure.savefig(picture, format="png", dpi=130)
    names = list(result.history.columns)
    count = len(result.history)
    # At most twenty rows, evenly spread, first and last among them.
    kept = np.unique(np.linspace(0, max(count - 1, 0), min(count, 20)).round().astype(int))
    rows = [[f"{result.history[name][k]:.6g}" for name in names] for k in kept]
    section = _template("section.html.jinja").render(
        run=document,
        picture=base64.b64encode(picture.getvalue()).decode(),
        columns=[name.replace("_", " ") for name in names],
        rows=rows,
    )
    return Markup(section)  # every value in it was escaped by the template


def write_report(path: Path, document: dict[str, Any], ax: Axes, result: Result) -> None:
    """One self-contained HTML page."""
    section = report_section(document, ax, result)
    path.write_text(_template("run.html.jinja").render(run=document, section=section), encoding="utf-8")


def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("solvers")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    ).get_template(name)
