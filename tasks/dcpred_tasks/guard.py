"""The guard around a task body on a worker, and what a task that failed gives back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dcpred_tasks.errors import DcpredError, ResourceError

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A task that failed for good. `deaths` counts workers that died with it."""

    error: BaseException
    deaths: int = 0


def guarded(body: Callable[..., T], *task: Any) -> T | Failure:
    """An error that dcpred raises on purpose is a result: trying again would not help."""
    try:
        return body(*task)
    except ResourceError:
        raise
    except DcpredError as error:
        return Failure(error)
