"""How a CSV file is written: what separates its fields, what its first line holds, and how numbers look.

A number may be written with a decimal comma and with marks between thousands, where options or a schema say
so. The sign U+2212 and the exponent D of Fortran have one meaning, and are read without an option.
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
# A number, or what stands for a missing one.
CSV_FIELD = re.compile(r"(?i)[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf)|n/?a|null|")
SEPARATORS = (",", ";", "\t", "|")  # the one that makes most fields of the first line, or the first of such
SEPARATOR_LINE = re.compile(r"(?i)sep=(.)")  # the first line that Excel writes
OTHER_SEPARATORS = re.compile(r"[:^~ \x01\x1f]")
NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
MINUS, FORTRAN = "\u2212", r"^([+-]?\d*\.\d*)[dD]([+-]?\d+)$"
NOT_FINITE = r"^(?i:[+-]?(nan|inf|infinity))$"
POINTED = re.compile(r"[+-]?\d*\.\d+")


def separator_of(option: str | None) -> str | None:
    """The separator that an option names. Raises SettingsError for what cannot be one."""
    found = NAMED_SEPARATORS.get(option or "", option)
    if found is not None and (len(found) != 1 or not found.isascii() or found in '"\r\n'):
        raise SettingsError(
            f"the separator of fields must be one ASCII character, but is {option!r}; pass one, or `tab`"
        )
    return found


# -- Numbers -------------------------------------------------------------------------------------------------


def has_marks(form: TextFormat) -> bool:
    """Whether numbers are written otherwise than 1234.5."""
    return form.decimal != "." or bool(form.thousands)


@lru_cache(maxsize=16)
def _number(form: TextFormat) -> str:
    """A regular expression for numbers with the marks of a format."""
    decimal, mark = re.escape(form.decimal), re.escape(form.thousands)
    grouped = rf"|\d{{1,3}}(?:{mark}\d{{3}})+" if mark else ""
    return rf"^[+-]?(?:(?:\d+{grouped})(?:{decimal}\d*)?|{decimal}\d+)(?:[eE][+-]?\d+)?$"


def plain_numbers(text: Any, form: TextFormat) -> Any:
    """Arrow strings, in which each number is written as 1234.5. Other text stays as it is."""
    text = pc.replace_substring(text, MINUS, "-")
    if not has_marks(form):
        return pc.replace_substring_regex(text, FORTRAN, r"\1e\2")
    found = pc.replace_substring(text, form.thousands, "") if form.thousands else text
    found = pc.replace_substring(found, form.decimal, ".")
    return pc.if_else(pc.match_substring_regex(text, _number(form)), found, text)


def as_numbers(text: Any, form: TextFormat) -> Any:
    """Arrow strings as float64. Raises pa.ArrowInvalid where one is no number."""
    plain = plain_numbers(text, form)
    if has_marks(form):
        fits = pc.match_substring_regex(text.fill_null("nan"), f"{_number(form)}|{NOT_FINITE}")
        plain = pc.if_else(fits, plain, "no number")
    return plain.cast(pa.float64())


def first_refused(array: Any, convert: Callable[[Any], Any]) -> int:
    """The place of the first value that `convert` refuses by pa.ArrowInvalid, where it refuses one."""
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
                f"{name} was to be read as CSV, but a line has more than {LONGEST_LINE / 2**20:,.0f} MiB;"
                " name a file of lines"
            )
        yield from pieces


def no_text(name: str, where: str = "its first line", encoding: str = "latin1") -> DataError:
    return DataError(
        f"Cannot read {name}: {where} is no text in UTF-8. Save the file as UTF-8, for example by `iconv -f"
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
    more     whether another line that is not empty follows
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
                    f"Cannot read {path.name}: its first line is no CSV ({error}). Correct it, or pass"
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

    separator  what an option says
    named      the columns that options name
    """
    _refuse_utf_16(path)
    if separator is None:
        separator = _said(path)
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
            " Name what separates fields by --separator"
        )
    return separator, found[separator]


def _said(path: Path) -> str | None:
    """The separator that a first line such as `sep=;` states."""
    with open_bytes(path) as file:
        head = file.read(16).decode("utf-8-sig", errors="replace").splitlines()
    said = SEPARATOR_LINE.fullmatch(head[0].strip(" ")) if head else None
    return said[1] if said else None


def is_row(fields: Sequence[str], form: TextFormat) -> bool:
    """Whether the fields of a first line are numbers, and not names."""
    plain = plain_numbers(pa.array(fields, pa.string()), form).to_pylist()
    return all(map(CSV_FIELD.fullmatch, plain)) and re.search(r"\d", "".join(plain)) is not None
