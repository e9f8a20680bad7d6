"""How processes share the work of compiling: one compiles, the others wait for its file, and nobody waits for
ever. What is kept may be damaged, and may not be kept at all.
"""

import errno
import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dcpred_tasks.engine import compilation
from dcpred_tasks.engine.compilation import compiled_and_kept
from support import processes
from support.caches import hits_and_misses, with_cache
from support.processes import Process

HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
# A process says that it is ready, and calls the function when it is told to.
CALL = """
import sys
from support.caches import hits_and_misses
from support.compiled_function import twice
print("ready", flush=True)
sys.stdin.readline()
assert twice(21) == 42
print(*hits_and_misses(twice))
"""
CALL_AT_ONCE = """
from support.caches import hits_and_misses
from support.compiled_function import twice
assert twice(21) == 42
print(*hits_and_misses(twice))
"""


def twice(x: int) -> int:
    return 2 * x


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> compiled_and_kept:
    """A small function, and an empty folder for its machine code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return compiled_and_kept(twice)


@pytest.fixture
def holder(kept: compiled_and_kept) -> Iterator[Process]:
    """Another process that has the lock, as one that compiles has."""
    assert kept.folder is not None
    command = [sys.executable, "-c", HOLDER, str(kept.folder / "lock")]
    with processes.started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_it_is_known_whether_code_is_there(kept: compiled_and_kept) -> None:
    assert not kept.is_there()
    assert kept(21) == 42
    assert kept.is_there()
    other = compiled_and_kept(twice)  # as in another process
    assert other.is_there()
    assert other(4) == 8
    assert hits_and_misses(other) == (1, 0)


def test_a_holder_that_dies_is_followed_by_one_that_waits(
    kept: compiled_and_kept, holder: Process, monkeypatch: pytest.MonkeyPatch
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
    assert hits_and_misses(kept) == (0, 1)


def test_code_that_comes_ends_the_wait(
    kept: compiled_and_kept, holder: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held on: processes that load do so at once, and not one after the other."""

    def look(seconds: float) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(compilation, "PATIENCE_SECONDS", 0.0)
            compiled_and_kept(twice)(1)

    monkeypatch.setattr("dcpred_tasks.engine.compilation.time.sleep", look)
    assert kept(21) == 42
    assert hits_and_misses(kept) == (1, 0)
    assert holder.poll() is None


def test_patience_ends(kept: compiled_and_kept, holder: Process, monkeypatch: pytest.MonkeyPatch) -> None:
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


# -- in processes of their own -------------------------------------------------------------------------------


def test_of_processes_that_call_at_once_one_compiles(tmp_path: Path) -> None:
    with ExitStack() as stack:
        called = [
            stack.enter_context(
                processes.started(
                    [sys.executable, "-c", CALL],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=with_cache(tmp_path),
                )
            )
            for _ in range(3)
        ]
        for process in called:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in called:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        done = [processes.finish(process) for process in called]
    assert [d.returncode for d in done] == [0, 0, 0], [d.stderr for d in done]
    assert sorted(d.stdout for d in done) == ["0 1\n", "1 0\n", "1 0\n"]


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_damaged_cache_is_thrown_away(kept: compiled_and_kept, suffix: str) -> None:
    """A machine that lost power while the cache was written leaves empty files."""
    assert kept(21) == 42
    assert kept.folder is not None
    damaged = list(kept.folder.rglob(f"*{suffix}"))
    assert damaged
    for file in damaged:
        file.write_bytes(b"")
    other = compiled_and_kept(twice)  # as in another process
    assert other(4) == 8
    assert not any(file.exists() for file in damaged)


@pytest.mark.parametrize("limit", [2**10, 2**12])
def test_a_full_disk_keeps_nothing_and_calls(tmp_path: Path, limit: int) -> None:
    """The disk is full before the index is whole, or between index and code."""
    done = processes.run(
        [sys.executable, "-c", CALL_AT_ONCE],
        env=with_cache(tmp_path),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr
    assert not list(tmp_path.rglob("*.nb?"))
