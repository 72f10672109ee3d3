"""Scalar losses of linear models."""

from optikit.losses.base import Loss
from optikit.losses.counts import Poisson
from optikit.losses.margins import Hinge, Logistic, SquaredHinge
from optikit.losses.registry import LOSSES, get_loss
from optikit.losses.residuals import Absolute, Huber, LeastSquares, Quantile

__all__ = [
    "LOSSES",
    "Absolute",
    "Hinge",
    "Huber",
    "LeastSquares",
    "Logistic",
    "Loss",
    "Poisson",
    "Quantile",
    "SquaredHinge",
    "get_loss",
]
