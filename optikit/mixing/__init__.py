"""Mixing matrices, the rules that make them from graphs, their spectra, and sequences of them."""

from optikit.mixing.matrix import KINDS, MixingMatrix
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
    "MixingMatrix",
    "Static",
    "TopologySequence",
    "circulant",
    "col_stochastic",
    "default_weights",
    "from_matrix",
    "laplacian_gossip",
    "laplacian_mixing",
    "max_degree",
    "metropolis",
    "row_stochastic",
]
