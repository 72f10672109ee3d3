"""Sketching kernels on one core: A is 60000 x 300 float64, m = 3000.

Targets: SASO(4) at least 2x faster than SciPy's CSR product; an iteration's sketch (LESS-uniform, Poisson
rows) adds at most 25 % to the two passes over X; the Walsh-Hadamard transform within 1.2x of the best package
(``fht-cpu``, optional: ``FHT_CPU=1``), shown beside the reshape butterflies.
"""

import importlib
import os

import _timing  # noqa: F401 (pins threads before NumPy is imported)
import numpy as np
from _timing import best_seconds, print_ratios

from optikit.sketching import SASO, LESSUniform, PoissonRows, fwht
from optikit.sketching.operators import _butterflies

n, d, m = 60_000, 300, 3000
rng = np.random.default_rng(0)
A, scale = rng.standard_normal((n, d)), rng.random(n)
saso = SASO(m, 4).draw(n, 0)
matrix = saso.tocsr()
products = best_seconds(
    {"scipy CSR product": lambda: matrix @ A, "SASO(4) kernel": lambda: saso.apply(A)}, repeats=3
)
print_ratios("Sparse sign sketch", products, "SASO(4) kernel", "CSR product >= 2 x the kernel")

b, v = rng.standard_normal(d), rng.standard_normal(n)
less, poisson = LESSUniform(m, 8).draw(n, 0), PoissonRows(m).draw(n, 0)
sketches = best_seconds(
    {
        "two passes over X": lambda: (A @ b, A.T @ v),
        "LESS-uniform(8), scaled": lambda: less.apply(A, scale),
        "Poisson rows, scaled": lambda: poisson.apply(A, scale),
        "drawing LESS-uniform(8)": lambda: LESSUniform(m, 8).draw(n, 0),
        "drawing Poisson rows": lambda: PoissonRows(m).draw(n, 0),
    },
    repeats=5,
)
print_ratios("One iteration's sketch", sketches, "two passes over X", "sketch and drawing <= 0.25 x")

for size in (16_384, 65_536):
    X = rng.standard_normal((size, 64))
    buffer = X.copy()
    rows = {
        "fwht (radix 4, in place)": lambda buffer=buffer: fwht(buffer, out=buffer),
        "reshape butterflies": lambda X=X: _butterflies(X, np),
    }
    if os.environ.get("FHT_CPU"):  # optional peer: pip install fht-cpu
        columns, transform = np.asfortranarray(X), importlib.import_module("fht_cpu").fht
        rows["fht_cpu (columns, one thread)"] = lambda c=columns, f=transform: f(c, axis=0, num_threads=1)
    seconds = best_seconds(rows, repeats=5)
    buffer[:] = X
    print_ratios(f"Walsh-Hadamard transform, {size} x 64", seconds, "fwht (radix 4, in place)")
