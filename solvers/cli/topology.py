"""Graphs and sequences of graphs by their names, as the command line and scripts write them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optikit.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from optikit.graphs import Graph
    from optikit.mixing import MixingMatrix, TopologySequence

GRAPHS = (
    "ring",
    "path",
    "complete",
    "star",
    "grid[:AxB]",
    "torus[:AxB]",
    "hypercube",
    "exponential",
    "erdos-renyi[:P]",
    "geometric[:R]",
    "two-worlds[:H]",
)
SEQUENCES = (
    "base-K",
    "null-cascade[:K]",
    "K-peer-exponential",
    "1-peer-hypercube",
    "rotating-star",
    "ring-star",
    "random[:P]",
    "matchings",
    "failures:P:GRAPH",
    "windows:B:GRAPH",
)
WEIGHTS = ("auto", "metropolis", "lazy", "max-degree", "laplacian")
#: What a method asks of its network; "static" is a mixing matrix that never changes.
KINDS = ("mixing", "gossip", "static", "row", "col", "pull-push")


def parse_topology(
    text: str,
    n: int,
    seed: int = 0,
    *,
    kind: str = "mixing",
    weights: str = "auto",
    directed: bool = False,
) -> MixingMatrix | TopologySequence:
    """A network's topology by its name: a static graph with weights, or a time-varying sequence.

    Parameters
    ----------
    text : str
        One of `GRAPHS` or `SEQUENCES`, or the path of an edge-list file.
    n : int
        Number of agents.
    seed : int, default 0
        Of random graphs and sequences.
    kind : str, default "mixing"
        What the method accepts, one of `KINDS`.
    weights : str, default "auto"
        One of `WEIGHTS`. "auto": Metropolis for averaging, the best constant Laplacian weight for gossip,
        degree weights of the right kind for directed methods.
    directed : bool, default False
        Whether the links of an edge-list file are one-way, ``source target``.

    Raises
    ------
    ValueError
        For an unknown name, sizes that do not fit, or weights that the sequence does not leave open.
    """
    check_choice(kind, "kind", KINDS)
    check_choice(weights, "--link-weights", WEIGHTS)
    if kind == "pull-push" and weights == "auto":
        return _pull_and_push(text, n, seed, directed)
    rule = _weight_rule("mixing" if kind in ("static", "pull-push") else kind, weights)
    fixed = _fixed_sequence(text, n)
    if fixed is not None:
        if weights != "auto":
            raise ValueError(f"--link-weights {weights} does not apply: {text} has weights of its own.")
        return fixed
    changing = _sequence(text, n, seed, rule, kind, directed)
    if changing is not None:
        if kind == "static":
            raise ValueError(f"the method needs a graph that stays as it is, {text} changes every round.")
        return changing
    return rule(parse_graph(text, n, seed, directed))


def _pull_and_push(text: str, n: int, seed: int, directed: bool) -> Any:
    from optikit.mixing import PullPush

    pull = parse_topology(text, n, seed, kind="row", directed=directed)
    if pull.kind == "mixing":
        return pull
    return PullPush(pull, parse_topology(text, n, seed, kind="col", directed=directed))


def _weight_rule(kind: str, weights: str) -> Callable[[Graph], MixingMatrix]:
    from optikit import mixing

    named: dict[str, Callable[[Graph], MixingMatrix]] = {
        "metropolis": mixing.metropolis,
        "lazy": lambda graph: mixing.metropolis(graph, lazy=True),
        "max-degree": mixing.max_degree,
        "laplacian": mixing.laplacian_gossip if kind == "gossip" else mixing.laplacian_mixing,
    }
    if weights != "auto":
        return named[weights]
    if kind == "row":
        return mixing.row_stochastic
    if kind == "col":
        return mixing.col_stochastic
    if kind == "gossip":
        # The best constant weight has the smallest chi of these rules; one-way links have no Laplacian.
        return lambda graph: mixing.max_degree(graph) if graph.directed else mixing.laplacian_gossip(graph)
    return mixing.default_weights


def _fixed_sequence(text: str, n: int) -> TopologySequence | None:
    """Sequences that come with their weights: the finite-time ones."""
    from optikit import mixing

    if match := re.fullmatch(r"base-(\d+)", text):
        return mixing.base_graph(n, check_integer(int(match[1]), "K of base-K", minimum=2) - 1)
    if match := re.fullmatch(r"null-cascade(?::(\d+))?", text):
        return mixing.null_cascade(n, int(match[1] or 2))
    if match := re.fullmatch(r"(\d+)-peer-exponential", text):
        return mixing.k_peer_exponential(n, int(match[1]))
    if text == "1-peer-hypercube":
        return mixing.one_peer_hypercube(n)
    return None


def _sequence(text: str, n: int, seed: int, rule: Any, kind: str, directed: bool) -> TopologySequence | None:
    """Sequences of graphs, weighted by `rule`."""
    from optikit import mixing

    name, _, detail = text.partition(":")
    if text == "rotating-star":
        return mixing.rotating_star(n, weights=rule)
    if text == "ring-star":
        return mixing.ring_and_star(n, weights=rule)
    if name == "random":
        return mixing.ErdosRenyiSequence(n, _probability(detail, name, n), seed, weights=rule)
    # Rounds of the following may be disconnected: then only rules without a spectrum apply.
    if kind == "gossip":
        rule = _weight_rule("mixing", "auto")
    if text == "matchings":
        return mixing.RandomMatchings(n, seed, weights=rule)
    if name in ("failures", "windows"):
        value, _, base = detail.partition(":")
        if not base:
            raise ValueError(f"a sequence of this kind is written {name}:NUMBER:GRAPH, got {text!r}.")
        graph = parse_graph(base, n, seed, directed)
        if name == "failures":
            return mixing.LinkFailures(graph, _probability(value, name, n), seed, weights=rule)
        if not value.isdecimal():
            raise ValueError(f"windows:B:GRAPH needs a number of rounds B, got {value!r}.")
        return mixing.connected_windows(graph, int(value), seed, weights=rule)
    return None


def parse_graph(text: str, n: int, seed: int = 0, directed: bool = False) -> Graph:
    """A graph by its name (``ring``, ``grid:4x5``, ``erdos-renyi:0.3``) or from an edge-list file."""
    from optikit import graphs

    name, _, detail = text.partition(":")
    simple: dict[str, Callable[[int], Graph]] = {
        "ring": graphs.ring,
        "path": graphs.path,
        "complete": graphs.complete,
        "star": graphs.star,
        "exponential": graphs.static_exponential,
    }
    if name in simple and not detail:
        return simple[name](n)
    if name in ("grid", "torus"):
        a, b = _sides(detail, n)
        return graphs.grid(a, b) if name == "grid" else graphs.torus(a, b)
    if name == "hypercube" and not detail:
        if n & (n - 1):
            raise ValueError(f"--graph hypercube needs a power of two of agents, got {n}.")
        return graphs.hypercube(n.bit_length() - 1)
    if name == "erdos-renyi":
        return graphs.erdos_renyi(n, _probability(detail, name, n), seed)
    if name == "geometric":
        # Twice the radius at which such graphs become connected.
        threshold = math.sqrt(math.log(max(n, 2)) / (math.pi * n))
        return graphs.random_geometric(n, _number(detail, name) if detail else 2 * threshold, seed)
    if name == "two-worlds":
        return graphs.two_worlds(n, int(_number(detail, name)) if detail else 1)
    if Path(text).is_file():
        return graphs.read_edge_list(text, n, directed)
    raise ValueError(
        f"--graph must be one of {', '.join(GRAPHS)}, a sequence ({', '.join(SEQUENCES)}) or an "
        f"edge-list file, got {text!r}."
    )


def _sides(detail: str, n: int) -> tuple[int, int]:
    if not detail:
        a = next(k for k in range(math.isqrt(n), 0, -1) if n % k == 0)
        return a, n // a
    sides = detail.split("x")
    if len(sides) != 2 or not all(side.isdecimal() for side in sides) or math.prod(map(int, sides)) != n:
        raise ValueError(f"a grid of {n} agents is written grid:AxB with A*B = {n}, got {detail!r}.")
    return int(sides[0]), int(sides[1])


def _probability(detail: str, name: str, n: int) -> float:
    """The probability written, or twice the connectivity threshold: connected with high probability."""
    if not detail:
        return min(1.0, 2.0 * math.log(max(n, 2)) / n)
    try:
        value = float(detail)
    except ValueError:
        raise ValueError(f"{name}:P needs a probability P, got {detail!r}.") from None
    return check_real(value, f"P of {name}:P", minimum=0.0, maximum=1.0)


def _number(detail: str, name: str) -> float:
    try:
        return float(detail)
    except ValueError:
        raise ValueError(f"{name}:NUMBER needs a number, got {detail!r}.") from None
