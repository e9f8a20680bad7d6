"""Pools of workers: local processes, a running Dask cluster, or this process."""

import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from numbers import Integral
from pathlib import Path
from types import FunctionType
from typing import Any

from dcpred.execution.workers import STORE_THREADS, InlineWorkers, Pool, Scheduler, Workers, one_line
from dcpred_tasks.errors import ResourceError, SchedulerError, SettingsError
from dcpred_tasks.storage.addresses import Address, path_on_disk

# A driver or a worker maps up to 1.8 GiB. With less, LLVM and OpenBLAS fail.
ADDRESS_BYTES = 2 * 2**30

_pages = False


@contextmanager
def pages_opened() -> Iterator[None]:
    """Make local processes serve Dask's dashboard on loopback, where every user of it sees the work."""
    global _pages
    before, _pages = _pages, True
    try:
        yield
    finally:
        _pages = before


@contextmanager
def connect(
    n_workers: int | None = None, scheduler: str | Scheduler | None = None, threads: int = 1
) -> Iterator[Workers]:
    """n_workers local processes [default: one per core], or a running cluster. Raises SchedulerError."""
    if isinstance(scheduler, str):
        scheduler = Scheduler(scheduler)
    if scheduler is None:
        check_process_limits(n_workers or os.cpu_count() or 1)
    try:
        # Dask takes half a second to import, and a single task does not need it.
        from dcpred.execution.dask_workers import connected
    except (ValueError, TypeError, AttributeError) as error:  # errors of its configuration
        raise SettingsError(
            f"Cannot load Dask with its configuration ({one_line(str(error))}). Correct or remove the file"
            " in ~/.config/dask, /etc/dask or $DASK_CONFIG."
        ) from error
    with connected(n_workers, scheduler, threads, _pages) as workers:
        yield workers


def chosen_pool(workers: int | None, client: Any, threads: int = 1) -> Pool:
    """The workers that a caller asks for.

    workers  number of local processes; -1: one per core; None: this process
    client   a running distributed.Client, a Scheduler, or the address of one, in place of local processes; a
             pool is returned

    Raises SettingsError for anything else, SchedulerError for a client that cannot wait for results.
    """
    if client is None:
        if workers is None:
            return this_process
        if (
            isinstance(workers, bool)
            or not isinstance(workers, Integral)
            or not (workers == -1 or workers > 0)
        ):
            raise SettingsError(
                f"Cannot use workers={workers!r}: it is not a number of local processes. Pass 1 or more, -1"
                " for one per core, or None for this process."
            )
        return partial(connect, None if workers == -1 else int(workers), None, threads)
    if workers is not None:
        raise SettingsError("Cannot combine workers with client: one excludes the other. Pass one of them.")
    if isinstance(client, str | Scheduler):
        return partial(connect, None, client, threads)
    if isinstance(client, FunctionType | partial):
        return client
    distributed = sys.modules.get("distributed")  # Whoever has a client has imported it.
    if distributed is None or not isinstance(client, distributed.Client):
        raise SettingsError(
            f"Cannot use a value of type {type(client).__name__} as client: it is not a connection to a Dask"
            " cluster. Pass a distributed.Client, or the address of a scheduler."
        )
    if client.asynchronous:
        raise SchedulerError(
            "Cannot use this Dask client: it is asynchronous, and dcpred waits for results. Create a client"
            " without asynchronous=True."
        )
    if client.status == "closed":
        raise SchedulerError("Cannot use this Dask client: it is closed. Connect a new one.")
    from dcpred.execution.dask_workers import workers_of

    return partial(workers_of, client)


def check_process_limits(n_workers: int) -> None:
    """Raise ResourceError if this process may not start local workers: their threads, or their addresses.
    Without this check some of their threads fail to start, and the others wait for these forever.
    """
    advice = "or name a running Dask cluster by --scheduler"
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < ADDRESS_BYTES:
        raise ResourceError(
            f"Cannot start local workers: a process may use {soft / 2**20:,.0f} MiB of address space, and"
            f" needs {ADDRESS_BYTES / 2**20:,.0f} MiB. Raise the limit (ulimit -v), {advice}."
        )
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(20 + 8 * n_workers)]
    started = 0
    try:
        for thread in threads:
            thread.start()
            started += 1
    except RuntimeError as error:
        raise ResourceError(
            f"Cannot start {n_workers} local workers: only {started} of the {len(threads)} threads that they"
            f" need can start. Raise the limit of processes (ulimit -u), start fewer by --workers, {advice}."
        ) from error
    finally:
        end.set()
        for thread in threads[:started]:
            thread.join()


@contextmanager
def started_once(pool: Pool) -> Iterator[Pool]:
    """A pool that always returns the same workers, from the first request to the end of this context."""
    with ExitStack() as stack:
        started: list[Workers] = []

        def same() -> AbstractContextManager[Workers]:
            if not started:
                started.append(stack.enter_context(pool()))
            return nullcontext(started[0])

        yield same


@contextmanager
def this_process() -> Iterator[Workers]:
    yield InlineWorkers()


def store_threads(x: Address, output: str | Path) -> dict[str, int]:
    """The arguments of `connect` besides the number of workers: more threads if either lies on a store."""
    return {} if path_on_disk(x) and path_on_disk(output) else {"threads": STORE_THREADS}


def default_pool(x: Address, output: str | Path, n_blocks: int, *, isolated: bool) -> Pool:
    """The default workers for so many blocks: a single one is scored here, unless it is to be isolated."""
    if n_blocks <= 1 and not isolated:
        return this_process
    return partial(connect, threads=STORE_THREADS) if store_threads(x, output) else connect
