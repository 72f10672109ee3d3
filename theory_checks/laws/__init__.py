"""Laws that a measurement can be held against."""

from theory_checks.laws.base import Estimate, Judgement, Law
from theory_checks.laws.bounds import LowerBound, Monotone, UpperBound
from theory_checks.laws.discrete import Coverage, Invariant
from theory_checks.laws.slopes import LinearRate, PowerLaw
from theory_checks.laws.values import Equality, RatioConstant, Value

__all__ = [
    "Coverage",
    "Equality",
    "Estimate",
    "Invariant",
    "Judgement",
    "Law",
    "LinearRate",
    "LowerBound",
    "Monotone",
    "PowerLaw",
    "RatioConstant",
    "UpperBound",
    "Value",
]
