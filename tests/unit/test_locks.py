"""The lock of a folder: readers do not keep drivers out, errors of the storage are reported as such, and a
group can share it.
"""

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dcpred.execution import interrupts, lease
from dcpred.execution.events import json_lines
from dcpred.execution.lease import acquire_lock, check_unlocked, lock_holder
from dcpred_tasks.errors import ResourceError, RunHeldError
from dcpred_tasks.storage import atomic_files, place, store_requests
from dcpred_tasks.storage.place import open_place
from support.processes import wait_until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_requests, "FIRST_WAIT_SECONDS", 0.0)


@pytest.fixture
def group_umask() -> Iterator[None]:
    before = os.umask(0o002)
    try:
        yield
    finally:
        os.umask(before)


def fails(patch: pytest.MonkeyPatch, owner: Any, name: str, number: int, times: float) -> list[int]:
    """Have a function raise OSError so many times; how often it was called."""
    real, calls = getattr(owner, name), [0]

    def call(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] <= times:
            raise OSError(number, os.strerror(number))
        return real(*args, **more)

    patch.setattr(owner, name, call)
    return calls


def test_a_reader_does_not_make_a_start_fail(tmp_path: Path) -> None:
    """It has the lock while the driver tries, and lets go."""
    with acquire_lock(open_place(tmp_path)):
        pass
    file = os.open(tmp_path / ".lock.guard", os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_SH)
    reader = threading.Timer(0.1, lambda: os.close(file))
    reader.start()
    with acquire_lock(open_place(tmp_path)) as held:
        reader.join()
        held.check()
        assert lock_holder(open_place(tmp_path)) != ""
    assert lock_holder(open_place(tmp_path)) == ""


def test_a_driver_that_stays_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "INSTANT_SECONDS", 0.05)
    with (
        acquire_lock(open_place(tmp_path)),
        pytest.raises(RunHeldError, match="is in use by process"),
        acquire_lock(open_place(tmp_path)),
    ):
        pytest.fail("two drivers hold one folder")


def test_an_error_of_the_storage_is_no_other_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acquire_lock(open_place(tmp_path)) as held:
        with monkeypatch.context() as patch:
            calls = fails(patch, place, "read_plain", errno.EIO, 2)
            held.check()
            assert calls == [3]
        with monkeypatch.context() as patch:
            fails(patch, place, "read_plain", errno.ESTALE, float("inf"))
            with pytest.raises(ResourceError, match=r"lock file .*/lock: Stale file handle"):
                held.check()
        assert not held.lost
        held.check()


def test_an_error_of_a_lock_is_no_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fails(patch, fcntl, "flock", errno.EIO, float("inf"))
        with (
            pytest.raises(ResourceError, match=r"Cannot use the lock file .*: Input/output error"),
            acquire_lock(open_place(tmp_path)),
        ):
            pytest.fail("a lock that failed was taken")
        with hold_without_locks(patch, tmp_path) as held:
            held.check()
    with monkeypatch.context() as patch:
        fails(patch, fcntl, "flock", errno.EIO, 1)
        with acquire_lock(open_place(tmp_path)) as held:
            held.check()


def hold_without_locks(patch: pytest.MonkeyPatch, folder: Path) -> Any:
    fails(patch, fcntl, "flock", errno.ENOTSUP, float("inf"))
    return acquire_lock(open_place(folder))


def test_signs_go_on_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "SIGN_SECONDS", 0.01)
    for owner, name in ((place, "write_bytes"), (place, "read_plain")):
        with monkeypatch.context() as patch, acquire_lock(open_place(tmp_path)) as held:
            calls = fails(patch, owner, name, errno.EIO, 2)
            wait_until(lambda calls=calls: calls[0] > 4)
            assert not held.lost


def test_what_cannot_be_let_go_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, acquire_lock(open_place(tmp_path)):
        fails(patch, place, "read_plain", errno.EIO, float("inf"))
    assert lock_holder(open_place(tmp_path)) == ""


def test_a_lock_that_was_removed_with_its_folder_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that waits for the lock gets that of a file without a name, which keeps nobody out."""
    real = place.lock_file
    removed: list[int] = []

    def lock(file: int, **kind: bool) -> bool:
        if not removed:
            (tmp_path / ".lock.guard").unlink()
            removed.append(1)
        return real(file, **kind)

    monkeypatch.setattr(place, "lock_file", lock)
    with acquire_lock(open_place(tmp_path)) as held:
        held.check()
        with pytest.raises(RunHeldError):
            check_unlocked(open_place(tmp_path))


def test_a_group_may_go_on(tmp_path: Path, group_umask: None) -> None:
    """Files that are written to again are as the umask has them, like all others of a folder."""
    with acquire_lock(open_place(tmp_path)), json_lines(str(tmp_path / "events")):
        folder = open_place(tmp_path)
        folder.write("one", b"1")
        standing = folder.read("one")
        assert standing is not None
        folder.replace("one", b"2", standing.tag)
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("lock", ".lock.guard", "events", "one", ".one.guard"), "0o664")


def test_a_signal_within_a_write_to_standard_error_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()

    class Busy:
        def write(self, text: str) -> int:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

        def fileno(self) -> int:
            return write

    monkeypatch.setattr(interrupts, "_first_at", None)
    monkeypatch.setattr(interrupts, "_end_where_a_store_is_silent", lambda: None)
    with interrupts.listening() as asked, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", Busy())
        try:
            interrupts._handle(signal.SIGINT, None)
            assert asked.is_set()
        finally:
            asked.clear()
    assert b"interrupt again to end at once" in os.read(read, 1000)
    for file in (read, write):
        os.close(file)


def test_other_file_systems_are_not_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything() -> None:
        raise AssertionError("every file system of the machine was flushed")

    monkeypatch.setattr(os, "sync", everything)
    atomic_files.sync_file_system(tmp_path)
    with pytest.raises(FileNotFoundError):
        atomic_files.sync_file_system(tmp_path / "none")
