"""Checks at the door in every namespace, and their messages word for word."""

import numpy as np
import pytest

from optikit.validation import check_choice, check_finite, check_integer, check_probability_vector, check_real


def test_first_bad_row_is_named_in_every_namespace(xp):
    x = np.ones((4, 2))
    x[2, 1], x[3, 0] = np.inf, np.nan
    with pytest.raises(ValueError, match="A must be finite, got NaN or infinity in row 2"):
        check_finite(xp.asarray(x), "A")
    with pytest.raises(ValueError, match="v must be finite, got NaN or infinity in entry 3"):
        check_finite(xp.asarray(x[:, 0]), "v", "entry")
    assert check_finite(xp.asarray(x[:2]), "A") is None
    assert check_finite(xp.asarray(np.zeros((0, 2))), "A") is None


def test_weights_come_back_as_double_from_every_namespace(xp):
    weights = check_probability_vector(xp.asarray(np.array([0.25, 0.75], dtype=np.float32)), "p", 2)
    assert isinstance(weights, np.ndarray)
    assert weights.dtype == np.float64
    with pytest.raises(ValueError, match=r"p must have shape \(3\), got \(2,\)"):
        check_probability_vector(xp.asarray([0.5, 0.5]), "p", 3)


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (2, {"minimum": 3}, "k must be an integer >= 3, got 2."),
        (9, {"minimum": 3, "maximum": 8}, "k must be an integer >= 3 and <= 8, got 9."),
        (float("inf"), {}, "k must be an integer, got inf."),
    ],
)
def test_integers_out_of_range_say_what_is_needed(value, limits, message):
    with pytest.raises(ValueError) as error:
        check_integer(value, "k", **limits)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (0.0, {"minimum": 0, "open_low": True}, "a must be a finite number > 0, got 0.0."),
        (
            1,
            {"minimum": 0, "maximum": 1, "open_high": True},
            "a must be a finite number >= 0 and < 1, got 1.",
        ),
        (float("nan"), {"allow_inf": True}, "a must be a number, got nan."),
    ],
)
def test_numbers_out_of_range_say_what_is_needed(value, limits, message):
    with pytest.raises(ValueError) as error:
        check_real(value, "a", **limits)
    assert str(error.value) == message


@pytest.mark.parametrize("value", [True, "1", None, [1.0], 1j, np.ones(1)])
def test_what_is_no_number_is_a_type_error(value):
    with pytest.raises(TypeError, match="a must be a finite number"):
        check_real(value, "a")
    with pytest.raises(TypeError, match="k must be an integer"):
        check_integer(value, "k")


@pytest.mark.parametrize("value", [["a"], np.array(["a", "b"]), 1.0, object()])
def test_unhashable_and_foreign_choices_are_refused(value):
    with pytest.raises(ValueError, match="mode must be one of 'a', 'b'"):
        check_choice(value, "mode", ("a", "b"))
    assert check_choice(None, "mode", ("a", None)) is None
