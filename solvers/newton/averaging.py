"""Directions of one iteration: exact, of one summed sketch, or averaged over the workers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from optikit.sketching import (
    DebiasedInverse,
    SketchTooSmall,
    determinantal_average,
    effective_dimension_from_gram,
)
from optikit.sketching.leverage import gram
from solvers.newton.directions import (
    SCORED,
    Scores,
    debiased,
    make_sketch,
    row_scale,
    score_rows,
    sketch_direction,
)
from solvers.newton.glm import GLM

#: Key of the random stream of scores, beside those of the workers (0 to q - 1): it does not depend on q.
SCORING = 2**32 - 1


class Direction(NamedTuple):
    """A (averaged) Newton direction and what is known about its error.

    Attributes
    ----------
    p : array (dim,)
    kappa : float
        Relative variance of one worker's direction; 0 for the exact one.
    arrived : int
        Directions in the average: its variance is ``kappa / arrived``.
    """

    p: np.ndarray
    kappa: float
    arrived: int = 1


def one_of(network: Any, part: np.ndarray) -> np.ndarray:
    """A rank's contribution as the network sums it: one row per worker, all but the first zero."""
    packed = np.zeros((network.n_local, *part.shape))
    if network.n_local:
        packed[0] = part
    return packed


def reduced(network: Any, *parts: np.ndarray, new_round: bool = True) -> list[np.ndarray]:
    """Sum one contribution per rank over the ranks, as one counted message of the workers."""
    packed = np.concatenate([part.ravel() for part in parts])
    down = packed.size if new_round else 0
    total = network.total(one_of(network, packed), floats_down=down, new_round=new_round)
    ends = np.cumsum([part.size for part in parts])[:-1]
    return [piece.reshape(part.shape) for piece, part in zip(np.split(total, ends), parts)]


def current_scores(method: Any, glm: GLM, state: Any) -> Scores:
    """Scores of the rows at this iterate, or older ones where the refresh policy keeps them."""
    if method.sketch not in SCORED or method.mode == "local":
        return Scores()
    every = {"always": 1, "initial": 10**9}.get(method.refresh, method.refresh)
    if state.scores is not None and state.iteration % every:
        return state.scores
    eta = glm.margins(state.b)
    residual = glm.loss.derivative(eta, glm.y)
    seed = np.random.SeedSequence(method.seed, spawn_key=(state.iteration, SCORING))
    scale = glm.root_weights(eta, slice(None))
    return score_rows(glm, scale, method.scheme, method.leverage, seed, residual)


def exact_direction(glm: GLM, network: Any, eta: np.ndarray, g: np.ndarray) -> Direction:
    """Newton's direction, from the Gram matrices of all rows."""
    G = gram_of(glm, glm.rows, glm.root_weights(eta, glm.rows))
    G = network.sum(one_of(network, G))
    inverse = DebiasedInverse(G, np.diag(glm.penalty), glm.n_samples, math.nan, "none")
    return Direction(-inverse.solve(g), 0.0)


def averaged_direction(
    method: Any, glm: GLM, network: Any, state: Any, g: np.ndarray, scores: Scores
) -> Direction:
    """Average over the workers (those that answer first, where late ones are dropped) of their directions."""
    q, d = glm.n_agents, glm.dim
    if method.drops_late:
        answers = state.arrivals.collect(state.clock, state.iteration, state.m, state.b, g)
        network.ledger.record_phase(d + 2, 2 * d + 2, new_round=False)
        return average(method, answers)
    if method.mode == "sketch_reduce":
        inverse = _reduced_inverse(method, glm, network, state, scores)
        return Direction(-inverse.solve(g), _kappa(method, inverse, state.m))
    directions = np.zeros((network.n_local, d + 2))
    eta = state.eta if glm.n_local == q else None
    for k, agent in enumerate(glm.agents.tolist()):
        directions[k] = worker_direction(method, glm, state, agent, g, scores, eta)
    if method.average == "determinantal":
        return average(method, network.allgather(directions))
    total = network.total(directions[:, : d + 1], floats_down=d + 1, new_round=False)
    return Direction(total[:d] / q, float(total[d]) / q, q)


def average(method: Any, answers: np.ndarray) -> Direction:
    """Average of the workers' rows ``[direction, kappa, logdet]``."""
    d, arrived = answers.shape[1] - 2, answers.shape[0]
    kappa = float(answers[:, d].mean())
    if method.average == "determinantal":
        return Direction(determinantal_average(answers[:, :d], answers[:, d + 1]), kappa, arrived)
    return Direction(answers[:, :d].mean(axis=0), kappa, arrived)


def worker_direction(
    method: Any,
    glm: GLM,
    state: Any,
    agent: int,
    g: np.ndarray,
    scores: Scores,
    eta: np.ndarray | None = None,
) -> np.ndarray:
    """``[direction, kappa, logdet]`` of one worker; its sketch is keyed by (seed, iteration, worker)."""
    if method.mode == "local":
        inverse = _local_inverse(method, glm, state.b, agent)
    else:
        seed = np.random.SeedSequence(method.seed, spawn_key=(state.iteration, agent))
        sketch = make_sketch(method.sketch, state.m, scores, glm.n_samples, method.s, method.on_heavy)
        inverse = sketch_direction(glm, state.b, eta, sketch, scores, method.debias, seed, method.on_heavy)
    return np.concatenate([-inverse.solve(g), [_kappa(method, inverse, state.m), inverse.logdet]])


def _kappa(method: Any, inverse: DebiasedInverse, m: int) -> float:
    """Relative variance of one direction: estimated from a sample of rows, else ``d_eff / (m - d_eff)``."""
    if math.isfinite(inverse.variance):
        return inverse.variance
    d_eff = inverse.d_eff if math.isfinite(inverse.d_eff) else float(inverse.gram.shape[0])
    size = inverse.m if method.mode == "local" else max(inverse.m, m)
    return d_eff / max(size - d_eff, 1e-12)


def _local_inverse(method: Any, glm: GLM, b: np.ndarray, agent: int) -> DebiasedInverse:
    """The worker's own rows as a sample without replacement: factor n_k (1 - d_eff/n) / (n_k - d_eff)."""
    rows, n = glm.block(agent), glm.n_samples
    size = rows.stop - rows.start
    scale = glm.root_weights(glm.margins(b, rows), rows)
    G = gram_of(glm, rows, scale) * (n / size)
    C = np.diag(glm.penalty)
    d_eff = effective_dimension_from_gram(G, C, size)
    if size == n:  # one worker has all rows: nothing was sampled
        return DebiasedInverse(G, C, size, d_eff, "none", variance=0.0)
    if size <= d_eff:
        raise SketchTooSmall(size, d_eff)
    # Sampling without replacement takes the share (1 - n_k/n) off the variance too.
    variance = d_eff / (size - d_eff) * (1.0 - size / n)
    if method.debias == "none":
        return DebiasedInverse(G, C, size, d_eff, "none", variance=variance)
    factor = size * (1.0 - d_eff / n) / (size - d_eff)
    return DebiasedInverse(factor * G, C, size, d_eff, "local", variance=variance)


def gram_of(glm: GLM, rows: slice, scale: np.ndarray) -> np.ndarray:
    """Gram matrix of the given rows of A(b), the column of ones included."""
    X = glm.X[rows]
    G = gram(X, scale)
    if not glm.intercept:
        return G
    w = scale * scale
    cross = np.asarray(X.T @ w.astype(X.dtype), dtype=np.float64)
    return np.block([[G, cross[:, None]], [cross[None, :], np.array([[w.sum()]])]])


def _reduced_inverse(method: Any, glm: GLM, network: Any, state: Any, scores: Scores) -> DebiasedInverse:
    """One sketch of all rows, summed over the ranks: q ranks behave as one worker."""
    seed = np.random.SeedSequence(method.seed, spawn_key=(state.iteration, 0))
    sketch = make_sketch(method.sketch, state.m, scores, glm.n_samples, method.s, method.on_heavy)
    operator, rows = sketch.draw(glm.n_samples, seed), glm.rows
    own, X = operator.restricted(rows), glm.X[rows]
    scale = row_scale(glm, state.b, state.eta, own, rows)
    ones = own.apply(np.ones((X.shape[0], 1)), scale) if glm.intercept else None
    part = glm.with_intercept(own.apply(X, scale), ones)
    (At,) = reduced(network, np.asarray(part, dtype=np.float64))
    C = np.diag(glm.penalty)
    return debiased(At, C, sketch, operator, scores, method.debias, glm.n_samples, method.on_heavy)
