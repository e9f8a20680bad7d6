"""What a column is, told from its values: the rules by which a schema is made."""

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
# A category of fewer rows, or of a smaller share of them, is as those that are not known. Training looks at
# 100,000 rows, and makes no column for a code that it meets in fewer than ten.
RAREST, RAREST_SHARE = 10, 1e-4
MOST_DIFFERENT = 0.5  # different texts among rows, from which on these tell nothing of new rows
SHOWN = 60  # letters of a value in a message
ARRAYS = ("X", "y", "zarr.json")  # names in a data set that no column can have
# Numbers with marks, and the options by which they are read; {mark} is what stands between thousands.
MARKS = (
    (re.compile(r"[+-]?\d{1,3}((?P<mark>[.'’ \u00a0\u202f])\d{3})+,\d+"), "--decimal , --thousands {mark}"),
    (re.compile(r"[+-]?\d{1,3}((?P<mark>,)\d{3})"), "--decimal , or --thousands {mark}"),
    (re.compile(r"[+-]?\d{1,3}((?P<mark>[,'’ \u00a0\u202f])\d{3})+(\.\d+)?"), "--thousands {mark}"),
    (re.compile(r"[+-]?\d*(?P<mark>,)\d+"), "--decimal ,"),
)


@dataclass(frozen=True)
class Words:
    """What a user can do about a column, in words, with {name} for it, {option} for it in a shell, and {text}
    for a value.

    marks  whether options state how numbers are written
    """

    keep: str
    drop: str
    code: str
    names: str
    gap: str
    marks: bool = False


COMMAND = Words(
    keep="keep it beside X with --id {option}, ",
    drop="leave it out with --drop {option}",
    code="code its frequent values with --categorical {option}",
    names="say with --categorical {option} that its values are names",
    gap="say with --gap {text!r} that this stands for a gap, ",
)
TEXT_FILE = replace(COMMAND, marks=True)
ESTIMATOR = Words(
    keep="",
    drop="leave it out of X",
    code="have its frequent values coded by categorical=['auto', {name!r}]",
    names="say by categorical=['auto', {name!r}] that its values are names",
    gap="make it a missing value, ",
)


@dataclass(frozen=True)
class Wishes:
    """What was said of columns, by name; the rest is found.

    given      columns as they are to be, or their kind alone
    gap_texts  what stands for a gap in text
    text       how a text file writes values
    absent     columns that are missing in every row
    labelled   whether rows without a target are left out
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
    return Wishes(target, asked, gap_texts)


def find_column(survey: ColumnSurvey, wish: Asked | None, *, source: str, words: Words = COMMAND) -> Column:
    """What a column is.

    wish    what was said of it
    source  what the table is called, for messages, which say in `words` what to do
    Raises DataError where it cannot be told.
    """
    return _Finder(survey, f"column {survey.name!r} of {source}", words).column(wish)


def as_option(name: str) -> str:
    """The name of a column as a shell takes it in an option that lists names between commas."""
    quoted = '"' + name.replace('"', '""') + '"' if set(name) & {",", '"'} else name
    return shlex.quote(quoted)


def can_be_kept(name: str) -> bool:
    """Whether an array of a data set can have the name of a column."""
    return not ("/" in name or name.startswith(("__", ".")) or name in ARRAYS)


def marks_hint(text: str) -> str:
    """The options that read a number with marks, as the beginning of a list; empty for other text."""
    for pattern, options in MARKS:
        if found := pattern.fullmatch(text):
            return f"pass {options.format(mark=shlex.quote(found['mark']))} where numbers are written so, "
    return ""


@dataclass(frozen=True)
class _Finder:
    """The rules, for one column."""

    survey: ColumnSurvey
    where: str
    words: Words

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
                    f"{self.where} was to be dates, but it holds {held[1][:SHOWN]!r}, which is not a date of"
                    " ISO 8601; write dates as 2024-12-31 or 2024-12-31T23:59:59Z, or have the column as"
                    " something else"
                )
            return self._date()
        if kind == DATE:
            raise DataError(
                f"{self.where} was to be categories, but it holds dates such as {self.survey.kinds[kind]!r};"
                " do not name it as such, or write it as text"
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
                f"{self.where} holds {IN_WORDS[a]} such as {kinds[a]!r} and {IN_WORDS[b]} such as"
                f" {kinds[b]!r}; make it one of them"
            )
        return next(iter(kinds), NUMBER)

    def _date(self) -> Date:
        parts = DATE_PARTS if self.survey.timed else tuple(p for p in DATE_PARTS if p != SECOND)
        return Date(self.survey.name, parts)

    def _category(self) -> Column:
        """Codes of few categories, and of many those that training replaces by means of the target."""
        survey = self.survey
        if not (survey.too_many or survey.too_long):
            kept = self._kept()
            rows = sum(survey.counts[level] for level in kept)
            covered = rows >= (1 - MOST_LEFT_OUT) * survey.n_values
            if len(survey.counts) <= MOST_CODES or (len(kept) <= MOST_CODES and covered):
                return self._codes()
        return self._target_codes()

    def _codes(self) -> Codes:
        """The categories that are not rare, in order; where they are more than can be, the most frequent."""
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
                f"{self.where} holds {n:,} different values in {survey.n_values:,} rows, which tell nothing"
                f" of other rows; {self._do(self._keep + words.drop)}, or {self._do(words.code)}"
            )
        return TargetCodes(survey.name, _in_order(list(survey.counts)))

    def _check_countable(self) -> None:
        survey = self.survey
        if survey.too_many or survey.too_long:
            so = (
                f"more than {MOST_LEVELS:,} different values"
                if survey.too_many
                else f"texts of more than {MOST_LETTERS:,} letters"
            )
            raise DataError(
                f"{self.where} holds {so}, which are no categories; {self._do(self._keep + self.words.drop)}"
            )

    def _refuse_mixed(self) -> None:
        """Raise DataError for text that mostly is numbers or dates, in whatever way it is written; a few
        different plain numbers may be names.
        """
        survey = self.survey
        half = survey.n_values / 2
        if survey.n_other_dates >= half:
            raise DataError(
                f"{self.where} holds what may be dates, as {survey.other_date[:SHOWN]!r}, but does not say"
                " which number is the day; write them as 2024-12-31 (ISO 8601),"
                f" {self._do(self.words.drop)}, or {self._do(self.words.names)}"
            )
        if survey.other_number and survey.n_numbers + survey.n_other_numbers >= half:
            marks = marks_hint(survey.other_number) if self.words.marks else ""
            raise DataError(
                f"{self.where} holds numbers with signs or separators, as {survey.other_number[:SHOWN]!r};"
                f" {marks}write them as 1234.5, {self._do(self.words.drop)}, or {self._do(self.words.names)}"
            )
        for n, other, what in (
            (survey.n_numbers, survey.first_other, "numbers"),
            (survey.n_dates, survey.first_undated, "dates"),
        ):
            if n >= half and other is not None:
                row, text = other[0], other[1][:SHOWN]
                raise DataError(
                    f"{self.where} holds {what} in most rows, and {text!r} in row {row:,} (counted from 0);"
                    f" correct it, {self._do(self.words.gap, text)}or {self._do(self.words.names)}"
                )
        few = not survey.too_many and len(survey.counts) <= MOST_CODES
        if survey.n_numbers == survey.n_values and not few:
            raise DataError(
                f"{self.where} holds numbers as text; make them numbers, or {self._do(self.words.names)}"
            )

    @property
    def _keep(self) -> str:
        return self.words.keep if can_be_kept(self.survey.name) else ""

    def _do(self, template: str, text: str = "") -> str:
        return template.format(name=self.survey.name, option=as_option(self.survey.name), text=text)


def _in_order(levels: list[Level]) -> tuple[Level, ...]:
    """Text in its order, numbers in theirs, text that is written as numbers are among them. Where there are
    both, numbers become text.
    """
    texts = [level for level in levels if isinstance(level, str)]
    if not all(is_number(text) and number_level(float(text)) == text for text in texts):
        return tuple(sorted({str(level) for level in levels}))
    return tuple(sorted({plain_level(float(x) if isinstance(x, str) else x) for x in levels}))
