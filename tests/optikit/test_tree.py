"""Trees of servers on a virtual clock: order, counts, the published three-level environment."""

import itertools

import numpy as np
import pytest

from optikit.runtime.timing import Exponential, Scripted, Ticks, simulate_star
from optikit.runtime.tree import (
    EveryK,
    Kind,
    Tree,
    TreeTrace,
    replay_events,
    ring_allreduce_time,
    ring_bandwidth,
    simulate_tree,
)


def test_a_star_is_the_tree_of_depth_one():
    # The same law, one reply per step: the same workers at the same times.
    star = simulate_star(5, Exponential(1.0, 3), steps=300, policy="each")
    tree = simulate_tree(Tree.star(5), Exponential(1.0, 3), replies=300)
    assert [batch[0] for batch in star.batches] == (tree.nodes - 1).tolist()
    np.testing.assert_allclose(tree.times, star.times, rtol=1e-14)


def test_versions_count_what_the_server_absorbed_meanwhile():
    # Two workers, 1 and 3 ticks: the slow one's first reply follows the fast one's third (the lower goes
    # first).
    trace = simulate_tree(Tree.star(2), Ticks([1.0, 3.0]), replies=6)
    assert trace.nodes.tolist() == [1, 1, 1, 2, 1, 1]
    assert trace.versions.tolist() == [0, 1, 2, 0, 3, 5]
    assert trace.staleness().tolist() == [0, 0, 0, 3, 1, 0]


def test_servers_send_up_at_their_kth_message_and_never_before_the_answer():
    tree = Tree.regions([2], latency=[0.0, 5.0, 0.0, 0.0])
    trace = simulate_tree(tree, Ticks([1.0, 1.0]), send_up=EveryK(4), until=30.0)
    up = [event.time for event in trace if event.kind is Kind.UP]
    down = [event.time for event in trace if event.kind is Kind.DOWN]
    # Fourth message at t = 2, up arrives at 7, the answer at 12, before the replies of that moment (lower
    # node first). Counted anew from there, the fourth comes at 13.
    assert up[:2] == [7.0, 18.0]
    assert down[:2] == [12.0, 23.0]


def test_workers_restart_at_once():
    tree = Tree.regions([1, 1], latency=[0.0, 100.0, 100.0, 0.0, 0.0])
    trace = simulate_tree(tree, Ticks([1.0, 2.0]), until=50.0)
    assert trace.counts(Kind.REPLY).tolist() == [0, 0, 0, 50, 25]
    assert trace.counts(Kind.UP).sum() == 0


def test_deeper_trees_relay():
    # root 0 - server 1 - server 2 - worker 3; every message goes on at once.
    trace = simulate_tree(Tree([-1, 0, 1, 2], latency=1.0), Ticks([1.0]), until=20.0)
    first = [(event.time, event.kind, event.node) for event in trace][:6]
    assert first == [
        (3.0, Kind.REPLY, 3),  # model down 1, evaluation 1, result up 1
        (4.0, Kind.UP, 2),
        (5.0, Kind.UP, 1),
        (5.0, Kind.DOWN, 2),
        (6.0, Kind.DOWN, 1),
        (6.0, Kind.REPLY, 3),
    ]


SPEEDS = np.array(
    [
        *(0.232, 0.907, 0.828, 0.347, 0.574, 0.531, 0.722, 0.194),
        *(0.852, 0.132, 0.896, 0.107, 0.827, 0.515, 0.527, 0.788),
    ]
)
TO_ROOT = [100.0, 0.537, 0.935, 0.202]  # Gbit/s


def test_the_published_three_level_environment_has_its_figures():
    # Four regions of four workers, 70 426 624 parameters of 32 bits (specification of hierarchical local
    # SGD).
    bandwidth = [np.inf, *(1e9 * b for b in TO_ROOT), *[100e9] * 16]
    tree = Tree.regions([4, 4, 4, 4], bandwidth=bandwidth, bits=70_426_624 * 32)
    assert tree.link_time(4) == pytest.approx(11.157, abs=1e-3)
    v = SPEEDS / SPEEDS.max()
    steps = np.maximum(1, np.ceil(8 * v)).astype(int)
    assert steps.tolist() == [3, 8, 8, 4, 6, 5, 7, 2, 8, 2, 8, 1, 8, 5, 5, 7]
    durations = steps * 0.238391 / v
    trace = simulate_tree(tree, Ticks(durations), send_up=EveryK(32), until=20_000.0)
    region = np.repeat([1, 2, 3, 4], 4)
    updates = np.array([trace.counts(Kind.REPLY)[5:][region == r].sum() for r in (1, 2, 3, 4)])
    share = 32.0 * trace.counts(Kind.DOWN)[1:5] / updates
    np.testing.assert_allclose(share, [1.00, 0.68, 0.79, 0.43], atol=0.03)
    # The closed form K/(K + round trip times rate).
    rate = updates / 20_000.0
    trips = np.array([2.0 * tree.link_time(r) for r in (1, 2, 3, 4)])
    np.testing.assert_allclose(share, 32.0 / (32.0 + trips * rate), rtol=0.02)


class Averaging:
    """Hierarchical averaging of noisy gradients of x'x/2, a row per seed: a method for the tree."""

    def __init__(self, tree, seeds):
        self.rngs = [np.random.default_rng(seed) for seed in seeds]
        self.models = np.ones((tree.n, len(seeds), 2))

    def work(self, worker, model):
        return model + np.array([rng.standard_normal(2) for rng in self.rngs])

    def absorb(self, server, child, message):
        if child < 3:  # a regional server's report
            self.models[server] = 0.5 * (self.models[server] + message)
        else:
            self.models[server] -= 0.05 * message

    def report(self, server):
        return self.models[server].copy()

    def answer(self, server, child):
        return self.models[server].copy()

    def merge(self, server, model):
        self.models[server] = model


TREE = Tree.regions([2, 3], latency=0.3)
TRACE = simulate_tree(TREE, Exponential(1.0, 2), send_up=EveryK(3), replies=200)


def test_many_seeds_run_along_one_trace_as_each_would_alone():
    def run(seeds):
        method = Averaging(TREE, seeds)
        replay_events(TRACE, method)
        return method.models

    together, alone = run([0, 1, 2]), [run([s]) for s in (0, 1, 2)]
    assert not np.array_equal(together[:, 0], together[:, 1])
    for s in range(3):
        np.testing.assert_array_equal(together[:, s], alone[s][:, 0])


@pytest.mark.parametrize("cut", [0, 1, 57, len(TRACE)])
def test_a_replay_goes_on_where_an_earlier_one_stopped(cut):
    whole, parts = Averaging(TREE, [5]), Averaging(TREE, [5])
    replay_events(TRACE, whole)
    messages = replay_events(TRACE, parts, stop=cut)
    replay_events(TRACE, parts, start=cut, in_flight=messages)
    np.testing.assert_array_equal(parts.models, whole.models)


def test_a_replayed_message_is_what_it_was_when_it_was_sent():
    # Two workers of 1 and 3 ticks on one server that counts: the slow one answers the model it got at 0.
    trace = simulate_tree(Tree.star(2), Ticks([1.0, 3.0]), replies=6)
    seen = []

    class Counting:
        count = 0

        def work(self, worker, model):
            return worker, model

        def absorb(self, server, child, message):
            seen.append(message)
            self.count += 1

        def answer(self, server, child):
            return self.count

    replay_events(trace, Counting())
    assert seen == list(zip(trace.nodes.tolist(), trace.versions.tolist()))


def test_a_server_loses_what_it_absorbs_while_its_report_is_away():
    # One worker of 1 tick, a round trip of 4 to the root: a report at t = 2, its answer at 6, ...
    tree = Tree.regions([1], latency=[0.0, 2.0, 0.0])
    trace = simulate_tree(tree, Ticks([1.0]), send_up=EveryK(2), until=24.5)
    ups, lost = trace.counts(Kind.UP)[1], trace.absorbed_in_flight()[1]
    # At t = 6 the answer (node 1) goes before the reply of that moment (node 2): 3 to 5 are lost, 6 and 7
    # make the next report, 8 to 10 are lost, ... until 23 and 24.
    assert (trace.absorbed()[1], ups, lost) == (24, 5, 14)
    assert trace.absorbed()[0] == ups


def test_traces_survive_a_file_and_are_drawn(tmp_path):
    tree = Tree.regions([2, 2], names=["global", "east", "west", "a", "b", "c", "d"])
    trace = simulate_tree(tree, Exponential(1.0, 1), send_up=EveryK(2), replies=40)
    trace.save(tmp_path / "tree.npz")
    again = TreeTrace.load(tmp_path / "tree.npz")
    for name in ("parents", "times", "kinds", "nodes", "versions", "reports"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
    assert (again.names, again.describe()) == (trace.names, trace.describe())
    ax = trace.plot(last=10.0)
    assert ax.get_xlabel() == "time"
    assert [label.get_text() for label in ax.get_yticklabels()] == list(tree.names)
    assert len(ax.collections) == 4 + 2  # bars of each worker; messages up, answers
    assert "40 replies" in repr(trace)
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(ValueError, match=r"other\.npz"):
        TreeTrace.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": [2.0, 1.0]}, "must not decrease"),
        ({"times": [1.0]}, "one length"),
        ({"times": [1.0, np.nan]}, "finite"),
        ({"kinds": [0, 7]}, "kinds must be"),
        ({"nodes": [2, 9]}, "nodes must be below 3"),
        ({"nodes": [2, 0]}, "event 1 cannot be"),  # the root has nobody above
        ({"kinds": [1, 0]}, "event 0 cannot be: no UP of node 2"),
        (
            {"nodes": [2, 1], "kinds": [0, 1], "reports": [0, 0]},
            "event 1 cannot be: no UP of node 1",
        ),  # nobody sent it
        ({"reports": [1, 1]}, "event 1 cannot be: node 1 may not send up"),
        ({"names": ["a"]}, "names must be 3 strings"),
    ],
)
def test_orders_that_cannot_be_are_refused(changes, message):
    good = {"parents": [-1, 0, 1], "times": [1.0, 2.0], "kinds": [0, 0], "nodes": [2, 2], "reports": [1, 0]}
    assert len(TreeTrace(**good)) == 2
    with pytest.raises(ValueError, match=message):
        TreeTrace(**good | changes)


def test_links_between_regions_come_from_a_matrix():
    between = np.array([[100.0, 0.9], [0.9, 50.0]])
    tree = Tree.regions([2, 1], bandwidth=between, home=1, bits=90.0)
    assert [tree.link_time(v) for v in (1, 2, 3, 4, 5)] == pytest.approx([100.0, 1.8, 0.9, 0.9, 1.8])


@pytest.mark.parametrize("regions", [1, 2, 3, 5, 6])
def test_the_best_ring_is_the_best_of_all(regions):
    links = np.random.default_rng(regions).uniform(1.0, 9.0, (regions, regions))
    links = links + links.T
    rings = itertools.permutations(range(1, regions))
    best = max(min(links[a, b] for a, b in itertools.pairwise([0, *ring, 0])) for ring in rings)
    assert ring_bandwidth(links) == best
    assert ring_allreduce_time(4, 8.0, 2.0) == 6.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tree([0, 0]), "must name one root"),
        (lambda: Tree([-1, -1]), "must name one root"),
        (lambda: Tree([-1]), "at least one worker"),
        (lambda: Tree([-1, 2, 1]), "they lead to a cycle"),
        (lambda: Tree([-1, 5]), "below 2 or -1"),
        (lambda: Tree.star(0), "n must be"),
        (lambda: Tree.regions([2, 0]), "every region needs at least one worker"),
        (lambda: Tree.star(2, latency=-1.0), "latency must be"),
        (lambda: Tree.star(2, bandwidth=0.0), "bandwidth must be"),
        (lambda: Tree.star(2, latency=[1.0, 2.0]), "one number or 3"),
        (lambda: Tree.star(2, names=["a"]), "names must be 3 strings"),
        (lambda: Tree.regions([1, 1], bandwidth=np.ones((3, 3))), r"must be \(2, 2\)"),
        (lambda: Tree.regions([1, 1], latency=[[0, 1], [2, 0]]), "must be symmetric"),
        (lambda: Tree.regions([1, 1], home=2), "home must be"),
        (lambda: ring_bandwidth(np.zeros((2, 2))), "must be > 0"),
        (lambda: ring_bandwidth(np.ones((17, 17))), "at most 16 regions"),
        (lambda: ring_allreduce_time(0, 1.0, 1.0), "n must be"),
        (lambda: EveryK(0), "k must be"),
        (lambda: simulate_tree(Tree.star(1), Ticks([1.0]), until=np.nan), "until must be"),
        (lambda: simulate_tree(Tree.star(1), Scripted(lambda q, w: 0.0), until=1.0), "time stands still"),
        (lambda: replay_events(TRACE, None, start=3), "in_flight is needed"),
        (lambda: replay_events(TRACE, None, in_flight=[]), "must have 8 entries"),
        (lambda: simulate_tree(Tree.star(1), Ticks([1.0])), "needs an end"),
        (
            lambda: simulate_tree(Tree.star(1), Scripted(lambda query, worker: -1.0), replies=1),
            "worker 0, query 0",
        ),
    ],
)
def test_bad_trees_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
