r"""Sub-sampled and sketched Newton with inversion-bias correction, serial and averaged over workers.

Minimises a `GLM`. Iteration t with a sketch S of m << n rows of
:math:`A(b) = diag(\sqrt{\omega\phi''/N}) X`:

.. math::

    g = \nabla F(b), \quad \tilde H = \tilde A' W \tilde A + C, \quad p = -\tilde H^{-1} g, \quad
    b \leftarrow b + \mu p, \quad \mathrm{dec}^2 = -g'p

where the weights W make :math:`\tilde H^{-1}` a nearly unbiased inverse (`optikit.sketching.debias`). With q
workers the directions are averaged; only because they are unbiased does the average get better with q.

References: C. Niu, Z. Liao, Z. Ling, M. Mahoney, *Fundamental bias in inverting random sampling matrices with
application to sub-sampled Newton*, ICML 2025; M. Derezinski, J. Lacotte, M. Pilanci, M. Mahoney,
*Newton-LESS*, NeurIPS 2021.

Guarantee: near the optimum the squared error in the H-norm contracts per iteration by
:math:`\kappa/(q + \kappa)`, :math:`\kappa = \rho_{max} d_{eff}/m`, whatever the condition number.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from optikit.result import Certificate, Result
from optikit.runtime.communicator import default_communicator
from optikit.runtime.timing import Exponential, ServiceLaw
from optikit.sketching import RULES, SCHEMES, SketchTooSmall
from optikit.solver import IterativeSolver, cached, replicated
from optikit.validation import check_choice, check_integer, check_real
from solvers.newton.arrivals import Arrivals, Clock, VirtualArrivals
from solvers.newton.averaging import (
    Direction,
    averaged_direction,
    current_scores,
    exact_direction,
    one_of,
    reduced,
    worker_direction,
)
from solvers.newton.directions import REDUCIBLE, SKETCHES, Scores
from solvers.newton.glm import GLM
from solvers.newton.steps import STEPS, Ray, choose_step

#: Absolute margin beyond which falling losses mean separable data without a minimiser.
SEPARABLE_MARGIN = 30.0


@dataclass(frozen=True)
class NewtonState:
    """Iterate, its value and gradient, and what the last step found."""

    b: Any = replicated()
    value: float = replicated(default=math.nan)
    gradient_norm: float = replicated(default=math.nan)
    decrement: float = replicated(default=math.nan)  # dec^2 of the last direction
    decrement_upper: float = replicated(default=math.nan)
    step_size: float = replicated(default=math.nan)
    m: int = replicated(default=0)
    local: bool = replicated(default=False)  # a theoretical step was accepted as it is
    slow: int = replicated(default=0)
    stuck: bool = replicated(default=False)
    largest_margin: float = replicated(default=0.0)
    separated: bool = replicated(default=False)  # every row is on its side of the hyperplane
    iteration: int = replicated(default=0)
    clock: Any = replicated(default=None)  # of workers that may be late
    arrivals: Any = cached(default=None)
    eta: Any = cached(default=None)  # margins of the rows held here
    scores: Any = cached(default=None)


@dataclass(frozen=True)
class SubsampledNewton(IterativeSolver):
    """Debiased sub-sampled Newton for generalised linear models.

    Parameters
    ----------
    m : int or None
        Rows of the sketch; None: ``min(ceil(10 d), n/2)``. From n/2 on the exact Hessian is used.
    sketch : str, default "rows_poisson"
        One of `solvers.newton.directions.SKETCHES`; "exact" is Newton's method.
    debias : str, default "auto"
        "auto", or a rule of `optikit.sketching`: scalar for dense and sparse sketches, fine or poisson for
        rows, "none" for the biased baseline.
    scheme : str, default "ridge_leverage"
        How rows are scored ("uniform", "row_norm", "ridge_leverage", "root_leverage", "shrinkage", "mVc",
        "mMSE"); used by row sampling and LESS.
    leverage : {"approximate", "exact"}
        How the leverage of the rows is found.
    refresh : "always", "initial" or int
        Iterations between new scores (default 1). Stale scores stay valid, only less good.
    step_rule : {"armijo", "theory", "exact", "newton_less"} or float
        Line search from the theoretical step (default), the step itself, exact line search,
        ``1 - d_eff/m``, or a fixed number.
    mode : {"independent", "local", "sketch_reduce"}
        Each worker sketches all rows; each worker uses its own rows as the sample, which must be
        exchangeable (`shuffle`); or one sketch is summed over the ranks from parts (all but SRHT).
    average : {"mean", "determinantal"}
        How the directions of the workers are averaged.
    adaptive : bool, default True
        Double m when the local contraction is twice worse than predicted for two iterations.
    s : int, default 8
        Entries per row of LESS sketches.
    on_heavy : {"keep", "clip", "raise"}
        Rows of leverage above half their inclusion probability are always kept, clipped, or an error.
    gtol : float, default 0
        Also stop when the largest gradient entry is at most this.
    first : int or None
        Average over the first so many workers that answer, 1 to q, and drop the late ones; None: all. A
        server then holds the iterate: the workers must be able to read all rows.
    deadline : float or None
        Time (of the virtual clock, or seconds on MPI ranks) after which one answer is enough.
    service : ServiceLaw, optional
        How long workers take, on one process; exponential with mean 1 by default.
    final_exact : bool, default False
        End with one exact Newton step and the exact decrement.
    seed : int, default 0
        Seed of all sketches, keyed by iteration and worker.
    """

    name: ClassVar[str] = "sub-sampled Newton"
    stacked: ClassVar[bool] = False
    needs_topology: ClassVar[bool] = False
    criterion: ClassVar[str | None] = "gap_estimate"

    m: int | None = None
    sketch: str = "rows_poisson"
    debias: str = "auto"
    scheme: str = "ridge_leverage"
    leverage: str = "approximate"
    refresh: Any = 1
    step_rule: Any = "armijo"
    mode: str = "independent"
    average: str = "mean"
    adaptive: bool = True
    s: int = 8
    on_heavy: str = "keep"
    gtol: float = 0.0
    first: int | None = None
    deadline: float | None = None
    service: ServiceLaw | None = None
    final_exact: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.m is not None:
            check_integer(self.m, "m", minimum=1)
        check_choice(self.sketch, "sketch", SKETCHES)
        check_choice(self.debias, "debias", ("auto", *RULES))
        check_choice(self.scheme, "scheme", SCHEMES)
        check_choice(self.leverage, "leverage", ("approximate", "exact"))
        if self.refresh not in ("always", "initial"):
            check_integer(self.refresh, "refresh", minimum=1)
        if isinstance(self.step_rule, str):
            check_choice(self.step_rule, "step_rule", STEPS)
        else:
            check_real(self.step_rule, "step_rule", minimum=0.0, open_low=True)
        check_choice(self.mode, "mode", ("independent", "local", "sketch_reduce"))
        check_choice(self.average, "average", ("mean", "determinantal"))
        check_integer(self.s, "s", minimum=1)
        check_choice(self.on_heavy, "on_heavy", ("keep", "clip", "raise"))
        check_real(self.gtol, "gtol", minimum=0.0)
        check_integer(self.seed, "seed", minimum=0)
        if self.first is not None:
            check_integer(self.first, "first", minimum=1)
        if self.deadline is not None:
            check_real(self.deadline, "deadline", minimum=0.0, open_low=True)
        if self.drops_late and self.mode != "independent":
            raise ValueError(f"first and deadline are for mode='independent', got mode={self.mode!r}.")
        if self.drops_late and self.refresh not in (1, "always"):
            raise ValueError(
                f"first and deadline need fresh scores, refresh='always': a late worker has no old ones, "
                f"got refresh={self.refresh!r}."
            )
        if self.mode == "sketch_reduce" and self.sketch not in REDUCIBLE:
            raise ValueError(
                "mode='sketch_reduce' sums sketches of the ranks' rows: sketch must be one of "
                f"{', '.join(map(repr, REDUCIBLE))}; got {self.sketch!r}."
            )

    @property
    def drops_late(self) -> bool:
        """Whether the server goes on without the late workers."""
        return self.first is not None or self.deadline is not None

    def solve(self, objective: Any, network: Any = None, x0: Any = None, **options: Any) -> Result:
        """Run the method, see `IterativeSolver.solve`.

        With `first` or `deadline`, rank 0 of several MPI ranks is a server and the q workers live on the
        others.
        """
        communicator = default_communicator() if network is None else network.communicator
        if not self.drops_late or communicator.Get_size() == 1:
            return super().solve(objective, network, x0, **options)
        from solvers.newton.served import solve_served

        return solve_served(self, objective, communicator, x0, options)

    def validate(self, objective: Any, network: Any) -> None:
        if not isinstance(objective, GLM):
            raise TypeError(f"{self.name} needs a GLM objective, got {type(objective).__name__}.")
        d = objective.dim
        if objective.l2 == 0 and objective.n_samples < d:
            raise ValueError(
                f"l2 must be > 0 with fewer rows than columns ({objective.n_samples} < {d}), got 0."
            )
        if self.first is not None:
            check_integer(self.first, "first", maximum=objective.n_agents)
        if self.m is not None and objective.l2 == 0 and self.m < d and self.sketch != "exact":
            raise SketchTooSmall(self.m, d)

    # -- the iteration ------------------------------------------------------------------------------------

    def init(self, objective: GLM, network: Any, x0: Any) -> NewtonState:
        b = np.asarray(x0, dtype=np.float64)
        n, d = objective.n_samples, objective.dim
        m = self.m or min(10 * d, n // 2)
        if self.m is None and m < 2 * d:  # too few rows for a sketch to pay or even to work
            m = n
        state = NewtonState(b, m=m, eta=objective.margins(b, objective.rows))
        if not self.drops_late:
            return state
        clock = Clock.start(objective.n_agents)
        return replace(state, clock=clock, arrivals=self._arrivals(objective, clock))

    def restored(self, objective: GLM, network: Any, state: NewtonState) -> NewtonState:
        state = replace(state, eta=objective.margins(state.b, objective.rows), scores=None)
        if state.clock is None:
            return state
        return replace(state, arrivals=self._arrivals(objective, state.clock))

    def _arrivals(self, objective: GLM, clock: Clock) -> Arrivals:
        oracle, q = DirectionOracle(self, objective), objective.n_agents
        service = copy.deepcopy(self.service or Exponential())
        service.check(q)
        return VirtualArrivals(service, oracle, self.first or q, self.deadline or math.inf, clock)

    def step(self, objective: GLM, network: Any, state: NewtonState) -> NewtonState:
        b, rows = state.b, objective.rows
        eta = objective.margins(b, rows) if state.eta is None else state.eta
        # One message: the gradient and the value of the rows held here.
        data_gradient, value = reduced(
            network, objective.score_sum(eta, rows), np.array([objective.loss_sum(eta, rows)])
        )
        penalty = objective.penalty
        g = data_gradient + penalty * b
        F = float(value[0]) + 0.5 * float(penalty @ (b * b))
        exact = self.sketch == "exact" or (self.mode != "local" and 2 * state.m >= objective.n_samples)
        scores = Scores() if exact else current_scores(self, objective, state)
        if exact:
            direction = exact_direction(objective, network, eta, g)
        else:
            direction = averaged_direction(self, objective, network, state, g, scores)
        p = direction.p
        decrement = float(-(g @ p))
        Xp = objective.margins(p, rows, offset=False)
        along = Ray(objective, eta, Xp, b, p, lambda part: reduced(network, part, new_round=False)[0])
        mu, F_new, stuck = choose_step(self.step_rule, along, F, decrement, direction)
        slow, m = self._slow(objective, state, decrement, direction), state.m
        if self.adaptive and self.mode != "local" and slow >= 2:
            m, slow = min(2 * m, objective.n_samples), 0
        eta = eta + mu * Xp
        largest, separated = self._margins(objective, network, eta)
        return NewtonState(
            b=b + mu * p,
            value=F_new,
            gradient_norm=float(np.linalg.norm(g)),
            decrement=decrement,
            decrement_upper=decrement * (1.0 + self._spread(objective, state, direction)),
            step_size=mu,
            m=m,
            local=state.local or mu == 1.0 / (1.0 + direction.kappa / direction.arrived),
            slow=slow,
            stuck=stuck,
            largest_margin=largest,
            separated=separated,
            iteration=state.iteration + 1,
            eta=eta,
            scores=scores,
            clock=state.clock,
            arrivals=state.arrivals,
        )

    def _spread(self, objective: GLM, state: NewtonState, direction: Direction) -> float:
        """Three standard deviations of the decrement, relative: ``3 sqrt(2/(q (m - d_eff)))``.

        For a Gaussian sketch ``dec^2`` is the exact one times ``(m - d)/chi^2_{m-d+1}``. With kappa for
        ``d_eff/(m - d_eff)`` the term ``m - d_eff`` is ``m/(1 + kappa)``.
        """
        if direction.kappa == 0:
            return 0.0
        m = objective.n_samples // objective.n_agents if self.mode == "local" else state.m
        return 3.0 * math.sqrt(2.0 * (1.0 + direction.kappa) / (m * direction.arrived))

    @staticmethod
    def _margins(objective: GLM, network: Any, eta: np.ndarray) -> tuple[float, bool]:
        """Largest margin in modulus, and whether all labels are met; (0, False) where it does not matter."""
        if objective.l2 > 0 or objective.loss.targets != "binary":
            return 0.0, False
        signed = objective.y[objective.rows] * eta
        if objective.weight is not None:
            signed = signed[objective.weight[objective.rows] > 0]
        largest = float(network.max(np.array([np.max(np.abs(signed), initial=0.0)])))
        return largest, bool(float(network.min(np.array([np.min(signed, initial=np.inf)]))) > 0.0)

    @staticmethod
    def _slow(objective: GLM, state: NewtonState, decrement: float, direction: Direction) -> int:
        """Iterations in a row, in the local phase, that contracted twice worse than predicted.

        What is predicted is the rate of incoherent data, ``d/(m - d)`` for kappa: where uniform samples miss
        heavy rows a larger sketch is the remedy. Backtracking in the local phase is a sign of it too.
        """
        kappa = direction.kappa / direction.arrived
        if not state.local or not math.isfinite(state.decrement) or state.decrement <= 0 or kappa <= 0:
            return 0
        d, m = objective.dim, state.m
        incoherent = min(kappa, d / (m - d) / direction.arrived) if m > d else kappa
        predicted = incoherent / (1.0 + incoherent)
        floor = 1e-14 * max(1.0, abs(state.value))
        slow = decrement > 2.0 * predicted * state.decrement and decrement > floor
        return state.slow + 1 if slow else 0

    def iterate(self, state: NewtonState) -> Any:
        return state.b

    def polish(self, objective: GLM, network: Any, state: NewtonState) -> NewtonState:
        """With `final_exact`, one exact Newton step and the exact decrement."""
        if not self.final_exact or self.sketch == "exact":
            return state
        return replace(self, sketch="exact").step(objective, network, state)

    # -- records ------------------------------------------------------------------------------------------

    def metrics(
        self, objective: GLM, network: Any, state: NewtonState, *, final: bool = False
    ) -> dict[str, float]:
        if state.iteration == 0:
            start = network.sum(one_of(network, np.array([objective.loss_sum(state.eta, objective.rows)])))
            return {"objective": float(start[0]) + 0.5 * float(objective.penalty @ (state.b * state.b))}
        record = {
            "objective": state.value,
            "gradient_norm": state.gradient_norm,
            "decrement": state.decrement,
            "gap_estimate": 0.5 * state.decrement_upper,
            "step_size": state.step_size,
            "sketch_rows": float(state.m),
        }
        if state.clock is not None:
            record |= {"time": state.clock.now, "dropped": float(state.clock.dropped)}
        if objective.l2 > 0 and not objective.intercept:
            record["gap_bound"] = state.gradient_norm**2 / (2.0 * objective.l2)
        return record

    def converged(self, metrics: dict[str, float], tol: float) -> bool:
        return metrics.get("gap_estimate", math.inf) <= tol * max(1.0, abs(metrics["objective"]))

    def finished(self, state: NewtonState, metrics: dict[str, float]) -> str | None:
        if self.gtol > 0 and state.gradient_norm <= self.gtol:
            return "the gradient is below gtol"
        if state.stuck:
            return "no step decreases the objective any more"
        if state.separated and state.largest_margin > SEPARABLE_MARGIN:
            return "separable data without a penalty: the loss falls for ever and has no minimiser"
        return None

    def certificate(self, objective: GLM, network: Any, state: NewtonState) -> Certificate | None:
        details: dict[str, Any] = {
            "decrement": state.decrement,
            "decrement_upper": state.decrement_upper,
            "sketch_rows": state.m,
        }
        lower = None
        if objective.l2 > 0 and not objective.intercept and state.iteration:
            lower = state.value - state.gradient_norm**2 / (2.0 * objective.l2)
        return Certificate("Newton decrement", lower, state.value, details)


class DirectionOracle:
    """A worker's answer for the server that drops late ones: direction, kappa and log-determinant."""

    def __init__(self, method: SubsampledNewton, objective: GLM) -> None:
        self.method, self.objective = method, objective
        self._scored: tuple[int, Scores] | None = None

    def __call__(self, worker: int, iteration: int, m: int, b: np.ndarray, g: np.ndarray) -> np.ndarray:
        method, state = self.method, NewtonState(b, m=m, iteration=iteration)
        if self._scored is None or self._scored[0] != iteration:  # one scoring for the workers here
            self._scored = (iteration, current_scores(method, self.objective, state))
        return worker_direction(method, self.objective, state, worker, g, self._scored[1])
