"""The error tree, and the guard around tasks. Each class has the exit code of the command line.

A message states what cannot be done, why, and what to do: "Cannot VERB X: reason. Remedy." Every class takes
this one string, and errors travel between processes unchanged.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar


def listed(names: Sequence[str], most: int = 10) -> str:
    """The first names of many, for a message."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def doubled(names: Iterable[str]) -> str | None:
    """The first name that occurs twice; None where each column has its own."""
    return next((name for name, n in Counter(names).items() if n > 1), None)


class DcpredError(Exception):
    """Any error that dcpred raises on purpose."""

    exit_code = 1
    report: Any = None
    """The report of a run that ended, but not well."""


class RefusedError(DcpredError, ValueError):
    """Refused before anything was written."""

    exit_code = 3


class DataError(RefusedError):
    """Invalid data: shape, dtype, non-finite values, labels, missing chunks."""


class MissingChunkError(DataError):
    """A chunk of the input is missing."""


class DamagedChunkError(DataError):
    """A chunk of the input exists but cannot be decoded."""


class SettingsError(RefusedError):
    """A setting has an unknown name or an invalid value."""


@contextmanager
def optional_package(action: str, extra: str, where: str = "") -> Iterator[None]:
    """Raise SettingsError where an import within a `with` statement fails: it is of an extra of dcpred, to
    install here, or `where`.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "a package").partition(".")[0]
        raise SettingsError(
            f'Cannot {action}: {package} is not installed. Run pip install "dcpred[{extra}]"{where}.'
        ) from None


class ModelFormatError(RefusedError):
    """An unusable model: not a model, too new, incomplete or altered."""


class PlanConflictError(RefusedError):
    """The output belongs to another plan."""


class SchedulerError(RefusedError):
    """The Dask cluster does not answer, or runs other versions than the driver."""


class SchedulerAwayError(SchedulerError):
    """The Dask cluster does not answer, or has no workers, now: a retry may find it."""

    exit_code = 75


class IncompleteError(DcpredError):
    """The run ended with failed blocks."""

    exit_code = 4


class ResourceError(DcpredError):
    """Disk, quota or permission."""

    exit_code = 5


class RunHeldError(DcpredError):
    """Another driver holds the run."""

    exit_code = 6


class RemarkError(DcpredError):
    """A remark that the caller does not accept: nothing was published or committed to a table."""

    exit_code = 7
    remarks: tuple[Any, ...] = ()
    """Those that are not accepted, of type Remark."""


class InterruptedRunError(DcpredError):
    """The run was interrupted; running it again resumes it."""

    exit_code = 75


# -- Failures of tasks ---------------------------------------------------------------------------------------


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
