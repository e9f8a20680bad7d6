"""What a stream can show: whether lines are rewritten on it, whether it has colours, and how wide it is.

It is imported before any command is known, and imports nothing that takes time.
"""

import os
import shutil
from typing import Any

MOST_COLUMNS = 80
FEWEST_COLUMNS = 20
CUT = "…"


def is_terminal(stream: Any) -> bool:
    """Whether a person looks at a stream."""
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):  # none, or a closed one
        return False


def rewrites(stream: Any) -> bool:
    """Whether a line can be written anew in its place, with signs that move the cursor. Not so where nobody
    looks on: builds of CI keep all that was written.
    """
    return is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")


def has_colours(stream: Any) -> bool:
    """Whether colours may be used: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return rewrites(stream) and not os.environ.get("NO_COLOR")


def columns(stream: Any) -> int:
    """The width of lines for a stream: that of the terminal, and 80 at most."""
    width = shutil.get_terminal_size((MOST_COLUMNS, 24)).columns if is_terminal(stream) else MOST_COLUMNS
    return max(min(width, MOST_COLUMNS), FEWEST_COLUMNS)


def shortened(text: str, columns: int) -> str:
    """A text without its middle, where it is longer: the begin and the end of a path tell most."""
    if len(text) <= columns:
        return text
    head = max((columns - 1) // 2, 0)
    tail = max(columns - 1 - head, 0)
    return f"{text[:head]}{CUT}{text[len(text) - tail :]}"


def cut(text: str, columns: int) -> str:
    """A text without its end, where it is longer."""
    return text if len(text) <= columns else f"{text[: max(columns - 1, 0)]}{CUT}"


def wrapped(text: str, columns: int, *, begin: int = 0, indent: int = 0, shorten: bool = False) -> str:
    """A text on lines of so many columns, cut between words.

    begin    columns of the first line that are taken already
    indent   spaces at the begin of the other lines
    shorten  a word that is longer than a line loses its middle; else it stays whole
    """
    lines, room = [""], columns - begin
    for word in text.split(" "):
        word = shortened(word, columns - indent) if shorten else word
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append(word)
            room = columns - indent
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return f"\n{' ' * indent}".join(line.rstrip() for line in lines)
