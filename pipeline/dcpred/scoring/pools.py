"""The default workers of a run."""

from functools import partial
from pathlib import Path

from dcpred.execution.workers import STORE_THREADS, Pool, connect, this_process
from dcpred.scoring.blocks import FailurePolicy
from dcpred_tasks.storage.addresses import path_on_disk


def store_threads(x: str, output: str | Path) -> dict[str, int]:
    """The arguments of `connect` besides the number of workers: more threads if either lies on a store."""
    return {} if path_on_disk(x) and path_on_disk(output) else {"threads": STORE_THREADS}


def score_pool(x: str, output: str | Path) -> Pool:
    """The default workers for scoring X into an output."""
    given = store_threads(x, output)
    return partial(connect, threads=given["threads"]) if given else connect


def default_pool(x: str, output: str | Path, n_blocks: int, tolerance: FailurePolicy) -> Pool:
    """The same for so many blocks: a single one is scored here, unless it may end its process."""
    return this_process if n_blocks <= 1 and not tolerance.quarantine else score_pool(x, output)
