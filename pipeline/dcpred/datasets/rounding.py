"""Numbers that float64 does not hold: which of them are refused, and remedies for a column.

A measured value may be rounded in its last digit. A large integer may not, because it is mostly an id;
and different values of a column may not become equal, because they may be classes.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dcpred.datasets.table import MAX_LABELS
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.inference import SHOWN, as_option, can_be_kept
from dcpred_tasks.storage.array_attributes import EXACT_LIMIT

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
