"""Claims of known truth, for the tests of the harness: made of closures on purpose, as real ones are."""

import numpy as np

from optikit.runtime.communicator import default_communicator
from theory_checks import (
    Claim,
    Coverage,
    Equality,
    Invariant,
    LinearRate,
    Measurement,
    PowerLaw,
    Regime,
    Sweep,
    UpperBound,
)


def noisy_power(exponent, noise):
    def measure(point, seed):
        rng = np.random.default_rng((seed, int(point)))
        return float(3.0 * point**exponent * np.exp(noise * rng.standard_normal()))

    return measure


def raising(point, seed):
    raise RuntimeError(f"no <b>luck</b> at {point}")


def make(name, law, measure, control, **kwargs):
    options = {
        "theorem": "A toy statement.",
        "reference": "Nobody, nowhere.",
        "quantity": "F(x)",
        "sweep": Sweep("K", (1, 2, 4, 8, 16), (1, 4, 16, 64)),
        "control_text": "the exponent is another",
        "tags": ("toy",),
    }
    return Claim(name=name, law=law, measure=measure, control=control, **(options | kwargs))


TRUE = make(
    "toy.true_slope",
    PowerLaw(-1, 0.1),
    noisy_power(-1, 0.05),
    noisy_power(0, 0.05),
    seeds=6,
    tags=("toy", "slope"),
)
FALSE = make("toy.false_slope", PowerLaw(-1, 0.1), noisy_power(-0.5, 0.05), noisy_power(0, 0.05), seeds=6)
BLIND = make("toy.blind", PowerLaw(-1, 0.1), noisy_power(-1, 0.05), noisy_power(-1.01, 0.05), seeds=6)
VAGUE = make("toy.vague", PowerLaw(-1, 0.1), noisy_power(-1, 2.0), noisy_power(3, 0.05), seeds=3)
RAISES = make("toy.raises", PowerLaw(-1, 0.1), raising, noisy_power(0, 0.05))
HOSTILE = make(
    "toy.hostile",
    UpperBound(),
    lambda point, seed: Measurement(1.0, 2.0),
    lambda point, seed: Measurement(3.0, 2.0),
    theorem="<script>alert(1)</script> & \"quoted\" 'x'",
    reference="<img src=http://evil.example/x.png onerror=alert(2)>",
    quantity="$\\frac{<b>",
    formula="\\frac{1}{</pre><script>alert(3)</script>",
    control_text="<svg/onload=alert(4)>\x1b[31m",
    sweep=Sweep("</td><script>", ("<i>a</i>", "javascript:alert(5)")),
    tags=("<u>tag</u>",),
)
SERIES = make(
    "toy.linear",
    LinearRate(0.5, 0.01, regime=Regime(floor=1e-12)),
    lambda point, seed: Measurement(point * 0.5 ** np.arange(60.0), x=np.arange(60.0)),
    lambda point, seed: Measurement(point * 0.7 ** np.arange(60.0), x=np.arange(60.0)),
    sweep=Sweep("instance", (1.0, 3.0), axis="round"),
    formula=r"F(w_r) \leq C\,2^{-r}",
    tags=("toy", "rate"),
)
COVERS = make(
    "toy.coverage",
    Coverage(0.9, 0.08),
    lambda point, seed: bool(np.random.default_rng((seed, point)).random() < 0.9),
    lambda point, seed: bool(np.random.default_rng((seed, point)).random() < 0.6),
    sweep=Sweep("T", (10, 20)),
    seeds=300,
)
EQUAL = make(
    "toy.equal",
    Equality(rel=1e-12),
    lambda point, seed: Measurement(0.1 + 0.2, 0.3),
    lambda point, seed: Measurement(0.1 + 0.2, 0.31),
)
HOLDS = make(
    "toy.alone",  # true even when several MPI ranks share the claims
    Invariant(),
    lambda point, seed: default_communicator().Get_size() == 1,
    lambda point, seed: point < 8,
)

GOOD = [TRUE, SERIES, COVERS, EQUAL, HOLDS]
CLAIMS = [*GOOD, FALSE, BLIND, VAGUE, RAISES, HOSTILE]
EXPECTED = dict.fromkeys([claim.name for claim in [*GOOD, HOSTILE]], "pass") | {
    "toy.false_slope": "fail",
    "toy.blind": "broken",
    "toy.vague": "inconclusive",
    "toy.raises": "error",
}
