"""A bounded window of tasks on a Dask cluster, refilled as results arrive.

Overhead in Dask grows with the futures that are kept, and a worker that dies takes its assigned tasks with
it, so that only a few tasks per thread are in flight and each future is released at once. What is done about
workers:

- A death is counted for every task that the worker had. A task that saw two is a suspect: it waits until
  nothing else is in flight, so that innocent neighbours are not blamed with it, and is given up after three
  more deaths alone.
- A worker that we started and that was told to end (SIGTERM) is not restarted by Dask; it is started again
  here.
- A task that takes many times as long as others is given to another worker too (a stopped process, a hung
  store); whichever attempt ends first counts. Task bodies are safe to run twice.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import numpy as np
from distributed import Client, Future
from distributed.scheduler import KilledWorker

from dcpred.execution.interrupts import interrupted, listening
from dcpred_tasks.errors import InterruptedRunError
from dcpred_tasks.guard import Failure, guarded

IN_FLIGHT_PER_THREAD = 2
RETRIES = 2  # of a task that raises: what fails for a while is tried again inside the task already
SUSPECT_DEATHS = 2
LONE_DEATHS = 3
TICK_SECONDS = 1.0
GRACE_SECONDS = 60.0  # for what is in flight after an interrupt
SLOW_SECONDS = 30.0  # from which on a task may be slow
SLOW_TIMES = 10.0  # of the median of those that ended
NO_WORKERS_SECONDS = 300.0
REVIVE_SECONDS = 2.0
SPARE_SECONDS = 10.0  # and as long again as the first worker took, for the others to do the same

T = TypeVar("T")
Task = tuple[Any, ...]


class Window(Generic[T]):
    """Runs body(*task) for every task."""

    def __init__(
        self,
        client: Client,
        body: Callable[..., T],
        tasks: Sequence[Task],
        revive: Callable[[], object] = lambda: None,
    ) -> None:
        """revive  brings back workers that ended for good, where we started them; called now and then"""
        self.client, self.body, self.tasks, self.revive = client, body, tasks, revive
        self.revived = time.monotonic()
        self.waiting = deque(range(len(tasks)))
        self.suspects: deque[int] = deque()
        self.alone: int | None = None
        self.deaths: Counter[int] = Counter()
        self.lone_deaths: Counter[int] = Counter()
        self.flying: dict[Future, int] = {}
        self.begun: dict[int, float] = {}
        self.doubled: set[int] = set()
        self.took: deque[float] = deque(maxlen=200)
        self.ended: SimpleQueue[Future] = SimpleQueue()
        self.without_workers = 0.0

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
                    if not self.flying or time.monotonic() > deadline:
                        break
                    result = self._next()
                    if result is not None:
                        n_done += 1
                        yield result
                if asked.is_set() and n_done < len(self.tasks):
                    raise interrupted(n_done, len(self.tasks))
        finally:
            if self.flying:
                self.client.cancel(list(self.flying), force=True)

    def _threads(self) -> int:
        return int(sum(self.client.nthreads().values()))

    def _fill(self) -> None:
        room = IN_FLIGHT_PER_THREAD * max(self._threads(), 1) - len(self.flying)
        while self.waiting and room > 0 and self.alone is None:
            self._submit(self.waiting.popleft())
            room -= 1
        if not self.flying and self.suspects:
            self.alone = self.suspects.popleft()
            self._submit(self.alone)

    def _submit(self, number: int, workers: list[str] | None = None) -> None:
        future = self.client.submit(
            guarded,
            self.body,
            *self.tasks[number],
            pure=False,
            retries=RETRIES,
            priority=-number,
            workers=workers,
        )
        self.flying[future] = number
        self.begun.setdefault(number, time.monotonic())
        future.add_done_callback(self.ended.put)

    def _next(self) -> tuple[int, T | Failure] | None:
        """The result of the next task that ends for good, or None after a while."""
        if time.monotonic() - self.revived > REVIVE_SECONDS:
            self.revive()
            self.revived = time.monotonic()
        try:
            future = self.ended.get(timeout=TICK_SECONDS)
        except Empty:
            self._look_after()
            return None
        number = self.flying.pop(future, None)
        if number is None:  # the other attempt at it was faster
            return None
        result, lost = self._outcome(future, number)
        if lost and self._died(number):
            future.release()
            return None
        self._settle(number)
        future.release()
        return number, result

    def _outcome(self, future: Future, number: int) -> tuple[T | Failure, bool]:
        """What came of an attempt, and whether it was lost with its worker rather than ended."""
        finished = future.status == "finished"
        try:
            if finished:
                return future.result(), False
            error = future.exception() or CancelledError()
        except (
            Exception
        ) as raised:  # of a finished task: the worker that kept the result died before it was fetched
            error = raised
        if isinstance(error, CancelledError) and self.client.status != "running":
            raise InterruptedRunError("the Dask scheduler was lost; run the same command again to go on")
        lost = finished or isinstance(error, (KilledWorker, CancelledError))
        return Failure(error, self.deaths[number] + lost), lost

    def _settle(self, number: int) -> None:
        """A task ended for good: forget other attempts at it."""
        self.took.append(time.monotonic() - self.begun[number])
        others = [future for future, same in self.flying.items() if same == number]
        for future in others:
            del self.flying[future]
        if others:
            self.client.cancel(others, force=True)
        if self.alone == number:
            self.alone = None

    def _died(self, number: int) -> bool:
        """Count a death, and whether the task gets another chance."""
        self.deaths[number] += 1
        if number in self.flying.values():  # another attempt is under way
            return True
        self.begun.pop(number)
        if self.alone == number:
            self.alone = None
            self.lone_deaths[number] += 1
            if self.lone_deaths[number] >= LONE_DEATHS:
                self.begun[number] = time.monotonic()
                return False
            self.suspects.appendleft(number)
        elif self.deaths[number] >= SUSPECT_DEATHS:
            self.suspects.append(number)
        else:
            self.waiting.appendleft(number)
        return True

    def _look_after(self) -> None:
        """Double what is slow, once nothing else waits; give up where no workers come."""
        now = time.monotonic()
        if self._threads() == 0:
            self.without_workers = self.without_workers or now
            if now - self.without_workers > NO_WORKERS_SECONDS:
                raise InterruptedRunError(
                    f"the Dask cluster has had no workers for {NO_WORKERS_SECONDS:.0f} s; start workers and"
                    " run the same command again to go on"
                )
            return
        self.without_workers = 0.0
        limit = max(SLOW_SECONDS, SLOW_TIMES * float(np.median(self.took))) if self.took else float("inf")
        slow = {f: n for f, n in self.flying.items() if now - self.begun[n] > limit and n not in self.doubled}
        if not slow:
            return
        where = {key: worker for worker, keys in self.client.processing().items() for key in keys}
        for future, number in slow.items():
            others = [worker for worker in self.client.nthreads() if worker != where.get(future.key)]
            if others and (not self.waiting or future.key not in where):
                self.doubled.add(number)
                self._submit(number, others)


def on_each_worker(client: Client, body: Callable[..., T], task: Task) -> Iterator[T]:
    """Run body(*task) once on every worker that there is now, and give results as they end. A worker that
    fails or dies gives none, and one that takes far longer than the first is not waited for.
    """
    ended: SimpleQueue[Future] = SimpleQueue()
    begin, deadline = time.monotonic(), float("inf")
    flying: dict[Future, str] = {}
    for worker in client.nthreads():
        future = client.submit(body, *task, pure=False, workers=[worker])
        flying[future] = worker
        future.add_done_callback(ended.put)
    try:
        while flying and time.monotonic() < deadline:
            try:
                future = ended.get(timeout=TICK_SECONDS)
            except Empty:
                there = client.nthreads()
                flying = {future: worker for future, worker in flying.items() if worker in there}
                continue
            flying.pop(future, None)
            with suppress(Exception):  # whatever the body raised, or what became of its worker
                result = future.result()
                now = time.monotonic()
                deadline = min(deadline, now + (now - begin) + SPARE_SECONDS)
                yield result
    finally:
        if flying:
            client.cancel(list(flying), force=True)
