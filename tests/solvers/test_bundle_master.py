"""Masters of the bundle method: certified references, bounds, evictions, checkpoints of the bundle.

References come from a conic solver, made exact by solving the optimality conditions on its active set; a
duality certificate written down here, not the code under test, says how exact they are.
"""

import copy
from dataclasses import dataclass, fields

import cvxpy
import numpy as np
import pytest

from optikit.checkpoint import pack_state, read_checkpoint, replicated, unpack_state, write_checkpoint
from optikit.network import Network
from solvers.asynchronous.master import (
    best_lower_bound,
    default_delta,
    lp_lower_bound,
    solve_master,
)
from solvers.asynchronous.models import MODELS, Bundle
from solvers.asynchronous.regularizers import Box, ElasticNet, Prox, Quadratic, l1_negative_conjugate

REGULARISERS = {
    "none": Quadratic(),
    "l2": Quadratic(0.3),
    "l1": ElasticNet(0.05),
    "box": Box(-0.5, 0.4),
    "box by variable": Box(np.linspace(-0.6, -0.1, 12), 0.3, 0.2),
    "elastic net": ElasticNet(0.05, 0.3),
}


def ragged(seed, n=5, d=12, size=4, **options):
    """Cuts of ``||x||^2/2 + noise`` at random points, 1 to `size` per worker, some in place of others."""
    rng = np.random.default_rng(seed)
    bundle = Bundle("cutting_plane", n, d, size, None, **options)
    for i in range(n):
        for _ in range(int(rng.integers(1, size + 3))):
            z = rng.standard_normal(d)
            bundle.put(i, z, float(0.5 * z @ z), z + 0.1 * rng.standard_normal(d))
    return bundle, rng.uniform(0.05, 0.5, n)


def primal(bundle, h, L, x):
    return bundle.values(x).sum() + h.value(x) + 0.5 * L @ np.sum((x - bundle.anchors) ** 2, axis=1)


def parts(h, d):
    """l1 weight, bounds, quadratic of h."""
    low, high = (h.low, h.high) if isinstance(h, Box) else (-np.inf, np.inf)
    return getattr(h, "l1", 0.0), low * np.ones(d), high * np.ones(d), h.quadratic


def dual(bundle, h, L, lam):
    """The master's dual value at lam, with all constants."""
    l1, low, high, q = parts(h, bundle.d)
    total, s = L.sum() + q, lam @ bundle.flat
    centre = (L @ bundle.anchors - s) / total
    x = np.clip(np.sign(centre) * np.maximum(np.abs(centre) - l1 / total, 0.0), low, high)
    near = 0.5 * L @ np.sum((x - bundle.anchors) ** 2, axis=1)
    return s @ x - lam @ bundle.offsets.ravel() + l1 * np.abs(x).sum() + 0.5 * q * x @ x + near


def reference(bundle, h, L):
    """Minimiser and value of the master, and how far the value may be from the optimal one."""
    d, n = bundle.d, bundle.n
    l1, low, high, q = parts(h, d)
    active, G, v = bundle.active(), bundle.flat[bundle.active()], bundle.offsets.ravel()[bundle.active()]
    owner = active // bundle.slots
    x, t = cvxpy.Variable(d), cvxpy.Variable(n)
    cuts = G @ x - v <= t[owner]
    boxed = [x >= low, x <= high] if isinstance(h, Box) else []
    near = sum(0.5 * L[i] * cvxpy.sum_squares(x - bundle.anchors[i]) for i in range(n))
    cost = cvxpy.sum(t) + near + l1 * cvxpy.norm1(x) + 0.5 * q * cvxpy.sum_squares(x)
    accuracy = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
    cvxpy.Problem(cvxpy.Minimize(cost), [cuts, *boxed]).solve(solver="CLARABEL", **accuracy)
    point, weights = x.value, cuts.dual_value
    # Optimality conditions on the active set: linear in the free variables, the cuts' maxima and weights.
    zero = (np.abs(point) < 1e-6) & (l1 > 0)
    at = np.where(point < low + 1e-6, low, np.where(point > high - 1e-6, high, np.nan))
    fixed = np.where(zero, 0.0, at)
    free, chosen = np.isnan(fixed), np.flatnonzero(weights > 1e-6)
    k, m = int(free.sum()), chosen.size
    A, b = np.zeros((k + m + n, k + n + m)), np.zeros(k + m + n)
    A[:k, :k] = (L.sum() + q) * np.eye(k)
    A[:k, k + n :] = G[chosen][:, free].T
    b[:k] = (L @ bundle.anchors)[free] - l1 * np.sign(point[free])
    A[k : k + m, :k] = G[chosen][:, free]
    A[np.arange(k, k + m), k + owner[chosen]] = -1.0
    b[k : k + m] = v[chosen] - G[chosen][:, ~free] @ fixed[~free]
    A[k + m + owner[chosen], k + n + np.arange(m)] = 1.0
    b[k + m :] = 1.0
    solution = np.linalg.lstsq(A, b, rcond=None)[0]
    exact = fixed.copy()
    exact[free] = solution[:k]
    lam = np.zeros(bundle.used.size)
    lam[active[chosen]] = np.maximum(solution[k + n :], 0.0)
    lam /= np.repeat(lam.reshape(n, -1).sum(axis=1), bundle.slots)
    value = primal(bundle, h, L, exact)
    return exact, value, value - dual(bundle, h, L, lam)


# -- solutions (A7) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGULARISERS)
@pytest.mark.parametrize("seed", range(6))
def test_masters_agree_with_a_certified_reference(name, seed):
    bundle, L = ragged(seed)
    h = REGULARISERS[name]
    x, value, doubt = reference(bundle, h, L)
    assert abs(doubt) <= 1e-12
    solution = solve_master(bundle, h, L, 1e-12)
    assert solution.gap <= 1e-12
    assert primal(bundle, h, L, solution.x) == pytest.approx(value, abs=1e-9)
    np.testing.assert_allclose(solution.x, x, rtol=0, atol=1e-6)
    np.testing.assert_allclose(bundle.weights.sum(axis=1), 1.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", [*REGULARISERS, "prox"])
@pytest.mark.parametrize("delta", [1e-1, 1e-3, 1e-6])
def test_the_gap_bounds_the_error_of_early_stops(name, delta):
    for seed in range(4):
        bundle, L = ragged(seed)
        h = REGULARISERS["l1" if name == "prox" else name]
        _, value, _ = reference(bundle, h, L)
        solution = solve_master(bundle, Prox(h.value, h.prox) if name == "prox" else h, L, delta)
        error = primal(bundle, h, L, solution.x) - value
        assert -1e-12 <= error <= solution.gap + 1e-12
        assert solution.gap <= delta


def test_a_general_proximal_map_gives_the_solution_of_the_special_case():
    for h in (ElasticNet(0.05), ElasticNet(0.05, 0.3), Box(-0.5, 0.4)):
        bundle, L = ragged(1)
        other = copy.deepcopy(bundle)
        plain = h.with_quadratic(-h.quadratic)
        general = solve_master(other, Prox(plain.value, plain.prox, h.quadratic), L, 1e-11)
        assert general.gap <= 1e-11
        np.testing.assert_allclose(general.x, solve_master(bundle, h, L, 1e-12).x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", REGULARISERS)
def test_one_worker_with_one_cut_is_a_proximal_step(name):
    h, rng = REGULARISERS[name], np.random.default_rng(0)
    z, g = rng.standard_normal(12), rng.standard_normal(12)
    bundle = Bundle("latest", 1, 12, 1, None)
    bundle.put(0, z, 2.0, g)
    solution = solve_master(bundle, h, np.array([0.7]), 1e-12)
    np.testing.assert_allclose(solution.x, h.prox(z - g / 0.7, 1 / 0.7), rtol=0, atol=1e-14)
    assert solution.gap == 0.0


@pytest.mark.parametrize("name", REGULARISERS)
def test_duplicate_and_parallel_cuts_are_solved(name):
    h, rng = REGULARISERS[name], np.random.default_rng(3)
    bundle, z, g = Bundle("cutting_plane", 3, 12, 6, None), *rng.standard_normal((2, 12))
    for i in range(3):
        for k in range(6):  # twice the same cut, then lower parallels of it, then its mirror image
            bundle.put(i, z, 1.0 - 0.1 * max(k - 1, 0), g if k < 5 else -g)
    solution = solve_master(bundle, h, np.ones(3), 1e-12)
    _, value, _ = reference(bundle, h, np.ones(3))
    assert solution.gap <= 1e-12
    assert primal(bundle, h, np.ones(3), solution.x) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("name", REGULARISERS)
def test_offsets_common_to_a_worker_do_not_move_the_solution(name):
    bundle, L = ragged(2)
    moved, h = copy.deepcopy(bundle), REGULARISERS[name]
    shifts = np.array([1e8, -1e8, 1e8, 0.0, 1e8])[:, None]
    moved.offsets += shifts
    bundle.offsets[...] = moved.offsets - shifts  # with the digits that are left
    first, second = solve_master(bundle, h, L, 1e-10), solve_master(moved, h, L, 1e-10)
    assert first.gap == second.gap <= 1e-10
    np.testing.assert_array_equal(second.x, first.x)


def test_a_diverged_master_says_so_without_an_exception():
    bundle, L = ragged(0)
    bundle.offsets[0, 0] = np.nan
    for h in (Quadratic(), ElasticNet(0.05)):
        solution = solve_master(copy.deepcopy(bundle), h, L, 1e-10)
        assert not np.all(np.isfinite(solution.x)) or np.isnan(solution.gap)


def test_gaps_asked_for_follow_the_size_of_the_objective():
    assert default_delta(Quadratic(), 0.3) == 1e-10
    assert default_delta(ElasticNet(0.1), -50.0) == 50 * 1e-10
    assert default_delta(Prox(np.sum, lambda x, step: x), 0.3) == 1e-8
    assert default_delta(Quadratic(), np.inf) == 1e-10


# -- the bundle -------------------------------------------------------------------------------------------


def quadratics(n, d, seed=0):
    rng = np.random.default_rng(seed)
    roots, centres = rng.standard_normal((n, d, d)), rng.standard_normal((n, d))

    def oracle(i, x):
        r = roots[i] @ (x - centres[i]) / d
        return 0.5 * float(r @ r), roots[i].T @ r / d

    return oracle


@dataclass
class Run:
    """A server reduced to its bundle: workers answer in turn, two a step."""

    bundle: Bundle = replicated()
    points: np.ndarray = replicated()
    step_number: int = replicated(default=0)

    def absorb(self, oracle):
        for i in {self.step_number % self.bundle.n, (3 * self.step_number + 1) % self.bundle.n}:
            self.bundle.put(i, self.points[i].copy(), *oracle(i, self.points[i]))

    def solve(self, h, weight=0.01):
        x = solve_master(self.bundle, h, np.full(self.bundle.n, weight), 1e-10).x
        self.points[:] = np.where(
            np.arange(self.bundle.n)[:, None] % 2 == self.step_number % 2, x, self.points
        )
        self.step_number += 1
        return x


def start(model, eviction="fifo", n=4, d=6, size=3):
    f_low = np.zeros(n) if model.startswith("polyak") else None
    run = Run(Bundle(model, n, d, size, f_low, eviction), np.zeros((n, d)))
    oracle = quadratics(n, d)
    for i in range(n):
        run.bundle.put(i, run.points[i].copy(), *oracle(i, run.points[i]))
    return run, oracle


@pytest.mark.parametrize("eviction", ["fifo", "least_active"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("h", [Quadratic(0.1), ElasticNet(0.01)])
def test_a_restored_bundle_goes_on_bit_by_bit(model, eviction, h, tmp_path):
    run, oracle = start(model, eviction)
    for _ in range(7):
        run.solve(h)
        run.absorb(oracle)
    assert run.bundle.stale_cuts.any()  # stored between a reply and its master
    network = Network(n_agents=4)
    scalars, arrays = pack_state(run, network)
    write_checkpoint(tmp_path / "run.npz", {"scalars": scalars}, arrays)
    header, stored = read_checkpoint(tmp_path / "run.npz")
    again = unpack_state(start(model, eviction)[0], header["scalars"], stored, network)
    for item in fields(Bundle):
        kept, restored = getattr(run.bundle, item.name), getattr(again.bundle, item.name)
        np.testing.assert_array_equal(kept, restored)
        assert type(kept) is type(restored)
    for _ in range(9):
        np.testing.assert_array_equal(run.solve(h), again.solve(h))
        run.absorb(oracle)
        again.absorb(oracle)


@pytest.mark.parametrize("eviction", ["fifo", "least_active"])
@pytest.mark.parametrize("model", MODELS)
def test_the_cut_at_the_anchor_is_never_evicted(model, eviction):
    run, oracle = start(model, eviction)
    rng = np.random.default_rng(1)
    for _ in range(30):
        run.solve(Quadratic(0.1), weight=1.0)
        before = run.bundle.weights.copy()
        run.absorb(oracle)
        np.testing.assert_allclose(run.bundle.weights.sum(axis=1), before.sum(axis=1), atol=1e-14)
        for i in range(4):
            z, x = run.bundle.anchors[i], rng.standard_normal(6)
            f, g = oracle(i, z)
            assert run.bundle.values(z)[i] == pytest.approx(f, abs=1e-12)  # A2, and a minorant (A1)
            assert run.bundle.values(x)[i] >= f + g @ (x - z) - 1e-12
            assert run.bundle.values(x)[i] <= oracle(i, x)[0] + 1e-12
            assert run.bundle.value(i, x) == pytest.approx(run.bundle.values(x)[i], abs=1e-13)
            np.testing.assert_array_equal(run.bundle.cuts[i, run.bundle.newest[i]], g)


def test_fifo_drops_the_oldest_cut_and_least_active_the_lightest():
    survivors = {}
    for eviction in ("fifo", "least_active"):
        bundle = Bundle("cutting_plane", 1, 1, 4, None, eviction)
        for k in range(4):
            bundle.put(0, np.zeros(1), 0.0, np.array([float(k)]))
        bundle.weights[0] = [0.5, 0.0, 0.5, 0.0]
        for k in range(4, 6):
            bundle.put(0, np.zeros(1), 0.0, np.array([float(k)]))
        survivors[eviction] = sorted(bundle.cuts[0, :, 0].tolist())
        assert bundle.weights.sum() == 1.0
    # Cuts 1 and 3 have no weight: 1 goes for 4, then, 4 being the newest, 3 goes for 5.
    assert survivors == {"fifo": [2, 3, 4, 5], "least_active": [0, 2, 4, 5]}


def test_an_evicted_weight_passes_to_the_new_cut():
    bundle = Bundle("cutting_plane", 1, 1, 2, None)
    for k in range(2):
        bundle.put(0, np.zeros(1), 0.0, np.array([float(k)]))
    bundle.weights[0] = [0.7, 0.3]
    bundle.put(0, np.zeros(1), 0.0, np.array([2.0]))
    assert bundle.cuts[0, :, 0].tolist() == [2.0, 1.0]
    assert bundle.weights[0].tolist() == [0.7, 0.3]


@pytest.mark.parametrize("model", MODELS)
def test_products_kept_up_to_date_equal_their_recomputation(model):
    run, oracle = start(model)
    for _ in range(40):
        run.solve(Quadratic(0.1), weight=1.0)
        run.absorb(oracle)
    run.bundle.refresh()
    flat = run.bundle.flat
    np.testing.assert_allclose(run.bundle.gram, flat @ flat.T, rtol=0, atol=3e-14)
    np.testing.assert_array_equal(run.bundle.gram, run.bundle.gram.T)
    np.testing.assert_allclose(run.bundle.cross, flat @ run.bundle.anchors.T, rtol=0, atol=3e-14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("planes", 2, 3, 4), "model must be one of"),
        (("latest", 0, 3, 4), "n must be"),
        (("latest", 2, 0, 4), "d must be"),
        (("cutting_plane", 2, 3, 0), "size must be"),
        (("polyak", 2, 3, 4), "f_low, lower bounds on the f_i, is needed"),
        (("latest", 2, 3, 4, None, "newest"), "eviction must be one of"),
    ],
)
def test_bad_bundles_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Bundle(*arguments)


# -- lower bounds -----------------------------------------------------------------------------------------


def model_minimum(bundle, h, radius=None):
    """``min h + sum m_i`` by a conic solver."""
    l1, low, high, q = parts(h, bundle.d)
    active = bundle.active()
    x, t = cvxpy.Variable(bundle.d), cvxpy.Variable(bundle.n)
    bounds = [bundle.flat[active] @ x - bundle.offsets.ravel()[active] <= t[active // bundle.slots]]
    bounds += [x >= low, x <= high] if isinstance(h, Box) else []
    bounds += [cvxpy.abs(x) <= radius] if radius is not None else []
    cost = cvxpy.sum(t) + l1 * cvxpy.norm1(x) + 0.5 * q * cvxpy.sum_squares(x)
    accuracy = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)
    return cvxpy.Problem(cvxpy.Minimize(cost), bounds).solve(solver="CLARABEL", **accuracy)


@pytest.mark.parametrize(
    ("h", "radius"),
    [
        (ElasticNet(3.0), None),
        (ElasticNet(0.05), 2.0),
        (Box(-0.5, 0.4), None),
        (Box(0.1, 0.4), None),
        (Box(0.0, np.inf), 3.0),
        (Quadratic(), 1.5),
    ],
)
def test_the_linear_program_gives_the_minimum_of_the_model(h, radius):
    for seed in range(3):
        bundle, _ = ragged(seed)
        weights = bundle.weights.copy()
        bound = lp_lower_bound(bundle, h, radius)
        assert bound == pytest.approx(model_minimum(bundle, h, radius), abs=1e-8)
        np.testing.assert_array_equal(bundle.weights, weights)


@pytest.mark.parametrize("h", [ElasticNet(0.05), Box(0.0, np.inf), Box(-np.inf, 0.2)])
def test_floors_bound_the_linear_program_without_a_radius(h):
    rng, bundle = (
        np.random.default_rng(4),
        Bundle("polyak_cutting_plane", 3, 8, 4, np.array([-2.0, 0.0, -1.0])),
    )
    for i in range(3):
        for z in rng.standard_normal((6, 8)):
            bundle.put(i, z, float(0.5 * z @ z), z + 0.01)
    minimum, bound = model_minimum(bundle, h), lp_lower_bound(bundle, h)
    assert -3.0 <= bound <= minimum + 1e-9
    assert bound == pytest.approx(minimum, abs=1e-8)


def test_an_unbounded_model_has_no_bound():
    bundle, _ = ragged(0)
    assert lp_lower_bound(bundle, Quadratic()) is None
    assert lp_lower_bound(bundle, ElasticNet(1e-3)) is None
    with pytest.raises(ValueError, match="without a quadratic"):
        lp_lower_bound(bundle, Quadratic(0.1))
    with pytest.raises(ValueError, match="radius must be"):
        lp_lower_bound(bundle, Quadratic(), -1.0)


@pytest.mark.parametrize("h", [Quadratic(0.3), ElasticNet(0.05, 0.3), Box(-0.5, 0.4, 0.2)])
def test_the_best_bound_is_the_minimum_of_the_model(h):
    for seed in range(3):
        bundle, L = ragged(seed)
        solve_master(bundle, h, L, 1e-10)
        weights = bundle.weights.copy()
        at_master = h.negative_conjugate(weights.ravel() @ bundle.flat) - float(
            weights.ravel() @ bundle.offsets.ravel()
        )
        bound, lam = best_lower_bound(bundle, h)
        minimum = model_minimum(bundle, h)
        assert at_master <= bound + 1e-12
        assert minimum - 2e-9 <= bound <= minimum + 1e-9  # the conic solver's own accuracy
        again, _ = best_lower_bound(bundle, h, start=lam)
        assert again == pytest.approx(bound, abs=1e-10)
        np.testing.assert_array_equal(bundle.weights, weights)


def test_best_bound_of_a_general_proximal_map_and_of_h_without_curvature():
    bundle, _ = ragged(0)
    plain = ElasticNet(0.05)
    bound, _ = best_lower_bound(bundle, Prox(plain.value, plain.prox, 0.3), delta=1e-9)
    assert bound == pytest.approx(best_lower_bound(bundle, ElasticNet(0.05, 0.3))[0], abs=2e-9)
    nothing, lam = best_lower_bound(bundle, plain)
    assert nothing is None
    np.testing.assert_array_equal(lam, bundle.weights)


def test_l1_alone_is_bounded_through_the_size_of_a_minimiser():
    s = np.array([0.5, -2.0, 1.0])
    assert l1_negative_conjugate(s, 2.0, 10.0) == 0.0
    assert l1_negative_conjugate(s, 1.5, 10.0) == -5.0  # all of the radius on the second entry
    x = np.array([0.0, 10.0, 0.0])
    assert 1.5 * np.abs(x).sum() + s @ x == -5.0


# -- regularisers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGULARISERS)
def test_proximal_maps_and_conjugates_are_optimal(name):
    h, rng = REGULARISERS[name], np.random.default_rng(0)
    y, s = 2 * rng.standard_normal((2, 12))
    p, conjugate = h.prox(y, 0.7), h.negative_conjugate(s)
    best = h.value(p) + (p - y) @ (p - y) / 1.4
    for scale in (1e-3, 1e-1, 1.0):
        for _ in range(50):
            x = h.prox(p + scale * rng.standard_normal(12), 1e-12)  # a neighbour in the domain
            assert h.value(x) + (x - y) @ (x - y) / 1.4 >= best - 1e-9
            if conjugate is not None:
                assert h.value(x) + s @ x >= conjugate - 1e-9


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Quadratic(-1.0), ValueError, "l2 weight"),
        (lambda: ElasticNet(-1.0), ValueError, "l1 must be"),
        (lambda: ElasticNet(np.nan), ValueError, "l1 must be"),
        (lambda: ElasticNet(0.1, -1.0), ValueError, "l2 weight"),
        (lambda: Box(1.0, 0.0), ValueError, r"low must be at most high everywhere, got 1.0 and 0.0"),
        (lambda: Box([0.0, 2.0], 1.0), ValueError, r"got 2.0 and 1.0 at index 1"),
        (lambda: Box(np.nan, 1.0), ValueError, "low must be one number or a vector of numbers without NaN"),
        (lambda: Box(0.0, [1.0, np.nan]), ValueError, "high must be one number or a vector"),
        (lambda: Box(np.zeros((2, 2)), 1.0), ValueError, "low must be one number or a vector"),
        (lambda: Box([0.0, 0.0], [1.0, 1.0, 1.0]), ValueError, "as long as each other, got 2 and 3"),
        (lambda: Box(np.inf, np.inf), ValueError, "low must be below inf"),
        (lambda: Box(0.0, 1.0, -1.0), ValueError, "l2 weight"),
        (lambda: Box([0.0, 0.0], 1.0).check_dimension(3), ValueError, "low must be one number or 3"),
        (lambda: Prox(None, lambda x, step: x), TypeError, "function must be callable"),
        (lambda: Prox(np.sum, "soft"), TypeError, "map must be callable"),
        (lambda: Prox(np.sum, lambda x, step: x, -1.0), ValueError, "l2 weight"),
    ],
)
def test_bad_regularisers_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_one_sided_boxes_bound_only_where_they_can():
    h = Box(0.0, np.inf)
    assert h.negative_conjugate(np.array([1.0, 0.0])) == 0.0
    assert h.negative_conjugate(np.array([1.0, -1e-9])) is None
    assert Box(0.0, np.inf, 1.0).negative_conjugate(np.array([1.0, -2.0])) == -2.0
    h.check_dimension(5)
