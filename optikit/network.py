"""The `Network`: agents, their links and what their communication costs, on one process or many MPI ranks.

The n agents are stacked: an iterate is an array ``(n_local, d)``, one row per agent of this rank. One class
serves 1..p ranks. Each rank holds its block of rows of the mixing matrix, its columns renumbered by a
*monotone* map of own and ghost agents, so every row adds its terms in the same order wherever its neighbours
live: gossip is bitwise equal on any number of ranks. The network owns the round counter: each `mix`, `gossip`
or `pull` consumes one round and thereby the next matrix of a time-varying sequence.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from optikit.arrays import resolve_namespace
from optikit.graphs import Graph
from optikit.ledger import CommunicationLedger
from optikit.mixing import MixingMatrix, Static, TopologySequence, default_weights
from optikit.runtime.communicator import abort_on_uncaught, block_of, default_communicator
from optikit.runtime.exchange import Exchanger, LocalRows
from optikit.runtime.reductions import Reducer
from optikit.runtime.stepping import BACKENDS, Stepper
from optikit.validation import check_choice, check_integer


class Pulled(NamedTuple):
    """Neighbours' vectors in CSR form: agent k of this rank hears ``rows[cols[indptr[k]:indptr[k+1]]]``.

    `vals` are the weights (the agent's own included, if not zero); `rows` are the vectors of all agents heard
    here, in global order.
    """

    indptr: np.ndarray
    cols: np.ndarray
    vals: np.ndarray
    rows: Any


class Network:
    """Agents on a (time-varying) topology, blocked over the ranks of a communicator.

    Parameters
    ----------
    topology : MixingMatrix, TopologySequence, Graph, NetworkX graph or None
        What `mix` applies. A graph gets Metropolis weights (max-degree weights if directed). None is a
        network without links, for client-server methods: sums over agents work, `mix` raises.
    n_agents : int, optional
        Number of agents; needed without a topology.
    communicator : Communicator, optional
        mpi4py communicator or `SerialCommunicator`; default `default_communicator()`. A network on several
        ranks sends over a duplicate of it, so messages of the user's own cannot get in the way.
    xp : namespace or str, optional
        Array namespace of the network's own arrays where no input decides; default NumPy.
    backend : {"auto", "csr", "dense", "shift"}, default "auto"
        How one process applies the matrix. "auto": shift for circulant matrices with at most 3 taps, CSR if
        less than a quarter of the entries are non-zero or n > 128, else dense; NumPy arrays never get
        dense products unasked, since BLAS equals the row kernel to rounding, not bit for bit. On several
        ranks CSR is always used.
    plan_cache : int, default 64
        Matrices whose local form (CSR block, message plan, device copy) is kept, least recently used first
        out; a longer period than this rebuilds them every time round.
    debug : bool, default False
        Cross-check every exchange over the ranks first: ranks that disagree raise instead of hanging.

    Attributes
    ----------
    n_agents, n_local, rank, size, round : int
        Agents in all and here, this rank, number of ranks, rounds used so far.
    agents : numpy.ndarray of int64, shape (n_local,)
        Global numbers of the agents held here: a contiguous block, possibly empty.
    ledger : CommunicationLedger
        What was communicated so far.
    topology : TopologySequence or None

    Raises
    ------
    RuntimeError
        If the ranks were given different agents or topologies.
    """

    def __init__(
        self,
        topology: MixingMatrix | TopologySequence | Graph | None = None,
        *,
        n_agents: int | None = None,
        communicator: Any = None,
        xp: ModuleType | str | None = None,
        backend: str = "auto",
        plan_cache: int = 64,
        debug: bool = False,
    ) -> None:
        self.communicator = default_communicator() if communicator is None else communicator
        abort_on_uncaught(self.communicator)  # before the first thing that may raise on one rank alone
        self.topology = _as_sequence(topology)
        self.n_agents = _count_agents(self.topology, n_agents)
        check_choice(backend, "backend", BACKENDS)
        self.rank, self.size = self.communicator.Get_rank(), self.communicator.Get_size()
        self.xp = resolve_namespace("numpy" if xp is None else xp)
        self.plan_cache = check_integer(plan_cache, "plan_cache", minimum=1)
        self.backend, self.debug = backend, debug
        block = block_of(self.rank, self.size, self.n_agents)
        self.agents = np.arange(block.start, block.stop, dtype=np.int64)
        self.n_local = len(block)
        self.is_root = self.rank == 0
        self.round = 0
        self.ledger = CommunicationLedger(self.n_agents)
        self._steppers: OrderedDict[tuple[str, int], Stepper] = OrderedDict()
        self._fingerprint: str | None = None
        self._exchanger = Exchanger(self.communicator, debug) if self.size > 1 else None
        self._reducer = Reducer(self.communicator)
        if self.size > 1:
            period = self.topology.period if self.topology is not None else None
            self._reducer.check_agreement(self.n_agents, period, self.fingerprint())

    # -- rounds -------------------------------------------------------------------------------------------

    def mix(self, *arrays: Any, out: Any = None) -> Any:
        """One round of averaging: ``W(round) @ X`` for each array, in one exchange; then ``round += 1``.

        Parameters
        ----------
        *arrays : array, shape (n_local, ...)
            Real arrays of one namespace; integers are promoted to float64, float32 stays float32.
        out : array or tuple of arrays, optional
            NumPy only: where to put the results; may be the inputs.

        Returns
        -------
        array or tuple of arrays
            New arrays (or `out`) of the inputs' shapes: one for one input, a tuple for several.
        """
        return self._stepper("mix").apply(arrays, out)

    def gossip(self, *arrays: Any, out: Any = None) -> Any:
        """One round of ``G X``, ``G`` the gossip matrix or ``I - W(round)``; otherwise as `mix`."""
        return self._stepper("gossip").apply(arrays, out)

    def imix(self, *arrays: Any) -> Any:
        """Start a `mix` and return a request; ``request.wait()`` returns what `mix` would.

        The round is consumed now. The inputs must stay as they are until ``wait()`` has returned, and all
        ranks start and wait for their requests in the same order.
        """
        return self._stepper("mix").start(arrays)

    def igossip(self, *arrays: Any) -> Any:
        """Start a `gossip` and return a request, see `imix`."""
        return self._stepper("gossip").start(arrays)

    def pull(self, X: Any) -> Pulled:
        """One round in which every agent receives its neighbours' vectors as they are, see `Pulled`."""
        return self._stepper("pull").pull(X)

    @property
    def kind(self) -> str | None:
        """Kind of the topology's matrices: "mixing", "row", "col" or "gossip"; None without a topology."""
        return self.topology.kind if self.topology is not None else None

    def require_kind(self, *kinds: str, by: str = "this method") -> None:
        """Raise ValueError unless the topology is of one of `kinds`: a solver says what it accepts."""
        if self.kind not in kinds:
            wanted = " or ".join(map(repr, kinds))
            found = "no topology" if self.kind is None else f"kind {self.kind!r}"
            raise ValueError(f"{by} needs a network of kind {wanted}, got {found}.")

    def _stepper(self, what: str) -> Stepper:
        q = self.round
        sequence = self.topology
        if sequence is None:
            raise ValueError(f"{what} needs links between agents: this network was made without a topology.")
        key = (what, q if sequence.period is None else q % sequence.period)
        stepper = self._steppers.get(key)
        if stepper is None:
            stepper = self._make_stepper(what, key[1], sequence)
            self._steppers[key] = stepper
            if len(self._steppers) > self.plan_cache:
                self._steppers.popitem(last=False)[1].free()
        elif len(self._steppers) > 1:
            self._steppers.move_to_end(key)
        return stepper

    def _make_stepper(self, what: str, q: int, sequence: TopologySequence) -> Stepper:
        matrix = sequence.matrix(q)
        if what == "mix" and matrix.kind == "gossip":
            raise ValueError(
                "mix needs kind 'mixing', 'row' or 'col', got 'gossip': call gossip or convert the topology."
            )
        if what == "gossip":
            if matrix.kind in ("row", "col"):
                raise ValueError(f"gossip needs kind 'mixing' or 'gossip', got {matrix.kind!r}.")
            matrix = matrix.to_gossip()
        rows = LocalRows(matrix.csr, self.rank, self.size)
        backend = self.backend if self.size == 1 else "csr"
        return Stepper(self, matrix, rows, backend, self._exchanger, persistent=sequence.period is not None)

    # -- sums over agents ---------------------------------------------------------------------------------

    def total(
        self,
        *arrays: Any,
        floats_down: int = 0,
        participants: np.ndarray | None = None,
        new_round: bool = True,
    ) -> Any:
        """Sum over all agents, as one communication phase of a client-server method.

        All arrays are summed over the agents here, packed into one contiguous buffer and reduced by ONE
        Allreduce; the result is the same on every rank. Each taking-part agent is counted as sending the
        packed size up and receiving `floats_down` numbers.

        Parameters
        ----------
        *arrays : array, shape (n_local, ...)
            What each agent contributes; integers are promoted to float64.
        floats_down : int, default 0
            Numbers that the server sends to each agent afterwards.
        participants : boolean array, shape (n_agents,), optional
            Agents that take part, for the accounting; contributions of others must be zero.
        new_round : bool, default True
            Whether the phase begins a new round (``round += 1``); False for further phases of a round.

        Returns
        -------
        array or tuple of arrays
            Arrays of shape ``(...)``: one for one input, a tuple for several.
        """
        if participants is not None:
            participants = np.asarray(participants)
            if participants.shape != (self.n_agents,) or participants.dtype != bool:
                raise ValueError(
                    f"participants must be a boolean array of shape ({self.n_agents},), got "
                    f"{participants.dtype} {participants.shape}."
                )
        checked = [self._check_leading(array) for array in arrays]
        sums = self._reducer.sum(checked)
        up = sum(math.prod(array.shape[1:]) for array in checked)
        self.ledger.record_phase(
            up,
            floats_down,
            participants=participants,
            new_round=new_round,
            wire_bytes=2 * (self.size - 1) * 8 * up,
        )
        self.round += bool(new_round)
        return sums[0] if len(sums) == 1 else tuple(sums)

    def sum(self, *arrays: Any) -> Any:
        """Sum over all agents as `total`, uncounted (monitoring). A scalar is this rank's partial sum."""
        sums = self._reducer.sum([a if np.ndim(a) == 0 else self._check_leading(a) for a in arrays])
        return sums[0] if len(sums) == 1 else tuple(sums)

    def mean(self, X: Any) -> Any:
        """Mean over all agents of X (n_local, ...), the same on every rank; monitoring, not counted."""
        return self.sum(X) / self.n_agents

    def max(self, v: Any) -> Any:
        """Largest entry of v (k, ...), any k, over axis 0 and all ranks, uncounted. A scalar: one per rank.

        With no agent at all the result is -inf; NaN anywhere gives NaN.
        """
        return self._reducer.extreme(v, "max")

    def min(self, v: Any) -> Any:
        """Smallest entry over axis 0 and all ranks, see `max`."""
        return self._reducer.extreme(v, "min")

    def allgather(self, X: Any) -> Any:
        """All agents' rows of X (n_local, ...) on every rank, shape (n_agents, ...); uncounted."""
        X = self._check_leading(X)
        return self._reducer.allgather(X, self.n_agents)

    # -- the agents here ----------------------------------------------------------------------------------

    def scatter(self, X: Any) -> Any:
        """The rows here of X (n_agents, ...), which every rank holds whole: a view, nothing is sent."""
        if np.ndim(X) == 0 or X.shape[0] != self.n_agents:
            raise ValueError(f"X must have {self.n_agents} rows, one per agent, got shape {np.shape(X)}.")
        return X[self._slice] if self.size > 1 else X

    @property
    def _slice(self) -> slice:
        block = block_of(self.rank, self.size, self.n_agents)
        return slice(block.start, block.stop)

    def objective_for(self, objective: Any) -> Any:
        """`objective` restricted to the agents here; itself if it holds exactly these already."""
        if objective.n_agents != self.n_agents:
            raise ValueError(
                f"objective must have the network's {self.n_agents} agents, got {objective.n_agents}."
            )
        if np.array_equal(objective.agents, self.agents):
            return objective
        return objective.subset(self.agents)

    def _check_leading(self, X: Any) -> Any:
        if not hasattr(X, "shape"):
            X = np.asarray(X)
        if X.ndim == 0 or X.shape[0] != self.n_local:
            raise ValueError(
                f"arrays must have {self.n_local} rows, one per agent of this rank, "
                f"got shape {tuple(X.shape)}."
            )
        return X

    # -- state --------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Back to round 0 with a new ledger; ledgers handed out before keep their counts."""
        self.round = 0
        self.ledger = CommunicationLedger(self.n_agents)

    def state(self) -> dict[str, Any]:
        """Round and ledger as integers and lists of integers, for checkpoints."""
        return {"round": self.round, "ledger": self.ledger.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a dictionary that `state` returned."""
        self.ledger.restore(state["ledger"])
        self.round = int(state["round"])

    def fingerprint(self) -> str:
        """Hex digest of the number of agents and the topology."""
        if self._fingerprint is None:
            text = self.topology.digest() if self.topology is not None else "no topology"
            self._fingerprint = hashlib.sha256(f"{self.n_agents} {text}".encode()).hexdigest()
        return self._fingerprint

    def fingerprint_of(self, objective: Any) -> str:
        """Hex digest of all agents' objectives, the same for every number of ranks (collective)."""
        local = self.objective_for(objective)
        digests = [
            hashlib.sha256(local.subset([a]).fingerprint().encode()).digest() for a in self.agents.tolist()
        ]
        mine = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(self.n_local, -1 if digests else 32)
        return hashlib.sha256(self.allgather(mine).tobytes()).hexdigest()

    def __repr__(self) -> str:
        ranks = f", rank={self.rank} of {self.size}" if self.size > 1 else ""
        return f"Network({self.topology!r}, n_agents={self.n_agents}, round={self.round}{ranks})"


def _as_sequence(topology: Any) -> TopologySequence | None:
    if topology is None or isinstance(topology, TopologySequence):
        return topology
    if hasattr(topology, "is_directed") and hasattr(topology, "nodes"):  # NetworkX, without importing it
        topology = Graph.from_networkx(topology)
    if isinstance(topology, Graph):
        topology = default_weights(topology)
    if isinstance(topology, MixingMatrix):
        return Static(topology)
    raise TypeError(
        "topology must be a MixingMatrix, a TopologySequence, a Graph or None, got "
        f"{type(topology).__name__}; wrap a bare matrix as from_matrix(W, kind)."
    )


def _count_agents(topology: TopologySequence | None, n_agents: int | None) -> int:
    if n_agents is not None:
        n_agents = check_integer(n_agents, "n_agents", minimum=1)
        if topology is not None and topology.n != n_agents:
            raise ValueError(f"n_agents must be the topology's {topology.n}, got {n_agents!r}.")
        return n_agents
    if topology is None:
        raise ValueError("n_agents is needed for a network without a topology, got None.")
    return topology.n
