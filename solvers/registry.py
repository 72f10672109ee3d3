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
    """

    name: str
    target: str
    summary: str
    loss: str = "logistic"
    defaults: dict[str, Any] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    rate: float | None = None

    def load(self) -> Any:
        """The solver class."""
        module, _, name = self.target.partition(":")
        return getattr(import_module(module), name)


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
    )
}


def get_method(name: str) -> Method:
    """The method called `name`; a ValueError lists the names otherwise."""
    return METHODS[check_choice(name, "method", tuple(METHODS))]
