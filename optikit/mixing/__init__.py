"""Mixing matrices, the rules that make them from graphs, their spectra, and sequences of them."""

from optikit.mixing.finite_time import (
    base_graph,
    k_peer_contraction,
    k_peer_exponential,
    null_cascade,
    one_peer_exponential,
    one_peer_hypercube,
)
from optikit.mixing.matrix import KINDS, MixingMatrix
from optikit.mixing.periodic import connected_windows, cyclic, ring_and_star, rotating_star
from optikit.mixing.perron import (
    PerronMetrics,
    matrix_power,
    perron_metrics,
    perron_vector,
    return_ratio,
)
from optikit.mixing.pull_push import PullPush
from optikit.mixing.random_sequences import ErdosRenyiSequence, LinkFailures, RandomMatchings
from optikit.mixing.sequences import Cyclic, Static, TopologySequence
from optikit.mixing.weights import (
    circulant,
    col_stochastic,
    default_weights,
    from_matrix,
    laplacian_gossip,
    laplacian_mixing,
    max_degree,
    metropolis,
    row_stochastic,
)

__all__ = [
    "KINDS",
    "Cyclic",
    "ErdosRenyiSequence",
    "LinkFailures",
    "MixingMatrix",
    "PerronMetrics",
    "PullPush",
    "RandomMatchings",
    "Static",
    "TopologySequence",
    "base_graph",
    "circulant",
    "col_stochastic",
    "connected_windows",
    "cyclic",
    "default_weights",
    "from_matrix",
    "k_peer_contraction",
    "k_peer_exponential",
    "laplacian_gossip",
    "laplacian_mixing",
    "matrix_power",
    "max_degree",
    "metropolis",
    "null_cascade",
    "one_peer_exponential",
    "one_peer_hypercube",
    "perron_metrics",
    "perron_vector",
    "return_ratio",
    "ring_and_star",
    "rotating_star",
    "row_stochastic",
]
