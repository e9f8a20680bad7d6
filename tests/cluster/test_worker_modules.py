"""What a worker process holds: it runs task bodies, and nothing of the client."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import dask
import pytest

from dcpred.execution.dask_workers import DaskWorkers
from dcpred.execution.pools import connect
from dcpred.scoring.score import score
from dcpred.training.train import train
from support import processes
from support.data import make_blobs, make_group

OTHERWISE = """{
    "mmap": __import__("os").environ["MALLOC_MMAP_THRESHOLD_"],
    "trim": __import__("os").environ["MALLOC_TRIM_THRESHOLD_"],
    "profile": __import__("dask").config.get("distributed.worker.profile.enabled"),
    "tick": __import__("dask").config.get("distributed.admin.tick.interval"),
}"""
ASKING = """
import json
from dcpred.execution.pools import connect

if __name__ == "__main__":
    with connect(1) as workers:
        (found,) = workers.client.run(eval, {otherwise!r}).values()
    print(json.dumps(found))
"""
LOADED = "sorted(name for name in __import__('sys').modules if name.split('.')[0] in ('dcpred', 'sklearn'))"


@pytest.fixture(autouse=True)
def spawned() -> Iterator[None]:
    """Workers are new processes, as a user has them."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}):
        yield


def test_no_module_of_the_client_comes_to_a_worker_that_trains_or_scores(tmp_path: Path) -> None:
    blobs = make_blobs(300, n_features=3, n_classes=2, seed=0)
    data = make_group(tmp_path / "data.zarr", blobs.X, blobs.y, chunk_rows=100)
    with connect(1) as workers:
        assert isinstance(workers, DaskWorkers)
        train(data, tmp_path / "model", settings={"n_leaves": 2}, client=lambda: nullcontext(workers))
        (trained,) = workers.client.run(eval, LOADED).values()
        assert not [name for name in trained if name.startswith("dcpred")]
    with connect(1) as workers:
        assert isinstance(workers, DaskWorkers)
        score(tmp_path / "model", data, tmp_path / "scores", client=lambda: nullcontext(workers))
        (scored,) = workers.client.run(eval, LOADED).values()
        assert scored == []


def test_a_worker_that_we_start_keeps_its_small_arrays_and_measures_nothing(tmp_path: Path) -> None:
    """In a process of its own: Dask's settings are shared by all threads of one.

    The environment goes before settings, and a nanny of another test leaves there what Dask would have.
    """
    script = tmp_path / "otherwise.py"
    script.write_text(ASKING.format(otherwise=OTHERWISE))
    bare = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    found = json.loads(processes.run([sys.executable, script], env=bare).stdout)
    assert found == {"mmap": str(4 * 2**20), "trim": str(16 * 2**20), "profile": False, "tick": "1s"}
