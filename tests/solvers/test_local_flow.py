"""The local gradient flow: its closed form against 60 digits, the integrator, and Local GD's limit."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
from scipy import sparse

from optikit.agent_data import AgentData
from optikit.arrays import from_numpy, to_numpy
from optikit.generators import random_separable, two_point, two_vec
from optikit.network import Network
from optikit.objectives import LinearModel, Quadratic
from solvers.federated import LocalGD, LocalGradientFlow
from solvers.federated.local_flow import FlowSteps, flow_displacement, largest_displacement


def displacement_to_60_digits(z, tau, start):
    """Newton's method on ``y + e^z (e^y - 1) = tau`` in 60-digit decimal arithmetic."""
    getcontext().prec = 60
    z, tau, y = Decimal(float(z)), Decimal(float(tau)), Decimal(float(start))
    for _ in range(8):
        growth = expm1_to_60_digits(y)
        y -= (y + z.exp() * growth - tau) / (1 + z.exp() * (1 + growth))
    return y


def expm1_to_60_digits(y):
    """``e^y - 1`` without cancellation for small y."""
    if abs(y) > Decimal("0.01"):
        return y.exp() - 1
    term, total, k = y, y, 1
    while term and abs(term) > abs(total) * Decimal("1e-62"):
        k += 1
        term *= y / k
        total += term
    return total


def grid():
    z = np.concatenate([np.linspace(-600, 690, 27), [-1.0, 0.0, 0.5, 29.9, 30.1, 36.7, 37.0]])
    z, tau = (a.ravel() for a in np.meshgrid(z, 10.0 ** np.arange(-8, 8.5, 1.0)))
    return z, tau


def test_displacement_is_exact_to_two_units_in_the_last_place():
    # Acceptance row 13b: 1.8e-16 measured against 60-digit arithmetic, 1e-14 asked.
    z, tau = grid()
    y = flow_displacement(z, tau)
    worst = 0.0
    for zi, ti, yi in zip(z, tau, y):
        exact = displacement_to_60_digits(zi, ti, yi)
        if exact > Decimal("1e-300"):
            worst = max(worst, float(abs(Decimal(float(yi)) - exact) / exact))
    assert worst < 1e-14
    assert worst < 1e-15  # what the recipe is for


def test_displacement_is_the_same_in_every_namespace(xp):
    z, tau = grid()
    y = flow_displacement(from_numpy(z, xp), from_numpy(tau, xp))
    assert np.allclose(to_numpy(y), flow_displacement(z, tau), rtol=1e-13, atol=0)


def test_zero_time_moves_nothing():
    assert np.array_equal(flow_displacement(np.linspace(-50, 600, 14), np.zeros(14)), np.zeros(14))


def flows(data, **options):
    weights = np.full(data.n_local, 1.0 / data.n_local)
    return FlowSteps(data, weights, 1e-11, 1e-13, **options)


@pytest.mark.parametrize("time", [0.5, 10.0, 1e4])
@pytest.mark.parametrize("data", [two_point(0.3, 0.5), random_separable(6, 1, 4, 3)])
def test_closed_form_equals_the_integrated_flow(data, time):
    # Acceptance row 13: 7e-13 measured, 1e-9 asked.
    w = np.random.default_rng(0).standard_normal(data.dim)
    assert np.max(np.abs(flows(data)(w, time) - flows(data, method="ode")(w, time))) < 1e-9


@pytest.mark.parametrize("time", [0.5, 1e4])
def test_orthogonal_rows_decouple(time):
    # One client with two orthogonal rows and another with a single row.
    X = np.array([[0.6, 0.0, 0.0], [0.0, 0.8, 0.0], [0.5, 0.5, 0.5]])
    data = AgentData(X, np.array([1.0, -1.0, 1.0]), np.array([0, 2, 3]))
    closed = flows(data)
    assert not closed.grams
    w = np.array([0.3, 0.2, -1.0])
    assert np.max(np.abs(closed(w, time) - flows(data, method="ode")(w, time))) < 1e-9


def test_a_zero_row_does_not_move_its_client():
    data = AgentData(np.array([[0.0, 0.0], [1.0, 0.0]]), np.ones(2), np.array([0, 1, 2]))
    rows = flows(data)(np.zeros(2), 5.0)
    assert np.array_equal(rows[0, :2], [0.0, 0.0])
    assert rows[1, 0] > 0


def test_integration_of_a_long_time_takes_few_evaluations():
    # 302 right-hand sides for T = 1e6 in the specification: the flow is not stiff.
    data = random_separable(1, 10, 5, 0)
    flow = FlowSteps(data, np.ones(1))
    calls = 0
    product = flow.grams[0] / 10

    class Counted(np.ndarray):
        def __matmul__(self, other):
            nonlocal calls
            calls += 1
            return np.asarray(self) @ other

    flow._integrate((product * 10).view(Counted), data.features @ np.zeros(5), 1e6)
    assert 0 < calls < 1000


def test_local_gd_tends_to_the_flow_at_first_order():
    # Acceptance row 15: four times the local steps, a quarter of the error, 4 +- 0.3.
    objective = LinearModel(two_point(0.3, 0.5), "logistic")
    limit = LocalGradientFlow(16.0).solve(objective, max_rounds=1).x
    errors = [
        np.linalg.norm(LocalGD(16.0 / K, K).solve(objective, max_rounds=1).x - limit)
        for K in (16, 64, 256, 1024)
    ]
    ratios = np.divide(errors[:-1], errors[1:])
    assert np.all(np.abs(ratios - 4.0) < 0.3), (errors, ratios)


@pytest.mark.parametrize(
    ("time", "expected"),
    # Acceptance row 14b.
    [(1.0, 1.79260e-1), (16.0, 1.20518e-2), (256.0, 7.40145e-4), (4096.0, 4.66776e-5)],
)
def test_flow_reaches_the_reference_losses(time, expected):
    objective = LinearModel(two_vec(1.0, 0.2, -0.95), "logistic")
    assert LocalGradientFlow(time).solve(
        objective, max_rounds=2048, record_every=2048
    ).objective == pytest.approx(expected, rel=1e-4)


def test_flow_is_unstable_at_first_and_its_largest_displacement_never_grows():
    # Acceptance row 14, T = 65536: gamma, max F at round 1, F_R, Phi, and the Lyapunov function.
    data = two_vec(1.0, 0.2, -0.95)
    objective, network = LinearModel(data, "logistic"), Network(n_agents=2)
    solver = LocalGradientFlow(65536.0)
    state = solver.init(objective, network, np.zeros(2))
    weights = np.full(2, 0.5)
    values, displacements = [], []
    for _ in range(2048):
        rows = solver.contributions(state)
        displacements.append(largest_displacement(rows, weights))
        state = solver.step(objective, network, state)
        values.append(state.objective)
    final = solver.metrics(objective, network, state, final=True)["objective"]
    gamma = state.setup.gamma
    assert gamma == pytest.approx(0.052407, rel=1e-4)
    assert int(np.argmax(values)) == 1
    assert max(values) == pytest.approx(6.59900, rel=1e-4)
    assert final == pytest.approx(2.94051e-6, rel=1e-4)
    assert final * gamma**2 * 65536 * 2048 == pytest.approx(1.084, rel=1e-3)
    assert np.max(np.diff(displacements)) <= 0.0


def test_sparse_and_general_data_flow_as_dense():
    data = random_separable(3, 4, 6, 5)
    csr = AgentData(sparse.csr_array(data.features), data.targets, data.offsets)
    w = np.linspace(-1, 1, 6)
    assert np.allclose(flows(csr)(w, 20.0), flows(data)(w, 20.0), rtol=1e-10, atol=1e-14)


def test_the_flow_runs_in_every_namespace(xp):
    data = two_point(0.3, 0.5)
    here = LocalGradientFlow(4.0).solve(LinearModel(data, "logistic"), max_rounds=5)
    there = LocalGradientFlow(4.0).solve(LinearModel(data.to(xp), "logistic"), max_rounds=5)
    assert np.allclose(to_numpy(there.x), here.x, rtol=1e-12)


@pytest.mark.parametrize("options", [{"time": 0.0}, {"rtol": 0.0}, {"atol": -1.0}, {"method": "radau"}])
def test_flow_parameters_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        LocalGradientFlow(**options)


def test_flow_needs_the_logistic_loss():
    with pytest.raises(ValueError, match="logistic"):
        LocalGradientFlow(1.0).solve(Quadratic(np.eye(2)[None], np.ones((1, 2))), max_rounds=1)
