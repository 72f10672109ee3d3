"""The samples of a block of agents: what is copied and what is not, views, conversions, digests."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit.agent_data import AgentData
from optikit.arrays import resolve_namespace, to_numpy


def samples(sizes=(3, 5, 2), d=4, seed=0, sparse=False, dtype=np.float64):
    rng = np.random.default_rng(seed)
    rows = sum(sizes)
    features = (rng.standard_normal((rows, d)) * (rng.random((rows, d)) < 0.6)).astype(dtype)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return AgentData(
        sp.csr_array(features) if sparse else features, rng.standard_normal(rows).astype(dtype), offsets
    )


def dense_rows(data: AgentData) -> np.ndarray:
    return data.features.toarray() if data.is_sparse else to_numpy(data.features)


def test_sizes_are_read_off_the_offsets():
    data = samples()
    assert (data.n_agents, data.n_local, data.n_samples, data.dim) == (3, 3, 10, 4)
    assert data.sizes.tolist() == [3, 5, 2]
    assert not data.is_uniform
    assert samples((4, 4)).is_uniform
    assert repr(data) == "AgentData(3 agents, 10 samples, 4 dense features)"
    assert repr(samples(sparse=True).subset([1])) == "AgentData(1 of 3 agents, 5 samples, 4 CSR features)"


def test_dense_data_are_not_copied():
    features, targets = np.ones((6, 2)), np.ones(6)
    data = AgentData(features, targets, [0, 2, 6])
    assert data.features is features
    assert data.targets is targets
    stacked = np.ones((3, 4, 2))
    assert np.shares_memory(AgentData.from_stacked(stacked, np.ones((3, 4))).features, stacked)


def test_sparse_data_are_not_copied_and_never_written_to():
    matrix = sp.csr_array(np.eye(4))
    assert np.shares_memory(AgentData(matrix, np.ones(4), [0, 4]).features.data, matrix.data)
    parts = (np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0]), np.array([0, 2, 3]))
    doubled = sp.csr_array(parts, shape=(2, 3))  # two entries for one place, indices out of order
    data = AgentData(doubled, np.ones(2), [0, 1, 2])
    np.testing.assert_array_equal(data.features.toarray(), [[0, 3, 0], [3, 0, 0]])
    assert data.features.nnz == 2
    assert doubled.data.tolist() == [1.0, 2.0, 3.0]
    assert doubled.indices.tolist() == [1, 1, 0]


@pytest.mark.parametrize("form", ["coo", "csc", "lil"])
def test_every_sparse_format_becomes_csr(form):
    whole = samples(sparse=True)
    other = AgentData(whole.features.asformat(form), whole.targets, whole.offsets)
    assert other.features.format == "csr"
    assert other.fingerprint() == whole.fingerprint()


@pytest.mark.parametrize(
    ("dtype", "expected"), [(np.int32, np.float64), (bool, np.float64), (np.float32, np.float32)]
)
@pytest.mark.parametrize("sparse", [False, True])
def test_integers_become_double_and_single_stays(dtype, expected, sparse):
    features = np.ones((2, 2), dtype=dtype)
    data = AgentData(sp.csr_array(features) if sparse else features, np.ones(2, dtype=dtype), [0, 2])
    assert data.features.dtype == expected
    assert data.targets.dtype == expected


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    sparse=st.booleans(),
    pick=st.sets(st.integers(0, 5)),
)
@settings(max_examples=60, deadline=None)
def test_a_subset_holds_the_rows_of_its_agents(sizes, sparse, pick):
    data = samples(sizes, sparse=sparse)
    agents = sorted(k for k in pick if k < len(sizes))
    part = data.subset(agents)
    assert part.agents.tolist() == agents
    assert part.n_agents == data.n_agents
    assert part.sizes.tolist() == [sizes[k] for k in agents]
    for place, k in enumerate(agents):
        here = slice(part.offsets[place], part.offsets[place + 1])
        there = slice(data.offsets[k], data.offsets[k + 1])
        np.testing.assert_array_equal(dense_rows(part)[here], dense_rows(data)[there])
        np.testing.assert_array_equal(part.targets[here], data.targets[there])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_contiguous_subset_is_a_view(sparse):
    data = samples(sparse=sparse)
    part = data.subset([1, 2])
    of = (lambda d: d.features.data) if sparse else (lambda d: d.features)
    assert np.shares_memory(of(part), of(data))
    assert np.shares_memory(part.targets, data.targets)
    again = part.subset([2])  # by global number
    np.testing.assert_array_equal(dense_rows(again), dense_rows(data)[8:])
    with pytest.raises(ValueError, match=r"agents must be among those held here, got \[0\]"):
        part.subset([0])


def test_namespaces_keep_the_numbers(xp):
    data = samples()
    moved = data.to(xp)
    assert moved.xp is resolve_namespace(xp)
    np.testing.assert_array_equal(to_numpy(moved.features), data.features)
    assert moved.fingerprint() == data.fingerprint()
    picked = moved.subset([0, 2])
    np.testing.assert_array_equal(to_numpy(picked.features), data.subset([0, 2]).features)
    assert moved.subset([]).n_samples == 0
    blocks = [
        (moved.features[a:b, :], moved.targets[a:b]) for a, b in zip(data.offsets[:-1], data.offsets[1:])
    ]
    assert AgentData.from_blocks(blocks).fingerprint() == data.fingerprint()


def test_sparse_data_stay_on_the_host():
    data = samples(sparse=True)
    assert data.to(np) is data
    with pytest.raises(ValueError, match=r"call \.dense\(\) first"):
        data.to(resolve_namespace("array_api_strict"))
    np.testing.assert_array_equal(data.dense().features, data.features.toarray())
    assert data.dense().dense().features is not None
    plain = samples()
    assert plain.dense() is plain


def test_fingerprints_of_blocks_add_up():
    for sparse in (False, True):
        data = samples(sparse=sparse)
        parts = [int(data.subset(agents).fingerprint(), 16) for agents in ([0], [1, 2])]
        assert f"{sum(parts) % 2**256:064x}" == data.fingerprint()
        assert int(data.subset([]).fingerprint(), 16) == 0


@given(row=st.integers(0, 9), column=st.integers(0, 3), sparse=st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_fingerprint_changes_with_any_datum(row, column, sparse):
    data = samples()
    features, targets = data.features.copy(), data.targets.copy()
    features[row, column] += 1e-9
    targets[row] = np.nextafter(targets[row], 9)
    wrap = sp.csr_array if sparse else np.asarray
    digests = {
        AgentData(wrap(X), y, data.offsets).fingerprint()
        for X, y in ((data.features, data.targets), (features, data.targets), (data.features, targets))
    }
    assert len(digests) == 3


def test_a_fingerprint_knows_who_holds_what():
    data = samples((4, 4))
    regrouped = AgentData(data.features, data.targets, [0, 3, 8])
    renumbered = AgentData(data.features, data.targets, data.offsets, agents=[0, 2], n_agents=3)
    assert len({data.fingerprint(), regrouped.fingerprint(), renumbered.fingerprint()}) == 3


def test_a_fingerprint_does_not_depend_on_how_indices_are_stored():
    # SciPy switches to 64-bit indices for large matrices; a rank's small block has 32.
    data = samples(sparse=True)
    short = data.features
    parts = (short.data, short.indices.astype(np.int64), short.indptr.astype(np.int64))
    wide = AgentData(sp.csr_array(parts, shape=short.shape), data.targets, data.offsets)
    assert wide.features.indptr.dtype == np.int64
    assert wide.fingerprint() == data.fingerprint()


def test_stacks_and_blocks_are_checked():
    with pytest.raises(ValueError, match="features must have 3 axes"):
        AgentData.from_stacked(np.ones((3, 4)), np.ones(3))
    with pytest.raises(ValueError, match=r"targets must have shape \(2, 3\), got \(3, 2\)"):
        AgentData.from_stacked(np.ones((2, 3, 1)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="blocks must hold at least one agent"):
        AgentData.from_blocks([])
    with pytest.raises(ValueError, match=r"same columns, got widths \[2, 3\]"):
        AgentData.from_blocks([(np.ones((1, 2)), np.ones(1)), (np.ones((1, 3)), np.ones(1))])
    with pytest.raises(ValueError, match="every block must be a matrix"):
        AgentData.from_blocks([(np.ones(2), np.ones(2))])
    with pytest.raises(ValueError, match=r"targets of agent 1 must have shape \(2,\)"):
        AgentData.from_blocks([(np.ones((1, 2)), np.ones(1)), (np.ones((2, 2)), np.ones(3))])


def test_blocks_may_be_plain_lists():
    data = AgentData.from_blocks([([[1.0, 2.0]], [1.0]), ([[3, 4], [5, 6]], [0, 1])])
    np.testing.assert_array_equal(data.features, [[1, 2], [3, 4], [5, 6]])
    assert data.sizes.tolist() == [1, 2]


def test_sparse_blocks_are_stacked_as_csr():
    whole = samples(sparse=True)
    blocks = [
        (whole.features[a:b], whole.targets[a:b]) for a, b in zip(whole.offsets[:-1], whole.offsets[1:])
    ]
    assert AgentData.from_blocks(blocks).fingerprint() == whole.fingerprint()
    with pytest.raises(ValueError, match="all dense or all sparse"):
        AgentData.from_blocks([blocks[0], (np.ones((1, 4)), np.ones(1))])


@pytest.mark.parametrize("features", [np.ones((2, 2), dtype=complex), np.array([["a"], ["b"]]), [[None]] * 2])
def test_data_that_are_not_real_numbers_are_refused(features):
    with pytest.raises(TypeError, match="features must hold real numbers"):
        AgentData(features, np.ones(2), [0, 2])


def test_complex_sparse_data_are_refused():
    with pytest.raises(TypeError, match="features must hold real numbers, got dtype complex128"):
        AgentData(sp.csr_array(np.eye(2) * 1j), np.ones(2), [0, 2])


def test_huge_finite_data_are_not_taken_for_infinite():
    # A row whose sum overflows is finite all the same.
    data = AgentData(np.full((2, 4), 1e308), np.ones(2), [0, 2])
    assert data.n_samples == 2
    assert AgentData(sp.csr_array(np.full((2, 4), 1e308)), np.ones(2), [0, 2]).n_samples == 2
    features = np.full((3, 4), 1e308)
    features[2, 0] = np.inf
    with pytest.raises(ValueError, match="row 0 of agent 1"):
        AgentData(features, np.ones(3), [0, 2, 3])
