"""Rows and ids of a run that occur more than once, from a sample of hashes in its commit records.

A row is in the sample if a hash of its decision value, or of its id, lies below a limit that depends only on
the number of rows: rows that are equal are in it together, whichever blocks they are in.
"""

import base64
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.trained_rows import Hashes, hashes_of_rows, mixed

SAMPLED = 2**12  # rows of a run, about; all rows of a smaller one
LEAST_ROWS = 100
LEAST_GAIN, ERRORS = 0.02, 5.0  # more repeated rows than by chance: share of the rows, and standard errors
STRIP, LONGEST = 2**14, 2**8  # ids that are hashed at once, and bytes of a text
DIGEST_WORDS = 8  # words of the digest of a longer text
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


class Texts(NamedTuple):
    """Texts one after the other, as Arrow holds them."""

    data: NDArray[np.uint8]
    at: NDArray[np.int64]
    """Where each begins in the data, and where the last one ends."""


def hashes_of_ids(columns: Sequence[tuple[NDArray[Any] | Texts, NDArray[np.bool_]]]) -> Hashes:
    """Hashes of the ids of rows, those without a missing value.

    columns  the values of each, and where they are known
    """
    known = np.logical_and.reduce([there for _, there in columns])
    total = np.zeros(len(known), np.uint64)
    for values, _ in columns:
        total += _of_texts(values) if isinstance(values, Texts) else _bits(values)
        for start in range(0, len(total), STRIP):  # a short mixing: the ids of all rows are hashed
            part = total[start : start + STRIP]
            part ^= part >> HALF
            part *= FACTOR
    return total if known.all() else np.asarray(total[known])


def _bits(values: NDArray[Any]) -> Hashes:
    if values.dtype.kind == "f":
        return (values.astype(np.float64) + 0.0).view(np.uint64)
    return values.astype(np.int64 if values.dtype.kind == "i" else np.uint64).view(np.uint64)


def _of_texts(texts: Texts) -> Hashes:
    """Σ word · factor over the words of eight bytes of each text, mixed; a long text is hashed first."""
    at, factors = texts.at, mixed(np.arange(LONGEST // 8, dtype=np.uint64)) | np.uint64(1)
    padded = np.append(texts.data[at[0] : at[-1]], np.zeros(8, np.uint8))
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))  # one begins at each byte
    out = np.zeros(len(at) - 1, np.uint64)
    for start in range(0, len(out), STRIP):
        part = out[start : start + STRIP]
        begin = at[start : start + len(part)] - at[0]
        length = np.diff(at[start : start + len(part) + 1])
        for row in np.flatnonzero(length > LONGEST).tolist():
            text = padded[begin[row] : begin[row] + length[row]]
            part[row] = np.frombuffer(blake2b(text.tobytes()).digest(), "<u8") @ factors[:DIGEST_WORDS]
        length[length > LONGEST] = 0
        n_whole = int(length.min()) // 8
        for word in range(n_whole):
            part += words[begin + 8 * word] * factors[word]
        for word in range(n_whole, -(-int(length.max()) // 8)):
            rows = np.flatnonzero(length > 8 * word)
            bits = 64 - 8 * np.minimum(length[rows] - 8 * word, 8).astype(np.uint64)
            part[rows] += (words[begin[rows] + 8 * word] << bits >> bits) * factors[word]
        part[:] = mixed(part)
    return out
