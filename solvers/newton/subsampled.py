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
from optikit.sketching import RULES, SCHEMES, DebiasedInverse, SketchTooSmall, determinantal_average
from optikit.sketching.leverage import gram
from optikit.sketching.operators import ColumnSparseOperator
from optikit.solver import IterativeSolver, cached, replicated
from optikit.validation import check_choice, check_integer, check_real
from solvers.newton.arrivals import Arrivals, Clock, VirtualArrivals
from solvers.newton.directions import (
    SCORED,
    SKETCHES,
    Scores,
    debiased,
    make_sketch,
    score_rows,
    sketch_direction,
)
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
    slow: int = replicated(default=0)
    stuck: bool = replicated(default=False)
    largest_margin: float = replicated(default=0.0)
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
        Each worker sketches all rows; each worker uses its own rows as the sample; or one sketch is summed
        over the ranks from parts (countsketch, saso).
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
        if self.mode == "sketch_reduce" and self.sketch not in ("saso", "countsketch"):
            raise ValueError(
                f"mode='sketch_reduce' sums column-sparse sketches: sketch must be 'saso' or 'countsketch', "
                f"got {self.sketch!r}."
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
        b, rows, q = state.b, objective.rows, objective.n_agents
        eta = objective.margins(b, rows) if state.eta is None else state.eta
        # One message: the gradient and the value of the rows held here.
        data_gradient, value = self._reduced(
            network, objective.score_sum(eta, rows), np.array([objective.loss_sum(eta, rows)])
        )
        penalty = objective.penalty
        g = data_gradient + penalty * b
        F = float(value[0]) + 0.5 * float(penalty @ (b * b))
        m, exact = state.m, self.sketch == "exact" or 2 * state.m >= objective.n_samples
        scores = self._scores(objective, b, state) if not exact else Scores()
        if exact:
            inverse = self._exact_inverse(objective, network, eta)
            p, kappa = -inverse.solve(g), 0.0
        else:
            p, kappa = self._averaged_direction(objective, network, state, g, m, scores)
        decrement = float(-(g @ p))
        Xp = objective.margins(p, rows, offset=False)
        along = Ray(objective, eta, Xp, b, p, lambda part: self._reduced(network, part, new_round=False)[0])
        mu, F_new, stuck = choose_step(self.step_rule, along, F, decrement, kappa)
        slack = 0.0 if exact else 3.0 * math.sqrt(2.0 * kappa / q) if kappa > 0 else 0.0
        slow = self._slow(state, decrement, kappa, mu, exact)
        if self.adaptive and slow >= 2:
            m, slow = min(2 * m, objective.n_samples), 0
        eta = eta + mu * Xp
        largest = 0.0
        if objective.l2 == 0 and objective.loss.targets == "binary":
            largest = float(network.max(np.array([np.max(np.abs(eta), initial=0.0)])))
        return NewtonState(
            b=b + mu * p,
            value=F_new,
            gradient_norm=float(np.linalg.norm(g)),
            decrement=decrement,
            decrement_upper=decrement * (1.0 + slack),
            step_size=mu,
            m=m,
            slow=slow,
            stuck=stuck,
            largest_margin=largest,
            iteration=state.iteration + 1,
            eta=eta,
            scores=scores,
            clock=state.clock,
            arrivals=state.arrivals,
        )

    @staticmethod
    def _one_of(network: Any, part: np.ndarray) -> np.ndarray:
        """A rank's contribution as the network sums it: one row per worker, all but the first zero."""
        packed = np.zeros((network.n_local, *part.shape))
        if network.n_local:
            packed[0] = part
        return packed

    def _reduced(self, network: Any, *parts: np.ndarray, new_round: bool = True) -> list[np.ndarray]:
        """Sum one contribution per rank over the ranks, as one counted message of the workers."""
        packed = np.concatenate([part.ravel() for part in parts])
        down = packed.size if new_round else 0
        total = network.total(self._one_of(network, packed), floats_down=down, new_round=new_round)
        ends = np.cumsum([part.size for part in parts])[:-1]
        return [piece.reshape(part.shape) for piece, part in zip(np.split(total, ends), parts)]

    # -- directions ---------------------------------------------------------------------------------------

    def _scores(self, objective: GLM, b: np.ndarray, state: NewtonState) -> Scores:
        if self.sketch not in SCORED or self.mode == "local":
            return Scores()
        every = {"always": 1, "initial": 10**9}.get(self.refresh, self.refresh)
        if state.scores is not None and state.iteration % every:
            return state.scores
        eta = objective.margins(b)
        residual = objective.loss.derivative(eta, objective.y)
        seed = np.random.SeedSequence(self.seed, spawn_key=(state.iteration, objective.n_agents))
        scale = objective.root_weights(eta, slice(None))
        return score_rows(objective, scale, self.scheme, self.leverage, seed, residual)

    def _averaged_direction(
        self, objective: GLM, network: Any, state: NewtonState, g: np.ndarray, m: int, scores: Scores
    ) -> tuple[np.ndarray, float]:
        """Average over the workers of their sketched directions, and the variance kappa of one."""
        q, d = objective.n_agents, objective.dim
        if self.drops_late:
            return self._first_directions(network, state, g, m)
        if self.mode == "sketch_reduce":
            inverse = self._reduced_inverse(objective, network, state, m)
            return -inverse.solve(g), self._kappa(inverse, m)
        directions = np.zeros((network.n_local, d + 2))
        whole = objective.n_local == q
        eta = state.eta if whole and state.eta is not None else None
        for k, agent in enumerate(objective.agents):
            inverse = self._worker_inverse(objective, state, int(agent), m, scores, eta)
            directions[k, :d] = -inverse.solve(g)
            directions[k, d] = self._kappa(inverse, m)
            directions[k, d + 1] = inverse.logdet
        if self.average == "determinantal":
            everyone = network.allgather(directions)
            return determinantal_average(everyone[:, :d], everyone[:, d + 1]), float(
                everyone[:, d].mean()
            ) / q
        total = network.total(directions[:, : d + 1], floats_down=d + 1, new_round=False)
        return total[:d] / q, float(total[d]) / q**2

    def _first_directions(
        self, network: Any, state: NewtonState, g: np.ndarray, m: int
    ) -> tuple[np.ndarray, float]:
        """The average over the workers that answered first; kappa is divided by their number."""
        d = g.size
        rows = state.arrivals.collect(state.clock, state.iteration, m, state.b, g)
        network.ledger.record_phase(d + 2, 2 * d + 2, new_round=False)
        kappa = float(rows[:, d].mean()) / len(rows)
        if self.average == "determinantal":
            return determinantal_average(rows[:, :d], rows[:, d + 1]), kappa
        return rows[:, :d].mean(axis=0), kappa

    def _worker_inverse(
        self,
        objective: GLM,
        state: NewtonState,
        agent: int,
        m: int,
        scores: Scores,
        eta: np.ndarray | None,
    ) -> DebiasedInverse:
        seed = np.random.SeedSequence(self.seed, spawn_key=(state.iteration, agent))
        if self.mode == "local":
            return self._local_inverse(objective, state.b, agent)
        sketch = make_sketch(self.sketch, m, scores, objective.n_samples, self.s, self.on_heavy)
        return sketch_direction(objective, state.b, eta, sketch, scores, self.debias, seed, self.on_heavy)

    def _local_inverse(self, objective: GLM, b: np.ndarray, agent: int) -> DebiasedInverse:
        """The worker's own rows as a sample without replacement: factor n_k (1 - d_eff/n) / (n_k - d_eff)."""
        from optikit.sketching import effective_dimension_from_gram

        rows, n = objective.block(agent), objective.n_samples
        size = rows.stop - rows.start
        scale = objective.root_weights(objective.margins(b, rows), rows)
        G = self._gram(objective, rows, scale) * (n / size)
        C = np.diag(objective.penalty)
        d_eff = effective_dimension_from_gram(G, C, size)
        if size <= d_eff:
            raise SketchTooSmall(size, d_eff)
        factor = 1.0 if self.debias == "none" else size * (1.0 - d_eff / n) / (size - d_eff)
        return DebiasedInverse(factor * G, C, size, d_eff, "none" if self.debias == "none" else "local")

    @staticmethod
    def _gram(objective: GLM, rows: slice, scale: np.ndarray) -> np.ndarray:
        X = objective.X[rows]
        G = gram(X, scale)
        if not objective.intercept:
            return G
        w = scale * scale
        cross = np.asarray(X.T @ w.astype(X.dtype), dtype=np.float64)
        return np.block([[G, cross[:, None]], [cross[None, :], np.array([[w.sum()]])]])

    def _exact_inverse(self, objective: GLM, network: Any, eta: np.ndarray) -> DebiasedInverse:
        rows = objective.rows
        G = self._gram(objective, rows, objective.root_weights(eta, rows))
        G = network.sum(self._one_of(network, G))
        return DebiasedInverse(G, np.diag(objective.penalty), objective.n_samples, math.nan, "none")

    def _reduced_inverse(self, objective: GLM, network: Any, state: NewtonState, m: int) -> DebiasedInverse:
        """One sketch of all rows, summed over the ranks: q ranks behave as one worker."""
        seed = np.random.SeedSequence(self.seed, spawn_key=(state.iteration, 0))
        sketch = make_sketch(self.sketch, m, Scores(), objective.n_samples, self.s, self.on_heavy)
        operator, rows = sketch.draw(objective.n_samples, seed), objective.rows
        assert isinstance(operator, ColumnSparseOperator)
        own = ColumnSparseOperator(operator.rows[rows], operator.values[rows], m)
        scale = objective.root_weights(objective.margins(state.b, rows), rows)
        X = objective.X[rows]
        ones = own.apply(np.ones((X.shape[0], 1)), scale) if objective.intercept else None
        part = objective.with_intercept(own.apply(X, scale), ones)
        (At,) = self._reduced(network, np.asarray(part, dtype=np.float64))
        C = np.diag(objective.penalty)
        return debiased(At, C, sketch, operator, Scores(), self.debias, objective.n_samples, self.on_heavy)

    def _kappa(self, inverse: DebiasedInverse, m: int) -> float:
        """Relative variance of one direction, ``d_eff / (m - d_eff)``."""
        d_eff = inverse.d_eff if math.isfinite(inverse.d_eff) else float(inverse.gram.shape[0])
        size = max(inverse.m, m) if self.mode != "local" else inverse.m
        return d_eff / max(size - d_eff, 1e-12)

    # -- steps ---------------------------------------------------------------------------------------------

    def _slow(self, state: NewtonState, decrement: float, kappa: float, mu: float, exact: bool) -> int:
        """Iterations in a row, in the local phase, that contracted twice worse than predicted."""
        if exact or not math.isfinite(state.decrement) or state.decrement <= 0 or kappa <= 0:
            return 0
        untouched = mu == 1.0 / (1.0 + kappa)
        predicted = kappa / (1.0 + kappa)
        floor = 1e-14 * max(1.0, abs(state.value))
        slow = untouched and decrement > 2.0 * predicted * state.decrement and decrement > floor
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
            start = network.sum(
                self._one_of(network, np.array([objective.loss_sum(state.eta, objective.rows)]))
            )
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
        if state.largest_margin > SEPARABLE_MARGIN:
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
            self._scored = (iteration, method._scores(self.objective, b, state))
        inverse = method._worker_inverse(self.objective, state, worker, m, self._scored[1], None)
        return np.concatenate([-inverse.solve(g), [method._kappa(inverse, m), inverse.logdet]])
