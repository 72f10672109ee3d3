"""Bundle models: which cuts a worker keeps, and how they change when a new one arrives.

A model is the maximum of the affine cuts ``g_ij'x - v_ij`` of worker i. It is admissible when it stays below
f_i and contains the newest cut; all six below are.

=======================  =========================================================================
model                    cuts of a worker
=======================  =========================================================================
latest                   the newest
cutting_plane            the last m, first in first out
two_cut                  the newest and the aggregate of the last master solve
polyak                   the newest and the constant f_low
polyak_cutting_plane     the last m and the constant f_low
average                  the newest and a running average of the old ones
=======================  =========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optikit.checkpoint import replicated
from optikit.validation import check_choice, check_integer

MODELS = ("latest", "cutting_plane", "two_cut", "polyak", "polyak_cutting_plane", "average")
EVICTIONS = ("fifo", "least_active")


@dataclass
class Bundle:
    """Cuts of all workers in slots, with the products that the master needs kept up to date.

    All state lies in the fields, so that a checkpoint of them restores a run bit by bit.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    n, d : int
        Workers and dimension, >= 1.
    size : int
        Cuts m of the cutting-plane models, >= 1.
    f_low : array (n,) or None
        Lower bounds on the f_i, needed by the polyak models.
    eviction : {"fifo", "least_active"}, default "fifo"
        Which cut of a full worker goes: the oldest, or the one with the smallest weight (the oldest of them);
        never the newest.

    Attributes
    ----------
    cuts : array (n, slots, d)
    offsets : array (n, slots)
        v_ij, so that a cut reads ``g'x - v``.
    used : boolean array (n, slots)
    born : array (n, slots)
        Which put of its worker filled a slot.
    newest : array (n,)
        Slot of each worker's newest cut, -1 before the first.
    weights : array (n, slots)
        Dual weights of the last master, each row summing to one; an evicted cut's pass to the new one.
    anchors : array (n, d)
    gram : array (n * slots, n * slots)
        Inner products of all cuts: only fresh rows are recomputed, so nothing drifts. Zero for unused slots.
    cross : array (n * slots, n)
        Inner products of cuts and anchors.
    stale_cuts, stale_anchors : boolean arrays
        What changed since the products were brought up to date.

    Notes
    -----
    Memory: ``n slots d`` for the cuts and ``n d`` for the anchors; the products do not depend on d.
    """

    model: str
    n: int
    d: int
    size: int
    f_low: np.ndarray | None = None
    eviction: str = "fifo"
    cuts: np.ndarray = replicated(default=None)
    offsets: np.ndarray = replicated(default=None)
    used: np.ndarray = replicated(default=None)
    born: np.ndarray = replicated(default=None)
    newest: np.ndarray = replicated(default=None)
    weights: np.ndarray = replicated(default=None)
    anchors: np.ndarray = replicated(default=None)
    gram: np.ndarray = replicated(default=None)
    cross: np.ndarray = replicated(default=None)
    stale_cuts: np.ndarray = replicated(default=None)
    stale_anchors: np.ndarray = replicated(default=None)

    def __post_init__(self) -> None:
        check_choice(self.model, "model", MODELS)
        check_choice(self.eviction, "eviction", EVICTIONS)
        self.n = check_integer(self.n, "n", minimum=1)
        self.d = check_integer(self.d, "d", minimum=1)
        self.size = check_integer(self.size, "size", minimum=1)
        if self.cuts is not None:  # restored from a checkpoint
            return
        n, d, slots = self.n, self.d, self.slots
        self.cuts = np.zeros((n, slots, d))
        self.offsets = np.zeros((n, slots))
        self.used = np.zeros((n, slots), dtype=bool)
        self.born = np.zeros((n, slots), dtype=np.int64)
        self.newest = np.full(n, -1)
        self.weights = np.zeros((n, slots))
        self.anchors = np.zeros((n, d))
        self.gram = np.zeros((n * slots, n * slots))
        self.cross = np.zeros((n * slots, n))
        self.stale_cuts = np.zeros(n * slots, dtype=bool)
        self.stale_anchors = np.zeros(n, dtype=bool)
        if self.has_floor:
            if self.f_low is None:
                raise ValueError(f"f_low, lower bounds on the f_i, is needed by model {self.model!r}.")
            self.offsets[:, -1] = -np.asarray(self.f_low, dtype=np.float64)
            self.used[:, -1] = True

    @property
    def has_floor(self) -> bool:
        """Whether the last slot holds the constant f_low."""
        return self.model in ("polyak", "polyak_cutting_plane")

    @property
    def ring(self) -> int:
        """Slots that newest cuts take; those of the aggregate and of the constant come after them."""
        return self.size if self.model in ("cutting_plane", "polyak_cutting_plane") else 1

    @property
    def slots(self) -> int:
        """Cuts per worker at most."""
        return self.ring + (self.model in ("two_cut", "average") or self.has_floor)

    @property
    def flat(self) -> np.ndarray:
        """The cuts' gradients as rows, ``(n * slots, d)``: a view."""
        return self.cuts.reshape(-1, self.d)

    def put(self, i: int, anchor: np.ndarray, f: float, g: np.ndarray) -> None:
        """The newest cut of worker i, exact at its new anchor."""
        v = float(g @ anchor) - f
        if self.newest[i] >= 0 and self.model in ("two_cut", "average"):
            self._aggregate(i)
        slot = self._slot_for_new(i)
        if not self.used[i, : self.ring].any():
            self.weights[i, slot] = 1.0 - self.weights[i].sum()
        self._set(i, slot, g, v)
        self.newest[i] = slot
        self.anchors[i] = anchor
        self.stale_anchors[i] = True

    def _slot_for_new(self, i: int) -> int:
        """A free slot of worker i, or the one that is evicted; its weight passes to the new cut."""
        free = np.flatnonzero(~self.used[i, : self.ring])
        if free.size:
            return int(free[0])
        newest, born, weights = int(self.newest[i]), self.born[i, : self.ring], self.weights[i, : self.ring]
        candidates = np.flatnonzero(np.arange(self.ring) != newest) if self.ring > 1 else np.array([0])
        if self.eviction == "least_active":
            # Most weights are exactly zero: among equals the oldest goes, or young cuts would be churned.
            candidates = candidates[weights[candidates] == weights[candidates].min()]
        return int(candidates[np.argmin(born[candidates])])

    def _set(self, i: int, slot: int, g: np.ndarray, v: float) -> None:
        self.cuts[i, slot], self.offsets[i, slot], self.used[i, slot] = g, v, True
        self.born[i, slot] = self.born[i].max() + 1
        self.stale_cuts[i * self.slots + slot] = True

    def _aggregate(self, i: int) -> None:
        if self.model == "two_cut":
            lam = self.weights[i]
            g, v = lam @ self.cuts[i], float(lam @ self.offsets[i])
            self.weights[i] = (0.0, 1.0)
        elif self.used[i, 1]:
            g = 0.5 * (self.cuts[i, 1] + self.cuts[i, 0])
            v = 0.5 * float(self.offsets[i, 1] + self.offsets[i, 0])
        else:
            g, v = self.cuts[i, 0].copy(), float(self.offsets[i, 0])
        self._set(i, 1, g, v)

    def refresh(self) -> None:
        """Bring the products up to date: one pass over the cuts for a fresh cut and its anchor."""
        cuts, anchors = np.flatnonzero(self.stale_cuts), np.flatnonzero(self.stale_anchors)
        if not cuts.size and not anchors.size:
            return
        fresh_cuts, flat = [self.flat[k] for k in cuts], self.flat
        products = _products(flat, fresh_cuts + [self.anchors[i] for i in anchors])
        if cuts.size:
            k = cuts.size
            # Two fresh cuts meet twice, summed in two orders: the Gram matrix is to be symmetric to the bit.
            products[cuts, :k] = 0.5 * (products[cuts, :k] + products[cuts, :k].T)
            self.gram[:, cuts] = products[:, :k]
            self.gram[cuts, :] = products[:, :k].T
            self.cross[cuts, :] = _products(self.anchors, fresh_cuts).T
        if anchors.size:
            self.cross[:, anchors] = products[:, cuts.size :]
        self.stale_cuts[:] = False
        self.stale_anchors[:] = False

    def active(self) -> np.ndarray:
        """Flat indices of the cuts in use, worker after worker."""
        return np.flatnonzero(self.used.ravel())

    def sizes(self) -> np.ndarray:
        """Cuts in use of each worker."""
        return self.used.sum(axis=1)

    def value(self, i: int, x: np.ndarray) -> float:
        """Model value of worker i at x."""
        used = self.used[i]
        return float(np.max(self.cuts[i] @ x - self.offsets[i], where=used, initial=-np.inf))

    def values(self, x: np.ndarray) -> np.ndarray:
        """Model value of each worker at x, ``(n,)``."""
        return np.where(self.used, self.cuts @ x - self.offsets, -np.inf).max(axis=1)


def _products(rows: np.ndarray, vectors: list[np.ndarray]) -> np.ndarray:
    """Inner products of all rows with a few vectors, ``(rows, vectors)``.

    The few vectors come first in the product: the other way round BLAS packs all rows before it multiplies,
    measured three times slower for two vectors.
    """
    if not vectors:
        return np.zeros((rows.shape[0], 0))
    return (np.stack(vectors) @ rows.T).T
