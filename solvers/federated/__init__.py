"""Client-server methods without a server process."""

from solvers.federated.baselines import (
    LocalSGD,
    gradient_descent,
    large_step_gradient_descent,
    quadratic_fixed_point,
    small_step_local_gd,
    tuned_local_gd,
)
from solvers.federated.drift_correction import SCAFFOLD, FedProx
from solvers.federated.local_flow import LocalGradientFlow
from solvers.federated.local_gd import LocalGD, TwoStageLocalGD
from solvers.federated.local_solvers import local_gd_path
from solvers.federated.margin import Margin, NotSeparableError, max_margin, pooled_margin

__all__ = [
    "SCAFFOLD",
    "FedProx",
    "LocalGD",
    "LocalGradientFlow",
    "LocalSGD",
    "Margin",
    "NotSeparableError",
    "TwoStageLocalGD",
    "gradient_descent",
    "large_step_gradient_descent",
    "local_gd_path",
    "max_margin",
    "pooled_margin",
    "quadratic_fixed_point",
    "small_step_local_gd",
    "tuned_local_gd",
]
