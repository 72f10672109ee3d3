"""Pictures of runs: lines hold the recorded numbers, scales fit them, labels say what they are."""

import io

import numpy as np
import pytest

from optikit.plotting import add_slope, new_axes, plot_convergence, plot_history
from optikit.result import History


def history(values, **columns) -> History:
    records = History()
    for k, value in enumerate(values):
        row = {"round": k, "objective": value, "consensus_error": 1.0 / (1 + k), "floats_sent": 10 * k}
        records.append({**row, **{name: column[k] for name, column in columns.items()}})
    return records


def rendered(ax) -> bytes:
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png")
    return buffer.getvalue()


def test_axes_need_no_display_and_no_global_state():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    assert rendered(new_axes())[:4] == b"\x89PNG"
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize(
    ("values", "optimum", "scales"),
    [
        ([4.0, 2.0, 1.0], 0.0, ("log", "log")),
        ([4.0, 2.0, 1.0], 1.0, ("linear", "linear")),
        ([4.0, -2.0], 0.0, ("linear", "linear")),
        ([4.0, np.nan, 1.0], 0.0, ("log", "log")),
    ],
)
def test_axes_are_logarithmic_when_all_values_are_positive(values, optimum, scales):
    ax = plot_history(history(values), optimum=optimum)
    assert (ax.get_xscale(), ax.get_yscale()) == scales
    rendered(ax)


@pytest.mark.parametrize(
    ("scale", "scales"),
    [("semilogy", ("linear", "log")), ("loglog", ("log", "log")), ("linear", ("linear", "linear"))],
)
def test_scales_can_be_asked_for(scale, scales):
    ax = plot_history(history([4.0, 2.0, 1.0]), scale=scale)
    assert (ax.get_xscale(), ax.get_yscale()) == scales


def test_unknown_scales_are_named():
    with pytest.raises(ValueError, match="scale must be 'auto', 'loglog', 'semilogy' or 'linear', got 'log'"):
        plot_history(history([1.0]), scale="log")


def test_lines_hold_the_records_that_are_finite():
    ax = plot_history({"a": history([4.0, np.nan, 1.0]), "b": history([3.0, 2.0])}, optimum=0.5)
    first, second = ax.get_lines()
    np.testing.assert_array_equal(first.get_xdata(), [0, 2])
    np.testing.assert_array_equal(first.get_ydata(), [3.5, 0.5])
    np.testing.assert_array_equal(second.get_ydata(), [2.5, 1.5])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert ax.get_ylabel() == "objective - optimum"


def test_unlabelled_runs_have_no_legend_and_unknown_columns_their_own_name():
    ax = plot_history(history([1.0, 2.0], margin=[0.1, 0.2]), y="margin", color="black", lw=3)
    assert ax.get_legend() is None
    assert ax.get_ylabel() == "margin"
    assert ax.get_lines()[0].get_linewidth() == 3


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", [[], [np.nan, np.nan], [1.0]])
def test_histories_with_nothing_to_show_are_drawn_without_a_warning(values):
    records = history(values)
    if not values:
        records.append({"round": np.nan, "objective": np.nan})
    rendered(plot_history({"run": records}))


def test_a_reference_slope_passes_through_its_point_with_its_exponent():
    ax = plot_history({"run": history([1.0 / (1 + k) for k in range(50)])})
    add_slope(ax, -1.0, (10.0, 0.2))
    x, y = ax.get_lines()[-1].get_data()
    assert np.diff(np.log(y))[0] / np.diff(np.log(x))[0] == pytest.approx(-1.0)
    assert np.exp(np.interp(np.log(10.0), np.log(x), np.log(y))) == pytest.approx(0.2)
    assert ax.get_legend().get_texts()[-1].get_text() == "slope -1"


def test_convergence_shows_gap_and_consensus_against_every_cost():
    runs = {"a": history([4.0, 3.0, 2.0]), "b": history([4.0, 2.5, 1.5])}
    figure = plot_convergence(runs, optimum=1.0)
    axes = figure.axes
    assert len(axes) == 4
    assert [ax.get_xlabel() for ax in axes] == ["communication rounds", "floats sent by all agents"] * 2
    np.testing.assert_array_equal(axes[1].get_lines()[1].get_xdata(), [0, 10, 20])
    np.testing.assert_array_equal(axes[1].get_lines()[1].get_ydata(), [3.0, 1.5, 0.5])
    assert axes[0].get_legend() is not None
    assert all(ax.get_legend() is None for ax in axes[1:])


def test_convergence_of_one_unlabelled_run_has_no_legend():
    figure = plot_convergence(history([4.0, 3.0, 2.0]))
    assert all(ax.get_legend() is None for ax in figure.axes)
