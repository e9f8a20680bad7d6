"""What a process says of itself, and its threads."""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dcpred_tasks import process
from dcpred_tasks.process import versions
from support import processes


def test_versions_are_those_that_run_and_a_caller_may_change_what_it_got() -> None:
    found = versions()
    assert (found["python"], found["numpy"]) == (platform.python_version(), np.__version__)
    found.clear()
    assert versions()["numpy"] == np.__version__


THREADS = """
from threadpoolctl import threadpool_info
from dcpred_tasks.process import one_thread

def threads():
    return [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info()]

import numpy
few = threads()
with one_thread():
    assert threads() == [(path, 1) for path, _ in few]
assert threads() == few

import sklearn.svm  # It brings OpenMP and a BLAS of SciPy.
more = threads()
with one_thread():
    assert threads() == [(path, 1) for path, _ in more]
assert threads() == more
with one_thread("openmp"):
    held = {pool["filepath"]: 1 for pool in threadpool_info() if pool["user_api"] == "openmp"}
    assert held and threads() == [(path, held.get(path, n)) for path, n in more]
print(len(few), len(more))
"""


def test_one_thread_holds_for_libraries_that_are_loaded_later() -> None:
    """They are looked for again where modules have been imported; all limits are lifted again."""
    done = processes.run([sys.executable, "-c", THREADS], env={**os.environ, "OMP_NUM_THREADS": "2"})
    assert done.returncode == 0, done.stderr
    few, more = map(int, done.stdout.split())
    assert more > few > 0


def test_limits_of_control_groups_count(tmp_path: Path) -> None:
    """Of both versions, of the group and of those above it, and where the path is one outside a container."""

    def limits(groups: str, **files: str) -> list[int]:
        top = tmp_path / str(len(list(tmp_path.iterdir())))
        top.mkdir()
        (top / "groups").write_text(groups)
        for name, text in files.items():
            file = top / name.replace("__", "/").replace("_in_", ".limit_in_").replace("_max", ".max")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        return sorted(process.group_limits(top / "groups", top))

    assert limits("0::/job/step", job__step__memory_max="max", job__memory_max="1000") == [1000]
    assert limits("0::/not/here", memory_max="77") == [77]
    assert limits("4:cpu,memory:/a\n3:cpu:/b", memory__a__memory_in_bytes="5", b__memory_max="1") == [5]
    assert limits("2:memory:/outside\n", memory__memory_in_bytes="6") == [6]
    assert limits("0::/\n", memory_max="max") == limits("") == limits("no groups") == []
    assert process.group_limits(tmp_path / "none", tmp_path) == []


def test_memory_is_no_more_than_a_group_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    process.memory_bytes.cache_clear()
    monkeypatch.setattr(process, "group_limits", lambda *of: [2**20, 2**60])
    assert process.memory_bytes() == 2**20
    process.memory_bytes.cache_clear()
    monkeypatch.undo()
    assert 2**20 < process.memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_memory_is_kept_by_thread() -> None:
    room = process.ReusedBuffer()
    first = room(10)
    first[:] = 7
    assert np.shares_memory(room(8), first)
    assert room(8).tolist() == [7] * 8
    more = room(11)
    assert len(more) == 11
    assert not np.shares_memory(more, first)
    with ThreadPoolExecutor(1) as threads:
        assert not np.shares_memory(threads.submit(room, 11).result(), more)
    assert np.shares_memory(room(11), more)
    large = room(process.MOST_KEPT_BYTES + 1)
    assert len(large) == process.MOST_KEPT_BYTES + 1
    assert not np.shares_memory(room(process.MOST_KEPT_BYTES + 1), large)
    assert np.shares_memory(room(11), more)
