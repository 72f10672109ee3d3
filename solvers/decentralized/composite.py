"""What the methods for ``p(x) = (1/n) sum_i f_i(x) + (r/2)||x||^2`` share: their records and lower bounds."""

from __future__ import annotations

import math
from typing import Any

from optikit.arrays import array_namespace


def composite_metrics(
    objective: Any,
    network: Any,
    X: Any,
    r: float,
    *,
    minorant: tuple[Any, Any] | None = None,
    best_lower: Any = None,
) -> dict[str, float]:
    r"""Value at the mean point, consensus error and, from an affine minorant, a lower bound and the gap.

    With :math:`\phi + \langle g, x\rangle \le \frac1n \sum_i f_i(x)` for all x,
    :math:`p^* \ge \phi - \|g\|^2 / (2r)`.

    Parameters
    ----------
    X : array, shape (n_local, d)
    r : float
    minorant : (slopes (n_local, d), offsets (n_local,)), optional
        Each agent's minorant of its own f_i.
    best_lower : array, shape (1,), optional
        Running maximum of the lower bound, updated here.
    """
    xp = array_namespace(X)
    n = network.n_agents
    if minorant is None:
        mean, slope, offset = network.mean(X), None, 0.0
    else:
        slopes, offsets = minorant
        mean, slope, offset = (part / n for part in network.sum(X, slopes, offsets))
    scatter, value = network.sum(xp.sum((X - mean) ** 2, axis=1), objective.value(mean))
    point = float(xp.sum(mean * mean))
    record = {
        "objective": float(value) / n + 0.5 * r * point,
        "consensus_error": math.sqrt(float(scatter) / n),
    }
    if slope is not None and r > 0:
        lower = float(offset) - float(xp.sum(slope * slope)) / (2.0 * r)
        best_lower[0] = max(float(best_lower[0]), lower)
        record["lower_bound"] = float(best_lower[0])
        record["gap"] = record["objective"] - record["lower_bound"]
    return record
