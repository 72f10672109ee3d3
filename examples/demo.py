"""What ``make demo`` runs: a real data set solved with Local GD, the quick theory checks, one HTML report.

The data set is handwritten digits, 0 against 1, as scikit-learn ships it: nothing is downloaded.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

CLIENTS, STEP_SIZE, ROUNDS = 5, 16.0, 512


def write_digits(path: Path) -> None:
    """The digits 0 and 1 as a csv table, so that the run starts from a file like a user's own."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = digits.target < 2
    names = [f"pixel{j}" for j in range(digits.data.shape[1])]
    table = np.column_stack([digits.data[rows], digits.target[rows]])
    np.savetxt(path, table, fmt="%g", delimiter=",", header=",".join([*names, "digit"]), comments="")


def solve(file: Path) -> tuple[dict[str, Any], Any, Any]:
    """Run Local GD and its baseline on the file; the summary, the picture and the result of the first."""
    from optikit.plotting import add_slope, plot_history
    from optikit.runtime.communicator import default_communicator
    from solvers.cli.outputs import summary
    from solvers.cli.problem import build_problem
    from solvers.federated.local_gd import LocalGD

    problem = build_problem(
        file, agents=CLIENTS, split="similarity", similarity=0.5, communicator=default_communicator()
    )
    runs = {}
    for local_steps in (1, 4, 16, 64):
        solver = LocalGD(step_size=STEP_SIZE, local_steps=local_steps)
        runs[f"{local_steps} local step" + "s" * (local_steps > 1)] = solver.solve(
            problem.objective, problem.network, max_rounds=ROUNDS
        )
    baseline = LocalGD(step_size=64 * STEP_SIZE, local_steps=1)
    runs["gradient descent, 64 x step"] = baseline.solve(
        problem.objective, problem.network, max_rounds=ROUNDS
    )
    ax = plot_history(runs)
    best = runs["64 local steps"]
    add_slope(ax, -1.0, (ROUNDS, best.objective), label="slope -1 (theory)")
    ax.set_title(f"Digits 0 and 1 on {CLIENTS} clients, step size {STEP_SIZE:g}")
    print(f"\nLocal GD on handwritten digits, {CLIENTS} clients, {ROUNDS} rounds")
    for label, result in runs.items():
        print(f"  {label:<28} loss {result.objective:.4g}")
    parameters = {"step_size": STEP_SIZE, "local_steps": 64}
    return summary(best, problem, parameters), ax, best


def main() -> int:
    """Returns the exit status of the checks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--report", type=Path, default=Path("reports/demo.html"))
    report = parser.parse_args().report
    report.parent.mkdir(parents=True, exist_ok=True)

    from rich.console import Console

    from solvers.cli.outputs import report_section
    from theory_checks.html import render_html
    from theory_checks.registry import discover
    from theory_checks.run import run_claims

    file = report.parent / "digits.csv"
    write_digits(file)
    section = report_section(*solve(file))

    print("\nTheory checks (quick)")
    registry = discover()
    checks = run_claims(registry, registry.select(), effort="quick", seed=0)
    Console().print(checks.table())
    print(checks.summary())
    page = render_html(checks, title="optikit demonstration", preface=section)
    report.write_text(page, encoding="utf-8")
    print(f"\nreport: {report.resolve()}")
    return checks.exit_status()


if __name__ == "__main__":
    sys.exit(main())
