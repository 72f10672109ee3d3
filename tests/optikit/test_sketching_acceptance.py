"""The acceptance tables of debiased sketching: exact bias (A1), measured bias (A2, A3), averages (A5).

Figures of A1 are exact enumerations; those of A2, A3 and A5 were measured by an independent prototype on
heavy-tailed rows of its own draw ("T3": multivariate t with 3 degrees of freedom). Stated tolerance of a
bias: 25 %, or twice its noise.
"""

import math
from functools import cache

import numpy as np
import pytest
import scipy.linalg as sla

from optikit.sketching import (
    LESS,
    SASO,
    SRHT,
    CountSketch,
    DebiasedInverse,
    Gaussian,
    LESSUniform,
    PoissonRows,
    Rows,
    bias_report,
    debias_weights,
    determinantal_average,
    exact_leverage,
    inclusion_probabilities,
    sampling_probabilities,
    sketched_inverse,
)
from theory_checks.claims.newton import SMALL, counts, heavy_tailed

ROWS = (60, 120, 240)


@cache
def scores(n=1024, C=0.0):
    return exact_leverage(heavy_tailed(n), C)


def shrunk(n=1024, C=0.0):
    """pi = l/(2 d_eff) + 1/(2n)."""
    return sampling_probabilities("shrinkage", heavy_tailed(n), leverage=scores(n, C))


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


# -- A1: second order, by enumeration ---------------------------------------------------------------------


def second_order_bias(m, ridge, rule):
    """Bias under leverage sampling, over every multiset of m rows of the 6 x 2 matrix."""
    A, C = SMALL, ridge * np.eye(2)
    leverage = exact_leverage(A, ridge)
    pi = leverage / leverage.sum()
    if rule == "plus one":  # the cheap equivalent at C = 0
        weights = m / (m + 1 - leverage / pi)
    else:
        weights = debias_weights("second_order", m=m, leverage=leverage, probabilities=m * pi)
    table, logs = counts(m, 6)
    grams = np.einsum("ki,ij,il->kjl", table * (weights / (m * pi)), A, A)
    regular = np.linalg.det(grams + C) > 1e-10
    p = np.exp(logs + table @ np.log(pi)) * regular
    inverses = np.linalg.inv(grams[regular] + C)
    if rule == "second_order":  # p + T(T p)/m with T = Q G~
        T = inverses @ grams[regular]
        inverses = inverses + T @ T @ inverses / m
    mean = np.einsum("k,kij->ij", p[regular] / p.sum(), inverses)
    root = sla.sqrtm(A.T @ A + C).real
    return float(np.linalg.norm(root @ mean @ root - np.eye(2), 2))


@pytest.mark.parametrize(
    ("ridge", "rule", "expected", "exponent"),
    [
        (0.0, "plus one", (0.00672, 0.00262, 0.00140), -2.27),
        (0.0, "second_order", (0.00190, 0.00105, 0.00063), None),
        (2.0, "second_order", (0.00146, 0.00069, 0.00040), -1.88),
        (2.0, "fine", (0.0455, 0.0306, 0.0230), -0.99),  # the 1/m term that the correction removes
    ],
)
def test_second_order_rules_by_enumeration(ridge, rule, expected, exponent):
    found = [second_order_bias(m, ridge, rule) for m in (16, 24, 32)]
    np.testing.assert_allclose(found, expected, atol=6e-5 if rule == "fine" else 6e-6)  # half a last digit
    if exponent is not None:
        assert slope((16, 24, 32), found) == pytest.approx(exponent, abs=0.01)


def test_the_library_applies_the_correction_that_was_enumerated():
    rng = np.random.default_rng(0)
    rows, C = rng.standard_normal((30, 3)), np.diag([1.0, 2.0, 0.5])
    G = rows.T @ rows
    Q = np.linalg.inv(G + C)
    T = Q @ G
    found = DebiasedInverse(G, C, 30, math.nan, "second_order").solve(np.eye(3))
    np.testing.assert_allclose(found, Q + T @ T @ Q / 30, atol=1e-14)


# -- A2: with replacement, and sketches -------------------------------------------------------------------


def assert_biases(sketch, rule, expected, draws=2500, **given):
    for m, figure in zip(ROWS, expected):
        report = bias_report(heavy_tailed(), 0.0, sketch(m), rule=rule, draws=draws, **given)
        assert abs(report.bias - figure) <= max(0.25 * figure, 2 * report.noise), (m, report.bias)


def test_the_instance_is_as_coherent_as_the_specification_says():
    assert scores().max() == pytest.approx(0.474, abs=5e-4)


@pytest.mark.parametrize(
    ("rule", "expected"), [("none", (0.548, 0.203, 0.091)), ("scalar", (0.031, 0.010, 0.005))]
)
def test_a2_leverage_sampling(rule, expected):
    assert_biases(lambda m: Rows(m, scores()), rule, expected)


@pytest.mark.parametrize(
    ("rule", "expected"), [("scalar", (0.407, 0.153, 0.064)), ("fine", (0.176, 0.032, 0.0065))]
)
def test_a2_shrinkage_sampling(rule, expected):
    assert_biases(lambda m: Rows(m, shrunk()), rule, expected)


@pytest.mark.parametrize(
    ("rule", "expected"), [("scalar", (0.142, 0.053, 0.024)), ("fine", (0.058, 0.010, 0.006))]
)
def test_a2_noisy_leverage(rule, expected):
    # The scalar figure follows the noise that leverage is multiplied by, 0.12 to 0.19 at m = 60 over draws of
    # it: the specification's is one draw, the mean over five is compared here.
    for m, figure in zip(ROWS, expected):
        reports = [
            bias_report(
                heavy_tailed(),
                0.0,
                Rows(m, scores() * np.random.default_rng(seed).uniform(0.5, 1.5, 1024)),
                rule=rule,
                draws=1500,
                rng=seed,
            )
            for seed in range(1, 6)
        ]
        bias, noise = np.mean([r.bias for r in reports]), np.mean([r.noise for r in reports])
        assert abs(bias - figure) <= max(0.25 * figure, 2 * noise), (m, bias)


@pytest.mark.parametrize(
    ("rule", "d_eff", "expected"),
    [("none", 20, (0.562, 0.219, 0.099)), ("scalar", 21, (0.017, 0.006, 0.003))],
)
@pytest.mark.parametrize("name", ["gaussian", "srht", "countsketch", "saso", "less"])
def test_a2_sketches_are_within_noise_of_gaussian(name, rule, d_eff, expected):
    # d_eff = 21 makes the factor m/(m-d-1), which is exact for Gaussian sketches.
    sketch = {
        "gaussian": Gaussian,
        "srht": SRHT,
        "countsketch": CountSketch,
        "saso": lambda m: SASO(m, 4),
        "less": lambda m: LESS(m, scores() / scores().sum(), 4),
    }[name]
    draws = 200 if name == "gaussian" else 1000  # a Gaussian sketch costs twenty times as much
    assert_biases(sketch, rule, expected, draws, d_eff=float(d_eff))


def test_a2_uniform_sparsification_of_coherent_data_stays_biased_and_warns():
    assert_biases(lambda m: LESSUniform(m, 4), "scalar", (1.28, 0.70, 0.34), 1000)
    assert "coherent" in str(bias_report(heavy_tailed(), 0.0, LESSUniform(120, 4), draws=10))


# -- A3: Poisson ------------------------------------------------------------------------------------------


def poisson_draws(m, rule, draws=2500):
    """Bias with its noise, and the contraction ``1 - 2 mu a + mu^2 b`` at the theoretical step."""
    A, leverage, d = heavy_tailed(), scores(), 20
    U = sla.solve_triangular(sla.cholesky(A.T @ A, lower=True), A.T, lower=True).T
    p = inclusion_probabilities(leverage, m)
    if rule == "with replacement":
        weights = debias_weights("fine", m=m, leverage=np.minimum(leverage, 0.9 * p), probabilities=p)
    else:
        weights = debias_weights(rule, leverage=leverage, probabilities=p) * np.ones(p.size)
    rng, halves, moments = np.random.default_rng(0), np.zeros((2, d, d)), np.zeros(2)
    for draw in range(draws):
        kept = rng.random(p.size) < p
        G = (U[kept].T * (weights[kept] / p[kept])) @ U[kept]
        Q = np.linalg.inv(G)
        halves[draw % 2] += Q + G  # the Gram matrix is the control variate: its mean is known
        moments += [np.trace(Q) / d, np.sum(Q * Q) / d]
    means = halves / (draws / 2)
    bias = np.linalg.norm(means.mean(0) - (U.T * weights) @ U - np.eye(d), 2)
    variance = np.linalg.eigvalsh((U.T * ((1 / p - 1) * leverage)) @ U)[-1]
    a, b = moments / draws
    mu = 1 / (1 + variance)
    return bias, 0.5 * np.linalg.norm(means[0] - means[1], 2), 1 - 2 * mu * a + mu * mu * b


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("none", (0.268, 0.081, 0.019)),
        ("with replacement", (0.338, 0.336, 0.336)),
        ("poisson", (0.018, 0.003, 0.0007)),
    ],
)
def test_a3_poisson_rows(rule, expected):
    for m, figure in zip((80, 160, 320), expected):
        bias, noise, _ = poisson_draws(m, rule)
        assert abs(bias - figure) <= max(0.25 * figure, 2 * noise), (m, bias)


def test_a3_poisson_rows_contract_faster_than_rows_with_replacement():
    found = [poisson_draws(m, "poisson")[2] for m in (80, 160, 320)]
    np.testing.assert_allclose(found, (0.184, 0.057, 0.015), rtol=0.25)
    assert np.all(found < np.array([0.27, 0.126, 0.062]))  # with replacement


def test_a3_srht_without_replacement_needs_its_own_factor():
    A, d, m = heavy_tailed(), 20, 240
    U = sla.solve_triangular(sla.cholesky(A.T @ A, lower=True), A.T, lower=True).T
    sketch = SRHT(m, replacement=False)
    traces = []
    for seed in range(3000):
        At = sketch.apply(U, seed)
        traces.append(np.trace(np.linalg.inv(At.T @ At)) / d)
    noise = np.std(traces) / math.sqrt(3000)
    plain = np.mean(traces) / debias_weights("scalar", m=m, d_eff=20.0) - 1
    right = np.mean(traces) / debias_weights("srht_wor", m=m, d_eff=20.0, n=1024) - 1
    assert abs(plain + 0.016) <= max(0.25 * 0.016, 2 * noise)
    assert abs(right - 0.003) <= max(0.25 * 0.003, 2 * noise)


# -- A5: averages -----------------------------------------------------------------------------------------

WORKERS = (1, 4, 16, 64, 256, 1024)


@cache
def whitened_inverses(probabilities, rule, draws=4096):
    """``H^(1/2) Q H^(1/2)`` and log-determinants of independent workers: n = 2048, lam = 50, m = 100."""
    A, C = heavy_tailed(2048), 50.0
    leverage = scores(2048, C)
    root = sla.cholesky(A.T @ A + C * np.eye(20), lower=True)
    pi = leverage if probabilities == "leverage" else shrunk(2048, C)
    found = [
        sketched_inverse(A, C, Rows(100, pi), seed, rule=rule, leverage=leverage, d_eff=float(leverage.sum()))
        for seed in np.random.SeedSequence(0).spawn(draws)
    ]
    return np.array([root.T @ q.solve(root) for q in found]), np.array([q.logdet for q in found])


def averaged_errors(probabilities, rule):
    """Mean over all directions of ``|p-bar - p|_H^2 / |p|_H^2`` for each number of workers."""
    inverses, _ = whitened_inverses(probabilities, rule)
    errors = []
    for q in WORKERS:
        means = inverses.reshape(-1, q, 20, 20).mean(axis=1)
        errors.append(np.mean(np.sum((means - np.eye(20)) ** 2, axis=(1, 2))) / 20)
    return np.array(errors)


def test_a5_instance():
    # 19.84 for the prototype's draw of the rows, 19.86 for ours.
    assert scores(2048, 50.0).sum() == pytest.approx(19.84, abs=0.03)


@pytest.mark.parametrize("rule", ["scalar", "fine"])
def test_a5_debiased_leverage_samples_average_like_one_over_q(rule):
    errors = averaged_errors("leverage", rule)
    np.testing.assert_allclose(errors, (0.253, 0.063, 0.0157, 0.0040, 0.00105, 0.00028), rtol=0.15)
    assert slope(WORKERS, errors) == pytest.approx(-0.98, abs=0.03)


def test_a5_undebiased_averages_floor():
    errors = averaged_errors("leverage", "none")
    np.testing.assert_allclose(errors, (0.448, 0.155, 0.082, 0.064, 0.059, 0.058), rtol=0.1)
    d_eff = scores(2048, 50.0).sum()
    assert errors[-1] == pytest.approx((d_eff / (100 - d_eff)) ** 2, rel=0.1)  # T6


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("scalar", (0.405, 0.106, 0.032, 0.013, 0.0083, 0.0071)),
        ("fine", (0.403, 0.101, 0.026, 0.0067, 0.0018, 0.00068)),
    ],
)
def test_a5_shrinkage_samples(rule, expected):
    errors = averaged_errors("shrinkage", rule)
    np.testing.assert_allclose(errors[:5], expected[:5], rtol=0.25)
    # At q = 1024 squared bias shows under the variance. It lives on the few heaviest rows, so it follows
    # their draw and the direction: over all directions of ours the fine rule leaves 0.0004, which is better.
    assert 0.75 * expected[5] * (rule == "scalar") <= errors[5] <= 1.25 * expected[5]
    if rule == "fine":
        assert averaged_errors("shrinkage", "scalar")[5] > 5 * errors[5]


def test_a5_determinantal_averages_floor():
    inverses, logs = whitened_inverses("leverage", "none")
    blocks = zip(inverses.reshape(4, 1024, 400), logs.reshape(4, 1024))
    error = np.mean(
        [np.sum((determinantal_average(q, w).reshape(20, 20) - np.eye(20)) ** 2) / 20 for q, w in blocks]
    )
    # Measured 0.0563; (m/(m-d_eff+1) - 1)^2 is 0.0538.
    assert error == pytest.approx(0.0563, rel=0.1)
    assert error == pytest.approx((100 / (101 - scores(2048, 50.0).sum()) - 1) ** 2, rel=0.1)


# -- A8: identities (T7 and the adjoints are in test_sketching) --------------------------------------------


def test_a8_all_rows_kept_is_the_exact_inverse():
    A, x = heavy_tailed(), np.linspace(1, 2, 20)
    inverse = sketched_inverse(A, 5.0, PoissonRows(2000), 0, leverage=exact_leverage(A, 5.0))
    np.testing.assert_allclose(inverse.solve(x), np.linalg.solve(A.T @ A + 5.0 * np.eye(20), x), rtol=1e-12)
