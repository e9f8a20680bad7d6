"""Shared fixtures, and the Hypothesis profiles `dev` and `ci`."""

import os

# Threads of BLAS and OpenMP wait for each other in loops: a factorisation by two threads takes six times the
# processor time of one where tests share the cores. Libraries read this when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import asyncio
import gc
import logging
import multiprocessing
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from shutil import disk_usage
from typing import Any

import dask
import hypothesis
import numpy as np
import pytest
from distributed.nanny import WorkerProcess
from distributed.utils import get_mp_context
from zarr.core import sync

from dcpred.execution.pools import connect
from dcpred.execution.workers import Pool
from dcpred.pages import charts
from dcpred.serving import cost
from dcpred_tasks.storage import bucket, object_arrays, store_requests
from support import html_pages, stores
from support.data import Classes, make_blobs, make_group
from support.searches import learn_briefly
from support.stores import Proxy, StoreServer

hypothesis.settings.register_profile("dev", max_examples=15, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


_to_thread = asyncio.to_thread


async def _without_threads_of_zarr(call: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
    if asyncio.get_running_loop() is sync.loop[0]:
        return call(*args, **more)
    return await _to_thread(call, *args, **more)


# Workers that tests start in this process fork off one that has imported what they need, which took most
# of the time of a test. Commands in processes of their own spawn theirs, as everywhere.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
get_mp_context()  # Dask names modules of its own here.
multiprocessing.set_forkserver_preload(
    ["distributed", "dcpred_tasks.task_bodies.score_block", "dcpred_tasks.task_bodies.train_model"]
)
# pytest gives its handlers to loggers that do not propagate, and Dask silences the handlers of its own.
for _logger in logging.root.manager.loggerDict.values():
    if isinstance(_logger, logging.Logger):
        _logger.propagate = True
_init_worker = WorkerProcess.__init__


def _with_environment(self: Any, *args: Any, env: Any, **more: Any) -> None:
    """With the environment of now, which a spawned process has."""
    _init_worker(self, *args, env=dict(os.environ) | env, **more)


WorkerProcess.__init__ = _with_environment

# Zarr hands every file and every chunk to a thread, which costs more than to read or to decode a small one.
asyncio.to_thread = _without_threads_of_zarr


CASES = 3  # that an ordinary run draws of a test without the mark `cases`


def pytest_report_header() -> str:
    return f"cases drawn by DCPRED_SEED={os.environ['DCPRED_SEED']}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw a few cases of each test by a seed, and mark the others as `long`, unless files are named."""
    if any(".py" in name for name in config.args):
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("long") is None:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in tests.items():
        mark = cases[0].get_closest_marker("cases")
        count = min(CASES if mark is None else mark.args[0] if mark.args else len(cases), len(cases))
        drawn = random.Random(f"{os.environ['DCPRED_SEED']} {name}").sample(range(len(cases)), count)
        for number in set(range(len(cases))) - set(drawn):
            cases[number].add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Ten thousand tests and their modules live until the end: no garbage collection looks at them again."""
    gc.collect()
    gc.freeze()


MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 2 * 2**30


def pytest_configure(config: pytest.Config) -> None:
    """Folders of tests lie in memory, where there is enough of it and TMPDIR names no other place: tests make
    and remove a hundred thousand small files, each of which takes a journalled disk ten times as long.
    """
    there = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and disk_usage(MEMORY).free > ENOUGH_BYTES
    os.environ.setdefault("DCPRED_SEED", str(date.today().toordinal()))  # the same for all processes of xdist
    os.environ.setdefault("DCPRED_TILES", "1")  # so that leaves that go by them are tested where they can be
    if there and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # asked for again
    # A suite of a hundred processes takes a third longer where each compiles what it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # What a row costs is measured on little data: how much it is matters to no test. Scalings are learned in
    # little time, except where they are the subject (`learning_as_shipped`).
    cost.STREAM_BYTES, cost.BUDGET_SECONDS, cost.LOOP_SECONDS = 2**18, 0.01, 0.0005
    learn_briefly()
    charts.drawing = html_pages.sketched


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets; a test that needs it is skipped where it is absent."""
    folder = Path(os.environ.get("DCPRED_DATA", Path(__file__).parents[1] / "../shared/data"))
    if not (folder / "letter.npz").exists():
        pytest.skip(f"real data sets are not at {folder}; set DCPRED_DATA")
    return folder


@pytest.fixture
def blobs() -> Classes:
    return make_blobs(600, n_features=5, n_classes=3, seed=0)


@pytest.fixture
def blobs_zarr(tmp_path: Path, blobs: Classes) -> Path:
    return make_group(tmp_path / "blobs.zarr", blobs.X, blobs.y, chunk_rows=128)


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Pool]:
    """Two worker processes for all tests of a module: for tests that neither kill nor change them."""
    with connect(2) as workers:
        assert len(list(workers.on_each(learn_briefly))) == 2
        yield lambda: nullcontext(workers)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are laid out and written whole."""
    monkeypatch.setattr(html_pages, "sketching", False)


@pytest.fixture(scope="session")
def s3() -> Iterator[StoreServer]:
    with stores.s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[StoreServer]:
    """S3 by other people, for contracts: what a test of anything else asks takes six times as long there."""
    with stores.moto_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[StoreServer]:
    with stores.gcs_server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[StoreServer]:
    if stores.azurite() is None:
        pytest.skip("Azurite is not there; install it by npm, and name its main.js by DCPRED_AZURITE")
    with stores.azure_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3_secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with stores.secure_server(tmp_path_factory.mktemp("certificates")) as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """obstore does not repeat requests that fail, and we do so at once."""
    monkeypatch.setattr(store_requests, "RETRIES", 0)
    for module in (bucket, object_arrays):
        monkeypatch.setattr(module, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(store_requests, "FIRST_WAIT_SECONDS", 0.001)
    stores.forget_stores()
    yield
    stores.forget_stores()


@pytest.fixture(scope="session")
def s3_proxy(s3: StoreServer) -> Iterator[Proxy]:
    """The same server behind a proxy, whose faults a test sets, and takes away again."""
    with stores.spoiled(s3) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def moto_proxy(moto: StoreServer) -> Iterator[Proxy]:
    with stores.spoiled(moto) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def gcs_proxy(gcs: StoreServer) -> Iterator[Proxy]:
    with stores.spoiled(gcs) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def azure_proxy(azure: StoreServer) -> Iterator[Proxy]:
    with stores.spoiled(azure) as proxy:
        yield proxy
