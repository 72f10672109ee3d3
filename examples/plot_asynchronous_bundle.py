"""
Asynchronous bundle method: nobody waits for the slowest worker
===============================================================

Nine workers hold parts of the breast-cancer data; the slowest takes eleven times as long as the fastest for a
gradient. The server of the asynchronous bundle method works with whatever replies are in, and certifies how
far it is from the optimum.
"""

# %%
# The problem, and two timelines of 2700 gradients: simulated timing does not depend on data, so who answers
# when is drawn first, and every method runs along the same order of events.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from optikit.agent_data import AgentData
from optikit.objectives import LinearModel
from optikit.runtime.communicator import default_communicator
from optikit.runtime.timing import Ticks, simulate_star
from solvers.asynchronous.baselines import PIAG
from solvers.asynchronous.bundle import AsynchronousBundle, dave_rpg
from solvers.asynchronous.workers import Workers

is_root = default_communicator().Get_rank() == 0
X, y = load_breast_cancer(return_X_y=True)
X = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(y))])
parts = np.array_split(np.random.default_rng(0).permutation(len(y)), 9)
model = LinearModel(AgentData.from_blocks([(X[p], 2.0 * y[p] - 1.0) for p in parts]), "logistic", l2=1e-3)
optimum = 0.059829471882

ticks = Ticks([10, 13, 17, 20, 26, 31, 43, 59, 110])
timeline = simulate_star(9, ticks, replies=2700)
barrier = simulate_star(9, ticks, replies=2700, policy="sync")
fig, ax = plt.subplots(figsize=(8, 4))
timeline.plot(last=330, ax=ax)
ax.set_title("who computed when")
plt.tight_layout()
plt.show()

# %%
# The bundle method needs no constants: its prox weights are secants of the gradients it sees. ``L_scale``
# below one is faster here, and it is the bundle of ten cuts that makes it safe. PIAG adapts its step to the
# delays; with one cut and fixed weights the bundle method is DAve-RPG.
shares = model.data.sizes / model.data.n_samples
constants = np.concatenate(Workers(model, client_weights="samples").smoothness())
common = {"client_weights": "samples"}
methods = {
    "bundle": AsynchronousBundle(trace=timeline, **common),
    "bundle, L_scale 0.3": AsynchronousBundle(trace=timeline, L_scale=0.3, **common),
    "bundle, synchronous": AsynchronousBundle(trace=barrier, **common),
    "DAve-RPG": dave_rpg(shares=shares, smoothness=constants, trace=timeline, **common),
    "PIAG, adaptive": PIAG(trace=timeline, **common),
    "proximal gradient, synchronous": PIAG(
        rule="fixed", step_size=1 / constants.sum(), trace=barrier, **common
    ),
}
runs = {
    name: method.solve(model, max_rounds=None, max_iterations=len(method.trace))
    for name, method in methods.items()
}


# %%
# Gradients (and time) to three accuracies: asynchrony beats the barrier by its time, not by its gradients.
def cost(run, eps):
    hit = np.flatnonzero(run.history["objective"] - optimum <= eps)
    if hit.size == 0:
        return "-"
    return f"{run.history['gradients'][hit[0]]:.0f} ({run.history['time'][hit[0]]:.0f})"


if is_root:
    print(f"{'method':<32}{'1e-3':>16}{'1e-6':>16}{'1e-9':>16}")
    for name, run in runs.items():
        print(f"{name:<32}" + "".join(f"{cost(run, eps):>16}" for eps in (1e-3, 1e-6, 1e-9)))

# %%
fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
for name, run in runs.items():
    gap = np.maximum(run.history["objective"] - optimum, 1e-12)
    axes[0].semilogy(run.history["time"], gap, label=name)
    axes[1].semilogy(run.history["gradients"], gap, label=name)
axes[0].set(xlabel="virtual time", ylabel="objective gap", xlim=(0, 9000), ylim=(1e-10, 2))
axes[1].set(xlabel="gradients")
axes[1].legend(fontsize=8)
plt.tight_layout()
plt.show()

# %%
# The certificate: the ridge lies at the server, so any dual point of the master bounds the optimal value from
# below, and no worker is asked for more than its replies.
run = runs["bundle, L_scale 0.3"]
gradients, objective = run.history["gradients"], run.history["objective"]
plt.figure(figsize=(6, 4))
plt.semilogy(gradients, objective - optimum, label="objective - optimum")
plt.semilogy(
    gradients, np.maximum(optimum - run.history["lower_bound"], 1e-13), label="optimum - lower bound"
)
plt.semilogy(gradients, run.history["gap"], "k:", label="certified gap")
plt.ylim(1e-11, 10)
plt.xlabel("gradients")
plt.legend()
plt.tight_layout()
plt.show()
