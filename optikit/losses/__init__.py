"""Scalar losses of linear models."""

from optikit.losses.base import Loss
from optikit.losses.counts import Gamma, NegativeBinomial, Poisson
from optikit.losses.margins import Hinge, Logistic, SquaredHinge
from optikit.losses.registry import LOSSES, get_loss
from optikit.losses.residuals import Absolute, Huber, LeastSquares, Quantile

__all__ = [
    "LOSSES",
    "Absolute",
    "Gamma",
    "Hinge",
    "Huber",
    "LeastSquares",
    "Logistic",
    "Loss",
    "NegativeBinomial",
    "Poisson",
    "Quantile",
    "SquaredHinge",
    "get_loss",
]
