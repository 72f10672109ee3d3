"""Dealing the rows of a table over agents: iid, by label, by similarity, Dirichlet.

Every split draws from ``numpy.random.default_rng(seed)`` and from nothing else, so all ranks deal alike.
Sizes are balanced within one row, except in the Dirichlet split, whose point is that they are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optikit.agent_data import AgentData
from optikit.validation import check_choice, check_integer, check_real

__all__ = ["split", "split_by_label", "split_by_similarity", "split_dirichlet", "split_iid"]


def split_iid(X: Any, y: Any, n_agents: int, seed: int = 0) -> AgentData:
    """Deal the rows at random, in shares of equal size (within one row).

    Parameters
    ----------
    X : array or CSR, shape (n_samples, n_features)
    y : array, shape (n_samples,)
    n_agents : int
        Number of agents, 1 to n_samples.
    seed : int, default 0

    Returns
    -------
    AgentData
    """
    return split_by_similarity(X, y, n_agents, 1.0, seed)


def split_by_label(X: Any, y: Any, n_agents: int, seed: int = 0) -> AgentData:
    """Sort the rows by label and deal them contiguously: the most heterogeneous split of equal sizes.

    Rows of one label come in random order. Parameters as in `split_iid`.
    """
    return split_by_similarity(X, y, n_agents, 0.0, seed)


def split_by_similarity(X: Any, y: Any, n_agents: int, similarity: float = 0.5, seed: int = 0) -> AgentData:
    """Deal a share of the rows iid and the rest sorted by label.

    The rows are permuted; the first ``round(similarity * n_samples)`` are dealt in that order in equal
    contiguous shares; the others are sorted by label (stably) and dealt the same way. An agent's iid rows
    come before its sorted ones.

    Parameters
    ----------
    X : array or CSR, shape (n_samples, n_features)
    y : array, shape (n_samples,)
        Labels; sorting is by their value, smallest first.
    n_agents : int
        Number of agents, 1 to n_samples.
    similarity : float, default 0.5
        0 (sorted by label) to 1 (iid).
    seed : int, default 0

    Returns
    -------
    AgentData

    Notes
    -----
    The split of the federated-learning experiments of Karimireddy et al. (SCAFFOLD, 2020), used in the Local
    GD papers. It reproduces the reference values of Local GD on digits.
    """
    labels, n = _check(X, y, n_agents)
    similarity = check_real(similarity, "similarity", minimum=0.0, maximum=1.0)
    order = np.random.default_rng(_check_seed(seed)).permutation(n)
    n_iid = round(similarity * n)
    iid, rest = order[:n_iid], order[n_iid:]
    rest = rest[np.argsort(labels[rest], kind="stable")]
    # Shares of the whole, less shares of the iid part: so no agent is short in both parts.
    iid_bounds, all_bounds = _bounds(n_iid, n_agents), _bounds(n, n_agents)
    rest_bounds = all_bounds - iid_bounds
    parts = [
        np.concatenate([iid[iid_bounds[m] : iid_bounds[m + 1]], rest[rest_bounds[m] : rest_bounds[m + 1]]])
        for m in range(n_agents)
    ]
    return _gather(X, y, parts)


def split_dirichlet(
    X: Any, y: Any, n_agents: int, alpha: float = 0.5, seed: int = 0, min_samples: int = 1
) -> AgentData:
    """Deal each class in proportions drawn from a symmetric Dirichlet distribution.

    Parameters
    ----------
    X : array or CSR, shape (n_samples, n_features)
    y : array, shape (n_samples,)
        Class labels (strings or whole numbers).
    n_agents : int
        Number of agents, 1 to n_samples.
    alpha : float, default 0.5
        Concentration, > 0: large is even, small gives each class to few agents.
    seed : int, default 0
    min_samples : int, default 1
        Draw again (up to 1000 times) until every agent has at least this many rows.

    Returns
    -------
    AgentData
        Of unequal sizes.

    Raises
    ------
    ValueError
        When no draw gave every agent `min_samples` rows.
    """
    labels, n = _check(X, y, n_agents)
    alpha = check_real(alpha, "alpha", minimum=0.0, open_low=True)
    min_samples = check_integer(min_samples, "min_samples", minimum=1)
    if labels.dtype.kind == "f" and (labels != np.round(labels)).any():
        raise ValueError(
            "the Dirichlet split deals class by class: targets must be class labels, got real numbers."
        )
    if n_agents * min_samples > n:
        raise ValueError(f"{n} rows cannot give {n_agents} agents {min_samples} rows each.")
    generator = np.random.default_rng(_check_seed(seed))
    classes = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    for _ in range(1000):
        shares: list[list[np.ndarray]] = [[] for _ in range(n_agents)]
        for rows in classes:
            weights = generator.dirichlet(np.full(n_agents, alpha))
            cuts = np.floor(np.cumsum(weights)[:-1] * rows.size + 0.5).astype(np.int64)
            for share, piece in zip(
                shares, np.split(generator.permutation(rows), np.minimum(cuts, rows.size))
            ):
                share.append(piece)
        parts = [np.concatenate(share) for share in shares]
        if min(part.size for part in parts) >= min_samples:
            return _gather(X, y, parts)
    raise ValueError(
        f"no Dirichlet draw with alpha={alpha!r} gave each of {n_agents} agents {min_samples} of {n} rows; "
        "take a larger alpha or fewer agents."
    )


METHODS: dict[str, Callable[..., AgentData]] = {
    "iid": split_iid,
    "label": split_by_label,
    "similarity": split_by_similarity,
    "dirichlet": split_dirichlet,
}


def split(X: Any, y: Any, n_agents: int, method: str = "iid", seed: int = 0, **options: Any) -> AgentData:
    """Deal the rows over agents by the named method.

    Parameters
    ----------
    X, y, n_agents, seed
        As in `split_iid`.
    method : {"iid", "label", "similarity", "dirichlet"}, default "iid"
    **options
        ``similarity`` of `split_by_similarity`; ``alpha`` and ``min_samples`` of `split_dirichlet`.
    """
    check_choice(method, "method", tuple(METHODS))
    return METHODS[method](X, y, n_agents, seed=seed, **options)


def _bounds(n: int, n_agents: int) -> np.ndarray:
    """First rows of shares of `n` rows that differ by one at most, larger ones first."""
    base, extra = divmod(n, n_agents)
    agents = np.arange(n_agents + 1)
    return agents * base + np.minimum(agents, extra)


def _check(X: Any, y: Any, n_agents: int) -> tuple[np.ndarray, int]:
    if getattr(X, "ndim", None) != 2 and np.ndim(X) != 2:
        raise ValueError(f"features must be a matrix, got shape {np.shape(X)}.")
    labels = np.asarray(y)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if labels.shape != (n,):
        raise ValueError(f"targets must have shape ({n},) like the rows of the features, got {labels.shape}.")
    check_integer(n_agents, "n_agents", minimum=1)
    if n_agents > n:
        raise ValueError(
            f"n_agents must be at most the number of rows, {n}, got {n_agents}: an agent needs data."
        )
    return labels, n


def _check_seed(seed: int) -> int:
    return check_integer(seed, "seed", minimum=0)


def _gather(X: Any, y: Any, parts: list[np.ndarray]) -> AgentData:
    rows = np.concatenate(parts)
    features = X if hasattr(X, "indptr") else np.asarray(X)
    return AgentData(
        features=features[rows],
        targets=np.asarray(y)[rows],
        offsets=np.concatenate([[0], np.cumsum([part.size for part in parts])]).astype(np.int64),
        agents=np.arange(len(parts), dtype=np.int64),
        n_agents=len(parts),
    )
