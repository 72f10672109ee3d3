"""Checks at the door: each says which argument is wrong, what it was and what is needed."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from optikit.arrays import array_namespace, as_float_array, to_numpy


def check_integer(value: Any, name: str, *, minimum: int | None = None, maximum: int | None = None) -> int:
    """`value` as an int within the closed range; booleans and non-integral numbers are refused.

    Raises
    ------
    TypeError
        When `value` is not an integer (``3.0`` and NumPy integers are accepted).
    ValueError
        When it is out of range.
    """
    needed = "an integer" + _range(minimum, maximum)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {needed}, got {value!r}.")
    if not math.isfinite(value) or value != math.floor(value):
        raise ValueError(f"{name} must be {needed}, got {value!r}.")
    number: int = math.floor(float(value)) if not isinstance(value, numbers.Integral) else int(value)
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        raise ValueError(f"{name} must be {needed}, got {value!r}.")
    return number


def check_real(
    value: Any,
    name: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    open_low: bool = False,
    open_high: bool = False,
    allow_inf: bool = False,
) -> float:
    """`value` as a float within the range; NaN is always refused, infinities unless `allow_inf`."""
    needed = ("a number" if allow_inf else "a finite number") + _range(minimum, maximum, open_low, open_high)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {needed}, got {value!r}.")
    number = float(value)
    sound = not math.isnan(number) and (allow_inf or math.isfinite(number))
    if minimum is not None:
        sound = sound and (number > minimum if open_low else number >= minimum)
    if maximum is not None:
        sound = sound and (number < maximum if open_high else number <= maximum)
    if not sound:
        raise ValueError(f"{name} must be {needed}, got {value!r}.")
    return number


def check_choice(value: Any, name: str, choices: Iterable[Any]) -> Any:
    """`value` if it is one of `choices`."""
    allowed = list(choices)
    if not isinstance(value, str | int | type(None)) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
    return value


def check_probability_vector(w: Any, name: str, size: int, atol: float = 1e-9) -> np.ndarray:
    """`w` as a float64 array of `size` non-negative weights whose sum is 1 within `atol`."""
    weights = to_numpy(as_float_array(w, name=name, shape=(size,))).astype(np.float64)
    if np.any(weights < 0):
        where = int(np.argmin(weights))
        raise ValueError(f"{name} must be non-negative, got {weights[where]!r} at index {where}.")
    total = float(np.sum(weights))
    if abs(total - 1.0) > atol:
        raise ValueError(f"{name} must sum to 1, got a sum of {total!r}.")
    return weights


def check_finite(array: Any, name: str, where: str = "row") -> None:
    """Raise a ValueError naming the first row (or entry) of `array` that is NaN or infinite."""
    xp = array_namespace(array)
    bad = ~xp.isfinite(array)
    if not bool(xp.any(bad)):
        return
    axes = tuple(range(1, array.ndim))
    first = int(xp.argmax(xp.astype(xp.any(bad, axis=axes) if axes else bad, xp.int8)))
    raise ValueError(f"{name} must be finite, got NaN or infinity in {where} {first}.")


def _range(
    minimum: float | None, maximum: float | None, open_low: bool = False, open_high: bool = False
) -> str:
    parts = []
    if minimum is not None:
        parts.append(f"{'>' if open_low else '>='} {minimum:g}")
    if maximum is not None:
        parts.append(f"{'<' if open_high else '<='} {maximum:g}")
    return " " + " and ".join(parts) if parts else ""
