"""Reads ahead and writes behind, in threads of this process."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")

AHEAD, BEHIND = 4, 6  # chunks read ahead, and chunks in flight to the store


@lru_cache(maxsize=1)
def _threads(pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2 * (AHEAD + BEHIND), thread_name_prefix="dcpred-chunks")


def prefetched(jobs: Iterable[Callable[[], T]], ahead: int) -> Iterator[Callable[[], T]]:
    """For each job, in order, a call that returns its result or raises its error. `ahead` jobs start early in
    other threads; 0: no prefetch.
    """
    if not ahead:
        yield from jobs
        return
    begun: deque[Future[T]] = deque()
    try:
        for job in jobs:
            begun.append(_threads(os.getpid()).submit(job))
            if len(begun) > ahead:
                yield begun.popleft().result
        while begun:
            yield begun.popleft().result
    finally:
        for future in begun:
            future.cancel()


class WriteBehind(Generic[T]):
    """Runs jobs in other threads, at most `behind` at once; immediately, in this thread, where it is 0. No
    job outlives `wait`.
    """

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.results: list[T] = []
        """The results of jobs, in the order of `add`; complete after `finish`."""
        self._begun: deque[Future[T]] = deque()

    def add(self, job: Callable[[], T]) -> None:
        """Raises the error of an earlier job."""
        if not self.behind:
            self.results.append(job())
            return
        if len(self._begun) == self.behind:
            self.results.append(self._begun.popleft().result())
        self._begun.append(_threads(os.getpid()).submit(job))

    def finish(self) -> list[T]:
        while self._begun:
            self.results.append(self._begun.popleft().result())
        return self.results

    def wait(self) -> None:
        """Wait for the jobs under way, of which one may have failed."""
        wait(self._begun)
