"""Verbosity of standard error: with -q only errors, with -v more."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class Verbosity(IntEnum):
    """The `verbose` of an estimator."""

    QUIET = 0
    NORMAL = 1
    MORE = 2


_now = Verbosity.NORMAL


def verbosity() -> Verbosity:
    """The level of this command."""
    return _now


@contextmanager
def at_verbosity(level: Verbosity) -> Iterator[None]:
    """Set a level within a `with` statement."""
    global _now
    before, _now = _now, level
    try:
        yield
    finally:
        _now = before
