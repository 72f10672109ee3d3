"""Random sketches, leverage scores, and inversion-bias corrections."""

from optikit.sketching.debias import (
    RULES,
    debias_weights,
    determinantal_average,
    deterministic_equivalent,
    second_order_correction,
)
from optikit.sketching.inverse import (
    BiasReport,
    DebiasedInverse,
    RankDeficientWarning,
    bias_report,
    default_rule,
    inverse_times,
    sketched_inverse,
)
from optikit.sketching.leverage import (
    SCHEMES,
    approximate_leverage,
    effective_dimension,
    effective_dimension_from_gram,
    exact_leverage,
    leverage_from_sketch,
    sampling_probabilities,
)
from optikit.sketching.operators import SketchOperator, fwht
from optikit.sketching.rows import PoissonRows, Rows, RowsWithoutReplacement, inclusion_probabilities
from optikit.sketching.sketches import (
    LESS,
    SASO,
    SRHT,
    CountSketch,
    Gaussian,
    LESSUniform,
    Rademacher,
    Sketch,
    SketchTooSmall,
)

__all__ = [
    "LESS",
    "RULES",
    "SASO",
    "SCHEMES",
    "SRHT",
    "BiasReport",
    "CountSketch",
    "DebiasedInverse",
    "Gaussian",
    "LESSUniform",
    "PoissonRows",
    "Rademacher",
    "RankDeficientWarning",
    "Rows",
    "RowsWithoutReplacement",
    "Sketch",
    "SketchOperator",
    "SketchTooSmall",
    "approximate_leverage",
    "bias_report",
    "debias_weights",
    "default_rule",
    "determinantal_average",
    "deterministic_equivalent",
    "effective_dimension",
    "effective_dimension_from_gram",
    "exact_leverage",
    "fwht",
    "inclusion_probabilities",
    "inverse_times",
    "leverage_from_sketch",
    "sampling_probabilities",
    "second_order_correction",
    "sketched_inverse",
]
