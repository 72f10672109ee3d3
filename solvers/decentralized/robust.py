r"""Byzantine-robust gossip averaging and learning.

- `RobustGossip`: F-RG rounds only, towards the mean of the starting points.
- `RobustLearning`: a local momentum step, then one F-RG round on the half steps,

  .. math::

      m_i \leftarrow \beta m_i + (1 - \beta) g_i(x_i), \quad
      x_i^{1/2} = x_i - \mathrm{lr}\; m_i, \quad
      x_i^+ = x_i^{1/2} - \eta F_i\bigl((x_i^{1/2} - x_j^{1/2})_j\bigr).

The round, its guarantee and the breakdown point are in `robust_round`, the rules in `robust_rules`, the
attacks in `attacks`. Reference: R. Gaucher, A. Dieuleveut, H. Hendrikx, *Unified breakdown analysis for
Byzantine robust gossip*, ICML 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.arrays import array_namespace
from optikit.result import Certificate
from optikit.solver import IterativeSolver, cached, per_agent, replicated
from optikit.validation import check_integer, check_real
from solvers.decentralized.directed import sampled_gradient
from solvers.decentralized.robust_round import RobustRound


@dataclass(frozen=True)
class GossipState:
    """The iterates, the mean they started from, and the prepared round."""

    x: Any = per_agent()
    target: Any = replicated()
    round: Any = cached(default=None)


@dataclass(frozen=True)
class LearningState:
    """Iterates, momenta and the prepared round."""

    x: Any = per_agent()
    momentum: Any = per_agent()
    iteration: int = replicated(default=0)
    round: Any = cached(default=None)


class _Robust(IterativeSolver):
    """What averaging and learning share: the parameters of the round and its certificate."""

    rule: str
    b: float
    step_size: float | None
    attack: str | None
    byzantine: int | None

    def validate(self, objective: Any, network: Any) -> None:
        self._round(network)

    def _round(self, network: Any) -> RobustRound:
        return RobustRound(
            network,
            self.rule,
            self.b,
            step_size=self.step_size,
            attack=self.attack,
            byzantine=self.byzantine,
        )

    def iterate(self, state: Any) -> Any:
        return state.x

    def certificate(self, objective: Any, network: Any, state: Any) -> Certificate:
        """The breakdown analysis: what is guaranteed about one round under any attack."""
        return Certificate("robust gossip", details=state.round.breakdown.as_dict())


@dataclass(frozen=True)
class RobustGossip(_Robust):
    """Robust averaging: how close honest agents come to the mean of their vectors.

    Run it on ``Quadratic`` distances to the vectors, ``f_i = 1/2 ||x - v_i||^2``, from ``x0 = v``: the
    optimum is their mean. Records hold ``mse = (1/n) sum_i ||x_i - mean(v)||^2``.

    Parameters
    ----------
    rule : str, default "cs+"
        Robust sum: "cs+", "gts", "clipped_gossip", "trimmed_mean", "ios" or "average".
    b : float, default 0
        Bound on the Byzantine weight that an agent hears, in [0, half of what it hears].
    step_size : float, optional
        The step eta; ``1 / mu_max`` of the honest graph by default.
    attack : str, optional
        Simulated Byzantine neighbours of weight b: "dissensus", "spectral", "alie", "foe", "sign_flip" or
        "mimic".
    byzantine : int, optional
        Among how many neighbours they split the weight b; b rounded up by default.
    """

    name: ClassVar[str] = "robust gossip"
    criterion: ClassVar[str | None] = "mse"

    rule: str = "cs+"
    b: float = 0.0
    step_size: float | None = None
    attack: str | None = None
    byzantine: int | None = None

    def init(self, objective: Any, network: Any, x0: Any) -> GossipState:
        return GossipState(x0, network.mean(x0), self._round(network))

    def step(self, objective: Any, network: Any, state: GossipState) -> GossipState:
        return GossipState(state.round.apply(network, state.x), state.target, state.round)

    def metrics(
        self, objective: Any, network: Any, state: GossipState, *, final: bool = False
    ) -> dict[str, float]:
        record = super().metrics(objective, network, state, final=final)
        assert record is not None
        xp = array_namespace(state.x)
        scatter = float(network.sum(xp.sum((state.x - state.target) ** 2)))
        return {**record, "mse": scatter / network.n_agents}


@dataclass(frozen=True)
class RobustLearning(_Robust):
    """Robust decentralised learning: momentum steps with robust gossip between them.

    Parameters
    ----------
    lr : float, default 0.1
        Step size of the local gradient step, > 0.
    momentum : float, default 0.9
        The factor beta of ``m <- beta m + (1 - beta) g``, in [0, 1).
    rule : str, default "cs+"
        Robust sum: "cs+", "gts", "clipped_gossip", "trimmed_mean", "ios" or "average".
    b : float, default 0
        Bound on the Byzantine weight that an agent hears, in [0, half of what it hears].
    step_size : float, optional
        The step eta of the gossip round; ``1 / mu_max`` of the honest graph by default.
    attack : str, optional
        Simulated Byzantine neighbours of weight b: "dissensus", "spectral", "alie", "foe", "sign_flip" or
        "mimic".
    byzantine : int, optional
        Among how many neighbours they split the weight b; b rounded up by default.
    batch_size : int, optional
        Samples per agent and gradient; None for exact gradients.
    seed : int, default 0
        Of the samples.
    """

    name: ClassVar[str] = "robust learning"

    lr: float = 0.1
    momentum: float = 0.9
    rule: str = "cs+"
    b: float = 0.0
    step_size: float | None = None
    attack: str | None = None
    byzantine: int | None = None
    batch_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_real(self.lr, "lr", minimum=0.0, open_low=True)
        check_real(self.momentum, "momentum", minimum=0.0, maximum=1.0, open_high=True)
        if self.batch_size is not None:
            check_integer(self.batch_size, "batch_size", minimum=1)
        check_integer(self.seed, "seed", minimum=0)

    def init(self, objective: Any, network: Any, x0: Any) -> LearningState:
        return LearningState(x0, array_namespace(x0).zeros_like(x0), 0, self._round(network))

    def step(self, objective: Any, network: Any, state: LearningState) -> LearningState:
        gradient = sampled_gradient(objective, state.x, self.batch_size, self.seed, state.iteration)
        momentum = self.momentum * state.momentum + (1 - self.momentum) * gradient
        x = state.round.apply(network, state.x - self.lr * momentum)
        return LearningState(x, momentum, state.iteration + 1, state.round)
