"""
Learning among liars
====================

Twenty hospitals, say, train one classifier without a server, over a dense network. Each of them also hears
two participants who lie, and who know everything. Plain averaging, the two rules with a proof, and
ClippedGossip meet the attack known as "a little is enough": all lies point the same way, and a line search
makes them as large as does most harm.
"""

# %%
# Handwritten digits, 3 against 8, split unevenly by a Dirichlet draw. Unit weights on the links: the bound b
# then counts lying neighbours.
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from optikit.data import code_labels, prepare_features, split_dirichlet
from optikit.graphs import erdos_renyi
from optikit.mixing import from_matrix
from optikit.network import Network
from optikit.objectives import LinearModel
from optikit.plotting import plot_history
from solvers.decentralized.robust import RobustLearning
from solvers.decentralized.robust_round import breakdown

digits = load_digits()
rows = (digits.target == 3) | (digits.target == 8)
features, _ = prepare_features(digits.data[rows])
data = split_dirichlet(features, code_labels(digits.target[rows]), n_agents=20, alpha=1.0, seed=0)
model = LinearModel(data, "logistic", l2=0.001)

matrix = from_matrix(erdos_renyi(20, 0.9, seed=0).laplacian(), "gossip")
network = Network(matrix)

# %%
# Before anything runs: what is certain about each rule on this network?
for rule in ("cs+", "gts", "clipped_gossip"):
    found = breakdown(matrix, rule, b=2.0)
    print(f"{rule:>14}: delta = {found.delta:.2f}, consensus under any attack: {found.guaranteed}")

# %%
# 300 rounds each. The run without liars is the reference.
settings = {"lr": 10.0, "momentum": 0.9}


def lost(progress):
    """End a run whose loss has exploded: the picture needs no more of it."""
    return progress.metrics["objective"] > 10.0


runs = {"no liars": RobustLearning(rule="average", **settings).solve(model, network, max_rounds=300)}
for rule in ("cs+", "gts", "clipped_gossip", "average"):
    solver = RobustLearning(rule=rule, b=2.0, attack="alie", **settings)
    runs[rule] = solver.solve(model, network, max_rounds=300, callback=lost)
for label, result in runs.items():
    print(
        f"{label:>14}: loss {result.objective:.4g}, disagreement {result.history['consensus_error'][-1]:.2g}"
    )

# %%
# Averaging is lost within a few rounds. The robust rules learn: the honest agents stay together, at a mean
# that the lies displace a little.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_history(runs, y="objective", scale="semilogy", ax=axes[0])
plot_history(runs, y="consensus_error", scale="semilogy", ax=axes[1])
axes[0].set_title("Loss at the mean of the honest agents")
axes[1].set_title("Disagreement of the honest agents")
plt.show()
