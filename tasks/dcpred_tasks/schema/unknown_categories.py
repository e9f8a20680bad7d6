"""Categories that a column does not know, by name, and the known ones that they resemble."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from unicodedata import normalize

import numpy as np

from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.result_fields import result_class, result_field
from dcpred_tasks.schema.column import Category, Cells

NAMED = 3  # maximum number of categories to name
LONGEST = 60  # characters of a name
MANY = 0.1  # share of the rows, above which they are noticeable


@result_class
class UnknownCategories:
    """The rows of a column with categories that it does not know."""

    column: str = result_field("Name of the column.", when="unknown categories")
    rows: int = result_field("Number of these rows.", when="unknown categories")
    examples: dict[str, str] = result_field(
        'Some of the categories, with the known one that each resembles; "" if it resembles none.',
        when="unknown categories",
    )

    def text(self, subject: str) -> str:
        """The rows and some categories in words.

        subject  the rows, and their column
        """
        names = [f"{name!r} (known is {like!r})" if like else repr(name) for name, like in self.first()]
        return f"unknown or rare categories of {subject}, encoded as others: {', '.join(names)}"

    def first(self) -> list[tuple[str, str]]:
        """The categories to name, with the known ones."""
        return list(self.examples.items())[:NAMED]

    def is_noticeable(self, n_rows: int) -> bool:
        """Whether they are more than rare categories among n_rows."""
        return any(self.examples.values()) or self.rows > MANY * n_rows


def unknown_in(column: Category, cells: Cells, positions: IntArray) -> UnknownCategories | None:
    """What `column.positions` does not know of cells; None where it knows all."""
    rows = np.flatnonzero(positions == column.other)
    if not len(rows):
        return None
    values, counts = np.unique(cells.values[rows], return_counts=True)
    levels = [cells.levels[int(value)] if cells.levels else value for value in values]
    known = _known_by_form(column)
    ranked = sorted(zip((-counts).tolist(), map(str, levels), strict=True))
    likes = [(name, known.get(_form(name), "")) for _, name in ranked]
    return UnknownCategories(column.name, len(rows), _chosen(likes))


def joined(parts: Iterable[UnknownCategories]) -> list[UnknownCategories]:
    """Those of all parts of some rows, by column."""
    of_all: dict[str, UnknownCategories] = {}
    for part in parts:
        before = of_all.get(part.column, UnknownCategories(part.column, 0, {}))
        examples = _chosen([*before.examples.items(), *part.examples.items()])
        of_all[part.column] = UnknownCategories(part.column, before.rows + part.rows, examples)
    return list(of_all.values())


def unknown_remark(unknown: UnknownCategories, subject: str, n_rows: int, file: str = "") -> Remark:
    """A remark on a column.

    subject  the column and its rows, in words
    n_rows   the number of all rows
    """
    what, share = unknown.text(subject), unknown.rows / n_rows
    return remark("unknown-categories", what, columns=[unknown.column], file=file, share=share)


def _chosen(likes: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The categories to name: first those that resemble a known one."""
    ranked = sorted(dict(likes).items(), key=lambda each: not each[1])
    return {name[:LONGEST]: like[:LONGEST] for name, like in ranked[:NAMED]}


@lru_cache(maxsize=64)
def _known_by_form(column: Category) -> dict[str, str]:
    """The categories of text, by their form."""
    return {_form(each): each for each in column.categories if isinstance(each, str)}


def _form(text: Any) -> str:
    """Text without case, width and runs of spaces."""
    return " ".join(normalize("NFKC", normalize("NFKC", str(text)).casefold()).split())
