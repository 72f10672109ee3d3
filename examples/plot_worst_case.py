"""
The worst case: an optimal method against its lower bound
=========================================================

How many communication rounds does a non-smooth problem take when the links change in every round? Theory has
a matching answer from both sides. There is an instance on which *no* method that combines subgradients and
neighbours' messages reaches the accuracy with fewer than N_lower rounds, and a method that needs a constant
times as many, on every instance.

The instance is a chain: agents of two groups tie its coordinates together in turn, and news travels between
the groups only through the centre of a star that moves in every round. After N rounds at most 1 + N/(m+1)
coordinates can have left zero, whatever the method does.

The distributed subgradient method (DSM) is the usual baseline. Its rounds grow like 1/eps, those of the
optimal method like 1/sqrt(eps); both grow linearly in chi, the condition number of the network.
"""

# %%
# Rounds until the gap is half of what the lower bound still allows at N_lower, for longer and longer chains
# (smaller eps) on nine agents.
import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter

from optikit.network import Network
from optikit.plotting import add_slope, plot_graph
from optikit.runtime.communicator import default_communicator
from solvers.decentralized.nonsmooth import NonsmoothTimeVarying
from solvers.decentralized.subgradient import DecentralizedSubgradient
from theory_checks.hard_instances import ChainInstance, first_round_within
from theory_checks.instances import as_mixing

M, R = 1.0, 0.1
is_root = default_communicator().Get_rank() == 0


def optimal(chain):
    """The optimal method with the practical number of inner steps."""
    chi = chain.topology().chi()
    steps = math.ceil(6 * M / (chi * math.sqrt(2 * R * chain.half_bound)))
    return NonsmoothTimeVarying(r=R, inner_steps=steps, chi=chi, with_certificate=False), chain.topology()


def subgradient(chain):
    """DSM with the step size that suits it best here, and its last iterate, better than its average."""
    return DecentralizedSubgradient(scale=0.5, r=R, output="last"), as_mixing(chain.topology())


def rounds(method, chain):
    """Rounds to the target."""
    solver, topology = method(chain)
    return first_round_within(solver, chain, topology, chain.half_bound, 20_000)


lengths = (4, 6, 8, 12)
chains = [ChainInstance(3, d, M, R) for d in lengths]
accuracy = np.array([1 / chain.half_bound for chain in chains])
over_eps = {
    "DSM": [rounds(subgradient, chain) for chain in chains],
    "optimal": [rounds(optimal, chain) for chain in chains],
    "lower bound": [chain.rounds_needed for chain in chains],
}

# %%
# The same for more and more agents (larger chi) at a fixed length of the chain.
groups = (2, 4, 8, 16)
networks = [ChainInstance(m, 6, M, R) for m in groups]
chi = np.array([chain.topology().chi() for chain in networks])
over_chi = {
    "DSM": [rounds(subgradient, chain) for chain in networks],
    "optimal": [rounds(optimal, chain) for chain in networks],
    "lower bound": [chain.rounds_needed for chain in networks],
}
if is_root:
    print("    eps   DSM  optimal  lower bound")
    for eps, *row in zip(1 / accuracy, *over_eps.values()):
        print("{:7.1e}{:6d}{:9d}{:13d}".format(eps, *row))

# %%
# The optimal method runs parallel to the lower bound, 20 to 25 times above it; DSM moves away from it as
# the accuracy grows.
styles = {"DSM": "s-", "optimal": "o-", "lower bound": "k:"}
if is_root:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for ax, x, curves, label in (
        (axes[0], accuracy, over_eps, r"$1/\epsilon$"),
        (axes[1], chi, over_chi, r"$\chi$"),
    ):
        for name, counts in curves.items():
            ax.loglog(x, counts, styles[name], label=name)
        ax.set_xlabel(label)
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xticks(np.round(x), [f"{value:.0f}" for value in np.round(x)])
        ax.grid(True, which="major", alpha=0.3)
    axes[0].set_ylabel("communication rounds")
    add_slope(axes[0], 0.5, (accuracy[0], 0.75 * over_eps["optimal"][0]), label="slope 1/2")
    add_slope(axes[0], 1.0, (accuracy[-1], 1.3 * over_eps["DSM"][-1]), label="slope 1")
    add_slope(axes[1], 1.0, (chi[0], 0.75 * over_chi["optimal"][0]), label="slope 1")

# %%
# What it looks like along one run: the gap stays on its plateau until news of the chain's end has travelled,
# and no method whatever can meet the target left of the dotted line. Beside it the network: the star of four
# consecutive rounds.
chain = chains[1]
curves = {}
for name, method in (("DSM", subgradient), ("optimal", optimal)):
    solver, topology = method(chain)
    network = Network(topology)
    history = solver.solve(chain, network, max_rounds=1200).history
    curves[name] = (history["round"], history["objective"] - chain.minimum)
if is_root:
    figure = plt.figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(3, 2))
    ax = left.subplots()
    for name, (x, gap) in curves.items():
        ax.semilogy(x, gap, label=name, lw=0.8 if name == "DSM" else 1.5)
    ax.axhline(chain.half_bound, color="0.4", lw=1, label="target")
    ax.axvline(chain.rounds_needed, color="k", ls=":", label="no method before")
    ax.set_xlabel("communication rounds")
    ax.set_ylabel("optimality gap")
    ax.grid(True, alpha=0.3)
    ax.legend()
    for q, ax in enumerate(right.subplots(2, 2).ravel()):
        plot_graph(chain.topology().matrix(q).graph(), layout="circle", ax=ax)
        ax.set_title(f"round {q}", fontsize=9)
