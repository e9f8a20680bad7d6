"""Rows of a Parquet table, encoded by the schema of a model while they are read: arrays of a computed store.

The arrays are X, y where the table has the target, and every other column under its own name.
X has the dtype that an import like the model gives it (`followed_dtype`): scores are those of the imported
rows, bit for bit.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dcpred_tasks.artifacts.followed_schema import schema_to_follow
from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.errors import DamagedChunkError, DataError
from dcpred_tasks.input_kinds import refuse_rounded
from dcpred_tasks.process import memory_bytes
from dcpred_tasks.schema.column import Category, Column, Id, Means, Target
from dcpred_tasks.schema.inference import can_be_kept
from dcpred_tasks.schema.schema import ATTRIBUTE, IDS_ATTRIBUTE, Schema
from dcpred_tasks.schema.unknown_categories import UnknownCategories, joined, unknown_in
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import TableAddress, absolute
from dcpred_tasks.storage.computed_arrays import ComputedStore, check_room, refuse_changed
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.tables.arrow_columns import (
    Rounding,
    arrow_cells,
    arrow_values,
    is_plain_number,
    is_text_or_levels,
    refuse_rounded_decimals,
    remedy,
    text_values,
    whole_array,
)
from dcpred_tasks.tables.sources import open_source
from dcpred_tasks.tables.stored_tables import (
    Group,
    Table,
    TableReader,
    stored_table,
)
from dcpred_tasks.tables.table_columns import (
    followed_dtype,
    is_number,
)

DOUBLE = "float64"
HELD_BYTES, MOST_ROWS = 64 * 2**20, 2**18  # maxima of a chunk of X
MOST_PIECES = 64  # chunks of a row group
STRIP = 4096  # rows that are transposed at once, in cache
NAMED = 3  # names in a message
GIB = 2**30


@dataclass(frozen=True, eq=False)
class FollowedTable(Table):
    """A table, and the schema of a model.

    like  the model, for messages
    """

    like: str
    schema: Schema

    @cached_property
    def target(self) -> str | None:
        return self.schema.target if self.schema.target in self.types else None

    @cached_property
    def features(self) -> list[str]:
        return [column.name for column in self.schema.sources]

    @cached_property
    def others(self) -> list[str]:
        """The columns that are arrays of their own."""
        taken = {*self.features, self.target}
        return [name for name in self.types if name not in taken and can_be_kept(name)]

    def is_safe(self, column: Column) -> bool:
        """Whether no value of a column can be refused: numbers that float64 holds."""
        kind = self.types[column.name]
        return is_number(column, kind) and not (pa.types.is_integer(kind) and kind.bit_width == 64)

    @cached_property
    def identity(self) -> str:
        """A digest of all that decides the rows of the table."""
        return self._identity(lambda group: group.content())

    @cached_property
    def sizes(self) -> str:
        """The same without times of writing: other rows may have the same names, sizes and footers."""
        return self._identity(lambda group: group.content(timed=False))

    def _identity(self, content: Callable[[Group], str]) -> str:
        groups = "\n".join(map(content, self.groups))
        return digest(groups.encode(), self.kinds().encode(), repr(self.schema.document()).encode())

    @cached_property
    def changes(self) -> str:
        """A digest of when anything about each file changed, also what changes no row."""
        return digest(repr([footer.file.changed for footer in self.footers]).encode())

    def kinds(self, names: Collection[str] | None = None) -> str:
        """The types of these columns; None: of all."""
        return repr(sorted((k, str(v)) for k, v in self.types.items() if names is None or k in names))


def find_table(data: str, model: str) -> FollowedTable:
    """A table, with all checks that need no rows. Raises DataError."""
    return _followed(_stored(data), model, schema_to_follow(model))


def _stored(data: str) -> Table:
    source = open_source(data)
    return stored_table(source.files, source.schema, data)


@lru_cache(maxsize=8)
def _followed(of: Table, model: str, schema: Schema) -> FollowedTable:
    table = FollowedTable(of.data, of.footers, of.types, of.groups, like=model, schema=schema)
    _check_columns(table)
    _check_sizes(table)
    return table


def _check_columns(table: FollowedTable) -> None:
    missing = [name for name in table.features if name not in table.types]
    if missing:
        shown = ", ".join(map(repr, missing[:NAMED]))
        more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
        raise DataError(
            f"Cannot encode {table.data} like {table.like}: it lacks the"
            f" column{'s' if len(missing) > 1 else ''} {shown}{more}. Add what is missing, or rename it."
            " Where it is missing in every row, run `dcpred import` with --like and --absent, and use what"
            " that writes."
        )
    for name in table.features:
        kind = table.foreign.get(name, table.types[name])
        if name in table.foreign or not _is_readable(kind):
            raise DataError(
                f"Cannot read column {name!r} of {table.data}: its type is {kind}, not numbers, text, dates"
                " or booleans. Convert it."
            )


def _is_readable(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    of_dates = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    others = pa.types.is_decimal(kind) or pa.types.is_null(kind) or of_dates
    uuid = getattr(kind, "extension_name", "") == "arrow.uuid"
    return bool(is_plain_number(kind) or is_text_or_levels(kind) or others or uuid)


def _check_sizes(table: FollowedTable) -> None:
    """Raise DataError for a row group that does not fit in memory."""
    most = memory_bytes() // 4
    for group in table.groups:
        size = group.footer.group_bytes(group.number, set(table.features))
        if size > most:
            raise DataError(
                f"Cannot read {group.where}: its {group.stop - group.start:,} rows take about"
                f" {size / GIB:,.1f} GiB decoded, more than a quarter of this machine's memory"
                f" ({most / GIB:,.1f} GiB). Write the file with smaller row groups, for example"
                " row_group_size=131072 in pyarrow."
            )


def plan_table(data: str, model: str) -> TableAddress:
    """The address of a table as `model` encodes it. Encodes the first rows. Raises DataError for what cannot
    be encoded.
    """
    data = data.rstrip("/") if len(data) > 1 else data
    table = find_table(open_source(absolute(data)).address, absolute(model))
    first = table.groups[0]
    checked = [column for column in table.schema.sources if not table.is_safe(column)]
    some = table.read(first, [column.name for column in checked])
    for column in checked:
        _encoded(table, column, some[column.name], first)
    return TableAddress(table.data, table.like, str(followed_dtype(table.schema, table.types)))


# -- Encoding ------------------------------------------------------------------------------------------------


def _encoded(table: FollowedTable, column: Column, values: Any, group: Group) -> Iterator[NDArray[Any]]:
    """The features of a column, each (n,). Raises DataError for values that the schema refuses."""
    name, file = column.name, group.footer.file
    try:
        if is_number(column, table.types[name]):
            numbers = arrow_values(values)
            if pa.types.is_integer(values.type) and values.type.bit_width == 64:
                there = arrow_values(values.drop_null()) if values.null_count else numbers
                refuse_rounded(there, name, remedy(name, is_target=False, is_followed=True) + ".")
            return iter([numbers])
        where = Rounding(f"column {name!r}", remedy(name, is_target=False, is_followed=True))
        refuse_rounded_decimals(values, where)
        cells = arrow_cells(values, name, file.name, table.schema.gap_texts)
        return iter(column.encode(cells).T)
    except DataError as error:
        if file.address in str(error):
            raise
        raise DataError(f"Cannot encode {group.where}: {_as_reason(str(error))}") from None


def _as_reason(text: str) -> str:
    """A message as the reason in another one."""
    for prefix in ("Cannot encode ", "Cannot use ", "Cannot import "):
        text = text.removeprefix(prefix)
    return text


class EncodedTable(ComputedStore):
    """The arrays of a table."""

    def __init__(self, address: TableAddress, table: FollowedTable) -> None:
        self.table, self.reader = table, TableReader(table)
        if address.dtype != followed_dtype(table.schema, table.types):
            raise DataError(
                f"Cannot read {table.data}: the types of its columns changed after the run was planned. Begin"
                " a new run."
            )
        super().__init__(address, table.identity, table.sizes, _group(table, np.dtype(address.dtype)))

    def rows(self, name: str, start: int, stop: int, room: NDArray[Any] | None = None) -> NDArray[Any]:
        like = self.arrays[name]
        out = check_room(None if name != "X" else room, stop - start, like)
        for number, group in self.reader.overlapping(start, stop):
            low, high = max(start, group.start), min(stop, group.stop)
            part = out[low - start : high - start]
            if name == "X":
                columns = self.reader.columns(number, tuple(self.table.features))
                self._encode(part, columns, group, low)
            else:
                given = str(self.table.target) if name == "y" else name
                column = self.reader.columns(number, (given,))[given]
                part[...] = _values(column.slice(low - group.start, high - low), like, given, group)
        return out

    def form(self, names: Collection[str]) -> str:
        return self.table.kinds(self._columns_of(names))

    def fingerprint(self, start: int, stop: int, names: Collection[str]) -> str:
        columns = self._columns_of(names)
        # Rows of a block come from other places of a group where a file before it grew or shrank.
        lines = (
            f"{group.content(columns)} {group.start - start} {group.stop - group.start}"
            for _, group in self.reader.overlapping(start, stop)
        )
        return digest("\n".join(lines).encode())

    def unknown_categories(self, X: NDArray[Any], start: int) -> list[UnknownCategories]:
        names = tuple(self.table.features)
        return joined(
            unknown
            for column, span in self.table.schema.spans
            if isinstance(column, Category) and not isinstance(column, Means)
            for number, rows in self._rows_by_group(np.flatnonzero(X[:, span.start] == column.other) + start)
            for unknown in [self._unknown(column, self.reader.columns(number, names)[column.name], rows)]
            if unknown is not None
        )

    def _rows_by_group(self, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
        """The numbers of row groups of ascending rows, and these rows, counted within the group."""
        if len(rows):
            for number, group in self.reader.overlapping(int(rows[0]), int(rows[-1]) + 1):
                low, high = np.searchsorted(rows, (group.start, group.stop))
                yield number, rows[low:high] - group.start

    def _unknown(self, column: Category, values: Any, rows: IntArray) -> UnknownCategories | None:
        cells = arrow_cells(whole_array(values.take(rows)), column.name, "", self.table.schema.gap_texts)
        return unknown_in(column, cells, np.full(len(rows), column.other))

    def changes(self, start: int, stop: int) -> list[int]:
        files = {group.footer.file: None for _, group in self.reader.overlapping(start, stop)}
        return [file.changed for file in files if file.changed]

    def _columns_of(self, names: Collection[str]) -> set[str]:
        """The columns of the table that arrays are made of."""
        columns = {*names, *([str(self.table.target)] if "y" in names else [])}
        return columns | {*self.table.features} if "X" in columns else columns

    @property
    def unit_rows(self) -> int:
        return max(group.stop - group.start for group in self.table.groups)

    @property
    def unit_bytes(self) -> int:
        names = set(self.table.features)
        return max(group.footer.group_bytes(group.number, names) for group in self.table.groups)

    def check_identity(self, planned: str) -> None:
        if planned != self.identity:
            newest = max((footer.file for footer in self.table.footers), key=lambda file: file.tag)
            raise refuse_changed(newest.address)

    def _encode(self, out: NDArray[Any], columns: Mapping[str, Any], group: Group, start: int) -> None:
        """Encode rows from row `start` of the table on."""
        n = len(out)
        features: list[NDArray[Any]] = []
        for column in self.table.schema.sources:
            values = columns[column.name].slice(start - group.start, n)
            features += _encoded(self.table, column, values, group)
        # Strips in cache: a column of all rows would touch every line of X once for each feature.
        strip = np.empty((len(features), STRIP + 16), out.dtype)
        for low in range(0, n, STRIP):
            rows = min(STRIP, n - low)
            with np.errstate(over="ignore"):
                for j, values in enumerate(features):
                    strip[j, :rows] = values[low : low + rows]
            out[low : low + rows].T[...] = strip[:, :rows]


def _values(column: Any, like: Any, name: str, group: Group) -> Any:
    """The values of a column beside X in the dtype of its array."""
    if like.dtype.kind == "T":
        return np.array(text_values(column, name, group.footer.file.name), np.dtypes.StringDType())
    values = arrow_values(column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column)
    if values.dtype != like.dtype and column.null_count:
        raise DamagedChunkError(
            f"Cannot read column {name!r} of {group.where}: it has missing values, which its statistics do"
            " not count. Write the file again."
        )
    return values


def _group(table: FollowedTable, dtype: np.dtype[Any]) -> Any:
    """The metadata of all arrays."""
    ids = [name for name in table.schema.ids if name in table.types]
    attributes = {ATTRIBUTE: _schema_of_rows(table).document()} | ({IDS_ATTRIBUTE: ids} if ids else {})
    group = zarr_arrays.memory_group(attributes)
    n, d = table.n_rows, len(table.schema.features)
    size = chunk_rows(table, d * dtype.itemsize)
    named = {"feature_names": list(table.schema.features)}
    zarr_arrays.create_array(
        group, "X", (n, d), dtype, size, fill_value=np.nan, attributes=named, dimensions=("sample", "feature")
    )
    names = {"y": table.target} | {name: name for name in table.others}
    for name, column in names.items():
        kind = None if column is None else _dtype_beside(table, column)
        if kind is not None:
            fill: Any = "" if kind is str else np.nan if kind.kind == "f" else 0
            zarr_arrays.create_array(group, name, (n,), kind, size, fill_value=fill, dimensions=("sample",))
    return group


def _schema_of_rows(table: FollowedTable) -> Schema:
    """The schema of the model, with ids and target that the table has."""
    columns = (*table.schema.sources, *(c for c in table.schema.columns if isinstance(c, Id | Target)))
    present = tuple(column for column in columns if column.name in table.types)
    return Schema(present, table.schema.gap_texts, table.schema.text)


def _dtype_beside(table: FollowedTable, name: str) -> Any:
    """The dtype of a column beside X, `str` for text; None for a type without a form as text."""
    kind = table.types[name]
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return None
    if name == table.target and pa.types.is_decimal(kind):
        return np.dtype(DOUBLE)
    if not is_plain_number(kind):
        return str
    dtype = np.dtype(kind.to_pandas_dtype())
    counts = [footer.nulls(name) for footer in table.footers if name in footer.schema.names]
    is_lacked = any(group.constants.get(name, 0) is None for group in table.groups)
    if dtype.kind == "f" or not (is_lacked or None in counts or any(counts)):
        return dtype
    return np.dtype(DOUBLE) if name == table.target and dtype.kind != "b" else str


def chunk_rows(table: FollowedTable, row_bytes: int) -> int:
    """Rows of a chunk: a row group, or an equal part of one that is large."""
    unit = max(group.stop - group.start for group in table.groups)
    most = min(max(HELD_BYTES // row_bytes, 1), MOST_ROWS)
    pieces = -(-unit // most)
    even = (n for n in range(pieces, pieces + MOST_PIECES) if unit % n == 0)
    return -(-unit // next(even, pieces))


def open_cells(data: str) -> TableReader:
    """A reader of a table that no model encodes. Raises DataError."""
    return TableReader(_stored(absolute(data)))


def open_table(address: TableAddress) -> EncodedTable:
    """The store of a table. It is opened again after a file changed."""
    table = find_table(address.data, address.model)
    return _store(replace(address, name=""), table.identity, table.changes)


@lru_cache(maxsize=8)
def _store(address: TableAddress, identity: str, changes: str) -> EncodedTable:
    return EncodedTable(address, find_table(address.data, address.model))
