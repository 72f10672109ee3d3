"""The margin: exact on instances in closed form, equal to a support vector machine, with proofs both ways."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from optikit.agent_data import AgentData
from optikit.data import prepare_features
from optikit.generators import random_separable, two_point, two_vec
from optikit.network import Network
from solvers.federated.margin import NotSeparableError, max_margin, pooled_margin

METHODS = ["nnls", "candidates", "qp"]


def labelled(name):
    """The real data sets of the reference: bias column, largest norm 1; labels in {-1, 1}."""
    from sklearn import datasets

    load, keep, positive, standardized = {
        "digits 0-1": (datasets.load_digits, (0, 1), (1,), False),
        "digits 3-8": (datasets.load_digits, (3, 8), (8,), False),
        "digits 0-rest": (datasets.load_digits, range(10), (0,), False),
        "digits parity": (datasets.load_digits, range(10), (1, 3, 5, 7, 9), False),
        "digits <5": (datasets.load_digits, range(10), range(5), False),
        "iris setosa": (datasets.load_iris, (0, 1, 2), (0,), True),
        "iris 1-2": (datasets.load_iris, (1, 2), (1,), True),
        "wine 0": (datasets.load_wine, (0, 1, 2), (0,), True),
    }[name]
    table = load()
    rows = np.isin(table.target, list(keep))
    X, _ = prepare_features(table.data[rows], standardized=standardized)
    return X, np.where(np.isin(table.target[rows], list(positive)), 1.0, -1.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "gamma"),
    # Reference values of the specification, six digits.
    [
        ("digits 0-1", 0.097753),
        ("digits 3-8", 0.034572),
        ("digits 0-rest", 0.029190),
        ("iris setosa", 0.156805),
        ("wine 0", 0.065496),
    ],
)
def test_margins_of_real_data_are_the_reference_values(name, gamma, method):
    X, y = labelled(name)
    margin = max_margin(X, y, method=method)
    assert margin.normalized == pytest.approx(gamma, abs=6e-7)
    # The two proofs: a direction that attains gamma, and a convex combination of rows no longer than gamma.
    assert np.min(y * (X @ margin.direction)) >= margin.gamma * (1 - 1e-8)
    assert np.linalg.norm((margin.alpha * y) @ X) <= margin.gamma * (1 + 1e-8)
    assert margin.alpha.min() >= 0
    assert margin.alpha.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["digits parity", "digits <5", "iris 1-2"])
def test_data_that_are_not_separable_come_with_a_convex_combination_that_is_zero(name, method):
    X, y = labelled(name)
    with pytest.raises(NotSeparableError, match="not linearly separable") as caught:
        max_margin(X, y, method=method)
    alpha = caught.value.alpha
    assert alpha.shape == (len(y),)
    assert alpha.min() >= 0
    assert alpha.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.linalg.norm((alpha * y) @ X) < 1e-10


def test_margin_of_two_points_is_known():
    # two_point(g, 1): by symmetry the direction is the first axis and gamma = g.
    assert max_margin(two_point(0.6, 1.0).features).gamma == pytest.approx(0.6, abs=1e-12)
    assert max_margin(two_vec(1.0, 0.2, -0.95).features).gamma == pytest.approx(0.052407, abs=1e-6)


def test_margin_equals_that_of_a_support_vector_machine():
    from sklearn.svm import SVC

    X, y = labelled("wine 0")
    # Rows and negated rows make the intercept zero; 1/||coef|| agrees to 3e-8.
    machine = SVC(kernel="linear", C=1e10, tol=1e-9).fit(
        np.vstack([y[:, None] * X, -y[:, None] * X]), np.repeat([1, -1], len(y))
    )
    assert max_margin(X, y).gamma == pytest.approx(1 / np.linalg.norm(machine.coef_), rel=1e-6)


def test_sparse_rows_have_the_margin_of_dense_ones():
    X, y = labelled("digits 3-8")
    assert max_margin(sparse.csr_array(X), y).gamma == pytest.approx(max_margin(X, y).gamma, rel=1e-9)


def test_many_rows_are_handled_by_their_few_candidates():
    data = random_separable(1, 20_000, 20, seed=1)
    margin = max_margin(data.features)
    assert margin.support.size <= 21  # no more than d + 1 support vectors in general position
    assert np.min(data.features @ margin.direction) >= margin.gamma * (1 - 1e-8)
    assert np.linalg.norm(margin.alpha @ data.features) <= margin.gamma * (1 + 1e-8)


def test_pooled_margin_is_below_every_agents_own():
    data = random_separable(4, 5, 6, seed=2)
    pooled = pooled_margin(data, Network(n_agents=4)).gamma
    assert all(pooled <= max_margin(rows).gamma * (1 + 1e-12) for rows in data.stacked())


def test_data_with_zero_rows_have_no_margin():
    with pytest.raises(NotSeparableError):
        max_margin(np.zeros((3, 2)))


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 5))
def test_rows_are_separated_or_proved_inseparable(seed, n, d):
    X = np.random.default_rng(seed).standard_normal((n, d))
    try:
        margin, alpha = max_margin(X), None
    except NotSeparableError as error:
        margin, alpha = None, error.alpha
    if margin is None:
        assert np.linalg.norm(alpha @ X) < 1e-9
    else:
        assert np.min(X @ margin.direction) >= margin.gamma * (1 - 1e-6)
        assert np.linalg.norm(margin.alpha @ X) <= margin.gamma * (1 + 1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(3),), "features must have 2 axes"),
        ((np.ones((2, 2)), np.array([0.0, 1.0])), "targets must be 2 labels"),
        ((np.array([[1.0, np.nan]]),), "NaN or infinity in row 0"),
        ((np.empty((0, 2)),), "at least one row"),
    ],
)
def test_bad_rows_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        max_margin(*arguments)


def test_unknown_methods_and_tolerances_are_refused():
    with pytest.raises(ValueError, match="method must be one of"):
        max_margin(np.ones((1, 1)), method="svm")
    with pytest.raises(ValueError, match="tol must be"):
        max_margin(np.ones((1, 1)), tol=0.0)


def test_labels_may_be_coded_zero_and_one_in_agent_data():
    X, y = labelled("iris setosa")
    from solvers.federated.local_method import replace_targets

    coded = AgentData(X, (y + 1) / 2, np.array([0, 70, 150]))
    assert np.array_equal(replace_targets(coded).targets, y)
