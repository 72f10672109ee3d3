"""The command line on graphs: every topology by name, every method, accuracies and their certificates."""

import json

import numpy as np
import pytest

from optikit.graphs import path, ring
from optikit.mixing import MixingMatrix, TopologySequence, rotating_star
from optikit.objectives import reference_optimum
from solvers.cli.command import run
from solvers.cli.problem import build_problem, parse_loss
from solvers.cli.topology import KINDS, parse_topology
from solvers.registry import METHODS


@pytest.fixture(scope="module")
def svm(tmp_path_factory):
    """Sixty noisy rows of two classes in svmlight format."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(60) > 0, 1, -1)
    lines = [f"{a} " + " ".join(f"{j + 1}:{v:.6f}" for j, v in enumerate(row)) for a, row in zip(y, X)]
    file = tmp_path_factory.mktemp("data") / "mydata.svm"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Forty rows of a linear relation with heavy-tailed noise."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 2))
    y = X @ [2.0, -1.0] + rng.standard_t(2, 40)
    file = tmp_path_factory.mktemp("data") / "table.csv"
    np.savetxt(file, np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")
    return file


def solve(capsys, *arguments):
    """The JSON document of a run that succeeds."""
    assert run([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def fails(capsys, *arguments):
    """The one line on stderr of a run with bad input."""
    assert run(list(map(str, arguments))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


# -- topologies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "n", "period"),
    [
        ("base-2", 12, 5),  # lengths of the Base-(k+1) and null-cascade sequences as published
        ("base-3", 11, 5),
        ("null-cascade", 25, 4),
        ("null-cascade:4", 7, 2),
        ("1-peer-exponential", 10, 4),
        ("2-peer-exponential", 27, 3),
        ("1-peer-hypercube", 16, 4),
        ("rotating-star", 6, 6),
        ("ring-star", 5, 10),
        ("random:0.5", 8, None),
        ("random", 8, None),
        ("matchings", 9, None),
        ("failures:0.2:torus", 9, None),
        ("windows:3:ring", 9, 3),
    ],
)
def test_sequences_are_known_by_name(text, n, period):
    sequence = parse_topology(text, n, seed=3)
    assert isinstance(sequence, TopologySequence)
    assert (sequence.n, sequence.period, sequence.kind) == (n, period, "mixing")


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_gets_weights_of_the_kind_that_the_method_asks_for(kind):
    topology = parse_topology("erdos-renyi:0.5", 8, kind=kind)
    assert topology.kind == {"static": "mixing"}.get(kind, kind)
    exponential = parse_topology("exponential", 8, kind=kind)
    assert exponential.kind == {"static": "mixing", "gossip": "mixing"}.get(kind, kind)


def test_weights_can_be_chosen():
    for rule in ("metropolis", "lazy", "max-degree", "laplacian"):
        topology = parse_topology("star", 6, weights=rule)
        assert isinstance(topology, MixingMatrix)
        assert topology.kind == "mixing"
    # Rotating star, n = 9: chi = (n+1)^2/(4n) with the best Laplacian weight.
    assert parse_topology("rotating-star", 9, kind="gossip").chi() == pytest.approx(25 / 9, abs=1e-12)
    assert parse_topology("rotating-star", 9).chi() == pytest.approx(rotating_star(9).chi(), abs=1e-12)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("moebius", {}, "a sequence"),
        ("base-1", {}, "K of base-K must be an integer >= 2"),
        ("base-2", {"weights": "lazy"}, "weights of its own"),
        ("null-cascade:1", {}, "k must be >= 2"),
        ("1-peer-hypercube", {}, "power of 2"),
        ("random:2", {}, "P of random:P must be"),
        ("failures:0.2", {}, "failures:NUMBER:GRAPH"),
        ("windows:x:ring", {}, "needs a number of rounds"),
        ("rotating-star", {"kind": "static"}, "changes every round"),
        ("geometric:far", {}, "needs a number"),
    ],
)
def test_names_that_do_not_fit_are_refused(text, options, message):
    with pytest.raises(ValueError, match=message):
        parse_topology(text, 9, **options)


def test_an_edge_list_may_be_directed(tmp_path):
    file = tmp_path / "links.txt"
    file.write_text("# a directed ring and a short cut\n0 1\n1 2\n2 3\n3 0\n0 2\n")
    assert parse_topology(str(file), 4, kind="col", directed=True).kind == "col"
    with pytest.raises(ValueError, match="in-degree = out-degree"):
        parse_topology(str(file), 4, directed=True)


def test_losses_may_carry_their_parameter():
    assert parse_loss("quantile:0.9").level == 0.9
    assert parse_loss("huber:2").delta == 2.0
    assert parse_loss("least-squares").name == "least_squares"
    for text, message in (("hinge:2", "takes no parameter"), ("quantile:high", "needs a number")):
        with pytest.raises(ValueError, match=message):
            parse_loss(text)


# -- methods -------------------------------------------------------------------------------------------------

ON_GRAPHS = {
    "dgd": "torus",
    "nonsmooth": "rotating-star",
    "dsm": "null-cascade",
    "subgradient-push": "exponential",
    "sliding": "grid",
    "gradient-tracking": "base-2",
    "adom": "ring-star",
    "zo-sadom": "ring",
    "push-diging": "exponential",
    "push-pull": "exponential",
    "pull-diag-gt": "exponential",
    "mg-pull-diag-gt": "exponential",
    "robust-learning": "complete",
}


@pytest.mark.parametrize("name", ON_GRAPHS)
def test_every_method_on_a_graph_solves_a_file(svm, capsys, name):
    document = solve(capsys, name, svm, "--agents", 6, "--graph", ON_GRAPHS[name], "--max-rounds", 300)
    assert document["status"] == "max_rounds"
    loss = {"hinge": 1.0, "logistic": np.log(2)}[METHODS[name].loss]
    assert document["objective"] < 0.85 * loss  # the value at 0, where every run starts
    assert document["communication"]["rounds"] == document["rounds"] >= 300


def test_the_server_reference_takes_no_graph(svm, capsys):
    assert solve(capsys, "subgradient", svm, "--agents", 3)["objective"] < 0.5


@pytest.mark.parametrize("graph", ["ring", "rotating-star", "base-2", "null-cascade", "windows:2:ring"])
def test_the_certificate_meets_the_accuracy_and_bounds_the_optimum(svm, capsys, graph):
    arguments = ["--agents", 6, "--split", "label", "--graph", graph, "--l2", 0.1, "--eps", 0.05]
    document = solve(capsys, "nonsmooth", svm, *arguments)
    certificate = document["certificate"]
    assert document["status"] == "converged"
    assert certificate["gap"] <= 0.05
    problem = build_problem(svm, agents=6, split="label", loss="hinge")
    optimum = reference_optimum(problem.objective, l2=0.1).value
    assert certificate["lower_bound"] <= optimum + 1e-8
    assert certificate["upper_bound"] >= optimum - 1e-8
    assert document["objective"] - optimum <= 0.05
    assert document["parameters"]["r"] == 0.1


def test_the_certified_gap_is_printed(svm, capsys, tmp_path):
    picture = tmp_path / "gap.png"
    arguments = ["--agents", 6, "--graph", "ring", "--l2", 0.1, "--eps", 0.1, "--plot", picture]
    assert run(["nonsmooth", str(svm), *map(str, arguments)]) == 0
    assert "optimality gap 0." in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_convex_mode_reaches_its_accuracy_on_quantile_regression(table, capsys):
    arguments = ["--agents", 4, "--graph", "complete", "--loss", "quantile:0.5", "--no-bias"]
    arguments += ["--l2", 0, "--radius", 4, "--eps", 0.1]
    document = solve(capsys, "nonsmooth", table, *arguments)
    assert document["status"] == "converged"
    objective = build_problem(table, agents=4, loss="quantile:0.5", bias=False).objective
    optimum = reference_optimum(objective)
    assert np.linalg.norm(optimum.x) < 4
    # The certificate speaks of the problem with the ridge eps/R^2; it implies f(x) - f* <= eps.
    assert document["parameters"]["r"] == pytest.approx(0.1 / 16)
    assert document["objective"] - optimum.value <= 0.1


def test_the_theory_preset_sets_the_rounds_of_the_theorem(svm, capsys):
    arguments = ["--agents", 3, "--graph", "complete", "--l2", 0.5, "--eps", 0.5, "--preset", "theory"]
    arguments += ["--max-rounds", 1]
    document = solve(capsys, "nonsmooth", svm, *arguments)
    assert document["status"] == "converged"
    assert document["rounds"] > 1


def test_a_directed_edge_list_serves_a_push_method(svm, capsys, tmp_path):
    file = tmp_path / "links.txt"
    file.write_text("0 1\n1 2\n2 3\n3 0\n0 2\n")
    arguments = [svm, "--agents", 4, "--graph", file, "--directed", "--step-size", 0.5, "--l2", 0.1]
    document = solve(capsys, "push-diging", *arguments)
    optimum = reference_optimum(build_problem(svm, agents=4, l2=0.1).objective).value
    assert document["objective"] - optimum < 1e-6
    assert "in-degree" in fails(capsys, "gradient-tracking", *arguments)


def test_a_reference_includes_the_ridge(svm, tmp_path, capsys):
    picture = tmp_path / "gap.png"
    arguments = [svm, "--agents", 3, "--graph", "complete", "--l2", 0.3, "--max-rounds", 50, "--reference"]
    assert run([*map(str, ["dsm", *arguments, "--plot", picture, "--quiet"])]) == 0
    assert picture.exists()


def test_bad_input_is_one_line(svm, capsys):
    ns = ("nonsmooth", svm, "--agents", 4, "--graph", "ring")
    assert "eps must be a finite number > 0" in fails(capsys, *ns, "--eps", 0)
    assert "needs --radius" in fails(capsys, *ns, "--eps", 0.1, "--l2", 0)
    assert "give --l2 0" in fails(capsys, *ns, "--eps", 0.1, "--radius", 3)
    assert "give --eps too" in fails(capsys, *ns, "--radius", 3)
    assert "r must be a finite number > 0" in fails(capsys, *ns, "--l2", 0)
    assert "no Lipschitz constant" in fails(capsys, *ns, "--eps", 0.1, "--loss", "squared-hinge")
    assert "not smooth" in fails(capsys, "adom", svm, "--agents", 4, "--graph", "ring", "--loss", "hinge")
    assert "strong convexity" in fails(capsys, "adom", svm, "--agents", 4, "--graph", "ring", "--l2", 0)
    assert "static symmetric network" in fails(capsys, "sliding", svm, "--agents", 4, "--graph", "base-2")
    assert "no period" in fails(capsys, "nonsmooth", svm, "--agents", 4, "--graph", "matchings")
    assert "No such option" in fails(capsys, "local-gd", svm, "--link-weights", "lazy")


@pytest.mark.mpi
def test_two_ranks_certify_what_one_does(svm, tmp_path, mpi_run):
    program = tmp_path / "program.py"
    program.write_text("from solvers.__main__ import main\nmain()\n")
    links = tmp_path / "links.txt"
    np.savetxt(links, np.concatenate([ring(5).edges, path(5).edges]), fmt="%d")
    arguments = ["nonsmooth", svm, "--agents", 5, "--graph", links, "--l2", 0.1, "--eps", 0.1, "--json"]
    documents = [json.loads(mpi_run(ranks, program, *arguments).stdout) for ranks in (1, 2)]
    assert [document["ranks"] for document in documents] == [1, 2]
    assert documents[1]["status"] == "converged"
    assert documents[1]["rounds"] == documents[0]["rounds"]
    for key in ("lower_bound", "upper_bound"):
        assert documents[1]["certificate"][key] == pytest.approx(documents[0]["certificate"][key], rel=1e-10)
