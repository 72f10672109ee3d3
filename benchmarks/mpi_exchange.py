"""Neighbour exchange of 100 floats between 2 ranks in every form that MPI offers, and `Network.mix` over it.

Started on one process it runs itself under ``mpiexec -n 2``. All forms carry the same buffers in the same
run; the figure is the best of interleaved batches, the slower rank. On MPICH's shared-memory transport all
forms cost a few microseconds, and persistent requests are twice as fast as the neighbourhood collective. A
larger gain belongs to MPIs whose blocking collectives are slow.
"""

import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import _timing  # noqa: F401 (pins threads before NumPy is imported)
import numpy as np

BATCHES, CALLS = 40, 200


def forms(comm, floats):
    """Callables that send `floats` numbers to the other rank and receive as many, and what to free after."""
    from mpi4py import MPI

    other = 1 - comm.Get_rank()
    out, into = np.zeros(floats), np.zeros(floats)
    ring = comm.Create_dist_graph_adjacent([other], [other], reorder=False)
    pair = [comm.Recv_init(into, other, tag=7), comm.Send_init(out, other, tag=7)]
    persistent = [*pair]
    counts = ([floats], [0])

    def sendrecv():
        comm.Sendrecv(out, other, 1, into, other, 1)

    def nonblocking():
        MPI.Request.Waitall([comm.Irecv(into, other, 2), comm.Isend(out, other, 2)])

    def startall():
        MPI.Prequest.Startall(pair)
        MPI.Request.Waitall(pair)

    result = {
        "Sendrecv": sendrecv,
        "Isend / Irecv": nonblocking,
        "persistent Send_init / Recv_init": startall,
        "Neighbor_alltoall": lambda: ring.Neighbor_alltoall(out, into),
        "Neighbor_alltoallv": lambda: ring.Neighbor_alltoallv([out, counts], [into, counts]),
    }
    if hasattr(ring, "Neighbor_alltoallv_init"):
        try:
            request = ring.Neighbor_alltoallv_init([out, counts], [into, counts])
        except NotImplementedError:
            return result, persistent

        def collective():
            request.Start()
            request.Wait()

        result["persistent Neighbor_alltoallv_init"] = collective
        persistent.append(request)
    return result, persistent


def best_seconds(comm, candidates):
    """Least seconds per call over batches of the slower rank; the batches go round all forms in turn."""
    from mpi4py import MPI

    best = dict.fromkeys(candidates, np.inf)
    for _ in range(BATCHES):
        for name, call in candidates.items():
            comm.Barrier()
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            seconds = (time.perf_counter() - began) / CALLS
            best[name] = min(best[name], comm.allreduce(seconds, op=MPI.MAX))
    return best


def main():
    """The table, on rank 0."""
    from mpi4py import MPI

    from optikit.graphs import ring
    from optikit.mixing import ErdosRenyiSequence
    from optikit.network import Network

    comm = MPI.COMM_WORLD
    root = comm.Get_rank() == 0
    if root:
        print(MPI.Get_library_version().splitlines()[0])
    for floats in (100, 10_000):
        candidates, requests = forms(comm, floats)
        for name, topology in (
            ("Network.mix, static (persistent)", ring(2)),
            ("Network.mix, aperiodic (Isend / Irecv)", ErdosRenyiSequence(2, 1.0)),
        ):
            network = Network(topology, communicator=comm)
            X = np.zeros((network.n_local, floats))
            candidates[name] = lambda network=network, X=X: network.mix(X)
        seconds = best_seconds(comm, candidates)
        for request in requests:
            request.Free()
        if root:
            print(f"\n{floats} floats each way, 2 ranks")
            base = seconds["persistent Send_init / Recv_init"]
            for name, value in seconds.items():
                print(f"  {name:<44} {value * 1e6:8.2f} us   {value / base:6.2f} x persistent", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main()
    else:
        mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
        if not mpiexec.exists():
            print("no mpiexec in this environment: pip install optikit[mpi]")
            sys.exit(0)
        sys.exit(subprocess.call([str(mpiexec), "-n", "2", sys.executable, __file__, "ranks"]))
