"""What a run communicated: the `CommunicationLedger` that every `optikit.network.Network` keeps."""

from __future__ import annotations

from typing import Any

import numpy as np


class CommunicationLedger:
    """Counts of everything the agents exchanged, the same on every rank and for every number of ranks.

    Logical quantities are counted per link of the graph, also between two agents of one rank: moving the
    same run to more ranks changes `bytes_on_wire` and nothing else. All counts are sums over all agents.

    Attributes
    ----------
    n_agents : int
        Number of agents.
    rounds : int
        Communication rounds: every `mix`, `gossip`, `pull`, and every server phase that begins a round.
    phases : int
        Server phases (one packed sum over the agents each).
    messages : int
        Directed messages between agents, and one message to the server per taking-part agent and phase.
    floats_sent : int
        Floats that agents sent, to neighbours and to the server.
    floats_up, floats_down : int
        Floats from agents to the server (contained in `floats_sent`), and from the server to agents.
    bytes_on_wire : int
        Bytes that ranks sent each other: 0 on one rank. Packed sums count as a reduction and a
        broadcast, ``2 (ranks - 1)`` buffers.
    """

    _COUNTERS = ("rounds", "phases", "messages", "floats_sent", "floats_up", "floats_down", "bytes_on_wire")

    def __init__(self, n_agents: int) -> None:
        self.n_agents = int(n_agents)
        self.reset()

    def reset(self) -> None:
        """Set every count to zero."""
        self.rounds = self.phases = self.messages = 0
        self.floats_sent = self.floats_up = self.floats_down = self.bytes_on_wire = 0
        self._per_agent = np.zeros(self.n_agents, dtype=np.int64)
        self._degrees: np.ndarray | None = None
        self._pending = 0

    @property
    def floats_sent_per_agent(self) -> np.ndarray:
        """Floats each agent sent, int64 of shape (n_agents,)."""
        self._flush()
        return self._per_agent.copy()

    @property
    def total_floats(self) -> int:
        """Every float that moved, to neighbours, server or agents: `floats_sent` + `floats_down`."""
        return self.floats_sent + self.floats_down

    def record_exchange(self, out_degrees: np.ndarray, links: int, width: int, wire_bytes: int = 0) -> None:
        """Count one round of neighbour messages of `width` floats over `links` directed links.

        `out_degrees` (n_agents,) is kept by reference and summed up lazily: a solver calls this every round.
        """
        if out_degrees is not self._degrees:
            self._flush()
            self._degrees = out_degrees
        self._pending += width
        self.rounds += 1
        self.messages += links
        self.floats_sent += links * width
        self.bytes_on_wire += wire_bytes

    def record_phase(
        self,
        floats_up: int,
        floats_down: int = 0,
        *,
        participants: np.ndarray | None = None,
        new_round: bool = True,
        wire_bytes: int = 0,
    ) -> None:
        """Count one server phase: `floats_up` and `floats_down` per taking-part agent.

        `participants` is a boolean mask (n_agents,) of the agents that take part; default all.
        """
        active = self.n_agents if participants is None else int(np.count_nonzero(participants))
        if participants is None:
            self._per_agent += floats_up
        else:
            self._per_agent[participants] += floats_up
        self.phases += 1
        self.rounds += bool(new_round)
        self.messages += active
        self.floats_up += active * floats_up
        self.floats_sent += active * floats_up
        self.floats_down += active * floats_down
        self.bytes_on_wire += wire_bytes

    def _flush(self) -> None:
        if self._degrees is not None and self._pending:
            self._per_agent += self._degrees * self._pending
        self._pending = 0

    def as_dict(self) -> dict[str, int]:
        """All counters by name, as plain integers."""
        return {name: int(getattr(self, name)) for name in self._COUNTERS}

    def state(self) -> dict[str, Any]:
        """Everything needed to go on counting, in integers and lists of integers (JSON takes them)."""
        return {**self.as_dict(), "floats_sent_per_agent": self.floats_sent_per_agent.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the counts of `state`, a dictionary from `state()`."""
        per_agent = np.asarray(state["floats_sent_per_agent"], dtype=np.int64)
        if per_agent.shape != (self.n_agents,):
            raise ValueError(
                f"the ledger's state must hold {self.n_agents} agents, got shape {per_agent.shape}."
            )
        self.reset()
        self._per_agent[:] = per_agent
        for name in self._COUNTERS:
            setattr(self, name, int(state[name]))

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={value:,}" for name, value in self.as_dict().items() if value)
        return f"CommunicationLedger(n_agents={self.n_agents}{', ' if counts else ''}{counts})"
