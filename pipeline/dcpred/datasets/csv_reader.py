"""Streaming readers of text, CSV and svmlight, and what they share with the formats that know their dtypes.

Each reader goes through its file twice. The first pass finds what must be known before an array can be created: number
of rows, smallest exact dtype, labels; and it refuses what cannot be imported. The second pass yields the rows. Neither
holds more than a batch of rows.

Text says nothing about types. Numbers are read as float64, and the dtype is then chosen from the values:

    all whole          the smallest integer of 8 to 64 bits, unsigned where none is negative
    otherwise          float32 if it holds every one of these float64 values, else float64

A whole number past 2⁵³ that float64 does not hold is refused, and never rounded in silence.
"""

import bz2
import csv
import difflib
import gzip
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import DataError

BATCH_BYTES = 2**20  # of text; Arrow reads some 32 blocks of CSV ahead, and importing takes 100 MiB (2026-11)
HEADER_LENGTHS = 32  # a CSV row may be this many times as long as its first line, where BATCH_BYTES are too few
EXACT_LIMIT = 2**53  # up to it float64 holds every whole number
MAX_LABELS = 2**16  # more different strings than this are no classes
INTEGERS = tuple(np.dtype(f"{sign}int{bits}") for bits in (8, 16, 32, 64) for sign in ("u", ""))
CSV_NO_NUMBER = re.compile(r"CSV column #(\d+): Row #(\d+): CSV conversion error to double: invalid value '(.*)'", re.S)
CSV_FIELD = re.compile(r"(?i)[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf)|n/?a|null|")  # a number, or missing
CSV_WHOLE = r"^-?\d{1,300}$"  # longer ones are infinite in float64

Batch = tuple[NDArray[Any], NDArray[Any] | None]


@dataclass(frozen=True)
class Table:
    """What a file holds, known before anything is written.

    `batches(rows)` yields (X, y) from the first row to the last, in pieces of any length whose values `dtype` and
    `target_dtype` hold exactly; `rows` is how many the writer takes at once. y is None where there is no target, and
    holds positions in `labels` where the target is made of strings. `names` are those of the features, if it has them.
    """

    n_samples: int
    n_features: int
    dtype: np.dtype[Any]
    target_dtype: np.dtype[Any] | None
    labels: tuple[str, ...] | None
    names: tuple[str, ...] | None
    batches: Callable[[int], Iterator[Batch]]


class NotANumberError(DataError):
    """A CSV column, by its position, holds something else than numbers."""

    column = -1


class Spread:
    """The values of float64 columns, as far as they decide on the dtype that holds all of them."""

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

    def wide(self) -> NDArray[np.intp]:
        """Columns with values that float64 may have rounded."""
        return np.flatnonzero((self.low <= -EXACT_LIMIT) | (self.high >= EXACT_LIMIT))

    def dtype(self) -> np.dtype[Any]:
        """The smallest dtype for all columns together."""
        fit = smallest_integer(int(self.low.min()), int(self.high.max())) if self.whole else None
        return fit or np.dtype(np.float32 if self.single else np.float64)


class TargetSurvey:
    """One pass over a target, given in Arrow arrays: no value is missing, and strings are few enough to be classes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_rows = 0
        self.strings: set[str] = set()

    def add(self, values: Any) -> None:
        missing = pc.is_null(values, nan_is_null=True)
        if pa.types.is_string(values.type):
            missing = pc.or_kleene(missing, pc.equal(values, ""))
            self.strings.update(pc.unique(values).to_pylist())
        first = pc.index(missing, True).as_py()
        if first >= 0:
            raise DataError(
                f"each row needs a target, but {self.name} is missing in row {self.n_rows + first:,} "
                "(counted from 0); fill it in or remove the row"
            )
        if len(self.strings) > MAX_LABELS:
            raise DataError(
                f"{self.name} holds strings, which would be classes, but more than {MAX_LABELS:,} different ones; "
                "name another target, or make this one numeric"
            )
        self.n_rows += len(values)

    @property
    def labels(self) -> tuple[str, ...] | None:
        return tuple(sorted(self.strings)) or None


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
        raise DataError("the target is not what it was in the first pass; import the file when nothing writes to it")
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


def split_columns(path: Path, names: list[str], target: str | None) -> tuple[list[int], int | None]:
    """Where the features and the target are among the columns. Names that do not tell columns apart are refused."""
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name == "" or name in seen:
            so = f"{name!r} is there twice" if name else f"column {i + 1} has none (an index that was written along?)"
            raise DataError(f"each column of {path.name} needs its own name, but {so}; name it or leave it out")
        seen.add(name)
    if target is not None and target not in seen:
        near = difflib.get_close_matches(target, names, 1)
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
        do = f"did you mean {near[0]!r}? It has {shown}" if near else f"pass one of {shown}"
        raise DataError(f"column {target!r} was to become y, but {path.name} has no such column; {do}")
    position = None if target is None else names.index(target)
    features = [i for i in range(len(names)) if i != position]
    if not features:
        raise DataError(f"features were to be imported, but {path.name} has no column besides the target; add some")
    return features, position


def first_rounded(numbers: Iterable[int]) -> int | None:
    """The first that float64 does not hold."""
    return next((n for n in numbers if int(float(n)) != n), None)


def rounded(where: str, value: int) -> DataError:
    return DataError(
        f"values are imported exactly, but {where} holds {value}, which float64 would round; remove it, or import "
        "64-bit integers, with no floats and no missing values beside them, from .npz or .parquet"
    )


def no_rows(path: Path) -> DataError:
    return DataError(f"rows were to be imported from {path.name}, but it has none; name a file with rows")


def damaged(path: Path, error: Exception) -> DataError:
    so = f"it is damaged or of another format ({error})"
    return DataError(f"{path} was to be imported, but {so}; get it again or rename it")


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file that may be compressed."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower(), open)
    return cast(BinaryIO, opener(path, "rb"))


# -- CSV --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CsvFile:
    """A CSV file whose first line was read. `types` has the Arrow type of each column that is wanted."""

    path: Path
    names: list[str]
    offset: int  # of the first row, in bytes
    types: dict[int, Any]

    def batches(self) -> Iterator[dict[int, Any]]:
        """The wanted columns by position, some rows at a time."""
        longest = HEADER_LENGTHS * sum(len(name) + 1 for name in self.names)
        keys = {str(i): t for i, t in self.types.items()}
        read = pa_csv.ReadOptions(
            use_threads=False,  # rows then have numbers in messages, and memory is a few blocks
            block_size=max(BATCH_BYTES, longest),
            column_names=[str(i) for i in range(len(self.names))],
        )
        convert = pa_csv.ConvertOptions(column_types=keys, include_columns=list(keys), strings_can_be_null=True)
        with open_bytes(self.path) as file:
            file.seek(self.offset)
            try:
                with pa_csv.open_csv(file, read, convert_options=convert) as reader:
                    for batch in reader:
                        yield dict(zip(self.types, map(_trimmed, batch.columns), strict=True))
            except pa.ArrowInvalid as error:
                raise self._refusal(str(error)) from None

    def _refusal(self, why: str) -> DataError:
        found = CSV_NO_NUMBER.search(why)
        if found is None:
            return DataError(f"{self.path.name} was to be read as CSV, but is not: {why}; correct the file")
        column, row = int(found[1]), int(found[2]) - 1  # pyarrow counts from 1, without the header
        error = NotANumberError(
            f"features must be numbers, but column {self.names[column]!r} of {self.path.name} holds {found[3]!r} in "
            f"row {row:,} (counted from 0); encode it as numbers, remove it, or make it the target"
        )
        error.column = column
        return error


def _trimmed(column: Any) -> Any:
    return pc.utf8_trim_whitespace(column) if pa.types.is_string(column.type) else column


def csv_file(path: Path) -> CsvFile:
    """Read the first line of a CSV file: names, or numbers, and then the columns are called 0, 1, …"""
    with open_bytes(path) as file:
        lines = iter(file.readline, b"")
        fields = next((row for row in csv.reader(line.decode("utf-8-sig") for line in lines) if row), [])
        offset, has_rows = file.tell(), any(line.strip() for line in lines)
    names = [name.strip() for name in fields]
    if len(names) == 1 and re.search("[;\t]", names[0]):
        raise DataError(f"fields must be separated by commas, but {path.name} begins {names[0][:60]!r}; convert it")
    if all(map(CSV_FIELD.fullmatch, names)) and re.search(r"\d", "".join(names)):
        names, offset, has_rows = [str(i) for i in range(len(fields))], 0, True
    if not has_rows:
        raise no_rows(path)
    return CsvFile(path, names, offset, dict.fromkeys(range(len(names)), pa.float64()))


def read_csv(path: Path, target: str | None) -> Table:
    """Fields separated by commas, below a line of names. A first line of nothing but numbers is a row, and the columns
    are then called 0, 1, …

    An empty field, NA, NaN or null is missing: NaN in a feature, refused in a target. There is no y without `target`,
    whatever the columns are called.
    """
    file = csv_file(path)
    features, position = split_columns(path, file.names, target)
    try:
        n_samples, spread, goal, labels = _survey_csv(file, features, position)
    except NotANumberError as error:
        if error.column != position:
            raise
        file = replace(file, types=file.types | {position: pa.string()})  # the target is made of labels
        n_samples, spread, goal, labels = _survey_csv(file, features, position)
    wide = [features[j] for j in spread.wide()]
    if position is not None and goal.wide().size:
        wide.append(position)
    _refuse_rounded(replace(file, types=dict.fromkeys(wide, pa.string())))
    dtype = spread.dtype()
    target_dtype = label_dtype(labels) if labels else None if position is None else goal.dtype()

    def batches(_rows: int) -> Iterator[Batch]:
        for columns in file.batches():
            y = None if position is None else target_values(columns[position], labels)
            yield side_by_side([columns[i] for i in features], dtype), y

    return Table(n_samples, len(features), dtype, target_dtype, labels, tuple(file.names[i] for i in features), batches)


def _survey_csv(file: CsvFile, features: list[int], position: int | None) -> tuple[int, Spread, Spread, tuple[str, ...] | None]:
    """Number of rows, the values of the features and of a numeric target, and the labels of a target of strings."""
    n_samples, spread, goal = 0, Spread(len(features)), Spread(1)
    survey = TargetSurvey("the target" if position is None else f"column {file.names[position]!r} of {file.path.name}")
    for columns in file.batches():
        X = side_by_side([columns[i] for i in features], np.dtype(np.float64))
        spread.add(X)
        n_samples += len(X)
        if position is not None:
            survey.add(columns[position])
            if not pa.types.is_string(file.types[position]):
                goal.add(arrow_values(columns[position])[:, None])
    return n_samples, spread, goal, survey.labels


def _refuse_rounded(file: CsvFile) -> None:
    """Read columns as text, and refuse a column of whole numbers that float64 has rounded.

    Where a number is written with a point or an exponent the column is one of floats, and float64 is its reading.
    """
    found: dict[int, int] = {}
    floats: set[int] = set()
    for columns in file.batches() if file.types else ():
        for i, column in columns.items():
            text = column.drop_null()
            if not pc.all(pc.match_substring_regex(text, CSV_WHOLE), min_count=0).as_py():
                floats.add(i)
            elif i not in found and (value := first_rounded(map(int, text.to_pylist()))) is not None:
                found[i] = value
    for i in sorted(found.keys() - floats):
        raise rounded(f"column {file.names[i]!r} of {file.path.name}", found[i])
