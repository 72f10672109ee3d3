"""The methods that the command line knows: a name, where the class is, and what it wants to be given.

Nothing is imported before a method is chosen, so that ``optikit-solve --help`` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from optikit.validation import check_choice


@dataclass(frozen=True)
class Method:
    """A method as the command line offers it.

    Attributes
    ----------
    name : str
        Its word on the command line.
    target : str
        ``"module:Class"`` of the solver, a dataclass of hyper-parameters.
    summary : str
        One line for the list of methods.
    loss : str
        Default loss of the linear model that is fitted.
    defaults : dict
        Hyper-parameters whose default differs here from the class's own.
    hidden : tuple of str
        Hyper-parameters that have no form on a command line.
    options : dict
        Defaults of common options that suit this method, e.g. ``{"max_rounds": 2000}``.
    rate : float or None
        Exponent of the objective gap in the number of rounds that theory promises; a guide in pictures.
    links : str
        What a method on a graph asks of its network, a kind of `solvers.cli.topology.parse_topology`.
    ridge : str or None
        The hyper-parameter that is the ridge weight, where the method treats it apart from the losses; on
        the command line it is ``--l2`` like everywhere else.
    whole_data : bool
        True for methods on a `solvers.newton.glm.GLM`, every worker of which may read all rows; its
        intercept is not penalised.
    server : bool
        True for methods whose rank 0 is a server without agents.
    setup : str or None
        ``"module:name"`` of the `solvers.cli.setups.Setup` that completes hyper-parameters from the data.
    """

    name: str
    target: str
    summary: str
    loss: str = "logistic"
    defaults: dict[str, Any] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    rate: float | None = None
    links: str = "mixing"
    ridge: str | None = None
    whole_data: bool = False
    server: bool = False
    setup: str | None = None

    def load(self) -> Any:
        """The solver class."""
        return _named(self.target)

    def load_setup(self) -> Any:
        """The `Setup`, or None."""
        return None if self.setup is None else _named(self.setup)


def _named(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


_ASYNCHRONOUS: dict[str, Any] = {
    "server": True,
    "setup": "solvers.cli.asynchronous:ASYNCHRONOUS",
    "defaults": {"client_weights": "samples"},
    "hidden": ("h", "service", "failures", "trace", "runs"),
}

METHODS = {
    method.name: method
    for method in (
        Method(
            "local-gd",
            "solvers.federated.local_gd:TwoStageLocalGD",
            "Two-stage Local GD: many local steps between two averages, for separable classes",
            defaults={"switch": "practical"},
            rate=-1.0,
        ),
        Method(
            "local-gd-constant",
            "solvers.federated.local_gd:LocalGD",
            "Local GD with one step size; --local-steps 1 is plain gradient descent",
            defaults={"local_steps": 16},
            rate=-1.0,
        ),
        Method(
            "local-sgd",
            "solvers.federated.baselines:LocalSGD",
            "Local SGD: local steps on minibatches",
            rate=-1.0,
        ),
        Method(
            "local-flow",
            "solvers.federated.local_flow:LocalGradientFlow",
            "Local gradient flow: the limit of many small local steps",
            rate=-1.0,
        ),
        Method(
            "dgd",
            "solvers.decentralized.gradient_descent:DecentralizedGradientDescent",
            "Decentralised gradient descent on a graph of peers, constant step size",
        ),
        Method(
            "nonsmooth",
            "solvers.decentralized.nonsmooth:NonsmoothTimeVarying",
            "Optimal method for non-smooth losses over changing graphs, with a certified gap",
            loss="hinge",
            defaults={"gossip_steps": None, "chebyshev": None, "inner_steps": None},
            options={"l2": 0.01, "max_rounds": 20_000, "record_every": "10"},
            rate=-2.0,
            links="gossip",
            ridge="r",
            setup="solvers.cli.setups:NONSMOOTH",
        ),
        Method(
            "dsm",
            "solvers.decentralized.subgradient:DecentralizedSubgradient",
            "Distributed subgradient method on a graph of peers",
            loss="hinge",
            ridge="r",
        ),
        Method(
            "subgradient-push",
            "solvers.decentralized.subgradient:SubgradientPush",
            "Subgradient-push on a directed graph of peers",
            loss="hinge",
            links="col",
            ridge="r",
        ),
        Method(
            "subgradient",
            "solvers.decentralized.subgradient:CentralizedSubgradient",
            "Subgradient method of a server, the reference without a graph",
            loss="hinge",
            ridge="r",
        ),
        Method(
            "sliding",
            "solvers.decentralized.sliding:CommunicationSliding",
            "Communication sliding for non-smooth losses on a static graph",
            loss="hinge",
            options={"l2": 0.01},
            links="static",
            ridge="r",
        ),
        Method(
            "gradient-tracking",
            "solvers.decentralized.gradient_tracking:GradientTracking",
            "Gradient tracking (DIGing) on a graph of peers: exact with a constant step",
            ridge="r",
        ),
        Method(
            "adom",
            "solvers.decentralized.adom:ADOMPlus",
            "ADOM+, optimal for smooth strongly convex losses over changing graphs",
            defaults={"smoothness": None, "strong_convexity": None},
            options={"l2": 0.01},
            links="gossip",
            ridge="r",
            setup="solvers.cli.setups:ADOM",
        ),
        Method(
            "zo-sadom",
            "solvers.decentralized.adom:ZOSADOM",
            "ADOM+ driven by function values only, for non-smooth losses",
            loss="hinge",
            defaults={"lipschitz": None},
            options={"l2": 0.01},
            links="gossip",
            ridge="r",
            setup="solvers.cli.setups:ZOSADOM",
        ),
        Method(
            "push-diging",
            "solvers.decentralized.push_diging:PushDIGing",
            "Push-DIGing: gradient tracking on a directed graph, column-stochastic weights",
            links="col",
        ),
        Method(
            "push-pull",
            "solvers.decentralized.push_pull:PushPull",
            "Push-Pull (AB): gradient tracking on a directed graph, row and column weights in turn",
            links="pull-push",
        ),
        Method(
            "pull-diag-gt",
            "solvers.decentralized.pull_diag:PullDiagGT",
            "Pull-Diag-GT: gradient tracking on a directed graph, row-stochastic weights only",
            links="row",
        ),
        Method(
            "mg-pull-diag-gt",
            "solvers.decentralized.pull_diag:MGPullDiagGT",
            "MG-Pull-Diag-GT: the same with several gossip rounds per step",
            links="row",
        ),
        Method(
            "newton",
            "solvers.newton.subsampled:SubsampledNewton",
            "Debiased sub-sampled Newton for generalised linear models, averaged over --agents workers",
            options={"agents": 1, "l2": 1e-4, "tol": 1e-8, "max_rounds": 100},
            whole_data=True,
        ),
        Method(
            "async-bundle",
            "solvers.asynchronous.bundle:AsynchronousBundle",
            "Asynchronous bundle method: workers of unequal speed, a simple h, a certified gap",
            options={"l2": 1e-3, "tol": 1e-6, "max_rounds": 20_000, "record_every": "5"},
            **_ASYNCHRONOUS,
        ),
        Method(
            "piag",
            "solvers.asynchronous.baselines:PIAG",
            "Proximal incremental aggregated gradient with delay-adaptive steps",
            options={"l2": 1e-3, "max_rounds": 5000, "record_every": "5"},
            **_ASYNCHRONOUS,
        ),
        Method(
            "async-sgd",
            "solvers.asynchronous.baselines:AsynchronousSGD",
            "Asynchronous (proximal) SGD: every reply moves the iterate at once",
            options={"l2": 1e-3, "max_rounds": 5000, "record_every": "5"},
            **_ASYNCHRONOUS,
        ),
        Method(
            "robust-learning",
            "solvers.decentralized.robust:RobustLearning",
            "Learning with robust gossip on a static graph, some neighbours Byzantine",
            links="static",
        ),
    )
}


def get_method(name: str) -> Method:
    """The method called `name`; a ValueError lists the names otherwise."""
    return METHODS[check_choice(name, "method", tuple(METHODS))]
