"""Tables with categories and missing values: one pass surveys their columns, another encodes them."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dcpred.datasets.table import (
    Batch,
    SelectedRows,
    Table,
    TargetSurvey,
    check_there,
    label_dtype,
    side_by_side,
    target_values,
)
from dcpred_tasks.errors import DataError, listed
from dcpred_tasks.input_kinds import EXACT_LIMIT
from dcpred_tasks.schema.column import (
    Boolean,
    Category,
    Column,
    Date,
    Dropped,
    Id,
    Means,
    Number,
    Target,
    is_number,
)
from dcpred_tasks.schema.inference import (
    COMMAND,
    MOST_CODES,
    SHOWN,
    TEXT_FILE,
    ColumnSurvey,
    Wishes,
    as_option,
    can_be_kept,
    find_column,
    marks_hint,
)
from dcpred_tasks.schema.schema import ColumnRequest, Schema
from dcpred_tasks.schema.unknown_categories import UnknownCategories, joined, unknown_in
from dcpred_tasks.tables.arrow_columns import (
    LARGE,
    Rounding,
    arrow_cells,
    arrow_values,
    as_text,
    first_rounded,
    is_plain_number,
    is_text_or_levels,
    refuse_rounded_decimals,
    remedy,
    rounded,
    text_values,
)
from dcpred_tasks.tables.csv_files import CsvFile, NotANumberError, refuse_rounded
from dcpred_tasks.tables.table_columns import Columns, Spread, check_names, followed_dtype, no_rows
from dcpred_tasks.tables.table_source import TableRows

WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"  # The form that Python writes; 64 bits may hold it.
TEXT_DTYPE = np.dtypes.StringDType()


class IdColumn:
    """The values of one column of ids, surveyed in a first pass and returned in a second."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source
        self.whole = True
        """Whether all text is integers that 64 bits hold."""
        self.has_gaps = False
        self.kind: Any = None
        _check_name(name)

    def add(self, column: Any) -> None:
        self.has_gaps = self.has_gaps or column.null_count > 0
        self.kind = column.type
        if self.whole and is_text_or_levels(column.type):
            text = as_text(column).drop_null()
            self.whole = bool(pc.all(pc.match_substring_regex(text, WHOLE), min_count=0).as_py())
            self.whole = self.whole and _fits(text)

    @property
    def dtype(self) -> Any:
        """The dtype of the array; `str` for text."""
        if is_text_or_levels(self.kind):
            return np.dtype(np.int64) if self.whole and not self.has_gaps else str
        if is_plain_number(self.kind) and (pa.types.is_floating(self.kind) or not self.has_gaps):
            return np.dtype(self.kind.to_pandas_dtype())
        return str

    def values(self, column: Any) -> NDArray[Any]:
        dtype = self.dtype
        if dtype is not str:
            return arrow_values(column.cast(pa.int64()) if is_text_or_levels(column.type) else column)
        return np.array(text_values(column, self.name, self.source), TEXT_DTYPE)


def _fits(text: Any) -> bool:
    try:
        text.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _check_name(name: str) -> None:
    if not can_be_kept(name):
        raise DataError(
            f"Cannot store column {name!r} next to X: no array of a data set can have this name."
            f" Rename it, or omit it with --drop {as_option(name)}."
        )


def id_columns(names: Sequence[str], source: str) -> dict[str, IdColumn]:
    return {name: IdColumn(name, source) for name in names}


LARGEST_SINGLE = 2**24  # float32 holds every integer up to it
SECONDS_OF_DAY = 86_400
EXACT_INTEGERS = ". 64-bit integers stay exact where all features are integers and no value is missing"
NAMED = 5  # maximum number of columns that a message names


@dataclass
class TableFindings:
    """The result of the first pass; columns in their order."""

    n_rows: int
    columns: list[Column]
    dtype: np.dtype[Any]
    target_dtype: np.dtype[Any] | None = None
    labels: tuple[str, ...] | None = None
    ids: dict[str, IdColumn] = field(default_factory=dict)
    unlabelled_text: str = ""


def find_columns(
    rows: SelectedRows, wishes: Wishes, followed: Schema | None = None
) -> tuple[SelectedRows, TableFindings]:
    """Survey a source. A CSV file comes back as one that reads columns as text that are not numeric.

    followed  the schema that encodes all features, if one does

    Raises DataError for what cannot be imported exactly, or is ambiguous.
    """
    source = rows.base
    if not isinstance(source, CsvFile):
        return rows, _Pass(rows, wishes).run(followed)
    text = [n for n in source.names if not isinstance(wishes.of(n), Number | Target | Dropped | None)]
    ids = frozenset(name for name in source.names if isinstance(wishes.of(name), Id))
    source = replace(source, text=frozenset(text), verbatim=ids, gap_texts=wishes.gap_texts, form=wishes.text)
    free = [name for name in source.names if wishes.of(name) is None or name == wishes.target]
    # The first rows mostly show that a column is not numeric; else one pass over all of them does.
    for whole in (False, True):
        try:
            return (rows := replace(rows, base=source)), _Pass(rows, wishes, source).run(followed)
        except NotANumberError as error:
            if error.column not in free:
                raise
        source = source.looked_at(free, whole=whole)
    return (rows := replace(rows, base=source)), _Pass(rows, wishes, source).run(followed)


class _Pass:
    """One pass over all rows of a source, and of the CSV file that it reads, if it is one."""

    def __init__(self, source: SelectedRows, wishes: Wishes, file: CsvFile | None = None) -> None:
        self.source, self.wishes, self.file, self.n_rows = source, wishes, file, 0
        self.names = [name for name in source.types if not isinstance(wishes.of(name), Dropped)]
        self.ids = id_columns([n for n in self.names if isinstance(wishes.of(n), Id)], source.name)
        features = [name for name in self.names if name not in self.ids and name != wishes.target]
        self.numbers = [name for name in features if self._is_number(name)]
        self.surveys = {
            name: ColumnSurvey(name, counts_numbers=wishes.of(name) is not None)
            for name in features
            if name not in set(self.numbers)
        }
        self.values = (
            _NumbersOfText(self.numbers) if self.file else _TypedNumbers(source, self.numbers, self._remedy)
        )
        self.roundings = {
            name: Rounding(f"column {name!r} of {source.base.name}", self._remedy(name))
            for name in self.surveys
        }
        self.spreads = {
            name: Spread(len(wish.features))
            for name in self.surveys
            if isinstance(wish := wishes.of(name), Column)
        }
        """Spread of the features of given columns."""
        self.goal = Spread(1)
        self.target = TargetSurvey(f"column {wishes.target!r} of {source.name}", self._written_target)
        if not features:
            raise DataError(
                f"Cannot import {source.name}: it has no column besides the target, ids and dropped ones."
                " Add features."
            )

    def _is_number(self, name: str) -> bool:
        """Whether values are used unchanged."""
        wish, kind = self.wishes.of(name), self.source.types[name]
        if isinstance(wish, Boolean):
            return bool(pa.types.is_boolean(kind))
        return (wish is None or isinstance(wish, Number)) and is_plain_number(kind)

    def run(self, followed: Schema | None = None) -> TableFindings:
        for columns in self.source.batches(self.names):
            self._add(columns)
        if self.n_rows == 0:
            raise no_rows(self.source.name)
        kinds, wide = self._columns(), {name: self._remedy(name) for name in self.values.wide()}
        dtype = (
            self.values.dtype(self._encoded(kinds))
            if followed is None
            else followed_dtype(followed, self.source.types)
        )
        self.values.check_exact(dtype, also="" if followed else EXACT_INTEGERS)
        findings = TableFindings(self.n_rows, kinds, dtype, ids=self.ids)
        if self.wishes.target is not None:
            findings.labels, findings.target_dtype = self.target.labels, self._target_dtype()
            if self.goal.wide(LARGE).size:
                wide[self.wishes.target] = self._remedy(self.wishes.target)
        if self.file:
            refuse_rounded(self.file, wide)
            if self.source.left_out[0] and findings.labels:
                free = set(self.file.gaps) - {"", *self.wishes.gap_texts}
                findings.unlabelled_text = self.file.first_of(str(self.wishes.target), free)
        return findings

    def _remedy(self, name: str) -> str:
        """The remedy for a column whose values float64 rounds."""
        is_target = name == self.wishes.target
        return remedy(name, is_target=is_target, is_followed=isinstance(self.wishes.of(name), Column))

    def _add(self, columns: Columns) -> None:
        self.n_rows += len(next(iter(columns.values())))
        self.values.add(columns)
        for name, survey in self.surveys.items():
            refuse_rounded_decimals(columns[name], self.roundings[name])
            cells = arrow_cells(columns[name], name, self.source.name, self.wishes.gap_texts)
            survey.add(cells)
            if name in self.spreads:
                self.spreads[name].add(given(self.wishes, name).encode(cells))
        for name, identifiers in self.ids.items():
            identifiers.add(columns[name])
        if self.wishes.target is not None:
            self._add_target(columns[self.wishes.target], self.wishes.target)

    def _add_target(self, column: Any, name: str) -> None:
        of_text = is_text_or_levels(column.type)
        if not of_text and not is_plain_number(column.type):
            raise DataError(
                f"Cannot use column {name!r} of {self.source.name} as y: its type is {column.type}."
                " Convert it to numbers or text."
            )
        self.target.add(as_text(column) if of_text else column)
        if not of_text and self._target_finds_dtype(name):
            self.goal.add(arrow_values(column)[:, None])

    def _target_finds_dtype(self, name: str) -> bool:
        """Whether the values of a numeric target determine its dtype, not its type."""
        return self.file is not None or pa.types.is_decimal(self.source.types[name])

    def _target_dtype(self) -> np.dtype[Any]:
        name = str(self.wishes.target)
        if self.target.labels:
            self._refuse_numbers_and_text(name, self.target.labels)
            return label_dtype(self.target.labels)
        if self._target_finds_dtype(name):
            return self.goal.dtype()
        dtype: np.dtype[Any] = np.dtype(self.source.types[name].to_pandas_dtype())
        return dtype

    def _refuse_numbers_and_text(self, name: str, labels: Sequence[str]) -> None:
        """Raise DataError for a target of numbers with some text among them."""
        others = [text for text in labels if not is_number(text)]
        n_numbers = len(labels) - len(others)
        if not others or n_numbers <= max(MOST_CODES, len(others)):
            return
        row = 0
        for columns in self.source.batches([name]):
            at = pc.index(as_text(columns[name]), others[0]).as_py()
            if at >= 0:
                row += at
                break
            row += len(columns[name])
        raise DataError(
            f"Cannot use column {name!r} of {self.source.name} as y: it holds {n_numbers:,} different"
            f" numbers, and {others[0][:SHOWN]!r} in row {row:,} (counted from 0). Correct it,"
            f" {marks_hint(others[0]) if self.file else ''}or pass --gap {shlex.quote(others[0][:SHOWN])}"
            " --drop-unlabelled to skip such rows."
        )

    def _written_target(self, row: int) -> tuple[str, str]:
        """The target's text in a row where it is missing, and further remedies."""
        text = (
            self.file.first_text(str(self.wishes.target), row)
            if self.file and not self.source.labelled
            else ""
        )
        if not text:
            return "is missing", " or skip such rows with --drop-unlabelled"
        known = text not in self.wishes.gap_texts
        return (
            f"holds {text!r}, which stands for a missing value,",
            ", skip such rows with --drop-unlabelled, or "
            + (f"pass --not-missing {shlex.quote(text)} where it is a value" if known else "omit --gap"),
        )

    def _columns(self) -> list[Column]:
        """The kinds of all columns. Raises DataError for the first ambiguous one, and names others."""
        columns, refusals = list[Column](), dict[str, DataError]()
        for name in self.source.types:
            try:
                columns.append(self._column(name))
            except DataError as error:
                refusals[name] = error
        if refusals:
            (_, first), *others = refusals.items()
            names = listed([repr(name) for name, _ in others], NAMED)
            raise DataError(f"{first} (and {names} likewise)" if others else str(first))
        return columns

    def _column(self, name: str) -> Column:
        wish = self.wishes.of(name)
        if isinstance(wish, Column):
            return wish
        if name in self.surveys:
            words = TEXT_FILE if self.file else COMMAND
            return find_column(self.surveys[name], wish, source=self.source.name, words=words)
        return Boolean(name) if pa.types.is_boolean(self.source.types[name]) else Number(name)

    def _encoded(self, columns: list[Column]) -> Spread:
        """Spread of all features that are not unchanged numbers."""
        spread = Spread(0)
        for column in columns:
            if column.name in self.spreads:
                spread.join(self.spreads[column.name])
            if isinstance(column, Category) and not isinstance(column, Means):
                spread.include(0, column.gap)
            elif column.name in self.surveys and column.name not in self.spreads:
                _include(spread, column, self.surveys[column.name])
        return spread


def given(wishes: Wishes, name: str) -> Column:
    wish = wishes.of(name)
    assert isinstance(wish, Column)
    return wish


def _include(spread: Spread, column: Column, survey: ColumnSurvey) -> None:
    """Include what an inferred column becomes."""
    whole = survey.n_gaps == 0
    if isinstance(column, Boolean):
        spread.include(0, 1, whole=whole)
    elif isinstance(column, Date):
        days = min(survey.first_day, 0), max(survey.last_day, SECONDS_OF_DAY)
        single = max(-days[0], days[1]) < LARGEST_SINGLE
        spread.include(*days, whole=whole and not survey.fine, single=single and not survey.fine)
    else:
        spread.include(0, 0, whole=False, single=survey.n_values == 0)  # decimals, or nothing at all


class _NumbersOfText:
    """Columns of numbers whose values determine the dtype."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.spread = names, Spread(len(names))

    def add(self, columns: Columns) -> None:
        if self.names:
            self.spread.add(side_by_side([columns[name] for name in self.names], np.dtype(np.float64)))

    def check_exact(self, dtype: np.dtype[Any], also: str) -> None:
        """The text of numbers that were rounded is read again (`refuse_rounded`)."""

    def wide(self) -> list[str]:
        """Columns with numbers that may have been rounded."""
        return [self.names[i] for i in self.spread.wide(LARGE)]

    def dtype(self, encoded: Spread) -> np.dtype[Any]:
        """The smallest dtype for these and for other features."""
        both = Spread(0)
        both.join(self.spread)
        both.join(encoded)
        return both.dtype()


class _TypedNumbers:
    """Columns of numbers that keep their dtype."""

    def __init__(self, source: TableRows, names: Sequence[str], do: Callable[[str], str]) -> None:
        self.source, self.names, self.do = source, names, do
        self.n_rows, self.has_nulls = 0, False
        self.inexact: tuple[str, str, str] | None = None
        """An integer that float64 would round: its column, the integer with its row, and the remedy."""

    def add(self, columns: Columns) -> None:
        for name in self.names:
            column = columns[name]
            if pa.types.is_floating(column.type):
                continue
            self.has_nulls = self.has_nulls or column.null_count > 0
            values = arrow_values(column.drop_null())
            wide = values[(values > EXACT_LIMIT) | (values < -EXACT_LIMIT)]
            value = first_rounded(wide.tolist()) if self.inexact is None else None
            if value is not None:
                row = self.n_rows + pc.index(column, pa.scalar(value, column.type)).as_py()
                held = f"{value} in row {row:,} (counted from 0)"
                where = f"column {name!r} of {self.source.name}"
                self.inexact = where, held, self.do(name)
        self.n_rows += len(next(iter(columns.values())))

    def wide(self) -> list[str]:
        return []

    def dtype(self, encoded: Spread) -> np.dtype[Any]:
        dtypes = [np.dtype(self.source.types[name].to_pandas_dtype()) for name in self.names]
        dtype = np.result_type(*dtypes, *([encoded.dtype()] if encoded.low.size else []))
        if self.has_nulls and dtype.kind != "f":
            dtype = np.result_type(dtype, np.float32)
        return dtype

    def check_exact(self, dtype: np.dtype[Any], also: str) -> None:
        """Raise DataError for an integer that a dtype of X rounds.

        also  a further sentence for the message
        """
        if dtype.kind == "f" and self.inexact is not None:
            where, held, do = self.inexact
            raise rounded(where, held, do + also)


def encoded_table(source: TableRows, wishes: Wishes) -> Table:
    """The table of a source; infers what wishes leave open in its schema. Raises DataError if a named column
    is missing, or if a column is ambiguous.
    """
    names = list(source.types)
    check_names(source.name, names)
    for name, wish in wishes.given.items():
        check_there(source.name, [*names, *wishes.absent], name, _purpose(wish))
    for name in wishes.absent:
        if not isinstance(wishes.given.get(name), Column | ColumnRequest):
            raise DataError(
                f"Cannot declare column {name!r} absent: neither --like nor --schema states what it is."
                " Omit --absent."
            )
    rows, findings = find_columns(_selected(source, wishes), wishes)
    return _table(rows, _schema(source, findings.columns, wishes), findings)


def _selected(source: TableRows, wishes: Wishes) -> SelectedRows:
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


def table_like(source: TableRows, schema: Schema, like: str, asked_for: Wishes) -> Table:
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
    features = tuple(dict.fromkeys(column.name for column in schema.sources))
    for name in absent:
        check_there(like, features, name, "declare column {} absent")
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
        raise DataError(
            f"Cannot encode {source.name} like {like}: it lacks the"
            f" column{'s' if len(missing) > 1 else ''} {listed([*map(repr, missing)], NAMED)}. Add what is"
            f" missing, rename it, or pass --absent {as_option(missing[0])} where it is missing in every row"
        )
    id_columns = [Id(name) for name in ids or schema.ids if name in set(names) and name != target]
    taken = {*features, *(column.name for column in id_columns)}
    goal = [Target(name) for name in (target or schema.target,) if name in set(names) - taken]
    followed = (*schema.sources, *goal, *id_columns)
    ignored = [name for name in names if name not in {column.name for column in followed}]
    given: dict[str, Column | ColumnRequest] = {column.name: column for column in followed}
    wishes = replace(
        asked_for,
        target=goal[0].name if goal else None,
        given=given | {name: Dropped(name) for name in ignored},
    )
    read, findings = find_columns(_selected(source, wishes), wishes, schema)
    table = _table(read, _schema(source, followed, wishes), findings)
    known = {column.name for column in schema.columns}
    return replace(table, ignored=tuple(name for name in ignored if name not in known))


def _purpose(wish: Column | ColumnRequest) -> str:
    if isinstance(wish, Target):
        return "use column {} as target"
    if isinstance(wish, Id):
        return "store column {} as id"
    return "drop column {}" if isinstance(wish, Dropped) else f"encode column {{}} as {wish.kind}"


def _schema(source: TableRows, columns: Sequence[Column], wishes: Wishes) -> Schema:
    try:
        return Schema(tuple(columns), wishes.gap_texts, wishes.text)
    except ValueError as error:
        raise DataError(
            f"Cannot import {source.name}: {error}. Rename columns, or omit some with --drop."
        ) from None


def _table(source: SelectedRows, schema: Schema, findings: TableFindings) -> Table:
    encoder = _Encoder(source, schema, findings)
    return Table(
        n_samples=findings.n_rows,
        n_features=len(schema.features),
        dtype=findings.dtype,
        target_dtype=findings.target_dtype,
        labels=findings.labels,
        names=schema.features,
        batches=encoder.batches,
        schema=schema,
        ids={name: column.dtype for name, column in findings.ids.items()},
        unlabelled=source.left_out,
        unlabelled_text=findings.unlabelled_text,
        absent=tuple(name for name in source.absent if name in source.base.types),
        unknown=encoder.unknown,
    )


@dataclass(frozen=True)
class _Encoder:
    """The rows of a source, encoded by a schema."""

    source: SelectedRows
    schema: Schema
    findings: TableFindings
    unknown: dict[str, UnknownCategories] = field(default_factory=dict)

    def batches(self, _rows: int) -> Iterator[Batch]:
        self.unknown.clear()
        target = self.schema.target
        names = [column.name for column in self.schema.columns if not isinstance(column, Dropped)]
        for columns in self.source.batches(names):
            n = len(next(iter(columns.values())))
            X = np.empty((n, len(self.schema.features)), self.findings.dtype)
            for column, span in self.schema.spans:
                X[:, span] = self._encoded(column, columns[column.name])
            y = None if target is None else _target(columns[target], self.findings.labels)
            ids = {name: column.values(columns[name]) for name, column in self.findings.ids.items()}
            yield Batch(X, y, ids)

    def _encoded(self, column: Column, values: Any) -> NDArray[Any]:
        if isinstance(column, Number | Boolean) and is_plain_number(values.type):
            return arrow_values(values)[:, None]
        cells = arrow_cells(values, column.name, self.source.name, self.schema.gap_texts)
        if not isinstance(column, Category):
            return column.encode(cells)
        positions = column.positions(cells)
        if (unknown := unknown_in(column, cells, positions)) is not None:
            before = self.unknown.get(column.name)
            (self.unknown[column.name],) = joined([unknown] if before is None else [before, unknown])
        return column.at(positions)


def _target(column: Any, labels: tuple[str, ...] | None) -> NDArray[Any]:
    return target_values(as_text(column) if is_text_or_levels(column.type) else column, labels)
