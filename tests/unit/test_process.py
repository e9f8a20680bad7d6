"""What a process says of itself, and its threads."""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

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


def test_memory_is_kept_by_thread() -> None:
    room = process.KeptRoom()
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
