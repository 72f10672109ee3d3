"""What happened in an asynchronous run: which workers' replies each server step absorbed, and when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optikit.checkpoint import digest_of, read_arrays, write_arrays
from optikit.validation import check_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
        self.n = check_integer(n, "n", minimum=1)
        self.times = np.asarray(times, dtype=np.float64)
        self.batches = [list(map(int, batch)) for batch in batches]
        if self.times.shape != (len(self.batches),):
            raise ValueError(
                f"times must have {len(self.batches)} entries, one per batch, got {self.times.size}."
            )
        if not np.all(np.isfinite(self.times)) or np.any(np.diff(self.times) < 0):
            raise ValueError("times must be finite and must not decrease.")
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

    def oldest(self) -> np.ndarray:
        """Smallest entry of each row of `stamps`, ``(K,)``, without making that table."""
        anchors, in_flight = np.zeros(self.n, dtype=np.int64), np.ones(self.n, dtype=np.int64)
        found = np.zeros(len(self), dtype=np.int64)
        for step, batch in enumerate(self.batches):
            anchors[batch] = in_flight[batch]
            found[step] = anchors.min()
            in_flight[batch] = step + 2
        return found

    def staleness(self) -> np.ndarray:
        """``k - min_i stamp_i`` of each step, k the index of the last iterate before it."""
        return np.arange(1, len(self) + 1) - self.oldest()

    def epochs(self) -> np.ndarray:
        """Completed epochs after each step: an epoch ends when all anchors are newer than its beginning."""
        counts, boundary, epoch = np.zeros(len(self), dtype=np.int64), 0, 0
        for step, stamp in enumerate(self.oldest().tolist()):
            if stamp > boundary:
                epoch += 1
                boundary = step + 1  # the iterates computed so far
            counts[step] = epoch
        return counts

    def describe(self) -> str:
        """Digest of the order of events: what a checkpoint compares."""
        flat = [worker for batch in self.batches for worker in (*batch, -1)]
        return digest_of(repr(self.n), np.asarray(flat).tobytes().hex(), self.times.tobytes().hex())

    def save(self, path: str | Path) -> None:
        """Write to an npz file, atomically: a reader sees the old file or the new one."""
        sizes = np.array([len(batch) for batch in self.batches], dtype=np.int64)
        workers = np.array([worker for batch in self.batches for worker in batch], dtype=np.int64)
        write_arrays(path, n=np.array(self.n), times=self.times, sizes=sizes, workers=workers)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file that `save` wrote; a ValueError names a file that is something else."""
        n, times, sizes, workers = read_arrays(path, ("n", "times", "sizes", "workers"), "trace")
        ends = np.concatenate(([0], np.cumsum(sizes)))
        if ends[-1] != workers.size:
            raise ValueError(f"{path} is not a readable trace: its batches do not add up.")
        return cls(int(n), times, [workers[a:b].tolist() for a, b in pairwise(ends)])

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
        shown = len(self) if last is None else int(np.searchsorted(self.times, last, side="right"))
        started = np.zeros(self.n)
        bars: list[list[tuple[float, float]]] = [[] for _ in range(self.n)]
        for time, batch in zip(self.times[:shown].tolist(), self.batches):
            for worker in batch:
                bars[worker].append((started[worker], time - started[worker]))
                started[worker] = time
        for worker, spans in enumerate(bars):  # one collection per worker, however many bars
            ax.broken_barh(spans, (worker - 0.35, 0.7), facecolor=f"C{worker % 10}", ec="w", lw=0.3)
        ax.vlines(self.times[:shown], -0.5, self.n - 0.5, color="k", lw=0.2, alpha=0.4)
        ax.set_yticks(range(self.n), [f"worker {i}" for i in range(self.n)])
        ax.set_xlabel("time")
        ax.invert_yaxis()
        return ax

    def figure(self, *, last: float | None = None) -> Figure:
        """Who computed when, and below it the staleness and the epochs over the same time."""
        from optikit.plotting import new_axes

        top = new_axes(8.0, 0.35 * self.n + 5.0)
        figure: Any = top.figure
        top.remove()
        heights = [0.35 * self.n + 0.5, 1.2, 1.2]
        axes = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": heights})
        self.plot(last=last, ax=axes[0])
        axes[0].set_xlabel("")
        axes[1].step(self.times, self.staleness(), where="post", lw=1.0)
        axes[1].set_ylabel("staleness")
        axes[2].step(self.times, self.epochs(), where="post", lw=1.0)
        axes[2].set(ylabel="epochs", xlabel="time")
        if last is not None:
            axes[2].set_xlim(0.0, last)
        return figure

    def __repr__(self) -> str:
        total = int(self.gradients[-1]) if len(self) else 0
        end = f", until {self.times[-1]:g}" if len(self) else ""
        return f"Trace({len(self)} steps of {self.n} workers, {total} replies{end})"
