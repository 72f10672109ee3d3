"""Checkpoints: one atomic, pickle-free file per run, independent of the number of ranks.

A checkpoint is an ``.npz`` archive: a JSON header (version, digest of what is being solved, scalars) and
arrays. Fields of a solver's state say how they are stored:

- `per_agent` fields (leading axis: the agents of this rank) are gathered, so the file holds all agents in
  their global order and may be resumed on another number of ranks;
- `replicated` fields are the same on every rank and stored once;
- `cached` fields can be computed again by ``init`` and are not stored.

Only the root rank touches the file; it is written beside its target, flushed to disk and renamed, so that
a run killed at any moment leaves either the old checkpoint or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from optikit.arrays import array_namespace, from_numpy, to_numpy

FORMAT_VERSION = 1
_KIND = "optikit.storage"


def per_agent(**options: Any) -> Any:
    """Dataclass field whose arrays have one entry per agent of this rank along axis 0."""
    return field(metadata={_KIND: "per_agent"}, **options)


def replicated(**options: Any) -> Any:
    """Dataclass field that is the same on every rank: an array, a number, a string or None."""
    return field(metadata={_KIND: "replicated"}, **options)


def cached(**options: Any) -> Any:
    """Dataclass field that `init` computes again on resumption; it is not stored."""
    return field(metadata={_KIND: "cached"}, **options)


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or that belongs to another problem."""


def digest_of(*parts: str) -> str:
    """Hexadecimal SHA-256 of the parts, each delimited."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def write_checkpoint(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write atomically: a reader sees the previous file or this one, never a part of it."""
    text = json.dumps({"version": FORMAT_VERSION, **header})
    write_arrays(path, header=np.array(text), **arrays)


def write_arrays(path: str | Path, **arrays: np.ndarray) -> None:
    """Write an npz archive beside its target, flush it to disk, rename it."""
    path = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)  # the rename itself must reach the disk too
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_arrays(path: str | Path, names: tuple[str, ...], what: str) -> list[np.ndarray]:
    """Arrays of an npz archive; a ValueError names the file and what is wrong with it."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return [archive[name] for name in names]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable {what}: {error}") from error


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a checkpoint; `CheckpointError` names the file and what is wrong with it."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop("header")))
        version = header["version"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path} is not a readable optikit checkpoint: {error}") from error
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has checkpoint format {version}; this version of optikit reads format {FORMAT_VERSION}."
        )
    return header, arrays


def pack_state(
    state: Any, network: Any, prefix: str = "state"
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Scalars and arrays of a state, gathered over the ranks (collective; complete on the root only)."""
    scalars: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for item in fields(state):
        value, name = getattr(state, item.name), f"{prefix}.{item.name}"
        kind = item.metadata.get(_KIND, "replicated")
        if kind == "cached":
            continue
        if is_dataclass(value) and not isinstance(value, type):
            inner_scalars, inner_arrays = pack_state(value, network, name)
            scalars |= inner_scalars
            arrays |= inner_arrays
        elif value is None or isinstance(value, bool | int | float | str):
            scalars[name] = value
        elif kind == "per_agent":
            arrays[name] = to_numpy(network.allgather(value))
        else:
            arrays[name] = to_numpy(value)
    return scalars, arrays


def unpack_state(
    template: Any, scalars: dict[str, Any], arrays: dict[str, np.ndarray], network: Any, prefix: str = "state"
) -> Any:
    """The stored state, with the template's cached fields, array namespaces and devices."""
    changes: dict[str, Any] = {}
    for item in fields(template):
        value, name = getattr(template, item.name), f"{prefix}.{item.name}"
        kind = item.metadata.get(_KIND, "replicated")
        if kind == "cached":
            continue
        if is_dataclass(value) and not isinstance(value, type):
            changes[item.name] = unpack_state(value, scalars, arrays, network, name)
        elif name in scalars:
            changes[item.name] = scalars[name]
        elif name in arrays:
            stored = arrays[name]
            if kind == "per_agent":
                stored = stored[network.agents]
            known = value is not None and not isinstance(value, bool | int | float | str)
            changes[item.name] = from_numpy(stored, array_namespace(value)) if known else stored
        else:
            raise CheckpointError(f"the checkpoint lacks the field {name!r} of this solver's state.")
    return replace(template, **changes)
