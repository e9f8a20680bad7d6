"""What runs tasks, and the workers that are this process."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dcpred.execution.events import record_event
from dcpred.execution.interrupts import interrupted, listening
from dcpred_tasks.errors import Failure, SchedulerError
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


def one_line(text: str) -> str:
    """A message of another library on one line of at most 200 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 200 else text[:197] + "…"
