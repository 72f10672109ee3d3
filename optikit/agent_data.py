"""`AgentData`: the samples of a block of agents, stored once and in agent order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from optikit.arrays import array_namespace, as_float_array, from_numpy, is_numpy, to_numpy


@dataclass(frozen=True, eq=False, repr=False)
class AgentData:
    """Rows of all agents held here, concatenated: agent k owns ``offsets[k]:offsets[k+1]``.

    Parameters
    ----------
    features : array (N_local, d), or SciPy CSR matrix
        One sample per row; float32 or float64 (integers become float64).
    targets : array (N_local,)
    offsets : array of int, shape (n_local + 1,)
        Non-decreasing, from 0 to N_local. An agent may hold no rows here; objectives refuse that by name.
    agents : array of int, shape (n_local,), optional
        Global numbers of the agents held here, increasing; 0..n_local-1 by default.
    n_agents : int, optional
        Agents in the whole problem; n_local by default.

    Raises
    ------
    ValueError
        When shapes disagree or data are not finite (the agent and its row are named).
    TypeError
        For data that are not real numbers.
    """

    features: Any
    targets: Any
    offsets: np.ndarray
    agents: np.ndarray | None = None  # an array after construction
    n_agents: int | None = None  # an int after construction

    def __post_init__(self) -> None:
        fill = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731 (frozen dataclass)
        offsets = np.asarray(self.offsets, dtype=np.int64)
        if offsets.ndim != 1 or offsets.size < 1 or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
            raise ValueError(f"offsets must rise from 0, one entry more than agents, got {self.offsets!r}.")
        n_local = offsets.size - 1
        agents = np.arange(n_local) if self.agents is None else np.asarray(self.agents, dtype=np.int64)
        n_agents = n_local if self.n_agents is None else int(self.n_agents)
        if agents.shape != (n_local,) or np.any(np.diff(agents) <= 0):
            raise ValueError(f"agents must be {n_local} increasing numbers, got {self.agents!r}.")
        if agents.size and (agents[0] < 0 or agents[-1] >= n_agents):
            raise ValueError(f"agents must lie in 0..{n_agents - 1}, got {self.agents!r}.")
        features = self.features
        if sparse.issparse(features):
            features = sparse.csr_array(features)
            if features.dtype.kind not in "fiub":
                raise TypeError(f"features must hold real numbers, got dtype {features.dtype}.")
            if features.dtype not in (np.float32, np.float64):
                features = features.astype(np.float64)
            if not features.has_canonical_format:
                features = features.copy()  # the caller's arrays stay as they are
                features.sum_duplicates()
            targets = as_float_array(self.targets, name="targets", ndim=1, finite=False)
        else:
            features = as_float_array(features, name="features", ndim=2, finite=False)
            xp = array_namespace(features)
            targets = as_float_array(self.targets, name="targets", xp=xp, ndim=1, finite=False)
        if not features.shape[0] == targets.shape[0] == int(offsets[-1]):
            raise ValueError(
                f"features, targets and offsets must describe the same rows, got {features.shape[0]}, "
                f"{targets.shape[0]} and {int(offsets[-1])}."
            )
        for name, value in (
            ("features", features),
            ("targets", targets),
            ("offsets", offsets),
            ("agents", agents),
            ("n_agents", n_agents),
        ):
            fill(name, value)
        self._check_finite()

    def _check_finite(self) -> None:
        for name, array in (("features", self.features), ("targets", self.targets)):
            stored = array.data if sparse.issparse(array) else array
            xp = array_namespace(stored)
            bad = ~xp.isfinite(stored)
            if not bool(xp.any(bad)):
                continue
            if sparse.issparse(array):
                row = int(np.searchsorted(array.indptr, np.argmax(bad), side="right")) - 1
            else:
                row = int(np.argmax(to_numpy(bad if bad.ndim == 1 else xp.any(bad, axis=1))))
            raise ValueError(f"{name} must be finite, got NaN or infinity in {self.place(row)}.")

    def place(self, row: int) -> str:
        """What errors call a row of `features`: its number within its agent, and the agent."""
        k = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return f"row {row - int(self.offsets[k])} of agent {self.agents[k]}"  # type: ignore[index]

    def __repr__(self) -> str:
        kind = "CSR" if self.is_sparse else "dense"
        some = "" if self.n_local == self.n_agents else f"{self.n_local} of "
        size = f"{self.n_samples} samples, {self.dim} {kind} features"
        return f"AgentData({some}{self.n_agents} agents, {size})"

    @property
    def n_local(self) -> int:
        """Agents held here."""
        return self.offsets.size - 1

    @property
    def dim(self) -> int:
        """Number of features."""
        return int(self.features.shape[1])

    @property
    def n_samples(self) -> int:
        """Rows held here."""
        return int(self.offsets[-1])

    @property
    def sizes(self) -> np.ndarray:
        """Rows of each agent, ``(n_local,)``."""
        return np.diff(self.offsets)

    @property
    def is_sparse(self) -> bool:
        return sparse.issparse(self.features)

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all agents held here have equally many rows."""
        return self.n_local == 0 or bool(np.all(self.sizes == self.sizes[0]))

    @property
    def xp(self) -> Any:
        """The array namespace of the data."""
        return array_namespace(self.targets)

    def stacked(self) -> Any:
        """Dense features of equally large agents as ``(n_local, m, d)``, without a copy."""
        if self.is_sparse or not self.is_uniform:
            raise ValueError("stacked() needs dense features and equally many rows for every agent.")
        rows = int(self.sizes[0]) if self.n_local else 0
        return self.xp.reshape(self.features, (self.n_local, rows, self.dim))

    def subset(self, agents: Any) -> AgentData:
        """The data of some of the agents held here; a contiguous block is a view, not a copy."""
        wanted = np.asarray(agents, dtype=np.int64)
        places = np.searchsorted(self.agents, wanted)  # type: ignore[arg-type]
        if wanted.size and (
            places.max(initial=-1) >= self.n_local or np.any(self.agents[places] != wanted)  # type: ignore[index]
        ):
            raise ValueError(f"agents must be among those held here, got {wanted.tolist()}.")
        if wanted.size == 0:
            low = high = 0
            offsets = np.zeros(1, dtype=np.int64)
        elif np.all(np.diff(places) == 1):
            low, high = int(self.offsets[places[0]]), int(self.offsets[places[-1] + 1])
            offsets = self.offsets[places[0] : places[-1] + 2] - low
        else:
            rows = np.concatenate([np.arange(self.offsets[k], self.offsets[k + 1]) for k in places])
            offsets = np.concatenate(([0], np.cumsum(self.sizes[places])))
            index = rows if self.is_sparse else from_numpy(rows, self.xp)
            take = (lambda a: a[index]) if is_numpy(self.xp) else (lambda a: self.xp.take(a, index, axis=0))
            features = self.features[rows] if self.is_sparse else take(self.features)
            return replace(
                self, features=features, targets=take(self.targets), offsets=offsets, agents=wanted
            )
        return replace(
            self,
            features=_row_range(self.features, low, high) if self.is_sparse else self.features[low:high, :],
            targets=self.targets[low:high],
            offsets=offsets,
            agents=wanted,
        )

    def to(self, xp: Any, device: Any = None) -> AgentData:
        """The same data in another array namespace (dense data only, unless `xp` is NumPy)."""
        if self.is_sparse:
            if is_numpy(xp):
                return self
            raise ValueError("sparse AgentData lives on the host; call .dense() first, or use NumPy.")
        return replace(
            self,
            features=from_numpy(to_numpy(self.features), xp, device),
            targets=from_numpy(to_numpy(self.targets), xp, device),
        )

    def dense(self) -> AgentData:
        """The same data with dense features (itself when they are dense already)."""
        return replace(self, features=self.features.toarray()) if self.is_sparse else self

    def digests(self) -> list[int]:
        """SHA-256 of each agent's number, shape and data, as integers."""
        targets = to_numpy(self.targets)
        dense = None if self.is_sparse else to_numpy(self.features)
        numbers = []
        for k, agent in enumerate(self.agents):  # type: ignore[arg-type]
            rows = slice(int(self.offsets[k]), int(self.offsets[k + 1]))
            digest = hashlib.sha256(f"{agent} {rows.stop - rows.start} {self.dim} {targets.dtype}".encode())
            if dense is None:
                block = self.features[rows]
                indptr, indices = (index.astype(np.int64) for index in (block.indptr, block.indices))
                parts: tuple[Any, ...] = (indptr, indices, block.data)
            else:
                parts = (dense[rows],)
            for part in (*parts, targets[rows]):
                digest.update(np.ascontiguousarray(part).data)
            numbers.append(int.from_bytes(digest.digest(), "little"))
        return numbers

    def fingerprint(self) -> str:
        """Hexadecimal digest of the data held here: the sum of `digests`, so that blocks of agents add up."""
        return f"{sum(self.digests()) % 2**256:064x}"

    @classmethod
    def from_stacked(cls, features: Any, targets: Any) -> AgentData:
        """From ``(n, m, d)`` features and ``(n, m)`` targets, without a copy when they are contiguous."""
        features = as_float_array(features, name="features", ndim=3, finite=False)
        xp = array_namespace(features)
        n, m, d = features.shape
        targets = as_float_array(targets, name="targets", xp=xp, shape=(n, m), finite=False)
        return cls(xp.reshape(features, (n * m, d)), xp.reshape(targets, (n * m,)), m * np.arange(n + 1))

    @classmethod
    def from_blocks(cls, blocks: Sequence[tuple[Any, Any]]) -> AgentData:
        """From one pair (features, targets) per agent; all dense or all sparse, in one namespace."""
        if not blocks:
            raise ValueError("blocks must hold at least one agent's (features, targets), got none.")
        kinds = {sparse.issparse(features) for features, _ in blocks}
        if len(kinds) > 1:
            raise ValueError("blocks must be all dense or all sparse, got some of each.")
        rows: list[Any] = [features for features, _ in blocks]
        if False in kinds:
            rows = [as_float_array(features, name="features", finite=False) for features in rows]
        values = [as_float_array(targets, name="targets", finite=False) for _, targets in blocks]
        widths = {int(features.shape[1]) if features.ndim == 2 else -1 for features in rows}
        if len(widths) > 1 or -1 in widths:
            raise ValueError(
                f"every block must be a matrix with the same columns, got widths {sorted(widths)}."
            )
        sizes = [int(features.shape[0]) for features in rows]
        for agent, (size, targets) in enumerate(zip(sizes, values)):
            if tuple(targets.shape) != (size,):
                raise ValueError(
                    f"targets of agent {agent} must have shape ({size},), got {tuple(targets.shape)}."
                )
        xp = array_namespace(*values)
        features = sparse.vstack(rows, format="csr") if True in kinds else xp.concat(rows)
        return cls(features, xp.concat(values), np.concatenate(([0], np.cumsum(sizes))))


def _row_range(matrix: Any, low: int, high: int) -> Any:
    """Rows low..high-1 of a CSR array as views of its data (SciPy's own slices are copies)."""
    start, stop = int(matrix.indptr[low]), int(matrix.indptr[high])
    parts = (matrix.data[start:stop], matrix.indices[start:stop], matrix.indptr[low : high + 1] - start)
    return sparse.csr_array(parts, shape=(high - low, matrix.shape[1]))
