"""What the asynchronous methods have on the command line beyond their own parameters: h, clocks, traces."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from solvers.cli.setups import Setup

CLOCKS = ("exponential", "uniform", "lognormal", "pareto", "ticks")


def _options() -> list[click.Option]:
    path = click.Path(path_type=Path)
    return [
        click.Option(["--l1"], type=float, default=0.0, help="Weight of an l1 penalty at the server."),
        click.Option(["--box"], type=(float, float), help="Bounds LOW HIGH on every coefficient."),
        click.Option(
            ["--clock"],
            metavar="NAME[:NUMBERS]",
            help="How long evaluations take, on one process: exponential[:MEAN], uniform[:LOW,HIGH], "
            "lognormal[:SIGMA], pareto[:SHAPE] or ticks:T1,T2,... (one per agent). Default exponential.",
        ),
        click.Option(["--replay"], type=path, help="Follow the order of events in this trace file."),
        click.Option(["--save-trace"], type=path, help="Write the order of events, for --replay."),
        click.Option(
            ["--timeline"], type=path, help="Draw who computed when, staleness and epochs (png, pdf, svg)."
        ),
    ]


def _build(
    cls: Any, parameters: dict[str, Any], settings: dict[str, Any], problem: Any
) -> tuple[Any, dict[str, Any]]:
    from optikit.runtime.trace import Trace
    from solvers.asynchronous.regularizers import Box, ElasticNet

    known = {item.name for item in fields(cls)}
    given = {name: value for name, value in parameters.items() if name in known}
    if settings["box"] is not None and settings["l1"]:
        raise ValueError("--l1 and --box are two forms of h: give one of them.")
    if settings["box"] is not None:
        given["h"] = Box(*settings["box"])
    elif settings["l1"]:
        given["h"] = ElasticNet(settings["l1"])
    if settings["clock"] is not None and settings["replay"] is not None:
        raise ValueError("--replay gives the order of events: leave --clock away.")
    if settings["clock"] is not None:
        given["service"] = parse_clock(settings["clock"], problem.objective.n_agents, given["seed"])
    if settings["replay"] is not None:
        given["trace"] = Trace.load(settings["replay"])
    for name in ("save_trace", "timeline"):
        target = settings[name]
        if target is not None and not target.resolve().parent.is_dir():
            raise ValueError(
                f"--{name.replace('_', '-')} must lie in an existing folder, got {str(target)!r}."
            )
    return cls(**given), {}


def parse_clock(text: str, n: int, seed: int) -> Any:
    """A service law from ``NAME[:NUMBERS]``."""
    from optikit.runtime.timing import Exponential, LogNormalSpeeds, Pareto, Ticks, Uniform

    name, _, detail = text.partition(":")
    try:
        numbers = [float(part) for part in detail.split(",")] if detail else []
    except ValueError:
        raise ValueError(f"--clock {name} needs numbers after the colon, got {detail!r}.") from None
    limits = {"exponential": 1, "uniform": 2, "lognormal": 1, "pareto": 1, "ticks": n}
    if name not in limits:
        raise ValueError(f"--clock must be one of {', '.join(CLOCKS)}, got {name!r}.")
    if name == "ticks":
        if len(numbers) != n:
            raise ValueError(f"--clock ticks needs one number per agent, {n}, got {len(numbers)}.")
        return Ticks(numbers)
    if len(numbers) > limits[name] or (name == "uniform" and len(numbers) == 1):
        raise ValueError(f"--clock {name} takes {limits[name]} numbers, got {len(numbers)}.")
    laws: dict[str, Any] = {
        "exponential": Exponential,
        "uniform": Uniform,
        "lognormal": LogNormalSpeeds,
        "pareto": Pareto,
    }
    return laws[name](*numbers, seed=seed)


def _after(result: Any, settings: dict[str, Any]) -> None:
    trace = result.state.trace
    if settings["save_trace"] is not None:
        trace.save(settings["save_trace"])
    if settings["timeline"] is not None:
        trace.figure().savefig(settings["timeline"], dpi=150)


ASYNCHRONOUS = Setup(_build, _options, _after)
