"""
Quantile and least-absolute-deviation regression without a server
=================================================================

Two classical data sets on agents that only talk to their neighbours. Both losses have kinks, so gradients
alone do not tell how far the optimum is; the certificate of the optimal method does.

Engel's budget data
    How does food expenditure grow with income? Least squares answers for the mean and is drawn to a few rich
    households; quantile regression answers for every level.
Diabetes
    Disease progression from ten measurements, least absolute deviations, agents on a random graph whose links
    fail in every round.
"""

# %%
# Engel's 235 households, dealt over five agents by income: every agent sees a different part of the line.
# Income and expenditure are in units of 1000 Belgian francs, income from its mean; the ridge term is small
# enough not to matter. The agents form a ring.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from statsmodels.datasets import engel

from optikit.agent_data import AgentData
from optikit.data import split_iid
from optikit.graphs import ring, torus
from optikit.losses import Quantile
from optikit.mixing import LinkFailures, laplacian_gossip
from optikit.network import Network
from optikit.objectives import LinearModel, reference_optimum
from optikit.plotting import plot_history
from solvers.decentralized.nonsmooth import NonsmoothTimeVarying

households = engel.load_pandas().data.sort_values("income", kind="stable").to_numpy() / 1000
income, food = households.T
centre = income.mean()
rows = np.column_stack([income - centre, np.ones_like(income)])
data = AgentData.from_blocks([(rows[part], food[part]) for part in np.array_split(np.arange(len(rows)), 5)])
R, EPS = 1e-3, 1e-3
network = Network(laplacian_gossip(ring(5)))
solver = NonsmoothTimeVarying(r=R, inner_steps=100)
lines = {}
for level in (0.1, 0.5, 0.9):
    model = LinearModel(data, Quantile(level))
    run = solver.solve(model, network, tol=EPS, max_rounds=10_000, record_every=25)
    lines[level] = run.x
    exact = reference_optimum(model, l2=R)
    if network.is_root:
        print(
            f"level {level}: {run.status} in {run.rounds} rounds, slope {run.x[0]:.3f} "
            f"(conic solver {exact.x[0]:.3f}), certified gap {run.certificate.gap:.1e}"
        )

# %%
if network.is_root:
    figure, ax = plt.subplots(figsize=(6.5, 4.3), layout="constrained")
    agent = np.repeat(np.arange(5), data.sizes)
    ax.scatter(income, food, c=agent, cmap="viridis", s=14, alpha=0.7)
    ends = np.array([income.min(), income.max()])
    for level, (slope, intercept) in lines.items():
        ax.plot(ends, slope * (ends - centre) + intercept, label=f"quantile {level}")
    slope, intercept = np.polyfit(income, food, 1)
    ax.plot(ends, slope * ends + intercept, "k:", label="least squares")
    ax.set_xlabel("income (1000 francs), colour: agent")
    ax.set_ylabel("food expenditure (1000 francs)")
    ax.legend()

# %%
# Diabetes: nine agents on a torus, every link fails in a tenth of the rounds. Windows of two rounds are
# enough for the network to stay connected.
table = load_diabetes()
features = table.data / table.data.std(axis=0)
features = np.column_stack([features, np.ones(len(features))])
features /= np.linalg.norm(features, axis=1).max()
target = (table.target - np.median(table.target)) / table.target.std()
model = LinearModel(split_iid(features, target, 9, seed=0), "absolute")
network = Network(LinkFailures(torus(3, 3), 0.1, seed=0))
runs = {
    f"{steps} inner steps": NonsmoothTimeVarying(r=0.02, inner_steps=steps, gossip_steps=2).solve(
        model, network, max_rounds=1000, record_every=2
    )
    for steps in (3, 10, 30)
}
exact = reference_optimum(model, l2=0.02)
if network.is_root:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    plot_history(runs, optimum=exact.value, ax=axes[0])
    plot_history(runs, y="gap", ax=axes[1])
    axes[0].set_ylabel("optimality gap")
    axes[1].set_ylabel("certified gap")
