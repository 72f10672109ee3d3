"""Methods whose server does not wait: state machines run on a virtual clock, a trace, or MPI ranks."""
