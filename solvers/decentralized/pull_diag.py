r"""Pull-Diag-GT, its multi-round form, and the other methods for row-stochastic networks.

On a directed network whose agents only know whom they *hear*, the mixing matrix A is row-stochastic:
:math:`A^k \to 1 \pi^T` with weights :math:`\pi` that nobody knows, and plain gradient tracking finds the
optimum of the :math:`\pi`-weighted objective. Pull-Diag corrects every gradient by the agent's own return
weight :math:`D_k = \mathrm{diag}(A^k)`, which tends to :math:`\pi`:

.. math::

    V_{k+1} &= A V_k, \quad V_0 = I, \quad D_k = \mathrm{diag}(V_k), \\
    x_{k+1} &= A (x_k - a y_k), \\
    y_{k+1} &= A (y_k + D_{k+1}^{-1} g_{k+1} - D_k^{-1} g_k), \quad y_0 = g_0 .

Agent i keeps row i of V (n numbers) and sends it with x. y follows the *sum* of the gradients, so
``lr = n a`` is the step on the mean objective. V is no longer sent once D has settled.

- **MG** (multiple gossip): A becomes :math:`A^R` and a gradient averages R mini-batches.
- **Pull-Diag-GD**: :math:`x_{k+1} = A (x_k - a D_k^{-1} g_k)`; no tracking, biased for constant steps.
- **FROST**: :math:`x_{k+1} = A x_k - a y_k`, :math:`y_{k+1} = A y_k + D_{k+1}^{-1} g_{k+1} - D_k^{-1} g_k`.
- **Row-stochastic tracking** without the correction: converges to the wrong, :math:`\pi`-weighted optimum.

References: L. Liang, X. Chen, G. Luo, K. Yuan, *Achieving linear speedup and near-optimal complexity for
decentralized optimization over row-stochastic networks*, ICML 2025; R. Xin, C. Xi, U. Khan, *FROST: fast
row-stochastic optimization with uncoordinated step-sizes*, 2019.

Guarantee (L-smooth, non-convex, noise :math:`\sigma^2`): MG-Pull-Diag-GT reaches up to logarithms the lower
bound :math:`\Omega(\sigma \sqrt{L \Delta / (n K)} + (1 + \ln \kappa_A) L \Delta / ((1 - \beta_A) K))`;
Pull-Diag-GT has its first term, the linear speed-up in n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from optikit.arrays import array_namespace, from_numpy
from optikit.gossip import mix_rounds
from optikit.mixing.perron import perron_metrics
from optikit.solver import per_agent, replicated
from optikit.validation import check_integer
from solvers.decentralized.directed import TrackingMethod, check_connected, check_step, check_weights

#: D counts as settled when no entry changes by more than this, relatively, two times in a row: one quiet
#: step may be the turning point of a damped oscillation. Freezing D leaves an error of that order times
#: 1 / (1 - beta) in the optimum: 1e-12 was measured to cost up to 1.1e-13, 1e-14 costs 1e-15.
SETTLED = 1e-14


@dataclass(frozen=True)
class ReturnWeights:
    """Rows of :math:`V_k = A^k` (None once settled) and the inverse return weights, ``(n_local, 1)``."""

    inverse: Any = per_agent()
    rows: Any = per_agent(default=None)
    quiet: int = replicated(default=0)

    @classmethod
    def start(cls, network: Any, like: Any) -> ReturnWeights:
        """Identity rows, float64 whatever the iterates are: return weights may be tiny."""
        xp = array_namespace(like)
        rows = np.zeros((network.n_local, network.n_agents))
        rows[np.arange(network.n_local), network.agents] = 1.0
        return cls(xp.ones_like(like[:, :1]), from_numpy(rows, xp))

    def pull(self, network: Any, rounds: int, *arrays: Any) -> tuple[tuple[Any, ...], ReturnWeights]:
        """`rounds` rounds of A on `arrays`, and on V unless it has settled."""
        if self.rows is None:
            mixed = mix_rounds(network, *arrays, rounds=rounds)
            return (mixed if len(arrays) > 1 else (mixed,)), self
        *mixed, rows = mix_rounds(network, *arrays, self.rows, rounds=rounds)
        return tuple(mixed), self._updated(network, rows)

    def _updated(self, network: Any, rows: Any) -> ReturnWeights:
        xp = array_namespace(rows)
        places = np.arange(network.n_local) * network.n_agents + network.agents
        diagonal = xp.take(xp.reshape(rows, (-1,)), from_numpy(places, xp), axis=0)
        check_weights(diagonal, network.agents, "Pull-Diag", what="the return weight [A^k]_ii")
        inverse = xp.astype(1.0 / diagonal[:, None], self.inverse.dtype)
        change = xp.abs(inverse - self.inverse) / inverse
        quiet = self.quiet + 1 if float(network.max(change[:, 0])) <= SETTLED else 0
        return ReturnWeights(inverse, None if quiet == 2 else rows, quiet)


@dataclass(frozen=True)
class PullState:
    """Iterate, tracker, corrected gradients D^-1 g, and the return weights they were corrected by."""

    x: Any = per_agent()
    tracker: Any = per_agent()
    gradient: Any = per_agent()
    weights: ReturnWeights | None = replicated(default=None)
    iteration: int = replicated(default=0)


@dataclass(frozen=True)
class _PullMethod(TrackingMethod):
    """Parameters, start and records of the methods on row-stochastic networks."""

    lr: float = 0.1
    batch_size: int | None = None
    seed: int = 0

    corrected: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_step(self.lr, "lr")
        self._check_oracle()

    def validate(self, objective: Any, network: Any) -> None:
        network.require_kind("row", "mixing", by=self.name)
        if network.topology.period != 1:
            raise ValueError(
                f"{self.name} needs a static network, got {network.topology!r}: its weights A^k have no "
                "limit otherwise."
            )
        check_connected(network, self.name)
        diagonal = network.topology.matrix(0).csr.diagonal()
        if self.corrected and diagonal.min() <= 0:
            raise ValueError(
                f"{self.name} divides by return weights, so every agent must hear itself, but entry "
                f"({int(diagonal.argmin())}, {int(diagonal.argmin())}) of the matrix is {diagonal.min():g}."
            )

    def init(self, objective: Any, network: Any, x0: Any) -> PullState:
        gradient = self._gradient(objective, x0, 0, self._batches(network))
        return PullState(x0, gradient, gradient, ReturnWeights.start(network, x0))

    def _batches(self, network: Any) -> int:
        return 1

    def iterate(self, state: PullState) -> Any:
        return state.x

    def exchanged(self, state: PullState) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return state.x, state.tracker

    def estimate(self, network: Any, state: PullState) -> float | None:
        xp = array_namespace(state.tracker)
        squares = float(network.sum(xp.sum(state.tracker**2))) / network.n_agents
        return math.sqrt(squares) / network.n_agents


@dataclass(frozen=True)
class PullDiagGT(_PullMethod):
    """Pull-Diag gradient tracking; two rounds per iteration, d (+ n until settled) and d floats per message.

    Parameters
    ----------
    lr : float
        The step n a on the mean objective, > 0.
    batch_size : int, optional
        Samples per agent and gradient; None for exact gradients.
    seed : int, default 0
        Of the samples.
    """

    name: ClassVar[str] = "Pull-Diag-GT"

    def step(self, objective: Any, network: Any, state: PullState) -> PullState:
        return self._advance(objective, network, state, 1)

    def _advance(self, objective: Any, network: Any, state: PullState, rounds: int) -> PullState:
        assert state.weights is not None
        k, a = state.iteration + 1, self.lr / network.n_agents
        (x,), weights = state.weights.pull(network, rounds, state.x - a * state.tracker)
        gradient = weights.inverse * self._gradient(objective, x, k, rounds)
        tracker = mix_rounds(network, state.tracker + gradient - state.gradient, rounds=rounds)
        return PullState(x, tracker, gradient, weights, k)


@dataclass(frozen=True)
class MGPullDiagGT(PullDiagGT):
    """Pull-Diag gradient tracking with R gossip rounds and R mini-batches per exchange: 2 R rounds a step.

    Parameters
    ----------
    lr : float
        The step n a on the mean objective, > 0.
    batch_size : int, optional
        Samples per agent and mini-batch, R of which make a gradient; None for exact gradients.
    seed : int, default 0
        Of the samples.
    rounds : int, optional
        R >= 1. Default: so many that every return weight is within half of its limit,
        ``ceil((ln 2n + 1.5 ln kappa_A) / -ln beta_A)``.
    """

    name: ClassVar[str] = "MG-Pull-Diag-GT"

    rounds: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is not None:
            check_integer(self.rounds, "rounds", minimum=1)

    def _batches(self, network: Any) -> int:
        if self.rounds is not None:
            return self.rounds
        return _default_rounds(network.topology.matrix(0))

    def step(self, objective: Any, network: Any, state: PullState) -> PullState:
        return self._advance(objective, network, state, self._batches(network))


@lru_cache(maxsize=16)
def _default_rounds(matrix: Any) -> int:
    return perron_metrics(matrix).rounds_for_diagonal()


@dataclass(frozen=True)
class PullDiagGD(_PullMethod):
    """Pull-Diag gradient descent: no tracking, so a constant step leaves a bias of order lr. One round.

    Parameters
    ----------
    lr : float
        The step n a on the mean objective, > 0.
    batch_size : int, optional
        Samples per agent and gradient; None for exact gradients.
    seed : int, default 0
        Of the samples.
    """

    name: ClassVar[str] = "Pull-Diag-GD"
    criterion: ClassVar[str | None] = None

    def step(self, objective: Any, network: Any, state: PullState) -> PullState:
        assert state.weights is not None
        k, a = state.iteration + 1, self.lr / network.n_agents
        (x,), weights = state.weights.pull(network, 1, state.x - a * state.gradient)
        gradient = weights.inverse * self._gradient(objective, x, k)
        return PullState(x, gradient, gradient, weights, k)

    def estimate(self, network: Any, state: PullState) -> None:
        return None


@dataclass(frozen=True)
class FROST(_PullMethod):
    """FROST: combine-then-adapt, so x, y and V travel together in one round per iteration.

    Parameters
    ----------
    lr : float
        The step n a on the mean objective, > 0.
    batch_size : int, optional
        Samples per agent and gradient; None for exact gradients.
    seed : int, default 0
        Of the samples.
    """

    name: ClassVar[str] = "FROST"

    def step(self, objective: Any, network: Any, state: PullState) -> PullState:
        assert state.weights is not None
        k, a = state.iteration + 1, self.lr / network.n_agents
        (mixed, tracker), weights = state.weights.pull(network, 1, state.x, state.tracker)
        x = mixed - a * state.tracker
        gradient = weights.inverse * self._gradient(objective, x, k)
        return PullState(x, tracker + gradient - state.gradient, gradient, weights, k)


@dataclass(frozen=True)
class RowStochasticTracking(_PullMethod):
    """Gradient tracking with a row-stochastic matrix and no correction: the wrong optimum, for comparison.

    It minimises ``sum_i pi_i f_i``, pi the Perron vector of A, not the mean of the f_i.

    Parameters
    ----------
    lr : float
        The step on the pi-weighted objective, > 0.
    batch_size : int, optional
        Samples per agent and gradient; None for exact gradients.
    seed : int, default 0
        Of the samples.
    """

    name: ClassVar[str] = "row-stochastic tracking"
    corrected: ClassVar[bool] = False

    def init(self, objective: Any, network: Any, x0: Any) -> PullState:
        gradient = self._gradient(objective, x0, 0)
        return PullState(x0, gradient, gradient)

    def step(self, objective: Any, network: Any, state: PullState) -> PullState:
        k = state.iteration + 1
        x = network.mix(state.x - self.lr * state.tracker)
        gradient = self._gradient(objective, x, k)
        tracker = network.mix(state.tracker + gradient - state.gradient)
        return PullState(x, tracker, gradient, None, k)

    def estimate(self, network: Any, state: PullState) -> float:
        xp = array_namespace(state.tracker)
        return math.sqrt(float(network.sum(xp.sum(state.tracker**2))) / network.n_agents)
