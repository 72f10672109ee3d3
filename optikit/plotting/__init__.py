"""The pictures people ask for first: runs, graphs, mixing matrices, and how fast sequences average."""

from optikit.plotting.history import AXIS_LABELS, add_slope, new_axes, plot_convergence, plot_history
from optikit.plotting.network import plot_contraction, plot_graph, plot_matrix, plot_sequence

__all__ = [
    "AXIS_LABELS",
    "add_slope",
    "new_axes",
    "plot_contraction",
    "plot_convergence",
    "plot_graph",
    "plot_history",
    "plot_matrix",
    "plot_sequence",
]
