"""Objectives: every storage and namespace against a plain loop, per-agent bits, constants, errors."""

import tracemalloc

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from optikit.agent_data import AgentData
from optikit.arrays import to_numpy
from optikit.losses import LOSSES, get_loss
from optikit.objectives import FunctionObjective, LinearModel, Quadratic, reference_optimum
from optikit.random import AgentStreams

SIZES = {"uniform": [4, 4, 4], "ragged": [3, 5, 2], "one row": [1, 1, 1]}
L2 = 0.1


def make_data(sizes, loss="logistic", seed=0, d=3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    N = sum(sizes)
    kind = LOSSES[loss].targets
    if kind == "binary":
        y = np.where(rng.random(N) < 0.5, -1.0, 1.0)
    else:
        y = {"count": rng.poisson(2, N).astype(float), "positive": rng.gamma(2.0, 1.0, N)}.get(
            kind, rng.standard_normal(N)
        )
    features = rng.standard_normal((N, d)) * (rng.random((N, d)) < 0.7)
    return AgentData(features.astype(dtype), y.astype(dtype), np.concatenate(([0], np.cumsum(sizes))))


def as_sparse(data):
    return AgentData(sp.csr_array(data.features), data.targets, data.offsets)


def plain(data, loss, X):
    """Values, gradients and Hessians agent by agent, straight from the definition."""
    loss = get_loss(loss)
    values, gradients, hessians = [], [], []
    for k in range(data.n_local):
        rows = slice(data.offsets[k], data.offsets[k + 1])
        A, y, x = data.features[rows], data.targets[rows], X[k]
        z, n = A @ x, rows.stop - rows.start
        values.append(loss.value(z, y).sum() / n + L2 / 2 * x @ x)
        gradients.append(A.T @ loss.derivative(z, y) / n + L2 * x)
        hessians.append(A.T @ (loss.second_derivative(z, y)[:, None] * A) / n + L2 * np.eye(A.shape[1]))
    return np.array(values), np.array(gradients), np.array(hessians)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sizes", SIZES)
def test_dense_and_sparse_agree_with_the_definition(loss, sizes):
    data = make_data(SIZES[sizes], loss)
    X = np.random.default_rng(1).standard_normal((3, 3))
    value, gradient, hessian = plain(data, loss, X)
    for stored in (data, as_sparse(data)):
        model = LinearModel(stored, loss, L2)
        np.testing.assert_allclose(model.value(X), value, atol=1e-13)
        np.testing.assert_allclose(model.gradient(X), gradient, atol=1e-13)
        np.testing.assert_allclose(model.hessian(X), hessian, atol=1e-13)
        both = model.value_and_gradient(X)
        np.testing.assert_array_equal(both[0], model.value(X))
        np.testing.assert_array_equal(both[1], model.gradient(X))
        V = np.random.default_rng(2).standard_normal((3, 3))
        expected = np.einsum("mij,mj->mi", hessian, V)
        np.testing.assert_allclose(model.hessian_vector(X, V), expected, atol=1e-13)


@pytest.mark.parametrize("sizes", SIZES)
def test_every_namespace_gives_the_same(sizes, xp):
    data = make_data(SIZES[sizes])
    model, other = LinearModel(data, "logistic", L2), LinearModel(data, "logistic", L2).to(xp)
    X = np.random.default_rng(1).standard_normal((3, 3))
    for point in (X, X[0]):
        for f in ("value", "gradient", "hessian"):
            found = to_numpy(getattr(other, f)(xp.asarray(point)))
            np.testing.assert_allclose(found, getattr(model, f)(point), atol=1e-13)
    streams = AgentStreams(0, "batch")
    found = other.stochastic_gradient(xp.asarray(X), 4, streams, 2)
    np.testing.assert_allclose(to_numpy(found), model.stochastic_gradient(X, 4, streams, 2), atol=1e-13)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("sizes", [[200, 200, 200, 200], [300, 7, 120, 64], [8, 8, 8, 9]])
def test_an_agents_bits_do_not_depend_on_who_shares_its_rank(storage, sizes):
    data = make_data(sizes, d=37)
    data = as_sparse(data) if storage == "sparse" else data
    model = LinearModel(data, "logistic", L2)
    X = np.random.default_rng(1).standard_normal((4, 37))
    streams = AgentStreams(0, "batch")
    for agents in ([0], [1, 2], [2, 3], [3]):
        part = model.subset(agents)
        for f in ("value", "gradient", "hessian"):
            np.testing.assert_array_equal(getattr(part, f)(X[agents]), getattr(model, f)(X)[agents])
        np.testing.assert_array_equal(
            part.stochastic_gradient(X[agents], 5, streams, 1),
            model.stochastic_gradient(X, 5, streams, 1)[agents],
        )


def test_one_point_serves_every_agent():
    model = LinearModel(make_data([3, 5, 2]), "logistic", L2)
    x = np.array([0.3, -1.0, 2.0])
    np.testing.assert_array_equal(model.gradient(x), model.gradient(np.tile(x, (3, 1))))
    np.testing.assert_array_equal(model.value(x), model.value(np.tile(x, (3, 1))))


def test_contiguous_data_are_not_copied():
    rng = np.random.default_rng(0)
    data = AgentData.from_stacked(rng.standard_normal((4, 1000, 200)), np.ones((4, 1000)))  # 6.4 MB
    tracemalloc.start()
    model = LinearModel(data, "logistic")
    model.subset([1, 2]).gradient(np.zeros((2, 200)))
    model.gradient(np.zeros((4, 200)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5e6


def test_fortran_order_and_strides_are_accepted():
    data = make_data([3, 5, 2])
    other = AgentData(np.asfortranarray(data.features), data.targets[::1], data.offsets)
    X = np.ones((3, 3))
    np.testing.assert_allclose(
        LinearModel(other, "logistic").gradient(X), LinearModel(data, "logistic").gradient(X), atol=1e-15
    )


def test_a_rank_without_agents_works():
    model = LinearModel(make_data([3, 5, 2]), "logistic", L2).subset([])
    assert model.value(np.zeros((0, 3))).shape == (0,)
    assert model.gradient(np.zeros(3)).shape == (0, 3)
    assert model.hessian(np.zeros((0, 3))).shape == (0, 3, 3)
    assert model.smoothness.shape == (0,)


def test_single_precision_stays_single():
    model = LinearModel(make_data([3, 5, 2], dtype=np.float32), "logistic", L2)
    X = np.ones((3, 3), dtype=np.float32)
    assert model.value(X).dtype == np.float32
    assert model.gradient(X).dtype == np.float32


def test_stochastic_gradients_are_unbiased_and_keyed():
    model, streams = LinearModel(make_data([6, 9, 4]), "logistic", L2), AgentStreams(0, "batch")
    X = np.random.default_rng(1).standard_normal((3, 3))
    draws = np.array([model.stochastic_gradient(X, 2, streams, step) for step in range(2000)])
    error = np.abs(draws.mean(0) - model.gradient(X))
    assert np.all(error < 4.5 * draws.std(0) / np.sqrt(2000) + 1e-12)
    np.testing.assert_array_equal(model.stochastic_gradient(X, 2, streams, 7), draws[7])


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_constants_agree_with_brute_force(storage):
    data = make_data([30, 5, 2], d=4)
    data = as_sparse(data) if storage == "sparse" else data
    dense = data.dense()
    model = LinearModel(data, "logistic", L2)
    for k in range(3):
        A = dense.features[dense.offsets[k] : dense.offsets[k + 1]]
        top = np.linalg.norm(A, 2) ** 2 / len(A)
        assert model.smoothness[k] == pytest.approx(0.25 * top + L2)
        assert LinearModel(data, "absolute").lipschitz[k] == pytest.approx(np.linalg.norm(A, axis=1).max())
    assert np.all(model.strong_convexity == L2)
    assert np.all(np.isinf(LinearModel(data, "absolute").smoothness))


def test_calls_are_counted():
    model = LinearModel(make_data([3, 5, 2]), "logistic")
    model.gradient(np.zeros((3, 3)))
    model.value_and_gradient(np.zeros((3, 3)))
    assert (model.calls.values, model.calls.gradients, model.calls.samples) == (1, 2, 20)


def test_fingerprints_add_up_over_blocks_and_change_with_any_datum():
    data = make_data([3, 5, 2])
    model = LinearModel(data, "logistic", L2)
    blocks = [int(model.subset(agents).fingerprint(), 16) for agents in ([0, 1], [2])]
    assert f"{sum(blocks) % 2**256:064x}" == model.fingerprint()
    changed = data.features.copy()
    changed[0, 0] += 1e-12
    others = [
        LinearModel(AgentData(changed, data.targets, data.offsets), "logistic", L2),
        LinearModel(data, "logistic", 0.2),
        LinearModel(data, "squared_hinge", L2),
    ]
    assert len({model.fingerprint(), *(other.fingerprint() for other in others)}) == 4


def test_bad_models_are_named():
    data = make_data([3, 5, 2])
    with pytest.raises(ValueError, match="agent 1 has no rows"):
        LinearModel(AgentData(data.features, data.targets, [0, 3, 3, 10]), "logistic")
    with pytest.raises(ValueError, match="targets of the logistic loss"):
        LinearModel(AgentData(data.features, 3 * data.targets, data.offsets), "logistic")
    with pytest.raises(ValueError, match="l2 must be"):
        LinearModel(data, "logistic", -1.0)
    with pytest.raises(TypeError, match="data must be an AgentData"):
        LinearModel(data.features, "logistic")
    with pytest.raises(ValueError, match="batch_size must be"):
        LinearModel(data, "logistic").stochastic_gradient(np.zeros((3, 3)), 0, AgentStreams(0, "x"), 0)


# -- data -------------------------------------------------------------------------------------------------


def test_non_finite_data_name_the_agent_and_its_row():
    data = make_data([3, 5, 2])
    features = data.features.copy()
    features[4, 1] = np.nan
    with pytest.raises(ValueError, match="features must be finite, got NaN or infinity in row 1 of agent 1"):
        AgentData(features, data.targets, data.offsets)
    targets = data.targets.copy()
    targets[8] = np.inf
    with pytest.raises(ValueError, match="targets must be finite, got NaN or infinity in row 0 of agent 2"):
        AgentData(data.features, targets, data.offsets)
    matrix = sp.csr_array(data.features)
    matrix.data[-1] = np.nan
    with pytest.raises(ValueError, match="of agent 2"):
        AgentData(matrix, data.targets, data.offsets)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": [0, 3, 8]}, "must describe the same rows, got 10, 10 and 8"),
        ({"offsets": [0, 5, 3, 10]}, "offsets must rise from 0"),
        ({"offsets": [1, 3, 8, 10]}, "offsets must rise from 0"),
        ({"agents": [0, 2, 1]}, "agents must be 3 increasing numbers"),
        ({"agents": [0, 1, 9], "n_agents": 5}, r"agents must lie in 0\.\.4"),
        ({"targets": np.ones(9)}, "must describe the same rows"),
    ],
)
def test_bad_agent_data_are_named(change, message):
    data = make_data([3, 5, 2])
    whole = {"features": data.features, "targets": data.targets, "offsets": data.offsets} | change
    with pytest.raises(ValueError, match=message):
        AgentData(**whole)


def test_agent_data_from_stacks_and_blocks():
    data = make_data([4, 4, 4])
    stacked = AgentData.from_stacked(data.features.reshape(3, 4, 3), data.targets.reshape(3, 4))
    blocks = AgentData.from_blocks([(data.features[a : a + 4], data.targets[a : a + 4]) for a in (0, 4, 8)])
    assert stacked.fingerprint() == blocks.fingerprint() == data.fingerprint()
    assert np.shares_memory(data.stacked(), data.features)
    with pytest.raises(ValueError, match="needs dense features and equally many rows"):
        make_data([3, 5, 2]).stacked()
    with pytest.raises(ValueError, match="among those held here"):
        data.subset([3])
    picked = data.subset([0, 2])
    np.testing.assert_array_equal(picked.features, np.concatenate([data.features[:4], data.features[8:]]))
    assert picked.agents.tolist() == [0, 2]
    assert picked.n_agents == 3


# -- quadratics and functions -----------------------------------------------------------------------------


def test_quadratics_have_their_closed_forms(xp):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 4, 4))
    A, b, c, X = root @ root.transpose(0, 2, 1), *(rng.standard_normal(s) for s in ((3, 4), 3, (3, 4)))
    model = Quadratic(xp.asarray(A), xp.asarray(b), xp.asarray(c))
    value = np.array([0.5 * x @ M @ x - v @ x + k for x, M, v, k in zip(X, A, b, c)])
    gradient = np.array([M @ x - v for x, M, v in zip(X, A, b)])
    np.testing.assert_allclose(to_numpy(model.value(xp.asarray(X))), value, atol=1e-12)
    np.testing.assert_allclose(to_numpy(model.gradient(xp.asarray(X))), gradient, atol=1e-12)
    both = model.value_and_gradient(xp.asarray(X))
    np.testing.assert_allclose(to_numpy(both[0]), value, atol=1e-12)
    np.testing.assert_allclose(to_numpy(model.smoothness), np.linalg.eigvalsh(A)[:, -1])
    np.testing.assert_array_equal(
        to_numpy(model.subset([0, 2]).gradient(xp.asarray(X[[0, 2]]))),
        to_numpy(model.gradient(xp.asarray(X)))[[0, 2]],
    )


def test_asymmetric_quadratics_are_refused_with_the_agent_named():
    matrices = np.tile(np.eye(2), (3, 1, 1))
    matrices[1, 0, 1] = 0.5
    with pytest.raises(ValueError, match=r"one of agent 1 that differs from its transpose by 0\.5"):
        Quadratic(matrices, np.zeros((3, 2)))
    matrices[1, 0, 1] = 1e-12  # rounding of a product
    Quadratic(matrices, np.zeros((3, 2)))
    Quadratic(np.array([[[1, 1e-6], [0, 1]]], dtype=np.float32), np.zeros((1, 2), np.float32))


@pytest.mark.parametrize("d", [1, 2, 5, 37, 64])
def test_an_agents_quadratic_has_the_same_bits_in_any_company(d):
    rng = np.random.default_rng(d)
    root = rng.standard_normal((5, d, d))
    model = Quadratic(root + root.transpose(0, 2, 1), rng.standard_normal((5, d)), rng.standard_normal(5))
    X, V = rng.standard_normal((5, d)), rng.standard_normal((5, d))
    for agents in ([0], [1, 2], [4], [0, 3]):
        part = model.subset(agents)
        assert part.agents.tolist() == agents
        for f in (part.value, part.gradient):
            whole = getattr(model, f.__name__)
            np.testing.assert_array_equal(f(X[agents]), whole(X)[agents])
            np.testing.assert_array_equal(f(X[0]), whole(X[0])[agents])
            np.testing.assert_array_equal(whole(X[0]), whole(np.tile(X[0], (5, 1))))
        np.testing.assert_array_equal(
            part.hessian_vector(X[agents], V[agents]), model.hessian_vector(X, V)[agents]
        )
    assert np.shares_memory(model.subset([1, 2]).A, model.A)


def test_points_of_a_wrong_shape_are_refused_by_every_objective():
    # NumPy would spread a single row over all agents without a word.
    functions = FunctionObjective(lambda X, a: X.sum(1), lambda X, a: X, 3, 2)
    for model in (Quadratic(np.tile(np.eye(2), (3, 1, 1)), np.zeros((3, 2))), functions):
        for f in (model.value, model.gradient, model.value_and_gradient):
            for shape in ((1, 2), (3, 1), (3,), (3, 2, 1)):
                with pytest.raises(ValueError, match=r"X must have shape \(3, 2\) or \(2,\), got"):
                    f(np.zeros(shape))


@pytest.mark.parametrize(
    ("constants", "error", "message"),
    [
        (
            {"smoothness": [1.0, 2.0]},
            ValueError,
            r"smoothness must be one or 3 numbers >= 0, got \[1\.0, 2\.0\]",
        ),
        ({"smoothness": -1.0}, ValueError, "smoothness must be"),
        ({"lipschitz": np.nan}, ValueError, "lipschitz must be"),
        ({"strong_convexity": "much"}, TypeError, "strong_convexity must hold real numbers"),
    ],
)
def test_constants_of_a_users_functions_are_checked(constants, error, message):
    with pytest.raises(error, match=message):
        FunctionObjective(lambda X, a: X.sum(1), lambda X, a: X, 3, 2, **constants)
    weak = FunctionObjective(lambda X, a: X.sum(1), lambda X, a: X, 3, 2, strong_convexity=[-1.0, 0.0, 1.0])
    assert weak.subset([0, 2]).strong_convexity.tolist() == [-1.0, 1.0]


def test_a_users_functions_are_checked_with_the_agent_named():
    def value(X, agents):
        return np.sum(X**2, axis=1) + agents

    objective = FunctionObjective(value, lambda X, agents: 2 * X, 3, 2, smoothness=2.0)
    X = np.ones((3, 2))
    np.testing.assert_array_equal(objective.value(X), [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(objective.subset([1, 2]).value(X[:2]), [3.0, 4.0])
    np.testing.assert_array_equal(objective.value(np.ones(2)), [2.0, 3.0, 4.0])
    assert objective.smoothness.tolist() == [2.0] * 3
    with pytest.raises(AttributeError, match="lipschitz of this FunctionObjective is unknown"):
        objective.lipschitz  # noqa: B018
    wrong = FunctionObjective(value, lambda X, agents: X[:, :1], 3, 2)
    with pytest.raises(ValueError, match=r"gradient must return shape \(3, 2\), got \(3, 1\)"):
        wrong.gradient(X)
    broken = FunctionObjective(lambda X, agents: np.where(agents == 2, np.nan, 1.0), lambda X, a: X, 3, 2)
    with pytest.raises(FloatingPointError, match="value of agent 2 is not finite"):
        broken.value(X)
    with pytest.raises(TypeError, match="gradient must be a function"):
        FunctionObjective(value, 3, 3, 2)


def test_functions_may_come_agent_by_agent():
    objective = FunctionObjective.from_agents(
        [lambda x: float(x @ x), lambda x: 2 * float(x @ x)], [lambda x: 2 * x, lambda x: 4 * x], 3
    )
    X = np.ones((2, 3))
    np.testing.assert_array_equal(objective.value(X), [3.0, 6.0])
    np.testing.assert_array_equal(objective.gradient(X)[1], [4.0] * 3)
    assert objective.subset([1]).value(X[:1])[0] == 6.0


# -- reference optima -------------------------------------------------------------------------------------


def test_reference_optimum_of_least_squares_solves_the_normal_equations():
    data = make_data([30, 20, 10], "least_squares")
    p = np.array([0.5, 0.3, 0.2])
    shares = np.repeat(p / data.sizes, data.sizes)
    A, y = data.features, data.targets
    expected = np.linalg.solve(A.T @ (shares[:, None] * A) + L2 * np.eye(3), A.T @ (shares * y))
    found = reference_optimum(LinearModel(data, "least_squares"), weights=p, l2=L2)
    np.testing.assert_allclose(found.x, expected, atol=1e-7)


def test_reference_optimum_of_quadratics_is_the_mean_system():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 4, 4))
    A, b = root @ root.transpose(0, 2, 1) + np.eye(4), rng.standard_normal((3, 4))
    found = reference_optimum(Quadratic(A, b))
    np.testing.assert_allclose(found.x, np.linalg.solve(A.mean(0), b.mean(0)), atol=1e-6)


@pytest.mark.parametrize(
    "loss", ["logistic", "squared_hinge", "huber", "poisson", "gamma", "negative_binomial"]
)
def test_reference_optimum_agrees_with_a_descent_method(loss):
    model = LinearModel(make_data([30, 20, 10], loss), loss, L2)
    found = reference_optimum(model)
    peer = scipy.optimize.minimize(
        lambda x: model.value(x).mean(), np.zeros(3), jac=lambda x: model.gradient(x).mean(0), tol=1e-12
    )
    assert found.value == pytest.approx(peer.fun, abs=1e-8)
    assert model.value(found.x).mean() == pytest.approx(found.value, abs=1e-8)


def test_problems_without_a_minimiser_are_refused():
    data = AgentData(np.array([[1.0], [2.0]]), np.ones(2), [0, 2])
    with pytest.raises(ValueError, match="not attained"):
        reference_optimum(Quadratic(np.zeros((1, 2, 2)), np.ones((1, 2))))
    with pytest.raises(ValueError, match="must hold all"):
        reference_optimum(LinearModel(make_data([3, 5, 2]), "logistic").subset([0]))
    assert reference_optimum(LinearModel(data, "logistic"), l2=0.1).value > 0
