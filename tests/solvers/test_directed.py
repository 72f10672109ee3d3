"""Methods on directed networks: where they converge to, how fast, and that ranks do not matter.

Figures are those of section 7 of the network layer's specification.
"""

import importlib.util
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optikit import graphs
from optikit.arrays import from_numpy, to_numpy
from optikit.mixing import (
    Cyclic,
    PullPush,
    col_stochastic,
    from_matrix,
    metropolis,
    perron_vector,
    row_stochastic,
)
from optikit.network import Network
from optikit.objectives import Quadratic
from optikit.runtime.communicator import SerialCommunicator
from solvers.decentralized.pull_diag import (
    FROST,
    MGPullDiagGT,
    PullDiagGD,
    PullDiagGT,
    ReturnWeights,
    RowStochasticTracking,
)
from solvers.decentralized.push_diging import PushDIGing, push_sum
from solvers.decentralized.push_pull import PushPull

PROGRAM = Path(__file__).parents[1] / "mpi" / "directed.py"
SERIAL = SerialCommunicator()


def digraph(n, p, seed):
    rng = np.random.default_rng(seed)
    nodes = np.arange(n)
    ring = np.stack([nodes, (nodes + 1) % n], axis=1)
    return graphs.Graph(n, np.concatenate([ring, np.argwhere(rng.random((n, n)) < p)]), directed=True)


def directed_ring(n):
    return digraph(n, 0.0, 0)


def quadratics(n, d=5, seed=0):
    """Random curvatures between about 0.4 and 2, scaled so that the mean Hessian has mean eigenvalue 1."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((n, d, d))
    A = B @ np.swapaxes(B, 1, 2) / d + 0.5 * np.eye(d)
    return Quadratic(A * d / np.trace(A.mean(axis=0)), rng.standard_normal((n, d)))


def optimum(objective, weights=None):
    weights = np.full(objective.n_agents, 1 / objective.n_agents) if weights is None else weights
    return np.linalg.solve(np.einsum("i,ijk->jk", weights, objective.A), weights @ objective.b)


def run(solver, objective, topology, iterations, **options):
    network = Network(topology, communicator=SERIAL)
    return solver.solve(
        objective, network, max_rounds=None, max_iterations=iterations, record_every=iterations, **options
    )


class NoisyDistances(Quadratic):
    """Half squared distances to the rows of b, with unit normal noise in every gradient sample."""

    def stochastic_gradient(self, X, batch_size, streams, step):
        noise = np.random.default_rng((streams.seed, step)).standard_normal(X.shape)
        return self.gradient(X) + noise / math.sqrt(batch_size)


# -- convergence --------------------------------------------------------------------------------------------


def test_pull_diag_gt_finds_the_optimum_to_1e_13():
    objective = quadratics(16)
    result = run(PullDiagGT(lr=0.3), objective, row_stochastic(digraph(16, 0.3, seed=1)), 1000)
    assert np.abs(result.iterate - optimum(objective)).max() <= 1e-13
    assert result.history["stationarity"][-1] <= 1e-13


@pytest.mark.parametrize(
    ("solver", "iterations"),
    [(MGPullDiagGT(0.3, rounds=3), 400), (FROST(0.05), 2000), (PushDIGing(0.3), 600)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_tracking_methods_find_the_optimum(solver, iterations):
    graph = digraph(12, 0.3, seed=2)
    objective = quadratics(12)
    topology = col_stochastic(graph) if isinstance(solver, PushDIGing) else row_stochastic(graph)
    result = run(solver, objective, topology, iterations)
    np.testing.assert_allclose(result.iterate, np.tile(optimum(objective), (12, 1)), atol=1e-12)


@pytest.mark.parametrize("mixing", [False, True])
def test_push_pull_finds_the_optimum(mixing):
    graph = graphs.erdos_renyi(12, 0.4, seed=2) if mixing else digraph(12, 0.3, seed=2)
    objective = quadratics(12)
    result = run(PushPull(0.1), objective, metropolis(graph) if mixing else PullPush(graph), 1500)
    np.testing.assert_allclose(result.iterate, np.tile(optimum(objective), (12, 1)), atol=1e-12)


def test_push_diging_follows_a_changing_network_that_is_connected_over_windows_only():
    n = 9
    nodes = np.arange(n)
    ring = np.stack([nodes, (nodes + 1) % n], axis=1)
    parts = [col_stochastic(graphs.Graph(n, ring[part::2], directed=True)) for part in (0, 1)]
    assert not parts[0].graph().is_connected
    objective = quadratics(n)
    # Each half is held for two rounds, so that both variables travel over both.
    result = run(PushDIGing(0.01), objective, Cyclic([parts[0], parts[0], parts[1], parts[1]]), 4000)
    np.testing.assert_allclose(result.iterate, np.tile(optimum(objective), (n, 1)), atol=1e-11)


def test_tracking_without_correction_finds_the_perron_weighted_optimum():
    graph = digraph(12, 0.2, seed=3)
    objective = quadratics(12)
    A = row_stochastic(graph)
    wrong = optimum(objective, perron_vector(A))
    result = run(RowStochasticTracking(0.2), objective, A, 1500)
    assert np.abs(result.iterate - wrong).max() <= 1e-12
    assert np.linalg.norm(wrong - optimum(objective)) > 0.1  # far from what was asked for


def test_descent_without_tracking_has_a_bias_proportional_to_its_step():
    graph = digraph(12, 0.3, seed=2)
    objective = quadratics(12)
    errors = [
        np.linalg.norm(
            run(PullDiagGD(lr), objective, row_stochastic(graph), int(60 / lr)).x - optimum(objective)
        )
        for lr in (0.02, 0.01, 0.005)
    ]
    assert errors[2] > 1e-4
    np.testing.assert_allclose(np.array(errors[:2]) / errors[1:], 2.0, rtol=0.1)


def test_directed_ring_needs_several_rounds_per_exchange():
    # theta_A = 32768: plain Pull-Diag-GT is stable for lr = 0.001 only, R = 10 rounds stand 0.01.
    objective, A = quadratics(16), row_stochastic(directed_ring(16))
    target = optimum(objective)
    slow = run(PullDiagGT(0.001), objective, A, 3000)
    assert 5e-3 <= np.abs(slow.iterate - target).max() <= 0.2  # 4e-2 in the reference run
    fast = run(MGPullDiagGT(0.01, rounds=10), objective, A, 3000)
    assert np.abs(fast.iterate - target).max() <= 5e-12  # 5e-14 there: exp(-30) times the start
    unstable = run(PullDiagGT(0.01), objective, A, 3000)
    assert np.abs(unstable.iterate).max() > 1e3


def test_default_rounds_make_the_ring_as_good_as_a_complete_graph():
    objective, A = quadratics(16), row_stochastic(directed_ring(16))
    result = run(MGPullDiagGT(0.5), objective, A, 60)
    assert result.rounds == 60 * 2 * 179
    assert np.abs(result.iterate - optimum(objective)).max() <= 1e-11


# -- noise --------------------------------------------------------------------------------------------------


def noise_floor(n, solver, steps=12_000, burn_in=1000, d=20):
    A = row_stochastic(graphs.erdos_renyi(n, 0.5, seed=n))
    objective = NoisyDistances(
        np.tile(np.eye(d), (n, 1, 1)), np.random.default_rng(0).standard_normal((n, d))
    )
    target, network = objective.b.mean(axis=0), Network(A, communicator=SERIAL)
    state, total = solver.init(objective, network, np.tile(target, (n, 1))), 0.0
    for k in range(steps):
        state = solver.step(objective, network, state)
        if k >= burn_in:
            total += np.sum((state.x.mean(axis=0) - target) ** 2)
    return total / (steps - burn_in)


def test_noise_floor_falls_like_one_over_n():
    agents = [4, 8, 16, 32]
    floors = [noise_floor(n, PullDiagGT(0.02, batch_size=1)) for n in agents]
    slope = np.polyfit(np.log(agents), np.log(floors), 1)[0]
    assert abs(slope + 1) <= 0.1
    # An autoregression with factor 1 - lr: variance lr / (n (2 - lr)) in each of 20 directions.
    np.testing.assert_allclose(floors, [0.02 / 1.98 * 20 / n for n in agents], rtol=0.1)


def test_five_mini_batches_divide_the_noise_floor_by_five():
    plain = noise_floor(16, PullDiagGT(0.02, batch_size=1), steps=4000, burn_in=500)
    several = noise_floor(16, MGPullDiagGT(0.02, batch_size=1, rounds=5), steps=4000, burn_in=500)
    assert plain / several == pytest.approx(5.0, rel=0.02)  # the same noise, scaled


# -- invariants ---------------------------------------------------------------------------------------------


def test_corrected_trackers_keep_their_perron_weighted_sum():
    A = row_stochastic(digraph(10, 0.2, seed=4))
    objective, network, pi = quadratics(10), Network(A, communicator=SERIAL), perron_vector(A)
    for solver in (PullDiagGT(0.1), FROST(0.02), MGPullDiagGT(0.1, rounds=2)):
        network.reset()
        state = solver.init(objective, network, np.ones((10, 5)))
        for _ in range(30):
            state = solver.step(objective, network, state)
        np.testing.assert_allclose(pi @ state.tracker, pi @ state.gradient, atol=1e-12)


def test_push_methods_keep_their_sums():
    graph = digraph(10, 0.2, seed=4)
    objective = quadratics(10)
    for solver, topology in ((PushDIGing(0.1), col_stochastic(graph)), (PushPull(0.02), PullPush(graph))):
        network = Network(topology, communicator=SERIAL)
        state = solver.init(objective, network, np.ones((10, 5)))
        for _ in range(30):
            state = solver.step(objective, network, state)
        np.testing.assert_allclose(state.tracker.sum(axis=0), state.gradient.sum(axis=0), atol=1e-12)
        if isinstance(solver, PushDIGing):
            assert state.weights.sum() == pytest.approx(10.0)


def test_push_sum_averages():
    X = np.random.default_rng(0).standard_normal((9, 4))
    network = Network(col_stochastic(digraph(9, 0.2, seed=5)), communicator=SERIAL)
    np.testing.assert_allclose(push_sum(network, X, rounds=200), np.tile(X.mean(axis=0), (9, 1)), atol=1e-13)
    assert network.round == 200
    np.testing.assert_array_equal(push_sum(network, X, rounds=0), X)


def test_return_weights_are_the_diagonal_of_the_power_and_settle():
    A = row_stochastic(digraph(9, 0.2, seed=5))
    network = Network(A, communicator=SERIAL)
    weights, power = ReturnWeights.start(network, np.zeros((9, 2))), np.eye(9)
    for k in range(200):
        _, weights = weights.pull(network, 1, np.zeros((9, 2)))
        power = A.toarray() @ power
        if k < 10:
            np.testing.assert_allclose(1 / weights.inverse[:, 0], power.diagonal(), rtol=1e-13)
    assert weights.rows is None
    np.testing.assert_allclose(1 / weights.inverse[:, 0], perron_vector(A), rtol=1e-10)


def test_settled_weights_leave_no_error_of_their_own():
    for seed in range(5):  # at a threshold of 1e-12 two of these end above 1e-13
        objective = quadratics(8, seed=seed)
        result = run(PullDiagGT(0.3), objective, row_stochastic(digraph(8, 0.3, seed)), 1000)
        assert result.state.weights.rows is None
        assert np.abs(result.iterate - optimum(objective)).max() <= 1e-14


def test_settled_weights_are_no_longer_sent():
    A = row_stochastic(graphs.complete(4))  # D settles in the second round, seen twice by the fourth
    result = run(PullDiagGT(0.1), quadratics(4, d=3), A, 10)
    links = 12
    rounds_with_weights = 3
    assert result.ledger.floats_sent == links * (10 * 2 * 3 + rounds_with_weights * 4)


def test_step_of_pull_diag_gt_is_the_formula():
    A = row_stochastic(digraph(6, 0.3, seed=1))
    objective, network = quadratics(6), Network(A, communicator=SERIAL)
    solver, W = PullDiagGT(0.3), A.toarray()
    state = solver.init(objective, network, np.ones((6, 5)))
    x, V = np.ones((6, 5)), np.eye(6)
    y = g = objective.gradient(x)
    for _ in range(5):
        D = V.diagonal()[:, None]
        x = W @ (x - 0.3 / 6 * y)
        V = W @ V
        new = objective.gradient(x)
        y = W @ (y + new / V.diagonal()[:, None] - g / D)
        g = new
        state = solver.step(objective, network, state)
    np.testing.assert_allclose(state.x, x, rtol=1e-13)
    np.testing.assert_allclose(state.tracker, y, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_methods_run_in_any_namespace(xp, dtype):
    objective = quadratics(7, d=3)
    graph = digraph(7, 0.3, seed=2)
    runs = [
        (solver, row_stochastic(graph))
        for solver in (PullDiagGT(0.1), MGPullDiagGT(0.1, rounds=2), PullDiagGD(0.1), FROST(0.05))
    ]
    runs += [(RowStochasticTracking(0.1), row_stochastic(graph)), (PushDIGing(0.1), col_stochastic(graph))]
    runs += [(PushPull(0.02), PullPush(graph))]
    for solver, topology in runs:
        expected = run(solver, objective, topology, 25).iterate
        A, b = (from_numpy(array.astype(dtype), xp) for array in (objective.A, objective.b))
        found = run(solver, Quadratic(A, b), topology, 25).iterate
        assert str(found.dtype).endswith(dtype)
        np.testing.assert_allclose(to_numpy(found), expected, atol=1e-12 if dtype == "float64" else 1e-4)


# -- driver, ranks ------------------------------------------------------------------------------------------


def test_tolerance_bounds_gradient_and_disagreement():
    objective = quadratics(8)
    network = Network(row_stochastic(digraph(8, 0.3, seed=0)), communicator=SERIAL)
    result = PullDiagGT(0.3).solve(objective, network, max_rounds=4000, tol=1e-9)
    assert result.status == "converged"
    assert np.abs(result.iterate - optimum(objective)).max() <= 1e-8
    with pytest.raises(ValueError, match="no optimality measure"):
        PullDiagGD(0.3).solve(objective, network, max_rounds=10, tol=1e-3)


@pytest.mark.parametrize("interruption", [4, 200])
def test_a_run_resumes_before_and_after_the_weights_have_settled(tmp_path, interruption):
    objective = quadratics(8)
    network = Network(row_stochastic(digraph(8, 0.3, seed=0)), communicator=SERIAL)
    whole = PullDiagGT(0.1).solve(objective, network, max_rounds=None, max_iterations=220)
    keep = {"checkpoint": tmp_path / "run.npz", "max_rounds": None}
    PullDiagGT(0.1).solve(objective, network, max_iterations=interruption, **keep)
    resumed = PullDiagGT(0.1).solve(objective, network, max_iterations=220, resume=True, **keep)
    np.testing.assert_array_equal(resumed.iterate, whole.iterate)


@pytest.mark.mpi
def test_ranks_give_the_iterates_of_one(mpi_run, tmp_path):
    spec = importlib.util.spec_from_file_location("directed_program", PROGRAM)
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
    ("solver", "topology", "message"),
    [
        (PullDiagGT(0.1), col_stochastic(digraph(5, 0.2, 0)), "kind 'row' or 'mixing'"),
        (PushDIGing(0.1), row_stochastic(digraph(5, 0.2, 0)), "kind 'col' or 'mixing'"),
        (PushPull(0.1), row_stochastic(digraph(5, 0.2, 0)), "kind 'pull-push' or 'mixing'"),
        (PullDiagGT(0.1), Cyclic([row_stochastic(digraph(5, 0.2, k)) for k in range(2)]), "static network"),
        (PullDiagGT(0.1), from_matrix(np.roll(np.eye(5), 1, axis=1), "row"), "must hear itself"),
        (FROST(0.1), row_stochastic(graphs.Graph(5, [(0, 1), (1, 2), (2, 3), (3, 4)], True)), "strongly"),
        (PushDIGing(0.1), col_stochastic(graphs.Graph(5, [(0, 1)], True)), "strongly connected"),
    ],
)
def test_networks_that_do_not_fit_are_refused(solver, topology, message):
    network = Network(topology, communicator=SERIAL)
    with pytest.raises(ValueError, match=message):
        solver.solve(quadratics(5), network, max_rounds=5)
    assert network.round == 0


@pytest.mark.parametrize("solver", [PullDiagGT, MGPullDiagGT, PullDiagGD, FROST, RowStochasticTracking])
def test_bad_parameters_are_named(solver):
    with pytest.raises(ValueError, match="lr must be"):
        solver(lr=0.0)
    with pytest.raises(ValueError, match="batch_size must be"):
        solver(batch_size=0)
    with pytest.raises(ValueError, match="seed must be"):
        replace(solver(), seed=-1)


def test_rounds_of_the_multi_gossip_method_are_checked():
    with pytest.raises(ValueError, match="rounds must be"):
        MGPullDiagGT(0.1, rounds=0)
    with pytest.raises(ValueError, match="step_size must be"):
        PushDIGing(-1.0)
    with pytest.raises(ValueError, match="step_size must be"):
        PushPull(math.nan)


def test_underflowing_return_weights_end_the_run_with_a_reason():
    # Self weight 1e-200: [A^2]_ii would be 1e-400, and the way round the ring takes three rounds.
    A = np.roll(np.eye(4), 1, axis=1) * (1 - 1e-200) + 1e-200 * np.eye(4)
    result = run(PullDiagGT(0.1), quadratics(4), from_matrix(A, "row"), 20)
    assert result.status == "diverged"
    assert "return weight" in result.message


# -- information travels one hop a round --------------------------------------------------------------------


def test_no_variable_outruns_its_messages():
    # Only agent 0 has a gradient at zero; agents k hops away may not know it before round k.
    n, d = 10, 2
    b = np.zeros((n, d))
    b[0] = 1.0
    objective = Quadratic(np.tile(np.eye(d), (n, 1, 1)), b)
    graph = directed_ring(n)  # agent i + 1 hears agent i
    pull, push = row_stochastic(graph), col_stochastic(graph)
    runs = [(PullDiagGT(0.1), pull), (MGPullDiagGT(0.1, rounds=2), pull), (PullDiagGD(0.1), pull)]
    runs += [(FROST(0.1), pull), (PushDIGing(0.1), push), (PushPull(0.1), PullPush(graph))]
    for solver, topology in runs:
        network = Network(topology, communicator=SERIAL)
        state = solver.init(objective, network, np.zeros((n, d)))
        for _ in range(4):
            state = solver.step(objective, network, state)
            for variable in solver.exchanged(state):
                informed = np.flatnonzero(np.any(variable != 0, axis=1))
                assert informed.max(initial=0) <= network.round, solver.name
