"""Retries of input and output with back-off, inside the task."""

import time
from collections.abc import Callable
from typing import TypeVar

from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS

ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.1
WAIT_FACTOR = 3.0  # 0.1, 0.3, 0.9, 2.7 s: bridges a failure of a few seconds
# Errors that a retry would raise again.
LASTING = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)

T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed: after a time-out, a lost connection, an error of a device."""
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    return (
        isinstance(error, OSError) and not isinstance(error, LASTING) and error.errno not in RESOURCE_ERRNOS
    )


class Retrying:
    """Retries an operation that fails, and counts the retries."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, operation: Callable[[], T]) -> T:
        wait = FIRST_WAIT_SECONDS
        for _ in range(ATTEMPTS - 1):
            try:
                return operation()
            except Exception as error:
                if not is_transient(error):
                    raise
            self.count += 1
            time.sleep(wait)
            wait *= WAIT_FACTOR
        return operation()
