r"""Scalar losses :math:`\phi(z, y)` of a score z and a target y, in any array namespace.

Each knows its value, first and second derivative in z, convex conjugate
:math:`\phi^*(u, y) = \sup_z u z - \phi(z, y)`, proximal map
:math:`\arg\min_t \phi(t, y) + (t - z)^2 / (2 s)`, and its constants: `smoothness`
:math:`\sup |\phi''|`, `lipschitz` :math:`\sup |\phi'|` (inf where there is none). All functions broadcast z
and y, keep their dtype and stay free of overflow for scores of any size.

At a kink the derivative is the subgradient nearest to zero, ``sign(0) = 0``: worst-case instances rely on it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from optikit.arrays import array_namespace, from_numpy, to_numpy
from optikit.validation import check_real


class Loss(ABC):
    """A convex scalar loss; subclasses are frozen dataclasses of their parameters.

    Attributes
    ----------
    name : str
    smoothness, lipschitz : float
        Bounds on the second and first derivative, inf where there is none.
    targets : {"binary", "real", "count"}
        What the targets are: -1 / +1, any real numbers, non-negative integers.
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

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        """Proximal map of ``step * loss``: by default a safeguarded Newton iteration on the derivative."""
        return _newton_prox(self, z, step, y)

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


def _newton_prox(loss: Loss, z: Any, step: Any, y: Any, iterations: int = 100) -> Any:
    """Root of ``t - z + step phi'(t)``, phi' monotone: Newton steps kept inside a bisection bracket."""
    xp = array_namespace(z)
    z = z + 0.0 * (y * step)
    reach = xp.abs(step * loss.derivative(z, y))
    low, high = z - reach, z + reach  # phi' is monotone: the root lies within one gradient step
    t, width = z + 0.0, high - low
    for _ in range(iterations):
        residual = t - z + step * loss.derivative(t, y)
        low = xp.where(residual < 0, t, low)
        high = xp.where(residual > 0, t, high)
        newton = t - residual / (1.0 + step * loss.second_derivative(t, y))
        # Newton may swing between the two flat ends of a sigmoid: bisect unless the bracket halves by itself.
        good = (newton >= low) & (newton <= high) & (high - low <= 0.5 * width)
        width = high - low
        t = xp.where(good | (residual == 0), newton, 0.5 * (low + high))
    return t


def _sigmoid(z: Any, xp: Any) -> Any:
    """1 / (1 + exp(-z)) without overflow: only exp of non-positive numbers is taken."""
    e = xp.exp(-xp.abs(z))
    return xp.where(z >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def _exp(z: Any) -> Any:
    """exp(z), infinite where it exceeds the dtype's range, without a warning."""
    xp = array_namespace(z)
    dtype = getattr(z, "dtype", np.dtype(np.float64))
    fits = z < math.log(float(xp.finfo(dtype).max))
    return xp.where(fits, xp.exp(xp.where(fits, z, xp.zeros_like(z))), math.inf + xp.zeros_like(z))


def _xlogx(u: Any, xp: Any) -> Any:
    positive = u > 0
    return xp.where(positive, u * xp.log(xp.where(positive, u, 1.0 + 0.0 * u)), 0.0 * u)


def _infinite_outside(inside: Any, value: Any, xp: Any) -> Any:
    return xp.where(inside, value, math.inf + xp.zeros_like(value))


@dataclass(frozen=True)
class Logistic(Loss):
    """``log(1 + exp(-y z))`` with labels y in {-1, +1}."""

    name: ClassVar[str] = "logistic"
    targets: ClassVar[str] = "binary"
    smoothness: ClassVar[float] = 0.25
    lipschitz: ClassVar[float] = 1.0

    def value(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        t = y * z
        return xp.where(t < 0, -t, xp.zeros_like(t)) + xp.log1p(xp.exp(-xp.abs(t)))

    def derivative(self, z: Any, y: Any) -> Any:
        return -y * _sigmoid(-y * z, array_namespace(z))

    def second_derivative(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = xp.exp(-xp.abs(y * z))
        return e / (1.0 + e) ** 2

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        a = -y * u  # in [0, 1] on the domain
        inside = (a >= 0) & (a <= 1)
        a = xp.where(inside, a, 0.5 + 0.0 * a)
        return _infinite_outside(inside, _xlogx(a, xp) + _xlogx(1.0 - a, xp), xp)


@dataclass(frozen=True)
class LeastSquares(Loss):
    """``(z - y)^2 / 2``."""

    name: ClassVar[str] = "least_squares"
    smoothness: ClassVar[float] = 1.0

    def value(self, z: Any, y: Any) -> Any:
        return 0.5 * (z - y) ** 2

    def derivative(self, z: Any, y: Any) -> Any:
        return z - y

    def second_derivative(self, z: Any, y: Any) -> Any:
        return 1.0 + 0.0 * (z - y)

    def conjugate(self, u: Any, y: Any) -> Any:
        return 0.5 * u**2 + u * y

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        return (z + step * y) / (1.0 + step)


@dataclass(frozen=True)
class Quantile(Loss):
    """Pinball loss of level tau: ``max(tau (y - z), (tau - 1) (y - z))``.

    Parameters
    ----------
    level : float, default 0.5
        tau in (0, 1).
    """

    name: ClassVar[str] = "quantile"

    level: float = 0.5

    def __post_init__(self) -> None:
        level = check_real(self.level, "level", minimum=0.0, maximum=1.0, open_low=True, open_high=True)
        object.__setattr__(self, "level", level)  # a NumPy scalar would promote single precision

    @property
    def lipschitz(self) -> float:
        """``max(tau, 1 - tau)``."""
        return max(self.level, 1.0 - self.level)

    def value(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = y - z
        return xp.where(e >= 0, self.level * e, (self.level - 1.0) * e)

    def derivative(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = y - z
        slope = xp.where(e > 0, -self.level + 0.0 * e, 1.0 - self.level + 0.0 * e)
        return xp.where(e == 0, 0.0 * e, slope)

    def second_derivative(self, z: Any, y: Any) -> Any:
        return 0.0 * (z - y)

    def conjugate(self, u: Any, y: Any) -> Any:
        inside = (u >= -self.level) & (u <= 1.0 - self.level)
        return _infinite_outside(inside, u * y, array_namespace(u))

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        above, below = (1.0 - self.level) * step, self.level * step
        return y + xp.where(e > above, e - above, xp.where(e < -below, e + below, 0.0 * e))


@dataclass(frozen=True)
class Absolute(Loss):
    """``|z - y|``."""

    name: ClassVar[str] = "absolute"
    lipschitz: ClassVar[float] = 1.0

    def value(self, z: Any, y: Any) -> Any:
        return array_namespace(z).abs(z - y)

    def derivative(self, z: Any, y: Any) -> Any:
        return array_namespace(z).sign(z - y)

    def second_derivative(self, z: Any, y: Any) -> Any:
        return 0.0 * (z - y)

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        return _infinite_outside(xp.abs(u) <= 1, u * y, xp)

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        rest = xp.abs(e) - step
        return y + xp.where(rest > 0, xp.sign(e) * rest, 0.0 * e)


@dataclass(frozen=True)
class Hinge(Loss):
    """``max(0, 1 - y z)`` with labels y in {-1, +1}."""

    name: ClassVar[str] = "hinge"
    targets: ClassVar[str] = "binary"
    lipschitz: ClassVar[float] = 1.0

    def value(self, z: Any, y: Any) -> Any:
        slack = 1.0 - y * z
        xp = array_namespace(z)
        return xp.where(slack > 0, slack, xp.zeros_like(slack))

    def derivative(self, z: Any, y: Any) -> Any:
        active = y * z < 1.0
        return array_namespace(z).where(active, -y + 0.0 * z, 0.0 * z)

    def second_derivative(self, z: Any, y: Any) -> Any:
        return 0.0 * (z * y)

    def conjugate(self, u: Any, y: Any) -> Any:
        a = y * u
        return _infinite_outside((a >= -1) & (a <= 0), a, array_namespace(u))

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        xp = array_namespace(z)
        t = y * z
        return y * xp.where(t < 1.0 - step, t + step, xp.where(t < 1.0, 1.0 + 0.0 * t, t))


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """``max(0, 1 - y z)^2 / 2`` with labels y in {-1, +1}."""

    name: ClassVar[str] = "squared_hinge"
    targets: ClassVar[str] = "binary"
    smoothness: ClassVar[float] = 1.0

    def _slack(self, z: Any, y: Any) -> Any:
        slack = 1.0 - y * z
        xp = array_namespace(z)
        return xp.where(slack > 0, slack, xp.zeros_like(slack))

    def value(self, z: Any, y: Any) -> Any:
        return 0.5 * self._slack(z, y) ** 2

    def derivative(self, z: Any, y: Any) -> Any:
        return -y * self._slack(z, y)

    def second_derivative(self, z: Any, y: Any) -> Any:
        one = 1.0 + 0.0 * (z * y)
        return array_namespace(z).where(y * z < 1.0, one, 0.0 * one)

    def conjugate(self, u: Any, y: Any) -> Any:
        a = y * u
        return _infinite_outside(a <= 0, 0.5 * a**2 + a, array_namespace(u))

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        t = y * z
        return y * array_namespace(z).where(t < 1.0, (t + step) / (1.0 + step), t)


@dataclass(frozen=True)
class Huber(Loss):
    """Quadratic within `delta` of the target, linear beyond: ``delta (|e| - delta/2)``.

    Parameters
    ----------
    delta : float, default 1.0
        Half-width of the quadratic part, > 0.
    """

    name: ClassVar[str] = "huber"
    smoothness: ClassVar[float] = 1.0

    delta: float = 1.0

    def __post_init__(self) -> None:
        delta = check_real(self.delta, "delta", minimum=0.0, open_low=True)
        object.__setattr__(self, "delta", delta)  # a NumPy scalar would promote single precision

    @property
    def lipschitz(self) -> float:
        """``delta``."""
        return self.delta

    def value(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = xp.abs(z - y)
        near = xp.where(e <= self.delta, e, 0.0 * e)  # keeps the square of a huge error from overflowing
        return xp.where(e <= self.delta, 0.5 * near**2, self.delta * (e - 0.5 * self.delta))

    def derivative(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        return xp.where(xp.abs(e) <= self.delta, e, self.delta * xp.sign(e))

    def second_derivative(self, z: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        return xp.where(xp.abs(e) <= self.delta, 1.0 + 0.0 * e, 0.0 * e)

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        return _infinite_outside(xp.abs(u) <= self.delta, 0.5 * u**2 + u * y, xp)

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        xp = array_namespace(z)
        e = z - y
        far = xp.abs(e) > self.delta * (1.0 + step)
        return y + xp.where(far, e - step * self.delta * xp.sign(e), e / (1.0 + step))


@dataclass(frozen=True)
class Poisson(Loss):
    """Negative log-likelihood of counts with log link, ``exp(z) - y z`` (the factorial term left out)."""

    name: ClassVar[str] = "poisson"
    targets: ClassVar[str] = "count"

    def value(self, z: Any, y: Any) -> Any:
        return _exp(z) - y * z

    def derivative(self, z: Any, y: Any) -> Any:
        return _exp(z) - y

    def second_derivative(self, z: Any, y: Any) -> Any:
        return _exp(z) + 0.0 * y

    def conjugate(self, u: Any, y: Any) -> Any:
        xp = array_namespace(u)
        mean = u + y
        inside = mean >= 0
        kept = xp.where(inside, mean, 1.0 + 0.0 * mean)
        return _infinite_outside(inside, _xlogx(kept, xp) - kept, xp)

    def prox(self, z: Any, step: Any, y: Any) -> Any:
        # t = c - W with c = z + step y and W = step e^t, that is W + log W = c + log(step): Wright's omega.
        from scipy.special import wrightomega

        c = to_numpy(z + step * y)
        log_step = np.log(to_numpy(step))
        omega = wrightomega(c.astype(np.float64) + log_step)
        # c - W cancels where W is large, log W where it is small.
        large = omega > 1.0
        t = np.where(large, np.log(np.where(large, omega, 1.0)) - log_step, c - omega)
        return from_numpy(np.asarray(t, dtype=c.dtype), array_namespace(z))


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (Logistic, LeastSquares, Absolute, Hinge, SquaredHinge, Huber, Quantile, Poisson)
}


def get_loss(name: str | Loss, **parameters: Any) -> Loss:
    """The loss called `name`, or `name` itself when it is a `Loss`.

    Raises
    ------
    ValueError
        For an unknown name (the known ones are listed).
    TypeError
        For parameters that the loss does not have.
    """
    if isinstance(name, Loss):
        if parameters:
            raise TypeError(f"parameters {', '.join(parameters)} go with a loss's name, got {name!r}.")
        return name
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(map(repr, LOSSES))}; got {name!r}.")
    return LOSSES[name](**parameters)
