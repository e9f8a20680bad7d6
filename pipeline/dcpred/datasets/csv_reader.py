"""A streaming reader of CSV, and how text finds its dtypes, which svmlight does likewise.

Each reader goes through its file twice. The first pass finds what must be known before an array can be
created: number of rows, smallest exact dtype, labels; and it refuses what cannot be imported. The second pass
yields the rows. Neither holds more than a batch of rows.

Text says nothing about types. Numbers are read as float64, and the dtype is then chosen from the values:

    all whole          the smallest integer of 8 to 64 bits, unsigned where none is negative
    otherwise          float32 if it holds every one of these float64 values, else float64

A whole number past 2⁵³ that float64 does not hold is refused, and never rounded in silence.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dcpred.datasets.table import (
    Batch,
    Spread,
    Table,
    TargetSurvey,
    arrow_values,
    first_rounded,
    label_dtype,
    no_rows,
    open_bytes,
    rounded,
    side_by_side,
    split_columns,
    target_values,
)
from dcpred_tasks.errors import DataError

# Bytes of text read at once. Arrow reads some 32 times as many ahead: importing takes 100 MiB (2026-11).
BATCH_BYTES = 2**20
# A row may be this many times as long as the first line, where BATCH_BYTES are too few.
HEADER_LENGTHS = 32
CSV_NO_NUMBER = re.compile(
    r"CSV column #(\d+): Row #(\d+): CSV conversion error to double: invalid value '(.*)'", re.S
)
# A number, or what stands for a missing one.
CSV_FIELD = re.compile(r"(?i)[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf)|n/?a|null|")
CSV_WHOLE = r"^-?\d{1,300}$"  # longer numbers are infinite in float64


class NotANumberError(DataError):
    """A CSV column, by its position, holds something else than numbers."""

    column = -1


# -- CSV -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CsvFile:
    """A CSV file whose first line was read. `types` has the Arrow type of each column that is wanted."""

    path: Path
    names: list[str]
    offset: int  # byte at which the first row begins
    types: dict[int, Any]

    def batches(self) -> Iterator[dict[int, Any]]:
        """The wanted columns by position, some rows at a time."""
        longest = HEADER_LENGTHS * sum(len(name) + 1 for name in self.names)
        keys = {str(i): t for i, t in self.types.items()}
        read = pa_csv.ReadOptions(
            use_threads=False,  # messages then have row numbers, and memory is a few batches
            block_size=max(BATCH_BYTES, longest),
            column_names=[str(i) for i in range(len(self.names))],
        )
        convert = pa_csv.ConvertOptions(
            column_types=keys, include_columns=list(keys), strings_can_be_null=True
        )
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
            f"features must be numbers, but column {self.names[column]!r} of {self.path.name} holds"
            f" {found[3]!r} in row {row:,} (counted from 0); encode it as numbers, remove it, or make it the"
            " target"
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
        raise DataError(
            f"fields must be separated by commas, but {path.name} begins {names[0][:60]!r}; convert it"
        )
    if all(map(CSV_FIELD.fullmatch, names)) and re.search(r"\d", "".join(names)):
        names, offset, has_rows = [str(i) for i in range(len(fields))], 0, True
    if not has_rows:
        raise no_rows(path)
    return CsvFile(path, names, offset, dict.fromkeys(range(len(names)), pa.float64()))


def read_csv(path: Path, target: str | None) -> Table:
    """Fields separated by commas, below a line of names. A first line of nothing but numbers is a row, and
    the columns are then called 0, 1, …

    An empty field, NA, NaN or null is missing: NaN in a feature, refused in a target. There is no y without
    `target`, whatever the columns are called.
    """
    file = csv_file(path)
    features, position = split_columns(path, file.names, target)
    try:
        n_samples, spread, goal, labels = _survey_csv(file, features, position)
    except NotANumberError as error:
        if error.column != position:
            raise
        file = replace(file, types=file.types | {position: pa.string()})  # the target holds labels
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

    return Table(
        n_samples, len(features), dtype, target_dtype, labels, tuple(file.names[i] for i in features), batches
    )


def _survey_csv(
    file: CsvFile, features: list[int], position: int | None
) -> tuple[int, Spread, Spread, tuple[str, ...] | None]:
    """Number of rows, spread of the features and of a numeric target, and labels of a target of strings."""
    n_samples, spread, goal = 0, Spread(len(features)), Spread(1)
    survey = TargetSurvey(
        "the target" if position is None else f"column {file.names[position]!r} of {file.path.name}"
    )
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

    Where a number is written with a point or an exponent the column is one of floats, and float64 is its
    reading.
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
