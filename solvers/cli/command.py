"""The click command: one subcommand per method, common options, one-line errors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from solvers.cli.parameters import parameter_options
from solvers.cli.topology import GRAPHS, SEQUENCES, WEIGHTS
from solvers.registry import METHODS, Method

PROGRAM = "optikit-solve"
FILE = click.Path(path_type=Path)


class MethodGroup(click.Group):
    """Lists the methods from the registry and imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(METHODS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return method_command(METHODS[name]) if name in METHODS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Methods"):
            formatter.write_dl([(method.name, method.summary) for method in METHODS.values()])


@click.group(
    cls=MethodGroup,
    subcommand_metavar="METHOD FILE ...",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="optikit-solve METHOD --help lists the method's parameters. "
    "On several MPI ranks: mpiexec -n 4 optikit-solve METHOD FILE ...",
)
@click.version_option(package_name="optikit")
def group() -> None:
    """Run a distributed-optimisation METHOD on a data FILE (svmlight, csv, tsv or npz)."""


def _common_options(method: Method, on_graph: bool) -> list[click.Parameter]:
    def option(*names: str, **settings: Any) -> click.Option:
        key = names[-1].removeprefix("--").replace("-", "_")
        if key in method.options:
            settings["default"] = method.options[key]
        settings.setdefault("show_default", settings.get("default") is not None)
        return click.Option(names, **settings)

    return [
        click.Argument(["file"], type=FILE, metavar="FILE"),
        option("--agents", type=int, default=10, help="Number of agents that the rows are dealt over."),
        option(
            "--split",
            type=click.Choice(["iid", "label", "similarity", "dirichlet"]),
            default="iid",
            help="How rows are dealt: at random, sorted by label, in between, or in Dirichlet shares.",
        ),
        option("--similarity", type=float, default=0.5, help="Share dealt at random (--split similarity)."),
        option("--alpha", type=float, default=0.5, help="Concentration (--split dirichlet); small: uneven."),
        option("--seed", type=int, default=0, help="Decides the split and every random draw."),
        option("--target", help="Target column of a csv (name or number), or target array of an npz file."),
        option("--positive", help="Class coded +1, against all others."),
        option("--format", type=click.Choice(["svmlight", "csv", "tsv", "npz"]), help="Format of FILE."),
        option("--standardize", is_flag=True, help="Shift and scale the features first."),
        option("--bias/--no-bias", default=True, help="Append a constant feature (an intercept)."),
        option("--loss", default=method.loss, help="Loss of the linear model: logistic, least-squares, "
               "hinge, squared-hinge, absolute, quantile[:LEVEL], huber[:DELTA] or poisson."),
        option("--l2", type=float, default=0.0, help="Weight of the ridge penalty."),
        option("--graph", metavar="NAME|FILE", help="Links of a decentralised method. Static: "
               f"{', '.join(GRAPHS)}, or an edge-list file. Changing every round: {', '.join(SEQUENCES)}."),
        *([
            option("--link-weights", type=click.Choice(WEIGHTS), default="auto",
                   help="Rule for the weights of the links; auto suits the method."),
            option("--directed", is_flag=True, help="The links of the edge-list file are one-way."),
        ] if on_graph else []),
        option("--namespace", default="numpy", help="Array library: numpy, cupy (GPU), torch."),
        option("--max-rounds", type=int, default=1000, help="Communication rounds."),
        option("--tol", type=float, help="Stop when the method's criterion is at most this."),
        option("--max-seconds", type=float, help="Stop after this many seconds."),
        option("--record-every", default="1", metavar="N|log", help="Iterations between records."),
        option("--reference", is_flag=True, help="Also solve centrally, and draw the gap to that optimum."),
        option("--checkpoint", type=FILE, help="Keep the state in this file."),
        option("--checkpoint-every", type=int, default=100, help="Iterations between checkpoints."),
        option("--resume", is_flag=True, help="Continue from the checkpoint if it exists."),
        option("--out", type=FILE, help="Write solution and history to this npz file."),
        option("--history", type=FILE, help="Write the history to this csv file."),
        option("--plot", type=FILE, help="Write the rate picture to this file (png, pdf, svg)."),
        option("--report", type=FILE, help="Write one self-contained HTML page."),
        option("--json", "as_json", is_flag=True, help="Print the outcome as JSON."),
        option("--quiet", is_flag=True, help="Print nothing but errors."),
        option("--traceback", is_flag=True, help="Show where an error comes from."),
    ]  # fmt: skip


def method_command(method: Method) -> click.Command:
    """The subcommand of one method: its own parameters first, then the common ones."""
    cls, setup = method.load(), method.load_setup()
    # The ridge weight is --l2, one seed serves split and method.
    hidden = method.hidden + ((method.ridge,) if method.ridge else ())
    own = parameter_options(cls, method.defaults, hidden)
    taken = {option.name for option in own}
    extra = [] if setup is None else setup.options()
    common = [
        option
        for option in _common_options(method, cls.needs_topology)
        if option.name not in taken - {"seed"}
    ]
    own = [option for option in own if option.name != "seed"]
    has_seed = "seed" in taken

    def callback(**values: Any) -> int:
        parameters = {option.name: values.pop(option.name) for option in own if option.name}
        if has_seed:
            parameters["seed"] = values["seed"]
        if method.ridge:
            parameters[method.ridge] = values["l2"]
        settings = {option.name: values.pop(option.name) for option in extra if option.name}
        from solvers.cli.run import solve_file

        return solve_file(method, cls, parameters, settings, **values)

    return click.Command(
        method.name,
        callback=callback,
        params=[*common[:1], *extra, *own, *common[1:]],
        help=_help_of(method, cls),
    )


def _help_of(method: Method, cls: type) -> str:
    return f"{method.summary}.\n\nSolver: {cls.__module__}.{cls.__qualname__}"


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status.

    0: done; 1: the run ended without success (diverged, stalled); 2: bad input, said in one line on stderr;
    130: interrupted.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _one_line_warning  # type: ignore[assignment]
            status = group.main(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        from optikit.runtime.communicator import default_communicator

        if default_communicator().Get_rank() == 0:
            fail(error.format_message())
        return 2
    return status if isinstance(status, int) else 0


def fail(message: str) -> None:
    """An error as one line on stderr."""
    print(f"{PROGRAM}: {' '.join(message.split())}", file=sys.stderr, flush=True)


def _one_line_warning(message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
    print(f"{PROGRAM}: warning: {' '.join(str(message).split())}", file=sys.stderr, flush=True)
