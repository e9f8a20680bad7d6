"""What compiled code is handed: one block of words of eight bytes, which holds numbers, arrays and tuples of
them in the order in which numba flattens them.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

WORD = 8  # bytes


def words(value: Any) -> Iterator[int]:
    """The words of an integer, a float, a single, an array, or a named tuple of such.

    An array is: two words that numba's memory manager would use, its size, the bytes of an element, its
    address, its shape, and its strides in bytes.
    """
    if isinstance(value, tuple):
        for part in value:
            yield from words(part)
    elif isinstance(value, np.ndarray):
        yield from (0, 0, value.size, value.itemsize, value.__array_interface__["data"][0])
        yield from value.shape
        yield from value.strides
    elif isinstance(value, float):
        yield from struct.unpack("<q", struct.pack("<d", value))
    elif isinstance(value, np.float32):
        yield from struct.unpack("<q", struct.pack("<f4x", value))
    else:
        yield int(value)


def described(value: Any) -> str:
    """Names and types of what `words` takes. Code that was compiled for one description does not understand
    words of another.
    """
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", range(len(value)))
        parts = (f"{name}: {described(part)}" for name, part in zip(fields, value, strict=True))
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return f"{value.dtype.str}[{', '.join(':' * value.ndim)}]"
    return type(value).__name__


def struct_words(value: Any) -> Iterator[int]:
    """The same for code made of C++ (native/*_layout.h): an array is its address and its size."""
    if isinstance(value, tuple):
        for part in value:
            yield from struct_words(part)
    elif isinstance(value, np.ndarray):
        yield from (value.__array_interface__["data"][0], value.size)
    else:
        yield from words(value)
