r"""
A support vector machine over links that change
===============================================

Ten hospitals hold 56 cases each of scikit-learn's breast-cancer data, sorted by diagnosis: most of them have
seen one class only. They want one linear support vector machine,

.. math:: \min_x \frac1n \sum_i \frac1{56} \sum_j \max(0, 1 - y_{ij} \langle a_{ij}, x \rangle)
          + \frac r2 \|x\|^2,

and talk over a network that is a ring in even rounds and a star with a moving centre in odd ones. The hinge
loss is not smooth, and the data are as different as they can be: this is where an optimal method earns its
keep.
"""

# %%
# The reference optimum comes from a conic solver that sees all data.
import matplotlib.pyplot as plt

from optikit.network import Network
from optikit.objectives import reference_optimum
from optikit.plotting import plot_history, plot_matrix
from solvers.decentralized.nonsmooth import NonsmoothTimeVarying, for_accuracy
from solvers.decentralized.subgradient import DecentralizedSubgradient, SubgradientPush
from theory_checks.instances import as_mixing, hinge_svm

R, ROUNDS = 0.02, 2000
model, topology = hinge_svm()
network, mixing = Network(topology), Network(as_mixing(topology))
optimum = reference_optimum(model, l2=R).value
if network.is_root:
    print(f"optimal value {optimum:.9f}, chi of the network {topology.chi():.2f}")

# %%
# The subgradient methods get the best of three step sizes; the optimal method has nothing to tune.
runs = {}
for label, method in (("subgradient-push", SubgradientPush), ("DSM", DecentralizedSubgradient)):
    tried = [method(scale=s, r=R).solve(model, mixing, max_rounds=ROUNDS) for s in (0.3, 1.0, 3.0)]
    runs[f"{label}, best step"] = min(tried, key=lambda run: run.objective)
solver = NonsmoothTimeVarying(r=R, inner_steps=5)
runs["optimal"] = solver.solve(model, network, max_rounds=ROUNDS)
if network.is_root:
    for label, run in runs.items():
        print(f"{label:<28} gap {run.objective - optimum:.1e}")

# %%
# Gap against rounds, with the gap that the optimal method *certifies* without knowing the optimum. The
# consensus error falls more slowly than the gap: look at both.
if network.is_root:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    plot_history(runs, optimum=optimum, ax=axes[0])
    certified = runs["optimal"].history
    axes[0].loglog(certified["round"][1:], certified["gap"][1:], "k--", lw=1, label="certified by optimal")
    axes[0].set_ylabel("optimality gap")
    axes[0].legend()
    plot_history(runs, y="consensus_error", scale="loglog", ax=axes[1])

# %%
# In practice one asks for an accuracy and lets the certificate stop the run.
plan = for_accuracy(model, network, eps=2e-3, r=R)
run = plan.solver.solve(model, network, tol=plan.tol, max_rounds=20_000, record_every=10)
if network.is_root:
    print(run)
    print(f"true gap {run.objective - optimum:.1e}")

# %%
# Two consecutive mixing matrices of the sequence.
if network.is_root:
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
    for q, ax in enumerate(axes):
        plot_matrix(as_mixing(topology).matrix(q), ax=ax)
        ax.set_title(f"round {q}")
