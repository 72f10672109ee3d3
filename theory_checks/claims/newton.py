"""Claims about debiased sketching and sub-sampled Newton.

Bias is never measured by plain Monte Carlo: closed forms, exact enumeration, or a control variate whose mean
is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import scipy.linalg as sla
from scipy.stats import binom

from optikit.sketching import (
    LESS,
    SASO,
    Gaussian,
    LESSUniform,
    PoissonRows,
    Rows,
    bias_report,
    determinantal_average,
    deterministic_equivalent,
    exact_leverage,
    sketched_inverse,
)
from solvers.newton.glm import GLM
from solvers.newton.subsampled import SubsampledNewton
from theory_checks import Claim, Equality, LowerBound, Measurement, PowerLaw, Sweep, UpperBound, Value

N25 = "Niu, Liao, Ling, Mahoney, Fundamental Bias in Inverting Random Sampling Matrices, ICML 2025"
D21 = "Derezinski, Liao, Dobriban, Mahoney, COLT 2021; Derezinski et al., Newton-LESS, NeurIPS 2021"
D19 = "Derezinski, Mahoney, Distributed Estimation of the Inverse Hessian, NeurIPS 2019"
DERIVED = "derived for this toolkit, checked by exact enumeration"

Measure = Callable[[Any, int], Any]

# -- instances --------------------------------------------------------------------------------------------


@cache
def heavy_tailed(n: int = 1024, d: int = 20) -> np.ndarray:
    """Rows N(0, 2 0.5^|i-j|) over sqrt(chi2_3 / 3): coherent data, largest leverage 0.47 by default."""
    rng = np.random.default_rng(0)
    covariance = 2 * 0.5 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    rows = rng.multivariate_normal(np.zeros(d), covariance, n)
    return rows / np.sqrt(rng.chisquare(3, n) / 3)[:, None]


SMALL = np.array([[3.0, 0], [1, 1], [0, 2], [1, -1], [0.5, 1], [1, 0.2]])


@cache
def counts(m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """All ways to draw m of n rows with replacement, and the log multinomial coefficients."""
    tables = np.array([np.bincount(draw, minlength=n) for draw in combinations_with_replacement(range(n), m)])
    log_factorial = np.array([math.lgamma(k + 1) for k in range(m + 1)])
    return tables, log_factorial[m] - log_factorial[tables].sum(axis=1)


def enumerated_bias(rule: str, shrinkage: float, ridge: float, m: int = 10) -> float:
    """``||H^(1/2) E[Q] H^(1/2) - I||`` of the 6 x 2 matrix, summed over every possible sample."""
    A, C = SMALL, ridge * np.eye(2)
    leverage = exact_leverage(A, ridge)
    pi = (1 - shrinkage) * leverage / leverage.sum() + shrinkage / 6
    table, logs = counts(m, 6)
    weights = {
        "none": np.ones(6),
        "scalar": np.full(6, m / (m - leverage.sum())),
        "fine": 1 / (1 - leverage / (m * pi)),
    }[rule]
    H = A.T @ A + C
    grams = np.einsum("ki,ij,il->kjl", table * (weights / (m * pi)), A, A) + C
    regular = np.linalg.det(grams) > 1e-10
    p = np.exp(logs + table @ np.log(pi)) * regular
    mean = np.einsum("k,kij->ij", p[regular] / p.sum(), np.linalg.inv(grams[regular]))
    root = sla.sqrtm(H).real
    return float(np.linalg.norm(root @ mean @ root - np.eye(2), 2))


# -- closed-form one-hot instance -------------------------------------------------------------------------


def inverse_mean(m: int, p: float) -> float:
    """``E[1/b | b >= 1]`` for b ~ Binomial(m, p), by summation."""
    b = np.arange(1, m + 1)
    weights = binom.pmf(b, m, p)
    return float((weights / b).sum() / weights.sum())


def one_hot_bias(rule: str, m: int, pi: np.ndarray) -> float:
    """Bias on A = I_d, every leverage 1: exact for any pi."""
    d = pi.size
    factors = m * pi - 1 if rule == "fine" else m * pi * (1 - d / m)
    unique = {p: inverse_mean(m, p) for p in set(pi.tolist())}
    return float(np.max(np.abs(factors * np.array([unique[p] for p in pi.tolist()]) - 1)))


UNEVEN = np.repeat([1.5, 0.5], 4) / 8


def best_scalar_bias(m: int, pi: np.ndarray) -> float:
    """Least bias over all scalar factors gamma, on the one-hot instance."""
    diagonal = np.array([m * p * inverse_mean(m, p) for p in pi])
    # max |gamma d_j - 1| is least where the extremes balance.
    return float((diagonal.max() - diagonal.min()) / (diagonal.max() + diagonal.min()))


# -- measured bias, contraction, averaging ----------------------------------------------------------------


def sampled_bias(sketch: Callable[[int, np.ndarray], Any], rule: str, draws: int = 300) -> Measure:
    """Bias on the coherent data by the control variate; seeds give independent draws."""

    def measure(m: int, seed: int) -> float:
        A = heavy_tailed()
        scores = exact_leverage(A)
        return bias_report(A, 0.0, sketch(m, scores), rule=rule, draws=draws, rng=seed).bias

    return measure


def with_replacement_factor(m: int, seed: int) -> float:
    """Poisson rows weighted by the factor that belongs to sampling with replacement."""
    A, total, draws = heavy_tailed(), np.zeros((20, 20)), 200
    scores = exact_leverage(A)
    root = sla.cholesky(A.T @ A, lower=True)
    sketch = PoissonRows(m, scores)
    for child in np.random.SeedSequence(seed).spawn(draws):
        operator = sketch.draw(A.shape[0], child)
        At = operator.apply(A)
        ratio = np.minimum(scores[operator.indices] / operator.probabilities, 0.9)
        G = At.T @ (At / (1 - ratio)[:, None])
        total += root.T @ np.linalg.solve(G, root)
    return float(np.linalg.norm(total / draws - np.eye(20), 2))


def contraction(factor: str) -> Measure:
    """Mean of ``||(I - mu Q) e||^2 / ||e||^2`` for a Gaussian sketch in whitened coordinates, over all e."""

    def measure(point: tuple[int, int], seed: int) -> Measurement:
        m, d = point
        rng = np.random.default_rng(seed)
        mu = 1 - d / m if factor == "debiased" else 1.0
        scale = (m - d) / m if factor == "debiased" else 1.0
        values = []
        for _ in range(3000):
            S = rng.standard_normal((m, d)) / math.sqrt(m)
            step = np.eye(d) - mu * scale * np.linalg.inv(S.T @ S)
            values.append(float(np.sum(step * step)) / d)
        a = (m - d) / (m - d - 1)
        b = (m - d) * (m - 1) / ((m - d - 1) * (m - d - 3))
        nominal = 1 - d / m
        return Measurement(float(np.mean(values)), 1 - 2 * nominal * a + nominal**2 * b)

    return measure


def newton_rate(debias: str) -> Measure:
    """Squared contraction per iteration of leverage-sampled Newton on least squares, and d/m."""

    def measure(m: int, seed: int) -> float:
        A = heavy_tailed()
        n = A.shape[0]
        target = A @ np.ones(20) + np.random.default_rng(1).standard_normal(n)
        H, best = A.T @ A / n, np.linalg.lstsq(A, target, rcond=None)[0]
        solver = SubsampledNewton(
            m=m,
            sketch="rows",
            leverage="exact",
            debias="auto" if debias == "debiased" else "none",
            step_rule="theory" if debias == "debiased" else 1.0,
            adaptive=False,
            seed=seed,
        )
        errors: list[float] = []
        glm = GLM(A, target, "least_squares")

        def record(progress: Any) -> None:
            e = progress.state.b - best
            errors.append(float(e @ H @ e))

        solver.solve(glm, max_rounds=None, max_iterations=8, callback=record)
        return (errors[-1] / errors[0]) ** (1 / 8)

    return measure


def conditioning(exponent: int, seed: int, *, gradient: bool = False) -> float:
    """Rate of debiased Newton (or of gradient descent) when columns are scaled to a condition number."""
    rng = np.random.default_rng(seed)
    n, d, m = 2000, 10, 100
    scales = np.logspace(0, -exponent, d)
    A = rng.standard_normal((n, d)) * scales
    y = A @ (1 / scales) + rng.standard_normal(n)  # every direction counts alike in the H-norm
    H, best = A.T @ A / n, np.linalg.lstsq(A, y, rcond=None)[0]
    if gradient:
        b, step = np.zeros(d), 1 / np.linalg.norm(H, 2)
        first = float(best @ H @ best)
        for _ in range(8):
            b = b - step * (H @ (b - best))
        return (float((b - best) @ H @ (b - best)) / first) ** (1 / 8)
    errors: list[float] = []

    def record(progress: Any) -> None:
        e = progress.state.b - best
        errors.append(float(e @ H @ e))

    solver = SubsampledNewton(m=m, sketch="gaussian", step_rule="theory", adaptive=False, seed=seed)
    solver.solve(GLM(A, y, "least_squares"), max_rounds=None, max_iterations=8, callback=record)
    return (errors[-1] / errors[0]) ** (1 / 8)


def averaged_error(rule: str) -> Measure:
    """``||p-bar - p||_H^2 / ||p||_H^2`` of the average over q workers' directions."""

    def measure(q: int, seed: int) -> float:
        A, C = heavy_tailed(2048), 50.0
        scores = exact_leverage(A, C)
        H = A.T @ A + C * np.eye(20)
        g = np.random.default_rng(7).standard_normal(20)
        exact, total = np.linalg.solve(H, g), np.zeros(20)
        sketch = Rows(100, scores)
        for child in np.random.SeedSequence([seed, q]).spawn(q):
            total += sketched_inverse(A, C, sketch, child, rule=rule, leverage=scores).solve(g)
        error = total / q - exact
        return float(error @ H @ error / (exact @ H @ exact))

    return measure


def determinantal(corrected: bool) -> Measure:
    """Determinantal averages over i.i.d. rows floor at ``(m/(m-d+1) - 1)^2`` unless corrected."""

    def measure(m: int, seed: int) -> Measurement:
        A = heavy_tailed()
        G = A.T @ A
        g = np.random.default_rng(7).standard_normal(20)
        exact = np.linalg.solve(G, g)
        sketch, directions, logs = Rows(m, exact_leverage(A)), [], []
        for child in np.random.SeedSequence([seed, m]).spawn(4000):
            inverse = sketched_inverse(A, 0.0, sketch, child, rule="none")
            directions.append(inverse.solve(g))
            logs.append(inverse.logdet)
        average = determinantal_average(np.array(directions), np.array(logs))
        if corrected:
            average = average * (m - 19) / m
        error = average - exact
        return Measurement(float(error @ G @ error / (exact @ G @ exact)), (m / (m - 19) - 1) ** 2)

    return measure


def equivalence(name: str, seed: int, *, wrong: bool = False) -> Measurement:
    """Q x of two rules that are the same map."""
    A, lam, x = heavy_tailed(), 5.0, np.linspace(1, 2, 20)
    scores = exact_leverage(A, lam)
    d_eff = float(scores.sum())
    if name == "scalar = scaled regularisation":
        m = 100
        inverse = sketched_inverse(A, lam, Gaussian(m), seed, rule="scalar", d_eff=d_eff)
        raw = sketched_inverse(A, lam, Gaussian(m), seed, rule="none")
        t = 1 - d_eff / m
        scaled = t * np.linalg.solve(raw.gram + (lam if wrong else t * lam) * np.eye(20), x)
        return Measurement(inverse.solve(x), scaled, x=np.arange(1.0, 21.0))
    if name == "leverage sampling: fine = scalar":
        fine = sketched_inverse(A, lam, Rows(100, scores), seed, rule="fine", leverage=scores)
        rule = "none" if wrong else "scalar"
        scalar = sketched_inverse(A, lam, Rows(100, scores), seed, rule=rule, d_eff=d_eff)
        return Measurement(fine.solve(x), scalar.solve(x), x=np.arange(1.0, 21.0))
    rows = PoissonRows(2000 if not wrong else 200, np.ones(1024))
    whole = sketched_inverse(A, lam, rows, seed, rule="poisson", leverage=scores, on_heavy="clip")
    exact = np.linalg.solve(A.T @ A + lam * np.eye(20), x)
    return Measurement(whole.solve(x), exact, x=np.arange(1.0, 21.0))


def equivalent_diagonal(wrong: bool) -> Measure:
    """D of the deterministic equivalent against its value for a 6 x 2 matrix, m = 16, uniform rows."""

    def measure(point: int, seed: int) -> Measurement:
        D = deterministic_equivalent(SMALL, 0.0, np.full(6, 1 / 6), 16)
        if wrong:
            D = 16 / (16 + exact_leverage(SMALL) * 6)  # one sweep from D = I
        expected = np.array([0.739713, 0.914525, 0.798244, 0.900005, 0.935846, 0.961667])
        return Measurement(D, expected, x=np.arange(1.0, 7.0))

    return measure


ONE_HOT_400 = np.full(400, 1 / 400)
RULES = (("none", 0.2308031), ("scalar", 0.0769527), ("fine", 0.0525642))

CLAIMS = [
    Claim(
        name="newton.gaussian_contraction",
        theorem="A debiased Gaussian sketch contracts by 1 - 2 mu a + mu^2 b exactly.",
        formula=r"a=\frac{m-d}{m-d-1},\; b=\frac{(m-d)(m-1)}{(m-d-1)(m-d-3)}",
        reference="classical (inverse Wishart moments)",
        provenance="stated",
        quantity="mean squared contraction",
        law=Value(rel=0.015),
        measure=contraction("debiased"),
        control=contraction("undebiased"),
        control_text="the raw inverse with a full step",
        sweep=Sweep("(m, d)", ((72, 12),), ((72, 12), (60, 6), (120, 12))),
        tags=("newton", "value"),
    ),
    Claim(
        name="newton.enumerated_bias",
        theorem="Exact bias of uniform sampling of a 6 x 2 matrix, m = 16, under three rules.",
        reference=DERIVED,
        provenance="derived",
        quantity="||H^(1/2) E[Q] H^(1/2) - I||",
        law=Value(abs=1e-6),
        measure=lambda point, seed: Measurement(enumerated_bias(point[0], 1.0, 0.0, 16), point[1]),
        control=lambda point, seed: Measurement(enumerated_bias(point[0], 0.5, 0.0, 16), point[1]),
        control_text="shrinkage in place of uniform probabilities",
        sweep=Sweep("rule", RULES),
        tags=("newton", "bias", "value"),
    ),
    Claim(
        name="newton.deterministic_equivalent",
        theorem="E (A'S'SA + C)^-1 is close to (A'DA + C)^-1 with D the fixed point of Theorem 3.1.",
        reference=N25,
        provenance="stated",
        quantity="D_ii",
        law=Equality(abs=1e-6),
        measure=equivalent_diagonal(False),
        control=equivalent_diagonal(True),
        control_text="one sweep of the fixed point",
        sweep=Sweep("matrix", (0,), axis="row"),
        tags=("newton", "bias", "equality"),
    ),
    Claim(
        name="newton.scalar_rule_on_uneven_rows",
        theorem="With pi other than leverage the scalar rule leaves a bias of order d/m: slope -1.",
        reference=N25,
        provenance="stated",
        quantity="bias (closed form)",
        law=PowerLaw(-1.0, 0.15),
        measure=lambda m, seed: one_hot_bias("scalar", m, UNEVEN),
        control=lambda m, seed: one_hot_bias("fine", m, ONE_HOT_400),
        control_text="the fine rule in its regime d << m << d^3: steeper than -1.5",
        sweep=Sweep("rows m", (200, 400, 800, 1600)),
        control_sweep=Sweep("rows m", tuple(400 * k for k in (8, 16, 32, 64, 128))),
        tags=("newton", "bias", "slope"),
    ),
    Claim(
        name="newton.fine_rule_rate",
        theorem="The fine rule leaves at most (rho d/m)^(3/2) while m << d^3: slope -1.5 or steeper.",
        reference=N25,
        provenance="stated",
        quantity="bias (closed form, d = 400)",
        law=PowerLaw(-1.5, (math.inf, 0.0)),
        measure=lambda m, seed: one_hot_bias("fine", m, ONE_HOT_400),
        control=lambda m, seed: one_hot_bias("scalar", m, np.repeat([1.5, 0.5], 200) / 400),
        control_text="the scalar rule on uneven probabilities: slope -1",
        sweep=Sweep("rows m", tuple(400 * k for k in (8, 16, 32, 64, 128))),
        control_sweep=Sweep("rows m", tuple(400 * k for k in (32, 64, 128, 256))),
        tags=("newton", "bias", "slope"),
    ),
    Claim(
        name="newton.fine_rule_bound",
        theorem="The fine rule's bias is at most (rho d/m)^(3/2) + 1/m.",
        reference=DERIVED,
        provenance="derived",
        quantity="bias (closed form)",
        law=UpperBound(),
        measure=lambda m, seed: Measurement(one_hot_bias("fine", m, UNEVEN), (16 / m) ** 1.5 + 1 / m),
        control=lambda m, seed: Measurement(one_hot_bias("scalar", m, UNEVEN), (16 / m) ** 1.5 + 1 / m),
        control_text="the scalar rule",
        sweep=Sweep("rows m", (200, 400, 800, 1600, 3200)),
        tags=("newton", "bias", "bound"),
    ),
    Claim(
        name="newton.no_scalar_suffices",
        theorem="Under 2-approximate leverage no scalar factor gets the bias below a constant times d/m.",
        reference=D21,
        provenance="stated",
        quantity="least bias over scalar factors",
        law=LowerBound(),
        measure=lambda m, seed: Measurement(best_scalar_bias(m, UNEVEN), 0.1 * 8 / m),
        control=lambda m, seed: Measurement(best_scalar_bias(m, np.full(8, 1 / 8)), 0.1 * 8 / m),
        control_text="exact leverage sampling: one scalar removes all of it",
        sweep=Sweep("rows m", (200, 400, 800, 1600)),
        tags=("newton", "bias", "lower bound"),
    ),
    Claim(
        name="newton.poisson_rule",
        theorem="Poisson rows are debiased by p(1-l)/(p-l): bias 0.018, 0.003 at m = 80, 160.",
        reference=DERIVED,
        provenance="derived",
        quantity="bias (control variate)",
        law=UpperBound(0.04),
        measure=sampled_bias(lambda m, scores: PoissonRows(m, scores), "poisson"),
        control=with_replacement_factor,
        control_text="the factor of sampling with replacement: bias 0.34",
        sweep=Sweep("rows m", (80, 160), (80, 160, 320)),
        tags=("newton", "bias", "bound"),
    ),
    Claim(
        name="newton.coherent_data",
        theorem="Sparse sketches that ignore leverage are only debiased on incoherent data.",
        reference=D21,
        provenance="stated",
        quantity="bias (control variate)",
        law=UpperBound(0.12),
        measure=sampled_bias(lambda m, scores: LESS(m, scores / scores.sum(), 4), "scalar"),
        control=sampled_bias(lambda m, scores: LESSUniform(m, 4), "scalar"),
        control_text="uniform sparsification of coherent data: bias 0.3 to 1.3",
        sweep=Sweep("rows m", (120, 240)),
        tags=("newton", "bias", "bound"),
    ),
    Claim(
        name="newton.sparse_sketch_residual",
        theorem="After the scalar rule sparse sign sketches keep a bias far below d/m.",
        reference=D21,
        provenance="stated",
        quantity="bias (control variate)",
        law=UpperBound(),
        measure=lambda m, seed: Measurement(sampled_bias(lambda k, s: SASO(k), "scalar")(m, seed), 8 / m),
        control=lambda m, seed: Measurement(sampled_bias(lambda k, s: SASO(k), "none")(m, seed), 8 / m),
        control_text="no debiasing: d/(m-d)",
        sweep=Sweep("rows m", (80, 160), (80, 160, 320)),
        tags=("newton", "bias", "bound"),
    ),
    Claim(
        name="newton.rate_over_rows",
        theorem="The squared error contracts by d_eff/m per iteration: slope -1 in m.",
        formula=r"E\,\|b_T-b^*\|_H^2/\|b_0-b^*\|_H^2 \leq (\rho d_{eff}/m)^T",
        reference=N25,
        provenance="stated",
        quantity="squared contraction per iteration",
        law=PowerLaw(-1.0, 0.1),
        measure=newton_rate("debiased"),
        control=newton_rate("none"),
        control_text="undebiased with full steps: slope about -1.45",
        sweep=Sweep("rows m", (80, 160, 320, 500)),
        seeds=(24, 60),
        tags=("newton", "slope"),
    ),
    Claim(
        name="newton.independent_of_conditioning",
        theorem="Whatever the condition number, the rate is d/m (0.1 here), up to a quarter.",
        reference=N25,
        provenance="stated",
        quantity="squared contraction per iteration",
        law=UpperBound(0.125, over="mean"),
        measure=lambda point, seed: Measurement(conditioning(point, seed), x=10.0**point),
        control=lambda point, seed: Measurement(conditioning(point, seed, gradient=True), x=10.0**point),
        control_text="gradient descent: its rate is 0.6 and more, and tends to 1",
        sweep=Sweep("condition number", (1, 2, 4, 6), label=lambda k: f"1e{k}"),
        seeds=(12, 40),
        tags=("newton", "bound"),
    ),
    Claim(
        name="newton.averaging",
        theorem="The error of averaged debiased directions falls like 1/q.",
        reference=N25,
        provenance="stated",
        quantity="relative squared error of the averaged direction",
        law=PowerLaw(-1.0, 0.12),
        measure=averaged_error("fine"),
        control=averaged_error("none"),
        control_text="undebiased directions: the average floors at (d_eff/(m - d_eff))^2",
        sweep=Sweep("workers q", (1, 4, 16, 64, 256), (1, 4, 16, 64, 256, 1024)),
        seeds=(8, 16),
        tags=("newton", "slope"),
    ),
    Claim(
        name="newton.determinantal_floor",
        theorem="Determinantal averaging of i.i.d. rows floors at (m/(m-d+1) - 1)^2.",
        reference=D19,
        provenance="derived",
        quantity="relative squared error of 4000 averaged directions",
        law=Value(rel=0.35),
        measure=determinantal(False),
        control=determinantal(True),
        control_text="multiplied by (m-d+1)/m: the floor is gone",
        sweep=Sweep("rows m", (60, 100)),
        tags=("newton", "value"),
    ),
    Claim(
        name="newton.equivalences",
        theorem="Scalar debiasing is scaled regularisation; fine is scalar under leverage; p = 1 is exact.",
        reference="Derezinski, Bartan, Pilanci, Mahoney, NeurIPS 2020; Niu et al., ICML 2025",
        provenance="stated",
        quantity="Q x",
        law=Equality(rel=1e-10),
        measure=equivalence,
        control=lambda name, seed: equivalence(name, seed, wrong=True),
        control_text="the penalty left unscaled; no debiasing; a real sample",
        sweep=Sweep(
            "identity",
            (
                "scalar = scaled regularisation",
                "leverage sampling: fine = scalar",
                "all rows kept: exact",
            ),
            axis="coordinate",
        ),
        tags=("newton", "equality"),
    ),
]
