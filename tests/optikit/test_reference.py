"""Reference optima: certificates, closed forms, and minima that are not attained."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit.agent_data import AgentData
from optikit.losses import LOSSES, get_loss
from optikit.objectives import FunctionObjective, LinearModel, Quadratic, reference_optimum

SIZES = (4, 7, 20)


def model_of(loss, l2=0.0, sparse=False):
    rng = np.random.default_rng(0)
    size, kind = sum(SIZES), get_loss(loss).targets
    if kind == "binary":
        y = np.where(rng.random(size) < 0.5, -1.0, 1.0)
    else:
        y = {"count": rng.poisson(2.0, size).astype(float), "positive": rng.gamma(2.0, 1.0, size)}.get(
            kind, rng.standard_normal(size)
        )
    features = rng.standard_normal((size, 3))
    offsets = np.concatenate(([0], np.cumsum(SIZES)))
    return LinearModel(AgentData(sp.csr_array(features) if sparse else features, y, offsets), loss, l2)


def logistic(rows, labels):
    return LinearModel(AgentData(np.array(rows, dtype=float), np.array(labels), [0, len(labels)]), "logistic")


@pytest.mark.parametrize("penalty", [{"l2": 0.1}, {"l1": 0.03}, {"l2": 0.05, "l1": 0.02}])
@pytest.mark.parametrize("loss", LOSSES)
def test_gap_certifies_the_optimum(loss, penalty):
    found = reference_optimum(model_of(loss), weights=[0.5, 0.3, 0.2], **penalty)
    assert 0 <= found.dual_gap < 1e-6


@pytest.mark.parametrize("loss", LOSSES)
def test_no_point_is_better_by_more_than_the_gap(loss):
    model = model_of(loss, l2=0.1)
    found = reference_optimum(model)
    assert model.value(found.x).mean() == pytest.approx(found.value, rel=1e-12)
    for x in found.x + 1e-3 * np.random.default_rng(1).standard_normal((50, 3)):
        assert model.value(x).mean() >= found.value - found.dual_gap - 1e-14


def test_sparse_data_have_the_optimum_of_dense():
    dense, sparse = (reference_optimum(model_of("logistic", 0.1, sparse=s)) for s in (False, True))
    np.testing.assert_allclose(sparse.x, dense.x, atol=1e-8)
    assert sparse.dual_gap < 1e-6


def test_soft_thresholding_is_the_optimum_of_a_separable_quadratic_with_l1():
    # argmin 1/2 a x^2 - b x + t |x| = sign(b) max(|b| - t, 0) / a
    a, b = np.array([1.0, 2.0, 4.0]), np.array([0.5, -1.0, 0.1])
    found = reference_optimum(Quadratic(np.diag(a)[None], b[None], np.array([7.0])), l1=0.2)
    expected = np.sign(b) * np.maximum(np.abs(b) - 0.2, 0) / a
    np.testing.assert_allclose(found.x, expected, atol=1e-6)
    assert found.value == pytest.approx(7.0 - 0.5 * np.sum(a * expected**2), abs=1e-8)
    assert found.dual_gap < 1e-6


def test_gap_is_none_where_no_bound_is_at_hand():
    assert reference_optimum(model_of("logistic")).dual_gap is None
    assert reference_optimum(Quadratic(np.diag([1.0, 0.0])[None], np.array([[1.0, 0.0]]))).dual_gap is None


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([[1.0, 0.2], [0.9, -0.3], [-1.0, 0.1], [-0.8, 0.0]], [1.0, 1.0, -1.0, -1.0]),  # separable
        ([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0]], [1.0, 1.0, 1.0]),  # two rows tie, the third has a margin
    ],
)
def test_separable_labels_have_no_logistic_optimum(rows, labels):
    with pytest.raises(ValueError, match=r"minimum of the logistic loss is not attained .* add l2"):
        reference_optimum(logistic(rows, labels))
    assert reference_optimum(logistic(rows, labels), l1=0.1).dual_gap < 1e-6


def test_agents_of_no_weight_do_not_make_labels_inseparable():
    features, labels = np.array([[1.0], [2.0], [1.0], [-1.0]]), np.ones(4)
    model = LinearModel(AgentData(features, labels, [0, 2, 4]), "logistic")
    assert reference_optimum(model).value == pytest.approx(model.value(reference_optimum(model).x).mean())
    with pytest.raises(ValueError, match="not attained"):
        reference_optimum(model, weights=[1.0, 0.0])


def test_rows_without_features_do_not_hide_the_optimum():
    assert reference_optimum(logistic([[0.0, 0.0], [0.0, 0.0]], [1.0, 1.0])).value == pytest.approx(np.log(2))


def test_zero_counts_of_their_own_direction_have_no_poisson_optimum():
    model = LinearModel(AgentData(np.eye(2), np.array([0.0, 2.0]), [0, 2]), "poisson")
    with pytest.raises(ValueError, match="minimum of the poisson loss is not attained"):
        reference_optimum(model)


def test_bad_problems_are_named():
    with pytest.raises(ValueError, match="not attained"):
        reference_optimum(Quadratic(np.diag([1.0, 0.0])[None], np.array([[0.0, 1.0]])))
    with pytest.raises(ValueError, match=r"must be positive semidefinite, got an eigenvalue of -1\.0"):
        reference_optimum(Quadratic(np.diag([1.0, -1.0])[None], np.zeros((1, 2))))
    with pytest.raises(ValueError, match="the solver 'NOPE' failed"):
        reference_optimum(model_of("hinge", 0.1), solver="NOPE")
    with pytest.raises(ValueError, match="weights must sum to 1"):
        reference_optimum(model_of("hinge", 0.1), weights=[1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="l1 must be"):
        reference_optimum(model_of("hinge", 0.1), l1=-1.0)
    with pytest.raises(TypeError, match="LinearModel or a Quadratic, got FunctionObjective"):
        reference_optimum(FunctionObjective(lambda X, a: X[:, 0], lambda X, a: X, 1, 1))


# -- the range of slopes that certificates rest on --------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
@given(z=st.floats(-300, 300), seed=st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_slopes_lie_in_their_range_and_the_conjugate_is_finite_there_alone(name, z, seed):
    loss, rng = get_loss(name), np.random.default_rng(seed)
    draw = {"count": float(rng.poisson(2.0)), "positive": float(rng.gamma(2.0))}
    y = np.array([draw.get(loss.targets, rng.choice([-1.0, 1.0]))])
    low, high = loss.slope_range(y)
    slope = loss.derivative(np.array([z]), y)
    assert low <= slope <= high
    for end, outward in ((low, -1.0), (high, 1.0)):
        if np.isfinite(end):
            assert np.isfinite(loss.conjugate(end, y))
            assert np.isposinf(loss.conjugate(end + 1e-6 * outward, y))


@pytest.mark.parametrize("name", LOSSES)
def test_slope_ranges_are_the_same_in_every_namespace(name, xp):
    y = np.array([1.0, 1.0]) if get_loss(name).targets != "binary" else np.array([-1.0, 1.0])
    for found, expected in zip(get_loss(name).slope_range(xp.asarray(y)), get_loss(name).slope_range(y)):
        np.testing.assert_array_equal(np.asarray(found), expected)
