"""chi of networks of 20000 agents: seconds, and memory against what the edges take.

Nothing dense may be formed (20000^2 numbers are 3.2 GB). Target: seconds, memory of the order of the edges;
the random graph may take a factor for the Lanczos basis. Each graph runs in a process of its own, so
that the peak of its resident memory is its own.
"""

import json
import resource
import subprocess
import sys
import time
import tracemalloc

import _timing  # noqa: F401 (pins threads before NumPy is imported)

CASES = {
    "ring": "laplacian_gossip(ring(20_000))",
    "path": "laplacian_gossip(path(20_000))",
    "torus 100 x 200": "laplacian_gossip(torus(100, 200))",
    "Erdos-Renyi, mean degree 12": "laplacian_gossip(erdos_renyi(20_000, 12 / 20_000, 0))",
    "Metropolis on the same": "metropolis(erdos_renyi(20_000, 12 / 20_000, 0))",
    "static exponential": "max_degree(static_exponential(20_000))",
}


def measure(expression):
    """One matrix and its chi in this process; prints a line of JSON."""
    from optikit import graphs, mixing

    names = {**vars(graphs), **vars(mixing)}
    eval("metropolis(ring(8)).chi()", names)  # imports and compilations
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    began = time.perf_counter()
    matrix = eval(expression, names)
    chi = matrix.chi()
    seconds = time.perf_counter() - began
    edges = 16 * matrix.nnz  # a float64 weight, an index and their share of the row pointers
    print(
        json.dumps(
            {
                "chi": chi,
                "seconds": seconds,
                "traced": tracemalloc.get_traced_memory()[1],
                "resident": 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before),
                "edges": edges,
            }
        )
    )


def main():
    """A table; returns whether every graph stayed below half a minute and 100 times its edges."""
    print(f"{'graph, n=20000':<32}{'chi':>14}{'seconds':>9}{'traced MB':>11}{'RSS MB':>9}{'edges MB':>10}")
    fine = True
    for name, expression in CASES.items():
        done = subprocess.run(
            [sys.executable, __file__, expression], capture_output=True, text=True, check=True
        )
        row = json.loads(done.stdout)
        print(
            f"{name:<32}{row['chi']:>14.6g}{row['seconds']:>9.2f}{row['traced'] / 1e6:>11.1f}"
            f"{row['resident'] / 1e6:>9.1f}{row['edges'] / 1e6:>10.2f}",
            flush=True,
        )
        fine = fine and row["seconds"] < 30 and row["resident"] < 100 * row["edges"]
    return fine


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        sys.exit(0 if main() else 1)
