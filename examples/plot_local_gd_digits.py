"""
Local GD on handwritten digits
==============================

Five clients hold images of the digits 0 and 1. Half of the images are dealt at random, the rest sorted by
digit, so the clients disagree. How many communication rounds does a good classifier take, and what do local
steps buy?

The classes are linearly separable, so the loss itself is the optimality gap. Theory says that it falls like
1/(K R) for a fixed step size, K being the local steps between two averages and R the rounds. At a fixed
*product* of step size and K, local steps buy little: plain gradient descent with a K times larger step is a
serious baseline, and is drawn beside.

The script runs as it stands on several ranks, with the same iterates: ``mpiexec -n 3 python
plot_local_gd_digits.py``.
"""

# %%
# The data: a constant feature is appended, and the rows are divided by their largest norm, as the theory
# wants them.
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from optikit.data import code_labels, prepare_features, split_by_similarity
from optikit.network import Network
from optikit.objectives import LinearModel
from optikit.plotting import add_slope, plot_history
from solvers.federated.local_gd import LocalGD

digits = load_digits()
rows = digits.target < 2
features, _ = prepare_features(digits.data[rows])
labels = code_labels(digits.target[rows])
data = split_by_similarity(features, labels, n_agents=5, similarity=0.5, seed=0)
model = LinearModel(data, "logistic")
network = Network(n_agents=5)

# %%
# A fixed step size and more and more local steps.
STEP_SIZE, ROUNDS = 16.0, 512
runs = {}
for local_steps in (1, 4, 16, 64):
    solver = LocalGD(step_size=STEP_SIZE, local_steps=local_steps)
    runs[f"K = {local_steps}"] = solver.solve(model, network, max_rounds=ROUNDS)
if network.is_root:
    for label, result in runs.items():
        print(f"{label:>6}: loss {result.objective:.4g} after {result.rounds} rounds")

# %%
# The baseline: one local step, 64 times the step size, so the same product as the last run.
baseline = LocalGD(step_size=64 * STEP_SIZE, local_steps=1).solve(model, network, max_rounds=ROUNDS)

# %%
# The loss falls like 1/R once the unstable phase is over, nearly four times lower for four times the local
# steps. The baseline ends lower still: on these data the large step pays, not the local work.
if network.is_root:
    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    plot_history(runs, ax=ax)
    plot_history({"gradient descent, step x 64": baseline}, ax=ax, linestyle=":", color="black")
    add_slope(ax, -1.0, (ROUNDS, runs["K = 64"].objective), label="slope -1 (theory)")
    ax.set_title("Digits 0 and 1 on five clients, step size 16")
