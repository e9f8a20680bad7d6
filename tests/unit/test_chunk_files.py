"""Chunks in local files: Zarr reads and writes the same bytes, and what is not known is left to it."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numcodecs.zstd import Zstd
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

from dcpred_tasks.errors import DamagedChunkError
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.safe_codecs import frame_bytes
from dcpred_tasks.storage.zarr_arrays import announce_rows, chunk_files, open_output, read_rows, write_rows

CODECS: dict[str, list[Any]] = {
    "none": [],
    "zstd": [ZstdCodec(level=1)],
    "zstd with its checksum": [ZstdCodec(level=3, checksum=True)],
    "crc32c": [Crc32cCodec()],
    "zstd, crc32c": [ZstdCodec(level=1), Crc32cCodec()],
}
DTYPES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)


def create(path: Path, shape: tuple[int, ...], rows: int, dtype: Any, codecs: list[Any], **more: Any) -> None:
    shutil.rmtree(path, ignore_errors=True)
    more = {"chunks": (rows, *shape[1:]), "config": {"write_empty_chunks": True}, **more}
    zarr.create_array(path, shape=shape, dtype=dtype, compressors=codecs, **more)


def some(shape: tuple[int, ...], dtype: str, seed: int) -> NDArray[Any]:
    """Values with repetitions, so that there is something to compress, and others."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 3 if seed % 2 else 100, shape).astype(dtype)
    if np.dtype(dtype).kind == "f" and values.size:
        values.reshape(-1)[rng.integers(values.size)] = np.nan
    return values


def files(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 23),
    rest=st.sampled_from([(), (1,), (5,), (3, 2)]),
    rows=st.integers(1, 25),
    dtype=st.sampled_from(DTYPES),
    codecs=st.sampled_from(sorted(CODECS)),
    separator=st.sampled_from(["/", "."]),
    seed=st.integers(0, 9),
    span=st.tuples(st.integers(0, 22), st.integers(0, 30)),
)
def test_rows_and_bytes_are_those_of_zarr(
    tmp_path: Path,
    n: int,
    rest: tuple[int, ...],
    rows: int,
    dtype: str,
    codecs: str,
    separator: Any,
    seed: int,
    span: tuple[int, int],
) -> None:
    values = some((n, *rest), dtype, seed)
    fill = {"b": True, "f": np.nan}.get(values.dtype.kind, 7)
    for name in ("ours", "zarr"):
        keys = {"name": "default", "separator": separator}
        create(
            tmp_path / name,
            values.shape,
            rows,
            dtype,
            CODECS[codecs],
            fill_value=fill,
            chunk_key_encoding=keys,
        )
    ours, theirs = open_output(tmp_path / "ours"), open_output(tmp_path / "zarr")
    theirs[...] = values
    known = chunk_files(ours)
    assert known is not None
    for start in range(0, n, rows):
        assert known.write(start, values[start : start + rows])
    assert files(tmp_path / "ours") == files(tmp_path / "zarr")
    start, stop = span[0] % n, span[0] % n + span[1]
    expected = theirs[start:stop]
    read = np.full_like(expected, 1)
    assert known.read(start, read)
    np.testing.assert_array_equal(read, expected)
    room = np.empty((n + 3, *rest), dtype)
    for given_room in (None, room):
        found = read_rows(ours, start, stop, given_room)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        assert given_room is None or not len(found) or np.shares_memory(found, room)


@pytest.mark.parametrize(
    "more",
    [
        {"shards": (8, 3)},
        {"zarr_format": 2},
        {"chunks": (4, 2)},
        {"compressors": [GzipCodec()]},
        {"compressors": [Crc32cCodec(), ZstdCodec()]},
        {"compressors": [ZstdCodec(), ZstdCodec()]},
        {"compressors": [Crc32cCodec(), Crc32cCodec()]},
        {"filters": [TransposeCodec(order=(1, 0))]},
        {"serializer": BytesCodec(endian="big")},
        {"dtype": "complex64"},
        {"dtype": "datetime64[s]"},
        {"shape": (0, 3)},
    ],
    ids=str,
)
def test_other_arrays_are_left_to_zarr(tmp_path: Path, more: dict[str, Any]) -> None:
    made = {"shape": (10, 3), "chunks": (4, 3), "dtype": "int16", "fill_value": 0, **more}
    zarr.create_array(tmp_path / "a", **made)
    array = open_output(tmp_path / "a")
    assert chunk_files(array) is None
    values = some(array.shape, "int16", 1).astype(array.dtype)
    write_rows(array, 0, values)
    np.testing.assert_array_equal(read_rows(open_array(tmp_path / "a"), 0, 10), values)


def test_arrays_that_no_file_holds_are_left_to_zarr() -> None:
    array = zarr.create_array(zarr.storage.MemoryStore(), shape=(4,), dtype="f4")
    assert chunk_files(array) is None
    write_rows(array, 1, np.ones(2, np.float32))
    assert read_rows(array, 0, 4).tolist() == [0, 1, 1, 0]


def test_rows_that_are_no_whole_chunk_are_left_to_zarr(tmp_path: Path) -> None:
    create(tmp_path / "a", (10,), 4, "i2", CODECS["zstd, crc32c"], fill_value=-1)
    array = open_output(tmp_path / "a")
    known = chunk_files(array)
    assert known is not None
    for start, n in ((0, 3), (0, 5), (1, 4), (8, 1), (9, 1)):
        assert not known.write(start, np.zeros(n, np.int16))
    assert set(files(tmp_path / "a")) == {"zarr.json"}
    write_rows(array, 2, np.arange(8, dtype=np.int16))
    assert read_rows(array, 0, 10).tolist() == [-1, -1, *range(8)]


def test_a_missing_chunk_is_told_and_reads_as_zarr_reads_it(tmp_path: Path) -> None:
    create(tmp_path / "a", (10,), 4, "i2", CODECS["zstd, crc32c"], fill_value=-1)
    array = open_output(tmp_path / "a")
    write_rows(array, 0, np.arange(4, dtype=np.int16))
    known = chunk_files(array)
    assert known is not None
    assert known.read(0, np.empty(4, np.int16))
    assert not known.read(0, np.empty(5, np.int16))
    assert read_rows(array, 0, 6, np.empty(6, np.int16)).tolist() == [0, 1, 2, 3, -1, -1]
    (tmp_path / "a" / "c" / "1").mkdir()  # something else has its name
    assert not known.read(4, np.empty(4, np.int16))


@pytest.mark.parametrize("codecs", sorted(CODECS))
def test_a_flipped_bit_or_a_cut_is_judged_by_zarr(tmp_path: Path, codecs: str) -> None:
    """Rows are read as Zarr reads them, or it raises. With a checksum it always does."""
    values = some((8, 3), "int16", 1)
    create(tmp_path / "a", values.shape, 4, "int16", CODECS[codecs], fill_value=0)
    write_rows(open_output(tmp_path / "a"), 0, values)
    array, file = open_array(tmp_path / "a"), tmp_path / "a" / "c" / "1" / "0"
    data = file.read_bytes()
    known = chunk_files(array)
    assert known is not None
    harmed = [data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :] for at in range(len(data))]
    raised = 0
    for bad in [*harmed, *(data[:at] for at in range(len(data))), data + b"\0", data + data]:
        file.write_bytes(bad)
        try:
            expected = array[4:8]
        except Exception:
            assert not known.read(4, np.empty((4, 3), np.int16))
            with pytest.raises(DamagedChunkError, match=r"rows 4 to 8 of .* damaged"):
                read_rows(array, 4, 8)
            raised += 1
            continue
        np.testing.assert_array_equal(read_rows(array, 4, 8), expected)
    assert raised >= len(harmed) or "crc32c" not in codecs
    assert raised > 0


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 65_791, 65_792, 65_793, 200_000])
@pytest.mark.parametrize("checksum", [False, True])
def test_frames_tell_what_they_hold(n: int, checksum: bool) -> None:
    for data in (bytes(n), np.random.default_rng(0).bytes(n)):
        assert frame_bytes(Zstd(level=1, checksum=checksum).encode(data)) in (n, *([None] * (n == 0)))


def test_headers_of_frames_as_the_standard_has_them() -> None:
    magic = b"\x28\xb5\x2f\xfd"
    for descriptor, rest, held in (
        (0b00_0_00000, b"\x58", None),  # a window and no field
        (0b00_1_00000, b"\x07", 7),
        (0b00_1_00001, b"\xff\x07", 7),  # the number of a dictionary comes first
        (0b01_1_00000, b"\x00\x01", 512),
        (0b10_0_00000, b"\x58\x00\x00\x01\x00", 65_536),
        (0b11_1_00011, b"\xff\xff\xff\xff\x00\x00\x00\x00\x01\x00\x00\x00", 2**32),
    ):
        assert frame_bytes(magic + bytes([descriptor]) + rest) == held
    assert frame_bytes(magic) is None
    assert frame_bytes(b"\x29" + magic[1:] + b"\x20\x07") is None


def test_a_frame_of_fewer_rows_does_not_pass_for_a_chunk(tmp_path: Path) -> None:
    create(tmp_path / "a", (4,), 4, "i2", CODECS["zstd"], fill_value=0)
    array = open_output(tmp_path / "a")
    write_rows(array, 0, np.ones(4, np.int16))
    (tmp_path / "a" / "c" / "0").write_bytes(Zstd(level=1).encode(np.ones(3, np.int16)))
    with pytest.raises(DamagedChunkError):
        read_rows(array, 0, 4)


def test_a_write_that_fails_leaves_the_chunk_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path / "a", (4,), 4, "i2", CODECS["zstd, crc32c"], fill_value=0)
    array = open_output(tmp_path / "a")
    write_rows(array, 0, np.ones(4, np.int16))
    before = files(tmp_path / "a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_rows(array, 0, np.zeros(4, np.int16))
    assert files(tmp_path / "a") == before


def test_arrays_are_read_as_their_metadata_tell_now(tmp_path: Path) -> None:
    """An array is known by its metadata: others in the same place are another array."""
    for rows, dtype in ((4, "i2"), (5, "i4"), (4, "i2")):
        values = some((9, 2), dtype, rows)
        create(tmp_path / "a", values.shape, rows, dtype, CODECS["zstd"], fill_value=0)
        write_rows(open_output(tmp_path / "a"), 0, values)
        zarr.open_array(tmp_path / "a", mode="r+")[...] = values
        array = open_array(tmp_path / "a")
        assert array is open_array(tmp_path / "a")
        np.testing.assert_array_equal(read_rows(array, 0, 9), values)
    with pytest.raises(ValueError, match="read-only"):
        array[:] = 0


def test_rows_that_come_soon_are_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "a", (10,), 4, "i2", CODECS["zstd, crc32c"], fill_value=0)
    array = open_output(tmp_path / "a")
    write_rows(array, 0, np.ones(4, np.int16))
    write_rows(array, 8, np.ones(2, np.int16))  # the chunk between them is missing
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda file, *a: told.append((os.readlink(f"/proc/self/fd/{file}"), a[-1]))
    )
    announce_rows(array, 3, 99)
    assert told == [(str(tmp_path / "a" / "c" / n), os.POSIX_FADV_WILLNEED) for n in "02"]
    announce_rows(zarr.create_array(zarr.storage.MemoryStore(), shape=(4,), dtype="f4"), 0, 4)
    monkeypatch.delattr(os, "posix_fadvise")  # a system that does not know it
    announce_rows(array, 0, 10)
