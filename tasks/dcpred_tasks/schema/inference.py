"""What a column is, told from its values: the rules by which a schema is made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.cells import (
    BOOLEAN,
    CATEGORY,
    DATE,
    IN_WORDS,
    NUMBER,
    TEXT,
    is_number,
    number_level,
    plain_level,
)
from dcpred_tasks.schema.column import (
    DATE_PARTS,
    SECOND,
    Boolean,
    Codes,
    Column,
    Date,
    Dropped,
    Id,
    Level,
    Number,
    Target,
)
from dcpred_tasks.schema.schema import CODES, MEANS, MOST_CATEGORIES, MOST_LETTERS, MOST_LEVELS, Asked
from dcpred_tasks.schema.survey import ColumnSurvey

# Categories that become codes without being named: each costs as much as a feature when a row is scored. As
# many as these may make up all rows but a few.
MOST_CODES, MOST_LEFT_OUT = 64, 0.01
# A category of fewer rows, or of a smaller share of them, is as those that are not known. Training looks at
# 100,000 rows, and makes no column for a code that it meets in fewer than ten.
RAREST, RAREST_SHARE = 10, 1e-4
MOST_DIFFERENT = 0.5  # different texts among rows, from which on these tell nothing of new rows
OTHER_DATES = re.compile(r"[0-9]{1,4}([./-])[0-9]{1,2}\1[0-9]{1,4}([ T].*)?")


@dataclass(frozen=True)
class Wishes:
    """What was said of columns, by name; an import finds the rest.

    given  columns as they are to be, or their kind alone
    """

    target: str | None = None
    given: Mapping[str, Column | Asked] = field(default_factory=dict)

    def of(self, name: str) -> Column | Asked | None:
        return Target(name) if name == self.target else self.given.get(name)


def wishes(
    target: str | None = None,
    categorical: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    ids: tuple[str, ...] = (),
    given: Mapping[str, Column | Asked] | None = None,
) -> Wishes:
    """Wishes from what was named. Raises DataError for a column that is named for two things."""
    asked: dict[str, Column | Asked] = {}
    named: list[tuple[str, Column | Asked]] = [
        *((name, Asked(name, Codes.kind, CODES)) for name in categorical),
        *((name, Dropped(name)) for name in drop),
        *((name, Id(name)) for name in ids),
        *([(target, Target(target))] if target is not None else []),
    ]
    for name, wish in [*(given or {}).items(), *named]:
        if name in asked and asked[name] != wish:
            raise DataError(
                f"column {name!r} was named as {asked[name].kind} and as {wish.kind}, but it is one thing;"
                " name it once"
            )
        asked[name] = wish
    target = next((name for name, wish in asked.items() if isinstance(wish, Target)), None)
    return Wishes(target, asked)


def find_column(survey: ColumnSurvey, wish: Asked | None, *, has_target: bool, source: str) -> Column | Asked:
    """What a column is. An `Asked` with the encoding MEANS comes back where means are to be fitted.

    wish    what was said of it
    source  what the table is called, for messages
    Raises DataError where it cannot be told, and where means would need a target.
    """
    where = f"column {survey.name!r} of {source}"
    if wish is not None:
        return _asked(survey, wish, has_target, where)
    kind = _kind(survey, where)
    if kind == NUMBER:
        return Number(survey.name)
    if kind == BOOLEAN:
        return Boolean(survey.name)
    if kind == DATE:
        return _date(survey)
    if kind == TEXT:
        if survey.all_boolean and set(survey.counts):
            return Boolean(survey.name)
        if survey.all_dates:
            return _date(survey)
        if survey.n_numbers >= survey.n_values / 2:
            _refuse_numbers(survey, where)
    if survey.too_many or survey.too_long or len(survey.counts) > MOST_CODES:
        kept = [] if survey.too_many or survey.too_long else _kept(survey)
        if len(kept) > MOST_CODES or _rows_of(survey, kept) < (1 - MOST_LEFT_OUT) * survey.n_values:
            return _means(survey, has_target, where)
    return _codes(survey)


def _asked(survey: ColumnSurvey, wish: Asked, has_target: bool, where: str) -> Column | Asked:
    if wish.kind == DATE:
        kind = _kind(survey, where)
        if kind != DATE and not (kind == TEXT and survey.all_dates):
            raise DataError(
                f"{where} was to be dates, but it holds {_example(survey, kind)}, which is none of ISO 8601;"
                " write them as 2024-12-31 or 2024-12-31T23:59:59Z, or have it as something else"
            )
        return _date(survey)
    kind = _kind(survey, where)
    if kind == DATE:
        raise DataError(
            f"{where} was to be categories, but it holds {IN_WORDS[kind]} such as {survey.kinds[kind]!r};"
            " leave it out of the categories, or write it as text"
        )
    if wish.encoding == MEANS:
        return _means(survey, has_target, where, asked=True)
    _check_countable(survey, where)
    return _codes(survey)


def _kind(survey: ColumnSurvey, where: str) -> str:
    kinds = set(survey.kinds)
    if kinds == {TEXT, CATEGORY}:
        return CATEGORY
    if len(kinds) > 1:
        a, b = sorted(kinds)[:2]
        raise DataError(
            f"{where} holds {IN_WORDS[a]} such as {survey.kinds[a]!r} and {IN_WORDS[b]} such as"
            f" {survey.kinds[b]!r}; make it one of them"
        )
    return next(iter(kinds), NUMBER)


def _example(survey: ColumnSurvey, kind: str) -> str:
    return f"{IN_WORDS[kind]} such as {survey.kinds[kind]!r}" if kind in survey.kinds else "nothing"


def _date(survey: ColumnSurvey) -> Date:
    return Date(survey.name, DATE_PARTS if survey.timed else tuple(p for p in DATE_PARTS if p != SECOND))


def _codes(survey: ColumnSurvey) -> Codes:
    """The categories that are not rare, in order; where they are more than can be, the most frequent."""
    return Codes(survey.name, _in_order(_kept(survey)[:MOST_CATEGORIES]))


def _kept(survey: ColumnSurvey) -> list[Level]:
    """The categories that are not rare, the most frequent first."""
    counts = survey.counts
    least = min(max(RAREST, RAREST_SHARE * survey.n_rows), max(counts.values(), default=0))
    kept = [level for level, n in counts.items() if n >= least]
    return sorted(kept, key=lambda level: (-counts[level], str(level)))


def _rows_of(survey: ColumnSurvey, levels: list[Level]) -> int:
    return sum(survey.counts[level] for level in levels)


def _in_order(levels: list[Level]) -> tuple[Level, ...]:
    """Text in its order, numbers in theirs, text that is written as numbers are among them. Where there are
    both, numbers become text.
    """
    texts = [level for level in levels if isinstance(level, str)]
    if not all(is_number(text) and number_level(float(text)) == text for text in texts):
        return tuple(sorted({str(level) for level in levels}))
    return tuple(sorted({plain_level(float(level)) for level in levels}))


def means_levels(survey: ColumnSurvey) -> tuple[Level, ...]:
    """The categories of a column whose means are to be fitted, in order."""
    return _in_order(list(survey.counts))


def _means(survey: ColumnSurvey, has_target: bool, where: str, *, asked: bool = False) -> Asked:
    name = survey.name
    if not asked and survey.first_other is not None and OTHER_DATES.fullmatch(survey.first_other[1]):
        raise DataError(
            f"{where} holds what may be dates, as {survey.first_other[1]!r}, but does not say which number is"
            f" the day; write them as 2024-12-31 (ISO 8601), or leave it out with --drop {name}"
        )
    _check_countable(survey, where)
    if not asked and len(survey.counts) > MOST_DIFFERENT * survey.n_values:
        raise DataError(
            f"{where} holds {len(survey.counts):,} different texts in {survey.n_values:,} rows, which tell"
            f" nothing of other rows; keep it beside X with --id {name}, leave it out with --drop {name}, or"
            f" code its frequent values with --categorical {name}"
        )
    if not has_target:
        raise DataError(
            f"{where} holds {len(survey.counts):,} different categories, more than the {MOST_CODES} that"
            " become codes by themselves, and means of the target would take their place; name the target"
            f" with --target, follow a model with --like MODEL, leave the column out with --drop {name}, or"
            f" code its frequent values with --categorical {name}"
        )
    return Asked(name, Codes.kind, MEANS)


def _check_countable(survey: ColumnSurvey, where: str) -> None:
    if survey.too_many or survey.too_long:
        so = (
            f"more than {MOST_LEVELS:,} different values"
            if survey.too_many
            else f"texts of more than {MOST_LETTERS:,} letters"
        )
        raise DataError(
            f"{where} holds {so}, which are no categories; keep it beside X with --id {survey.name}, or leave"
            f" it out with --drop {survey.name}"
        )


def _refuse_numbers(survey: ColumnSurvey, where: str) -> None:
    """Raise DataError for text that is mostly written as numbers, unless it is a few numbers only."""
    name = survey.name
    if survey.first_other is None:
        if not survey.too_many and len(survey.counts) <= MOST_CODES:
            return
        raise DataError(
            f"{where} holds numbers as text; make them numbers, or say with --categorical {name} that they"
            " are names of categories"
        )
    row, text = survey.first_other
    raise DataError(
        f"{where} holds numbers in most rows, and {text[:60]!r} in row {row:,} (counted from"
        f" 0); correct it, say with --gap {text[:60]!r} that this stands for a gap, or with --categorical"
        f" {name} that its values are names"
    )
