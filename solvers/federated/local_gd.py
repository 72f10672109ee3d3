r"""Local gradient descent with a constant step, for heterogeneous separable logistic regression.

M clients hold rows x_mi (labels multiplied in) that one vector separates; with weights p_m (default 1/M)

.. math:: F(w) = \sum_m p_m F_m(w), \qquad
          F_m(w) = \frac{1}{n_m}\sum_i \log(1 + e^{-\langle w, x_{mi}\rangle}),

is minimised by K local gradient steps of every client between two averages:

.. math:: v_{m,0} = w_r, \qquad v_{m,k+1} = v_{m,k} - \eta \nabla F_m(v_{m,k}), \qquad
          w_{r+1} = \sum_m p_m v_{m,K}.

Rows are understood to have norm at most 1; `LocalGD` divides by the largest norm B by itself (in effect: it
steps with :math:`\eta/B^2` on the data as they are, so nothing is copied).

References: M. Crawshaw, B. Woodworth, M. Liu, *Local Steps Speed Up Local GD for Heterogeneous Distributed
Logistic Regression*, ICLR 2025; the same, *Constant Stepsize Local GD for Logistic Regression: Acceleration
by Instability*, ICML 2025. Marks: [P] stated in the papers, [R] reconstructed from their public record, [D]
derived here.

Guarantee [P]: for every step :math:`\eta > 0` and every K, with the pooled margin :math:`\gamma`,

.. math:: \frac1r \sum_{s<r} F(w_s) \le \frac{26\,(\|w_0\|^2 + 1 + \log^2(K + \eta K \gamma^2 r)
          + \eta^2K^2)}{\eta\gamma^4 r}, \qquad
          F(w_r) \le \frac{16}{\eta \gamma^2 K (r - \tau)} \; (r \ge \tau),

with :math:`\tau = \tilde O(\eta K M/\gamma^3)`; :math:`\Phi_r = F(w_r)\gamma^2\eta K r` tends to 1 late [D].
At a fixed step more local steps help as 1/K; at a fixed product :math:`\eta K` they hardly change the final
loss, they shorten and soften the unstable phase: gradient descent with the step :math:`\eta K` is a serious
baseline.
"""

from __future__ import annotations

import math
import warnings
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from optikit.result import Certificate
from optikit.solver import replicated
from optikit.validation import check_choice, check_integer, check_real
from solvers.federated.local_method import LocalMethod, LocalState, Setup, diverged
from solvers.federated.local_solvers import SOLVERS, is_logistic, make_local_steps

#: Rounds of the run that is being set up: a solver's parameters do not include them.
_HORIZON: ContextVar[int | None] = ContextVar("horizon", default=None)


@dataclass(frozen=True)
class LocalGD(LocalMethod):
    """Local gradient descent with a constant step.

    Besides the logistic loss it runs on any objective, by its gradients (see `solvers.federated.baselines`
    for what it converges to on quadratics).

    Parameters
    ----------
    step_size : float, default 1.0
        The step eta, > 0; any value converges on separable data. ``1/local_steps`` is the "small step".
    local_steps : int, default 1
        K, at least 1; with 1 this is gradient descent.
    solver : {"auto", "gram", "primal"}, default "auto"
        Space of the local steps.
    **options
        `weights`, `normalize`, `average`, `margin`, `gamma` of `LocalMethod`.

    Notes
    -----
    One step is one round: a message of d + 1 floats up, d down. The loss travels with the iterate, so the
    record made after round r + 1 describes w_r.
    """

    name: ClassVar[str] = "Local GD"

    step_size: float = 1.0
    local_steps: int = 1
    solver: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_real(self.step_size, "step_size", minimum=0.0, open_low=True)
        check_integer(self.local_steps, "local_steps", minimum=1)
        check_choice(self.solver, "solver", SOLVERS)

    def make_local(self, objective: Any, weights: np.ndarray) -> Any:
        return make_local_steps(objective, weights, self.solver)

    def contributions(self, state: LocalState) -> Any:
        setup = state.setup
        return setup.local(state.w, self.step_size / (setup.scale * setup.scale), self.local_steps)


@dataclass(slots=True)
class TwoStageState(LocalState):
    """`LocalState` and the stage.

    Attributes
    ----------
    stage : int
        1 (small step) or 2 (large step), for the next round.
    switch_round : int or None
        r0, the round whose iterate stage 2 starts from.
    switch_objective : float
        ``F(w_r0)``, NaN until known.
    """

    stage: int = replicated(default=1)
    switch_round: int | None = replicated(default=None)
    switch_objective: float = replicated(default=math.nan)


@dataclass(frozen=True)
class TwoStageLocalGD(LocalMethod):
    r"""Two-Stage Local GD: a small step until the loss is small, then a large one.

    .. math:: w_{r_0} = \mathrm{LocalGD}(w_0, \eta_1, K, r_0), \quad \eta_1 = \Theta(1/K); \qquad
              w_R = \mathrm{LocalGD}(w_{r_0}, \eta_2, K, R - r_0), \quad \eta_2 = \Theta(1).

    Guarantee [P, constants R]: :math:`F(w_R) = O(1/(\eta_2\gamma^2 K (R - r_0)))` for
    :math:`r_0 = \tilde\Omega(KM/\gamma^4 + (KM)^{3/4}/\gamma^{5/2})`. With constants [D]: once
    :math:`F(w_r) \le \min(\gamma^2/(42\eta_2KM), \log 2/(nM))`, every later round has
    :math:`1/F(w_{r+1}) \ge 1/F(w_r) + \eta_2 K\gamma^2/2`; M is read as ``1/min p_m`` for other weights.

    Parameters
    ----------
    local_steps : int, default 16
        K, at least 1.
    stage1_step_size : float, optional
        eta_1 > 0; default 1/K.
    stage2_step_size : float, default 1.0
        eta_2 > 0: every value is admissible once the switch rule holds [D].
    switch : {"loss", "practical", "theory"} or int, default "loss"
        "loss": the first round with ``F(w_r) <= theta = switch_constant gamma^2 / (eta_2 K M)``.
        "practical": ``F(w_r) <= min(0.5, practical_constant / (eta_2 K M))``: no margin, no theorem, a
        warm-up that is about a hundred times shorter. "theory": r0 is the leading term
        ``ceil(42 eta_2 K M / gamma^4 / (eta_1 K))``, with 42 = 1/switch_constant. An integer is r0 itself.
    switch_constant : float, default 1/42
        The constant c of the "loss" and "theory" rules; the theorem is proved for values up to 1/42.
    practical_constant : float, default 1.0
        The constant of the "practical" rule.
    n_guard : bool, default False
        With "loss", also wait for ``F <= log 2 / (M max n_m)``, which the theorem needs for n > 1.
    exact_switch : bool, default False
        Test w_r before its local steps, at the price of one more one-float sum a round in stage 1. Otherwise
        F(w_r) comes with the round's message and stage 2 starts one round later.
    stage1_output : {"last", "average"}, default "last"
        What stage 2 starts from: the last iterate, or the mean of w_0..w_r0.
    solver : {"auto", "gram", "primal"}, default "auto"
        Space of the local steps.
    **options
        `weights`, `normalize`, `average`, `margin`, `gamma` of `LocalMethod`.

    Raises
    ------
    NotSeparableError
        For "loss" and "theory" on data that are not separable.

    Warns
    -----
    UserWarning
        When the predicted r0 exceeds the rounds of the run.
    """

    name: ClassVar[str] = "Two-Stage Local GD"

    local_steps: int = 16
    stage1_step_size: float | None = None
    stage2_step_size: float = 1.0
    switch: str | int = "loss"
    switch_constant: float = 1.0 / 42.0
    practical_constant: float = 1.0
    n_guard: bool = False
    exact_switch: bool = False
    stage1_output: str = "last"
    solver: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(self.local_steps, "local_steps", minimum=1)
        if self.stage1_step_size is not None:
            check_real(self.stage1_step_size, "stage1_step_size", minimum=0.0, open_low=True)
        check_real(self.stage2_step_size, "stage2_step_size", minimum=0.0, open_low=True)
        if isinstance(self.switch, str):
            check_choice(self.switch, "switch", ("loss", "practical", "theory"))
        else:
            check_integer(self.switch, "switch", minimum=0)
        check_real(self.switch_constant, "switch_constant", minimum=0.0, open_low=True)
        check_real(self.practical_constant, "practical_constant", minimum=0.0, open_low=True)
        check_choice(self.stage1_output, "stage1_output", ("last", "average"))
        check_choice(self.solver, "solver", SOLVERS)

    @property
    def needs_margin(self) -> bool:  # type: ignore[override]
        """Whether the switch rule is stated in terms of gamma."""
        return self.switch in ("loss", "theory")

    @property
    def first_step(self) -> float:
        """eta_1."""
        return 1.0 / self.local_steps if self.stage1_step_size is None else self.stage1_step_size

    def make_local(self, objective: Any, weights: np.ndarray) -> Any:
        return make_local_steps(objective, weights, self.solver)

    def solve(self, objective: Any, network: Any = None, x0: Any = None, **options: Any) -> Any:
        """Run the method, see `IterativeSolver.solve`; warns if stage 1 is predicted to outlast the run."""
        token = _HORIZON.set(options.get("max_rounds", 1000))
        try:
            return super().solve(objective, network, x0, **options)
        finally:
            _HORIZON.reset(token)

    def threshold(self, setup: Setup, largest_client: int) -> float:
        """theta, the loss at which stage 2 may start; NaN for a fixed r0."""
        clients = 1.0 / setup.smallest_weight
        unit = self.stage2_step_size * self.local_steps * clients
        if self.switch == "practical":
            return min(0.5, self.practical_constant / unit)
        if self.switch != "loss":
            return math.nan
        assert setup.gamma is not None
        theta = self.switch_constant * setup.gamma**2 / unit
        return min(theta, math.log(2.0) / (largest_client * clients)) if self.n_guard else theta

    def predicted_switch(self, setup: Setup) -> int | None:
        """The leading term of r0: exact to a percent on the two-point instances, None without a margin."""
        if isinstance(self.switch, int):
            return int(self.switch)
        if self.switch == "practical" or setup.gamma is None:
            return None
        unit = self.stage2_step_size * self.local_steps / setup.smallest_weight
        return math.ceil(unit / (self.switch_constant * setup.gamma**4 * self.first_step * self.local_steps))

    def init(self, objective: Any, network: Any, x0: Any) -> TwoStageState:
        setup = self._setup(objective, network)
        sizes = objective.data.sizes if hasattr(objective, "data") else np.ones(network.n_local)
        setup.theta = self.threshold(setup, int(network.max(sizes.astype(np.float64))))
        setup.predicted_switch = self.predicted_switch(setup)
        horizon = _HORIZON.get()
        if self.needs_margin and horizon is not None and (setup.predicted_switch or 0) > horizon:
            warnings.warn(
                f"the small-step stage is predicted to last {setup.predicted_switch:.4g} rounds, the run has "
                f"{horizon}: the large step will not come into use. switch='practical' waits about a hundred "
                "times less, without a theorem.",
                UserWarning,
                stacklevel=2,
            )
        average = x0 if self.average or self.stage1_output == "average" else None
        state = TwoStageState(x0, 0, math.nan, x0, average, setup)
        return self._enter(state, math.nan) if self._fixed_switch(setup) == 0 else state

    def _fixed_switch(self, setup: Setup) -> int | None:
        return setup.predicted_switch if self.switch == "theory" or isinstance(self.switch, int) else None

    def _enter(self, state: TwoStageState, value: float) -> TwoStageState:
        """Stage 2 from the state's iterate, whose objective is `value` where it is known."""
        if self.stage1_output == "average" and state.round > 0:
            state.w, value = state.average, math.nan
        state.stage, state.switch_round, state.switch_objective = 2, state.round, value
        return state

    def contributions(self, state: Any) -> Any:
        setup = state.setup
        step = self.first_step if state.stage == 1 else self.stage2_step_size
        return setup.local(state.w, step / (setup.scale * setup.scale), self.local_steps)

    def step(self, objective: Any, network: Any, state: Any) -> TwoStageState:
        """One round of the current stage; decisions are taken from reduced numbers only."""
        waiting = state.stage == 1 and self.switch in ("loss", "practical")
        if waiting and self.exact_switch:
            losses = state.setup.local.losses(state.w)
            value = float(network.total(losses, new_round=False)[0])
            if value <= state.setup.theta:
                state, waiting = self._enter(replace(state), value), False
        w = state.w
        total = network.total(self.contributions(state), floats_down=w.shape[0])
        value = float(total[-1])
        if not math.isfinite(value):
            value = diverged(value, state.round, network)
        new, r = w + total[:-1], state.round + 1
        average = None if state.average is None else state.average + (new - state.average) / (r + 1)
        known = value if state.switch_round == state.round else state.switch_objective
        following = TwoStageState(
            new, r, value, w, average, state.setup, state.stage, state.switch_round, known
        )
        if state.stage == 1 and (
            (waiting and not self.exact_switch and value <= state.setup.theta)
            or r == self._fixed_switch(state.setup)
        ):
            return self._enter(following, math.nan)
        return following

    def metrics(
        self, objective: Any, network: Any, state: Any, *, final: bool = False
    ) -> dict[str, float] | None:
        record = super().metrics(objective, network, state, final=final)
        if record is not None:
            began = state.switch_round is not None and record["round"] >= state.switch_round
            record["stage"] = 2.0 if began else 1.0
        return record

    def certificate(self, objective: Any, network: Any, state: Any) -> Certificate | None:
        """Adds the switch: r0, F(w_r0), theta, whether it happened, and the bound of the theorem [D]."""
        certificate = super().certificate(objective, network, state)
        if certificate is None:
            certificate = Certificate("local steps")
        setup, r0, value = state.setup, state.switch_round, state.switch_objective
        if r0 == state.round:
            value = float(network.sum(setup.local.losses(state.w))[0])
        certificate.details.update(
            switch_round=r0,
            switch_objective=value,
            theta=setup.theta,
            triggered=r0 is not None,
            predicted_switch_round=setup.predicted_switch,
            bound=self._bound(objective, network, state, value),
        )
        return certificate

    def _bound(self, objective: Any, network: Any, state: Any, value: float) -> float | None:
        """Upper bound on F(w_R) where the hypothesis of the stage-2 theorem was met at r0, else None."""
        gamma = state.setup.gamma
        if gamma is None or state.switch_round is None or not is_logistic(objective):
            return None
        clients = 1.0 / state.setup.smallest_weight
        unit = self.stage2_step_size * self.local_steps
        largest = float(network.max(objective.data.sizes.astype(np.float64)))
        if not 0.0 < value <= min(gamma**2 / (42.0 * unit * clients), math.log(2.0) / (largest * clients)):
            return None
        return 1.0 / (1.0 / value + 0.5 * unit * gamma**2 * (state.round - state.switch_round))
