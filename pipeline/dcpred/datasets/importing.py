"""Data files into Zarr: a group with the array X (n_samples, n_features) and, for data with a target, y
(n_samples,).

Every format is read as a `Table` (table.py), which a writer cuts into chunks. Text finds its dtypes in a
first pass; Parquet and NumPy files keep theirs. Memory is bounded by a chunk and a batch, whatever the size
of the file.

    group attributes   dcpred_dataset: 1, the version of this layout; source: the name of the file
    X attributes       feature_names, from .csv and .parquet
    y attributes       labels, where the target is made of strings: sorted, and y holds positions in them
    dimension names    sample, feature: xarray.open_zarr opens the group
"""

import csv
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zarr

from dcpred.datasets.csv_reader import read_csv
from dcpred.datasets.not_finite import NotFinite, NotFiniteSurvey
from dcpred.datasets.parquet_numpy import read_npy, read_npz, read_parquet
from dcpred.datasets.store_files import CLAIM, GROUP_FILE, local_source, new_data_set, temporary_folder
from dcpred.datasets.svmlight import read_svmlight
from dcpred.datasets.table import Batch, Table, damaged
from dcpred_tasks.errors import DataError, ResourceError, SettingsError
from dcpred_tasks.storage.addresses import check_writable
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS
from dcpred_tasks.storage.place import Folder, Place, open_place
from dcpred_tasks.storage.zarr_arrays import DATA_DIMENSIONS, create_array

DATASET_VERSION = 1
CHUNK_BYTES = 8 * 2**20  # bytes of a chunk of X, before compression
CHUNK_MULTIPLE = 1024  # rows: longer chunks are a multiple of it
SVMLIGHT = (".svm", ".libsvm", ".svmlight")
SUFFIXES = (".csv", *SVMLIGHT, ".parquet", ".npy", ".npz")
COMPRESSED = (".gz", ".bz2")  # endings of compressed text
DAMAGE = (pa.ArrowInvalid, csv.Error, UnicodeDecodeError, zipfile.BadZipFile, zlib.error, EOFError)
# The formats that each option is for.
OPTIONS = {"x": (".npz",), "y": (".npz",), "target": (".csv", ".parquet"), "features": SVMLIGHT}


@dataclass(frozen=True)
class Imported:
    """What was written."""

    path: str
    n_samples: int
    n_features: int
    dtype: str
    chunk_rows: int
    """Rows of a chunk of X and y."""
    target: str | None
    """The array that holds the target, "y"; None without a target."""
    target_dtype: str | None
    n_classes: int | None
    """Classes of a target of strings, else None."""
    not_finite: NotFinite
    """Rows that training will refuse."""


def import_data(
    source: str,
    dest: str,
    *,
    x: str | None = None,
    y: str | None = None,
    target: str | None = None,
    chunk_rows: int | None = None,
    features: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Imported:
    """Write the file `source` to the new Zarr group `dest`, which appears when it is complete, or not at all.

    x, y        names of arrays in an .npz file: X and y unless given, and y need not be there unless given
    target      name of the column of a .csv or .parquet file that becomes y; without it there is no y
    chunk_rows  rows of a chunk: about 8 MiB of X unless given, and never more than there are
    features    of an svmlight file, where its rows do not use the last ones of the data it belongs to
    progress    called with (rows written, rows in all)

    The label of each line of an svmlight file becomes y. NaN and infinity are taken as they are, and counted.
    Raises DataError for what cannot be imported exactly, and ResourceError for a full disk or a missing
    permission.
    """
    check_writable(dest, "data")
    place = open_place(dest)
    if chunk_rows is not None and chunk_rows < 1:
        raise SettingsError(
            f"chunk_rows must be 1 or more, but is {chunk_rows}; leave it out for about 8 MiB a chunk"
        )
    _check_place(place)
    with local_source(source) as path, _reading(path), temporary_folder(place) as scratch:
        suffix = _check_source(path)
        _check_options(path.name, suffix, {"x": x, "y": y, "target": target, "features": features})
        if suffix in SVMLIGHT:
            table = read_svmlight(path, features)
        elif suffix in OPTIONS["target"]:
            table = read_csv(path, target) if suffix == ".csv" else read_parquet(path, target)
        else:
            table = read_npy(path) if suffix == ".npy" else read_npz(path, x, y, scratch)
        rows = min(chunk_rows or default_chunk_rows(table.n_features, table.dtype.itemsize), table.n_samples)
        told = {"dcpred_dataset": DATASET_VERSION, "source": path.name}
        with new_data_set(place, told) as group:
            not_finite = _write(table, group, path.name, rows, progress)
            _check_place(place)
    return Imported(
        path=dest,
        n_samples=table.n_samples,
        n_features=table.n_features,
        dtype=str(table.dtype),
        chunk_rows=rows,
        target=None if table.target_dtype is None else "y",
        target_dtype=None if table.target_dtype is None else str(table.target_dtype),
        n_classes=None if table.labels is None else len(table.labels),
        not_finite=not_finite,
    )


def default_chunk_rows(n_features: int, itemsize: int) -> int:
    """Rows in about 8 MiB; whole multiples of 1,024 where they are more."""
    rows = max(CHUNK_BYTES // (n_features * itemsize), 1)
    return rows if rows < CHUNK_MULTIPLE else rows // CHUNK_MULTIPLE * CHUNK_MULTIPLE


# -- Before anything is read ---------------------------------------------------------------------------------


def _check_place(place: Place) -> None:
    if isinstance(place, Folder):
        taken = os.path.lexists(place.address)
    else:
        names = place.names("")
        taken = GROUP_FILE in names or (bool(names) and CLAIM not in names)
    if taken:
        raise DataError(
            f"data were to be imported into {place.address}, but that exists; remove it or name another place"
        )


def _check_source(path: Path) -> str:
    """The suffix that names the format of a file that is there and not empty."""
    name = Path(path.name.lower())
    packed = name.suffix in COMPRESSED
    suffix = Path(name.stem).suffix if packed else name.suffix
    if suffix not in SUFFIXES or (packed and suffix not in (".csv", *SVMLIGHT)):
        raise DataError(
            f"{path} was to be imported, but its name has no known ending; name it {', '.join(SUFFIXES)}, and"
            " if it is text and compressed, .gz or .bz2 after that"
        )
    if not path.is_file():
        so = "is a directory" if path.is_dir() else "does not exist"
        raise DataError(f"{path} was to be imported, but it {so}; name a file on this machine")
    if path.stat().st_size == 0:
        raise DataError(f"{path} was to be imported, but it is empty; name a file with data")
    return suffix


def _check_options(name: str, suffix: str, options: dict[str, str | int | None]) -> None:
    advice = {
        ".npy": "save X and y together with numpy.savez, and import the .npz file",
        ".npz": "name its arrays with --x and --y",
    } | dict.fromkeys(OPTIONS["target"], "name a column with --target")
    for option, value in options.items():
        if value is not None and suffix not in OPTIONS[option]:
            do = advice.get(suffix, "leave it out: the label of each line becomes y")
            kinds = " and ".join(OPTIONS[option])
            raise DataError(f"--{option} {value} is for {kinds} files, but the source is {name}; {do}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What libraries raise about a file that is damaged or may not be read, in our words."""
    try:
        yield
    except (OSError, *DAMAGE) as error:
        number = getattr(error, "errno", None)  # errors of decompressors have none
        if number in RESOURCE_ERRNOS:
            raise ResourceError(f"reading {path} failed: {error}; get permission, then run again") from error
        if number is not None:
            raise
        raise damaged(path, error) from error


# -- Writing -------------------------------------------------------------------------------------------------


def _write(
    table: Table,
    group: zarr.Group,
    source: str,
    chunk_rows: int,
    progress: Callable[[int, int | None], None] | None,
) -> NotFinite:
    """Write all chunks; returns which rows were not finite."""
    n = table.n_samples
    X = _new_array(group, "X", (n, table.n_features), table.dtype, chunk_rows, "feature_names", table.names)
    y = None
    if table.target_dtype is not None:
        y = _new_array(group, "y", (n,), table.target_dtype, chunk_rows, "labels", table.labels)
    survey, done = NotFiniteSurvey(table.n_features, table.names), 0
    for rows, targets in _chunks(table, chunk_rows):
        start, done = done, done + len(rows)
        if done > n:
            break
        X[start:done] = rows
        if y is not None and targets is not None:
            y[start:done] = targets
        survey.add(start, rows, targets)
        if progress is not None:
            progress(done, n)
    if done != n:
        raise DataError(
            f"{source} had {n:,} rows at first, and then not; import it when nothing writes to it"
        )
    return survey.found()


def _new_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chunk_rows: int,
    attribute: str,
    strings: tuple[str, ...] | None,
) -> zarr.Array[Any]:
    # A chunk of floats that is lost must not read as data.
    fill_value = np.nan if dtype.kind == "f" else dtype.type(0)
    attributes = None if strings is None else {attribute: list(strings)}
    names = DATA_DIMENSIONS[: len(shape)]
    return create_array(
        group, name, shape, dtype, chunk_rows, fill_value=fill_value, attributes=attributes, dimensions=names
    )


def _chunks(table: Table, chunk_rows: int) -> Iterator[Batch]:
    """Rows in chunks of `chunk_rows`, the last one shorter; each is overwritten by the next."""
    X = np.empty((chunk_rows, table.n_features), table.dtype)
    y = None if table.target_dtype is None else np.empty(chunk_rows, table.target_dtype)
    held = 0
    for rows, targets in table.batches(chunk_rows):
        first = 0
        while first < len(rows):
            n = min(chunk_rows - held, len(rows) - first)
            X[held : held + n] = rows[first : first + n]
            if y is not None and targets is not None:
                y[held : held + n] = targets[first : first + n]
            held, first = held + n, first + n
            if held == chunk_rows:
                yield X, y
                held = 0
    if held:
        yield X[:held], None if y is None else y[:held]
