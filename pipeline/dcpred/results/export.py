"""Export scores as a table."""

import difflib
import json
import math
import operator
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray

from dcpred.execution.progress import SILENT, Reporter
from dcpred.results.extra_columns import (
    ROW,
    STATUS_NAME,
    Beside,
    Field,
    Rows,
    find_beside,
    kept_ids,
    parse_beside,
    run_fields,
)
from dcpred.results.stored_scores import StoredScores, open_stored
from dcpred.summary import Summary
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.scoring.outputs import DECISION, ProbabilityColumn
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

# Operators of NumPy, which compares integers of any size exactly, and of Arrow.
OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "==": (operator.eq, pc.equal),
    "!=": (operator.ne, pc.not_equal),
    "<=": (operator.le, pc.less_equal),
    ">=": (operator.ge, pc.greater_equal),
    "=": (operator.eq, pc.equal),
    "<": (operator.lt, pc.less),
    ">": (operator.gt, pc.greater),
}
OPERATOR = re.compile(r"\s*(==|!=|<=|>=|=|<|>)")
FORM = "Write NAME, one of == != < <= > >=, and a value, for example status!=1."


@dataclass(frozen=True)
class Condition:
    """A comparison that a row has to meet."""

    name: str
    operator: str
    value: Any
    """A number of Python if the column holds integers, else a scalar of Arrow."""

    def holds(self, column: pa.Array) -> NDArray[np.bool_]:
        """Whether each row meets the condition. Missing values and NaN meet none."""
        of_numpy, of_arrow = OPERATORS[self.operator]
        if pa.types.is_integer(column.type):
            values = column.fill_null(0).to_numpy(zero_copy_only=False)
            return np.asarray(of_numpy(values, self.value) & column.is_valid().to_numpy(zero_copy_only=False))
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        held = pc.fill_null(of_arrow(column, self.value), False)
        return np.asarray(held.to_numpy(zero_copy_only=False))


def parse_condition(
    text: str, types: Mapping[str, pa.DataType], known: Mapping[str, Sequence[str]]
) -> Condition:
    """A condition on one of several columns.

    types  of each column
    known  all texts that a column may hold, if they are known

    Raises SettingsError for an invalid condition.
    """
    beginnings = [name for name in types if text.lstrip().startswith(name)]
    for name in sorted(beginnings, key=len, reverse=True):  # names may hold operators, and begin with others
        found = OPERATOR.match(text.lstrip(), len(name))
        if found is not None:
            value = text.lstrip()[found.end() :].strip()
            return Condition(name, found[1], _value(text, value, types[name], known.get(name)))
    found = OPERATOR.search(text)
    if found is None or not text[: found.start()].strip():
        raise SettingsError(f"Cannot select rows by {text!r}: it is not a comparison. {FORM}")
    asked = text[: found.start()].strip()
    raise SettingsError(
        f"Cannot select rows by {text!r}: there is no column {asked}. {_near(asked, list(types))}"
    )


def _value(text: str, value: str, kind: pa.DataType, known: Sequence[str] | None) -> Any:
    """The value in the column's type."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    if known is not None and value not in known:
        raise SettingsError(
            f"Cannot select rows by {text!r}: no row can have that value. {_near(value, list(known))}"
        )
    if pa.types.is_string(kind):
        return pa.scalar(value)
    try:
        if pa.types.is_integer(kind):
            return _number(value)
        if pa.types.is_floating(kind):
            found = pa.scalar(float(value), kind)
            if math.isnan(float(value)):
                raise ValueError
            return found
        return pa.scalar(value).cast(kind)
    except (pa.ArrowException, ValueError, OverflowError):
        raise SettingsError(
            f"Cannot select rows by {text!r}: the column holds {kind}. Write {_form(kind)}."
        ) from None


def _form(kind: pa.DataType) -> str:
    """The form of a value of a column."""
    if pa.types.is_boolean(kind):
        return "true or false"
    if pa.types.is_date(kind):
        return "a date: 2026-03-01"
    return "a time: 2026-03-01T12:30:00" if pa.types.is_timestamp(kind) else "a number"


def _number(text: str) -> int | float:
    """A number to compare integers with: exact if it is an integer itself."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if math.isnan(value):
            raise
        return value


def _near(asked: str, names: list[str]) -> str:
    near = difflib.get_close_matches(asked, names, 1)
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
    return f"Did you mean {near[0]}? There are {shown}." if near else f"There are {shown}."


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


PROBABILITY = ProbabilityColumn.name
MADE_HERE = (ROW, STATUS_NAME)  # computed columns, present only on request


@dataclass(frozen=True, repr=False)
class Exported(Summary):
    """The exported table."""

    output: str
    """The run."""
    out: str
    """The table."""
    n_rows: int
    """Rows of the run."""
    n_written: int
    """Rows of the table."""
    columns: list[str]
    beside: str | None
    """The data set of the extra columns, or several with commas; None for none."""
    finished: bool
    """Whether the run is finished; else some rows have status 0."""


@dataclass(frozen=True)
class _Asked:
    """The contents of a table."""

    scores: StoredScores
    fields: dict[str, Field]
    beside: dict[str, Beside]
    """By the names of their columns."""
    columns: list[str]
    """Fields of the table, in their order."""
    conditions: list[Condition]
    largest: tuple[str, int] | None = None
    """A column and a number of rows: only those with its largest values, the largest first."""

    @property
    def needed(self) -> list[str]:
        """Columns to read."""
        return list(dict.fromkeys([*self.columns, *(c.name for c in self.conditions), *self.order]))

    @property
    def order(self) -> list[str]:
        """Columns that rows are sorted by. Decision values break ties of probabilities, if the run has them:
        all rows beyond the held-out ones have the largest probability.
        """
        if self.largest is None:
            return []
        by, field = self.largest[0], self.fields.get(self.largest[0])
        ties = []
        if field is not None and field.needs == PROBABILITY and by not in self.beside:
            ties = [name for name in [by.replace(PROBABILITY, DECISION, 1)] if name in self.fields]
        return [by, *ties]

    def schema(self) -> pa.Schema:
        run = self.scores.run
        summary = {"run": run.run, "model_hash": run.model_hash, "finished": self.scores.finished}
        kinds = _types(self.fields, self.beside.values())
        metadata = {"dcpred": json.dumps(summary)}
        return pa.schema([(name, kinds[name]) for name in self.columns], metadata=metadata)

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """The number of rows read, and those of the table among them, piece by piece."""
        if self.largest is None:
            yield from self._pieces(self.schema())
            return
        (by, most), schema = self.largest, self.schema()
        wide, kinds = schema, _types(self.fields, self.beside.values())
        for name in self.order:
            wide = wide if name in wide.names else wide.append(pa.field(name, kinds[name]))
        kept, keys = wide.empty_table(), [(name, "descending") for name in self.order]
        for n, piece in self._pieces(wide):
            kept = pa.concat_tables([kept, piece.filter(pc.is_valid(_known(piece[by])))])
            kept = kept.take(pc.sort_indices(kept, keys)[:most])  # stable: equals by row
            yield n, schema.empty_table()
        yield 0, kept.select(schema.names)

    def _pieces(self, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
        own = [self.fields[name] for name in self.needed if name in self.fields]
        outputs = {field.needs for field in own} - {""}
        others = list({id(one): one for one in self.beside.values()}.values())
        needed = [name for name in self.needed if name in self.beside]
        for start, stop, done in self.scores.pieces():
            values, status = self.scores.read(outputs, start, stop, done)
            rows = Rows(start, values, status)
            columns = {field.name: field.make(rows) for field in own}
            for one in others:
                columns |= one.read(needed, start, stop)
            piece = pa.table([columns[name] for name in schema.names], schema=schema)
            if self.conditions:
                held = [condition.holds(columns[condition.name]) for condition in self.conditions]
                piece = piece.filter(pa.array(np.logical_and.reduce(held)))
            yield stop - start, piece


def export(
    output: str | Path,
    out: str | Path,
    *,
    beside: Sequence[str] = (),
    only: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    largest: tuple[str, int] | None = None,
    partial: bool = False,
    say: Reporter = SILENT,
) -> Exported:
    """Write the scores of a run as a table to the new file or Zarr group `out`.

    beside   [DATA:]NAME,NAME: arrays or features of data sets, which come before the scores. Without it and
             `columns`: the ids that import stored, or else the numbers of rows
    only     comparisons that rows must meet: status==1
    columns  of the scores; None: all but row numbers and names of statuses
    largest  a column and a number n: only the n rows with its largest values, the largest first
    partial  whether the run may be unfinished: rows not yet scored have status 0

    Raises RefusedErrors before anything is written, and ResourceError.
    """
    check_out(out)
    asked = replace(_asked(output, beside, only, columns, partial, say), largest=largest)
    if largest is not None:
        _check_largest(*largest, _types(asked.fields, asked.beside.values()))
    schema, written = asked.schema(), 0
    missing = {name: asked.fields[name].missing for name in asked.columns if name in asked.fields}
    n_rows = asked.scores.run.n_rows
    with (
        _folder(out) as folder,
        new_table(out, Path(folder), schema, n_rows, missing) as writer,
        say.step("exporting", n_rows, "rows") as advance,
    ):
        for n, piece in asked.tables():
            with resource_errors(local_path(out)):
                writer.write(piece)
            written += len(piece)
            advance(n)
    others = {one.data for one in asked.beside.values()}
    return Exported(
        output=asked.scores.run.output,
        out=str(out),
        n_rows=n_rows,
        n_written=written,
        columns=asked.columns,
        beside=", ".join(sorted(others)) or None,
        finished=asked.scores.finished,
    )


def _folder(out: str | Path) -> AbstractContextManager[str | Path]:
    """The temporary folder of the table."""
    if is_remote(out):
        return tempfile.TemporaryDirectory(prefix="dcpred-export-")
    return nullcontext(Path(local_path(out)).absolute().parent)


def _asked(
    output: str | Path,
    beside: Sequence[str],
    only: Sequence[str],
    columns: Sequence[str] | None,
    partial: bool,
    say: Reporter,
) -> _Asked:
    """Raises RefusedErrors."""
    scores = open_stored(output, partial=partial)
    fields = {field.name: field for field in run_fields(scores)}
    others = _beside(scores, beside, columns is None, say)
    chosen = [name for name in fields if name not in MADE_HERE]
    if columns is not None:
        chosen = [own for name in columns for own in _of_output(fields.values(), name) or [name]]
    if columns is None and not beside and not others:
        chosen = [ROW, *chosen]
    for name in chosen:
        if name not in fields:
            raise SettingsError(
                f"Cannot export column {name!r}: {scores.run.output} has {', '.join(fields)}. Name some"
                " of these, and others by --with."
            )
    names = [*(name for one in others for name in one.names), *chosen]
    if twice := next((name for name, n in Counter(names).items() if n > 1), None):
        raise SettingsError(
            f"Cannot export two columns called {twice}: each needs its own name."
            " Omit one of them, by --with and --columns."
        )
    by_name = {name: one for one in others for name in one.names}
    kinds = _types(fields, others)
    known = {name: texts for one in others for name, texts in one.known().items()}
    known |= {field.name: field.known for field in fields.values() if field.known is not None}
    conditions = [parse_condition(text, kinds, known) for text in only]
    return _Asked(scores, fields, by_name, names, conditions)


def _check_largest(by: str, most: int, types: Mapping[str, pa.DataType]) -> None:
    """Raise SettingsError if rows cannot be selected by the values of a column."""
    if by not in types:
        raise SettingsError(f"Cannot find the largest values of {by}: the columns are {', '.join(types)}.")
    kind = types[by]
    if pa.types.is_string(kind) or pa.types.is_boolean(kind):
        raise SettingsError(
            f"Cannot find the largest values of {by}: it holds {kind}. Name a number or a date."
        )
    if most < 1:
        raise SettingsError(
            f"Cannot export the {most} largest values of {by}: it is not a count. Use 1 or more."
        )


def _known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with null for NaN."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def _of_output(fields: Iterable[Field], name: str) -> list[str]:
    """The columns of an output column."""
    return [field.name for field in fields if field.needs == name]


def _beside(scores: StoredScores, asked: Sequence[str], ids: bool, say: Reporter) -> list[Beside]:
    """Columns of data sets in the requested order; with `ids` and without a request, those that import
    stored.
    """
    if not asked:
        kept = kept_ids(scores.run, say) if ids else None
        return [] if kept is None else [kept]
    parsed = [parse_beside(text) for text in asked]
    return [find_beside(scores.run, data, names) for data, names in parsed]


def _types(fields: Mapping[str, Field], beside: Iterable[Beside]) -> dict[str, pa.DataType]:
    """The types of all available columns. An extra column precedes one of the scores."""
    found = {field.name: field.type for field in fields.values()}
    for one in beside:
        found |= one.types()
    return found
