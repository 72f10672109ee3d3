"""What a run leaves behind: its printed form, its table, its picture, and histories as lists of rows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit.graphs import ring
from optikit.ledger import CommunicationLedger
from optikit.network import Network
from optikit.objectives import Quadratic
from optikit.result import STATUSES, Certificate, History, Result
from solvers.decentralized.gradient_descent import DecentralizedGradientDescent


def run(**options) -> Result:
    objective = Quadratic(np.tile(np.eye(2), (4, 1, 1)), np.arange(8.0).reshape(4, 2))
    return DecentralizedGradientDescent(step_size=0.1).solve(
        objective, Network(ring(4)), **{"max_rounds": 20, **options}
    )


class Named:
    name = "method"


def result(status="converged", certificate=None, rows=({"round": 0.0, "objective": 2.0},)) -> Result:
    history = History()
    for row in rows:
        history.append(row)
    return Result(
        x=np.zeros(2),
        iterate=np.zeros((4, 2)),
        status=status,
        message=STATUSES[status],
        iterations=7,
        rounds=14,
        objective=2.0,
        history=history,
        certificate=certificate,
        ledger=CommunicationLedger(4),
        seconds=0.25,
        state=None,
        solver=Named(),
    )


def test_a_printed_result_says_why_it_ended_and_what_it_cost():
    found = run()
    lines = repr(found).splitlines()
    assert lines[0].endswith("max_rounds (the round limit was reached)")
    assert f"{found.objective:.6g}" in lines[1]
    assert "iterations  20   rounds 20" in lines[2]
    # 4 agents, 2 neighbours each, 2 floats, 20 rounds
    assert lines[3].split()[2] == str(4 * 2 * 2 * 20)
    assert "objective" in lines[-1]
    assert f"{len(found.history)} records" in lines[-1]


def test_a_certified_gap_is_printed_and_half_a_certificate_is_not():
    whole = Certificate("duality gap", lower_bound=1.0, upper_bound=1.5)
    assert whole.gap == 0.5
    assert "  duality gap 0.5" in repr(result(certificate=whole)).splitlines()
    half = Certificate("duality gap", lower_bound=1.0)
    assert half.gap is None
    assert "duality gap" not in repr(result(certificate=half))


@pytest.mark.parametrize("status", STATUSES)
def test_success_is_false_for_runs_that_broke_off_only(status):
    assert result(status).success == (status not in {"diverged", "stalled", "interrupted"})


def test_a_table_has_one_row_per_record_and_one_column_per_quantity():
    found = run(record_every=5)
    table = found.to_dataframe()
    assert list(table["round"]) == [0, 5, 10, 15, 20]
    assert set(table.columns) == set(found.history.columns)
    np.testing.assert_array_equal(table["objective"], found.history["objective"])
    # the frame is the caller's: writing to it leaves the history alone
    table.loc[0, "objective"] = -1.0
    assert found.history["objective"][0] != -1.0


def test_a_result_draws_a_column_of_its_history():
    found = run()
    ax = found.plot("consensus_error")
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), found.history["round"])
    np.testing.assert_array_equal(line.get_ydata(), found.history["consensus_error"])
    assert ax.get_xlabel() == "communication rounds"
    assert found.plot("objective", "floats_sent", ax=ax) is ax
    with pytest.raises(KeyError, match="no column 'gap' in this history; it has iteration, round"):
        found.plot("gap")


@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from("abcd"), st.floats(-9, 9), min_size=1), min_size=1, max_size=90
    )
)
@settings(max_examples=60, deadline=None)
def test_a_history_is_the_list_of_its_rows_with_gaps_as_nan(rows):
    history = History(capacity=100)
    for row in rows:
        history.append(row)
    assert len(history) == len(rows)
    for name in set().union(*rows):
        np.testing.assert_array_equal(history[name], [row.get(name, math.nan) for row in rows])


@given(capacity=st.integers(4, 20), records=st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_a_full_history_keeps_evenly_spaced_records_the_first_and_the_last(capacity, records):
    history = History(capacity)
    for k in range(records):
        history.append({"round": k, "square": k * k}, last=k == records - 1)
    kept = history["round"]
    assert len(history) <= capacity
    assert kept[0] == 0
    assert kept[-1] == records - 1
    assert np.unique(np.diff(kept[:-1])).size <= 1
    np.testing.assert_array_equal(history["square"], kept**2)
    assert len(history) >= min(records, capacity // 2)


@given(records=st.integers(1, 60), more=st.integers(0, 60))
@settings(max_examples=30, deadline=None)
def test_a_restored_history_goes_on_like_the_old_one(records, more):
    old = History(16)
    for k in range(records):
        old.append({"round": k})
    columns, counters = old.state()
    new = History.restored({name: column.copy() for name, column in columns.items()}, counters)
    for k in range(records, records + more):
        old.append({"round": k})
        new.append({"round": k})
    np.testing.assert_array_equal(old["round"], new["round"])


def test_a_record_taken_back_leaves_no_trace():
    history = History()
    history.append({"a": 1.0, "b": 1.0})
    history.append({"a": 2.0, "b": 2.0})
    history.drop_last()
    history.append({"a": 3.0})
    np.testing.assert_array_equal(history["a"], [1.0, 3.0])
    np.testing.assert_array_equal(history["b"], [1.0, np.nan])


def test_histories_say_what_they_hold():
    history = History()
    assert repr(history) == "History(0 records of nothing)"
    with pytest.raises(KeyError, match="it has none"):
        history["objective"]
    history.append({"objective": 1.0, "round": 0.0})
    assert repr(history) == "History(1 records of objective, round)"
    assert "objective" in history
    assert "gap" not in history
    for capacity in (3, 0, -1):
        with pytest.raises(ValueError, match="history capacity must be an integer >= 4"):
            History(capacity)
