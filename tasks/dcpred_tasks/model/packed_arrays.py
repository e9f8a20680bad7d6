"""Named arrays as bytes, and kernels as arrays: how a leaf model is stored in a model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.kernels import KERNELS, SHAPE, STORED, Kernel

HEADER_BYTES = 8
LONGEST_HEADER = 2**20
DTYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")


def packed(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Named arrays in one array of bytes: the length of a header, a header in JSON with name, dtype and shape
    of each, and their little-endian C-ordered bytes. The idea is that of safetensors.
    """
    entries = [[name, a.dtype.name, list(a.shape)] for name, a in arrays.items()]
    header = json.dumps(entries, separators=(",", ":")).encode()
    parts = [len(header).to_bytes(HEADER_BYTES, "little"), header]
    parts += [np.ascontiguousarray(a, a.dtype.newbyteorder("<")).tobytes() for a in arrays.values()]
    return np.frombuffer(b"".join(parts), np.uint8)


def unpacked(data: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """What `packed` packed, as views. Raises ValueError for anything else."""
    raw = np.ascontiguousarray(data).tobytes()
    length = int.from_bytes(raw[:HEADER_BYTES], "little")
    if length > min(LONGEST_HEADER, len(raw)):
        raise ValueError("packed arrays have no header")
    try:
        entries = json.loads(raw[HEADER_BYTES : HEADER_BYTES + length])
    except RecursionError:
        raise ValueError("packed arrays have a header that is nested too deep") from None
    arrays: dict[str, NDArray[Any]] = {}
    at = HEADER_BYTES + length
    try:
        for name, dtype, shape in entries:
            if dtype not in DTYPES or not all(isinstance(n, int) and 0 <= n <= len(raw) for n in shape):
                raise ValueError("packed arrays have an invalid header")
            count = int(np.prod(shape, dtype=object))
            arrays[str(name)] = np.frombuffer(raw, np.dtype(dtype).newbyteorder("<"), count, at).reshape(
                shape
            )
            at += arrays[str(name)].nbytes
    except (TypeError, OverflowError):
        raise ValueError("packed arrays have an invalid header") from None
    if at != len(raw):
        raise ValueError("packed arrays have bytes left over")
    return arrays


def taken(arrays: Mapping[str, NDArray[Any]], **wanted: tuple[str, int]) -> list[NDArray[Any]]:
    """Arrays by name, each of (dtype, dimensions), in that order. Raises ValueError for others."""
    values = []
    for name, (dtype, ndim) in wanted.items():
        value = arrays.get(name)
        if value is None or value.dtype.name != dtype or value.ndim != ndim:
            raise ValueError(f"array {name} of a leaf model is not {dtype} of {ndim} dimensions")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError(f"array {name} of a leaf model is not finite")
        values.append(value)
    return values


def kernel_arrays(kernel: Kernel) -> dict[str, NDArray[Any]]:
    """A kernel as arrays: its name, and its numbers."""
    return {"kernel": text_array(kernel.name), "kernel_numbers": stored_numbers([kernel])[0]}


def kernel_of(arrays: Mapping[str, NDArray[Any]]) -> Kernel:
    """The kernel of kernel_arrays. Raises ValueError."""
    raw, numbers = taken(arrays, kernel=("uint8", 1), kernel_numbers=("float64", 1))
    name = text_of(raw)
    if name not in KERNELS:
        raise ValueError("a leaf model has an unknown kernel")
    return kernel_from_numbers(name, numbers)


def stored_numbers(kernels: Sequence[Kernel]) -> FloatArray:
    """γ and further numbers of kernels, float64 (n_kernels, 3 or more), without the last defaults."""
    n_stored = max(1 + SHAPE.index(name) for kernel in kernels for name in kernel.as_dict() if name in SHAPE)
    return np.array([[kernel.gamma, *kernel.shape[:n_stored]] for kernel in kernels], np.float64)


def kernel_from_numbers(name: str, numbers: FloatArray) -> Kernel:
    """The kernel of a row of stored_numbers. Raises ValueError."""
    if not len(STORED) - 1 <= len(numbers) <= 1 + len(SHAPE) or numbers[0] <= 0 or not 1 <= numbers[1] <= 10:
        raise ValueError("the kernel of a leaf model has invalid numbers")
    return Kernel.from_numbers(name, numbers.tolist())


def text_array(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def text_of(array: NDArray[np.uint8]) -> str:
    return array.tobytes().decode(errors="replace")
