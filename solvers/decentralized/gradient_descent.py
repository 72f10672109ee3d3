r"""Decentralised gradient descent (DGD), the first-order method over a network of peers.

Every agent averages with its neighbours and steps along its own gradient,

.. math:: X^{k+1} = W X^k - a \, \nabla f(X^k),

with a mixing matrix W (doubly stochastic) and a constant step size a. Reference: A. Nedic, A. Ozdaglar,
*Distributed subgradient methods for multi-agent optimization*, IEEE TAC 2009; K. Yuan, Q. Ling, W. Yin,
*On the convergence of decentralized gradient descent*, SIAM J. Optim. 2016.

Guarantee: for convex L-smooth objectives and symmetric W, :math:`a \le (1 + \lambda_{\min}(W))/L` makes the
iterates converge to a neighbourhood of the optimum of radius O(a / (1 - lambda)); it does not vanish for a
constant step, which is why gradient tracking exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from optikit.solver import IterativeSolver, per_agent
from optikit.validation import check_real


@dataclass(frozen=True)
class DGDState:
    """The stacked iterate, ``(n_local, d)``."""

    x: Any = per_agent()


@dataclass(frozen=True)
class DecentralizedGradientDescent(IterativeSolver):
    """Decentralised gradient descent with a constant step size.

    Parameters
    ----------
    step_size : float
        The step a, greater than 0.
    """

    name: ClassVar[str] = "decentralised gradient descent"
    kinds: ClassVar[tuple[str, ...] | None] = ("mixing",)

    step_size: float = 0.1

    def __post_init__(self) -> None:
        check_real(self.step_size, "step_size", minimum=0.0, open_low=True)

    def init(self, objective: Any, network: Any, x0: Any) -> DGDState:
        return DGDState(x0)

    def step(self, objective: Any, network: Any, state: DGDState) -> DGDState:
        gradient = objective.gradient(state.x)
        gradient *= -self.step_size
        gradient += network.mix(state.x)
        return DGDState(gradient)

    def iterate(self, state: DGDState) -> Any:
        return state.x

    def exchanged(self, state: DGDState) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return (state.x,)
