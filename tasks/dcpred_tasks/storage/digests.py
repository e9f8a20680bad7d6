"""Digests of bytes, arrays and JSON."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 16


def digest(*parts: bytes | NDArray[Any]) -> str:
    """BLAKE2b of bytes and of the little-endian C-ordered bytes of arrays."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        if isinstance(part, np.ndarray):
            little = np.ascontiguousarray(part, part.dtype.newbyteorder("<"))
            state.update(little.reshape(-1).view(np.uint8).data if little.size else b"")
        else:
            state.update(part)
    return state.hexdigest()


def file_digest(path: Path) -> str:
    """The digest of the bytes of a file, which may exceed memory."""
    return digest(np.memmap(path, np.uint8, "r") if path.stat().st_size else b"")


def digest_json(value: Mapping[str, Any]) -> str:
    """The digest of a JSON object. Raises ValueError for values that JSON lacks, or nested too deep."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:  # Parsing takes fewer frames: parsed values may fail here.
        raise ValueError("a JSON object is nested too deep") from None
    return digest(text.encode())


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with its checksum."""
    return {**value, "checksum": digest_json(value)}


def is_sealed(value: Mapping[str, Any]) -> bool:
    """Whether a JSON object has the checksum of its other keys."""
    others = {key: item for key, item in value.items() if key != "checksum"}
    return value.get("checksum") == digest_json(others)
