"""The acceptance tables of sub-sampled Newton: rates (A4), averages (A6), real data (A7), transform (A8).

Figures were measured by an independent prototype; closed forms stand beside them where there are some.
"""

from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from optikit.sketching import exact_leverage, fwht
from solvers.newton.glm import GLM
from solvers.newton.subsampled import SubsampledNewton
from theory_checks.claims.newton import heavy_tailed

D = 20
ROWS = np.array([80, 160, 320, 640])


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


# -- A4: rate over the rows of the sketch -----------------------------------------------------------------


@cache
def least_squares(n=4096):
    """Heavy-tailed rows; n = 4096 so that m = 640 stays a sketch (from n/2 rows on Newton is exact)."""
    A = heavy_tailed(n)
    y = A @ np.ones(D) + np.random.default_rng(1).standard_normal(n)
    return GLM(A, y, "least_squares"), A.T @ A / n, np.linalg.lstsq(A, y, rcond=None)[0]


def contraction(seeds, **options):
    """Mean of ``||b_(t+1) - b*||_H^2 / ||b_t - b*||_H^2`` over 8 iterations and the seeds.

    The eighth root of the mean of the whole ratio estimates the same number, but hangs on its largest values.
    """
    glm, H, best = least_squares()
    ratios = []
    for seed in range(seeds):
        errors = []

        def record(progress, errors=errors):
            e = progress.state.b - best
            errors.append(float(e @ H @ e))

        solver = SubsampledNewton(leverage="exact", adaptive=False, seed=seed, **options)
        solver.solve(glm, max_rounds=None, max_iterations=8, callback=record)
        ratios.append(np.divide(errors[1:], errors[:-1]))
    return float(np.mean(ratios))


@pytest.mark.parametrize(
    ("sketch", "seeds", "expected"),
    [
        ("gaussian", 16, (0.269, 0.135, 0.066, 0.033)),
        ("rows", 40, (0.270, 0.126, 0.062, 0.031)),
        ("less", 40, (0.277, 0.126, 0.062, 0.031)),
        ("saso", 40, (0.275, 0.132, 0.067, 0.033)),
        ("srht", 40, (0.273, 0.131, 0.065, 0.033)),
    ],
)
def test_a4_rates_are_the_dimension_over_the_rows(sketch, seeds, expected):
    found = [contraction(seeds, m=int(m), sketch=sketch, s=4, step_rule="theory") for m in ROWS]
    np.testing.assert_allclose(found, expected, rtol=0.1)
    np.testing.assert_allclose(found, D / ROWS, rtol=0.25)  # T5
    assert -1.15 <= slope(ROWS, found) <= -0.9  # -1.00 to -1.05, +- 0.1


def test_a4_undebiased_full_steps_are_worse_at_every_size():
    found = np.array([contraction(40, m=int(m), sketch="rows", debias="none", step_rule=1.0) for m in ROWS])
    # Gaussian sketches would give 1 - 2a + b with a = m/(m-d-1) and b = m^2 (m-1)/((m-d)(m-d-1)(m-d-3)).
    exact = 1 - 2 * ROWS / (ROWS - 21) + ROWS**2 * (ROWS - 1) / ((ROWS - 20) * (ROWS - 21) * (ROWS - 23))
    np.testing.assert_allclose(exact, (0.81, 0.22, 0.087, 0.039), rtol=0.1)
    # Leverage samples are a little less biased than Gaussian sketches at m = 4 d: 11 %.
    np.testing.assert_allclose(found, exact, rtol=0.15)
    assert np.all(found > 1.1 * D / ROWS)
    assert slope(ROWS, found) == pytest.approx(-1.45, abs=0.1)


# -- A6: logistic regression over workers -----------------------------------------------------------------

WORKERS = (1, 2, 4, 8)


@cache
def logistic_rates(debias):
    """Medians of the iterations to a squared decrement of 2e-12, and mean rates of the squared gradient."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 50))
    y = rng.random(20_000) < 1 / (1 + np.exp(-X @ rng.standard_normal(50)))
    iterations, rates = [], []
    for q in WORKERS:
        glm, counted, measured = GLM(X, y, "logistic", l2=1e-3, workers=q), [], []
        for seed in range(5):
            solver = SubsampledNewton(
                m=250,
                sketch="less_uniform",
                debias=debias,
                step_rule="theory" if debias == "auto" else 1.0,
                adaptive=False,
                seed=seed,
            )
            history = solver.solve(glm, max_rounds=None, max_iterations=60, tol=1e-14).history
            counted.append(int(np.argmax(history["decrement"][1:] < 2e-12)) + 1)
            norms = history["gradient_norm"][1:]
            last = int(np.argmax(norms < 1e-8)) or norms.size - 1
            measured.append((norms[last] / norms[4]) ** (2 / (last - 4)))  # the local phase
        iterations.append(float(np.median(counted)))
        rates.append(float(np.mean(measured)))
    return np.array(iterations), np.array(rates)


def test_a6_debiased_averages_contract_by_kappa_over_q_plus_kappa():
    iterations, rates = logistic_rates("auto")
    np.testing.assert_allclose(rates, (0.218, 0.129, 0.072, 0.041), rtol=0.15)
    np.testing.assert_array_less(np.abs(iterations - (18, 14, 12, 10)), 4)


def test_a6_undebiased_averages_are_slower():
    iterations, rates = logistic_rates("none")
    np.testing.assert_allclose(rates, (0.53, 0.34, 0.21, 0.16), rtol=0.15)
    np.testing.assert_array_less(np.abs(iterations - (39, 23, 16, 14)), 4)
    assert np.all(iterations > logistic_rates("auto")[0])


# -- A7: real data ----------------------------------------------------------------------------------------


def standardised(X):
    scale = X.std(0)
    return np.column_stack([(X - X.mean(0)) / np.where(scale > 0, scale, 1.0), np.ones(len(X))])


@cache
def real(name):
    """Model and its optimal value; the column of ones is penalised too."""
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return GLM(standardised(X), y, "logistic", l2=1e-3), 0.059829471882
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return GLM(standardised(X), y >= 5, "logistic", l2=1e-3), 0.247752302922
    import statsmodels.api as sm
    from sklearn.preprocessing import PolynomialFeatures

    data = sm.datasets.randhie.load_pandas().data
    base = standardised(data.drop(columns="mdvis").to_numpy(float))[:, :-1]
    X = standardised(PolynomialFeatures(2, include_bias=False).fit_transform(base))
    return GLM(X, data["mdvis"].to_numpy(float), "poisson", l2=1e-4), -0.392022217697


def iterations_to(name, rows, **options):
    """Median over five seeds of the iterations to a relative gap of 1e-8."""
    glm, optimum = real(name)
    counts = []
    for seed in range(5):
        solver = SubsampledNewton(m=rows, seed=seed, **options)
        history = solver.solve(glm, max_rounds=None, max_iterations=100, tol=1e-12).history
        reached = history["objective"] - optimum <= 1e-8 * abs(optimum)
        assert reached.any()
        counts.append(int(np.argmax(reached)))
    return float(np.median(counts))


@pytest.mark.parametrize("name", ["breast_cancer", "digits", "randhie"])
def test_a7_optima(name):
    glm, optimum = real(name)
    result = SubsampledNewton(sketch="exact").solve(glm, max_rounds=None, max_iterations=40, tol=1e-15)
    assert result.objective == pytest.approx(optimum, abs=6e-13)  # half a unit of its last digit


def test_a7_breast_cancer_is_coherent():
    glm, _ = real("breast_cancer")
    b = SubsampledNewton(sketch="exact").solve(glm, max_rounds=None, max_iterations=40, tol=1e-15).x
    scores = exact_leverage(glm.X, glm.l2, glm.root_weights(glm.margins(b), slice(None)))
    assert scores.sum() == pytest.approx(15.96, abs=5e-3)
    assert scores.max() == pytest.approx(0.823, abs=5e-4)


# The prototype counts its start as iteration 1 and m = 300 of 569 rows is not a sketch by the rule that n/2
# rows make Newton exact: 280 there. Fewer iterations than its median are no defect, two more are noise.
CASES = [("breast_cancer", 280), ("digits", 640), ("randhie", 800)]


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"sketch": "exact"}, (10, 10, 11)),
        ({"sketch": "rows_poisson"}, (11, 10, 10)),
        ({"sketch": "saso"}, (11, 10, 10)),
        ({"sketch": "less_uniform"}, (12, 12, 14)),
    ],
    ids=["exact", "leverage", "saso", "less_uniform"],
)
def test_a7_iterations_on_real_data(options, most):
    for (name, rows), limit in zip(CASES, most):
        assert iterations_to(name, rows, **options) <= limit


def test_a7_uniform_rows_need_several_times_the_iterations():
    # 29-34, 49 and 62 with a fixed sketch; the adaptive size mends most of it.
    options = {"sketch": "rows", "scheme": "uniform", "adaptive": False}
    found = np.array([iterations_to(name, rows, **options) for name, rows in CASES])
    np.testing.assert_allclose(found, (34, 49, 62), rtol=0.25)
    adaptive = iterations_to("breast_cancer", 280, sketch="rows", scheme="uniform")
    assert adaptive < 0.5 * found[0]


# -- A8 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 4, 8, 64, 2048, 32_768])
@pytest.mark.parametrize("width", [1, 3, 17])
def test_a8_transform_is_an_involution(n, width):
    X = np.random.default_rng(0).standard_normal((n, width))
    np.testing.assert_allclose(fwht(fwht(X)), n * X, rtol=0, atol=1e-12 * n * np.abs(X).max())
