r"""Local steps of the clients of a federated method, in weight space (primal) or in Gram space.

A client takes K gradient steps on the logistic loss of its n_m rows (labels y_i in {-1, 1}),

.. math:: v \leftarrow v + \frac{\eta}{n_m} \sum_i \sigma(-z_i)\, y_i x_i, \qquad
          z_i = y_i \langle x_i, v\rangle.

The margins alone carry the iteration: with the Gram matrix :math:`G_{ij} = y_i y_j \langle x_i, x_j\rangle`,

.. math:: z \leftarrow z + \frac{\eta}{n_m} G s, \quad a \leftarrow a + s, \quad s_i = \sigma(-z_i), \qquad
          v_K = w + \frac{\eta}{n_m} X_m^T (y \circ a).

Both are the same in exact arithmetic. A step costs :math:`4 n_m d` flop in weight space and :math:`2 n_m^2`
in Gram space, so ``solver="auto"`` takes the Gram matrix when ``n_m <= 2 d``, client by client.

Every class here is called as ``local(w, step, local_steps)`` and returns the clients' contributions to the
round's message, ``(n_local, d + 1)``: row m holds :math:`p_m (v_m - w)` and :math:`p_m F_m(w)`. The loss
comes free from the margins of the first step. Displacements travel rather than iterates, so that weights
which sum to 1 only up to rounding do not shrink w over a million rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optikit.arrays import array_namespace, as_float_array, from_numpy, is_numpy, to_numpy
from optikit.objectives.base import OracleCalls
from optikit.validation import check_choice, check_integer, check_real

SOLVERS = ("auto", "gram", "primal")
#: Gram matrices are not formed beyond this many bytes in all.
GRAM_BYTES = 2**30
#: Clients with at most this many rows share vector registers.
LANE_ROWS = 8
#: Gram matrices of one chunk of such clients stay in the first-level cache.
LANE_BYTES = 24 * 1024
#: Rows that a weight-space step takes at a time fill about this much of the second-level cache.
BLOCK_BYTES = 256 * 1024
#: A Gram matrix beyond this leaves the second-level cache, and must then be smaller than the rows.
GRAM_CACHE_BYTES = 2**20


def make_local_steps(objective: Any, weights: np.ndarray, solver: str = "auto") -> Any:
    """The fastest local steps for an objective.

    Parameters
    ----------
    objective : Objective
        The agents of this rank. Unregularised logistic `LinearModel` objectives get the kernels of this
        module; any other objective is asked for its gradients.
    weights : numpy.ndarray, shape (n_local,)
        Client weights p_m of this rank.
    solver : {"auto", "gram", "primal"}, default "auto"

    Raises
    ------
    ValueError
        For ``solver="gram"`` with an objective that has no rows.
    """
    check_choice(solver, "solver", SOLVERS)
    if not is_logistic(objective):
        if solver == "gram":
            raise ValueError("solver='gram' needs the unregularised logistic loss of a linear model.")
        return OracleSteps(objective, weights)
    data = objective.data
    y = signed_targets(data)
    if is_numpy(data.xp) and data.features.dtype == np.float64:
        return CompiledSteps(data, y, weights, solver, objective.calls)
    return ArraySteps(data, y, weights, solver, objective.calls)


def is_logistic(objective: Any) -> bool:
    """Whether the objective is the plain logistic loss of a linear model."""
    loss = getattr(objective, "loss", None)
    return hasattr(objective, "data") and getattr(loss, "name", None) == "logistic" and not objective.l2


def signed_targets(data: Any) -> np.ndarray:
    """Labels of the agents here in {-1, 1}, float64 on the host; {0, 1} is recoded.

    Raises
    ------
    ValueError
        For other labels, and for an agent without rows.
    """
    empty = np.flatnonzero(data.sizes == 0)
    if empty.size:
        raise ValueError(f"every client needs at least one row, got none for client {data.agents[empty[0]]}.")
    y = to_numpy(data.targets).astype(np.float64)
    if np.all((y == 0.0) | (y == 1.0)) and not np.all(y == 1.0):
        y = 2.0 * y - 1.0
    wrong = np.flatnonzero(np.abs(y) != 1.0)
    if wrong.size:
        k = int(np.searchsorted(data.offsets, wrong[0], side="right")) - 1
        raise ValueError(
            f"targets must be labels in {{-1, 1}} or {{0, 1}}, got {y[wrong[0]]!r} in row "
            f"{wrong[0] - data.offsets[k]} of client {data.agents[k]}."
        )
    return y


def in_gram_space(data: Any, solver: str) -> np.ndarray:
    """Which clients are handled in Gram space, boolean (n_local,).

    "auto" compares flop (``n_m <= 2 d``, with the mean row length for d on sparse rows), keeps Gram matrices
    out that leave the cache and exceed the rows, and takes the smallest clients first up to `GRAM_BYTES`.
    """
    sizes = data.sizes.astype(np.float64)
    if solver == "primal":
        return np.zeros(sizes.size, dtype=bool)
    if solver == "gram":
        return np.ones(sizes.size, dtype=bool)
    if data.is_sparse:
        lengths = np.diff(data.features.indptr[data.offsets]) / np.maximum(sizes, 1.0)
    else:
        lengths = np.full(sizes.size, float(data.dim))
    wanted = (sizes <= 2.0 * lengths) & ((8.0 * sizes**2 <= GRAM_CACHE_BYTES) | (sizes <= lengths))
    order = np.argsort(sizes, kind="stable")
    spent = np.cumsum(np.where(wanted[order], 8.0 * sizes[order] ** 2, 0.0))
    wanted[order[spent > GRAM_BYTES]] = False
    return wanted


class CompiledSteps:
    """Local steps by compiled kernels, for dense and CSR rows in float64 on the host.

    `calls` counts K gradients and one value a round, as if the objective itself had been asked.
    """

    def __init__(
        self, data: Any, y: np.ndarray, weights: np.ndarray, solver: str = "auto", calls: Any = None
    ) -> None:
        from solvers.federated import _kernels_local_gd as kernels

        self._calls = OracleCalls() if calls is None else calls
        self.gram_clients = in_gram_space(data, solver)
        sizes = data.sizes
        lanes = self.gram_clients & (sizes <= LANE_ROWS)
        singles = np.flatnonzero(self.gram_clients & ~lanes)
        starts = np.zeros(sizes.size, dtype=np.int64)
        starts[singles] = np.concatenate(([0], np.cumsum(sizes[singles] ** 2)))[:-1]
        gram = np.empty(int((sizes[singles] ** 2).sum()))
        for m in singles:  # set-up, once per run
            gram[starts[m] : starts[m] + sizes[m] ** 2] = gram_of(data, y, m).reshape(-1)
        primal = np.flatnonzero(~self.gram_clients)
        plan = (singles, gram, starts, _lanes_of(data, y, np.flatnonzero(lanes)))
        scale = (np.ascontiguousarray(weights, dtype=np.float64), 1.0 / sizes)
        self._round: Any = kernels.csr_round if data.is_sparse else kernels.dense_round
        if data.is_sparse:
            X = data.features
            self._arguments: tuple[Any, ...] = (
                X.data,
                X.indices.astype(np.int64),
                X.indptr.astype(np.int64),
                y,
                data.offsets,
                primal,
                *plan,
                *scale,
            )
        else:
            block = max(16, BLOCK_BYTES // (8 * max(data.dim, 1)))
            X = np.ascontiguousarray(data.features)
            self._arguments = (X, y, data.offsets, primal, block, *plan, *scale)

    def __call__(self, w: np.ndarray, step: float, local_steps: int) -> np.ndarray:
        self._calls.gradients += local_steps
        self._calls.values += 1
        return self._round(*self._arguments, w, step, local_steps)

    def path(
        self, w: np.ndarray, step: float, local_steps: int, rounds: int, stop_below: float = -np.inf
    ) -> tuple[np.ndarray, np.ndarray]:
        """Many rounds of all clients on one process, in compiled code; see `local_gd_path`."""
        from solvers.federated import _kernels_local_gd as kernels

        if self._round is not kernels.dense_round:
            raise ValueError("paths need dense rows: call .dense() of the data first.")
        values, w = np.empty(rounds), np.array(w, dtype=np.float64)
        done = kernels.dense_path(self._arguments, w, step, local_steps, rounds, stop_below, values)
        return w, values[: min(done + 1, rounds)]

    def losses(self, w: np.ndarray) -> np.ndarray:
        """``p_m F_m(w)``, shape (n_local, 1)."""
        return self._round(*self._arguments, w, 0.0, 1)[:, -1:]


def local_gd_path(
    data: Any,
    step_size: float,
    local_steps: int,
    rounds: int,
    *,
    x0: Any = None,
    stop_below: float = 0.0,
    solver: str = "auto",
) -> tuple[np.ndarray, np.ndarray]:
    """Local GD with uniform weights over very many rounds of a small problem, on one process.

    The iterates of `LocalGD`, bit for bit, without driver, records and ledger: about 2 us a round on two
    clients, for rate measurements over millions of rounds. Rows are taken as they are (norms at most 1).

    Parameters
    ----------
    data : AgentData
        Dense, float64, labels in {-1, 1} or {0, 1}; all agents.
    step_size, local_steps, solver
        As in `LocalGD`.
    rounds : int
        R, at least 0.
    x0 : array, shape (d,), optional
        Zeros by default.
    stop_below : float, default 0.0
        Stop at the first round r with ``F(w_r) <= stop_below``.

    Returns
    -------
    w : numpy.ndarray, shape (d,)
        The last iterate.
    values : numpy.ndarray
        ``F(w_0), F(w_1), ...``: `rounds` values, or up to the one that stopped.
    """
    step_size = check_real(step_size, "step_size", minimum=0.0, open_low=True)
    local_steps = check_integer(local_steps, "local_steps", minimum=1)
    rounds = check_integer(rounds, "rounds", minimum=0)
    check_choice(solver, "solver", SOLVERS)
    steps = CompiledSteps(data, signed_targets(data), np.full(data.n_local, 1.0 / data.n_local), solver)
    w = np.zeros(data.dim) if x0 is None else as_float_array(x0, name="x0", xp=np, shape=(data.dim,))
    return steps.path(w, step_size, local_steps, rounds, stop_below)


def gram_of(data: Any, y: np.ndarray, m: Any) -> np.ndarray:
    """Gram matrix of the signed rows of client m of this rank, on the host."""
    rows = slice(int(data.offsets[m]), int(data.offsets[m + 1]))
    X = data.features[rows] if data.is_sparse else to_numpy(data.features[rows])
    product = (X @ X.T).toarray() if data.is_sparse else X @ X.T
    return y[rows, None] * product * y[rows]


def _lanes_of(data: Any, y: np.ndarray, clients: np.ndarray) -> tuple[np.ndarray, ...]:
    """Chunks of clients of similar size with interleaved Gram matrices, as `gram_round` takes them."""
    members = clients[np.argsort(data.sizes[clients], kind="stable")]
    counts, rows, blocks, starts, first, offset = [], [], [], [], 0, 0
    while first < members.size:
        n = int(data.sizes[members[first]])
        count = 8 * max(1, min(32, LANE_BYTES // (64 * (n * n + 3 * n))))
        chunk = members[first : first + count]
        n = int(data.sizes[chunk].max())
        block = np.zeros((n, n, chunk.size))
        for c, m in enumerate(chunk):
            size = int(data.sizes[m])
            block[:size, :size, c] = gram_of(data, y, m)
        counts.append(chunk.size)
        rows.append(n)
        blocks.append(block.reshape(-1))
        starts.append(offset)
        first, offset = first + chunk.size, offset + block.size
    integers = [np.array(v, dtype=np.int64) for v in (counts, rows, starts)]
    gram = np.concatenate(blocks) if blocks else np.empty(0)
    return members.astype(np.int64), integers[0], integers[1], gram, integers[2]


class ArraySteps:
    """Local steps as batched products in the namespace of the data: the reference of the compiled kernels.

    Clients of unequal size are padded with zero rows, whose slopes and losses are masked.
    """

    def __init__(
        self, data: Any, y: np.ndarray, weights: np.ndarray, solver: str = "auto", calls: Any = None
    ) -> None:
        self._calls = OracleCalls() if calls is None else calls
        dense = data.dense() if data.is_sparse else data
        xp = self.xp = dense.xp
        sizes = data.sizes
        rows, d = int(sizes.max(initial=1)), data.dim
        take = np.zeros((sizes.size, rows), dtype=np.int64)
        mask = np.arange(rows)[None, :] < sizes[:, None]
        take[mask] = np.arange(data.n_samples)
        device, dtype = _device(dense.features), dense.features.dtype
        send = lambda host: xp.astype(from_numpy(np.ascontiguousarray(host), xp, device), dtype)  # noqa: E731
        signs = send(np.where(mask, y[take] if y.size else 0.0, 0.0))
        index = from_numpy(take.reshape(-1), xp, device)
        X = xp.reshape(xp.take(dense.features, index, axis=0), (sizes.size, rows, d))
        self.X = X * signs[:, :, None]
        self.mask, self.inverse = send(mask), send(1.0 / np.maximum(sizes, 1))[:, None]
        self.weights = send(weights)[:, None]
        use_gram = rows <= 2 * d if solver == "auto" else solver == "gram"
        use_gram = use_gram and sizes.size * rows * rows * 8 <= GRAM_BYTES
        self.G = xp.matmul(self.X, xp.matrix_transpose(self.X)) if use_gram else None

    def _slopes(self, z: Any) -> Any:
        xp = self.xp
        e = xp.exp(-xp.abs(z))
        return self.mask * xp.where(z > 0, e, xp.ones_like(e)) / (1.0 + e)

    def _margins(self, w: Any) -> Any:
        return self.xp.matmul(self.X, w)

    def losses(self, w: Any, z: Any = None) -> Any:
        """``p_m F_m(w)``, shape (n_local, 1)."""
        xp = self.xp
        z = self._margins(w) if z is None else z
        loss = xp.log1p(xp.exp(-xp.abs(z))) + xp.where(z < 0, -z, xp.zeros_like(z))
        return self.weights * self.inverse * xp.sum(self.mask * loss, axis=1, keepdims=True)

    def __call__(self, w: Any, step: float, local_steps: int) -> Any:
        xp = self.xp
        self._calls.gradients += local_steps
        self._calls.values += 1
        z = self._margins(w)
        loss, s, rate = self.losses(w, z), self._slopes(z), step * self.inverse
        if self.G is not None:
            a = s
            for _ in range(1, local_steps):
                z = z + rate * xp.matmul(self.G, s[:, :, None])[:, :, 0]
                s = self._slopes(z)
                a = a + s
            moved = rate * xp.matmul(a[:, None, :], self.X)[:, 0, :]
        else:
            moved = rate * xp.matmul(s[:, None, :], self.X)[:, 0, :]
            for _ in range(1, local_steps):
                s = self._slopes(xp.matmul(self.X, (w + moved)[:, :, None])[:, :, 0])
                moved = moved + rate * xp.matmul(s[:, None, :], self.X)[:, 0, :]
        return xp.concat((self.weights * moved, loss), axis=1)


class OracleSteps:
    """Local steps of any objective, by its own gradients."""

    def __init__(self, objective: Any, weights: np.ndarray) -> None:
        xp = objective.xp
        self.objective = objective
        self.weights = xp.astype(from_numpy(np.asarray(weights)[:, None], xp), objective.dtype)

    def losses(self, w: Any) -> Any:
        """``p_m F_m(w)``, shape (n_local, 1)."""
        return self.weights * self.objective.value(w)[:, None]

    def __call__(self, w: Any, step: float, local_steps: int) -> Any:
        xp = array_namespace(w)
        value, gradient = self.objective.value_and_gradient(w)
        moved = -step * gradient
        for _ in range(1, local_steps):
            moved = moved - step * self.objective.gradient(w + moved)
        return xp.concat((self.weights * moved, self.weights * value[:, None]), axis=1)


def _device(array: Any) -> Any:
    from array_api_compat import device

    return device(array)
