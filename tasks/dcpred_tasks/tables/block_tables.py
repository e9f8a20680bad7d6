"""The Parquet file of a block: ids, and the columns that `dcpred export` writes.

Two attempts at a block write the same bytes: rows keep their order and their groups, and nothing in the file
names the attempt, the process or the output.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray

from dcpred_tasks.artifacts.block_files import PARQUET, TABLE_FORMATS, Ids
from dcpred_tasks.artifacts.commit_records import ScoreRun, read_record
from dcpred_tasks.artifacts.repeats import Texts, hashes_of_ids
from dcpred_tasks.artifacts.trained_rows import Hashes
from dcpred_tasks.errors import DataError, MissingChunkError, SettingsError, doubled
from dcpred_tasks.scoring.outputs import STATUS, Values
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addresses import Address
from dcpred_tasks.storage.atomic_files import partial_name, sync_directory
from dcpred_tasks.storage.digests import digest, file_digest
from dcpred_tasks.storage.place import local_file
from dcpred_tasks.storage.store_requests import Retrying
from dcpred_tasks.tables.extra_columns import Beside, find_columns, stored_ids
from dcpred_tasks.tables.score_columns import MADE_HERE, ROW, Field, Rows, new_writer, run_fields

# Types that Delta tables lack, and those that hold the same values.
IN_DELTA = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def planned_ids(x: Address, ids: tuple[str, ...], n_rows: int) -> tuple[str, ...]:
    """The columns before the scores: the given ones, else the ids that import stored; empty: the numbers of
    rows. Raises DataError unless they exist.
    """
    names = ids or stored_ids(x)
    if names:
        find_columns(x, n_rows, None, names)
    return names


def table_schema(run: ScoreRun, fields: Iterable[Field], ids: Beside | None) -> pa.Schema:
    """The columns of the tables of a run. Raises SettingsError where two have one name."""
    kinds = [] if ids is None else [(name, ids.types()[name]) for name in ids.names]
    kinds += [(field.name, field.type) for field in fields]
    names = [name for name, _ in kinds]
    if twice := doubled(names):
        raise SettingsError(
            f"Cannot write Parquet files with two columns called {twice}: each needs its own name. Name other"
            " ids."
        )
    schema = pa.schema(kinds, metadata={"dcpred": json.dumps({"model_hash": run.model_hash})})
    return schema if run.delta is None else delta_schema(schema)


def score_fields(run: ScoreRun, arrays: Mapping[str, zarr.Array[Any]]) -> list[Field]:
    """The columns of the scores, after the numbers of rows where there are no ids."""
    fields = run_fields(run.output, run.columns, arrays)
    chosen = [name for name in fields if name not in MADE_HERE]
    return [fields[name] for name in ([] if run.ids else [ROW]) + chosen]


def _of_delta(kind: pa.DataType) -> pa.DataType:
    """The type of a column in a Delta table: numbers have a sign, instants microseconds (of UTC, if they
    have a zone), and times of day are text.
    """
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_time(kind):
        return pa.string()
    return IN_DELTA.get(kind, kind)


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a Parquet file with the types of a Delta table."""
    kinds = [(field.name, _of_delta(field.type)) for field in schema]
    return pa.schema(kinds, metadata={name: schema.metadata[name] for name in (b"dcpred",)})


def write_for_delta(path: Path, copy: Path) -> None:
    """Write the Parquet file of a block again, with the types of a Delta table. Raises DataError."""
    with pq.ParquetFile(path) as file:
        schema = delta_schema(file.schema_arrow)
        writer = new_writer(copy, TABLE_FORMATS[PARQUET].ending, schema)
        for batch in file.iter_batches():
            writer.write(pa.table([_cast(batch[field.name], field) for field in schema], schema=schema))
        writer.close()


def make_table(
    schema: pa.Schema, fields: Iterable[Field], rows: Rows, extra: Mapping[str, pa.Array]
) -> pa.Table:
    """A table of rows of a run: columns of their scores, and extra ones. Raises DataError."""
    columns = {**extra, **{field.name: field.make(rows) for field in fields}}
    return pa.table([_cast(columns[field.name], field) for field in schema], schema=schema)


class StoredIds:
    """The ids of a finished run, from its Parquet files, in place of `Beside`: the input may have gone."""

    def __init__(self, run: ScoreRun) -> None:
        self.run, self.data, self.names = run, str(run.x), run.ids
        self.block, self.table = 0, self._read(0)

    def types(self) -> dict[str, pa.DataType]:
        return dict(zip(self.names, self.table.schema.types, strict=True))

    def read(self, names: Iterable[str], start: int, stop: int) -> dict[str, pa.Array]:
        """The ids of some rows of one block. Raises DataError for a damaged file."""
        block = start // self.run.block_rows
        if block != self.block:
            self.block, self.table = block, self._read(block)
        rows = self.table.slice(start - self.run.rows(block)[0], stop - start)
        return {name: rows[name].combine_chunks() for name in self.names}

    def _read(self, block: int) -> pa.Table:
        run = self.run
        name, record = run.tables[PARQUET].file(block), read_record(run, block)
        with local_file(run.place, name) as path:
            facts = {} if record is None else record.files.get(PARQUET, {})
            if path is None or file_digest(path) != facts.get("digest"):
                raise DataError(
                    f"Cannot read {name} of {run.output}: it is missing or damaged. `dcpred verify` shows"
                    " what is damaged, and `dcpred score --repair` (in Python dcpred.repair) repairs it."
                )
            return pq.read_table(path, columns=list(self.names), partitioning=None).select(self.names)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column in the type of its field. Raises DataError for values that this type does not hold."""
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"Cannot write column {field.name!r} to a Delta table: {field.type} does not hold all its values"
            f" ({str(error).splitlines()[0]}). Name other ids, or convert that column."
        ) from None


def run_ids(run: ScoreRun) -> Beside | None:
    """The ids of a run; None for the numbers of rows. Raises DataError."""
    return find_columns(run.x, run.n_rows, None, run.ids, of=run.reading) if run.ids else None


class RowIds:
    """The ids of a run with tables, chunk by chunk; none where they are the numbers of rows."""

    def __init__(self, run: ScoreRun) -> None:
        self.reader = run_ids(run)
        self.columns: dict[str, pa.Array] = {}

    def read(self, start: int, stop: int) -> None:
        """Read the ids of rows. Raises MissingChunkError, DamagedChunkError."""
        if self.reader is None:
            return
        for array in self.reader.arrays.values():
            missing = next(stored_chunks.missing_chunks(array, start, stop), None)
            if missing is not None:
                raise MissingChunkError(
                    f"Cannot read ids of rows {start:,} to {stop:,}: chunk {missing} of"
                    f" {array.store_path} is missing, and would read as fill values. Restore it and run"
                    " again."
                )
        self.columns = self.reader.read(self.reader.names, start, stop)

    def digest(self) -> str:
        """A digest of the ids that were read last."""
        return digest_ids(self.columns)

    def hashes(self) -> Hashes:
        """Hashes of the ids that were read last, without missing ones."""
        return hashes_of_ids([id_values(self.columns[name]) for name in sorted(self.columns)])


def id_values(column: Any) -> tuple[NDArray[Any] | Texts, NDArray[np.bool_]]:
    """Values of ids, as numbers or text, and where they are known."""
    there = np.asarray(column.is_valid())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.fill_null(0).to_numpy(zero_copy_only=False), there
    return _texts(_as_bytes(column)), there


def _texts(column: Any) -> Texts:
    """The texts of a column; those of missing values do not matter."""
    _, at, data = column.buffers()
    offsets = np.frombuffer(at, np.int64, len(column) + 1, 8 * column.offset)
    return Texts(np.frombuffer(data or b"", np.uint8), offsets)


def _as_bytes(column: Any) -> Any:
    kind = column.type
    is_bytes = (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )
    return (column if is_bytes else column.cast(pa.large_string())).cast(pa.large_binary())


def digest_ids(columns: Mapping[str, pa.Array]) -> str:
    """A digest of the ids of rows, the same for every version of pyarrow."""
    parts: list[Any] = []
    for name in sorted(columns):
        column = columns[name]
        kind = column.type
        if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
            column = _as_bytes(column)
        parts += [f"{name} {kind}\n".encode(), np.asarray(column.is_valid())]
        if pa.types.is_large_binary(column.type):
            texts = _texts(column.drop_null())
            parts += [np.diff(texts.at), texts.data[texts.at[0] : texts.at[-1]]]
        else:
            parts.append(column.drop_null().to_numpy(zero_copy_only=False))
    return digest(*parts)


class BlockTable:
    """The file of one block, under a temporary name, to which chunks are added in their order."""

    def __init__(self, run: ScoreRun, name: str, block: int, ids: Ids, retrying: Retrying) -> None:
        arrays = {name: zarr_arrays.open_output(run.array(name), of=run.run) for name in run.arrays}
        form = run.tables[name]
        self.place, self.artifact, self.name = run.place, name, form.file(block)
        self.ids, self.retrying = ids, retrying
        self.fields = score_fields(run, arrays)
        self.schema = table_schema(run, self.fields, ids.reader)
        self.folder = None
        if self.place.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="dcpred-table-")
            self.path = Path(self.folder.name) / "table"
        else:
            self.place.make_folder(self.name.rpartition("/")[0])
            self.path = partial_name(self.place.folder / self.name)
        self.file = self.path.open("xb")
        self.writer = new_writer(self.file, form.ending, self.schema)

    def add(self, start: int, values: Values) -> None:
        """Add the rows of a chunk, whose ids were read."""
        rows = Rows(start, values, values[STATUS.name])
        self.writer.write(make_table(self.schema, self.fields, rows, self.ids.columns))

    def finish(self, facts: dict[str, Any]) -> None:
        """Give the complete file its name, and add its size, digest and tag to those of the commit record."""
        self.writer.close()
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        size, digested = self.path.stat().st_size, file_digest(self.path)
        if self.place.folder is None:
            self.retrying(partial(self.place.send, self.name, self.path))
        else:
            path = self.place.folder / self.name
            self.path.replace(path)
            sync_directory(path.parent)
        stated = {"size": size, "digest": digested, "tag": self.place.written_tag(self.name)}
        facts["files"] = {**facts.get("files", {}), self.artifact: stated}

    def discard(self) -> None:
        """Remove what has not got its name."""
        with suppress(OSError, ValueError, pa.ArrowException):  # for example of a full disk
            self.writer.writer.close()
        with suppress(OSError):
            self.file.close()
        self.path.unlink(missing_ok=True)
        if self.folder is not None:
            self.folder.cleanup()
