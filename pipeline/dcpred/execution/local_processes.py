"""Local worker processes of a scheduler, each started again when it ends, at every moment of its life.

Dask restarts a worker that dies in its run, but not one that dies while it starts, and not one that was
retired. Here one coroutine a slot starts a worker, waits for its end, and starts the next one:

    pause ───▶ starting ─── connected ───▶ running ─── any end ───▶ starting …
      ▲            │
      └─ any end ──┘

A slow start is no death, and is waited for. `check` ends a run whose workers die again and again.
"""

import asyncio
import logging
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import LocalCluster, Nanny
from distributed.core import Status

from dcpred.execution.events import notice
from dcpred.execution.workers import one_line
from dcpred_tasks.errors import InterruptedRunError, ResourceError

# A run ends when no worker runs and each slot had that many deaths since the last result, the first of them
# so long ago. Memory or processes of a computer may be short for some time.
MAX_DEATHS = 7
DEATH_SECONDS = 60.0
MAX_FIRST_DEATHS = 3  # the same where no worker ever ran, and none was killed: the cause is permanent
MAX_PAUSE_SECONDS = 30.0  # the longest pause after a start that failed; they begin with 1, 2 and 4 s
HEALTHY_SECONDS = 60.0  # a worker that lived so long had a good start
END_SECONDS = 0.1  # time between two attempts to end a worker that starts

NEEDS = (
    "Local workers need shared memory (/dev/shm), the loopback interface, processes and open files (ulimit -u"
    " and -n), and a valid Dask configuration (files and DASK_ variables); a script needs `if __name__ =="
    ' "__main__":` around its calls. Check these, or use a running Dask cluster.'
)


class OneLife(Nanny):  # type: ignore[misc]
    """A nanny that ends with its worker, where Dask's own starts another one."""

    exit_code: int | None = None

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        self.exit_code = exitcode
        if self.status in (Status.running, Status.closing_gracefully):
            self.loop.add_callback(self.close, reason="worker-ended")


@dataclass(frozen=True)
class Death:
    """The end of a worker."""

    cause: str
    killed: bool  # by a signal
    at: float  # on the clock of time.monotonic


class LocalProcesses:
    """So many workers of a cluster that has none of its own."""

    def __init__(self, cluster: LocalCluster, n_workers: int, **options: Any) -> None:
        """options  of each `distributed.Nanny`"""
        self.cluster, self.n_workers = cluster, n_workers
        self.options = {"silence_logs": logging.CRITICAL, **options}
        self.nannies: dict[int, OneLife] = {}  # by slot: their workers start or run
        self.deaths: list[Death] = []  # since the last result, or the end of a worker that had lived long
        self.error: BaseException | None = None  # the last one of a start
        self.has_run = False  # whether any worker ever ran
        self.closing = asyncio.Event()
        self.keepers: list[asyncio.Task[None]] = []

    def __enter__(self) -> "LocalProcesses":
        self.cluster.sync(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.sync(self._close)

    def n_running(self) -> int:
        return sum(nanny.status == Status.running for nanny in list(self.nannies.values()))

    def result_came(self) -> None:
        """Forget deaths: the run proceeds."""
        self.deaths.clear()

    def check(self) -> None:
        """Raise InterruptedRunError or ResourceError if workers end again and again."""
        deaths = list(self.deaths)
        if self.n_running() or not deaths:
            return
        killed = any(death.killed for death in deaths)
        last = f"the last of {len(deaths)} {deaths[-1].cause}"
        if not killed and not self.has_run and len(deaths) >= MAX_FIRST_DEATHS * self.n_workers:
            raise ResourceError(f"Cannot start local workers: {last}. {NEEDS}") from self.error
        if len(deaths) >= MAX_DEATHS * self.n_workers and time.monotonic() - deaths[0].at >= DEATH_SECONDS:
            hint = " (the system kills where memory is short: then use fewer --workers)" if killed else ""
            raise InterruptedRunError(
                f"local workers ended one after the other, {last}{hint}; run the same command again"
            )

    def absence(self) -> str:
        """A clause on workers, of which none runs."""
        last = f", the last one {self.deaths[-1].cause}" if self.deaths else ""
        return f"no local worker runs ({len(self.deaths)} ended{last})"

    async def _open(self) -> None:
        self.keepers = [asyncio.create_task(self._keep(slot)) for slot in range(self.n_workers)]

    async def _close(self) -> None:
        self.closing.set()
        while any(not keeper.done() for keeper in self.keepers):
            await asyncio.gather(*(_end(nanny) for nanny in self.nannies.values()), return_exceptions=True)
            await asyncio.wait(self.keepers, timeout=END_SECONDS)

    async def _keep(self, slot: int) -> None:
        failures = 0  # starts in succession
        while not self.closing.is_set():
            error = None
            try:
                nanny = self.nannies[slot] = OneLife(self.cluster.scheduler_address, **self.options)
                await nanny
            except Exception as raised:  # an attempt to start a process may raise anything
                error = raised
            if error is None:
                began, failures, self.has_run = time.monotonic(), 0, True
                await nanny.finished()
                if time.monotonic() - began >= HEALTHY_SECONDS:
                    self.deaths.clear()
            else:
                failures += 1
            ended = self.nannies.pop(slot, None)
            if not self.closing.is_set():
                self._record(ended, error, failures)
                with suppress(TimeoutError):
                    pause = min(2.0 ** (failures - 1), MAX_PAUSE_SECONDS) if failures else 0.0
                    await asyncio.wait_for(self.closing.wait(), pause)

    def _record(self, nanny: OneLife | None, error: Exception | None, failures: int) -> None:
        code = 0 if nanny is None else nanny.exit_code or 0
        if code < 0:
            cause = f"was killed by {_signal(-code)}"
        elif code > 0 or error is None:
            cause = f"ended with exit status {code}"
        else:
            cause = f"failed ({first_cause(error)})"
        cause += "" if error is None else " while it started"
        self.error = error
        self.deaths.append(Death(cause, code < 0, time.monotonic()))
        # A death in a task is in the events of that task. Of many failures in succession few are reported.
        if failures and failures & (failures - 1) == 0:
            notice(f"a local worker {cause}; it is started again", "worker_start_failed", cause=cause)


async def _end(nanny: OneLife) -> None:
    """Ask a worker that runs to end, and kill one that starts, which cannot be asked."""
    if nanny.status == Status.init:
        process = nanny.process and nanny.process.process
        if process is not None:
            await process.kill()
    else:
        await nanny.close(reason="end-of-run")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def first_cause(error: BaseException) -> str:
    """The message of the first error in a chain."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return one_line(str(error)) or type(error).__name__
