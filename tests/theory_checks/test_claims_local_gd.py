"""Claims about Local GD and its flow: each passes the quick check, its negative control is rejected."""

import pytest

from theory_checks.claim import Verdict
from theory_checks.claims import local_flow, local_gd
from theory_checks.registry import Registry
from theory_checks.run import run_claims

CLAIMS = [*local_gd.CLAIMS, *local_flow.CLAIMS]
REGISTRY = Registry((local_gd.__name__, local_flow.__name__), {claim.name: claim for claim in CLAIMS})


@pytest.mark.parametrize("name", list(REGISTRY.claims))
def test_the_claim_passes_and_its_control_fails(name):
    claim = REGISTRY.claims[name]
    (report,) = run_claims(REGISTRY, [claim], effort="quick", seed=0).claims
    assert report.measured.verdict is Verdict.PASS, report.measured.message
    assert report.control.verdict is Verdict.FAIL, report.control.message
    assert report.verdict is Verdict.PASS


def test_every_claim_says_where_it_is_from():
    assert all(claim.reference and claim.theorem and claim.control_text for claim in CLAIMS)
