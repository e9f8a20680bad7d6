"""Data files into Zarr: a group with the arrays X (n_samples, n_features) and, where there is a target, y (n_samples,).

Every format is read as a `Table` (readers.py), which a writer cuts into chunks. Text finds its dtypes in a first pass;
Parquet and NumPy files keep theirs. Memory is bounded by a chunk and a batch, whatever the size of the file.

    group attributes   dcpred_dataset: 1, the version of this layout; source: the name of the file
    X attributes       feature_names, from .csv and .parquet
    y attributes       labels, where the target is made of strings: sorted, and y holds positions in them
"""

import csv
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray

from dcpred.readers import (
    EXACT_LIMIT,
    Batch,
    Table,
    TargetSurvey,
    arrow_values,
    first_rounded,
    label_dtype,
    no_rows,
    read_csv,
    read_svmlight,
    rounded,
    side_by_side,
    split_columns,
    target_values,
)
from dcpred_tasks.errors import DataError, ResourceError, SettingsError
from dcpred_tasks.files import RESOURCE_ERRNOS, new_directory, resource_errors
from dcpred_tasks.predictor import check_matrix
from dcpred_tasks.store import create_array, create_group, local_path

DATASET_VERSION = 1
CHUNK_BYTES = 8 * 2**20  # of X, before compression
CHUNK_MULTIPLE = 1024  # of rows
BATCH_VALUES = 2**21  # of a Parquet file: 16 MiB of float64
SURVEY_ROWS = 2**20  # of y in a NumPy file
SVMLIGHT = (".svm", ".libsvm", ".svmlight")
SUFFIXES = (".csv", *SVMLIGHT, ".parquet", ".npy", ".npz")
COMPRESSED = (".gz", ".bz2")  # for the text formats
DAMAGE = (pa.ArrowInvalid, csv.Error, UnicodeDecodeError, zipfile.BadZipFile, zlib.error, EOFError)
OPTIONS = {"x": (".npz",), "y": (".npz",), "target": (".csv", ".parquet")}  # the formats that have them


@dataclass(frozen=True)
class Imported:
    """What was written."""

    path: str
    n_samples: int
    n_features: int
    dtype: str
    chunk_rows: int
    target: str | None  # the array that holds it: "y"
    target_dtype: str | None
    n_classes: int | None  # where the target is made of strings


def import_data(
    source: str,
    dest: str,
    *,
    x: str | None = None,
    y: str | None = None,
    target: str | None = None,
    chunk_rows: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Imported:
    """Write the file `source` to the new Zarr group `dest`, which appears when it is complete, or not at all.

    x, y        names of arrays in an .npz file: X and y unless given, and y need not be there unless given
    target      name of the column of a .csv or .parquet file that becomes y; without it there is no y
    chunk_rows  rows of a chunk: about 8 MiB of X unless given, and never more than there are
    progress    called with (rows written, rows in all)

    The label of each line of an svmlight file becomes y. Raises DataError for what cannot be imported exactly, and
    ResourceError for a full disk or a missing permission.
    """
    path, place = Path(local_path(source)), Path(local_path(dest))
    if chunk_rows is not None and chunk_rows < 1:
        raise SettingsError(f"chunk_rows must be 1 or more, but is {chunk_rows}; leave it out for about 8 MiB a chunk")
    _check_place(place)
    suffix = _check_source(path)
    _check_options(path.name, suffix, {"x": x, "y": y, "target": target})
    with _reading(path), _scratch(place) as scratch:
        if suffix in SVMLIGHT:
            table = read_svmlight(path)
        elif suffix in OPTIONS["target"]:
            table = read_csv(path, target) if suffix == ".csv" else read_parquet(path, target)
        else:
            table = read_npy(path) if suffix == ".npy" else read_npz(path, x, y, scratch)
        rows = min(chunk_rows or default_chunk_rows(table.n_features, table.dtype.itemsize), table.n_samples)
        with new_directory(place) as partial:
            _write(table, partial, path.name, rows, progress)
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
    )


def default_chunk_rows(n_features: int, itemsize: int) -> int:
    """Rows in about 8 MiB; whole multiples of 1,024 where they are more."""
    rows = max(CHUNK_BYTES // (n_features * itemsize), 1)
    return rows if rows < CHUNK_MULTIPLE else rows // CHUNK_MULTIPLE * CHUNK_MULTIPLE


# -- Before anything is read ------------------------------------------------------------------------------------------


def _check_place(place: Path) -> None:
    if ":/" in str(place):
        raise DataError(f"data were to be imported into {place}, but only local directories are written; name one")
    if os.path.lexists(place):
        raise DataError(f"data were to be imported into {place}, but that exists; remove it or name another place")


def _check_source(path: Path) -> str:
    """The suffix that names the format of a file that is there and not empty."""
    name = Path(path.name.lower())
    packed = name.suffix in COMPRESSED
    suffix = Path(name.stem).suffix if packed else name.suffix
    if suffix not in SUFFIXES or (packed and suffix not in (".csv", *SVMLIGHT)):
        raise DataError(
            f"{path} was to be imported, but its name has no known ending; name it {', '.join(SUFFIXES)}, and if it is "
            "text and compressed, .gz or .bz2 after that"
        )
    if not path.is_file():
        so = "is a directory" if path.is_dir() else "does not exist"
        raise DataError(f"{path} was to be imported, but it {so}; name a file on this machine")
    if path.stat().st_size == 0:
        raise DataError(f"{path} was to be imported, but it is empty; name a file with data")
    return suffix


def _check_options(name: str, suffix: str, options: dict[str, str | None]) -> None:
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
        number = getattr(error, "errno", None)  # of the system's errors; those of decompressors have none
        if number in RESOURCE_ERRNOS:
            raise ResourceError(f"reading {path} failed: {error}; get permission, then run again") from error
        if number is not None:
            raise
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    so = f"it is damaged or of another format ({error})"
    return DataError(f"{path} was to be imported, but {so}; get it again or rename it")


@contextmanager
def _scratch(place: Path) -> Iterator[Path]:
    """A directory beside `place` while the block runs: a place that cannot be written to shows before a long pass."""
    beside = next(parent for parent in place.absolute().parents if parent.exists())
    with resource_errors(place):
        folder = tempfile.TemporaryDirectory(prefix=f"{place.name}.partial-", dir=beside)
    with folder:
        yield Path(folder.name)


# -- Writing ----------------------------------------------------------------------------------------------------------


def _write(table: Table, partial: Path, source: str, chunk_rows: int, progress: Callable[[int, int | None], None] | None) -> None:
    group = create_group(partial, {"dcpred_dataset": DATASET_VERSION, "source": source})
    n = table.n_samples
    X = _new_array(group, "X", (n, table.n_features), table.dtype, chunk_rows, "feature_names", table.names)
    y = None
    if table.target_dtype is not None:
        y = _new_array(group, "y", (n,), table.target_dtype, chunk_rows, "labels", table.labels)
    done = 0
    for rows, targets in _chunks(table, chunk_rows):
        start, done = done, done + len(rows)
        if done > n:
            break
        X[start:done] = rows
        if y is not None and targets is not None:
            y[start:done] = targets
        if progress is not None:
            progress(done, n)
    if done != n:
        raise DataError(f"{source} had {n:,} rows at first, and then not; import it when nothing writes to it")


def _new_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chunk_rows: int,
    attribute: str,
    strings: tuple[str, ...] | None,
) -> zarr.Array[Any]:
    fill_value = np.nan if dtype.kind == "f" else dtype.type(0)  # a float chunk that is lost must not read as data
    attributes = None if strings is None else {attribute: list(strings)}
    return create_array(group, name, shape, dtype, chunk_rows, fill_value=fill_value, attributes=attributes)


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


# -- Parquet ----------------------------------------------------------------------------------------------------------


def read_parquet(path: Path, target: str | None) -> Table:
    """X has the common dtype of the feature columns; a null makes it a float dtype, where it is NaN.

    An index that pandas stored is no feature. There is no y without `target`. Memory grows with the row groups.
    """
    with pq.ParquetFile(path) as file:
        n_samples, schema = file.metadata.num_rows, file.schema_arrow
    if n_samples == 0:
        raise no_rows(path)
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    held = [name for name in schema.names if name not in index or name == target]
    names = [held[i] for i in split_columns(path, held, target)[0]]
    dtypes = [_parquet_dtype(path, name, schema.field(name).type) for name in names]
    target_dtype = None
    if target is not None and not _is_text(schema.field(target).type):
        target_dtype = _parquet_dtype(path, target, schema.field(target).type)
    has_nulls, inexact, labels = _survey_parquet(path, names, target)
    dtype = np.result_type(*dtypes)
    if has_nulls and dtype.kind != "f":
        dtype = np.result_type(dtype, np.float32)
    if dtype.kind == "f" and inexact:
        raise rounded(*inexact[0])

    def batches(_rows: int) -> Iterator[Batch]:
        for columns in _parquet_batches(path, names, target):
            y = None if target is None else target_values(columns[target], labels)
            yield side_by_side([columns[name] for name in names], dtype), y

    target_dtype = label_dtype(labels) if labels else target_dtype
    return Table(n_samples, len(names), dtype, target_dtype, labels, tuple(names), batches)


def _survey_parquet(
    path: Path, names: list[str], target: str | None
) -> tuple[bool, list[tuple[str, int]], tuple[str, ...] | None]:
    """Whether integers or booleans have nulls, (where, integer) that float64 would round, and labels."""
    has_nulls, inexact = False, list[tuple[str, int]]()
    survey = TargetSurvey(f"column {target!r} of {path.name}")
    for columns in _parquet_batches(path, names, target):
        for name in names:
            if not pa.types.is_floating(columns[name].type):
                has_nulls = has_nulls or columns[name].null_count > 0
                values = arrow_values(columns[name].drop_null())
                wide = values[(values > EXACT_LIMIT) | (values < -EXACT_LIMIT)]
                value = None if inexact else first_rounded(wide.tolist())
                if value is not None:
                    inexact.append((f"column {name!r} of {path.name}", value))
        if target is not None:
            survey.add(columns[target])
    return has_nulls, inexact, survey.labels


def _parquet_batches(path: Path, names: list[str], target: str | None) -> Iterator[dict[str, Any]]:
    columns = names if target is None else [*names, target]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(max(BATCH_VALUES // len(columns), 1), columns=columns, use_threads=False):
            held = {name: batch.column(name) for name in columns}
            yield {name: c.cast(pa.string()) if _is_text(c.type) else c for name, c in held.items()}


def _is_text(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _parquet_dtype(path: Path, name: str, kind: Any) -> np.dtype[Any]:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    with pq.ParquetFile(path) as file:
        example = next(file.iter_batches(1, columns=[name])).column(0)[0].as_py()
    raise DataError(
        f"column {name!r} of {path.name} must hold numbers, but its type is {kind}, with values as {example!r}; "
        "convert it, remove it, or make it the target if it holds labels"
    )


# -- NumPy ------------------------------------------------------------------------------------------------------------


def read_npy(path: Path) -> Table:
    """One matrix, memory-mapped."""
    with path.open("rb") as file:
        _check_features(path.name, *_header(path.name, file))
    return _numpy_table(path, path, None, "")


def read_npz(path: Path, x: str | None, y: str | None, scratch: Path) -> Table:
    """Two arrays, unpacked in the directory `scratch` and memory-mapped, so that any memory order will do."""
    with zipfile.ZipFile(path) as archive:
        held = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        chosen = {"x": x or "X", "y": y or ("y" if "y" in held else None)}
        where = {option: f"array {name!r} of {path.name}" for option, name in chosen.items()}
        for option, name in chosen.items():
            if name is not None and name not in held:
                raise DataError(
                    f"array {name!r} was to become {option}, but {path.name} holds {', '.join(held) or 'no arrays'}; "
                    f"pass --{option} with the name of one of them"
                )
        with archive.open(f"{chosen['x']}.npy") as file:
            n_samples = _check_features(where["x"], *_header(where["x"], file))
        if chosen["y"] is not None:
            with archive.open(f"{chosen['y']}.npy") as file:
                _check_target(where["y"], n_samples, *_header(where["y"], file))
        with resource_errors(scratch):
            files = [None if n is None else Path(archive.extract(f"{n}.npy", scratch)) for n in chosen.values()]
    return _numpy_table(path, cast(Path, files[0]), files[1], where["y"])


def _header(where: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an array that NumPy saved."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except ValueError as error:
        raise DataError(f"{where} was to be read as a NumPy array, but is none ({error}); save it again") from None
    return shape, dtype


def _check_features(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The number of rows of what can be X."""
    try:
        check_matrix(shape, dtype)
    except DataError as error:
        raise DataError(f"{where} was to become X: {error}") from None
    if 0 in shape or dtype.itemsize > 8:
        so = f"its shape is {shape}" if 0 in shape else f"its dtype is {dtype}"
        raise DataError(f"{where} was to become X, but {so}; it needs rows, features and at most 64 bits per number")
    return shape[0]


def _check_target(where: str, n_samples: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biufUS" or (dtype.kind == "f" and dtype.itemsize > 8):
        raise DataError(f"{where} was to become y, but its dtype is {dtype}; convert it to real numbers or strings")
    if shape != (n_samples,):
        raise DataError(
            f"{where} was to become y, one value for each of the {n_samples:,} rows of X, but its shape is {shape}; "
            "pass another or reshape it"
        )


def _numpy_table(path: Path, x_file: Path, y_file: Path | None, y_where: str) -> Table:
    try:
        X = np.load(x_file, mmap_mode="r")
        y = np.load(y_file, mmap_mode="r") if y_file else np.empty(0)
    except ValueError as error:
        raise _damaged(path, error) from None
    survey = TargetSurvey(y_where)
    for start in range(0, len(y), SURVEY_ROWS):
        survey.add(_as_arrow(y[start : start + SURVEY_ROWS]))
    labels = survey.labels

    def batches(rows: int) -> Iterator[Batch]:
        for start in range(0, len(X), rows):
            here = slice(start, start + rows)
            yield X[here], target_values(_as_arrow(y[here]), labels) if y_file else None

    target_dtype = label_dtype(labels) if labels else y.dtype.newbyteorder("=") if y_file else None
    return Table(X.shape[0], X.shape[1], X.dtype.newbyteorder("="), target_dtype, labels, None, batches)


def _as_arrow(values: NDArray[Any]) -> Any:
    text = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
    return pa.array(np.asarray(text, text.dtype.newbyteorder("=")))
