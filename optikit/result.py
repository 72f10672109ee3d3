"""What a run leaves behind: `Result`, its `History` of records and its `Certificate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from optikit.ledger import CommunicationLedger

STATUSES = {
    "converged": "the tolerance was met",
    "max_rounds": "the round limit was reached",
    "max_iterations": "the iteration limit was reached",
    "budget": "the budget of seconds or floats was spent",
    "stalled": "no progress was made for the given number of records",
    "diverged": "an iterate or its objective stopped being finite; the last finite state is returned",
    "interrupted": "the run was interrupted; the state reached so far is returned",
    "callback": "the callback asked to stop",
    "finished": "the method reports that nothing is left to do",
}


class History:
    """Records of a run: one float64 column per quantity, one row per record, bounded in memory.

    When `capacity` rows are reached every second row is dropped and from then on only every second
    record is kept, so a run of any length costs at most `capacity` rows and stays evenly sampled.
    The last record of a run is always kept.

    Parameters
    ----------
    capacity : int, default 10000
        Largest number of rows held; at least 4.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        if capacity < 4:
            raise ValueError(f"history capacity must be an integer >= 4, got {capacity!r}.")
        self.capacity = capacity
        self._columns: dict[str, np.ndarray] = {}
        self._length = 0
        self._stride = 1
        self._seen = 0

    def append(self, row: Mapping[str, float], *, last: bool = False) -> None:
        """Add one record; quantities that a record lacks are NaN there."""
        due = self._seen % self._stride == 0
        self._seen += 1
        if not (due or last):
            return
        if self._length == self.capacity:
            self._thin()
            if (self._seen - 1) % self._stride and not last:
                return
        for name, value in row.items():
            column = self._columns.get(name)
            if column is None or self._length == column.size:
                column = self._grow(name, column)
            column[self._length] = value
        self._length += 1
        if len(row) < len(self._columns):
            for name in self._columns.keys() - row.keys():
                if self._length > self._columns[name].size:
                    self._grow(name, self._columns[name])
                self._columns[name][self._length - 1] = np.nan

    def drop_last(self) -> None:
        """Take back the last record."""
        self._length -= 1
        self._seen -= 1

    def _grow(self, name: str, column: np.ndarray | None) -> np.ndarray:
        size = min(self.capacity, max(64, 2 * self._length))
        grown = np.full(size, np.nan)
        if column is not None:
            grown[: self._length] = column[: self._length]
        self._columns[name] = grown
        return grown

    def _thin(self) -> None:
        kept = (self._length + 1) // 2
        for column in self._columns.values():
            column[:kept] = column[: self._length : 2].copy()
            column[kept:] = np.nan
        self._length = kept
        self._stride *= 2

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Every quantity as a float64 array of shape ``(len(history),)`` (views, do not write)."""
        return {name: column[: self._length] for name, column in self._columns.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            raise KeyError(f"no column {name!r} in this history; it has {', '.join(self._columns) or 'none'}")
        return self._columns[name][: self._length]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"History({self._length} records of {', '.join(self._columns) or 'nothing'})"

    def to_dataframe(self) -> pandas.DataFrame:
        """The records as a pandas data frame, one row per record."""
        import pandas

        return pandas.DataFrame(self.columns)

    def plot(self, y: str = "objective", x: str = "round", *, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw column `y` against column `x` (see `optikit.plotting.plot_history`)."""
        from optikit.plotting import plot_history

        return plot_history({"": self}, y=y, x=x, ax=ax, **kwargs)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Columns and counters, for a checkpoint."""
        return self.columns, {"capacity": self.capacity, "stride": self._stride, "seen": self._seen}

    @classmethod
    def restored(cls, columns: Mapping[str, np.ndarray], counters: Mapping[str, int]) -> History:
        """The history that `state` described."""
        history = cls(counters["capacity"])
        history._stride, history._seen = counters["stride"], counters["seen"]
        history._columns = {name: np.array(column, dtype=np.float64) for name, column in columns.items()}
        history._length = max((column.size for column in columns.values()), default=0)
        return history


@dataclass(frozen=True)
class Certificate:
    """What theory guarantees about the returned point.

    Attributes
    ----------
    kind : str
        Name of the guarantee, e.g. ``"duality gap"``.
    lower_bound, upper_bound : float or None
        Bounds on the optimal value, where the method has them.
    details : dict
        Further quantities of the method (margins, triggers, decrements).
    """

    kind: str
    lower_bound: float | None = None
    upper_bound: float | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def gap(self) -> float | None:
        """``upper_bound - lower_bound``, or None when one of them is missing."""
        if self.lower_bound is None or self.upper_bound is None:
            return None
        return self.upper_bound - self.lower_bound


@dataclass
class Result:
    """The outcome of `IterativeSolver.solve`.

    Attributes
    ----------
    x : array, shape (d,) or the shape of one agent's iterate
        The answer: the common iterate of a server method, the mean over agents otherwise.
    iterate : array
        The iterates held on this rank, ``(n_local, d)``, or ``(d,)`` for a server method.
    status : str
        One of `STATUSES`.
    success : bool
        False when the run diverged, stalled or was interrupted.
    message : str
        What the status means for this run.
    iterations, rounds : int
        Steps of the method, and communication rounds they took.
    objective : float
        Last recorded objective (NaN when the method records none).
    history : History
    certificate : Certificate or None
    ledger : CommunicationLedger
        Logical communication: rounds, messages, floats.
    seconds : float
        Wall time spent in the run, resumed parts included.
    state : object
        The method's last state (a dataclass of arrays).
    solver : object
        The solver that ran.
    """

    x: Any
    iterate: Any
    status: str
    message: str
    iterations: int
    rounds: int
    objective: float
    history: History
    certificate: Certificate | None
    ledger: CommunicationLedger
    seconds: float
    state: Any
    solver: Any

    @property
    def success(self) -> bool:
        return self.status not in {"diverged", "stalled", "interrupted"}

    def to_dataframe(self) -> pandas.DataFrame:
        """The history as a pandas data frame."""
        return self.history.to_dataframe()

    def plot(self, y: str = "objective", x: str = "round", *, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw column `y` of the history against column `x`."""
        return self.history.plot(y, x, ax=ax, **kwargs)

    def __repr__(self) -> str:
        lines = [
            f"{self.solver.name}: {self.status} ({self.message})",
            f"  objective   {self.objective:.6g}",
            f"  iterations  {self.iterations}   rounds {self.rounds}   seconds {self.seconds:.3g}",
            f"  floats sent {self.ledger.total_floats:.6g} in all agents",
        ]
        if self.certificate is not None and self.certificate.gap is not None:
            lines.append(f"  {self.certificate.kind} {self.certificate.gap:.3g}")
        lines.append(f"  history     {len(self.history)} records: {', '.join(self.history.columns)}")
        return "\n".join(lines)
