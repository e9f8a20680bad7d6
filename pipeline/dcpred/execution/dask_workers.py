"""Workers of a Dask cluster, and the connection to its scheduler."""

import asyncio
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import dask
from dask.utils import parse_bytes, parse_timedelta
from distributed import Client, LocalCluster
from distributed.comm.registry import get_backend
from distributed.core import rpc
from distributed.security import Security
from distributed.system import MEMORY_LIMIT

from dcpred.execution.events import notice
from dcpred.execution.interrupts import SIGNALS, listening, start_tracker
from dcpred.execution.local_processes import NEEDS, LocalProcesses, first_cause
from dcpred.execution.task_window import NO_WORKERS_SECONDS, WAIT_SECONDS, Window, on_each_worker
from dcpred.execution.terminal import Verbosity, verbosity
from dcpred.execution.workers import Scheduler, Task, Workers, one_line
from dcpred_tasks.errors import (
    Failure,
    InterruptedRunError,
    ResourceError,
    SchedulerAwayError,
    SchedulerError,
    SettingsError,
    optional_package,
)
from dcpred_tasks.process import memory_bytes, versions
from dcpred_tasks.storage.addresses import current_options, path_on_disk
from dcpred_tasks.storage.probes import can_write, nonce_written

MEANINGS = {"ca_file": "CA certificate", "cert": "client certificate", "key": "private key"}
OPTIONS = {"ca_file": "--tls-ca-file", "cert": "--tls-cert", "key": "--tls-key"}
CONFIGURED = {"ca_file": "ca-file", "cert": "client.cert", "key": "client.key"}
ATTRIBUTES = {"ca_file": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
VARIABLES = {
    part: f"DASK_DISTRIBUTED__COMM__TLS__{name.upper().replace('-', '_').replace('.', '__')}"
    for part, name in CONFIGURED.items()
}
GIVE = f"Pass {', '.join(OPTIONS.values())}, or set {', '.join(VARIABLES.values())}."


def secured(scheduler: Scheduler) -> tuple[str, Security | None]:
    """The address of a scheduler with its scheme, and the certificates to connect with: None without TLS, or
    if Dask has a custom loader. Raises SchedulerError for missing certificates and for invalid addresses.
    """
    required = bool(dask.config.get("distributed.comm.require-encryption", None))
    given = {part: value for part in OPTIONS if (value := getattr(scheduler, part)) is not None}
    scheme, _, rest = scheduler.address.rpartition("://")
    scheme = scheme or ("tls" if required or given else "tcp")
    address = f"{scheme}://{rest}"
    _check_possible(address)
    if scheme not in ("tls", "wss"):
        _check_may_be_plain(address, given, required)
        return address, None
    if not given and dask.config.get("distributed.client.security-loader", None):
        return address, None
    files = {part: given.get(part, _configured(part)) for part in OPTIONS}
    missing = [f"no {MEANINGS[part]}" for part in ("ca_file", "cert") if not files[part]]
    if missing:
        raise SchedulerError(
            f"Cannot reach the Dask scheduler at {address} over TLS: {' and '.join(missing)} is known. {GIVE}"
        )
    return address, Security(
        require_encryption=True,
        tls_ca_file=files["ca_file"],
        tls_client_cert=files["cert"],
        tls_client_key=files["key"],
    )


def _configured(part: str) -> str | None:
    configured = dask.config.get(f"distributed.comm.tls.{CONFIGURED[part]}", None)
    return None if configured is None else str(configured)


def _check_possible(address: str) -> None:
    try:
        parts = urlsplit(address)
        _ = parts.port
        address.encode("ascii")
        (parts.hostname or "").encode("idna")  # Parts of a name have 1 to 63 letters.
    except ValueError:
        raise SchedulerError(
            f"Cannot use {address[:200]!r} as a Dask scheduler: it is not an address. Write it as"
            " tcp://host:8786 or tls://host:8786."
        ) from None
    try:
        get_backend(parts.scheme).get_connector()
    except Exception:  # Another package may raise anything.
        raise SchedulerError(
            f"Cannot use {address[:200]!r} as a Dask scheduler: the installed Dask cannot reach"
            f" {parts.scheme}://. Write it as tcp://host:8786 or tls://host:8786."
        ) from None


def _check_may_be_plain(address: str, given: dict[str, str], required: bool) -> None:
    if given:
        raise SchedulerError(
            f"Cannot use {' and '.join(OPTIONS[part] for part in given)} with the Dask scheduler {address}:"
            " that connection is not encrypted. Write tls://host:port, or omit them."
        )
    if required and not address.startswith("inproc:"):
        raise SchedulerError(
            f"Cannot use {address} as a Dask scheduler: the configuration of Dask requires encryption."
            " Write tls://host:port, or set DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=false."
        )


PROCESS_BYTES = 300 * 2**20  # memory of a worker that has imported everything and holds a model
CONNECT_SECONDS = 10
COMPARED = ("python", "dask", "distributed", "numpy", "scikit-learn", "zarr", "llvmlite", "dcpred")
CONFIG = {
    # Dask reports every death: dcpred.execution.task_window counts them by task.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
    "distributed.worker.daemon": True,
    # Dask makes glibc return every array of 128 KiB at once, and new ones are cleared: 5 % of scoring.
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 4 * 2**20,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 16 * 2**20,
    # Only a dashboard shows these: each process samples its event loop 50 times a second, and each worker its
    # stack 100 times. Both take 3 % of two cores.
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.profile.enabled": False,
}
# A dashboard shows every user of the computer the work of our processes: there is none, unless requested.
CLOSED = {
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.worker.http.routes": ["distributed.http.health"],
}
START_TICK_SECONDS = 0.05  # time between two checks for workers that start
SIGNAL_SECONDS = 0.5  # maximum delay of a signal from the thread that receives it to the main one
PAGE_SECONDS = 0.5  # maximum wait for a page that may be closed

ADDRESS = re.compile(r"(\w+://)?(\[[0-9a-fA-F:]+\]|[^/:\s]+):\d+(/.*)?|inproc://.+")

T = TypeVar("T")


class DaskWorkers:
    """The workers of a Dask cluster."""

    def __init__(
        self,
        client: Client,
        processes: LocalProcesses | None = None,
        where: str = "",
        dashboard: str = "",
    ) -> None:
        """processes  the workers, if they are ours"""
        self.client, self.processes, self.where, self.dashboard = client, processes, where, dashboard

    def each(self, body: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T | Failure]]:
        for result in Window(self.client, body, tasks, self.revive, self._absence).results():
            if self.processes is not None:
                self.processes.result_came()
            yield result

    def revive(self) -> None:
        """Raise InterruptedRunError if workers of ours that ended cannot be started again."""
        if self.processes is not None:
            self.processes.check()

    def _absence(self) -> str:
        if self.processes is None:
            return f"the Dask cluster{self.where.removeprefix(' on the Dask cluster')} has no workers"
        return self.processes.absence()

    def on_each(self, body: Callable[..., T], *task: Any) -> Iterator[T]:
        return on_each_worker(self.client, body, task)

    def n_threads(self) -> int:
        return max(int(sum(self.client.nthreads().values())), 1)

    def check_sees(self, address: str) -> None:
        advice = "Put it on storage that all of them mount at the same path and may write to"
        if path_on_disk(address) is None:
            advice = "Give workers the same endpoint, and credentials that may read and write there"
        with nonce_written(address) as (name, nonce):
            asked = (address, name, nonce, current_options())
            # A worker that dies during the check does not answer: another will replace it.
            for worker, trouble in self.client.run(can_write, *asked, on_error="ignore").items():
                if trouble:
                    raise SchedulerError(
                        f"Cannot share {address} with worker {worker}, which {trouble} it. {advice}."
                    )

    def check_memory(self, task_bytes: int, advice: str) -> None:
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [w["memory_limit"] / max(w["nthreads"], 1) for w in workers if w.get("memory_limit")]
        limit = min(limits, default=0)
        if limit and task_bytes + PROCESS_BYTES > limit:
            raise SchedulerError(
                f"Cannot run a task of about {task_bytes / 2**20:,.0f} MiB in a process of"
                f" {PROCESS_BYTES / 2**20:,.0f} MiB: a worker may use {limit / 2**20:,.0f} MiB per thread."
                f" {advice}."
            )


@contextmanager
def connected(
    n_workers: int | None, scheduler: Scheduler | None, threads: int = 1, pages: bool = False
) -> Iterator[Workers]:
    """As pools.connect.

    pages  whether local processes serve Dask's dashboard
    """
    if pages and scheduler is None:
        with optional_package("serve Dask's dashboard", "dashboard"):
            import bokeh  # noqa: F401
    with dask.config.set(CONFIG if pages else CONFIG | CLOSED):
        if scheduler is None:
            with _local_cluster(n_workers, threads, pages) as (client, processes):
                yield DaskWorkers(client, processes, dashboard=client.dashboard_link if pages else "")
            return
        with _client(scheduler) as client:
            check_versions(client)
            where = f" on the Dask cluster at {scheduler}"
            yield DaskWorkers(client, where=where, dashboard=_dashboard(client))


@contextmanager
def workers_of(client: Client) -> Iterator[Workers]:
    """The workers of a client, which is neither configured nor closed. Raises SchedulerError."""
    check_versions(client)
    yield DaskWorkers(
        client, where=f" on the Dask cluster at {client.scheduler.address}", dashboard=_dashboard(client)
    )


def _dashboard(client: Client) -> str:
    """The address of the dashboard of a running cluster; "" if it has none or is closed."""
    try:
        address = str(client.dashboard_link or "")
    except (KeyError, ValueError):  # no such service, or a template of an address that does not fit
        return ""
    try:
        with build_opener(ProxyHandler({})).open(address, timeout=PAGE_SECONDS):
            return address
    except HTTPError as error:
        return "" if error.code == HTTPStatus.NOT_FOUND else address
    except (OSError, ValueError):  # closed to this computer: a browser may reach it in another way
        return address


def _client(scheduler: Scheduler) -> Client:
    if "@" in scheduler.address:
        raise SchedulerError(
            "Cannot use the address of a Dask scheduler with a part before @: it takes no user and no"
            " password. Write it as tls://host:8786, and use certificates."
        )
    if not ADDRESS.fullmatch(scheduler.address):
        raise SchedulerError(
            f"Cannot use {scheduler.address!r} as a Dask scheduler: it is not an address. Write it as"
            " tcp://host:8786."
        )
    address, security = secured(scheduler)
    try:
        if address.startswith(("tcp:", "tls:")) and (security is not None or address.startswith("tcp:")):
            _ask(address, security)
        return Client(address, timeout=CONNECT_SECONDS, security=security, set_as_default=False)
    except Exception as error:  # Another server may answer anything.
        _check_settings(error)
        if isinstance(error, TimeoutError) or (type(error) is OSError and error.errno is None):
            raise (SchedulerAwayError if _is_known(address) else SchedulerError)(
                f"Cannot connect to a Dask scheduler at {scheduler}: it does not answer within"
                f" {CONNECT_SECONDS} s ({type(error).__name__}). Check the address and that the scheduler"
                " runs."
            ) from None
        used = {OPTIONS[part]: getattr(security, name, None) for part, name in ATTRIBUTES.items()}
        files = ", ".join(f"{name} {file}" for name, file in used.items() if file and "\n" not in file)
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise SchedulerError(
            f"Cannot connect to a Dask scheduler at {scheduler}: Dask reports"
            f" {type(cause).__name__}: {one_line(str(cause))}. Check the address, its"
            f" scheme (tcp:// or tls://){f' and the files ({files})' if files else ''}."
        ) from error


def _is_known(address: str) -> bool:
    """Whether the host of an address resolves: the address may then be right."""
    try:
        socket.getaddrinfo(urlsplit(address).hostname, None)
    except (OSError, ValueError):
        return False
    return True


def _ask(address: str, security: Security | None) -> None:
    """Ask a scheduler for its identity, within CONNECT_SECONDS: a client waits for it forever."""

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
) -> Iterator[tuple[Client, LocalProcesses]]:
    # One thread each on disks: Zarr has one I/O thread per process, and training holds the interpreter for
    # long.
    n_workers = n_workers or dask.system.CPU_COUNT
    # Dask's memory limit considers only the control group at the top.
    memory = int(min(memory_bytes(), MEMORY_LIMIT) * min(1.0, threads / dask.system.CPU_COUNT))
    with ExitStack() as stack:
        stack.enter_context(_environment())
        with listening() as asked:
            try:
                with _signals_blocked():
                    cluster = stack.enter_context(_scheduler(pages))
                    client = stack.enter_context(Client(cluster, set_as_default=False))
                    processes = LocalProcesses(
                        cluster,
                        n_workers,
                        nthreads=threads,
                        memory_limit=memory,
                        host="127.0.0.1",
                        security=cluster.security,
                        dashboard=False,
                    )
                    stack.enter_context(processes)
                _await_workers(processes, asked)
            except Exception as error:
                # Another thread may have received the signal, which reaches the main one a moment later.
                asked.wait(SIGNAL_SECONDS)
                if asked.is_set():
                    raise KeyboardInterrupt from None
                _check_settings(error)
                if isinstance(error, InterruptedRunError | ResourceError):
                    raise
                raise ResourceError(f"Cannot start local workers: {first_cause(error)}. {NEEDS}") from error
        if asked.is_set():
            raise KeyboardInterrupt
        yield client, processes


def _await_workers(processes: LocalProcesses, asked: threading.Event) -> None:
    """Wait until all workers run; after a while, until one does: the others join the run later."""
    begin, is_reported = time.monotonic(), False
    while (running := processes.n_running()) < processes.n_workers:
        waited = time.monotonic() - begin
        if asked.wait(START_TICK_SECONDS) or (running and waited > WAIT_SECONDS):
            return
        if waited > WAIT_SECONDS and not is_reported:
            is_reported = True
            notice(f"waiting for {processes.n_workers} local workers to start", "workers_awaited")
        processes.check()
        if waited > NO_WORKERS_SECONDS:
            raise InterruptedRunError(
                f"{processes.absence()} after {waited:.0f} s; run the same command again"
            )


def _scheduler(pages: bool) -> LocalCluster:
    """A scheduler on loopback. Every user of a computer may connect there, and a peer of a worker can run
    code in it: all sides show a certificate that is made here, stays in memory, and is given to nobody else.
    """
    return LocalCluster(
        n_workers=0,
        host="127.0.0.1",
        security=Security.temporary(),
        dashboard_address="127.0.0.1:0",  # loopback, any free port: None would take 8787 on all interfaces
        scheduler_kwargs={"dashboard": pages},  # else they exist wherever bokeh is installed
        silence_logs=logging.CRITICAL,  # the driver reports failures, in a sentence
    )


def _check_settings(error: Exception) -> None:
    """Raise SettingsError for values of another type in Dask's configuration, which Dask finds late."""
    defaults = dask.config.merge(*dask.config.defaults)
    configured = _values(dask.config.collect())
    wrong = [
        f"{name} to {value!r}"
        for name, value in configured
        if not _fits(value, dask.config.get(name, None, defaults))
    ]
    if wrong:
        raise SettingsError(
            f"Cannot start Dask: its configuration sets {', '.join(wrong)}, an invalid value of that"
            " setting. Correct or remove it in DASK_ variables and in files of ~/.config/dask, /etc/dask and"
            " $DASK_CONFIG."
        ) from error


def _values(settings: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The settings in a configuration, by their full names."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _values(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _fits(value: Any, default: Any) -> bool:
    """Whether a value is a number, time or size, if Dask's default value is one."""
    readers = [reads for reads in (float, parse_timedelta, parse_bytes) if _reads(reads, default)]
    return value is None or not readers or any(_reads(reads, value) for reads in readers)


def _reads(reads: Callable[[Any], Any], value: Any) -> bool:
    try:
        return reads(value) is not None
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return False


@contextmanager
def _environment() -> Iterator[None]:
    """Variables of the processes that start within a `with` statement, also of restarted workers.

    A worker's Python looks for modules in the current directory first: a file signal.py there
    would run in place of Python's own. PYTHONSAFEPATH prevents that. Warnings of libraries, which each worker
    would repeat, appear with -v.
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
    """Block Ctrl-C and SIGTERM in the threads and processes that start here, and in those that they start:
    both reach every process of a terminal, a service, a batch job or a container. The driver alone answers
    them, and ends its workers when tasks in flight are finished. A worker whose driver is killed ends by
    itself: it watches a pipe that the driver holds open.
    """
    start_tracker()  # a later start would unblock both
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_versions(client: Client) -> None:
    """Raise SchedulerError if there is no worker, or one that runs other versions than this process."""
    mine = versions()
    answers = client.run(versions, on_error="return")
    # A worker that ended during the question gives an OSError.
    answered = {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}
    for error in answered.values():
        if isinstance(error, Exception):  # dcpred is not installed there
            raise SchedulerError(
                f"Cannot use this Dask cluster: its workers cannot run dcpred ({type(error).__name__}:"
                f" {error}). Install dcpred {mine.get('dcpred')} on every worker."
            )
    if not answered:
        raise SchedulerAwayError(
            "Cannot use this Dask cluster: it has no workers. Start workers and run again."
        )
    for worker, theirs in answered.items():
        different = [
            f"{p} {theirs.get(p, 'none')} (here {mine.get(p)})"
            for p in COMPARED
            if theirs.get(p) != mine.get(p)
        ]
        if different:
            raise SchedulerError(
                f"Cannot use worker {worker}: it runs {', '.join(different)}. Install the same versions"
                " everywhere."
            )
