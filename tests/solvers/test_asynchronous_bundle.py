"""The asynchronous bundle method on a virtual clock: closed forms, exact delay laws, the reference table.

Expected figures were measured with an independent prototype (specification of the method).
"""

from itertools import pairwise

import cvxpy
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from optikit.agent_data import AgentData
from optikit.objectives import LinearModel
from optikit.objectives import Quadratic as Quadratics
from optikit.runtime.timing import (
    Exponential,
    Failure,
    LogNormalSpeeds,
    Pareto,
    Scripted,
    Ticks,
    Uniform,
    simulate_star,
)
from optikit.runtime.trace import Trace
from optikit.simplex_qp import solve_simplex_product
from solvers.asynchronous.bundle import AsynchronousBundle
from solvers.asynchronous.bundle_server import BundleServer
from solvers.asynchronous.master import solve_master
from solvers.asynchronous.models import MODELS, Bundle
from solvers.asynchronous.regularizers import Box, ElasticNet, Prox, Quadratic
from solvers.asynchronous.server import LowerBoundError, NonConvexityError, NonFiniteOracleError


def run(objective, trace, **options):
    solver = AsynchronousBundle(trace=trace, **options)
    return solver.solve(objective, max_rounds=None, max_iterations=len(trace))


# -- closed form (A1) -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "model", "first", "second"),
    [
        ((0.2, 0.6), "cutting_plane", -2.5, -1.25),
        ((0.2, 0.6), "latest", -2.5, 0.0),
        ((2.0, 6.0), "cutting_plane", -0.25, -0.28125),
        ((2.0, 6.0), "latest", -0.25, -0.28125),
    ],
)
def test_two_quadratics_have_their_closed_form(weights, model, first, second):
    # f_1 = (x-1)^2/2, f_2 = 3(x+1)^2/2 from x_0 = 0; worker 1 replies.
    objective = Quadratics([[[1.0]], [[3.0]]], [[1.0], [-3.0]], [0.5, 1.5])
    result = run(objective, Trace(2, [1.0], [[0]]), model=model, weights=np.array(weights), delta=1e-14)
    assert result.state.in_flight[1, 0] == pytest.approx(first, abs=1e-12)
    assert result.x[0] == pytest.approx(second, abs=1e-12)
    if model == "cutting_plane" and weights[0] < 1:
        np.testing.assert_allclose(result.state.server.bundle.weights[0, :2], [0.4, 0.6], atol=1e-12)


# -- exact delay laws (T3) --------------------------------------------------------------------------------


def random_quadratics(seed, n, d, kappa):
    rng = np.random.default_rng(seed)
    A, b = [], []
    for _ in range(n):
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        H = Q @ np.diag(np.logspace(-np.log10(kappa), 0, d) * (0.5 + rng.random())) @ Q.T
        A.append(0.5 * (H + H.T))
        b.append(A[-1] @ rng.standard_normal(d))
    return Quadratics(np.array(A), np.array(b))


def iterations_to_accuracy(model, anchor_of, eps=1e-6):
    """Drive the server with worker i's anchor after step k given by anchor_of(k, i)."""
    objective = random_quadratics(0, 4, 10, 30)
    A, b = objective.A, objective.b
    best = np.linalg.solve(A.sum(0), b.sum(0))
    start = 0.5 * b.sum(0) @ best
    assert start == pytest.approx(3.522858, abs=1e-6)
    L = np.linalg.eigvalsh(A)[:, -1]
    f_low = np.full(4, -100.0) if model.startswith("polyak") else None
    server = BundleServer(4, (10,), Quadratic(), model=model, size=5, f_low=f_low, L=L, delta=1e-13)
    points, anchors = [np.zeros(10)], [0] * 4
    ask = lambda i, x: (0.5 * x @ A[i] @ x - b[i] @ x, A[i] @ x - b[i])  # noqa: E731
    for i in range(4):
        server.receive(i, points[0], *ask(i, points[0]))
    for k in range(1, 5000):
        points.append(server.step())
        e = points[-1] - best
        if 0.5 * e @ A.sum(0) @ e <= eps * start:
            return k
        for i in range(4):
            stamp = anchor_of(k, i)
            if stamp != anchors[i]:
                anchors[i] = stamp
                server.receive(i, points[stamp], *ask(i, points[stamp]))
    raise AssertionError("not reached")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tau", [0, 1, 4])
def test_a_uniform_delay_costs_exactly_its_factor(model, tau):
    assert iterations_to_accuracy(model, lambda k, i: max(0, k - tau)) == 46 * (tau + 1) + 1


@pytest.mark.parametrize(("frozen", "expected"), [(0, 47), (10, 54), (30, 74), (100, 144)])
def test_a_rare_long_delay_costs_only_itself(frozen, expected):
    found = iterations_to_accuracy(
        "cutting_plane", lambda k, i: 10 if i == 0 and 10 <= k < 10 + frozen else k
    )
    assert abs(found - expected) <= 3


@pytest.mark.parametrize("service", [Exponential(1.0, 3), Ticks([1, 2, 3, 4, 5, 6]), Pareto(1.5, 3)])
@pytest.mark.parametrize("model", ["latest", "cutting_plane", "two_cut", "average"])
def test_distances_are_max_norm_fejer(service, model):
    # T0: a(x_{k+1}) <= max_i a(z_i) + 2 delta / L, whatever the delays.
    objective = random_quadratics(1, 6, 20, 100)
    best = np.linalg.solve(objective.A.sum(0), objective.b.sum(0))
    L = np.linalg.eigvalsh(objective.A)[:, -1]
    trace, distances = simulate_star(6, service, steps=200), []

    def record(progress):
        anchors = progress.state.server.anchors
        x = progress.state.x
        distances.append((np.sum((x - best) ** 2), np.sum((anchors - best) ** 2, axis=1).max()))

    solver = AsynchronousBundle(trace=trace, model=model, weights=L, delta=1e-13)
    solver.solve(objective, max_rounds=None, max_iterations=200, callback=record)
    after, before = np.array(distances).T
    assert np.all(after <= before + 2e-13 / L.sum() + 1e-12 * before[0])
    assert after[-1] < 0.1 * after[0]


# -- the reference table (A5) -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    X = np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(569)])
    parts = np.array_split(np.random.default_rng(0).permutation(569), 9)
    return LinearModel(AgentData.from_blocks([(X[p], 2.0 * y[p] - 1.0) for p in parts]), "logistic", 1e-3)


TICKS = [10, 13, 17, 20, 26, 31, 43, 59, 110]
SMOOTH, SPARSE = 0.059829471882, 0.078000121589


@pytest.mark.parametrize(
    ("options", "policy", "optimum", "expected"),
    [
        ({}, "drain", SMOOTH, (387, 1173, 1933)),
        ({"model": "latest"}, "drain", SMOOTH, (411, 1505, None)),
        ({"L_scale": 0.3}, "drain", SMOOTH, (234, 650, 1074)),
        ({"L_scale": 0.3, "model": "latest"}, "drain", SMOOTH, (340, None, None)),
        ({"L_scale": 0.1}, "drain", SMOOTH, (161, 446, 647)),
        ({}, "sync", SMOOTH, (180, 675, 1161)),
        ({"h": ElasticNet(1e-3)}, "drain", SPARSE, (352, 1074, 1881)),
        ({"h": ElasticNet(1e-3), "L_scale": 0.3}, "drain", SPARSE, (212, 642, 1074)),
    ],
)
def test_gradients_to_accuracy_on_breast_cancer(cancer, options, policy, optimum, expected):
    trace = simulate_star(9, Ticks(TICKS), replies=2700, policy=policy)
    history = run(cancer, trace, client_weights="samples", shift=0.0, delta=1e-11, **options).history
    gap = history["objective"] - optimum
    for eps, gradients in zip((1e-3, 1e-6, 1e-9), expected):
        reached = np.flatnonzero(gap <= eps)
        if gradients is None:
            assert reached.size == 0
        else:
            assert history["gradients"][reached[0]] == pytest.approx(gradients, rel=0.15)


def test_the_certificate_holds_and_closes(cancer):
    trace = simulate_star(9, Ticks(TICKS), replies=2700)
    solver = AsynchronousBundle(trace=trace, client_weights="samples", L_scale=0.3)
    result = solver.solve(cancer, max_rounds=None, max_iterations=len(trace), tol=1e-9)
    assert result.status == "converged"
    bounds = result.history["lower_bound"]
    assert np.all(bounds[np.isfinite(bounds)] <= SMOOTH + 1e-12)
    assert result.certificate.gap <= 1e-9
    assert result.certificate.upper_bound + 1e-12 >= SMOOTH


# -- masters (A7) and the simplex QP ----------------------------------------------------------------------


def random_bundle(seed, n=5, d=12, size=4):
    rng = np.random.default_rng(seed)
    bundle = Bundle("cutting_plane", n, d, size, None)
    for i in range(n):
        for _ in range(int(rng.integers(1, size + 2))):
            z = rng.standard_normal(d)
            bundle.put(i, z, float(0.5 * z @ z), z + 0.1 * rng.standard_normal(d))
    return bundle, rng.uniform(0.05, 0.5, n)


def soft(x, step):
    return np.sign(x) * np.maximum(np.abs(x) - 0.05 * step, 0)


REGULARISERS = {
    "none": (Quadratic(), lambda x: 0),
    "l2": (Quadratic(0.3), lambda x: 0.15 * cvxpy.sum_squares(x)),
    "l1": (ElasticNet(0.05), lambda x: 0.05 * cvxpy.norm1(x)),
    "elastic net": (ElasticNet(0.05, 0.3), lambda x: 0.05 * cvxpy.norm1(x) + 0.15 * cvxpy.sum_squares(x)),
    "prox": (Prox(lambda x: 0.05 * float(np.abs(x).sum()), soft), lambda x: 0.05 * cvxpy.norm1(x)),
}


@pytest.mark.parametrize("name", [*REGULARISERS, "box"])
@pytest.mark.parametrize("seed", range(3))
def test_masters_agree_with_a_conic_solver(name, seed):
    bundle, L = random_bundle(seed)
    x, t = cvxpy.Variable(12), cvxpy.Variable(5)
    constraints = [
        t[i] >= bundle.cuts[i, j] @ x - bundle.offsets[i, j]
        for i in range(5)
        for j in np.flatnonzero(bundle.used[i])
    ]
    if name == "box":
        h, penalty = Box(-0.5, 0.4), 0
        constraints += [x >= -0.5, x <= 0.4]
    else:
        h, atom = REGULARISERS[name]
        penalty = atom(x)
    proximal = sum(0.5 * L[i] * cvxpy.sum_squares(x - bundle.anchors[i]) for i in range(5))
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(t) + penalty + proximal), constraints)
    problem.solve(solver="CLARABEL")
    solution = solve_master(bundle, h, L, 1e-9)
    value = (
        bundle.values(solution.x).sum()
        + h.value(solution.x)
        + 0.5 * float(L @ np.sum((solution.x - bundle.anchors) ** 2, axis=1))
    )
    assert solution.gap <= 1e-9
    assert value - problem.value <= solution.gap + 1e-7
    np.testing.assert_allclose(solution.x, x.value, atol=2e-5)


@pytest.mark.parametrize("seed", range(4))
def test_simplex_qp_agrees_with_a_conic_solver(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, 7)
    N = int(sizes.sum())
    root = rng.standard_normal((4, N))  # rank 4: far from positive definite
    Q, e = root.T @ root, rng.standard_normal(N)
    found = solve_simplex_product(Q, e, sizes, delta=1e-11)
    lam, ends = cvxpy.Variable(N, nonneg=True), np.concatenate(([0], np.cumsum(sizes)))
    blocks = [cvxpy.sum(lam[a:b]) == 1 for a, b in pairwise(ends)]
    problem = cvxpy.Problem(cvxpy.Maximize(e @ lam - 0.5 * cvxpy.sum_squares(root @ lam)), blocks)
    problem.solve(solver="CLARABEL")
    assert found.gap <= 1e-11
    assert e @ found.weights - 0.5 * found.weights @ Q @ found.weights == pytest.approx(
        problem.value, abs=1e-7
    )
    warm = solve_simplex_product(Q, e, sizes, start=found.weights, delta=1e-10)
    assert warm.steps == 0


# -- timing -----------------------------------------------------------------------------------------------


def test_timelines_are_repeatable_and_obey_their_policies():
    for law in (Exponential(1.0, 1), Uniform(seed=1), LogNormalSpeeds(0.7, 0.3, 1), Pareto(1.5, 1)):
        first = simulate_star(5, type(law)(seed=1), steps=50)
        second = simulate_star(5, type(law)(seed=1), steps=50)
        assert first.batches == second.batches
        np.testing.assert_array_equal(first.times, second.times)
    assert all(len(b) == 1 for b in simulate_star(5, Exponential(seed=1), steps=50, policy="each").batches)
    assert all(len(b) == 5 for b in simulate_star(5, Exponential(seed=1), steps=50, policy="sync").batches)
    assert all(
        len(b) >= 3 for b in simulate_star(5, Exponential(seed=1), steps=50, policy="k_wait", k=3).batches
    )


def test_synchronous_rounds_take_the_slowest_worker_and_each_round_is_an_epoch():
    trace = simulate_star(3, Ticks([1, 2, 5]), steps=4, policy="sync")
    assert trace.times.tolist() == [5, 10, 15, 20]
    assert trace.epochs().tolist() == [1, 2, 3, 4]
    assert trace.staleness().tolist() == [0, 0, 0, 0]
    assert trace.gradients.tolist() == [3, 6, 9, 12]


def test_silent_workers_come_back():
    trace = simulate_star(2, Ticks([1, 1]), until=30, failures=[Failure(1, 5, 20)], policy="drain")
    times = [t for t, batch in zip(trace.times, trace.batches) if 1 in batch]
    assert not any(5 <= t < 20 for t in times)
    assert 20 in times
    scripted = simulate_star(2, Scripted(lambda query, worker: 1 + worker), steps=3)
    assert scripted.batches[0] == [0]


def test_traces_survive_a_file_and_replay(tmp_path, cancer):
    trace = simulate_star(9, Exponential(seed=2), replies=300)
    trace.save(tmp_path / "trace.npz")
    again = Trace.load(tmp_path / "trace.npz")
    assert again.batches == trace.batches
    first = run(cancer, trace, client_weights="samples")
    np.testing.assert_array_equal(first.x, run(cancer, again, client_weights="samples").x)
    assert trace.plot(last=5.0).get_xlabel() == "time"


# -- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bundle_size": 0}, "bundle_size must be"),
        ({"model": "planes"}, "model must be one of"),
        ({"L_scale": 0.0}, "L_scale must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"model": "polyak"}, "f_low, lower bounds on the f_i, is needed"),
        ({"weights": "newest"}, "weights must be one of"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        AsynchronousBundle(**options)


def test_bad_weights_traces_and_checkpoints_are_named(cancer, tmp_path):
    with pytest.raises(ValueError, match="L0 must be positive"):
        AsynchronousBundle(L0=-1.0).solve(cancer)
    with pytest.raises(ValueError, match="trace must be of 9 workers, got 2"):
        run(cancer, Trace(2, [1.0], [[0]]))
    with pytest.raises(ValueError, match="client_weights must be 9 positive"):
        AsynchronousBundle(client_weights=np.zeros(9)).solve(cancer)
    with pytest.raises(ValueError, match="distinct workers"):
        Trace(2, [1.0], [[0, 0]])
    with pytest.raises(ValueError, match="needs an end"):
        simulate_star(2, Ticks([1, 1]))
    with pytest.raises(ValueError, match="low must be at most high"):
        Box(1.0, 0.0)


def test_wrong_oracles_are_caught():
    server = BundleServer(
        2,
        (1,),
        Quadratic(1.0),
        model="polyak",
        size=3,
        f_low=np.zeros(2),
        L=np.ones(2),
        delta=1e-10,
        check_convexity=True,
    )
    with pytest.raises(NonFiniteOracleError, match="worker 1"):
        server.receive(1, np.zeros(1), np.nan, np.zeros(1))
    with pytest.raises(LowerBoundError, match="worker 0"):
        server.receive(0, np.zeros(1), -1.0, np.zeros(1))
    server.receive(0, np.zeros(1), 5.0, np.ones(1))
    with pytest.raises(NonConvexityError, match="worker 0"):
        server.receive(0, np.ones(1), 1.0, np.ones(1))
