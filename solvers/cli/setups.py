"""Methods whose hyper-parameters the command line completes from the data and the network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from optikit.validation import check_real


@dataclass(frozen=True)
class Setup:
    """How a method is made ready for a problem.

    Attributes
    ----------
    build : callable
        ``build(cls, parameters, settings, problem) -> (solver, limits)``; `parameters` are the method's own
        (None: to be found), `settings` the values of the options below, `limits` replaces arguments of
        `solve`. Every rank calls it, and every rank must raise alike.
    options : callable
        The further options of the subcommand.
    after : callable or None
        ``after(result, settings)`` writes what only this method has; called on the root when the run is over.
    """

    build: Callable[[Any, dict[str, Any], dict[str, Any], Any], tuple[Any, dict[str, Any]]]
    options: Callable[[], Sequence[click.Option]] = tuple
    after: Callable[[Any, dict[str, Any]], None] | None = None


def _lipschitz(problem: Any, wanted: float | None, remedy: str) -> float:
    """M, the largest Lipschitz constant of an agent's loss: given, or read off the data."""
    if wanted is not None:
        return check_real(wanted, "--lipschitz", minimum=0.0, open_low=True)
    M = float(problem.network.max(problem.objective.lipschitz))
    if not math.isfinite(M):
        name = problem.objective.loss.name.replace("_", "-")
        raise ValueError(f"the {name} loss has no Lipschitz constant: {remedy}.")
    return M


# -- the optimal non-smooth method ---------------------------------------------------------------------------


def _nonsmooth_options() -> list[click.Option]:
    return [
        click.Option(["--eps"], type=float, help="Accuracy: stop when the certified gap is at most this."),
        click.Option(
            ["--preset"],
            type=click.Choice(["practical", "theory"]),
            default="practical",
            show_default=True,
            help="Inner steps and rounds for --eps: until the certificate meets it, or as the theorem says.",
        ),
        click.Option(
            ["--radius"], type=float, help="Bound on the norm of a minimiser; needed with --l2 0 and --eps."
        ),
        click.Option(
            ["--lipschitz"], type=float, help="Lipschitz constant M of the losses, if not that of the data."
        ),
    ]


def _build_nonsmooth(
    cls: Any, parameters: dict[str, Any], settings: dict[str, Any], problem: Any
) -> tuple[Any, dict[str, Any]]:
    from solvers.decentralized.nonsmooth import for_accuracy
    from solvers.decentralized.nonsmooth_rules import chosen_gossip

    given = {name: value for name, value in parameters.items() if value is not None}
    if settings["eps"] is None:
        gossip = chosen_gossip(
            problem.network.topology, given.pop("gossip_steps", None), given.pop("chebyshev", None)
        )
        if settings["radius"] is not None:
            raise ValueError("--radius is for --l2 0 with an accuracy: give --eps too.")
        return cls(gossip_steps=gossip.steps, chebyshev=gossip.chebyshev, **given), {}
    r = given.pop("r")
    if r > 0 and settings["radius"] is not None:
        raise ValueError("--radius is for problems without a ridge: give --l2 0.")
    if r == 0 and settings["radius"] is None:
        raise ValueError("--l2 0 with --eps needs --radius, a bound on the norm of a minimiser.")
    plan = for_accuracy(
        problem.objective,
        problem.network,
        settings["eps"],
        r=r,
        R=settings["radius"],
        M=_lipschitz(problem, settings["lipschitz"], "give --lipschitz, a bound on the region visited"),
        preset=settings["preset"],
        **given,
    )
    limits: dict[str, Any] = {"tol": plan.tol}
    if plan.max_rounds is not None:
        limits["max_rounds"] = plan.max_rounds
    return plan.solver, limits


# -- ADOM+ and its zeroth-order form -------------------------------------------------------------------------


def _build_adom(
    cls: Any, parameters: dict[str, Any], settings: dict[str, Any], problem: Any
) -> tuple[Any, dict[str, Any]]:
    complete = dict(parameters)
    if complete["smoothness"] is None:
        L = float(problem.network.max(problem.objective.smoothness)) + complete["r"]
        if not math.isfinite(L):
            name = problem.objective.loss.name.replace("_", "-")
            raise ValueError(f"the {name} loss is not smooth: use nonsmooth, or give --smoothness.")
        complete["smoothness"] = L
    if complete["strong_convexity"] is None:
        if complete["r"] <= 0:
            raise ValueError("adom needs strong convexity: give --l2 or --strong-convexity.")
        complete["strong_convexity"] = complete["r"]
    return cls(**complete), {}


def _build_zo_sadom(
    cls: Any, parameters: dict[str, Any], settings: dict[str, Any], problem: Any
) -> tuple[Any, dict[str, Any]]:
    M = _lipschitz(problem, parameters["lipschitz"], "give --lipschitz, a bound on the region visited")
    return cls(**parameters | {"lipschitz": M}), {}


NONSMOOTH = Setup(_build_nonsmooth, _nonsmooth_options)
ADOM = Setup(_build_adom)
ZOSADOM = Setup(_build_zo_sadom)
