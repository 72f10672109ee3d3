"""``python -m solvers`` and ``optikit-solve``."""

import sys


def main() -> None:
    """Run the command line and leave with its status."""
    from optikit.runtime.communicator import abort_on_error
    from solvers.cli.command import run

    with (
        abort_on_error()
    ):  # an exception on one rank, even while importing, must not leave the others waiting
        status = run(sys.argv[1:])
    sys.exit(status)


if __name__ == "__main__":
    main()
