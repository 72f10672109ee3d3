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

import numpy as np

MODELS = ("latest", "cutting_plane", "two_cut", "polyak", "polyak_cutting_plane", "average")


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

    Attributes
    ----------
    cuts : array (n, slots, d)
    offsets : array (n, slots)
        v_ij, so that a cut reads ``g'x - v``.
    used : boolean array (n, slots)
    gram : array (n * slots, n * slots)
        Inner products of all cuts: only fresh rows are recomputed, so nothing drifts.
    cross : array (n * slots, n)
        Inner products of cuts and anchors.
    """

    def __init__(self, model: str, n: int, d: int, size: int, f_low: np.ndarray | None) -> None:
        self.model, self.n, self.d = model, n, d
        extra = {"latest": 1, "two_cut": 2, "polyak": 2, "average": 2}
        self.ring = size if model in ("cutting_plane", "polyak_cutting_plane") else 1
        self.slots = extra.get(model, size + (model == "polyak_cutting_plane"))
        self.cuts = np.zeros((n, self.slots, d))
        self.offsets = np.zeros((n, self.slots))
        self.used = np.zeros((n, self.slots), dtype=bool)
        self.newest = np.full(n, -1)
        self.weights = np.zeros((n, self.slots))
        self.anchors = np.zeros((n, d))
        self.gram = np.zeros((n * self.slots, n * self.slots))
        self.cross = np.zeros((n * self.slots, n))
        self._stale_cuts: set[int] = set()
        self._stale_anchors: set[int] = set()
        if model in ("polyak", "polyak_cutting_plane"):
            assert f_low is not None
            self.offsets[:, -1] = -f_low
            self.used[:, -1] = True

    def put(self, i: int, anchor: np.ndarray, f: float, g: np.ndarray) -> None:
        """The newest cut of worker i, exact at its new anchor."""
        v = float(g @ anchor) - f
        if self.newest[i] >= 0 and self.model in ("two_cut", "average"):
            self._aggregate(i)
        slot = (self.newest[i] + 1) % self.ring
        if not self.used[i].any() or not self.used[i, : self.ring].any():
            self.weights[i, slot] = 1.0 - self.weights[i].sum()
        self._set(i, slot, g, v)
        self.newest[i] = slot
        self.anchors[i] = anchor
        self._stale_anchors.add(i)

    def _set(self, i: int, slot: int, g: np.ndarray, v: float) -> None:
        self.cuts[i, slot], self.offsets[i, slot], self.used[i, slot] = g, v, True
        self._stale_cuts.add(i * self.slots + slot)

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
        cuts, anchors = sorted(self._stale_cuts), sorted(self._stale_anchors)
        if not cuts and not anchors:
            return
        flat = self.cuts.reshape(-1, self.d)
        products = flat @ np.concatenate([flat[cuts], self.anchors[anchors]]).T
        if cuts:
            self.gram[:, cuts] = products[:, : len(cuts)]
            self.gram[cuts, :] = products[:, : len(cuts)].T
            self.cross[cuts, :] = flat[cuts] @ self.anchors.T
        if anchors:
            self.cross[:, anchors] = products[:, len(cuts) :]
        self._stale_cuts.clear()
        self._stale_anchors.clear()

    def active(self) -> np.ndarray:
        """Flat indices of the cuts in use, worker after worker."""
        return np.flatnonzero(self.used.ravel())

    def sizes(self) -> np.ndarray:
        """Cuts in use of each worker."""
        return self.used.sum(axis=1)

    def values(self, x: np.ndarray) -> np.ndarray:
        """Model value of each worker at x, ``(n,)``."""
        return np.where(self.used, self.cuts @ x - self.offsets, -np.inf).max(axis=1)
