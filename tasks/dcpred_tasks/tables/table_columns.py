"""The columns of files of one table: their common types, dtypes that hold their values, and values in the
names of folders.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import DataError, doubled
from dcpred_tasks.input_kinds import EXACT_LIMIT
from dcpred_tasks.schema.column import SECOND, Boolean, Category, Column, Date, Means, Number
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.tables.arrow_columns import is_plain_number, is_text, is_text_or_levels, is_uuid
from dcpred_tasks.tables.footers import TableFile

Columns = dict[str, Any]  # Arrow arrays of equal length, by name
EXTENSION = b"ARROW:extension:name"  # in the metadata of a field
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"  # replaces a missing value
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
INTEGERS = tuple(np.dtype(f"{sign}int{bits}") for bits in (8, 16, 32, 64) for sign in ("u", ""))


def check_names(source: str, names: Sequence[str]) -> None:
    """Raise DataError if names are not unique."""
    if "" in names:
        so, do = f"column {names.index('') + 1} has none (a stored index?)", "Name it or omit it"
    elif (twice := doubled(names)) is not None:
        so, do = f"{twice!r} occurs twice", "Rename one of the two"
    else:
        return
    raise DataError(f"Cannot read {source}: each column needs its own name, but {so}. {do}.")


def no_rows(name: str) -> DataError:
    return DataError(f"Cannot read {name}: it has no rows. Name a table with rows.")


def foreign_types(schema: Any) -> dict[str, str]:
    """The columns with an extension type that Arrow does not know here, with its name: the meaning of their
    values is unknown.
    """
    return {
        field.name: field.metadata[EXTENSION].decode(errors="replace")
        for field in schema
        if EXTENSION in (field.metadata or {}) and not isinstance(field.type, pa.BaseExtensionType)
    }


def common_columns(
    source: str, files: Sequence[str], schemas: Sequence[Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The types of the columns of several files, and the values in the folder names of each file.

    source  name of the table, for messages
    files   their paths below its folder

    Raises DataError for files of different columns.
    """
    first = schemas[0]
    for file, schema in zip(files, schemas, strict=True):
        for left, right, where in ((schema, first, file), (first, schema, files[0])):
            for name in left.names:
                if name not in right.names:
                    at = files[0] if where is file else file
                    raise DataError(
                        f"Cannot read {source}: its files have different columns. {name!r} is in"
                        f" {where} and not in {at}. Add it, or take the files one by one."
                    )
    folders = _folder_values(source, files)
    types = _common_types(source, files, schemas) | {
        name: pa.array([each[name] for each in folders]).type for name in folders[0]
    }
    clash = set(folders[0]) & set(first.names)
    if clash:
        raise DataError(
            f"Cannot read {source}: column {sorted(clash)[0]!r} is in its files and in the names of its"
            " folders. Rename one of them."
        )
    return types, folders


def stated_columns(
    kinds: Any, files: Sequence[TableFile], schemas: Sequence[Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The types of the columns by a stated schema, and the values of the columns that each file lacks: an
    older file has no value of a column that was added later.
    """
    types, constants = dict(zip(kinds.names, kinds.types, strict=True)), []
    for file, schema in zip(files, schemas, strict=True):
        stated = dict(file.values or ())
        constants.append({name: stated.get(name) for name in types if name not in schema.names})
    return types, constants


def _common_types(source: str, files: Sequence[str], schemas: Sequence[Any]) -> dict[str, Any]:
    """A type for each column that holds the values of all files."""
    types: dict[str, Any] = dict(zip(schemas[0].names, schemas[0].types, strict=True))
    for file, schema in zip(files, schemas, strict=True):
        for name, kind in zip(schema.names, schema.types, strict=True):
            if is_text_or_levels(kind) and is_text_or_levels(types[name]) and kind != types[name]:
                types[name] = pa.string()
                continue
            both = [pa.schema([(name, types[name])]), pa.schema([(name, kind)])]
            try:
                types[name] = pa.unify_schemas(both, promote_options="permissive").field(0).type
            except (pa.ArrowTypeError, pa.ArrowInvalid):
                raise DataError(
                    f"Cannot read {source}: column {name!r} is {types[name]} in"
                    f" {files[0]} and {kind} in {file}. Convert one of"
                    " them."
                ) from None
    return types


def _folder_values(source: str, files: Sequence[str]) -> list[dict[str, Any]]:
    """The values in folder names for each file: integers if all of a column are, else text."""
    folders = [
        {unquote(name): unquote(value) for name, _, value in map(_split, file.split("/")[:-1]) if name}
        for file in files
    ]
    for file, values in zip(files, folders, strict=True):
        if values.keys() != folders[0].keys():
            raise DataError(
                f"Cannot read {source}: its files lie below folders of different columns:"
                f" {files[0]} and {file}. Move one of them."
            )
    whole = {
        name: all(WHOLE.fullmatch(values[name]) or values[name] == HIVE_NULL for values in folders)
        for name in folders[0]
    }
    return [
        {
            name: None if value == HIVE_NULL else int(value) if whole[name] else value
            for name, value in values.items()
        }
        for values in folders
    ]


def _split(folder: str) -> tuple[str, str, str]:
    """Name and value of a folder called `name=value`; an empty name for another folder."""
    name, equals, value = folder.partition("=")
    return (name, equals, value) if equals else ("", "", "")


def as_common_type(column: Any, kind: Any, name: str, file: str) -> Any:
    """A column of one file, cast to the type that it has in all of them. Raises DataError."""
    try:
        return column if column.type == kind else column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"Cannot read column {name!r} of {file}: it is {column.type}, but {kind} in other files, which"
            f" does not hold all its values ({str(error).splitlines()[0]}). Convert it."
        ) from None


def cell_type(kind: Any) -> Any:
    """The type of the cells of a column where they are no features: its own, with text for UUIDs, and the
    values of a dictionary. None for values that are no single ones, or whose meaning is unknown.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_uuid(kind) or pa.types.is_null(kind) or is_text(kind):
        return kind if pa.types.is_large_string(kind) else pa.string()
    is_single = not (pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind))
    return kind if is_single and not isinstance(kind, pa.BaseExtensionType) else None


def is_number(column: Column, kind: Any) -> bool:
    """Whether values of a type of Arrow are features, unchanged."""
    if isinstance(column, Boolean):
        return bool(pa.types.is_boolean(kind))
    return isinstance(column, Number) and is_plain_number(kind)


def followed_dtype(schema: Schema, types: Mapping[str, Any]) -> np.dtype[Any]:
    """The dtype of X where the columns of a table are encoded by a given schema: float32 if it holds every
    value that columns of these types may become, else float64. No value decides it: rows that come later, and
    an import of them, have the same dtype.
    """
    is_single = all(_fits_single(column, types[column.name]) for column in schema.sources)
    return np.dtype(np.float32 if is_single else np.float64)


def _fits_single(column: Column, kind: Any) -> bool:
    """Whether float32 holds every feature of a column of this type; of dates, those before year 47,900."""
    if is_number(column, kind):
        return np.can_cast(kind.to_pandas_dtype(), np.float32)
    if isinstance(column, Means):
        with np.errstate(over="ignore"):
            return bool((column.table.astype(np.float32) == column.table).all())
    if isinstance(column, Date):
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        whole = pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit == "s")
        return SECOND not in column.parts or whole or pa.types.is_null(kind)
    return isinstance(column, Boolean | Category) or pa.types.is_null(kind)


class Spread:
    """The values of float64 columns, as far as they determine the dtype that holds all of them."""

    def __init__(self, n_columns: int) -> None:
        self.low, self.high = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)
        self.whole = self.single = True

    def add(self, X: FloatArray) -> None:
        """X  float64 (n_rows, n_columns); NaN stands for a missing value."""
        self.low = np.fmin(self.low, np.fmin.reduce(X, axis=0, initial=np.inf))
        self.high = np.fmax(self.high, np.fmax.reduce(X, axis=0, initial=-np.inf))
        self.whole = self.whole and bool((np.isfinite(X) & (np.trunc(X) == X)).all())
        if self.single:
            with np.errstate(over="ignore"):
                self.single = bool(((X.astype(np.float32) == X) | np.isnan(X)).all())

    def include(self, low: float, high: float, *, whole: bool = True, single: bool = True) -> None:
        """Include values by their limits; `single`: float32 holds all of them."""
        self.low, self.high = np.append(self.low, low), np.append(self.high, high)
        self.whole, self.single = self.whole and whole, self.single and single

    def join(self, other: "Spread") -> None:
        """Include the columns of another."""
        self.low, self.high = np.append(self.low, other.low), np.append(self.high, other.high)
        self.whole, self.single = self.whole and other.whole, self.single and other.single

    def wide(self, limit: float = EXACT_LIMIT) -> NDArray[np.intp]:
        """Columns with values from a limit on. From the default on float64 may have rounded integers."""
        return np.flatnonzero((self.low <= -limit) | (self.high >= limit))

    def dtype(self) -> np.dtype[Any]:
        """The smallest dtype for all columns together."""
        fit = smallest_integer(int(self.low.min()), int(self.high.max())) if self.whole else None
        return fit or np.dtype(np.float32 if self.single else np.float64)


def smallest_integer(low: int, high: int) -> np.dtype[Any] | None:
    """The smallest integer dtype that holds low to high, unsigned first; None if there is none."""
    return next((d for d in INTEGERS if np.iinfo(d).min <= low and high <= np.iinfo(d).max), None)
