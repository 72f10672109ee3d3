r"""Subgradient methods: decentralised (DSM), push form for directed networks, and the centralised reference.

All minimise :math:`p(x) = \frac1n \sum_i f_i(x) + \frac r2 \|x\|^2`. Step sizes

.. math:: a_k = s / (r (k + 2)) \quad (r > 0), \qquad a_k = s / \sqrt{k + 1} \quad (r = 0).

- DSM (A. Nedic, A. Ozdaglar, IEEE TAC 2009): :math:`X \leftarrow W X - a_k (g(X) + r X)`.
- Subgradient-push (A. Nedic, A. Olshevsky, IEEE TAC 2015), column-stochastic C:
  :math:`w = C x,\; y = C y,\; z = w / y,\; x = w - a_k (g(z) + r z)`.
- Centralised: :math:`x \leftarrow x - a_k (\frac1n \sum_i g_i(x) + r x)`.

Guarantee: :math:`O(\chi M^2 \ln K / (r K))` (r > 0), :math:`O(1/\sqrt K)` (r = 0); rounds grow like
:math:`1/\epsilon` and :math:`1/\epsilon^2`, where the optimal method needs :math:`1/\sqrt\epsilon` and
:math:`1/\epsilon`. On benign random graphs and easy data they are as good or better, and simpler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.arrays import array_namespace
from optikit.solver import IterativeSolver, per_agent, replicated
from optikit.validation import check_choice, check_real
from solvers.decentralized.composite import composite_metrics


@dataclass(frozen=True)
class SubgradientState:
    """Iterate and its weighted average, with the sum of the weights."""

    x: Any = per_agent()
    x_bar: Any = per_agent()
    weight: float = replicated(default=0.0)
    iteration: int = replicated(default=0)


@dataclass(frozen=True)
class CentralizedState(SubgradientState):
    """The same for the server's iterate."""

    x: Any = replicated()
    x_bar: Any = replicated()


@dataclass(frozen=True)
class PushState(SubgradientState):
    """The numerators x, the push-sum weights y, and the averages of the ratios z."""

    y: Any = per_agent(default=None)


def step_size(scale: float, r: float, k: int) -> float:
    """The step a_k of the module's formula."""
    return scale / (r * (k + 2)) if r > 0 else scale / math.sqrt(k + 1)


@dataclass(frozen=True)
class _Subgradient(IterativeSolver):
    """Parameters, output and records that the three methods share.

    Parameters
    ----------
    scale : float
        The factor s of the step size, > 0.
    r : float
        Weight of ``(r/2)||x||^2``, >= 0; the objective holds the f_i only.
    output : {"average", "last"}
        Average weighted by k + 1 when r > 0 (by the step size when r = 0), or the last iterate.
    """

    scale: float = 1.0
    r: float = 0.0
    output: str = "average"

    def __post_init__(self) -> None:
        check_real(self.scale, "scale", minimum=0.0, open_low=True)
        check_real(self.r, "r", minimum=0.0)
        check_choice(self.output, "output", ("average", "last"))

    def _averaged(self, state: Any, point: Any) -> tuple[Any, float]:
        k = state.iteration
        weight = k + 1.0 if self.r > 0 else step_size(self.scale, self.r, k)
        total = state.weight + weight
        return state.x_bar + (weight / total) * (point - state.x_bar), total

    def iterate(self, state: Any) -> Any:
        return state.x_bar if self.output == "average" else state.x

    def exchanged(self, state: Any) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return state.x, state.x_bar

    def metrics(self, objective: Any, network: Any, state: Any, *, final: bool = False) -> dict[str, float]:
        return composite_metrics(objective, network, self.iterate(state), self.r)


@dataclass(frozen=True)
class DecentralizedSubgradient(_Subgradient):
    """The distributed subgradient method (DSM) over any sequence of mixing matrices.

    Parameters
    ----------
    scale, r, output
        As in the module: s > 0 of the step size, r >= 0, "average" or "last".
    """

    name: ClassVar[str] = "distributed subgradient method"
    kinds: ClassVar[tuple[str, ...] | None] = ("mixing",)

    def init(self, objective: Any, network: Any, x0: Any) -> SubgradientState:
        return SubgradientState(x0, x0)

    def step(self, objective: Any, network: Any, state: SubgradientState) -> SubgradientState:
        a = step_size(self.scale, self.r, state.iteration)
        x = network.mix(state.x) - a * (objective.gradient(state.x) + self.r * state.x)
        x_bar, weight = self._averaged(state, x)
        return SubgradientState(x, x_bar, weight, state.iteration + 1)


@dataclass(frozen=True)
class SubgradientPush(_Subgradient):
    """Subgradient-push over directed networks; needs a column-stochastic topology (kind "col" or "mixing").

    Parameters
    ----------
    scale, r, output
        As in the module: s > 0 of the step size, r >= 0, "average" or "last".
    """

    name: ClassVar[str] = "subgradient-push"
    kinds: ClassVar[tuple[str, ...] | None] = ("col", "mixing")

    def init(self, objective: Any, network: Any, x0: Any) -> PushState:
        xp = array_namespace(x0)
        return PushState(x0, x0, y=xp.ones_like(x0[:, :1]))

    def step(self, objective: Any, network: Any, state: PushState) -> PushState:
        a = step_size(self.scale, self.r, state.iteration)
        w, y = network.mix(state.x, state.y)
        z = w / y
        x = w - a * (objective.gradient(z) + self.r * z)
        x_bar, weight = self._averaged(state, z)
        return PushState(x, x_bar, weight, state.iteration + 1, y)

    def iterate(self, state: PushState) -> Any:
        return state.x_bar if self.output == "average" else state.x / state.y


@dataclass(frozen=True)
class CentralizedSubgradient(_Subgradient):
    """The subgradient method of a server that sees the mean of all subgradients; the no-network reference.

    Parameters
    ----------
    scale, r, output
        As in the module: s > 0 of the step size, r >= 0, "average" or "last".
    """

    name: ClassVar[str] = "centralised subgradient method"
    stacked: ClassVar[bool] = False
    needs_topology: ClassVar[bool] = False

    def init(self, objective: Any, network: Any, x0: Any) -> CentralizedState:
        return CentralizedState(x0, x0)

    def step(self, objective: Any, network: Any, state: CentralizedState) -> CentralizedState:
        a = step_size(self.scale, self.r, state.iteration)
        total = network.total(objective.gradient(state.x), floats_down=state.x.shape[0])
        x = state.x - a * (total / network.n_agents + self.r * state.x)
        x_bar, weight = self._averaged(state, x)
        return CentralizedState(x, x_bar, weight, state.iteration + 1)

    def metrics(
        self, objective: Any, network: Any, state: CentralizedState, *, final: bool = False
    ) -> dict[str, float]:
        x = self.iterate(state)
        xp = array_namespace(x)
        value = float(network.mean(objective.value(x)))
        return {"objective": value + 0.5 * self.r * float(xp.sum(x * x)), "consensus_error": 0.0}
