"""Splits deal every row once, in equal shares, as heterogeneously as asked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from optikit.data import code_labels, prepare_features
from optikit.splits import split, split_by_label, split_by_similarity, split_dirichlet, split_iid


def table(n, classes=2):
    """Rows that carry their own number, and labels 0, 1, ... in turn."""
    return np.arange(n, dtype=float)[:, None], np.arange(n) % classes


@given(n=st.integers(1, 60), share=st.floats(0, 1), similarity=st.floats(0, 1), seed=st.integers(0, 2**40))
def test_every_row_is_dealt_once_in_equal_shares(n, share, similarity, seed):
    n_agents = max(1, round(share * n))
    X, y = table(n)
    data = split_by_similarity(X, y, n_agents, similarity, seed)
    np.testing.assert_array_equal(np.sort(data.features[:, 0]), X[:, 0])
    np.testing.assert_array_equal(data.targets, y[data.features[:, 0].astype(int)])
    assert data.n_agents == n_agents
    assert data.sizes.min() >= 1
    assert data.sizes.max() - data.sizes.min() <= 1


def test_sorted_by_label_agents_hold_few_labels():
    data = split_by_label(*table(40, classes=4), 4, seed=3)
    labels = data.targets.reshape(4, 10)
    np.testing.assert_array_equal(labels, np.repeat([[0], [1], [2], [3]], 10, axis=1))


def test_similarity_one_is_the_iid_split_and_zero_the_split_by_label():
    X, y = table(31)
    for data, same in (
        (split_by_similarity(X, y, 4, 1.0, 5), split_iid(X, y, 4, 5)),
        (split_by_similarity(X, y, 4, 0.0, 5), split_by_label(X, y, 4, 5)),
    ):
        np.testing.assert_array_equal(data.features, same.features)


def test_half_similar_agents_hold_half_of_their_rows_iid():
    X, y = table(400)
    labels = split_by_similarity(X, y, 2, 0.5, 0).targets.reshape(2, 200)
    assert (np.diff(np.concatenate([labels[0, 100:], labels[1, 100:]])) >= 0).all()
    assert labels[0, 100:].mean() < 0.1
    assert labels[1, 100:].mean() > 0.9
    assert abs(labels[0, :100].mean() - 0.5) < 0.2


def test_the_seed_decides_the_split():
    X, y = table(50)
    one, two, other = (split_iid(X, y, 3, seed).features for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_sparse_rows_are_dealt_like_dense_ones():
    X, y = table(20)
    stored = split_iid(sparse.csr_array(X), y, 3, 1)
    assert repr(stored) == "AgentData(3 agents, 20 samples, 1 CSR features)"
    np.testing.assert_array_equal(stored.features.toarray(), split_iid(X, y, 3, 1).features)


@pytest.mark.parametrize(("local_steps", "expected"), [(1, 7.038e-3), (4, 2.173e-3)])
def test_the_split_of_digits_reproduces_the_reference_losses(local_steps, expected):
    """Acceptance row 16 of the Local GD specification (K = 1 and 4), by a loop of plain NumPy."""
    from scipy.special import expit
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = digits.target < 2
    X, _ = prepare_features(digits.data[rows])
    data = split_by_similarity(X, code_labels(digits.target[rows]), 5, 0.5, 0)
    blocks = data.stacked() * data.targets.reshape(5, 72, 1)
    w = np.zeros(data.dim)
    for _ in range(512):
        v = np.tile(w, (5, 1))
        for _ in range(local_steps):
            s = expit(-np.matmul(blocks, v[:, :, None]))
            v += 16.0 / 72 * np.matmul(blocks.transpose(0, 2, 1), s)[:, :, 0]
        w = v.mean(axis=0)
    assert np.logaddexp(0.0, -blocks @ w).mean() == pytest.approx(expected, rel=1e-3)


def test_dirichlet_concentration_governs_heterogeneity():
    X, y = table(2000, classes=4)

    def spread(alpha):
        data = split_dirichlet(X, y, 5, alpha, seed=1)
        shares = [
            np.bincount(data.targets[data.offsets[m] : data.offsets[m + 1]].astype(int), minlength=4)
            / data.sizes[m]
            for m in range(5)
        ]
        return np.abs(np.array(shares) - 0.25).max()

    assert spread(1e4) < 0.05 < 0.3 < spread(0.1)


@given(n=st.integers(5, 80), alpha=st.floats(0.5, 100.0), seed=st.integers(0, 1000))
def test_dirichlet_deals_every_row_once(n, alpha, seed):
    X, y = table(n)
    data = split_dirichlet(X, y, 3, alpha, seed)
    np.testing.assert_array_equal(np.sort(data.features[:, 0]), X[:, 0])
    assert data.sizes.min() >= 1


def test_dirichlet_deals_named_classes():
    X, _ = table(30)
    labels = np.where(np.arange(30) % 2 == 0, 1.0, -1.0)
    assert split_dirichlet(X, labels, 2, 1.0, seed=0, min_samples=5).sizes.min() >= 5


def test_the_named_methods_are_reached_by_split():
    X, y = table(20)
    for method, function in (("iid", split_iid), ("label", split_by_label), ("dirichlet", split_dirichlet)):
        np.testing.assert_array_equal(
            split(X, y, 2, method, seed=4).features, function(X, y, 2, seed=4).features
        )
    similar = split(X, y, 2, "similarity", seed=4, similarity=0.25)
    np.testing.assert_array_equal(similar.features, split_by_similarity(X, y, 2, 0.25, 4).features)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: split_iid(X, y, 11), "n_agents must be at most the number of rows, 10, got 11"),
        (lambda X, y: split_iid(X, y, 0), "n_agents must be an integer >= 1, got 0"),
        (lambda X, y: split_iid(X, y[:-1], 2), r"targets must have shape \(10,\)"),
        (lambda X, y: split_iid(X[:, 0], y, 2), "features must be a matrix"),
        (lambda X, y: split_iid(X, y, 2, seed=-1), "seed must be an integer >= 0"),
        (lambda X, y: split_by_similarity(X, y, 2, 1.5), "similarity must be a finite number >= 0 and <= 1"),
        (lambda X, y: split_dirichlet(X, y, 2, 0.0), "alpha must be a finite number > 0"),
        (lambda X, y: split_dirichlet(X, y, 2, min_samples=6), "10 rows cannot give 2 agents 6 rows each"),
        (lambda X, y: split_dirichlet(X, y, 10, 0.01, seed=1), "no Dirichlet draw with alpha=0.01"),
        (lambda X, y: split_dirichlet(X, y + 0.5, 2), "class labels, got real numbers"),
        (lambda X, y: split(X, y, 2, "random"), "method must be one of"),
    ],
)
def test_impossible_splits_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*table(10))
