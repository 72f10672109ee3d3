"""Data on the way in: readers, label coding and the preparation of features.

`read_data` reads svmlight / libsvm, csv, tsv and npz files and says what is wrong with a bad one, with the
line where there is one. The container that methods work on, `AgentData`, the ways of dealing a table over
agents and the synthetic generators are importable from here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optikit._readers import read_delimited, read_npz, read_svmlight, sniff_format
from optikit.agent_data import AgentData
from optikit.arrays import array_namespace, as_float_array
from optikit.generators import random_separable, two_point, two_vec
from optikit.splits import split, split_by_label, split_by_similarity, split_dirichlet, split_iid
from optikit.validation import check_choice, check_real

__all__ = [
    "AgentData",
    "Table",
    "add_bias",
    "code_labels",
    "normalize_rows_max",
    "prepare_features",
    "random_separable",
    "read_data",
    "row_norms",
    "split",
    "split_by_label",
    "split_by_similarity",
    "split_dirichlet",
    "split_iid",
    "standardize",
    "two_point",
    "two_vec",
]

FORMATS = ("svmlight", "csv", "tsv", "npz")


@dataclass(frozen=True)
class Table:
    """A data file in memory.

    Attributes
    ----------
    features : ndarray of float64, shape (n_samples, n_features), or scipy.sparse CSR array
        CSR for svmlight files, dense otherwise.
    targets : ndarray, shape (n_samples,)
        float64, or strings when the file's target column holds class names (see `code_labels`).
    feature_names : tuple of str
        Column names of a csv with a header, ``x0, x1, ...`` otherwise.
    target_name : str
        Name of the target column.
    """

    features: Any
    targets: np.ndarray
    feature_names: tuple[str, ...]
    target_name: str = "y"

    @property
    def n_samples(self) -> int:
        return self.features.shape[0]

    @property
    def n_features(self) -> int:
        return self.features.shape[1]

    @property
    def is_sparse(self) -> bool:
        return not isinstance(self.features, np.ndarray)

    @property
    def density(self) -> float:
        """Share of stored entries; 1.0 for dense features."""
        if not self.is_sparse:
            return 1.0
        return self.features.nnz / max(1, self.n_samples * self.n_features)

    def __repr__(self) -> str:
        kind = f"CSR, {self.density:.2%} stored" if self.is_sparse else "dense"
        size = f"{self.n_samples} samples, {self.n_features} features"
        return f"Table({size} ({kind}), target {self.target_name!r})"


def read_data(
    path: str | Path,
    *,
    format: str | None = None,
    target: str | int | None = None,
    zero_based: bool | None = None,
    n_features: int | None = None,
) -> Table:
    """Read a table of features and targets from a file.

    Parameters
    ----------
    path : path
        The file. Files ending in ``.gz`` or ``.bz2`` are decompressed (svmlight, csv, tsv).
    format : {"svmlight", "csv", "tsv", "npz"}, optional
        Read from the name (``.svm``, ``.svmlight``, ``.libsvm``, ``.csv``, ``.tsv``, ``.npz``) or, for other
        names, from the first line of the file. ``"libsvm"`` is another word for ``"svmlight"``.
    target : str or int, optional
        csv, tsv: name or number (negative from the end) of the target column; by default the only column
        called target, label, class or y, else the last one. npz: name of the target array, default ``"y"``.
        svmlight: the target stands first in each line and this must be None.
    zero_based : bool, optional
        svmlight: whether feature numbers start at 0. By default they do if the number 0 occurs.
    n_features : int, optional
        svmlight: number of features, when the file's largest number is not the last one.

    Returns
    -------
    Table

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        When the file is empty or cannot be read as its format; the message names file, line and column.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"data file {path} does not exist.")
    if path.is_dir():
        raise ValueError(f"data file {path} is a directory.")
    if format is None:
        format = sniff_format(path)
    format = check_choice("svmlight" if format == "libsvm" else format, "format", FORMATS)
    if format != "svmlight" and (zero_based is not None or n_features is not None):
        raise ValueError(
            f"zero_based and n_features are for svmlight files only, {path} is read as {format}."
        )
    if format == "svmlight":
        if target is not None:
            raise ValueError(
                f"target must be None for a svmlight file (the target stands first), got {target!r}."
            )
        return Table(*read_svmlight(path, zero_based, n_features))
    if format == "npz":
        return Table(*read_npz(path, target))
    return Table(*read_delimited(path, "," if format == "csv" else "\t", target))


def code_labels(y: Any, positive: Any = None, coding: str = "pm1") -> np.ndarray:
    """Class labels as numbers.

    Parameters
    ----------
    y : array-like, shape (n_samples,)
        Labels of two classes (numbers or strings), or of more when `positive` is given.
    positive : label, optional
        The class coded +1, against all others. By default the larger of two labels (the later one in the
        alphabet), so {0, 1} and {-1, 1} keep their order.
    coding : {"pm1", "01"}, default "pm1"
        Code the classes as {-1, 1} or {0, 1}.

    Returns
    -------
    ndarray of float64, shape (n_samples,)

    Raises
    ------
    ValueError
        For one class only, for more than two without `positive`, for a `positive` that does not occur, and
        for labels that are not finite.
    """
    check_choice(coding, "coding", ("pm1", "01"))
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"labels must be a non-empty vector, got shape {labels.shape}.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int(np.flatnonzero(~np.isfinite(labels))[0])
        raise ValueError(f"labels must be finite, got {labels[row]!s} in row {row}.")
    classes = np.unique(labels.astype(str) if labels.dtype == object else labels)
    shown = ", ".join(str(c) for c in classes[:6]) + (", ..." if classes.size > 6 else "")
    if classes.size == 1:
        raise ValueError(f"labels must hold two classes, got the one class {shown}.")
    if positive is None:
        if classes.size > 2:
            raise ValueError(
                f"labels must hold two classes, got {classes.size} ({shown}); "
                "name the class to set against the rest by positive=."
            )
        chosen = labels == classes[1]
    else:
        chosen = _equals(labels, positive)
        if not chosen.any():
            raise ValueError(f"positive must be one of the labels {shown}, got {positive!r}.")
    return np.where(chosen, 1.0, -1.0 if coding == "pm1" else 0.0)


def _equals(labels: np.ndarray, positive: Any) -> np.ndarray:
    # "1" typed on a command line must find 1.0 in a file of numbers.
    if labels.dtype.kind in "fiub":
        try:
            return labels == float(positive)
        except (TypeError, ValueError):
            return np.zeros(labels.shape, dtype=bool)
    return labels.astype(str) == str(positive)


def row_norms(X: Any) -> Any:
    """Euclidean norms of the rows of a dense or sparse matrix, shape (n_samples,)."""
    if _is_sparse(X):
        return np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    xp = array_namespace(X)
    return xp.sqrt(xp.sum(X * X, axis=1))


def add_bias(X: Any, value: str | float = "mean_norm") -> Any:
    """Append a constant column, so that a linear model through the origin has an intercept.

    Parameters
    ----------
    X : array or CSR, shape (n_samples, n_features)
    value : "mean_norm" or float, default "mean_norm"
        The constant; "mean_norm" is the mean Euclidean norm of the rows, which keeps the new column on the
        scale of the data, so that the margin hardly depends on the units.

    Returns
    -------
    array or CSR, shape (n_samples, n_features + 1)
    """
    X = _check_features(X)
    if value == "mean_norm":
        norms = row_norms(X)
        constant = float(array_namespace(norms).mean(norms))
    else:
        constant = check_real(value, "value")
    if _is_sparse(X):
        from scipy.sparse import csr_array, hstack

        return csr_array(hstack([X, csr_array(np.full((X.shape[0], 1), constant))], format="csr"))
    xp = array_namespace(X)
    return xp.concat([X, xp.full_like(X[:, :1], constant)], axis=1)


def normalize_rows_max(X: Any) -> tuple[Any, float]:
    """Divide by the largest row norm.

    Returns
    -------
    scaled : array or CSR
        ``X / B``; all rows have norm at most 1.
    B : float
        The largest row norm. A weight vector of the scaled data is ``B`` times one of the original data.

    Raises
    ------
    ValueError
        When all rows are zero.
    """
    X = _check_features(X)
    norms = row_norms(X)
    largest = float(array_namespace(norms).max(norms))
    if largest == 0.0:
        raise ValueError("features must have a non-zero row to be divided by the largest row norm.")
    return X / largest, largest


def standardize(X: Any) -> tuple[Any, Any, Any]:
    """Shift and scale the columns to mean 0 and (population) standard deviation 1.

    Parameters
    ----------
    X : array, shape (n_samples, n_features)
        Dense; centring a sparse matrix would fill it.

    Returns
    -------
    standardized : array, shape (n_samples, n_features)
    mean, scale : array, shape (n_features,)
        ``standardized = (X - mean) / scale``; constant columns have scale 1.
    """
    X = _check_features(X)
    if _is_sparse(X):
        raise TypeError("features must be dense to be standardized: centring fills a sparse matrix.")
    xp = array_namespace(X)
    mean = xp.mean(X, axis=0)
    scale = xp.std(X, axis=0)
    # A constant column keeps rounding errors of its mean as its deviation: compare with its magnitude.
    constant = scale <= 1e-14 * xp.max(xp.abs(X), axis=0)
    scale = xp.where(constant, xp.ones_like(scale), scale)
    return (X - mean) / scale, mean, scale


def prepare_features(X: Any, *, standardized: bool = False, bias: bool = True) -> tuple[Any, float]:
    """Features as the margin theory of logistic regression wants them: an intercept, norms at most 1.

    Optionally `standardize`, then `add_bias` with the mean row norm, then `normalize_rows_max`: the
    preparation of all real data sets in this project.

    Returns
    -------
    features : array or CSR, shape (n_samples, n_features + 1)
    B : float
        The largest row norm before the division.
    """
    if standardized:
        X = standardize(X)[0]
    if bias:
        X = add_bias(X)
    return normalize_rows_max(X)


def _is_sparse(X: Any) -> bool:
    return hasattr(X, "indptr") and hasattr(X, "multiply")


def _check_features(X: Any) -> Any:
    if _is_sparse(X):
        if X.shape[0] == 0:
            raise ValueError("features must have at least one row, got none.")
        return X
    X = as_float_array(X, name="features", ndim=2)
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"features must have rows and columns, got shape {tuple(X.shape)}.")
    return X
