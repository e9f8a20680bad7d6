"""The guard around tasks on a worker, and what a task that failed gives back."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dcpred_tasks.errors import DcpredError, ResourceError

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A task that failed for good. `deaths` counts workers that died with it."""

    error: BaseException
    deaths: int = 0


def guarded(task: Callable[[], T]) -> T | Failure:
    """An error that dcpred raises on purpose is a result: trying again would not help."""
    try:
        return task()
    except ResourceError:
        raise
    except DcpredError as error:
        return Failure(error)


def in_turn(*tasks: Callable[[], T]) -> tuple[list[T | Failure], list[float]]:
    """The results of tasks that run one after the other, and the seconds that each took. A task that raises
    ends them: the results are of those before it, and if it is the first, it raises.
    """
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
