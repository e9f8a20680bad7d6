"""Events of a run: records of `logging` with fields, for files and for monitoring."""

import errno
import json
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from dcpred.execution.terminal import Verbosity, verbosity
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.storage.atomic_files import resource_errors

Level = Literal["info", "warning", "error"]
EVENTS = logging.getLogger("dcpred.events")
EVENTS.addHandler(logging.NullHandler())  # without a handler Python prints warnings
STANDARD_ERROR = "-"
APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def record_event(name: str, level: Level = "info", **facts: Any) -> None:
    """Log an event with its fields, as JSON holds them."""
    getattr(EVENTS, level)(name, extra={"facts": facts})


def notice(text: str, event: str, **facts: Any) -> None:
    """Record an event, and print it as a line, unless standard error shows nothing or takes events."""
    record_event(event, "warning", **facts)
    if verbosity() > Verbosity.QUIET and not takes_standard_error():
        print(f"dcpred: {text}", file=sys.stderr)


def is_heard() -> bool:
    """Whether events are logged."""
    return EVENTS.isEnabledFor(logging.INFO)


@contextmanager
def heard_by(handler: logging.Handler) -> Iterator[None]:
    """Pass all events within a `with` statement to a handler, which must not raise."""
    before = EVENTS.level
    EVENTS.setLevel(logging.INFO)
    EVENTS.addHandler(handler)
    try:
        yield
    finally:
        EVENTS.removeHandler(handler)
        EVENTS.setLevel(before)


def by_name(status: Mapping[str, int]) -> dict[str, int]:
    """Rows by the name of their status (ok, non_finite_feature, …), from rows by status code."""
    return {Status(int(code)).name.lower(): n for code, n in status.items()}


def takes_standard_error() -> bool:
    """Whether standard error is reserved for events."""
    return any(handler.name == STANDARD_ERROR for handler in EVENTS.handlers)


class JsonFormatter(logging.Formatter):
    """An event as one line of JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.run = secrets.token_hex(6)  # in all lines of this process

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"time": when, "level": record.levelname.lower(), "event": record.msg, "run": self.run}
        return json.dumps(head | vars(record)["facts"], default=str) + "\n"


class Lines(logging.Handler):
    """Writes each event as a line. Reports once that a file is not writable any more; the run goes on."""

    def __init__(self, name: str, write: Callable[[str], object]) -> None:
        super().__init__()
        self.set_name(name)
        self.setFormatter(JsonFormatter())
        self.write, self.is_lost = write, False

    def emit(self, record: logging.LogRecord) -> None:
        if self.is_lost:
            return
        try:
            self.write(self.format(record))
        except OSError as error:
            self.is_lost = True
            lost(str(self.name), error)


@contextmanager
def json_lines(name: str) -> Iterator[Lines]:
    """Events as lines of a file, or standard error for "-". Raises SettingsError, ResourceError, OSError."""
    if name == STANDARD_ERROR:
        yield Lines(STANDARD_ERROR, sys.stderr.write)
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
        yield Lines(name, lambda line: os.write(file, line.encode()))
    finally:
        os.close(file)


def lost(name: str, error: OSError) -> None:
    """Report that a file of events or metrics is no longer writable."""
    print(f"dcpred: cannot write {name} ({error.strerror}); the run continues without it", file=sys.stderr)
