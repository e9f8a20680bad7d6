"""How much is told on standard error: by -q nothing but errors, by -v more."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class Verbosity(IntEnum):
    """As `verbose` of an estimator."""

    QUIET = 0
    NORMAL = 1
    MORE = 2


_now = Verbosity.NORMAL


def verbosity() -> Verbosity:
    """What holds for this command."""
    return _now


@contextmanager
def at_verbosity(level: Verbosity) -> Iterator[None]:
    """Have a level hold within a `with` statement."""
    global _now
    before, _now = _now, level
    try:
        yield
    finally:
        _now = before
