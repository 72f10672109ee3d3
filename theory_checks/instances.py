"""Reference problems with known optima: random L1 regression (E2) and a hinge SVM on real data (E3)."""

import numpy as np

from optikit.agent_data import AgentData
from optikit.graphs import Graph, from_edges, ring, star
from optikit.mixing import Cyclic, TopologySequence, cyclic, laplacian_gossip
from optikit.objectives import LinearModel


def as_mixing(sequence: TopologySequence) -> Cyclic:
    """The same sequence with matrices of kind mixing."""
    return Cyclic([sequence.matrix(q).to_mixing() for q in range(sequence.period or 1)])


def l1_regression() -> tuple[LinearModel, Cyclic]:
    """E2: 12 agents, d = 5, 8 rows each, over 20 connected random graphs; p* = 1.0941103104 at r = 0.1."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 8, 5))
    A /= np.linalg.norm(A, axis=2, keepdims=True)
    truth = rng.standard_normal(5)
    noise = 0.5 * rng.standard_normal((12, 8)) * (1 + np.arange(12)[:, None] / 4)
    b = A @ truth + noise + np.linspace(-1, 1, 12)[:, None]
    graphs: list[Graph] = []
    while len(graphs) < 20:
        graph = from_edges(12, np.argwhere(np.triu(rng.random((12, 12)) < 0.3, 1)))
        if graph.is_connected:
            graphs.append(graph)
    return LinearModel(AgentData.from_stacked(A, b), "absolute"), cyclic(graphs, laplacian_gossip)


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
