"""Perron vectors and rates of stochastic matrices, against closed forms, LAPACK and the powers themselves."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit import graphs
from optikit.mixing import (
    PullPush,
    col_stochastic,
    from_matrix,
    laplacian_gossip,
    matrix_power,
    metropolis,
    perron,
    perron_metrics,
    perron_vector,
    return_ratio,
    row_stochastic,
)
from optikit.network import Network
from optikit.runtime.communicator import SerialCommunicator


def directed_ring(n):
    nodes = np.arange(n)
    return graphs.Graph(n, np.stack([nodes, (nodes + 1) % n], axis=1), directed=True)


def random_digraph(n, p, seed):
    """A ring of random order, so that it is strongly connected, and further random links."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    ring = np.stack([order, np.roll(order, 1)], axis=1)
    others = np.argwhere(rng.random((n, n)) < p)
    return graphs.Graph(n, np.concatenate([ring, others]), directed=True)


def test_directed_ring_has_the_figures_of_the_reference():
    A = row_stochastic(directed_ring(16))
    metrics = perron_metrics(A)
    assert metrics.beta == pytest.approx(math.cos(math.pi / 16), abs=1e-13)  # |1 + exp(2 pi i / n)| / 2
    assert round(metrics.beta, 3) == 0.981
    assert metrics.kappa == pytest.approx(1.0)
    assert return_ratio(A) == 2.0**15  # [A^15]_ii = 2^-15
    assert metrics.rounds_for_diagonal() == 179
    ratio = matrix_power(A, 179).csr.diagonal() / metrics.vector
    np.testing.assert_allclose(ratio, 0.948, atol=5e-4)


def test_undirected_graph_with_row_weights_has_degrees_as_perron_vector():
    graph = graphs.erdos_renyi(30, 0.2, seed=1)
    expected = (1.0 + graph.degrees) / (1.0 + graph.degrees).sum()  # reversible: detailed balance
    np.testing.assert_allclose(perron_vector(row_stochastic(graph)), expected, rtol=1e-13)
    assert perron_metrics(row_stochastic(graph)).kappa == pytest.approx(expected.max() / expected.min())


@given(st.integers(2, 25), st.floats(0.0, 0.6), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_powers_stay_within_the_bound(n, p, seed):
    A = row_stochastic(random_digraph(n, p, seed))
    metrics = perron_metrics(A)
    dense, power = A.toarray(), np.eye(n)
    np.testing.assert_allclose(metrics.vector @ dense, metrics.vector, rtol=1e-12)
    for k in range(1, 51):
        power = dense @ power
        if k in (1, 5, 20, 50):
            distance = np.linalg.norm(power - metrics.vector, 2)
            assert distance <= metrics.bound(k) * (1 + 1e-9) + 1e-12


@given(st.integers(2, 15), st.floats(0.0, 0.6), st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_default_rounds_keep_return_weights_within_half(n, p, seed):
    A = row_stochastic(random_digraph(n, p, seed))
    metrics = perron_metrics(A)
    ratio = np.linalg.matrix_power(A.toarray(), metrics.rounds_for_diagonal()).diagonal() / metrics.vector
    assert ratio.min() >= 0.5
    assert ratio.max() <= 1.5


def test_return_ratio_is_the_largest_over_all_powers():
    A = row_stochastic(random_digraph(9, 0.1, seed=3))
    dense, power, largest = A.toarray(), np.eye(9), 0.0
    for _ in range(2000):
        power = dense @ power
        largest = max(largest, float(np.max(1.0 / power.diagonal())))
    assert return_ratio(A) == pytest.approx(largest, rel=1e-9)


def test_doubly_stochastic_matrices_are_uniform():
    metrics = perron_metrics(metropolis(graphs.ring(16)))
    np.testing.assert_allclose(metrics.vector, 1 / 16, rtol=1e-13)
    assert metrics.beta == pytest.approx(1 / 3 + 2 / 3 * math.cos(2 * math.pi / 16), abs=1e-12)


def test_column_stochastic_matrices_have_the_right_vector():
    C = col_stochastic(random_digraph(12, 0.2, seed=0))
    phi = perron_vector(C)
    np.testing.assert_allclose(C.csr @ phi, phi, rtol=1e-12)
    assert perron_metrics(C).beta == pytest.approx(perron_metrics(C.transpose()).beta)


def test_small_entries_keep_their_digits():
    # A chain that drifts back to 0: pi_k is proportional to (1/9)^k, exact by detailed balance.
    n = 30
    A = np.diag(np.full(n - 1, 0.09), 1) + np.diag(np.full(n - 1, 0.81), -1)
    A += np.diag(1 - A.sum(axis=1))
    expected = 9.0 ** -np.arange(n)
    np.testing.assert_allclose(perron_vector(from_matrix(A, "row")), expected / expected.sum(), rtol=1e-12)


def test_sparse_path_agrees_with_the_dense_one(monkeypatch):
    A = row_stochastic(random_digraph(60, 0.05, seed=2))
    dense = perron_metrics(A)
    monkeypatch.setattr(perron, "DENSE_LIMIT_NONSYMMETRIC", 5)
    sparse = perron_metrics(A)
    np.testing.assert_allclose(sparse.vector, dense.vector, rtol=1e-12)
    assert sparse.beta == pytest.approx(dense.beta, rel=1e-9)


def test_single_agent():
    metrics = perron_metrics(metropolis(graphs.ring(1)))
    assert (metrics.vector.tolist(), metrics.beta, metrics.kappa) == ([1.0], 0.0, 1.0)
    assert metrics.rounds_for_diagonal() == 1


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (laplacian_gossip(graphs.ring(4)), "gossip"),
        (from_matrix([[0.5, 0.5], [0.0, 1.0]], "row"), "strongly connected"),
        (from_matrix([[1.5, -0.5], [0.5, 0.5]], "row"), ">= 0"),
    ],
)
def test_bad_matrices_are_named(matrix, message):
    with pytest.raises(ValueError, match=message):
        perron_vector(matrix)


def test_zero_return_weights_have_infinite_ratio():
    swap = from_matrix([[0.0, 1.0], [0.5, 0.5]], "row")
    assert return_ratio(swap) == math.inf
    with pytest.raises(ValueError, match="beta must be < 1"):
        perron_metrics(from_matrix([[0.0, 1.0], [1.0, 0.0]], "row")).rounds_for_diagonal()


def test_pull_push_alternates_its_matrices():
    graph = random_digraph(8, 0.2, seed=1)
    sequence = PullPush(graph)
    assert (sequence.kind, sequence.period) == ("pull-push", 2)
    network = Network(sequence, communicator=SerialCommunicator())
    X = np.random.default_rng(0).standard_normal((8, 3))
    np.testing.assert_allclose(network.mix(X), row_stochastic(graph) @ X)
    np.testing.assert_allclose(network.mix(X), col_stochastic(graph) @ X)
    np.testing.assert_allclose(network.mix(X), row_stochastic(graph) @ X)


def test_pull_push_refuses_what_does_not_fit():
    graph = random_digraph(5, 0.2, seed=1)
    with pytest.raises(ValueError, match="pull must be of kind 'row'"):
        PullPush(col_stochastic(graph), col_stochastic(graph))
    with pytest.raises(ValueError, match="same agents"):
        PullPush(graph, random_digraph(6, 0.2, seed=1))
    with pytest.raises(ValueError, match="push is needed"):
        PullPush(row_stochastic(graph))
    with pytest.raises(TypeError, match="push must be"):
        PullPush(graph, np.eye(5))
