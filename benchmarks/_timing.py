"""Timing shared by the benchmarks: interleaved best-of runs, so that a noisy machine hits all rows alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # import this module before NumPy


def best_seconds(
    candidates: Mapping[str, Callable[[], object]], *, repeats: int = 7, calls: int = 1
) -> dict[str, float]:
    """Smallest time per call of each candidate; the repeats go round all candidates in turn."""
    best = dict.fromkeys(candidates, float("inf"))
    for candidate in candidates.values():
        candidate()  # compile, fill caches
    for _ in range(repeats):
        for name, candidate in candidates.items():
            began = time.perf_counter()
            for _ in range(calls):
                candidate()
            best[name] = min(best[name], (time.perf_counter() - began) / calls)
    return best


def print_ratios(title: str, seconds: Mapping[str, float], baseline: str, target: str = "") -> None:
    """One table: milliseconds of every row and its ratio to the baseline of the same run."""
    print(f"\n{title}" + (f"   (target: {target})" if target else ""))
    for name, value in seconds.items():
        print(f"  {name:<44} {value * 1e3:10.4f} ms   {value / seconds[baseline]:8.2f} x {baseline}")
