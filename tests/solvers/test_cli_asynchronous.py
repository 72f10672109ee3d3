"""``optikit-solve async-bundle`` and its neighbours: clocks, traces, regularisers, MPI ranks."""

import json
import sys
import sysconfig
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_breast_cancer

from optikit.runtime.trace import Trace
from solvers.cli.asynchronous import parse_clock
from solvers.cli.command import run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Breast cancer as svmlight files: all entries, and the large ones alone (read as CSR)."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    folder = tmp_path_factory.mktemp("data")
    dump_svmlight_file(X, 2 * y - 1, str(folder / "dense.svm"))
    dump_svmlight_file(np.where(np.abs(X) > 1.5, X, 0.0), 2 * y - 1, str(folder / "sparse.svm"))
    return folder


def solve(capsys, *arguments, status=0):
    assert run([*map(str, arguments), "--json"]) == status
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_the_gap_is_certified(files, capsys, name):
    found = solve(capsys, "async-bundle", files / f"{name}.svm", "--agents", 4, "--L-scale", 0.3)
    assert found["status"] == "converged"
    assert 0 <= found["certificate"]["gap"] <= 1e-6
    assert ("CSR" in found["data"]["features"]) == (name == "sparse")


def test_the_gap_is_printed_as_it_falls(files, capsys):
    assert run(["async-bundle", str(files / "dense.svm"), "--agents", "4", "--L-scale", "0.3"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "certified gap" in line]
    gaps = [float(line.split()[2]) for line in lines]
    assert len(gaps) > 5
    assert all(b <= 0.5 * a for a, b in pairwise(gaps))


def test_a_saved_trace_is_replayed_to_the_same_answer(files, capsys, tmp_path):
    trace, first, second = (tmp_path / name for name in ("t.npz", "a.npz", "b.npz"))
    common = ["async-bundle", files / "dense.svm", "--agents", 3, "--max-rounds", 60, "--l1", 1e-3]
    solve(capsys, *common, "--clock", "ticks:1,2,5", "--save-trace", trace, "--out", first)
    solve(capsys, *common, "--replay", trace, "--out", second, "--timeline", tmp_path / "t.png")
    assert len(Trace.load(trace)) == 60
    with np.load(first) as a, np.load(second) as b:
        np.testing.assert_array_equal(a["x"], b["x"])
    assert (tmp_path / "t.png").stat().st_size > 1000


def test_a_box_bounds_every_coefficient(files, capsys, tmp_path):
    out = tmp_path / "x.npz"
    solve(capsys, "async-bundle", files / "dense.svm", "--box", -0.1, 0.2, "--out", out)
    with np.load(out) as archive:
        assert archive["x"].min() >= -0.1
        assert archive["x"].max() <= 0.2


@pytest.mark.parametrize("method", ["piag", "async-sgd"])
def test_the_baselines_run(files, capsys, method):
    extra = ["--step-size", 0.05] if method == "async-sgd" else []
    found = solve(capsys, method, files / "dense.svm", "--agents", 4, "--max-rounds", 400, *extra)
    assert found["objective"] < 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clock", "sundial"], "--clock must be one of"),
        (["--clock", "ticks:1,2"], "needs one number per agent, 3, got 2"),
        (["--clock", "pareto:x"], "needs numbers after the colon"),
        (["--clock", "uniform:1"], "takes 2 numbers"),
        (["--l1", "0.1", "--box", "0", "1"], "two forms of h"),
        (["--replay", "none.npz"], "none.npz"),
        (["--l1", "-1"], "l1 must be"),
        (["--box", "1", "0"], "low must be at most high"),
        (["--save-trace", "no/such/folder.npz"], "existing folder"),
        (["--graph", "ring"], "takes no --graph"),
        (["--model", "polyak"], "f_low"),
    ],
)
def test_bad_options_are_one_line(files, capsys, arguments, message):
    assert run(["async-bundle", str(files / "dense.svm"), "--agents", "3", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_clocks_have_names():
    assert parse_clock("ticks:1,2,3", 3, 0).durations == [1, 2, 3]
    assert parse_clock("lognormal:0.5", 3, 0).sigma == 0.5


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_four_ranks_certify_the_gap_of_a_file(files, mpi_run, name):
    program = Path(sysconfig.get_path("scripts")) / "optikit-solve"
    script = program if program.exists() else sys.argv[0]
    done = mpi_run(4, script, "async-bundle", files / f"{name}.svm", "--L-scale", 0.3, "--agents", 6)
    assert "certified gap" in done.stdout
    assert "converged" in done.stdout
    refused = mpi_run(4, script, "async-bundle", files / f"{name}.svm", "--agents", 2, check=False)
    assert refused.returncode == 2
    assert len(refused.stderr.strip().splitlines()) == 1
