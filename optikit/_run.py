"""One run of one method: the loop behind `IterativeSolver.solve`.

Decisions that end a run are taken from reduced numbers, or agreed by one small reduction at each check, so
that all ranks take the same branch.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optikit.arrays import array_namespace
from optikit.checkpoint import (
    CheckpointError,
    digest_of,
    pack_state,
    read_checkpoint,
    unpack_state,
    write_checkpoint,
)
from optikit.result import STATUSES, History, Result
from optikit.runtime.communicator import abort_on_error, raised_on_every_rank

RECORDS_PER_DECADE = 20


@dataclass
class Run:
    """Limits and habits of one run, and its loop. Arguments as in `IterativeSolver.solve`."""

    max_rounds: int | None
    max_iterations: int | None
    tol: float | None
    max_seconds: float | None
    max_floats: float | None
    max_stall: int | None
    record_every: int | str
    check_every: int | None
    history_size: int
    callback: Callable[[Any], bool | None] | None
    progress: bool
    checkpoint: Path | None
    checkpoint_every: int
    resume: bool

    def execute(self, solver: Any, objective: Any, network: Any, x0: Any) -> Result:
        self.solver, self.objective, self.network = solver, objective, network
        self.iteration, self.detail = 0, ""
        self.status: str | None = None
        self.history = History(self.history_size)
        self.latest: dict[str, float] = {}
        self.best, self.since_best = math.inf, 0
        self.began, self.gradients = time.perf_counter(), 0
        # A diverging run overflows before a check sees it; the check reports it, a warning would only repeat.
        quiet = np.errstate(over="ignore", invalid="ignore")
        with abort_on_error(network.communicator), _Interrupts() as self.interrupts, quiet:
            self.state = solver.init(objective, network, x0)
            self.identity = self._identity() if self.checkpoint is not None else ""
            if not (self.resume and self._load()):
                self.good = solver.snapshot(self.state)
                self._check(record=True)
            with self._bar() as self.bar:
                self._loop()
            return self._finish()

    # -- the loop -----------------------------------------------------------------------------------------

    def _loop(self) -> None:
        solver, objective, network = self.solver, self.objective, self.network
        step, state, alone = solver.step, self.state, network.size == 1
        interrupts, round_limit = (
            self.interrupts,
            self.max_rounds if self.max_rounds is not None else math.inf,
        )
        while self.status is None:
            pause = self._next_pause()
            iteration = self.iteration
            try:
                while iteration < pause and network.round < round_limit:
                    state = step(objective, network, state)
                    iteration += 1
                    if interrupts.seen and alone:
                        break
            except FloatingPointError as error:
                if not alone:  # the other ranks may be waiting in an exchange: end them all
                    raise
                self.status, self.detail = "diverged", str(error)
                break
            self.state, self.iteration = state, iteration
            at_limit = network.round >= round_limit or iteration == self.max_iterations
            recording = iteration >= self._next_record
            if recording or at_limit or self._due(iteration, self.check_every):
                self._check(record=recording)
            elif interrupts.seen and alone:
                self.status = "interrupted"
            if self.status is None and at_limit:
                self.status = "max_iterations" if iteration == self.max_iterations else "max_rounds"
            if (
                self.checkpoint is not None
                and self.status is None
                and self._due(iteration, self.checkpoint_every)
            ):
                self._save()

    @staticmethod
    def _due(iteration: int, interval: int | None) -> bool:
        return interval is not None and iteration % interval == 0

    def _next_pause(self) -> float:
        """The next iteration at which anything but a step has to happen."""
        pauses = [self._next_record]
        if self.max_iterations is not None:
            pauses.append(self.max_iterations)
        if self.check_every is not None:
            pauses.append((self.iteration // self.check_every + 1) * self.check_every)
        if self.checkpoint is not None:
            pauses.append((self.iteration // self.checkpoint_every + 1) * self.checkpoint_every)
        return min(pauses)

    def _schedule_record(self) -> None:
        k = self.iteration
        if isinstance(self.record_every, int):
            self._next_record = (k // self.record_every + 1) * self.record_every
        else:
            self._next_record = max(k + 1, math.ceil(k * 10 ** (1 / RECORDS_PER_DECADE)))

    # -- checks and records -------------------------------------------------------------------------------

    def _check(self, *, record: bool, final: bool = False) -> None:
        """Evaluate the metrics, test every stopping rule, keep the record if it is due."""
        solver, network = self.solver, self.network
        metrics = solver.metrics(self.objective, network, self.state, final=final)
        if metrics is not None:
            self.latest = dict(metrics)
            if record or final:
                self._record(metrics, last=final)
        if record:
            self._schedule_record()
        if final:
            return
        value = math.nan if metrics is None else metrics.get(solver.criterion or "objective", math.nan)
        stop_word = self._agree(self._called_back())
        if stop_word["diverged"] or (metrics is not None and not _finite(metrics, solver.criterion)):
            self.status = "diverged"
            return
        if metrics is not None:
            self.good = solver.snapshot(self.state)
        if metrics is not None and self._meets_tolerance(metrics):
            self.status = "converged"
        elif stop_word["interrupted"]:
            self.status = "interrupted"
        elif stop_word["callback"]:
            self.status = "callback"
        elif stop_word["late"]:
            self.status, self.detail = "budget", f"{self.max_seconds:g} seconds"
        elif self.max_floats is not None and network.ledger.total_floats >= self.max_floats:
            self.status, self.detail = "budget", f"{self.max_floats:g} floats"
        elif metrics is not None and (reason := solver.finished(self.state, metrics)):
            self.status, self.detail = "finished", reason
        elif self.max_stall is not None and self._stalled(value):
            self.status = "stalled"
        if self.bar is not None:
            self.bar.n = min(network.round, self.bar.total or network.round)
            self.bar.set_postfix_str(f"objective {self.latest.get('objective', math.nan):.4g}")

    def _meets_tolerance(self, metrics: dict[str, float]) -> bool:
        """Whether the iterate that would be returned meets the tolerance.

        A record may describe an earlier round than the iterate (its value came free with a message); the
        iterate itself is then evaluated before the run is called converged.
        """
        if self.tol is None or not self.solver.converged(metrics, self.tol):
            return False
        if metrics.get("round", self.network.round) == self.network.round:
            return True
        exact = self.solver.metrics(self.objective, self.network, self.state, final=True)
        return self.solver.converged(exact, self.tol)

    bar: Any = None
    extra_record = False  # the last record closes this run only; a longer run would not have made it
    good: Any = None
    _next_record: float = 0

    def _record(self, metrics: dict[str, float], *, last: bool) -> None:
        ledger, network = self.network.ledger, self.network
        row = {
            "iteration": float(self.iteration),
            "round": float(network.round),
            "seconds": time.perf_counter() - self.began,
            "floats_sent": float(ledger.total_floats),
            "messages": float(ledger.messages),
            "gradients": float(getattr(self.objective.calls, "gradients", math.nan)),
        }
        row.update(metrics)
        if last and len(self.history) and self.history["round"][-1] == row["round"]:
            return
        self.history.append(row, last=last)

    def _called_back(self) -> bool:
        if self.callback is None:
            return False
        from optikit.solver import Progress

        try:
            return bool(self.callback(Progress(self.iteration, self.network.round, self.latest, self.state)))
        except StopIteration:
            return True

    def _agree(self, callback: bool) -> dict[str, bool]:
        """Facts that ranks may see differently, made the same everywhere by one reduction."""
        x = self.solver.iterate(self.state)
        late = self.max_seconds is not None and time.perf_counter() - self.began >= self.max_seconds
        word = np.array([not _all_finite(x), self.interrupts.seen, callback, late], dtype=np.float64)
        if self.network.size > 1:
            word = self.network.max(word[None, :])  # over ranks, entry by entry
        return dict(zip(("diverged", "interrupted", "callback", "late"), (bool(bit) for bit in word)))

    def _stalled(self, value: float) -> bool:
        if value < self.best:
            self.best, self.since_best = value, 0
        else:
            self.since_best += 1
        return self.since_best >= (self.max_stall or math.inf)

    def _bar(self) -> Any:
        if not (self.progress and self.network.is_root):
            return _NoBar()
        from tqdm.auto import tqdm

        return tqdm(total=self.max_rounds, initial=self.network.round, desc=self.solver.name, unit="round")

    def _finish(self) -> Result:
        assert self.status is not None
        if self.status == "diverged":
            self.state = self.good
        else:
            records = len(self.history)
            self._check(record=False, final=True)
            self.extra_record = len(self.history) > records
            if self.checkpoint is not None:
                self._save()  # before the polish: a longer run goes on from here
            polished = self.solver.polish(self.objective, self.network, self.state)
            if polished is not self.state:
                self.state = polished
                self._check(record=False, final=True)
        solver, network = self.solver, self.network
        message = STATUSES[self.status] + (f": {self.detail}" if self.detail else "")
        return Result(
            x=solver.solution(self.objective, network, self.state),
            iterate=solver.iterate(self.state),
            status=self.status,
            message=message,
            iterations=self.iteration,
            rounds=network.round,
            objective=float(self.history["objective"][-1]) if "objective" in self.history else math.nan,
            history=self.history,
            certificate=solver.certificate(self.objective, network, self.state),
            ledger=network.ledger,
            seconds=time.perf_counter() - self.began,
            state=self.state,
            solver=solver,
        )

    # -- checkpoints --------------------------------------------------------------------------------------

    def _identity(self) -> str:
        """Digest of what is solved: method, hyper-parameters, data, topology; the same on all ranks."""
        network = self.network
        data = network.fingerprint_of(self.objective)
        return digest_of(self.solver.describe(), data, str(network.n_agents), network.fingerprint())

    def _save(self) -> None:
        network = self.network
        scalars, arrays = pack_state(self.state, network)
        columns, counters = self.history.state()
        network_state = network.state()
        if network.is_root:
            header = {
                "identity": self.identity,
                "solver": self.solver.describe(),
                "iteration": self.iteration,
                "seconds": time.perf_counter() - self.began,
                "next_record": self._next_record,
                "best": self.best,
                "since_best": self.since_best,
                "extra_record": self.extra_record,
                "scalars": scalars,
                "history": counters,
                "network": network_state,
            }
            arrays |= {f"history.{name}": column for name, column in columns.items()}
            assert self.checkpoint is not None
            write_checkpoint(self.checkpoint, header, arrays)

    def _load(self) -> bool:
        network, path = self.network, self.checkpoint
        assert path is not None
        found = network.communicator.bcast(_read(path) if network.is_root else None, root=0)
        if found is None:
            return False
        if isinstance(found, CheckpointError):
            raise raised_on_every_rank(found)
        header, arrays = found
        if header["identity"] != self.identity:
            raise raised_on_every_rank(
                CheckpointError(
                    f"{path} belongs to another run: it was written by {header['solver']} on its data and "
                    f"network; this run is {self.solver.describe()}. Remove it or pass another checkpoint."
                )
            )
        prefix = "history."
        columns = {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}
        self.history = History.restored(columns, header["history"])
        if header["extra_record"]:
            self.history.drop_last()
        state = unpack_state(self.state, header["scalars"], arrays, network)
        self.state = self.solver.restored(self.objective, network, state)
        self.iteration, self._next_record = header["iteration"], header["next_record"]
        self.best, self.since_best = header["best"], header["since_best"]
        self.began = time.perf_counter() - header["seconds"]
        network.restore(header["network"])
        self.good = self.solver.snapshot(self.state)
        return True


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | CheckpointError | None:
    """The checkpoint, why it cannot be read, or None where there is none."""
    if not path.exists():
        return None
    try:
        return read_checkpoint(path)
    except CheckpointError as error:
        return CheckpointError(str(error))


def _finite(metrics: dict[str, float], criterion: str | None) -> bool:
    """A record is sound when its objective and criterion, where present, are not NaN or +inf."""
    watched = {"objective", criterion}
    return all(value < math.inf for name, value in metrics.items() if name in watched)


def _all_finite(x: Any) -> bool:
    xp = array_namespace(x)
    # One pass: an infinite or NaN entry makes the sum non-finite; a finite sum that overflows is as bad.
    return math.isfinite(float(xp.sum(xp.abs(x)))) if x.size else True


class _NoBar:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        return None


class _Interrupts:
    """Ctrl-C sets a flag that the loop reads between two steps; a second one interrupts at once."""

    def __init__(self) -> None:
        self.seen = False
        self._previous: Any = None

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: Any) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
