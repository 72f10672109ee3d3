"""Claims about Local gradient flow, the quadratic counter-example, and margins of real data."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import expit

from optikit.agent_data import AgentData
from optikit.data import prepare_features
from optikit.generators import two_point, two_vec
from optikit.network import Network
from optikit.objectives import LinearModel, Quadratic
from solvers.federated import LocalGD, LocalGradientFlow, max_margin, quadratic_fixed_point
from solvers.federated.local_flow import flow_displacement, largest_displacement
from theory_checks import (
    Claim,
    Equality,
    Measurement,
    Monotone,
    PowerLaw,
    RatioConstant,
    Sweep,
    UpperBound,
    Value,
)

ICLR = "Crawshaw, Woodworth, Liu, Local Steps Speed Up Local GD, ICLR 2025"
DERIVED = "derived for this toolkit"
ROUNDS = 2048


@cache
def flow_loss(time: float) -> float:
    objective = LinearModel(two_vec(1.0, 0.2, -0.95), "logistic")
    return LocalGradientFlow(time).solve(objective, max_rounds=ROUNDS, record_every=ROUNDS).objective


@cache
def flow_margin() -> float:
    return max_margin(two_vec(1.0, 0.2, -0.95).features).gamma


def displacement(point: tuple[float, float], seed: int, *, naive: bool = False) -> Measurement:
    """Closed form of one client's flow against the integrated equation."""
    z, tau = point
    if naive:  # one explicit Euler step of the whole time
        closed = tau * float(expit(-z))
    else:
        closed = float(np.asarray(flow_displacement(np.array([z]), np.array([tau])))[0])
    path = solve_ivp(lambda t, y: expit(-(z + y)), (0.0, tau), [0.0], method="DOP853", rtol=1e-12, atol=1e-14)
    return Measurement(closed, float(path.y[0, -1]))


#: Three clients in the plane whose largest displacement rises (found by a random search with a fixed seed).
COUNTER_EXAMPLE = np.array([[0.19692229, -0.73213281], [0.03709295, 0.72774764], [0.23022281, -0.73405316]])


def lyapunov(point: Any, seed: int, *, clients: int = 2, steps: bool = False) -> Measurement:
    """Largest local displacement of each round, M = 2 (theorem) or a counter-example with M = 3."""
    if clients == 2:
        data = two_vec(*point)
        time = 4096.0
    else:
        data, time = AgentData(COUNTER_EXAMPLE, np.ones(3), np.arange(4)), 64.0
    objective, network = LinearModel(data, "logistic"), Network(n_agents=clients)
    solver = LocalGradientFlow(time, margin=False)
    state = solver.init(objective, network, np.zeros(data.dim))
    weights = np.full(clients, 1.0 / clients)
    values = []
    for _ in range(200):
        values.append(largest_displacement(solver.contributions(state), weights))
        state = solver.step(objective, network, state)
    return Measurement(np.array(values), x=np.arange(1.0, 201.0))


def to_the_flow(K: int, seed: int, *, order: float = 1.0) -> float:
    """Distance of one round of Local GD with T/K steps from one round of the flow, T = 16."""
    objective = LinearModel(two_point(0.3, 0.5), "logistic")
    limit = LocalGradientFlow(16.0).solve(objective, max_rounds=1).x
    step = 16.0 / K if order == 1.0 else 16.0 / K * (1 + 1 / np.sqrt(K))
    return float(np.linalg.norm(LocalGD(step, K).solve(objective, max_rounds=1).x - limit))


@cache
def quadratics() -> Quadratic:
    rng = np.random.default_rng(0)
    A = np.einsum("md,de->mde", rng.uniform(0.1, 1.0, (3, 4)), np.eye(4))
    return Quadratic(A, rng.standard_normal((3, 4)))


def fixed_point(K: int, seed: int, *, optimum: bool = False) -> Measurement:
    """Where Local GD on quadratics ends, against the closed form (or against the optimum)."""
    objective = quadratics()
    w = LocalGD(0.5, K, normalize=False, margin=False).solve(objective, max_rounds=3000, record_every=3000).x
    A, b = objective.A, objective.b
    target = np.linalg.solve(A.sum(0), b.sum(0)) if optimum else quadratic_fixed_point(objective, 0.5, K)
    return Measurement(np.asarray(w), target, x=np.arange(1.0, 5.0))


@cache
def real_rows(name: str) -> np.ndarray:
    """Signed rows of the real data sets, prepared as in the papers."""
    from sklearn import datasets

    kind, *parts = name.split()
    if kind == "digits":
        table = datasets.load_digits()
        if parts[1] == "rest":
            X, y = table.data, np.where(table.target == int(parts[0]), 1.0, -1.0)
        else:
            rows = np.isin(table.target, [int(p) for p in parts])
            X, y = table.data[rows], np.where(table.target[rows] == int(parts[1]), 1.0, -1.0)
    else:
        table = datasets.load_iris() if kind == "iris" else datasets.load_wine()
        X = (table.data - table.data.mean(0)) / table.data.std(0)
        y = np.where(table.target == 0, 1.0, -1.0)
    X, _ = prepare_features(X)
    return np.asarray(y[:, None] * X)


MARGINS = {
    "digits 0 1": 0.097753,
    "digits 3 8": 0.034572,
    "digits 0 rest": 0.029190,
    "iris setosa": 0.156805,
    "wine class": 0.065496,
}


def real_margin(name: str, seed: int) -> Measurement:
    return Measurement(max_margin(real_rows(name)).gamma, MARGINS[name])


def mean_margin(name: str, seed: int) -> Measurement:
    rows = real_rows(name)
    mean = rows.mean(0)
    return Measurement(float(np.min(rows @ mean) / np.linalg.norm(mean)), MARGINS[name])


def margin_against_svc(name: str, seed: int) -> Measurement:
    """The margin against 1/||w|| of a hard-margin linear SVM on the rows and their negatives."""
    from sklearn.svm import SVC

    rows = real_rows(name)
    svm = SVC(kernel="linear", C=1e10, tol=1e-10)
    svm.fit(np.concatenate([rows, -rows]), np.repeat([1, -1], len(rows)))
    return Measurement(max_margin(rows).gamma, float(1 / np.linalg.norm(svm.coef_)))


def online_margin(scale: float) -> Any:
    """Normalised margin of the iterates against the maximal margin."""

    def measure(point: tuple[float, float], seed: int) -> Measurement:
        data = two_point(*point)
        gamma, values, rounds = max_margin(data.features).gamma, [], [1, 4, 16, 64, 256, 1024]
        objective = LinearModel(data, "logistic")
        for r in rounds:
            w = LocalGD(1.0, 16, margin=False).solve(objective, max_rounds=r, record_every=r).x
            values.append(float(np.min(data.features @ w) / np.linalg.norm(w)))
        return Measurement(np.array(values), scale * gamma, x=np.array(rounds, dtype=float))

    return measure


CLAIMS = [
    Claim(
        name="local_flow.closed_form",
        theorem="With one sample a client's flow has a closed form by the Wright omega function.",
        formula=r"z(T) + e^{z(T)} = z + e^z + \|x\|^2 T",
        reference=DERIVED,
        provenance="derived",
        quantity="displacement along the row",
        law=Equality(rel=1e-9),
        measure=displacement,
        control=lambda point, seed: displacement(point, seed, naive=True),
        control_text="one Euler step of the whole time",
        sweep=Sweep("(z, tau)", ((-3.0, 0.5), (0.0, 10.0), (2.0, 1e4), (8.0, 1e3))),
        tags=("local_gd", "flow", "equality"),
    ),
    Claim(
        name="local_flow.loss_over_time",
        theorem="Local gradient flow falls like 1/(gamma^2 T R) over decades of T: the constant tends to 1.",
        formula=r"F(w_R)\,\gamma^2 T R \to 1",
        reference=ICLR,
        provenance="derived",
        quantity="F(w_R) gamma^2 T R",
        law=RatioConstant(1.25, low=0.9, high=1.2),
        measure=lambda T, seed: flow_loss(T) * flow_margin() ** 2 * T * ROUNDS,
        control=lambda T, seed: flow_loss(T) * flow_margin() ** 2 * np.sqrt(T) * ROUNDS,
        control_text="the square root of T",
        sweep=Sweep("time T", (16.0, 256.0, 4096.0, 65536.0)),
        tags=("local_gd", "flow", "value"),
    ),
    Claim(
        name="local_flow.lyapunov",
        theorem="With two clients of one sample the largest local displacement never grows, though F may.",
        reference=DERIVED,
        provenance="derived",
        quantity="largest local displacement",
        law=Monotone("decreasing", rel=1e-12),
        measure=lyapunov,
        control=lambda point, seed: lyapunov(point, seed, clients=3),
        control_text="three clients: the statement is false there",
        sweep=Sweep("(g1, g2, c)", ((1.0, 0.2, -0.95), (1.0, 0.5, -0.5), (0.7, 0.9, 0.3)), axis="round"),
        control_sweep=Sweep("counter-example", (0,), axis="round"),
        tags=("local_gd", "flow", "invariant"),
    ),
    Claim(
        name="local_flow.limit_of_local_gd",
        theorem="Local GD with K steps of T/K tends to the flow at first order in 1/K.",
        reference=DERIVED,
        provenance="derived",
        quantity="distance after one round",
        law=PowerLaw(-1.0, 0.06),
        measure=to_the_flow,
        control=lambda K, seed: to_the_flow(K, seed, order=0.5),
        control_text="a step wrong by a factor 1 + K^(-1/2): order one half",
        sweep=Sweep("local steps K", (16, 64, 256, 1024)),
        tags=("local_gd", "flow", "slope"),
    ),
    Claim(
        name="local_gd.quadratic_fixed_point",
        theorem="On quadratics Local GD tends to a weighted mean of the local optima, not to the optimum.",
        formula=r"w = (\sum_m T_m)^{-1}\sum_m T_m x_m^*,\quad T_m = I - (I-\eta A_m)^K",
        reference=DERIVED,
        provenance="derived",
        quantity="coordinates of the limit",
        law=Equality(rel=1e-9, abs=1e-12),
        measure=fixed_point,
        control=lambda K, seed: fixed_point(K, seed, optimum=True),
        control_text="the optimum of the mean: not where Local GD ends",
        sweep=Sweep("local steps K", (2, 8, 32), axis="coordinate"),
        tags=("local_gd", "equality"),
    ),
    Claim(
        name="local_gd.margins_of_real_data",
        theorem="The maximal margins of five real data sets, by least-distance programming.",
        reference="scikit-learn's bundled data; values of an independent prototype",
        provenance="derived",
        quantity="gamma",
        law=Value(abs=6e-7),
        measure=real_margin,
        control=mean_margin,
        control_text="the margin of the mean direction: smaller",
        sweep=Sweep("data", tuple(MARGINS)),
        tags=("local_gd", "margin", "real data", "value"),
    ),
    Claim(
        name="local_gd.margin_against_svc",
        theorem="The maximal margin is 1/||w|| of the hard-margin SVM on rows and negated rows.",
        reference="classical; peer: scikit-learn's SVC",
        provenance="stated",
        quantity="gamma",
        law=Equality(rel=1e-6),
        measure=margin_against_svc,
        control=lambda name, seed: Measurement(
            mean_margin(name, seed).value, margin_against_svc(name, seed).value
        ),
        control_text="the margin of the mean direction",
        sweep=Sweep("data", ("digits 0 1", "iris setosa"), ("digits 0 1", "iris setosa", "wine class")),
        tags=("local_gd", "margin", "real data", "equality"),
    ),
    Claim(
        name="local_gd.normalised_margin",
        theorem="The normalised margin of the iterates is a lower bound on gamma.",
        reference=DERIVED,
        provenance="derived",
        quantity="min_i <w, x_i> / ||w||",
        law=UpperBound(rel=1e-12),
        measure=online_margin(1.0),
        control=online_margin(0.5),
        control_text="half the maximal margin: exceeded late in the run",
        sweep=Sweep("(g, beta)", ((0.3, 0.5), (0.6, 1.0)), axis="round"),
        tags=("local_gd", "margin", "bound"),
    ),
]
