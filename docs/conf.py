"""Sphinx configuration. The build needs no network; warnings are errors (``make docs``)."""

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

project = "optikit"
author = "optikit developers"
copyright = "optikit developers"
release = version = installed_version("optikit")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "figures/*.py"]
suppress_warnings = [
    "config.cache"
]  # the gallery's settings hold a class, which is not cached between builds

autosummary_generate = True
autosummary_ignore_module_all = True
# A name is documented where it is defined, not where it is offered again.
autodoc_default_options = {"members": True, "member-order": "bysource", "ignore-module-all": True}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"[/\\]plot_",
    "ignore_pattern": r"(^|[/\\])(demo|_.*)\.py$",
    "download_all_examples": False,
    "show_memory": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "optikit"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"install": [], "index": []}
html_show_sourcelink = False
html_show_copyright = False


def _skip_metadata_requests(app, what, name, obj, skip, options):
    """Leave out scikit-learn's generated ``set_*_request``: their text refers to its own manual."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    """Connect the hook above."""
    app.connect("autodoc-skip-member", _skip_metadata_requests)
