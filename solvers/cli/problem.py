"""From a data file and options to the objective and the network of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optikit.validation import check_integer, check_real

if TYPE_CHECKING:
    from optikit.graphs import Graph
    from optikit.network import Network

GRAPHS = ("ring", "path", "complete", "star", "grid", "torus", "hypercube", "exponential", "erdos-renyi")
#: Sparse files with more stored entries than this share are solved as dense ones, which is faster.
DENSE_ABOVE = 0.25


@dataclass(frozen=True)
class Problem:
    """What is solved, and how its answer reads in the file's own units.

    Attributes
    ----------
    objective, network : object
    feature_names : tuple of str
    mean, scale : ndarray or None
        Shift and scale of the features when they were standardized.
    bias : float or None
        Value of the constant column, the last one, when there is one.
    description : dict of str to str
        What a report says about the data.
    """

    objective: Any
    network: Network
    feature_names: tuple[str, ...]
    mean: np.ndarray | None
    scale: np.ndarray | None
    bias: float | None
    description: dict[str, str]

    def coefficients(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Weights of the features as they stand in the file, and the intercept."""
        weights = x if self.bias is None else x[:-1]
        intercept = 0.0 if self.bias is None else float(x[-1]) * self.bias
        if self.scale is not None and self.mean is not None:
            weights = weights / self.scale
            intercept -= float(weights @ self.mean)
        return weights, intercept


def build_problem(
    path: Path,
    *,
    agents: int = 10,
    split: str = "iid",
    similarity: float = 0.5,
    alpha: float = 0.5,
    seed: int = 0,
    format: str | None = None,
    target: str | None = None,
    positive: str | None = None,
    standardize: bool = False,
    bias: bool = True,
    loss: str = "logistic",
    l2: float = 0.0,
    graph: str | None = None,
    namespace: str = "numpy",
    communicator: Any = None,
) -> Problem:
    """Read the file, prepare and deal the rows, make the objective and the network.

    Raises
    ------
    ValueError, TypeError, OSError
        When the file or an option does not fit; the message is meant for the command line.
    """
    from optikit import data as tables
    from optikit.arrays import is_numpy, resolve_namespace
    from optikit.losses import get_loss
    from optikit.network import Network
    from optikit.objectives import LinearModel

    table = tables.read_data(path, format=format, target=target)
    loss_function = get_loss(loss.replace("-", "_"))
    if loss_function.targets == "binary":
        y = tables.code_labels(table.targets, positive)
    elif positive is not None:
        raise ValueError(f"--positive names a class, but the {loss} loss takes numbers as targets.")
    elif table.targets.dtype.kind not in "fiub":
        raise ValueError(f"the {loss} loss takes numbers as targets, {path} holds class names.")
    else:
        y = loss_function.check_targets(table.targets.astype(np.float64))
    X = table.features
    xp = resolve_namespace(namespace)
    if table.is_sparse and (standardize or table.density > DENSE_ABOVE or not is_numpy(xp)):
        X = X.toarray()
    mean = scale = constant = None
    if standardize:
        X, mean, scale = tables.standardize(X)
    if bias:
        X = tables.add_bias(X)
        constant = float(X[[0], [-1]][0]) if isinstance(X, np.ndarray) else float(X[[0], :].toarray()[0, -1])
    n_agents = check_integer(agents, "--agents", minimum=1)
    extra: dict[str, float] = {}
    if split == "similarity":
        extra["similarity"] = similarity
    if split == "dirichlet":
        extra["alpha"] = alpha
    dealt = tables.split(X, y, n_agents, split, seed=seed, **extra)
    network = Network(
        None if graph is None else parse_graph(graph, n_agents, seed),
        n_agents=n_agents,
        communicator=communicator,
        xp=xp,
    )
    own = dealt.subset(network.agents)
    if not is_numpy(xp):
        own = own.to(xp)
    kind = f"CSR, {table.density:.2%} stored" if hasattr(X, "indptr") else "dense"
    description = {
        "file": str(path),
        "samples": f"{table.n_samples}",
        "features": f"{table.n_features} ({kind})" + (" and an intercept" if bias else ""),
        "target": table.target_name,
        "agents": f"{n_agents}, {dealt.sizes.min()} to {dealt.sizes.max()} samples each",
        "split": split + "".join(f", {name} {value:g}" for name, value in extra.items()),
        "loss": loss + (f", l2 {l2:g}" if l2 else ""),
    }
    if graph is not None:
        description["graph"] = graph
    if loss_function.targets == "binary":
        description["positive class"] = f"{positive if positive is not None else 'the larger label'}, "
        description["positive class"] += f"{np.mean(y > 0):.1%} of the samples"
    model = LinearModel(own, loss_function, l2=l2)
    return Problem(model, network, table.feature_names, mean, scale, constant, description)


def parse_graph(text: str, n: int, seed: int) -> Graph:
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
        # Twice the connectivity threshold: connected with high probability.
        default = min(1.0, 2.0 * math.log(max(n, 2)) / n)
        return graphs.erdos_renyi(n, _probability(detail) if detail else default, seed)
    if Path(text).is_file():
        return graphs.read_edge_list(text, n)
    raise ValueError(f"--graph must be one of {', '.join(GRAPHS)} or an edge-list file, got {text!r}.")


def _sides(detail: str, n: int) -> tuple[int, int]:
    if not detail:
        a = next(k for k in range(math.isqrt(n), 0, -1) if n % k == 0)
        return a, n // a
    sides = detail.split("x")
    if len(sides) != 2 or not all(side.isdecimal() for side in sides) or math.prod(map(int, sides)) != n:
        raise ValueError(f"a grid of {n} agents is written grid:AxB with A*B = {n}, got {detail!r}.")
    return int(sides[0]), int(sides[1])


def _probability(detail: str) -> float:
    try:
        value = float(detail)
    except ValueError:
        raise ValueError(f"erdos-renyi:P needs a probability P, got {detail!r}.") from None
    return check_real(value, "P of erdos-renyi:P", minimum=0.0, maximum=1.0)
