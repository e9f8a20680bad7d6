"""The arguments of compiled code: one block of words of eight bytes, the structs of native/*_layout.h."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np


def words(value: Any) -> Iterator[int]:
    """The words of an integer, a float, a single, an array, or a named tuple of such.

    An array is its address and its size.
    """
    if isinstance(value, tuple):
        for part in value:
            yield from words(part)
    elif isinstance(value, np.ndarray):
        yield from (value.__array_interface__["data"][0], value.size)
    elif isinstance(value, float | np.float32):
        yield from struct.unpack("<q", struct.pack("<d", value))
    else:
        yield int(value)


def described(value: Any) -> str:
    """Names and types of the argument of `words`. Compiled code only reads words of its own description."""
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", range(len(value)))
        parts = (f"{name}: {described(part)}" for name, part in zip(fields, value, strict=True))
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return f"{value.dtype.str}[:]"
    return type(value).__name__
