"""Reference problems: random L1 regression (E2), a hinge SVM on real data (E3), sequences compared (E4)."""

import numpy as np

from optikit.agent_data import AgentData
from optikit.graphs import Graph, from_edges, ring, star, static_exponential
from optikit.mixing import (
    Cyclic,
    Static,
    TopologySequence,
    base_graph,
    cyclic,
    default_weights,
    laplacian_gossip,
    null_cascade,
    one_peer_exponential,
    rotating_star,
)
from optikit.objectives import LinearModel


def as_mixing(sequence: TopologySequence) -> Cyclic:
    """The same sequence with matrices of kind mixing."""
    return Cyclic([sequence.matrix(q).to_mixing() for q in range(sequence.period or 1)])


def l1_model(n_agents: int = 12, rng: np.random.Generator | None = None) -> LinearModel:
    """L1 regression in E2's manner: d = 5, 8 unit rows per agent, noise and bias that differ over agents."""
    rng = np.random.default_rng(0) if rng is None else rng
    agents = np.arange(n_agents)[:, None]
    A = rng.standard_normal((n_agents, 8, 5))
    A /= np.linalg.norm(A, axis=2, keepdims=True)
    truth = rng.standard_normal(5)
    noise = 0.5 * rng.standard_normal((n_agents, 8)) * (1 + agents / 4)
    b = A @ truth + noise + np.linspace(-1, 1, n_agents)[:, None]
    return LinearModel(AgentData.from_stacked(A, b), "absolute")


def l1_regression() -> tuple[LinearModel, Cyclic]:
    """E2: `l1_model` of 12 agents over 20 connected random graphs; p* = 1.0941103104 at r = 0.1."""
    rng = np.random.default_rng(0)
    model = l1_model(12, rng)
    graphs: list[Graph] = []
    while len(graphs) < 20:
        graph = from_edges(12, np.argwhere(np.triu(rng.random((12, 12)) < 0.3, 1)))
        if graph.is_connected:
            graphs.append(graph)
    return model, cyclic(graphs, laplacian_gossip)


def compared_sequences(n: int = 25) -> dict[str, TopologySequence]:
    """E4: topologies compared at equal rounds, from one that never changes to ones that always do."""
    return {
        "static exponential": Static(default_weights(static_exponential(n))),
        "null cascade": null_cascade(n, 2),
        "1-peer exponential": one_peer_exponential(n),
        "Base-2": base_graph(n, 1),
        "ring": Static(laplacian_gossip(ring(n))),
        "rotating star": rotating_star(n, weights=laplacian_gossip),
    }


def hinge_svm() -> tuple[LinearModel, Cyclic]:
    """E3: label-sorted breast cancer data, 56 rows for each of 10 agents; ring and moving star in turn."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    X = np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(len(X))])
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    order = np.argsort(y, kind="stable")[:560]
    labels = 2.0 * y[order] - 1.0
    data = AgentData.from_stacked(X[order].reshape(10, 56, 31), labels.reshape(10, 56))
    graphs = [graph for centre in range(10) for graph in (ring(10), star(10, centre))]
    return LinearModel(data, "hinge"), cyclic(graphs, laplacian_gossip)
