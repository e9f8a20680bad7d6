"""Marks of input chunks: what they tell from what was there, and what they pass over."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr

from dcpred_tasks.errors import DataError
from dcpred_tasks.storage import stored_chunks
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.place import Folder
from dcpred_tasks.storage.stored_chunks import MISSING, SETTLED_SECONDS, InputState, open_input

NOW = 2e9  # in seconds since 1970, long after files of these tests were written


@pytest.fixture(params=["two chunks of columns", "shards", "format 2"])
def x(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """70 rows with four fingerprints, of 20 rows each."""
    form: dict[str, Any] = {
        "two chunks of columns": {"chunks": (20, 2)},
        "shards": {"chunks": (10, 3), "shards": (20, 3)},
        "format 2": {"chunks": (20, 3), "zarr_format": 2},
    }[request.param]
    array = zarr.create_array(tmp_path / "X", shape=(70, 3), dtype="f4", **form)
    array[...] = np.arange(210, dtype="f4").reshape(70, 3)
    return str(tmp_path / "X")


def state(x: str) -> InputState:
    return open_input(x, NOW)


def chunk(x: str, number: int) -> Path:
    """A file of a mark."""
    files = [p for p in Path(x).rglob("*") if p.is_file() and not p.name.startswith((".z", "zarr.json"))]
    names = {p: str(p.relative_to(x)).removeprefix("c/").replace("/", ".") for p in files}
    return next(p for p, name in sorted(names.items()) if int(name.split(".")[0]) == number)


def touch(x: str) -> None:
    os.utime(chunk(x, 2), (1e9, 1e9))


def cut_short(x: str) -> None:
    file = chunk(x, 2)
    before = file.stat()
    file.write_bytes(file.read_bytes()[:-1])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def remove(x: str) -> None:
    chunk(x, 2).unlink()


@pytest.mark.parametrize("change", [touch, cut_short, remove])
def test_a_chunk_that_changed_is_told(x: str, change: Callable[[str], None]) -> None:
    before = state(x)
    assert (before.n_rows, before.n_features, before.dtype, before.mark_rows) == (70, 3, "float32", 20)
    assert len(set(before.marks)) == 4
    assert before.same(state(x))
    change(x)
    after = state(x)
    assert not before.same(after)
    assert [one == other for one, other in zip(before.marks, after.marks, strict=True)] == [1, 1, 0, 1]
    assert after.unchanged(before, 0, 40)
    assert after.unchanged(before, 60, 70)
    assert not after.unchanged(before, 39, 41)


def test_rows_that_come_leave_the_others_alone(x: str) -> None:
    before = state(x)
    array = zarr.open_array(x, mode="r+")
    array.append(np.ones((30, 3), "f4"))
    after = state(x)
    assert after.form == before.form
    assert after.unchanged(before, 0, 60)
    assert not after.unchanged(before, 60, 70)
    assert not after.unchanged(before, 80, 100)
    array.attrs["who"] = "somebody"
    assert state(x).same(after)


def test_what_is_not_there_has_a_mark_of_its_own(x: str) -> None:
    for file in [p for p in Path(x).rglob("*") if p.is_file() and p.name[-1].isdigit()]:
        file.unlink()
    assert state(x).marks == (MISSING,) * 4


def test_a_young_chunk_equals_nothing(x: str) -> None:
    """Whatever time of writing somebody gave it."""
    os.utime(chunk(x, 2), (9e9, 9e9))
    changed = max(file.stat().st_ctime for file in Path(x).rglob("*"))
    while chunk(x, 1).stat().st_ctime <= changed:  # until the clock of the disk goes on
        os.utime(chunk(x, 1), (1e9, 1e9))
    young = open_input(x, changed + SETTLED_SECONDS)
    assert [fingerprint == "" for fingerprint in young.marks] == [False, True, False, False]
    assert not young.same(young)
    assert young.unchanged(young, 40, 70)


def test_other_files_are_no_chunks(x: str) -> None:
    before = state(x)
    for name in ("notes.txt", "c.partial", "99", "c/77/0"):
        Path(x, name).parent.mkdir(parents=True, exist_ok=True)
        Path(x, name).write_text("")
    assert state(x).same(before)


def test_another_form_is_another_input(x: str, tmp_path: Path) -> None:
    other = zarr.create_array(tmp_path / "Y", shape=(70, 3), dtype="f8", chunks=(20, 3))
    other[...] = 1.0
    one, another = state(x), state(str(tmp_path / "Y"))
    assert one.form != another.form
    assert not one.same(another)


def test_what_cannot_be_listed_is_refused(x: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "lists", False)
    with pytest.raises(DataError, match=r"its chunks cannot be listed\. Use `dcpred score`"):
        state(x)


CODECS: dict[str, dict[str, Any]] = {
    "the standard one": {},
    "blosc": {"compressors": numcodecs.Blosc()},
    "zlib": {"compressors": numcodecs.Zlib()},
    "none": {"compressors": None},
    "delta": {"filters": [numcodecs.Delta("f4")]},
}


@pytest.mark.parametrize("codecs", CODECS.values(), ids=CODECS)
def test_an_array_of_format_2_is_the_same_in_every_process(codecs: dict[str, Any], tmp_path: Path) -> None:
    path = str(tmp_path / "X")
    zarr.create_array(path, shape=(10, 3), dtype="f4", chunks=(5, 3), zarr_format=2, **codecs)[...] = 1.0
    array = open_array(path)
    assert (array[...] == 1.0).all()
    json.dumps(array.metadata.to_dict())  # which is all that JSON can say
    told = (
        "import sys; from dcpred_tasks.storage import stored_chunks;"
        "from dcpred_tasks.storage.addressed_arrays import open_array;"
        "from dcpred_tasks.storage.stored_chunks import open_input; path = sys.argv[1];"
        "print(stored_chunks.fingerprint(open_array(path)), open_input(path, 2e9).form)"
    )
    found = subprocess.run([sys.executable, "-c", told, path], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [stored_chunks.fingerprint(array), open_input(path, NOW).form]
