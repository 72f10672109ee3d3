"""``optikit-check``: measure the claims and say which hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from optikit.runtime.communicator import default_communicator


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("patterns", nargs=-1, metavar="[CLAIM]...")
@click.option(
    "--quick/--full", "quick", default=True, help="Scaled-down sweeps (default), or the paper's regime."
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only claims with this tag (repeatable).")
@click.option("--list", "list_only", is_flag=True, help="List the selected claims and stop.")
@click.option(
    "--jobs", "-j", type=click.IntRange(min=1), default=1, show_default=True, help="Processes to use."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Base of all seeds.")
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False), metavar="PATH", help="Write the report as JSON."
)
@click.option(
    "--html",
    "html_path",
    type=click.Path(dir_okay=False),
    metavar="PATH",
    help="Write one self-contained HTML page.",
)
@click.option("--strict", is_flag=True, help="An inconclusive claim fails too.")
@click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Importable module whose CLAIMS to check instead of optikit's own (repeatable).",
)
def main(
    patterns: tuple[str, ...],
    quick: bool,
    tags: tuple[str, ...],
    list_only: bool,
    jobs: int,
    seed: int,
    json_path: str | None,
    html_path: str | None,
    strict: bool,
    modules: tuple[str, ...],
) -> None:
    """Check the theorems behind optikit's methods on this implementation.

    CLAIM is a name, a glob pattern ('*slope*') or the leading part of names ('local_gd'); all claims by
    default. Under mpiexec the ranks share the work.

    \b
    Exit status: 0 no claim failed; 1 a claim failed, is broken (its negative control passes) or raised,
    or under --strict is inconclusive; 2 bad usage; 130 interrupted (reports are still written).
    """
    from theory_checks.registry import UnknownClaimError, discover
    from theory_checks.run import run_claims

    comm = default_communicator()
    root = comm.Get_rank() == 0
    if comm.Get_size() > 1 and jobs > 1:
        raise click.UsageError(f"--jobs {jobs} cannot be combined with {comm.Get_size()} MPI ranks.")
    for option, path in (("--json", json_path), ("--html", html_path)):
        if path is not None:
            _check_writable(option, Path(path))
    if modules and "" not in sys.path:
        sys.path.insert(0, "")  # modules of the working directory, also for the installed script
    registry = discover(modules or None)
    try:
        claims = registry.select(patterns, tags)
    except UnknownClaimError as error:
        raise click.UsageError(str(error)) from error
    effort = "quick" if quick else "full"
    if list_only:
        if root:
            _print_list(claims, registry.unreadable, effort)
        sys.exit(1 if registry.unreadable else 0)
    if not claims and not registry.unreadable:
        raise click.UsageError("there are no claims to check.")
    with _Progress(root, len(claims)) as progress:
        report = run_claims(
            registry,
            claims,
            effort=effort,
            seed=seed,
            jobs=jobs,
            communicator=comm,
            on_claim=progress.advance,
        )
    if root:
        _write(report, json_path, html_path)
    sys.exit(report.exit_status(strict=strict))


def _check_writable(option: str, path: Path) -> None:
    """Refuse, before minutes of work, a path that no file can be written to."""
    if path.is_dir():
        raise click.UsageError(f"{option} must name a file, got the directory {str(path)!r}.")
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise click.UsageError(f"{option} must name a file that can be written, got {str(path)!r}.")


def _print_list(claims: list[Any], unreadable: dict[str, str], effort: str) -> None:
    for claim in claims:
        tags = f"  [{', '.join(claim.tags)}]" if claim.tags else ""
        click.echo(f"{claim.name}{tags}")
        click.echo(f"    {claim.theorem}")
        points = len(claim.sweep.points(effort))
        click.echo(
            f"    law: {claim.law.expected()}; {points} point{'s' if points > 1 else ''}, "
            f"{claim.repetitions('measure', effort)} seed(s)"
        )
    for module, text in unreadable.items():
        click.echo(f"cannot read {module}:\n{text}", err=True)


def _write(report: Any, json_path: str | None, html_path: str | None) -> None:
    """Print the table and write the files."""
    from rich.console import Console

    from theory_checks.report import plain, write_text

    console = Console()
    console.print(report.table())
    for claim in report.claims:
        for role, side in (("measurement", claim.measured), ("negative control", claim.control)):
            if side.traceback:
                click.echo(f"{claim.name}, {role}:\n{plain(side.traceback)}", err=True)
    click.echo(report.summary())
    if json_path is not None:
        write_text(json_path, report.to_json())
        click.echo(f"JSON report: {Path(json_path).absolute()}")
    if html_path is not None:
        from theory_checks.html import render_html

        write_text(html_path, render_html(report))
        click.echo(f"HTML report: {Path(html_path).absolute()}")


class _Progress:
    """A bar on the terminal of the root rank; silent elsewhere."""

    def __init__(self, root: bool, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._bar = Progress(console=console, transient=True, disable=not (root and console.is_terminal))
        self._task = self._bar.add_task("checking", total=total)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def advance(self, claim: Any, total: int) -> None:
        """One more claim is judged."""
        self._bar.update(self._task, advance=1, description=claim.name)


if __name__ == "__main__":
    main()
