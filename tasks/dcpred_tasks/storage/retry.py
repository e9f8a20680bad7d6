"""Input and output that fails for a while: tried again with back-off, inside the task."""

import time
from collections.abc import Callable
from typing import TypeVar

from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS

ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.1
WAIT_FACTOR = 3.0  # 0.1, 0.3, 0.9, 2.7 s: a hiccup of a few seconds is outlived
# Errors that the same call would raise again in a moment.
LASTING = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)

T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed in a moment: a time-out, a lost connection, an error of a device."""
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    return (
        isinstance(error, OSError) and not isinstance(error, LASTING) and error.errno not in RESOURCE_ERRNOS
    )


class Retrying:
    """Calls an operation again while it fails for a while, and counts how often that was."""

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
