"""The guard around tasks on a worker, and the result of a failed task."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dcpred_tasks.errors import DcpredError, ResourceError

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A task that failed permanently. `deaths` counts workers that died with it."""

    error: BaseException
    deaths: int = 0


def guarded(task: Callable[[], T]) -> T | Failure:
    """Run a task and return its result, or an error of dcpred, which a retry would not help."""
    try:
        return task()
    except ResourceError:
        raise
    except DcpredError as error:
        return Failure(error)


def in_turn(*tasks: Callable[[], T]) -> tuple[list[T | Failure], list[float]]:
    """The results of successive tasks, with seconds, up to one that raises. Raises if the first one does."""
    results: list[T | Failure] = []
    seconds: list[float] = []
    for task in tasks:
        begin = time.perf_counter()
        try:
            results.append(guarded(task))
        except Exception:
            if not results:
                raise
            break
        seconds.append(time.perf_counter() - begin)
    return results, seconds
