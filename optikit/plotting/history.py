"""Pictures of runs: gap against rounds, floats or seconds, and consensus error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from optikit.result import History, Result

AXIS_LABELS = {
    "round": "communication rounds",
    "iteration": "iterations",
    "seconds": "seconds",
    "floats_sent": "floats sent by all agents",
    "gradients": "gradient evaluations",
    "objective": "objective",
    "gap": "optimality gap",
    "consensus_error": "consensus error (RMS)",
}


def new_axes(width: float = 6.0, height: float = 4.0) -> Axes:
    """Axes on a figure of its own, drawn without a display and without pyplot's global state."""
    return new_grid(1, 1, width, height)[0, 0]


def new_grid(
    rows: int, columns: int, width: float, height: float, figure: Figure | None = None
) -> np.ndarray:
    """Array (rows, columns) of axes on the given figure, or on one of its own, see `new_axes`."""
    if figure is None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
    return figure.subplots(rows, columns, squeeze=False)


def plot_history(
    runs: Mapping[str, History | Result] | History | Result,
    *,
    y: str = "objective",
    x: str = "round",
    optimum: float = 0.0,
    scale: str = "auto",
    ax: Axes | None = None,
    **line: Any,
) -> Axes:
    """Draw one quantity of one or several runs.

    Parameters
    ----------
    runs : mapping of label to History or Result, or one of these
    y, x : str
        Columns of the histories.
    optimum : float, default 0
        Subtracted from `y`, so that the optimality gap is drawn.
    scale : {"auto", "loglog", "semilogy", "linear"}
        "auto": both axes logarithmic when all values are positive, so that a rate is a straight line.
    ax : matplotlib Axes, optional
        Where to draw; new axes by default.
    **line
        Passed to matplotlib's `plot`.

    Returns
    -------
    matplotlib Axes
    """
    if scale not in {"auto", "loglog", "semilogy", "linear"}:
        raise ValueError(f"scale must be 'auto', 'loglog', 'semilogy' or 'linear', got {scale!r}.")
    if not isinstance(runs, Mapping):
        runs = {"": runs}
    ax = new_axes() if ax is None else ax
    lowest = np.inf
    for label, run in runs.items():
        history: Any = getattr(run, "history", run)
        horizontal, vertical = history[x], history[y] - optimum
        shown = np.isfinite(vertical)
        # Round 0 has no place on logarithmic axes: it does not decide against them (consensus starts at 0).
        lowest = min(lowest, np.min(vertical[shown & (horizontal > 0)], initial=np.inf))
        ax.plot(horizontal[shown], vertical[shown], label=label or None, **line)
    if scale == "auto":
        scale = "loglog" if 0 < lowest < np.inf else "linear"
    if scale in {"loglog", "semilogy"}:
        ax.set_yscale("log", nonpositive="mask")
    if scale == "loglog":
        ax.set_xscale("log", nonpositive="mask")
    ax.set_xlabel(AXIS_LABELS.get(x, x))
    ax.set_ylabel(AXIS_LABELS.get(y, y) + (" - optimum" if optimum else ""))
    ax.grid(True, which="major", alpha=0.3)
    if any(runs):
        ax.legend()
    return ax


def add_slope(ax: Axes, exponent: float, through: tuple[float, float], *, label: str | None = None) -> None:
    """Draw the dashed reference line of a power law ``y ~ x**exponent`` through one point of log-log axes."""
    x0, y0 = through
    low, high = ax.get_xlim()
    ends = np.array([max(low, x0 / 100, np.finfo(float).tiny), high])
    ax.plot(ends, y0 * (ends / x0) ** exponent, "k--", lw=1, label=label or f"slope {exponent:g}")
    ax.legend()


def plot_convergence(
    runs: Mapping[str, History | Result] | History | Result,
    *,
    optimum: float = 0.0,
    gap: str = "objective",
    x: Sequence[str] = ("round", "floats_sent"),
    figure: Figure | None = None,
    **line: Any,
) -> Figure:
    """Optimality gap and consensus error of several runs, each against rounds and against floats sent.

    Parameters
    ----------
    runs : mapping of label to History or Result, or one of these
    optimum : float, default 0
        Subtracted from the column `gap`.
    gap : str, default "objective"
        Column drawn in the upper row; "gap" is the certified gap of methods that have one.
    x : sequence of str, default ("round", "floats_sent")
        Columns of the horizontal axes, one picture each.
    figure : matplotlib Figure, optional
        An empty one to draw on; a new one by default.
    **line
        Passed to matplotlib's `plot`.

    Returns
    -------
    matplotlib Figure
        Two rows, one column for each entry of `x`; the consensus error is below.
    """
    axes = new_grid(2, len(x), 4.8 * len(x), 6.4, figure)
    for column, horizontal in enumerate(x):
        plot_history(runs, y=gap, x=horizontal, optimum=optimum, ax=axes[0, column], **line)
        plot_history(runs, y="consensus_error", x=horizontal, ax=axes[1, column], **line)
        for row in range(2):
            legend = axes[row, column].get_legend()
            if legend is not None and (column or row):
                legend.remove()
    return axes[0, 0].get_figure()
