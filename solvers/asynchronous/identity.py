"""What identifies a run: hyper-parameters by their content, laws and traces too."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from optikit.checkpoint import digest_of
from optikit.random import AgentStreams
from optikit.runtime.timing import ServiceLaw
from optikit.runtime.trace import Trace


def settings_of(value: Any) -> Any:
    """A hyper-parameter in a form whose `repr` says what it is, the same in every process."""
    if isinstance(value, Trace):
        flat = [worker for batch in value.batches for worker in (*batch, -1)]
        return digest_of(repr(value.n), np.asarray(flat).tobytes().hex(), value.times.tobytes().hex())
    if isinstance(value, ServiceLaw):
        public = {k: settings_of(v) for k, v in sorted(vars(value).items()) if not k.startswith("_")}
        seeds = [repr(v) for v in vars(value).values() if isinstance(v, AgentStreams)]
        return type(value).__name__, public, seeds
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value):
        return type(value).__name__, [(f.name, settings_of(getattr(value, f.name))) for f in fields(value)]
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, tuple | list):
        return [settings_of(item) for item in value]
    return repr(value)
