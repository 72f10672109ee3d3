"""FedProx and SCAFFOLD: fixed points in closed form, and the reference run on breast cancer."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from optikit.agent_data import AgentData
from optikit.objectives import LinearModel, Quadratic, reference_optimum
from solvers.federated import SCAFFOLD, FedProx, LocalGD, quadratic_fixed_point


@pytest.fixture(scope="module")
def quadratics():
    rng = np.random.default_rng(0)
    A = np.einsum("md,de->mde", rng.uniform(0.2, 1.0, (6, 4)), np.eye(4))
    return Quadratic(A, rng.standard_normal((6, 4)))


def test_fedprox_without_a_pull_is_local_gd(quadratics):
    prox = FedProx(step_size=0.5, local_steps=5, proximal=0.0).solve(quadratics, max_rounds=2000)
    local = LocalGD(0.5, 5, normalize=False).solve(quadratics, max_rounds=2000)
    np.testing.assert_allclose(prox.x, local.x, atol=1e-12)
    np.testing.assert_allclose(prox.x, quadratic_fixed_point(quadratics, 0.5, 5), atol=1e-10)


def test_fedprox_solved_exactly_has_its_closed_fixed_point(quadratics):
    # T_i = (A_i + lam I)^-1 A_i; a hundred local steps solve the local problem to rounding.
    lam = 0.7
    A, b = quadratics.A, quadratics.b
    T = np.array([np.linalg.solve(M + lam * np.eye(4), M) for M in A])
    local = np.array([np.linalg.solve(M, v) for M, v in zip(A, b)])
    expected = np.linalg.solve(T.sum(0), np.einsum("mij,mj->i", T, local))
    found = FedProx(step_size=0.6, local_steps=100, proximal=lam).solve(quadratics, max_rounds=3000)
    np.testing.assert_allclose(found.x, expected, atol=1e-10)


def test_scaffold_reaches_the_optimum_that_fedprox_misses(quadratics):
    optimum = np.linalg.solve(quadratics.A.sum(0), quadratics.b.sum(0))
    scaffold = SCAFFOLD(step_size=0.1, local_steps=5).solve(quadratics, max_rounds=600)
    np.testing.assert_allclose(scaffold.x, optimum, atol=1e-10)
    prox = FedProx(step_size=0.1, local_steps=5, proximal=0.1).solve(quadratics, max_rounds=600)
    assert np.linalg.norm(prox.x - optimum) > 1e-3
    np.testing.assert_allclose(scaffold.state.control, 0.0, atol=1e-9)  # the mean gradient at the optimum


def test_scaffold_needs_the_measured_rounds_on_breast_cancer():
    # 8 clients of label-sorted rows, ridge 1e-3: 31 rounds to 1e-8 with K = 10, eta = 0.3/L; FedAvg stalls.
    X, y = load_breast_cancer(return_X_y=True)
    X = np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(len(X))])
    X /= np.linalg.norm(X, axis=1).max()
    order = np.argsort(y, kind="stable")[:560]
    data = AgentData.from_stacked(X[order].reshape(8, 70, 31), 2.0 * y[order].reshape(8, 70) - 1.0)
    model = LinearModel(data, "logistic", 1e-3)
    optimum = reference_optimum(model).value
    L = 0.018  # smoothness of the mean, of the prototype
    history = SCAFFOLD(step_size=0.3 / L, local_steps=10).solve(model, max_rounds=60).history
    assert abs(int(history["round"][np.argmax(history["objective"] - optimum <= 1e-8)]) - 31) <= 2
    stalled = FedProx(step_size=0.3 / L, local_steps=10, proximal=0.0).solve(model, max_rounds=200)
    assert stalled.objective - optimum > 1e-5  # at its biased fixed point, 5e-5 above


def test_every_namespace_gives_the_same(quadratics, xp):
    other = Quadratic(xp.asarray(quadratics.A), xp.asarray(quadratics.b))
    for solver in (SCAFFOLD(), FedProx()):
        found = solver.solve(other, max_rounds=5).x
        np.testing.assert_allclose(np.asarray(found), solver.solve(quadratics, max_rounds=5).x, atol=1e-13)


def test_weights_and_traffic(quadratics):
    weights = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    result = SCAFFOLD(step_size=0.1, local_steps=5, weights=weights).solve(quadratics, max_rounds=600)
    A, b = np.einsum("m,mij->ij", weights, quadratics.A), weights @ quadratics.b
    np.testing.assert_allclose(result.x, np.linalg.solve(A, b), atol=1e-9)
    assert result.ledger.floats_up == 600 * 6 * 9
    assert result.ledger.floats_down == 600 * 6 * 8


@pytest.mark.parametrize(
    ("solver", "options", "message"),
    [
        (SCAFFOLD, {"step_size": 0.0}, "step_size must be"),
        (SCAFFOLD, {"local_steps": 0}, "local_steps must be"),
        (FedProx, {"proximal": -1.0}, "proximal must be"),
        (FedProx, {"server_step": 0.0}, "server_step must be"),
    ],
)
def test_bad_parameters_are_named(solver, options, message):
    with pytest.raises(ValueError, match=message):
        solver(**options)


def test_bad_weights_are_named(quadratics):
    with pytest.raises(ValueError, match="weights must sum to 1"):
        SCAFFOLD(weights=np.ones(6)).solve(quadratics)
