"""Random streams: limits of their counters, and the same bits in every namespace and for every subset."""

import numpy as np
import pytest

from optikit.arrays import to_numpy
from optikit.random import AgentStreams


def test_every_namespace_draws_the_same_bits(xp):
    streams, agents = AgentStreams(1, "namespaces"), np.array([0, 3, 2**32 - 1])
    expected = streams.bits(agents, 2**40 + 5, 7)
    np.testing.assert_array_equal(to_numpy(streams.bits(agents, 2**40 + 5, 7, xp)), expected)
    np.testing.assert_array_equal(to_numpy(streams.uniform(agents, 3, 7, xp)), streams.uniform(agents, 3, 7))
    high = np.array([1, 10, 1000])
    np.testing.assert_array_equal(
        to_numpy(streams.integers(agents, 3, high, 7, xp)), streams.integers(agents, 3, high, 7)
    )


def test_a_longer_draw_begins_with_a_shorter_one():
    streams = AgentStreams(0, "prefix")
    np.testing.assert_array_equal(streams.bits([4], 1, 3), streams.bits([4], 1, 11)[:, :3])
    np.testing.assert_array_equal(streams.uniform([4], 1, 3), streams.uniform([4], 1, 11)[:, :3])


def test_integers_of_one_value_are_zero_and_stay_below_their_bound():
    streams = AgentStreams(0, "bounds")
    assert np.all(streams.integers([0, 1], 0, 1, 100) == 0)
    drawn = streams.integers([0, 1], 0, np.array([2, 2**31]), 1000)
    assert drawn.dtype == np.int64
    assert np.all((drawn >= 0) & (drawn < np.array([[2], [2**31]])))


def test_empty_draws_have_their_shape():
    streams = AgentStreams(0, "empty")
    assert streams.normal([], 0, 5).shape == (0, 5)
    assert streams.uniform([1, 2], 0, 0).shape == (2, 0)
    assert streams.integers([], 0, np.zeros(0), 3).shape == (0, 3)


@pytest.mark.parametrize("agents", [[-1], [2**32], [[0]], 3])
def test_agents_beyond_the_counter_are_named(agents):
    with pytest.raises(ValueError, match="agents must be a list of numbers"):
        AgentStreams(0, "x").bits(agents, 0, 2)


@pytest.mark.parametrize("size", [-1, 2**33])
def test_sizes_beyond_the_counter_are_named(size):
    with pytest.raises(ValueError, match="size must be"):
        AgentStreams(0, "x").bits([0], 0, size)
