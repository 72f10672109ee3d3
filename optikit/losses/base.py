r"""Scalar losses :math:`\phi(z, y)` of a score z and a target y, in any array namespace.

Each knows its value, first and second derivative in z, convex conjugate
:math:`\phi^*(u, y) = \sup_z u z - \phi(z, y)`, proximal map
:math:`\arg\min_t \phi(t, y) + (t - z)^2 / (2 s)`, and its constants: `smoothness`
:math:`\sup |\phi''|`, `lipschitz` :math:`\sup |\phi'|` (inf where there is none). All functions broadcast z
and y, keep their dtype, and overflow for no score unless their own value does.

At a kink the derivative is the subgradient nearest to zero, ``sign(0) = 0``: worst-case instances rely on it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from optikit._proximal_newton import newton_prox
from optikit.arrays import array_namespace, is_numpy, to_numpy


class Loss(ABC):
    """A convex scalar loss; subclasses are frozen dataclasses of their parameters.

    Attributes
    ----------
    name : str
    smoothness, lipschitz : float
        Bounds on the second and first derivative, inf where there is none.
    targets : {"binary", "real", "count", "positive"}
        What the targets are: -1 / +1, any real numbers, non-negative integers, positive numbers.
    """

    name: ClassVar[str]
    targets: ClassVar[str] = "real"
    smoothness: ClassVar[Any] = math.inf
    lipschitz: ClassVar[Any] = math.inf

    @abstractmethod
    def value(self, z: Any, y: Any) -> Any:
        """The loss."""

    @abstractmethod
    def derivative(self, z: Any, y: Any) -> Any:
        """First derivative (a subgradient) in z."""

    @abstractmethod
    def second_derivative(self, z: Any, y: Any) -> Any:
        """Second derivative in z, 0 at kinks."""

    @abstractmethod
    def conjugate(self, u: Any, y: Any) -> Any:
        """Convex conjugate in z, +inf outside its domain."""

    def slope_range(self, y: Any) -> tuple[Any, Any]:
        """Least and greatest slope for each target: the closed interval where the conjugate is finite."""
        edge = math.inf + array_namespace(y).zeros_like(y)
        return -edge, edge

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        """Proximal map of ``step * loss``: by default a safeguarded Newton iteration on the derivative."""
        return newton_prox(self, z, step, y)

    def check_targets(self, y: Any, place: Callable[[int], str] = "row {}".format) -> Any:
        """Targets as the loss wants them: labels 0/1 become -1/+1; anything else out of range is refused.

        Parameters
        ----------
        y : array, shape (N,)
        place : callable, optional
            What errors call a row, by its number.

        Raises
        ------
        ValueError
            Naming the first target that does not fit.
        """
        if self.targets == "real":
            return y
        xp = array_namespace(y)
        if self.targets == "count":
            wrong = (y < 0) | (y != xp.floor(y))
            self._refuse(wrong, y, "counts 0, 1, 2, ...", place)
            return y
        if self.targets == "positive":
            self._refuse(~(y > 0), y, "positive numbers", place)
            return y
        zero_one = bool(xp.all((y == 0) | (y == 1)))
        self._refuse((y != 1) & (y != (0 if zero_one else -1)), y, "labels -1 / +1 or 0 / 1", place)
        return 2 * y - 1 if zero_one and not bool(xp.all(y == 1)) else y

    def _refuse(self, wrong: Any, y: Any, needed: str, place: Callable[[int], str]) -> None:
        wrong = to_numpy(wrong)
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(
                f"targets of the {self.name} loss must be {needed}, "
                f"got {float(to_numpy(y)[first])!r} in {place(first)}."
            )

    def describe(self) -> str:
        """Name and parameters, for digests and reports."""
        values = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self))  # type: ignore[arg-type]
        return f"{self.name}({values})"


def sigmoid(z: Any, xp: Any) -> Any:
    """1 / (1 + exp(-z)) without overflow: only exp of non-positive numbers is taken."""
    if is_numpy(xp):  # one pass over the data instead of eight, and as accurate
        from scipy.special import expit

        return expit(z)
    e = xp.exp(-xp.abs(z))
    return xp.where(z >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def exp_or_inf(z: Any) -> Any:
    """exp(z), infinite where it exceeds the dtype's range, without a warning."""
    xp = array_namespace(z)
    dtype = getattr(z, "dtype", np.dtype(np.float64))
    fits = z < math.log(float(xp.finfo(dtype).max))
    return xp.where(fits, xp.exp(xp.where(fits, z, xp.zeros_like(z))), math.inf + xp.zeros_like(z))


def xlogx(u: Any, xp: Any) -> Any:
    positive = u > 0
    return xp.where(positive, u * xp.log(xp.where(positive, u, 1.0 + 0.0 * u)), 0.0 * u)


def infinite_outside(inside: Any, value: Any, xp: Any) -> Any:
    return xp.where(inside, value, math.inf + xp.zeros_like(value))
