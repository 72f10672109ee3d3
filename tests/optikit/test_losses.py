"""Losses against finite differences, numerical suprema and the optimality of their proximal maps."""

import math

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit.losses import LOSSES, Huber, Logistic, Loss, Poisson, Quantile, get_loss

ALL = {
    **{name: cls() for name, cls in LOSSES.items()},
    "huber 0.3": Huber(0.3),
    "quantile 0.2": Quantile(0.2),
}
LOG_LINK = ("poisson", "negative_binomial", "gamma")
SMOOTH = [name for name, loss in ALL.items() if math.isfinite(loss.smoothness) or name in LOG_LINK]
KINKED = ["absolute", "hinge", "quantile", "quantile 0.2"]


def targets_of(loss: Loss, size: int, rng) -> np.ndarray:
    if loss.targets == "binary":
        return np.where(rng.random(size) < 0.5, -1.0, 1.0)
    if loss.targets == "count":
        return rng.poisson(2.0, size).astype(float)
    if loss.targets == "positive":
        return rng.gamma(2.0, 1.0, size)
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


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("poisson", "gamma")])
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


def test_logistic_slopes_are_right_to_the_last_digits_everywhere():
    z = np.linspace(-740.0, 700.0, 3001)
    found = Logistic().derivative(z, np.ones_like(z))
    np.testing.assert_allclose(found, -1 / (1 + np.exp(z.astype(np.longdouble))), rtol=4e-16)
    assert Logistic().derivative(np.array([np.inf, -np.inf]), np.ones(2)).tolist() == [0.0, -1.0]
    assert np.isnan(Logistic().derivative(np.array([np.nan]), np.ones(1))).all()


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


# -- the default proximal map -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["least_squares", "squared_hinge", "huber 0.3", "poisson", "quantile 0.2"])
@pytest.mark.parametrize("step", [1e-6, 0.7, 1e6])
def test_newton_finds_the_proximal_points_known_in_closed_form(name, step):
    loss = ALL[name]
    z, y = sample(loss, 200, scale=30.0)
    np.testing.assert_allclose(Loss.prox(loss, z, step, y), loss.prox(z, step, y), rtol=1e-12, atol=1e-12)


@given(z=st.floats(-1e9, 1e9), log_step=st.floats(-8, 8), y=st.sampled_from([-1.0, 1.0]))
@settings(max_examples=200, deadline=None)
def test_logistic_proximal_points_are_optimal_to_rounding(z, log_step, y):
    # One ulp of t moves the optimality residual by ulp (1 + s phi''): nothing smaller can be asked.
    loss, step = Logistic(), 10.0**log_step
    z, y = np.array([z]), np.array([y])
    t = loss.prox(z, step, y)
    push = step * loss.derivative(t, y)
    ulps = np.abs(t) * (1 + step * loss.second_derivative(t, y)) + np.abs(z) + np.abs(push)
    assert np.all(np.abs(t - z + push) <= 8 * np.finfo(float).eps * ulps)


def test_newton_swings_between_the_flat_ends_of_no_sigmoid():
    # Plain Newton from z alternates between two far points here; the root is where t = z - s phi'(t).
    t = Logistic().prox(np.array([-30.0]), 1000.0, np.array([1.0]))[0]
    root = scipy.optimize.brentq(lambda t: t + 30.0 - 1000.0 / (1 + math.exp(t)), -30, 700, xtol=1e-14)
    assert t == pytest.approx(root, rel=1e-13)


@pytest.mark.parametrize("z", [1e4, 1e300])
def test_newton_reaches_the_root_of_a_loss_that_overflows_at_the_start(z):
    start, count = np.array([z]), np.array([3.0])
    found = Loss.prox(Poisson(), start, 2.0, count)
    np.testing.assert_allclose(found, Poisson().prox(start, 2.0, count), rtol=1e-14)
    np.testing.assert_allclose(found, np.log((z + 6.0 - found) / 2.0), rtol=1e-14)  # t = log(W / s)


def test_newton_bisects_to_the_kink_of_a_loss_without_curvature():
    z, y = sample(ALL["absolute"], 100)
    found = Loss.prox(ALL["absolute"], z, 0.7, y)
    np.testing.assert_allclose(found, ALL["absolute"].prox(z, 0.7, y), atol=1e-13)


def test_a_proximal_point_does_not_depend_on_its_neighbours():
    loss = Logistic()
    z, y = sample(loss, 40, scale=50.0)
    together = loss.prox(z, 100.0, y)
    for k in range(0, 40, 7):
        np.testing.assert_array_equal(loss.prox(z[k : k + 1], 100.0, y[k : k + 1]), together[k : k + 1])


def test_proximal_maps_broadcast_and_keep_what_is_not_a_number():
    loss = Logistic()
    z, y = np.array([[2.0, 3.0]]), np.array([[1.0], [-1.0]])
    found = loss.prox(z, np.array([[0.5], [2.0]]), y)
    assert found.shape == (2, 2)
    assert found[1, 0] == loss.prox(np.array([2.0]), 2.0, np.array([-1.0]))[0]
    assert loss.prox(np.zeros(0), 1.0, np.zeros(0)).shape == (0,)
    assert np.isnan(loss.prox(np.array([np.nan]), 1.0, np.ones(1))[0])


@pytest.mark.parametrize("name", ["logistic", "hinge", "squared_hinge", "absolute", "quantile", "huber"])
def test_conjugates_of_huge_slopes_are_infinite_without_a_warning(name):
    outside = np.array([1e300])  # y u > 0 leaves the domain of the margin losses
    assert np.isposinf(ALL[name].conjugate(outside, np.ones(1)))


@pytest.mark.parametrize("name", ALL)
@given(z=st.floats(-30, 30), step=st.floats(1e-2, 30), seed=st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_moreau_decomposition_gives_a_subgradient(name, z, step, seed):
    # u = (z - t) / s is a subgradient of phi at t: Fenchel-Young holds there with equality.
    loss = ALL[name]
    y, zs = targets_of(loss, 1, np.random.default_rng(seed)), np.array([z])
    t = loss.prox(zs, step, y)
    u = (zs - t) / step
    # Rounding may put u just outside the conjugate's domain.
    slack = loss.value(t, y) + loss.conjugate(np.clip(u, *loss.slope_range(y)), y) - u * t
    assert abs(slack[0]) <= 1e-9 * (1 + abs(z)) * (1 + abs(u[0]))


@pytest.mark.parametrize("name", ALL)
def test_slope_range_is_where_the_conjugate_is_finite(name):
    loss = ALL[name]
    _, y = sample(loss, 20)
    for end, outward in zip(loss.slope_range(y), (-1.0, 1.0)):
        ends = np.isfinite(end)
        assert np.all(np.isfinite(loss.conjugate(end[ends], y[ends])))
        assert np.all(np.isinf(loss.conjugate(end[ends] + 1e-9 * outward, y[ends])))
        assert np.all(np.isfinite(loss.conjugate(np.full(20, 1e3 * outward), y)[~ends]))
