"""Targets of an evaluation, and counts of what was predicted for them."""

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.class_codes import class_codes, class_positions, listed_classes, names_of_classes
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.storage import zarr_arrays

LARGEST = float(np.finfo(np.float64).max)
UNIT_BITS = 2_300  # sums are integers in units of 2^-UNIT_BITS
# Squares of numbers between 2^-MIDDLE and 2^MIDDLE neither overflow nor vanish, nor do sums of them. Others
# are multiplied by 2^-LARGE_SCALE or 2^SMALL_SCALE first.
MIDDLE, LARGE_SCALE, SMALL_SCALE = 480, 600, 574
ROOT_BITS = 130  # bits of a number whose root is taken: the root has half of them, more than float64
SIGN = np.uint64(2**63)
MANTISSA_BITS = 52


class ExactSums:
    """Sums by group of finite float64. Each call of `add` sums in float64; parts merge without rounding."""

    def __init__(self, n_groups: int = 1) -> None:
        self.units = [0] * n_groups
        """Sum of each group, in units of 2^-UNIT_BITS."""

    def add(
        self, values: FloatArray, groups: NDArray[np.integer] | None = None, *, squared: bool = False
    ) -> None:
        """Add values (n,), or their squares, each to its group (n,)."""
        for rows, scaled, exponent in _in_range(values):
            terms, power = (scaled * scaled, 2 * exponent) if squared else (scaled, exponent)
            if groups is None:
                sums = np.array([terms.sum()])
            else:
                sums = np.bincount(groups[rows], weights=terms, minlength=len(self.units))
            for group in np.flatnonzero(sums).tolist():
                self.units[group] += _units(float(sums[group]), power)

    def merge(self, other: "ExactSums") -> None:
        self.units = [mine + its for mine, its in zip(self.units, other.units, strict=True)]

    def of(self, groups: Iterable[int]) -> Fraction:
        """The sum of some groups."""
        return Fraction(sum(self.units[group] for group in groups), 1 << UNIT_BITS)

    @property
    def total(self) -> Fraction:
        return Fraction(sum(self.units), 1 << UNIT_BITS)


def _in_range(values: FloatArray) -> Iterator[tuple[Any, FloatArray, int]]:
    """(rows, values of these rows times 2^-exponent, exponent) with squares within float64."""
    size = np.abs(values)
    large, small = size > 2.0**MIDDLE, (size < 2.0**-MIDDLE) & (size > 0)
    if not large.any() and not small.any():
        yield slice(None), values, 0
        return
    for rows, exponent in ((~large & ~small, 0), (large, LARGE_SCALE), (small, -SMALL_SCALE)):
        yield rows, np.ldexp(values[rows], -exponent), exponent


def _units(value: float, exponent: int) -> int:
    """value · 2^exponent as an integer number of units."""
    mantissa, power = math.frexp(value)
    return int(mantissa * 2.0**53) << (power - 53 + exponent + UNIT_BITS)


def as_float(value: Fraction) -> float:
    """The nearest float64; infinity beyond the largest one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def root(value: Fraction) -> float:
    """The square root of a number ≥ 0, also where the number itself is beyond float64."""
    above, below = value.numerator, value.denominator
    shift = max((ROOT_BITS - above.bit_length() + below.bit_length()) // 2, 0)
    return as_float(Fraction(math.isqrt((above << 2 * shift) // below), 1 << shift))


class CountedValues:
    """Counts of values of several kinds: decision values of correct and of other rows.

    A value is counted by its bits as float64, in the order of values. Where more distinct values occur than
    the limit, the last bit is dropped and pairs of bins merge: after s times a bin is as wide as 2^(s − 52)
    of its value. The number of dropped bits is the least that suffices for all values: their order and a
    split into parts do not matter. Ranks, quantiles and areas under curves follow from the counts.
    """

    def __init__(self, n_kinds: int, most: int) -> None:
        """most  limit of distinct values"""
        self.most = max(most, 1)
        self.shift = 0
        """The number of dropped bits."""
        self.keys = np.empty(0, np.uint64)
        """Bins with a count, ascending."""
        self.counts: IntArray = np.empty((0, n_kinds), np.int64)
        """(bins, n_kinds)."""

    @property
    def resolution(self) -> float:
        """The width of a bin as a share of its values; 0 while each value has its own."""
        return 0.0 if self.shift == 0 else 2.0 ** (self.shift - MANTISSA_BITS)

    def add(self, values: NDArray[np.floating], kinds: NDArray[np.integer]) -> None:
        """Count values (n,), which are numbers, each of a kind (n,)."""
        if not len(values):
            return
        keys = _keys(values) >> np.uint64(self.shift)
        order = np.argsort(keys)
        keys, kinds = keys[order], kinds[order]
        first = np.flatnonzero(_is_first(keys))
        at = np.repeat(self._bins_of(keys[first]), np.diff(first, append=len(keys)))
        n_kinds = self.counts.shape[1]
        counts = np.bincount(at * n_kinds + kinds, minlength=self.counts.size)
        self.counts += counts.reshape(self.counts.shape)

    def merge(self, other: "CountedValues") -> None:
        """Add the counts of another instance of as many kinds."""
        if not len(other.keys):
            return
        self._drop(max(other.shift - self.shift, 0))
        keys = other.keys >> np.uint64(self.shift - other.shift)
        bins = self._bins_of(keys)
        np.add.at(self.counts, bins, other.counts)

    def _bins_of(self, keys: NDArray[np.uint64]) -> IntArray:
        """The bins of ascending keys, made where necessary; wider ones if they would exceed the limit."""
        union = np.sort(np.concatenate([self.keys, keys]))  # np.union1d hashes them, which is slower
        union = union[_is_first(union)]
        if len(union) == len(self.keys) <= self.most:
            return np.searchsorted(union, keys)
        dropped = _bits_to_drop(union, self.most)
        self._drop(dropped)
        union >>= np.uint64(dropped)
        union = union[_is_first(union)]
        counts = np.zeros((len(union), self.counts.shape[1]), np.int64)
        counts[np.searchsorted(union, self.keys)] = self.counts
        self.keys, self.counts = union, counts
        return np.searchsorted(union, keys >> np.uint64(dropped))

    def _drop(self, bits: int) -> None:
        """Make bins wider."""
        if bits and len(self.keys):
            keys = self.keys >> np.uint64(bits)
            first = np.flatnonzero(_is_first(keys))
            self.keys, self.counts = keys[first], np.add.reduceat(self.counts, first, axis=0)
        self.shift += bits

    @property
    def values(self) -> FloatArray:
        """A value of each bin, ascending: its own, or one in the middle."""
        middle = (self.keys << np.uint64(self.shift)) | np.uint64((1 << self.shift) >> 1)
        middle = np.clip(middle, *_keys(np.array([-LARGEST, LARGEST])))
        bits = np.where(middle & SIGN, middle ^ SIGN, ~middle)
        return np.asarray(bits.view(np.float64))


def _keys(values: NDArray[np.floating]) -> NDArray[np.uint64]:
    """Integers in the order of the values."""
    double = np.clip(values, -LARGEST, LARGEST, dtype=np.float64) + 0.0  # −0 is 0
    bits = double.view(np.uint64)
    return np.asarray(np.where(bits & SIGN, ~bits, bits ^ SIGN), np.uint64)


def _is_first(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Where an ascending array holds a key for the first time."""
    return np.concatenate([np.ones(min(len(keys), 1), bool), keys[1:] != keys[:-1]])


def _bits_to_drop(keys: NDArray[np.uint64], most: int) -> int:
    """The fewest bits to drop until at most `most` of ascending, distinct keys differ."""
    if len(keys) <= most:
        return 0
    differ = keys[1:] ^ keys[:-1]  # neighbours share a bin once their highest differing bit is dropped
    high = (differ >> np.uint64(32)).astype(np.float64)
    low = (differ & np.uint64(2**32 - 1)).astype(np.float64)
    bits = np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1])
    # bits is 1 + the number of the highest differing bit: after dropping s bits, bins = 1 + #(bits > s).
    left = 1 + len(bits) - np.cumsum(np.bincount(bits, minlength=65))
    return int(np.flatnonzero(left <= most)[0])


def quantiles(values: FloatArray, counts: IntArray, shares: FloatArray) -> FloatArray:
    """The least of ascending values that a share of all is not above: (len(shares),). Some have a count."""
    total = np.cumsum(counts)
    at = np.searchsorted(total, np.ceil(shares * total[-1]).clip(1))
    return np.asarray(values[at])


def is_unlabelled(raw: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows have no target: NaN, or an empty text (n,)."""
    if raw.dtype.kind == "f":
        return np.asarray(np.isnan(raw))
    if raw.dtype.kind in "OTSU":
        return np.array([value is None or len(value) == 0 for value in raw.tolist()], bool)
    return np.zeros(len(raw), bool)


def known_targets(
    model: Model, target: zarr.Array[Any], start: int, stop: int, *, drop_unlabelled: bool = False
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(targets of rows, class numbers int64 or values; which rows have one). Raises DataError for a class
    that the model lacks, for a value that is not finite, and for a row without a target.

    drop_unlabelled  accept rows without a target, with an arbitrary value
    """
    address, raw = zarr_arrays.address_of(target), zarr_arrays.read_target(target, start, stop)
    names = names_of_classes(target.attrs, raw.dtype, f"y at {address}")
    _check_kind(model, raw, names, address)
    lacking = is_unlabelled(raw)
    if lacking.any():
        if not drop_unlabelled:
            raise DataError(
                f"Cannot evaluate row {start + int(np.flatnonzero(lacking)[0]):,} of {address}: it has no"
                " target. Remove such rows, or omit them with `dcpred evaluate --drop-unlabelled` (in Python"
                " drop_unlabelled=True)."
            )
        if lacking.all():
            return np.zeros(len(raw), np.int64 if model.task == "classification" else np.float64), ~lacking
        raw = raw.copy()
        raw[lacking] = raw[~lacking][0]
    if model.task == "classification":
        return _class_numbers(model, raw, names, start, address), ~lacking
    infinite = np.flatnonzero(~np.isfinite(raw))
    if len(infinite):
        row = int(infinite[0])
        raise DataError(
            f"Cannot evaluate row {start + row:,} of {address}: its target is {raw[row]}. Correct or remove"
            " such rows."
        )
    return raw, ~lacking


def _check_kind(model: Model, raw: NDArray[Any], names: tuple[str, ...] | None, address: str) -> None:
    if model.task == "classification":
        return
    if raw.dtype.kind not in "biuf":
        raise DataError(
            f"Cannot evaluate a regression with {address}: its targets are {raw.dtype}. Name an array of"
            " numbers with --y."
        )
    if names is not None:
        raise DataError(
            f"Cannot evaluate a regression with {address}: it holds classes, named in its attribute `labels`"
            f" ({listed_classes(names)}). Name an array of numbers with --y."
        )


def _class_numbers(
    model: Model, raw: NDArray[Any], names: tuple[str, ...] | None, start: int, address: str
) -> NDArray[np.int64]:
    """Class numbers of stored labels. Raises DataError for a label that the model lacks."""
    if names is not None:
        codes = class_codes(raw, len(names), address, start)
        numbers = class_positions(np.array(names, dtype=str), [str(name) for name in model.classes])[codes]
    else:
        numbers = class_positions(raw, model.classes)
    unseen = np.flatnonzero(numbers < 0)
    if len(unseen):
        row = int(unseen[0])
        label = raw[row] if names is None else names[int(raw[row])]
        raise DataError(
            f"Cannot evaluate row {start + row:,} of {address}: the model was not trained on its label"
            f" {label!s} (classes: {listed_classes(model.classes)}). Remove such rows, or train with that"
            " class."
        )
    return numbers
