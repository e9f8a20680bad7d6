"""The schema of a table: its columns in their order, and what they become in X.

Data sets (group attribute `dcpred_schema`) and models store it as JSON, which may come from an untrusted
file: reading is bounded and checked. A hand-written schema leaves open what an import infers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any

from dcpred_tasks.errors import DataError
from dcpred_tasks.result_fields import result_class, result_field
from dcpred_tasks.schema.column import (
    DATE_PARTS,
    Boolean,
    Category,
    Codes,
    Column,
    Date,
    Dropped,
    Id,
    Level,
    Means,
    Number,
    Target,
    TargetCodes,
)

VERSION = 1
ATTRIBUTE, IDS_ATTRIBUTE, INDEX_BASE = "dcpred_schema", "dcpred_ids", "dcpred_index_base"
MOST_COLUMNS = 2**20
MOST_LETTERS = 2**12  # characters of a name or a category
MOST_LEVELS = 2**16  # distinct values of a category
# categories of a column of codes: with others and missing values, as many as training one-hot encodes
MOST_CATEGORIES = 254
MOST_NUMBERS = 2**18  # numbers in the table of a column of means
MOST_GAP_TEXTS = 100
DECIMALS, THOUSANDS = (".", ","), (".", ",", "'", "’", " ", "\u00a0", "\u202f")
PLAIN: dict[str, type[Column]] = {
    column.kind: column for column in (Number, Boolean, Id, Target, Dropped) if column.kind
}
CODES, TARGET, MEANS = "codes", "target", "means"
ENCODINGS: dict[str, type[Category]] = {CODES: Codes, TARGET: TargetCodes, MEANS: Means}


@dataclass(frozen=True)
class ColumnRequest:
    """A column with only a kind: an import infers the rest.

    encoding  CODES or TARGET for a category, empty where an import chooses
    """

    name: str
    kind: str
    encoding: str = ""


@dataclass(frozen=True)
class TextFormat:
    """How a text file writes values. Raises ValueError for ambiguous marks.

    decimal      mark between whole and fraction, "." or ","
    thousands    mark between groups of three digits, one of THOUSANDS; empty without one
    not_missing  texts that are values, although they usually mark a missing one (NA)
    """

    decimal: str = "."
    thousands: str = ""
    not_missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.decimal not in DECIMALS:
            raise ValueError(f"the decimal mark is {_shown(self.decimal)}, but must be a point or a comma")
        if self.thousands and (self.thousands not in THOUSANDS or self.thousands == self.decimal):
            raise ValueError(
                f"the mark between thousands is {_shown(self.thousands)}, but must be one of"
                f" {' '.join(map(repr, THOUSANDS))} other than the decimal mark"
            )


PLAIN_TEXT = TextFormat()


@dataclass(frozen=True)
class Schema:
    """Columns of a table. Raises ValueError for an inconsistent set.

    gap_texts  texts of missing values in text formats, beside the usual ones
    text       how the imported text file writes values
    """

    columns: tuple[Column, ...]
    gap_texts: tuple[str, ...] = ()
    text: TextFormat = PLAIN_TEXT

    def __post_init__(self) -> None:
        _unique((column.name for column in self.columns), "column")
        _unique(self.features, "feature")
        if not self.features:
            raise ValueError("no column becomes a feature")
        if sum(isinstance(column, Target) for column in self.columns) > 1:
            raise ValueError("two columns are targets")

    @cached_property
    def sources(self) -> tuple[Column, ...]:
        """The columns that become features."""
        return tuple(column for column in self.columns if column.features)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The names of the features of X."""
        return tuple(feature for column in self.columns for feature in column.features)

    @property
    def spans(self) -> list[tuple[Column, slice]]:
        """The columns that become features, and their positions in X."""
        ends = [0]
        for column in self.sources:
            ends.append(ends[-1] + len(column.features))
        return [(c, slice(*span)) for c, span in zip(self.sources, pairwise(ends), strict=True)]

    @property
    def coded(self) -> list[int]:
        """The numbers of the one-hot encoded features."""
        return [span.start for column, span in self.spans if isinstance(column, Codes)]

    @property
    def target_coded(self) -> list[int]:
        """The numbers of the target-encoded features."""
        return [span.start for column, span in self.spans if isinstance(column, TargetCodes)]

    @property
    def with_means(self) -> list[str]:
        """The columns with target encodings that an earlier version fitted at import."""
        return [column.name for column in self.sources if isinstance(column, Means)]

    def says(self, feature: int, value: float | None) -> str | None:
        """The value of the table for a value of a feature: a category or a date; None for numbers."""
        for column, span in self.spans:
            if value is not None and feature in range(span.start, span.stop):
                return column.says(feature - span.start, value)
        return None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if isinstance(column, Id))

    @property
    def target(self) -> str | None:
        return next((column.name for column in self.columns if isinstance(column, Target)), None)

    @property
    def plain(self) -> bool:
        """Whether all features are unchanged numbers of the table."""
        return all(isinstance(column, Number) for column in self.sources)

    @property
    def encodes(self) -> bool:
        """Whether a feature is not just a number or boolean of the table: the model then needs its schema."""
        return not all(isinstance(column, Number | Boolean) for column in self.sources)

    def document(self) -> dict[str, Any]:
        """The JSON document, which `read_schema` reads."""
        document: dict[str, Any] = {"version": VERSION, "columns": [_document(c) for c in self.columns]}
        text = self.text
        further = {
            "gap_texts": list(self.gap_texts),
            "decimal": text.decimal if text.decimal != "." else "",
            "thousands": text.thousands,
            "not_missing": list(text.not_missing),
        }
        return document | {key: value for key, value in further.items() if value}


@result_class
class ColumnDocument:
    name: str = result_field("Name of the column.")
    kind: str = result_field("number, boolean, category, date, id, target or dropped.")
    encoding: str = result_field("codes (one-hot encoding) or target (target encoding).", when="categories")
    categories: list[str] = result_field("The categories, in the order of their codes.", when="categories")
    parts: list[str] = result_field("day, weekday, dayofyear, second.", when="dates")
    zoned: bool = result_field(
        "Whether times have a time zone; absent where this is not known.", when="dates"
    )


@result_class
class SchemaDocument:
    """The schema of a table."""

    version: int = result_field("Version of the schema.")
    columns: list[ColumnDocument] = result_field("The columns of the table, in their order.")
    gap_texts: list[str] = result_field("These texts.", when="texts of missing values")


def numbers_schema(names: Sequence[str]) -> Schema:
    """The schema of a table whose columns are all numbers."""
    return Schema(tuple(Number(name) for name in names))


def first_difference(schema: Schema, other: Schema) -> str | None:
    """The first column that the two encode differently, as text; None where they encode alike."""
    pairs = zip(schema.sources, other.sources, strict=False)
    for a, b in pairs:
        if a.name != b.name:
            return f"column {a.name!r} in place of {b.name!r}"
        if not a.encodes_as(b):
            return _how(a, b)
    if len(schema.sources) != len(other.sources):
        return f"{len(schema.sources):,} columns in place of {len(other.sources):,}"
    return None


def _how(a: Column, b: Column) -> str:
    if type(a) is not type(b):
        return f"column {a.name!r} is a {a.kind}{_encoding(a)}, not a {b.kind}{_encoding(b)}"
    if isinstance(a, Date) and isinstance(b, Date) and a.parts == b.parts:
        return f"column {a.name!r} has times {'with' if a.zoned else 'without'} a time zone"
    if isinstance(a, Codes | TargetCodes) and isinstance(b, Codes | TargetCodes):
        others = [c for c in a.categories if c not in set(b.categories)] or list(a.categories)
        return f"column {a.name!r} has other categories ({str(others[0]) if others else 'none'!r})"
    return f"column {a.name!r} has another {'mean' if isinstance(a, Means) else 'form'}"


def _encoding(column: Column) -> str:
    return f" as {_encoding_of(column)}" if isinstance(column, Category) else ""


def _encoding_of(column: Category) -> str:
    return next(name for name, kind in ENCODINGS.items() if type(column) is kind)


# -- JSON ----------------------------------------------------------------------------------------------------


def _document(column: Column) -> dict[str, Any]:
    document: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if isinstance(column, Category):
        document |= {"encoding": _encoding_of(column), "categories": list(column.categories)}
    if isinstance(column, Means):
        document |= {"means": [list(row) for row in column.means]}
        document |= {"outputs": list(column.outputs)} if column.outputs else {}
    elif isinstance(column, Date):
        document["parts"] = list(column.parts)
        document |= {} if column.zoned is None else {"zoned": column.zoned}
    return document


def read_schema(value: object, where: str) -> Schema:
    """The complete schema of a JSON document. Raises DataError for an invalid or incomplete one.

    where  its source, for messages
    """
    columns, gap_texts, text = read_columns(value, where)
    for column in columns:
        if isinstance(column, ColumnRequest):
            raise _refused(where, f"column {_shown(column.name)} states only its kind")
    try:
        return Schema(tuple(column for column in columns if isinstance(column, Column)), gap_texts, text)
    except ValueError as error:
        raise _refused(where, str(error)) from None


def read_columns(
    value: object, where: str
) -> tuple[list[Column | ColumnRequest], tuple[str, ...], TextFormat]:
    """The columns of a JSON document, the texts of missing values, and how text writes values."""
    try:
        document = _object(
            value, {"version", "columns"}, {"gap_texts", "decimal", "thousands", "not_missing"}
        )
        if type(document["version"]) is not int or document["version"] > VERSION:
            raise ValueError(f"its version is {_shown(document['version'])}, and this dcpred reads {VERSION}")
        columns = [_column(each) for each in _list(document["columns"], MOST_COLUMNS, "columns")]
        _unique((column.name for column in columns), "column")
        gap_texts, not_missing = (
            tuple(_text(each, single) for each in _list(document.get(key, []), MOST_GAP_TEXTS, many))
            for key, single, many in (
                ("gap_texts", "a text of a missing value", "texts of missing values"),
                ("not_missing", "a text that is a value", "texts that are values"),
            )
        )
        text = TextFormat(
            _text(document.get("decimal", "."), "the decimal mark"),
            _text(document.get("thousands", ""), "the mark between thousands"),
            not_missing,
        )
    except ValueError as error:
        raise _refused(where, str(error)) from None
    return columns, gap_texts, text


def _column(value: object) -> Column | ColumnRequest:
    document = _object(
        value, {"name", "kind"}, {"encoding", "categories", "means", "outputs", "parts", "zoned"}
    )
    name, kind = _text(document["name"], "the name of a column"), document["kind"]
    further = set(document) - {"name", "kind"}
    readers: dict[str, Callable[[str, dict[str, Any]], Column | ColumnRequest]] = {
        Date.kind: _date,
        Codes.kind: _category,
    }
    if isinstance(kind, str) and kind in readers:
        return readers[kind](name, document)
    if not isinstance(kind, str) or kind not in PLAIN:
        kinds = ", ".join(sorted({*PLAIN, *readers}))
        raise ValueError(f"the kind of column {_shown(name)} is {_shown(kind)}, not one of {kinds}")
    if further:
        raise ValueError(
            f"column {_shown(name)}, a {kind}, has the unknown field {_shown(sorted(further)[0])}"
        )
    return PLAIN[kind](name)


def _date(name: str, document: dict[str, Any]) -> Column | ColumnRequest:
    if set(document) == {"name", "kind"}:
        return ColumnRequest(name, Date.kind)
    _object(document, {"name", "kind", "parts"}, {"zoned"})
    parts, zoned = document["parts"], document.get("zoned")
    if not isinstance(zoned, bool | None):
        raise ValueError(f"column {_shown(name)} is zoned by {_shown(zoned)}, not by true or false")
    if not isinstance(parts, list) or not parts or parts != [p for p in DATE_PARTS if p in parts]:
        raise ValueError(f"the parts of column {_shown(name)} are not of {', '.join(DATE_PARTS)}, in order")
    return Date(name, tuple(parts), zoned)


def _category(name: str, document: dict[str, Any]) -> Column | ColumnRequest:
    encoding = document.get("encoding", "")
    if not isinstance(encoding, str) or (encoding and encoding not in ENCODINGS):
        raise ValueError(f"the encoding of column {_shown(name)} is neither {CODES} nor {TARGET}")
    if not set(document) - {"name", "kind", "encoding"}:
        return ColumnRequest(name, Codes.kind, TARGET if encoding == MEANS else encoding)
    further = {"means"} if encoding == MEANS else set()
    _object(document, {"name", "kind", "encoding", "categories"} | further, {"outputs"} if further else set())
    most = MOST_CATEGORIES if encoding == CODES else MOST_LEVELS
    categories = tuple(_level(level, name) for level in _list(document["categories"], most, "categories"))
    _unique(categories, f"category of column {name[:40]!r}")
    if len({isinstance(level, str) for level in categories}) > 1:
        raise ValueError(f"categories of column {_shown(name)} are text and numbers")
    if encoding != MEANS:
        return Codes(name, categories) if encoding == CODES else TargetCodes(name, categories)
    outputs = tuple(
        _text(output, "an output") for output in _list(document.get("outputs", []), MOST_NUMBERS, "")
    )
    means = tuple(
        tuple(_finite(number) for number in _list(row, max(len(outputs), 1), "means"))
        for row in _list(document["means"], MOST_NUMBERS, "means")
    )
    if len(means) != len(categories) + 2 or any(len(row) != max(len(outputs), 1) for row in means):
        raise ValueError(
            f"column {_shown(name)} lacks a mean for a category, for others or for a missing value"
        )
    if len(means) * max(len(outputs), 1) > MOST_NUMBERS:
        raise ValueError(f"column {_shown(name)} has more than {MOST_NUMBERS:,} means")
    return Means(name, categories, means, outputs)


def _object(value: object, needed: set[str], possible: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is not a JSON object")
    for key in needed - set(value):
        raise ValueError(f"{_shown(value)} lacks {key!r}")
    for key in value:
        if key not in needed | possible:
            raise ValueError(f"{_shown(key)} is not a field of a schema")
    return value


def _list(value: object, most: int, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{_shown(value)} is not a list")
    if len(value) > most:
        raise ValueError(f"it has {len(value):,} {what}, more than the limit of {most:,}")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} is {_shown(value)}, not text")
    if len(value) > MOST_LETTERS:
        raise ValueError(f"{what} has {len(value):,} characters, more than the limit of {MOST_LETTERS:,}")
    value.encode()  # half of a surrogate pair raises UnicodeEncodeError, a ValueError
    return value


def _level(value: object, name: str) -> Level:
    if isinstance(value, str):
        return _text(value, f"a category of column {name[:40]!r}")
    number = _finite(value)
    if type(value) is int:
        return value
    return int(number) if number.is_integer() else number


def _finite(value: object) -> float:
    if type(value) not in (int, float) or not isfinite(number := _float(value)):
        raise ValueError(f"{_shown(value)} is not a finite number")
    return number


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _unique(names: Iterable[object], what: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"two {what}s are called {_shown(name)}")
        seen.add(name)


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, Mapping | list) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]} …"


def _refused(where: str, why: str) -> DataError:
    return DataError(f"Cannot use the schema of {where}: {why}. Correct it, or make it again.")
