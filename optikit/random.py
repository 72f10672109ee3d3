r"""Random numbers keyed by (seed, purpose, agent, step), never by rank.

Philox4x32-10 [1]_ is a counter-based generator: block number ``c`` of stream ``k`` is a function of
``(c, k)`` alone. The key comes from seed and purpose, the counter from agent, step and draw, so a rank can
produce exactly the numbers of its own agents, in any order and in any array namespace.

References
----------
.. [1] J. Salmon, M. Moraes, R. Dror, D. Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from optikit.arrays import from_numpy, resolve_namespace
from optikit.validation import check_integer

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF
_ROUNDS = 10


def philox4x32(counter: tuple[Any, Any, Any, Any], key: tuple[int, int], xp: Any = np) -> tuple[Any, ...]:
    """Four blocks of 32 random bits (as uint64 arrays) of Philox4x32-10.

    Parameters
    ----------
    counter : four uint64 arrays holding 32-bit values, broadcastable with each other
    key : two ints below 2**32
    """
    mask, shift = xp.asarray(_MASK, dtype=xp.uint64), xp.asarray(32, dtype=xp.uint64)
    multipliers = [xp.asarray(m, dtype=xp.uint64) for m in _MULTIPLIERS]
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = multipliers[0] * c0, multipliers[1] * c2
        c0, c1, c2, c3 = (
            xp.bitwise_right_shift(p1, shift) ^ c1 ^ xp.asarray(k0, dtype=xp.uint64),
            p1 & mask,
            xp.bitwise_right_shift(p0, shift) ^ c3 ^ xp.asarray(k1, dtype=xp.uint64),
            p0 & mask,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


class AgentStreams:
    """Independent random streams, one per agent and step, for one purpose.

    Parameters
    ----------
    seed : int
        At least 0; the seed of the whole experiment.
    purpose : str
        What the numbers are for ("minibatch", "compression", ...); different purposes never share numbers.
    """

    def __init__(self, seed: int, purpose: str) -> None:
        self.seed = check_integer(seed, "seed", minimum=0)
        if not isinstance(purpose, str) or not purpose:
            raise ValueError(f"purpose must be a non-empty string, got {purpose!r}.")
        self.purpose = purpose
        digest = hashlib.sha256(f"{self.seed}:{purpose}".encode()).digest()
        self._key = (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little"))
        self._entropy = int.from_bytes(digest, "little")

    def __repr__(self) -> str:
        return f"AgentStreams(seed={self.seed}, purpose={self.purpose!r})"

    def bits(self, agents: Any, step: int, size: int, xp: Any = np) -> Any:
        """Random 32-bit integers, ``(len(agents), size)``, held in uint64.

        Parameters
        ----------
        agents : array of int, shape (m,)
            Global numbers of the agents, each below 2**32.
        step : int
            Iteration or round, 0 <= step < 2**63.
        size : int
            Numbers per agent, at least 0 and below 2**33.
        """
        xp = resolve_namespace(xp)
        step = check_integer(step, "step", minimum=0, maximum=2**63 - 1)
        size = check_integer(size, "size", minimum=0, maximum=2**33 - 1)
        blocks = -(-size // 4)
        who = np.asarray(agents)
        if who.ndim != 1 or (who.size and (who.min() < 0 or who.max() > _MASK)):
            raise ValueError(f"agents must be a list of numbers in 0..2**32 - 1, got {agents!r}.")
        agents = who.astype(np.uint64)
        # Counter words: draw block, agent, step (low and high half). Blocks fit 31 bits by the limit on size.
        draw = from_numpy(np.arange(blocks, dtype=np.uint64)[None, :], xp)
        who = from_numpy(np.ascontiguousarray(agents)[:, None], xp)
        when = (xp.asarray(step & _MASK, dtype=xp.uint64), xp.asarray(step >> 32, dtype=xp.uint64))
        zero = draw * who * xp.asarray(0, dtype=xp.uint64)
        words = philox4x32((draw + zero, who + zero, when[0] + zero, when[1] + zero), self._key, xp)
        return xp.reshape(xp.stack(words, axis=-1), (agents.size, 4 * blocks))[:, :size]

    def uniform(self, agents: Any, step: int, size: int, xp: Any = np) -> Any:
        """Uniform float64 numbers in [0, 1) with 53 random bits, ``(len(agents), size)``."""
        xp = resolve_namespace(xp)
        bits = self.bits(agents, step, 2 * size, xp)
        high = xp.astype(xp.bitwise_right_shift(bits[:, 0::2], xp.asarray(5, dtype=xp.uint64)), xp.float64)
        low = xp.astype(xp.bitwise_right_shift(bits[:, 1::2], xp.asarray(6, dtype=xp.uint64)), xp.float64)
        return (high * 2.0**26 + low) * 2.0**-53

    def integers(self, agents: Any, step: int, high: Any, size: int, xp: Any = np) -> Any:
        """Integers in [0, high), int64, ``(len(agents), size)``; `high` is an int or one per agent.

        The bias of the multiplication method used is below ``high * 2**-53``.
        """
        xp = resolve_namespace(xp)
        bound = np.broadcast_to(np.asarray(high, dtype=np.float64).reshape(-1, 1), (len(agents), 1))
        if bound.size and bound.min() < 1:
            raise ValueError(f"high must be >= 1, got {high!r}.")
        scaled = xp.floor(self.uniform(agents, step, size, xp) * from_numpy(np.ascontiguousarray(bound), xp))
        return xp.astype(scaled, xp.int64)

    def normal(self, agents: Any, step: int, size: int, xp: Any = np) -> Any:
        """Standard normal float64 numbers by the Box-Muller transform, ``(len(agents), size)``."""
        xp = resolve_namespace(xp)
        pairs = -(-size // 2)
        u = self.uniform(agents, step, 2 * pairs, xp)
        radius = xp.sqrt(-2.0 * xp.log1p(-u[:, :pairs]))
        angle = 2.0 * math.pi * u[:, pairs:]
        both = xp.concat((radius * xp.cos(angle), radius * xp.sin(angle)), axis=1)
        return both[:, :size]

    def generator(self, agent: int | None = None, step: int = 0) -> np.random.Generator:
        """A NumPy generator for set-up work; `agent` None is a draw that all ranks share."""
        key = (step,) if agent is None else (step, int(agent))
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(self._entropy, spawn_key=key)))
