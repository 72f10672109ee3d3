"""What the methods for directed networks share: gradients with samples, records, when they have converged."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, ClassVar

from optikit.arrays import array_namespace
from optikit.random import AgentStreams
from optikit.solver import IterativeSolver
from optikit.validation import check_integer, check_real

#: Weights that gradients or iterates are divided by must stay above this.
UNDERFLOW = 1e-300


class TrackingMethod(IterativeSolver):
    """Base of the methods that follow the sum of all gradients by a tracker.

    Their `criterion` is ``"stationarity"``, the tracker's estimate of the gradient of the mean objective;
    ``tol`` also bounds the consensus error.
    """

    criterion: ClassVar[str | None] = "stationarity"

    batch_size: int | None
    seed: int

    def _check_oracle(self) -> None:
        if self.batch_size is not None:
            check_integer(self.batch_size, "batch_size", minimum=1)
        check_integer(self.seed, "seed", minimum=0)

    def _gradient(self, objective: Any, x: Any, iteration: int, batches: int = 1) -> Any:
        """Exact gradients, or `batches` mini-batches drawn at one point as one batch of their total size."""
        size = None if self.batch_size is None else batches * self.batch_size
        return sampled_gradient(objective, x, size, self.seed, iteration)

    def estimate(self, network: Any, state: Any) -> float | None:
        """Norm of the tracked gradient of the mean objective; None for a method without a tracker."""
        raise NotImplementedError

    def metrics(self, objective: Any, network: Any, state: Any, *, final: bool = False) -> dict[str, float]:
        record = super().metrics(objective, network, state, final=final)
        assert record is not None
        found = self.estimate(network, state)
        return record if found is None else {**record, "stationarity": found}

    def converged(self, metrics: dict[str, float], tol: float) -> bool:
        return metrics.get("stationarity", math.nan) <= tol and metrics["consensus_error"] <= tol


def sampled_gradient(objective: Any, x: Any, batch_size: int | None, seed: int, iteration: int) -> Any:
    """Gradients of all agents here: exact ones, or from `batch_size` samples each."""
    if batch_size is None:
        return objective.gradient(x)
    return objective.stochastic_gradient(x, batch_size, _streams(seed), iteration)


@lru_cache(maxsize=8)
def _streams(seed: int) -> AgentStreams:
    return AgentStreams(seed, "minibatch")


def check_step(value: Any, name: str) -> None:
    """Step sizes are positive and finite."""
    check_real(value, name, minimum=0.0, open_low=True)


def check_connected(network: Any, method: str) -> None:
    """A static network must be strongly connected; of a changing one only its windows need to be."""
    if network.topology.period == 1 and not network.topology.matrix(0).graph().is_connected:
        raise ValueError(f"{method} needs a strongly connected network: some agent never hears another.")


def check_weights(weights: Any, agents: Any, method: str, *, what: str) -> None:
    """Raise FloatingPointError when a weight that is divided by is zero or close to underflow."""
    xp = array_namespace(weights)
    if weights.shape[0] and not float(xp.min(weights)) >= UNDERFLOW:
        worst = int(xp.argmin(xp.reshape(weights, (-1,))))
        raise FloatingPointError(
            f"{method}: {what} of agent {int(agents[worst])} is {float(xp.min(weights)):.3g}, "
            f"below {UNDERFLOW:g}; its messages reach it back too weakly."
        )
