"""The workers' side: the oracles behind the messages, deterministic, sampled or one mini-batch at a time.

Worker i owns :math:`f_i`, the objective's function of agent i times a client weight, less the strong
convexity ``mu_i/2 ||x||^2`` that is moved to the server's h. In the *component* form its rows are cut into
mini-batches once, each a function of its own that a query names; in the *sampled* form every query draws a
fresh batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optikit.agent_data import AgentData
from optikit.arrays import from_numpy, is_numpy, to_numpy
from optikit.objectives import LinearModel
from optikit.random import AgentStreams
from optikit.validation import check_choice, check_integer

STOCHASTIC = (None, "sampled", "component")


class Workers:
    """Oracles of the workers whose data are here.

    Parameters
    ----------
    objective : Objective
        The agents held here.
    total_rows : int or None
        Rows of the whole problem, for ``client_weights="samples"``.
    client_weights : array (n,), "samples" or None
        Factor of each f_i; "samples" is the share of the rows, None 1.
    shift : float or None
        Strong convexity of the objective's f_i that is moved to h; None: its known `l2`.
    stochastic : {None, "sampled", "component"}
    batch_size : int or None
        Rows of a mini-batch: drawn with replacement ("sampled"), or the size of the parts ("component").
    seed : int
    runs : int
        Stacked runs: points are ``(runs, d)`` for more than one. Only the draws differ between them.
    """

    def __init__(
        self,
        objective: Any,
        *,
        total_rows: int | None = None,
        client_weights: Any = None,
        shift: float | None = None,
        stochastic: str | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        runs: int = 1,
    ) -> None:
        check_choice(stochastic, "stochastic", STOCHASTIC)
        self.objective, self.agents, self.xp = objective, objective.agents, objective.xp
        self._on_host = is_numpy(objective.xp)
        self.n, self.d, self.stochastic = objective.n_agents, objective.dim, stochastic
        self.runs, self.streams = runs, AgentStreams(seed, "minibatch")
        self.place = {int(agent): k for k, agent in enumerate(self.agents)}
        self.scales = _scales(objective, client_weights, total_rows)
        known = getattr(objective, "l2", 0.0) if shift is None else shift
        self.shifts = self.scales * known
        self.batch_size = _batch_size(objective, batch_size, stochastic)
        self.parts = [self._parts_of(int(agent)) for agent in self.agents]
        self._evaluate: Callable[..., tuple[Any, Any]] = (
            self._sampled if stochastic == "sampled" else self._exact
        )

    def _parts_of(self, agent: int) -> list[tuple[float, float, Any]]:
        """Weight, shift and function of each part of an agent's data."""
        own = self.objective.subset([agent])
        scale, shift = float(self.scales[self.place[agent]]), float(self.shifts[self.place[agent]])
        if self.stochastic != "component":
            return [(scale, shift, own)]
        data, b = own.data, self.batch_size
        count = max(1, round(data.n_samples / b))
        edges = np.linspace(0, data.n_samples, count + 1).round().astype(np.int64)
        pieces = LinearModel(AgentData(data.features, data.targets, edges), own.loss, own.l2)
        shares = np.diff(edges) / data.n_samples
        return [(scale * s, shift * s, pieces.subset([k])) for k, s in enumerate(shares.tolist())]

    @property
    def counts(self) -> np.ndarray:
        """Parts of each worker here, ``(n_local,)``."""
        return np.array([len(parts) for parts in self.parts], dtype=np.int64)

    def evaluate(self, worker: int, part: int, number: int, x: np.ndarray) -> tuple[Any, Any]:
        """Value and gradient of a part of a worker's function: ``(f, g)`` of the shapes of a point.

        `number` counts the worker's queries: sampled batches are keyed by it, so that they depend neither on
        timing nor on the rank.
        """
        return self._evaluate(worker, part, number, x)

    def _exact(self, worker: int, part: int, number: int, x: np.ndarray) -> tuple[Any, Any]:
        scale, mu, function = self.parts[self.place[worker]][part]
        if x.ndim == 2:
            both = [self._exact(worker, part, number, row) for row in x]
            return np.array([f for f, _ in both]), np.array([g for _, g in both])
        f, g = function.value_and_gradient(self._here(x[None, :]))
        value = scale * float(f[0]) - 0.5 * mu * float(x @ x)
        return value, scale * to_numpy(g)[0].astype(np.float64, copy=False) - mu * x

    def _sampled(self, worker: int, part: int, number: int, x: np.ndarray) -> tuple[Any, Any]:
        scale, mu, model = self.parts[self.place[worker]][0]
        points = np.atleast_2d(x)
        data, b, l2 = model.data, self.batch_size, scale * model.l2 - mu
        # Run r of worker i draws as agent i + n r, so that the first run is the one without company.
        drawn = self.streams.integers(worker + self.n * np.arange(self.runs), number, data.n_samples, b)
        if data.is_sparse:
            losses, gradients = self._sampled_sparse(model, drawn, points)
        else:
            losses, gradients = self._sampled_dense(model, drawn, points)
        values = scale * losses + 0.5 * l2 * np.sum(points**2, axis=1)
        gradients = scale * gradients + l2 * points
        return (float(values[0]), gradients[0]) if x.ndim == 1 else (values, gradients)

    def _sampled_dense(
        self, model: LinearModel, drawn: np.ndarray, points: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean losses and gradients over the drawn rows, ``(runs,)`` and ``(runs, d)``."""
        xp, (runs, b) = self.xp, drawn.shape
        index = from_numpy(drawn.ravel(), xp)
        stack = xp.reshape(xp.take(model.data.features, index, axis=0), (runs, b, self.d))
        targets = xp.reshape(xp.take(model.targets, index), (runs, b))
        z = (stack @ self._here(points)[:, :, None])[:, :, 0]
        slopes = model.loss.derivative(z, targets) / b
        losses = xp.mean(model.loss.value(z, targets), axis=1)
        return to_numpy(losses), to_numpy((slopes[:, None, :] @ stack)[:, 0, :])

    @staticmethod
    def _sampled_sparse(
        model: LinearModel, drawn: np.ndarray, points: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        losses, gradients = [], []
        for rows, x in zip(drawn, points):
            batch, targets = model.data.features[rows], model.targets[rows]
            z = batch @ x
            losses.append(np.mean(model.loss.value(z, targets)))
            gradients.append(batch.T @ (model.loss.derivative(z, targets) / rows.size))
        return np.array(losses), np.array(gradients)

    def _here(self, x: np.ndarray) -> Any:
        """A point in the namespace and precision of the data."""
        return x if self._on_host else self.xp.astype(from_numpy(x, self.xp), self.objective.dtype)

    def value(self, worker: int, x: np.ndarray) -> Any:
        """The whole f_i of a worker at x (or at each row of x): what a poll asks."""
        if x.ndim == 2:
            return self._values(worker, x)
        total = 0.0
        for scale, mu, function in self.parts[self.place[worker]]:
            total += scale * float(function.value(self._here(x[None, :]))[0]) - 0.5 * mu * float(x @ x)
        return total

    def _values(self, worker: int, points: np.ndarray) -> np.ndarray:
        """f_i of a worker at several points, ``(S,)``."""
        total = np.zeros(len(points))
        for scale, mu, function in self.parts[self.place[worker]]:
            if isinstance(function, LinearModel):  # one product for all points
                z = function.data.features @ self._here(points).T
                losses = to_numpy(self.xp.mean(function.loss.value(z, function.targets[:, None]), axis=0))
                values = losses + 0.5 * function.l2 * np.sum(points**2, axis=1)
            else:
                values = np.array([float(function.value(self._here(x[None, :]))[0]) for x in points])
            total += scale * values - 0.5 * mu * np.sum(points**2, axis=1)
        return total

    def smoothness(self) -> list[np.ndarray]:
        """Smoothness constants of the parts of each worker here, weights applied, shift taken off."""
        return [
            np.array([scale * float(f.smoothness[0]) - mu for scale, mu, f in parts]) for parts in self.parts
        ]


def _scales(objective: Any, client_weights: Any, total_rows: int | None) -> np.ndarray:
    n, agents = objective.n_agents, objective.agents
    if client_weights is None:
        return np.ones(agents.size)
    if isinstance(client_weights, str):
        check_choice(client_weights, "client_weights", ("samples",))
        data = getattr(objective, "data", None)
        if data is None:
            raise ValueError(
                f'client_weights="samples" needs agents with rows, got a {type(objective).__name__}.'
            )
        return data.sizes / (data.n_samples if total_rows is None else total_rows)
    scales = np.asarray(client_weights, dtype=np.float64)
    if scales.shape != (n,) or not np.all(np.isfinite(scales)) or not np.all(scales > 0):
        raise ValueError(f"client_weights must be {n} positive numbers, got {client_weights!r}.")
    return scales[agents]


def _batch_size(objective: Any, batch_size: int | None, stochastic: str | None) -> int:
    """Rows of a mini-batch; 0 for the deterministic form, which has none."""
    if stochastic is None:
        if batch_size is not None:
            raise ValueError(
                f'batch_size is for stochastic="sampled" or "component", got batch_size={batch_size!r}.'
            )
        return 0
    if not isinstance(objective, LinearModel):
        raise ValueError(
            f'stochastic="{stochastic}" needs agents with rows (a LinearModel), '
            f"got a {type(objective).__name__}."
        )
    if batch_size is None:
        raise ValueError(f'stochastic="{stochastic}" needs a batch_size, got None.')
    batch_size = check_integer(batch_size, "batch_size", minimum=1)
    if stochastic == "component" and objective.n_local and batch_size > objective.data.sizes.min():
        agent = objective.agents[int(np.argmin(objective.data.sizes))]
        raise ValueError(
            f"batch_size must be at most the rows of every agent, got {batch_size} for agent {agent} "
            f"with {objective.data.sizes.min()} rows."
        )
    return batch_size
