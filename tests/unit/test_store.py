"""Zarr: what is missing is noticed, what is written is kept, and what is flipped raises."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.errors import DamagedChunkError, DataError
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_group
from dcpred_tasks.storage.addresses import as_arguments, check_options, local_path, storage_options
from dcpred_tasks.storage.stored_chunks import check_complete, count_missing, missing_chunks
from dcpred_tasks.storage.zarr_arrays import (
    array_address,
    chunk_rows,
    create_array,
    create_group,
    find_array,
    open_output,
    read_rows,
)
from support.data import make_group


def make(
    path: Path,
    values: NDArray[Any],
    chunks: tuple[int, ...],
    shards: tuple[int, ...] | None = None,
    **more: Any,
) -> zarr.Array[Any]:
    """An array as another program would write it: no chunk that equals the fill value 0."""
    array = zarr.create_array(
        path, shape=values.shape, dtype=values.dtype, chunks=chunks, shards=shards, fill_value=0, **more
    )
    array[...] = values
    return open_array(path)


def files(path: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(path)): f.read_bytes()
        for f in path.rglob("*")
        if f.is_file() and f.name != "zarr.json"
    }


def missing(array: zarr.Array[Any], *span: int) -> set[str]:
    return set(missing_chunks(array, *span))


# -- missing chunks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_missing_chunks_of_a_matrix(tmp_path: Path, zarr_format: int) -> None:
    values = np.ones((10, 5))
    values[4:8, :3] = 0  # chunk (1, 0)
    values[8:, 3:] = 0  # chunk (2, 1), at the edge
    array = make(tmp_path / "a", values, (4, 3), zarr_format=zarr_format)
    middle, edge = ("1.0", "2.1") if zarr_format == 2 else ("c/1/0", "c/2/1")
    assert missing(array) == missing(array, 0, 10) == {middle, edge}
    assert missing(array, 0, 4) == set()
    assert missing(array, 3, 5) == missing(array, 4, 8) == {middle}
    assert missing(array, 8, 10) == {edge}


def test_an_array_inside_a_group_is_named_inside_it(tmp_path: Path) -> None:
    group = create_group(tmp_path / "g")
    for name in ("X", "X2"):  # a neighbour whose name starts alike
        create_array(group, name, (6, 2), np.float32, 2)[...] = 1
    (tmp_path / "g" / "X" / "c" / "1" / "0").unlink()
    assert missing(open_group(tmp_path / "g")["X"]) == {"X/c/1/0"}
    assert missing(open_array(tmp_path / "g" / "X")) == {"c/1/0"}
    assert missing(open_group(tmp_path / "g")["X2"]) == set()


def test_an_array_that_was_never_written_misses_everything(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a", shape=(5,), dtype="f4", chunks=(2,))
    assert missing(array) == {"c/0", "c/1", "c/2"}
    assert missing(array, 2, 4) == {"c/1"}


def test_an_empty_array_misses_nothing(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a", shape=(0, 3), dtype="f4", chunks=(2, 3))
    assert missing(array) == set()


def test_a_shape_that_claims_more_chunks_than_there_is_memory_for(tmp_path: Path) -> None:
    """Neither is their number made into anything, nor is each of them looked for."""
    array = make(tmp_path / "a", np.ones((10, 5)), (4, 3))
    file = tmp_path / "a" / "zarr.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {"shape": [4 * 10**15, 3 * 10**12]}))
    array = open_array(tmp_path / "a")
    assert count_missing(array) == 10**27 - 6
    with pytest.raises(DataError, match=r"c/0/2 is missing"):
        check_complete("a", array)


def test_a_partial_file_of_a_killed_writer_is_no_chunk(tmp_path: Path) -> None:
    array = make(tmp_path / "a", np.ones(4), (2,))
    chunk = tmp_path / "a" / "c" / "1"
    chunk.rename(chunk.with_name("1.abc123.partial"))
    assert missing(array) == missing(array, 0, 4) == {"c/1"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 14),
    inner=st.integers(1, 3),
    per_shard=st.integers(1, 3),
    columns=st.sampled_from([(4, 4), (4, 2), (3, 3)]),
    zeros=st.sets(st.integers(0, 13), max_size=14),
    lost=st.integers(-1, 20),
    span=st.tuples(st.integers(0, 13), st.integers(1, 14)),
)
def test_missing_inner_chunks_of_shards(
    tmp_path: Path,
    n: int,
    inner: int,
    per_shard: int,
    columns: tuple[int, int],
    zeros: set[int],
    lost: int,
    span: tuple[int, int],
) -> None:
    """An inner chunk of zeros is not stored; a shard of such chunks is not either; and one file may be
    lost.
    """
    d, width = columns
    values = np.ones((n, d), np.int32)
    values[[row for row in zeros if row < n]] = 0
    path = tmp_path / "a"
    shutil.rmtree(path, ignore_errors=True)
    array = make(path, values, (inner, width), (inner * per_shard, d))
    shard = inner * per_shard
    kept = {s: values[s * shard : (s + 1) * shard].any() for s in range(-(-n // shard))}
    if kept.get(lost):
        (path / "c" / str(lost) / "0").unlink()
        kept[lost] = False
    expected = {}
    for s, there in kept.items():
        if not there:
            expected[f"c/{s}/0"] = s
            continue
        for i in range(per_shard):
            start = s * shard + i * inner
            if start < n and not values[start : start + inner].any():
                expected |= {f"c/{s}/0 (inner chunk {i}.{j})": s for j in range(d // width)}
    assert missing(array) == set(expected)
    start, stop = span[0] % n, 0
    stop = min(start + span[1], n)
    touched = range(start // shard, (stop - 1) // shard + 1)
    assert missing(array, start, stop) == {name for name, s in expected.items() if s in touched}


def test_a_shard_cut_below_its_index_is_named(tmp_path: Path) -> None:
    array = make(tmp_path / "a", np.ones((8, 2)), (2, 2), (4, 2))
    shard = tmp_path / "a" / "c" / "1" / "0"
    shard.write_bytes(shard.read_bytes()[:20])
    assert missing(array) == {"c/1/0 (truncated shard)"}


# -- what is written is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [0, -1, float("nan")])
@pytest.mark.parametrize("shard_rows", [None, 4])
def test_chunks_equal_to_the_fill_value_are_kept(tmp_path: Path, fill: float, shard_rows: int | None) -> None:
    group = create_group(tmp_path / "g")
    dtype = np.float32 if fill != fill else np.int16
    create_array(group, "a", (10, 3), dtype, 2, shard_rows=shard_rows, fill_value=fill)[...] = fill
    array = open_array(tmp_path / "g" / "a")
    assert missing(array) == set()
    assert len(files(tmp_path / "g" / "a")) == (5 if shard_rows is None else 3)
    np.testing.assert_array_equal(read_rows(array, 0, 10), np.full((10, 3), fill, dtype))


def test_a_reopened_output_keeps_them_too(tmp_path: Path) -> None:
    """Opened by Zarr alone, the same write deletes the chunk: that is what open_output is for."""
    group = create_group(tmp_path / "g")
    create_array(group, "a", (6,), np.uint8, 2)[...] = 7
    open_output(tmp_path / "g" / "a")[:4] = 0
    assert missing(open_array(tmp_path / "g" / "a")) == set()
    assert open_array(tmp_path / "g" / "a")[...].tolist() == [0, 0, 0, 0, 7, 7]
    assert zarr.config.get("array.write_empty_chunks") is False  # nothing else of the process was changed
    zarr.open_array(tmp_path / "g" / "a", mode="r+")[:2] = 0
    assert missing(open_array(tmp_path / "g" / "a")) == {"c/0"}


def test_shards_are_whole_and_edges_too(tmp_path: Path) -> None:
    values = np.arange(21, dtype=np.int64).reshape(7, 3)
    group = create_group(tmp_path / "g")
    array = create_array(
        group, "a", values.shape, values.dtype, 2, shard_rows=4, attributes={"labels": ["x"]}
    )
    array[...] = values
    stored = open_array(tmp_path / "g" / "a")
    assert (stored.chunks, stored.shards) == ((2, 3), (4, 3))
    assert chunk_rows(stored) == 2
    assert chunk_rows(make(tmp_path / "b", values, (3, 2))) == 3
    assert stored.attrs["labels"] == ["x"]
    for start, stop in ((0, 7), (3, 5), (6, 7), (6, 99), (4, 4)):
        np.testing.assert_array_equal(read_rows(stored, start, stop), values[start:stop])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_arrays_can_be_made(tmp_path: Path, shape: tuple[int, ...]) -> None:
    create_array(create_group(tmp_path / "g"), "a", shape, np.float32, 0, shard_rows=None)
    stored = open_array(tmp_path / "g" / "a")
    assert stored.shape == shape
    assert read_rows(stored, 0, 3).shape == shape


# -- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_rows", [None, 4])
def test_a_flipped_bit_raises(tmp_path: Path, shard_rows: int | None) -> None:
    values = np.random.default_rng(0).integers(0, 5, (8, 3)).astype(np.uint8)
    create_array(create_group(tmp_path / "g"), "a", values.shape, values.dtype, 4, shard_rows=shard_rows)[
        ...
    ] = values
    array = open_array(tmp_path / "g" / "a")
    file = tmp_path / "g" / "a" / "c" / "1" / "0"
    data = file.read_bytes()
    for at in range(len(data)):
        file.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        with pytest.raises((ValueError, RuntimeError)):
            read_rows(array, 4, 8)
        np.testing.assert_array_equal(read_rows(array, 0, 4), values[:4])
    file.write_bytes(data)
    np.testing.assert_array_equal(read_rows(array, 0, 8), values)


# -- addresses -----------------------------------------------------------------------------------------------


def test_file_addresses_are_paths(tmp_path: Path) -> None:
    assert (
        local_path("file:///a/b")
        == local_path("file://localhost/a/b")
        == local_path("/a/b")
        == local_path(Path("/a/b"))
        == "/a/b"
    )
    assert local_path("s3://bucket/a") == "s3://bucket/a"
    assert local_path("a/file://b") == "a/file://b"
    path = make_group(tmp_path / "d.zarr", np.ones((4, 2)), np.zeros(4))
    url = f"file://{path}"
    assert open_array(f"{url}/X").shape == (4, 2)
    assert set(open_group(url).array_keys()) == {"X", "y"}
    assert find_array(url, "y") == f"{path}/y"
    assert array_address(open_array(f"{url}/X")) == f"{path}/X"


def test_an_advised_command_can_be_copied() -> None:
    with storage_options(
        check_options({"region": "eu 1", "endpoint": "http://127.0.0.1:1", "allow_http": True})
    ):
        assert shlex.split(as_arguments("s3://bucket/a b")) == [
            "s3://bucket/a b",
            "--storage-option=allow_http=true",
            "--storage-option=endpoint=http://127.0.0.1:1",
            "--storage-option=region=eu 1",
        ]
        assert as_arguments("/data/a b") == "'/data/a b'"
    assert as_arguments("s3://bucket/a") == "s3://bucket/a"


def test_an_array_has_an_address_that_another_process_can_open(tmp_path: Path) -> None:
    path = make_group(tmp_path / "d.zarr", np.ones((4, 2)))
    address = array_address(open_group(path)["X"])
    assert address == f"{path}/X"
    assert open_array(address).shape == (4, 2)
    assert array_address(zarr.create_array(zarr.storage.MemoryStore(), shape=(3,), dtype="f4")) is None


def test_find_array(tmp_path: Path) -> None:
    path = make_group(tmp_path / "d.zarr", np.ones((4, 2)), np.zeros(4))
    zarr.open_group(path, mode="r+").create_group("deep").create_array("z", shape=(3,), dtype="f4")
    assert find_array(path, "X") == f"{path}/X"
    assert find_array(f"{path}/", "y") == f"{path}/y"
    assert find_array(f"{path}/X", "X") == f"{path}/X"
    assert find_array(path, "deep/z") == f"{path}/deep/z"
    with pytest.raises(
        DataError, match=r"Cannot find array weight in .*d\.zarr: the group holds X, y\. Rename"
    ):
        find_array(path, "weight")
    with pytest.raises(DataError, match="the group holds X, y"):
        find_array(path, "deep")  # a group is no array
    with pytest.raises(
        DataError, match=r"Cannot find array y in .*: that is a single array\. Pass the group"
    ):
        find_array(f"{path}/X", "y")
    create_group(tmp_path / "empty.zarr")
    with pytest.raises(DataError, match="holds nothing"):
        find_array(tmp_path / "empty.zarr", "X")


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    path = make_group(tmp_path / "d.zarr", np.ones((4, 2)))
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    broken = Path(shutil.copytree(path, tmp_path / "broken.zarr"))
    (broken / "X" / "zarr.json").write_text("{")
    for address, kind, so in (
        (tmp_path / "file", "array", "is a file"),
        (path, "array", "holds no Zarr array"),
        (tmp_path / "file", "group", "is a file"),
        (path / "X", "group", "holds no Zarr group"),
    ):
        with pytest.raises(
            DataError, match=rf"Cannot open a Zarr {kind} at {address}: it {so}\. Make one with"
        ):
            (open_array if kind == "array" else open_group)(address)
    for opened in (open_array, open_group):
        with pytest.raises(DataError, match=r"Cannot read .*nowhere: it does not exist\. Check the path\."):
            opened(tmp_path / "nowhere")
        with pytest.raises(DataError, match=r"empty: it is an empty folder\. Name a Zarr group, or"):
            opened(tmp_path / "empty")
    with pytest.raises(DataError, match="Zarr as installed here cannot interpret its metadata"):
        open_array(broken / "X")
    for nothing, so in (("nowhere", "nowhere: it does not exist"), ("empty", "empty: it is an empty folder")):
        with pytest.raises(DataError, match=so):
            find_array(tmp_path / nothing, "X")
    with pytest.raises(DataError, match="/file as a data set: it is a file whose name has no ending"):
        find_array(tmp_path / "file", "X")
    assert not (tmp_path / "nowhere").exists()


def test_what_is_opened_to_read_cannot_be_written(tmp_path: Path) -> None:
    path = make_group(tmp_path / "d.zarr", np.ones((4, 2)))
    before = files(path)
    with pytest.raises(ValueError, match="read-only"):
        open_array(path / "X")[:] = 0
    with pytest.raises(ValueError, match="read-only"):
        create_array(open_group(path), "y", (4,), np.int8, 2)
    assert files(path) == before


def test_a_group_needs_a_free_place(tmp_path: Path) -> None:
    path = make_group(tmp_path / "d.zarr", np.ones((4, 2)))
    before = files(path)
    with pytest.raises((ValueError, zarr_arrays.BaseZarrError)):
        create_group(path)
    assert files(path) == before
    assert create_group(tmp_path / "new.zarr", {"a": 1}).attrs["a"] == 1


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize(
    ("form", "codec"),
    [(3, zarr.codecs.GzipCodec()), (2, numcodecs.Zlib()), (2, numcodecs.LZMA())],
    ids=["gzip", "zlib", "lzma"],
)
def test_a_damaged_chunk_of_any_codec_is_told_by_its_rows(
    form: Any, codec: Any, cut: bool, tmp_path: Path
) -> None:
    array = zarr.create_array(
        tmp_path / "a", shape=(40, 3), chunks=(10, 3), dtype="f8", compressors=codec, zarr_format=form
    )
    array[:] = np.random.default_rng(0).normal(size=(40, 3))
    chunk = tmp_path / "a" / ("c/1/0" if form == 3 else "1.0")
    stored = chunk.read_bytes()
    middle = len(stored) // 2
    chunk.write_bytes(stored[:middle] if cut else stored[:middle] + b"\0\0\0\0" + stored[middle + 4 :])
    with pytest.raises(DamagedChunkError, match=r"rows 10 to 20 of .* their chunk is damaged"):
        read_rows(open_array(tmp_path / "a"), 0, 40)
