"""Pictures of networks: graphs, mixing matrices, the rounds of a sequence, and how fast sequences average."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optikit.graphs import Graph
from optikit.mixing import MixingMatrix, Static, TopologySequence
from optikit.plotting.history import new_axes, new_grid
from optikit.validation import check_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYOUTS = ("auto", "circle", "spring", "spectral")
#: Below this an averaging error is rounding: curves of exact sequences end here.
EXACT = 1e-16


def plot_graph(
    graph: Any,
    *,
    layout: str | np.ndarray = "auto",
    values: Any = None,
    labels: bool | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a graph; links of a mixing matrix are drawn the stronger the larger their weight.

    Parameters
    ----------
    graph : Graph, MixingMatrix or NetworkX graph
    layout : {"auto", "circle", "spring", "spectral"} or array (n, 2), default "auto"
        Where the agents stand. "auto": on a circle, except the centre of a star, which stands in the middle.
    values : array (n,), optional
        One number per agent, drawn as its colour.
    labels : bool, optional
        Whether agents carry their numbers; by default up to 40 agents.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Links are its first collection, one segment each; agents its last, a scatter.
    """
    from matplotlib.collections import LineCollection

    matrix = graph if isinstance(graph, MixingMatrix) else None
    if matrix is not None:
        graph = matrix.graph()
    elif not isinstance(graph, Graph):
        graph = Graph.from_networkx(graph)
    ax = new_axes(4.0, 4.0) if ax is None else ax
    places = _places(graph, layout)
    edges = graph.edges
    widths = np.full(len(edges), 1.2)
    if matrix is not None and len(edges):
        weights = np.abs(matrix.toarray()[edges[:, 1], edges[:, 0]])
        widths = 0.4 + 2.0 * weights / weights.max()
    ax.add_collection(LineCollection(list(places[edges]), linewidths=widths, colors="0.55", zorder=1))
    if graph.directed:
        _arrows(ax, places, edges)
    colours: dict[str, Any] = (
        {"color": "#2f6fb0"} if values is None else {"c": np.asarray(values), "cmap": "viridis"}
    )
    ax.scatter(places[:, 0], places[:, 1], s=_node_size(graph.n, ax), zorder=2, edgecolors="white", **colours)
    if labels or (labels is None and graph.n <= 40):
        for agent, (x, y) in enumerate(places):
            ax.annotate(
                str(agent),
                (x, y),
                ha="center",
                va="center",
                fontsize=7 if graph.n <= 20 else 5,
                color="white",
                zorder=3,
            )
    ax.set_aspect("equal")
    ax.margins(0.12)
    ax.set_axis_off()
    return ax


def _node_size(n: int, ax: Axes) -> float:
    """Area in points^2 such that neighbours on the circle leave half of their distance free for a link."""
    side = 72.0 * min(ax.bbox.width, ax.bbox.height) / ax.figure.dpi
    apart = side / 2.5 * 2.0 * math.sin(math.pi / max(n, 2))
    return float(np.clip((0.5 * apart) ** 2, 4.0, 190.0))


def _arrows(ax: Axes, places: np.ndarray, edges: np.ndarray) -> None:
    """Heads at three quarters of each link: at its end they would hide under the agent."""
    start, step = places[edges[:, 0]], places[edges[:, 1]] - places[edges[:, 0]]
    heads = start + 0.72 * step
    length = np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-12)
    direction = step / length
    ax.quiver(
        heads[:, 0],
        heads[:, 1],
        direction[:, 0],
        direction[:, 1],
        angles="xy",
        pivot="tip",
        color="0.35",
        headlength=5,
        headaxislength=5,
        headwidth=4,
        scale=25,
        width=0.006,
        zorder=1.5,
    )


def _places(graph: Graph, layout: str | np.ndarray) -> np.ndarray:
    n = graph.n
    if not isinstance(layout, str):
        places = np.asarray(layout, dtype=np.float64)
        if places.shape != (n, 2):
            raise ValueError(f"layout must be an array of shape ({n}, 2), got {places.shape}.")
        return places
    if layout not in LAYOUTS:
        raise ValueError(
            f"layout must be one of {', '.join(map(repr, LAYOUTS))} or an array, got {layout!r}."
        )
    if layout in ("auto", "circle"):
        angles = np.pi / 2 - 2 * np.pi * np.arange(n) / n
        places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        centre = np.flatnonzero(graph.degrees == n - 1)
        if layout == "auto" and n > 3 and centre.size == 1 and graph.n_edges == n - 1:
            places[centre[0]] *= 0.05
        return places
    import networkx

    source = graph.to_networkx()
    found = (
        networkx.spring_layout(source, seed=0)
        if layout == "spring"
        else networkx.spectral_layout(source.to_undirected())
    )
    return np.array([found[agent] for agent in range(n)])


def plot_matrix(matrix: Any, *, colorbar: bool = True, ax: Axes | None = None) -> Axes:
    """Heat map of a mixing matrix: row i shows whom agent i hears and how much.

    Parameters
    ----------
    matrix : MixingMatrix or array (n, n)
        Negative entries get a diverging colour scale with white at 0.
    colorbar : bool, default True
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    weights = matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
    ax = new_axes(4.4, 3.8) if ax is None else ax
    largest = float(np.abs(weights).max(initial=0.0)) or 1.0
    scale: dict[str, Any] = {"cmap": "Blues", "vmin": 0.0}
    if weights.min(initial=0.0) < 0:
        scale = {"cmap": "RdBu", "vmin": -largest}
    image = ax.imshow(weights, vmax=largest, interpolation="nearest", **scale)
    ax.set_xlabel("hears agent j")
    ax.set_ylabel("agent i")
    if colorbar:
        figure: Any = ax.figure
        figure.colorbar(image, ax=ax, label="weight", shrink=0.9)
    return ax


def plot_sequence(
    sequence: TopologySequence | MixingMatrix,
    rounds: int | None = None,
    *,
    layout: str | np.ndarray = "auto",
    columns: int = 6,
    figure: Figure | None = None,
) -> Figure:
    """The graphs of the first rounds of a sequence, side by side.

    Parameters
    ----------
    sequence : TopologySequence or MixingMatrix
    rounds : int, optional
        How many; by default one period, at most 12.
    layout : str or array
        See `plot_graph`; "auto" keeps every agent on the circle, so that rounds can be compared.
    columns : int, default 6
        Pictures in a row.
    figure : matplotlib Figure, optional
        An empty one to draw on; a new one by default.
    """
    sequence = _as_sequence(sequence)
    rounds = min(sequence.period or 12, 12) if rounds is None else check_integer(rounds, "rounds", minimum=1)
    columns = min(columns, rounds)
    rows = math.ceil(rounds / columns)
    axes = new_grid(rows, columns, 2.0 * columns, 2.2 * rows, figure)
    if isinstance(layout, str) and layout == "auto":
        layout = "circle"
    for q, ax in enumerate(axes.ravel()):
        if q < rounds:
            plot_graph(sequence.matrix(q), layout=layout, labels=False, ax=ax)
            ax.set_title(f"round {q}", fontsize=9)
        else:
            ax.set_axis_off()
    return axes[0, 0].get_figure()


def plot_contraction(
    sequences: Mapping[str, TopologySequence | MixingMatrix],
    rounds: int = 30,
    *,
    ax: Axes | None = None,
    **line: Any,
) -> Axes:
    """How fast sequences average: what is left of the worst disagreement after each round.

    Parameters
    ----------
    sequences : mapping of label to TopologySequence or MixingMatrix
    rounds : int, default 30
    ax : matplotlib Axes, optional
    **line
        Passed to matplotlib's `plot`.

    Returns
    -------
    matplotlib Axes
        Logarithmic; errors at rounding level are drawn at 1e-16.
    """
    from matplotlib.ticker import MaxNLocator

    rounds = check_integer(rounds, "rounds", minimum=1)
    ax = new_axes() if ax is None else ax
    for number, (label, sequence) in enumerate(sequences.items()):
        left = np.maximum(_as_sequence(sequence).contractions(rounds), EXACT)
        # Ten colours, then dotted lines.
        ax.plot(np.arange(rounds + 1), left, label=label, **{"linestyle": "-:"[number // 10 % 2], **line})
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("communication rounds")
    ax.set_ylabel(r"$\|W^{(q-1)} \cdots W^{(0)} - J\|_2$")
    ax.grid(True, which="major", alpha=0.3)
    ax.legend()
    return ax


def _as_sequence(topology: TopologySequence | MixingMatrix) -> TopologySequence:
    return Static(topology) if isinstance(topology, MixingMatrix) else topology
