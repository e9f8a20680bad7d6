"""What standard error can show, and shall: whether it rewrites lines, whether it has colours, its width, and
how much to print (-q, -v). It is imported before any command is known, and imports nothing slow.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

MOST_COLUMNS = 80
FEWEST_COLUMNS = 20
CUT = "…"


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal."""
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):  # no stream, or a closed one
        return False


def rewrites(stream: Any) -> bool:
    """Whether a line can be rewritten by moving the cursor. Not in CI, whose logs keep all output."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")


def has_colours(stream: Any) -> bool:
    """Whether colours may be used: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return rewrites(stream) and not os.environ.get("NO_COLOR")


def columns(stream: Any) -> int:
    """The width of lines for a stream: that of the terminal, and 80 at most."""
    width = shutil.get_terminal_size((MOST_COLUMNS, 24)).columns if is_terminal(stream) else MOST_COLUMNS
    return max(min(width, MOST_COLUMNS), FEWEST_COLUMNS)


def shortened(text: str, columns: int) -> str:
    """A text without its middle, if it is longer: the begin and the end of a path matter most."""
    if len(text) <= columns:
        return text
    head = max((columns - 1) // 2, 0)
    tail = max(columns - 1 - head, 0)
    return f"{text[:head]}{CUT}{text[len(text) - tail :]}"


def cut(text: str, columns: int) -> str:
    """A text without its end, if it is longer."""
    return text if len(text) <= columns else f"{text[: max(columns - 1, 0)]}{CUT}"


def wrapped(text: str, columns: int, *, begin: int = 0, indent: int = 0, shorten: bool = False) -> str:
    """Wrap a text to so many columns, between words.

    begin    used columns of the first line
    indent   spaces at the begin of the other lines
    shorten  whether a word that is longer than a line loses its middle
    """
    lines, space = [""], columns - begin
    for word in text.split(" "):
        word = shortened(word, columns - indent) if shorten else word
        if lines[-1] and len(lines[-1]) + 1 + len(word) > space:
            lines.append(word)
            space = columns - indent
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return f"\n{' ' * indent}".join(line.rstrip() for line in lines)


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
