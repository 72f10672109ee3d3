"""Rows of linear models: kernels against the array-API reference, memory, shapes, and what is not copied."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit import _kernels_linear as kernels
from optikit.agent_data import AgentData
from optikit.arrays import resolve_namespace, to_numpy
from optikit.objectives import FunctionObjective, LinearModel, Quadratic
from optikit.objectives import linear as linear_module
from optikit.objectives.rows import HostRows, StackedRows


def data_of(sizes, d, seed=0, sparse=False):
    rng = np.random.default_rng(seed)
    size = int(sum(sizes))
    features = rng.standard_normal((size, d)) * (rng.random((size, d)) < 0.6)
    labels = np.where(rng.random(size) < 0.5, -1.0, 1.0)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return AgentData(sp.csr_array(features) if sparse else features, labels, offsets)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    d=st.integers(1, 40),  # blocks on both sides of SMALL_BLOCK
    sparse=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_kernels_agree_with_the_stacked_reference(sizes, d, sparse, seed):
    data = data_of(sizes, d, seed, sparse)
    rows, reference = HostRows(data.features, data.offsets), StackedRows.of(data.dense())
    rng = np.random.default_rng(seed)
    X, s = rng.standard_normal((len(sizes), d)), rng.standard_normal(data.n_samples)
    np.testing.assert_allclose(rows.scores(X), reference.scores(X), atol=1e-12)
    np.testing.assert_allclose(rows.scores(X[0]), reference.scores(X[0]), atol=1e-12)
    np.testing.assert_allclose(rows.adjoint(s), reference.adjoint(s), atol=1e-12)
    np.testing.assert_allclose(rows.gram(s), reference.gram(s), atol=1e-12)
    np.testing.assert_allclose(rows.sums(s), reference.sums(s), atol=1e-12)


@given(
    sizes=st.lists(st.integers(1, 60), min_size=2, max_size=5),
    d=st.integers(1, 40),
    sparse=st.booleans(),
    pick=st.integers(0, 4),
)
@settings(max_examples=40, deadline=None)
def test_an_agent_alone_has_the_bits_it_has_in_company(sizes, d, sparse, pick):
    pick %= len(sizes)
    model = LinearModel(data_of(sizes, d, 1, sparse), "logistic", 0.1)
    X = np.random.default_rng(2).standard_normal((len(sizes), d))
    alone = model.subset([pick])
    for f in ("value", "gradient", "hessian"):
        whole = getattr(model, f)(X)
        np.testing.assert_array_equal(getattr(alone, f)(X[[pick]]), whole[[pick]])
    V = X[::-1].copy()
    np.testing.assert_array_equal(
        alone.hessian_vector(X[[pick]], V[[pick]]), model.hessian_vector(X, V)[[pick]]
    )


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_memory_order_of_points_changes_no_bit(order, sparse):
    # A sum over d = 33 numbers has other bits when NumPy takes it agent-first, as it does for Fortran order.
    model = LinearModel(data_of([9] * 7, 33, sparse=sparse), "logistic", 0.1)
    X = np.random.default_rng(2).standard_normal((7, 33))
    for method in ("value", "gradient", "hessian"):
        together = getattr(model, method)(np.array(X, order=order))
        alone = [getattr(model.subset([m]), method)(X[m])[0] for m in range(7)]
        np.testing.assert_array_equal(together, np.array(alone))


@pytest.mark.parametrize("d", [3, 200])
@pytest.mark.parametrize("sparse", [False, True])
def test_what_lay_in_memory_before_does_not_matter(d, sparse):
    data = data_of([4, 9], d, sparse=sparse)
    X, dirty = np.ones((2, d)), np.full(13, np.nan)
    f = data.features
    if sparse:
        kernels.csr_scores(f.data, f.indices, f.indptr, data.offsets, X, dirty)
    else:
        kernels.dense_scores(f, data.offsets, X, dirty)
    np.testing.assert_allclose(dirty, f @ np.ones(d), atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(2,), (4,), (1, 3), (3, 3), (2, 4), (2, 3, 1), ()])
def test_points_of_a_wrong_shape_never_reach_the_kernels(sparse, shape):
    model = LinearModel(data_of([4, 9], 3, sparse=sparse), "logistic")
    for f in (model.value, model.gradient, model.value_and_gradient, model.scores, model.hessian):
        with pytest.raises(ValueError, match=r"X must have shape \(2, 3\) or \(3,\), got"):
            f(np.zeros(shape))
    with pytest.raises(ValueError, match="V must have shape"):
        model.hessian_vector(np.zeros(3), np.zeros(shape))
    with pytest.raises(ValueError, match=r"s must have shape \(13,\), got \(12,\)"):
        model.adjoint(np.zeros(12))


def test_lists_are_points():
    model = LinearModel(data_of([4, 9], 3), "logistic")
    np.testing.assert_array_equal(model.gradient([0.0, 1.0, 2.0]), model.gradient(np.array([0.0, 1.0, 2.0])))


@pytest.mark.parametrize("sparse", [False, True])
def test_read_only_data_and_points_serve(sparse):
    data = data_of([30], 40, sparse=sparse)
    expected = LinearModel(data, "logistic").hessian(np.ones(40))
    for array in (data.features.data if sparse else data.features, data.targets):
        array.setflags(write=False)
    x = np.ones(40)
    x.setflags(write=False)
    model = LinearModel(data, "logistic")
    np.testing.assert_array_equal(model.hessian(x), expected)
    np.testing.assert_array_equal(model.value_and_gradient(x)[1], model.gradient(x))


def test_blocks_of_sparse_agents_share_the_data():
    data = data_of([5, 6, 7], 8, sparse=True)
    part = data.subset([1, 2])
    assert np.shares_memory(part.features.data, data.features.data)
    assert np.shares_memory(part.features.indices, data.features.indices)
    np.testing.assert_array_equal(part.features.toarray(), data.features.toarray()[5:])


def test_the_callers_sparse_matrix_stays_as_it_was():
    parts = (np.array([1.0, 2.0, 3.0]), np.array([1, 0, 0]), np.array([0, 3]))  # unsorted, with a duplicate
    matrix = sp.csr_array(parts, shape=(1, 2))
    data = AgentData(matrix, np.ones(1), [0, 1])
    np.testing.assert_array_equal(data.features.toarray(), [[5.0, 1.0]])
    np.testing.assert_array_equal(matrix.indices, [1, 0, 0])
    np.testing.assert_array_equal(matrix.data, [1.0, 2.0, 3.0])


def test_a_bad_target_is_named_by_agent_and_row():
    data = data_of([3, 5, 2], 2)
    targets = data.targets.copy()
    targets[5] = 3.0
    with pytest.raises(ValueError, match=r"got 3\.0 in row 2 of agent 1"):
        LinearModel(AgentData(data.features, targets, data.offsets), "logistic")


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(40, 9), (9, 40)])
def test_lanczos_agrees_with_the_exact_eigenvalue_on_centred_data(shape, sparse, monkeypatch):
    # Centred data are orthogonal to ones: as Lanczos' start they would leave its convergence to rounding.
    features = np.random.default_rng(0).standard_normal(shape)
    features -= features.mean(axis=int(np.argmin(shape)), keepdims=True)
    data = AgentData(sp.csr_array(features) if sparse else features, np.ones(shape[0]), [0, shape[0]])
    exact = LinearModel(data, "least_squares").smoothness
    monkeypatch.setattr(linear_module, "EXACT_EIGENVALUES", 1)
    np.testing.assert_allclose(LinearModel(data, "least_squares").smoothness, exact, rtol=1e-10)
    assert exact[0] == pytest.approx(np.linalg.norm(features, 2) ** 2 / shape[0])


def test_constants_of_empty_features_are_no_nan():
    data = AgentData(np.zeros((2, 3)), np.ones(2), [0, 2])
    assert LinearModel(data, "logistic").smoothness == 0.0
    assert np.isposinf(LinearModel(data, "poisson").smoothness)
    assert np.isposinf(LinearModel(data, "least_squares").lipschitz)


def test_single_precision_bounds_are_those_of_its_data():
    data = data_of([50], 6)
    single = AgentData(data.features.astype(np.float32), data.targets, data.offsets)
    found = LinearModel(single, "logistic").smoothness
    top = np.linalg.norm(single.features.astype(np.float64), 2) ** 2
    assert found[0] == pytest.approx(0.25 * top / 50, rel=1e-13)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_rank_without_agents_draws_and_multiplies_nothing(sparse):
    from optikit.random import AgentStreams

    model = LinearModel(data_of([4, 9], 3, sparse=sparse), "logistic", 0.1).subset([])
    X = np.zeros((0, 3))
    assert model.stochastic_gradient(X, 2, AgentStreams(0, "batch"), 0).shape == (0, 3)
    assert model.hessian_vector(X, X).shape == (0, 3)
    assert model.lipschitz.shape == model.strong_convexity.shape == (0,)


def test_ragged_agents_of_another_namespace_are_padded_without_effect():
    xp = resolve_namespace("array_api_strict")
    data = data_of([3, 1, 6], 4)
    strict = LinearModel(data, "logistic", 0.1).to(xp)
    model, X = LinearModel(data, "logistic", 0.1), np.random.default_rng(0).standard_normal((3, 4))
    np.testing.assert_allclose(to_numpy(strict.scores(xp.asarray(X))), model.scores(X), atol=1e-14)
    V = X[::-1].copy()
    found = strict.hessian_vector(xp.asarray(X), xp.asarray(V))
    np.testing.assert_allclose(to_numpy(found), model.hessian_vector(X, V), atol=1e-14)


@pytest.mark.parametrize(
    "objective",
    [
        Quadratic(np.stack([np.eye(2)] * 3), np.zeros((3, 2))),
        FunctionObjective(lambda X, a: X[:, 0], lambda X, a: X, 3, 2),
    ],
)
@pytest.mark.parametrize("agents", [[3], [-1], [1, 0], [1, 1]])
def test_agents_held_elsewhere_are_named(objective, agents):
    with pytest.raises(ValueError, match="agents must be increasing and among those held here, got"):
        objective.subset(agents)
    assert objective.subset([]).n_local == 0


def test_one_direction_serves_every_hessian():
    A = np.stack([np.diag([1.0, 2.0]), np.diag([3.0, 4.0])])
    v = np.array([1.0, 10.0])
    np.testing.assert_array_equal(Quadratic(A, np.zeros((2, 2))).hessian_vector(v, v), [[1, 20], [3, 40]])
