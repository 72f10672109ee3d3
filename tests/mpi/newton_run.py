"""Sub-sampled Newton with six workers in all modes: the solutions into the file named."""

import sys

import numpy as np

from optikit.network import Network
from solvers.newton.glm import GLM
from solvers.newton.subsampled import SubsampledNewton

rng = np.random.default_rng(0)
X = rng.standard_normal((1201, 6))
y = rng.random(1201) < 1 / (1 + np.exp(-X @ rng.standard_normal(6)))
glm = GLM(X, y, "logistic", l2=1e-3, intercept=True, workers=6)
network = Network(n_agents=6)
runs = {
    "less_uniform": SubsampledNewton(m=80, sketch="less_uniform"),
    "poisson": SubsampledNewton(m=80),
    "saso": SubsampledNewton(m=80, sketch="saso"),
    "local": SubsampledNewton(m=80, mode="local"),
    "reduce": SubsampledNewton(m=80, mode="sketch_reduce", sketch="saso"),
    "reduce rows": SubsampledNewton(m=80, mode="sketch_reduce", sketch="rows"),
    "reduce gaussian": SubsampledNewton(m=80, mode="sketch_reduce", sketch="gaussian"),
    "determinantal": SubsampledNewton(m=80, average="determinantal", debias="none"),
    "exact": SubsampledNewton(sketch="exact"),
}
found = {
    name: np.append((r := s.solve(glm, network, max_rounds=None, max_iterations=4)).x, r.objective)
    for name, s in runs.items()
}
if network.is_root:
    np.savez(sys.argv[1], **found)
