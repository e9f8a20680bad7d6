"""Workers: local processes, a running Dask cluster, or this process."""

import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from numbers import Integral
from typing import Any, Protocol, TypeVar

from dcpred.execution.events import record_event
from dcpred.execution.interrupts import interrupted, listening
from dcpred_tasks.errors import Failure, ResourceError, SchedulerError, SettingsError
from dcpred_tasks.process import memory_bytes

T = TypeVar("T")
Task = tuple[Any, ...]


@dataclass(frozen=True)
class Scheduler:
    """A running Dask cluster, and its certificates."""

    address: str
    """tcp://host:8786, or tls://host:8786."""
    ca_file: str | None = None
    """PEM file of the CA that signed all certificates of the cluster; None: Dask's configuration."""
    cert: str | None = None
    """PEM file of the driver's certificate; None: Dask's configuration."""
    key: str | None = None
    """PEM file of its private key; None: Dask's configuration."""
    named_by: str = ""
    """The environment variable that named the address; "" for an option."""

    def __str__(self) -> str:
        return self.address + (f" (from {self.named_by})" if self.named_by else "")


class Workers(Protocol):
    """Runs task bodies."""

    where: str
    """The end of a sentence on progress: " on the Dask cluster at tcp://host:8786", or ""."""
    dashboard: str
    """The address of Dask's dashboard, "" if there is none, or if it is already printed."""

    def each(self, body: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T | Failure]]:
        """Run body(*task) for every task, about in their order, and yield (number, result) as they end."""

    def on_each(self, body: Callable[..., T], *task: Any) -> Iterator[T]:
        """Run body(*task) once on every worker and yield results as they end; none of a worker that fails."""

    def n_threads(self) -> int:
        """Number of tasks that run at once."""

    def check_sees(self, address: str) -> None:
        """Raise SchedulerError if a worker does not see what this process writes there, or may not write."""

    def check_memory(self, task_bytes: int, advice: str) -> None:
        """Raise SchedulerError if a worker may use less memory than a task needs."""


Pool = Callable[[], AbstractContextManager[Workers]]
# Threads of a local process that reads from stores or writes there, each with its own task: a task mostly
# waits for replies.
STORE_THREADS = 4
# A driver or a worker maps up to 1.8 GiB. With less, LLVM and OpenBLAS fail.
ADDRESS_BYTES = 2 * 2**30
DRIVER_BYTES = 300 * 2**20  # memory of a driver that has imported everything


class InlineWorkers:
    """This process: one task at a time, or several in threads."""

    where = dashboard = ""
    threads = 1

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def each(self, body: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T | Failure]]:
        if self.threads > 1 and len(tasks) > 1:
            yield from self._threaded(body, tasks)
            return
        with listening() as asked:
            for number, task in enumerate(tasks):
                if asked.is_set():
                    record_event("paused", "warning", done=number, in_flight=0)
                    raise interrupted(number, len(tasks))
                try:
                    yield number, body(*task)
                except Exception as error:
                    yield number, Failure(error)

    def _threaded(self, body: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T | Failure]]:
        with listening() as asked, ThreadPoolExecutor(self.threads) as pool:
            futures = {pool.submit(body, *task): number for number, task in enumerate(tasks)}
            try:
                for done, future in enumerate(as_completed(futures)):
                    if asked.is_set():
                        record_event("paused", "warning", done=done, in_flight=self.threads)
                        raise interrupted(done, len(tasks))
                    error = future.exception()
                    yield futures[future], future.result() if error is None else Failure(error)
            finally:
                pool.shutdown(cancel_futures=True)

    def on_each(self, body: Callable[..., T], *task: Any) -> Iterator[T]:
        with suppress(Exception):
            yield body(*task)

    def n_threads(self) -> int:
        return self.threads

    def check_sees(self, address: str) -> None:
        """Always passes."""

    def check_memory(self, task_bytes: int, advice: str) -> None:
        """Always passes."""


def check_driver_memory(needed: int, advice: str) -> None:
    """Raise SchedulerError if this process may use less memory than its part of the work needs."""
    limit = memory_bytes()
    if needed + DRIVER_BYTES > limit:
        raise SchedulerError(
            f"Cannot start the driver: it needs about {(needed + DRIVER_BYTES) / 2**20:,.0f} MiB of memory,"
            f" but may use {limit / 2**20:,.0f} MiB. {advice}, or start it where there is more memory."
        )


def run_all(
    workers: Workers, body: Callable[..., T], tasks: Sequence[Task], on_done: Callable[[int, T], None]
) -> None:
    """Run every task; the first failure stops the rest and is raised."""
    for number, result in workers.each(body, tasks):
        if isinstance(result, Failure):
            raise result.error
        on_done(number, result)


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
        dask_workers = import_module("dcpred.execution.dask_workers")
    except (ValueError, TypeError, AttributeError) as error:  # errors of its configuration
        raise SettingsError(
            f"Cannot load Dask with its configuration ({one_line(str(error))}). Correct or remove the file"
            " in ~/.config/dask, /etc/dask or $DASK_CONFIG."
        ) from error
    with dask_workers.connected(n_workers, scheduler, threads, _pages) as workers:
        yield workers


def chosen_pool(workers: int | None, client: Any, threads: int = 1) -> Pool:
    """The workers that a caller asks for.

    workers  number of local processes; -1: one per core; None: this process
    client   a running distributed.Client, a Scheduler, or the address of one, in place of local processes

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
    return partial(import_module("dcpred.execution.dask_workers").workers_of, client)


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


def one_line(text: str) -> str:
    """A message of another library on one line of at most 200 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 200 else text[:197] + "…"


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
