"""One module per method family, mirroring solvers."""
