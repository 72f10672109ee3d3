r"""The communication-sliding procedure: T local subgradient steps between two exchanges.

From :math:`U^0 = X`, with :math:`b_t = \kappa t / 2` and subgradients h of the agents' losses,

.. math:: U^t = \frac{\mathrm{pull} - h(U^{t-1}) + b_t U^{t-1}}{\kappa + b_t}, \qquad t = 1, \dots, T,

the last point and the (t+1)-weighted average are handed on. The same weights average the affine minorants
:math:`f(U^{t-1}) + \langle h, \cdot - U^{t-1}\rangle`.

Reference: G. Lan, S. Lee, Y. Zhou, *Communication-efficient algorithms for decentralized and stochastic
optimization*, Mathematical Programming 2020.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from optikit.arrays import array_namespace, is_numpy


class Slid(NamedTuple):
    """Last point and weighted average (n_local, d); averaged minorant: slope (n_local, d) and value at 0."""

    last: Any
    average: Any
    slope: Any
    offset: Any


def sliding_procedure(
    objective: Any, x: Any, pull: Any, kappa: float, steps: int, *, minorant: bool = False
) -> Slid:
    """T = `steps` subgradient steps from x (n_local, d); without `minorant` its slope and offset are zero.

    Objectives that offer a compiled oracle (linear models on the host) run in one compiled loop, others step
    by step; results agree to rounding.
    """
    xp = array_namespace(x)
    U, S = x + 0.0, xp.zeros_like(x)
    H, phi = xp.zeros_like(x), xp.zeros_like(x[:, 0])
    oracle = getattr(objective, "compiled_oracle", None) if is_numpy(xp) else None
    if oracle is not None and x.dtype == objective.dtype:
        _compiled(objective, oracle, pull, kappa, steps, minorant, U, S, H, phi)
    else:
        U, S, H, phi = _step_by_step(objective, pull, kappa, steps, minorant, U, S, H, phi)
    total = steps * (steps + 3) / 2.0
    if not minorant:
        return Slid(U, S / total, H, phi)
    return Slid(U, S / total, H / total, phi / total)


def _compiled(
    objective: Any,
    oracle: tuple[Any, ...],
    pull: Any,
    kappa: float,
    steps: int,
    minorant: bool,
    U: Any,
    S: Any,
    H: Any,
    phi: Any,
) -> None:
    from solvers.decentralized import _kernels_nonsmooth as kernels

    slide: Any = kernels.slide
    slide(*oracle, np.ascontiguousarray(pull), kappa, steps, minorant, U, S, H, phi)
    calls = objective.calls
    calls.gradients += steps
    calls.values += steps if minorant else 0
    calls.samples += steps * int(oracle[-1][-1])


def _step_by_step(
    objective: Any, pull: Any, kappa: float, steps: int, minorant: bool, U: Any, S: Any, H: Any, phi: Any
) -> tuple[Any, Any, Any, Any]:
    xp = array_namespace(U)
    fused: Any = None
    if is_numpy(xp):
        from solvers.decentralized import _kernels_nonsmooth as kernels

        fused = kernels.fused_update
    for t in range(1, steps + 1):
        weight, b = t + 1.0, kappa * t / 2.0
        if minorant:
            f, h = objective.value_and_gradient(U)
            phi = phi + weight * (f - xp.sum(h * U, axis=1))
            H = H + weight * h
        else:
            h = objective.gradient(U)
        scale = 1.0 / (kappa + b)
        if fused is not None:
            fused(U, S, h, pull, b, scale, weight)
        else:
            U = (pull - h + b * U) * scale
            S = S + weight * U
    return U, S, H, phi
