"""What the agents minimise."""

from optikit.objectives.base import Objective, OracleCalls
from optikit.objectives.functions import FunctionObjective
from optikit.objectives.linear import LinearModel
from optikit.objectives.quadratic import Quadratic
from optikit.objectives.reference import ReferenceOptimum, reference_optimum

__all__ = [
    "FunctionObjective",
    "LinearModel",
    "Objective",
    "OracleCalls",
    "Quadratic",
    "ReferenceOptimum",
    "reference_optimum",
]
