"""Workers of a Dask cluster: processes on this machine, or a cluster that runs."""

import asyncio
import logging
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import dask
from dask.utils import parse_bytes, parse_timedelta
from distributed import Client, LocalCluster
from distributed.core import rpc
from distributed.security import Security
from distributed.system import MEMORY_LIMIT

from dcpred.execution.interrupts import SIGNALS, listening
from dcpred.execution.resource_tracker import start_tracker
from dcpred.execution.secure_connection import secured
from dcpred.execution.task_window import Window, on_each_worker
from dcpred.execution.verbosity import Verbosity, verbosity
from dcpred.execution.workers import Scheduler, Task, Workers, one_line
from dcpred_tasks.errors import ResourceError, SchedulerAwayError, SchedulerError, SettingsError
from dcpred_tasks.guard import Failure
from dcpred_tasks.process import memory_bytes, versions
from dcpred_tasks.storage.addresses import current_options, is_remote
from dcpred_tasks.storage.probe import can_write, nonce_written

PROCESS_BYTES = 300 * 2**20  # memory of a worker that has imported everything and holds a model
CONNECT_SECONDS = 10
COMPARED = ("python", "dask", "distributed", "numpy", "scikit-learn", "zarr", "llvmlite", "dcpred")
CONFIG = {
    # Every death is told to us: dcpred.execution.task_window counts them by task.
    "distributed.scheduler.allowed-failures": 0,
    # A worker that ended can be started again after that time.
    "distributed.deploy.lost-worker-timeout": "5s",
    "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
    "distributed.worker.daemon": True,
    # Dask has glibc give every array of 128 KiB back at once, and each comes cleared again: 5 % of scoring.
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 4 * 2**20,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 16 * 2**20,
    # What only a dashboard shows: each process measures its event loop 50 times a second, and each worker its
    # stack 100 times. Both take 3 % of two cores.
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.profile.enabled": False,
}
# Pages of a process that we start tell anybody on the machine who works on what: there are none, unless they
# are asked for.
CLOSED = {
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.worker.http.routes": ["distributed.http.health"],
}
SIGNAL_SECONDS = 0.5  # longest way of a signal from the thread that takes it to the main one
PAGE_SECONDS = 0.5  # longest wait for a page that may be closed

ADDRESS = re.compile(r"(\w+://)?(\[[0-9a-fA-F:]+\]|[^/:\s]+):\d+(/.*)?|inproc://.+")

T = TypeVar("T")


class DaskWorkers:
    """The workers of a Dask cluster."""

    def __init__(
        self,
        client: Client,
        revive: Callable[[], object] = lambda: None,
        where: str = "",
        dashboard: str = "",
    ) -> None:
        """revive  starts workers again that ended, where they are ours"""
        self.client, self.revive, self.where, self.dashboard = client, revive, where, dashboard

    def each(self, body: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T | Failure]]:
        return Window(self.client, body, tasks, self.revive).results()

    def on_each(self, body: Callable[..., T], *task: Any) -> Iterator[T]:
        return on_each_worker(self.client, body, task)

    def n_threads(self) -> int:
        return max(int(sum(self.client.nthreads().values())), 1)

    def check_sees(self, address: str) -> None:
        advice = "put it on storage that all of them mount at the same path and may write to"
        if is_remote(address):
            advice = "give workers the same endpoint, and credentials that may read and write there"
        with nonce_written(address) as (name, nonce):
            asked = (address, name, nonce, current_options())
            # A worker that dies while it is asked has no say: another will come in its place.
            for worker, trouble in self.client.run(can_write, *asked, on_error="ignore").items():
                if trouble:
                    raise SchedulerError(
                        f"worker {worker} {trouble} {address}, which driver and workers must share; {advice}"
                    )

    def check_memory(self, task_bytes: int, advice: str) -> None:
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [w["memory_limit"] / max(w["nthreads"], 1) for w in workers if w.get("memory_limit")]
        limit = min(limits, default=0)
        if limit and task_bytes + PROCESS_BYTES > limit:
            raise SchedulerError(
                f"a task needs about {task_bytes / 2**20:,.0f} MiB beside the {PROCESS_BYTES / 2**20:,.0f}"
                f" MiB of its process, but a worker may use {limit / 2**20:,.0f} MiB per thread; {advice}"
            )


@contextmanager
def connected(
    n_workers: int | None, scheduler: Scheduler | None, threads: int = 1, pages: bool = False
) -> Iterator[Workers]:
    """As workers.connect.

    pages  whether local processes serve Dask's pages
    """
    if pages and scheduler is None and find_spec("bokeh") is None:
        raise SettingsError(
            "Dask's dashboard was asked for, but it needs the package bokeh, which is not installed; install"
            ' "dcpred[dashboard]"'
        )
    with dask.config.set(CONFIG if pages else CONFIG | CLOSED):
        if scheduler is None:
            with _local_cluster(n_workers, threads, pages) as (client, revive):
                yield DaskWorkers(client, revive, dashboard=client.dashboard_link if pages else "")
            return
        with _client(scheduler) as client:
            check_versions(client)
            where = f" on the Dask cluster at {scheduler}"
            yield DaskWorkers(client, where=where, dashboard=_dashboard(client))


def _dashboard(client: Client) -> str:
    """The address of the pages of a running cluster; "" where it has none, or says that they are closed."""
    try:
        address = str(client.dashboard_link or "")
    except (KeyError, ValueError):  # no such service, or a template of an address that does not fit
        return ""
    try:
        with build_opener(ProxyHandler({})).open(address, timeout=PAGE_SECONDS):
            return address
    except HTTPError as error:
        return "" if error.code == HTTPStatus.NOT_FOUND else address
    except (OSError, ValueError):  # closed to this machine: a browser may come to it by another way
        return address


def _client(scheduler: Scheduler) -> Client:
    if "@" in scheduler.address:
        raise SchedulerError(
            "the address of a Dask scheduler was given with what stands before @, but it takes no user and no"
            " password; write it as tls://host:8786, and use certificates"
        )
    if not ADDRESS.fullmatch(scheduler.address):
        raise SchedulerError(
            f"{scheduler.address!r} was given as a Dask scheduler, but it is no address; write it as"
            " tcp://host:8786"
        )
    address, security = secured(scheduler)
    try:
        if address.startswith(("tcp:", "tls:")) and (security is not None or address.startswith("tcp:")):
            _ask(address, security)
        return Client(address, timeout=CONNECT_SECONDS, security=security, set_as_default=False)
    except Exception as error:  # Whatever may come of what another server says.
        _check_settings(error)
        silent = isinstance(error, OSError)
        so = f"it does not answer within {CONNECT_SECONDS} s" if silent else "what answers there is none"
        kind = SchedulerAwayError if silent and _is_known(address) else SchedulerError
        raise kind(
            f"a Dask scheduler was asked for at {scheduler}, but {so} ({type(error).__name__}); check the"
            " address and that the scheduler runs"
        ) from None


def _is_known(address: str) -> bool:
    """Whether the host of an address has a number, so that the address may be right."""
    try:
        socket.getaddrinfo(urlsplit(address).hostname, None)
    except (OSError, ValueError):
        return False
    return True


def _ask(address: str, security: Security | None) -> None:
    """Ask a scheduler who it is, for CONNECT_SECONDS at most: a client waits without end for a server that
    says nothing, and ends in tracebacks where one says what no scheduler does.
    """

    async def identity() -> None:
        arguments = (security or Security()).get_connection_args("client")
        async with rpc(address, timeout=CONNECT_SECONDS, connection_args=arguments) as scheduler:
            await scheduler.identity()

    # The caller's thread may run a loop of its own, as a notebook does.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(asyncio.wait_for(identity(), CONNECT_SECONDS))).result()


@contextmanager
def _local_cluster(
    n_workers: int | None, threads: int, pages: bool
) -> Iterator[tuple[Client, Callable[[], object]]]:
    # One thread each on disks: Zarr keeps one I/O thread per process, and training holds the interpreter for
    # long.
    n_workers = n_workers or dask.system.CPU_COUNT
    with ExitStack() as stack:
        stack.enter_context(_environment())
        with listening() as asked:
            try:
                # Nothing interrupts the start: half a cluster cannot be closed in order.
                with _signals_blocked():
                    cluster = stack.enter_context(_processes(n_workers, threads, pages))
                    client = stack.enter_context(Client(cluster, set_as_default=False))
            except Exception as error:
                # Another thread may have taken the signal, which the main one hears of a moment later.
                asked.wait(SIGNAL_SECONDS)
                if asked.is_set():
                    raise KeyboardInterrupt from None
                _check_settings(error)
                raise ResourceError(
                    f"Cannot start local workers: {_first_cause(error)}. They need shared memory"
                    " (/dev/shm), the loopback interface, processes and open files (ulimit -u and -n), and a"
                    " valid Dask configuration (files and DASK_ variables). Check these, or name a running"
                    " Dask cluster by --scheduler."
                ) from error
        if asked.is_set():
            raise KeyboardInterrupt
        yield client, partial(cluster.scale, n_workers)


def _processes(n_workers: int, threads: int, pages: bool) -> LocalCluster:
    """Workers on loopback. Every user of a machine may connect to that, and whoever speaks to a worker may
    run code in it: all sides show a certificate that is made here, kept in memory, and given to nobody else.
    """
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=threads,
        processes=True,
        # As Dask shares memory, which sees the control group at the top alone.
        memory_limit=int(min(memory_bytes(), MEMORY_LIMIT) * min(1.0, threads / dask.system.CPU_COUNT)),
        host="127.0.0.1",
        security=Security.temporary(),
        dashboard_address="127.0.0.1:0",  # loopback, any free port: None would take 8787 on all interfaces
        scheduler_kwargs={"dashboard": pages},  # else they are there wherever bokeh is
        silence_logs=logging.CRITICAL,  # the driver says what fails, in a sentence
    )


def _check_settings(error: Exception) -> None:
    """Raise SettingsError where a configuration of Dask has a value of another kind than Dask's own, as text
    for a number. Dask finds such values late, in errors that do not name the setting.
    """
    own = dask.config.merge(*dask.config.defaults)
    found = _values(dask.config.collect())
    wrong = [
        f"{name} to {value!r}" for name, value in found if not _fits(value, dask.config.get(name, None, own))
    ]
    if wrong:
        raise SettingsError(
            f"Cannot start Dask: its configuration sets {', '.join(wrong)}, which is no value of that"
            " setting. Correct or remove it in DASK_ variables and in files of ~/.config/dask, /etc/dask and"
            " $DASK_CONFIG."
        ) from error


def _values(settings: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The settings in a configuration, by their whole names."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _values(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _fits(value: Any, own: Any) -> bool:
    """Whether a value is a number, time or size, where Dask's own value is one."""
    readers = [reads for reads in (float, parse_timedelta, parse_bytes) if _reads(reads, own)]
    return value is None or not readers or any(_reads(reads, value) for reads in readers)


def _reads(reads: Callable[[Any], Any], value: Any) -> bool:
    try:
        return reads(value) is not None
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return False


def _first_cause(error: BaseException) -> str:
    """What the error states that a chain of errors began with."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return one_line(str(error)) or f"one ended while it started ({type(error).__name__})"


@contextmanager
def _environment() -> Iterator[None]:
    """Variables of the processes that start within a `with` statement, also of workers that replace others.

    Python looks for modules in the current directory first, when it starts a worker: a file signal.py there
    would run in place of Python's own. PYTHONSAFEPATH prevents that. Warnings of libraries, which each worker
    would print once more, appear with -v.
    """
    ours = {"PYTHONSAFEPATH": "1"}
    if verbosity() < Verbosity.MORE:
        ours["PYTHONWARNINGS"] = "ignore"
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal, and SIGTERM every process of a service, a batch job or a
    container. The driver alone answers them, and ends its workers when what is in flight is finished: the
    threads and processes that start here inherit that both are blocked, those that they start later too.
    A worker whose driver is killed ends by itself: Dask has it watch a pipe that the driver holds open.
    """
    start_tracker()  # if it started later, it would unblock both
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_versions(client: Client) -> None:
    """Raise SchedulerError where there is no worker, or one that runs other versions than this process."""
    mine = versions()
    answers = client.run(versions, on_error="return")
    # A worker that ended while it was asked gives an OSError.
    found = {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}
    for error in found.values():
        if isinstance(error, Exception):  # dcpred is not installed there
            raise SchedulerError(
                f"the workers of this Dask cluster cannot run dcpred ({type(error).__name__}: {error});"
                f" install dcpred {mine.get('dcpred')} on every worker"
            )
    if not found:
        raise SchedulerAwayError(
            "the Dask scheduler answers, but it has no workers; start workers and run again"
        )
    for worker, theirs in found.items():
        different = [
            f"{p} {theirs.get(p, 'none')} (here {mine.get(p)})"
            for p in COMPARED
            if theirs.get(p) != mine.get(p)
        ]
        if different:
            raise SchedulerError(
                f"worker {worker} runs {', '.join(different)}; install the same versions everywhere"
            )
