"""What commands print for a person: the lines and tables that the fields of a result state."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dcpred.execution.terminal import Verbosity, columns, is_terminal, verbosity, wrapped
from dcpred.public.results import plain
from dcpred_tasks.result_fields import Listing, Unit, cells_of, columns_of, lines_of

CELL_LETTERS = 28  # longer texts in tables are cut


def shown(owners: type | Sequence[type], document: Mapping[str, Any]) -> str:
    """A document of result classes. A class without lines shows all of its fields."""
    detail = verbosity() >= Verbosity.MORE
    classes = [owners] if isinstance(owners, type) else owners
    blocks: list[str] = []
    lines: list[tuple[str, str]] = []
    for part in (part for owner in classes for part in lines_of(owner, document, detail)):
        if isinstance(part[1], Listing):
            blocks += [rows(lines)] if lines else []
            blocks.append(_listed(part[0], part[1]))
            lines = []
        else:
            lines.append(part)
    return "\n\n".join([*blocks, rows(lines)] if lines else blocks)


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """Two columns. On a terminal values are wrapped, and long paths lose their middle. In a file or a pipe
    each value is one unabridged line.
    """
    lines = list(pairs)
    width = max(len(name) for name, _ in lines)
    if not is_terminal(sys.stdout):
        return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)
    most, begin = columns(sys.stdout), width + 2
    return "\n".join(
        f"{name:<{width}}  {wrapped(value, most, begin=begin, indent=begin, shorten=True)}"
        for name, value in lines
    )


def _listed(owner: type, listing: Listing) -> str:
    """A table with its title. Texts are left-aligned, numbers right-aligned."""
    left = [facts.unit is Unit.TEXT for _, facts in columns_of(owner, listing.rows)]
    cells = [[plain(cell, CELL_LETTERS) for cell in line] for line in cells_of(owner, listing.rows)]
    if listing.labels:
        cells = [[label, *line] for label, line in zip(("", *listing.labels), cells, strict=True)]
        left.insert(0, True)
    more = wrapped(listing.more, columns(sys.stdout), indent=2) if is_terminal(sys.stdout) else listing.more
    return "\n".join(filter(None, (listing.title, *table(cells, left), more)))


def table(lines: Sequence[Sequence[str]], left: Sequence[bool]) -> list[str]:
    """Lines of cells, each column as wide as necessary.

    left  whether each column is left-aligned
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        [
            f"{cell:{'<' if is_left else '>'}{width}}"
            for cell, width, is_left in zip(line, widths, left, strict=True)
        ]
        for line in lines
    ]
    return ["  ".join(line).rstrip() for line in texts]
