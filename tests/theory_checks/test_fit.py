"""Fits and intervals: exact on exact data, and covering at their nominal rate on noisy data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from theory_checks.fit import (
    Regime,
    fit_linear_rate,
    fit_power_law,
    mean_interval,
    proportion_interval,
)

X = np.array([1.0, 2.0, 4.0, 8.0, 16.0])


@given(st.floats(-4, 4), st.floats(0.01, 100))
def test_an_exact_power_law_gives_its_exponent_with_no_width(exponent, constant):
    fit = fit_power_law([X], [constant * X**exponent])
    assert fit.slope.value == pytest.approx(exponent, abs=1e-10)
    assert fit.slope.high - fit.slope.low < 1e-6
    assert np.exp(fit.intercept) == pytest.approx(constant)


def test_an_exact_linear_rate_gives_its_factor():
    fit = fit_linear_rate([np.arange(10.0)], [5 * 0.3 ** np.arange(10.0)])
    assert np.exp(fit.slope.value) == pytest.approx(0.3, rel=1e-12)


def coverage(fit_once, truth, trials=600):
    covered = 0
    for trial in range(trials):
        slope = fit_once(np.random.default_rng(trial)).slope
        covered += slope.low <= truth <= slope.high
    return covered, trials


# The intervals are exact for Gaussian noise, so the count is binomial with p = 0.95: the bounds are its
# 1e-4 and 1 - 1e-4 quantiles.
def assert_nominal(covered, trials, level=0.95):
    low, high = stats.binom.ppf([1e-4, 1 - 1e-4], trials, level)
    assert low <= covered <= high


def test_the_interval_of_several_seeds_covers_the_slope_at_its_nominal_rate():
    def once(rng):
        noise = rng.standard_normal((5, X.size)) * 0.2
        return fit_power_law([X] * 5, [2 * X**-1.5 * np.exp(row) for row in noise])

    assert_nominal(*coverage(once, -1.5))


def test_the_interval_of_several_seeds_covers_although_a_seed_shares_noise_along_its_curve():
    def once(rng):
        curves = [np.exp(np.cumsum(rng.standard_normal(X.size))) * X**-1.0 for _ in range(6)]
        return fit_power_law([X] * 6, curves)

    assert_nominal(*coverage(once, -1.0))


def test_the_interval_of_one_noisy_curve_covers_the_slope_at_its_nominal_rate():
    def once(rng):
        return fit_power_law([X], [X**0.5 * np.exp(0.3 * rng.standard_normal(X.size))], confidence=0.9)

    assert_nominal(*coverage(once, 0.5), level=0.9)


def test_the_jackknife_of_the_mean_covers_the_slope_of_the_expectation():
    def once(rng):
        # exponential noise: the mean has slope -1, single curves are far from it
        return fit_power_law(
            [X] * 40, list(X**-1.0 * rng.exponential(size=(40, X.size))), average="arithmetic"
        )

    covered, trials = coverage(once, -1.0)
    assert 0.91 * trials <= covered <= 0.98 * trials  # approximate for 40 exponential seeds


def test_seeds_that_change_nothing_fall_back_on_the_residuals():
    values = X**-1.0 * np.exp([0.1, -0.1, 0.1, -0.1, 0.1])
    once, thrice = fit_power_law([X], [values]), fit_power_law([X] * 3, [values] * 3)
    assert thrice.slope == once.slope
    assert once.slope.high > once.slope.low


def test_two_points_of_one_curve_say_nothing_about_the_error():
    assert fit_power_law([X[:2]], [X[:2]]).slope.high == np.inf


def test_a_bent_curve_has_a_large_residual():
    assert fit_power_law([X], [np.exp(X / 8)]).residual > 0.2


def test_curves_of_different_abscissae_cannot_be_averaged():
    with pytest.raises(ValueError, match="same abscissae"):
        fit_power_law([X, X[1:]], [X, X[1:]], average="arithmetic")


@pytest.mark.parametrize("n", [5, 50])
def test_the_interval_of_no_success_is_the_closed_form_of_clopper_and_pearson(n):
    interval = proportion_interval(0, n)
    assert interval.low == 0
    assert interval.high == pytest.approx(1 - 0.025 ** (1 / n), rel=1e-9)  # (1 - p)^n = alpha / 2


def test_the_mean_interval_is_students():
    values = np.array([1.0, 2.0, 4.0])
    low, high = stats.t.interval(0.95, 2, loc=values.mean(), scale=stats.sem(values))
    found = mean_interval(values)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_one_value_is_exact():
    assert mean_interval(np.array([3.0])).low == 3.0


def test_the_regime_keeps_the_stable_phase_above_the_floor():
    values = np.array([5.0, 1.0, 4.0, 2.0, 1.0, 1e-14, 1e-13])
    mask = Regime(floor=1e-12, after_last_increase=True).mask(np.arange(7.0), values)
    assert mask.tolist() == [False, False, True, True, True, False, False]


def test_the_regime_never_hides_a_divergence():
    mask = Regime(floor=0.0, ceiling=10.0, relative_floor=0.1).mask(X[:3], np.array([1.0, np.nan, np.inf]))
    assert mask.tolist() == [True, True, True]


def test_a_relative_floor_is_measured_from_the_first_value():
    mask = Regime(relative_floor=1e-2).mask(X[:3], np.array([10.0, 0.2, 0.01]))
    assert mask.tolist() == [True, True, False]
