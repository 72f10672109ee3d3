"""``W @ X`` by the network against a plain copy of X, n=1024 agents, d=1000: the floor is memory bandwidth.

Targets: at most 1.6 copies for two taps, 2.5 for three, 8 for the static exponential graph (11 taps). The
general peers stand beside: SciPy's CSR product and BLAS on the dense matrix.
"""

import sys

import _timing  # noqa: F401 (pins threads before NumPy is imported)
import numpy as np
from _timing import best_seconds, print_ratios

from optikit.graphs import erdos_renyi, ring, static_exponential
from optikit.mixing import default_weights, one_peer_exponential
from optikit.network import Network

TARGETS = {"one-peer exponential, 2 taps": 1.6, "ring, 3 taps": 2.5, "static exponential, 11 taps": 8.0}


def measure(n, d):
    """Seconds of the copy, of ours and of the peers."""
    X = np.random.default_rng(0).standard_normal((n, d))
    out, copy = np.empty_like(X), np.empty_like(X)
    topologies = {
        "one-peer exponential, 2 taps": one_peer_exponential(n).matrix(0),
        "ring, 3 taps": default_weights(ring(n)),
        "static exponential, 11 taps": default_weights(static_exponential(n)),
        "Erdos-Renyi, mean degree 10": default_weights(erdos_renyi(n, 10 / n, 0)),
    }
    candidates = {"copy of X": lambda: np.copyto(copy, X)}
    for name, matrix in topologies.items():
        network, csr = Network(matrix), matrix.csr
        candidates[name] = lambda network=network: network.mix(X, out=out)
        candidates[f"  SciPy CSR, {name.split(',')[0]}"] = lambda csr=csr: csr @ X
    dense = topologies["ring, 3 taps"].toarray()
    candidates["  dense BLAS"] = lambda: np.matmul(dense, X, out=out)
    return best_seconds(candidates, repeats=9)


def main():
    """Returns the worst ratio to its target."""
    seconds = measure(1024, 1000)
    print_ratios("W @ X, n=1024, d=1000", seconds, "copy of X", "2 taps 1.6, 3 taps 2.5, exponential 8")
    print_ratios("W @ X, n=64, d=1000", measure(64, 1000), "copy of X")
    worst = max(seconds[name] / seconds["copy of X"] / target for name, target in TARGETS.items())
    print(f"\nworst ratio to its target {worst:.2f}")
    return worst


if __name__ == "__main__":
    sys.exit(0 if main() <= 1.0 else 1)
