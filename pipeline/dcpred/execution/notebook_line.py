"""Progress in a notebook: one output of the cell, which is replaced. Only the last line is saved with the
notebook, without signs that move a cursor.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rich.console import Console

from dcpred.execution.progress import Line, Lines
from dcpred.execution.terminal import MOST_COLUMNS, cut
from dcpred.execution.verbosity import Verbosity

SHOWN_SECONDS = 0.5  # minimum time that a line stays


class _Text:
    """Plain text in a notebook: nothing in it is HTML."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class NotebookLine(Lines):
    """A line of a job in its place, and remarks below it."""

    def __init__(self, level: Verbosity = Verbosity.NORMAL) -> None:
        super().__init__(Console(stderr=True, force_terminal=False, force_jupyter=False), level)
        self.display = import_module("IPython.display").display
        self.place: Any = None  # IPython's handle to replace an output

    def say(self, text: str) -> None:
        self.display(_Text(text))

    @contextmanager
    def showing(self, line: Line) -> Iterator[object]:
        self.place = self.display(_Text(cut(line.text(), MOST_COLUMNS)), display_id=True)
        yield self.place

    def changed(self, line: Line, seconds: float) -> None:
        now = time.monotonic()
        if now - self.printed >= min(seconds, SHOWN_SECONDS):
            self.printed = now
            self.place.update(_Text(cut(line.text(), MOST_COLUMNS)))

    def closed(self, text: str) -> None:
        self.place.update(_Text(text))
