"""Array namespaces, validation and the counter-based random streams."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit.arrays import array_namespace, as_float_array, is_numpy, resolve_namespace, to_numpy
from optikit.random import AgentStreams, philox4x32
from optikit.validation import check_choice, check_finite, check_integer, check_probability_vector, check_real


def test_lists_and_scalars_count_as_numpy(xp):
    assert is_numpy(array_namespace([1.0], 2, np.float64(3)))
    x = xp.asarray([1.0, 2.0])
    assert array_namespace(x) is resolve_namespace(xp)
    np.testing.assert_array_equal(to_numpy(x), [1.0, 2.0])


def test_unknown_namespaces_are_named():
    with pytest.raises(ValueError, match="namespace must be an installed array library"):
        resolve_namespace("no_such_library")


@pytest.mark.parametrize(
    ("given_dtype", "expected"), [("int32", "float64"), ("bool", "float64"), ("float32", "float32")]
)
def test_integers_become_double_and_single_stays(given_dtype, expected):
    assert as_float_array(np.ones(3, dtype=given_dtype)).dtype == expected


def test_right_arrays_are_not_copied():
    x = np.ones(3)
    assert as_float_array(x) is x


@pytest.mark.parametrize(
    ("x", "options", "error", "message"),
    [
        ([1j], {}, TypeError, "x must hold real numbers, got dtype complex128"),
        (["a"], {}, TypeError, "x must hold real numbers"),
        ([None], {}, TypeError, "x must hold real numbers"),
        ([[1.0], [1.0, 2.0]], {}, ValueError, "rectangular"),
        ([1.0], {"ndim": 2}, ValueError, r"x must have 2 axes, got shape \(1,\)"),
        ([1.0], {"shape": (None, 3)}, ValueError, r"x must have shape \(any, 3\), got \(1,\)"),
        ([[1.0], [np.nan]], {}, ValueError, "x must be finite, got NaN or infinity in row 1"),
        ([1.0, np.inf], {}, ValueError, "in entry 1"),
    ],
)
def test_bad_arrays_are_named(x, options, error, message):
    with pytest.raises(error, match=message):
        as_float_array(x, **options)


@pytest.mark.parametrize(
    ("value", "error"),
    [(True, TypeError), ("3", TypeError), (2.5, ValueError), (0, ValueError), (np.nan, ValueError)],
)
def test_integers_are_checked(value, error):
    with pytest.raises(error, match="k must be an integer >= 1"):
        check_integer(value, "k", minimum=1)


def test_integral_numbers_of_any_type_are_integers():
    assert check_integer(np.int32(3), "k") == 3
    assert check_integer(3.0, "k") == 3
    assert check_integer(2**70, "k") == 2**70


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_real_numbers_are_checked(value):
    with pytest.raises(ValueError, match=r"a must be a finite number > 0, got"):
        check_real(value, "a", minimum=0.0, open_low=True)
    assert check_real(np.inf, "a", allow_inf=True) == np.inf


def test_choices_and_weights_are_checked():
    with pytest.raises(ValueError, match="mode must be one of 'a', 'b'; got 'c'"):
        check_choice("c", "mode", ("a", "b"))
    with pytest.raises(ValueError, match=r"p must sum to 1, got a sum of 0\.9"):
        check_probability_vector([0.5, 0.4], "p", 2)
    with pytest.raises(ValueError, match=r"p must be non-negative, got .* at index 1"):
        check_probability_vector([1.5, -0.5], "p", 2)
    check_finite(np.ones((2, 2)), "x")


# -- random streams ---------------------------------------------------------------------------------------


def test_philox_has_the_known_answers_of_random123(xp):
    def words(counter, key):
        arrays = tuple(xp.asarray([c], dtype=xp.uint64) for c in counter)
        return [int(to_numpy(word)[0]) for word in philox4x32(arrays, key, xp)]

    ones = 0xFFFFFFFF
    assert words((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert words((ones,) * 4, (ones,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    counter, key = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert words(counter, key) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@given(
    agents=st.lists(st.integers(0, 1000), min_size=1, max_size=6, unique=True),
    step=st.integers(0, 2**40),
    size=st.integers(0, 9),
)
@settings(max_examples=30, deadline=None)
def test_an_agents_numbers_do_not_depend_on_who_is_asked_for_with_it(agents, step, size):
    streams = AgentStreams(3, "test")
    together = streams.bits(agents, step, size)
    for row, agent in zip(together, agents):
        np.testing.assert_array_equal(row, streams.bits([agent], step, size)[0])


def test_streams_differ_by_seed_purpose_agent_and_step():
    base = AgentStreams(0, "a").bits([0], 0, 4)
    for other in (
        AgentStreams(1, "a").bits([0], 0, 4),
        AgentStreams(0, "b").bits([0], 0, 4),
        AgentStreams(0, "a").bits([1], 0, 4),
        AgentStreams(0, "a").bits([0], 1, 4),
        AgentStreams(0, "a").bits([0], 2**32, 4),
    ):
        assert not np.array_equal(base, other)


def test_draws_have_the_moments_of_their_law(xp):
    streams = AgentStreams(0, "moments")
    agents = np.arange(20)
    u = to_numpy(streams.uniform(agents, 0, 5000, xp))
    z = to_numpy(streams.normal(agents, 0, 5001, xp))
    k = to_numpy(streams.integers(agents, 0, np.where(agents < 10, 3, 7), 5000, xp))
    assert (u.min() >= 0) & (u.max() < 1)
    # 1e5 draws: standard errors 9e-4, 3e-3, and 4.5e-3 for the second moment; four of them each.
    assert abs(u.mean() - 0.5) < 4 * 9.2e-4
    assert abs(z.mean()) < 4 * 3.2e-3
    assert abs((z**2).mean() - 1) < 4 * 4.5e-3
    assert z.shape == (20, 5001)
    assert set(np.unique(k[:10])) == {0, 1, 2}
    assert set(np.unique(k[10:])) == set(range(7))
    assert np.corrcoef(u[0], u[1])[0, 1] == pytest.approx(0, abs=0.06)


def test_generators_are_repeatable_and_separate():
    streams = AgentStreams(5, "setup")
    assert streams.generator(2).random() == AgentStreams(5, "setup").generator(2).random()
    assert streams.generator(2).random() != streams.generator(3).random()
    assert streams.generator().random() != streams.generator(0).random()


@pytest.mark.parametrize(("seed", "purpose"), [(-1, "x"), (0.5, "x"), (0, "")])
def test_bad_streams_are_named(seed, purpose):
    with pytest.raises(ValueError, match=r"(seed|purpose) must be"):
        AgentStreams(seed, purpose)


def test_bad_draws_are_named():
    with pytest.raises(ValueError, match="step must be"):
        AgentStreams(0, "x").bits([0], -1, 2)
    with pytest.raises(ValueError, match="high must be >= 1"):
        AgentStreams(0, "x").integers([0], 0, 0, 2)
