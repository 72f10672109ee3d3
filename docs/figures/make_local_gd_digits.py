"""Draw the figure of the README: ``python docs/figures/make_local_gd_digits.py``.

It is the picture of the gallery example ``examples/plot_local_gd_digits.py``.
"""

import runpy
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

HERE = Path(__file__).resolve().parent
namespace = runpy.run_path(str(HERE.parents[1] / "examples" / "plot_local_gd_digits.py"))
namespace["figure"].savefig(HERE / "local_gd_digits.png", dpi=120)
