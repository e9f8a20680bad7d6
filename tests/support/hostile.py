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

from dcpred_tasks.model.packed_arrays import HEADER_BYTES, packed, unpacked
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


NUMBERS = (np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0, -0.0, 1e-45, 1e308, -1e308, 1e-310, 2.0**24, 1e19)
WHOLES = (-1, -(2**31), 2**31 - 1, 0, 1, 16, 1000, -2, -1000, 2**62, -(2**62), 2**63 - 1, -(2**63))
# Offsets that ascend where differences of int64 wrap around.
WRAPPED = (0, 2**62, 2**63 - 1, -(2**63), -(2**62))


def spoil_array(array: NDArray[Any], rng: random.Random) -> NDArray[Any]:
    """An array of the same dtype with other values, order or length."""
    out = np.array(array)
    match rng.randrange(14) if out.ndim else 13:
        case 0 if len(out):
            return out[: rng.randrange(len(out))]
        case 1 if len(out):
            return np.concatenate([out, out[: rng.randint(1, len(out))]])
        case 2 if len(out) > 1:
            return out[np.array(rng.sample(range(len(out)), len(out)))]
        case 3 if out.ndim > 1 and out.shape[1]:
            return np.ascontiguousarray(out[:, : rng.randrange(out.shape[1])])
        case 4 if out.size:  # one value in the place of another
            out.flat[rng.randrange(out.size)] = out.flat[rng.randrange(out.size)]
            return out
        case 5 if out.size:
            one, other = rng.randrange(out.size), rng.randrange(out.size)
            out.flat[[one, other]] = out.flat[[other, one]]
            return out
        case 6 if len(out):  # all rows from one on
            out[rng.randrange(len(out)) :] = out[rng.randrange(len(out))]
            return out
        case 7 if out.size and out.dtype.kind in "iuf":  # a little, from one value on or there alone
            at = rng.randrange(out.size)
            with np.errstate(all="ignore"):
                out.reshape(-1)[at : rng.choice((None, at + 1))] += np.asarray(rng.choice((1, -1))).astype(
                    out.dtype
                )
            return out
        case 8 if out.size and out.dtype.kind == "f":
            with np.errstate(all="ignore"):
                return (out * rng.choice((-1, 0, 1e-30, 1e-10, 1e3, 1e20, 1e38))).astype(out.dtype)
        case 9 if out.ndim == 1 and len(out) > len(WRAPPED) and out.dtype == np.int64:
            out[: len(WRAPPED)] = WRAPPED
            return out
    for _ in range(rng.choice((1, 1, 3)) if out.size else 0):
        at = rng.randrange(out.size)
        with np.errstate(all="ignore"):
            out.flat[at] = np.asarray(rng.choice(NUMBERS if out.dtype.kind == "f" else WHOLES)).astype(
                out.dtype
            )
    return out


def recast_array(array: NDArray[Any], rng: random.Random) -> NDArray[Any]:
    """The same numbers of another dtype or shape."""
    match rng.randrange(3):
        case 0:
            with np.errstate(all="ignore"):
                return array.astype(rng.choice(("f8", "f4", "f2", "i8", "i4", "u8", "u1", "?", ">f8", ">i8")))
        case 1:
            return array.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (1, 1, -1))))
        case _:
            return np.ascontiguousarray(array.T)


def spoil_packed(arrays: dict[str, NDArray[Any]], rng: random.Random) -> str:
    """One leaf model among the arrays of a model, whose packed arrays, header or bytes are others."""
    at, packed_bytes = arrays["machine_at"], arrays["machine_packed"]
    leaf = rng.choice([i for i in range(len(at) - 1) if at[i + 1] > at[i]])
    before, part, after = np.split(packed_bytes, at[leaf : leaf + 2])
    match rng.randrange(5):
        case 0:
            done, part = "bytes", np.frombuffer(spoil_bytes(part.tobytes(), rng), np.uint8)
        case 1:
            done, part = "header", _with_header(part, rng)
        case _:
            held = unpacked(part)
            done = rng.choice(sorted(held))
            for _ in range(rng.choice((1, 1, 2))):
                held[done] = spoil_array(held[done], rng)
            part = packed(held)
    arrays["machine_at"] = at + np.where(np.arange(len(at)) > leaf, len(part) - (at[leaf + 1] - at[leaf]), 0)
    arrays["machine_packed"] = np.concatenate([before, part, after])
    return done


def _with_header(part: NDArray[np.uint8], rng: random.Random) -> NDArray[np.uint8]:
    """Packed arrays whose header says something else."""
    raw = part.tobytes()
    end = HEADER_BYTES + int.from_bytes(raw[:HEADER_BYTES], "little")
    header = json.dumps(spoil_json(json.loads(raw[HEADER_BYTES:end]), rng)).encode()
    return np.frombuffer(len(header).to_bytes(HEADER_BYTES, "little") + header + raw[end:], np.uint8)


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
