"""Claims about topologies: each passes the quick check, its negative control is rejected."""

import pytest

from theory_checks.claim import Verdict
from theory_checks.claims import topology
from theory_checks.registry import Registry
from theory_checks.run import run_claims

REGISTRY = Registry((topology.__name__,), {claim.name: claim for claim in topology.CLAIMS})


@pytest.mark.parametrize("name", list(REGISTRY.claims))
def test_the_claim_passes_and_its_control_fails(name):
    claim = REGISTRY.claims[name]
    (report,) = run_claims(REGISTRY, [claim], effort="quick", seed=0).claims
    assert report.measured.verdict is Verdict.PASS, report.measured.message
    assert report.control.verdict is Verdict.FAIL, report.control.message
    assert report.verdict is Verdict.PASS


def test_the_full_sweep_is_the_acceptance_of_the_base_graph():
    claim = REGISTRY.claims["topology.base_graph_is_exact"]
    assert len(claim.sweep.points("full")) == 392
