"""The runner: verdicts of known claims, the same report however the work is spread, and interruptions."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import toy_claims

from theory_checks.registry import Registry, discover
from theory_checks.report import Report
from theory_checks.run import run_claims

HERE = Path(__file__).parent


def timeless(text):
    """The JSON of a report without what differs between runs by nature."""
    content = json.loads(text)
    for name in ("started", "seconds", "jobs", "ranks", "environment"):
        content.pop(name)
    for claim in content["claims"]:
        for side in ("measured", "control"):
            claim[side].pop("seconds")
    return content


@pytest.fixture(scope="module")
def report():
    return run_claims(discover(["toy_claims"]))


def registry_of(*claims):
    return Registry(("toy_claims",), {claim.name: claim for claim in claims})


def test_claims_of_known_truth_get_their_verdicts(report):
    assert {claim.name: claim.verdict for claim in report.claims} == toy_claims.EXPECTED


def test_every_verdict_explains_itself(report):
    found = {claim.name: claim for claim in report.claims}
    assert "negative control passes" in found["toy.blind"].message
    assert "no <b>luck</b> at 1" in found["toy.raises"].message
    assert "raise RuntimeError" in found["toy.raises"].measured.traceback
    assert found["toy.raises"].control.verdict == "fail"  # the other side was still judged
    assert found["toy.true_slope"].measured.estimates[0].expected_low == pytest.approx(-1.1)


def test_two_processes_give_the_report_of_one(report):
    spread = run_claims(discover(["toy_claims"]), jobs=2)
    assert spread.jobs == 2
    assert timeless(spread.to_json()) == timeless(report.to_json())


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_several_ranks_give_the_report_of_one(report, mpi_run, tmp_path, ranks):
    path = tmp_path / "report.json"
    done = mpi_run(ranks, HERE / "check_toys.py", "--module", "toy_claims", "--json", path, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("10 claims") == 1  # only the root speaks
    assert Report.from_json(path.read_text()).ranks == ranks
    assert timeless(path.read_text()) == timeless(report.to_json())


def test_verdicts_do_not_depend_on_the_order_of_the_claims(report):
    shuffled = list(toy_claims.CLAIMS)
    random.Random(0).shuffle(shuffled)
    again = run_claims(registry_of(*shuffled))
    by_name = {claim["name"]: claim for claim in timeless(again.to_json())["claims"]}
    assert [claim.name for claim in again.claims] == [claim.name for claim in shuffled]
    assert by_name == {claim["name"]: claim for claim in timeless(report.to_json())["claims"]}


def test_the_base_seed_and_the_effort_reach_the_measurement():
    seen = []

    def measure(point, seed):
        seen.append((point, seed))
        return 1 / point

    claim = replace(toy_claims.TRUE, measure=measure, control=lambda p, s: 1.0, seeds=(1, 2))
    run_claims(registry_of(claim), effort="full", seed=3)
    assert seen == [(point, seed) for point in (1, 4, 16, 64) for seed in (30000, 30001)]


def test_warnings_of_a_measurement_are_reported_once():
    def measure(point, seed):
        import warnings

        warnings.warn("step size is large", UserWarning, stacklevel=1)
        return 1 / point

    report = run_claims(registry_of(replace(toy_claims.TRUE, measure=measure)))
    assert report.claims[0].measured.warnings == ["UserWarning: step size is large"]


def test_a_law_that_cannot_be_applied_is_an_error_of_the_claim():
    claim = replace(toy_claims.HOSTILE, measure=lambda p, s: 1.0)  # no reference for the bound
    assert run_claims(registry_of(claim)).claims[0].verdict == "error"


def test_a_module_that_cannot_be_read_fails_the_run():
    report = run_claims(discover(["no_such_module"]))
    assert report.exit_status() == 1
    assert report.claims[0].verdict == "error"


def test_a_worker_that_dies_is_an_error_not_a_hang():
    registry = discover(["interruptible_claims"])
    report = run_claims(registry, registry.select(["stops.dies"]), jobs=2)
    assert report.claims[0].verdict == "error"
    assert "BrokenProcessPool" in report.claims[0].message


def test_an_interrupt_keeps_what_was_judged():
    registry = discover(["interruptible_claims"])
    chosen = [registry.claims[name] for name in ("stops.first", "stops.interrupts", "stops.hangs")]
    report = run_claims(registry, chosen)
    assert report.interrupted
    assert [claim.name for claim in report.claims] == ["stops.first"]
    assert report.unfinished == ["stops.interrupts", "stops.hangs"]
    assert report.exit_status() == 130


def test_ctrl_c_ends_the_workers_and_writes_the_partial_report(tmp_path):
    started, path = tmp_path / "started", tmp_path / "report.json"
    command = [sys.executable, "-m", "theory_checks", "--module", "interruptible_claims", "-j", "2"]
    process = subprocess.Popen(
        [*command, "stops.first", "stops.hangs", "--json", path],
        cwd=HERE,
        env=dict(os.environ, OPTIKIT_TEST_STARTED=str(started)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not (started.exists() and started.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # stops.first was submitted earlier and takes no time
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, output
    report = Report.from_json(path.read_text())
    assert report.unfinished == ["stops.hangs"], output
    worker = int(started.read_text())
    for _ in range(100):
        if not _alive(worker):
            break
        time.sleep(0.05)
    assert not _alive(worker)


def _alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("bad", [{"effort": "slow"}, {"jobs": 0}, {"seed": -1}, {"seed": 1.5}])
def test_bad_arguments_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        run_claims(registry_of(toy_claims.TRUE), **bad)
