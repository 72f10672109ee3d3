r"""One round of Byzantine-robust gossip (F-RG), and what is certain about it.

.. math:: x_i^+ = x_i - \eta\, F_i\bigl( (x_i - x_j)_{j \sim i}; w, b \bigr)

With the Laplacian :math:`L_H` of the honest graph, :math:`\mu_{\min}, \mu_{\max}` its second and its largest
eigenvalue, :math:`\gamma = \mu_{\min}/\mu_{\max}`, a (b, rho)-robust sum F, :math:`\eta = 1/\mu_{\max}` and
:math:`\delta = 2 \rho b / \mu_{\min} < 1`, whatever the Byzantine agents send,

.. math::

    \sum_i \|x_i^+ - \bar x\|^2 &\le (1 - \gamma (1 - \delta)) \sum_i \|x_i - \bar x\|^2 \\
    |H|\, \|\bar x^+ - \bar x\|^2 &\le \gamma \delta \sum_i \|x_i - \bar x\|^2 .

So CS+ (rho = 2) stands b < mu_min / 4 and GTS (rho = 4) b < mu_min / 8; no rule stands b >= mu_min / 2.
Reference: R. Gaucher, A. Dieuleveut, H. Hendrikx, *Unified breakdown analysis for Byzantine robust gossip*,
ICML 2025 (arXiv 2410.10418); the inequality was derived again for this project.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from optikit.arrays import array_namespace
from optikit.mixing import MixingMatrix
from optikit.mixing.spectra import DENSE_LIMIT, laplacian_extremes
from optikit.validation import check_choice, check_integer, check_real
from solvers.decentralized import attacks
from solvers.decentralized.robust_rules import RULES, Links, check_bound, edge_sums, robust_sums

#: Boundary cases count as beyond the boundary: the eigenvalues they rest on are rounded.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Breakdown:
    """What theory guarantees for a rule on an honest graph.

    Attributes
    ----------
    mu_min, mu_max, gamma : float
        Second and largest eigenvalue of the honest Laplacian, and their ratio.
    b : float
        Byzantine weight that an honest agent may hear.
    rho : float or None
        Constant of the rule; None where no finite one is known.
    """

    mu_min: float
    mu_max: float
    b: float
    rho: float | None

    @property
    def gamma(self) -> float:
        return self.mu_min / self.mu_max

    @property
    def delta(self) -> float:
        """``2 rho b / mu_min``; the guarantee holds below 1. Infinite without a known rho (unless b = 0)."""
        if self.b == 0:
            return 0.0
        return math.inf if self.rho is None else 2 * self.rho * self.b / self.mu_min

    @property
    def guaranteed(self) -> bool:
        """Whether consensus is reached under any attack."""
        return self.delta < 1 - ROUNDING

    @property
    def hopeless(self) -> bool:
        """Whether no rule whatever can stand this b in general: b >= mu_min / 2."""
        return self.b >= self.mu_min / 2 * (1 - ROUNDING)

    @property
    def contraction(self) -> float:
        """Bound on the factor of the squared distances to the old mean, per round; >= 1: no guarantee."""
        return 1 - self.gamma * (1 - self.delta)

    @property
    def drift(self) -> float:
        """Bound on n times the squared move of the mean, per squared distance to it."""
        return self.gamma * self.delta

    @property
    def tolerated(self) -> float | None:
        """The guarantee holds for b below this: ``mu_min / (2 rho)``."""
        return None if self.rho is None else self.mu_min / (2 * self.rho)

    def as_dict(self) -> dict[str, Any]:
        """All of it by name."""
        names = ("mu_min", "mu_max", "gamma", "b", "rho", "delta", "guaranteed", "hopeless")
        return {name: getattr(self, name) for name in (*names, "contraction", "drift", "tolerated")}


def breakdown(matrix: MixingMatrix, rule: str, b: float) -> Breakdown:
    """Guarantee of `rule` on the honest graph of `matrix` (see `honest_weights`), Byzantine weight b."""
    check_choice(rule, "rule", RULES)
    b = check_real(b, "b", minimum=0.0)
    low, high = laplacian_extremes(honest_laplacian(matrix)) if matrix.n > 1 else (1.0, 1.0)
    return Breakdown(low, high, b, RULES[rule])


def honest_weights(matrix: MixingMatrix) -> sp.csr_array:
    """Weights w of the honest graph: off-diagonal entries of kind mixing, their negatives of kind gossip.

    A graph's own Laplacian, ``from_matrix(graph.laplacian(), "gossip")``, has unit weights.

    Raises
    ------
    ValueError
        If the weights are negative or not symmetric, or the graph is not connected.
    """
    if matrix.kind not in ("mixing", "gossip"):
        raise ValueError(f"robust gossip needs a network of kind 'mixing' or 'gossip', got {matrix.kind!r}.")
    if not matrix.is_symmetric:
        raise ValueError("robust gossip needs symmetric weights: its matrix is not symmetric.")
    entries = matrix.csr.tocoo()
    off = entries.row != entries.col
    data = entries.data[off] * (-1.0 if matrix.kind == "gossip" else 1.0)
    if data.size and data.min() < 0:
        raise ValueError(f"robust gossip needs weights >= 0, got {float(data.min())!r}.")
    if not matrix.graph().is_connected:
        raise ValueError("robust gossip needs a connected honest graph.")
    return sp.csr_array(sp.coo_array((data, (entries.row[off], entries.col[off])), shape=matrix.csr.shape))


def honest_laplacian(matrix: MixingMatrix) -> sp.csr_array:
    """Laplacian of the honest graph with the weights of `honest_weights`."""
    w = honest_weights(matrix)
    return sp.csr_array(sp.diags_array(np.asarray(w.sum(axis=1)).ravel()) - w)


def fiedler_vector(laplacian: sp.csr_array) -> np.ndarray:
    """Unit eigenvector (n,) of the second smallest eigenvalue; its largest entry is positive."""
    if laplacian.shape[0] <= DENSE_LIMIT:
        vector = np.linalg.eigh(laplacian.toarray())[1][:, 1]
    else:
        import scipy.sparse.linalg as sla

        start = np.random.default_rng(0).standard_normal(laplacian.shape[0])
        shift = -1e-7 * float(laplacian.diagonal().max())
        vector = sla.eigsh(laplacian.tocsc(), k=2, sigma=shift, which="LM", v0=start)[1][:, 1]
    return vector * np.sign(vector[np.argmax(np.abs(vector))])


class RobustRound:
    """F-RG on a network of honest agents, each of which may also hear simulated Byzantine neighbours.

    Parameters
    ----------
    network : Network
        Honest agents, static, symmetric, of kind mixing or gossip; see `honest_weights`.
    rule : str, default "cs+"
        Robust sum, one of `robust_rules.RULES`.
    b : float, default 0
        Bound on the Byzantine weight that an agent hears, at most half of what it hears in all.
    step_size : float, optional
        The step eta, > 0; by default ``1 / mu_max``.
    attack : str, optional
        One of `attacks.ATTACKS`: every agent hears Byzantine neighbours of total weight b besides. Without
        one, the bound concerns the network's own agents.
    byzantine : int, optional
        How many Byzantine neighbours share the weight b; by default b rounded up.

    Raises
    ------
    ValueError
        If the network is not static, not symmetric or not connected, or b is out of range.
    """

    def __init__(
        self,
        network: Any,
        rule: str = "cs+",
        b: float = 0.0,
        *,
        step_size: float | None = None,
        attack: str | None = None,
        byzantine: int | None = None,
    ) -> None:
        if network.topology is None or network.topology.period != 1:
            raise ValueError("robust gossip needs a static network, got a time-varying one or none.")
        check_choice(attack, "attack", (None, *attacks.ATTACKS))
        matrix = network.topology.matrix(0)
        self.breakdown = breakdown(matrix, rule, b)
        self.rule, self.b, self.attack, self.agents = rule, self.breakdown.b, attack, network.agents
        self.step_size = 1 / self.breakdown.mu_max if step_size is None else step_size
        check_real(self.step_size, "step_size", minimum=0.0, open_low=True)
        self._matrix = matrix
        self._honest, self._itself = _honest_links(matrix, network.agents)
        liars = 0
        if attack is not None and self.b > 0:
            liars = math.ceil(self.b) if byzantine is None else byzantine
            check_integer(liars, "byzantine", minimum=1)
        self._liars = liars
        totals = self._honest.totals + (self.b if liars else 0.0)
        check_bound(self.b, totals, self.agents)
        self._placed: tuple[Links, Links] | None = None

    def apply(self, network: Any, X: Any) -> Any:
        """X after one round; X is (n_local, d). One `pull` of the network."""
        pulled = network.pull(X)
        honest, heard = self._links(pulled)
        if not self._liars:
            return X - self.step_size * robust_sums(X, pulled.rows, heard, self.b, self.rule)
        xp = array_namespace(X)

        def robust(sent: Any) -> Any:
            return robust_sums(X, xp.concat((pulled.rows, sent), axis=0), heard, self.b, self.rule)

        assert self.attack is not None
        target = edge_sums(X, pulled.rows, honest, honest.weights)
        alone = self.attack in ("dissensus", "sign_flip")  # these need no knowledge of the others
        everyone = X if alone else network.allgather(X)
        fiedler = self._fiedler if self.attack == "spectral" else np.zeros(0)
        view = attacks.HonestView(X, everyone, target, self.agents, fiedler)
        return X - self.step_size * robust(attacks.messages(self.attack, view, robust))

    @cached_property
    def _fiedler(self) -> np.ndarray:
        return fiedler_vector(honest_laplacian(self._matrix))

    def _links(self, pulled: Any) -> tuple[Links, Links]:
        """Honest links, and those with the Byzantine neighbours after them, who share one row per agent.

        Columns are places in what was pulled, the same in every round of a static network.
        """
        if self._placed is None:
            cols = np.ascontiguousarray(pulled.cols[~self._itself], dtype=np.int64)
            honest = heard = replace(self._honest, cols=cols)
            m, f = self.agents.size, self._liars
            if f:
                ends = np.repeat(honest.indptr[1:], f)
                liars = np.repeat(pulled.rows.shape[0] + np.arange(m), f)
                heard = Links(
                    honest.indptr + f * np.arange(m + 1),
                    np.insert(honest.cols, ends, liars),
                    np.insert(honest.weights, ends, self.b / f),
                    honest.self_weights,
                )
            self._placed = honest, heard
        return self._placed


def _honest_links(matrix: MixingMatrix, agents: np.ndarray) -> tuple[Links, np.ndarray]:
    """Links of the agents here with global columns, and which entries of their matrix rows are their own."""
    rows = matrix.csr[agents]
    receivers = np.repeat(np.arange(agents.size), np.diff(rows.indptr))
    itself = rows.indices == agents[receivers]
    counts = np.bincount(receivers[~itself], minlength=agents.size)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    weights = np.abs(rows.data[~itself])
    if matrix.kind == "mixing":
        own = matrix.csr.diagonal()[agents]
    else:
        own = np.bincount(receivers[~itself], weights, minlength=agents.size) / np.maximum(counts, 1)
    return Links(indptr, rows.indices[~itself].astype(np.int64), weights, np.maximum(own, 1e-300)), itself
