"""Decentralised gradient descent with checkpoints, to be killed and resumed.

checkpointed_run.py CHECKPOINT|none OUTPUT ROUNDS [PAUSE] [FATAL_ITERATION] [kill|raise]
"""

import os
import signal
import sys
import time
from dataclasses import dataclass

import numpy as np

from optikit.graphs import erdos_renyi
from optikit.network import Network
from optikit.objectives import Quadratic
from solvers.decentralized.gradient_descent import DecentralizedGradientDescent

checkpoint, output, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
fatal = int(sys.argv[5]) if len(sys.argv) > 5 else -1
manner = sys.argv[6] if len(sys.argv) > 6 else "kill"


@dataclass(frozen=True)
class Slowed(DecentralizedGradientDescent):
    def step(self, objective, network, state):
        time.sleep(pause)
        if network.round == fatal and network.rank == network.size - 1 - (manner == "raise"):
            if manner == "raise":
                raise ZeroDivisionError(f"rank {network.rank} fails at iteration {fatal}")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(objective, network, state)


rng = np.random.default_rng(0)
n, d = 7, 4
objective = Quadratic(
    np.tile(np.eye(d), (n, 1, 1)) * (1 + np.arange(n))[:, None, None], rng.standard_normal((n, d))
)
network = Network(erdos_renyi(n, 0.5, seed=1))
announced = []


def announce(progress):
    if network.is_root and not announced:
        announced.append(print("running", flush=True))


keep = {} if checkpoint == "none" else {"checkpoint": checkpoint, "checkpoint_every": 3, "resume": True}
result = Slowed(0.02).solve(objective, network, max_rounds=rounds, callback=announce, **keep)
everyone = network.allgather(result.iterate)
if network.is_root:
    np.save(output, everyone)
