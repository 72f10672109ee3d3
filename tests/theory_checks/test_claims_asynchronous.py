"""Claims about the asynchronous bundle method: each passes the quick check, its control is rejected."""

import pytest

from theory_checks.claim import Verdict
from theory_checks.claims import asynchronous, asynchronous_certificate, asynchronous_sampled
from theory_checks.registry import Registry
from theory_checks.run import run_claims

pytestmark = pytest.mark.slow  # a minute in all

MODULES = (asynchronous, asynchronous_certificate, asynchronous_sampled)
REGISTRY = Registry(
    tuple(module.__name__ for module in MODULES),
    {claim.name: claim for module in MODULES for claim in module.CLAIMS},
)


@pytest.mark.parametrize("name", list(REGISTRY.claims))
def test_the_claim_passes_and_its_control_fails(name):
    claim = REGISTRY.claims[name]
    (report,) = run_claims(REGISTRY, [claim], effort="quick", seed=0).claims
    assert report.measured.verdict is Verdict.PASS, report.measured.message
    assert report.control.verdict is Verdict.FAIL, report.control.message
    assert report.verdict is Verdict.PASS
