"""``optikit-solve newton``: one process, simulated workers, MPI ranks, other families."""

import json
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from solvers.cli.command import run


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three hundred rows with labels and counts, as csv files."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = np.where(rng.random(300) < 1 / (1 + np.exp(-(X @ [1.0, -1.0, 0.5] + 0.7))), 1, -1)
    counts = rng.poisson(np.exp(0.3 * X[:, 0]))
    folder = tmp_path_factory.mktemp("data")
    for name, target in (("labels", y), ("counts", counts)):
        rows = np.column_stack([X, target])
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header="a,b,c,y", comments="")
    return folder, X, y


def solve(capsys, *arguments):
    assert run([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_answer_is_the_penalised_fit_with_a_free_intercept(table, capsys, tmp_path):
    folder, X, y = table
    out = tmp_path / "fit.npz"
    found = solve(capsys, "newton", folder / "labels.csv", "--l2", 0.01, "--tol", 1e-12, "--out", out)
    assert found["status"] == "converged"
    peer = LogisticRegression(C=1 / (300 * 0.01), tol=1e-12, max_iter=1000).fit(X, y)
    with np.load(out) as archive:
        np.testing.assert_allclose(archive["coefficients"], peer.coef_[0], rtol=1e-5)
        np.testing.assert_allclose(archive["intercept"], peer.intercept_[0], rtol=1e-5)


def test_other_families_and_sketches_are_options(table, capsys):
    folder = table[0]
    for sketch in ("saso", "exact", "less-uniform"):
        found = solve(
            capsys, "newton", folder / "counts.csv", "--loss", "poisson", "--sketch", sketch.replace("-", "_")
        )
        assert found["status"] == "converged"
    assert run(["newton", str(folder / "labels.csv"), "--graph", "ring"]) == 2
    assert "takes no --graph" in capsys.readouterr().err


@pytest.mark.mpi
def test_four_ranks_give_the_answer_of_four_simulated_workers(table, capsys, mpi_run):
    file = table[0] / "labels.csv"
    arguments = ["newton", file, "--agents", 4, "--m", 40, "--sketch", "less_uniform", "--json"]
    one = solve(capsys, *arguments[:-1])
    program = Path(sysconfig.get_path("scripts")) / "optikit-solve"
    script = program if program.exists() else sys.argv[0]
    several = json.loads(mpi_run(4, script, *arguments).stdout)
    assert several["objective"] == pytest.approx(one["objective"], rel=1e-12)
    assert several["rounds"] == one["rounds"]
