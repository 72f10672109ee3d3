"""K local steps of Local GD for all clients: our automatic choice against the usual ways to write them.

Columns: batched ``matmul`` in weight space and in Gram space (Gram matrices precomputed), one BLAS gemv pair
per client and step, and the solver's own local steps. Each includes the margins at w and the
displacement of every client. Target: at most 1.3 times the best of the other columns, one core.
"""

import sys

import _timing  # noqa: F401 (pins threads before NumPy is imported)
import numpy as np
from _timing import best_seconds
from scipy.special import expit

from optikit.generators import random_separable
from solvers.federated.local_solvers import CompiledSteps

CASES = [
    (5, 200, 784, 64),
    (100, 20, 50, 64),
    (1000, 1, 20, 64),
    (5, 360, 65, 64),
    (20, 500, 50, 64),
    (64, 512, 256, 16),
]


def batched_primal(X, w, rate, K):
    V = np.tile(w, (X.shape[0], 1))
    for _ in range(K):
        s = expit(-np.matmul(X, V[:, :, None])[:, :, 0])
        V += rate * np.matmul(s[:, None, :], X)[:, 0, :]
    return V


def batched_gram(X, G, w, rate, K):
    z = X @ w
    s = expit(-z)
    a = s.copy()
    for _ in range(K - 1):
        z += rate * np.matmul(G, s[:, :, None])[:, :, 0]
        s = expit(-z)
        a += s
    return w + rate * np.matmul(a[:, None, :], X)[:, 0, :]


def per_client(X, w, rate, K):
    V = np.empty((X.shape[0], X.shape[2]))
    for m, rows in enumerate(X):
        v = w.copy()
        for _ in range(K):
            v += rate * (expit(-(rows @ v)) @ rows)
        V[m] = v
    return V


def measure(M, n, d, K):
    data = random_separable(M, n, d, seed=0)
    X, y = data.stacked(), data.targets
    G = np.matmul(X, np.swapaxes(X, 1, 2))
    w, step, weights = np.full(d, 0.1), 1.0, np.full(M, 1.0 / M)
    local = {solver: CompiledSteps(data, y, weights, solver) for solver in ("auto", "gram", "primal")}
    candidates = {
        "batched primal": lambda: batched_primal(X, w, step / n, K),
        "batched Gram": lambda: batched_gram(X, G, w, step / n, K),
        "per-client BLAS": lambda: per_client(X, w, step / n, K),
        "ours, gram": lambda: local["gram"](w, step, K),
        "ours, primal": lambda: local["primal"](w, step, K),
        "ours, auto": lambda: local["auto"](w, step, K),
    }
    reference = per_client(X, w, step / n, K) - w
    assert np.allclose(M * local["auto"](w, step, K)[:, :-1], reference, rtol=1e-9, atol=1e-12)
    return best_seconds(candidates, repeats=5)


def main():
    names = ["batched primal", "batched Gram", "per-client BLAS", "ours, gram", "ours, primal", "ours, auto"]
    print("milliseconds for K local steps of all clients (target: ratio <= 1.3)")
    print(f"{'(M, n, d, K)':<20}" + "".join(f"{name:>17}" for name in names) + f"{'auto / best':>14}")
    worst = 0.0
    for case in CASES:
        seconds = measure(*case)
        best = min(seconds[name] for name in names[:3])
        ratio = seconds["ours, auto"] / best
        worst = max(worst, ratio)
        row = "".join(f"{seconds[name] * 1e3:17.3f}" for name in names)
        print(f"{case!s:<20}{row}{ratio:14.2f}", flush=True)
    print(f"worst ratio {worst:.2f}")
    return worst


if __name__ == "__main__":
    sys.exit(0 if main() <= 1.3 else 1)
