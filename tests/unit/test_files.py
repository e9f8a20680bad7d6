"""Files appear whole or not at all, and digests tell what they hold."""

import errno
import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError, PlanConflictError, ResourceError
from dcpred_tasks.storage import atomic_files
from dcpred_tasks.storage.atomic_files import (
    is_free,
    is_whole,
    new_directory,
    partial_name,
    read_arrays,
    read_json,
    resource_errors,
    write_arrays,
    write_bytes,
    write_json,
)
from dcpred_tasks.storage.digests import digest, digest_json
from support import processes


def held(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def fail(code: int) -> OSError:
    return OSError(code, os.strerror(code))


# -- one file ------------------------------------------------------------------------------------------------


def test_bytes_and_json_come_back(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"\x00\xff")
    assert (tmp_path / "a").read_bytes() == b"\x00\xff"
    value = {"name": "ü", "list": [1, 0.1, None, True], "deep": {"x": 1e-300}}
    write_json(tmp_path / "b.json", value)
    assert read_json(tmp_path / "b.json") == value
    write_json(tmp_path / "b.json", {"x": 1})
    assert read_json(tmp_path / "b.json") == {"x": 1}
    assert held(tmp_path) == ["a", "b.json"]


@pytest.mark.parametrize("text", ["[1]", "3", "null"])
def test_json_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(ValueError, match="not hold a JSON object"):
        read_json(tmp_path / "a")


def test_json_without_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a", {"x": float("nan")})
    assert held(tmp_path) == []


@pytest.mark.parametrize("where", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise fail(code)

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(*((os, "fsync") if where == "fsync" else (Path, "replace")), refuse)
    with pytest.raises(ResourceError, match=rf"Cannot write to .*a: {os.strerror(code)}\. Free space"):
        write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert held(tmp_path) == ["a"]


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a", b"new")
    assert held(tmp_path) == []


def test_bytes_are_on_disk_before_they_have_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    fsync = os.fsync

    def watch(number: int) -> None:
        seen.append((held(tmp_path), os.fstat(number).st_size))
        fsync(number)

    monkeypatch.setattr(os, "fsync", watch)
    write_bytes(tmp_path / "a", b"12345")
    (names, size), (names_after, _) = seen  # the file, then its directory
    assert size == 5
    assert "a" not in names
    assert "a" in names_after


def test_arrays_come_back_and_are_never_pickled(tmp_path: Path) -> None:
    arrays = {
        "f": np.array([[0.1, np.nan]], np.float32),
        "names": np.array(["a", "ü"]),
        "none": np.empty((0, 3)),
        "flag": np.array(True),
    }
    write_arrays(tmp_path / "a.npz", arrays)
    stored = read_arrays(tmp_path / "a.npz")
    assert set(stored) == set(arrays)
    for name, a in arrays.items():
        assert stored[name].dtype == a.dtype
        np.testing.assert_array_equal(stored[name], a)
    with pytest.raises(ValueError, match="allow_pickle"):
        write_arrays(tmp_path / "b.npz", {"o": np.array([{}], object)})
    assert held(tmp_path) == ["a.npz"]


def test_partial_names_differ_and_stay_in_the_folder(tmp_path: Path) -> None:
    names = {partial_name(tmp_path / "a.json") for _ in range(100)}
    assert len(names) == 100
    assert {n.parent for n in names} == {tmp_path}
    assert all(n.name.startswith("a.json.partial-") for n in names)


# -- a directory ---------------------------------------------------------------------------------------------


def test_a_directory_appears_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "d"
    with new_directory(path) as partial:
        (partial / "x").write_text("1")
        assert not path.exists()
    assert held(path) == ["x"]
    assert held(path.parent) == ["d"]


def test_of_two_directories_that_differ_the_later_one_is_refused(tmp_path: Path) -> None:
    """What the faster attempt wrote is other data, and stays."""

    def filled_by_both() -> None:
        with new_directory(tmp_path / "d", alike=False) as slow:
            (slow / "a").write_text("slow")
            with new_directory(tmp_path / "d", alike=False) as fast:
                (fast / "a").write_text("fast")

    with pytest.raises(DataError, match="another process created it meanwhile"):
        filled_by_both()
    assert (tmp_path / "d" / "a").read_text() == "fast"
    assert held(tmp_path) == ["d"]


def test_files_of_the_operating_system_leave_a_directory_free(tmp_path: Path) -> None:
    """They move along, and a file of anybody else makes it a directory that is taken."""
    path = tmp_path / "d"
    path.mkdir()
    assert is_free(path)
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", ".x.swp", "x~"):
        (path / name).write_text("1")
    assert is_free(path)
    with new_directory(path, alike=False) as partial:
        (partial / "x").write_text("1")
    assert held(path) == [".DS_Store", ".x.swp", "Thumbs.db", "desktop.ini", "x", "x~"]
    assert not is_free(path)
    with pytest.raises(DataError, match="another process"), new_directory(path, alike=False):
        pass
    assert held(tmp_path) == ["d"]


def test_the_first_of_two_attempts_stays(tmp_path: Path) -> None:
    path = tmp_path / "d"
    with new_directory(path) as slow:
        with new_directory(path) as fast:
            assert fast != slow
            (fast / "x").write_text("first")
        (slow / "x").write_text("second")
    assert (path / "x").read_text() == "first"
    assert held(tmp_path) == ["d"]


def test_a_directory_whose_filling_fails_never_appears(tmp_path: Path) -> None:
    def fill(error: BaseException) -> None:
        with new_directory(tmp_path / "d") as partial:
            (partial / "x").write_text("1")
            raise error

    with pytest.raises(ResourceError, match="No space left"):
        fill(fail(errno.ENOSPC))
    with pytest.raises(KeyError):
        fill(KeyError("x"))
    with pytest.raises(KeyboardInterrupt):
        fill(KeyboardInterrupt())
    assert held(tmp_path) == []


def test_a_file_in_the_place_of_a_directory_is_no_earlier_attempt(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("mine")
    with (
        pytest.raises(ResourceError, match=r"Not a directory .*Remove what is there"),
        new_directory(tmp_path / "d"),
    ):
        pass
    assert (tmp_path / "d").read_text() == "mine"
    assert held(tmp_path) == ["d"]


# -- resource errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(atomic_files.RESOURCE_ERRNOS))
def test_resource_errors_name_the_place(code: int) -> None:
    told = pytest.raises(ResourceError, match=r"Cannot write to /some/place: .*then run again")
    with told as caught, resource_errors(Path("/some/place")):
        raise fail(code)
    assert os.strerror(code) in str(caught.value)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EIO, errno.EINTR])
def test_other_errors_pass_unchanged(code: int) -> None:
    with pytest.raises(OSError, match=os.strerror(code)) as caught, resource_errors(Path("/some/place")):
        raise fail(code)
    assert caught.value.errno == code


def test_a_real_limit_on_file_size(tmp_path: Path) -> None:
    """In a child process, since a limit cannot be lifted again."""
    script = """
import resource, sys
from pathlib import Path
import numpy as np
from dcpred_tasks.errors import ResourceError
from dcpred_tasks.storage.atomic_files import new_directory, write_arrays, write_bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
folder = Path(sys.argv[1])
def directory():
    with new_directory(folder / "d") as partial:
        (partial / "x").write_bytes(bytes(5000))
for attempt in (
    lambda: write_bytes(folder / "a", bytes(5000)),
    lambda: write_arrays(folder / "b.npz", {"x": np.random.default_rng(0).random(5000)}),
    directory,
):
    try:
        attempt()
    except ResourceError as error:
        assert "File too large" in str(error), error
    else:
        sys.exit("the limit was not met")
write_bytes(folder / "small", bytes(500))
"""
    done = processes.run([sys.executable, "-c", script, tmp_path])
    assert done.returncode == 0, done.stderr
    assert held(tmp_path) == ["small"]


# -- digests -------------------------------------------------------------------------------------------------

shapes = st.sampled_from([(), (0,), (0, 3), (1,), (5,), (3, 4), (2, 3, 2)])
dtypes = st.sampled_from(["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"])


def make(shape: tuple[int, ...], dtype: str, seed: int) -> NDArray[np.generic]:
    return np.asarray(np.random.default_rng(seed).integers(0, 2 if dtype == "?" else 100, shape)).astype(
        dtype
    )


@given(shape=shapes, dtype=dtypes, seed=st.integers(0, 1000))
def test_digest_is_that_of_little_endian_bytes_in_c_order(
    shape: tuple[int, ...], dtype: str, seed: int
) -> None:
    a = make(shape, dtype, seed)
    expected = hashlib.blake2b(a.astype(a.dtype.newbyteorder("<")).tobytes(), digest_size=16).hexdigest()
    strided = np.repeat(a, 2, axis=0)[::2] if a.ndim else a
    for same in (a, np.asfortranarray(a), a.astype(a.dtype.newbyteorder(">")), strided):
        assert digest(same) == expected
    assert len(expected) == 32


@given(shape=shapes.filter(lambda s: 0 not in s), dtype=dtypes, seed=st.integers(0, 1000))
def test_digest_tells_one_bit(shape: tuple[int, ...], dtype: str, seed: int) -> None:
    a = make(shape, dtype, seed)
    raw = bytearray(a.tobytes())
    raw[seed % len(raw)] ^= 1
    assert digest(a) != digest(np.frombuffer(bytes(raw), a.dtype).reshape(shape))


def test_digest_of_parts() -> None:
    a = np.arange(3)
    assert digest(b"ab", b"c") == digest(b"abc") != digest(b"ab")
    assert digest(a, b"x") == digest(a.tobytes() + b"x")
    assert digest(np.array([0.0])) != digest(np.array([-0.0]))


def test_digest_of_json_does_not_depend_on_the_order_of_keys() -> None:
    assert (
        digest_json({"a": 1, "b": [1, 2]})
        == digest_json({"b": [1, 2], "a": 1})
        != digest_json({"a": 1, "b": [2, 1]})
    )
    assert digest_json({"a": 1}) != digest_json({"a": "1"}) != digest_json({"a": 1.5})
    assert digest_json(json.loads('{"x":0.1}')) == digest_json({"x": 0.1})
    with pytest.raises(ValueError, match="JSON compliant"):
        digest_json({"x": float("inf")})


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "Free space"),
        (errno.ENOTDIR, "Remove what is there"),
        (errno.ENOENT, "Check the path"),
        (errno.EIO, "Check the path"),
    ],
)
def test_advice_fits_the_error(code: int, advice: str) -> None:
    """What the command line says of any error of the system."""
    said = atomic_files.reason(OSError(code, os.strerror(code)))
    assert said.startswith(os.strerror(code))
    assert advice in said


# -- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["nothing", "half", "zeros", "a changed byte", "one array", "rubbish"])
def test_damaged_arrays_are_told_in_a_sentence(tmp_path: Path, left: str) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, {"a": np.arange(50.0), "b": np.array(["x", "yy"])})
    assert is_whole(path)
    whole = path.read_bytes()
    at = whole.index(np.arange(50.0).tobytes())
    np.save(tmp_path / "one.npy", np.arange(3))
    damaged = {
        "nothing": b"",
        "half": whole[: len(whole) // 2],
        "zeros": whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2),
        "a changed byte": whole[:at] + b"\1" + whole[at + 1 :],
        "one array": (tmp_path / "one.npy").read_bytes(),
        "rubbish": b"of other data",
    }
    path.write_bytes(damaged[left])
    assert not is_whole(path)
    with pytest.raises(PlanConflictError, match=r"Cannot read .*a\.npz: it is damaged\. Remove it and run"):
        read_arrays(path)
