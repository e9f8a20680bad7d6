"""Readers of files that know their dtypes: Parquet, .npy and .npz. Each gives a `Table` (table.py)."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dcpred.datasets.table import (
    EXACT_LIMIT,
    Batch,
    Table,
    TargetSurvey,
    arrow_values,
    damaged,
    first_rounded,
    label_dtype,
    no_rows,
    rounded,
    side_by_side,
    split_columns,
    target_values,
)
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import check_matrix
from dcpred_tasks.storage.atomic_files import resource_errors

BATCH_VALUES = 2**21  # values of a Parquet file read at once: 16 MiB of float64
SURVEY_ROWS = 2**20  # rows of y in a NumPy file surveyed at once


# -- Parquet -------------------------------------------------------------------------------------------------


def read_parquet(path: Path, target: str | None) -> Table:
    """X has the common dtype of the feature columns; a null makes it a float dtype, where it is NaN.

    An index that pandas stored is no feature. There is no y without `target`. Memory grows with the row
    groups.
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
        for batch in file.iter_batches(
            max(BATCH_VALUES // len(columns), 1), columns=columns, use_threads=False
        ):
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
        f"column {name!r} of {path.name} must hold numbers, but its type is {kind}, with values as"
        f" {example!r}; convert it, remove it, or make it the target if it holds labels"
    )


# -- NumPy ---------------------------------------------------------------------------------------------------


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
                    f"array {name!r} was to become {option}, but {path.name} holds"
                    f" {', '.join(held) or 'no arrays'}; pass --{option} with the name of one of them"
                )
        with archive.open(f"{chosen['x']}.npy") as file:
            n_samples = _check_features(where["x"], *_header(where["x"], file))
        if chosen["y"] is not None:
            with archive.open(f"{chosen['y']}.npy") as file:
                _check_target(where["y"], n_samples, *_header(where["y"], file))
        with resource_errors(scratch):
            files = [
                None if n is None else Path(archive.extract(f"{n}.npy", scratch)) for n in chosen.values()
            ]
    return _numpy_table(path, cast(Path, files[0]), files[1], where["y"])


def _header(where: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an array that NumPy saved."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    except ValueError as error:
        raise DataError(
            f"{where} was to be read as a NumPy array, but is none ({error}); save it again"
        ) from None
    return shape, dtype


def _check_features(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The number of rows of what can be X."""
    try:
        check_matrix(shape, dtype)
    except DataError as error:
        raise DataError(f"{where} was to become X: {error}") from None
    if 0 in shape or dtype.itemsize > 8:
        so = f"its shape is {shape}" if 0 in shape else f"its dtype is {dtype}"
        raise DataError(
            f"{where} was to become X, but {so}; it needs rows, features and at most 64 bits per number"
        )
    return shape[0]


def _check_target(where: str, n_samples: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biufUS" or (dtype.kind == "f" and dtype.itemsize > 8):
        raise DataError(
            f"{where} was to become y, but its dtype is {dtype}; convert it to real numbers or strings"
        )
    if shape != (n_samples,):
        raise DataError(
            f"{where} was to become y, one value for each of the {n_samples:,} rows of X, but its shape is"
            f" {shape}; pass another or reshape it"
        )


def _numpy_table(path: Path, x_file: Path, y_file: Path | None, y_where: str) -> Table:
    try:
        X = np.load(x_file, mmap_mode="r")
        y = np.load(y_file, mmap_mode="r") if y_file else np.empty(0)
    except ValueError as error:
        raise damaged(path, error) from None
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
