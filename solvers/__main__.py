"""``python -m solvers`` and ``optikit-solve``."""

import sys


def main() -> None:
    """Run the command line and leave with its status."""
    from solvers.cli.command import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
