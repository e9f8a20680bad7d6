"""What the attributes of an array state about its values: packed numbers and markers of missing values, by
the CF conventions as xarray reads them.

value = scale_factor * stored + add_offset, and a stored value that equals `_FillValue` or one of
`missing_value` is missing. `_Unsigned` declares signed integers to be unsigned ones. Valid ranges change
nothing, as in xarray.
"""

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError

MARKERS = ("_FillValue", "missing_value")
PACKING = ("scale_factor", "add_offset")
UNSIGNED = "_Unsigned"
EXACT_LIMIT = 2**53  # float64 holds every integer up to here
LONGEST_NAME = 60  # characters of a value in a message


@dataclass(frozen=True)
class Encoding:
    """How the stored values of one array become values."""

    stored: np.dtype[Any]
    """The dtype of stored values, once `_Unsigned` is applied."""
    markers: tuple[Any, ...] = ()
    """Stored values that mark a missing value, besides NaN; texts in an array of text."""
    scale: float = 1.0
    offset: float = 0.0
    reinterpreted: bool = False
    """Whether `_Unsigned` changes the dtype."""

    @cached_property
    def is_plain(self) -> bool:
        """Whether stored values are the values."""
        return not (self.markers or self.is_packed or self.reinterpreted)

    @property
    def is_packed(self) -> bool:
        return (self.scale, self.offset) != (1.0, 0.0)

    @property
    def value_dtype(self) -> np.dtype[Any]:
        """The dtype of values that come with a mask of missing ones."""
        return np.dtype(np.float64) if self.is_packed else self.stored

    @property
    def filled_dtype(self) -> np.dtype[Any]:
        """The dtype of values where NaN marks a missing value."""
        if not self.markers or self.value_dtype.kind == "f":
            return self.value_dtype
        return np.dtype(np.float32 if self.stored.itemsize <= 2 else np.float64)

    def decode(self, raw: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The values, and a mask of missing ones.

        raw  of any shape, numbers as they are stored
        """
        raw = np.ascontiguousarray(raw).astype(raw.dtype.newbyteorder("="), copy=False)
        if self.reinterpreted:
            raw = raw.view(self.stored)
        missing: NDArray[np.bool_] = np.isnan(raw) if raw.dtype.kind == "f" else np.zeros(raw.shape, bool)
        for marker in self.markers:
            missing |= raw == marker
        return (raw.astype(np.float64) * self.scale + self.offset if self.is_packed else raw), missing

    def filled(self, raw: NDArray[Any], where: str) -> NDArray[Any]:
        """The values, with NaN for missing ones. Raises DataError for an integer that float64 would round."""
        values, missing = self.decode(raw)
        if not self.markers:
            return values
        if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
            large = values[~missing & ((values > EXACT_LIMIT) | (values < -EXACT_LIMIT))]
            if large.size:
                raise DataError(
                    f"Cannot decode {where}: it holds {large.flat[0]}, which float64 would round, beside"
                    " missing values. Store smaller numbers, or numbers without missing values."
                )
        found = values.astype(self.filled_dtype)
        found[missing] = np.nan
        return found


def encoding_of(attributes: Mapping[str, Any], dtype: np.dtype[Any], where: str) -> Encoding:
    """The encoding of an array of this dtype. Raises DataError for a scale that is not a number."""
    if dtype.kind in "OTSU":
        texts = [_text(one) for key in MARKERS for one in _items(attributes.get(key))]
        return Encoding(dtype, tuple(dict.fromkeys(text for text in texts if text)))
    if dtype.kind not in "iuf":
        return Encoding(dtype)
    dtype = dtype.newbyteorder("=")
    stored = _signed_as_declared(dtype, attributes.get(UNSIGNED))
    given = [number for key in MARKERS for number in _numbers(attributes.get(key))]
    markers = (_as_stored(number, dtype, stored) for number in given)
    scale, offset = (_factor(attributes, key, where) for key in PACKING)
    return Encoding(
        stored,
        tuple(dict.fromkeys(marker for marker in markers if marker is not None)),
        1.0 if scale is None else scale,
        offset or 0.0,
        reinterpreted=stored != dtype,
    )


def _signed_as_declared(dtype: np.dtype[Any], unsigned: Any) -> np.dtype[Any]:
    declared = str(_text(unsigned)).lower()
    if dtype.kind == "i" and declared == "true":
        return np.dtype(f"u{dtype.itemsize}")
    if dtype.kind == "u" and declared == "false":
        return np.dtype(f"i{dtype.itemsize}")
    return dtype


def _as_stored(number: Any, dtype: np.dtype[Any], stored: np.dtype[Any]) -> Any:
    """A marker as a value of the stored dtype; None where no stored value can equal it.

    NumPy compares a float32 with a float64 as float64: without the cast −999.9 would not be found.
    """
    if stored.kind == "f":
        with np.errstate(over="ignore"):
            marker = stored.type(number)
        return None if np.isnan(marker) else marker
    if not math.isfinite(number) or int(number) != number:
        return None
    whole = int(number)
    for kind in (stored, dtype):  # the marker of `_Unsigned` integers is written either way
        if np.iinfo(kind).min <= whole <= np.iinfo(kind).max:
            return np.array(whole, kind).view(stored)[()]
    return None


def _factor(attributes: Mapping[str, Any], key: str, where: str) -> float | None:
    value = attributes.get(key)
    if value is None:
        return None
    found = _numbers(value)
    if len(found) != 1 or not math.isfinite(found[0]):
        raise DataError(
            f"Cannot decode {where}: its attribute {key} is {str(value)[:LONGEST_NAME]!r}, not a number."
            " Correct the attribute, or remove it."
        )
    return float(found[0])


def _numbers(value: Any) -> list[Any]:
    """The numbers of an attribute, whatever form it has. xarray keeps a float in Zarr format 3 as its eight
    bytes in base 64.
    """
    found = []
    for one in _items(value):
        text = _text(one)
        number = one if text is None else _parsed(text)
        if isinstance(number, int | float | np.integer | np.floating) and not isinstance(number, bool):
            found.append(number)
    return found


def _parsed(text: str) -> float | int | None:
    try:
        packed = base64.b64decode(text, validate=True)
    except ValueError:
        packed = b""
    if len(packed) == 8:
        return float(struct.unpack("<d", packed)[0])
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return None


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    return list(value.ravel()) if isinstance(value, np.ndarray) else [value]


def _text(value: Any) -> str | None:
    """A text of any kind; None for what is not a text."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if isinstance(value, str) else None


def portable(marker: Any) -> Any:
    """A marker as an attribute in JSON: xarray keeps floats in Zarr format 3 as their bytes in base 64."""
    if isinstance(marker, float | np.floating):
        return base64.b64encode(struct.pack("<d", float(marker))).decode()
    return int(marker) if isinstance(marker, np.integer) else str(marker)


def names_of_encoding(attributes: Mapping[str, Any]) -> str:
    """The attributes that encode the values, for a message."""
    return ", ".join(key for key in (*PACKING, *MARKERS, UNSIGNED) if key in attributes)
