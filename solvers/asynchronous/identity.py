"""What identifies a run: hyper-parameters by their content."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def settings_of(value: Any) -> Any:
    """A hyper-parameter in a form whose `repr` says what it is, the same in every process."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value):
        return type(value).__name__, [(f.name, settings_of(getattr(value, f.name))) for f in fields(value)]
    if hasattr(value, "describe"):
        return value.describe()
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, tuple | list):
        return [settings_of(item) for item in value]
    return repr(value)
