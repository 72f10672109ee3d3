r"""Optimal decentralised minimisation of non-smooth convex functions over time-varying networks.

Minimise :math:`p(x) = \frac1n \sum_i f_i(x) + \frac r2 \|x\|^2` where agent i owns a convex, M-Lipschitz
:math:`f_i` (values and subgradients only) and the links may change in every round.

Reference: D. Kovalev, E. Borodich, A. Gasnikov, D. Feoktistov, *Lower bounds and optimal algorithms for
non-smooth convex decentralized optimization over time-varying networks*, NeurIPS 2024. The saddle-point
reformulation, the gossip normalisation and the prox form are the paper's (and its companion code's); the
schedule of step sizes, the explicit bounds and the certificate are derived for this toolkit.

With :math:`r = r_x + r_{yz}` the problem is the saddle point of
:math:`F(x) - \langle x, y\rangle - \|y + z\|^2 / (2 r_{yz})` over x, y in :math:`R^{n \times d}` and z with
zero mean over agents, :math:`F(x) = \sum_i f_i(x_i) + \frac{r_x}2 \|x\|^2`. Iteration k, A = k + 1,
:math:`\alpha = 2/(k+2)`, :math:`\beta = k/(k+1)`:

.. math::

    G &= (\alpha (Y + Z) + (1-\alpha)(\bar Y + \bar Z)) / r_{yz}, \qquad V = \tau_z A\, G + m \\
    Z^+ &= Z - W V, \quad m^+ = V - W V, \quad \bar Z^+ = Z_u - \gamma W G \\
    Y^+ &= Y - \tau_y A (G + X + \beta (\tilde X - X^-)), \quad \bar Y^+ = Y_u + \alpha (Y^+ - Y)

followed by T inner subgradient steps, :math:`b = \kappa t / 2`,

.. math:: U \leftarrow (Y^+ - h(U) + \eta^{-1} X + b\, U) / (\kappa + b),

whose last point is the next X and whose (t+1)-weighted average is :math:`\tilde X`. One communication round
of 2d floats per link and iteration. Nothing in the inner loop needs W V or W G, so the exchange travels
while the agents compute.

Guarantee: :math:`p(x_{out}) - p^* \le (M^2/r) [121 \chi^2/(K(K+1)) + 480/((K+1)(T+3))]`, which is optimal in
rounds, :math:`\Theta(\chi M / \sqrt{r \epsilon})`, and in subgradients, :math:`\Theta(M^2/(r\epsilon))`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optikit.arrays import array_namespace
from optikit.gossip import chebyshev_gossip, static_symmetric, window_gossip
from optikit.result import Certificate
from optikit.solver import IterativeSolver, per_agent, replicated
from optikit.validation import check_integer, check_real
from solvers.decentralized.composite import composite_metrics
from solvers.decentralized.nonsmooth_rules import (
    Schedule,
    auto_params,
    chosen_gossip,
    convex_mode,
    gossip_chi,
    schedule,
)
from solvers.decentralized.sliding_procedure import Slid, sliding_procedure

__all__ = [
    "NonsmoothState",
    "NonsmoothTimeVarying",
    "Plan",
    "Schedule",
    "auto_params",
    "convex_mode",
    "for_accuracy",
    "gossip_chi",
    "schedule",
]


@dataclass(frozen=True)
class NonsmoothState:
    """Primal X and duals Y, Z with their averages, the error feedback m, and the output averages."""

    x: Any = per_agent()
    x_previous: Any = per_agent()
    x_tilde: Any = per_agent()
    y: Any = per_agent()
    y_bar: Any = per_agent()
    z: Any = per_agent()
    z_bar: Any = per_agent()
    feedback: Any = per_agent()
    x_bar: Any = per_agent()
    slope_bar: Any = per_agent()  # averaged subgradients: the affine minorant's slope
    offset_bar: Any = per_agent()  # and its value at 0
    best_lower: Any = replicated()  # running maximum of the lower bound; shape (1,), kept by `metrics`
    schedule: Any = replicated()
    iteration: int = replicated(default=0)


@dataclass(frozen=True)
class NonsmoothTimeVarying(IterativeSolver):
    """The optimal method for non-smooth functions over time-varying networks.

    Parameters
    ----------
    r : float
        Weight of ``(r/2)||x||^2``, > 0. It is part of the problem; the objective holds the f_i only.
    inner_steps : int, default 10
        Subgradient steps T per communication round, >= 1 (the explicit bounds ask for >= 3).
    chi : float or None
        Condition number of the gossip, >= 1; None computes it from the network (times 1.01).
    gossip_steps : int, default 1
        Rounds B per iteration: W becomes ``I - prod_q (I - W(q))`` over B rounds. Needed where single
        rounds are not connected; with the period of a finite-time sequence chi is 1.
    chebyshev : bool, default False
        Make the B rounds a Chebyshev polynomial of a static symmetric network: about sqrt(chi) rounds bring
        chi close to 1, where plain rounds need chi.
    r_x : float or None
        Part of r kept in the primal, in (0, r); default r / 2.
    theta_z_scale : float, default 1.0
        Heuristic factor on tau_z. 1 keeps the guarantee; 2 ran stably everywhere, 8 diverged.
    overlap : bool, default True
        Exchange while the inner loop computes; the iterates are the same.
    with_certificate : bool, default True
        Accumulate the affine minorant that gives the lower bound (two more vectors per agent).
    consensus_tol : float or None
        With ``tol``, also ask for a root mean square consensus error of at most this.
    """

    name: ClassVar[str] = "optimal non-smooth method"
    kinds: ClassVar[tuple[str, ...] | None] = ("mixing", "gossip")
    criterion: ClassVar[str | None] = "gap"

    r: float = 0.1
    inner_steps: int = 10
    chi: float | None = None
    gossip_steps: int = 1
    chebyshev: bool = False
    r_x: float | None = None
    theta_z_scale: float = 1.0
    overlap: bool = True
    with_certificate: bool = True
    consensus_tol: float | None = None

    def __post_init__(self) -> None:
        check_real(self.r, "r", minimum=0.0, open_low=True)
        check_integer(self.inner_steps, "inner_steps", minimum=1)
        check_integer(self.gossip_steps, "gossip_steps", minimum=1)
        if self.chi is not None:
            check_real(self.chi, "chi", minimum=1.0)
        if self.r_x is not None:
            check_real(self.r_x, "r_x", minimum=0.0, maximum=self.r, open_low=True, open_high=True)
        check_real(self.theta_z_scale, "theta_z_scale", minimum=0.0, open_low=True)
        if self.consensus_tol is not None:
            check_real(self.consensus_tol, "consensus_tol", minimum=0.0)

    # -- the run ------------------------------------------------------------------------------------------

    def validate(self, objective: Any, network: Any) -> None:
        if self.chebyshev:
            static_symmetric(network.topology)
        if self.chi is None:
            self._gossip_chi(network)

    def _gossip_chi(self, network: Any) -> float:
        return gossip_chi(network.topology, self.gossip_steps, self.chebyshev)

    def init(self, objective: Any, network: Any, x0: Any) -> NonsmoothState:
        chi = self._gossip_chi(network) if self.chi is None else self.chi
        xp = array_namespace(x0)
        zero = [xp.zeros_like(x0) for _ in range(8)]
        return NonsmoothState(
            x=x0,
            x_previous=x0,
            x_tilde=x0,
            y=zero[0],
            y_bar=zero[1],
            z=zero[2],
            z_bar=zero[3],
            feedback=zero[4],
            x_bar=zero[5],
            slope_bar=zero[6],
            offset_bar=zero[7][:, 0],
            best_lower=np.full(1, -np.inf),
            schedule=schedule(self.r, chi, self.inner_steps, self.r_x, self.theta_z_scale),
        )

    def step(self, objective: Any, network: Any, state: NonsmoothState) -> NonsmoothState:
        k, c = state.iteration, state.schedule
        A, alpha, beta = k + 1.0, 2.0 / (k + 2.0), k / (k + 1.0)
        y_under = alpha * state.y + (1.0 - alpha) * state.y_bar
        z_under = alpha * state.z + (1.0 - alpha) * state.z_bar
        G = (y_under + z_under) / c.r_yz
        V = (c.tau_z * A) * G + state.feedback
        in_flight = network.igossip(V, G) if self.overlap and self.gossip_steps == 1 else None
        # Step 5 extrapolates from the point where the last inner loop STARTED, as the proof needs.
        x_hat = state.x + beta * (state.x_tilde - state.x_previous)
        y = state.y - (c.tau_y * A) * (G + x_hat)
        y_bar = y_under + alpha * (y - state.y)
        x, x_tilde, slope, offset = self._inner_loop(objective, state.x, y, c.primal * c.r_x * A, c.r_x)
        if in_flight is not None:
            WV, WG = in_flight.wait()
        elif self.chebyshev:
            WV, WG = chebyshev_gossip(network, V, G, rounds=self.gossip_steps)
        else:
            WV, WG = window_gossip(network, V, G, rounds=self.gossip_steps)
        share = 2.0 / (k + 2.0)  # A / sum of A up to now
        return NonsmoothState(
            x=x,
            x_previous=state.x,
            x_tilde=x_tilde,
            y=y,
            y_bar=y_bar,
            z=state.z - WV,
            z_bar=z_under - c.gamma * WG,
            feedback=V - WV,
            x_bar=state.x_bar + share * (x_tilde - state.x_bar),
            slope_bar=state.slope_bar + share * (slope - state.slope_bar),
            offset_bar=state.offset_bar + share * (offset - state.offset_bar),
            best_lower=state.best_lower,
            schedule=c,
            iteration=k + 1,
        )

    def _inner_loop(self, objective: Any, x: Any, y: Any, eta_inverse: float, r_x: float) -> Slid:
        """T subgradient steps on f_i + (r_x/2)||.||^2 - <y, .> anchored at x with weight eta_inverse."""
        return sliding_procedure(
            objective,
            x,
            y + eta_inverse * x,
            r_x + eta_inverse,
            self.inner_steps,
            minorant=self.with_certificate,
        )

    def iterate(self, state: NonsmoothState) -> Any:
        return state.x_bar

    def exchanged(self, state: NonsmoothState) -> tuple[Any, ...]:
        """Every variable that depends on what neighbours sent, for the support invariant."""
        return state.x, state.x_tilde, state.y, state.y_bar, state.z, state.z_bar, state.feedback

    def metrics(
        self, objective: Any, network: Any, state: NonsmoothState, *, final: bool = False
    ) -> dict[str, float]:
        return composite_metrics(
            objective,
            network,
            state.x_bar,
            self.r,
            minorant=(state.slope_bar, state.offset_bar)
            if self.with_certificate and state.iteration
            else None,
            best_lower=state.best_lower,
        )

    def converged(self, metrics: dict[str, float], tol: float) -> bool:
        tight = self.consensus_tol is None or metrics["consensus_error"] <= self.consensus_tol
        return tight and metrics.get("gap", math.inf) <= tol

    def certificate(self, objective: Any, network: Any, state: NonsmoothState) -> Certificate | None:
        """Bounds on the optimal value: the affine minorant below, the value at the mean above."""
        if not self.with_certificate or not state.iteration:
            return None
        last = self.metrics(objective, network, state)
        return Certificate(
            "optimality gap",
            lower_bound=float(state.best_lower[0]),
            upper_bound=last["objective"],
            details={"consensus_error": last["consensus_error"], "chi": self.chi},
        )


@dataclass(frozen=True)
class Plan:
    """A method ready for an accuracy: the solver, the tolerance of its certificate, and its round limit.

    Attributes
    ----------
    solver : NonsmoothTimeVarying
    tol : float
        For ``solve(tol=...)``: eps, or eps / 2 in convex mode.
    max_rounds : int or None
        Rounds after which theory guarantees the accuracy; None for the practical preset.
    """

    solver: NonsmoothTimeVarying
    tol: float
    max_rounds: int | None


def for_accuracy(
    objective: Any,
    network: Any,
    eps: float,
    *,
    r: float = 0.0,
    R: float | None = None,
    M: float | None = None,
    gossip_steps: int | None = None,
    chebyshev: bool | None = None,
    preset: str = "practical",
    **options: Any,
) -> Plan:
    """Parameters that bring ``p(x) - p*`` below `eps` (collective: every rank calls it).

    Parameters
    ----------
    objective, network : Objective, Network
    eps : float
        Target, > 0.
    r : float, default 0
        Weight of ``(r/2)||x||^2`` in the problem; 0 is convex mode and needs `R`.
    R : float, optional
        Bound on the norm of a minimiser, for convex mode.
    M : float, optional
        Largest Lipschitz constant of an f_i; by default that of the objective.
    gossip_steps : int, optional
        Rounds per iteration.
    chebyshev : bool, optional
        Whether they are accelerated. Where neither is given, `best_gossip` chooses both.
    preset : {"practical", "theory"}
        See `auto_params`.
    **options
        Further parameters of `NonsmoothTimeVarying`.
    """
    eps = check_real(eps, "eps", minimum=0.0, open_low=True)
    if M is None:
        M = float(network.max(network.objective_for(objective).lipschitz))
        if not math.isfinite(M):
            raise ValueError(
                "the objective has no Lipschitz constant: pass M, a bound on the region visited."
            )
    tol = eps
    if check_real(r, "r", minimum=0.0) == 0.0:
        if R is None:
            raise ValueError("R, a bound on the norm of a minimiser, is needed when r = 0; got R=None.")
        r, tol = convex_mode(eps, R, M), eps / 2
    gossip = chosen_gossip(network.topology, gossip_steps, chebyshev)
    chi = gossip_chi(network.topology, gossip.steps, gossip.chebyshev)
    K, T = auto_params(chi, M, r, tol, preset)
    options.setdefault("inner_steps", T)
    solver = NonsmoothTimeVarying(
        r=r, chi=chi, gossip_steps=gossip.steps, chebyshev=gossip.chebyshev, **options
    )
    return Plan(solver, tol, None if K is None else K * gossip.steps)
