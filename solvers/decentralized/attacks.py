r"""Omniscient attacks on robust gossip: what Byzantine neighbours send, for simulations.

Every Byzantine neighbour of the honest agent i sends it :math:`x_i + s\, a_i`. The size s is found by a line
search over 0 and 25 values from 1e-3 to 1e3, evenly spaced in log, that maximises the distance of i's robust
sum from the honest one, :math:`\| F_i - \sum_{j\ \mathrm{honest}} w_{ij} (x_i - x_j) \|`.

======================  =====================================================================================
attack                  direction a_i
======================  =====================================================================================
dissensus               :math:`(L_H x)_i`: away from the neighbours
spectral                :math:`u_i (u^T x)`, u the Fiedler vector: along the slowest mode of the graph
alie                    coordinate-wise standard deviation over the honest agents ("a little is enough")
foe                     mean over the honest agents ("fall of empires")
sign_flip               :math:`-x_i`
mimic                   :math:`x_m - x_i` with s = 1: all copy the honest agent m farthest from the mean
======================  =====================================================================================

References: R. Gaucher, A. Dieuleveut, H. Hendrikx, *Unified breakdown analysis for Byzantine robust gossip*,
ICML 2025 (spectral); L. He, S. P. Karimireddy, M. Jaggi 2022 (dissensus); G. Baruch, M. Baruch, Y. Goldberg
2019 (alie); C. Xie, O. Koyejo, I. Gupta 2020 (foe); S. P. Karimireddy, L. He, M. Jaggi 2022 (mimic).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optikit.arrays import array_namespace, from_numpy

ATTACKS = ("dissensus", "spectral", "alie", "foe", "sign_flip", "mimic")
#: Sizes s of the line search.
SIZES = (0.0, *(float(s) for s in np.logspace(-3, 3, 25)))


@dataclass(frozen=True)
class HonestView:
    """What the attackers know.

    Attributes
    ----------
    own : array, shape (m, d)
        Vectors of the honest agents of this rank.
    everyone : array, shape (n, d)
        Vectors of all honest agents.
    target : array, shape (m, d)
        Honest sums ``sum_j w_ij (x_i - x_j) = (L_H x)_i`` of the agents of this rank.
    agents : numpy.ndarray of int64, shape (m,)
        Their global numbers.
    fiedler : numpy.ndarray, shape (n,)
        Eigenvector of the second smallest eigenvalue of the honest Laplacian.
    """

    own: Any
    everyone: Any
    target: Any
    agents: np.ndarray
    fiedler: np.ndarray


def direction(attack: str, view: HonestView) -> Any:
    """The direction a (m, d) of an attack of `ATTACKS`."""
    xp = array_namespace(view.own)
    if attack == "dissensus":
        return view.target
    if attack == "sign_flip":
        return -view.own
    if attack == "spectral":
        u = xp.astype(from_numpy(view.fiedler, xp), view.own.dtype)
        mine = xp.take(u, from_numpy(view.agents, xp), axis=0)
        return mine[:, None] * (u @ view.everyone)[None, :]
    mean = xp.mean(view.everyone, axis=0)
    if attack == "foe":
        return xp.broadcast_to(mean, view.own.shape)
    if attack == "alie":
        return xp.broadcast_to(xp.std(view.everyone, axis=0), view.own.shape)
    if attack == "mimic":
        farthest = int(xp.argmax(xp.sum((view.everyone - mean) ** 2, axis=1)))
        return view.everyone[farthest, :][None, :] - view.own
    raise ValueError(f"attack must be one of {', '.join(map(repr, ATTACKS))}, got {attack!r}.")


def messages(attack: str, view: HonestView, robust: Callable[[Any], Any]) -> Any:
    """What the Byzantine neighbours of each agent send it, (m, d).

    Parameters
    ----------
    attack : str
    view : HonestView
    robust : callable
        ``robust(messages) -> F``, the robust sums (m, d) that these messages lead to.
    """
    xp = array_namespace(view.own)
    a = direction(attack, view)
    if attack == "mimic":
        return view.own + a
    best = xp.full(view.own.shape[:1], -1.0, dtype=view.own.dtype)
    chosen = view.own
    for size in SIZES:
        sent = view.own + size * a
        harm = xp.sum((robust(sent) - view.target) ** 2, axis=1)
        better = harm > best
        best = xp.where(better, harm, best)
        chosen = xp.where(better[:, None], sent, chosen)
    return chosen
