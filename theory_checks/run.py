"""Run claims: in this process, in several, or spread over MPI ranks; the report is the same.

The unit of work is one point of one side (measurement or control) of one claim, with all its seeds. A unit
crosses process boundaries as names and numbers only: the other process finds the claim in its own registry,
so claims may be made of closures. Units are pure, and are judged in the order of the registry.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing import active_children, get_context
from typing import Any

import numpy as np

from optikit.runtime.communicator import (
    SerialCommunicator,
    abort_on_error,
    default_communicator,
    using_communicator,
)
from optikit.validation import check_choice, check_integer
from theory_checks.claim import EFFORTS, Claim, Measurement
from theory_checks.registry import Registry, discover
from theory_checks.report import ClaimReport, Report, Side

ROLES = ("measure", "control")
SEED_STRIDE = 10_000  # seeds of different base seeds do not meet


@dataclass(frozen=True)
class Unit:
    """One point of one side of one claim."""

    claim: str
    role: str
    effort: str
    index: int
    seeds: tuple[int, ...]


@dataclass
class Outcome:
    """What a unit gave: one `Measurement` of NumPy arrays per seed, or a traceback."""

    measurements: list[Measurement] = field(default_factory=list)
    seconds: float = 0.0
    traceback: str = ""
    warnings: list[str] = field(default_factory=list)


def run_claims(
    registry: Registry,
    claims: Sequence[Claim] | None = None,
    *,
    effort: str = "quick",
    seed: int = 0,
    jobs: int = 1,
    communicator: Any = None,
    on_claim: Callable[[ClaimReport, int], None] | None = None,
) -> Report:
    """Measure and judge claims.

    Parameters
    ----------
    registry : Registry
    claims : sequence of Claim, optional
        Those to run (see `Registry.select`); all by default.
    effort : {"quick", "full"}
    seed : int >= 0, default 0
        Base of the seeds: ``measure`` is called with ``seed * 10000 + 0, 1, ...``.
    jobs : int >= 1, default 1
        Processes. More than one needs claims that can be found by importing ``registry.modules``.
    communicator : Communicator, optional
        Its ranks share the work, and each returns the whole report; `default_communicator` by default.
        Inside a measurement the default communicator is a serial one.
    on_claim : callable, optional
        ``on_claim(claim report, number of claims)`` as each is judged. Under MPI after all measurements.

    Returns
    -------
    Report
        A claim whose measurement raises has the verdict "error", and the others go on. Ctrl-C ends the
        run: what was judged by then is returned, marked as interrupted.
    """
    check_choice(effort, "effort", EFFORTS)
    seed = check_integer(seed, "seed", minimum=0)
    jobs = check_integer(jobs, "jobs", minimum=1)
    comm = default_communicator() if communicator is None else communicator
    size = comm.Get_size()
    if size > 1 and jobs > 1:
        raise ValueError(f"jobs must be 1 when {size} MPI ranks share the work, got {jobs!r}.")
    chosen = list(registry.claims.values()) if claims is None else list(claims)
    started, clock = datetime.now().astimezone().isoformat(timespec="seconds"), time.perf_counter()
    units = [unit for claim in chosen for unit in units_of(claim, effort, seed)]
    judged: dict[str, ClaimReport] = {}
    interrupted = False

    def judge_when_complete(unit: Unit, outcome: Outcome) -> None:
        outcomes = pending[unit.claim]
        outcomes[unit] = outcome
        if len(outcomes) == needed[unit.claim]:
            report = judge_claim(registry.claims[unit.claim], effort, outcomes)
            judged[unit.claim] = report
            if on_claim is not None:
                on_claim(report, len(chosen))

    pending: dict[str, dict[Unit, Outcome]] = {claim.name: {} for claim in chosen}
    needed = {claim.name: sum(unit.claim == claim.name for unit in units) for claim in chosen}
    try:
        if size > 1:
            source = _over_ranks(registry, units, comm)
        elif jobs > 1:
            source = _over_processes(registry, units, jobs)
        else:
            source = _in_turn(registry, units)
        for unit, outcome in source:
            judge_when_complete(unit, outcome)
    except KeyboardInterrupt:
        interrupted = True
    unreadable = [ClaimReport.unreadable(module, text) for module, text in registry.unreadable.items()]
    return Report(
        effort=effort,
        seed=seed,
        claims=unreadable + [judged[claim.name] for claim in chosen if claim.name in judged],
        interrupted=interrupted,
        unfinished=[claim.name for claim in chosen if claim.name not in judged],
        started=started,
        seconds=time.perf_counter() - clock,
        jobs=jobs,
        ranks=size,
        environment=_environment(),
    )


def units_of(claim: Claim, effort: str, seed: int) -> list[Unit]:
    """The units of work of `claim`."""
    units = []
    for role in ROLES:
        seeds = tuple(seed * SEED_STRIDE + s for s in range(claim.repetitions(role, effort)))
        for index in range(len(claim.sweep_of(role).points(effort))):
            units.append(Unit(claim.name, role, effort, index, seeds))
    return units


def run_unit(claim: Claim, unit: Unit) -> Outcome:
    """Measure one unit; an exception becomes its traceback."""
    outcome = Outcome()
    point = claim.sweep_of(unit.role).points(unit.effort)[unit.index]
    call = claim.measure if unit.role == "measure" else claim.control
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            for seed in unit.seeds:
                returned = call(point, seed)
                single = returned if isinstance(returned, Measurement) else Measurement(returned)
                x, value, reference, used = single.columns()
                if np.ndim(single.value) == 0:
                    at = None if single.x is None else x[0]
                    outcome.measurements.append(Measurement(value[0], reference[0], at, used[0]))
                else:
                    outcome.measurements.append(Measurement(value, reference, x, used))
        except Exception:
            outcome.traceback = traceback.format_exc()
    outcome.seconds = time.perf_counter() - start
    outcome.warnings = sorted({f"{entry.category.__name__}: {entry.message}" for entry in caught})[:10]
    return outcome


def judge_claim(claim: Claim, effort: str, outcomes: dict[Unit, Outcome]) -> ClaimReport:
    """Hold all that was measured for `claim` against its law."""
    sides = {role: _judge_side(claim, role, effort, outcomes) for role in ROLES}
    return ClaimReport.of(claim, sides["measure"], sides["control"])


def _judge_side(claim: Claim, role: str, effort: str, outcomes: dict[Unit, Outcome]) -> Side:
    own = sorted((unit for unit in outcomes if unit.role == role), key=lambda unit: unit.index)
    broken = next((outcomes[unit].traceback for unit in own if outcomes[unit].traceback), "")
    if broken:
        side = Side.failed(broken)
    else:
        try:
            data = claim.observe(
                role,
                effort,
                [
                    (unit.index, seed, measurement)
                    for unit in own
                    for seed, measurement in zip(unit.seeds, outcomes[unit].measurements, strict=True)
                ],
            )
            side = Side.judged(claim.law.judge(data), data, claim.law.references(data))
        except Exception:
            side = Side.failed(traceback.format_exc())
    side.seconds = sum(outcomes[unit].seconds for unit in own)
    side.warnings = sorted({text for unit in own for text in outcomes[unit].warnings})[:10]
    return side


def _in_turn(registry: Registry, units: Sequence[Unit]) -> Iterator[tuple[Unit, Outcome]]:
    for unit in units:
        yield unit, run_unit(registry.claims[unit.claim], unit)


def _over_processes(registry: Registry, units: Sequence[Unit], jobs: int) -> Iterator[tuple[Unit, Outcome]]:
    before = set(active_children())
    with _one_thread_each():
        pool = ProcessPoolExecutor(
            jobs, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(registry.modules,)
        )
        try:
            futures = {pool.submit(_run_in_worker, unit): unit for unit in units}
            for future in as_completed(futures):
                unit = futures[future]
                try:
                    yield unit, future.result()
                except BrokenProcessPool as error:
                    yield unit, Outcome(traceback=f"BrokenProcessPool: {error}")
        except BaseException:
            # Ctrl-C: a worker may be minutes deep in a measurement whose result nobody waits for.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - before:
                child.terminate()
            raise
        pool.shutdown()


_worker_registry: Registry | None = None


def _start_worker(modules: tuple[str, ...]) -> None:
    global _worker_registry
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    _worker_registry = discover(modules)


def _run_in_worker(unit: Unit) -> Outcome:
    assert _worker_registry is not None
    claim = _worker_registry.claims.get(unit.claim)
    if claim is None:
        modules = ", ".join(_worker_registry.modules)
        return Outcome(traceback=f"LookupError: claim {unit.claim!r} is not in the modules {modules}.")
    return run_unit(claim, unit)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Children inherit one BLAS / OpenMP / numba thread each, unless the user set a number."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    added = [name for name in names if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _over_ranks(registry: Registry, units: Sequence[Unit], comm: Any) -> Iterator[tuple[Unit, Outcome]]:
    """Units dealt in turn over the ranks; every rank gets every outcome."""
    rank, size = comm.Get_rank(), comm.Get_size()
    with abort_on_error(comm):
        with using_communicator(SerialCommunicator()):
            own = [run_unit(registry.claims[unit.claim], unit) for unit in units[rank::size]]
        everywhere = _share(own, comm)
    for number, unit in enumerate(units):
        yield unit, everywhere[number % size][number // size]


def _share(own: list[Outcome], comm: Any) -> list[list[Outcome]]:
    """Every rank's outcomes on every rank, as JSON text in one byte buffer (floats survive exactly)."""
    text = json.dumps([_pack(outcome) for outcome in own]).encode()
    sizes = np.empty(comm.Get_size(), dtype=np.int64)
    comm.Allgather(np.array([len(text)], dtype=np.int64), sizes)
    received = np.empty(int(sizes.sum()), dtype=np.uint8)
    comm.Allgatherv(np.frombuffer(text, dtype=np.uint8), [received, sizes.tolist()])
    parts = np.split(received, np.cumsum(sizes)[:-1])
    return [[_unpack(entry) for entry in json.loads(part.tobytes())] for part in parts]


def _pack(outcome: Outcome) -> dict[str, Any]:
    measurements = [
        [None if item is None else np.asarray(item).tolist() for item in (m.value, m.reference, m.x, m.used)]
        for m in outcome.measurements
    ]
    return {
        "measurements": measurements,
        "seconds": outcome.seconds,
        "traceback": outcome.traceback,
        "warnings": outcome.warnings,
    }


def _unpack(entry: dict[str, Any]) -> Outcome:
    measurements = [
        Measurement(*(np.asarray(item) if isinstance(item, list) else item for item in one))
        for one in entry.pop("measurements")
    ]
    return Outcome(measurements, **entry)


def _environment() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("optikit")
    except PackageNotFoundError:
        own = "unknown"
    return {
        "optikit": own,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }
