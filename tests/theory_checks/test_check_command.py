"""optikit-check as a user calls it: selection, files and exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from theory_checks.__main__ import main


def check(*arguments, module="toy_claims"):
    return CliRunner().invoke(main, ["--module", module, *map(str, arguments)])


@pytest.mark.parametrize(
    ("names", "status"),
    [
        (["toy.true_slope", "toy.linear"], 0),
        (["toy.false_slope"], 1),
        (["toy.blind"], 1),
        (["toy.raises"], 1),
        (["toy.vague"], 0),
        (["toy.vague", "--strict"], 1),
        (["toy.true_slope", "--strict"], 0),
        (["toy.true_slop"], 2),
        (["--tag", "nothing"], 2),
        (["--jobs", "0"], 2),
        (["--seed", "-1"], 2),
        (["--no-such-option"], 2),
        (["toy.true_slope", "--json", "."], 2),
        (["toy.true_slope", "--html", "/proc/version/report.html"], 2),
    ],
)
def test_the_exit_status_tells_the_outcome(names, status):
    result = check(*names)
    assert result.exit_code == status, result.output


def test_the_summary_and_the_table_are_printed():
    result = check("toy.true_slope", "toy.false_slope")
    assert "2 claims: 1 pass, 1 fail (quick" in result.output
    assert "toy.false_slope" in result.output


def test_reports_are_written_where_asked(tmp_path):
    paths = tmp_path / "a.json", tmp_path / "new" / "b.html"
    result = check("toy.linear", "--full", "--seed", 2, "--json", paths[0], "--html", paths[1])
    assert result.exit_code == 0, result.output
    content = json.loads(paths[0].read_text())
    assert (content["effort"], content["seed"]) == ("full", 2)
    assert paths[1].read_text().startswith("<!DOCTYPE html>")
    assert str(paths[1]) in result.output


def test_the_list_names_claims_laws_and_tags_and_runs_nothing():
    result = check("--list", "toy.raises", "toy.linear")
    assert result.exit_code == 0
    assert "toy.raises" in result.output
    assert "factor in [0.49, 0.51]" in result.output
    assert "[toy, rate]" in result.output
    assert "RuntimeError" not in result.output


def test_an_unreadable_module_fails_and_shows_why():
    result = check(module="no_such_module")
    assert result.exit_code == 1
    assert "ModuleNotFoundError" in result.output


def test_an_interrupt_still_writes_the_report(tmp_path):
    path = tmp_path / "report.json"
    result = check("stops.first", "stops.interrupts", "--json", path, module="interruptible_claims")
    assert result.exit_code == 130
    assert json.loads(path.read_text())["unfinished"] == ["stops.interrupts"]


def test_help_needs_neither_numpy_linear_algebra_nor_matplotlib():
    script = (
        "import sys, theory_checks.__main__ as m\n"
        "try: m.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'matplotlib' not in sys.modules and 'cvxpy' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    assert done.returncode == 0, done.stderr
    assert "Exit status" in done.stdout
