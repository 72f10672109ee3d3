"""The one place where array namespaces are resolved and arrays cross between host and device.

All numerics of optikit run in the namespace of their input (NumPy, CuPy, array-api-strict, PyTorch), found
through array-api-compat.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import array_api_compat
import array_api_compat.numpy
import numpy as np

_WRAPPED = {"numpy", "cupy", "torch"}  # namespaces that array-api-compat completes


def array_namespace(*arrays: Any) -> Any:
    """The array-API namespace shared by `arrays`; lists and Python or NumPy scalars count as NumPy.

    Raises
    ------
    TypeError
        When the arrays belong to different namespaces.
    """
    # The isinstance shortcut serves the hot path: a lookup through array-api-compat costs microseconds.
    found = [a for a in arrays if not isinstance(a, np.ndarray | np.generic | list | tuple | int | float)]
    if not found:
        return array_api_compat.numpy
    foreign = [a for a in found if array_api_compat.is_array_api_obj(a)]
    if not foreign:
        return array_api_compat.numpy
    return array_api_compat.array_namespace(*foreign, *(a for a in arrays if isinstance(a, np.ndarray)))


def resolve_namespace(name: str | ModuleType | Any) -> Any:
    """The namespace called `name` ("numpy", "cupy", "torch", "array_api_strict"), or the module given.

    Raises
    ------
    ValueError
        When there is no such namespace in this environment.
    """
    module_name = name if isinstance(name, str) else getattr(name, "__name__", "")
    if module_name in _WRAPPED:
        module_name = f"array_api_compat.{module_name}"
    elif not isinstance(name, str):
        return name
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f"namespace must be an installed array library such as 'numpy' or 'cupy', got {name!r} ({error})."
        ) from error


def is_numpy(xp: Any) -> bool:
    """Whether `xp` is NumPy, bare or wrapped."""
    return xp is np or xp is array_api_compat.numpy


def as_float_array(
    x: Any,
    *,
    name: str = "x",
    xp: Any = None,
    dtype: Any = None,
    ndim: int | None = None,
    shape: tuple[int | None, ...] | None = None,
    finite: bool = True,
) -> Any:
    """`x` as a real floating array, checked.

    Integers and booleans become float64; float32 stays float32. No copy is made of an array that is
    already right.

    Parameters
    ----------
    x : array_like
    name : str
        What errors call it.
    xp : namespace, optional
        Where the result lives; the namespace of `x` by default.
    dtype : dtype, optional
        Wanted dtype of `xp`.
    ndim : int, optional
        Required number of axes.
    shape : tuple of int or None, optional
        Required shape; None leaves an axis free.
    finite : bool, default True
        Refuse NaN and infinities.

    Raises
    ------
    TypeError
        For complex, object or text data.
    ValueError
        For a wrong shape or non-finite entries.
    """
    if not array_api_compat.is_array_api_obj(x):
        try:
            x = np.asarray(x)
        except ValueError as error:
            raise ValueError(
                f"{name} must be a rectangular array of numbers, got {type(x).__name__}."
            ) from error
    own = array_namespace(x)
    xp = own if xp is None else xp
    if is_numpy(own) and x.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {x.dtype}.")
    if not is_numpy(own) and not own.isdtype(x.dtype, ("real floating", "integral", "bool")):
        raise TypeError(f"{name} must hold real numbers, got dtype {x.dtype}.")
    if own is not xp and not (is_numpy(own) and is_numpy(xp)):
        x = from_numpy(to_numpy(x), xp)
    if not xp.isdtype(x.dtype, "real floating"):
        x = xp.astype(x, xp.float64)
    elif is_numpy(xp) and x.dtype.itemsize not in (4, 8):  # half and extended precision
        x = x.astype(np.float64)
    if dtype is not None and x.dtype != dtype:
        x = xp.astype(x, dtype)
    if ndim is not None and x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {tuple(x.shape)}.")
    if shape is not None and not _fits(tuple(x.shape), shape):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(x.shape)}.")
    if finite and not bool(xp.all(xp.isfinite(x))):
        from optikit.validation import check_finite

        check_finite(x, name, "row" if x.ndim > 1 else "entry")
    return x


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(w is None or s == w for s, w in zip(shape, wanted))


def to_numpy(x: Any) -> np.ndarray:
    """`x` on the host as a NumPy array; no copy when it already is one."""
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    if array_api_compat.is_cupy_array(x):
        return x.get()
    if array_api_compat.is_torch_array(x):
        return x.detach().cpu().numpy()
    if array_api_compat.is_array_api_obj(x):
        return np.asarray(np.from_dlpack(x))
    return np.asarray(x)


def from_numpy(x: np.ndarray, xp: Any, device: Any = None) -> Any:
    """A host array in namespace `xp`, on `device` (the namespace's default device when None)."""
    if is_numpy(xp):
        return x
    return xp.asarray(x) if device is None else xp.asarray(x, device=device)
