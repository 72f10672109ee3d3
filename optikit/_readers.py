"""Parsers of data files, and the slow second look that finds what is wrong with a bad one."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

TARGET_NAMES = ("target", "label", "class", "y")
SUFFIXES = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".csv": "csv",
    ".tsv": "tsv",
    ".npz": "npz",
}
Columns = tuple[Any, np.ndarray, tuple[str, ...], str]


def open_text(path: Path) -> io.TextIOBase:
    """The file as text, decompressed if its name says so."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    if path.suffix == ".bz2":
        return bz2.open(path, "rt", encoding="utf-8", newline="")
    return open(path, encoding="utf-8", newline="")


def _base_suffix(path: Path) -> str:
    name = path.with_suffix("") if path.suffix in {".gz", ".bz2"} else path
    return name.suffix.lower()


def sniff_format(path: Path) -> str:
    """Format of a file by its name, else by its first line."""
    known = SUFFIXES.get(_base_suffix(path))
    if known is not None:
        return known
    if zipfile.is_zipfile(path):
        return "npz"
    for _, line in _lines(path):
        words = line.split("#")[0].split()
        if not words:
            continue
        if any(":" in word for word in words[1:]):
            return "svmlight"
        if "\t" in line:
            return "tsv"
        if "," in line:
            return "csv"
        break
    else:
        _empty(path)
    raise ValueError(f"the format of {path} is not clear from its name or first line; pass format=.")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with open_text(path) as stream:
            yield from enumerate(stream, start=1)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file (byte {error.start} is not UTF-8).") from None
    except (gzip.BadGzipFile, EOFError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None


def _empty(path: Path) -> NoReturn:
    raise ValueError(f"{path} holds no data.")


# -- svmlight -----------------------------------------------------------------------------------------------


def read_svmlight(path: Path, zero_based: bool | None, n_features: int | None) -> Columns:
    """``target index:value ...`` lines as (CSR features, targets, names, target name)."""
    from scipy.sparse import csr_array
    from sklearn.datasets import load_svmlight_file

    first = next((line for _, line in _lines(path) if line.split("#")[0].strip()), None)
    if first is None:
        _empty(path)
    try:
        X, y = load_svmlight_file(
            str(path), n_features=n_features, zero_based="auto" if zero_based is None else zero_based
        )
    except Exception as error:
        _explain_svmlight(path, zero_based, n_features)
        raise ValueError(f"{path} is not a svmlight file: {error}.") from None
    X = csr_array(X)
    if not (np.isfinite(X.data).all() and np.isfinite(y).all()):
        _explain_svmlight(path, zero_based, n_features)
    # A base of one with zero_based=True, or the other way round, shows as an index below the first.
    if X.indices.size and X.indices.min() < 0:
        _explain_svmlight(path, zero_based, n_features)
    if X.nnz == 0:
        raise ValueError(f"{path} holds no features.")
    return X, y, tuple(f"x{j}" for j in range(X.shape[1])), "y"


def _explain_svmlight(path: Path, zero_based: bool | None, n_features: int | None) -> None:
    """Raise the error of the first bad line, if one is found."""
    smallest_allowed = 1 if zero_based is False else 0
    smallest, largest, largest_line = math.inf, -1, 0
    for number, line in _lines(path):
        words = line.split("#")[0].split()
        if not words:
            continue
        where = f"{path}, line {number}:"
        if not _is_finite(words[0]):
            raise ValueError(f"{where} the target {words[0]!r} is not a finite number.")
        last = -1
        for word in words[1:]:
            index, colon, value = word.partition(":")
            if index == "qid":
                continue
            if not colon:
                raise ValueError(f"{where} {word!r} is not of the form index:value.")
            if not index.isdecimal():
                raise ValueError(f"{where} the index of {word!r} is not a number >= {smallest_allowed}.")
            if not _is_finite(value):
                raise ValueError(f"{where} the value of {word!r} is not a finite number.")
            if int(index) < smallest_allowed:
                raise ValueError(
                    f"{where} index {index} in a file read with indices from 1 (zero_based=False)."
                )
            if int(index) <= last:
                raise ValueError(f"{where} indices must increase, got {index} after {last}.")
            last = int(index)
            smallest = min(smallest, last)
        if last > largest:
            largest, largest_line = last, number
    zero = smallest == 0 if zero_based is None else zero_based
    if n_features is not None and largest + (1 if zero else 0) > n_features:
        raise ValueError(
            f"{path}, line {largest_line}: index {largest} does not fit n_features={n_features} "
            f"with indices from {0 if zero else 1}."
        )


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


# -- csv and tsv --------------------------------------------------------------------------------------------


def read_delimited(path: Path, separator: str, target: str | int | None) -> Columns:
    """A table of numbers with or without a header as (features, targets, names, target name)."""
    import pandas

    names, has_header = _header(path, separator)
    column = _target_column(path, names, has_header, target)
    try:
        frame = pandas.read_csv(
            path, sep=separator, header=0 if has_header else None, skipinitialspace=True, index_col=False
        )
    except pandas.errors.EmptyDataError:
        _empty(path)
    except (pandas.errors.ParserError, pandas.errors.ParserWarning, ValueError, OSError) as error:
        _explain_delimited(path, separator, names, has_header, column)
        raise ValueError(f"{path} cannot be read: {str(error).strip()}.") from None
    if len(frame) == 0:
        _empty(path)
    keep = [j for j in range(len(names)) if j != column]
    if not keep:
        raise ValueError(f"{path} has a target column {names[column]!r} but no feature column.")
    numeric = [pandas.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]
    if frame.shape[1] != len(names) or not all(numeric[j] for j in keep) or frame.isna().to_numpy().any():
        _explain_delimited(path, separator, names, has_header, column)
        raise ValueError(f"{path} holds missing values or columns that are not numbers.")
    X = np.ascontiguousarray(frame.iloc[:, keep].to_numpy(dtype=np.float64))
    if not np.isfinite(X).all():
        _explain_delimited(path, separator, names, has_header, column)
    labels = frame.iloc[:, column]
    y = labels.to_numpy(dtype=np.float64) if numeric[column] else labels.to_numpy(dtype=str)
    return X, y, tuple(names[j] for j in keep), names[column]


def _rows(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the number of their last line."""
    try:
        with open_text(path) as stream:
            reader = csv.reader(stream, delimiter=separator, skipinitialspace=True)
            for row in reader:
                if any(field.strip() for field in row):
                    yield reader.line_num, [field.strip() for field in row]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file (byte {error.start} is not UTF-8).") from None
    except (gzip.BadGzipFile, EOFError, OSError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None


def _header(path: Path, separator: str) -> tuple[list[str], bool]:
    rows = _rows(path, separator)
    _, first = next(rows, (0, None))
    if first is None:
        _empty(path)
    bare = [f"x{j}" for j in range(len(first))]
    if all(_is_number(field) for field in first):
        return bare, False
    second = next(rows, (0, None))[1]
    # A first row with class names in it is data, not a header, when it holds numbers wherever the next does.
    if second is not None and any(map(_is_number, first)) and len(first) == len(second):
        same = all(_is_number(a) == _is_number(b) for a, b in zip(first, second, strict=True))
        if same:
            return bare, False
    repeated = {name for name in first if first.count(name) > 1}
    if repeated:
        raise ValueError(f"{path}, line 1: the column name {min(repeated)!r} occurs more than once.")
    return first, True


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _target_column(path: Path, names: list[str], has_header: bool, target: str | int | None) -> int:
    if target is None:
        known = [j for j, name in enumerate(names) if name.lower() in TARGET_NAMES]
        return known[0] if has_header and len(known) == 1 else len(names) - 1
    if isinstance(target, str) and target in names and has_header:
        return names.index(target)
    try:
        number = int(target)
    except ValueError:
        listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise ValueError(f"target must be a column of {path} ({listed}), got {target!r}.") from None
    if not -len(names) <= number < len(names):
        raise ValueError(f"target must be a column number below {len(names)} of {path}, got {number}.")
    return number % len(names)


def _explain_delimited(path: Path, separator: str, names: list[str], has_header: bool, target: int) -> None:
    """Raise the error of the first bad line, if one is found."""
    text_target: int | None = None
    for count, (line, row) in enumerate(_rows(path, separator)):
        if count == 0 and has_header:
            continue
        if len(row) != len(names):
            raise ValueError(f"{path}, line {line}: {len(row)} fields where the first line has {len(names)}.")
        for j, field in enumerate(row):
            where = f"{path}, line {line}, column {names[j]!r}:"
            if field == "":
                raise ValueError(f"{where} missing value.")
            if j == target and not _is_number(field):
                text_target = line
            elif not _is_finite(field) and not (j == target and text_target):
                kind = "is not finite" if _is_number(field) else "is not a number"
                raise ValueError(f"{where} {field!r} {kind}; features must be numbers.")


# -- npz ----------------------------------------------------------------------------------------------------


def read_npz(path: Path, target: str | int | None) -> Columns:
    """Arrays ``X`` and ``y`` of an npz archive as (features, targets, names, target name)."""
    if isinstance(target, int):
        raise ValueError(f"target must be the name of an array for an npz file, got {target!r}.")
    y_name = "y" if target is None else target
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an npz archive: {error}.") from None
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError(f"{path} holds one bare array; an npz archive with arrays X and {y_name} is needed.")
    with archive:
        X = _member(path, archive, "X")
        y = _member(path, archive, y_name)
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(f"{path}: X must be a real matrix, got shape {X.shape} of {X.dtype}.")
    if y.ndim != 1 or y.dtype.kind not in "fiubU":
        raise ValueError(
            f"{path}: {y_name} must be a vector of numbers or strings, got {y.shape} of {y.dtype}."
        )
    if X.shape[0] != y.shape[0]:
        raise ValueError(f"{path}: X has {X.shape[0]} rows but {y_name} has {y.shape[0]} entries.")
    if X.shape[0] == 0 or X.shape[1] == 0:
        _empty(path)
    X = np.ascontiguousarray(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float64)
    if not np.isfinite(X).all():
        raise ValueError(f"{path}: X is not finite in row {np.flatnonzero(~np.isfinite(X).all(axis=1))[0]}.")
    if y.dtype.kind != "U":
        y = y.astype(np.float64)
        if not np.isfinite(y).all():
            raise ValueError(f"{path}: {y_name} is not finite in row {np.flatnonzero(~np.isfinite(y))[0]}.")
    return X, y, tuple(f"x{j}" for j in range(X.shape[1])), y_name


def _member(path: Path, archive: Any, name: str) -> np.ndarray:
    if name not in archive.files:
        raise ValueError(f"{path} has no array {name!r}; it has {', '.join(archive.files) or 'none'}.")
    try:
        return archive[name]
    except ValueError as error:
        if "llow_pickle" in str(error) or "bject" in str(error):
            raise ValueError(f"{path}: array {name!r} holds Python objects, which are not loaded.") from None
        raise ValueError(f"{path}: array {name!r} cannot be read: {error}.") from None
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: array {name!r} cannot be read: {error}.") from None
