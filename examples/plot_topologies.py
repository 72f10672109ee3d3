"""
Which topology? Twenty-five agents compared at equal rounds
===========================================================

Averaging is what decentralised methods pay for. This page draws the topologies that optikit offers, how fast
each averages, and what that means for an optimisation method that uses them.

A static graph contracts by the same factor in every round. A finite-time sequence uses one or two
neighbours per agent and round, different ones every time, and averages *exactly* after one period: Base-2
after 9 rounds for 25 agents, the null cascade after 4. The one-peer exponential graph is exact only for
powers of two.
"""

# %%
# The sequences round by round; agents stand on a circle.
import matplotlib.pyplot as plt

from optikit.graphs import static_exponential
from optikit.mixing import base_graph, default_weights, null_cascade
from optikit.network import Network
from optikit.objectives import reference_optimum
from optikit.plotting import plot_contraction, plot_history, plot_matrix, plot_sequence
from optikit.runtime.communicator import default_communicator
from solvers.decentralized.nonsmooth import NonsmoothTimeVarying
from solvers.decentralized.nonsmooth_rules import GossipPlan, best_gossip, gossip_chi
from theory_checks.instances import compared_sequences, l1_model

is_root = default_communicator().Get_rank() == 0
if is_root:
    plot_sequence(base_graph(25, 1), columns=5, figure=plt.figure(figsize=(10, 4.2), layout="constrained"))

# %%
if is_root:
    plot_sequence(null_cascade(25, 2), figure=plt.figure(figsize=(8, 2.2), layout="constrained"))

# %%
# As matrices: the static exponential graph hears five others in every round, a null cascade's rounds two.
if is_root:
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    plot_matrix(default_weights(static_exponential(25)), ax=axes[0])
    axes[0].set_title("static exponential")
    for q in (0, 2):
        plot_matrix(null_cascade(25, 2).matrix(q), ax=axes[1 + q // 2])
        axes[1 + q // 2].set_title(f"null cascade, round {q}")

# %%
# What is left of the worst disagreement after each round. Exact sequences drop to rounding at the end of
# their period; in the middle of it the worst direction is still untouched.
sequences = compared_sequences(25)
if is_root:
    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    plot_contraction(sequences, 20, ax=ax)

# %%
# The same topologies under the optimal non-smooth method, L1 regression, 1800 rounds each. The rounds of one
# iteration are chosen to need the fewest in all: windows of one period for finite-time sequences, Chebyshev
# polynomials on the ring (beside plain rounds: they pay early, and end level once the inner steps rule).
# The static exponential graph, with the most links per round, ends lowest in rounds; counted in floats the
# sparse sequences are level with it.
model = l1_model(25)
optimum = reference_optimum(model, l2=0.1).value
runs = {}
for name, sequence in {**sequences, "ring, plain": sequences["ring"]}.items():
    plan = GossipPlan(1) if "plain" in name else best_gossip(sequence)
    solver = NonsmoothTimeVarying(r=0.1, inner_steps=5, gossip_steps=plan.steps, chebyshev=plan.chebyshev)
    runs[name] = solver.solve(model, Network(sequence), max_rounds=1800, record_every=2)
    if is_root:
        chi = gossip_chi(sequence, plan.steps, plan.chebyshev)
        gap = runs[name].objective - optimum
        print(f"{name:<20} {plan.steps} rounds per step, chi {chi:6.2f}, gap {gap:.1e}")

# %%
if is_root:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for ax, x in zip(axes, ("round", "floats_sent")):
        plot_history(runs, x=x, optimum=optimum, ax=ax)
        ax.set_ylabel("optimality gap")
        ax.legend(loc="upper right", fontsize=8)
