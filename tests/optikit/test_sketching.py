"""Sketches, leverage and debiasing rules against exact enumeration, closed forms and each other.

Figures come from exact enumeration or from an independent prototype (specification of the method).
"""

import dataclasses
import math
from itertools import product

import numpy as np
import pytest
import scipy.linalg as sla
import scipy.sparse as sp

from optikit.sketching import (
    LESS,
    SASO,
    SRHT,
    CountSketch,
    Gaussian,
    LESSUniform,
    PoissonRows,
    Rademacher,
    RankDeficientWarning,
    Rows,
    RowsWithoutReplacement,
    SketchTooSmall,
    approximate_leverage,
    bias_report,
    debias_weights,
    determinantal_average,
    deterministic_equivalent,
    effective_dimension,
    effective_dimension_from_gram,
    exact_leverage,
    fwht,
    inclusion_probabilities,
    inverse_times,
    leverage_from_sketch,
    sampling_probabilities,
    sketched_inverse,
)
from theory_checks.claims.newton import enumerated_bias, heavy_tailed, one_hot_bias

SMALL = np.array([[3.0, 0], [1, 1], [0, 2], [1, -1], [0.5, 1], [1, 0.2]])


def gaussian_rows(n=200, d=6, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


SKETCHES = {
    "gaussian": Gaussian(40),
    "rademacher": Rademacher(40),
    "srht": SRHT(40),
    "srht_wor": SRHT(40, replacement=False),
    "countsketch": CountSketch(40),
    "saso": SASO(40),
    "less": LESS(40, np.linspace(1, 2, 200) / np.linspace(1, 2, 200).sum(), 4),
    "less_uniform": LESSUniform(40, 4),
    "rows": Rows(40, np.linspace(1, 2, 200)),
    "rows_uniform": Rows(40),
    "rows_poisson": PoissonRows(40, np.linspace(1, 2, 200)),
    "rows_wor": RowsWithoutReplacement(40),
}


@pytest.mark.parametrize("name", SKETCHES)
def test_a_sketch_is_the_same_map_for_dense_csr_and_csc(name):
    A = gaussian_rows() * (np.random.default_rng(1).random((200, 6)) < 0.5)
    scale = np.random.default_rng(2).random(200)
    expected = SKETCHES[name].draw(200, 7).tocsr() @ (scale[:, None] * A)
    for stored in (A, sp.csr_array(A), sp.csc_array(A), np.asfortranarray(A)):
        np.testing.assert_allclose(SKETCHES[name].apply(stored, 7, scale), expected, atol=1e-12)


@pytest.mark.parametrize("name", SKETCHES)
def test_the_adjoint_is_the_transpose(name):
    operator = SKETCHES[name].draw(200, 3)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 1)), rng.standard_normal((operator.tocsr().shape[0], 1))
    assert float((y.T @ operator.apply(x)).item()) == pytest.approx(
        float((operator.adjoint(y).T @ x).item()), abs=1e-12
    )


@pytest.mark.parametrize("name", SKETCHES)
def test_the_gram_matrix_is_unbiased(name):
    A = gaussian_rows()
    draws = np.array([(s := SKETCHES[name].apply(A, seed)).T @ s for seed in range(800)])
    error = np.abs(draws.mean(0) - A.T @ A)
    assert np.all(error <= 5 * draws.std(0) / math.sqrt(800) + 1e-12)


@pytest.mark.parametrize("name", SKETCHES)
def test_seeds_decide_the_sketch(name):
    A = gaussian_rows()
    sketch = SKETCHES[name]
    first = sketch.apply(A, 5)
    np.testing.assert_array_equal(first, sketch.apply(A, np.random.SeedSequence(5)))
    other = sketch.apply(A, 6)
    assert first.shape != other.shape or not np.allclose(first, other)
    single = sketch.apply(A.astype(np.float32), 5)
    np.testing.assert_allclose(single, first, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", [n for n in SKETCHES if n != "srht_wor"])
def test_every_namespace_gives_the_same(name, xp):
    A = gaussian_rows()
    found = SKETCHES[name].apply(xp.asarray(A), 5)
    np.testing.assert_allclose(np.asarray(found), SKETCHES[name].apply(A, 5), atol=1e-12)


def test_fwht_is_an_involution_and_the_hadamard_matrix(xp):
    X = np.random.default_rng(0).standard_normal((64, 3))
    H = sla.hadamard(64)
    np.testing.assert_allclose(np.asarray(fwht(xp.asarray(X))), H @ X, atol=1e-12)
    np.testing.assert_allclose(np.asarray(fwht(fwht(xp.asarray(X)))), 64 * X, atol=1e-12)
    with pytest.raises(ValueError, match="power of two"):
        fwht(xp.asarray(X[:63]))


@pytest.mark.parametrize("name", [n for n in SKETCHES if not n.startswith("srht")])
def test_sketches_of_a_partition_of_the_rows_add_up(name):
    n = 10_000  # more than one block of a dense sketch
    sketch = SKETCHES[name]
    if name in ("less", "rows", "rows_poisson"):
        field = "scores" if name == "rows_poisson" else "probabilities"
        sketch = dataclasses.replace(sketch, **{field: np.linspace(1.0, 2.0, n)})
    A, scale = gaussian_rows(n, 3), np.random.default_rng(2).random(n)
    operator = sketch.draw(n, 7)
    parts = [slice(0, 1), slice(1, 4500), slice(4500, 4500), slice(4500, n)]
    total = sum(operator.restricted(part).apply(A[part], scale[part]) for part in parts)
    np.testing.assert_allclose(total, operator.apply(A, scale), atol=1e-12)


def test_fwht_works_in_place_whatever_the_layout():
    X = np.random.default_rng(0).standard_normal((64, 6))
    for given in (X.copy(), np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2]):
        assert fwht(given, out=given) is given
        np.testing.assert_array_equal(given, fwht(X))
    np.testing.assert_array_equal(fwht(np.arange(4)), [6.0, -2.0, -4.0, 0.0])
    np.testing.assert_array_equal(fwht([1, 0]), [1.0, 1.0])
    with pytest.raises(ValueError, match=r"out must be a float32 or float64 array of shape \(64, 6\)"):
        fwht(X, out=np.zeros((64, 6), dtype=int))


def test_column_sketches_hit_distinct_rows_and_less_merges_repeats():
    rows = SASO(10, 4).draw(500, 0).rows
    assert all(len(set(line)) == 4 for line in rows.tolist())
    pi = np.array([0.9, 0.1])
    S = LESS(50, pi, 6).draw(2, 0).tocsr().toarray()
    # sqrt(b/(s pi m)) in modulus, b the multiplicity: b_0 + b_1 = 6 in each row.
    counts = S**2 * 6 * pi * 50
    np.testing.assert_allclose(counts.sum(1), 6.0)
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-9)


# -- exact bias (A1) --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shrinkage", "ridge", "expected"),
    [
        (1.0, 0.0, (0.2308031, 0.0769527, 0.0525642)),
        (0.5, 0.0, (0.1093985, 0.0564022, 0.0589562)),
        (1.0, 2.0, (0.1443613, 0.0482367, 0.0350377)),
        (0.5, 2.0, (0.0693903, 0.0373717, 0.0428520)),
    ],
)
def test_bias_by_exact_enumeration(shrinkage, ridge, expected):
    found = [enumerated_bias(rule, shrinkage, ridge, 16) for rule in ("none", "scalar", "fine")]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_deterministic_equivalent_of_the_small_matrix():
    D = deterministic_equivalent(SMALL, 0.0, np.full(6, 1 / 6), 16)
    np.testing.assert_allclose(D, [0.739713, 0.914525, 0.798244, 0.900005, 0.935846, 0.961667], atol=1e-6)


def test_poisson_rule_by_enumeration_of_all_subsets():
    # E[(A'S'WSA)^-1] over the 2^n subsets, conditioned on rank: the debiased one is far closer to G^-1.
    A = gaussian_rows(12, 2, seed=3)
    G, scores = A.T @ A, exact_leverage(A)
    p = inclusion_probabilities(scores, 8)
    root = sla.sqrtm(G).real
    bias = {}
    for rule in ("none", "poisson"):
        total, mass = np.zeros((2, 2)), 0.0
        for kept in product([0, 1], repeat=12):
            mask = np.array(kept, dtype=bool)
            probability = np.prod(np.where(mask, p, 1 - p))
            if probability == 0 or mask.sum() < 2:
                continue
            weights = debias_weights(
                rule, leverage=scores[mask], probabilities=p[mask], on_heavy="clip"
            ) * np.ones(mask.sum())
            sample = A[mask]
            total += probability * np.linalg.inv(sample.T @ ((weights / p[mask])[:, None] * sample))
            mass += probability
        bias[rule] = np.linalg.norm(root @ (total / mass) @ root - np.eye(2), 2)
    assert bias["poisson"] < 0.25 * bias["none"]


@pytest.mark.parametrize(
    ("m", "scalar", "fine"), [(200, 0.0471, 0.00448), (400, 0.0200, 0.00238), (1600, 0.00451, 0.000618)]
)
def test_one_hot_instance_has_its_closed_form(m, scalar, fine):
    pi = np.repeat([1.5, 0.5], 4) / 8
    assert one_hot_bias("scalar", m, pi) == pytest.approx(scalar, rel=5e-3)
    assert one_hot_bias("fine", m, pi) == pytest.approx(fine, rel=5e-3)


# -- measured bias on coherent data (A2, A3) --------------------------------------------------------------


@pytest.mark.parametrize(
    ("sketch", "rule", "expected"),
    [
        (lambda s: Rows(120, s), "none", 0.203),
        (lambda s: Rows(120, s), "scalar", 0.010),
        (lambda s: Gaussian(120), "none", 0.219),
        (lambda s: LESSUniform(120, 4), "scalar", 0.70),
        (lambda s: PoissonRows(80, s), "none", 0.268),
        (lambda s: PoissonRows(80, s), "poisson", 0.018),
        (lambda s: PoissonRows(160, s), "poisson", 0.003),
    ],
)
def test_bias_on_coherent_data_is_the_measured_one(sketch, rule, expected):
    A = heavy_tailed()
    scores = exact_leverage(A)
    assert scores.max() == pytest.approx(0.474, abs=5e-4)
    report = bias_report(A, 0.0, sketch(scores), rule=rule, draws=400)
    assert abs(report.bias - expected) <= max(0.25 * expected, 2 * report.noise)


def test_srht_without_replacement_has_a_factor_of_its_own():
    A = heavy_tailed()
    right = bias_report(A, 0.0, SRHT(240, replacement=False), draws=300)
    wrong = bias_report(A, 0.0, SRHT(240, replacement=False), rule="none", draws=300)
    assert right.bias < 0.25 * wrong.bias
    assert SRHT(240, replacement=False).gram_factor(20.0, 1024) == pytest.approx(240 * (1 - 20 / 1024) / 220)


def test_bias_report_warns_of_coherent_data():
    text = str(bias_report(heavy_tailed(), 0.0, LESSUniform(120, 4), draws=40))
    assert "coherent" in text


# -- identities (T7, A8) ----------------------------------------------------------------------------------


def test_scalar_rule_is_scaled_regularisation_and_shrinkage():
    A, lam, x = gaussian_rows(), 5.0, np.arange(6.0)
    d_eff = effective_dimension(A, lam)
    scalar = sketched_inverse(A, lam, Gaussian(40), 3, rule="scalar", d_eff=d_eff)
    raw = sketched_inverse(A, lam, Gaussian(40), 3, rule="none")
    t = 1 - d_eff / 40
    np.testing.assert_allclose(
        scalar.solve(x), t * np.linalg.solve(raw.gram + t * lam * np.eye(6), x), rtol=1e-12
    )
    for name in ("scaled_regularization", "shrinkage"):
        other = sketched_inverse(A, lam, Gaussian(40), 3, rule=name, d_eff=d_eff)
        np.testing.assert_array_equal(other.solve(x), scalar.solve(x))


def test_fine_is_scalar_under_leverage_sampling_and_certain_rows_are_exact():
    A, lam, x = gaussian_rows(), 5.0, np.arange(6.0)
    scores = exact_leverage(A, lam)
    fine = sketched_inverse(A, lam, Rows(40, scores), 3, rule="fine", leverage=scores)
    scalar = sketched_inverse(A, lam, Rows(40, scores), 3, rule="scalar", d_eff=float(scores.sum()))
    np.testing.assert_allclose(fine.solve(x), scalar.solve(x), rtol=1e-11)
    whole = sketched_inverse(A, lam, PoissonRows(1000), 0, leverage=scores)
    np.testing.assert_allclose(whole.solve(x), np.linalg.solve(A.T @ A + lam * np.eye(6), x), rtol=1e-12)


def test_averages_of_debiased_inverses_reach_the_truth():
    A, x = gaussian_rows(2000, 10), np.ones(10)
    exact = np.linalg.solve(A.T @ A + np.eye(10), x)
    error = [np.linalg.norm(inverse_times(A, 1.0, x, workers=q) - exact) for q in (1, 100)]
    assert error[1] < 0.3 * error[0]
    assert error[1] < 0.05 * np.linalg.norm(exact)  # one sketch of 10 d rows: 0.3; a hundred: 0.03


def test_determinantal_average_weighs_by_determinants():
    directions, logs = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1000.0, 1000.0 + math.log(3)])
    np.testing.assert_allclose(determinantal_average(directions, logs), [0.25, 0.75])


# -- leverage ---------------------------------------------------------------------------------------------


def test_exact_leverage_agrees_with_the_hat_matrix():
    A = gaussian_rows()
    for C in (0.0, 3.0, np.linspace(0, 2, 6), np.diag(np.linspace(1, 2, 6))):
        full = C if np.ndim(C) == 2 else np.diag(np.broadcast_to(C, (6,)))
        hat = np.diag(A @ np.linalg.solve(A.T @ A + full, A.T))
        np.testing.assert_allclose(exact_leverage(A, C), hat, atol=1e-12)
        np.testing.assert_allclose(exact_leverage(sp.csr_array(A), C), hat, atol=1e-12)


def test_leverage_of_ill_conditioned_data_survives():
    A = gaussian_rows() * np.logspace(0, -11, 6)
    Q = np.linalg.qr(gaussian_rows())[0]
    np.testing.assert_allclose(exact_leverage(A), np.sum(Q * Q, axis=1), atol=1e-3)
    rank = np.column_stack([gaussian_rows(), gaussian_rows()[:, 0]])
    np.testing.assert_allclose(exact_leverage(rank), np.sum(Q * Q, axis=1), atol=1e-9)


@pytest.mark.parametrize(("r2", "low", "high"), [(0, 0.68, 1.6), (24, 0.2, 3.0)])
def test_approximate_leverage_stays_within_its_bands_and_sums_to_the_dimension(r2, low, high):
    A = heavy_tailed(2048, 50)
    exact = exact_leverage(A)
    approximate, _ = approximate_leverage(A, 0.0, 0, r2=r2)
    ratio = approximate / exact
    assert low * 0.8 < ratio.min()
    assert ratio.max() < high * 1.2
    assert approximate.sum() / 50 == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize(("lam", "true"), [(0.1, 49.49), (1.0, 45.46), (10.0, 27.12)])
def test_effective_dimension_from_the_sketch_alone(lam, true):
    # At m = 2d the naive trace gives 24.15 where 27.12 is true.
    A = heavy_tailed(4000, 50)
    scale = 20_000 / 4000
    exact = effective_dimension(A, lam / scale * 10)
    found = []
    for seed in range(8):
        At = Gaussian(100).apply(A, seed)
        found.append(effective_dimension_from_gram(At.T @ At, lam / scale * 10, 100))
    assert np.mean(found) == pytest.approx(exact, rel=0.02)
    naive = np.trace(np.linalg.solve(At.T @ At + lam / scale * 10 * np.eye(50), At.T @ At))
    assert abs(np.mean(found) - exact) <= abs(naive - exact) + 0.05
    assert true > 0


def test_effective_dimension_with_unpenalised_directions():
    A = gaussian_rows(500, 6)
    C = np.array([0.0, 100, 100, 100, 100, 100])
    exact = effective_dimension(A, C)
    found = np.mean(
        [effective_dimension_from_gram((S := Gaussian(60).apply(A, s)).T @ S, C, 60) for s in range(20)]
    )
    assert found == pytest.approx(exact, rel=0.03)


def test_leverage_from_the_sample_alone_debiases_uniform_rows():
    A = gaussian_rows(2000, 10)
    G = A.T @ A
    root = sla.cholesky(G, lower=True)
    total = {"fixed point": np.zeros((10, 10)), "plug": np.zeros((10, 10)), "none": np.zeros((10, 10))}
    for seed in range(400):
        At = Rows(60).apply(A, seed)
        for name in total:
            w = np.ones(60) if name == "none" else leverage_from_sketch(At, 0.0, plug=name == "plug")
            total[name] += root.T @ np.linalg.solve(At.T @ (w[:, None] * At), root) / 400
    bias = {name: abs(np.trace(mean) / 10 - 1) for name, mean in total.items()}
    assert bias["fixed point"] < 0.2 * bias["none"]
    assert bias["plug"] < 0.35 * bias["none"]


def test_inclusion_probabilities_sum_to_m_and_saturate():
    scores = np.array([10.0, 1, 1, 1, 1])
    p = inclusion_probabilities(scores, 3)
    assert p.sum() == pytest.approx(3)
    assert p[0] == 1.0
    np.testing.assert_allclose(p[1:], 0.5)
    np.testing.assert_array_equal(inclusion_probabilities(np.array([1.0, 0, 2]), 5), [1, 0, 1])


# -- errors -----------------------------------------------------------------------------------------------


def test_sketches_that_are_too_small_name_the_least_size():
    with pytest.raises(SketchTooSmall, match=r"got m=5; the least m is 7"):
        sketched_inverse(gaussian_rows(), 0.0, Gaussian(5), 0)
    with pytest.raises(SketchTooSmall) as error:
        debias_weights("scalar", m=10, d_eff=10.0)
    assert (error.value.m, error.value.d_eff) == (10, 10.0)


def test_heavy_rows_are_refused_or_clipped():
    leverage, probabilities = np.array([0.1, 0.6]), np.array([0.5, 0.5])
    with pytest.raises(SketchTooSmall):
        debias_weights("poisson", leverage=leverage, probabilities=probabilities)
    with pytest.warns(UserWarning, match="1 sampled rows"):
        weights = debias_weights("poisson", leverage=leverage, probabilities=probabilities, on_heavy="clip")
    assert np.all(np.isfinite(weights))
    np.testing.assert_array_equal(
        debias_weights("poisson", leverage=np.array([0.9]), probabilities=np.array([1.0])), [1.0]
    )


def test_rank_deficient_systems_warn_and_give_the_minimum_norm():
    A = np.column_stack([gaussian_rows(), gaussian_rows()[:, 0]])
    g = A.T @ np.ones(200)
    with pytest.warns(RankDeficientWarning, match="rank 6 of 7"):
        inverse = sketched_inverse(A, 0.0, PoissonRows(1000), 0, rule="none")
    np.testing.assert_allclose(inverse.solve(g), np.linalg.lstsq(A, np.ones(200), rcond=None)[0], atol=1e-8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Gaussian(0), "m must be an integer >= 1"),
        (lambda: SASO(3, 4), "k must be an integer >= 1 and <= 3"),
        (lambda: Gaussian(5).apply(np.ones((3, 2)), -1), "rng must be"),
        (lambda: SRHT(9, replacement=False).apply(np.ones((8, 1)), 0), "m must be at most the padded size 8"),
        (
            lambda: Rows(3, np.array([1.0, -1])).apply(np.ones((2, 1)), 0),
            "probabilities must be non-negative",
        ),
        (lambda: Rows(3, np.zeros(2)).apply(np.ones((2, 1)), 0), "must not be all zero"),
        (lambda: sketched_inverse(gaussian_rows(), -1.0, Gaussian(40), 0), "positive semi-definite"),
        (lambda: sketched_inverse(gaussian_rows(), np.ones(5), Gaussian(40), 0), "C must be a number"),
        (lambda: sketched_inverse(gaussian_rows(), 0.0, Gaussian(40), 0, rule="fine"), "is for row sampling"),
        (lambda: debias_weights("best"), "rule must be one of"),
        (lambda: sampling_probabilities("leverage", gaussian_rows()), "leverage is needed"),
        (lambda: sampling_probabilities("mVc", gaussian_rows()), "residual is needed"),
        (lambda: sampling_probabilities("mVc", gaussian_rows(), residual=np.ones(3)), "residual must have"),
        (lambda: sampling_probabilities("mMSE", gaussian_rows(), residual=np.ones(200)), "root, a Cholesky"),
        (lambda: Gaussian(4).draw(0, 0), "n must be an integer >= 1"),
        (lambda: Gaussian(4).apply(np.ones((3, 2)), 0, np.ones(2)), r"scale must have shape \(3,\)"),
        (lambda: Gaussian(4).apply(np.ones(3), 0), "A must have shape|A must have 2 axes"),
        (lambda: exact_leverage(np.full((3, 2), np.nan)), "A must be finite"),
        (lambda: exact_leverage(np.ones((0, 2))), "A must have rows and columns"),
        (lambda: exact_leverage(np.eye(2), [[1.0, 2.0], [2.0, 1.0]]), "got the eigenvalue -1"),
        (lambda: exact_leverage(np.eye(2), [[1.0, 2.0], [0.0, 1.0]]), "must be a symmetric"),
        (lambda: exact_leverage(np.eye(2), np.nan), "C must be finite"),
        (lambda: sketched_inverse(np.full((9, 2), np.inf), 1.0, Gaussian(5), 0), "the sketch of A"),
        (lambda: inverse_times(gaussian_rows(), 1.0, np.ones(5)), "x must have 6 rows"),
        (lambda: inverse_times(gaussian_rows(), 1.0, np.full(6, np.nan)), "x must be finite"),
        (lambda: bias_report(np.ones((9, 2)), 0.0, Gaussian(5)), "A has dependent columns"),
        (lambda: debias_weights("scalar", m=10, d_eff=-1.0), "d_eff must be"),
        (lambda: debias_weights("scalar", m=10, d_eff=np.nan), "d_eff must be"),
        (
            lambda: debias_weights("fine", m=9, leverage=[0.5], probabilities=[0.0]),
            "probabilities of sampled rows must be > 0",
        ),
        (lambda: deterministic_equivalent(gaussian_rows(), 1.0, np.eye(200)[0], 40), "must be > 0, got 0"),
        (lambda: determinantal_average(np.ones((2, 3)), np.ones(3)), "log_determinants must be 2 numbers"),
        (
            lambda: sketched_inverse(gaussian_rows(), 1.0, Rows(40), 0, leverage=np.ones(3)),
            r"leverage must have shape \(200,\)",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("stored", [np.asarray, sp.csr_array])
def test_data_that_are_not_real_numbers_are_refused_everywhere(stored):
    A = stored(np.eye(4) * 1j)
    for call in (
        lambda: Gaussian(4).apply(A, 0),
        lambda: exact_leverage(A, 1.0),
        lambda: sketched_inverse(A, 1.0, SASO(4), 0),
        lambda: inverse_times(A, 1.0, np.ones(4)),
        lambda: effective_dimension(A, 1.0),
    ):
        with pytest.raises(TypeError, match="A must"):
            call()


def test_whole_numbers_are_data_too():
    A = np.random.default_rng(0).integers(-3, 4, (200, 6))
    for form in (A, A.astype(np.int8), sp.csr_array(A)):
        np.testing.assert_allclose(exact_leverage(form, 1.0), exact_leverage(A.astype(float), 1.0))
        inverse = sketched_inverse(form, 1.0, SASO(100), 0)
        np.testing.assert_allclose(inverse.gram, sketched_inverse(A * 1.0, 1.0, SASO(100), 0).gram)


def test_a_matrix_of_zeros_has_no_leverage():
    A = np.zeros((50, 3))
    assert not exact_leverage(A, 1.0).any()
    assert not approximate_leverage(A, 0.0, 0)[0].any()
    np.testing.assert_allclose(inverse_times(A, 2.0, np.ones(3))[0], 0.5)


def test_residual_schemes_are_mixed_with_a_warning():
    with pytest.warns(UserWarning, match="30 % uniform"):
        pi = sampling_probabilities("mVc", gaussian_rows(), residual=np.ones(200))
    assert pi.min() >= 0.3 / 200
    assert pi.sum() == pytest.approx(1.0)
