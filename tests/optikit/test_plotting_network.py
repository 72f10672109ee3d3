"""Pictures draw what they say: one segment per link, the matrix itself, the contraction of every round."""

import networkx
import numpy as np
import pytest

from optikit.graphs import complete, erdos_renyi, ring, star, static_exponential
from optikit.mixing import (
    base_graph,
    default_weights,
    k_peer_contraction,
    laplacian_gossip,
    metropolis,
    null_cascade,
    one_peer_exponential,
    row_stochastic,
)
from optikit.plotting import (
    plot_contraction,
    plot_convergence,
    plot_graph,
    plot_matrix,
    plot_sequence,
)
from optikit.result import History


def segments(ax):
    return ax.collections[0].get_segments()


def drawn(ax):
    """Render: what matplotlib refuses at draw time is refused here."""
    ax.figure.canvas.draw()
    return ax


@pytest.mark.parametrize(
    "graph", [ring(7), star(6), complete(5), erdos_renyi(30, 0.2, 1), static_exponential(9)], ids=repr
)
@pytest.mark.parametrize("layout", ["auto", "circle", "spring", "spectral"])
def test_every_link_is_one_segment_between_its_agents(graph, layout):
    ax = drawn(plot_graph(graph, layout=layout))
    places = ax.collections[-1].get_offsets()
    assert places.shape == (graph.n, 2)
    assert len(segments(ax)) == graph.n_edges
    for segment, (i, j) in zip(segments(ax), graph.edges):
        np.testing.assert_allclose(segment, places[[i, j]])


def test_the_centre_of_a_star_stands_in_the_middle():
    places = plot_graph(star(8, centre=3)).collections[-1].get_offsets()
    assert np.argmin(np.linalg.norm(places, axis=1)) == 3


def test_weights_decide_the_width_of_links():
    matrix = metropolis(erdos_renyi(12, 0.3, 0))
    widths = plot_graph(matrix).collections[0].get_linewidths()
    edges = matrix.graph().edges
    weights = matrix.toarray()[edges[:, 1], edges[:, 0]]
    assert np.all(np.diff(np.asarray(widths)[np.argsort(weights, kind="stable")]) >= 0)


def test_agents_may_carry_values_and_numbers():
    graph = ring(5)
    ax = drawn(plot_graph(graph, values=[3.0, 1, 4, 1, 5]))
    np.testing.assert_array_equal(ax.collections[-1].get_array(), [3, 1, 4, 1, 5])
    assert [text.get_text() for text in ax.texts] == ["0", "1", "2", "3", "4"]
    assert not plot_graph(graph, labels=False).texts
    assert not plot_graph(ring(41)).texts


def test_networkx_graphs_and_places_are_taken():
    places = np.random.default_rng(0).random((4, 2))
    ax = plot_graph(networkx.path_graph(4), layout=places)
    np.testing.assert_allclose(ax.collections[-1].get_offsets(), places)
    with pytest.raises(ValueError, match=r"layout must be an array of shape \(4, 2\)"):
        plot_graph(networkx.path_graph(4), layout=places[:2])
    with pytest.raises(ValueError, match="layout must be one of"):
        plot_graph(ring(4), layout="square")


@pytest.mark.parametrize("matrix", [metropolis(ring(6)), laplacian_gossip(star(5))], ids=repr)
def test_the_heat_map_holds_the_matrix(matrix):
    ax = drawn(plot_matrix(matrix))
    image = ax.images[0]
    np.testing.assert_array_equal(image.get_array(), matrix.toarray())
    low, high = image.get_clim()
    assert high == np.abs(matrix.toarray()).max()
    assert low == (0.0 if matrix.toarray().min() >= 0 else -high)


def test_a_sequence_is_drawn_round_by_round():
    sequence = base_graph(6, 1)
    figure = plot_sequence(sequence)
    figure.canvas.draw()
    shown = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in shown] == [f"round {q}" for q in range(sequence.period)]
    for q, ax in enumerate(shown):
        assert len(segments(ax)) == sequence.matrix(q).graph().n_edges
    assert len([ax for ax in plot_sequence(sequence, 9, columns=4).axes if ax.get_title()]) == 9


def test_contraction_curves_are_those_of_the_theory():
    lam = default_weights(ring(16)).lam()
    sequences = {
        "ring": default_weights(ring(16)),
        "one-peer": one_peer_exponential(10),
        "null cascade": null_cascade(25, 2),
    }
    ax = drawn(plot_contraction(sequences, 12))
    curves = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_allclose(curves["ring"], lam ** np.arange(13), rtol=1e-12)
    # One period of the one-peer exponential graph contracts by its closed form.
    assert curves["one-peer"][4] == pytest.approx(k_peer_contraction(10, 1), abs=1e-12)
    assert curves["null cascade"][3] > 0.01
    assert curves["null cascade"][4] <= 1e-15
    assert ax.get_yscale() == "log"
    with pytest.raises(ValueError, match="rounds must be an integer >= 1"):
        plot_contraction(sequences, 0)


def test_contractions_need_balanced_matrices():
    from optikit.mixing import Static

    np.testing.assert_allclose(
        Static(laplacian_gossip(star(9))).contractions(2),
        Static(laplacian_gossip(star(9)).to_mixing()).contractions(2),
        rtol=1e-12,
    )
    with pytest.raises(ValueError, match="'mixing' or 'gossip', got 'row'"):
        Static(row_stochastic(static_exponential(5))).contractions(3)


def test_gap_and_consensus_are_drawn_against_rounds_and_floats():
    runs = {}
    for label, rate in (("fast", 2.0), ("slow", 1.0)):
        history = History()
        for q in range(1, 20):
            record = {"round": q, "floats_sent": 10 * q, "objective": 1 + q**-rate, "consensus_error": 3 / q}
            history.append(record)
        runs[label] = history
    figure = plot_convergence(runs, optimum=1.0)
    figure.canvas.draw()
    (gap_rounds, gap_floats), (error_rounds, error_floats) = np.array(figure.axes).reshape(2, 2)
    for ax, x, y in (
        (gap_rounds, "round", "objective"),
        (gap_floats, "floats_sent", "objective"),
        (error_rounds, "round", "consensus_error"),
        (error_floats, "floats_sent", "consensus_error"),
    ):
        assert [line.get_label() for line in ax.lines] == ["fast", "slow"]
        for line, history in zip(ax.lines, runs.values()):
            np.testing.assert_array_equal(line.get_xdata(), history[x])
            np.testing.assert_allclose(line.get_ydata(), history[y] - (y == "objective"))
        assert ax.get_yscale() == "log"
    assert gap_rounds.get_legend() is not None
    assert error_floats.get_legend() is None
