"""Graphs: families against their definitions and NetworkX, exchange with other libraries, bad input."""

import networkx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit import graphs
from optikit.graphs import Graph, from_edges, read_edge_list

FAMILIES = [
    (graphs.ring(7), networkx.cycle_graph(7)),
    (graphs.path(6), networkx.path_graph(6)),
    (graphs.complete(5), networkx.complete_graph(5)),
    (graphs.star(6), networkx.star_graph(5)),
    (graphs.grid(3, 4), networkx.grid_2d_graph(3, 4)),
    (graphs.torus(3, 4), networkx.grid_2d_graph(3, 4, periodic=True)),
    (graphs.hypercube(3), networkx.hypercube_graph(3)),
]


@pytest.mark.parametrize(("graph", "peer"), FAMILIES)
def test_families_are_those_of_networkx(graph, peer):
    order = sorted(peer.nodes)
    assert np.array_equal(graph.adjacency.toarray(), networkx.to_numpy_array(peer, nodelist=order))


def test_torus_does_not_wrap_a_side_of_two():
    assert np.array_equal(graphs.torus(2, 4).degrees, np.full(8, 3))


def test_static_exponential_hears_powers_of_two():
    graph = graphs.static_exponential(10)
    heard = graph.adjacency.toarray()[3].nonzero()[0]
    assert set(heard) == {4, 5, 7, 1}  # 3 + 1, 2, 4, 8 mod 10
    assert graph.directed
    assert np.array_equal(graph.degrees, np.full(10, 4))
    assert np.array_equal(graph.out_degrees, np.full(10, 4))


def test_directed_edge_is_heard_by_its_target():
    graph = from_edges(3, [(0, 2)], directed=True)
    assert graph.adjacency[2, 0] == 1
    assert graph.adjacency.nnz == 1
    assert graph.degrees.tolist() == [0, 0, 1]
    assert graph.out_degrees.tolist() == [1, 0, 0]


def test_self_loops_and_duplicates_do_not_count():
    graph = from_edges(3, [(0, 1), (1, 0), (1, 1), (0, 1), (1, 2)])
    assert graph.degrees.tolist() == [1, 2, 1]
    assert graph.edges.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    "graph",
    [
        graphs.ring(1),
        graphs.path(1),
        graphs.complete(1),
        graphs.star(1),
        graphs.grid(1, 1),
        graphs.torus(1, 1),
        graphs.hypercube(0),
        graphs.static_exponential(1),
        graphs.erdos_renyi(1, 0.0, 0),
    ],
)
def test_one_agent_is_a_connected_graph_without_edges(graph):
    assert graph.n == 1
    assert graph.n_edges == 0
    assert graph.is_connected


def test_strong_connectivity_counts_for_directed_graphs():
    assert not from_edges(3, [(0, 1), (1, 2)], directed=True).is_connected
    assert from_edges(3, [(0, 1), (1, 2), (2, 0)], directed=True).is_connected
    assert not from_edges(4, [(0, 1), (2, 3)]).is_connected


@given(n=st.integers(2, 40), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_erdos_renyi_is_connected_simple_and_a_function_of_its_seed(n, seed):
    graph = graphs.erdos_renyi(n, 0.5, seed)
    assert graph.is_connected
    assert graph.adjacency.diagonal().sum() == 0
    assert (graph.adjacency != graph.adjacency.T).nnz == 0
    again = graphs.erdos_renyi(n, 0.5, seed)
    assert np.array_equal(graph.edges, again.edges)


def test_erdos_renyi_has_the_density_asked_for():
    # Binomial(499500, 0.02): mean 9990, standard deviation 99; five of them.
    assert abs(graphs.erdos_renyi(1000, 0.02, 3).n_edges - 9990) < 500
    assert graphs.erdos_renyi(20, 1.0, 0).n_edges == 190


def test_erdos_renyi_reaches_every_pair():
    seen = sum(graphs.erdos_renyi(6, 0.3, seed, connected=False).adjacency.toarray() for seed in range(400))
    pairs = seen[np.triu_indices(6, 1)] / 400
    # Each frequency has standard deviation 0.023.
    assert np.all(np.abs(pairs - 0.3) < 0.1)


def test_a_hopeless_density_is_an_error_that_says_so():
    with pytest.raises(ValueError, match=r"none of 1000 random graphs with n=50, p=0.001 was connected"):
        graphs.erdos_renyi(50, 0.001, 0)


def test_random_geometric_links_within_the_radius():
    assert graphs.random_geometric(30, 0.5, 1).is_connected
    assert graphs.random_geometric(10, 1.5, 1).n_edges == 45


@pytest.mark.parametrize(("n", "h"), [(26, 8), (10, 2), (8, 1)])
def test_two_worlds_has_second_eigenvalue_two_h(n, h):
    graph = graphs.two_worlds(n, h)
    assert np.all(graph.degrees == n // 2 - 1 + h)
    assert np.linalg.eigvalsh(graph.laplacian().toarray())[1] == pytest.approx(2 * h, abs=1e-12)


def test_path_laplacian_has_its_closed_form():
    n = 9
    expected = 2 - 2 * np.cos(np.pi * np.arange(n) / n)
    assert np.allclose(np.linalg.eigvalsh(graphs.path(n).laplacian().toarray()), expected, atol=1e-12)


def test_networkx_and_scipy_round_trips():
    for graph in (graphs.erdos_renyi(12, 0.4, 5), graphs.static_exponential(9)):
        there = Graph.from_networkx(graph.to_networkx())
        assert there.directed == graph.directed
        assert np.array_equal(there.edges, graph.edges)
        back = Graph.from_scipy(graph.to_scipy())
        assert back.directed == graph.directed
        assert np.array_equal(back.edges, graph.edges)


def test_networkx_nodes_are_numbered_in_their_order():
    peer = networkx.Graph([("b", "a"), ("a", "c")])
    assert Graph.from_networkx(peer).edges.tolist() == [[0, 1], [1, 2]]


def test_edge_list_files(tmp_path):
    file = tmp_path / "edges.txt"
    file.write_text("# a comment\n0 1\n1,2, 0.5\n\n% another\n2\t3  # tail\n")
    graph = read_edge_list(file)
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert read_edge_list(file, n=6).n == 6
    file.write_text("0 1\n1 x\n")
    with pytest.raises(ValueError, match=r"edges.txt, line 2: an edge is two agent numbers"):
        read_edge_list(file)
    file.write_text("0 1\n1 7\n")
    with pytest.raises(ValueError, match=r"edges.txt, line 2: agents are 0..3"):
        read_edge_list(file, n=4)
    file.write_text("# nothing\n")
    with pytest.raises(ValueError, match=r"holds no edge"):
        read_edge_list(file)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: graphs.ring(0), ValueError, "n must be an integer >= 1, got 0"),
        (lambda: graphs.ring(2.5), ValueError, "n must be an integer"),
        (lambda: graphs.star(4, centre=4), ValueError, "centre"),
        (lambda: graphs.erdos_renyi(4, 1.5, 0), ValueError, "p must be"),
        (lambda: graphs.random_geometric(4, 0.0, 0), ValueError, "radius"),
        (lambda: graphs.two_worlds(7, 1), ValueError, "n must be even"),
        (lambda: graphs.two_worlds(8, 5), ValueError, "h must be"),
        (lambda: from_edges(3, [(0, 3)]), ValueError, r"edges must join agents 0..2, got \(0, 3\)"),
        (lambda: from_edges(3, [(0, 1, 2)]), ValueError, "shape"),
        (lambda: from_edges(3, [(0.5, 1.0)]), TypeError, "integers"),
        (lambda: Graph.from_scipy(sp.csr_array((2, 3))), ValueError, "square"),
        (lambda: Graph.from_scipy(np.triu(np.ones((3, 3))), directed=False), ValueError, "symmetric"),
        (lambda: graphs.static_exponential(4).laplacian(), ValueError, "undirected"),
    ],
)
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
