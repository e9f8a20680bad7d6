"""The format of a CSV file: its separator, its first line, and the form of numbers.

Options or a schema may state a decimal comma and marks between thousands. The sign U+2212 and the exponent D
of Fortran have one meaning, and are read without an option.
"""

import codecs
import csv
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.compute as pc

from dcpred.datasets.table import open_bytes
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.schema.schema import TextFormat

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
    found = NAMED_SEPARATORS.get(option or "", option)
    if found is not None and (len(found) != 1 or not found.isascii() or found in '"\r\n'):
        raise SettingsError(
            f"Cannot use the separator {option!r}: it is not one ASCII character. Pass one, or `tab`."
        )
    return found


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
    found = pc.replace_substring(text, form.thousands, "") if form.thousands else text
    found = pc.replace_substring(found, form.decimal, ".")
    return pc.if_else(pc.match_substring_regex(text, _number(form)), found, text)


def as_numbers(text: Any, form: TextFormat) -> Any:
    """Arrow strings as float64. Raises pa.ArrowInvalid if one is not a number."""
    plain = plain_numbers(text, form)
    if has_marks(form):
        fits = pc.match_substring_regex(text.fill_null("nan"), f"{_number(form)}|{NOT_FINITE}")
        plain = pc.if_else(fits, plain, "no number")
    return plain.cast(pa.float64())


def first_refused(array: Any, convert: Callable[[Any], Any]) -> int:
    """The position of the first value that `convert` refuses by pa.ArrowInvalid, if there is one."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(array[low:middle])
            low = middle
        except pa.ArrowInvalid:
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
    found = {one: FirstLine(path, one, quotes=quotes) for one in SEPARATORS}
    marks = (form.decimal, form.thousands)
    others = [one for one in SEPARATORS if one not in marks]
    separator = max(others, key=lambda one: len(found[one].fields))
    if len(found[separator].fields) == 1:
        separator = max(SEPARATORS, key=lambda one: len(found[one].fields))
    fields = found[separator].fields
    if len(fields) == 1 and OTHER_SEPARATORS.search(fields[0].strip()) and set(named) - {fields[0].strip()}:
        raise DataError(
            f"Cannot find the columns of {path.name}: its first line {fields[0][:60]!r} is one field."
            " Name the field separator by --separator"
        )
    return separator, found[separator]


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
