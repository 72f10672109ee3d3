"""From a data file and options to the objective and the network of a run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optikit.validation import check_integer
from solvers.cli.topology import parse_topology

if TYPE_CHECKING:
    from optikit.losses import Loss
    from optikit.network import Network

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
    kind: str = "mixing",
    link_weights: str = "auto",
    directed: bool = False,
    ridge_in_method: bool = False,
    whole_data: bool = False,
    server: bool = False,
    namespace: str = "numpy",
    communicator: Any = None,
) -> Problem:
    """Read the file, prepare and deal the rows, make the objective and the network.

    `kind`, `link_weights` and `directed` are those of `parse_topology`. With `ridge_in_method` the ridge term
    is left to the method, which treats it apart from the losses; with `whole_data` the objective is a `GLM`
    of all rows, its intercept apart from them; with `server` rank 0 holds no agents.

    Raises
    ------
    ValueError, TypeError, OSError
        When the file or an option does not fit; the message is meant for the command line.
    """
    from optikit import data as tables
    from optikit.arrays import is_numpy, resolve_namespace
    from optikit.network import Network
    from optikit.objectives import LinearModel

    table = tables.read_data(path, format=format, target=target)
    loss_function = parse_loss(loss)
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
    if bias and whole_data:
        constant = 1.0
    elif bias:
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
        None
        if graph is None
        else parse_topology(graph, n_agents, seed, kind=kind, weights=link_weights, directed=directed),
        n_agents=n_agents,
        communicator=communicator,
        xp=xp,
    )
    held = network.agents
    if server and network.size > 1:
        from optikit.runtime.star import workers_of

        held = np.array(workers_of(network.rank, network.size, n_agents), dtype=np.int64)
    own = dealt.subset(held)
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
        description["graph"] = graph + (f", {link_weights} weights" if link_weights != "auto" else "")
    if loss_function.targets == "binary":
        description["positive class"] = f"{positive if positive is not None else 'the larger label'}, "
        description["positive class"] += f"{np.mean(y > 0):.1%} of the samples"
    model: Any
    if whole_data:
        from solvers.newton.glm import GLM

        model = GLM(dealt.features, dealt.targets, loss_function, l2=l2, intercept=bias, workers=n_agents)
    else:
        model = LinearModel(own, loss_function, l2=0.0 if ridge_in_method else l2)
    return Problem(model, network, table.feature_names, mean, scale, constant, description)


def parse_loss(text: str) -> Loss:
    """A loss by its name, with its parameter if it has one: ``hinge``, ``quantile:0.9``, ``huber:2``."""
    from optikit.losses import get_loss

    name, _, detail = text.partition(":")
    loss = get_loss(name.replace("-", "_"))
    if not detail:
        return loss
    parameters = [item.name for item in fields(loss)]  # type: ignore[arg-type]
    if not parameters:
        raise ValueError(f"the {name} loss takes no parameter, got {text!r}.")
    try:
        value = float(detail)
    except ValueError:
        raise ValueError(f"{name}:NUMBER needs a number, got {detail!r}.") from None
    return type(loss)(**{parameters[0]: value})
