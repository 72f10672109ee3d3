"""Several rounds as one operator."""

import numpy as np
import pytest

from optikit.gossip import (
    chebyshev_contraction,
    chebyshev_gossip,
    chebyshev_mix,
    gossip_sum,
    mix_rounds,
    window_gossip,
)
from optikit.graphs import Graph, complete, grid, ring, static_exponential
from optikit.mixing import laplacian_gossip, metropolis
from optikit.mixing.finite_time import base_graph
from optikit.network import Network

GRAPHS = {"ring 64": lambda: ring(64), "grid 8x8": lambda: grid(8, 8)}


def chebyshev_matrix(graph, rounds):
    network = Network(graph)
    return chebyshev_mix(network, np.eye(graph.n), rounds=rounds)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("rounds", [1, 5, 10, 20, 40])
def test_chebyshev_contracts_by_one_over_its_polynomial_and_keeps_the_mean(name, rounds):
    graph = GRAPHS[name]()
    lam = metropolis(graph).lam()
    operator = chebyshev_matrix(graph, rounds)
    contraction = np.linalg.norm(operator - 1 / graph.n, 2)
    assert contraction == pytest.approx(chebyshev_contraction(lam, rounds), abs=1e-10)
    np.testing.assert_allclose(operator.sum(0), 1.0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "rounds", "expected"),
    [("ring 64", 20, 0.3863), ("ring 64", 40, 0.0806), ("grid 8x8", 20, 0.01157)],
)
def test_chebyshev_contraction_has_the_measured_values(name, rounds, expected):
    lam = metropolis(GRAPHS[name]()).lam()
    assert chebyshev_contraction(lam, rounds) == pytest.approx(expected, abs=5e-5)


def test_plain_gossip_is_slower_than_chebyshev_on_the_ring():
    assert metropolis(ring(64)).lam() ** 20 == pytest.approx(0.9377, abs=5e-5)


def test_chebyshev_survives_many_rounds_without_overflow():
    graph = grid(4, 4)
    assert np.abs(chebyshev_matrix(graph, 2000) - 1 / 16).max() < 1e-12


def test_chebyshev_refuses_what_its_theorem_does_not_cover():
    X = np.zeros((8, 1))
    with pytest.raises(ValueError, match="static network"):
        chebyshev_mix(Network(base_graph(8, 1)), X, rounds=3)
    with pytest.raises(ValueError, match="symmetric"):
        chebyshev_mix(Network(static_exponential(8)), X, rounds=3)
    with pytest.raises(ValueError, match="connected"):
        chebyshev_mix(Network(Graph(8, [(0, 1)])), X, rounds=3)
    with pytest.raises(ValueError, match="rounds must be an integer >= 0"):
        chebyshev_mix(Network(ring(8)), X, rounds=-1)
    with pytest.raises(ValueError, match="lam must be"):
        chebyshev_mix(Network(ring(8)), X, rounds=3, lam=1.5)


def test_chebyshev_takes_gossip_matrices_and_several_blocks_in_one_exchange():
    matrix = laplacian_gossip(ring(12))
    X, Y = np.random.default_rng(4).standard_normal((2, 12, 3))
    expected = chebyshev_mix(Network(matrix.to_mixing()), X, rounds=4)
    network = Network(matrix)
    moved, other = chebyshev_gossip(network, X, Y[:, :2], rounds=4)
    np.testing.assert_allclose(moved, X - expected, atol=1e-14)
    assert other.shape == (12, 2)
    assert network.round == 4
    assert network.ledger.messages == 4 * 24
    np.testing.assert_allclose(chebyshev_gossip(network, X, rounds=4), moved, atol=1e-15)


def test_complete_graph_averages_in_one_chebyshev_round():
    np.testing.assert_allclose(chebyshev_matrix(complete(6), 3), 1 / 6, atol=1e-15)


def test_a_window_of_a_finite_time_sequence_is_the_exact_projection():
    sequence = base_graph(11, 2)
    network = Network(sequence)
    X, Y = np.random.default_rng(0).standard_normal((2, 11, 3))
    moved, other = window_gossip(network, X, Y, rounds=sequence.period)
    np.testing.assert_allclose(moved, X - X.mean(0), atol=1e-14)
    np.testing.assert_allclose(other, Y - Y.mean(0), atol=1e-14)
    assert network.round == sequence.period


def test_mix_rounds_applies_the_newest_matrix_on_the_left():
    sequence = base_graph(7, 1)
    X = np.random.default_rng(1).standard_normal((7, 2))
    expected = sequence.window(0, 3).toarray() @ X
    np.testing.assert_allclose(mix_rounds(Network(sequence), X, rounds=3), expected, atol=1e-15)


@pytest.mark.parametrize("chebyshev", [True, False])
def test_sum_by_gossip_stays_within_its_certificate(chebyshev):
    X = np.random.default_rng(2).standard_normal((64, 5))
    result = gossip_sum(Network(ring(64)), X, rounds=60, chebyshev=chebyshev)
    worst = np.linalg.norm(result.values - X.sum(0), axis=1).max()
    assert worst == pytest.approx(result.disagreement, rel=1e-9)
    assert result.disagreement <= result.bound
    assert result.rounds == 60


def test_sum_by_gossip_is_exact_after_a_finite_time_period():
    X = np.random.default_rng(3).standard_normal((25, 2, 3))
    sequence = base_graph(25, 2)
    result = gossip_sum(Network(sequence), X, rounds=sequence.period, chebyshev=False)
    np.testing.assert_allclose(result.values, np.broadcast_to(X.sum(0), X.shape), atol=1e-12)
