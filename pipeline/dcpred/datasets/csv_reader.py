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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dcpred.datasets.source import Columns, is_text
from dcpred.datasets.table import check_names, first_rounded, no_rows, open_bytes, rounded
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.inference import as_option

# Bytes of text read at once. Arrow reads some 32 times as many ahead: importing takes 100 MiB (2026-11).
BATCH_BYTES = 2**20
# A row may be this many times as long as the first line, where BATCH_BYTES are too few.
HEADER_LENGTHS = 32
LONGEST_LINE = 2**25  # bytes: a file without lines is not read into memory
CSV_NO_NUMBER = re.compile(
    r"CSV column #(\d+): Row #(\d+): CSV conversion error to double: invalid value '(.*)'", re.S
)
# A number, or what stands for a missing one.
CSV_FIELD = re.compile(r"(?i)[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf)|n/?a|null|")
CSV_WHOLE = r"^-?\d{1,300}$"  # longer numbers are infinite in float64
INDEX = "index"  # a first column without a name
SEPARATORS = (",", ";", "\t")  # the one that makes most fields of the first line, or the first of such
SPACED = (" {}", "{} ", " {} ")  # how a gap among numbers may be written, too
GAP_TEXTS = tuple(pa_csv.ConvertOptions().null_values)  # what stands for a gap in any column


class NotANumberError(DataError):
    """A CSV column, by its name, holds something else than numbers."""

    column = ""


@dataclass(frozen=True)
class CsvFile:
    """A CSV file whose first line was read: a Source.

    offset     byte at which the first row begins
    separator  what stands between fields
    text       the columns that are read as text; all others are numbers
    verbatim   those among them whose text is taken as it is: nothing in it stands for a gap
    gap_texts  what stands for a gap beside GAP_TEXTS
    """

    path: Path
    names: tuple[str, ...]
    offset: int
    text: frozenset[str] = frozenset()
    verbatim: frozenset[str] = frozenset()
    gap_texts: tuple[str, ...] = ()
    separator: str = ","

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def types(self) -> Mapping[str, Any]:
        return {name: pa.string() if name in self.text else pa.float64() for name in self.names}

    def reading_as_text(self, names: Sequence[str]) -> "CsvFile":
        return replace(self, text=self.text | frozenset(names))

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        """These columns, some rows at a time. Raises NotANumberError where one that is read as numbers holds
        something else.
        """
        longest = HEADER_LENGTHS * sum(len(name) + 1 for name in self.names)
        place = {name: str(i) for i, name in enumerate(self.names)}
        gaps = [*GAP_TEXTS, *self.gap_texts]
        read = pa_csv.ReadOptions(
            use_threads=False,  # messages then have row numbers, and memory is a few batches
            block_size=max(BATCH_BYTES, longest),
            column_names=list(place.values()),
        )
        parse = pa_csv.ParseOptions(delimiter=self.separator)
        convert = pa_csv.ConvertOptions(
            column_types={place[name]: self.types[name] for name in names},
            include_columns=[place[name] for name in names],
            null_values=[*gaps, *(around.format(gap) for gap in gaps for around in SPACED)],
            strings_can_be_null=False,
        )
        with open_bytes(self.path) as file:
            file.seek(self.offset)
            try:
                with pa_csv.open_csv(file, read, parse, convert) as reader:
                    for batch in reader:
                        yield {
                            name: self._told(name, column, gaps)
                            for name, column in zip(names, batch.columns, strict=True)
                        }
            except pa.ArrowInvalid as error:
                raise self._refusal(str(error)) from None

    def _told(self, name: str, column: Any, gaps: list[str]) -> Any:
        """Text without spaces around it, and null where it stands for a gap."""
        if not is_text(column.type):
            return column
        column = pc.utf8_trim_whitespace(column)
        if name in self.verbatim:
            return column
        return pc.if_else(pc.is_in(column, value_set=pa.array(gaps)), pa.scalar(None, pa.string()), column)

    def _refusal(self, why: str) -> DataError:
        found = CSV_NO_NUMBER.search(why)
        if "invalid UTF8" in why:
            return no_text(self.name)
        if found is None:
            return DataError(f"{self.name} was to be read as CSV, but is not: {why}; correct the file")
        name, row = self.names[int(found[1])], int(found[2]) - 1  # pyarrow counts from 1, without the header
        error = NotANumberError(
            f"column {name!r} of {self.name} must hold numbers, but it holds {found[3]!r} in row {row:,}"
            " (counted from 0); correct it, or leave it out with"
            f" --drop {as_option(name)}"
        )
        error.column = name
        return error

    def looked_at(self, names: Sequence[str], *, whole: bool) -> "CsvFile":
        """The file, with those of these columns read as text that hold something else than numbers in its
        first batch, or in the `whole` of it.
        """
        left, found = [name for name in names if name not in self.text], set[str]()
        for columns in replace(self, text=frozenset(self.names)).batches(left):
            found |= {name for name in left if name not in found and not _all_numbers(columns[name])}
            if not whole:
                break
        return self.reading_as_text(sorted(found))


def _all_numbers(column: Any) -> bool:
    try:
        column.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def no_text(name: str) -> DataError:
    return DataError(f"{name} was to be read as CSV, but is no text in UTF-8; save it as UTF-8")


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise DataError(
                f"{name} was to be read as CSV, but a line has more than {LONGEST_LINE / 2**20:,.0f} MiB;"
                " name a file of lines"
            )
        yield line


def csv_file(path: Path, named: Collection[str] | None = ()) -> CsvFile:
    """Read the first line of a CSV file: names, or numbers, and then the columns are called 0, 1, …

    named  the columns that options name; None where a schema is followed. pandas writes its index first,
           without a name: it is called `index`, and what becomes of it has to be said.
    """
    found = {separator: _first_line(path, separator) for separator in SEPARATORS}
    separator = max(found, key=lambda one: len(found[one][0]))
    fields, offset, has_rows = found[separator]
    names = [name.strip() for name in fields]
    if all(map(CSV_FIELD.fullmatch, names)) and re.search(r"\d", "".join(names)):
        names, offset, has_rows = [str(i) for i in range(len(fields))], 0, True
    if not has_rows:
        raise no_rows(path.name)
    if len(names) > 1 and not names[0] and INDEX not in names:
        if named is not None and INDEX not in named:
            raise DataError(
                f"each column of {path.name} needs a name, but the first one has none, as where pandas wrote"
                f" its index; keep it by --id {INDEX}, or leave it out by --drop {INDEX}"
            )
        names[0] = INDEX
    check_names(path.name, names)
    return CsvFile(path, tuple(names), offset, separator=separator)


def _first_line(path: Path, separator: str) -> tuple[list[str], int, bool]:
    """The fields of the first line that is not empty, the byte after it, and whether rows follow."""
    with open_bytes(path) as file:
        lines = _lines(file, path.name)
        texts = (line.decode("utf-8-sig") for line in lines)
        try:
            fields = next((row for row in csv.reader(texts, delimiter=separator) if row), [])
        except UnicodeDecodeError:
            raise no_text(path.name) from None
        return fields, file.tell(), any(line.strip() for line in lines)


def refuse_rounded(file: CsvFile, names: Sequence[str]) -> None:
    """Read columns of numbers as text, and refuse one of whole numbers that float64 has rounded.

    Where a number is written with a point or an exponent the column is one of floats, and float64 is its
    reading.
    """
    found: dict[str, int] = {}
    floats: set[str] = set()
    for columns in file.reading_as_text(names).batches(names) if names else ():
        for name, column in columns.items():
            text = column.drop_null()
            if not pc.all(pc.match_substring_regex(text, CSV_WHOLE), min_count=0).as_py():
                floats.add(name)
            elif name not in found and (value := first_rounded(map(int, text.to_pylist()))) is not None:
                found[name] = value
    for name in names:
        if name in found and name not in floats:
            raise rounded(f"column {name!r} of {file.name}", found[name])
