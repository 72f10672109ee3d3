"""
Averaging sketched Newton directions: why the bias matters
==========================================================

Each worker sketches the Hessian on its own and the directions are averaged. The error of the average falls
like one over the number of workers, but only if each direction is unbiased: the inverse of an unbiased sketch
is not.
"""

# %%
# Error of the averaged direction against the number of workers, on heavy-tailed rows with a ridge.
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from optikit.runtime.communicator import default_communicator
from optikit.sketching import Rows, exact_leverage, sketched_inverse
from solvers.newton.glm import GLM
from solvers.newton.subsampled import SubsampledNewton

is_root = default_communicator().Get_rank() == 0
rng = np.random.default_rng(0)
n, d, ridge = 2048, 20, 50.0
A = rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(3, n) / 3)[:, None]
scores = exact_leverage(A, ridge)
H, g = A.T @ A + ridge * np.eye(d), rng.standard_normal(d)
exact = np.linalg.solve(H, g)
workers = [1, 4, 16, 64, 256]


def error(rule, q):
    """Mean over repetitions of the squared error of an average over q workers, relative, in the H-norm."""
    values = []
    for repetition in range(6):
        seeds = np.random.SeedSequence([repetition, q]).spawn(q)
        directions = [
            sketched_inverse(A, ridge, Rows(100, scores), seed, rule=rule, leverage=scores).solve(g)
            for seed in seeds
        ]
        e = np.mean(directions, axis=0) - exact
        values.append(e @ H @ e / (exact @ H @ exact))
    return np.mean(values)


if is_root:
    figure, ax = plt.subplots(layout="constrained")
    for rule, label in (("none", "as sketched"), ("fine", "debiased")):
        ax.loglog(workers, [error(rule, q) for q in workers], "o-", label=label)
    ax.loglog(workers, 0.3 / np.array(workers), "k--", lw=1, label="1/q")
    ax.set_xlabel("workers q")
    ax.set_ylabel("relative squared error of the averaged direction")
    ax.legend()

# %%
# The same inside Newton's method: logistic regression with 20000 rows, a sketch of 250 rows per worker.
X = rng.standard_normal((20_000, 50)) * np.logspace(0, -1.5, 50)
y = rng.random(20_000) < 1 / (1 + np.exp(-X @ (rng.standard_normal(50) / np.logspace(0, -1.5, 50)) / 4))


def problem(q=1):
    return GLM(X, y, "logistic", l2=1e-4, workers=q)


if is_root:
    optimum = SubsampledNewton(sketch="exact").solve(problem(), max_rounds=None, max_iterations=30, tol=1e-15)
    figure, ax = plt.subplots(layout="constrained")
    for q in (1, 8):
        for debias, step in (("auto", "theory"), ("none", 1.0)):
            run = SubsampledNewton(
                m=250, sketch="less_uniform", debias=debias, step_rule=step, adaptive=False
            ).solve(problem(q), max_rounds=None, max_iterations=15)
            gap = np.maximum(run.history["objective"] - optimum.objective, 1e-15)
            ax.semilogy(gap, "o-", ms=3, label=f"q={q}, {'debiased' if debias == 'auto' else 'as sketched'}")
    ax.set_xlabel("iterations")
    ax.set_ylabel("optimality gap")
    ax.legend()

# %%
# Gap against wall time beside scikit-learn's solvers, one point per tolerance.
if is_root:
    figure, ax = plt.subplots(layout="constrained")
    solver = SubsampledNewton(m=500, sketch="less_uniform")
    solver.solve(problem(), max_rounds=None, max_iterations=1)  # compile the kernels
    run = solver.solve(problem(), max_rounds=None, max_iterations=15)
    ax.loglog(
        np.maximum(run.history["seconds"], 1e-3),
        np.maximum(run.history["objective"] - optimum.objective, 1e-15),
        "o-",
        label="debiased sub-sampled Newton",
    )
    glm = problem()
    for name in ("newton-cholesky", "lbfgs"):
        seconds, gaps = [], []
        for tol in (1e-2, 1e-4, 1e-6, 1e-8):
            peer = LogisticRegression(
                C=1 / (20_000 * 1e-4), solver=name, tol=tol, max_iter=2000, fit_intercept=False
            )
            began = time.perf_counter()
            peer.fit(X, y)
            seconds.append(time.perf_counter() - began)
            gaps.append(max(float(glm.value(peer.coef_[0])[0]) - optimum.objective, 1e-15))
        ax.loglog(seconds, gaps, "s--", label=f"scikit-learn {name}")
    ax.set_xlabel("seconds")
    ax.set_ylabel("optimality gap")
    ax.legend()
