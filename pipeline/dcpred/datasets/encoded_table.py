"""A source of columns as a `Table` (table.py): its schema inferred or followed, and its rows encoded by
it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.datasets.source import (
    SelectedRows,
    Source,
    arrow_cells,
    as_text,
    is_plain_number,
    is_text_or_levels,
)
from dcpred.datasets.survey_pass import Found, find_columns
from dcpred.datasets.table import Batch, Table, arrow_values, check_names, check_there, target_values
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.column import Boolean, Category, Column, Dropped, Id, Number, Target
from dcpred_tasks.schema.inference import Wishes, as_option
from dcpred_tasks.schema.schema import Asked, Schema

NAMED = 5  # maximum number of columns that a message names


def encoded_table(source: Source, wishes: Wishes) -> Table:
    """The table of a source; infers what wishes leave open in its schema. Raises DataError if a named column
    is missing, or if a column is ambiguous.
    """
    names = list(source.types)
    check_names(source.name, names)
    for name, wish in wishes.given.items():
        check_there(source.name, [*names, *wishes.absent], name, _purpose(wish))
    for name in wishes.absent:
        if not isinstance(wishes.given.get(name), Column | Asked):
            raise DataError(
                f"Cannot declare column {name!r} absent: neither --like nor --schema states what it is."
                " Omit --absent."
            )
    rows, found = find_columns(_selected(source, wishes), wishes)
    return _table(rows, _schema(source, found.columns, wishes), found)


def _selected(source: Source, wishes: Wishes) -> SelectedRows:
    """The rows to import. Raises DataError for wishes that exclude each other."""
    if wishes.labelled and wishes.target is None:
        raise DataError(
            f"Cannot skip rows of {source.name} without a target: no column is the target. Name"
            " one with --target, or omit --drop-unlabelled."
        )
    for name in wishes.absent:
        if isinstance(wishes.of(name), Target | Id | Dropped):
            raise DataError(
                f"Cannot declare column {name!r} absent: it is not a feature. Omit --absent"
                f" {as_option(name)}."
            )
    return SelectedRows(source, wishes.absent, wishes.target, wishes.gap_texts, wishes.labelled)


def table_like(source: Source, schema: Schema, like: str, asked_for: Wishes) -> Table:
    """The table of a source encoded by a schema: columns may come in any order, further ones are omitted,
    and its target and ids are included where the source has them.

    like       owner of the schema, for messages
    asked_for  ids and a target in place of those of the schema; further texts for missing values, the form
               of text values, absent columns, and whether rows need a target

    Raises DataError if a column that becomes a feature is missing, or holds other values.
    """
    names = list(source.types)
    check_names(source.name, names)
    ids = [name for name, wish in asked_for.given.items() if isinstance(wish, Id)]
    target, absent = asked_for.target, asked_for.absent
    features = {column.name for column in schema.sources}
    for name in absent:
        check_there(like, list(features), name, "declare column {} absent")
    asked = {name: "store column {} as id" for name in ids} | (
        {target: "use column {} as target"} if target else {}
    )
    if target in ids:
        raise DataError(f"Cannot use column {target!r} both as id and as target. Name it once.")
    for name, what in asked.items():
        check_there(source.name, names, name, what)
        if name in features:
            raise DataError(
                f"Cannot {what.format(repr(name))} of {source.name}: {like} has it as a feature. Name"
                " another."
            )
    there = {*names, *absent}
    missing = [column.name for column in schema.sources if column.name not in there]
    if missing:
        shown = ", ".join(map(repr, missing[:NAMED]))
        more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
        raise DataError(
            f"Cannot encode {source.name} like {like}: it lacks the"
            f" column{'s' if len(missing) > 1 else ''} {shown}{more}. Add what is missing, rename it,"
            f" or pass --absent {as_option(missing[0])} where it is missing in every row"
        )
    kept = [Id(name) for name in ids or schema.ids if name in set(names) and name != target]
    taken = features | {column.name for column in kept}
    goal = [Target(name) for name in (target or schema.target,) if name in set(names) - taken]
    own = (*schema.sources, *goal, *kept)
    ignored = [name for name in names if name not in {column.name for column in own}]
    given: dict[str, Column | Asked] = {column.name: column for column in own}
    wishes = replace(
        asked_for,
        target=goal[0].name if goal else None,
        given=given | {name: Dropped(name) for name in ignored},
    )
    read, found = find_columns(_selected(source, wishes), wishes)
    table = _table(read, _schema(source, own, wishes), found)
    known = {column.name for column in schema.columns}
    return replace(table, ignored=tuple(name for name in ignored if name not in known))


def _purpose(wish: Column | Asked) -> str:
    if isinstance(wish, Target):
        return "use column {} as target"
    if isinstance(wish, Id):
        return "store column {} as id"
    return "drop column {}" if isinstance(wish, Dropped) else f"encode column {{}} as {wish.kind}"


def _schema(source: Source, columns: Sequence[Column], wishes: Wishes) -> Schema:
    try:
        return Schema(tuple(columns), wishes.gap_texts, wishes.text)
    except ValueError as error:
        raise DataError(
            f"Cannot import {source.name}: {error}. Rename columns, or omit some with --drop."
        ) from None


def _table(source: SelectedRows, schema: Schema, found: Found) -> Table:
    encoder = _Encoder(source, schema, found)
    return Table(
        n_samples=found.n_rows,
        n_features=len(schema.features),
        dtype=found.dtype,
        target_dtype=found.target_dtype,
        labels=found.labels,
        names=schema.features,
        batches=encoder.batches,
        schema=schema,
        ids={name: one.dtype for name, one in found.ids.items()},
        unlabelled=source.left_out,
        unlabelled_text=found.unlabelled_text,
        absent=tuple(name for name in source.absent if name in source.base.types),
        unknown=encoder.unknown,
    )


@dataclass(frozen=True)
class _Encoder:
    """The rows of a source, encoded by a schema."""

    source: SelectedRows
    schema: Schema
    found: Found
    unknown: dict[str, int] = field(default_factory=dict)

    def batches(self, _rows: int) -> Iterator[Batch]:
        self.unknown.clear()
        target = self.schema.target
        names = [column.name for column in self.schema.columns if not isinstance(column, Dropped)]
        for columns in self.source.batches(names):
            n = len(next(iter(columns.values())))
            X = np.empty((n, len(self.schema.features)), self.found.dtype)
            for column, span in self.schema.spans:
                X[:, span] = self._encoded(column, columns[column.name])
            y = None if target is None else _target(columns[target], self.found.labels)
            yield Batch(X, y, {name: one.values(columns[name]) for name, one in self.found.ids.items()})

    def _encoded(self, column: Column, values: Any) -> NDArray[Any]:
        if isinstance(column, Number | Boolean) and is_plain_number(values.type):
            return arrow_values(values)[:, None]
        cells = arrow_cells(values, column.name, self.source.name, self.schema.gap_texts)
        if not isinstance(column, Category):
            return column.encode(cells)
        positions = column.positions(cells)
        n_unknown = int((positions == column.other).sum())
        if n_unknown:
            self.unknown[column.name] = self.unknown.get(column.name, 0) + n_unknown
        return column.at(positions)


def _target(column: Any, labels: tuple[str, ...] | None) -> NDArray[Any]:
    return target_values(as_text(column) if is_text_or_levels(column.type) else column, labels)
