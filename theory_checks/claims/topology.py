"""Claims about graphs, mixing matrices, finite-time sequences and multi-step gossip."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from optikit import graphs
from optikit.gossip import chebyshev_contraction, chebyshev_mix, gossip_sum
from optikit.mixing import (
    Cyclic,
    MixingMatrix,
    TopologySequence,
    base_graph,
    default_weights,
    k_peer_contraction,
    k_peer_exponential,
    laplacian_gossip,
    metropolis,
    null_cascade,
    ring_and_star,
    rotating_star,
)
from optikit.network import Network
from theory_checks import Claim, Equality, Measurement, Sweep, UpperBound

BASE = "Takezawa, Sato, Bao, Niwa, Yamada, NeurIPS 2023 (Base-(k+1) graph)"
CASCADE = "Niwa, Takezawa, Zhang, Kleijn, NeurIPS 2025 (k-peer exponential and null-cascade graphs)"
EXPONENTIAL = "Ying, Yuan, Chen, Hu, Pan, Yin, NeurIPS 2021 (exponential graphs)"
FOLKLORE = "eigenvalues of circulant and product graphs; Xiao, Boyd, Systems and Control Letters 2004"
LOWER_BOUND = "Kovalev, Borodich, Gasnikov, Feoktistov, NeurIPS 2024 (rotating stars)"
CHEBYSHEV = "Scaman, Bach, Bubeck, Lee, Massoulie, ICML 2017 (Chebyshev-accelerated gossip)"

# -- finite-time sequences --------------------------------------------------------------------------------


def averaging_error(sequence: TopologySequence, rounds: int | None = None) -> float:
    """Largest entry of the product of so many rounds (one period by default) minus J."""
    length = sequence.period if rounds is None else rounds
    assert length is not None
    return float(np.abs(sequence.window(0, length).toarray() - 1.0 / sequence.n).max())


def one_round_short(sequence: TopologySequence) -> float:
    """The same with the last round left out."""
    assert sequence.period is not None
    return averaging_error(sequence, sequence.period - 1)


def commutator(sequence: TopologySequence) -> float:
    """Largest entry of ``W_i W_j - W_j W_i`` over all pairs of rounds."""
    matrices = [sequence.matrix(q).toarray() for q in range(sequence.period or 1)]
    return max(float(np.abs(a @ b - b @ a).max()) for a in matrices for b in matrices)


def length_over_bound(sequence: TopologySequence, k: int) -> Measurement:
    """Rounds of one period against ``2 log_{k+1} n + 2``."""
    return Measurement(float(sequence.period or 0), 2 * math.log(sequence.n, k + 1) + 2)


def period_contraction(n: int, k: int, expected: Callable[[int, int], float]) -> Measurement:
    """``||product - J||_2`` of the k-peer exponential sequence against a prediction."""
    sequence = k_peer_exponential(n, k)
    product = sequence.window(0, sequence.period or 1).toarray()
    return Measurement(float(np.linalg.norm(product - 1.0 / n, 2)), expected(n, k))


def exact_if_power(n: int, k: int) -> float:
    """What one would expect if the sequence were exact for every n."""
    return 0.0


# -- spectra ----------------------------------------------------------------------------------------------


def _exponential(n: int) -> float:
    return 1.0 - 2.0 / (1 + (n - 1).bit_length())


#: Graph, closed form of lambda with Metropolis weights (max-degree weights where it is directed).
SPECTRA: dict[str, tuple[graphs.Graph, float]] = {
    "ring 16": (graphs.ring(16), 1 / 3 + 2 / 3 * math.cos(2 * math.pi / 16)),
    "ring 101": (graphs.ring(101), 1 / 3 + 2 / 3 * math.cos(2 * math.pi / 101)),
    "torus 4 x 4": (graphs.torus(4, 4), 0.6),
    "torus 5 x 8": (graphs.torus(5, 8), 1 / 5 + 2 / 5 * (1 + math.cos(2 * math.pi / 8))),
    "star 16": (graphs.star(16), 1 - 1 / 16),
    "complete 9": (graphs.complete(9), 0.0),
    "hypercube 32": (graphs.hypercube(5), 1 - 2 / 6),
    "static exponential 10": (graphs.static_exponential(10), _exponential(10)),
    "static exponential 64": (graphs.static_exponential(64), _exponential(64)),
}


def contraction(name: str, weights: Callable[[graphs.Graph], MixingMatrix]) -> Measurement:
    """lambda of a graph against its closed form."""
    graph, closed_form = SPECTRA[name]
    return Measurement(weights(graph).lam(), closed_form)


def lazy(graph: graphs.Graph) -> MixingMatrix:
    """Half the weights: the wrong rule for these closed forms."""
    matrix = default_weights(graph)
    return MixingMatrix((np.eye(graph.n) + matrix.toarray()) / 2, "mixing")


def star_chi(n: int, scale: str) -> Measurement:
    """chi of the rotating star with ``2L/(l_max + l_2)`` ("optimal") or ``L/l_max`` and its closed form."""
    expected = (n + 1) ** 2 / (4 * n) if scale == "optimal" else n**2 / (2 * n - 1)
    return Measurement(rotating_star(n, weights=lambda g: laplacian_gossip(g, scale)).chi(), expected)


def contraction_by_chi(n: int, chi_of: Callable[[Cyclic], float]) -> Measurement:
    """``||G v - v||^2 / ||v||^2`` for the worst v of each round of ring and star, against ``1 - 1/chi``."""
    sequence, worst = ring_and_star(n, weights=laplacian_gossip), []
    for q in range(sequence.period or 1):
        G = sequence.matrix(q).to_gossip().toarray()
        worst.append(float(np.linalg.norm(np.eye(n) - 1.0 / n - G, 2)) ** 2)
    return Measurement(np.array(worst), 1 - 1 / chi_of(sequence))


# -- multi-step gossip ------------------------------------------------------------------------------------

GRIDS = {"ring 64": graphs.ring(64), "grid 8 x 8": graphs.grid(8, 8)}


def polynomial_norm(name: str, rounds: int, accelerated: bool) -> Measurement:
    """``||p(W) - J||_2`` of m rounds, accelerated or plain, against ``1/T_m(1/lambda)``."""
    matrix = metropolis(GRIDS[name])
    network = Network(matrix)
    X = np.eye(64)
    if accelerated:
        mixed = chebyshev_mix(network, X, rounds=rounds)
    else:
        mixed = X
        for _ in range(rounds):
            mixed = network.mix(mixed)
    norm = float(np.linalg.norm(mixed - 1.0 / 64, 2))
    return Measurement(norm, chebyshev_contraction(matrix.lam(), rounds))


def sum_disagreement(name: str, rounds: int, allowed_rounds: int) -> Measurement:
    """How far agents are from the sum of the slowest vector, against the bound of so many rounds."""
    matrix = metropolis(GRIDS[name])
    slowest = np.linalg.eigh(matrix.toarray())[1][:, -2]
    found = gossip_sum(Network(matrix), slowest[:, None], rounds=rounds)
    ratio = chebyshev_contraction(matrix.lam(), allowed_rounds) / chebyshev_contraction(matrix.lam(), rounds)
    return Measurement(found.disagreement, found.bound * ratio)


# -- the claims -------------------------------------------------------------------------------------------

SIZES = tuple((n, k) for k in (1, 2, 3, 4) for n in (2, 5, 6, 12, 15, 21, 25, 31, 48, 97))
ALL_SIZES = tuple((n, k) for k in (1, 2, 3, 4) for n in range(2, 100))
CASCADES = (*((n, 2) for n in (2, 5, 7, 9, 11, 13, 15, 25, 31, 48, 49, 64)), (7, 4), (13, 4), (31, 4))
ALL_CASCADES = tuple((n, k) for k in (2, 4) for n in range(2, 50))
PEERS = ((6, 1), (10, 2), (25, 1), (25, 2), (27, 2), (64, 3), (32, 1), (8, 3))
CHEBYSHEV_SWEEP = tuple((name, m) for name in GRIDS for m in (1, 5, 10, 20, 40))


def _sweep(points: tuple[Any, ...], full: tuple[Any, ...] | None = None) -> Sweep:
    return Sweep("(n, k)", points, full)


CLAIMS = [
    Claim(
        name="topology.base_graph_is_exact",
        theorem="The Base-(k+1) graph averages any number of agents exactly in one period.",
        formula=r"W^{(\tau-1)} \cdots W^{(0)} = J",
        reference=BASE,
        quantity="largest entry of product - J",
        law=UpperBound(1e-12),
        measure=lambda point, seed: averaging_error(base_graph(*point)),
        control=lambda point, seed: one_round_short(base_graph(*point)),
        control_text="the last round of the period left out",
        sweep=_sweep(SIZES, ALL_SIZES),
        tags=("topology", "exact"),
    ),
    Claim(
        name="topology.base_graph_length",
        theorem="The Base-(k+1) graph needs at most 2 log_(k+1) n + 2 rounds.",
        formula=r"\tau \leq 2 \log_{k+1} n + 2",
        reference=BASE,
        quantity="rounds of one period",
        law=UpperBound(),
        measure=lambda point, seed: length_over_bound(base_graph(*point), point[1]),
        control=lambda point, seed: length_over_bound(null_cascade(*point), point[1]),
        control_text="the null-cascade: about n/k rounds for a prime n",
        sweep=_sweep(SIZES, ALL_SIZES),
        control_sweep=_sweep(((31, 2), (47, 2))),
        tags=("topology",),
    ),
    Claim(
        name="topology.null_cascade_is_exact",
        theorem="The null-cascade averages exactly in one period.",
        formula=r"W^{(\tau-1)} \cdots W^{(0)} = J",
        reference=CASCADE,
        provenance="reconstructed",
        quantity="largest entry of product - J",
        law=UpperBound(1e-12),
        measure=lambda point, seed: averaging_error(null_cascade(*point)),
        control=lambda point, seed: one_round_short(null_cascade(*point)),
        control_text="one filter left out: its frequencies survive",
        sweep=_sweep(CASCADES, ALL_CASCADES),
        tags=("topology", "exact"),
    ),
    Claim(
        name="topology.null_cascade_commutes",
        theorem="All rounds of the null-cascade commute: they may come in any order.",
        formula=r"W^{(i)} W^{(j)} = W^{(j)} W^{(i)}",
        reference=CASCADE,
        provenance="reconstructed",
        quantity="largest entry of the commutators",
        law=UpperBound(1e-15),
        measure=lambda point, seed: commutator(null_cascade(*point)),
        control=lambda point, seed: commutator(base_graph(*point)),
        control_text="the Base-(k+1) graph: its rounds do not commute",
        sweep=_sweep(CASCADES, ALL_CASCADES),
        control_sweep=_sweep(((5, 2), (25, 2))),
        tags=("topology", "exact"),
    ),
    Claim(
        name="topology.k_peer_contraction",
        theorem="One period of the k-peer exponential graph contracts by a closed form; it is exact iff n "
        "divides (k+1)^tau.",
        formula=r"\max_f |\sin(\pi f N/n) / (N \sin(\pi f/n))|, \quad N = (k+1)^\tau",
        reference=CASCADE,
        provenance="derived",
        quantity="||product - J||_2",
        law=Equality(abs=1e-12),
        measure=lambda point, seed: period_contraction(point[0], point[1], k_peer_contraction),
        control=lambda point, seed: period_contraction(point[0], point[1], exact_if_power),
        control_text="exactness for every n, which holds for powers of k+1 only",
        sweep=_sweep(PEERS),
        control_sweep=_sweep(PEERS[:4]),
        tags=("topology", "exact"),
    ),
    Claim(
        name="topology.closed_form_spectra",
        theorem="Contraction of the classical graphs with Metropolis (directed: max-degree) weights.",
        reference=f"{FOLKLORE}; {EXPONENTIAL}",
        quantity="lambda = ||W - J||_2",
        law=Equality(abs=1e-12),
        measure=lambda name, seed: contraction(name, default_weights),
        control=lambda name, seed: contraction(name, lazy),
        control_text="lazy weights (I + W)/2",
        sweep=Sweep("graph", tuple(SPECTRA)),
        tags=("topology", "exact", "spectrum"),
    ),
    Claim(
        name="topology.chi_of_the_rotating_star",
        theorem="chi of the rotating star is (n+1)^2/(4n) with the best constant weight and n^2/(2n-1) with "
        "L/l_max.",
        formula=r"\chi = (n+1)^2/(4n), \quad \chi = n^2/(2n-1)",
        reference=LOWER_BOUND,
        provenance="derived",
        quantity="chi",
        law=Equality(rel=1e-12),
        measure=lambda point, seed: star_chi(*point),
        control=lambda point, seed: Measurement(rotating_star(point[0]).chi(), star_chi(*point).reference),
        control_text="Metropolis weights, whose chi is larger",
        sweep=Sweep("(n, scale)", tuple((n, s) for n in (3, 9, 16, 30) for s in ("optimal", "max"))),
        tags=("topology", "exact", "spectrum"),
    ),
    Claim(
        name="topology.chi_bounds_every_round",
        theorem="With chi over the whole period, every round contracts every vector by 1 - 1/chi.",
        formula=r"\|Gv - v\|^2 \leq (1 - 1/\chi) \|v\|^2",
        reference=LOWER_BOUND,
        quantity="largest contraction of a round",
        law=UpperBound(abs=1e-12),
        measure=lambda n, seed: contraction_by_chi(n, lambda s: s.chi()),
        control=lambda n, seed: contraction_by_chi(n, lambda s: min(s.matrix(q).chi() for q in (0, 1))),
        control_text="chi of one round, the faster of the two: the classical mistake",
        sweep=Sweep("agents n", (5, 10, 16), axis="round"),
        tags=("topology", "spectrum", "bound"),
    ),
    Claim(
        name="topology.chebyshev_contraction",
        theorem="m Chebyshev rounds contract by exactly 1/T_m(1/lambda).",
        formula=r"\|p_m(W) - J\|_2 = 1/T_m(1/\lambda)",
        reference=CHEBYSHEV,
        quantity="||p(W) - J||_2",
        law=Equality(rel=1e-10),
        measure=lambda point, seed: polynomial_norm(point[0], point[1], True),
        control=lambda point, seed: polynomial_norm(point[0], point[1], False),
        control_text="m plain rounds: lambda^m",
        sweep=Sweep("(graph, rounds)", CHEBYSHEV_SWEEP),
        control_sweep=Sweep("(graph, rounds)", (("ring 64", 20), ("grid 8 x 8", 20))),
        tags=("topology", "gossip", "exact"),
    ),
    Claim(
        name="topology.gossip_sum_certificate",
        theorem="A sum by gossip disagrees with the exact sum by at most its a priori bound.",
        formula=r"\max_i \|s_i - s\| \leq n \|X - \bar X\|_F / T_m(1/\lambda)",
        reference=CHEBYSHEV,
        provenance="derived",
        quantity="largest error of an agent",
        law=UpperBound(abs=1e-12),
        measure=lambda point, seed: sum_disagreement(point[0], point[1], point[1]),
        control=lambda point, seed: sum_disagreement(point[0], point[1], 3 * point[1]),
        control_text="the bound of three times as many rounds",
        sweep=Sweep("(graph, rounds)", CHEBYSHEV_SWEEP),
        control_sweep=Sweep("(graph, rounds)", (("ring 64", 40), ("grid 8 x 8", 20))),
        tags=("topology", "gossip", "certificate"),
    ),
]
