"""Claims about rates, and the harness that tests them."""

from theory_checks.claim import Claim, Measurement, Sweep, Verdict
from theory_checks.fit import Regime
from theory_checks.laws import (
    Coverage,
    Equality,
    Invariant,
    LinearRate,
    LowerBound,
    Monotone,
    PowerLaw,
    RatioConstant,
    UpperBound,
    Value,
)

__all__ = [
    "Claim",
    "Coverage",
    "Equality",
    "Invariant",
    "LinearRate",
    "LowerBound",
    "Measurement",
    "Monotone",
    "PowerLaw",
    "RatioConstant",
    "Regime",
    "Sweep",
    "UpperBound",
    "Value",
    "Verdict",
]
