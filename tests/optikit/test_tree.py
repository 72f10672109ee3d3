"""Trees of servers on a virtual clock: order, counts, the published three-level environment."""

import numpy as np
import pytest

from optikit.runtime.timing import Exponential, Scripted, Ticks, simulate_star
from optikit.runtime.tree import EveryK, Kind, Tree, TreeTrace, simulate_tree


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


def test_many_seeds_run_along_one_trace_as_each_would_alone():
    tree = Tree.regions([2, 3], latency=0.3)
    trace = simulate_tree(tree, Exponential(1.0, 2), send_up=EveryK(3), replies=200)

    def run(seeds):
        """Hierarchical averaging of noisy gradients of x'x/2, one row per seed."""
        rngs = [np.random.default_rng(seed) for seed in seeds]
        models = np.ones((tree.n, len(seeds), 2))
        start = models.copy()
        for event in trace:
            v, above = event.node, tree.parents[event.node]
            if event.kind is Kind.REPLY:
                noise = np.array([rng.standard_normal(2) for rng in rngs])
                models[above] -= 0.05 * (start[v] + noise)
                start[v] = models[above]
            elif event.kind is Kind.UP:
                models[above] = 0.5 * (models[above] + models[v])
            else:
                models[v] = models[above]
        return models

    together, alone = run([0, 1, 2]), [run([s]) for s in (0, 1, 2)]
    for s in range(3):
        np.testing.assert_array_equal(together[:, s], alone[s][:, 0])


def test_traces_survive_a_file_and_are_drawn(tmp_path):
    trace = simulate_tree(Tree.regions([2, 2]), Exponential(1.0, 1), send_up=EveryK(2), replies=40)
    trace.save(tmp_path / "tree.npz")
    again = TreeTrace.load(tmp_path / "tree.npz")
    for name in ("tree_parents", "times", "kinds", "nodes", "versions"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
    assert trace.plot(last=10.0).get_xlabel() == "time"
    assert "40 replies" in repr(trace)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tree([0, 0]), "must name one root"),
        (lambda: Tree([-1, -1]), "must name one root"),
        (lambda: Tree([-1]), "at least one worker"),
        (lambda: Tree([-1, 2, 1]), "lies on a cycle"),
        (lambda: Tree([-1, 5]), "below 2 or -1"),
        (lambda: Tree.star(0), "n must be"),
        (lambda: Tree.regions([2, 0]), "every region needs at least one worker"),
        (lambda: Tree.star(2, latency=-1.0), "latency must be"),
        (lambda: Tree.star(2, bandwidth=0.0), "bandwidth must be"),
        (lambda: Tree.star(2, latency=[1.0, 2.0]), "one number or 3"),
        (lambda: EveryK(0), "k must be"),
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
