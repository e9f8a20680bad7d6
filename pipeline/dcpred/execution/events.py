"""What happens in a run, told as it happens to whoever listens: lines of JSON for logs, and metrics.

Whoever does the work calls `tell`, which costs nothing while nobody listens. deploy/observability.md lists
the events and what they hold.
"""

import errno
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.storage.atomic_files import resource_errors

Level = Literal["info", "warning", "error"]
STANDARD_ERROR = "-"
APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    name: str
    level: Level
    time: float
    """Seconds since 1970."""
    facts: dict[str, Any]
    """What else is known of it, as JSON holds it."""


Listener = Callable[[Event], None]
_listeners: list[Listener] = []


def tell(name: str, level: Level = "info", **facts: Any) -> None:
    """Tell everybody who listens."""
    if _listeners:
        event = Event(name, level, time.time(), facts)
        for listener in tuple(_listeners):
            listener(event)


def is_heard() -> bool:
    """Whether anybody listens."""
    return bool(_listeners)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Have a listener told of everything within a `with` statement. It must not raise."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def by_name(status: Mapping[str, int]) -> dict[str, int]:
    """Rows by the name of their status (ok, non_finite_feature, …), from rows by status code."""
    return {Status(int(code)).name.lower(): n for code, n in status.items()}


def takes_standard_error() -> bool:
    """Whether standard error is for events, and for nothing else."""
    return any(isinstance(one, JsonLines) and one.name == STANDARD_ERROR for one in _listeners)


@dataclass
class JsonLines:
    """Writes each event as one line of JSON, at the end of what stands there. A file that can no longer be
    written to is said once, and ends no run.
    """

    name: str
    write: Callable[[str], object]
    run: str = field(default_factory=lambda: secrets.token_hex(6))
    """What all lines of this process have in common."""
    _one: threading.Lock = field(default_factory=threading.Lock)
    _lost: bool = False

    def __call__(self, event: Event) -> None:
        when = datetime.fromtimestamp(event.time, UTC).isoformat(timespec="milliseconds")
        told = {"time": when, "level": event.level, "event": event.name, "run": self.run, **event.facts}
        line = json.dumps(told, default=str) + "\n"
        with self._one:
            if self._lost:
                return
            try:
                self.write(line)
            except OSError as error:
                self._lost = True
                lost(self.name, error)


@contextmanager
def json_lines(name: str) -> Iterator[JsonLines]:
    """Events as lines of a file, or of standard error for "-". Raises SettingsError, ResourceError,
    OSError.
    """
    if name == STANDARD_ERROR:
        yield JsonLines(STANDARD_ERROR, sys.stderr.write)
        return
    try:
        with resource_errors(name):
            # Without O_NONBLOCK a pipe that nobody reads would be waited for.
            file = os.open(Path(name), APPENDING | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise SettingsError(
            f"events were to be written to {name}, but nobody reads that pipe; begin to read it first, or"
            " name a file"
        ) from None
    os.set_blocking(file, True)
    try:
        # In one call, so that lines of processes that share a file are whole.
        yield JsonLines(name, lambda line: os.write(file, line.encode()))
    finally:
        os.close(file)


def lost(name: str, error: OSError) -> None:
    """Say that a file of observation can no longer be written to."""
    print(f"dcpred: {name} cannot be written to ({error.strerror}); the run goes on without", file=sys.stderr)
