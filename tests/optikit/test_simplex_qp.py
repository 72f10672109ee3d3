"""The simplex-product QP: invariants, degenerate instances, its NumPy reference, and a conic solver."""

import sys
from itertools import pairwise

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optikit._kernels_simplex import pairwise_ascent
from optikit.simplex_qp import (
    CAP,
    MAX_STEPS,
    PATIENCE,
    interior_point,
    pairwise_ascent_numpy,
    solve_simplex_product,
)


def instance(seed, sizes, rank, spread=1.0):
    rng = np.random.default_rng(seed)
    N = int(np.sum(sizes))
    root = rng.standard_normal((rank, N)) * np.logspace(0.0, spread, N)
    return root, root.T @ root, rng.standard_normal(N) * 10.0 ** rng.uniform(-1, 2)


def value(Q, e, lam):
    return e @ lam - 0.5 * lam @ Q @ lam


def block_totals(lam, sizes):
    ends = np.concatenate(([0], np.cumsum(sizes)))
    return np.array([lam[a:b].sum() for a, b in pairwise(ends) if b > a])


instances = st.tuples(
    st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 12)
)


@settings(max_examples=60, deadline=None)
@given(instances)
def test_weights_are_feasible_and_the_gap_is_a_bound(drawn):
    seed, sizes, rank = drawn
    _, Q, e = instance(seed, sizes, rank)
    found = solve_simplex_product(Q, e, sizes, delta=1e-3)
    best = solve_simplex_product(Q, e, sizes, delta=1e-11, start=found.weights)
    for solution in (found, best):
        assert np.all(solution.weights >= 0)
        np.testing.assert_allclose(block_totals(solution.weights, sizes), 1.0, rtol=0, atol=1e-14)
        assert solution.gap >= 0
    size = 1.0 + np.abs(e).max() + np.abs(Q).max()
    assert found.gap <= 1e-3
    # Weak duality: nothing is better than this point by more than its gap.
    assert value(Q, e, best.weights) - value(Q, e, found.weights) <= found.gap + 1e-14 * size


@settings(max_examples=30, deadline=None)
@given(instances)
def test_every_step_ascends(drawn):
    seed, sizes, rank = drawn
    _, Q, e = instance(seed, sizes, rank)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    values = []
    burst = 4  # ascents on a face are among the steps
    for steps in range(14):
        lam = np.zeros(e.size)
        pairwise_ascent(Q, 1.0, e, lam, starts, 1e-12, steps, burst, CAP, PATIENCE)
        values.append(value(Q, e, lam))
    assert np.all(np.diff(values) >= -1e-13 * (1.0 + np.abs(values[0]) + np.abs(e).max()))


@pytest.mark.parametrize("seed", range(12))
def test_numpy_takes_the_steps_of_the_kernel(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 8, 6)  # empty blocks too
    _, Q, e = instance(seed, sizes, 3 if seed % 2 else 40)
    if seed % 3 == 0:
        e[rng.integers(e.size)] = -np.inf
    starts, results = np.concatenate(([0], np.cumsum(sizes))), []
    for ascent in (pairwise_ascent, pairwise_ascent_numpy):
        lam = np.zeros(e.size)
        # Short bursts, so that ascents on faces are among the steps.
        gap, steps = ascent(Q, 0.7, e, lam, starts, 1e-9, MAX_STEPS, 5, CAP, PATIENCE)
        results.append((lam, gap, steps))
    (first, gap, steps), (second, other_gap, other_steps) = results
    assert steps == other_steps
    assert gap <= 1e-9
    rounding = 1e-14 * (np.abs(Q).max() + np.abs(e[e > -np.inf]).max())
    assert gap == pytest.approx(other_gap, abs=rounding)
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-13)


def test_numpy_stands_in_where_numba_is_missing(monkeypatch):
    _, Q, e = instance(5, [3, 4, 2], 4)
    compiled = solve_simplex_product(Q, e, [3, 4, 2])
    monkeypatch.setitem(sys.modules, "optikit._kernels_simplex", None)
    plain = solve_simplex_product(Q, e, [3, 4, 2])
    assert plain.steps == compiled.steps
    np.testing.assert_allclose(plain.weights, compiled.weights, rtol=0, atol=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_value_agrees_with_a_conic_solver(seed):
    sizes = np.random.default_rng(seed).integers(1, 6, 7)
    root, Q, e = instance(seed, sizes, 4, 0.5)
    found = solve_simplex_product(Q, e, sizes, delta=1e-11)
    lam, ends = cvxpy.Variable(e.size, nonneg=True), np.concatenate(([0], np.cumsum(sizes)))
    blocks = [cvxpy.sum(lam[a:b]) == 1 for a, b in pairwise(ends)]
    problem = cvxpy.Problem(cvxpy.Maximize(e @ lam - 0.5 * cvxpy.sum_squares(root @ lam)), blocks)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert found.gap <= 1e-11
    assert value(Q, e, found.weights) == pytest.approx(problem.value, abs=1e-9 * (1 + abs(problem.value)))


# -- degenerate instances ---------------------------------------------------------------------------------


def test_one_entry_and_blocks_of_one_entry_need_no_step():
    single = solve_simplex_product([[2.0]], [3.0], [1])
    assert (single.weights.tolist(), single.gap, single.steps) == ([1.0], 0.0, 0)
    _, Q, e = instance(0, [1, 1, 1], 2)
    assert solve_simplex_product(Q, e, [1, 1, 1]).weights.tolist() == [1.0, 1.0, 1.0]


def test_without_curvature_the_largest_entry_takes_all():
    e = np.array([1.0, 3.0, 2.0, -5.0, -4.0])
    found = solve_simplex_product(np.zeros((5, 5)), e, [3, 2])
    assert found.weights.tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert found.gap == 0.0


def test_duplicate_and_parallel_entries_are_solved():
    # Entry 1 repeats entry 0 with a lower offset: the pair has no curvature, all weight moves at once.
    g = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.5]])
    found = solve_simplex_product(g @ g.T, [0.0, -0.5, 0.1], [3], start=[0.0, 1.0, 0.0], delta=1e-14)
    assert found.weights[1] == 0.0
    assert found.gap <= 1e-14
    twice = np.repeat(g, 40, axis=0)  # the same point 40 times
    e = np.repeat([0.0, -0.5, 0.1], 40)
    many = solve_simplex_product(twice @ twice.T, e, [120], delta=1e-12)
    assert many.gap <= 1e-12
    assert value(twice @ twice.T, e, many.weights) == pytest.approx(
        value(g @ g.T, np.array([0.0, -0.5, 0.1]), found.weights), abs=1e-12
    )


def test_offsets_common_to_a_block_change_nothing():
    sizes = [4, 3, 5]
    _, Q, e = instance(3, sizes, 5)
    huge = e + np.repeat([1e8, -1e8, 1e8], sizes)
    seen = huge - np.repeat([1e8, -1e8, 1e8], sizes)  # what is left of e after rounding to 1e8
    plain, shifted = solve_simplex_product(Q, seen, sizes), solve_simplex_product(Q, huge, sizes)
    np.testing.assert_array_equal(plain.weights, shifted.weights)
    assert plain.gap == shifted.gap <= 1e-10


def test_rounding_ends_the_search_with_the_gap_it_allows():
    sizes = [6, 6, 6]
    _, Q, e = instance(8, sizes, 9)
    found = solve_simplex_product(1e12 * Q, 1e12 * e, sizes, delta=1e-10)
    assert found.steps < 20_000
    assert 1e-10 < found.gap <= 1e-15 * 1e12 * (np.abs(Q).max() + np.abs(e).max())


def test_entries_of_minus_infinity_stay_zero():
    _, Q, e = instance(2, [3, 2], 3)
    e[1], e[3:] = -np.inf, -np.inf  # an entry, and a whole block
    found = solve_simplex_product(Q, e, [3, 2], start=np.full(5, 0.5))
    kept = solve_simplex_product(Q[np.ix_([0, 2], [0, 2])], e[[0, 2]], [2])
    np.testing.assert_allclose(found.weights[[0, 2]], kept.weights, atol=1e-9)
    assert found.weights[[1, 3, 4]].tolist() == [0.0, 0.0, 0.0]


def test_scale_stands_for_a_scaled_matrix():
    _, Q, e = instance(4, [5, 4], 6)
    np.testing.assert_allclose(
        solve_simplex_product(Q, e, [5, 4], scale=0.25).weights,
        solve_simplex_product(0.25 * Q, e, [5, 4]).weights,
        rtol=0,
        atol=1e-12,
    )


def test_a_solution_is_a_warm_start_that_takes_no_step():
    _, Q, e = instance(6, [5, 4], 6)
    found = solve_simplex_product(Q, e, [5, 4], delta=1e-11)
    again = solve_simplex_product(Q, e, [5, 4], start=found.weights, delta=1e-10)
    assert again.steps == 0


# -- the step cap -----------------------------------------------------------------------------------------


def test_the_step_cap_hands_over_to_an_interior_point_method():
    pytest.importorskip("piqp")
    sizes = [6, 5, 7]
    _, Q, e = instance(9, sizes, 12)
    e[2] = -np.inf
    found = solve_simplex_product(Q, e, sizes, max_steps=3, delta=1e-10)
    best = solve_simplex_product(Q, e, sizes, delta=1e-12)
    kept = np.flatnonzero(e > -np.inf)
    pick = lambda lam: value(Q[np.ix_(kept, kept)], e[kept], lam[kept])  # noqa: E731
    assert pick(best.weights) - pick(found.weights) <= min(found.gap, 1e-6)
    assert found.weights[2] == 0.0
    starts = np.concatenate(([0], np.cumsum(sizes)))
    np.testing.assert_allclose(interior_point(Q, 1.0, e, starts), best.weights, atol=1e-5)


def test_without_an_interior_point_method_the_cap_returns_what_there_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "piqp", None)
    sizes = [6, 5, 7]
    _, Q, e = instance(9, sizes, 12)
    found = solve_simplex_product(Q, e, sizes, max_steps=3, delta=1e-10)
    best = solve_simplex_product(Q, e, sizes, delta=1e-12)
    assert found.steps == 3
    assert found.gap > 1e-10
    assert value(Q, e, best.weights) - value(Q, e, found.weights) <= found.gap
    np.testing.assert_allclose(block_totals(found.weights, sizes), 1.0, atol=1e-14)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Q": np.eye(2)}, "Q and e must have 3 rows"),
        ({"sizes": [2, 2]}, "Q and e must have 4 rows"),
        ({"sizes": [4, -1]}, "sizes must be non-negative"),
        ({"e": [0.0, np.nan, 0.0]}, "e must be finite"),
        ({"e": [0.0, np.inf, 0.0]}, "e must be finite"),
        ({"start": [1.0, 0.0]}, "start must be 3 finite weights"),
        ({"start": [1.0, 0.0, np.nan]}, "start must be 3 finite weights"),
        ({"delta": 0.0}, "delta must be"),
        ({"scale": 0.0}, "scale must be"),
        ({"max_steps": 0}, "max_steps must be"),
    ],
)
def test_bad_input_is_named(changes, message):
    arguments = {"Q": np.eye(3), "e": np.zeros(3), "sizes": [2, 1]} | changes
    with pytest.raises(ValueError, match=message):
        solve_simplex_product(arguments.pop("Q"), arguments.pop("e"), arguments.pop("sizes"), **arguments)
