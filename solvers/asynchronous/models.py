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

MODELS = ("latest", "cutting_plane", "two_cut", "polyak", "polyak_cutting_plane", "average")


@dataclass
class Bundle:
    """Cuts of all workers in slots, with the products that the master needs kept up to date.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    n, d : int
        Workers and dimension.
    size : int
        Cuts m of the cutting-plane models.
    f_low : array (n,) or None
        Lower bounds on the f_i, for the polyak models.
    eviction : {"fifo", "least_active"}, default "fifo"
        Which cut of a full worker goes: the oldest, or the one with the smallest weight; never the newest.

    Attributes
    ----------
    cuts : array (n, slots, d)
    offsets : array (n, slots)
        v_ij, so that a cut reads ``g'x - v``.
    used : boolean array (n, slots)
    newest : array (n,)
        Slot of each worker's newest cut, -1 before the first.
    weights : array (n, slots)
        Dual weights of the last master, each row summing to one; an evicted cut's pass to the new one.
    anchors : array (n, d)
    gram : array (n * slots, n * slots)
        Inner products of all cuts: only fresh rows are recomputed, so nothing drifts.
    cross : array (n * slots, n)
        Inner products of cuts and anchors.
    stale_cuts, stale_anchors : boolean arrays
        What changed since the products were brought up to date.
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
    newest: np.ndarray = replicated(default=None)
    weights: np.ndarray = replicated(default=None)
    anchors: np.ndarray = replicated(default=None)
    gram: np.ndarray = replicated(default=None)
    cross: np.ndarray = replicated(default=None)
    stale_cuts: np.ndarray = replicated(default=None)
    stale_anchors: np.ndarray = replicated(default=None)

    def __post_init__(self) -> None:
        n, d, slots = self.n, self.d, self.slots
        if self.cuts is not None:  # restored from a checkpoint
            return
        self.cuts = np.zeros((n, slots, d))
        self.offsets = np.zeros((n, slots))
        self.used = np.zeros((n, slots), dtype=bool)
        self.newest = np.full(n, -1)
        self.weights = np.zeros((n, slots))
        self.anchors = np.zeros((n, d))
        self.gram = np.zeros((n * slots, n * slots))
        self.cross = np.zeros((n * slots, n))
        self.stale_cuts = np.zeros(n * slots, dtype=bool)
        self.stale_anchors = np.zeros(n, dtype=bool)
        if self.has_floor:
            assert self.f_low is not None
            self.offsets[:, -1] = -self.f_low
            self.used[:, -1] = True

    @property
    def has_floor(self) -> bool:
        """Whether the last slot holds the constant f_low."""
        return self.model in ("polyak", "polyak_cutting_plane")

    @property
    def ring(self) -> int:
        """Slots that newest cuts go around in."""
        return self.size if self.model in ("cutting_plane", "polyak_cutting_plane") else 1

    @property
    def slots(self) -> int:
        """Cuts per worker at most."""
        return self.ring + (self.model in ("two_cut", "average") or self.has_floor)

    def put(self, i: int, anchor: np.ndarray, f: float, g: np.ndarray) -> None:
        """The newest cut of worker i, exact at its new anchor."""
        v = float(g @ anchor) - f
        if self.newest[i] >= 0 and self.model in ("two_cut", "average"):
            self._aggregate(i)
        slot = self._slot_for_new(i)
        if not self.used[i].any() or not self.used[i, : self.ring].any():
            self.weights[i, slot] = 1.0 - self.weights[i].sum()
        self._set(i, slot, g, v)
        self.newest[i] = slot
        self.anchors[i] = anchor
        self.stale_anchors[i] = True

    def _slot_for_new(self, i: int) -> int:
        """The next free slot of worker i, or the one that is evicted."""
        ring, newest = self.ring, int(self.newest[i])
        if self.eviction == "fifo" or ring == 1 or not self.used[i, :ring].all():
            return (newest + 1) % ring
        candidates = self.weights[i, :ring].copy()
        candidates[newest] = np.inf
        return int(np.argmin(candidates))

    def _set(self, i: int, slot: int, g: np.ndarray, v: float) -> None:
        self.cuts[i, slot], self.offsets[i, slot], self.used[i, slot] = g, v, True
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
        """Bring the products up to date: one pass over the cuts for all fresh cuts and anchors."""
        cuts, anchors = np.flatnonzero(self.stale_cuts), np.flatnonzero(self.stale_anchors)
        if not cuts.size and not anchors.size:
            return
        flat = self.cuts.reshape(-1, self.d)
        products = flat @ np.concatenate([flat[cuts], self.anchors[anchors]]).T
        if cuts.size:
            self.gram[:, cuts] = products[:, : cuts.size]
            self.gram[cuts, :] = products[:, : cuts.size].T
            self.cross[cuts, :] = flat[cuts] @ self.anchors.T
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

    def values(self, x: np.ndarray) -> np.ndarray:
        """Model value of each worker at x, ``(n,)``."""
        return np.where(self.used, self.cuts @ x - self.offsets, -np.inf).max(axis=1)
