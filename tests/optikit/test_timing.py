"""Timelines of one server and its workers: laws, limits, epochs and staleness as they are defined."""

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optikit.runtime.timing import (
    Exponential,
    Failure,
    LogNormalSpeeds,
    Pareto,
    Scripted,
    Ticks,
    Uniform,
    random_order,
    simulate_star,
)
from optikit.runtime.trace import Trace


@st.composite
def traces(draw):
    """Any order of events: up to five workers, up to thirty steps."""
    n = draw(st.integers(1, 5))
    workers = st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True)
    batches = draw(st.lists(workers, min_size=1, max_size=30))
    return Trace(n, np.arange(1.0, len(batches) + 1), batches)


def epochs_by_definition(trace):
    """k_0 = 0; an epoch ends at the first iteration all of whose anchors are newer than its beginning."""
    counts, boundary, epoch = [], 0, 0
    for step, stamps in enumerate(trace.stamps()):
        k = step + 1  # the iteration that uses these anchors
        if all(stamp > boundary for stamp in stamps):
            boundary, epoch = k, epoch + 1
        counts.append(epoch)
    return counts


@given(traces())
def test_epochs_and_staleness_follow_their_definitions(trace):
    assert trace.epochs().tolist() == epochs_by_definition(trace)
    stamps = trace.stamps()
    assert trace.oldest().tolist() == stamps.min(axis=1).tolist()
    assert trace.staleness().tolist() == [k + 1 - min(row) for k, row in enumerate(stamps.tolist())]
    assert np.all(np.diff(stamps, axis=0) >= 0)  # one query outstanding: stamps are monotone


@given(traces())
def test_delays_are_ages_of_the_replies_that_are_absorbed(trace):
    # When a reply is absorbed, its worker's anchor becomes the iterate that the query had been sent with.
    stamps = trace.stamps()
    expected = [k + 1 - stamps[k, worker] for k, batch in enumerate(trace.batches) for worker in batch]
    assert trace.delays().tolist() == expected
    assert trace.delays().min() >= 0


@given(traces())
def test_bounded_staleness_bounds_the_length_of_an_epoch(trace):
    # Staleness at most tau: an epoch lasts at most tau + 1 iterations.
    tau, epochs = int(trace.staleness().max()), trace.epochs()
    ends = np.flatnonzero(np.diff(np.concatenate(([0], epochs)))) + 1
    assert np.all(np.diff(np.concatenate(([0], ends))) <= tau + 1)


@given(traces())
def test_an_epoch_has_passed_when_every_worker_has_replied_twice(trace):
    epochs, replies, boundary = trace.epochs(), np.zeros(trace.n, dtype=int), 0
    for step, batch in enumerate(trace.batches):
        replies[batch] += 1
        if epochs[step] > (epochs[step - 1] if step else 0):
            replies[:], boundary = 0, step
        assert replies.min() < 2, (step, boundary)


@given(st.integers(1, 6), st.sampled_from(["drain", "each", "k_wait", "sync"]), st.integers(0, 5))
def test_each_worker_has_one_query_out_and_no_reply_is_early(n, policy, seed):
    trace = simulate_star(n, Exponential(1.0, seed), steps=40, policy=policy, k=max(1, n // 2), latency=0.25)
    last = np.zeros(n)
    for now, batch in zip(trace.times, trace.batches):
        for worker in batch:
            assert now >= last[worker] + 0.5  # a round trip at least
            last[worker] = now
    if policy == "sync":
        assert trace.staleness().max() == 0
        assert trace.epochs().tolist() == list(range(1, 41))


def test_latencies_may_differ_by_worker():
    trace = simulate_star(2, Ticks([1.0, 1.0]), until=10.0, latency=[0.0, 2.0])
    assert [time for time, batch in zip(trace.times, trace.batches) if 1 in batch] == [5.0, 10.0]


def test_long_timelines_of_many_workers_are_analysed_in_one_pass():
    trace = simulate_star(64, Exponential(1.0, 0), replies=100_000)
    assert trace.gradients[-1] >= 100_000
    assert trace.staleness().min() >= 0
    assert trace.epochs()[-1] > 100


def test_staleness_needs_no_table_of_steps_by_workers():
    # 20 000 steps of 20 000 workers: the table of all stamps would be 3.2 GB.
    trace = Trace(20_000, np.arange(20_000.0), [[worker] for worker in range(20_000)])
    began = time.process_time()
    assert trace.staleness()[-2:].tolist() == [19_999, 19_999]  # the last worker's reply is of iterate 1
    assert trace.epochs()[-1] == 1
    assert time.process_time() - began < 2.0


def test_the_timeline_shows_computing_staleness_and_epochs():
    trace = simulate_star(4, Exponential(1.0, 0), steps=60)
    figure = trace.figure(last=10.0)
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels[1:] == ["staleness", "epochs"]
    # However many bars: per worker one collection of turns and one of waits, and the server's steps.
    assert len(figure.axes[0].collections) == 9
    assert len({tuple(ax.get_xlim()) for ax in figure.axes}) == 1
    unknown = Trace(4, trace.times, trace.batches)  # where arrivals were not recorded
    assert len(unknown.plot().collections) == 5
    assert trace.plot_staleness().get_ylabel() == "staleness"
    assert trace.plot_epochs().get_ylabel() == "epochs"


def test_spans_tell_work_from_waiting():
    # A barrier of workers of 1 and 3 ticks: both are asked at 0 and 3, the fast one has replied by 1 and 4.
    trace = simulate_star(2, Ticks([1.0, 3.0]), steps=2, policy="sync")
    assert trace.times.tolist() == [3.0, 6.0]
    assert trace.spans.tolist() == [[0.0, 1.0], [0.0, 3.0], [3.0, 4.0], [3.0, 6.0]]
    bars = [len(collection.get_paths()) for collection in trace.plot().collections[:4]]
    assert bars == [2, 2, 2, 0]  # work and waits of worker 0; work of worker 1, which nobody waits less for


@given(traces(), st.integers(0, 35))
def test_the_head_of_a_trace_is_the_trace_of_its_first_steps(trace, steps):
    head = trace.head(steps)
    assert head.batches == trace.batches[:steps]
    assert head.staleness().tolist() == trace.staleness()[:steps].tolist()
    assert head.epochs().tolist() == trace.epochs()[:steps].tolist()


@pytest.mark.parametrize(
    "law",
    [Exponential(1.0, 3), Uniform(seed=1), LogNormalSpeeds(0.7, 0.5, 2), Pareto(1.5, 4), Ticks([1, 2, 3])],
)
def test_a_law_gives_the_same_timeline_each_time(law):
    first, longer = simulate_star(3, law, steps=50), simulate_star(3, law, steps=80)
    assert longer.head(50).describe() == first.describe()
    np.testing.assert_array_equal(longer.head(50).spans, first.spans)


def test_the_servers_time_may_depend_on_step_and_batch():
    # One worker, 1 tick; the server takes 10 before the first queries, then 2 and 3 ticks.
    trace = simulate_star(
        1, Ticks([1.0]), steps=3, server_time=lambda step, size: [10.0, 2.0, 3.0, 0.0][step]
    )
    assert trace.times.tolist() == [11.0, 14.0, 18.0]
    # With a tick per reply absorbed: two at first, so replies at 3; then two again.
    trace = simulate_star(2, Ticks([1.0, 1.0]), steps=2, server_time=lambda step, size: float(size))
    assert trace.times.tolist() == [3.0, 6.0]
    constant = simulate_star(3, Exponential(1.0, 0), steps=50, server_time=0.25)
    law = simulate_star(3, Exponential(1.0, 0), steps=50, server_time=Ticks([0.25]))
    assert constant.describe() == law.describe()


silences = st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda s: Failure(0, s[0], s[0] + s[1]))


@given(st.lists(silences, max_size=8))
def test_a_silent_worker_is_heard_at_the_end_of_its_silence(failures):
    # By definition: while some failure covers the arrival, it moves to that failure's end.
    expected, now = [], 0.0
    for _ in range(12):
        now += 1.0
        while covering := [f for f in failures if f.start <= now < f.end]:
            now = covering[0].end
        expected.append(now)
    assert simulate_star(1, Ticks([1.0]), steps=12, failures=failures).times.tolist() == expected


def test_a_random_order_has_its_shares_and_prefixes():
    trace = random_order([1.0, 2.0, 3.0, 4.0], 40_000, seed=5)
    shares = np.bincount(np.concatenate(trace.batches)) / 40_000
    # Binomial shares: standard deviation at most sqrt(.24 / 40 000) = .00245, five of them are .0123.
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.0123)
    assert random_order([1.0, 2.0, 3.0, 4.0], 100, seed=5).describe() == trace.head(100).describe()
    assert random_order([1.0, 2.0, 3.0, 4.0], 100, seed=6).describe() != trace.head(100).describe()


def test_files_that_are_no_traces_are_refused(tmp_path):
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"not an archive")
    with pytest.raises(ValueError, match="not a readable trace"):
        Trace.load(broken)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="not a readable trace"):
        Trace.load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "none.npz")
    trace = simulate_star(2, Ticks([1, 2]), steps=5)
    trace.save(tmp_path / "good")
    again = Trace.load(tmp_path / "good")
    assert again.describe() == trace.describe()
    np.testing.assert_array_equal(again.spans, trace.spans)
    Trace(2, trace.times, trace.batches).save(tmp_path / "good")
    assert Trace.load(tmp_path / "good").spans is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.npz", "good", "other.npz"]
    cut = tmp_path / "cut.npz"
    cut.write_bytes((tmp_path / "good").read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"cut\.npz is not a readable trace"):
        Trace.load(cut)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": [1, 2]}, "do not add up"),
        ({"sizes": [3, -1]}, "do not add up"),
        ({"sizes": [0.5, 1.5]}, "not whole numbers"),
        ({"n": [2, 2]}, "do not add up"),
        ({"n": 1}, "distinct workers below 1"),
        ({"times": [2.0, 1.0]}, "must not decrease"),
        ({"times": [[1.0], [2.0]]}, "times must have 2 entries"),
        ({"times": ["a", "b"]}, "could not convert"),
        ({"spans": [[0.0, 3.0], [0.0, 2.0]]}, "spans must run from query to arrival"),
    ],
)
def test_files_whose_arrays_make_no_trace_are_refused(tmp_path, changes, message):
    arrays = {"n": 2, "times": [1.0, 2.0], "sizes": [1, 1], "workers": [0, 1], "spans": np.zeros((0, 2))}
    np.savez(tmp_path / "odd.npz", **{name: np.array(value) for name, value in (arrays | changes).items()})
    with pytest.raises(ValueError, match=rf"odd\.npz is not a readable trace: .*{message}"):
        Trace.load(tmp_path / "odd.npz")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate_star(3, Ticks([1.0, 2.0]), steps=1), "durations must be one per worker, 3, got 2"),
        (lambda: simulate_star(3, Exponential([1.0, 2.0]), steps=1), "one per worker, 3, got 2"),
        (lambda: simulate_star(1, Scripted(lambda q, w: math.nan), steps=1), "nan for worker 0, query 0"),
        (lambda: simulate_star(1, Scripted(lambda q, w: 1.0 - q), steps=9), "-1.0 for worker 0, query 2"),
        (lambda: simulate_star(2, Pareto(1.5), steps=1, failures=[Failure(2, 0, 1)]), "of workers below 2"),
        (lambda: simulate_star(1, Scripted(lambda q, w: None), steps=1), "None for worker 0, query 0"),
        (lambda: simulate_star(2, Pareto(1.5), steps=9, server_time=-1.0), "server_time must be"),
        (
            lambda: simulate_star(2, Ticks([1, 1]), steps=9, server_time=lambda step, size: 1.0 - step),
            r"-1.0 for the server, step 2",
        ),
        (
            lambda: simulate_star(2, Pareto(1.5), server_time=Ticks([1, 1]), steps=1),
            "one per worker, 1, got 2",
        ),
        (lambda: simulate_star(2, Pareto(1.5), steps=-1), "steps must be"),
        (lambda: simulate_star(2, Pareto(1.5), replies=1.5), "replies must be"),
        (lambda: simulate_star(2, Pareto(1.5)), "give steps, replies or until"),
        (lambda: simulate_star(2, Uniform(0.0, 0.0), until=1.0), "time stands still at 0.0"),
        (lambda: Failure(0, 2.0, 1.0), "must start before it ends"),
        (lambda: Failure(0, math.nan, 1.0), "must start before it ends"),
        (lambda: Failure(0, 0.0, math.inf), "must start before it ends"),
        (lambda: Failure(-1, 0.0, 1.0), "worker must be"),
        (lambda: Failure(0.5, 0.0, 1.0), "worker must be"),
        (lambda: random_order([1.0, 0.0], 5), "weights must be"),
        (lambda: random_order([1.0], -1), "replies must be"),
        (lambda: simulate_star(2, Pareto(1.5), until=math.nan), "until must be a time"),
        (lambda: simulate_star(2, Pareto(1.5), steps=1, latency=[1.0]), "one number or 2"),
        (lambda: simulate_star(2, Pareto(1.5), steps=1, latency=-1.0), "latency must be"),
        (lambda: simulate_star(0, Pareto(1.5), steps=1), "n must be"),
        (lambda: Uniform(2.0, 1.0), "high must be"),
        (lambda: Trace(2, [np.nan], [[0]]), "must be finite"),
        (lambda: Trace(2, [1.0], [[2]]), "distinct workers below 2"),
    ],
)
def test_bad_timelines_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
