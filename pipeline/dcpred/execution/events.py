"""Events of a run, for files and for monitoring."""

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
    """An event."""

    name: str
    level: Level
    time: float
    """Seconds since 1970."""
    facts: dict[str, Any]
    """Its fields, as JSON holds them."""


Listener = Callable[[Event], None]
_listeners: list[Listener] = []


def record_event(name: str, level: Level = "info", **facts: Any) -> None:
    """Pass an event to all listeners."""
    if _listeners:
        event = Event(name, level, time.time(), facts)
        for listener in tuple(_listeners):
            listener(event)


def is_heard() -> bool:
    """Whether there is a listener."""
    return bool(_listeners)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Pass all events within a `with` statement to a listener, which must not raise."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def by_name(status: Mapping[str, int]) -> dict[str, int]:
    """Rows by the name of their status (ok, non_finite_feature, …), from rows by status code."""
    return {Status(int(code)).name.lower(): n for code, n in status.items()}


def takes_standard_error() -> bool:
    """Whether standard error is reserved for events."""
    return any(isinstance(one, JsonLines) and one.name == STANDARD_ERROR for one in _listeners)


@dataclass
class JsonLines:
    """Appends each event as one line of JSON. Reports once that a file is no longer writable, which does not
    end a run.
    """

    name: str
    write: Callable[[str], object]
    run: str = field(default_factory=lambda: secrets.token_hex(6))
    """Fields of all lines of this process."""
    _one: threading.Lock = field(default_factory=threading.Lock)
    _lost: bool = False

    def __call__(self, event: Event) -> None:
        when = datetime.fromtimestamp(event.time, UTC).isoformat(timespec="milliseconds")
        summary = {"time": when, "level": event.level, "event": event.name, "run": self.run, **event.facts}
        line = json.dumps(summary, default=str) + "\n"
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
            # Without O_NONBLOCK the call would wait for a reader of a pipe.
            file = os.open(Path(name), APPENDING | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise SettingsError(
            f"Cannot write events to {name}: no process reads that pipe. Begin to read it first, or"
            " name a file."
        ) from None
    os.set_blocking(file, True)
    try:
        # In one call: lines of processes that share a file stay intact.
        yield JsonLines(name, lambda line: os.write(file, line.encode()))
    finally:
        os.close(file)


def lost(name: str, error: OSError) -> None:
    """Report that a file of events or metrics is no longer writable."""
    print(f"dcpred: cannot write {name} ({error.strerror}); the run continues without it", file=sys.stderr)
