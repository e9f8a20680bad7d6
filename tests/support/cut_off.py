"""Processes that end between two writes, and inputs that change there, played within this process."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# What changes something that others see: new names, other names, names that go.
WRITES = ("replace", "link", "symlink", "unlink", "rmdir", "mkdir")
# The threads of a lease: its signs come at any time, and no end there is that of the driver.
LEASE = "dcpred-lease"


class CutOff(BaseException):
    """The process ends here: from here on it writes nothing."""


@contextmanager
def at_write(number: int, act: Callable[[], None], *, once: bool) -> Iterator[list[int]]:
    """Call `act` instead of (if it raises) or before write `number`, and, unless `once`, of every later one.
    Gives a list whose first item counts the writes.
    """
    count, acting = [0], [False]

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if not acting[0] and threading.current_thread().name != LEASE:
                count[0] += 1
                if count[0] == number or (count[0] > number and not once):
                    acting[0] = True
                    try:
                        act()
                    finally:
                        acting[0] = False
            return real(*args, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(os, name, guarded(getattr(os, name)))
        yield count


def end() -> None:
    """What a process does that ends."""
    raise CutOff
