"""Two workers that share nothing with the driver but a store: another working directory, other folders for
what is temporary and cached, credentials of their own.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dcpred.execution.pools import connect
from dcpred.execution.workers import Pool
from support import processes

# The key that their requests are signed with, by which the proxy tells them from the driver.
WORKER_KEY = "farworker"
SCRIPT = """
import sys
import dask
from distributed import LocalCluster
from dcpred.execution.dask_workers import CONFIG

if __name__ == "__main__":
    at = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with dask.config.set(CONFIG), LocalCluster(n_workers=2, threads_per_worker=1, **at) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@contextmanager
def far_workers(folder: Path, environment: Mapping[str, str]) -> Iterator[Pool]:
    """folder  where they live; nobody else knows it. FOLDER/log is what they log"""
    script = folder / "workers.py"
    script.write_text(SCRIPT)
    for name in ("work", "temporary", "cache"):
        (folder / name).mkdir()
    own = {"TMPDIR": str(folder / "temporary"), "DCPRED_CACHE_DIR": str(folder / "cache")}
    with (
        (folder / "log").open("w") as log,
        processes.started(
            [sys.executable, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder / "work",
            env={**environment, **own, "AWS_ACCESS_KEY_ID": WORKER_KEY},
        ) as cluster,
    ):
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        assert address, "the workers did not start"
        yield partial(connect, None, address)
