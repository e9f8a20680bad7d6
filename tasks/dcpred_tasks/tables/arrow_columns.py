"""Columns of Arrow as cells of a schema, and as NumPy arrays; and whether float64 holds their numbers."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import EXACT_LIMIT
from dcpred_tasks.schema.column import Cells, booleans, dates, levelled, numbers, without
from dcpred_tasks.schema.inference import SHOWN, as_option, can_be_kept

MAX_LABELS = 2**16  # maximum number of different strings that can be classes


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_text_or_levels(kind: Any) -> bool:
    """Whether a column of this type holds text, also where each different one is stored once."""
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def is_plain_number(kind: Any) -> bool:
    """Whether values are numbers or booleans of a dtype of NumPy."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def as_text(column: Any) -> Any:
    """Text as Arrow strings, from any type of text."""
    return column.cast(pa.string())


def whole_array(column: Any) -> Any:
    """A column as one array, with text and numbers in place of positions in a dictionary."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def is_common(kind: Any) -> bool:
    """Whether `arrow_cells` reads values of a type as Python's objects would be read."""
    of_dates = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    return bool(is_plain_number(kind) or is_text(kind) or of_dates)


def arrow_values(column: Any) -> NDArray[Any]:
    """An Arrow array of numbers; a null is NaN."""
    if column.null_count and pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())  # booleans with nulls would become Python objects
    return np.asarray(column.to_numpy(zero_copy_only=False))


def arrow_cells(column: Any, name: str, source: str, gap_texts: Sequence[str] = ()) -> Cells:
    """An Arrow array as cells.

    gap_texts  texts that stand for a missing value

    Raises DataError for a type that tables do not have.
    """
    return without(_cells(column, name, source), gap_texts)


def _cells(column: Any, name: str, source: str) -> Cells:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _levels(column, name, source)
    if is_text(kind):
        levels = as_text(column).dictionary_encode()
        return levelled(_positions(levels.indices), levels.dictionary.to_pylist())
    if pa.types.is_boolean(kind):
        gap = np.asarray(column.is_null())
        return booleans(np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False)), gap)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return numbers(arrow_values(column), np.asarray(column.is_null()))
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return numbers(arrow_values(column.cast(pa.float64())), np.asarray(column.is_null()))
    if pa.types.is_timestamp(kind):
        instants = column.cast(pa.timestamp(kind.unit)).to_numpy(zero_copy_only=False)
        return dates(instants, kind.tz is not None)
    if pa.types.is_date(kind):
        return dates(column.cast(pa.date32()).to_numpy(zero_copy_only=False), False)
    there = column.drop_null()
    example = f", with values like {str(there[0].as_py())[:60]!r}" if len(there) else ""
    raise DataError(
        f"Cannot read column {name!r} of {source}: its type is {kind}{example}, not numbers, text, dates or"
        f" booleans. {leave_out(name)}"
    )


def _levels(column: Any, name: str, source: str) -> Cells:
    """Cells of a column that stores different values once: it is declared categorical."""
    levels = column.dictionary
    if is_text(levels.type):
        known = as_text(levels).to_pylist()
    elif pa.types.is_integer(levels.type) or pa.types.is_floating(levels.type):
        known = levels.to_pylist()
    else:
        return _cells(column.dictionary_decode(), name, source)
    positions = _positions(column.indices)
    if None in known:
        positions = np.where(np.append([level is None for level in known], True)[positions], -1, positions)
        known = ["" if level is None else level for level in known]
    return levelled(positions, known, declared=True)


def _positions(indices: Any) -> Any:
    return np.asarray(indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False))


def is_uuid(kind: Any) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def plain_column(column: Any, name: str, source: str) -> Any:
    """An Arrow array, with UUIDs as text. Raises DataError for another extension of Arrow's types."""
    if is_uuid(column.type):
        return pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())
    if isinstance(column.type, pa.BaseExtensionType):
        raise unknown_type(name, source, column.type)
    return column


def unknown_type(name: str, source: str, kind: object) -> DataError:
    """The refusal of a column whose values only another library understands."""
    return DataError(
        f"Cannot read column {name!r} of {source}: its type is {kind}, not numbers, text, dates or booleans."
        f" {leave_out(name)}"
    )


def leave_out(name: str) -> str:
    """The remedy for a column whose values cannot be read."""
    option = as_option(name)
    return f"Convert it, or omit it with --drop {option} (with --like: --absent {option})."


def text_values(column: Any, name: str, source: str) -> list[str]:
    """Values as text; empty for a missing value."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
        return ["" if text is None else f"{_iso(text)}Z" for text in as_text(column).to_pylist()]
    try:
        text = as_text(column).to_pylist()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise DataError(
            f"Cannot store column {name!r} of {source} as ids: values of type {kind} have no form as text."
            " Convert it, or omit it."
        ) from None
    if pa.types.is_timestamp(kind):
        return ["" if value is None else _iso(value) for value in text]
    return ["" if value is None else value for value in text]


def _iso(instant: str) -> str:
    """An instant from Arrow's form to ISO 8601: without fractions of a second if there are none."""
    whole, _, part = instant.replace(" ", "T").partition(".")
    return f"{whole}.{part}" if part.strip("0") else whole


# -- Numbers that float64 rounds ----------------------------------------------------------------------------

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

    def _compare(self, number: float, first: tuple[str, int], second: tuple[str, int]) -> None:
        """Raise DataError if two texts of a number in float64 are different numbers."""
        if first[0] == second[0] or not number or not np.isfinite(number):
            return
        if Decimal(first[0]) == Decimal(second[0]):
            return
        raise DataError(
            f"Cannot import {self.where}: it holds {first[0][:SHOWN]} in row {first[1]:,} and"
            f" {second[0][:SHOWN]!s} in row {second[1]:,} (counted from 0), which are one number in float64."
            f" {self.do}."
        )

    def refuse_whole(self) -> None:
        """Raise DataError for an integer that float64 rounds."""
        if self.whole is not None:
            text, row = self.whole
            value = f"{text[:SHOWN]} in row {row:,} (counted from 0)"
            raise rounded(self.where, value, self.do)


def refuse_rounded_decimals(column: Any, rounding: Rounding) -> None:
    """Raise DataError for decimals that become equal in float64, or for an integer that it does not hold.
    Other columns are ignored.
    """
    kind = column.type
    if pa.types.is_dictionary(kind) and pa.types.is_decimal(kind.value_type):
        column = column.dictionary_decode()
    if pa.types.is_decimal(column.type):
        rounding.add(column)
        rounding.refuse_whole()
