"""One run from the command line: build the problem, solve it, write what was asked for."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

from optikit.runtime.communicator import default_communicator
from solvers.cli.command import fail
from solvers.registry import Method

BAD_INPUT = (ValueError, TypeError, OSError)


def solve_file(
    method: Method,
    cls: Any,
    parameters: dict[str, Any],
    settings: dict[str, Any],
    *,
    file: Path,
    as_json: bool,
    quiet: bool,
    traceback: bool,
    reference: bool,
    max_rounds: int,
    tol: float | None,
    max_seconds: float | None,
    record_every: str,
    checkpoint: Path | None,
    checkpoint_every: int,
    resume: bool,
    out: Path | None,
    history: Path | None,
    plot: Path | None,
    report: Path | None,
    **options: Any,
) -> int:
    """Run `method` on `file`; returns the exit status (see `solvers.cli.command.run`).

    `parameters` are the method's own, `settings` those of its setup, which completes them from the data.
    """
    communicator = default_communicator()
    root = communicator.Get_rank() == 0
    if not root:
        warnings.simplefilter("ignore")
    problem: Any = None
    solver: Any = None
    error: Exception | None = None
    try:
        _check_outputs(out=out, history=history, plot=plot, report=report)
        setup = method.load_setup()
        if setup is None:
            solver = cls(**parameters)
        if cls.needs_topology and options["graph"] is None:
            raise ValueError(f"{method.name} exchanges with neighbours: name a graph, e.g. --graph ring.")
        if not cls.needs_topology and options["graph"] is not None:
            raise ValueError(f"{method.name} talks to a server: it takes no --graph.")
    except BAD_INPUT as caught:
        error = caught
    # Every constructor that communicates stands behind an agreement that all ranks got there.
    if _agreed_failure(communicator, error, traceback):
        return 2
    try:
        problem = _build(file, options | _links(method), communicator)
    except BAD_INPUT as caught:
        error = caught
    if _agreed_failure(communicator, error, traceback):
        return 2
    limits = {"max_rounds": max_rounds, "tol": tol}
    try:
        if setup is not None:
            solver, changed = setup.build(cls, parameters, settings, problem)
            limits |= changed
        result = solver.solve(
            problem.objective,
            problem.network,
            **limits,
            max_seconds=max_seconds,
            record_every=_record_interval(record_every),
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            progress=not quiet and not as_json and sys.stderr.isatty(),
            callback=_GapPrinter() if method.server and not quiet and not as_json else None,
        )
        optimum = _reference_value(problem, solver, method) if reference else 0.0
    except BAD_INPUT as caught:
        # Arguments are checked alike on every rank, before the ranks talk.
        if traceback:
            raise
        if root:
            fail(str(caught))
        return 2
    if root:
        parameters = {name: getattr(solver, name) for name in parameters}
        _write(method, parameters, problem, result, optimum, as_json, quiet, out, history, plot, report)
        if setup is not None and setup.after is not None:
            setup.after(result, settings)
    if result.status == "interrupted":
        return 130
    return 0 if result.success else 1


def _build(file: Path, options: dict[str, Any], communicator: Any) -> Any:
    from solvers.cli.problem import build_problem

    return build_problem(file, communicator=communicator, **options)


def _links(method: Method) -> dict[str, Any]:
    return {
        "kind": method.links,
        "ridge_in_method": method.ridge is not None,
        "whole_data": method.whole_data,
        "server": method.server,
    }


def _agreed_failure(communicator: Any, error: Exception | None, traceback: bool) -> bool:
    """Whether any rank failed; the first one that did says why."""
    failures = communicator.allgather(None if error is None else str(error) or type(error).__name__)
    first = next((rank for rank, message in enumerate(failures) if message is not None), None)
    if first is None:
        return False
    if communicator.Get_rank() == first:
        if traceback and error is not None:
            raise error
        fail(failures[first])
    return True


def _record_interval(text: str) -> int | str:
    if text == "log":
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--record-every must be a positive integer or log, got {text!r}.") from None


def _check_outputs(**paths: Path | None) -> None:
    for name, path in paths.items():
        if path is not None and not os.access(path.resolve().parent, os.W_OK):
            raise ValueError(
                f"--{name} must lie in an existing folder that can be written to, got {str(path)!r}."
            )


class _GapPrinter:
    """A line whenever the certified gap has fallen to less than half of the last one shown."""

    def __init__(self) -> None:
        self.shown = float("inf")

    def __call__(self, progress: Any) -> None:
        found = progress.metrics
        gap = found.get("gap")
        if gap is None or not gap <= 0.5 * self.shown:
            return
        self.shown = gap
        print(
            f"  certified gap {gap:.3e}   steps {progress.iteration}   gradients {found['gradients']:.0f}   "
            f"time {found['time']:.4g}",
            flush=True,
        )


def _reference_value(problem: Any, solver: Any, method: Method) -> float:
    from optikit.objectives import reference_optimum

    if problem.network.size > 1:
        raise ValueError("--reference solves on one process; run it without mpiexec.")
    ridge = getattr(solver, method.ridge) if method.ridge else 0.0
    return float(reference_optimum(problem.objective, l2=ridge).value)


def _write(
    method: Method,
    parameters: dict[str, Any],
    problem: Any,
    result: Any,
    optimum: float,
    as_json: bool,
    quiet: bool,
    out: Path | None,
    history: Path | None,
    plot: Path | None,
    report: Path | None,
) -> None:
    from solvers.cli import outputs

    document = outputs.summary(result, problem, parameters)
    if out is not None:
        outputs.write_arrays(out, result, problem)
    if history is not None:
        outputs.write_history(history, result)
    if plot is not None or report is not None:
        ax = outputs.draw(result, method, optimum)
        if plot is not None:
            outputs.write_picture(plot, ax)
        if report is not None:
            outputs.write_report(report, document, ax, result)
    if as_json:
        print(outputs.write_json(document))
    elif not quiet:
        print(result)
        for name, path in (("solution", out), ("history", history), ("picture", plot), ("report", report)):
            if path is not None:
                print(f"  {name:<11} {path.resolve()}")
