"""Rows and ids of a run that occur more than once, from a sample of hashes in its commit records.

A row is in the sample if a hash of its decision value, or of its id, lies below a limit that depends only on
the number of rows: rows that are equal are in it together, whichever blocks they are in.
"""

import base64
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.trained_rows import Hashes, hashes_of_rows, mixed

SAMPLED = 2**12  # rows of a run, about; all rows of a smaller one
LEAST_ROWS = 100
LEAST_GAIN, ERRORS = 0.02, 5.0  # more repeated rows than by chance: share of the rows, and standard errors
STRIP, LONGEST = 2**12, 2**8  # texts that are hashed at once, and their bytes
HALF, FACTOR = np.uint64(32), np.uint64(0x9E3779B97F4A7C15)


class HashSample:
    """A sample of the hashes of rows."""

    def __init__(self, n_rows: int) -> None:
        """n_rows  of the whole run"""
        self.bits = max((n_rows - 1).bit_length() - (SAMPLED - 1).bit_length(), 0)
        self.parts: list[Hashes] = []

    def add_rows(self, X: NDArray[Any], decision: NDArray[Any]) -> None:
        """Rows (n, n_features) by their decision values (n,), finite."""
        keys = decision.view(f"u{decision.itemsize}")
        keys = keys * keys.dtype.type(int(FACTOR) >> (64 - 8 * keys.itemsize) | 1)
        rows = np.flatnonzero(keys < (1 << (8 * keys.itemsize - self.bits))) if self.bits else slice(None)
        first = keys[rows].astype(np.uint64) << np.uint64(64 - 8 * keys.itemsize)
        self.parts.append((first >> HALF << HALF) | (hashes_of_rows(X[rows]) >> HALF))

    def add_hashes(self, hashes: Hashes) -> None:
        self.parts.append(hashes[hashes >> np.uint64(64 - self.bits) == 0] if self.bits else hashes)

    def packed(self) -> dict[str, Any]:
        hashes = np.concatenate([np.zeros(0, np.uint64), *self.parts])
        return {"bits": self.bits, "hashes": base64.b64encode(hashes.astype("<u8").tobytes()).decode()}

    def add_packed(self, value: Mapping[str, Any]) -> None:
        """Add the sample of a block. Blocks of another run may have another limit."""
        self.bits = max(self.bits, int(value["bits"]))
        self.parts.append(np.frombuffer(base64.b64decode(value["hashes"]), "<u8").astype(np.uint64))

    def repeats(self) -> tuple[int, int]:
        """How many sampled rows repeat an earlier one, and how many are sampled."""
        hashes = np.concatenate([np.zeros(0, np.uint64), *self.parts])
        if self.bits:
            hashes = hashes[hashes >> np.uint64(64 - self.bits) == 0]
        return len(hashes) - len(np.unique(hashes)), len(hashes)

    def estimate(self) -> int:
        """About how many rows repeat an earlier one."""
        return self.repeats()[0] << self.bits

    def beyond(self, chance: float | None) -> int:
        """About how many rows repeat an earlier one, if they are more than by chance; else 0.

        chance  the share of such rows that chance gives; None: unknown
        """
        n_repeats, n = self.repeats()
        if chance is None or n < LEAST_ROWS:
            return 0
        gain, error = n_repeats / n - chance, np.sqrt(max(chance, 1 / n) / n)
        return n_repeats << self.bits if gain > max(LEAST_GAIN, ERRORS * error) else 0


def hashes_of_ids(columns: Sequence[tuple[NDArray[Any] | list[bytes], NDArray[np.bool_]]]) -> Hashes:
    """Hashes of the ids of rows, those without a missing value.

    columns  the values of each, and where they are known
    """
    known = np.logical_and.reduce([there for _, there in columns])
    total = np.zeros(len(known), np.uint64)
    for values, _ in columns:
        total += _of_texts(values) if isinstance(values, list) else _bits(values)
        total ^= total >> HALF  # a short mixing: the ids of all rows are hashed
        total *= FACTOR
    return np.asarray(total[known])


def _bits(values: NDArray[Any]) -> Hashes:
    if values.dtype.kind == "f":
        return (values.astype(np.float64) + 0.0).view(np.uint64)
    return values.astype(np.int64 if values.dtype.kind == "i" else np.uint64).view(np.uint64)


def _of_texts(values: list[bytes]) -> Hashes:
    out = np.empty(len(values), np.uint64)
    for start in range(0, len(values), STRIP):
        part = values[start : start + STRIP]
        if max(map(len, part)) > LONGEST:
            part = [text if len(text) <= LONGEST else blake2b(text).digest() for text in part]
        wide = np.array(part, f"S{-(-max(map(len, part)) // 8) * 8 or 8}")
        words = wide.view(np.uint64).reshape(len(part), -1)
        factors = mixed(np.arange(words.shape[1], dtype=np.uint64)) | np.uint64(1)
        out[start : start + len(part)] = mixed(words @ factors)
    return out
