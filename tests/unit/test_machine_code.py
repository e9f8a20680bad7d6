"""How processes share the work of compiling: one compiles, the others wait for its file, and nobody waits for
ever. What is kept may be damaged, and may not be kept at all.
"""

import ctypes
import errno
import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding

from dcpred_tasks.engine import arguments, machine_code
from dcpred_tasks.engine.machine_code import MachineCode, Target, host
from support import processes
from support.caches import with_cache
from support.processes import Process

TWICE = """
define i32 @score(ptr %x) {
  %value = load i64, ptr %x
  %double = shl i64 %value, 1
  store i64 %double, ptr %x
  ret i32 0
}
"""
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
from pathlib import Path
from dcpred_tasks.engine.machine_code import MachineCode, host
kept = MachineCode(Path(sys.argv[1]).read_bytes(), host())
print("ready", flush=True)
sys.stdin.readline()
kept.entry()
print(kept.has_compiled)
"""


@pytest.fixture
def twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bitcode of a small function; there is an empty folder for its machine code and nothing else."""
    for name in ("DCPRED_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return bytes(binding.parse_assembly(TWICE).as_bitcode())


@pytest.fixture
def kept(twice: bytes) -> MachineCode:
    return MachineCode(twice, host())


def called(code: MachineCode, number: int) -> int:
    word = ctypes.c_int64(number)
    assert code.entry()(ctypes.addressof(word)) == 0
    return word.value


@pytest.fixture
def holder(kept: MachineCode) -> Iterator[Process]:
    """Another process that has the lock, as one that compiles has."""
    lock = kept.places()[0].with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with processes.started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_it_is_known_whether_code_is_there(twice: bytes, kept: MachineCode) -> None:
    assert not kept.is_there()
    assert called(kept, 21) == 42
    assert kept.is_there()
    other = MachineCode(twice, host())  # as in another process
    assert other.is_there()
    assert called(other, 4) == 8
    assert not other.has_compiled


def test_a_holder_that_dies_is_followed_by_one_that_waits(
    kept: MachineCode, holder: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            holder.kill()
            holder.wait()

    monkeypatch.setattr("dcpred_tasks.engine.machine_code.time.sleep", look)
    assert called(kept, 21) == 42
    assert len(looks) >= 3
    assert kept.has_compiled


def test_code_that_comes_ends_the_wait(
    twice: bytes, kept: MachineCode, holder: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held on: processes that load do so at once, and not one after the other."""

    def look(seconds: float) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(machine_code, "PATIENCE_SECONDS", 0.0)
            called(MachineCode(twice, host()), 1)

    monkeypatch.setattr("dcpred_tasks.engine.machine_code.time.sleep", look)
    assert called(kept, 21) == 42
    assert not kept.has_compiled
    assert holder.poll() is None


def test_patience_ends(kept: MachineCode, holder: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "PATIENCE_SECONDS", 0.0)
    assert called(kept, 21) == 42
    assert holder.poll() is None


def test_where_files_cannot_be_locked_nobody_waits(
    kept: MachineCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert called(kept, 21) == 42
    assert kept.is_there()


@pytest.mark.parametrize("left", [b"", b"half", None])
def test_a_damaged_file_is_written_anew(twice: bytes, kept: MachineCode, left: bytes | None) -> None:
    """A machine that lost power while it was written leaves a file that is empty, or not whole."""
    assert called(kept, 21) == 42
    place = kept.places()[0]
    whole = place.read_bytes()
    place.write_bytes(whole[:-1] if left is None else left)
    for has_compiled in (True, False):
        other = MachineCode(twice, host())  # as in another process
        assert called(other, 4) == 8
        assert other.has_compiled == has_compiled
    assert place.read_bytes() == whole


def test_of_several_folders_the_first_that_has_code_serves(
    twice: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an image has machine code baked in, and the user's own folder is empty."""
    called(MachineCode(twice, host()), 1)
    monkeypatch.setenv("DCPRED_CACHE_DIR", str(tmp_path / "empty"))
    other = MachineCode(twice, host())
    assert called(other, 4) == 8
    assert not other.has_compiled
    assert not (tmp_path / "empty").exists()


def test_nowhere_to_keep_anything(twice: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a locked container: a user that has a number and no home, and nothing that can be written."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("DCPRED_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(Path, "mkdir", refuse)
    code = MachineCode(twice, host())
    assert code.places() == []
    assert called(code, 21) == 42


def test_each_processor_has_code_of_its_own(twice: bytes) -> None:
    names = {Target("haswell").name, Target("haswell", "+avx512f").name, Target("haswell", "-avx512f").name}
    assert len(names) == 3
    places = [MachineCode(twice, Target("x", features)).places()[0] for features in ("", "+a")]
    assert places[0] != places[1]
    assert places[0].parent == places[1].parent


# -- arguments -----------------------------------------------------------------------------------------------


def test_words_are_what_lies_in_memory() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    found = list(arguments.words((True, -1, 1.0, np.float32(1.0), rows)))
    assert found[:4] == [1, -1, 0x3FF0000000000000, 0x3F800000]
    assert found[4:] == [0, 0, 6, 8, rows.ctypes.data, 2, 3, 24, 8]


def test_other_types_have_another_description() -> None:
    values = [1, 1.0, True, np.float32(1), np.zeros(1), np.zeros((1, 1)), np.zeros(1, np.float32)]
    assert len({arguments.described(value) for value in values}) == len(values)


# -- in processes of their own -------------------------------------------------------------------------------


def test_of_processes_that_call_at_once_one_compiles(twice: bytes, tmp_path: Path) -> None:
    bitcode = tmp_path / "twice.bc"
    bitcode.write_bytes(twice)
    with ExitStack() as stack:
        begun = [
            stack.enter_context(
                processes.started(
                    [sys.executable, "-c", CALL, str(bitcode)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=with_cache(tmp_path),
                )
            )
            for _ in range(3)
        ]
        for process in begun:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in begun:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        done = [processes.finish(process) for process in begun]
    assert [d.returncode for d in done] == [0, 0, 0], [d.stderr for d in done]
    assert sorted(d.stdout for d in done) == ["False\n", "False\n", "True\n"]


@pytest.mark.parametrize("limit", [8, 2**8])
def test_a_full_disk_keeps_nothing_and_calls(twice: bytes, tmp_path: Path, limit: int) -> None:
    bitcode = tmp_path / "twice.bc"
    bitcode.write_bytes(twice)
    done = processes.run(
        [sys.executable, "-c", CALL, str(bitcode)],
        env=with_cache(tmp_path),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert (done.returncode, done.stdout) == (0, "ready\nTrue\n"), done.stderr
    assert not list(tmp_path.rglob("*.o*"))
