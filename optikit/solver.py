"""The one driver: iterate, record, stop, checkpoint, resume, report progress.

A method derives from `IterativeSolver` and writes its mathematics only: `init` makes the state, `step` is
one iteration with the paper's equations, `metrics` says what a record holds. Everything else about a run
is decided here, once, for every method.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from optikit._run import Run
from optikit.arrays import array_namespace, as_float_array
from optikit.checkpoint import cached, per_agent, replicated
from optikit.network import Network
from optikit.objectives.base import Objective
from optikit.result import Certificate, Result
from optikit.validation import check_integer, check_real

__all__ = ["IterativeSolver", "Progress", "cached", "per_agent", "replicated"]


@dataclass(frozen=True)
class Progress:
    """What a callback sees after a check.

    Attributes
    ----------
    iteration, round : int
        Steps done, and communication rounds used.
    metrics : dict of str to float
        The latest record.
    state : object
        The method's state; read it, do not change it.
    """

    iteration: int
    round: int
    metrics: dict[str, float]
    state: Any


class IterativeSolver(ABC):
    """Base of every iterative method: a frozen dataclass of hyper-parameters with `init` and `step`.

    Attributes
    ----------
    name : str
        The method's name in reports and on the command line.
    stacked : bool
        True when each agent has an iterate of its own, ``(n_local, d)``; False for a server method, whose
        iterate ``(d,)`` is replicated.
    needs_topology : bool
        Whether the method exchanges with neighbours, so that a `Network` with a graph must be given.
    kinds : tuple of str or None
        Kinds of matrices that the method's theory covers ("mixing", "row", "col", "gossip"); None where
        `validate` decides.
    criterion : str or None
        The record's entry that ``tol`` is compared with; None when the method has no optimality measure.
    resumable : bool
        False when a state holds more than a checkpoint can store.
    in_place : bool
        True when `step` overwrites the arrays of the state it was given; the driver then copies the state
        at each check, to have a finite one to return after a divergence.
    """

    name: ClassVar[str] = "solver"
    stacked: ClassVar[bool] = True
    needs_topology: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...] | None] = None
    criterion: ClassVar[str | None] = None
    resumable: ClassVar[bool] = True
    in_place: ClassVar[bool] = False

    # -- what a method writes -----------------------------------------------------------------------------

    @abstractmethod
    def init(self, objective: Any, network: Network, x0: Any) -> Any:
        """The state before the first iteration, a dataclass of `per_agent`, `replicated`, `cached` fields.

        `x0` is an array of shape ``(n_local, d)``, or ``(d,)`` for a server method; it must not be modified.
        """

    @abstractmethod
    def step(self, objective: Any, network: Network, state: Any) -> Any:
        """One iteration; returns the next state."""

    @abstractmethod
    def iterate(self, state: Any) -> Any:
        """The current iterate, ``(n_local, d)`` or ``(d,)``."""

    def validate(self, objective: Any, network: Network) -> None:  # noqa: B027 (an optional hook)
        """Check the hyper-parameters against the problem, before any work."""

    def metrics(
        self, objective: Any, network: Network, state: Any, *, final: bool = False
    ) -> dict[str, float] | None:
        """One record: objective at the mean iterate, and consensus error.

        A method may name the round that a record describes by an entry ``"round"``, and may return None
        while there is nothing to record. `final` asks for exact values at the final iterate.
        """
        x = self.iterate(state)
        if not self.stacked:
            return {"objective": float(network.mean(objective.value(x)))}
        mean = network.mean(x)
        xp = array_namespace(x)
        scatter = network.sum(xp.sum((x - mean) ** 2))
        return {
            "objective": float(network.mean(objective.value(mean))),
            "consensus_error": math.sqrt(float(scatter) / network.n_agents),
        }

    def converged(self, metrics: dict[str, float], tol: float) -> bool:
        """Whether a record meets the tolerance; the criterion is at most `tol` by default."""
        return metrics.get(self.criterion or "", math.nan) <= tol

    def finished(self, state: Any, metrics: dict[str, float]) -> str | None:
        """A reason to stop that only the method knows, or None; decided from reduced numbers only."""
        return None

    def restored(self, objective: Any, network: Network, state: Any) -> Any:
        """The state read from a checkpoint, with `cached` fields that depend on the iterate computed again.

        Cached fields come from `init`, that is from the starting point; this is the place to renew those that
        moved since.
        """
        return state

    def polish(self, objective: Any, network: Network, state: Any) -> Any:
        """A last improvement of the final state, outside the iteration; the state itself by default."""
        return state

    def solution(self, objective: Any, network: Network, state: Any) -> Any:
        """The answer: the mean over agents, or the replicated iterate."""
        x = self.iterate(state)
        return network.mean(x) if self.stacked else x

    def certificate(self, objective: Any, network: Network, state: Any) -> Certificate | None:
        """What is guaranteed about the solution, where theory gives something."""
        return None

    # -- what every method gets ---------------------------------------------------------------------------

    def solve(
        self,
        objective: Any,
        network: Network | None = None,
        x0: Any = None,
        *,
        max_rounds: int | None = 1000,
        max_iterations: int | None = None,
        tol: float | None = None,
        max_seconds: float | None = None,
        max_floats: float | None = None,
        max_stall: int | None = None,
        record_every: int | str = 1,
        check_every: int | None = None,
        history_size: int = 10_000,
        callback: Callable[[Progress], bool | None] | None = None,
        progress: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 100,
        resume: bool = False,
    ) -> Result:
        """Run the method.

        The run starts at round 0 of the network's sequence, whatever the network was used for before. On
        several ranks every rank calls `solve` with the same arguments.

        Parameters
        ----------
        objective : Objective
            What the agents minimise; the part of this rank is taken by itself.
        network : Network, optional
            Agents, links and communicator. Server methods need none: by default the agents are spread over
            the ranks that the program was started on.
        x0 : array, shape (d,) or (n_agents, d), optional
            Starting point; zeros by default. One vector serves every agent.
        max_rounds, max_iterations : int or None
            Limits on communication rounds (default 1000) and on steps (default none); at least 0.
        tol : float, optional
            Stop when the method's `criterion` is at most `tol`.
        max_seconds, max_floats : float, optional
            Budgets of wall time, and of logical floats sent by all agents together.
        max_stall : int, optional
            Stop after this many checks without a new best value of the criterion (or the objective).
        record_every : int or "log", default 1
            Iterations between records; "log" records about twenty times per decade.
        check_every : int, optional
            Iterations between tests of the stopping rules (each costs one evaluation of `metrics`); by
            default they are tested at every record.
        history_size : int, default 10000
            Largest number of records held; longer runs are thinned evenly.
        callback : callable, optional
            Called after each check with a `Progress`; returning True, or raising StopIteration, stops.
        progress : bool, default False
            Show a progress bar (root rank only).
        checkpoint : path, optional
            File to write the state to every `checkpoint_every` iterations (default 100) and at the end.
        resume : bool, default False
            Continue from `checkpoint` if that file exists. The run then ends with bitwise the iterates of
            an uninterrupted one (to rounding where a method computes cached quantities anew). A checkpoint of
            another problem, method or network is refused.

        Returns
        -------
        Result

        Raises
        ------
        ValueError, TypeError
            For arguments out of range or of the wrong shape, before any work.
        CheckpointError
            When the checkpoint cannot be read or belongs to another run.
        """
        if not isinstance(objective, Objective):
            raise TypeError(
                f"objective must be an Objective (such as LinearModel), got {type(objective).__name__}."
            )
        if network is not None and not isinstance(network, Network):
            raise TypeError(f"network must be a Network, got {type(network).__name__}; use Network(graph).")
        if network is None:
            if self.needs_topology:
                raise ValueError(
                    f"{self.name} exchanges with neighbours: pass network=Network(graph), got network=None."
                )
            network = Network(n_agents=objective.n_agents)
        if self.needs_topology and network.topology is None:
            raise ValueError(f"{self.name} exchanges with neighbours: its network needs a graph, got none.")
        if network.n_agents != objective.n_agents:
            raise ValueError(
                f"objective and network must have the same agents, got {objective.n_agents} and "
                f"{network.n_agents}."
            )
        run = Run(
            max_rounds=_limit(max_rounds, "max_rounds"),
            max_iterations=_limit(max_iterations, "max_iterations"),
            tol=None if tol is None else check_real(tol, "tol", minimum=0.0),
            max_seconds=None if max_seconds is None else check_real(max_seconds, "max_seconds", minimum=0.0),
            max_floats=None if max_floats is None else check_real(max_floats, "max_floats", minimum=0.0),
            max_stall=None if max_stall is None else check_integer(max_stall, "max_stall", minimum=1),
            record_every=_interval(record_every),
            check_every=None if check_every is None else check_integer(check_every, "check_every", minimum=1),
            history_size=check_integer(history_size, "history_size", minimum=4),
            callback=callback,
            progress=progress,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            checkpoint_every=check_integer(checkpoint_every, "checkpoint_every", minimum=1),
            resume=resume,
        )
        if all(limit is None for limit in (max_rounds, max_iterations, max_seconds, max_floats, tol)):
            raise ValueError(
                "a run needs an end: give max_rounds, max_iterations, max_seconds, max_floats or tol."
            )
        if tol is not None and self.criterion is None:
            raise ValueError(f"{self.name} has no optimality measure to compare tol with; got tol={tol!r}.")
        if resume and checkpoint is None:
            raise ValueError("resume=True needs checkpoint=PATH.")
        if checkpoint is not None and not self.resumable:
            raise ValueError(f"{self.name} cannot be checkpointed yet; got checkpoint={str(checkpoint)!r}.")
        if checkpoint is not None:
            target = Path(checkpoint).resolve()
            if not target.parent.is_dir():
                raise ValueError(f"checkpoint must lie in an existing folder, got {str(checkpoint)!r}.")
            if target.exists() and not target.is_file():
                raise ValueError(
                    f"checkpoint must be a file, got {str(checkpoint)!r}, which is something else."
                )
        objective = network.objective_for(objective)
        if self.kinds is not None:
            network.require_kind(*self.kinds, by=self.name)
        self.validate(objective, network)
        start = self._start(objective, network, x0)
        network.reset()
        return run.execute(self, objective, network, start)

    def describe(self) -> str:
        """Name and hyper-parameters as JSON, for digests and reports."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        return json.dumps({"solver": type(self).__name__, **values}, default=_described, sort_keys=True)

    def snapshot(self, state: Any) -> Any:
        """The state as it is now, safe from later steps."""
        return deepcopy(state) if self.in_place else state

    def _start(self, objective: Any, network: Network, x0: Any) -> Any:
        xp, n, d = objective.xp, network.n_agents, objective.dim
        if x0 is None:
            return xp.zeros((network.n_local, d) if self.stacked else (d,), dtype=objective.dtype)
        x0 = as_float_array(x0, name="x0", xp=xp)
        if x0.shape == (d,):
            return xp.broadcast_to(x0, (network.n_local, d)) + 0.0 if self.stacked else x0
        if self.stacked and x0.shape == (n, d):
            return network.scatter(x0)
        shapes = f"({d},) or ({n}, {d})" if self.stacked else f"({d},)"
        raise ValueError(f"x0 must have shape {shapes}, got {tuple(x0.shape)}.")


def _limit(value: int | None, name: str) -> int | None:
    return None if value is None else check_integer(value, name, minimum=0)


def _interval(value: int | str) -> int | str:
    if value == "log":
        return value
    if isinstance(value, str):
        raise ValueError(f"record_every must be a positive integer or 'log', got {value!r}.")
    return check_integer(value, "record_every", minimum=1)


def _described(value: Any) -> Any:
    """Arrays and callables of a configuration in a form that JSON holds."""
    if hasattr(value, "describe"):
        return value.describe()
    if hasattr(value, "shape"):
        from optikit.arrays import to_numpy

        return to_numpy(value).tolist()
    return repr(value) if not callable(value) else getattr(value, "__qualname__", type(value).__name__)
