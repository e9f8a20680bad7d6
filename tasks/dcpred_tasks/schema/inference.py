"""The kind of a column, inferred from its values: the rules that make a schema."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    TargetCodes,
)
from dcpred_tasks.schema.schema import (
    CODES,
    MOST_CATEGORIES,
    MOST_LETTERS,
    MOST_LEVELS,
    PLAIN_TEXT,
    TARGET,
    Asked,
    TextFormat,
)
from dcpred_tasks.schema.survey import ColumnSurvey

# Categories that become codes without being named: each costs as much as a feature when a row is scored. As
# many as these may make up all rows but a few.
MOST_CODES, MOST_LEFT_OUT = 64, 0.01
# A category of fewer rows, or of a smaller share of them, counts as unknown. Training samples 100,000 rows,
# and makes no column for a category with fewer than ten.
RAREST, RAREST_SHARE = 10, 1e-4
MOST_DIFFERENT = 0.5  # share of distinct texts among rows, above which they do not generalize
SHOWN = 60  # characters of a value in a message
ARRAYS = ("X", "y", "zarr.json")  # reserved names in a data set
# Numbers with marks, and the options that read them; {mark} separates thousands.
MARKS = (
    (re.compile(r"[+-]?\d{1,3}((?P<mark>[.'’ \u00a0\u202f])\d{3})+,\d+"), "--decimal , --thousands {mark}"),
    (re.compile(r"[+-]?\d{1,3}((?P<mark>,)\d{3})"), "--decimal , or --thousands {mark}"),
    (re.compile(r"[+-]?\d{1,3}((?P<mark>[,'’ \u00a0\u202f])\d{3})+(\.\d+)?"), "--thousands {mark}"),
    (re.compile(r"[+-]?\d*(?P<mark>,)\d+"), "--decimal ,"),
)


@dataclass(frozen=True)
class Remedies:
    """Remedies for a column as text, with {name} for it, {option} for it in a shell, and {text} for a value.

    marks  whether options state how numbers are written
    """

    keep: str
    drop: str
    code: str
    names: str
    gap: str
    marks: bool = False


COMMAND = Remedies(
    keep="keep it beside X with --id {option}, ",
    drop="leave it out with --drop {option}",
    code="code its frequent values with --categorical {option}",
    names="declare its values as names with --categorical {option}",
    gap="declare this as a missing value with --gap {text!r}, ",
)
TEXT_FILE = replace(COMMAND, marks=True)
ESTIMATOR = Remedies(
    keep="",
    drop="leave it out of X",
    code="encode its frequent values with categorical=['auto', {name!r}]",
    names="declare its values as names with categorical=['auto', {name!r}]",
    gap="make it a missing value, ",
)


@dataclass(frozen=True)
class Wishes:
    """The requests of the user for columns, by name; the rest is inferred.

    given      columns as requested, or only their kind
    gap_texts  texts of missing values
    text       how a text file writes values
    absent     columns that are missing in every row
    labelled   whether rows without a target are omitted
    """

    target: str | None = None
    given: Mapping[str, Column | Asked] = field(default_factory=dict)
    gap_texts: tuple[str, ...] = ()
    text: TextFormat = PLAIN_TEXT
    absent: tuple[str, ...] = ()
    labelled: bool = False

    def of(self, name: str) -> Column | Asked | None:
        return Target(name) if name == self.target else self.given.get(name)


def wishes(
    target: str | None = None,
    categorical: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    ids: tuple[str, ...] = (),
    given: Mapping[str, Column | Asked] | None = None,
    gap_texts: tuple[str, ...] = (),
) -> Wishes:
    """Requests from named columns. Raises DataError for a column that is named twice."""
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
                f"Cannot use column {name!r} as {asked[name].kind} and as {wish.kind}. Name it once."
            )
        asked[name] = wish
    target = next((name for name, wish in asked.items() if isinstance(wish, Target)), None)
    return Wishes(target, asked, gap_texts)


def find_column(
    survey: ColumnSurvey, wish: Asked | None, *, source: str, words: Remedies = COMMAND
) -> Column:
    """Infer the kind of a column.

    wish    the request of the user
    source  the name of the table in messages, with remedies from `words`

    Raises DataError where the kind is ambiguous.
    """
    return _Finder(survey, f"column {survey.name!r} of {source}", words).column(wish)


def as_option(name: str) -> str:
    """The name of a column, quoted for a shell option with a list of names."""
    quoted = '"' + name.replace('"', '""') + '"' if set(name) & {",", '"'} else name
    return shlex.quote(quoted)


def can_be_kept(name: str) -> bool:
    """Whether the name of a column can name an array of a data set."""
    return not ("/" in name or name.startswith(("__", ".")) or name in ARRAYS)


def marks_hint(text: str) -> str:
    """The options that read a number with marks, as the start of a list; empty for other text."""
    for pattern, options in MARKS:
        if found := pattern.fullmatch(text):
            return f"pass {options.format(mark=shlex.quote(found['mark']))} where numbers are written so, "
    return ""


@dataclass(frozen=True)
class _Finder:
    """The rules, for one column."""

    survey: ColumnSurvey
    where: str
    words: Remedies

    def column(self, wish: Asked | None) -> Column:
        survey, kind = self.survey, self._kind()
        if wish is not None:
            return self._asked(wish, kind)
        if kind == TEXT:
            if survey.all_boolean:
                return Boolean(survey.name)
            self._refuse_mixed()
            kind = DATE if survey.all_dates else kind
        if kind == DATE:
            return self._date()
        if kind in (NUMBER, BOOLEAN):
            return Number(survey.name) if kind == NUMBER else Boolean(survey.name)
        return self._category()

    def _asked(self, wish: Asked, kind: str) -> Column:
        if wish.kind == DATE:
            if kind != DATE and not (kind == TEXT and self.survey.all_dates):
                held = self.survey.first_undated or (0, self.survey.kinds.get(kind, "nothing"))
                raise DataError(
                    f"Cannot use {self.where} as dates: {held[1][:SHOWN]!r} is not a date of ISO 8601. Write"
                    " dates as 2024-12-31 or 2024-12-31T23:59:59Z, or use the column as something else."
                )
            return self._date()
        if kind == DATE:
            raise DataError(
                f"Cannot use {self.where} as categories: it holds dates ({self.survey.kinds[kind]!r}). Do not"
                " name it as such, or write it as text."
            )
        if wish.encoding == TARGET:
            return self._target_codes(asked=True)
        return self._codes() if wish.encoding == CODES else self._category()

    def _kind(self) -> str:
        kinds = self.survey.kinds
        if kinds.keys() == {TEXT, CATEGORY}:
            return CATEGORY
        if len(kinds) > 1:
            a, b = sorted(kinds)[:2]
            raise DataError(
                f"Cannot use {self.where}: it holds {IN_WORDS[a]} ({kinds[a]!r}) and {IN_WORDS[b]}"
                f" ({kinds[b]!r}). Make it one of them."
            )
        return next(iter(kinds), NUMBER)

    def _date(self) -> Date:
        parts = DATE_PARTS if self.survey.timed else tuple(p for p in DATE_PARTS if p != SECOND)
        return Date(self.survey.name, parts)

    def _category(self) -> Column:
        """Codes for few categories, target codes for many."""
        survey = self.survey
        if not (survey.too_many or survey.too_long):
            kept = self._kept()
            rows = sum(survey.counts[level] for level in kept)
            covered = rows >= (1 - MOST_LEFT_OUT) * survey.n_values
            if len(survey.counts) <= MOST_CODES or (len(kept) <= MOST_CODES and covered):
                return self._codes()
        return self._target_codes()

    def _codes(self) -> Codes:
        """The categories that are not rare, in order; the most frequent ones above the limit."""
        self._check_countable()
        return Codes(self.survey.name, _in_order(self._kept()[:MOST_CATEGORIES]))

    def _kept(self) -> list[Level]:
        """The categories that are not rare, the most frequent first."""
        counts = self.survey.counts
        least = min(max(RAREST, RAREST_SHARE * self.survey.n_rows), max(counts.values(), default=0))
        kept = [level for level, n in counts.items() if n >= least]
        return sorted(kept, key=lambda level: (-counts[level], str(level)))

    def _target_codes(self, *, asked: bool = False) -> TargetCodes:
        survey, words = self.survey, self.words
        self._check_countable()
        n = len(survey.counts)
        if not asked and n > MOST_DIFFERENT * survey.n_values:
            raise DataError(
                f"Cannot use {self.where}: its {n:,} different values in {survey.n_values:,} rows do not"
                f" generalize to other rows. {self._start(self._keep + words.drop)}, or"
                f" {self._do(words.code)}."
            )
        return TargetCodes(survey.name, _in_order(list(survey.counts)))

    def _check_countable(self) -> None:
        survey = self.survey
        if survey.too_many or survey.too_long:
            so = (
                f"more than {MOST_LEVELS:,} different values"
                if survey.too_many
                else f"texts of more than {MOST_LETTERS:,} characters"
            )
            raise DataError(
                f"Cannot use {self.where} as categories: it holds {so}."
                f" {self._start(self._keep + self.words.drop)}."
            )

    def _refuse_mixed(self) -> None:
        """Raise DataError for text that mostly is numbers or dates, in any notation; a few distinct plain
        numbers may be names.
        """
        survey = self.survey
        half = survey.n_values / 2
        if survey.n_other_dates >= half:
            raise DataError(
                f"Cannot use {self.where}: it holds what may be dates, but day and month of"
                f" {survey.other_date[:SHOWN]!r} are ambiguous. Write dates as 2024-12-31 (ISO 8601),"
                f" {self._do(self.words.drop)}, or {self._do(self.words.names)}."
            )
        if survey.other_number and survey.n_numbers + survey.n_other_numbers >= half:
            marks = marks_hint(survey.other_number) if self.words.marks else ""
            raise DataError(
                f"Cannot use {self.where}: it holds numbers with signs or separators"
                f" ({survey.other_number[:SHOWN]!r}). Write them as 1234.5,"
                f" {marks}{self._do(self.words.drop)}, or {self._do(self.words.names)}."
            )
        for n, other, what in (
            (survey.n_numbers, survey.first_other, "numbers"),
            (survey.n_dates, survey.first_undated, "dates"),
        ):
            if n >= half and other is not None:
                row, text = other[0], other[1][:SHOWN]
                raise DataError(
                    f"Cannot use {self.where}: it holds {what} in most rows, but {text!r} in row {row:,}"
                    f" (counted from 0). Correct it, {self._do(self.words.gap, text)}or"
                    f" {self._do(self.words.names)}."
                )
        few = not survey.too_many and len(survey.counts) <= MOST_CODES
        if survey.n_numbers == survey.n_values and not few:
            raise DataError(
                f"Cannot use {self.where}: it holds numbers as text. Make them numbers, or"
                f" {self._do(self.words.names)}."
            )

    @property
    def _keep(self) -> str:
        return self.words.keep if can_be_kept(self.survey.name) else ""

    def _start(self, template: str) -> str:
        remedy = self._do(template)
        return remedy[0].upper() + remedy[1:]

    def _do(self, template: str, text: str = "") -> str:
        return template.format(name=self.survey.name, option=as_option(self.survey.name), text=text)


def _in_order(levels: list[Level]) -> tuple[Level, ...]:
    """Text and numbers, each in order, with text that is written as numbers among these. With
    both, numbers become text.
    """
    texts = [level for level in levels if isinstance(level, str)]
    if not all(is_number(text) and number_level(float(text)) == text for text in texts):
        return tuple(sorted({str(level) for level in levels}))
    return tuple(sorted({plain_level(float(x) if isinstance(x, str) else x) for x in levels}))
