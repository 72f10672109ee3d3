"""Robust gossip: the rules, the attacks, and the breakdown theorem.

Figures are those of section 8 of the network layer's specification.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optikit import graphs
from optikit.arrays import from_numpy, to_numpy
from optikit.mixing import Cyclic, from_matrix, metropolis, row_stochastic
from optikit.network import Network
from optikit.objectives import Quadratic
from optikit.runtime.communicator import SerialCommunicator
from solvers.decentralized.attacks import ATTACKS, SIZES, HonestView, direction
from solvers.decentralized.robust import RobustGossip, RobustLearning
from solvers.decentralized.robust_round import RobustRound, breakdown, fiedler_vector, honest_laplacian
from solvers.decentralized.robust_rules import RULES, Links, robust_sum, robust_sums

PROGRAM = Path(__file__).parents[1] / "mpi" / "robust.py"
SERIAL = SerialCommunicator()
EXAMPLE = np.array([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0], [0.0, 6.0], [8.0, 0.0]])


def unit_weights(graph):
    return from_matrix(graph.laplacian(), "gossip")


def two_worlds(h=8):
    return unit_weights(graphs.two_worlds(26, h))


def worlds(seed=0, d=5):
    """Unit normal vectors around +5 in one world, around -5 in the other."""
    return np.random.default_rng(seed).standard_normal((26, d)) + 5.0 * np.repeat([[1.0], [-1.0]], 13, axis=0)


def rounds_of(matrix, X, count, rule, b, attack):
    """``(contraction, drift)`` of each round, and the vectors at the end."""
    network = Network(matrix, communicator=SERIAL)
    prepared = RobustRound(network, rule, b, attack=attack)
    found = []
    for _ in range(count):
        mean = X.mean(axis=0)
        before = np.sum((X - mean) ** 2)
        if before < 1e-16:
            break
        X = prepared.apply(network, X)
        drift = X.shape[0] * np.sum((X.mean(axis=0) - mean) ** 2)
        found.append((np.sum((X - mean) ** 2) / before, drift / before))
    return np.array(found), X


# -- the rules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("cs+", (2, 4)),
        ("gts", (-1, 7)),
        ("clipped_gossip", (np.sqrt(50) - 1, 7)),  # tau^2 = 1 + 4 + 9 + 36; 6.0710678
        ("trimmed_mean", (2, 1)),  # per coordinate, one entry off either end
        ("ios", (-1, 7)),  # the running mean is (7, 7) / 6: (8, 0) is farthest
        ("average", (7, 7)),
    ],
)
def test_rules_on_the_worked_example(xp, rule, expected):
    found = to_numpy(robust_sum(from_numpy(EXAMPLE, xp), 1.0, rule=rule))
    np.testing.assert_allclose(found, expected, atol=1e-7)


def honest_ratio(rule, honest, byzantine, weights=None, byzantine_weights=None):
    """``||F - honest sum||^2 / (b sum w ||z||^2)`` with b the weight of the Byzantine vectors."""
    honest, byzantine = (np.asarray(z, dtype=float).reshape(len(z), -1) for z in (honest, byzantine))
    w = np.ones(len(honest)) if weights is None else np.asarray(weights)
    v = np.ones(len(byzantine)) if byzantine_weights is None else np.asarray(byzantine_weights)
    b = float(v.sum())
    total = robust_sum(np.concatenate([honest, byzantine]), b, rule=rule, weights=np.concatenate([w, v]))
    scale = b * np.sum(w * np.sum(honest**2, axis=1))
    return np.sum((total - w @ honest) ** 2) / scale


def test_worst_cases_of_both_rules_are_attained():
    assert honest_ratio("cs+", [1.0, 1.0], [0.0]) == pytest.approx(2.0, abs=1e-12)
    assert honest_ratio("gts", [1.0, 0.0], [-0.999]) == pytest.approx(1.999**2, abs=1e-12)


def test_clipping_more_than_twice_b_is_not_robust():
    # Unit weights, b = 1/4: 2b falls inside the larger vector's weight, so nothing may be clipped.
    assert robust_sum([[0.0], [1.0]], 0.25, rule="cs+")[0] == 1.0
    assert robust_sum([[0.0], [1.0]], 0.5, rule="cs+")[0] == 0.0  # here exactly 2b is clipped: ratio 2


SMALL = st.floats(-10, 10).map(lambda x: round(x, 3))


@pytest.mark.parametrize("rule", ["cs+", "gts"])
@given(
    data=st.data(), dim=st.integers(1, 3), f=st.integers(1, 3), extra=st.integers(0, 5), unit=st.booleans()
)
@settings(max_examples=150, deadline=None)
def test_rules_are_robust_sums(rule, data, dim, f, extra, unit):
    k = f + extra
    vectors = st.lists(SMALL, min_size=dim, max_size=dim)
    honest = data.draw(st.lists(vectors, min_size=k, max_size=k))
    byzantine = data.draw(st.lists(vectors, min_size=f, max_size=f))
    assume(np.sum(np.square(honest)) > 1e-6)
    weights = byzantine_weights = None
    if not unit:
        sizes = st.sampled_from([0.25, 0.5, 1.0, 1.75])
        weights = data.draw(st.lists(sizes, min_size=k, max_size=k))
        byzantine_weights = data.draw(st.lists(sizes, min_size=f, max_size=f))
        assume(sum(byzantine_weights) <= sum(weights))
    assert honest_ratio(rule, honest, byzantine, weights, byzantine_weights) <= RULES[rule] * (1 + 1e-9)


def test_random_search_comes_close_to_the_constants():
    rng = np.random.default_rng(0)
    worst = dict.fromkeys(("cs+", "gts"), 0.0)
    for _ in range(3000):
        k = int(rng.integers(1, 4))
        honest, byzantine = rng.choice([0.0, 0.5, 1.0], k) * rng.choice([-1, 1], k), rng.uniform(-1, 1, 1)
        if np.any(honest):
            for rule, value in worst.items():
                worst[rule] = max(value, honest_ratio(rule, honest, byzantine))
    assert 1.9 <= worst["cs+"] <= 2.0 + 1e-12
    assert 3.5 <= worst["gts"] <= 4.0 + 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_nothing_is_cut_without_byzantine_weight(rule):
    np.testing.assert_allclose(robust_sum(EXAMPLE, 0.0, rule=rule), EXAMPLE.sum(axis=0))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_vectors_that_are_not_finite_are_dropped_and_count_as_byzantine(xp, rule, bad):
    broken = np.concatenate([EXAMPLE, [[bad, 0.0]]])
    found = to_numpy(robust_sum(from_numpy(broken, xp), 2.0, rule=rule))
    np.testing.assert_allclose(found, robust_sum(EXAMPLE, 1.0, rule=rule), rtol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernels_agree_with_the_array_reference(xp, rule, dtype):
    rng = np.random.default_rng(1)
    degrees = rng.integers(0, 9, 20)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    weights = rng.choice([0.5, 1.0, 2.0], indptr[-1])
    links = Links(indptr, rng.integers(0, 30, indptr[-1]), weights, np.ones(20))
    own = rng.standard_normal((20, 6)).astype(dtype)
    rows = (3 * rng.standard_normal((30, 6))).astype(dtype)
    rows[4] = np.nan
    bound = links.totals * rng.random(20) / 2
    found = robust_sums(from_numpy(own, xp), from_numpy(rows, xp), links, bound, rule)
    expected = robust_sums(own.astype(float), rows.astype(float), links, bound, rule)
    assert str(found.dtype).endswith(dtype)
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-12 if dtype == "float64" else 1e-4)


def test_many_unit_neighbours_equal_one_heavy_one_for_the_theorems_rules():
    rng = np.random.default_rng(2)
    honest, lie = rng.standard_normal((7, 3)), rng.standard_normal((1, 3))
    for rule in ("cs+", "gts", "average"):
        apart = robust_sum(np.concatenate([honest, np.repeat(lie, 3, axis=0)]), 3.0, rule=rule)
        together = robust_sum(
            np.concatenate([honest, lie]), 3.0, rule=rule, weights=np.array([1.0] * 7 + [3.0])
        )
        np.testing.assert_allclose(apart, together, rtol=1e-12)


# -- the theorem --------------------------------------------------------------------------------------------


def test_breakdown_of_two_worlds():
    found = breakdown(two_worlds(), "cs+", 3.0)
    assert found.mu_min == pytest.approx(16.0, abs=1e-10)  # 2 h
    assert found.mu_max == pytest.approx(24.907, abs=5e-4)
    assert [round(breakdown(two_worlds(), "cs+", f).contraction, 3) for f in (1, 2, 3)] == [
        0.518,
        0.679,
        0.839,
    ]
    assert found.tolerated == pytest.approx(4.0)
    assert breakdown(two_worlds(), "gts", 1.0).tolerated == pytest.approx(2.0)
    assert not breakdown(two_worlds(), "cs+", 7.9).hopeless
    assert breakdown(two_worlds(), "cs+", 8.0).hopeless
    assert not breakdown(two_worlds(), "cs+", 4.0).guaranteed  # delta = 1, whatever the eigenvalues round to
    assert not breakdown(two_worlds(), "ios", 1.0).guaranteed
    assert breakdown(two_worlds(), "ios", 0.0).guaranteed


@pytest.mark.parametrize(("f", "measured"), [(1, 0.193), (2, 0.272), (3, 0.364)])
def test_first_round_on_two_worlds_has_the_measured_ratio(f, measured):
    worst = max(
        rounds_of(two_worlds(), worlds(), 1, "cs+", float(f), attack)[0][0, 0]
        for attack in ("dissensus", "spectral", "alie", "foe")
    )
    assert worst == pytest.approx(measured, abs=2e-3)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(("rule", "f"), [("cs+", 1), ("cs+", 3), ("gts", 1)])
def test_theorem_holds_at_every_round_on_two_worlds(rule, f, attack):
    bound = breakdown(two_worlds(), rule, f)
    assert bound.guaranteed
    ratios, X = rounds_of(two_worlds(), worlds(), 60, rule, float(f), attack)
    assert ratios[:, 0].max() <= bound.contraction * (1 + 1e-9)
    assert ratios[:, 1].max() <= bound.drift * (1 + 1e-9)
    assert np.abs(X - X.mean(axis=0)).max() < 1e-6


@given(st.integers(6, 14), st.floats(0.5, 1.0), st.integers(0, 1000), st.sampled_from(ATTACKS), st.booleans())
@settings(max_examples=40, deadline=None)
def test_theorem_holds_on_random_weighted_graphs(n, p, seed, attack, sort):
    rule = "gts" if sort else "cs+"
    matrix = metropolis(graphs.erdos_renyi(n, p, seed=seed))
    b = 0.9 * breakdown(matrix, rule, 0.0).tolerated
    X = np.random.default_rng(seed).standard_normal((n, 2))
    bound = breakdown(matrix, rule, b)
    heard = np.asarray(honest_laplacian(matrix).diagonal())
    assume(np.all(heard >= b))  # Byzantine weight at most half of all that is heard
    ratios, _ = rounds_of(matrix, X, 8, rule, b, attack)
    assert ratios[:, 0].max() <= bound.contraction * (1 + 1e-9)
    assert ratios[:, 1].max() <= bound.drift * (1 + 1e-9)


@pytest.mark.parametrize("attack", ["dissensus", "spectral", "alie", "foe"])
def test_at_delta_one_gossip_is_stuck_but_bounded(attack):
    assert breakdown(two_worlds(), "cs+", 4.0).delta == pytest.approx(1.0)
    start = worlds()
    ratios, X = rounds_of(two_worlds(), start, 40, "cs+", 4.0, attack)
    assert ratios[-1, 0] == pytest.approx(1.0, abs=1e-3)
    error = np.mean(np.sum((X - start.mean(axis=0)) ** 2, axis=1))
    assert error <= 26 * start.shape[1]  # 26 a coordinate, 5^2 + 1, is where the two worlds began


def test_beyond_breakdown_nna_diverges_while_clipping_stays_bounded():
    start = worlds()
    for rule in ("gts", "cs+", "clipped_gossip"):
        _, X = rounds_of(two_worlds(), start, 40, rule, 6.0, "spectral")
        error = np.mean(np.sum((X - start.mean(axis=0)) ** 2, axis=1))
        if rule == "gts":
            assert error > 1e8
        else:
            assert error < 26 * start.shape[1]


@pytest.mark.parametrize("rule", ["cs+", "clipped_gossip", "trimmed_mean", "average"])
def test_no_rule_that_treats_directions_alike_stands_half_of_mu_min(rule):
    # h = b = 8 = mu_min / 2: eight honest neighbours at +1 of the other world, eight liars at -1 imitating a
    # third. The differences look the same when mirrored, so an odd, order-free rule must answer 0.
    assert breakdown(two_worlds(), rule, 8.0).hopeless
    z = np.concatenate([np.zeros(12), np.ones(8), -np.ones(8)])[:, None]
    assert abs(robust_sum(z, 8.0, rule=rule)[0]) <= 1e-12


def test_without_byzantine_agents_a_round_is_a_laplacian_step():
    matrix = two_worlds()
    network = Network(matrix, communicator=SERIAL)
    X = worlds()
    for rule in RULES:
        expected = X - matrix.csr @ X / breakdown(matrix, rule, 0.0).mu_max
        np.testing.assert_allclose(RobustRound(network, rule).apply(network, X), expected, atol=1e-12)


def test_only_robust_rules_average_a_random_network_with_four_liars():
    # ER n = 20, f = 4: clipping holds where the graph is dense, the plain average never does.
    start = np.random.default_rng(0).standard_normal((20, 5))
    matrix = unit_weights(graphs.complete(20))
    assert breakdown(matrix, "cs+", 4.0).guaranteed  # mu_min = 20 > 4 f
    _, X = rounds_of(matrix, start, 40, "cs+", 4.0, "spectral")
    assert np.abs(X - X.mean(axis=0)).max() < 1e-5
    for p in (0.5, 0.8):
        sparse = unit_weights(graphs.erdos_renyi(20, p, seed=1))
        _, X = rounds_of(sparse, start, 40, "average", 4.0, "spectral")
        assert np.abs(X).max() > 1e6


# -- the attacks --------------------------------------------------------------------------------------------


def test_attacks_point_where_their_papers_say():
    matrix, X = two_worlds(), worlds()
    L = honest_laplacian(matrix)
    u = fiedler_vector(L)
    view = HonestView(X, X, L @ X, np.arange(26), u)
    np.testing.assert_allclose(direction("dissensus", view), L @ X)
    np.testing.assert_allclose(direction("spectral", view), np.outer(u, u @ X))
    np.testing.assert_allclose(direction("alie", view)[3], X.std(axis=0))
    np.testing.assert_allclose(direction("foe", view)[7], X.mean(axis=0))
    np.testing.assert_allclose(direction("sign_flip", view), -X)
    copied = X + direction("mimic", view)
    assert np.all(copied == copied[0]) or np.allclose(copied, copied[0])
    assert np.min(np.linalg.norm(X - copied[0], axis=1)) < 1e-12
    assert len(SIZES) == 26
    assert (SIZES[0], SIZES[1], SIZES[-1]) == (0.0, pytest.approx(1e-3), pytest.approx(1e3))


def test_fiedler_vector_of_two_worlds_tells_them_apart():
    u = fiedler_vector(honest_laplacian(two_worlds(4)))
    np.testing.assert_allclose(np.abs(u), 1 / np.sqrt(26), rtol=1e-9)
    assert abs(u[:13].sum() - u[13:].sum()) == pytest.approx(np.sqrt(26))


# -- the solvers --------------------------------------------------------------------------------------------


def distances(X):
    return Quadratic(np.tile(np.eye(X.shape[1]), (X.shape[0], 1, 1)), X)


def test_gossip_solver_records_error_and_certificate():
    X = worlds()
    network = Network(two_worlds(), communicator=SERIAL)
    result = RobustGossip(b=2.0, attack="spectral").solve(distances(X), network, x0=X, max_rounds=60)
    # The theorem bounds how far the mean can have drifted: a geometric series of sqrt(gamma delta / n).
    bound = breakdown(two_worlds(), "cs+", 2.0)
    assert result.certificate.details["guaranteed"]
    variance = result.history["mse"][0]
    reach = np.sqrt(bound.drift * variance) / (1 - np.sqrt(bound.contraction))
    assert result.history["mse"][-1] <= reach**2
    assert result.history["consensus_error"][-1] < 1e-8
    assert result.rounds == 60
    links = network.topology.matrix(0).nnz - 26
    assert result.ledger.floats_sent == 60 * links * 5


def learning_problem():
    """Twenty agents whose quadratics differ; unit weights on a dense random graph."""
    rng = np.random.default_rng(3)
    targets = 2.0 + rng.standard_normal((20, 4))
    return distances(targets), targets, unit_weights(graphs.erdos_renyi(20, 0.9, seed=2))


def test_robust_learning_survives_what_breaks_averaging():
    objective, targets, matrix = learning_problem()
    network = Network(matrix, communicator=SERIAL)
    robust = RobustLearning(lr=0.1, b=2.0, attack="spectral").solve(objective, network, max_rounds=300)
    assert robust.certificate.details["guaranteed"]
    assert np.linalg.norm(robust.x - targets.mean(axis=0)) < 1.0
    plain = RobustLearning(lr=0.1, rule="average", b=2.0, attack="spectral")
    assert plain.solve(objective, network, max_rounds=100).objective > 1e12


def test_learning_without_attack_is_momentum_with_gossip():
    objective, targets, matrix = learning_problem()
    network = Network(matrix, communicator=SERIAL)
    result = RobustLearning(lr=0.2, momentum=0.5).solve(objective, network, max_rounds=3)
    L, eta = matrix.csr, 1 / breakdown(matrix, "cs+", 0.0).mu_max
    x, m = np.zeros_like(targets), np.zeros_like(targets)
    for _ in range(3):
        m = 0.5 * m + 0.5 * (x - targets)
        x = x - 0.2 * m
        x = x - eta * (L @ x)
    np.testing.assert_allclose(result.iterate, x, atol=1e-13)


def test_a_broken_agent_of_the_network_itself_is_ignored_by_the_others():
    # No simulated attack: agent 5 sends NaN from the start, its neighbours count it within b = 1.
    matrix = unit_weights(graphs.complete(12))
    network = Network(matrix, communicator=SERIAL)
    X = np.random.default_rng(0).standard_normal((12, 3))
    X[5] = np.nan
    prepared = RobustRound(network, "cs+", 1.0)
    for _ in range(40):
        X = prepared.apply(network, X)
    others = np.delete(X, 5, axis=0)
    assert np.all(np.isfinite(others))
    assert np.abs(others - others.mean(axis=0)).max() < 1e-8


@pytest.mark.parametrize("solver", [RobustGossip(b=1.0), RobustLearning(b=1.0, rule="gts", attack="alie")])
def test_solvers_run_in_any_namespace(xp, solver):
    X = np.random.default_rng(0).standard_normal((9, 3))
    matrix = unit_weights(graphs.erdos_renyi(9, 0.7, seed=0))
    network = Network(matrix, communicator=SERIAL)
    expected = solver.solve(distances(X), network, x0=X, max_rounds=6).iterate
    strict = Quadratic(from_numpy(np.tile(np.eye(3), (9, 1, 1)), xp), from_numpy(X, xp))
    found = solver.solve(strict, network, x0=from_numpy(X, xp), max_rounds=6).iterate
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-12)


def test_learning_resumes_from_a_checkpoint(tmp_path):
    objective, _, matrix = learning_problem()
    network = Network(matrix, communicator=SERIAL)
    solver = RobustLearning(b=1.0, attack="dissensus")
    whole = solver.solve(objective, network, max_rounds=12)
    keep = {"checkpoint": tmp_path / "run.npz"}
    solver.solve(objective, network, max_rounds=5, **keep)
    resumed = solver.solve(objective, network, max_rounds=12, resume=True, **keep)
    np.testing.assert_array_equal(resumed.iterate, whole.iterate)


@pytest.mark.mpi
def test_ranks_give_the_iterates_of_one(mpi_run, tmp_path):
    spec = importlib.util.spec_from_file_location("robust_program", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    expected = program.compute(SERIAL)
    for ranks in (1, 2, 3):
        mpi_run(ranks, PROGRAM, tmp_path / "found.npz")
        with np.load(tmp_path / "found.npz") as found:
            for name, value in expected.items():
                np.testing.assert_array_equal(found[name], value, err_msg=f"{name} on {ranks} ranks")


# -- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "options", "message"),
    [
        (two_worlds(), {"b": -1.0}, "b must be"),
        (two_worlds(), {"b": np.nan}, "b must be"),
        (two_worlds(), {"b": 11.0}, "at most half"),  # 20 honest neighbours, no simulated ones
        (two_worlds(), {"b": 21.0, "attack": "alie"}, "at most half"),
        (two_worlds(), {"rule": "median"}, "rule must be"),
        (two_worlds(), {"attack": "bribe"}, "attack must be"),
        (two_worlds(), {"step_size": 0.0}, "step_size must be"),
        (two_worlds(), {"b": 1.0, "attack": "foe", "byzantine": 0}, "byzantine must be"),
        (two_worlds(h=0), {}, "connected honest graph"),
        (row_stochastic(graphs.ring(26)), {}, "kind 'mixing' or 'gossip'"),
        (Cyclic([two_worlds(), two_worlds(4)]), {}, "static network"),
    ],
)
def test_what_cannot_work_is_refused_before_any_round(topology, options, message):
    network = Network(topology, communicator=SERIAL)
    for solver in (RobustGossip(**options), RobustLearning(**options)):
        with pytest.raises(ValueError, match=message):
            solver.solve(distances(worlds()), network, max_rounds=3)
    assert network.round == 0


def test_negative_weights_are_refused():
    L = np.array([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]])
    with pytest.raises(ValueError, match="weights >= 0"):
        breakdown(from_matrix(L, "gossip"), "cs+", 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"b": -0.5}, "b must be"),
        ({"b": 3.0}, "at most half"),
        ({"b": 1.0, "weights": [1.0, 1.0, 0.0, 1.0, 1.0]}, "weights must be > 0"),
        ({"b": 1.0, "weights": [1.0]}, "weights must have shape"),
        ({"b": 1.0, "rule": "krum"}, "rule must be"),
    ],
)
def test_bad_sums_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        robust_sum(EXAMPLE, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"lr": 0.0}, "lr"), ({"momentum": 1.0}, "momentum"), ({"batch_size": 0}, "batch_size")],
)
def test_bad_parameters_of_learning_are_named(options, message):
    with pytest.raises(ValueError, match=f"{message} must be"):
        RobustLearning(**options)
