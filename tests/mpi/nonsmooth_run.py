"""Decentralised methods over random and Base-2 graphs, n = 13: all iterates into the file named."""

import sys

import numpy as np

from optikit.agent_data import AgentData
from optikit.graphs import ring
from optikit.mixing import ErdosRenyiSequence, base_graph, laplacian_gossip, metropolis
from optikit.network import Network
from optikit.objectives import LinearModel
from solvers.decentralized.adom import ZOSADOM
from solvers.decentralized.gradient_tracking import GradientTracking
from solvers.decentralized.nonsmooth import NonsmoothTimeVarying
from solvers.decentralized.subgradient import DecentralizedSubgradient, SubgradientPush

rng = np.random.default_rng(0)
n, m, d = 13, 6, 4
model = LinearModel(
    AgentData.from_stacked(rng.standard_normal((n, m, d)), rng.standard_normal((n, m))), "absolute"
)
gossip = ErdosRenyiSequence(n, 0.4, 1, weights=laplacian_gossip)
mixing = ErdosRenyiSequence(n, 0.4, 1, weights=metropolis)
base = base_graph(n, 1)
runs = {
    "random optimal": (NonsmoothTimeVarying(r=0.1, inner_steps=3, chi=8.0), gossip),
    "base optimal": (NonsmoothTimeVarying(r=0.1, inner_steps=3, gossip_steps=base.period), base),
    "ring chebyshev": (
        NonsmoothTimeVarying(r=0.1, inner_steps=3, gossip_steps=3, chebyshev=True),
        laplacian_gossip(ring(n)),
    ),
    "random dsm": (DecentralizedSubgradient(1.0, 0.1), mixing),
    "random push": (SubgradientPush(1.0, 0.1), mixing),
    "base tracking": (GradientTracking(0.05, 0.1), base),
    "random zo": (ZOSADOM(2.0, 0.1, 0.1, chi=8.0), gossip),
}
everything = {}
for name, (solver, topology) in runs.items():
    network = Network(topology)
    result = solver.solve(model, network, max_rounds=60, record_every=30)
    everything[name] = network.allgather(result.iterate)
    if network.is_root and name == "random optimal":
        everything["floats"] = network.ledger.floats_sent_per_agent
if network.is_root:
    np.savez(sys.argv[1], **everything)
