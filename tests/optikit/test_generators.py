"""The synthetic instances are the ones of the Local GD specification, section 6."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optikit.generators import random_separable, two_point, two_vec


def two_vector_margin(a, b):
    """Largest margin of two vectors: the distance of the segment between them from the origin."""
    t = np.clip(-(a - b) @ b / ((a - b) @ (a - b)), 0.0, 1.0)
    return np.linalg.norm(b + t * (a - b))


def test_two_point_rows_follow_the_formula():
    data = two_point(0.6, 0.5)
    np.testing.assert_allclose(data.stacked(), [[[0.6, 0.8]], [[0.3, -0.4]]], rtol=1e-15)
    np.testing.assert_array_equal(data.targets, 1.0)
    assert (data.n_agents, data.dim, data.is_uniform) == (2, 2, True)


def test_two_point_has_the_published_margin():
    """Acceptance row 1: 0.19891007363 for two_point(0.3, 0.5)."""
    assert two_vector_margin(*two_point(0.3, 0.5).features) == pytest.approx(0.19891007363, abs=1e-9)


@given(g=st.floats(0.05, 0.99))
def test_margin_of_balanced_two_point_is_g(g):
    assert two_vector_margin(*two_point(g, 1.0).features) == pytest.approx(g, rel=1e-9)


def test_two_vec_has_the_published_margin():
    """Acceptance row 14: 0.052407 for two_vec(1, 0.2, -0.95)."""
    data = two_vec(1.0, 0.2, -0.95)
    assert two_vector_margin(*data.features) == pytest.approx(0.052407, rel=1e-4)
    a, b = data.features
    assert (np.linalg.norm(a), np.linalg.norm(b)) == pytest.approx((1.0, 0.2))
    assert a @ b == pytest.approx(-0.95 * 0.2)


@given(
    n_agents=st.integers(1, 5), n_samples=st.integers(1, 5), dim=st.integers(1, 5), seed=st.integers(0, 99)
)
def test_random_instances_are_separable_with_rows_of_norm_at_most_one(n_agents, n_samples, dim, seed):
    data = random_separable(n_agents, n_samples, dim, seed)
    assert np.linalg.norm(data.features, axis=1).max() == pytest.approx(1.0)
    assert data.stacked().shape == (n_agents, n_samples, dim)
    generator = np.random.default_rng(seed)
    generator.standard_normal((n_agents, n_samples, dim))
    assert (data.features @ generator.standard_normal(dim)).min() >= 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: two_point(0.0, 0.5), "g must be a finite number > 0 and <= 1, got 0.0"),
        (lambda: two_point(0.5, 2.0), "beta must be a finite number > 0 and <= 1, got 2.0"),
        (lambda: two_vec(1.0, 0.2, -1.0), "c must be a finite number > -1 and <= 1, got -1.0"),
        (lambda: two_vec(0.0, 0.2, 0.5), "g1 must be"),
        (lambda: random_separable(0, 1, 1), "n_agents must be an integer >= 1, got 0"),
        (lambda: random_separable(2, 3, 1, seed=-4), "seed must be an integer >= 0"),
    ],
)
def test_parameters_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
