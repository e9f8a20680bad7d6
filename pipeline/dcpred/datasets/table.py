"""Tables of a data set: their arrays, and how numbers are rounded."""

import bz2
import difflib
import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import DataError, listed
from dcpred_tasks.schema.inference import SHOWN, as_option, can_be_kept
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.storage.object_arrays import EXACT_LIMIT

MAX_LABELS = 2**16  # maximum number of different strings that can be classes
INTEGERS = tuple(np.dtype(f"{sign}int{bits}") for bits in (8, 16, 32, 64) for sign in ("u", ""))


class Batch(NamedTuple):
    """Some rows to write.

    X    (n, n_features)
    y    (n,); None without a target
    ids  (n,) for each column that is stored next to X, by its name
    """

    X: NDArray[Any]
    y: NDArray[Any] | None = None
    ids: Mapping[str, NDArray[Any]] = {}


@dataclass(frozen=True)
class Table:
    """The content of a source, known before anything is written."""

    n_samples: int
    n_features: int
    dtype: np.dtype[Any]
    """A dtype that holds every value of X exactly."""
    target_dtype: np.dtype[Any] | None
    """A dtype that holds every value of y exactly; None without a target."""
    labels: tuple[str, ...] | None
    """The sorted classes, if the target is made of strings: y then holds positions in them."""
    names: tuple[str, ...] | None
    """Names of the features, if the file has them."""
    batches: Callable[[int], Iterator[Batch]]
    """batches(rows) yields all rows from the first to the last, in batches of any length. `rows` is how many
    the writer takes at once."""
    schema: Schema | None = None
    """The columns, if the source has any."""
    ids: Mapping[str, Any] = field(default_factory=dict)
    """Dtypes of the columns that are stored next to X, by name; `str` for text."""
    ignored: tuple[str, ...] = ()
    """Columns that the followed schema does not know."""
    unlabelled: Sequence[int] = (0,)
    """The number of skipped rows without a target, as its one item."""
    unlabelled_text: str = ""
    """A text that may be a class, but stands for a missing target in some of these rows."""
    absent: tuple[str, ...] = ()
    """Columns of the source whose values are not read, because they were declared absent."""
    index_base: int | None = None
    """The index of the first feature, if the source counts features."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Rows by column whose category the schema does not know; filled while batches are read."""


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


class TargetSurvey:
    """One pass over a target in Arrow arrays. Raises DataError for a missing value, and for too many
    different strings.

    written  written(row) returns what a row holds, and a remedy, if it is known
    """

    def __init__(self, name: str, written: Callable[[int], tuple[str, str]] | None = None) -> None:
        self.name, self.written = name, written
        self.n_rows = 0
        self.strings: set[str] = set()

    def add(self, values: Any) -> None:
        if pa.types.is_string(values.type):
            self.strings.update(pc.unique(values).to_pylist())
        first = pc.index(is_missing(values), True).as_py()
        if first >= 0:
            row = self.n_rows + first
            held, do = self.written(row) if self.written else ("is missing", " or remove the row")
            raise DataError(
                f"Cannot use {self.name} as target: it {held} in row {row:,} (counted from 0). Fill it in{do}"
            )
        if len(self.strings) > MAX_LABELS:
            raise DataError(
                f"Cannot use {self.name} as target: its strings would be classes, but more than"
                f" {MAX_LABELS:,} are"
                " different. Name another target, or make this one numeric."
            )
        self.n_rows += len(values)

    @property
    def labels(self) -> tuple[str, ...] | None:
        return tuple(sorted(self.strings)) or None


def is_missing(values: Any) -> Any:
    """Where an Arrow array of a target is missing: null, NaN or empty text."""
    missing = pc.is_null(values, nan_is_null=True)
    return pc.or_kleene(missing, pc.equal(values, "")) if pa.types.is_string(values.type) else missing


def smallest_integer(low: int, high: int) -> np.dtype[Any] | None:
    """The smallest integer dtype that holds low to high, unsigned first; None if there is none."""
    return next((d for d in INTEGERS if np.iinfo(d).min <= low and high <= np.iinfo(d).max), None)


def label_dtype(labels: tuple[str, ...]) -> np.dtype[Any]:
    return cast("np.dtype[Any]", smallest_integer(0, len(labels) - 1))


def target_values(values: Any, labels: tuple[str, ...] | None) -> NDArray[Any]:
    """An Arrow array of a target as numbers: itself, or positions in `labels`."""
    if labels is not None:
        values = pc.index_in(values, value_set=pa.array(labels, pa.string()))
    if values.null_count:
        raise DataError(
            "Cannot import the target: it changed since the first pass. Import the file when nothing writes"
            " to it."
        )
    return arrow_values(values)


def arrow_values(column: Any) -> NDArray[Any]:
    """An Arrow array of numbers; a null is NaN."""
    if column.null_count and pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())  # booleans with nulls would become Python objects
    return np.asarray(column.to_numpy(zero_copy_only=False))


def side_by_side(columns: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Arrow arrays of equal length as the columns of a matrix."""
    X = np.empty((len(columns[0]), len(columns)), dtype)
    for j, column in enumerate(columns):
        X[:, j] = arrow_values(column)
    return X


def check_names(source: str, names: Sequence[str]) -> None:
    """Raise DataError if names are not unique."""
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name == "" or name in seen:
            so = f"{name!r} occurs twice" if name else f"column {i + 1} has none (a stored index?)"
            raise DataError(
                f"Cannot import {source}: each column needs its own name, but {so}. Name it or omit it."
            )
        seen.add(name)


def check_there(source: str, names: Sequence[str], wanted: str, what: str) -> None:
    """Raise DataError if the column `wanted` is not among those of a source.

    what  its purpose, for example "use column {} as target"
    """
    if wanted not in names:
        near = difflib.get_close_matches(wanted, names, 1)
        shown = listed(names)
        do = f"Did you mean {near[0]!r}? It has {shown}." if near else f"Pass one of {shown}."
        raise DataError(f"Cannot {what.format(repr(wanted))}: {source} has no such column. {do}")


def no_rows(source: str) -> DataError:
    return DataError(f"Cannot import {source}: it has no rows. Name a source with rows.")


def damaged(path: Path, error: Exception) -> DataError:
    so = f"it is damaged or of another format ({error})"
    return DataError(f"Cannot import {path}: {so}. Get it again or rename it.")


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed if necessary."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower(), open)
    return cast(BinaryIO, opener(path, "rb"))


WHOLE = r"^[+-]?\d{1,300}(\.0*)?$"  # longer numbers are infinite in float64
REMEMBERED = 4 * MAX_LABELS  # different values to compare with new ones: more are not classes
# From here on float64 rounds the third decimal: the text of such a column is read again.
LARGE = EXACT_LIMIT / 1024


def first_rounded(numbers: Iterable[int]) -> int | None:
    """The first of the numbers that float64 does not hold, or None."""
    return next((n for n in numbers if int(float(n)) != n), None)


def rounded(where: str, value: object, do: str = "") -> DataError:
    """The refusal of a value.

    do  the remedy, from `remedy`
    """
    do = do or "Remove it, or save all values as integers of 64 bits"
    return DataError(f"Cannot import {where}: it holds {value}, which float64 would round. {do}.")


def remedy(name: str, *, is_target: bool, is_followed: bool = False) -> str:
    """The remedy for a column whose values float64 rounds.

    is_followed  whether a schema states the kind of the column
    """
    if is_target:
        return "Convert the values to text if they are classes, or round them before the import"
    if is_followed:
        return "Round the values before the import"
    option = as_option(name)
    keep = f"Store the column next to X with --id {option}, omit" if can_be_kept(name) else "Omit"
    return f"{keep} it with --drop {option}, or convert the values to text"


class Rounding:
    """One pass over a column of numbers in text or decimals.

    where  the column, for messages
    do     the remedy
    """

    def __init__(self, where: str, do: str) -> None:
        self.where, self.do = where, do
        self.n_rows = 0
        self.plain: dict[float, int] = {}
        """Numbers in their shortest form, and a row of each."""
        self.other: dict[float, tuple[str, int]] = {}
        """Numbers in another form, with that and a row."""
        self.whole: tuple[str, int] | None = None
        """The first integer that float64 rounds, and its row."""
        self.has_fractions = False

    def add(self, values: Any) -> None:
        """values  Arrow strings, each a number in Python's form, or decimals. Raises DataError if
        float64 makes different ones equal.
        """
        coded = values.cast(pa.string()).dictionary_encode()
        there = np.asarray(coded.indices.is_valid())
        codes = np.asarray(coded.indices.fill_null(0).to_numpy(zero_copy_only=False))[there]
        different, at = np.unique(codes, return_index=True)
        rows = self.n_rows + np.flatnonzero(there)[at]
        self.n_rows += len(values)
        texts = coded.dictionary.take(pa.array(different))
        held = texts.cast(pa.float64())
        numbers = held.to_numpy(zero_copy_only=False)
        if not self.has_fractions:
            self.has_fractions = not pc.all(pc.match_substring_regex(texts, WHOLE), min_count=0).as_py()
        shortest = pc.equal(texts, held.cast(pa.string())).to_numpy(zero_copy_only=False).astype(bool)
        is_plain = shortest & (np.abs(numbers) < EXACT_LIMIT)
        plain = dict(zip(numbers[is_plain].tolist(), rows[is_plain].tolist(), strict=True))
        for number in self.other.keys() & plain.keys():
            self._compare(number, (repr(number), plain[number]), self.other[number])
        self.plain.update(plain)
        rest = texts.filter(pa.array(~is_plain)).to_pylist()
        for text, number, row in zip(
            rest, numbers[~is_plain].tolist(), rows[~is_plain].tolist(), strict=True
        ):
            self._add_other(number, (text, row))
        if len(self.plain) + len(self.other) > REMEMBERED:
            self.plain.clear()
            self.other.clear()

    def _add_other(self, number: float, written: tuple[str, int]) -> None:
        text = written[0]
        if self.whole is None and abs(number) >= EXACT_LIMIT and re.match(WHOLE, text):
            self.whole = None if int(text.partition(".")[0]) == number else written
        self._compare(number, self.other.setdefault(number, written), written)
        if number in self.plain:
            self._compare(number, (repr(number), self.plain[number]), written)

    def _compare(self, number: float, one: tuple[str, int], other: tuple[str, int]) -> None:
        """Raise DataError if two texts of a number in float64 are different numbers."""
        if one[0] == other[0] or not number or not np.isfinite(number):
            return
        if Decimal(one[0]) == Decimal(other[0]):
            return
        raise DataError(
            f"Cannot import {self.where}: it holds {one[0][:SHOWN]} in row {one[1]:,} and"
            f" {other[0][:SHOWN]!s} in row {other[1]:,} (counted from 0), which are one number in float64."
            f" {self.do}."
        )

    def refuse_whole(self) -> None:
        """Raise DataError for an integer that float64 rounds."""
        if self.whole is not None:
            text, row = self.whole
            value = f"{text[:SHOWN]} in row {row:,} (counted from 0)"
            raise rounded(self.where, value, self.do)
