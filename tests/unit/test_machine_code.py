"""How processes share the work of compiling: one compiles, the others wait for its file, and nobody waits for
ever. What is kept may be damaged, and may not be kept at all.
"""

import ctypes
import errno
import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from llvmlite import binding

from dcpred import DCPredRegressor, load_model
from dcpred_tasks.engine import compiler, engine, layout, machine_code, native_modules, tiles
from dcpred_tasks.engine.compiler import CompilerError
from dcpred_tasks.engine.machine_code import MachineCode, Target, host
from dcpred_tasks.engine.native_modules import REFINEMENT, Bitcode
from dcpred_tasks.errors import RefusedError, ResourceError, SettingsError
from dcpred_tasks.model import compact_model
from dcpred_tasks.scoring import scorer
from dcpred_tasks.training import compiled_refinement, refinement
from dcpred_tasks.training.compiled_refinement import PredictionArguments, Predictions
from support import processes
from support.caches import with_cache
from support.models import random_model
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
from dcpred_tasks.engine.machine_code import MachineCode
from dcpred_tasks.engine.machine_code import host
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
def packed(twice: bytes, tmp_path: Path) -> Bitcode:
    """The same as it comes with a package, in place of the engine, which takes seconds to compile."""
    package = Bitcode(tmp_path / "package", "twice", "score", ())
    package.folder.mkdir()
    (package.folder / "twice.bc").write_bytes(twice)
    made_of = {"sources": machine_code.fingerprint_of_sources(package), "functions": {}}
    (package.folder / "twice.json").write_text(json.dumps(made_of))
    return package


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


def test_code_of_the_highest_level_that_the_processor_has_serves(twice: bytes) -> None:
    """As from an image that was built on another machine; what is compiled is for this processor."""
    level, other = Target("x86-64-v3"), MachineCode(twice, host())
    called(MachineCode(twice, host()._replace(features="")), 1)  # as of another machine
    shared = MachineCode(twice, host(), host()._replace(features=""))
    assert called(shared, 4) == 8
    assert not shared.has_compiled
    assert called(MachineCode(twice, host(), level), 4) == 8
    assert other.is_there()


@pytest.mark.parametrize(
    ("has", "level"),
    [("avx512f", None), ("avx2", "x86-64-v3"), ("avx512bw avx512cd avx512dq avx512f avx512vl", "x86-64-v4")],
)
def test_levels(has: str, level: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    below = set() if level is None else machine_code.LEVELS["x86-64-v3"]
    features = dict.fromkeys({*has.split(), *below}, True) | {"avx512er": False}
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(machine_code.llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    assert machine_code.host_level() == (None if level is None else Target(level))


def test_code_is_compiled_ahead_of_time(packed: Bitcode, tmp_path: Path) -> None:
    made = [machine_code.warm(name, packed) for name in ("host", "x86-64-v3", "x86-64-v3")]
    assert [code.has_compiled for code in made] == [True, True, False]
    assert {code.places()[0].parents[1] for code in made} == {tmp_path / "cache"}
    with pytest.raises(SettingsError, match="machine code for amd64: the choices are host, x86-64-v3 and"):
        machine_code.warm("amd64", packed)


@pytest.fixture
def fresh(twice: bytes) -> Iterator[None]:
    """The engine as a process knows it that has just begun, without machine code."""
    machine_code._own_code.cache_clear()
    yield
    machine_code._own_code.cache_clear()


@pytest.fixture
def other_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of another kind, which has all that a level names and more."""
    features = dict.fromkeys(set().union(*machine_code.LEVELS.values()) | {"avx512vp2intersect"}, True)
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_name", lambda: "tigerlake")
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_features", lambda: binding.FeatureMap(features))


@pytest.mark.parametrize("features", ["", None])
def test_code_for_a_level_that_is_named_is_found_on_other_processors(
    fresh: None,
    packed: Bitcode,
    features: str | None,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As from an image: without a name, each other kind of machine compiles again."""
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64-v3")
    if features is not None:
        monkeypatch.setenv("NUMBA_CPU_FEATURES", features)
    machine_code.warm("x86-64-v3", packed)
    request.getfixturevalue("other_processor")
    assert machine_code.own_code(packed).is_there()
    assert machine_code.own_code(packed).places()[0].name == "x86-64-v3.o"


def test_features_that_are_named_have_machine_code_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64-v3")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx512f")
    assert machine_code.pinned() == Target("x86-64-v3", "+avx512f")
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")  # for code that numba compiles, and not for ours
    assert machine_code.pinned() is None


def test_a_level_that_the_processor_lacks_is_refused(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine code would end the process."""
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64-v4")
    features = dict.fromkeys(machine_code.LEVELS["x86-64-v3"], True)
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_features", lambda: features)
    with pytest.raises(SettingsError, match=r"x86-64-v4, which NUMBA_CPU_NAME requests: .* lacks avx512bw"):
        machine_code.own_code(engine.ENGINE)


def test_machine_code_that_cannot_be_kept_is_told(packed: Bitcode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCPRED_CACHE_DIR", "/dev/null/none")
    with pytest.raises(
        ResourceError, match=r"Cannot write machine code to /dev/null/none/dcpred.*\. Set DCPRED_CACHE_DIR"
    ):
        machine_code.warm("host", packed)


def test_code_of_other_versions_that_nobody_uses_is_removed(twice: bytes, tmp_path: Path) -> None:
    """When code is written beside it; and neither what this version knows, nor what was used of late, nor
    files that are not ours.
    """
    cache = tmp_path / "cache"
    age = 31 * 86_400

    def folder(name: str, *files: str, seconds: float = age) -> Path:
        (cache / name).mkdir(parents=True)
        for file in files:
            (cache / name / file).write_bytes(b"")
            os.utime(cache / name / file, times=(time.time() - seconds,) * 2)
        return cache / name

    old = folder(f"dcpred-{'0' * 16}", "x.o", "x.lock", "x.o.abc.partial")
    bitcode = REFINEMENT.code
    kept = [
        folder(f"dcpred-{'1' * 16}", "x.o", seconds=age - 2 * 86_400),
        folder(machine_code._name_of(bitcode), "x.o"),
        folder("dcpred-notes", "x.o"),
        folder("other", "x.o"),
    ]
    precious = folder(f"dcpred-{'2' * 16}", "x.o", "precious.txt")
    linked = cache / f"dcpred-{'3' * 16}"
    linked.symlink_to(kept[-1])
    assert called(MachineCode(twice, host()), 21) == 42
    assert not old.exists()
    assert all((place / "x.o").exists() for place in kept)
    assert (linked / "x.o").exists()
    assert [file.name for file in precious.iterdir()] == ["precious.txt"]


def test_code_that_is_used_is_not_old(twice: bytes, kept: MachineCode) -> None:
    called(kept, 1)
    place = kept.places()[0]
    os.utime(place, times=(0, 0))
    assert called(MachineCode(twice, host()), 2) == 4
    assert time.time() - place.stat().st_mtime < 3_600


def test_a_cache_that_cannot_be_tidied_serves_all_the_same(
    twice: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "cache" / f"dcpred-{'0' * 16}"
    old.mkdir(parents=True)
    os.utime(old, times=(0, 0))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "rmdir", refuse)
    assert called(MachineCode(twice, host()), 21) == 42
    assert old.exists()


def test_compiling_meanwhile(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process does it, and where there is machine code nobody."""
    begun: list[object] = []
    real = scorer.Popen
    monkeypatch.setattr(scorer, "Popen", lambda *a, **k: begun.append(a) or real(*a, **k))
    with scorer.compiled_ahead():
        processes.wait_until(machine_code.own_code(engine.ENGINE).is_there)
    with scorer.compiled_ahead():
        pass
    assert len(begun) == 1
    assert not machine_code.own_code(engine.ENGINE).has_compiled


def test_nobody_waits_for_what_compiles_when_all_is_done(fresh: None) -> None:
    with scorer.compiled_ahead():
        pass
    assert not machine_code.own_code(engine.ENGINE).is_there()


def test_threads_share_what_one_compiles(twice: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing can be kept."""
    monkeypatch.setenv("DCPRED_CACHE_DIR", "/dev/null/none")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")
    monkeypatch.setattr("tempfile.tempdir", "/dev/null/none")
    code, compiled = MachineCode(twice, host()), []
    real = machine_code.compile_bitcode
    monkeypatch.setattr(machine_code, "compile_bitcode", lambda *a: compiled.append(a) or real(*a))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda number: called(code, number), range(8))) == list(range(0, 16, 2))
    assert len(compiled) == 1


def test_a_damaged_file_that_cannot_be_replaced_is_told(packed: Bitcode) -> None:
    place = machine_code.warm("host", packed).places()[0]
    place.unlink()
    place.mkdir()
    with pytest.raises(ResourceError, match=r"Cannot write machine code to .*\.o"):
        machine_code.warm("host", packed)


def test_a_folder_that_others_may_write_to_is_passed_over(
    twice: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / f"dcpred-{os.getuid()}"
    own.mkdir()
    for mode, taken in ((0o700, True), (0o777, False)):
        own.chmod(mode)
        assert (own in machine_code._bases()) is taken
    own.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    own.symlink_to(tmp_path / "elsewhere")
    assert own not in machine_code._bases()


def test_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/nobody")
    monkeypatch.setenv("DCPRED_CACHE_DIR", "~/code")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert [str(base) for base in machine_code._bases()][:2] == ["/home/nobody/code", "/home/nobody/.cache"]


# -- arguments -----------------------------------------------------------------------------------------------


def test_words_are_what_lies_in_memory() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    found = list(native_modules.words((True, -1, 1.0, np.float32(1.0), rows)))
    assert found == [1, -1, 0x3FF0000000000000, 0x3FF0000000000000, rows.ctypes.data, 6]


def test_other_types_have_another_description() -> None:
    values = [1, 1.0, True, np.float32(1), np.zeros(1), np.zeros(1, np.float32)]
    assert len({native_modules.described(value) for value in values}) == len(values)
    assert len({native_modules.words_and_kinds(value)[1] for value in values}) == len(values)


def test_arguments_of_other_types_are_refused_after_good_ones() -> None:
    k = np.zeros(0, np.float32)
    good = Predictions(1, k, k, np.zeros(0), np.ones(1), np.empty(0))
    machine_code.prepared(REFINEMENT, PredictionArguments(good))()
    with pytest.raises(RefusedError, match="other arguments"):
        machine_code.prepared(REFINEMENT, PredictionArguments(good._replace(squares=np.zeros(0))))


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


# -- a process that forks while a thread compiles ------------------------------------------------------------


def exit_of_child(run: Callable[[], bool]) -> int:
    """The status of a child process of this one, 0 where `run` returns True in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            status = 0 if run() else 2
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def test_a_child_has_the_turn_of_a_thread_that_waits(
    kept: MachineCode, holder: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it does not keep the lock of its parent."""
    waits, go_on = threading.Event(), threading.Event()

    def look(_: float) -> None:
        waits.set()
        go_on.wait(20)

    monkeypatch.setattr("dcpred_tasks.engine.machine_code.time.sleep", look)
    thread = threading.Thread(target=kept.entry)
    thread.start()
    assert waits.wait(20)
    lock = str(kept.places()[0].with_suffix(".lock"))

    def scores() -> bool:
        monkeypatch.setattr(machine_code, "PATIENCE_SECONDS", 0.0)
        files = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
        return called(kept, 21) == 42 and lock not in files

    try:
        assert exit_of_child(scores) == 0
    finally:
        holder.kill()
        holder.wait()
        go_on.set()
        thread.join()


def test_a_fork_waits_for_llvm(kept: MachineCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the child would have its locks, and half of what it makes."""
    inside = threading.Event()
    real = machine_code.compile_bitcode

    def slowly(*of: Any) -> bytes:
        inside.set()
        time.sleep(0.2)
        code = real(*of)
        inside.clear()
        return code

    monkeypatch.setattr(machine_code, "compile_bitcode", slowly)
    thread = threading.Thread(target=kept.entry)
    thread.start()
    assert inside.wait(20)
    assert exit_of_child(lambda: not inside.is_set() and called(kept, 21) == 42) == 0
    thread.join()


# -- whose machine code is run -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_machine_code_that_others_can_write_is_not_run(twice: bytes, kept: MachineCode, mode: int) -> None:
    """One warning, and what lies there afterwards nobody else can write to."""
    called(kept, 1)
    place = kept.places()[0]
    place.chmod(place.stat().st_mode | mode)
    other = MachineCode(twice, host())  # as in another process
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert called(other, 4) == 8
    (warning,) = seen
    assert re.search(r"Cannot use .*: others can write to it .* DCPRED_CACHE_DIR", str(warning.message))
    assert other.has_compiled
    assert not place.stat().st_mode & 0o022
    again = MachineCode(twice, host())
    assert called(again, 5) == 10
    assert not again.has_compiled


@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_a_folder_of_this_user_is_closed_before_its_code_runs(
    twice: bytes, kept: MachineCode, mode: int
) -> None:
    """A file of this user is its own in any folder, so that there is nothing to warn of."""
    called(kept, 1)
    folder = kept.places()[0].parent
    folder.chmod(folder.stat().st_mode | mode)
    other = MachineCode(twice, host())
    assert called(other, 4) == 8
    assert not other.has_compiled
    assert not folder.stat().st_mode & 0o022


def test_code_below_a_folder_where_anybody_may_exchange_folders_is_not_run(
    twice: bytes, kept: MachineCode
) -> None:
    called(kept, 1)
    base = kept.folders[0].parent
    base.chmod(0o1777)  # as /tmp, where nobody may
    assert MachineCode(twice, host()).is_there()
    base.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=rf"Cannot use the machine code in {base}: .*mode 777"):
        assert not MachineCode(twice, host()).is_there()


@pytest.mark.parametrize("suffix", [".o", ".lock"])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(
    kept: MachineCode, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = kept.places()[0].with_suffix(suffix)
    place.parent.mkdir(parents=True)
    os.mkfifo(place, 0o600)
    signal.alarm(20)  # would end the process, as nothing else does
    assert called(kept, 21) == 42
    signal.alarm(0)


def test_a_pipe_of_another_user_is_not_opened(kept: MachineCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their folder is looked at first."""
    place = kept.places()[0]
    place.parent.mkdir(parents=True)
    os.mkfifo(place, 0o600)
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    if os.stat(place.parent).st_uid == 0:
        os.chown(place.parent, 65533, -1)
    opened: list[object] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda *a: opened.append(a[0]) or real(*a))
    with pytest.warns(RuntimeWarning, match="belongs to user"):
        assert not kept.is_there()
    assert str(place) not in map(str, opened)


OTHER = TWICE.replace("@score", "@refine").replace("shl i64 %value, 1", "mul i64 %value, 3")


@pytest.mark.parametrize("other", ["bitcode", "entry", "target"])
def test_code_that_was_made_from_something_else_is_not_run(
    twice: bytes, kept: MachineCode, other: str
) -> None:
    """Though a whole file with its digest lies in the place."""
    both = bytes(binding.parse_assembly(TWICE + OTHER).as_bitcode())
    made, wanted = {
        "bitcode": (
            MachineCode(bytes(binding.parse_assembly(OTHER).as_bitcode()), host(), entry="refine"),
            kept,
        ),
        "entry": (MachineCode(both, host(), entry="refine"), MachineCode(both, host())),
        "target": (MachineCode(twice, host()._replace(features="")), kept),
    }[other]
    called(made, 1)
    whole = made.places()[0].read_bytes()
    place = wanted.places()[0]
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(whole)
    assert not wanted.is_there()
    assert called(wanted, 21) == 42
    assert wanted.has_compiled


def test_machine_code_without_its_function_is_an_error_of_llvm(twice: bytes) -> None:
    with pytest.raises(CompilerError, match="no function refine"):
        MachineCode(twice, host(), entry="refine").entry()


@pytest.mark.parametrize("what", ["file", "folder"])
def test_machine_code_of_another_user_is_not_run(
    twice: bytes, kept: MachineCode, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called(kept, 1)
    place = kept.places()[0]
    if os.getuid() == 0:  # code of root, as in an image, is trusted by all
        os.chown(place if what == "file" else place.parent, 65534, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 65534)
    other = MachineCode(twice, host())
    with pytest.warns(RuntimeWarning, match=r"Cannot use .*: it belongs to user \d+"):
        assert called(other, 4) == 8
    assert other.has_compiled


def test_a_umask_does_not_open_what_is_kept(
    twice: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    monkeypatch.setenv("DCPRED_CACHE_DIR", str(tmp_path / "above" / "cache"))
    try:
        code = MachineCode(twice, host())
        called(code, 1)
    finally:
        os.umask(before)
    place = code.places()[0]
    modes = [one.stat().st_mode & 0o777 for one in (place, *place.parents[:3])]
    assert modes == [0o644, 0o755, 0o755, 0o755]
    assert MachineCode(twice, host()).is_there()


# -- where LLVM fails ----------------------------------------------------------------------------------------


def fails(*_: object, **__: object) -> None:
    raise RuntimeError("LLVM knows no such thing\nsecond line")


@pytest.mark.tools
def test_few_passes_leave_no_call_of_what_a_processor_has() -> None:
    """They put it in place as all passes do, and code that it decides against is left out."""
    sizes = []
    for quick in (True, False):
        code = machine_code.compile_bitcode(machine_code.own_code(engine.ENGINE).bitcode, host(), quick)
        names = binding.ObjectFileRef.from_data(code).sections()
        sizes.append(sum(section.size() for section in names if section.is_text()))
        assert b"has_wide_vectors" not in code
        assert b"has_pair_products" not in code
    assert sizes[0] < 1.2 * sizes[1]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (machine_code.llvm, "parse_bitcode"),
        (machine_code.llvm, "create_pass_builder"),
        (machine_code.llvm, "create_mcjit_compiler"),
        (machine_code.llvm.Target, "from_default_triple"),
        (machine_code.llvm, "get_host_cpu_features"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_whatever_fails_in_llvm_numpy_scores(
    fresh: None, owner: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one warning for any number of models."""
    monkeypatch.setattr(compiler, "_failures", {})
    monkeypatch.setattr(owner, name, fails)
    models = [random_model(seed, d=3) for seed in (0, 1)]
    X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with pytest.warns(
        RuntimeWarning,
        match=rf"rows are scored by NumPy, .* LLVM fails .*no such thing\). Set {compiler.SWITCH}",
    ):
        found = [scorer.score_rows(model, X)[0] for model in models[:1]]
    found.append(scorer.score_rows(models[1], X)[0])  # a second warning would be an error
    assert scorer.is_compiled()
    assert scorer.arithmetic() == "numpy"
    for model, decision in zip(models, found, strict=True):
        np.testing.assert_array_equal(decision, compact_model.score_rows(model, X)[0])


@pytest.fixture
def small_engines(fresh: None, packed: Bitcode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine and refinement of a process that has just begun, with code that compiles at once."""
    monkeypatch.setattr(compiler, "_failures", {})
    monkeypatch.setattr(engine, "ENGINE", packed)
    monkeypatch.setattr(compiled_refinement, "REFINEMENT", packed)


STEPS = [
    (machine_code.llvm, "parse_bitcode"),
    (machine_code, "compile_bitcode"),
    (machine_code, "_load"),
    (machine_code.llvm.ExecutionEngine, "get_function_address"),
]


@pytest.mark.parametrize(("owner", "step"), STEPS)
def test_llvm_that_fails_at_any_step_gives_a_plan_with_numpy(
    owner: object, step: str, small_engines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, step, fails)
    with pytest.warns(RuntimeWarning, match="LLVM fails"):
        assert scorer.arithmetic() == "numpy"


@pytest.mark.parametrize(("owner", "step"), STEPS)
def test_llvm_that_fails_at_any_step_refines_nothing(
    owner: object, step: str, small_engines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, step, fails)
    with pytest.raises(ResourceError, match=r"Cannot refine landmarks: .*LLVM fails.* or set refine=false"):
        refinement.check()


@pytest.mark.parametrize(("owner", "step"), STEPS)
def test_a_worker_whose_llvm_fails_at_any_step_refuses_a_plan_with_machine_code(
    owner: object, step: str, small_engines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCPRED_TILES", "0")  # which are named as well
    assert scorer.arithmetic() is None
    machine_code._own_code.cache_clear()
    monkeypatch.setattr(machine_code.MachineCode, "cached", lambda self: None)
    monkeypatch.setattr(owner, step, fails)
    with (
        pytest.warns(RuntimeWarning, match="LLVM fails"),
        pytest.raises(ResourceError, match=r"it uses NumPy, but .* Give all workers the same"),
    ):
        scorer.check_arithmetic(None)


def load() -> None:
    """A module that is there."""


def test_a_disk_that_is_full_once_does_not_switch_the_engine_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_failures", {})

    def use(module: object) -> str:
        if not failures:
            return "engine"
        raise failures.pop()

    failures: list[OSError] = [OSError(errno.ENOSPC, "No space left on device")]
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert compiler.with_compiler(load, "else", use) is None
    assert compiler.with_compiler(load, "else", use) == "engine"


def test_a_failure_of_llvm_is_remembered_until_a_run_or_a_model_begins(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process scores one way in between, and a worker whose plan expects machine code tries again."""
    monkeypatch.setattr(compiler, "_failures", {})
    tries: list[bool] = []

    def use(module: object) -> str:
        tries.append(broken)
        if broken:
            raise CompilerError("LLVM fails once")
        return "engine"

    broken = True
    with pytest.warns(RuntimeWarning, match="LLVM fails once"):
        assert compiler.with_compiler(load, "else", use) is None
    compiler.forget_failures()
    assert compiler.with_compiler(load, "else", use) is None  # A second warning would be an error.
    broken = False
    assert compiler.with_compiler(load, "else", use) is None
    assert compiler.why_without(load) == "LLVM fails once"
    compiler.forget_failures()
    assert compiler.with_compiler(load, "else", use) == "engine"
    assert tries == [True, True, False]
    assert compiler.why_without(load) == "there is no machine code"


def test_a_worker_that_failed_once_follows_a_plan_with_machine_code(
    small_engines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCPRED_TILES", "0")  # which are named as well
    with monkeypatch.context() as failing:
        failing.setattr(machine_code, "compile_bitcode", fails)
        with pytest.warns(RuntimeWarning, match="LLVM fails"):
            assert scorer.arithmetic() == "numpy"
    assert scorer.arithmetic() == "numpy"
    scorer.check_arithmetic("numpy")
    scorer.check_arithmetic(None)
    assert scorer.arithmetic() is None


def test_a_worker_that_follows_a_plan_with_numpy_does_not_try_again(
    small_engines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the system may pass, but not between the check and the rows."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr(machine_code, "compile_bitcode", full)
        with pytest.warns(RuntimeWarning, match="No space left"):
            scorer.check_arithmetic("numpy")
    assert scorer.arithmetic() == "numpy"


def test_a_model_that_is_loaded_later_is_scored_by_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "_failures", {scorer.COMPILED[0]: compiler.Failure("it is", False)})
    X = np.random.default_rng(0).normal(size=(60, 2))
    fitted = DCPredRegressor(n_leaves=1, landmarks=2).fit(X, X[:, 0])
    fitted.save(tmp_path / "m")
    assert scorer.chosen(fitted.model_).engine.name.startswith("compiled")
    monkeypatch.setattr(compiler, "_failures", {scorer.COMPILED[0]: compiler.Failure("it is", False)})
    assert scorer.chosen(load_model(tmp_path / "m").model).engine.name.startswith("compiled")


def test_a_processor_without_fma_scores_by_numpy(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    features = dict.fromkeys(machine_code.LEVELS["x86-64-v3"] - {"fma"}, True)
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(machine_code.llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    with pytest.raises(CompilerError, match="lacks fma"):
        machine_code.own_code(engine.ENGINE)


@pytest.mark.parametrize(("planned", "here"), [(None, "numpy"), ("numpy", None), ("tiles", None)])
def test_a_worker_does_not_score_otherwise_than_planned(
    planned: str | None, here: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorer, "arithmetic", lambda: here)
    with pytest.raises(ResourceError, match=r"whose scores have other last bits\. Give all workers"):
        scorer.check_arithmetic(planned)
    scorer.check_arithmetic(here)


def test_a_later_engine_is_part_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "has_compiler", lambda: True)
    monkeypatch.setattr(scorer, "uses_tiles", lambda: False)
    assert scorer.arithmetic() is None  # version 1, as in all runs before there were others
    monkeypatch.setattr(layout, "VERSION", 3)
    assert scorer.arithmetic() == "engine 3"
    monkeypatch.setattr(scorer, "uses_tiles", lambda: True)
    assert scorer.arithmetic() == "engine 3, tiles"
    with pytest.raises(
        ResourceError, match=r"it uses the compiled engine 3, tiles, but .* the compiled engine,"
    ):
        scorer.check_arithmetic(None)


# -- which engine scores -------------------------------------------------------------------------------------


def test_the_best_engine_scores_and_better_ones_say_why_not(
    small_engines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCPRED_TILES", "0")
    model = random_model(0)
    assert str(scorer.chosen(model)) == "compiled"
    monkeypatch.setattr(machine_code, "compile_bitcode", fails)
    monkeypatch.setattr(machine_code.MachineCode, "cached", lambda self: None)
    machine_code._own_code.cache_clear()
    with pytest.warns(RuntimeWarning, match="NumPy"):
        choice = scorer.chosen(model)
    assert str(choice) == "numpy (not compiled: LLVM fails (RuntimeError: LLVM knows no such thing))"
    assert choice.engine.make(model) is None


def test_tiles_that_are_asked_for_say_why_not(small_engines: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCPRED_TILES", "1")
    monkeypatch.setattr(tiles, "why_not", lambda: "this processor lacks amx-tile")
    model = random_model(0)
    assert str(scorer.chosen(model)) == ("compiled (not compiled with tiles: this processor lacks amx-tile)")
    assert scorer.arithmetic(model) is None
    monkeypatch.setattr(tiles, "why_not", lambda: None)
    assert str(scorer.chosen(model)) == "compiled with tiles"
    assert scorer.arithmetic(model) == "tiles"


def test_other_leaf_models_are_scored_without_a_compiler_as_with_one(
    small_engines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no compact model is scored beside them."""
    model = random_model(0)
    others = SimpleNamespace(leaf_models=object())
    monkeypatch.setattr(machine_code, "compile_bitcode", fails)
    scorer.check_arithmetic(None, others)  # type: ignore[arg-type]
    assert scorer.chosen(others).engine.name == "leaf models"  # type: ignore[arg-type]
    with pytest.warns(RuntimeWarning, match="NumPy"), pytest.raises(ResourceError, match="it uses NumPy"):
        scorer.check_arithmetic(None, others, model)  # type: ignore[arg-type]


@pytest.mark.parametrize("left", [None, "", '{"sources": "12', "[]"])
def test_a_damaged_installation_is_refused_in_one_sentence_and_inspected(
    small_engines: None, packed: Bitcode, left: str | None
) -> None:
    machine_code.made_of.cache_clear()
    file = packed.folder / "twice.json"
    file.unlink() if left is None else file.write_text(left)
    with pytest.raises(RefusedError, match=r"twice\.json: it is missing or damaged\. .*install dcpred again"):
        scorer.arithmetic()
    assert scorer.described(random_model(0)).startswith("none: ")


def test_a_model_is_inspected_where_sources_are_newer(small_engines: None, packed: Bitcode) -> None:
    machine_code.made_of.cache_clear()
    (packed.folder / "twice.json").write_text('{"sources": "of others", "functions": {}}')
    assert "was built from other sources" in scorer.described(random_model(0))
