"""Checks at the door of the sketching functions: data, scores, penalties, dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from optikit.arrays import array_namespace, as_float_array
from optikit.validation import check_finite, check_real


def check_matrix(A: Any, name: str = "A", *, finite: bool = True) -> Any:
    """`A` as a real matrix with rows and columns: dense of any namespace, or SciPy sparse.

    Integers and booleans become float64, float32 and float64 stay as they are (and where they are).

    Parameters
    ----------
    A : array_like or sparse matrix
    name : str
        What errors call it.
    finite : bool, default True
        Refuse NaN and infinities; one pass over the data.
    """
    if sp.issparse(A):
        if A.ndim != 2:
            raise ValueError(f"{name} must have 2 axes, got shape {A.shape}.")
        if A.dtype.kind not in "fiub":
            raise TypeError(f"{name} must hold real numbers, got dtype {A.dtype}.")
        if A.dtype not in (np.float32, np.float64):
            A = A.astype(np.float64)
        if finite and not np.all(np.isfinite(A.data)):
            raise ValueError(f"{name} must be finite, got NaN or infinity.")
    else:
        A = as_float_array(A, name=name, ndim=2, finite=finite)
        if A.dtype in (np.float16, np.longdouble) and A.dtype != np.float64:
            A = np.asarray(A, dtype=np.float64)
    if 0 in A.shape:
        raise ValueError(f"{name} must have rows and columns, got shape {tuple(A.shape)}.")
    return A


def check_scale(scale: Any, n: int) -> np.ndarray | None:
    """Row scaling of shape (n,), finite, or None."""
    if scale is None:
        return None
    return np.asarray(as_float_array(scale, name="scale", shape=(n,)), dtype=np.float64)


def check_scores(scores: Any, name: str, n: int | None, *, allow_zero: bool = False) -> np.ndarray:
    """Non-negative, finite, of shape (n,); not all zero unless `allow_zero`."""
    array = np.asarray(as_float_array(scores, name=name, shape=(n,)), dtype=np.float64)
    if array.size and array.min() < 0:
        raise ValueError(f"{name} must be non-negative, got {array.min()!r} at row {int(array.argmin())}.")
    if not allow_zero and not array.sum() > 0:
        raise ValueError(f"{name} must not be all zero.")
    return array


def check_dimension(d_eff: Any) -> float:
    """An effective dimension: a finite number >= 0."""
    return check_real(d_eff, "d_eff", minimum=0.0)


def check_vectors(x: Any, d: int) -> np.ndarray:
    """Right-hand sides (d,) or (d, k), finite."""
    x = np.asarray(as_float_array(x, name="x"), dtype=np.float64)
    if x.ndim not in (1, 2) or x.shape[0] != d:
        raise ValueError(f"x must have {d} rows, got shape {x.shape}.")
    return x


def penalty_matrix(C: Any, d: int, *, definite: bool = False) -> np.ndarray:
    """The penalty as a d x d matrix: from a number (a multiple of I), a diagonal (d,) or the matrix itself.

    Parameters
    ----------
    C : number or array
    d : int
    definite : bool, default False
        Also compute the eigenvalues of a full matrix and refuse negative ones (costs d^3).

    Raises
    ------
    ValueError
        For negative numbers, wrong shapes, asymmetric or non-finite matrices.
    """
    C = np.asarray(as_float_array(C, name="C", finite=False), dtype=np.float64)
    if not np.all(np.isfinite(C)):
        raise ValueError("C must be finite, got NaN or infinity.")
    if C.ndim < 2:
        if C.ndim == 1 and C.shape != (d,):
            raise ValueError(f"C must be a number, a diagonal ({d},) or a matrix ({d}, {d}), got {C.shape}.")
        if C.size and C.min() < 0:
            raise ValueError(f"C must be positive semi-definite, got {C.min()!r} on its diagonal.")
        return np.diag(np.broadcast_to(C, (d,)).astype(np.float64))
    if C.shape != (d, d) or not np.allclose(C, C.T, rtol=1e-10, atol=1e-12 * (1 + np.abs(C).max(initial=0))):
        raise ValueError(f"C must be a symmetric ({d}, {d}) matrix, got shape {C.shape}.")
    C = 0.5 * (C + C.T)
    if definite and np.count_nonzero(C - np.diag(np.diag(C))):
        values = np.linalg.eigvalsh(C)
        if values[0] < -1e-10 * max(abs(values[-1]), abs(values[0])):
            raise ValueError(f"C must be positive semi-definite, got the eigenvalue {values[0]:.3g}.")
    elif C.size and np.diag(C).min() < 0:
        raise ValueError(f"C must be positive semi-definite, got {np.diag(C).min()!r} on its diagonal.")
    return C


def check_real_dtype(A: Any, name: str = "A") -> None:
    """Refuse complex, object and text data without reading it."""
    if sp.issparse(A) or isinstance(A, np.ndarray):
        if A.dtype.kind not in "fiub":
            raise TypeError(f"{name} must hold real numbers, got dtype {A.dtype}.")
    elif not array_namespace(A).isdtype(A.dtype, ("real floating", "integral", "bool")):
        raise TypeError(f"{name} must hold real numbers, got dtype {A.dtype}.")


def check_sketched(At: np.ndarray) -> None:
    """A sketch of finite data is finite: what a door that must not read all of A can see."""
    check_finite(At, "the sketch of A")


__all__ = [
    "check_dimension",
    "check_matrix",
    "check_real_dtype",
    "check_scale",
    "check_scores",
    "check_sketched",
    "check_vectors",
    "penalty_matrix",
]
