"""Sequences of mixing matrices, one matrix per communication round."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sp

from optikit.graphs import Graph
from optikit.mixing.matrix import MixingMatrix


class TopologySequence(ABC):
    """Matrices ``matrix(0), matrix(1), ...`` of one kind, one per round: random access, equal on all ranks.

    Attributes
    ----------
    n : int
        Number of agents.
    kind : str
        Kind of every matrix.
    period : int or None
        ``matrix(q + period)`` is ``matrix(q)``; None for aperiodic sequences.
    """

    n: int
    kind: str
    period: int | None

    @abstractmethod
    def matrix(self, q: int) -> MixingMatrix:
        """The matrix of round q >= 0."""

    def digest(self) -> str:
        """Hex digest by which ranks check that they hold the same sequence."""
        rounds = range(4 if self.period is None else min(self.period, 64))
        text = " ".join(self.matrix(q).digest() for q in rounds)
        return hashlib.sha256(f"{type(self).__name__} {self.n} {self.period} {text}".encode()).hexdigest()

    def window(self, q: int, length: int) -> sp.csr_array:
        """Product of the `length` matrices from round q on, newest on the left (of ``I - G`` for gossip)."""
        product = sp.eye_array(self.n, format="csr")
        for round_number in range(q, q + length):
            matrix = self.matrix(round_number)
            product = (matrix.to_mixing() if self.kind == "gossip" else matrix).csr @ product
        return sp.csr_array(product)

    def chi(
        self, length: int = 1, *, rounds: int | None = None, starts: Iterable[int] | None = None
    ) -> float:
        r"""Worst :math:`1/(1 - \|M - J\|_2^2)` over the windows M of `length` rounds.

        Periodic sequences are searched over one period, others over the first `rounds` (default 100) rounds;
        `starts` names the rounds at which windows begin, where only some do.
        """
        if starts is None:
            starts = range(self.period if self.period is not None else (rounds or 100))
        if length == 1:
            return max(self.matrix(q).chi() for q in starts)
        windows = (self.window(q, length) for q in starts)
        return max(MixingMatrix(window, "mixing", validate=False).chi() for window in windows)

    def contractions(self, rounds: int) -> np.ndarray:
        r""":math:`\|W^{(q-1)} \cdots W^{(0)} - J\|_2` for q = 0..rounds: the worst disagreement that is left.

        Float64 (rounds + 1,), starting at 1 (0 for one agent). Forms dense products: for n up to about 1000.
        """
        if self.kind in ("row", "col"):
            raise ValueError(f"contractions need kind 'mixing' or 'gossip', got {self.kind!r}.")
        error = np.eye(self.n) - 1.0 / self.n
        left = [float(np.linalg.norm(error, 2))]
        for q in range(rounds):
            matrix = self.matrix(q)
            error = (matrix.to_mixing() if self.kind == "gossip" else matrix) @ error
            left.append(float(np.linalg.norm(error, 2)))
        return np.array(left)

    def is_b_connected(self, length: int, *, rounds: int | None = None) -> bool:
        """Whether the union of the graphs of any `length` consecutive rounds is (strongly) connected."""
        starts = self.period if self.period is not None else (rounds or 100)
        for first in range(starts):
            union = sum(
                (abs(self.matrix(q).csr) for q in range(first, first + length)),
                sp.csr_array((self.n, self.n)),
            )
            if not Graph.from_scipy(union).is_connected:
                return False
        return True


class Static(TopologySequence):
    """The same matrix in every round."""

    def __init__(self, matrix: MixingMatrix) -> None:
        if not isinstance(matrix, MixingMatrix):
            raise TypeError(f"matrix must be a MixingMatrix, got {type(matrix).__name__}.")
        self.n, self.kind, self.period = matrix.n, matrix.kind, 1
        self._matrix = matrix

    def matrix(self, q: int) -> MixingMatrix:
        """The matrix."""
        return self._matrix

    def __repr__(self) -> str:
        return f"Static({self._matrix!r})"


class Cyclic(TopologySequence):
    """The given matrices over and over: ``matrix(q) = matrices[q mod len(matrices)]``."""

    def __init__(self, matrices: Sequence[MixingMatrix]) -> None:
        matrices = list(matrices)
        if not matrices:
            raise ValueError("matrices must hold at least one MixingMatrix, got none.")
        for matrix in matrices:
            if not isinstance(matrix, MixingMatrix):
                raise TypeError(f"matrices must be MixingMatrix objects, got {type(matrix).__name__}.")
        first = matrices[0]
        if any(matrix.n != first.n or matrix.kind != first.kind for matrix in matrices):
            found = sorted({(matrix.n, matrix.kind) for matrix in matrices})
            raise ValueError(f"matrices must agree in n and kind, got {found}.")
        self.n, self.kind, self.period = first.n, first.kind, len(matrices)
        self._matrices = matrices

    def matrix(self, q: int) -> MixingMatrix:
        """Matrix ``q mod period``."""
        return self._matrices[q % len(self._matrices)]

    def __repr__(self) -> str:
        return f"Cyclic(period={self.period}, n={self.n}, kind={self.kind!r})"
