r"""Parameters of the optimal non-smooth method: chi of the network, step sizes, and K and T for an accuracy.

The complexities are those of D. Kovalev, E. Borodich, A. Gasnikov, D. Feoktistov, NeurIPS 2024; the constants
are derived for this toolkit (see `solvers.decentralized.nonsmooth`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from optikit.gossip import chebyshev_contraction, static_symmetric
from optikit.validation import check_choice, check_real

#: chi comes from a finite set of rounds and from floating-point spectra; a chi too small diverges late.
CHI_SAFETY = 1.01


def gossip_chi(topology: Any, gossip_steps: int = 1, chebyshev: bool = False) -> float:
    """chi of the operator that one iteration applies: the worst over the sequence's windows, times 1.01."""
    if chebyshev:
        contraction = chebyshev_contraction(static_symmetric(topology).lam(), gossip_steps)
        if contraction >= 1.0:
            raise ValueError("the network must be connected for Chebyshev gossip, got lambda = 1.")
        return max(1.0, CHI_SAFETY / (1.0 - contraction**2))
    # Iteration k uses the rounds k B .. k B + B - 1: only windows that start there matter.
    count = 100 if topology.period is None else math.lcm(topology.period, gossip_steps) // gossip_steps
    chi = topology.chi(gossip_steps, starts=range(0, count * gossip_steps, gossip_steps))
    if math.isfinite(chi):
        return max(1.0, CHI_SAFETY * chi)
    starts = range(topology.period or 100)
    broken = [q for q in starts if not math.isfinite(topology.matrix(q).chi())]
    raise ValueError(
        f"the network must be connected in every window of gossip_steps={gossip_steps} round(s), got "
        f"disconnected rounds {broken[:10]}; use gossip_steps=B with B the length of a connected window."
    )


@dataclass(frozen=True)
class Schedule:
    """Step sizes of the main method for given r, chi and T."""

    r_x: float
    r_yz: float
    primal: float  # e, the factor of r_x A in 1/eta
    tau_y: float
    tau_z: float
    gamma: float


def schedule(
    r: float, chi: float, inner_steps: int, r_x: float | None = None, theta_z_scale: float = 1.0
) -> Schedule:
    r"""Constants of the main method.

    .. math::

        c_T = \frac{(T+1)(T+2)}{T(T+3)}, \quad e = \frac{2/c_T - 1}{3}, \quad
        \tau_y = \min(e r_x/2, r_{yz}/8), \quad \tau_z = \frac{r_{yz}}{20 \chi^2}, \quad \gamma = r_{yz}/2 .
    """
    T = inner_steps
    r_x = r / 2 if r_x is None else r_x
    r_yz = r - r_x
    c_T = (T + 1) * (T + 2) / (T * (T + 3))
    e = (2 / c_T - 1) / 3
    return Schedule(r_x, r_yz, e, min(e * r_x / 2, r_yz / 8), theta_z_scale * r_yz / (20 * chi**2), r_yz / 2)


def auto_params(chi: float, M: float, r: float, eps: float, preset: str = "theory") -> tuple[int | None, int]:
    r"""Iterations K and inner steps T for a target ``p(x) - p* <= eps``, r > 0.

    "theory": :math:`K = \lceil 15.6 \chi M / \sqrt{r\epsilon} \rceil`,
    :math:`T = \max(3, \lceil 960 M^2 / (r \epsilon (K+1)) \rceil - 3)`, guaranteed and about ten times
    more than needed. "practical": K is None (run until the certificate meets eps) and
    :math:`T = \max(3, \lceil 6M / (\chi \sqrt{r\epsilon}) \rceil)`.
    """
    chi = check_real(chi, "chi", minimum=1.0)
    M = check_real(M, "M", minimum=0.0, open_low=True)
    r = check_real(r, "r", minimum=0.0, open_low=True)
    eps = check_real(eps, "eps", minimum=0.0, open_low=True)
    check_choice(preset, "preset", ("theory", "practical"))
    root = math.sqrt(r * eps)
    if preset == "practical":
        return None, max(3, math.ceil(6 * M / (chi * root)))
    K = math.ceil(15.6 * chi * M / root)
    return K, max(3, math.ceil(960 * M**2 / (r * eps * (K + 1))) - 3)


def convex_mode(eps: float, R: float, M: float) -> float:
    """The r for merely convex problems: ``eps / R^2``; aim the run at eps/2, then ``f(x) - f* <= eps``.

    Parameters
    ----------
    eps : float
        Target on ``f(x) - f*``, > 0.
    R : float
        Bound on the norm of a minimiser, > 0.
    M : float
        Lipschitz constant, > 0; r below ``1e-12 M / R`` is refused, since 1/r amplifies rounding.
    """
    eps = check_real(eps, "eps", minimum=0.0, open_low=True)
    R = check_real(R, "R", minimum=0.0, open_low=True)
    M = check_real(M, "M", minimum=0.0, open_low=True)
    r = eps / R**2
    if r < 1e-12 * M / R:
        raise ValueError(f"eps must be at least 1e-12 M R = {1e-12 * M * R:g}, got {eps!r}.")
    return r


@dataclass(frozen=True)
class GossipPlan:
    """Rounds B of one iteration, and whether they are accelerated."""

    steps: int
    chebyshev: bool = False


def best_gossip(topology: Any) -> GossipPlan:
    """The rounds per iteration that need the fewest rounds in all.

    K iterations take B K rounds, and K is proportional to chi of the B-round operator: B chi decides.
    Candidates are one round; one period, which wins where single rounds are not connected and for finite-time
    sequences (their product has chi = 1); and Chebyshev polynomials on static symmetric networks.

    Raises
    ------
    ValueError
        For aperiodic sequences with disconnected rounds: only the user knows the length of their windows.
    """
    period = topology.period
    single = topology.chi()
    if period is None and not math.isfinite(single):
        raise ValueError(
            "the sequence has disconnected rounds and no period: pass gossip_steps=B, the length of a window "
            "whose union is connected."
        )
    if period is None:
        return GossipPlan(1)
    if period > 1:
        return GossipPlan(1 if single <= period * topology.chi(period, starts=(0,)) else int(period))
    matrix = topology.matrix(0)
    if not matrix.is_symmetric or not math.isfinite(single):
        return GossipPlan(1)
    # chi falls like m^-2 until it is near 1, so m chi has one minimum, at about sqrt(chi) rounds.
    lam, best, rounds = matrix.lam(), single, 1
    for m in range(2, 2 + math.ceil(2.0 * math.sqrt(single))):
        cost = m / (1.0 - chebyshev_contraction(lam, m) ** 2)
        if cost < best:
            best, rounds = cost, m
    return GossipPlan(rounds, chebyshev=rounds > 1)


def chosen_gossip(topology: Any, steps: int | None, chebyshev: bool | None) -> GossipPlan:
    """What the user chose; `best_gossip` where they left everything open."""
    if steps is None and not chebyshev:
        best = best_gossip(topology)
        return best if chebyshev is None or not best.chebyshev else GossipPlan(1)
    if steps is None:
        best = best_gossip(topology)
        return GossipPlan(best.steps, chebyshev=True)
    return GossipPlan(steps, bool(chebyshev))
