"""Synthetic separable data whose margins are known or certain to be positive.

All generators multiply the labels into the rows, so every target is +1 and a weight vector separates the
data exactly when all scores are positive. All rows have norm at most 1.
"""

from __future__ import annotations

import numpy as np

from optikit.agent_data import AgentData
from optikit.validation import check_integer, check_real

__all__ = ["random_separable", "two_point", "two_vec"]


def two_point(g: float, beta: float) -> AgentData:
    r"""Two agents with one sample each, at a large angle when `g` is small.

    .. math:: x_1 = (g, \sqrt{1-g^2}), \qquad x_2 = \beta\,(g, -\sqrt{1-g^2}).

    Parameters
    ----------
    g : float
        0 < g <= 1; for g < 0.707 the two samples enclose more than 90 degrees (heterogeneous agents).
    beta : float
        0 < beta <= 1, the norm of the second sample; for beta = 1 the margin is `g`.

    Returns
    -------
    AgentData
        Two agents, one sample each, dimension 2, targets +1.
    """
    g = check_real(g, "g", minimum=0.0, maximum=1.0, open_low=True)
    beta = check_real(beta, "beta", minimum=0.0, maximum=1.0, open_low=True)
    s = np.sqrt(1.0 - g * g)
    return _with_unit_targets(np.array([[[g, s]], [[beta * g, -beta * s]]]))


def two_vec(g1: float, g2: float, c: float) -> AgentData:
    r"""Two agents with one sample each, of given norms and angle.

    .. math:: x_1 = (g_1, 0), \qquad x_2 = g_2\,(c, \sqrt{1-c^2}).

    Parameters
    ----------
    g1, g2 : float
        Norms of the samples, in (0, 1].
    c : float
        Cosine of the angle between them, in (-1, 1]; at -1 the data would not be separable.

    Returns
    -------
    AgentData
        Two agents, one sample each, dimension 2, targets +1.
    """
    g1 = check_real(g1, "g1", minimum=0.0, maximum=1.0, open_low=True)
    g2 = check_real(g2, "g2", minimum=0.0, maximum=1.0, open_low=True)
    c = check_real(c, "c", minimum=-1.0, maximum=1.0, open_low=True)
    return _with_unit_targets(np.array([[[g1, 0.0]], [[g2 * c, g2 * np.sqrt(1.0 - c * c)]]]))


def random_separable(n_agents: int, n_samples: int, dim: int, seed: int = 0) -> AgentData:
    """Gaussian rows, turned to the positive side of a random direction and divided by the largest norm.

    Parameters
    ----------
    n_agents, n_samples, dim : int
        Agents, samples of each agent, dimension; all at least 1.
    seed : int, default 0

    Returns
    -------
    AgentData
        Targets +1; the margin is positive with probability one, and small when there are many samples in few
        dimensions.
    """
    check_integer(n_agents, "n_agents", minimum=1)
    check_integer(n_samples, "n_samples", minimum=1)
    check_integer(dim, "dim", minimum=1)
    generator = np.random.default_rng(check_integer(seed, "seed", minimum=0))
    rows = generator.standard_normal((n_agents, n_samples, dim))
    direction = generator.standard_normal(dim)
    rows *= np.where(rows @ direction < 0.0, -1.0, 1.0)[:, :, None]
    rows /= np.sqrt((rows * rows).sum(axis=-1).max())
    return _with_unit_targets(rows)


def _with_unit_targets(rows: np.ndarray) -> AgentData:
    return AgentData.from_stacked(rows, np.ones(rows.shape[:2]))
