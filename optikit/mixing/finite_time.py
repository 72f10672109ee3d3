r"""Finite-time sequences: sparse rounds whose product over one period is exact averaging.

With :math:`\tau` the period and :math:`J = 11^T/n`, :math:`W^{(\tau-1)} \cdots W^{(0)} = J`; all matrices are
doubly stochastic and non-negative, and no agent talks to more than k others in a round.

=====================  =============================  ======================  ==============================
sequence               n for which it is exact        links                   period
=====================  =============================  ======================  ==============================
1-peer exponential     powers of 2                    directed                :math:`\lceil\log_2 n\rceil`
1-peer hypercube       powers of 2                    undirected              :math:`\log_2 n`
k-peer exponential     divisors of (k+1)^tau          directed                :math:`\lceil\log_{k+1} n\rceil`
null-cascade           any (k >= 2)                   directed, commuting     grows with the primes of n
Base-(k+1)             any                            undirected              <= 2 log_{k+1} n + 2
=====================  =============================  ======================  ==============================

References
----------
B. Ying et al., *Exponential graph is provably efficient for decentralized deep training*, NeurIPS 2021.
Y. Takezawa, R. Sato, H. Bao, K. Niwa, M. Yamada, *Beyond exponential graph*, NeurIPS 2023 (Base-(k+1)).
K. Niwa, Y. Takezawa, G. Zhang, W. Kleijn, *Revisiting 1-peer exponential graph for enhancing decentralized
learning efficiency*, NeurIPS 2025 (k-peer exponential, null-cascade). The null-cascade sequence is
reconstructed from its published description: the order of its matrices may differ from the authors'.
"""

from __future__ import annotations

import warnings
from itertools import combinations

import numpy as np
import scipy.sparse as sp

from optikit.mixing.matrix import MixingMatrix
from optikit.mixing.sequences import Cyclic
from optikit.mixing.weights import circulant
from optikit.validation import check_integer

#: From this prime factor on a null-cascade is much longer than the Base-(k+1) sequence.
_LONG_CASCADE = 61


def one_peer_exponential(n: int) -> Cyclic:
    """``W_j = (I + S^{2^j}) / 2``, the k-peer exponential sequence with one peer; exact iff n = 2^t."""
    return k_peer_exponential(n, 1)


def k_peer_exponential(n: int, k: int) -> Cyclic:
    r"""``W_j = (1/(k+1)) sum_{i<=k} S^{i (k+1)^j}``, ``j < tau = ceil(log_{k+1} n)``.

    Exact iff n divides ``N = (k+1)^tau``; in general one period contracts by `k_peer_contraction`.
    """
    n = check_integer(n, "n", minimum=1)
    k = check_integer(k, "k", minimum=1)
    matrices, stride = [], 1
    while stride < n:
        matrices.append(circulant(n, [(i * stride, 1 / (k + 1)) for i in range(k + 1)]))
        stride *= k + 1
    return Cyclic(matrices or [circulant(1, [(0, 1.0)])])


def k_peer_contraction(n: int, k: int) -> float:
    r"""Contraction of one period, :math:`\max_f |\sin(\pi f N/n) / (N \sin(\pi f/n))|`, f = 1..n-1."""
    n = check_integer(n, "n", minimum=1)
    k = check_integer(k, "k", minimum=1)
    total = 1
    while total < n:
        total *= k + 1
    f = np.arange(1, n)
    # f N is reduced mod 2n in integers: sin(pi f N / n) would lose all digits for large N.
    values = np.sin(np.pi * ((f * total) % (2 * n)) / n) / (total * np.sin(np.pi * f / n))
    return float(np.max(np.abs(values), initial=0.0))


def one_peer_hypercube(n: int) -> Cyclic:
    """Pairs ``i, i XOR 2^j`` average in round j; undirected; n must be a power of 2."""
    n = check_integer(n, "n", minimum=1)
    if n & (n - 1):
        raise ValueError(f"n must be a power of 2 for the hypercube, got {n}; use base_graph.")
    rounds = [[[i, i ^ (1 << j)] for i in range(n) if not i & (1 << j)] for j in range(n.bit_length() - 1)]
    return Cyclic([_average_groups(n, groups) for groups in rounds] or [_average_groups(n, [])])


# -- null-cascade ------------------------------------------------------------


def null_cascade(n: int, k: int) -> Cyclic:
    """Circulant matrices with at most k peers that null every frequency of Z_n once; they commute.

    Moving averages null the frequencies of the primes up to k+1, steerable filters
    ``c_0 I + sum_l c_l (S^{E s_l} + S^{-E s_l})`` with ``floor(k/2)`` strides those of the larger primes.

    Parameters
    ----------
    n : int
        Number of agents, >= 1.
    k : int
        Peers per round, >= 2, or 1 when n is a power of 2.

    Warns
    -----
    UserWarning
        When a large prime factor makes the sequence long: a circulant sequence needs about q/k rounds for a
        prime q (Chebotarev), `base_graph` only O(log n).
    """
    n = check_integer(n, "n", minimum=1)
    k = check_integer(k, "k", minimum=1)
    primes = _prime_factors(n)
    small = [q for q in primes if q <= k + 1]
    large = [q for q in primes if q > k + 1]
    if k < 2 and large:
        raise ValueError(
            f"k must be >= 2 when n has an odd prime factor, got k={k}, n={n}: a real filter with two taps "
            "cannot null its frequencies."
        )
    if large and large[-1] >= _LONG_CASCADE:
        warnings.warn(
            f"the prime factor {large[-1]} of n={n} makes the null-cascade about {(large[-1] - 1) // k} "
            f"rounds long; base_graph({n}, {k}) averages exactly in O(log n) rounds.",
            stacklevel=2,
        )
    filters, done = [], 1
    for q in _merge(small, k + 1):
        expansion = n // (done * q)
        filters.append([(i * expansion, 1 / q) for i in range(q)])
        done *= q
    for q in large:
        expansion = n // (done * q)
        filters.extend(
            [(expansion * shift, weight) for shift, weight in taps] for taps in _nulling_filters(q, k // 2)
        )
        done *= q
    return Cyclic([circulant(n, taps) for taps in filters] or [circulant(1, [(0, 1.0)])])


def _prime_factors(n: int) -> list[int]:
    factors, p = [], 2
    while p * p <= n:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    return factors + [n] * (n > 1)


def _merge(primes: list[int], limit: int) -> list[int]:
    """Multiply primes greedily, largest first, into few factors of at most `limit`."""
    factors: list[int] = []
    for prime in sorted(primes, reverse=True):
        for place, factor in enumerate(factors):
            if factor * prime <= limit:
                factors[place] = factor * prime
                break
        else:
            factors.append(prime)
    return factors


def _nulling_filters(q: int, pairs: int) -> list[list[tuple[int, float]]]:
    """Symmetric non-negative filters on Z_q (q an odd prime), `pairs` strides each, that null all f > 0."""
    remaining = list(range(1, (q - 1) // 2 + 1))
    filters = []
    while remaining:
        strides, weights, nulled = _best_filter(q, min(pairs, (q - 1) // 2), remaining)
        taps = [(0, 1.0 - 2.0 * float(np.sum(weights)))]
        for stride, weight in zip(strides, weights):
            taps += [(stride, float(weight)), (-stride, float(weight))]
        filters.append([(shift, weight) for shift, weight in taps if weight != 0.0])
        remaining = [f for f in remaining if f not in nulled]
    return filters


def _best_filter(q: int, pairs: int, remaining: list[int]) -> tuple[tuple[int, ...], np.ndarray, set[int]]:
    """Strides and weights of a non-negative filter that nulls as many of the `remaining` as strides allow.

    ``c_0 + 2 sum_l c_l cos(2 pi f s_l / q) = 0`` with ``c_0 = 1 - 2 sum_l c_l`` reads
    ``sum_l 2 c_l (1 - cos(2 pi f s_l / q)) = 1``, one linear equation per nulled frequency f.
    """
    gains = 2.0 - 2.0 * np.cos(2.0 * np.pi * np.outer(np.arange(q), np.arange(q)) / q)
    for count in range(min(pairs, len(remaining)), 1, -1):
        choices = np.array(list(combinations(range(1, (q - 1) // 2 + 1), count)))
        for targets in combinations(remaining, count):
            systems = gains[np.array(targets)[None, :, None], choices[:, None, :]]
            solvable = np.abs(np.linalg.det(systems)) > 1e-9
            weights = np.full(choices.shape, -1.0)
            weights[solvable] = np.linalg.solve(systems[solvable], np.ones((solvable.sum(), count, 1)))[
                ..., 0
            ]
            feasible = np.flatnonzero(np.all(weights >= 0, axis=1) & (2 * weights.sum(axis=1) <= 1))
            if feasible.size:
                place = int(feasible[0])
                return tuple(map(int, choices[place])), weights[place], set(targets)
    # One frequency, in closed form: the stride that turns it by half a circle, as nearly as q allows.
    f = remaining[0]
    stride = pow(f, -1, q) * ((q - 1) // 2) % q
    return (stride,), np.array([0.5 / (1.0 + np.cos(np.pi / q))]), {f}


# -- Base-(k+1) ------------------------------------------------------------

# A round is a list of groups that average, or of weighted links (i, j, w); what is not named stays idle.
_Links = list[tuple[int, int, float]]


def base_graph(n: int, k: int, *, idle_averaging: bool = False) -> Cyclic:
    """Base-(k+1): exact averaging of any n agents, undirected, degree <= k, O(log_{k+1} n) rounds.

    Parameters
    ----------
    n : int
        Number of agents, >= 1.
    k : int
        Largest degree, >= 1.
    idle_averaging : bool, default False
        Let nodes that would idle average within their block again; the product stays exact.
    """
    n = check_integer(n, "n", minimum=1)
    k = check_integer(k, "k", minimum=1)
    nodes = list(range(n))
    simple = _simple(nodes, k, idle_averaging)
    smooth = int(np.prod([q for q in _prime_factors(n) if q <= k + 1], dtype=np.int64))
    rounds = simple
    if 1 < smooth < n:
        size = n // smooth
        groups = [nodes[g * size : (g + 1) * size] for g in range(smooth)]
        inner = [_simple(group, k, idle_averaging) for group in groups]
        across = [_hyper_hypercube([group[c] for group in groups], k) for c in range(size)]
        grouped = [_join(parts) for parts in zip(*inner)] + [_join(parts) for parts in zip(*across)]
        rounds = min(simple, grouped, key=len)
    return Cyclic([_from_links(n, links) for links in rounds] or [_from_links(n, [])])


def _join(parts: tuple[_Links, ...]) -> _Links:
    return [link for part in parts for link in part]


def _factors_up_to(n: int, limit: int) -> list[int]:
    """n as a product of factors <= limit, the largest that divide taken first (all primes of n <= limit)."""
    factors = []
    while n > 1:
        factor = next(f for f in range(limit, 1, -1) if n % f == 0)
        factors.append(factor)
        n //= factor
    return factors


def _hyper_hypercube(nodes: list[int], k: int) -> list[_Links]:
    """Groups that differ in one digit average, digit after digit; all primes of len(nodes) are <= k+1."""
    rounds, stride = [], 1
    for factor in reversed(_factors_up_to(len(nodes), k + 1)):
        links = []
        for start in range(len(nodes)):
            if (start // stride) % factor == 0:
                group = [nodes[start + i * stride] for i in range(factor)]
                links += [(a, b, 1 / factor) for a, b in combinations(group, 2)]
        rounds.append(links)
        stride *= factor
    return rounds


def _simple(nodes: list[int], k: int, idle_averaging: bool) -> list[_Links]:
    """Rounds of the Simple Base-(k+1) graph: average in parts by the digits of n, exchange, average."""
    n, base = len(nodes), k + 1
    if all(q <= base for q in _prime_factors(n)):
        return _hyper_hypercube(nodes, k)
    digits, power, rest = [], 0, n
    while rest:
        rest, digit = divmod(rest, base)
        if digit:
            digits.append((digit, power))
        power += 1
    digits.reverse()
    parts, start = [], 0
    for digit, power in digits:
        parts.append(nodes[start : start + digit * base**power])
        start += digit * base**power
    blocks = [
        [part[b * base**p : (b + 1) * base**p] for b in range(digit)]
        for part, (digit, p) in zip(parts, digits)
    ]
    within_parts = [_hyper_hypercube(part, k) for part in parts]
    within_blocks = [[_hyper_hypercube(block, k) for block in part] for part in blocks]
    rounds = [
        _join(tuple(inner[r % len(inner)] for inner in within_parts if inner))
        for r in range(len(within_parts[0]))
    ]
    last = len(parts) - 1
    for r in range(digits[0][1] + 1):
        links: _Links = []
        if r < last:
            later = [node for part in parts[r + 1 :] for node in part]
            weight = len(parts[r]) / (len(parts[r]) + len(later))
            for c, node in enumerate(later):
                links += [(node, block[c], weight / len(blocks[r])) for block in blocks[r]]
        for part in range(min(r, last + 1)):
            for inner in within_blocks[part]:
                turn = r - part - 1
                if inner and (turn < len(inner) or idle_averaging):
                    links += inner[turn % len(inner)]
        rounds.append(links)
    return rounds


def _from_links(n: int, links: _Links) -> MixingMatrix:
    """Symmetric matrix with the given off-diagonal weights and the diagonal that completes the rows."""
    if not links:
        return MixingMatrix(sp.eye_array(n, format="csr"), "mixing")
    a, b, weights = (np.array(column) for column in zip(*links))
    off = sp.coo_array((np.tile(weights, 2), (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(n, n))
    rows = off.tocsr()
    diagonal = 1.0 - np.asarray(rows.sum(axis=1)).ravel()
    diagonal[np.abs(diagonal) < 1e-15 * n] = 0.0
    return MixingMatrix(rows + sp.diags_array(diagonal), "mixing", nonneg=True)


def _average_groups(n: int, groups: list[list[int]]) -> MixingMatrix:
    return _from_links(n, [(a, b, 1 / len(g)) for g in groups for a, b in combinations(g, 2)])
