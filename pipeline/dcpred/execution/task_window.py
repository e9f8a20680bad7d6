"""A bounded window of tasks on a Dask cluster, refilled as results arrive.

Overhead in Dask grows with the futures in memory, and a dying worker takes its assigned tasks with it: only a
few tasks per thread are in flight, and each future is released at once. The states of a task, which is known
by its number:

    waiting ────── room in the window ──────▶ in flight ─────────────── result ───────────────▶ done
       ▲                                       │    │                                            ▲
       └────── first death of its worker ──────┘    │ second death                               │
                                                    ▼                                            │
                                                 suspect                                         │
                                                  │   ▲                                          │
                      nothing else is in flight   │   │ first or second death alone              │
                                                  ▼   │                                          │
                                             in flight alone ─── result, or third death alone ───┘

- Short tasks share an attempt: a bundle of neighbours that runs for about half a second, because Dask needs
  10 ms of processor time per attempt. Tasks of a lost attempt, and those behind a task that raised, go alone
  from then on.
- A death counts for every task of the worker. A suspect waits until nothing else is in flight: innocent
  neighbours are then not blamed. A task that is given up is done with a `Failure`.
- A scheduler that we did not start gives the task of a dead worker to others, `allowed-failures` of its own
  configuration times, before it reports anything: each of these deaths is counted. A suspect may run on one
  worker alone: no other one dies with it before this process knows.
- A task in flight that takes many times as long as others gets a second attempt on another worker (a stopped
  process, a hung store). The attempt that ends first counts (`Window._settle`); if a worker dies with one of
  them, the task stays in flight with the other. Task bodies are safe to run twice.
- Without workers it waits, which a line reports: `dcpred.execution.local_processes` starts ours again.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

import numpy as np
from distributed import Client, Future
from distributed.scheduler import KilledWorker

from dcpred.execution.events import notice, record_event
from dcpred.execution.interrupts import interrupted, listening
from dcpred.execution.workers import Task
from dcpred_tasks.errors import Failure, InterruptedRunError, in_turn
from dcpred_tasks.storage.addresses import current_options, with_options

IN_FLIGHT_PER_THREAD = 2
RETRIES = 2  # Dask retries of a task that raised; the task itself already retries transient I/O
SUSPECT_DEATHS = 2  # deaths of workers that make a task a suspect
LONE_DEATHS = 3  # further deaths, alone in flight, after which a suspect is given up
# Maximum wait for a finished result. If its worker dies first, Dask waits for the task to be done
# again, and forever if no other worker may do that.
FETCH_SECONDS = 30.0
TICK_SECONDS = 1.0  # maximum wait before the window checks slow tasks and lost workers
GRACE_SECONDS = 60.0  # time of tasks in flight after an interrupt
SLOW_SECONDS = 30.0  # a shorter task is never slow
SLOW_TIMES = 10.0  # a slow task takes that many times the median of finished ones
WAIT_SECONDS = 10.0  # a longer wait for workers is reported
NO_WORKERS_SECONDS = 300.0  # a cluster without workers for so long is given up
REVIVE_SECONDS = 2.0  # time between two checks whether workers will come
BUNDLE_SECONDS = 0.5  # target time of a bundle of tasks
BUNDLES_LEFT = 4  # bundles of its size that a bundle leaves for each thread: all end at the same time
SPARE_SECONDS = 10.0  # time of other workers beyond twice that of the first one

T = TypeVar("T")
Bundle = tuple[int, ...]  # numbers of the tasks of an attempt


class Window(Generic[T]):
    """Runs body(*task) for every task."""

    def __init__(
        self,
        client: Client,
        body: Callable[..., T],
        tasks: Sequence[Task],
        revive: Callable[[], object] = lambda: None,
        absence: Callable[[], str] = lambda: "the Dask cluster has no workers",
    ) -> None:
        """revive   raises if no more workers will come; called from time to time
        absence  a clause on the absence of workers
        """
        self.client, self.body, self.tasks, self.revive, self.absence = client, body, tasks, revive, absence
        self.waiting = deque(range(len(tasks)))
        self.suspects: deque[int] = deque()
        self.lone_suspect: int | None = None  # the suspect that is in flight alone
        self.lone_worker = ""  # the address of the only worker that may run it
        self.in_flight: dict[Future, Bundle] = {}  # the tasks of each attempt
        self.finished: SimpleQueue[Future] = SimpleQueue()  # filled by a thread of Dask
        self.deaths: Counter[int] = Counter()  # all deaths, by task
        self.lone_deaths: Counter[int] = Counter()  # deaths alone in flight, by task
        self.with_second_attempt: set[Bundle] = set()
        self.alone: set[int] = set()  # tasks that no longer share an attempt
        # Times of time.monotonic, in seconds.
        self.started_at: dict[int, float] = {}  # first attempt of a task since it last waited
        self.revived_at = time.monotonic()
        self.counted_at = float("-inf")
        self.n_threads = 0
        self.no_workers_since: float | None = None
        self.wait_reported = False
        self.attempt_seconds: deque[float] = deque(
            maxlen=200
        )  # the last attempts, from when they were submitted
        self.task_seconds: deque[float] = deque(maxlen=20)  # the last tasks on their worker

    def results(self) -> Iterator[tuple[int, T | Failure]]:
        """(number, result) as tasks end. Raises InterruptedRunError."""
        n_done, deadline = 0, float("inf")
        try:
            with listening() as asked:
                while True:
                    if not asked.is_set():
                        self._fill()
                    elif deadline == float("inf"):
                        deadline = time.monotonic() + GRACE_SECONDS
                        record_event("paused", "warning", done=n_done, in_flight=len(self.in_flight))
                    if not self.in_flight or time.monotonic() > deadline:
                        break
                    for result in self._next():
                        n_done += 1
                        yield result
                if asked.is_set() and n_done < len(self.tasks):
                    raise interrupted(n_done, len(self.tasks))
        finally:
            if self.in_flight:
                self.client.cancel(list(self.in_flight), force=True)

    def _threads(self) -> int:
        """Threads of all workers, refreshed once a tick: the scheduler takes 2 ms to answer."""
        if time.monotonic() - self.counted_at > TICK_SECONDS:
            self.n_threads = int(sum(self.client.nthreads().values()))
            self.counted_at = time.monotonic()
        return self.n_threads

    def _fill(self) -> None:
        threads = max(self._threads(), 1)
        free = IN_FLIGHT_PER_THREAD * threads - len(self.in_flight)
        while self.waiting and free > 0 and self.lone_suspect is None:
            self._submit(self._bundle(threads))
            free -= 1
        if not self.in_flight and self.suspects:
            self.lone_suspect = self.suspects.popleft()
            self.lone_worker = next(iter(self.client.nthreads()), "")
            self._submit((self.lone_suspect,), [self.lone_worker] if self.lone_worker else None)

    def _bundle(self, threads: int) -> Bundle:
        """The next waiting task, and its neighbours if tasks are short."""
        most = 1
        if self.task_seconds and self.waiting[0] not in self.alone:
            quick = BUNDLE_SECONDS / max(float(np.median(self.task_seconds)), 1e-3)
            most = max(min(int(quick), len(self.waiting) // (BUNDLES_LEFT * threads)), 1)
        bundle = [self.waiting.popleft()]
        while len(bundle) < most and self.waiting[0] not in self.alone:
            bundle.append(self.waiting.popleft())
        return tuple(bundle)

    def _submit(self, bundle: Bundle, workers: list[str] | None = None) -> None:
        future = self.client.submit(
            in_turn,
            *(partial(with_options, current_options(), self.body, *self.tasks[number]) for number in bundle),
            pure=False,
            retries=RETRIES,
            priority=-bundle[0],
            workers=workers,
        )
        self.in_flight[future] = bundle
        for number in bundle:
            self.started_at.setdefault(number, time.monotonic())
        future.add_done_callback(self.finished.put)

    def _next(self) -> list[tuple[int, T | Failure]]:
        """The results of the next tasks that end for good; none after a while."""
        if time.monotonic() - self.revived_at > REVIVE_SECONDS:
            self.revive()
            self.revived_at = time.monotonic()
        try:
            future = self.finished.get(timeout=TICK_SECONDS)
        except Empty:
            given_up = self._lost_suspect()
            self._look_after()
            return given_up
        bundle = self.in_flight.pop(future, None)
        if bundle is None:  # the other attempt at the tasks ended first
            return []
        results, lost = self._outcome(future, bundle)
        if lost or len(results) < len(bundle):
            self.alone.update(bundle)
        if lost:
            record_event("worker_lost", "warning", worker=_worker(results[0][1]), tasks=len(bundle))
            n = _deaths(results[0][1])
            results = [(number, result) for number, result in results if not self._died(number, n)]
        if results:
            self._settle(bundle)
            for number in reversed(bundle[len(results) :]):
                self.started_at.pop(number)
                self.waiting.appendleft(number)
        future.release()
        return results

    def _outcome(self, future: Future, bundle: Bundle) -> tuple[list[tuple[int, T | Failure]], bool]:
        """Results of the tasks of an attempt, up to the one that raised, and whether its worker was lost."""
        finished = future.status == "finished"
        try:
            if finished:
                results, seconds = future.result(FETCH_SECONDS)
                self.task_seconds.extend(seconds)
                return list(zip(bundle, results, strict=False)), False
            error = future.exception() or CancelledError()
        except Exception as raised:  # the worker with the result died before the fetch
            error = raised
        if isinstance(error, CancelledError) and self.client.status != "running":
            raise InterruptedRunError("the Dask scheduler was lost; run the same command again to resume")
        lost = finished or isinstance(error, (KilledWorker, CancelledError))
        if finished:  # Its worker died with the result, not during the task.
            error = KilledWorker(future.key, getattr(error, "last_worker", None), 0)
        ended = bundle if lost else bundle[:1]
        n = _deaths(Failure(error)) if lost else 0
        return [(number, Failure(error, self.deaths[number] + n)) for number in ended], lost

    def _settle(self, bundle: Bundle) -> None:
        """Tasks are done: forget other attempts at them.

        Guards against:

        1. Attempt A at a task is slow, and attempt B is submitted to another worker.
        2. Both end at about the same time. Dask puts both futures into `finished`, from its own thread.
        3. `_next` takes B's future out of `in_flight` and calls this, which takes out A's and cancels it. The
           caller gets the result of B.
        4. `_next` gets A's future, cancelled or not, from `finished`. It is not in `in_flight`, and is
           ignored: each task gives one result.

        A cancelled attempt writes the same bytes as the finished one.
        """
        self.attempt_seconds.append(time.monotonic() - self.started_at[bundle[0]])
        others = [future for future, same in self.in_flight.items() if same == bundle]
        for future in others:
            del self.in_flight[future]
        if others:
            self.client.cancel(others, force=True)
        if bundle == (self.lone_suspect,):
            self.lone_suspect = None

    def _lost_suspect(self) -> list[tuple[int, T | Failure]]:
        """Count a death if the worker of the lone suspect is gone. Returns the result of a task given up."""
        number = self.lone_suspect
        if number is None or not self.lone_worker or self.lone_worker in self.client.nthreads():
            return []
        attempts = [future for future, bundle in self.in_flight.items() if bundle == (number,)]
        if len(attempts) != 1 or attempts[0].done():  # another attempt is under way, or the outcome comes
            return []
        del self.in_flight[attempts[0]]
        self.client.cancel(attempts, force=True)
        record_event("worker_lost", "warning", worker=self.lone_worker, tasks=1)
        if self._died(number, 1):
            return []
        self._settle((number,))
        return [(number, Failure(KilledWorker(attempts[0].key, None, 0), self.deaths[number]))]

    def _died(self, number: int, n: int) -> bool:
        """Count n deaths; returns whether the task gets another chance."""
        self.deaths[number] += n
        if any(number in bundle for bundle in self.in_flight.values()):  # the other attempt is under way
            return True
        self.started_at.pop(number)
        if self.lone_suspect == number:
            self.lone_suspect = None
            self.lone_deaths[number] += n
            if self.lone_deaths[number] >= LONE_DEATHS:
                self.started_at[number] = time.monotonic()
                return False
            self.suspects.appendleft(number)
        elif self.deaths[number] >= SUSPECT_DEATHS:
            self.suspects.append(number)
        else:
            self.waiting.appendleft(number)
        return True

    def _look_after(self) -> None:
        """Give slow tasks a second attempt when nothing else waits; give up if no workers come."""
        now = time.monotonic()
        if self._threads() == 0:
            self._wait_for_workers(now)
            return
        self.no_workers_since, self.wait_reported = None, False
        limit = (
            max(SLOW_SECONDS, SLOW_TIMES * float(np.median(self.attempt_seconds)))
            if self.attempt_seconds
            else float("inf")
        )
        slow = {
            future: bundle
            for future, bundle in self.in_flight.items()
            if now - self.started_at[bundle[0]] > limit and bundle not in self.with_second_attempt
        }
        if not slow:
            return
        where = {key: worker for worker, keys in self.client.processing().items() for key in keys}
        for future, bundle in slow.items():
            others = [worker for worker in self.client.nthreads() if worker != where.get(future.key)]
            if others and (not self.waiting or future.key not in where):
                self.with_second_attempt.add(bundle)
                self._submit(bundle, others)

    def _wait_for_workers(self, now: float) -> None:
        if self.no_workers_since is None:
            self.no_workers_since = now
        waited = now - self.no_workers_since
        if waited > NO_WORKERS_SECONDS:
            raise InterruptedRunError(
                f"{self.absence()}, and none came within {NO_WORKERS_SECONDS:.0f} s; start workers, or"
                " wait until the computer can, and run the same command again to resume"
            )
        if waited > WAIT_SECONDS and not self.wait_reported:
            self.wait_reported = True
            left = NO_WORKERS_SECONDS - waited
            notice(f"waiting for workers, {left:.0f} s at most: {self.absence()}", "workers_awaited")


def _deaths(result: T | Failure) -> int:
    """Number of workers that died with a lost attempt: Dask tries several before it reports that."""
    error = result.error if isinstance(result, Failure) else None
    return int(error.allowed_failures) + 1 if isinstance(error, KilledWorker) else 1


def _worker(result: T | Failure) -> str:
    """The address of the worker that was lost with a task; "" if it is unknown."""
    error = result.error if isinstance(result, Failure) else None
    worker = error.last_worker if isinstance(error, KilledWorker) else None
    return "" if worker is None else str(worker.address)


def on_each_worker(client: Client, body: Callable[..., T], task: Task) -> Iterator[T]:
    """Run body(*task) once on every current worker, and yield results as they end. A worker that fails or
    dies yields none, and one that takes far longer than the first is abandoned.
    """
    finished: SimpleQueue[Future] = SimpleQueue()
    begin, deadline = time.monotonic(), float("inf")
    in_flight: dict[Future, str] = {}  # the worker of each attempt
    for worker in client.nthreads():
        future = client.submit(with_options, current_options(), body, *task, pure=False, workers=[worker])
        in_flight[future] = worker
        future.add_done_callback(finished.put)
    try:
        while in_flight and time.monotonic() < deadline:
            try:
                future = finished.get(timeout=TICK_SECONDS)
            except Empty:
                there = client.nthreads()
                in_flight = {future: worker for future, worker in in_flight.items() if worker in there}
                continue
            in_flight.pop(future, None)
            with suppress(Exception):  # the body may raise anything, and its worker may die
                result = future.result(FETCH_SECONDS)
                now = time.monotonic()
                deadline = min(deadline, now + (now - begin) + SPARE_SECONDS)
                yield result
    finally:
        if in_flight:
            client.cancel(list(in_flight), force=True)
