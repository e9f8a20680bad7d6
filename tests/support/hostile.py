"""Files that somebody made to do harm: JSON, bytes, arrays and what is no file at all."""

import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.storage.digests import digest_json

NASTY: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2, 255, 2**31 - 1, 2**31, -(2**63), 2**63, 2**70, 10**400, 0.5, -0.0, 1e308),
    *(
        float("nan"),
        float("inf"),
        "",
        "x",
        "../../outside",
        "/etc/passwd",
        "/dev/zero",
        "\0",
        "\ud800",
        "a" * 9000,
    ),
    *(
        "s3://user:secret@host/x",
        "pickle",
        "|O",
        "<f8",
        "ⅷ",
        [],
        {},
        [[]],
        [None],
        [0] * 1000,
        [2**40, 2**40],
    ),
    *({"name": "pickle"}, {"id": "pickle"}, {"name": "zstd", "configuration": {"level": 10**9}}),
)
SPECIAL = ("pipe", "zero", "directory", "holes", "gone", "loop", "empty", "other", "unreadable name")


def nested(rng: random.Random) -> Any:
    value: Any = deepcopy(rng.choice(NASTY))
    for _ in range(rng.choice((3, 30, 200))):
        value = [value] if rng.random() < 1 / 2 else {"a": value}
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a JSON value."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        found += [(value, key), *_places(inner)]
    return found


def spoil_json(value: Any, rng: random.Random) -> Any:
    """Some of its values are others, gone, or double."""
    for _ in range(rng.randint(1, 3)):
        places = _places(value)
        if not places:
            return nested(rng)
        holder, key = rng.choice(places)
        match rng.randrange(8):
            case 0:
                del holder[key]
            case 1:
                holder[key] = nested(rng)
            case 2:
                other, name = rng.choice(places)
                with suppress(LookupError):
                    holder[key] = deepcopy(other[name])
            case 3 if isinstance(holder[key], int | float):
                holder[key] = holder[key] * rng.choice((-1, 2, 1000, 2**40)) + rng.choice((-1, 0, 1))
            case 4 if isinstance(holder[key], str) and holder[key]:
                text = list(holder[key])
                text[rng.randrange(len(text))] = rng.choice("0/.\0é%{}")
                holder[key] = "".join(text)
            case 5 if isinstance(holder, list):
                holder += deepcopy(holder[:3]) * rng.choice((1, 100))
            case _:
                holder[key] = deepcopy(rng.choice(NASTY))
    return value


def dumped(value: Any, rng: random.Random) -> bytes:
    """As JSON, at times with the checksums that belong to what stands there."""
    if isinstance(value, dict) and rng.random() < 0.8:
        try:
            if isinstance(value.get("model"), dict) and "hash" in value:
                value["hash"] = digest_json(value["model"])
            if "checksum" in value:
                rest = {name: inner for name, inner in value.items() if name != "checksum"}
                value["checksum"] = digest_json(rest)
        except (ValueError, TypeError, RecursionError):
            pass
    try:
        return json.dumps(value, indent=1).encode(errors="surrogatepass")
    except (RecursionError, ValueError):
        return b'{"a":' * 100_000


def spoil_bytes(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                del out[at:]
            case 2:
                out[at:at] = rng.randbytes(rng.choice((1, 4, 300)))
            case 3:
                out[at : at + 4] = rng.choice((b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff"))
            case 4:
                del out[at : at + rng.randint(1, 40)]
            case _:
                out[at:at] = out[: rng.randint(0, 200)]
    return bytes(out)


def replace_file(path: Path, kind: str, rng: random.Random) -> None:
    """Something else in the place of a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "zero":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case "holes":
            with path.open("wb") as file:
                file.truncate(rng.choice((2**30, 2**42)))
        case "loop":
            path.symlink_to(path)
        case "empty":
            path.touch()
        case "other":
            path.write_bytes(rng.randbytes(rng.choice((3, 5000))))
        case "unreadable name":
            path.symlink_to("/proc/self/mem")


def spoil_array(array: NDArray[Any], rng: random.Random) -> NDArray[Any]:
    """An array of the same dtype with other values, order or length."""
    out = np.array(array)
    match rng.randrange(8) if out.ndim else 7:
        case 0 if len(out):
            return out[: rng.randrange(len(out))]
        case 1 if len(out):
            return np.concatenate([out, out[: rng.randint(1, len(out))]])
        case 2 if len(out) > 1:
            return out[np.array(rng.sample(range(len(out)), len(out)))]
        case 3 if out.ndim > 1 and out.shape[1]:
            return np.ascontiguousarray(out[:, : rng.randrange(out.shape[1])])
    numbers = (np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0, 1e-45)
    wholes = (-1, -(2**31), 2**31 - 1, 0, 1, 16, 1000, -2, -1000)
    for _ in range(rng.choice((1, 1, 3)) if out.size else 0):
        at = rng.randrange(out.size)
        with np.errstate(all="ignore"):
            out.flat[at] = np.asarray(rng.choice(numbers if out.dtype.kind == "f" else wholes)).astype(
                out.dtype
            )
    return out


Spoil = Callable[[Path, random.Random], str]


def spoil_file(path: Path, rng: random.Random) -> str:
    """One file, in any way that is open to whoever may write it; what was done, in words."""
    draw = rng.random()
    if draw < 0.08:
        kind = rng.choice(SPECIAL)
        replace_file(path, kind, rng)
        return f"{path.name}: {kind}"
    data = path.read_bytes()
    if draw < 0.75:
        try:
            value = json.loads(data)
        except ValueError:
            pass
        else:
            path.write_bytes(dumped(spoil_json(value, rng), rng))
            return f"{path.name}: JSON"
    path.write_bytes(spoil_bytes(data, rng))
    return f"{path.name}: bytes"
