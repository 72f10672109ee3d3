"""Losses by name."""

from __future__ import annotations

from typing import Any

from optikit.losses.base import Loss
from optikit.losses.counts import Gamma, NegativeBinomial, Poisson
from optikit.losses.margins import Hinge, Logistic, SquaredHinge
from optikit.losses.residuals import Absolute, Huber, LeastSquares, Quantile

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Logistic,
        LeastSquares,
        Absolute,
        Hinge,
        SquaredHinge,
        Huber,
        Quantile,
        Poisson,
        NegativeBinomial,
        Gamma,
    )
}


def get_loss(name: str | Loss, **parameters: Any) -> Loss:
    """The loss called `name`, or `name` itself when it is a `Loss`.

    Raises
    ------
    ValueError
        For an unknown name (the known ones are listed).
    TypeError
        For parameters that the loss does not have.
    """
    if isinstance(name, Loss):
        if parameters:
            raise TypeError(f"parameters {', '.join(parameters)} go with a loss's name, got {name!r}.")
        return name
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(map(repr, LOSSES))}; got {name!r}.")
    return LOSSES[name](**parameters)
