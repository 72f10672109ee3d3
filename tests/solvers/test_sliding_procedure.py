"""The sliding procedure: one compiled loop and one in any namespace, the same points to rounding."""

import numpy as np
import pytest
import scipy.sparse as sp

from optikit._kernels_oracle import SMALL_BLOCK, block_oracle, compiled_loss, loss_and_slope
from optikit.agent_data import AgentData
from optikit.losses import (
    Absolute,
    Hinge,
    Huber,
    LeastSquares,
    Logistic,
    Poisson,
    Quantile,
    SquaredHinge,
)
from optikit.objectives import FunctionObjective, LinearModel
from solvers.decentralized.sliding_procedure import sliding_procedure
from theory_checks.hard_instances import ChainInstance

COMPILED = [LeastSquares(), Absolute(), Quantile(0.8), Hinge(), SquaredHinge(), Huber(0.7), Logistic()]


def blocks(sizes, d, sparse=False, seed=0):
    """Agents with the given numbers of rows; targets +-1, so that every loss takes them."""
    rng = np.random.default_rng(seed)
    rows = sum(sizes)
    X = rng.standard_normal((rows, d)) * (rng.random((rows, d)) < (0.4 if sparse else 1.0))
    features = sp.csr_array(X) if sparse else X
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    return AgentData(features, y, offsets, np.arange(len(sizes)), len(sizes))


@pytest.mark.parametrize("loss", COMPILED, ids=lambda loss: loss.name)
def test_compiled_losses_are_those_of_the_library(loss):
    code, parameter = compiled_loss(loss)
    # Kinks of every loss (0, +-1, the target, target +- delta), ordinary and huge scores.
    z = np.concatenate([[0.0, 1.0, -1.0, 0.3, -0.3, 1.7, 800.0, -800.0], np.linspace(-3, 3, 41)])
    for y in (-1.0, 1.0):
        found = np.array([loss_and_slope(code, parameter, score, y) for score in z])
        np.testing.assert_allclose(found[:, 0], loss.value(z, y), rtol=1e-15, atol=1e-300)
        np.testing.assert_allclose(found[:, 1], loss.derivative(z, y), rtol=1e-15, atol=1e-300)
    assert np.isnan(loss_and_slope(code, parameter, np.nan, 1.0)[0])


def test_losses_without_a_compiled_form_take_the_general_way():
    assert compiled_loss(Poisson()) is None
    data = blocks([3, 4], 2)
    counts = AgentData(data.features, np.abs(data.targets), data.offsets, data.agents, 2)
    assert LinearModel(counts, "poisson").compiled_oracle is None
    assert LinearModel(data, "hinge").compiled_oracle is not None


@pytest.mark.parametrize("loss", COMPILED, ids=lambda loss: loss.name)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_compiled_oracle_is_the_model_s(loss, sparse):
    data = blocks([2, SMALL_BLOCK, 7], 4, sparse)  # blocks on both sides of the switch to BLAS
    model = LinearModel(data, loss, l2=0.3)
    X = np.random.default_rng(1).standard_normal((3, 4))
    value, gradient = model.value_and_gradient(X)
    g = np.empty(4)
    for m in range(3):
        low, high = data.offsets[m], data.offsets[m + 1]
        found = block_oracle(*model.compiled_oracle[:-1], low, high, X[m], g)
        assert found == pytest.approx(value[m], rel=1e-13)
        np.testing.assert_allclose(g, gradient[m], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("minorant", [False, True])
def test_one_compiled_loop_gives_the_points_of_the_steps(sparse, minorant):
    model = LinearModel(blocks([5, 90, 8], 4, sparse), "logistic", l2=0.1)
    plain = FunctionObjective(
        lambda X, agents: model.value(X), lambda X, agents: model.gradient(X), n_agents=3, dim=4
    )
    x, pull = np.random.default_rng(2).standard_normal((2, 3, 4))
    start = x.copy()
    for steps in (1, 2, 25):
        fast = sliding_procedure(model, x, pull, 0.7, steps, minorant=minorant)
        slow = sliding_procedure(plain, x, pull, 0.7, steps, minorant=minorant)
        for name, a, b in zip(fast._fields, fast, slow):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12, err_msg=f"{name}, T={steps}")
    np.testing.assert_array_equal(x, start)
    if not minorant:
        assert not np.any(fast.slope)


def test_every_namespace_takes_the_same_steps(xp):
    model = LinearModel(blocks([6, 6, 6], 3), "logistic")
    x, pull = np.random.default_rng(3).standard_normal((2, 3, 3))
    expected = sliding_procedure(model, x, pull, 0.5, 7, minorant=True)
    found = sliding_procedure(model.to(xp), xp.asarray(x), xp.asarray(pull), 0.5, 7, minorant=True)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-11, atol=1e-13)


def test_steps_and_values_are_counted():
    data = blocks([5, 6], 3)
    for minorant in (False, True):
        model = LinearModel(data, "hinge")
        x = np.zeros((2, 3))
        sliding_procedure(model, x, x, 1.0, 4, minorant=minorant)
        calls = model.calls
        assert (calls.gradients, calls.values, calls.samples) == (4, 4 * minorant, 44)


def test_an_agent_s_steps_do_not_depend_on_who_shares_its_rank():
    model = LinearModel(blocks([5, 90, 8, 3], 4), "hinge")
    x, pull = np.random.default_rng(4).standard_normal((2, 4, 4))
    whole = sliding_procedure(model, x, pull, 0.5, 20, minorant=True)
    part = sliding_procedure(model.subset([1, 2]), x[1:3], pull[1:3], 0.5, 20, minorant=True)
    for a, b in zip(part, whole):
        np.testing.assert_array_equal(a, b[1:3])


def test_a_rank_without_agents_does_nothing():
    model = LinearModel(blocks([5, 6], 3), "hinge").subset([])
    empty = np.zeros((0, 3))
    assert sliding_procedure(model, empty, empty, 1.0, 4, minorant=True).last.shape == (0, 3)


def test_the_chain_s_compiled_oracle_is_the_chain_s():
    chain = ChainInstance(2, 7, 1.3, 0.2)
    for agents in (None, [0, 1], [2, 3], [1, 2, 3, 4]):
        part = chain if agents is None else chain.subset(agents)
        *oracle, offsets = part.compiled_oracle
        X = np.random.default_rng(5).standard_normal((part.n_local, 7))
        X[0, 2] = X[0, 1]  # a tie: the oracle resists with sign(0) = 0
        value, gradient = part.value_and_gradient(X)
        g = np.empty(7)
        for k in range(part.n_local):
            found = block_oracle(*oracle, offsets[k], offsets[k + 1], X[k], g)
            assert found == pytest.approx(value[k], rel=1e-13, abs=1e-15)
            np.testing.assert_allclose(g, gradient[k], rtol=1e-13)
            np.testing.assert_array_equal(g == 0, gradient[k] == 0)
