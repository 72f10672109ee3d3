"""What the methods that average local work once a round have in common.

One round is local work of every client from the server's iterate w_r and one sum over the clients of
``[p_m (v_m - w_r), p_m F_m(w_r)]``, d + 1 numbers: there is no server process, every rank holds w_r. A method
says what the local work is (`LocalMethod.contributions`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from optikit.arrays import array_namespace, to_numpy
from optikit.result import Certificate
from optikit.solver import IterativeSolver, cached, replicated
from optikit.validation import check_choice, check_probability_vector, check_real
from solvers.federated.local_solvers import is_logistic, signed_targets
from solvers.federated.margin import Margin, NotSeparableError, pooled_margin

#: The margin is found by itself when the data have at most this many entries (a fraction of a second).
MARGIN_ENTRIES = 2_000_000
#: Objectives below this are close to the smallest float: their logarithm is taken from the margins.
SMALL_OBJECTIVE = 1e-280


@dataclass(slots=True)
class Setup:
    """What a run prepares once.

    Attributes
    ----------
    local : callable
        Local steps, see `solvers.federated.local_solvers`.
    weights : numpy.ndarray, shape (n_local,)
    smallest_weight : float
        Smallest positive p_m of all clients; 1/M for uniform weights.
    scale : float
        B, what the rows are divided by (1 without normalisation).
    margin : Margin or None
        The pooled margin where it was asked for and exists.
    separable : bool or None
        None when it was not checked.
    theta : float
        Loss at which a two-stage method switches, NaN for others.
    predicted_switch : int or None
        Round at which theory expects it to, or has it, switch.
    """

    local: Any
    weights: np.ndarray
    smallest_weight: float
    scale: float
    largest_norm: float
    margin: Margin | None = None
    separable: bool | None = None
    theta: float = math.nan
    predicted_switch: int | None = None

    @property
    def gamma(self) -> float | None:
        """Margin of the normalised data, the paper's gamma."""
        return None if self.margin is None else self.margin.gamma / self.scale


@dataclass(slots=True)
class LocalState:
    """The server's iterate w_r and what belongs to it.

    Attributes
    ----------
    w : array, shape (d,)
    round : int
        r.
    objective : float
        ``F(w_{r-1})``, which came with the last message; NaN before the first.
    previous : array, shape (d,)
        ``w_{r-1}``, the iterate that `objective` belongs to.
    average : array, shape (d,), or None
        Mean of w_0..w_r where asked for.
    """

    w: Any = replicated()
    round: int = replicated()
    objective: float = replicated()
    previous: Any = replicated()
    average: Any = replicated()
    setup: Any = cached()


@dataclass(frozen=True, kw_only=True)
class LocalMethod(IterativeSolver):
    """Base of the methods that average local work once a round.

    Parameters
    ----------
    weights : {"uniform", "samples"} or array, shape (n_agents,), default "uniform"
        Client weights p_m: 1/M (the papers), ``n_m / N``, or given (non-negative, sum 1).
    normalize : bool, default True
        Divide the rows by their largest norm, so that the theory's ``||x|| <= 1`` holds; steps and margins
        refer to the divided rows, the result to the rows given. False warns if a norm exceeds 1.
    average : bool, default False
        Keep the running average of w_0..w_r, in the certificate's details.
    margin : bool or "auto", default "auto"
        Find the pooled margin before the run (see `solvers.federated.margin`); "auto" does so for data of at
        most two million entries. Data that are not separable get a warning.
    gamma : float, optional
        The margin of the pooled, normalised rows, if it is known already.
    record_margin : bool, default False
        Add ``normalized_margin``, min_i y_i <x_i, w> / (||w|| B), to every record: a lower bound on gamma
        that proves separability once it is positive. Each costs a pass over the data and an uncounted
        reduction.
    """

    stacked: ClassVar[bool] = False
    needs_topology: ClassVar[bool] = False
    criterion: ClassVar[str | None] = "objective"
    needs_margin: ClassVar[bool] = False

    weights: str | Sequence[float] = "uniform"
    normalize: bool = True
    average: bool = False
    margin: bool | str = "auto"
    gamma: float | None = None
    record_margin: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.weights, str):
            check_choice(self.weights, "weights", ("uniform", "samples"))
        else:
            object.__setattr__(self, "weights", tuple(np.asarray(self.weights, dtype=np.float64).tolist()))
        check_choice(self.margin, "margin", (True, False, "auto"))
        if self.gamma is not None:
            check_real(self.gamma, "gamma", minimum=0.0, maximum=1.0, open_low=True)

    # -- before the first round ---------------------------------------------------------------------------

    def validate(self, objective: Any, network: Any) -> None:
        if not isinstance(self.weights, str):
            check_probability_vector(self.weights, "weights", objective.n_agents)
        elif self.weights == "samples" and not hasattr(objective, "data"):
            raise ValueError("weights='samples' needs an objective with data, got one without.")
        if is_logistic(objective):
            signed_targets(objective.data)
        elif self.needs_margin:
            raise ValueError(f"{self.name} needs the unregularised logistic loss of a linear model.")

    def make_local(self, objective: Any, weights: np.ndarray) -> Any:
        """The clients' local work, see `solvers.federated.local_solvers`."""
        raise NotImplementedError

    def init(self, objective: Any, network: Any, x0: Any) -> LocalState:
        return LocalState(x0, 0, math.nan, x0, x0 if self.average else None, self._setup(objective, network))

    def _setup(self, objective: Any, network: Any) -> Setup:
        whole = self._all_weights(objective, network)
        weights = np.asarray(network.scatter(whole))
        largest = _largest_norm(objective.data, network) if is_logistic(objective) else 1.0
        if largest > 1.0 + 1e-12 and not self.normalize:
            warnings.warn(
                f"rows have norms up to {largest:.4g} > 1 and normalize=False: the theory's step sizes and "
                "rates assume norms of at most 1.",
                UserWarning,
                stacklevel=2,
            )
        scale = largest if self.normalize and largest > 0.0 else 1.0
        local = self.make_local(objective, weights)
        setup = Setup(local, weights, float(whole[whole > 0].min()), scale, largest)
        self._find_margin(objective, network, setup)
        return setup

    def _all_weights(self, objective: Any, network: Any) -> np.ndarray:
        n = network.n_agents
        if isinstance(self.weights, str):
            if self.weights == "uniform":
                return np.full(n, 1.0 / n)
            sizes = np.asarray(network.allgather(objective.data.sizes.astype(np.float64)))
            return sizes / sizes.sum()
        weights = np.array(self.weights)
        return weights / weights.sum()

    def _find_margin(self, objective: Any, network: Any, setup: Setup) -> None:
        if not is_logistic(objective):
            return
        if self.gamma is not None:
            setup.separable = True
            d = objective.dim
            setup.margin = Margin(
                self.gamma * setup.scale, np.full(d, math.nan), np.empty(0), setup.largest_norm
            )
            return
        data = objective.data
        entries = float(network.sum(float(data.n_samples * data.dim)))
        if not (
            self.needs_margin or self.margin is True or (self.margin == "auto" and entries <= MARGIN_ENTRIES)
        ):
            return
        try:
            setup.margin = pooled_margin(replace_targets(data), network)
            setup.separable = True
        except NotSeparableError:
            if self.needs_margin:
                raise
            setup.separable = False
            warnings.warn(
                "the pooled data are not linearly separable: the method runs, but no rate applies.",
                UserWarning,
                stacklevel=2,
            )

    # -- rounds -------------------------------------------------------------------------------------------

    def contributions(self, state: LocalState) -> Any:
        """Rows ``[p_m (v_m - w_r), p_m F_m(w_r)]`` of this rank's clients."""
        raise NotImplementedError

    def step(self, objective: Any, network: Any, state: LocalState) -> LocalState:
        """Local work of every client, and one sum of ``d + 1`` numbers over them."""
        w = state.w
        total = network.total(self.contributions(state), floats_down=w.shape[0])
        value = float(total[-1])
        if not math.isfinite(value):
            value = diverged(value, state.round, network)
        new, r = w + total[:-1], state.round + 1
        average = None if state.average is None else state.average + (new - state.average) / (r + 1)
        return LocalState(new, r, value, w, average, state.setup)

    def iterate(self, state: LocalState) -> Any:
        return state.w

    def metrics(
        self, objective: Any, network: Any, state: LocalState, *, final: bool = False
    ) -> dict[str, float] | None:
        """F and log F at w_{r-1}, which came with the last message; at w_r when `final`."""
        if final:
            value = float(network.sum(state.setup.local.losses(state.w))[0])
            return self._record(objective, network, state, state.round, value, state.w)
        if state.round == 0:
            return None
        return self._record(objective, network, state, state.round - 1, state.objective, state.previous)

    def _record(
        self, objective: Any, network: Any, state: LocalState, r: int, value: float, w: Any
    ) -> dict[str, float]:
        record = {"round": float(r), "objective": value}
        if is_logistic(objective):
            small = value < SMALL_OBJECTIVE
            record["log_objective"] = (
                log_objective(objective, network, w, self._all_weights(objective, network))
                if small
                else math.log(value)
            )
            if self.record_margin:
                record["normalized_margin"] = normalized_margin(
                    objective, network, w, state.setup.largest_norm
                )
        return record

    def certificate(self, objective: Any, network: Any, state: LocalState) -> Certificate | None:
        """F itself is the optimality gap; with the margin and what the iterate proves about it."""
        details: dict[str, Any] = {} if state.average is None else {"average": state.average}
        if not is_logistic(objective):
            return Certificate("local steps", details=details) if details else None
        setup = state.setup
        value = float(network.sum(setup.local.losses(state.w))[0])
        bound = normalized_margin(objective, network, state.w, setup.largest_norm)
        details |= {
            "gamma": setup.gamma,
            "normalized_margin": bound,
            "separable": True if bound > 0 else setup.separable,
            "scale": setup.scale,
        }
        return Certificate("optimality gap", 0.0, value, details)


def diverged(value: float, r: int, network: Any) -> float:
    """A run on one rank ends here; several ranks all see this value and end at their next check."""
    if network.size == 1:
        raise FloatingPointError(f"the objective is {value!r} in round {r}")
    return math.nan


def replace_targets(data: Any) -> Any:
    """The data with their labels coded as {-1, 1}."""
    y = signed_targets(data)
    return data if np.array_equal(y, to_numpy(data.targets)) else replace(data, targets=y)


def _largest_norm(data: Any, network: Any) -> float:
    """Largest norm of a row over all agents."""
    X = data.features
    if sparse.issparse(X):
        local = float(np.asarray(X.multiply(X).sum(axis=1)).max(initial=0.0))
    else:
        xp = array_namespace(X)
        local = float(xp.max(xp.sum(X * X, axis=1))) if data.n_samples else 0.0
    return math.sqrt(float(network.max(local)))


def scores(objective: Any, w: Any) -> np.ndarray:
    """Signed margins ``y_i <x_i, w>`` of the rows here, on the host."""
    data = objective.data
    return signed_targets(data) * to_numpy(data.features @ w)


def normalized_margin(objective: Any, network: Any, w: Any, largest_norm: float) -> float:
    """``min_i y_i <x_i, w> / (||w|| max_i ||x_i||)``: a lower bound on gamma, and a proof if positive."""
    norm = float(np.linalg.norm(to_numpy(w))) * largest_norm
    lowest = float(network.min(scores(objective, w)))
    return lowest / norm if norm > 0.0 else 0.0


def log_objective(objective: Any, network: Any, w: Any, weights: np.ndarray) -> float:
    """log F(w) from the margins, also where F itself underflows (two uncounted reductions)."""
    z = scores(objective, w)
    lowest = float(network.min(z))
    sizes = objective.data.sizes
    each = np.repeat(network.scatter(weights) / sizes, sizes)
    # log(1 + e^-z) = e^-z (1 - ...) to the last bit for z > 40, where this is used.
    terms = np.exp(lowest - z) if lowest > 40.0 else np.logaddexp(0.0, -z)
    total = float(network.sum(float(each @ terms)))
    return math.log(total) - (lowest if lowest > 40.0 else 0.0)
