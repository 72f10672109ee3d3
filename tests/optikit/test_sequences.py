"""Time-varying sequences: exactness, lengths and contraction against the closed forms of their papers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit.graphs import Graph, ring
from optikit.mixing import laplacian_gossip, laplacian_mixing
from optikit.mixing.finite_time import (
    base_graph,
    k_peer_contraction,
    k_peer_exponential,
    null_cascade,
    one_peer_exponential,
    one_peer_hypercube,
)
from optikit.mixing.periodic import connected_windows, ring_and_star, rotating_star
from optikit.mixing.random_sequences import ErdosRenyiSequence, LinkFailures, RandomMatchings
from optikit.network import Network


def period_product(sequence):
    return sequence.window(0, sequence.period).toarray()


def largest_degree(sequence):
    return max(int(sequence.matrix(q).degrees().max()) for q in range(sequence.period))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_base_graph_is_exact_sparse_and_short_for_every_n_to_99(k):
    for n in range(2, 100):
        sequence = base_graph(n, k)
        assert np.abs(period_product(sequence) - 1 / n).max() <= 1e-12
        assert largest_degree(sequence) <= k
        assert sequence.period <= 2 * math.log(n, k + 1) + 2 + 1e-9
        for q in range(sequence.period):
            matrix = sequence.matrix(q)
            matrix.validate(nonneg=True)
            assert matrix.is_symmetric


@pytest.mark.parametrize(
    ("k", "lengths"),
    [
        (1, {5: 5, 6: 4, 12: 5, 15: 7, 21: 9, 25: 9, 31: 9}),
        (2, {5: 3, 7: 4, 10: 4, 11: 5, 25: 6, 26: 6}),
    ],
)
def test_base_graph_has_the_lengths_of_the_authors_code(k, lengths):
    assert {n: base_graph(n, k).period for n in lengths} == lengths


def test_idle_averaging_keeps_the_product_exact():
    for n in (5, 7, 11, 23, 25):
        assert np.abs(period_product(base_graph(n, 1, idle_averaging=True)) - 1 / n).max() <= 1e-12


def test_null_cascade_with_two_peers_is_exact_commuting_and_non_negative_to_64():
    for n in range(2, 65):
        sequence = null_cascade(n, 2)
        matrices = [sequence.matrix(q).toarray() for q in range(sequence.period)]
        assert np.abs(period_product(sequence) - 1 / n).max() <= 1e-12
        assert max(np.abs(a @ b - b @ a).max() for a in matrices for b in matrices) <= 1e-15
        assert min(a.min() for a in matrices) >= 0
        assert largest_degree(sequence) <= 2


@pytest.mark.parametrize(
    ("k", "lengths"),
    [
        (2, {5: 2, 7: 3, 11: 5, 13: 6, 15: 3, 25: 4, 31: 15, 48: 5, 49: 6}),
        (4, {7: 2, 11: 3, 13: 3, 17: 4, 31: 8}),
    ],
)
def test_null_cascade_has_the_lengths_of_the_spectral_count(k, lengths):
    # A filter with k taps besides the centre nulls floor(k/2) frequency pairs of a prime factor.
    assert {n: null_cascade(n, k).period for n in lengths} == lengths


def test_null_cascade_warns_where_it_is_long_and_refuses_what_is_impossible():
    with pytest.warns(UserWarning, match="base_graph"):
        null_cascade(61, 2)
    with pytest.raises(ValueError, match="k must be >= 2"):
        null_cascade(6, 1)
    assert np.abs(period_product(null_cascade(16, 1)) - 1 / 16).max() <= 1e-15


@pytest.mark.parametrize(
    ("n", "k", "expected"), [(6, 1, 0.2165), (10, 2, 0.0970), (25, 1, 0.1921), (25, 2, 0.0735)]
)
def test_k_peer_exponential_contracts_by_the_closed_form(n, k, expected):
    measured = np.linalg.norm(period_product(k_peer_exponential(n, k)) - 1 / n, 2)
    assert measured == pytest.approx(k_peer_contraction(n, k), abs=1e-12)
    assert measured == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("n", "k"), [(27, 2), (64, 3), (32, 1), (8, 3)])
def test_k_peer_exponential_is_exact_where_n_divides_the_power(n, k):
    assert np.abs(period_product(k_peer_exponential(n, k)) - 1 / n).max() <= 1e-15
    assert k_peer_contraction(n, k) <= 1e-15


def test_one_peer_hypercube_is_exact_and_undirected():
    sequence = one_peer_hypercube(16)
    assert sequence.period == 4
    assert np.abs(period_product(sequence) - 1 / 16).max() <= 1e-15
    assert all(sequence.matrix(q).is_symmetric for q in range(4))
    with pytest.raises(ValueError, match="power of 2"):
        one_peer_hypercube(12)


@pytest.mark.parametrize(
    "build", [lambda n: base_graph(n, 2), lambda n: null_cascade(n, 2), one_peer_hypercube]
)
def test_a_single_agent_needs_no_rounds(build):
    sequence = build(1)
    assert sequence.period == 1
    np.testing.assert_array_equal(sequence.matrix(0).toarray(), [[1.0]])


@pytest.mark.parametrize("build", [base_graph, null_cascade, k_peer_exponential])
@pytest.mark.parametrize(("n", "k"), [(0, 1), (5, 0), (-3, 2)])
def test_sizes_out_of_range_are_named(build, n, k):
    with pytest.raises(ValueError, match=r"(n|k) must be an integer >= 1"):
        build(n, k)


def test_random_vectors_are_averaged_in_one_period_of_25_agents():
    X = np.random.default_rng(0).standard_normal((25, 4))
    for sequence, rounds in ((base_graph(25, 1), 9), (null_cascade(25, 2), 4)):
        network = Network(sequence)
        Y = X
        for _ in range(rounds):
            Y = network.mix(Y)
        assert np.abs(Y - X.mean(0)).max() <= 1e-13
    leftover = np.linalg.norm(one_peer_exponential(25).window(0, 5).toarray() - 1 / 25, 2)
    assert leftover == pytest.approx(0.192, abs=5e-4)


def test_chi_of_the_rotating_star_of_nine():
    # Star Laplacian: l_max = n, l_2 = 1, so chi = (n+1)^2/(4n) and n^2/(2n-1).
    assert rotating_star(9, weights=laplacian_gossip).chi() == pytest.approx(25 / 9, rel=1e-12)
    largest = rotating_star(9, weights=lambda graph: laplacian_gossip(graph, "max"))
    assert largest.chi() == pytest.approx(81 / 17, rel=1e-12)


def test_windows_are_connected_only_together():
    sequence = connected_windows(ring(9), 3)
    assert sequence.chi() == math.inf
    assert math.isfinite(sequence.chi(3))
    assert sequence.is_b_connected(3)
    assert not sequence.is_b_connected(1)
    with pytest.raises(ValueError, match="at most the number of links 9"):
        connected_windows(ring(9), 10)
    with pytest.raises(ValueError, match="connected"):
        connected_windows(Graph(4, [(0, 1)]), 1)


def test_ring_and_star_alternate():
    sequence = ring_and_star(5)
    assert sequence.period == 10
    assert sequence.matrix(0).degrees().tolist() == [2] * 5
    assert sequence.matrix(3).degrees().tolist() == [1, 4, 1, 1, 1]


RANDOM = {
    "erdos_renyi": lambda seed: ErdosRenyiSequence(9, 0.4, seed),
    "link_failures": lambda seed: LinkFailures(ring(9), 0.3, seed),
    "matchings": lambda seed: RandomMatchings(9, seed),
}


@pytest.mark.parametrize("name", RANDOM)
def test_a_round_of_a_random_sequence_does_not_depend_on_what_was_asked_before(name):
    first, second = RANDOM[name](3), RANDOM[name](3)
    forward = [first.matrix(q).toarray() for q in range(40)]
    for q in reversed(range(40)):
        np.testing.assert_array_equal(second.matrix(q).toarray(), forward[q])
    other = RANDOM[name](4)
    assert any(not np.array_equal(other.matrix(q).toarray(), forward[q]) for q in range(5))


@given(n=st.integers(2, 15), seed=st.integers(0, 10), q=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_random_matchings_pair_everybody_but_one(n, seed, q):
    matrix = RandomMatchings(n, seed).matrix(q)
    matrix.validate(nonneg=True)
    assert sorted(matrix.degrees())[-(n - n % 2) :] == [1] * (n - n % 2)


def test_failed_links_are_those_of_the_base_graph():
    sequence = LinkFailures(ring(12), 0.5, 1)
    base = ring(12).adjacency.toarray()
    counts = [sequence.graph(q).n_edges for q in range(200)]
    assert all(np.all(sequence.graph(q).adjacency.toarray() <= base) for q in range(20))
    # 12 links, each up with probability 1/2: the mean of 200 draws is 6 +- 0.12 (one standard error).
    assert abs(np.mean(counts) - 6) < 0.5


def test_weights_may_be_any_rule():
    assert rotating_star(6, weights=laplacian_mixing).kind == "mixing"
    with pytest.raises(TypeError, match="weights must be a function"):
        ErdosRenyiSequence(5, 0.5, weights="metropolis")
    with pytest.raises(ValueError, match="p must be a finite number > 0 and <= 1"):
        ErdosRenyiSequence(5, 0.0)
