"""The command line: options come from the solver, bad input is one line, outputs are complete."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

import click
import numpy as np
import pandas
import pytest

from solvers.cli.command import run
from solvers.cli.parameters import parameter_docs, parameter_options
from solvers.cli.topology import parse_graph
from solvers.registry import METHODS, get_method


@pytest.fixture
def separable(tmp_path):
    """A small csv whose last column tells the sign of a linear score."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    X = X[np.abs(X @ [1.0, -2.0, 0.5]) > 0.3]
    y = np.where(X @ [1.0, -2.0, 0.5] > 0, "yes", "no")
    path = tmp_path / "data.csv"
    pandas.DataFrame(X, columns=["a", "b", "c"]).assign(answer=y).to_csv(path, index=False)
    return path


def fails(capsys, *arguments):
    """Run with bad input; return the one line on stderr."""
    assert run(list(map(str, arguments))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("optikit-solve: ")
    return captured.err


# -- options from a solver -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Toy:
    """A method.

    Parameters
    ----------
    step : float
        The step ``a``, see `other`.
    first, second : int, default 3
        Two counts that
        share a text.
    mode : {"fast", "slow"}, default "fast"
        How.
    switch : "loss", "practical" or int
        When.
    margin : bool or "auto", default "auto"
        Whether.
    weights : array, optional
        Not for a command line.

    Notes
    -----
    step : not a parameter here.
    """

    step: float
    first: int = 3
    second: int | None = None
    mode: str = "fast"
    kind: Literal["a", "b"] = "a"
    switch: str | int = "loss"
    safe: bool = True
    margin: bool | str = "auto"
    weights: np.ndarray | None = None


def toy_command(defaults=None, hidden=()):
    seen = {}
    options = parameter_options(Toy, defaults or {}, hidden)
    return click.Command("toy", params=options, callback=lambda **values: seen.update(values)), seen


def test_descriptions_come_from_the_parameters_section():
    docs = parameter_docs(Toy)
    assert docs["first"] == docs["second"] == ("int, default 3", "Two counts that share a text.")
    assert docs["step"] == ("float", "The step ``a``, see `other`.")


def test_options_have_the_types_of_the_fields():
    command, seen = toy_command()
    arguments = ["--step", "0.5", "--second", "4", "--mode", "slow", "--kind", "b", "--switch", "12"]
    arguments += ["--no-safe", "--margin", "false"]
    command.main(arguments, standalone_mode=False)
    assert seen == {
        "step": 0.5,
        "first": 3,
        "second": 4,
        "mode": "slow",
        "kind": "b",
        "switch": 12,
        "safe": False,
        "margin": False,
    }
    command.main(["--step", "1", "--switch", "practical"], standalone_mode=False)
    assert seen["switch"] == "practical"


@pytest.mark.parametrize(
    "arguments",
    [[], ["--step", "x"], ["--step", "1", "--mode", "odd"], ["--step", "1", "--switch", "odd"]],
)
def test_values_that_do_not_fit_are_refused(arguments):
    command, _ = toy_command()
    with pytest.raises(click.UsageError):
        command.main(arguments, standalone_mode=False)


def test_the_registry_may_set_defaults_and_hide_parameters():
    command, seen = toy_command({"step": 2.0}, ("mode",))
    command.main([], standalone_mode=False)
    assert seen["step"] == 2.0
    assert "mode" not in seen


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_of_the_registry_has_help_for_every_parameter(name, capsys):
    method = get_method(name)
    options = parameter_options(method.load(), method.defaults, method.hidden)
    assert options
    for option in options:
        assert option.help, f"{name}: {option.name} has no description in the docstring"
    assert run([name, "--help"]) == 0
    assert "--max-rounds" in capsys.readouterr().out


def test_an_unknown_method_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="method must be one of 'local-gd'"):
        get_method("levenberg")


def test_help_is_answered_without_importing_a_method():
    code = (
        "import sys; from solvers.cli.command import run; run(['--help']);"
        "heavy = {'numba', 'pandas', 'sklearn', 'matplotlib', 'cvxpy', 'mpi4py', 'solvers.federated'};"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"a heavy module was imported: {done.stdout}{done.stderr}"
    assert "local-gd" in done.stdout


# -- graphs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("ring", 12),
        ("path", 11),
        ("complete", 66),
        ("star", 11),
        ("grid", 17),
        ("grid:2x6", 16),
        ("torus:3x4", 24),
        ("erdos-renyi:1.0", 66),
    ],
)
def test_graphs_are_known_by_name(text, edges):
    graph = parse_graph(text, 12, seed=0)
    assert (graph.n, graph.n_edges) == (12, edges)


def test_a_graph_may_be_an_edge_list_file(tmp_path):
    path = tmp_path / "links.txt"
    path.write_text("0 1\n1 2\n")
    assert parse_graph(str(path), 3, seed=0).n_edges == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("moebius", "--graph must be one of ring"),
        ("grid:5x5", "grid:AxB"),
        ("hypercube", "power of two"),
        ("erdos-renyi:many", "needs a probability"),
        ("erdos-renyi:2", "must be"),
    ],
)
def test_graphs_that_do_not_fit_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse_graph(text, 12, seed=0)


# -- runs ----------------------------------------------------------------------------------------------------


def test_a_run_writes_all_that_is_asked_for(separable, tmp_path, capsys):
    paths = {name: tmp_path / f"run.{name}" for name in ("npz", "csv", "png", "html")}
    arguments = ["local-gd-constant", separable, "--agents", 4, "--step-size", 4, "--local-steps", 8]
    arguments += ["--max-rounds", 60, "--positive", "yes", "--split", "label"]
    arguments += ["--out", paths["npz"], "--history", paths["csv"]]
    arguments += ["--plot", paths["png"], "--report", paths["html"]]
    assert run(list(map(str, arguments))) == 0
    assert "max_rounds" in capsys.readouterr().out
    frame = pandas.read_csv(paths["csv"])
    with np.load(paths["npz"], allow_pickle=False) as saved:
        np.testing.assert_array_equal(saved["history.objective"], frame["objective"])
        table = pandas.read_csv(separable)
        scores = table[list(saved["feature_names"])].to_numpy() @ saved["coefficients"] + saved["intercept"]
    assert frame["objective"].iloc[-1] < frame["objective"].iloc[0] / 5
    np.testing.assert_array_equal(scores > 0, table["answer"] == "yes")
    assert paths["png"].read_bytes().startswith(b"\x89PNG")
    page = paths["html"].read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page


def test_coefficients_are_in_the_units_of_the_file(separable, tmp_path, capsys):
    out = tmp_path / "run.npz"
    arguments = ["local-gd-constant", separable, "--agents", 2, "--step-size", 2, "--local-steps", 4]
    arguments += ["--max-rounds", 30, "--standardize", "--quiet", "--out", out]
    assert run(list(map(str, arguments))) == 0
    assert capsys.readouterr().out == ""
    table = pandas.read_csv(separable)
    X = table[["a", "b", "c"]].to_numpy()
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    bias = np.linalg.norm(Z, axis=1).mean()
    with np.load(out) as saved:
        inside = Z @ saved["x"][:-1] + bias * saved["x"][-1]
        np.testing.assert_allclose(
            X @ saved["coefficients"] + saved["intercept"], inside, rtol=1e-12, atol=1e-12
        )


def test_json_is_valid_and_complete(separable, capsys):
    arguments = ["local-gd", separable, "--agents", 2, "--local-steps", 4, "--max-rounds", 5, "--json"]
    assert run(list(map(str, arguments))) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "max_rounds"
    assert document["rounds"] == 5
    assert document["parameters"]["local_steps"] == 4
    assert document["communication"]["rounds"] == 5


def test_a_decentralised_method_runs_on_a_graph(separable, capsys):
    arguments = [
        "dgd",
        separable,
        "--agents",
        6,
        "--graph",
        "ring",
        "--l2",
        0.1,
        "--max-rounds",
        20,
        "--json",
    ]
    assert run(list(map(str, arguments))) == 0
    assert json.loads(capsys.readouterr().out)["data"]["graph"] == "ring"


def test_svmlight_files_are_solved_sparse(tmp_path, capsys):
    path = tmp_path / "a.svm"
    path.write_text("".join(f"{1 if j % 2 else 2} {j + 1}:1\n" for j in range(20)))
    arguments = ["local-gd-constant", path, "--agents", 2, "--step-size", 1, "--local-steps", 2]
    assert run([*map(str, arguments), "--max-rounds", "5", "--json"]) == 0
    assert "CSR" in json.loads(capsys.readouterr().out)["data"]["features"]


def test_a_killed_run_is_resumed(separable, tmp_path, capsys):
    def solve(rounds, *more):
        arguments = ["local-gd-constant", separable, "--agents", 3, "--step-size", 4, "--local-steps", 4]
        arguments += ["--max-rounds", rounds, "--quiet", "--out", tmp_path / "run.npz", *more]
        assert run(list(map(str, arguments))) == 0
        with np.load(tmp_path / "run.npz") as saved:
            return saved["x"]

    checkpoint = ("--checkpoint", tmp_path / "run.ckpt")
    whole = solve(40)
    solve(15, *checkpoint)
    np.testing.assert_array_equal(solve(40, *checkpoint, "--resume"), whole)


# -- bad input -----------------------------------------------------------------------------------------------


def test_bad_input_is_one_line_and_status_two(separable, tmp_path, capsys):
    assert "does not exist" in fails(capsys, "local-gd", tmp_path / "nothing.csv")
    bad = tmp_path / "bad.csv"
    bad.write_text("a,y\n1,0\nx,1\n")
    assert "line 3, column 'a'" in fails(capsys, "local-gd", bad)
    assert "No such command" in fails(capsys, "levenberg", separable)
    assert "No such option" in fails(capsys, "local-gd", separable, "--sped", "3")
    assert "positive must be one of" in fails(capsys, "local-gd", separable, "--positive", "perhaps")
    assert "n_agents must be at most" in fails(capsys, "local-gd", separable, "--agents", 1000)
    assert "local_steps must be" in fails(capsys, "local-gd", separable, "--local-steps", 0)
    assert "max_rounds must be" in fails(capsys, "local-gd", separable, "--max-rounds", -1)
    assert "--record-every" in fails(capsys, "local-gd", separable, "--record-every", "often")
    assert "existing folder" in fails(capsys, "local-gd", separable, "--out", tmp_path / "no" / "run.npz")
    assert "name a graph" in fails(capsys, "dgd", separable)
    assert "takes no --graph" in fails(capsys, "local-gd", separable, "--graph", "ring")
    assert "loss must be one of" in fails(capsys, "local-gd", separable, "--loss", "cubic")
    assert "namespace must be" in fails(capsys, "local-gd", separable, "--namespace", "abacus")


def test_the_module_is_a_program(separable):
    done = subprocess.run(
        [sys.executable, "-m", "solvers", "local-gd", str(separable), "--agents", "-1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "optikit-solve: --agents must be an integer >= 1, got -1.\n"


@pytest.mark.mpi
def test_ranks_print_once_and_agree_with_one_process(separable, tmp_path, mpi_run):
    program = tmp_path / "program.py"
    program.write_text("from solvers.__main__ import main\nmain()\n")
    arguments = ["local-gd-constant", separable, "--agents", 5, "--step-size", 4, "--local-steps", 4]
    arguments += ["--max-rounds", 20, "--json"]
    documents = [
        json.loads(mpi_run(ranks, program, *arguments, "--out", tmp_path / f"{ranks}.npz").stdout)
        for ranks in (1, 3)
    ]
    assert [document["ranks"] for document in documents] == [1, 3]
    with np.load(tmp_path / "1.npz") as one, np.load(tmp_path / "3.npz") as three:
        np.testing.assert_allclose(three["x"], one["x"], rtol=1e-10)


@pytest.mark.mpi
def test_bad_input_ends_all_ranks_with_one_line(tmp_path, mpi_run):
    program = tmp_path / "program.py"
    program.write_text("from solvers.__main__ import main\nmain()\n")
    mixed = tmp_path / "mixed.svm"
    mixed.write_text("1 1:1\n-1 1:1\n1 1:2\n-1 1:2\n")
    broken = tmp_path / "run.ckpt"
    broken.write_text("not a checkpoint")
    for arguments, message in (
        ([tmp_path / "nothing.csv"], "does not exist"),
        ([mixed, "--agents", 2, "--switch", "loss"], "not linearly separable"),
        ([mixed, "--agents", 2, "--checkpoint", broken, "--resume"], "not a readable optikit checkpoint"),
    ):
        done = mpi_run(2, program, "local-gd", *arguments, check=False)
        assert done.returncode == 2
        errors = [line for line in done.stderr.splitlines() if "warning" not in line]
        assert len(errors) == 1, done.stderr
        assert message in errors[0]
