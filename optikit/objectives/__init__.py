"""What the agents minimise."""

from optikit.objectives.base import Objective, OracleCalls
from optikit.objectives.quadratic import Quadratic

__all__ = ["Objective", "OracleCalls", "Quadratic"]
