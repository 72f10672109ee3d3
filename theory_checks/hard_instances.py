r"""Worst-case instances: problems on which no method of a class can be faster than its lower bound.

`ChainInstance` is hard to communicate: coordinates of a chain are tied alternately by two groups of agents
that are never neighbours, so each new coordinate needs a trip through the rotating centre of a star. After N
rounds any span method started at 0 has nonzero coordinates only among the first
:math:`1 + \lfloor N/(m+1) \rfloor` on every agent. `MaxInstance` is hard for the oracle: each subgradient
reveals one coordinate.

The construction principle is that of D. Kovalev, E. Borodich, A. Gasnikov, D. Feoktistov, NeurIPS 2024;
constants and closed forms are derived for this toolkit.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from optikit.arrays import array_namespace, is_numpy, resolve_namespace, to_numpy
from optikit.mixing import Cyclic, laplacian_gossip, rotating_star
from optikit.network import Network
from optikit.objectives import Objective, OracleCalls
from optikit.objectives.base import digest_arrays
from optikit.validation import check_integer, check_real


class _Instance(Objective):
    """Common parts: sizes, constants and the restriction to a rank's agents."""

    def __init__(
        self, n_agents: int, d: int, M: float, r: float, R: float | None, xp: Any, agents: Any
    ) -> None:
        self.n_agents, self.dim = n_agents, check_integer(d, "d", minimum=2)
        self.M = check_real(M, "M", minimum=0.0, open_low=True)
        self.r = check_real(r, "r", minimum=0.0)
        if self.r == 0 and R is None:
            raise ValueError("R, the bound on the minimiser's norm, is needed when r = 0; got R=None.")
        self.R = None if R is None else check_real(R, "R", minimum=0.0, open_low=True)
        self.xp, self.calls = resolve_namespace(xp), OracleCalls()
        self.dtype = self.xp.float64
        self.agents = np.arange(n_agents) if agents is None else np.asarray(agents, dtype=np.int64)

    def value(self, X: Any) -> Any:
        return self.value_and_gradient(X)[0]

    def gradient(self, X: Any) -> Any:
        return self.value_and_gradient(X)[1]

    def _block(self, X: Any) -> Any:
        self.calls.gradients += 1
        return self.xp.broadcast_to(X, (self.n_local, self.dim)) if X.ndim == 1 else X

    def _minimum_of(self, x: float, value: float) -> None:
        self.minimiser, self.minimum = np.full(self.dim, x), value

    def gap(self, x: Any) -> float:
        """``p(x) - p*`` at one point (d,), over all agents whatever this object holds."""
        x = to_numpy(x)
        return self._mean_value(x) + 0.5 * self.r * float(x @ x) - self.minimum

    def _mean_value(self, x: np.ndarray) -> float:
        raise NotImplementedError


class ChainInstance(_Instance):
    r"""Communication-hard chain over rotating stars, n = 3m agents in groups V1, V2, V3.

    With :math:`c = M/\sqrt d`: V1 holds :math:`c|x_1 - b| + c\sum|x_{2j} - x_{2j+1}|`, V3
    :math:`c\sum|x_{2j-1} - x_{2j}|`, V2 nothing. r > 0: :math:`b = c/(3rd)`, :math:`x^* = b 1`,
    :math:`p^* = cb/3 - c^2/(18rd)`; r = 0: :math:`b = R/\sqrt d`, :math:`f^* = 0`. The oracle resists:
    ``sign(0) = 0``.

    Parameters
    ----------
    m : int
        Agents per group, >= 1.
    d : int
        Length of the chain, >= 2.
    M, r : float
        Lipschitz constant > 0, strong convexity >= 0.
    R : float, optional
        Norm of the minimiser; needed when r = 0.
    """

    def __init__(
        self,
        m: int,
        d: int,
        M: float,
        r: float,
        R: float | None = None,
        *,
        xp: Any = "numpy",
        agents: Any = None,
    ) -> None:
        self.m = check_integer(m, "m", minimum=1)
        super().__init__(3 * self.m, d, M, r, R, xp, agents)
        d, r = self.dim, self.r
        self.c = self.M / math.sqrt(d)
        if r > 0:
            self.b = self.c / (3 * r * d)
            self._minimum_of(self.b, self.c * self.b / 3 - self.c**2 / (18 * r * d))
        else:
            assert self.R is not None
            self.b = self.R / math.sqrt(d)
            self._minimum_of(self.b, 0.0)
        group = self.agents // self.m
        self._first = slice(0, int(np.count_nonzero(group == 0)))
        self._third = slice(int(np.count_nonzero(group < 2)), self.agents.size)

    def value_and_gradient(self, X: Any) -> tuple[Any, Any]:
        xp, c, X = self.xp, self.c, self._block(X)
        f, g = xp.zeros((self.n_local,), dtype=X.dtype), xp.zeros((self.n_local, self.dim), dtype=X.dtype)
        rows = self._first
        start = X[rows, 0] - self.b
        f[rows] = c * xp.abs(start) + self._links(X, g, rows, first=1)
        g[rows, 0] = c * xp.sign(start)
        f[self._third] = self._links(X, g, self._third, first=0)
        return f, g

    def _links(self, X: Any, g: Any, rows: slice, first: int) -> Any:
        """``c sum |x_j - x_{j+1}|`` over j = first, first + 2, ...; adds the subgradients to g."""
        xp, stop = self.xp, first + 2 * ((self.dim - first) // 2)
        if stop <= first:
            return 0.0 * X[rows, 0]
        odd, even = slice(first, stop, 2), slice(first + 1, stop, 2)
        difference = X[rows, odd] - X[rows, even]
        signs = self.c * xp.sign(difference)
        g[rows, odd] = signs
        g[rows, even] = -signs
        return self.c * xp.sum(xp.abs(difference), axis=1)

    def prox(self, X: Any, weight: float) -> Any:
        """Rows ``argmin f_i(x) + (weight/2)||x - X_i||^2``: pairs are disjoint, each has a closed form."""
        xp, threshold = self.xp, self.c / weight
        X = self._block(X) + 0.0
        first = X[self._first, 0] - self.b
        shrunk = xp.sign(first) * xp.clip(xp.abs(first) - threshold, min=0.0)
        X[self._first, 0] = self.b + shrunk
        for rows, start in ((self._first, 1), (self._third, 0)):
            stop = start + 2 * ((self.dim - start) // 2)
            if stop <= start:
                continue
            odd, even = slice(start, stop, 2), slice(start + 1, stop, 2)
            middle, half = 0.5 * (X[rows, odd] + X[rows, even]), 0.5 * (X[rows, odd] - X[rows, even])
            half = xp.sign(half) * xp.clip(xp.abs(half) - threshold, min=0.0)
            X[rows, odd], X[rows, even] = middle + half, middle - half
        return X

    @cached_property
    def compiled_oracle(self) -> tuple[Any, ...] | None:
        """The functions as sparse L1 rows, see `LinearModel.compiled_oracle`: fifty times faster steps.

        A row's score vanishes exactly where its two coordinates are equal, so ties keep ``sign(0) = 0``.
        """
        if not is_numpy(self.xp):
            return None
        from optikit._kernels_oracle import ABSOLUTE

        entries, columns, indptr, targets, offsets = [], [], [0], [], [0]
        for agent in self.agents:
            group = agent // self.m
            links = range(1 if group == 0 else 0, self.dim - 1, 2) if group != 1 else range(0)
            rows: list[tuple[tuple[int, float], ...]] = [((0, 1.0),)] if group == 0 else []
            rows += [((j, 1.0), (j + 1, -1.0)) for j in links]
            rows = rows or [()]  # the middle group's zero function
            weight = self.c * len(rows)  # the oracle takes the mean over an agent's rows
            for row in rows:
                columns += [j for j, _ in row]
                entries += [weight * sign for _, sign in row]
                indptr.append(len(columns))
                targets.append(weight * self.b if len(row) == 1 else 0.0)
            offsets.append(len(targets))
        arrays = (
            np.zeros((0, 0)),
            np.array(entries),
            np.array(columns, np.int32),
            np.array(indptr, np.int32),
        )
        return (True, *arrays, np.array(targets), ABSOLUTE, 0.0, 0.0, np.array(offsets))

    def _mean_value(self, x: np.ndarray) -> float:
        return self.c / 3 * (abs(x[0] - self.b) + float(np.sum(np.abs(np.diff(x)))))

    @property
    def half_bound(self) -> float:
        """Half the gap that no span method can beat before `rounds_needed`: the target of sweeps.

        The bound itself is attained at x = 0, so a run would meet it at once.
        """
        if self.r > 0:
            return self.M**2 / (36 * self.r * self.dim**2)
        assert self.R is not None
        return self.M * self.R / (6 * self.dim)

    @property
    def rounds_needed(self) -> int:
        """``(d-1)(m+1)``: with fewer rounds the gap is at least twice `half_bound`."""
        return (self.dim - 1) * (self.m + 1)

    def reachable(self, rounds: int) -> int:
        """Coordinates that any span method can have made nonzero after so many rounds."""
        return min(self.dim, 1 + rounds // (self.m + 1))

    def topology(self, scale: str = "optimal") -> Cyclic:
        """The rotating star with centres m..2m-1: Laplacian gossip; chi = (n+1)^2/(4n) ("optimal")."""
        centres = range(self.m, 2 * self.m)
        return rotating_star(self.n_agents, centres, lambda graph: laplacian_gossip(graph, scale))

    def subset(self, agents: Any) -> ChainInstance:
        return ChainInstance(self.m, self.dim, self.M, self.r, self.R, xp=self.xp, agents=agents)

    def digests(self) -> list[int]:
        label = f"chain {self.m} {self.dim} {self.M!r} {self.r!r} {self.R!r}"
        return [digest_arrays(f"{label} {agent}") for agent in self.agents]


class MaxInstance(_Instance):
    r"""Oracle-hard maximum: every agent holds :math:`M \max_j x_j`, the oracle returns the first maximiser.

    r > 0: :math:`x^* = -(M/(rd)) 1`, :math:`p^* = -M^2/(2rd)`. r = 0:
    :math:`M \max(\max_j x_j, \|x\| - R(1 + 1/\sqrt d))`, :math:`x^* = -(R/\sqrt d) 1`,
    :math:`f^* = -MR/\sqrt d`.

    Parameters
    ----------
    n_agents, d : int
    M, r, R
        As for `ChainInstance`.
    """

    def __init__(
        self,
        n_agents: int,
        d: int,
        M: float,
        r: float,
        R: float | None = None,
        *,
        xp: Any = "numpy",
        agents: Any = None,
    ) -> None:
        super().__init__(check_integer(n_agents, "n_agents", minimum=1), d, M, r, R, xp, agents)
        d, r = self.dim, self.r
        if r > 0:
            self._minimum_of(-self.M / (r * d), -(self.M**2) / (2 * r * d))
        else:
            assert self.R is not None
            self._minimum_of(-self.R / math.sqrt(d), -self.M * self.R / math.sqrt(d))

    def value_and_gradient(self, X: Any) -> tuple[Any, Any]:
        xp, X = self.xp, self._block(X)
        columns = xp.arange(self.dim)
        largest = xp.max(X, axis=1)
        first = xp.argmax(X, axis=1)
        g = self.M * xp.astype(columns[None, :] == first[:, None], X.dtype)
        f = self.M * largest
        if self.r == 0:
            assert self.R is not None
            norm = xp.sqrt(xp.sum(X * X, axis=1))
            outside = norm - self.R * (1 + 1 / math.sqrt(self.dim))
            beyond = outside > largest
            safe = xp.where(norm > 0, norm, 1.0 + 0.0 * norm)
            g = xp.where(beyond[:, None], self.M * X / safe[:, None], g)
            f = xp.where(beyond, self.M * outside, f)
        return f, g

    def _mean_value(self, x: np.ndarray) -> float:
        value = self.M * float(x.max())
        if self.r == 0:
            assert self.R is not None
            outside = float(np.linalg.norm(x)) - self.R * (1 + 1 / math.sqrt(self.dim))
            value = max(value, self.M * outside)
        return value

    @property
    def half_bound(self) -> float:
        """Half the gap that no method can beat with fewer than d subgradients."""
        if self.r > 0:
            return self.M**2 / (4 * self.r * self.dim)
        assert self.R is not None
        return self.M * self.R / (2 * math.sqrt(self.dim))

    def subset(self, agents: Any) -> MaxInstance:
        return MaxInstance(self.n_agents, self.dim, self.M, self.r, self.R, xp=self.xp, agents=agents)

    def digests(self) -> list[int]:
        label = f"max {self.dim} {self.M!r} {self.r!r} {self.R!r}"
        return [digest_arrays(f"{label} {agent}") for agent in self.agents]


def support(*arrays: Any) -> int:
    """Index after the last nonzero coordinate over all rows of the arrays (0 when all are zero)."""
    last = 0
    for array in arrays:
        xp = array_namespace(array)
        if array.ndim < 2 or not array.size:
            continue
        columns = np.flatnonzero(to_numpy(xp.any(array != 0, axis=0)))
        last = max(last, int(columns[-1]) + 1 if columns.size else 0)
    return last


def first_round_within(
    solver: Any, instance: _Instance, topology: Any, target: float, max_rounds: int
) -> int | None:
    """First round whose output's mean over agents has a gap of at most `target`; None if there is none."""
    found: list[int] = []
    network = Network(topology)

    def check(progress: Any) -> bool:
        if progress.round and instance.gap(network.mean(solver.iterate(progress.state))) <= target:
            found.append(progress.round)
        return bool(found)

    solver.solve(instance, network, max_rounds=max_rounds, callback=check, history_size=64)
    return found[0] if found else None


__all__ = ["ChainInstance", "MaxInstance", "first_round_within", "support"]
