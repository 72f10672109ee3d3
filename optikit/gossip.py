r"""Several communication rounds as one operator: windows, Chebyshev acceleration, sums without a server.

With :math:`\lambda` the contraction of one round, m rounds contract by :math:`\lambda^m` when plain and by
:math:`1/T_m(1/\lambda)` with the Chebyshev polynomial :math:`T_m` (static symmetric mixing matrices only),
so a disagreement :math:`\delta` takes :math:`m \approx \ln(2/\delta) / \sqrt{2 (1 - \lambda)}` rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from optikit.arrays import array_namespace
from optikit.validation import check_integer, check_real


def mix_rounds(network: Any, *arrays: Any, rounds: int) -> Any:
    """Apply the next `rounds` mixing matrices, newest on the left."""
    check_integer(rounds, "rounds", minimum=0)
    results = arrays
    for _ in range(rounds):
        mixed = network.mix(*results)
        results = mixed if len(arrays) > 1 else (mixed,)
    return results if len(arrays) > 1 else results[0]


def window_gossip(network: Any, *arrays: Any, rounds: int) -> Any:
    """``X - prod_q (I - G(q)) X`` over the next `rounds` rounds; one round is the network's own gossip."""
    if check_integer(rounds, "rounds", minimum=1) == 1:
        return network.gossip(*arrays)
    rest = arrays
    for _ in range(rounds):
        moved = network.gossip(*rest)
        rest = tuple(x - g for x, g in zip(rest, moved if len(arrays) > 1 else (moved,)))
    results = tuple(x - y for x, y in zip(arrays, rest))
    return results if len(arrays) > 1 else results[0]


def chebyshev_contraction(lam: float, rounds: int) -> float:
    r""":math:`1/T_m(1/\lambda)`, the contraction of m Chebyshev rounds when \|eigenvalues\| <= lam."""
    if lam == 0.0:
        return 0.0 if rounds else 1.0
    if lam >= 1.0:
        return 1.0
    return 1.0 / math.cosh(min(rounds * math.acosh(1.0 / lam), 700.0))


def chebyshev_mix(network: Any, X: Any, *, rounds: int, lam: float | None = None) -> Any:
    r"""Chebyshev-accelerated averaging: m rounds that keep the mean and contract by 1/T_m(1/lambda).

    .. math::

        x_{j+1} = (\tfrac2\lambda t_j W x_j - t_{j-1} x_{j-1}) / t_{j+1}, \qquad
        t_{j+1} = \tfrac2\lambda t_j - t_{j-1}, \quad t_0 = 1,\; t_1 = 1/\lambda .

    Parameters
    ----------
    network : Network
        With a static symmetric matrix of kind mixing, or gossip (then W is ``I - G``).
    X : array, shape (n_local, ...)
    rounds : int
        m >= 0.
    lam : float, optional
        Bound in [0, 1) on the non-unit eigenvalues' modulus; computed once by default. Too small a bound
        lets eigenvalues outside it grow.

    Raises
    ------
    ValueError
        For a time-varying, non-symmetric or disconnected matrix.
    """
    check_integer(rounds, "rounds", minimum=0)
    matrix = static_symmetric(network.topology)
    lam = matrix.lam() if lam is None else check_real(lam, "lam", minimum=0.0, maximum=1.0, open_high=True)
    if lam >= 1.0:
        raise ValueError("Chebyshev gossip needs a connected network: lambda of this one is 1.")
    if rounds == 0:
        return X
    mix = network.mix if matrix.kind == "mixing" else (lambda Y: Y - network.gossip(Y))
    previous, current = X, mix(X)
    if lam == 0.0:  # one round averages exactly
        for _ in range(rounds - 1):
            current = mix(current)
        return current
    # The ratio t_{j-1} / t_j stays below 1, where the t_j themselves would overflow.
    ratio = lam
    for _ in range(rounds - 1):
        following = 1.0 / (2.0 / lam - ratio)
        factor = 2.0 / lam * following
        previous, current = current, factor * mix(current) - (ratio * following) * previous
        ratio = following
    return current


def chebyshev_gossip(network: Any, *arrays: Any, rounds: int, lam: float | None = None) -> Any:
    """``X - p_m(W) X``, the polynomial of `chebyshev_mix`; one exchange per round for all arrays (n, d)."""
    xp = array_namespace(arrays[0])
    stacked = xp.concat(arrays, axis=1) if len(arrays) > 1 else arrays[0]
    moved = stacked - chebyshev_mix(network, stacked, rounds=rounds, lam=lam)
    if len(arrays) == 1:
        return moved
    ends = accumulate(array.shape[1] for array in arrays)
    return tuple(moved[:, end - array.shape[1] : end] for array, end in zip(arrays, ends))


def static_symmetric(topology: Any) -> Any:
    """The matrix of a topology that Chebyshev polynomials apply to: static, symmetric, mixing or gossip.

    Raises
    ------
    ValueError
        For any other topology, naming what is wrong.
    """
    if topology is None or topology.period != 1:
        raise ValueError("Chebyshev gossip needs a static network, got a time-varying one or none.")
    matrix = topology.matrix(0)
    if matrix.kind not in ("mixing", "gossip") or not matrix.is_symmetric:
        found = f"kind {matrix.kind!r}" + ("" if matrix.is_symmetric else ", not symmetric")
        raise ValueError(
            f"Chebyshev gossip needs a symmetric matrix of kind 'mixing' or 'gossip', got {found}."
        )
    return matrix


@dataclass(frozen=True)
class GossipSum:
    """Sums over agents as every agent knows them after gossip.

    Attributes
    ----------
    values : array, shape (n_local, ...)
        Row i is agent i's estimate of the sum.
    disagreement : float
        Largest distance (2-norm) of an agent's estimate from the exact sum, measured.
    bound : float
        A priori bound on it: contraction of the rounds times the starting deviation times n.
    rounds : int
        Rounds spent.
    """

    values: Any
    disagreement: float
    bound: float
    rounds: int


def gossip_sum(network: Any, X: Any, *, rounds: int, chebyshev: bool = True) -> GossipSum:
    """Sum over agents without a server: gossip averaging times n, with a certificate of disagreement.

    Parameters
    ----------
    network : Network
    X : array, shape (n_local, ...)
        What each agent contributes; pack several statistics along the last axis.
    rounds : int
        Rounds to spend, >= 0.
    chebyshev : bool, default True
        Accelerate (static symmetric networks); False applies the network's matrices as they come.
    """
    xp = array_namespace(X)
    flat = xp.reshape(X, (X.shape[0], -1))
    first = network.round
    if chebyshev:
        contraction = chebyshev_contraction(static_symmetric(network.topology).lam(), rounds)
        mixed = chebyshev_mix(network, flat, rounds=rounds)
    else:
        window = network.topology.window(first, rounds)
        contraction = _contraction(window)
        mixed = mix_rounds(network, flat, rounds=rounds)
    n = network.n_agents
    exact = network.mean(flat)
    spread = math.sqrt(float(network.sum(xp.sum((flat - exact) ** 2))))
    off = xp.sqrt(xp.sum((mixed - exact) ** 2, axis=1))
    return GossipSum(
        values=n * xp.reshape(mixed, X.shape),
        disagreement=n * float(network.max(off)),
        bound=n * contraction * spread,
        rounds=network.round - first,
    )


def _contraction(window: Any) -> float:
    from optikit.mixing import MixingMatrix

    return MixingMatrix(window, "mixing", validate=False).lam()
