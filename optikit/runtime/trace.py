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
        Workers, >= 1.
    times : array (K,)
        Time of each server step, finite, non-decreasing.
    batches : sequence of K sequences of int
        Workers whose replies the step absorbed, each at most once, in the order of absorption.
    spans : array (replies, 2), optional
        When the query of each absorbed reply was sent and when the reply arrived, in the order of absorption;
        for the picture only: what a worker waited for is then told from what it computed.

    Raises
    ------
    ValueError
        For times that decrease or do not fit the batches, workers out of range, replies that arrive before
        their query or after they were absorbed.
    """

    def __init__(self, n: int, times: Any, batches: Sequence[Sequence[int]], spans: Any = None) -> None:
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
        self.spans = None if spans is None else self._checked(np.asarray(spans, dtype=np.float64))

    def _checked(self, spans: np.ndarray) -> np.ndarray:
        sizes = [len(batch) for batch in self.batches]
        if spans.shape != (sum(sizes), 2):
            raise ValueError(f"spans must have shape ({sum(sizes)}, 2), got {spans.shape}.")
        absorbed = np.repeat(self.times, sizes)
        if not np.all((spans[:, 0] <= spans[:, 1]) & (spans[:, 1] <= absorbed)):  # NaN too
            raise ValueError("spans must run from query to arrival, before the step that absorbs the reply.")
        return spans

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def gradients(self) -> np.ndarray:
        """Replies absorbed up to and including each step, ``(K,)``."""
        return np.cumsum([len(batch) for batch in self.batches], dtype=np.int64)

    def head(self, steps: int) -> Trace:
        """The first `steps` server steps, all of them if there are fewer."""
        steps = check_integer(steps, "steps", minimum=0)
        batches = self.batches[:steps]
        spans = None if self.spans is None else self.spans[: sum(map(len, batches))]
        return Trace(self.n, self.times[:steps], batches, spans)

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
        """Smallest entry of each row of `stamps`, ``(K,)``, in O(replies) time and O(K) memory."""
        anchors, in_flight = [0] * self.n, [1] * self.n
        held = [0] * (len(self) + 2)  # workers whose anchor is that iterate
        held[0], least = self.n, 0
        found = np.zeros(len(self), dtype=np.int64)
        for step, batch in enumerate(self.batches):
            for worker in batch:
                held[anchors[worker]] -= 1
                anchors[worker] = in_flight[worker]
                held[anchors[worker]] += 1
                in_flight[worker] = step + 2
            while not held[least]:  # stamps only grow, so the smallest one does
                least += 1
            found[step] = least
        return found

    def staleness(self) -> np.ndarray:
        """``k - min_i stamp_i`` of each step, ``(K,)``, k the index of the last iterate before it."""
        return np.arange(1, len(self) + 1) - self.oldest()

    def delays(self) -> np.ndarray:
        """Age of each absorbed reply, ``(replies,)`` in the order of absorption.

        The iterates computed between the one that the worker was sent and the last one before the step that
        absorbs its reply: 0 for synchronous steps. `staleness` is the largest age of what all workers said
        last, `delays` counts each reply once, at its arrival.
        """
        in_flight, found = [1] * self.n, []
        for step, batch in enumerate(self.batches):
            for worker in batch:
                found.append(step + 1 - in_flight[worker])
                in_flight[worker] = step + 2
        return np.array(found, dtype=np.int64)

    def epochs(self) -> np.ndarray:
        """Completed epochs after each step, ``(K,)``.

        An epoch ends when all anchors are newer than its beginning.
        """
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
        spans = np.zeros((0, 2)) if self.spans is None else self.spans
        write_arrays(path, n=np.array(self.n), times=self.times, sizes=sizes, workers=workers, spans=spans)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file that `save` wrote; a ValueError names a file that is something else."""
        n, times, sizes, workers, spans = read_arrays(
            path, ("n", "times", "sizes", "workers", "spans"), "trace"
        )
        try:
            if any(array.dtype.kind != "i" for array in (n, sizes, workers)):
                raise ValueError("its counts are not whole numbers.")
            if n.ndim or sizes.ndim != 1 or np.any(sizes < 0) or workers.shape != (sizes.sum(),):
                raise ValueError("its batches do not add up.")
            ends = [0, *np.cumsum(sizes).tolist()]
            batches = [workers[a:b].tolist() for a, b in pairwise(ends)]
            return cls(int(n), times, batches, spans if spans.size else None)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a readable trace: {error}") from error

    def plot(self, *, last: float | None = None, ax: Axes | None = None) -> Axes:
        """Timeline: a bar for each turn of each worker, a line for each server step.

        A pale end of a bar is the wait of a reply that had arrived; where `spans` are unknown, a turn is
        drawn in one piece, from one absorption to the next.

        Parameters
        ----------
        last : float, optional
            Draw up to this time only.
        ax : matplotlib Axes, optional
        """
        from optikit.plotting import new_axes

        ax = new_axes(8.0, 0.35 * self.n + 1.5) if ax is None else ax
        shown = len(self) if last is None else int(np.searchsorted(self.times, last, side="right"))
        times = self.times[:shown]
        batches = self.batches[:shown]
        workers = np.array([worker for batch in batches for worker in batch], dtype=np.int64)
        absorbed = np.repeat(times, [len(batch) for batch in batches])
        for worker in range(self.n):  # one collection per worker and kind, however many bars
            mine = np.flatnonzero(workers == worker)
            row, color, end = (worker - 0.35, 0.7), f"C{worker % 10}", absorbed[mine]
            if self.spans is None:
                begin = np.concatenate(([0.0], end))[:-1]
                ax.broken_barh(_bars(begin, end), row, facecolor=color, ec="w", lw=0.3)
            else:
                begin, arrived = self.spans[mine].T
                ax.broken_barh(_bars(begin, arrived), row, facecolor=color, ec="w", lw=0.3)
                waits = arrived < end
                ax.broken_barh(_bars(arrived[waits], end[waits]), row, facecolor=color, alpha=0.3)
        ax.vlines(times, -0.5, self.n - 0.5, color="k", lw=0.2, alpha=0.4)
        ax.set_yticks(range(self.n), [f"worker {i}" for i in range(self.n)])
        ax.set_xlabel("time")
        ax.invert_yaxis()
        return ax

    def plot_staleness(self, *, ax: Axes | None = None) -> Axes:
        """Staleness of each server step over time."""
        return self._steps(self.staleness(), "staleness", ax)

    def plot_epochs(self, *, ax: Axes | None = None) -> Axes:
        """Completed epochs over time."""
        return self._steps(self.epochs(), "epochs", ax)

    def _steps(self, values: np.ndarray, label: str, ax: Axes | None) -> Axes:
        from optikit.plotting import new_axes

        ax = new_axes(8.0, 2.0) if ax is None else ax
        ax.step(self.times, values, where="post", lw=1.0)
        ax.set(xlabel="time", ylabel=label)
        return ax

    def figure(self, *, last: float | None = None) -> Figure:
        """Who computed when, and below it the staleness and the epochs over the same time."""
        from optikit.plotting.history import new_grid

        height = 0.35 * self.n + 0.5
        timeline, staleness, epochs = new_grid(3, 1, 8.0, height + 4.0)[:, 0]
        timeline.get_gridspec().set_height_ratios([height, 1.2, 1.2])
        shown = self if last is None else self.head(int(np.searchsorted(self.times, last, side="right")))
        shown.plot(ax=timeline)
        shown.plot_staleness(ax=staleness)
        shown.plot_epochs(ax=epochs)
        for panel in (timeline, staleness):
            panel.set_xlabel("")
            panel.sharex(epochs)
            panel.tick_params(labelbottom=False)
        figure: Figure = timeline.figure
        return figure

    def __repr__(self) -> str:
        total = int(self.gradients[-1]) if len(self) else 0
        end = f", until {self.times[-1]:g}" if len(self) else ""
        return f"Trace({len(self)} steps of {self.n} workers, {total} replies{end})"


def _bars(begin: np.ndarray, end: np.ndarray) -> list[tuple[float, float]]:
    """Matplotlib's (left, width) pairs."""
    return list(zip(begin.tolist(), (end - begin).tolist()))
