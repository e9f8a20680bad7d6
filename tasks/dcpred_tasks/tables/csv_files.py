"""CSV files: their format, and their rows in pieces."""

import bz2
import codecs
import csv
import gzip
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.schema.inference import as_option, marks_hint
from dcpred_tasks.schema.schema import PLAIN_TEXT, TextFormat
from dcpred_tasks.tables.arrow_columns import Rounding
from dcpred_tasks.tables.table_columns import Columns, check_names, no_rows
from dcpred_tasks.tables.table_source import ReadOptions

LONGEST_LINE = 2**25  # bytes: a file without lines is not read into memory
# A number, or a text that stands for a missing value.
CSV_FIELD = re.compile(r"(?i)[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf)|n/?a|null|")
SEPARATORS = (
    ",",
    ";",
    "\t",
    "|",
)  # the one that splits the first line into most fields, or the first of these
SEPARATOR_LINE = re.compile(r"(?i)sep=(.)")  # a first line of Excel
OTHER_SEPARATORS = re.compile(r"[:^~ \x01\x1f]")
NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
MINUS, FORTRAN = "\u2212", r"^([+-]?\d*\.\d*)[dD]([+-]?\d+)$"
NOT_FINITE = r"^(?i:[+-]?(nan|inf|infinity))$"
POINTED = re.compile(r"[+-]?\d*\.\d+")


def separator_of(option: str | None) -> str | None:
    """The separator that an option names. Raises SettingsError for anything else."""
    separator = NAMED_SEPARATORS.get(option or "", option)
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n'):
        raise SettingsError(
            f"Cannot use the separator {option!r}: it is not one ASCII character. Pass one, or `tab`."
        )
    return separator


# -- Numbers -------------------------------------------------------------------------------------------------


def has_marks(form: TextFormat) -> bool:
    """Whether numbers differ from the form 1234.5."""
    return form.decimal != "." or bool(form.thousands)


@lru_cache(maxsize=16)
def _number(form: TextFormat) -> str:
    """A regular expression for numbers with the marks of a format."""
    decimal, mark = re.escape(form.decimal), re.escape(form.thousands)
    grouped = rf"|\d{{1,3}}(?:{mark}\d{{3}})+" if mark else ""
    return rf"^[+-]?(?:(?:\d+{grouped})(?:{decimal}\d*)?|{decimal}\d+)(?:[eE][+-]?\d+)?$"


def plain_numbers(text: Any, form: TextFormat) -> Any:
    """Arrow strings, with each number rewritten as 1234.5. Other text is unchanged."""
    text = pc.replace_substring(text, MINUS, "-")
    if not has_marks(form):
        return pc.replace_substring_regex(text, FORTRAN, r"\1e\2")
    plain = pc.replace_substring(text, form.thousands, "") if form.thousands else text
    plain = pc.replace_substring(plain, form.decimal, ".")
    return pc.if_else(pc.match_substring_regex(text, _number(form)), plain, text)


def as_numbers(text: Any, form: TextFormat) -> Any:
    """Arrow strings as float64. Raises pa.ArrowInvalid if one is not a number."""
    plain = plain_numbers(text, form)
    if has_marks(form):
        fits = pc.match_substring_regex(text.fill_null("nan"), f"{_number(form)}|{NOT_FINITE}")
        plain = pc.if_else(fits, plain, "no number")
    return plain.cast(pa.float64())


def first_refused(array: Any, convert: Callable[[Any], Any]) -> int:
    """The position of the first value that `convert` refuses, if there is one."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(array[low:middle])
            low = middle
        except (ValueError, OverflowError):
            high = middle
    return low


# -- The first line ------------------------------------------------------------------------------------------


def lines_of(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Lines that end with LF, CR LF or CR, each with its end."""
    while block := file.readline(LONGEST_LINE):
        pieces = block.splitlines(keepends=True)
        if len(block) == LONGEST_LINE and len(pieces) == 1 and not block.endswith(b"\n"):
            raise DataError(
                f"Cannot read {name} as CSV: a line has more than {LONGEST_LINE / 2**20:,.0f} MiB."
                " Name a file of lines."
            )
        yield from pieces


def no_text(name: str, where: str = "its first line", encoding: str = "latin1") -> DataError:
    return DataError(
        f"Cannot read {name}: {where} is not text in UTF-8. Save the file as UTF-8, for example by `iconv -f"
        f" {encoding} -t utf-8 OLD.csv > NEW.csv`"
    )


def _refuse_utf_16(path: Path) -> None:
    """Raise DataError for a file that begins with the byte order mark of UTF-16."""
    with open_bytes(path) as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise no_text(path.name, "a file in UTF-16", "utf-16")


class FirstLine:
    """The first line of a file that is not empty.

    fields   what it holds
    start    the byte at which it begins
    end      the byte at which the next line begins
    more     whether another line follows that is not empty
    """

    def __init__(self, path: Path, separator: str, *, quotes: bool) -> None:
        self.start = self.end = 0
        self.quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
        with open_bytes(path) as file:
            lines = lines_of(file, path.name)
            try:
                rows = csv.reader(self._texts(lines), delimiter=separator, quoting=self.quoting)
                self.fields = next((row for row in rows if row), [])
                if len(self.fields) <= 2 and SEPARATOR_LINE.fullmatch(separator.join(self.fields)):
                    self.start = self.end
                    self.fields = next((row for row in rows if row), [])
            except UnicodeDecodeError:
                raise no_text(path.name) from None
            except csv.Error as error:
                raise DataError(
                    f"Cannot read {path.name}: its first line is not CSV ({error}). Correct it, or pass"
                    " --no-quotes where quotation marks are text"
                ) from None
            self.more = any(line.strip() for line in lines)

    def _texts(self, lines: Iterator[bytes]) -> Iterator[str]:
        for line in lines:
            self.end += len(line)
            yield line.decode("utf-8-sig")


def first_line(
    path: Path, form: TextFormat, separator: str | None, named: Collection[str], *, quotes: bool
) -> tuple[str, FirstLine]:
    """The separator of a file, and its first line.

    separator  from an option
    named      the columns that options name
    """
    _refuse_utf_16(path)
    if separator is None:
        separator = _stated_separator(path)
    if separator is not None:
        return separator, FirstLine(path, separator, quotes=quotes)
    lines = {candidate: FirstLine(path, candidate, quotes=quotes) for candidate in SEPARATORS}
    marks = (form.decimal, form.thousands)
    others = [candidate for candidate in SEPARATORS if candidate not in marks]
    separator = max(others, key=lambda candidate: len(lines[candidate].fields))
    if len(lines[separator].fields) == 1:
        separator = max(SEPARATORS, key=lambda candidate: len(lines[candidate].fields))
    fields = lines[separator].fields
    if len(fields) == 1 and OTHER_SEPARATORS.search(fields[0].strip()) and set(named) - {fields[0].strip()}:
        raise DataError(
            f"Cannot find the columns of {path.name}: its first line {fields[0][:60]!r} is one field."
            " Name the field separator by --separator"
        )
    return separator, lines[separator]


def _stated_separator(path: Path) -> str | None:
    """The separator that a first line like `sep=;` states."""
    with open_bytes(path) as file:
        head = file.read(16).decode("utf-8-sig", errors="replace").splitlines()
    stated = SEPARATOR_LINE.fullmatch(head[0].strip(" ")) if head else None
    return stated[1] if stated else None


def is_row(fields: Sequence[str], form: TextFormat) -> bool:
    """Whether the fields of a first line are numbers, and not names."""
    plain = plain_numbers(pa.array(fields, pa.string()), form).to_pylist()
    return all(map(CSV_FIELD.fullmatch, plain)) and re.search(r"\d", "".join(plain)) is not None


# Bytes of text per read. Arrow reads some 32 times as many ahead: an import takes about 100 MiB.
BATCH_BYTES = 2**20
# A row may be this many times as long as the first line, if BATCH_BYTES is less.
HEADER_LENGTHS = 32
# Ways to read a file, the first of which is twice as fast: whether Arrow parses numbers and text or leaves
# fields as bytes, which are parsed here; and the factor by which a row may be longer.
WAYS = ((True, 1), (False, 1), (False, 8), (False, 64))
INDEX = "index"  # a first column without a name
SPACED = (" {}", "{} ", " {} ")  # other spellings of a missing value among numbers
GAP_TEXTS = tuple(pa_csv.ConvertOptions().null_values)  # texts for a missing value in any column
LINE_BREAK = re.compile(rb"\r\n|\r|\n")
SHOWN = 60  # letters of a value in a message


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed if necessary."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower(), open)
    return cast(BinaryIO, opener(path, "rb"))


class NotANumberError(DataError):
    """A CSV column, by its name, holds values that are not numbers."""

    column = ""


class _Pass:
    """Observations while Arrow reads a file from one end to the other.

    ragged  the first row with another number of fields than the first line
    """

    def __init__(self) -> None:
        self.has_quotes = False
        self.ragged: Any = None

    def refuse(self, row: Any) -> str:
        self.ragged = row
        return "error"


class _Watched:
    """A file of bytes, in which quotation marks are noticed."""

    closed = False

    def __init__(self, file: BinaryIO, noted: _Pass) -> None:
        self.file, self.noted = file, noted

    def read(self, size: int = -1) -> bytes:
        block = self.file.read(size)
        self.noted.has_quotes = self.noted.has_quotes or b'"' in block
        return block


@dataclass(frozen=True)
class CsvFile:
    """A CSV file whose first line was read: TableRows.

    offset     byte at which the first row begins
    separator  field separator
    quotes     whether quotation marks enclose fields; None: they do unless that joins rows
    text       the columns that are read as text; all others are numbers
    verbatim   those among them whose text is unchanged: nothing in it stands for a missing value
    gap_texts  texts for a missing value besides GAP_TEXTS
    form       the form of numbers, and the GAP_TEXTS that are values
    follows    whether a schema states the kind of each column
    """

    path: Path
    names: tuple[str, ...]
    offset: int
    text: frozenset[str] = frozenset()
    verbatim: frozenset[str] = frozenset()
    gap_texts: tuple[str, ...] = ()
    separator: str = ","
    quotes: bool | None = None
    form: TextFormat = PLAIN_TEXT
    follows: bool = False
    checked: list[bool] = field(default_factory=list)
    """Not empty once quotation marks are known not to join rows."""

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def types(self) -> Mapping[str, Any]:
        return {name: pa.string() if name in self.text else pa.float64() for name in self.names}

    @cached_property
    def gaps(self) -> list[str]:
        """All texts that stand for a missing value."""
        return [text for text in GAP_TEXTS if text not in self.form.not_missing] + list(self.gap_texts)

    def reading_as_text(self, names: Sequence[str]) -> "CsvFile":
        return replace(self, text=self.text | frozenset(names))

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        """These columns, some rows at a time. Raises NotANumberError for a text in a column of numbers."""
        n_rows, pass_ = 0, _Pass()
        for columns in self._fields(names, pass_):
            yield {name: self._read(name, column, n_rows) for name, column in columns.items()}
            n_rows += len(next(iter(columns.values())))
        if pass_.has_quotes and not self.checked:
            if self._n_lines() != n_rows:
                self._refuse_joined_rows()
            self.checked.append(True)

    def _read(self, name: str, column: Any, first_row: int) -> Any:
        """Fields as float64 or text; null for a missing value."""
        if pa.types.is_floating(column.type):
            return column
        try:
            text = column.cast(pa.string())
        except pa.ArrowInvalid:
            row = first_row + first_refused(column, lambda part: part.cast(pa.string()))
            raise no_text(self.name, f"column {name!r} in row {row:,} (counted from 0)") from None
        if name not in self.text:
            return self._numbers(name, text, first_row)
        text = pc.utf8_trim_whitespace(text)
        if name in self.verbatim:
            return text
        text = self._without_gaps(text)
        return plain_numbers(text, self.form) if has_marks(self.form) else text

    def _without_gaps(self, text: Any) -> Any:
        """The same text, null where it stands for a missing value."""
        stands = pc.is_in(text, value_set=pa.array(self.gaps, pa.string()))
        return pc.if_else(stands, pa.scalar(None, pa.string()), text)

    def _numbers(self, name: str, text: Any, first_row: int) -> Any:
        if not has_marks(self.form):
            try:
                return text.cast(pa.float64())
            except pa.ArrowInvalid:
                pass  # A missing value or a space is one reason.
        text = self._without_gaps(pc.utf8_trim_whitespace(text))
        try:
            return as_numbers(text, self.form)
        except pa.ArrowInvalid:
            at = first_refused(text, partial(as_numbers, form=self.form))
            raise self._not_a_number(name, text[at].as_py(), first_row + at) from None

    def _not_a_number(self, name: str, value: str, row: int) -> DataError:
        if "\n" in value or "\r" in value:
            self._refuse_joined_rows()
        where = f"{value[:SHOWN]!r} in row {row:,} (counted from 0)"
        if self.form.decimal == "," and POINTED.fullmatch(value):
            return DataError(
                f"Cannot read column {name!r} of {self.name}: it holds {where}, but decimals have a comma."
                " Pass --decimal . where they have a point"
                + ("" if self.form.thousands else ", or --thousands . where points stand between thousands")
                + ("" if self.follows else f", or --categorical {as_option(name)} where the values are names")
            )
        error = NotANumberError(
            f"Cannot read column {name!r} of {self.name} as numbers: it holds {where}. Correct it,"
            f" {marks_hint(value)}or pass --gap {shlex.quote(value[:SHOWN])} where this stands for a missing"
            " value"
        )
        error.column = name
        return error

    # -- Fields ----------------------------------------------------------------------------------------------

    def _fields(self, names: Sequence[str], pass_: "_Pass", *, raw: bool = False) -> Iterator[Columns]:
        """Fields, some rows at a time, by the first of WAYS that reads them: Arrow describes a failure only
        in words.

        raw  whether all fields stay bytes, and rows with another number of fields are skipped
        """
        done = 0
        for typed, times in WAYS[raw:]:
            seen = 0
            try:
                for batch in self._parsed(names, pass_, times, typed=typed, skip=raw):
                    start, seen = max(done - seen, 0), seen + len(batch)
                    if start < len(batch):
                        done = seen
                        yield dict(zip(names, batch.slice(start).columns, strict=True))
            except pa.ArrowInvalid:
                if pass_.ragged is not None:
                    raise self._ragged(pass_) from None
            else:
                return
        raise DataError(
            f"Cannot read {self.name}: row {done:,} (counted from 0) or one soon after it is longer than"
            f" {self._block(WAYS[-1][1]) / 2**20:,.0f} MiB. Correct it, or pass --no-quotes where quotation"
            " marks are text"
        )

    def _parsed(
        self, names: Sequence[str], pass_: "_Pass", times: int, *, typed: bool, skip: bool
    ) -> Iterator[Any]:
        types = self.types if typed and not has_marks(self.form) else {}
        place = {name: str(i) for i, name in enumerate(self.names)}
        read = pa_csv.ReadOptions(
            use_threads=False,  # Refused rows then have numbers, and memory is a few batches.
            block_size=self._block(times),
            column_names=list(place.values()),
        )
        parse = pa_csv.ParseOptions(
            delimiter=self.separator,
            quote_char=False if self.quotes is False else '"',
            newlines_in_values=self.quotes is not False,
            invalid_row_handler=lambda row: "skip" if skip else pass_.refuse(row),
        )
        convert = pa_csv.ConvertOptions(
            column_types={place[name]: types.get(name, pa.binary()) for name in names},
            include_columns=[place[name] for name in names],
            null_values=[*self.gaps, *(around.format(gap) for gap in self.gaps for around in SPACED)],
            strings_can_be_null=self.verbatim.isdisjoint(names),
        )
        with open_bytes(self.path) as file:
            file.seek(self.offset)
            with pa_csv.open_csv(_Watched(file, pass_), read, parse, convert) as reader:
                yield from reader

    def _block(self, times: int) -> int:
        longest = HEADER_LENGTHS * sum(len(name) + 1 for name in self.names)
        return max(BATCH_BYTES, longest) * times

    def _ragged(self, pass_: "_Pass") -> DataError:
        row = pass_.ragged
        if pass_.has_quotes:
            self._refuse_joined_rows()
        quotes = " or pass --no-quotes where quotation marks are text" if '"' in row.text else ""
        return DataError(
            f"Cannot read {self.name}: row {row.number - 1:,} (counted from 0) has {row.actual_columns:,}"
            f" field{'s' if row.actual_columns != 1 else ''}, but the first line {row.expected_columns:,}:"
            f" {row.text[:SHOWN]!r}. Correct it,{quotes} or quote fields that hold {self.separator!r}"
        )

    def _n_lines(self) -> int:
        """Lines after the first; the last one may have no end."""
        n_lines, last = 0, b"\n"
        with open_bytes(self.path) as file:
            file.seek(self.offset)
            while block := file.read(BATCH_BYTES):
                n_lines += block.count(b"\n")
                if b"\r" in block:
                    n_lines += block.count(b"\r") - block.count(b"\r\n")
                n_lines -= last == b"\r" and block.startswith(b"\n")
                last = block[-1:]
        return n_lines + (last not in (b"\n", b"\r"))

    def _refuse_joined_rows(self) -> None:
        """Raise DataError if a quotation mark that is text joins rows, by the separators that it encloses."""
        if self.quotes is not None or self.checked:
            return
        first, separator, n = 0, self.separator.encode(), len(self.names) - 1
        for columns in self._fields(self.names, _Pass(), raw=True) if n else ():
            for name, column in columns.items():
                breaks = pc.match_substring_regex(column, "[\r\n]").fill_null(False)
                for row in pc.indices_nonzero(breaks).to_pylist():
                    value = column[row].as_py()
                    lines = [line.count(separator) for line in LINE_BREAK.split(value)]
                    whole = sum(line == n for line in lines[1:])
                    if sum(lines) == n * (len(lines) - 1) or whole >= max(1, len(lines) // 2):
                        raise DataError(
                            f"Cannot read {self.name}: a quotation mark in column {name!r} of row"
                            f" {first + row:,} (counted from 0) encloses {len(lines) - 1:,} line"
                            f" break{'s' if len(lines) > 2 else ''} and text that resembles whole rows. Pass"
                            " --no-quotes where quotation marks are text, or --quotes where they enclose"
                            " fields"
                        )
            first += len(column)

    # -- What columns hold -----------------------------------------------------------------------------------

    def looked_at(self, names: Sequence[str], *, whole: bool) -> "CsvFile":
        """The file, with columns read as text whose first batch, or `whole` file, is not only numbers."""
        left, as_text = [name for name in names if name not in self.text], set[str]()
        everything = frozenset(self.names)
        for columns in replace(self, text=everything, verbatim=everything).batches(left):
            as_text |= {name for name in left if name not in as_text and not self._all_numbers(columns[name])}
            if not whole:
                break
        return self.reading_as_text(sorted(as_text))

    def _all_numbers(self, text: Any) -> bool:
        try:
            as_numbers(self._without_gaps(text), self.form)
        except pa.ArrowInvalid:
            return False
        return True

    def first_text(self, name: str, row: int) -> str:
        """A column's value in a row, unparsed."""
        only = frozenset([name])
        for columns in replace(self, text=only, verbatim=only).batches([name]):
            if row < len(columns[name]):
                return str(columns[name][row].as_py())
            row -= len(columns[name])
        return ""

    def first_of(self, name: str, texts: Collection[str]) -> str:
        """The first of some texts that a column holds, unparsed; empty if it holds none."""
        only, wanted = frozenset([name]), pa.array(sorted(texts), pa.string())
        for columns in replace(self, text=only, verbatim=only).batches([name]):
            matches = columns[name].filter(pc.is_in(columns[name], value_set=wanted))
            if len(matches):
                return str(matches[0].as_py())
        return ""


def csv_file(path: Path, options: ReadOptions) -> CsvFile:
    """Read the first line of a CSV file: names, or numbers, and then the columns are called 0, 1, … pandas
    writes its index first, without a name: it is called `index`, and an option has to name its use.
    """
    named, quotes, form = () if options.follows else options.named, options.quotes, options.form
    separator = separator_of(options.separator)
    separator, line = first_line(path, form, separator, named, quotes=quotes is not False)
    names, offset, has_rows = [name.strip() for name in line.fields], line.end, line.more
    if is_row(names, form):
        names, offset, has_rows = [str(i) for i in range(len(names))], line.start, True
    if not has_rows:
        raise no_rows(path.name)
    if len(names) > 1 and not names[0] and INDEX not in names:
        if not options.follows and INDEX not in named:
            raise DataError(
                f"Cannot import {path.name}: its first column has no name, as an index of pandas."
                f" Keep it by --id {INDEX}, or omit it by --drop {INDEX}."
            )
        names[0] = INDEX
    check_names(path.name, names)
    return CsvFile(
        path, tuple(names), offset, separator=separator, quotes=quotes, form=form, follows=options.follows
    )


def refuse_rounded(file: CsvFile, names: Mapping[str, str]) -> None:
    """Read columns of numbers as text. Refuse a column whose different values become equal in float64, or one
    of integers that float64 rounds.

    A number with a fraction or an exponent makes its column one of floats, and float64 reads it.

    names  a remedy for each column, by its name
    """
    roundings = {name: Rounding(f"column {name!r} of {file.name}", do) for name, do in names.items()}
    for columns in file.reading_as_text(list(names)).batches(list(names)) if names else ():
        for name, text in columns.items():
            roundings[name].add(text if has_marks(file.form) else plain_numbers(text, file.form))
    for rounding in roundings.values():
        if not rounding.has_fractions:
            rounding.refuse_whole()
