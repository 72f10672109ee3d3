"""The bundle master: its QP against PIQP and Clarabel, one whole step against one pass over the cuts.

Instances are those of real runs: the bundle method with prox weights 0.03 times the true smoothness
constants, on the breast-cancer data over 9 workers and on synthetic logistic data over 64, 10 cuts each.
Targets, at the gap 1e-10 and with one BLAS thread: 0.5 ms and 8x faster than PIQP at N = 90, 2 ms and 100x at
N = 631; a step at n = 9, d = 47236 within 1.6 passes (a product of the cuts with two vectors); l1 10x faster
than FISTA. Peers run to 1e-10 and to the looser 1e-6 too: PIQP may spend all its iterations on the former.
"""

import copy
import time
from functools import partial

import _timing  # pins threads before NumPy is imported
import numpy as np
from scipy import sparse
from sklearn.datasets import load_breast_cancer

from optikit.runtime.timing import LogNormalSpeeds, Ticks, simulate_star
from optikit.simplex_qp import solve_simplex_product
from solvers.asynchronous.master import solve_master
from solvers.asynchronous.models import Bundle
from solvers.asynchronous.regularizers import ElasticNet, Prox, Quadratic

FACTOR, GAP = 0.03, 1e-10
TICKS = [10, 13, 17, 20, 26, 31, 43, 59, 110]


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    X = np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(569)])
    parts = np.array_split(np.random.default_rng(0).permutation(569), 9)
    return [(X[p], 2.0 * y[p] - 1.0) for p in parts]


def synthetic(n, rows, d, decay=0.0, seed=0):
    """Logistic blocks with 20 relevant features; columns fall by `decay` decades."""
    rng = np.random.default_rng(seed)
    w = np.concatenate([rng.standard_normal(min(d, 20)), np.zeros(max(d - 20, 0))])
    blocks = []
    for _ in range(n):
        X = rng.standard_normal((rows, d)) * np.logspace(0.0, -decay, d)
        blocks.append((X, np.where(rng.random(rows) < 1.0 / (1.0 + np.exp(-X @ w)), 1.0, -1.0)))
    return blocks


def oracle(block, total, x):
    X, y = block
    margins = y * (X @ x)
    slopes = y * np.exp(-np.logaddexp(0.0, margins))
    return float(np.logaddexp(0.0, -margins).sum()) / total, -(X.T @ slopes) / total


def along_a_run(blocks, h, law, replies, visit, m=10):
    """The server's masters on a virtual clock; `visit(step, bundle, L)` sees each before it is solved."""
    n, d, total = len(blocks), blocks[0][0].shape[1], sum(len(y) for _, y in blocks)
    L = FACTOR * np.array([np.linalg.norm(X, 2) ** 2 / (4.0 * total) for X, _ in blocks])
    bundle = Bundle("cutting_plane", n, d, m, None)
    points = np.zeros((n, d))
    for i in range(n):
        bundle.put(i, points[i], *oracle(blocks[i], total, points[i]))
    points[:] = solve_master(bundle, h, L, GAP).x
    trace = simulate_star(n, law, replies=replies)
    for step, batch in enumerate(trace.batches):
        for i in batch:
            bundle.put(i, points[i], *oracle(blocks[i], total, points[i]))
        visit(step, bundle, L)
        points[batch] = solve_master(bundle, h, L, GAP).x


def recorded_qps(blocks, h, law, replies, count):
    """QPs (Q, e, sizes, warm start) of the second half of a run, evenly spaced."""
    found, steps = [], len(simulate_star(len(blocks), law, replies=replies))
    wanted = set(np.linspace(steps // 2, steps - 1, count).astype(int).tolist())

    def visit(step, bundle, L):
        if step in wanted:
            bundle.refresh()
            used, total, q = bundle.active(), float(L.sum()), h.quadratic
            Q = bundle.gram[np.ix_(used, used)] / (total + q)
            e = (total / (total + q)) * (bundle.cross[used] @ (L / total)) - bundle.offsets.ravel()[used]
            found.append((Q, e, bundle.sizes(), bundle.weights.ravel()[used].copy()))

    along_a_run(blocks, h, law, replies, visit)
    return found


def true_gap(Q, e, sizes, lam):
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    lam = np.maximum(lam, 0.0)
    lam /= np.repeat(np.add.reduceat(lam, starts), sizes)
    r = e - Q @ lam
    return float(lam @ (np.repeat(np.maximum.reduceat(r, starts), sizes) - r))


def centred(e, sizes):
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return e - np.repeat(np.maximum.reduceat(e, starts), sizes)


def block_sums(sizes):
    return sparse.csr_array(
        (np.ones(sizes.sum()), (np.repeat(np.arange(sizes.size), sizes), np.arange(sizes.sum())))
    )


def ours(qp):
    Q, e, sizes, start = qp
    began = time.perf_counter()
    lam = solve_simplex_product(Q, e, sizes, start=start, delta=GAP).weights
    return time.perf_counter() - began, lam


def piqp_peer(qp, accuracy):
    import piqp

    Q, e, sizes, _ = qp
    A, cost, one, zero = (
        block_sums(sizes).toarray(),
        -centred(e, sizes),
        np.ones(sizes.size),
        np.zeros(e.size),
    )
    solver = piqp.DenseSolver()
    for name in ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"):
        setattr(solver.settings, name, accuracy)
    began = time.perf_counter()
    solver.setup(Q, cost, A, one, x_l=zero)
    solver.solve()
    return time.perf_counter() - began, np.array(solver.result.x)


def clarabel_peer(qp, accuracy):
    import clarabel

    Q, e, sizes, _ = qp
    N = e.size
    A = sparse.vstack([block_sums(sizes), -sparse.eye_array(N)], format="csc")
    b, cost = np.concatenate([np.ones(sizes.size), np.zeros(N)]), -centred(e, sizes)
    cones = [clarabel.ZeroConeT(sizes.size), clarabel.NonnegativeConeT(N)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = accuracy
    upper = sparse.csc_matrix(np.triu(Q))
    began = time.perf_counter()
    solution = clarabel.DefaultSolver(upper, cost, sparse.csc_matrix(A), b, cones, settings).solve()
    return time.perf_counter() - began, np.array(solution.x)


def compare_qps(title, qps, peers, milliseconds, ratio):
    N = [qp[1].size for qp in qps]
    print(
        f"\n{title}: {len(qps)} QPs of N = {min(N)} to {max(N)}   (asked: {milliseconds} ms, {ratio}x PIQP)"
    )
    medians = {}
    for name, solve, count in peers:
        chosen = qps[:: max(1, len(qps) // count)]
        try:
            solve(chosen[0])
        except ImportError as error:
            print(f"  {name:<22} is missing here: {error}")
            continue
        runs = [(solve(qp), qp) for qp in chosen]
        seconds = np.array([run[0] for run, _ in runs]) * 1e3
        gaps = [true_gap(*qp[:3], run[1]) for run, qp in runs]
        medians[name] = float(np.median(seconds))
        print(
            f"  {name:<22} median {medians[name]:9.3f} ms   max {seconds.max():9.3f} ms   "
            f"largest gap {max(gaps):.1e}   {medians[name] / medians['pair steps, warm']:8.1f} x"
        )


def whole_step(n=9, d=47236):
    """refresh + solve_master with an l2 term, against the product of the cuts with two vectors."""
    h, steps, passes, quick = Quadratic(1e-3), [], [], []
    vectors = np.random.default_rng(1).standard_normal((2, d))
    columns = np.ascontiguousarray(vectors.T)

    def visit(step, bundle, L):
        if step < 150 or len(steps) >= 40 or np.count_nonzero(bundle.stale_cuts) > 1:
            return
        began = time.perf_counter()
        _ = bundle.flat @ columns
        middle = time.perf_counter()
        _ = vectors @ bundle.flat.T
        passes.append(middle - began)
        quick.append(time.perf_counter() - middle)
        trial = copy.copy(bundle)  # the same arrays, but for those that the step writes
        trial.gram, trial.cross, trial.weights = (
            bundle.gram.copy(),
            bundle.cross.copy(),
            bundle.weights.copy(),
        )
        trial.stale_cuts, trial.stale_anchors = bundle.stale_cuts.copy(), bundle.stale_anchors.copy()
        began = time.perf_counter()
        trial.refresh()
        solve_master(trial, h, L, GAP)
        steps.append(time.perf_counter() - began)

    along_a_run(synthetic(n, 20, d, decay=1.0), h, LogNormalSpeeds(0.3, 0.2, 1), 400, visit)
    rows = {
        "cuts @ two columns (the pass)": np.median(passes),
        "two rows @ cuts' (the fastest pass)": np.median(quick),
        "refresh + solve_master": np.median(steps),
    }
    _timing.print_ratios(
        f"whole master step, n = {n}, m = 10, d = {d}, medians of {len(steps)}",
        rows,
        "cuts @ two columns (the pass)",
        "1.6 passes",
    )


def l1_masters(n=9, d=2000):
    h, snapshots = ElasticNet(5e-3), []
    same = Prox(h.value, h.prox)

    def visit(step, bundle, L):
        if step >= 150 and step % 25 == 0:
            snapshots.append((copy.deepcopy(bundle), L))

    along_a_run(synthetic(n, 200, d), h, LogNormalSpeeds(0.3, 0.2, 1), 600, visit)
    rows = {}
    for name, function, delta in (
        ("semismooth Newton, gap 1e-10", h, 1e-10),
        ("FISTA, gap 1e-8", same, 1e-8),
        ("FISTA, gap 1e-10", same, 1e-10),
    ):
        seconds = []
        for bundle, L in snapshots:
            trial = copy.deepcopy(bundle)
            began = time.perf_counter()
            solution = solve_master(trial, function, L, delta)
            seconds.append(time.perf_counter() - began)
            assert solution.gap <= delta
        rows[name] = float(np.median(seconds))
    _timing.print_ratios(
        f"l1 master, n = {n}, d = {d}, medians of {len(snapshots)}",
        rows,
        "semismooth Newton, gap 1e-10",
        "FISTA at least 10",
    )


if __name__ == "__main__":
    peers = [
        (f"{name}, {accuracy:g}", partial(solve, accuracy=accuracy))
        for name, solve in (("PIQP", piqp_peer), ("Clarabel", clarabel_peer))
        for accuracy in (GAP, 1e-6)
    ]
    compare_qps(
        "breast cancer, n = 9, m = 10",
        recorded_qps(cancer(), Quadratic(1e-3), Ticks(TICKS), 2700, 200),
        [("pair steps, warm", ours, 200), *((*peer, 20) for peer in peers)],
        0.5,
        8,
    )
    compare_qps(
        "synthetic logistic, n = 64, m = 10",
        recorded_qps(
            synthetic(64, 60, 100, decay=1.0), Quadratic(1e-3), LogNormalSpeeds(0.7, 0.3, 1), 4000, 200
        ),
        [("pair steps, warm", ours, 200), *((*peer, 4) for peer in peers)],
        2.0,
        100,
    )
    whole_step()
    l1_masters()
