"""Tables as Arrow arrays: the interface of every reader of columns, and the rows that an import takes.

A source is read more than once: first to infer its columns, then to write them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dcpred.datasets.table import is_missing
from dcpred_tasks.tables.arrow_columns import (
    Rounding,
    as_text,
    is_text_or_levels,
    is_uuid,
    plain_column,
    refuse_rounded_decimals,
    remedy,
)

Columns = dict[str, Any]  # Arrow arrays of equal length, by name


class Source(Protocol):
    """A table that can be read as often as needed."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    @property
    def types(self) -> Mapping[str, Any]:
        """The Arrow types of its columns, in their order."""

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        """These columns, some rows at a time, from the first to the last."""


# -- Rows as an import takes them ----------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectedRows:
    """The rows of a source to import, with every column of a type that has one meaning: a Source.

    absent     columns that are missing in every row, whether the source has them or not
    target     the column that becomes y, in which `gap_texts` stand for a missing value
    labelled   whether rows without a target are skipped
    left_out   the number of rows that the last pass skipped, as its one item
    """

    base: Source
    absent: tuple[str, ...] = ()
    target: str | None = None
    gap_texts: tuple[str, ...] = ()
    labelled: bool = False
    left_out: list[int] = field(default_factory=lambda: [0])

    @property
    def name(self) -> str:
        return f"{self.base.name} (rows with a target)" if self.labelled else self.base.name

    @cached_property
    def types(self) -> Mapping[str, Any]:
        there = {name: pa.string() if is_uuid(kind) else kind for name, kind in self.base.types.items()}
        return there | dict.fromkeys(self.absent, pa.null())

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        self.left_out[0] = 0
        do = remedy(str(self.target), is_target=True)
        rounding = Rounding(f"column {self.target!r} of {self.base.name}", do)
        read = [name for name in names if name not in self.absent]
        if self.labelled and self.target not in read:
            read.append(str(self.target))
        for columns in self.base.batches(read or list(self.base.types)[:1]):
            n_rows = len(next(iter(columns.values())))
            found = {name: plain_column(columns[name], name, self.name) for name in read}
            if self.target in found:
                found[self.target] = self._target(found[self.target], rounding)
            found |= {name: pa.nulls(n_rows) for name in names if name in self.absent}
            if self.labelled:
                goal = found[str(self.target)]
                there = pc.invert(is_missing(as_text(goal) if is_text_or_levels(goal.type) else goal))
                self.left_out[0] += n_rows - there.true_count
                found = {name: column.filter(there) for name, column in found.items()}
            if not self.labelled or there.true_count:
                yield {name: found[name] for name in names}

    def _target(self, column: Any, rounding: Rounding) -> Any:
        if self.gap_texts and is_text_or_levels(column.type):
            text = as_text(column)
            return pc.if_else(pc.is_in(text, value_set=pa.array(self.gap_texts)), None, text)
        if pa.types.is_decimal(column.type):
            refuse_rounded_decimals(column, rounding)
            return column.cast(pa.float64())
        return column
