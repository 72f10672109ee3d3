"""Losses against finite differences, numerical suprema and the optimality of their proximal maps."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit.losses import LOSSES, Huber, Logistic, Loss, Poisson, Quantile, get_loss

ALL = {
    **{name: cls() for name, cls in LOSSES.items()},
    "huber 0.3": Huber(0.3),
    "quantile 0.2": Quantile(0.2),
}
SMOOTH = [name for name, loss in ALL.items() if math.isfinite(loss.smoothness) or name == "poisson"]
KINKED = ["absolute", "hinge", "quantile", "quantile 0.2"]


def targets_of(loss: Loss, size: int, rng) -> np.ndarray:
    if loss.targets == "binary":
        return np.where(rng.random(size) < 0.5, -1.0, 1.0)
    if loss.targets == "count":
        return rng.poisson(2.0, size).astype(float)
    return rng.standard_normal(size)


def sample(loss: Loss, size: int = 50, seed: int = 0, scale: float = 2.0):
    rng = np.random.default_rng(seed)
    return scale * rng.standard_normal(size), targets_of(loss, size, rng)


@pytest.mark.parametrize("name", ALL)
def test_derivative_agrees_with_finite_differences(name):
    loss = ALL[name]
    z, y = sample(loss)
    h = 1e-6
    slope = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(z, y), slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivative_agrees_with_finite_differences(name):
    loss = ALL[name]
    z, y = sample(loss)
    h = 1e-6
    slope = (loss.derivative(z + h, y) - loss.derivative(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.second_derivative(z, y), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_constants_bound_the_derivatives(name):
    loss = ALL[name]
    z, y = sample(loss, 2000, scale=5.0)
    assert np.all(np.abs(loss.derivative(z, y)) <= loss.lipschitz * (1 + 1e-15))
    assert np.all(np.abs(loss.second_derivative(z, y)) <= loss.smoothness * (1 + 1e-15))


@pytest.mark.parametrize("name", ALL)
def test_conjugate_is_the_supremum(name):
    loss = ALL[name]
    z, y = sample(loss, 12)
    u = loss.derivative(z, y)  # inside the domain, attained at z
    grid = np.linspace(-60.0, 12.0 if name == "poisson" else 60.0, 400_001)
    for uk, yk in zip(u, y):
        numerical = np.max(uk * grid - loss.value(grid, np.full_like(grid, yk)))
        assert loss.conjugate(np.array([uk]), np.array([yk]))[0] == pytest.approx(numerical, abs=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_fenchel_young_holds_with_equality_at_the_derivative(name):
    loss = ALL[name]
    z, y = sample(loss)
    u = loss.derivative(z, y)
    np.testing.assert_allclose(loss.value(z, y) + loss.conjugate(u, y), u * z, atol=1e-10)
    other = 0.7 * u + 0.3 * loss.derivative(z[::-1].copy(), y)
    assert np.all(loss.value(z, y) + loss.conjugate(other, y) >= other * z - 1e-10)


@pytest.mark.parametrize("name", ["logistic", "absolute", "hinge", "quantile 0.2", "huber 0.3"])
def test_conjugate_is_infinite_outside_its_domain(name):
    loss = ALL[name]
    y = np.ones(2)
    assert np.all(np.isinf(loss.conjugate(np.array([-50.0, 50.0]), y)))


@pytest.mark.parametrize("name", ALL)
@given(z=st.floats(-20, 20), step=st.floats(1e-3, 50), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_prox_is_a_minimiser(name, z, step, seed):
    loss = ALL[name]
    y = targets_of(loss, 1, np.random.default_rng(seed))
    zs = np.array([z])
    t = loss.prox(zs, step, y)
    at = lambda p: (step * loss.value(p, y) + 0.5 * (p - zs) ** 2)[0]  # noqa: E731
    best = at(t)
    for shift in (1e-6, 1e-3, 0.1, 3.0):
        assert best <= at(t + shift) + 1e-9 * (1 + abs(best))
        assert best <= at(t - shift) + 1e-9 * (1 + abs(best))


@pytest.mark.parametrize("name", KINKED)
def test_kinks_have_the_subgradient_zero_or_the_flat_side(name):
    loss = ALL[name]
    if name == "hinge":
        assert loss.derivative(np.array([1.0]), np.array([1.0]))[0] == 0.0
    else:
        assert loss.derivative(np.array([0.3]), np.array([0.3]))[0] == 0.0


@pytest.mark.parametrize("name", [name for name in ALL if name != "poisson"])
def test_scores_of_any_size_neither_overflow_nor_warn(name):
    loss = ALL[name]
    y = np.ones(4)
    for size in (1e4, 1e150):
        z = np.array([-size, -1.0, 1.0, size])
        for f in (loss.derivative, loss.second_derivative):
            assert np.all(np.isfinite(f(z, y)))
        if math.isfinite(loss.lipschitz):
            assert np.all(np.isfinite(loss.value(z, y)))


def test_logistic_keeps_its_digits_in_both_tails():
    loss = Logistic()
    z = np.array([-800.0, -40.0, 40.0, 700.0])
    y = np.ones(4)
    np.testing.assert_allclose(loss.value(z, y), [800.0, 40.0, np.exp(-40.0), np.exp(-700.0)], rtol=1e-15)
    np.testing.assert_allclose(loss.derivative(z, y)[2:], [-np.exp(-40.0), -np.exp(-700.0)], rtol=1e-15)


@pytest.mark.parametrize("name", ALL)
def test_every_namespace_gives_the_same(name, xp):
    loss = ALL[name]
    z, y = sample(loss)
    for f in ("value", "derivative", "second_derivative", "conjugate"):
        expected = getattr(loss, f)(z, y)
        found = getattr(loss, f)(xp.asarray(z), xp.asarray(y))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-13)
    found = loss.prox(xp.asarray(z), 0.7, xp.asarray(y))
    np.testing.assert_allclose(np.asarray(found), loss.prox(z, 0.7, y), atol=1e-10)


@pytest.mark.parametrize("name", ALL)
def test_single_precision_stays_single(name):
    loss = ALL[name]
    z, y = sample(loss)
    z, y = z.astype(np.float32), y.astype(np.float32)
    for f in (loss.value, loss.derivative, loss.second_derivative, loss.conjugate):
        assert f(z, y).dtype == np.float32
    assert loss.prox(z, 0.5, y).dtype == np.float32


def test_targets_are_checked_and_coded():
    np.testing.assert_array_equal(Logistic().check_targets(np.array([0.0, 1.0])), [-1.0, 1.0])
    np.testing.assert_array_equal(Logistic().check_targets(np.array([-1.0, 1.0])), [-1.0, 1.0])
    np.testing.assert_array_equal(Logistic().check_targets(np.array([1.0, 1.0])), [1.0, 1.0])
    np.testing.assert_array_equal(Logistic().check_targets(np.array([0.0, 0.0])), [-1.0, -1.0])
    with pytest.raises(ValueError, match=r"labels -1 / \+1 or 0 / 1, got .*2\.0.* in row 2"):
        Logistic().check_targets(np.array([1.0, -1.0, 2.0]))
    with pytest.raises(ValueError, match=r"labels .* in row 1"):
        Logistic().check_targets(np.array([-1.0, 0.0]))
    with pytest.raises(ValueError, match="counts"):
        Poisson().check_targets(np.array([1.0, 0.5]))
    with pytest.raises(ValueError, match="counts"):
        Poisson().check_targets(np.array([-1.0]))


def test_losses_are_found_by_name():
    assert get_loss("huber", delta=2.0) == Huber(2.0)
    loss = Logistic()
    assert get_loss(loss) is loss
    with pytest.raises(ValueError, match="loss must be one of"):
        get_loss("hing")
    with pytest.raises(ValueError, match="level must be"):
        Quantile(1.0)
    with pytest.raises(ValueError, match="delta must be"):
        Huber(0.0)
    assert Quantile(0.2).describe() == "quantile(level=0.2)"
