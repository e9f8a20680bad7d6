"""Files of a table, by the ending of their name. Each is written piece by piece, completely or not at
all.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import zarr

from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import absolute, check_writable, is_remote, local_path
from dcpred_tasks.storage.atomic_files import (
    PARTIAL,
    check_new_name,
    partial_name,
    publish_new,
    resource_errors,
    sync_directory,
)
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.place import Place, open_place
from dcpred_tasks.storage.zarr_arrays import consolidate, create_array, create_group

ENDINGS = (".parquet", ".csv", ".feather", ".arrow", ".zarr")
# Size of a row group of Parquet or a batch of Arrow, unless fewer rows take GROUP_BYTES; of a chunk of Zarr.
GROUP_ROWS = 2**17
GROUP_BYTES = 64 * 2**20


class TableWriter(Protocol):
    """A writer of pieces of a table in the order of their rows."""

    def write(self, piece: pa.Table) -> None: ...

    def close(self) -> None: ...


class _ArrowWriter:
    """Writers of pyarrow, which get large groups of rows: each piece may have few selected rows."""

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


class _ZarrWriter:
    """One array for each column, over the dimension "sample"; `missing` replaces missing values."""

    def __init__(self, path: Path, schema: pa.Schema, n_rows: int, missing: dict[str, Any]) -> None:
        attributes = {name.decode(): value.decode() for name, value in (schema.metadata or {}).items()}
        self.group = create_group(path, attributes)
        self.missing, self.done, self.n_rows = missing, 0, n_rows
        self.arrays = {field.name: self._array(field) for field in schema}
        self.held: list[pa.Table] = []

    def _array(self, field: pa.Field) -> zarr.Array[Any]:
        text = pa.types.is_string(field.type)
        dtype: Any = np.dtypes.StringDType() if text else np.dtype(field.type.to_pandas_dtype())
        fill = "" if text else self.missing.get(field.name)
        if fill is None:
            fill = np.full((), {"f": np.nan, "M": "NaT"}.get(dtype.kind, 0), dtype)[()]
        names = ("sample",)
        return create_array(
            self.group, field.name, (self.n_rows,), dtype, GROUP_ROWS, fill_value=fill, dimensions=names
        )

    def write(self, piece: pa.Table) -> None:
        """Whole chunks: none is written twice."""
        self.held.append(piece)
        table = pa.concat_tables(self.held).combine_chunks()
        whole = len(table) // GROUP_ROWS * GROUP_ROWS
        if whole:
            self._put(table.slice(0, whole))
        self.held = [table.slice(whole)]

    def _put(self, table: pa.Table) -> None:
        for name, array in self.arrays.items():
            column = table[name].combine_chunks()
            if column.null_count and array.dtype.kind != "M":  # Arrow itself writes NaT there.
                column = column.fill_null(array.fill_value)
            values = column.to_numpy(zero_copy_only=False)
            array[self.done : self.done + len(values)] = values.astype(array.dtype)
        self.done += len(table)

    def close(self) -> None:
        if self.held and len(self.held[0]):
            self._put(self.held[0])
        for array in self.arrays.values():
            if self.done != self.n_rows:
                array.resize((self.done,))
        consolidate(self.group)


def check_out(out: str | Path) -> Place | None:
    """Raise DataError unless a table can be written there. The place of an address on a store, else None."""
    check_writable(out, "scores")
    name = absolute(out).rpartition("/")[2]
    if not name.endswith(ENDINGS):
        raise DataError(
            f"Cannot export scores to {out}: its name has no known ending. End it with"
            f" {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}."
        )
    if is_remote(out):
        place = open_place(absolute(out).rpartition("/")[0])
        taken = name in place.names("")
    else:
        place, path = None, Path(local_path(out))
        taken = os.path.lexists(path)
        if not taken and not path.absolute().parent.is_dir():
            raise DataError(f"Cannot export scores to {out}: its folder does not exist. Make it first.")
        if not taken:
            check_new_name(path, PARTIAL)
    if taken:
        raise DataError(
            f"Cannot export scores to {out}: it already exists. Remove it or choose another path."
        )
    return place


@contextmanager
def new_table(
    out: str | Path, folder: Path, schema: pa.Schema, n_rows: int, missing: dict[str, Any]
) -> Iterator[TableWriter]:
    """A writer of a table, which gets its name when the `with` statement ends without an error.

    folder   for the temporary file: on the disk of `out`, if that is on one
    n_rows   maximum number of rows
    missing  the missing value in arrays of Zarr, by the name of the column
    """
    place = check_out(out)
    name = absolute(out).rpartition("/")[2]
    partial = partial_name(folder / name)
    try:
        with resource_errors(partial):
            writer = _writer(partial, Path(name).suffix, schema, n_rows, missing)
        yield writer
        with resource_errors(partial):
            writer.close()
            if place is None:
                _publish(partial, Path(local_path(out)))
            else:
                assert isinstance(place, Bucket)
                _send(place, name, partial)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def _writer(path: Path, ending: str, schema: pa.Schema, n_rows: int, missing: dict[str, Any]) -> TableWriter:
    if ending == ".zarr":
        return _ZarrWriter(path, schema, n_rows, missing)
    if ending == ".parquet":
        return _ArrowWriter(pq.ParquetWriter(path, schema, compression="zstd"))
    if ending == ".csv":
        return _ArrowWriter(pa_csv.CSVWriter(path, schema.remove_metadata()))
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    return _ArrowWriter(pa.ipc.new_file(path, schema, options=options))


def _publish(partial: Path, path: Path) -> None:
    """Give a complete table its name, if that is still free. Raises DataError."""
    if partial.is_file():
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
    try:
        publish_new(partial, path)
    except FileExistsError:
        raise DataError(
            f"Cannot export to {path}: another process created it meanwhile. Choose another path."
        ) from None
    sync_directory(path.absolute().parent)


def _send(place: Bucket, name: str, partial: Path) -> None:
    """The object that marks a group as present comes last."""
    if partial.is_file():
        place.send(name, partial)
        return
    files = sorted(path for path in partial.rglob("*") if path.is_file())
    last = partial / "zarr.json"
    for path in [*(path for path in files if path != last), last]:
        place.send(f"{name}/{path.relative_to(partial).as_posix()}", path)
