"""The default workers of a run."""

from functools import partial
from pathlib import Path

from dcpred.execution.pools import connect, this_process
from dcpred.execution.workers import STORE_THREADS, Pool
from dcpred.scoring.blocks import FailurePolicy
from dcpred_tasks.storage.addresses import path_on_disk


def store_threads(x: str, output: str | Path) -> dict[str, int]:
    """The arguments of `connect` besides the number of workers: more threads if either lies on a store."""
    return {} if path_on_disk(x) and path_on_disk(output) else {"threads": STORE_THREADS}


def default_pool(x: str, output: str | Path, n_blocks: int, tolerance: FailurePolicy) -> Pool:
    """The default workers for so many blocks: a single one is scored here, unless it may end its process."""
    if n_blocks <= 1 and not tolerance.quarantine:
        return this_process
    return partial(connect, threads=STORE_THREADS) if store_threads(x, output) else connect
