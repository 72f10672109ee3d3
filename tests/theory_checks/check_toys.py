"""Run optikit-check on the toy claims; started by the tests under mpiexec."""

from theory_checks.__main__ import main

main(prog_name="optikit-check")
