"""Columns of a table, and their cells as numbers."""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from math import floor, isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import refuse_rounded

NUMBER, BOOLEAN, DATE, TEXT, CATEGORY = "number", "boolean", "date", "text", "category"
# Names of kinds of cells in messages.
IN_WORDS = {NUMBER: "numbers", BOOLEAN: "booleans", DATE: "dates", TEXT: "text", CATEGORY: "categories"}
ISO_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
# A number with a currency or percent sign, the sign U+2212, groups of thousands, a decimal comma, or an
# exponent of Fortran.
OTHER_NUMBER = re.compile(
    r"[$€£¥]?\s?[+\-\u2212]?[0-9]{1,3}(?:[.,'’ \u00a0\u202f]?[0-9]{3})*"
    r"(?:[.,][0-9]+(?:[dD][+\-\u2212]?[0-9]+)?)?\s?[%‰$€£¥]?"
)
# A date whose day and month are ambiguous.
OTHER_DATE = re.compile(r"[0-9]{1,4}([./-])[0-9]{1,2}\1[0-9]{1,4}([ T].*)?")
BOOLEANS = {"true": 1, "false": 0}
REMEMBERED = 2**14  # cached dates of texts, which recur in every batch
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DATE_DTYPE = np.dtype("datetime64[us]")  # dates of text: years 1 to 9999


@dataclass(frozen=True)
class Cells:
    """The values of one column in n rows.

    kind    NUMBER, BOOLEAN, DATE, TEXT or CATEGORY (text or numbers declared as categories)
    values  (n,): real numbers; bool, or 0 and 1; datetime64 in UTC; int64 positions in `levels`
    gap     bool (n,), where the value is missing
    levels  the values of text or categories; some may occur in no row, and some may be equal
    zoned   of dates: whether values have a time zone, one item for each kind
    """

    kind: str
    values: NDArray[Any]
    gap: NDArray[np.bool_]
    levels: tuple[Any, ...] = ()
    zoned: frozenset[bool] = frozenset()

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def counts(self) -> IntArray:
        """int64 (n_levels,), the rows of each level."""
        return np.bincount(self.values[~self.gap], minlength=len(self.levels)).astype(np.int64)

    def example(self) -> object:
        """Any present value; None where all are missing."""
        there = np.flatnonzero(~self.gap)
        if not len(there):
            return None
        value = self.values[there[0]]
        return self.levels[int(value)] if self.levels else value.item() if value.dtype.kind != "M" else value


def without(cells: Cells, gap_texts: Sequence[str]) -> Cells:
    """The same cells, with these texts as missing values."""
    stands = (
        np.array([level in gap_texts for level in cells.levels], bool) if gap_texts else np.zeros(0, bool)
    )
    if not stands.any():
        return cells
    values = np.where(np.append(stands, True)[cells.values], -1, cells.values)
    return Cells(cells.kind, values, values < 0, cells.levels)


def numbers(values: NDArray[Any], gap: NDArray[np.bool_] | None = None) -> Cells:
    """Cells of real numbers; NaN is also missing."""
    if values.dtype.kind == "f":
        gap = np.isnan(values) if gap is None else gap | np.isnan(values)
    return Cells(NUMBER, values, np.zeros(len(values), bool) if gap is None else gap)


def booleans(values: NDArray[Any], gap: NDArray[np.bool_] | None = None) -> Cells:
    return Cells(BOOLEAN, values.astype(bool), np.zeros(len(values), bool) if gap is None else gap)


def dates(values: NDArray[Any], *zoned: bool) -> Cells:
    """Cells of datetime64 in UTC; NaT is missing.

    zoned  whether they had a time zone
    """
    return Cells(DATE, values, np.isnat(values), zoned=frozenset(zoned))


def levelled(positions: NDArray[Any], levels: Sequence[Hashable], *, declared: bool = False) -> Cells:
    """Cells of text or declared categories; −1 is missing. Levels may be equal but for outer spaces."""
    positions = positions.astype(np.int64)
    trimmed = tuple(level.strip() if isinstance(level, str) else level for level in levels)
    return Cells(CATEGORY if declared else TEXT, positions, positions < 0, trimmed)


def texts(values: Sequence[str | None], *, declared: bool = False) -> Cells:
    """Cells of text, one by one; None is missing."""
    codes: dict[str, int] = {}
    at = [-1 if value is None else codes.setdefault(value, len(codes)) for value in values]
    return levelled(np.array(at, np.int64), tuple(codes), declared=declared)


def is_number(text: str) -> bool:
    """Whether text is written as a finite number."""
    try:
        return isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def is_other_number(text: str) -> bool:
    """Whether text is a number for people but not for Python."""
    return OTHER_NUMBER.fullmatch(text) is not None and not is_number(text)


def is_other_date(text: str) -> bool:
    """Whether text may be a date in another form than ISO 8601."""
    return OTHER_DATE.fullmatch(text) is not None and as_date(text) is None


def as_boolean(text: str) -> int | None:
    """1 for true and 0 for false in any case, None for other text."""
    return BOOLEANS.get(text.lower())


@lru_cache(maxsize=REMEMBERED)
def as_date(text: str) -> np.datetime64 | None:
    """The instant in UTC of an ISO 8601 date, with or without time and zone; None for other text."""
    if not ISO_DATE.fullmatch(text):
        return None
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        since = instant - EPOCH
    except (ValueError, OverflowError):
        return None
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return np.datetime64(microseconds, "us")


def zones(texts: Sequence[str]) -> frozenset[bool]:
    """Whether texts of ISO 8601 dates have a time zone, one item for each kind."""
    return frozenset(bool(match and match[1]) for match in map(ISO_DATE.fullmatch, texts))


def number_level(level: float) -> str:
    """A number as the text of a category: integers without a point."""
    whole = isinstance(level, int) or float(level).is_integer()
    return str(int(level)) if whole else repr(float(level))


def plain_level(level: Any) -> Any:
    """A level as a type of JSON: text, integer or float."""
    if isinstance(level, bool | np.bool_):
        return "true" if level else "false"
    if isinstance(level, str):
        return str(level)
    if isinstance(level, int | np.integer):
        return int(level)
    number = float(level)
    return int(level) if number.is_integer() and abs(number) < 2**53 else number


Level = str | int | float
DAY, WEEKDAY, DAY_OF_YEAR, SECOND = "day", "weekday", "dayofyear", "second"
NEVER_SEEN = "never seen in training"
OTHERS = "others"  # the name of all unknown categories in explanations and tables
DATE_PARTS = (DAY, WEEKDAY, DAY_OF_YEAR, SECOND)
FIRST_WEEKDAY = 3  # 1970-01-01 was a Thursday; Monday is 0
LAST_DAY = 2_932_897  # days from 1970 to the year 10000


@dataclass(frozen=True)
class Column:
    """A column of a table, with its name."""

    name: str
    kind: ClassVar[str]

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return ()

    @property
    def gap_row(self) -> FloatArray:
        """float64 (1, n_features), the features of a missing value."""
        return np.full((1, len(self.features)), np.nan)

    def encode(self, cells: Cells) -> FloatArray:
        """Features of some rows, float64 (n, n_features). Raises DataError for cells of another kind that
        cannot be converted exactly; cells without values fit every kind.
        """
        if not self.features:
            raise TypeError(f"a {self.kind} is not a feature")
        return np.repeat(self.gap_row, len(cells), axis=0) if cells.gap.all() else self._encode(cells)

    def _encode(self, cells: Cells) -> FloatArray:
        raise NotImplementedError

    def says(self, part: int, value: float) -> str | None:
        """The value of the table for a value of feature `part`; None where it is the number itself."""
        return None

    def in_words(self, features: Sequence[float]) -> float | str | None:
        """The value of the table for these features: a number, a category, a date; None for a missing one."""
        first = features[0]
        return None if np.isnan(first) else self.says(0, first) or first

    def encodes_as(self, other: "Column") -> bool:
        """Whether both encode the same values as the same features."""
        return self == other


@dataclass(frozen=True)
class Dropped(Column):
    """An omitted column."""

    kind: ClassVar[str] = "dropped"


@dataclass(frozen=True)
class Id(Column):
    """A column that is stored beside X."""

    kind: ClassVar[str] = "id"


@dataclass(frozen=True)
class Target(Column):
    """The column that is y."""

    kind: ClassVar[str] = "target"


@dataclass(frozen=True)
class Number(Column):
    """Numbers, unchanged."""

    kind: ClassVar[str] = NUMBER

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name,)

    def _encode(self, cells: Cells) -> FloatArray:
        if cells.kind not in (NUMBER, BOOLEAN):
            raise mismatch(self, cells)
        if cells.values.dtype.kind in "iu":
            refuse_rounded(cells.values[~cells.gap], self.name)
        return _column(np.where(cells.gap, np.nan, cells.values.astype(ACC_DTYPE)))

    def encodes_as(self, other: Column) -> bool:
        return isinstance(other, Number | Boolean) and self.name == other.name


@dataclass(frozen=True)
class Boolean(Column):
    """0 and 1. Accepts true or false as text, in any case, and the numbers 0 and 1."""

    kind: ClassVar[str] = BOOLEAN

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name,)

    def _encode(self, cells: Cells) -> FloatArray:
        if cells.kind in (TEXT, CATEGORY):
            table = np.array([_truth(level) for level in cells.levels] + [np.nan], ACC_DTYPE)
            values = table[cells.values]
        elif cells.kind in (NUMBER, BOOLEAN):
            values = cells.values.astype(ACC_DTYPE)
        else:
            raise mismatch(self, cells)
        if (~cells.gap & (values != 0) & (values != 1)).any():
            raise mismatch(self, cells)
        return _column(np.where(cells.gap, np.nan, values))

    def in_words(self, features: Sequence[float]) -> float | str | None:
        return {0.0: "false", 1.0: "true"}.get(features[0]) or super().in_words(features)

    def encodes_as(self, other: Column) -> bool:
        return isinstance(other, Number | Boolean) and self.name == other.name


@dataclass(frozen=True)
class Category(Column):
    """Known categories at their positions; one position after these for others, one for missing values."""

    categories: tuple[Level, ...]
    kind: ClassVar[str] = "category"

    @property
    def other(self) -> int:
        """The position of all unknown categories."""
        return len(self.categories)

    @property
    def gap(self) -> int:
        """The position of a missing value."""
        return len(self.categories) + 1

    @cached_property
    def _places(self) -> dict[Level, int]:
        places: dict[Level, int] = {}
        for place, category in enumerate(self.categories):  # Earlier versions stored spaces around text.
            places.setdefault(category.strip() if isinstance(category, str) else category, place)
        return places

    @cached_property
    def _of_text(self) -> bool:
        return any(isinstance(category, str) for category in self.categories)

    def positions(self, cells: Cells) -> IntArray:
        """int64 (n,), the position of each row's category. Raises DataError for dates."""
        if cells.gap.all():
            return np.full(len(cells), self.gap, np.int64)
        if cells.kind in (TEXT, CATEGORY):
            table = [self._places.get(self._level(level), self.other) for level in cells.levels]
            return np.asarray(np.array([*table, self.gap], np.int64)[cells.values])
        if cells.kind == DATE:
            raise mismatch(self, cells)
        positions = np.full(len(cells), self.gap, np.int64)
        levels, at = np.unique(cells.values[~cells.gap], return_inverse=True)
        table = [self._places.get(self._level(level), self.other) for level in levels]
        positions[~cells.gap] = np.array(table, np.int64)[at]
        return positions

    @property
    def gap_row(self) -> FloatArray:
        return self.at(np.array([self.gap]))

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name,)

    def in_words(self, features: Sequence[float]) -> float | str | None:
        if features[0] == self.other:
            return NEVER_SEEN
        return None if features[0] == self.gap else super().in_words(features)

    def says(self, part: int, value: float) -> str | None:
        known = [*map(str, self.categories), OTHERS, "gap"]
        return known[int(value)] if value in range(len(known)) else None

    def at(self, positions: IntArray) -> FloatArray:
        """Features of rows whose category has this position, float64 (n, n_features)."""
        return _column(positions.astype(ACC_DTYPE))

    def _encode(self, cells: Cells) -> FloatArray:
        return self.at(self.positions(cells))

    def _level(self, level: Any) -> Level:
        """A level in the form of the categories: text, or numbers."""
        plain: Level = plain_level(level)
        if self._of_text:
            return plain if isinstance(plain, str) else number_level(plain)
        if isinstance(plain, str) and is_number(plain):
            return plain_level(float(plain))  # type: ignore[no-any-return]
        return plain


@dataclass(frozen=True)
class Codes(Category):
    """Categories as their positions. Training one-hot encodes them."""


@dataclass(frozen=True)
class TargetCodes(Category):
    """Many categories as their positions, which training target-encodes (model/target_encoding.py)."""


@dataclass(frozen=True)
class Means(Category):
    """Target encodings of categories that earlier versions of dcpred fitted at import, on all rows.

    means    the value in every output for each position, with unknown categories and missing values at last
    outputs  the classes, where there are more than two: each has a feature; else empty
    """

    means: tuple[tuple[float, ...], ...]
    outputs: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{output}" for output in self.outputs) or (self.name,)

    def says(self, part: int, value: float) -> str | None:
        return None

    @cached_property
    def table(self) -> FloatArray:
        """float64 (n_positions, n_features)."""
        return np.array(self.means, ACC_DTYPE)

    def at(self, positions: IntArray) -> FloatArray:
        return np.asarray(self.table[positions])


@dataclass(frozen=True)
class Date(Column):
    """Dates, and times in UTC.

    parts  its DATE_PARTS, in their order
    zoned  whether its values have a time zone; None where this is not known, as in earlier versions
    """

    parts: tuple[str, ...]
    zoned: bool | None = None
    kind: ClassVar[str] = DATE

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(self.name if part == DAY else f"{self.name}.{part}" for part in self.parts)

    def _encode(self, cells: Cells) -> FloatArray:
        out = np.full((len(cells), len(self.parts)), np.nan)
        there = ~cells.gap
        instants = _instants(self, cells)[there]
        days = instants.astype("datetime64[D]")
        if self.zoned is not None:
            _check_zone(self, cells)
            if SECOND not in self.parts and (instants != days).any():
                raise DataError(
                    f"Cannot encode column {self.name!r}: its dates had no time of day in training, but"
                    f" {str(instants[instants != days][0])!r} has one, as dates in another time zone do."
                    " Convert it to that zone, or to dates."
                )
        for j, part in enumerate(self.parts):
            out[there, j] = _part(part, instants, days)
        return out

    def encodes_as(self, other: Column) -> bool:
        return self == other or (
            isinstance(other, Date)
            and (self.name, self.parts) == (other.name, other.parts)
            and None in (self.zoned, other.zoned)
        )

    def in_words(self, features: Sequence[float]) -> float | str | None:
        value, second = super().in_words(features), dict(zip(self.parts, features, strict=True)).get(SECOND)
        if not isinstance(value, str) or not second:
            return value
        return str(np.datetime64(value) + np.timedelta64(round(second), "s")).replace("T", " ")

    def says(self, part: int, value: float) -> str | None:
        fits = self.parts[part] == DAY and abs(value) < LAST_DAY
        return str(np.datetime64(floor(value), "D")) if fits else None


def _instants(column: Column, cells: Cells) -> NDArray[Any]:
    if cells.kind == DATE:
        return cells.values
    if cells.kind not in (TEXT, CATEGORY):
        raise mismatch(column, cells)
    dates = [as_date(level) if isinstance(level, str) else None for level in cells.levels]
    if any(date is None and n for date, n in zip(dates, cells.counts, strict=True)):
        raise mismatch(column, cells)
    table = np.array([np.datetime64("NaT") if date is None else date for date in dates], DATE_DTYPE)
    return np.asarray(np.append(table, np.datetime64("NaT"))[cells.values])


def _check_zone(column: Date, cells: Cells) -> None:
    """Raise DataError for values of which it is ambiguous which local time they mean."""
    if cells.kind == DATE:
        zoned = cells.zoned
    else:
        zoned = zones([level for level, n in zip(cells.levels, cells.counts, strict=True) if n])
    if zoned - {column.zoned}:
        held, known = ("no", "one") if column.zoned else ("a", "none")
        example = "Europe/Berlin"
        do = f".dt.tz_localize({example!r})"
        if not column.zoned:
            do = f".dt.tz_convert({example!r}).dt.tz_localize(None)"
        raise DataError(
            f"Cannot encode column {column.name!r}: its times have {held} time zone, but had {known} in"
            f" training: hours and days would shift. Convert it, in pandas by {do} with the zone of the"
            " training data."
        )


def _part(part: str, instants: NDArray[Any], days: NDArray[Any]) -> NDArray[Any]:
    number: IntArray = days.astype(np.int64)
    if part == DAY:
        return number
    if part == WEEKDAY:
        return (number + FIRST_WEEKDAY) % 7
    if part == DAY_OF_YEAR:
        year = days.astype("datetime64[Y]").astype("datetime64[D]")
        return np.asarray((days - year).astype(np.int64) + 1)
    return np.asarray((instants - days) / np.timedelta64(1, "s"))


def _truth(level: Any) -> float:
    if isinstance(level, str):
        truth = as_boolean(level)
        if truth is None and is_number(level):
            return float(level)
        return 2.0 if truth is None else truth
    return float(level)


def _column(values: FloatArray) -> FloatArray:
    return values[:, None]


def mismatch(column: Column, cells: Cells) -> DataError:
    """The error for cells of another kind than the column."""
    wanted = {NUMBER: "numbers", BOOLEAN: "true and false", DATE: "dates (ISO 8601)"}
    return DataError(
        f"Cannot encode column {column.name!r}: its schema expects"
        f" {wanted.get(column.kind, 'text or numbers')}, but it holds {IN_WORDS[cells.kind]}"
        f" ({str(_wrong(column, cells))!r}). Convert it."
    )


def _wrong(column: Column, cells: Cells) -> object:
    """A value of another kind than the column, or any value."""
    there = [level for level, n in zip(cells.levels, cells.counts, strict=True) if n] if cells.levels else []
    fits: dict[str, Callable[[Any], bool]] = {
        DATE: lambda level: isinstance(level, str) and as_date(level) is not None,
        BOOLEAN: lambda level: _truth(level) in (0, 1),
    }
    if there:
        fit = fits.get(column.kind, lambda level: False)
        return next((level for level in there if not fit(level)), there[0])
    if column.kind == BOOLEAN and cells.kind == NUMBER:
        return next(iter(cells.values[~cells.gap & (cells.values != 0) & (cells.values != 1)]), None)
    return cells.example()
