# Two commands for a fresh machine with Python 3.11 or newer and make:
#
#   make demo     install into .venv, solve a real data set, check the theorems, write one HTML report
#   make test     install the test extra too, run the whole suite (MPI ranks included)
#
# Variables: VENV=directory of the virtual environment, PYTHON=interpreter to make it from,
# PYTEST_ARGS, CHECK_ARGS. Everything is quick the second time: stamp files record what is installed.

VENV ?= .venv
PYTHON ?=
PYTEST_ARGS ?=
CHECK_ARGS ?= --quick
BIN = $(VENV)/bin
REPORT = reports/demo.html

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test lint types check docs bench clean distclean
.DELETE_ON_ERROR:

help:
	@echo "make demo    solve a real data set, check the theorems, write $(REPORT)"
	@echo "make test    run the whole test suite, MPI ranks included"
	@echo "make check   theory checks ($(CHECK_ARGS));  make lint, make types   ruff, mypy"
	@echo "make docs    HTML documentation in docs/_build/html;  make bench   benchmarks"
	@echo "make clean   remove what was built;  make distclean   and $(VENV)"

demo: $(VENV)/.installed
	@mkdir -p reports
	@$(BIN)/python examples/demo.py --report $(REPORT)

test: $(VENV)/.installed-test
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/.installed
	@$(BIN)/optikit-check $(CHECK_ARGS)

lint: $(VENV)/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	@$(BIN)/mypy

docs: $(VENV)/.installed-docs
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "documentation: $(CURDIR)/docs/_build/html/index.html"

bench: $(VENV)/.installed
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

clean:
	rm -rf build dist reports docs/_build docs/gallery docs/api/generated docs/sg_execution_times.rst
	rm -rf .pytest_cache .hypothesis .mypy_cache .ruff_cache *.egg-info
	find optikit solvers theory_checks tests examples benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

# The interpreter: the one named, else the first of the usual names that is new enough.
$(BIN)/python:
	@found=""; \
	for name in $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11 python); do \
	  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found="$$name"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "optikit needs Python 3.11 or newer$(if $(PYTHON),; $(PYTHON) is older or missing)." >&2; \
	  echo "Install one (https://www.python.org/downloads), or name it: make PYTHON=/path/to/python3.12 ..." >&2; \
	  exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$found" --version)"; \
	if ! "$$found" -m venv "$(VENV)"; then \
	  rm -rf "$(VENV)"; \
	  echo "Python's venv module does not work here; on Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 1; \
	fi

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing optikit and what it needs into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo "installing optikit with its $* extra into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --editable ".[$*]"
	@touch $@ $(VENV)/.installed
