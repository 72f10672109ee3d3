"""What happened in an asynchronous run: which workers' replies each server step absorbed, and when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Trace:
    """The order of events of one run: enough to run any method again exactly.

    Parameters
    ----------
    n : int
        Workers.
    times : array (K,)
        Time of each server step, non-decreasing.
    batches : sequence of K sequences of int
        Workers whose replies the step absorbed, each at most once, in the order of absorption.
    """

    def __init__(self, n: int, times: Any, batches: Sequence[Sequence[int]]) -> None:
        self.n = int(n)
        self.times = np.asarray(times, dtype=np.float64)
        self.batches = [list(map(int, batch)) for batch in batches]
        if self.times.shape != (len(self.batches),):
            raise ValueError(
                f"times must have {len(self.batches)} entries, one per batch, got {self.times.size}."
            )
        if np.any(np.diff(self.times) < 0):
            raise ValueError("times must not decrease.")
        for step, batch in enumerate(self.batches):
            if len(set(batch)) != len(batch) or not all(0 <= worker < self.n for worker in batch):
                raise ValueError(f"batch {step} must hold distinct workers below {self.n}, got {batch}.")

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def gradients(self) -> np.ndarray:
        """Replies absorbed up to and including each step, ``(K,)``."""
        return np.cumsum([len(batch) for batch in self.batches], dtype=np.int64)

    def stamps(self) -> np.ndarray:
        """Index of the iterate that each worker's anchor is, after each step: ``(K, n)``.

        Iterate 0 is the start, iterate 1 was sent to everybody at first, iterate k + 2 is what step k
        (counted from 0) computes and sends to the workers it absorbed.
        """
        anchors, in_flight = np.zeros(self.n, dtype=np.int64), np.ones(self.n, dtype=np.int64)
        table = np.zeros((len(self), self.n), dtype=np.int64)
        for step, batch in enumerate(self.batches):
            anchors[batch] = in_flight[batch]
            table[step] = anchors
            in_flight[batch] = step + 2
        return table

    def staleness(self) -> np.ndarray:
        """``k - min_i stamp_i`` of each step, k the index of the last iterate before it."""
        return (
            np.arange(1, len(self) + 1) - self.stamps().min(axis=1) if len(self) else np.zeros(0, dtype=int)
        )

    def epochs(self) -> np.ndarray:
        """Completed epochs after each step: an epoch ends when all anchors are newer than its beginning."""
        oldest = self.stamps().min(axis=1) if len(self) else np.zeros(0, dtype=int)
        counts, boundary, epoch = np.zeros(len(self), dtype=np.int64), 0, 0
        for step, stamp in enumerate(oldest):
            if stamp > boundary:
                epoch += 1
                boundary = step + 1  # the iterates computed so far
            counts[step] = epoch
        return counts

    def save(self, path: str | Path) -> None:
        """Write to an npz file."""
        sizes = np.array([len(batch) for batch in self.batches], dtype=np.int64)
        workers = np.array([worker for batch in self.batches for worker in batch], dtype=np.int64)
        np.savez(path, n=np.array(self.n), times=self.times, sizes=sizes, workers=workers)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file that `save` wrote."""
        with np.load(path, allow_pickle=False) as archive:
            sizes, workers = archive["sizes"], archive["workers"]
            ends = np.concatenate(([0], np.cumsum(sizes)))
            batches = [workers[a:b].tolist() for a, b in pairwise(ends)]
            return cls(int(archive["n"]), archive["times"], batches)

    def plot(self, *, last: float | None = None, ax: Axes | None = None) -> Axes:
        """Timeline: a bar for each evaluation of each worker, a tick for each server step.

        Parameters
        ----------
        last : float, optional
            Draw up to this time only.
        ax : matplotlib Axes, optional
        """
        from optikit.plotting import new_axes

        ax = new_axes(8.0, 0.35 * self.n + 1.5) if ax is None else ax
        started = np.zeros(self.n)
        for time, batch in zip(self.times, self.batches):
            if last is not None and time > last:
                break
            for worker in batch:
                width = time - started[worker]
                ax.barh(
                    worker, width, left=started[worker], height=0.7, color=f"C{worker % 10}", ec="w", lw=0.3
                )
                started[worker] = time
            ax.axvline(time, color="k", lw=0.2, alpha=0.4)
        ax.set_yticks(range(self.n), [f"worker {i}" for i in range(self.n)])
        ax.set_xlabel("time")
        ax.invert_yaxis()
        return ax

    def __repr__(self) -> str:
        total = int(self.gradients[-1]) if len(self) else 0
        end = f", until {self.times[-1]:g}" if len(self) else ""
        return f"Trace({len(self)} steps of {self.n} workers, {total} replies{end})"
