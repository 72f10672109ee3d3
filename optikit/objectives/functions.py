"""A user's own functions as an objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optikit.arrays import array_namespace, as_float_array, resolve_namespace, to_numpy
from optikit.objectives.base import Objective, OracleCalls, digest_arrays, places_of
from optikit.validation import check_integer


class FunctionObjective(Objective):
    """Values and gradients from callables that take a whole block of agents.

    Parameters
    ----------
    value : callable (X (n_local, d), agents (n_local,)) -> (n_local,)
    gradient : callable (X (n_local, d), agents (n_local,)) -> (n_local, d)
    n_agents, dim : int
    hessian : callable (X, agents) -> (n_local, d, d), optional
    prox : callable (X, weight, agents) -> (n_local, d), optional
        Rows ``argmin f_m(x) + (weight/2)||x - X_m||^2``.
    smoothness, strong_convexity, lipschitz : float or array (n_agents,), optional
    name : str, default "functions"
        Part of a checkpoint's identity: functions themselves cannot be digested.
    xp : namespace or str, default "numpy"

    Raises
    ------
    TypeError
        For a value or gradient that is not callable, or constants that are not real numbers.
    ValueError
        For constants of a wrong shape or sign. Later, when a function returns another shape than it should.
    FloatingPointError
        When a function returns NaN or infinity; the agent is named, and the driver ends the run as diverged.
    """

    def __init__(
        self,
        value: Callable[[Any, np.ndarray], Any],
        gradient: Callable[[Any, np.ndarray], Any],
        n_agents: int,
        dim: int,
        *,
        hessian: Callable[[Any, np.ndarray], Any] | None = None,
        prox: Callable[[Any, float, np.ndarray], Any] | None = None,
        smoothness: Any = None,
        strong_convexity: Any = None,
        lipschitz: Any = None,
        name: str = "functions",
        xp: Any = "numpy",
        agents: Any = None,
    ) -> None:
        for label, function in (("value", value), ("gradient", gradient)):
            if not callable(function):
                raise TypeError(f"{label} must be a function of (X, agents), got {function!r}.")
        self.n_agents = check_integer(n_agents, "n_agents", minimum=1)
        self.dim = check_integer(dim, "dim", minimum=1)
        self.agents = np.arange(self.n_agents) if agents is None else np.asarray(agents, dtype=np.int64)
        self.xp, self.calls, self.name = resolve_namespace(xp), OracleCalls(), name
        self.dtype = self.xp.float64
        self._value, self._gradient, self._hessian, self._prox = value, gradient, hessian, prox
        if prox is not None:
            self.prox = self._checked_prox
        self._constants = {
            "smoothness": smoothness,
            "strong_convexity": strong_convexity,
            "lipschitz": lipschitz,
        }
        for label, constant in self._constants.items():
            if constant is not None:
                self._check_constant(label, constant)

    def _check_constant(self, name: str, constant: Any) -> None:
        numbers = as_float_array(constant, name=name, xp=np, finite=False)
        lowest = -np.inf if name == "strong_convexity" else 0.0  # weak convexity is a negative one
        if numbers.shape not in ((), (self.n_agents,)) or not bool(np.all(numbers >= lowest)):
            needed = "numbers" if name == "strong_convexity" else "numbers >= 0"
            raise ValueError(f"{name} must be one or {self.n_agents} {needed}, got {constant!r}.")

    @classmethod
    def from_agents(
        cls,
        values: Sequence[Callable[[Any], float]],
        gradients: Sequence[Callable[[Any], Any]],
        dim: int,
        **options: Any,
    ) -> FunctionObjective:
        """From one function and one gradient per agent: convenient and slow, one Python call per agent."""
        if len(values) != len(gradients):
            raise ValueError(f"values and gradients must be as many, got {len(values)} and {len(gradients)}.")

        def value(X: Any, agents: np.ndarray) -> Any:
            return np.array([values[a](x) for a, x in zip(agents, X)], dtype=np.float64)

        def gradient(X: Any, agents: np.ndarray) -> Any:
            rows = [np.asarray(gradients[a](x), dtype=np.float64) for a, x in zip(agents, X)]
            return np.stack(rows) if rows else np.zeros((0, dim))

        return cls(value, gradient, len(values), dim, **options)

    def _block(self, X: Any) -> Any:
        X = self._point(X)
        if X.ndim == 1:
            X = self.xp.broadcast_to(X, (self.n_local, self.dim))
        return X

    def _checked(self, result: Any, shape: tuple[int, ...], what: str) -> Any:
        if not hasattr(result, "shape"):
            result = self.xp.asarray(result, dtype=self.dtype)
        if tuple(result.shape) != shape:
            raise ValueError(f"{what} must return shape {shape}, got {tuple(result.shape)}.")
        xp = array_namespace(result)
        if result.size and not bool(xp.all(xp.isfinite(result))):
            bad = ~np.isfinite(to_numpy(result)).reshape(shape[0], -1)
            agent = int(self.agents[np.argmax(bad.any(axis=1))])
            raise FloatingPointError(f"{what} of agent {agent} is not finite.")
        return result

    def value(self, X: Any) -> Any:
        self.calls.values += 1
        return self._checked(self._value(self._block(X), self.agents), (self.n_local,), "value")

    def gradient(self, X: Any) -> Any:
        self.calls.gradients += 1
        shape = (self.n_local, self.dim)
        return self._checked(self._gradient(self._block(X), self.agents), shape, "gradient")

    def hessian(self, X: Any) -> Any:
        if self._hessian is None:
            return super().hessian(X)
        self.calls.hessians += 1
        shape = (self.n_local, self.dim, self.dim)
        return self._checked(self._hessian(self._block(X), self.agents), shape, "hessian")

    def _checked_prox(self, X: Any, weight: float) -> Any:
        assert self._prox is not None
        result = self._prox(self._block(X), weight, self.agents)
        return self._checked(result, (self.n_local, self.dim), "prox")

    def __getattr__(self, name: str) -> Any:
        constants = self.__dict__.get("_constants", {})
        if name not in constants:
            raise AttributeError(name)
        if constants[name] is None:
            raise AttributeError(f"{name} of this FunctionObjective is unknown; pass {name}=... to it.")
        whole = np.broadcast_to(np.asarray(constants[name], dtype=np.float64), (self.n_agents,))
        return self.xp.asarray(np.ascontiguousarray(whole[self.agents]))

    def subset(self, agents: Any) -> FunctionObjective:
        agents = self.agents[places_of(agents, self.agents)]
        return FunctionObjective(
            self._value,
            self._gradient,
            self.n_agents,
            self.dim,
            hessian=self._hessian,
            prox=self._prox,
            name=self.name,
            xp=self.xp,
            agents=agents,
            **self._constants,
        )

    def digests(self) -> list[int]:
        return [digest_arrays(f"{self.name} {agent} {self.dim}") for agent in self.agents]
