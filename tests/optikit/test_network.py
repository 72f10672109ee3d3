"""The network: what a round does, what it costs, and that the number of ranks changes neither."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit import graphs
from optikit.arrays import from_numpy, to_numpy
from optikit.mixing import (
    Cyclic,
    circulant,
    from_matrix,
    laplacian_gossip,
    max_degree,
    metropolis,
    row_stochastic,
)
from optikit.network import Network
from optikit.runtime.communicator import SerialCommunicator
from optikit.runtime.exchange import LocalRows
from optikit.runtime.stepping import choose_backend

PROGRAM = Path(__file__).parents[1] / "mpi" / "gossip.py"
SERIAL = SerialCommunicator()

TOPOLOGIES = {
    "ring": metropolis(graphs.ring(9)),
    "one peer": circulant(8, [(0, 0.5), (4, 0.5)]),
    "exponential": max_degree(graphs.static_exponential(12)),
    "star": metropolis(graphs.star(7)),
    "complete": metropolis(graphs.complete(6)),
    "row": row_stochastic(
        graphs.from_edges(5, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 0)], directed=True)
    ),
    "single": metropolis(graphs.ring(1)),
    "empty rows": from_matrix(np.diag([0.0, 1.0, 1.0]) - np.diag([0.0, 1.0, 1.0]), "gossip"),
}


def relative_error(found, expected):
    return np.max(np.abs(found - expected), initial=0.0) / max(1.0, np.max(np.abs(expected), initial=0.0))


@pytest.mark.parametrize("backend", ["auto", "csr", "dense", "shift"])
@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_round_applies_the_matrix(xp, name, backend, dtype):
    matrix = TOPOLOGIES[name]
    if backend == "shift" and matrix.shifts is None:
        pytest.skip("not circulant")
    network = Network(matrix, communicator=SERIAL, backend=backend)
    rng = np.random.default_rng(0)
    host = [
        rng.standard_normal(shape).astype(dtype) for shape in ((matrix.n, 4), (matrix.n, 2, 3), (matrix.n,))
    ]
    call = network.gossip if matrix.kind == "gossip" else network.mix
    results = call(*(from_numpy(X, xp) for X in host))
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for X, result in zip(host, results):
        expected = (matrix.toarray() @ X.reshape(matrix.n, -1).astype(np.float64)).reshape(X.shape)
        assert result.shape == X.shape
        assert result.dtype == getattr(xp, dtype)
        assert relative_error(to_numpy(result), expected) < tolerance


@pytest.mark.parametrize("name", ["ring", "exponential", "star"])
def test_gossip_is_identity_minus_mixing(xp, name):
    matrix = TOPOLOGIES[name]
    X = from_numpy(np.random.default_rng(1).standard_normal((matrix.n, 3)), xp)
    difference = Network(matrix, communicator=SERIAL).gossip(X)
    expected = to_numpy(X) - matrix.toarray() @ to_numpy(X)
    assert relative_error(to_numpy(difference), expected) < 1e-14


def test_csr_and_shift_backends_agree_bit_for_bit():
    X = np.random.default_rng(0).standard_normal((9, 1500))
    for matrix in (TOPOLOGIES["ring"], circulant(9, [(0, 0.5), (2, 0.25), (7, 0.25)])):
        results = [Network(matrix, communicator=SERIAL, backend=b).mix(X) for b in ("csr", "shift")]
        assert np.array_equal(*results)
        # SciPy adds the same terms in the same order.
        assert np.array_equal(results[0], matrix.csr @ X)


@given(n=st.integers(1, 25), d=st.integers(0, 9), p=st.floats(0, 1), seed=st.integers(0, 50))
@settings(max_examples=50, deadline=None)
def test_mixing_keeps_the_mean_and_contracts_as_lambda_says(n, d, p, seed):
    matrix = metropolis(graphs.erdos_renyi(n, p, seed, connected=False))
    X = np.random.default_rng(seed).standard_normal((n, d))
    mixed = Network(matrix, communicator=SERIAL).mix(X)
    assert np.allclose(mixed.mean(axis=0), X.mean(axis=0), atol=1e-12)
    before, after = (np.linalg.norm(Z - Z.mean(axis=0)) for Z in (X, mixed))
    assert after <= matrix.lam() * before + 1e-12


def test_each_round_uses_the_next_matrix():
    one, two = circulant(4, [(1, 1.0)]), circulant(4, [(2, 1.0)])
    network = Network(Cyclic([one, two]), communicator=SERIAL)
    X = np.arange(4.0)
    assert network.mix(X).tolist() == [1, 2, 3, 0]
    assert network.mix(X).tolist() == [2, 3, 0, 1]
    request = network.imix(X)
    assert network.round == 3
    assert network.igossip(X).wait().tolist() == [-2, -2, 2, 2]
    assert request.wait().tolist() == [1, 2, 3, 0]
    assert network.pull(X).cols.tolist() == [1, 2, 3, 0]
    assert network.round == 5


def test_inputs_of_any_kind_are_taken_as_they_are():
    network = Network(graphs.ring(4), communicator=SERIAL)
    W = network.topology.matrix(0)
    integers = network.mix(np.array([[3], [0], [0], [0]]))
    assert integers.dtype == np.float64
    assert integers[0, 0] == pytest.approx(1.0)
    assert network.mix([3.0, 0, 0, 0]).tolist() == pytest.approx([1, 1, 0, 1])
    strided = np.asfortranarray(np.random.default_rng(0).standard_normal((4, 6)))[:, ::2]
    assert np.array_equal(network.mix(strided), W @ strided)
    assert network.mix(np.zeros((4, 0))).shape == (4, 0)
    assert network.mix(np.ones(4, dtype=bool)).dtype == np.float64


def test_output_may_be_the_input():
    network = Network(graphs.ring(5), communicator=SERIAL)
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((5, 2)), rng.standard_normal((5, 2))
    X1, Y1 = network.mix(X, Y)
    out = np.empty_like(X)
    assert network.mix(X, out=out) is out
    assert np.array_equal(out, X1)
    network.mix(X, Y, out=(Y, X))  # crosswise
    assert np.array_equal(Y, X1)
    assert np.array_equal(X, Y1)
    X2 = network.mix(X)
    assert network.mix(X, out=X) is X
    assert np.array_equal(X, X2)
    with pytest.raises(ValueError, match="out must be"):
        network.mix(X, out=np.empty((5, 3)))
    with pytest.raises(ValueError, match="out must hold 2 arrays"):
        network.mix(X, Y, out=(X,))


def test_backends_are_chosen_by_size_and_structure():
    assert choose_backend(metropolis(graphs.ring(50)), "auto") == "shift"
    assert choose_backend(max_degree(graphs.static_exponential(64)), "auto") == "csr"
    assert choose_backend(metropolis(graphs.star(50)), "auto") == "csr"
    assert choose_backend(metropolis(graphs.complete(150)), "auto", host=False) == "csr"
    assert choose_backend(metropolis(graphs.complete(50)), "auto", host=False) == "dense"
    assert (
        choose_backend(metropolis(graphs.complete(50)), "auto") == "csr"
    )  # bits must not depend on the ranks
    with pytest.raises(ValueError, match="needs circulant"):
        choose_backend(metropolis(graphs.path(5)), "shift")


# -- sums --------------------------------------------------------------------------------------------------


def test_sums_over_agents(xp):
    network = Network(n_agents=4, communicator=SERIAL)
    host = np.random.default_rng(0).standard_normal((4, 3))
    X = from_numpy(host, xp)
    total, count = network.total(X, from_numpy(np.arange(4), xp), floats_down=3)
    assert relative_error(to_numpy(total), host.sum(axis=0)) < 1e-15
    assert float(count) == 6.0
    assert relative_error(to_numpy(network.mean(X)), host.mean(axis=0)) < 1e-15
    assert np.array_equal(to_numpy(network.max(X)), host.max(axis=0))
    assert np.array_equal(to_numpy(network.min(X)), host.min(axis=0))
    assert np.array_equal(to_numpy(network.allgather(X)), host)
    assert network.max(2.0) == network.sum(2.0) == 2.0


def test_a_total_is_one_phase_of_a_server_method():
    network = Network(n_agents=5, communicator=SERIAL)
    network.total(np.zeros((5, 3)), np.zeros(5), floats_down=3)
    network.total(np.zeros((5, 2)), new_round=False, participants=np.array([1, 0, 0, 1, 0], dtype=bool))
    ledger = network.ledger
    assert (network.round, ledger.rounds, ledger.phases) == (1, 1, 2)
    assert (ledger.floats_up, ledger.floats_down, ledger.messages) == (5 * 4 + 2 * 2, 5 * 3, 7)
    assert ledger.floats_sent_per_agent.tolist() == [6, 4, 4, 6, 4]
    assert ledger.total_floats == 24 + 15
    assert ledger.bytes_on_wire == 0


def test_monitoring_is_not_counted():
    network = Network(graphs.ring(4), communicator=SERIAL)
    X = np.zeros((4, 2))
    network.mean(X), network.sum(X), network.max(X), network.min(X), network.allgather(X)
    assert network.round == 0
    assert not any(network.ledger.as_dict().values())


def test_every_link_is_counted():
    network = Network(graphs.star(5), communicator=SERIAL)
    network.mix(np.zeros((5, 3)), np.zeros((5, 2, 2)))
    network.pull(np.zeros((5, 1)))
    assert network.ledger.floats_sent == 8 * (3 + 4) + 8 * 1
    assert network.ledger.floats_sent_per_agent.tolist() == [4 * 8, 8, 8, 8, 8]
    assert (network.ledger.messages, network.ledger.rounds) == (16, 2)


def test_state_survives_json_and_reset_leaves_old_ledgers_alone():
    network = Network(graphs.star(5), communicator=SERIAL)
    network.mix(np.zeros((5, 3)))
    saved, ledger = json.loads(json.dumps(network.state())), network.ledger
    network.reset()
    assert network.round == 0
    assert network.ledger.floats_sent == 0
    assert ledger.floats_sent == 24
    network.restore(saved)
    assert network.round == 1
    assert network.ledger.floats_sent_per_agent.tolist() == [12, 3, 3, 3, 3]
    with pytest.raises(ValueError, match="must hold 4 agents"):
        Network(graphs.star(4), communicator=SERIAL).restore(saved)


# -- agents here -------------------------------------------------------------------------------------------


def test_objectives_are_restricted_to_the_agents_here():
    network = Network(graphs.ring(4), communicator=SERIAL)
    whole = SimpleNamespace(n_agents=4, agents=np.arange(4))
    assert network.objective_for(whole) is whole
    part = SimpleNamespace(n_agents=4, agents=np.arange(2), subset=lambda agents: ("subset", agents.tolist()))
    assert network.objective_for(part) == ("subset", [0, 1, 2, 3])
    with pytest.raises(ValueError, match="the network's 4 agents, got 3"):
        network.objective_for(SimpleNamespace(n_agents=3, agents=np.arange(3)))


def test_a_solver_declares_the_kinds_it_accepts():
    network = Network(graphs.ring(4), communicator=SERIAL)
    assert network.kind == "mixing"
    network.require_kind("mixing", "gossip")
    with pytest.raises(ValueError, match="push-sum needs a network of kind 'col', got kind 'mixing'"):
        network.require_kind("col", by="push-sum")
    with pytest.raises(ValueError, match="got no topology"):
        Network(n_agents=2, communicator=SERIAL).require_kind("mixing")


def test_networkx_graphs_are_topologies():
    peer = networkx.cycle_graph(6)
    network = Network(peer, communicator=SERIAL)
    assert network.fingerprint() == Network(graphs.ring(6), communicator=SERIAL).fingerprint()


def test_only_so_many_plans_are_kept():
    matrices = [circulant(5, [(0, 0.5), (s, 0.5)]) for s in (1, 2, 3, 4)]
    few, many = (Network(Cyclic(matrices), communicator=SERIAL, plan_cache=k) for k in (2, 64))
    X = np.random.default_rng(0).standard_normal((5, 2))
    for _ in range(9):
        assert np.array_equal(few.mix(X), many.mix(X))
    assert len(few._steppers) == 2


def test_fingerprints_tell_networks_apart():
    ring = Network(graphs.ring(6), communicator=SERIAL)
    assert ring.fingerprint() == Network(graphs.ring(6), communicator=SERIAL).fingerprint()
    assert ring.fingerprint() != Network(graphs.star(6), communicator=SERIAL).fingerprint()
    assert ring.fingerprint() != Network(n_agents=6, communicator=SERIAL).fingerprint()

    def objective(values):
        return SimpleNamespace(
            n_agents=6,
            agents=np.arange(6),
            subset=lambda agents: SimpleNamespace(fingerprint=lambda: str([values[a] for a in agents])),
        )

    assert ring.fingerprint_of(objective("abcdef")) != ring.fingerprint_of(objective("abcdeg"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda net: Network(communicator=SERIAL), ValueError, "n_agents is needed"),
        (
            lambda net: Network(n_agents=0, communicator=SERIAL),
            ValueError,
            "n_agents must be an integer >= 1",
        ),
        (
            lambda net: Network(graphs.ring(4), n_agents=5, communicator=SERIAL),
            ValueError,
            "the topology's 4, got 5",
        ),
        (lambda net: Network(np.eye(4), communicator=SERIAL), TypeError, "from_matrix"),
        (
            lambda net: Network(graphs.ring(4), backend="gpu", communicator=SERIAL),
            ValueError,
            "backend must be",
        ),
        (lambda net: net.mix(np.zeros((3, 2))), ValueError, "4 rows"),
        (lambda net: net.mix(np.zeros(())), ValueError, "4 rows"),
        (lambda net: net.mix(np.zeros((4, 2), dtype=complex)), TypeError, "real numbers"),
        (lambda net: net.mix(np.array([object()] * 4)), TypeError, "real numbers"),
        (lambda net: net.pull(np.zeros((4, 2), dtype=complex)), TypeError, "real numbers"),
        (lambda net: net.total(np.zeros((4, 2), dtype=complex)), TypeError, "real numbers"),
        (lambda net: net.total(np.zeros((5, 2))), ValueError, "4 rows"),
        (lambda net: net.total(np.zeros(4), participants=np.ones(4)), ValueError, "participants"),
        (lambda net: net.allgather(np.zeros(3)), ValueError, "4 rows"),
        (lambda net: net.scatter(np.zeros(3)), ValueError, "4 rows"),
        (
            lambda net: Network(n_agents=3, communicator=SERIAL).mix(np.zeros(3)),
            ValueError,
            "without a topology",
        ),
        (
            lambda net: Network(laplacian_gossip(graphs.ring(3)), communicator=SERIAL).mix(np.zeros(3)),
            ValueError,
            "kind",
        ),
        (
            lambda net: Network(row_stochastic(graphs.path(3)), communicator=SERIAL).gossip(np.zeros(3)),
            ValueError,
            "kind",
        ),
    ],
)
def test_bad_input_is_named_before_the_round(call, error, message):
    network = Network(graphs.ring(4), communicator=SERIAL)
    with pytest.raises(error, match=message):
        call(network)
    assert network.round == 0


# -- many ranks --------------------------------------------------------------------------------------------


@given(n=st.integers(1, 20), size=st.integers(1, 6), p=st.floats(0, 1), seed=st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_send_and_receive_lists_of_all_ranks_fit_together(n, size, p, seed):
    rng = np.random.default_rng(seed)
    pattern = from_matrix(np.where(rng.random((n, n)) < p, 1.0, 0.0) * 0, "gossip").csr
    pattern = type(pattern)(np.where(rng.random((n, n)) < p, rng.random((n, n)), 0.0))
    X = rng.standard_normal((n, 3))
    parts = [LocalRows(pattern, rank, size) for rank in range(size)]
    low = [n * rank // size for rank in range(size)]
    assert sum(part.ghosts.size for part in parts) == parts[0].wire_rows
    for rank, part in enumerate(parts):
        received = np.full((part.ghosts.size, 3), np.nan)
        for source, a, b in part.receive:
            (match,) = [(c, d) for dest, c, d in parts[source].send if dest == rank]
            assert match[1] - match[0] == b - a
            received[a:b] = X[low[source] + parts[source].send_rows[match[0] : match[1]]]
        assert np.array_equal(received, X[part.ghosts])
        own = X[low[rank] : low[rank] + part.n_local]
        stack = np.concatenate([received[: part.n_low], own, received[part.n_low :]])
        entries = stack[part.stacked_columns()]
        rows = np.repeat(np.arange(part.n_local), np.diff(part.indptr))
        found = np.zeros((part.n_local, 3))
        np.add.at(found, rows, part.values[:, None] * entries)
        assert np.allclose(found, (pattern @ X)[low[rank] : low[rank] + part.n_local])


@pytest.fixture(scope="module")
def on_one_process():
    specification = importlib.util.spec_from_file_location("gossip_program", PROGRAM)
    program = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(program)
    return program.compute(SerialCommunicator())


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_any_number_of_ranks_gives_the_bits_of_one_process(mpi_run, tmp_path, on_one_process, ranks):
    mode = ["debug"] if ranks == 3 else []
    mpi_run(ranks, PROGRAM, tmp_path / "found.npz", *mode, timeout=120)
    with np.load(tmp_path / "found.npz") as found:
        assert set(found.files) == set(on_one_process)
        for name, expected in on_one_process.items():
            if name.split(": ")[-1] in ("total", "mean", "sum"):  # a reduction's order differs
                assert np.allclose(found[name], expected, rtol=1e-12, atol=1e-12), name
            else:
                assert np.array_equal(found[name], expected, equal_nan=True), name
