"""The columns of a table of scores, and its writer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import zarr

from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError, doubled
from dcpred_tasks.scoring.outputs import STATUS, OutputColumn, StatusArray, Values

ROW, STATUS_NAME = "row", "status_name"
MADE_HERE = (ROW, STATUS_NAME)  # computed columns, present only on request
# Size of a row group of Parquet or a batch of Arrow, unless fewer rows take GROUP_BYTES.
GROUP_ROWS = 2**17
GROUP_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Rows:
    """Rows of a run, the input of its fields."""

    start: int
    """Number of the first row."""
    values: Values
    """Output columns by name."""
    status: StatusArray


@dataclass(frozen=True)
class Field:
    """One column of a table from a run."""

    name: str
    type: pa.DataType
    make: Callable[[Rows], pa.Array]
    needs: str = ""
    """Its output column; "" for none."""


def run_fields(
    output: str, columns: Sequence[OutputColumn], arrays: Mapping[str, zarr.Array[Any]]
) -> dict[str, Field]:
    """Every possible column of a run by name: row, those of its outputs, status, status_name."""
    fields = [Field(ROW, pa.int64(), _row_numbers)]
    for column in columns:
        if column is not STATUS:
            fields += _output_fields(column, arrays[column.name])
    fields.append(Field(STATUS.name, pa.uint8(), lambda rows: pa.array(rows.status)))
    fields.append(Field(STATUS_NAME, pa.string(), _status_names))
    names = [field.name for field in fields]
    if twice := doubled(names):
        raise DataError(
            f"Cannot make columns of {output}: two of them would be called {twice}. Name"
            " the others with --columns."
        )
    return {field.name: field for field in fields}


def _row_numbers(rows: Rows) -> pa.Array:
    return pa.array(np.arange(rows.start, rows.start + len(rows.status), dtype=np.int64))


def _status_names(rows: Rows) -> pa.Array:
    names = np.full(256, "", object)
    names[list(Status)] = [status.name.lower() for status in Status]
    return pa.array(names[rows.status], pa.string())


def _output_fields(column: OutputColumn, array: zarr.Array[Any]) -> list[Field]:
    """The columns of one output array; rows whose status is not 1 have no value."""
    name = column.name
    names = texts(array.attrs.get("labels"))
    if names is not None and array.ndim == 1:
        return [Field(name, pa.string(), partial(_named, name, names), name)]
    kind = pa.from_numpy_dtype(array.dtype)
    if array.ndim == 1:
        return [Field(name, kind, partial(_numbers, name, None), name)]
    suffixes = column.numbers(array.attrs, array.shape[1]) or range(array.shape[1])
    return [
        Field(f"{name}_{suffix}", kind, partial(_numbers, name, number), name)
        for number, suffix in enumerate(suffixes)
    ]


def texts(value: Any) -> tuple[str, ...] | None:
    """An attribute that lists names; None for anything else."""
    is_names = isinstance(value, list) and value and all(isinstance(text, str) for text in value)
    return tuple(value) if is_names else None


def _numbers(name: str, at: int | None, rows: Rows) -> pa.Array:
    values = rows.values[name] if at is None else np.ascontiguousarray(rows.values[name][:, at])
    return pa.array(values, mask=rows.status != Status.OK)


def _named(name: str, names: tuple[str, ...], rows: Rows) -> pa.Array:
    numbers, good = rows.values[name], rows.status == Status.OK
    if not (good <= ((numbers >= 0) & (numbers < len(names)))).all():
        row = rows.start + int(np.flatnonzero(good & ((numbers < 0) | (numbers >= len(names))))[0])
        raise DataError(
            f"Cannot name the {name} {numbers[row - rows.start]} of row {row:,}: there are only"
            f" {len(names):,} names. `dcpred verify` shows what is damaged."
        )
    return pa.array(names, pa.string()).take(pa.array(numbers.astype(np.int64), mask=~good))


class TableWriter:
    """Writes pieces of a table in the order of their rows, in large groups: each piece may have few."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer
        self.held: list[pa.Table] = []

    def write(self, piece: pa.Table) -> None:
        self.held.append(piece)
        if sum(map(len, self.held)) >= GROUP_ROWS or sum(p.nbytes for p in self.held) >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables(self.held).combine_chunks()
        self.held = []
        if len(table):
            self.writer.write_table(table)

    def close(self) -> None:
        if self.held:
            self._flush()
        self.writer.close()


def new_writer(sink: Any, ending: str, schema: pa.Schema) -> TableWriter:
    """A writer of a table to a path or an open file, in the format of an ending."""
    if ending == ".parquet":
        return TableWriter(pq.ParquetWriter(sink, schema, compression="zstd"))
    if ending == ".csv":
        return TableWriter(pa_csv.CSVWriter(sink, schema.remove_metadata()))
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    return TableWriter(pa.ipc.new_file(sink, schema, options=options))
