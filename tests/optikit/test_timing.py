"""Timelines of one server and its workers: laws, limits, epochs and staleness as they are defined."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optikit.runtime.timing import Exponential, Failure, Pareto, Scripted, Ticks, Uniform, simulate_star
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
    assert trace.staleness().tolist() == [k + 1 - min(row) for k, row in enumerate(stamps.tolist())]
    assert np.all(np.diff(stamps, axis=0) >= 0)  # one query outstanding: stamps are monotone


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
    for time, batch in zip(trace.times, trace.batches):
        for worker in batch:
            assert time >= last[worker] + 0.5  # a round trip at least
            last[worker] = time
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


def test_the_timeline_shows_computing_staleness_and_epochs():
    figure = simulate_star(4, Exponential(1.0, 0), steps=60).figure(last=10.0)
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels[1:] == ["staleness", "epochs"]
    assert len(figure.axes[0].collections) == 5  # one row of bars per worker, and the server's steps


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
    simulate_star(2, Ticks([1, 2]), steps=5).save(tmp_path / "good")
    assert len(Trace.load(tmp_path / "good")) == 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.npz", "good", "other.npz"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate_star(3, Ticks([1.0, 2.0]), steps=1), "durations must be one per worker, 3, got 2"),
        (lambda: simulate_star(3, Exponential([1.0, 2.0]), steps=1), "one per worker, 3, got 2"),
        (lambda: simulate_star(1, Scripted(lambda q, w: math.nan), steps=1), "nan for worker 0, query 0"),
        (lambda: simulate_star(1, Scripted(lambda q, w: 1.0 - q), steps=9), "-1.0 for worker 0, query 2"),
        (lambda: simulate_star(2, Pareto(1.5), steps=1, failures=[Failure(2, 0, 1)]), "of workers below 2"),
        (lambda: Failure(0, 2.0, 1.0), "must start before it ends"),
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
