r"""FedProx and SCAFFOLD: Local GD with its client drift damped or corrected, as baselines for comparison.

Both take K local steps per round from the server's x, m = 1..M clients with weights p_m:

- FedProx (T. Li et al., MLSys 2020) adds a proximal pull to every local gradient,
  :math:`v \leftarrow v - \eta (\nabla f_m(v) + \lambda (v - x))`; its fixed point moves towards the
  optimum as lambda grows, and is not the optimum.
- SCAFFOLD (S. P. Karimireddy et al., ICML 2020, option II) subtracts an estimate of the drift,
  :math:`v \leftarrow v - \eta (\nabla f_m(v) - c_m + c)`, then
  :math:`c_m^+ = c_m - c + (x - v_m)/(K\eta)`, :math:`c^+ = c + \sum_m p_m (c_m^+ - c_m)`; it converges to the
  optimum of heterogeneous clients for small :math:`\eta K`.

Both end a round with :math:`x^+ = x + \eta_g \sum_m p_m (v_m - x)`. The objective's value at x travels with
the first message, as for Local GD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.solver import IterativeSolver, per_agent, replicated
from optikit.validation import check_integer, check_probability_vector, check_real


@dataclass(frozen=True)
class DriftState:
    """Server iterate, the loss at the iterate before, and SCAFFOLD's control variates."""

    x: Any = replicated()
    objective: float = replicated(default=math.nan)
    round: int = replicated(default=0)
    control: Any = replicated(default=None)
    controls: Any = per_agent(default=None)


@dataclass(frozen=True, kw_only=True)
class _LocalSteps(IterativeSolver):
    """Parameters and records that both share.

    Parameters
    ----------
    step_size : float
        eta, > 0.
    local_steps : int
        K, >= 1.
    server_step : float, default 1.0
        eta_g, > 0.
    weights : array (n_agents,), optional
        Client weights p_m, summing to 1; uniform by default.
    """

    stacked: ClassVar[bool] = False
    needs_topology: ClassVar[bool] = False

    step_size: float = 0.1
    local_steps: int = 10
    server_step: float = 1.0
    weights: Any = None

    def __post_init__(self) -> None:
        check_real(self.step_size, "step_size", minimum=0.0, open_low=True)
        check_integer(self.local_steps, "local_steps", minimum=1)
        check_real(self.server_step, "server_step", minimum=0.0, open_low=True)

    def validate(self, objective: Any, network: Any) -> None:
        if self.weights is not None:
            check_probability_vector(self.weights, "weights", objective.n_agents)

    def _shares(self, objective: Any) -> Any:
        xp, n = objective.xp, objective.n_agents
        if self.weights is None:
            return xp.full((objective.n_local, 1), 1.0 / n, dtype=objective.dtype)
        whole = check_probability_vector(self.weights, "weights", n)
        return xp.asarray(whole[objective.agents][:, None], dtype=objective.dtype)

    def _local(self, objective: Any, x: Any, correction: Any) -> tuple[Any, Any]:
        """Every client's last local iterate, and its loss at x; `correction(v)` is added to the gradients."""
        v = objective.xp.broadcast_to(x, (objective.n_local, x.shape[0])) + 0.0
        losses, gradient = objective.value_and_gradient(v)
        for step in range(self.local_steps):
            if step:
                gradient = objective.gradient(v)
            v = v - self.step_size * (gradient + correction(v))
        return v, losses

    def iterate(self, state: DriftState) -> Any:
        return state.x

    def metrics(
        self, objective: Any, network: Any, state: DriftState, *, final: bool = False
    ) -> dict[str, float] | None:
        if final:
            losses = objective.value(state.x)[:, None] * self._shares(objective)
            return {"round": float(state.round), "objective": float(network.sum(losses)[0])}
        if state.round == 0:
            return None
        return {"round": float(state.round - 1), "objective": state.objective}


@dataclass(frozen=True, kw_only=True)
class FedProx(_LocalSteps):
    """Local GD with a proximal pull towards the server's iterate.

    Parameters
    ----------
    proximal : float, default 0.1
        lambda, >= 0; 0 is FedAvg.
    step_size, local_steps, server_step, weights
        As for SCAFFOLD.
    """

    name: ClassVar[str] = "FedProx"

    proximal: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_real(self.proximal, "proximal", minimum=0.0)

    def init(self, objective: Any, network: Any, x0: Any) -> DriftState:
        return DriftState(x0)

    def step(self, objective: Any, network: Any, state: DriftState) -> DriftState:
        x, shares = state.x, self._shares(objective)
        v, losses = self._local(objective, x, lambda v: self.proximal * (v - x))
        packed = objective.xp.concat((shares * (v - x), shares * losses[:, None]), axis=1)
        total = network.total(packed, floats_down=x.shape[0])
        return DriftState(x + self.server_step * total[:-1], float(total[-1]), state.round + 1)


@dataclass(frozen=True, kw_only=True)
class SCAFFOLD(_LocalSteps):
    """Local GD with control variates against client drift (option II).

    Parameters
    ----------
    step_size : float, default 0.1
        eta, > 0; ``eta K`` must stay small for heterogeneous clients.
    local_steps : int, default 10
        K, >= 1.
    server_step : float, default 1.0
        eta_g, > 0.
    weights : array (n_agents,), optional
        Client weights p_m, summing to 1; uniform by default.
    """

    name: ClassVar[str] = "SCAFFOLD"

    def init(self, objective: Any, network: Any, x0: Any) -> DriftState:
        xp = objective.xp
        controls = xp.zeros((network.n_local, x0.shape[0]), dtype=objective.dtype)
        return DriftState(x0, control=xp.zeros_like(x0), controls=controls)

    def step(self, objective: Any, network: Any, state: DriftState) -> DriftState:
        xp, x, c, shares = objective.xp, state.x, state.control, self._shares(objective)
        correction = c - state.controls
        v, losses = self._local(objective, x, lambda v: correction)
        controls = state.controls - c + (x - v) / (self.local_steps * self.step_size)
        packed = xp.concat(
            (shares * (v - x), shares * (controls - state.controls), shares * losses[:, None]), axis=1
        )
        d = x.shape[0]
        total = network.total(packed, floats_down=2 * d)
        moved, drift = total[:d], total[d : 2 * d]
        return DriftState(
            x + self.server_step * moved, float(total[-1]), state.round + 1, c + drift, controls
        )
