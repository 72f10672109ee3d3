"""Claims about the optimal non-smooth method: each passes the quick check, its control is rejected."""

import pytest

from theory_checks.claim import Verdict
from theory_checks.claims import nonsmooth
from theory_checks.registry import Registry
from theory_checks.run import run_claims

pytestmark = pytest.mark.slow  # twenty seconds in all

REGISTRY = Registry((nonsmooth.__name__,), {claim.name: claim for claim in nonsmooth.CLAIMS})


@pytest.mark.parametrize("name", list(REGISTRY.claims))
def test_the_claim_passes_and_its_control_fails(name):
    claim = REGISTRY.claims[name]
    (report,) = run_claims(REGISTRY, [claim], effort="quick", seed=0).claims
    assert report.measured.verdict is Verdict.PASS, report.measured.message
    assert report.control.verdict is Verdict.FAIL, report.control.message
    assert report.verdict is Verdict.PASS
