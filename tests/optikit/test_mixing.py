"""Mixing matrices: closed forms of topology_mixing section 4, kinds and converters, sequences, bad input."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit import graphs
from optikit.mixing import (
    Cyclic,
    MixingMatrix,
    Static,
    circulant,
    col_stochastic,
    default_weights,
    from_matrix,
    laplacian_gossip,
    laplacian_mixing,
    max_degree,
    metropolis,
    row_stochastic,
    spectra,
)
from optikit.mixing.spectra import gossip_spectrum

EXACT = 1e-12


@pytest.mark.parametrize("n", [3, 4, 7, 16, 25])
def test_metropolis_on_a_ring(n):
    assert metropolis(graphs.ring(n)).lam() == pytest.approx(
        1 / 3 + 2 / 3 * math.cos(2 * math.pi / n), abs=EXACT
    )


def test_metropolis_figures_of_the_literature():
    assert metropolis(graphs.ring(16)).lam() == pytest.approx(0.949253, abs=5e-7)
    assert metropolis(graphs.torus(4, 4)).lam() == pytest.approx(0.6, abs=EXACT)
    assert metropolis(graphs.star(9)).lam() == pytest.approx(1 - 1 / 9, abs=EXACT)
    assert metropolis(graphs.complete(9)).lam() == pytest.approx(0.0, abs=EXACT)
    assert metropolis(graphs.hypercube(4)).lam() == pytest.approx(1 - 2 / 5, abs=EXACT)


@pytest.mark.parametrize(("a", "b"), [(4, 4), (5, 6), (3, 7)])
def test_metropolis_on_a_torus(a, b):
    expected = 1 / 5 + 4 / 5 * 0.5 * (1 + math.cos(2 * math.pi / max(a, b)))
    assert metropolis(graphs.torus(a, b)).lam() == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("n", [2, 4, 6, 10, 16])
def test_static_exponential_of_even_size(n):
    lam = max_degree(graphs.static_exponential(n)).lam()
    assert lam == pytest.approx(1 - 2 / (1 + math.ceil(math.log2(n))), abs=EXACT)


def test_static_exponential_of_odd_size():
    assert max_degree(graphs.static_exponential(25)).lam() == pytest.approx(0.5109, abs=5e-5)


@pytest.mark.parametrize(
    ("graph", "maximal", "optimal"), [(graphs.ring(16), 13.392, 7.078), (graphs.star(16), 8.258, 4.516)]
)
def test_chi_of_laplacian_gossip(graph, maximal, optimal):
    values = np.linalg.eigvalsh(graph.laplacian().toarray())
    kappa = values[-1] / values[1]
    chi_max, chi_opt = laplacian_gossip(graph, "max").chi(), laplacian_gossip(graph).chi()
    assert chi_max == pytest.approx(kappa**2 / (2 * kappa - 1), rel=EXACT)
    assert chi_opt == pytest.approx((kappa + 1) ** 2 / (4 * kappa), rel=EXACT)
    assert chi_max == pytest.approx(maximal, abs=5e-4)
    assert chi_opt == pytest.approx(optimal, abs=5e-4)


def test_star_of_nine_has_the_chi_of_the_rotating_star():
    # Every round of the rotating star is a star: 25/9 with the optimal and 81/17 with the maximal scale.
    assert laplacian_gossip(graphs.star(9)).chi() == pytest.approx(25 / 9, rel=EXACT)
    assert laplacian_gossip(graphs.star(9), "max").chi() == pytest.approx(81 / 17, rel=EXACT)


@given(n=st.integers(2, 30), p=st.floats(0.2, 1.0), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_every_rule_gives_its_kind(n, p, seed):
    graph = graphs.erdos_renyi(n, p, seed)
    for matrix in (metropolis(graph), metropolis(graph, lazy=True), max_degree(graph)):
        matrix.validate(nonneg=True)
        assert matrix.kind == "mixing"
        assert 0 <= matrix.lam() < 1
    laplacian_gossip(graph).validate(nonneg=True)
    laplacian_gossip(graph, "max").validate(nonneg=True)
    assert laplacian_mixing(graph).kind == "mixing"
    assert row_stochastic(graph).kind == "row"
    assert col_stochastic(graph).kind == "col"
    # The best constant weight is best: no other multiple of L contracts more.
    assert laplacian_mixing(graph).lam() <= max_degree(graph).lam() + 1e-12


def test_spectrum_is_that_of_the_dense_two_norm():
    rng = np.random.default_rng(0)
    graph = graphs.erdos_renyi(12, 0.4, 2)
    n = graph.n
    permutations = [np.eye(n)[rng.permutation(n)] for _ in range(4)]
    directed = from_matrix(np.mean(permutations, axis=0), "mixing")  # doubly stochastic, not normal
    for matrix in (
        metropolis(graph),
        laplacian_mixing(graph),
        directed,
        circulant(9, [(0, 0.5), (3, 0.3), (1, 0.2)]),
    ):
        lam = np.linalg.norm(matrix.toarray() - 1 / matrix.n, 2)
        assert matrix.lam() == pytest.approx(lam, abs=EXACT)
        assert matrix.gap() == pytest.approx(1 - lam, abs=EXACT)
        assert matrix.chi() == pytest.approx(1 / (1 - lam**2), rel=1e-10)
        assert matrix.to_gossip().chi() == matrix.chi()


@pytest.mark.parametrize("graph", [graphs.from_edges(4, [(0, 1), (2, 3)]), graphs.from_edges(3, [(0, 1)])])
def test_disconnected_metropolis_is_legal_with_infinite_chi(graph):
    matrix = metropolis(graph)
    assert matrix.chi() == math.inf
    assert matrix.gap() == pytest.approx(0.0, abs=1e-15)
    with pytest.raises(ValueError, match="connected"):
        laplacian_gossip(graph)


def test_one_agent():
    matrix = metropolis(graphs.ring(1))
    assert matrix.toarray().tolist() == [[1.0]]
    assert (matrix.lam(), matrix.chi()) == (0.0, 1.0)
    assert laplacian_gossip(graphs.ring(1)).nnz == 0


# -- large graphs: nothing dense ---------------------------------------------------------------------------


def test_huge_ring_has_its_closed_form():
    n = 20_000
    gap = 2 / 3 * 2 * math.sin(math.pi / n) ** 2
    matrix = metropolis(graphs.ring(n))
    assert matrix.gap() == pytest.approx(gap, rel=1e-10)
    assert matrix.chi() == pytest.approx(1 / (gap * (2 - gap)), rel=1e-10)


def test_sparse_path_through_shift_invert_has_its_closed_form():
    n = 20_000
    low, high = spectra.laplacian_extremes(graphs.path(n).laplacian())
    assert low == pytest.approx(4 * math.sin(math.pi / (2 * n)) ** 2, rel=1e-6)
    assert high == pytest.approx(2 + 2 * math.cos(math.pi / n), rel=1e-8)


def test_sparse_solvers_agree_with_dense_ones():
    graph = graphs.erdos_renyi(600, 0.02, 1)
    matrix = metropolis(graph)
    gossip = matrix.to_gossip().csr
    dense = np.linalg.eigvalsh(gossip.toarray())
    low, high = spectra._lanczos_extremes(gossip)
    assert low == pytest.approx(dense[1], rel=1e-9)
    assert high == pytest.approx(dense[-1], rel=1e-9)
    rows = sp.csr_array(np.roll(matrix.toarray(), 1, axis=0))  # doubly stochastic, not symmetric
    ring = sp.eye_array(600, format="csr") - rows
    expected = np.linalg.norm(rows.toarray() - 1 / 600, 2)
    try:
        spectra.DENSE_LIMIT_NONSYMMETRIC, limit = 100, spectra.DENSE_LIMIT_NONSYMMETRIC
        assert gossip_spectrum(ring, symmetric=False).lam == pytest.approx(expected, rel=1e-9)
    finally:
        spectra.DENSE_LIMIT_NONSYMMETRIC = limit


def test_large_random_graph_uses_sparse_solvers():
    matrix = metropolis(graphs.erdos_renyi(20_000, 8e-4, 7))
    assert 1.0 < matrix.chi() < 50.0


# -- kinds and converters ----------------------------------------------------------------------------------


def test_converters_are_explicit_and_inverse():
    matrix = metropolis(graphs.erdos_renyi(9, 0.4, 1))
    gossip = matrix.to_gossip()
    assert gossip.kind == "gossip"
    assert np.allclose(gossip.toarray(), np.eye(9) - matrix.toarray(), atol=1e-16)
    assert np.allclose(gossip.to_mixing().toarray(), matrix.toarray(), atol=1e-15)
    assert matrix.to_mixing() is matrix
    assert row_stochastic(graphs.path(4)).transpose().kind == "col"
    for kind in (row_stochastic(graphs.path(4)), col_stochastic(graphs.path(4))):
        with pytest.raises(ValueError, match="only mixing and gossip"):
            kind.to_gossip()
        with pytest.raises(ValueError, match="lam, gap and chi are defined for"):
            kind.lam()


def test_a_row_stochastic_matrix_is_not_transposed():
    graph = graphs.from_edges(3, [(0, 1), (0, 2), (1, 2), (2, 0)], directed=True)
    rows = row_stochastic(graph).toarray()
    # Agent 2 hears agents 0 and 1, agent 1 hears agent 0, agent 0 hears agent 2.
    assert np.allclose(rows, [[0.5, 0, 0.5], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]])
    columns = col_stochastic(graph).toarray()
    assert np.allclose(columns, [[1 / 3, 0, 0.5], [1 / 3, 0.5, 0], [1 / 3, 0.5, 0.5]])


def test_circulant_keeps_its_shifts_and_adds_coinciding_ones():
    matrix = circulant(4, [(0, 0.5), (5, 0.25), (1, 0.25)])
    assert matrix.shifts == ((0, 0.5), (1, 0.5))
    assert np.array_equal(matrix @ np.arange(4.0), [0.5, 1.5, 2.5, 1.5])
    assert metropolis(graphs.path(4)).shifts is None
    taps = metropolis(graphs.ring(5)).shifts
    assert [s for s, _ in taps] == [0, 1, 4]


def test_degrees_do_not_count_the_agent_itself():
    matrix = metropolis(graphs.star(5))
    assert matrix.degrees().tolist() == [4, 1, 1, 1, 1]
    assert matrix.out_degrees.tolist() == [4, 1, 1, 1, 1]
    pushed = col_stochastic(graphs.from_edges(3, [(0, 1), (0, 2), (1, 0), (2, 0)], directed=True))
    assert pushed.out_degrees.tolist() == [2, 1, 1]


def test_default_weights_of_a_directed_graph():
    assert default_weights(graphs.static_exponential(8)).toarray()[0, 0] == 0.25
    with pytest.raises(ValueError, match="in-degree = out-degree"):
        default_weights(graphs.from_edges(3, [(0, 1), (0, 2), (1, 0)], directed=True))


@pytest.mark.parametrize(
    ("matrix", "kind", "error", "message"),
    [
        (np.eye(3) * 0.9, "mixing", ValueError, "rows that sum to 1"),
        ([[0.5, 0.5], [0.0, 1.0]], "mixing", ValueError, "Its rows do sum to 1"),
        ([[0.5, 0.0], [0.5, 1.0]], "row", ValueError, "Its columns do sum to 1"),
        ([[0.5, 0.5], [0.5, 0.5]], "gossip", ValueError, "of kind 'mixing'"),
        (np.ones((2, 3)), "mixing", ValueError, "square"),
        (np.zeros((0, 0)), "mixing", ValueError, "square"),
        ([[np.nan, 1], [1, 0]], "mixing", ValueError, "finite"),
        (np.eye(2) * 1j, "mixing", TypeError, "real entries"),
        (np.array([["a"]]), "mixing", TypeError, "real entries"),
        (np.eye(2), "doubly", ValueError, "kind must be one of"),
    ],
)
def test_a_wrong_matrix_is_refused(matrix, kind, error, message):
    with pytest.raises(error, match=message):
        from_matrix(matrix, kind)


def test_negative_weights_are_refused_on_request():
    weights = [[1.5, -0.5], [-0.5, 1.5]]
    assert from_matrix(weights, "mixing").n == 2
    with pytest.raises(ValueError, match="non-negative"):
        from_matrix(weights, "mixing", nonneg=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: metropolis(graphs.static_exponential(4)),
        lambda: laplacian_gossip(graphs.static_exponential(4)),
        lambda: laplacian_gossip(graphs.ring(4), "best"),
        lambda: circulant(0, [(0, 1.0)]),
        lambda: Cyclic([]),
        lambda: Cyclic([metropolis(graphs.ring(4)), metropolis(graphs.ring(5))]),
        lambda: Cyclic([metropolis(graphs.ring(4)), laplacian_gossip(graphs.ring(4))]),
    ],
)
def test_bad_arguments_are_refused(make):
    with pytest.raises(ValueError):
        make()


def test_a_matrix_cannot_be_changed():
    matrix = metropolis(graphs.ring(4))
    with pytest.raises(ValueError, match="read-only"):
        matrix.csr.data[0] = 2.0


# -- sequences ---------------------------------------------------------------------------------------------


def test_cyclic_repeats_and_windows_multiply_newest_on_the_left():
    one = from_matrix([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], "mixing")
    two = from_matrix([[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]], "mixing")
    sequence = Cyclic([one, two])
    assert sequence.matrix(5) is two
    assert np.allclose(sequence.window(0, 2).toarray(), two.toarray() @ one.toarray())
    assert not sequence.is_b_connected(1)
    assert sequence.is_b_connected(2)
    assert sequence.chi() == math.inf
    assert sequence.chi(2) < 2.0


def test_one_peer_exponential_averages_exactly_in_a_period():
    sequence = Cyclic([circulant(8, [(0, 0.5), (2**j, 0.5)]) for j in range(3)])
    assert np.allclose(sequence.window(0, 3).toarray(), 1 / 8, atol=1e-15)
    assert sequence.chi(3) == pytest.approx(1.0)


def test_digests_tell_sequences_apart():
    ring, star = metropolis(graphs.ring(6)), metropolis(graphs.star(6))
    assert Static(ring).digest() == Static(metropolis(graphs.ring(6))).digest()
    assert Static(ring).digest() != Static(star).digest()
    assert Cyclic([ring, star]).digest() != Cyclic([star, ring]).digest()
    with pytest.raises(TypeError, match="MixingMatrix"):
        Static(np.eye(3))
    assert isinstance(MixingMatrix(ring, "mixing"), MixingMatrix)
