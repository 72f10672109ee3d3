"""Fixtures shared by all tests: array namespaces and MPI launches."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
for variable in THREAD_VARIABLES:  # before NumPy is imported: bitwise tests need one thread everywhere
    os.environ.setdefault(variable, "1")


def _gpu_present() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


@pytest.fixture(params=["numpy", "array_api_strict", "cupy"])
def xp(request):
    """An array namespace; CuPy is skipped where there is no GPU."""
    if request.param == "cupy" and not _gpu_present():
        pytest.skip("no CUDA device with CuPy on this machine")
    from optikit.arrays import resolve_namespace

    return resolve_namespace(request.param)


@pytest.fixture
def mpi_run():
    """Run a script on several MPI ranks: ``mpi_run(ranks, script, *arguments)`` -> CompletedProcess."""
    mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
    if not mpiexec.exists():
        pytest.skip("no mpiexec in this environment (install the extra optikit[mpi])")

    def run(ranks: int, script, *arguments, check: bool = True, timeout: float = 120.0):
        environment = dict(os.environ, **dict.fromkeys(THREAD_VARIABLES, "1"))
        command = [str(mpiexec), "-n", str(ranks), sys.executable, str(script), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
        if check and done.returncode != 0:
            raise AssertionError(
                f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done

    return run
