"""How processes share the work of compiling: one compiles, the others wait for its file, and nobody waits for
ever.
"""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dcpred_tasks.engine import compilation
from dcpred_tasks.engine.compilation import compiled_and_kept

HOLDER = """
import fcntl, sys, time
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def twice(x: int) -> int:
    return 2 * x


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> compiled_and_kept:
    """A small function, and an empty folder for its machine code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return compiled_and_kept(twice)


@pytest.fixture
def holder(kept: compiled_and_kept) -> Iterator["subprocess.Popen[str]"]:
    """Another process that has the lock, as one that compiles has."""
    assert kept.folder is not None
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(kept.folder / "lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_it_is_known_whether_code_is_there(kept: compiled_and_kept) -> None:
    assert not kept.is_there()
    assert kept(21) == 42
    assert kept.is_there()
    other = compiled_and_kept(twice)  # as in another process
    assert other.is_there()
    assert other(4) == 8
    assert sum(other.dispatcher.stats.cache_misses.values()) == 0


def test_a_holder_that_dies_is_followed_by_one_that_waits(
    kept: compiled_and_kept, holder: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            holder.kill()
            holder.wait()

    monkeypatch.setattr("dcpred_tasks.engine.compilation.time.sleep", look)
    assert kept(21) == 42
    assert len(looks) >= 3
    assert sum(kept.dispatcher.stats.cache_misses.values()) == 1


def test_code_that_comes_ends_the_wait(
    kept: compiled_and_kept, holder: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held on: processes that load do so at once, and not one after the other."""

    def look(seconds: float) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(compilation, "PATIENCE_SECONDS", 0.0)
            compiled_and_kept(twice)(1)

    monkeypatch.setattr("dcpred_tasks.engine.compilation.time.sleep", look)
    assert kept(21) == 42
    assert sum(kept.dispatcher.stats.cache_misses.values()) == 0
    assert holder.poll() is None


def test_patience_ends(
    kept: compiled_and_kept, holder: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "PATIENCE_SECONDS", 0.0)
    assert kept(21) == 42
    assert holder.poll() is None


def test_where_files_cannot_be_locked_nobody_waits(
    kept: compiled_and_kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert kept(21) == 42
    assert kept.is_there()
