"""What a newcomer meets first: imports are light, the README's words are true, the two commands exist."""

import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HEAVY = {
    "numba",
    "pandas",
    "sklearn",
    "matplotlib",
    "cvxpy",
    "mpi4py",
    "cupy",
    "networkx",
    "statsmodels",
    "jinja2",
}


@pytest.mark.parametrize(
    "package", ["optikit", "optikit.solver", "optikit.data", "optikit.network", "solvers"]
)
def test_importing_the_foundation_imports_nothing_heavy(package):
    code = f"import sys, {package}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_script_of_the_readme_runs(capsys):
    (script,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert len([line for line in script.splitlines() if line.strip()]) <= 10
    exec(compile(script, "README.md", "exec"), {})
    assert "Local GD" in capsys.readouterr().out


def test_the_commands_of_the_readme_are_understood(tmp_path, monkeypatch):
    """Each optikit-solve line of the README, on a small file of that name and without a GPU."""
    from solvers.cli.command import run

    monkeypatch.chdir(tmp_path)
    lines = [f"{1 if j % 2 else -1} 1:{(-1) ** (j + 1)} {2 + j % 5}:0.5\n" for j in range(80)]
    (tmp_path / "mydata.svm").write_text("".join(lines))
    commands = re.findall(r"^(?:mpiexec -n \d+ )?optikit-solve (.*)$", README, flags=re.M)
    assert commands
    for command in commands:
        arguments = command.replace("--namespace cupy", "").split()
        assert run([*arguments, "--max-rounds", "3", "--quiet"]) == 0, command
    assert (tmp_path / "rate.png").exists()


def python_blocks():
    for page in sorted((ROOT / "docs").rglob("*.rst")):
        if "generated" not in page.parts and "gallery" not in page.parts:
            text = page.read_text(encoding="utf-8")
            for number, block in enumerate(
                re.findall(r"^\.\. code-block:: python\n\n((?:   .*\n|\n)+)", text, re.M)
            ):
                yield pytest.param(textwrap.dedent(block), id=f"{page.stem}-{number}")


@pytest.mark.parametrize("block", list(python_blocks()))
def test_the_code_in_the_documentation_runs(block):
    if "cupy" in block:
        pytest.importorskip("cupy")
    exec(compile(block, "docs", "exec"), {})


@pytest.mark.mpi
@pytest.mark.slow
def test_the_gallery_example_gives_the_same_losses_on_three_ranks(mpi_run):
    example = ROOT / "examples" / "plot_local_gd_digits.py"
    one, three = (mpi_run(ranks, example).stdout for ranks in (1, 3))
    assert one == three
    # Acceptance row 16 of the Local GD specification.
    assert re.findall(r"loss (\S+)", one) == ["0.007038", "0.002173", "0.0006217", "0.0001712"]


def test_links_of_the_readme_lead_to_files():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_console_scripts_lead_to_functions():
    from importlib import import_module

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, target in project["scripts"].items():
        module, function = target.split(":")
        assert callable(getattr(import_module(module), function)), name


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_names_a_python_that_is_too_old(tmp_path):
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")  # what every question about a new version gets
    old.chmod(0o755)
    done = subprocess.run(
        ["make", "demo", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
