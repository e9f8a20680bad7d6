"""Survey the columns of a table, and infer their types."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.column import (
    BOOLEAN,
    CATEGORY,
    DATE,
    DATE_DTYPE,
    DATE_PARTS,
    IN_WORDS,
    NUMBER,
    SECOND,
    TEXT,
    Boolean,
    Cells,
    Codes,
    Column,
    Date,
    Dropped,
    Id,
    Level,
    Number,
    Target,
    TargetCodes,
    as_boolean,
    as_date,
    is_number,
    is_other_date,
    is_other_number,
    number_level,
    plain_level,
    zones,
)
from dcpred_tasks.schema.schema import (
    CODES,
    MOST_CATEGORIES,
    MOST_LETTERS,
    MOST_LEVELS,
    PLAIN_TEXT,
    TARGET,
    ColumnRequest,
    TextFormat,
)


class ColumnSurvey:
    """A survey of the values of one column.

    counts_numbers  whether numbers are counted as categories: the user named the column as one
    """

    def __init__(self, name: str, *, counts_numbers: bool = False) -> None:
        self.name, self.counts_numbers = name, counts_numbers
        self.n_rows = self.n_gaps = 0
        self.kinds: dict[str, str] = {}
        """The kinds of cells found, with an example of each."""
        self.counts: Counter[Any] = Counter()
        """Rows of each distinct value, up to MOST_LEVELS values."""
        self.too_many = self.too_long = False
        self.n_numbers = 0
        """Rows of text that is a number."""
        self.first_other: tuple[int, str] | None = None
        """The first row of other text, and its text."""
        self.n_dates = 0
        """Rows of text that is a date of ISO 8601."""
        self.first_undated: tuple[int, str] | None = None
        """The first row of other text, and its text."""
        self.n_other_numbers = self.n_other_dates = 0
        """Rows of text that people may read as numbers or dates."""
        self.other_number = self.other_date = ""
        """The first such text."""
        self.all_boolean = True
        """Whether all text is true or false."""
        self.timed = self.fine = False
        """Whether a date has a time, and one with a part of a second."""
        self.zoned: frozenset[bool] = frozenset()
        """Whether dates have a time zone, one item for each kind."""
        self.first_day, self.last_day = np.inf, -np.inf

    def add(self, cells: Cells) -> None:
        first_row = self.n_rows
        self.n_rows += len(cells)
        self.n_gaps += int(cells.gap.sum())
        if cells.gap.all():
            return
        self.kinds.setdefault(cells.kind, str(cells.example()))
        if cells.kind in (TEXT, CATEGORY):
            self._add_levels(cells, first_row)
        elif cells.kind == DATE:
            self.zoned |= cells.zoned
            self._add_dates(cells.values[~cells.gap])
        elif self.counts_numbers:
            levels, counts = np.unique(cells.values[~cells.gap], return_counts=True)
            self._count({plain_level(level): int(n) for level, n in zip(levels, counts, strict=True)})

    def _add_levels(self, cells: Cells, first_row: int) -> None:
        there, plain = Counter[Any](), Counter[Any]()
        for level, n in zip(cells.levels, cells.counts, strict=True):
            if n:
                there[level] += int(n)
                plain[plain_level(level)] += int(n)
        self._count(plain)
        texts = [level for level in there if isinstance(level, str)]
        written = {text for text in texts if is_number(text)}
        dated = {text: date for text in texts if (date := as_date(text)) is not None}
        self.n_numbers += sum(there[text] for text in written)
        self.n_dates += sum(there[text] for text in dated)
        self.first_other = self.first_other or _first(cells, set(texts) - written, first_row)
        self.first_undated = self.first_undated or _first(cells, set(texts) - dated.keys(), first_row)
        self.all_boolean = self.all_boolean and all(as_boolean(text) is not None for text in texts)
        odd_numbers = [text for text in texts if is_other_number(text)]
        odd_dates = [text for text in texts if is_other_date(text)]
        self.n_other_numbers += sum(there[text] for text in odd_numbers)
        self.n_other_dates += sum(there[text] for text in odd_dates)
        self.other_number = self.other_number or next(iter(odd_numbers), "")
        self.other_date = self.other_date or next(iter(odd_dates), "")
        self.zoned |= zones(list(dated))
        self._add_dates(np.array(list(dated.values()), DATE_DTYPE))

    def _add_dates(self, instants: Any) -> None:
        if not len(instants):
            return
        days = instants.astype("datetime64[D]")
        within = instants - days
        self.timed = self.timed or bool((within != 0).any())
        self.fine = self.fine or bool((within % np.timedelta64(1, "s") != 0).any())
        numbers = days.astype(np.int64)
        self.first_day = min(self.first_day, float(numbers.min()))
        self.last_day = max(self.last_day, float(numbers.max()))

    def _count(self, rows: dict[Any, int]) -> None:
        self.too_long = self.too_long or any(
            isinstance(level, str) and len(level) > MOST_LETTERS for level in rows
        )
        if self.too_many or self.too_long:
            return
        self.counts.update(rows)
        if len(self.counts) > MOST_LEVELS:
            self.too_many, self.counts = True, Counter()

    def join(self, later: "ColumnSurvey") -> None:
        """Join the survey of the following rows."""
        self.first_other = self.first_other or _moved(later.first_other, self.n_rows)
        self.first_undated = self.first_undated or _moved(later.first_undated, self.n_rows)
        self.n_rows += later.n_rows
        self.n_gaps += later.n_gaps
        self.n_numbers += later.n_numbers
        self.n_dates += later.n_dates
        self.n_other_numbers += later.n_other_numbers
        self.n_other_dates += later.n_other_dates
        self.other_number = self.other_number or later.other_number
        self.other_date = self.other_date or later.other_date
        self.kinds = later.kinds | self.kinds
        self.all_boolean = self.all_boolean and later.all_boolean
        self.timed, self.fine = self.timed or later.timed, self.fine or later.fine
        self.zoned |= later.zoned
        self.first_day = min(self.first_day, later.first_day)
        self.last_day = max(self.last_day, later.last_day)
        self.too_many, self.too_long = self.too_many or later.too_many, self.too_long or later.too_long
        self._count(dict(later.counts))
        if self.too_many:
            self.counts = Counter()

    @property
    def n_values(self) -> int:
        """Rows with a value."""
        return self.n_rows - self.n_gaps

    @property
    def all_dates(self) -> bool:
        """Whether the column has text, all of it dates."""
        return self.n_dates > 0 and self.first_undated is None


def _first(cells: Cells, texts: set[str], first_row: int) -> tuple[int, str] | None:
    """The first row with one of these texts, and its text."""
    if not texts:
        return None
    wanted = np.array([level in texts for level in cells.levels] + [False])
    row = int(np.flatnonzero(wanted[cells.values])[0])
    return first_row + row, str(cells.levels[int(cells.values[row])])


def _moved(first: tuple[int, str] | None, n_rows: int) -> tuple[int, str] | None:
    return None if first is None else (first[0] + n_rows, first[1])


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
    given: Mapping[str, Column | ColumnRequest] = field(default_factory=dict)
    gap_texts: tuple[str, ...] = ()
    text: TextFormat = PLAIN_TEXT
    absent: tuple[str, ...] = ()
    labelled: bool = False

    def of(self, name: str) -> Column | ColumnRequest | None:
        return Target(name) if name == self.target else self.given.get(name)


def wishes(
    target: str | None = None,
    categorical: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    ids: tuple[str, ...] = (),
    given: Mapping[str, Column | ColumnRequest] | None = None,
    gap_texts: tuple[str, ...] = (),
) -> Wishes:
    """Requests from named columns. Raises DataError for a column that is named twice."""
    asked: dict[str, Column | ColumnRequest] = {}
    named: list[tuple[str, Column | ColumnRequest]] = [
        *((name, ColumnRequest(name, Codes.kind, CODES)) for name in categorical),
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
    survey: ColumnSurvey, wish: ColumnRequest | None, *, source: str, words: Remedies = COMMAND
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
        if match := pattern.fullmatch(text):
            return f"pass {options.format(mark=shlex.quote(match['mark']))} where numbers are written so, "
    return ""


@dataclass(frozen=True)
class _Finder:
    """The rules, for one column."""

    survey: ColumnSurvey
    where: str
    words: Remedies

    def column(self, wish: ColumnRequest | None) -> Column:
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

    def _asked(self, wish: ColumnRequest, kind: str) -> Column:
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
        zoned = next(iter(self.survey.zoned)) if len(self.survey.zoned) == 1 else None
        return Date(self.survey.name, parts, zoned)

    def _category(self) -> Column:
        """Codes for few categories, target codes for many."""
        survey = self.survey
        if not (survey.too_many or survey.too_long):
            categories = self._frequent()
            rows = sum(survey.counts[level] for level in categories)
            covered = rows >= (1 - MOST_LEFT_OUT) * survey.n_values
            if len(survey.counts) <= MOST_CODES or (len(categories) <= MOST_CODES and covered):
                return self._codes()
        return self._target_codes()

    def _codes(self) -> Codes:
        """The categories that are not rare, in order; the most frequent ones above the limit."""
        self._check_countable()
        return Codes(self.survey.name, _in_order(self._frequent()[:MOST_CATEGORIES]))

    def _frequent(self) -> list[Level]:
        """The categories that are not rare, the most frequent first."""
        counts = self.survey.counts
        least = min(max(RAREST, RAREST_SHARE * self.survey.n_rows), max(counts.values(), default=0))
        frequent = [level for level, n in counts.items() if n >= least]
        return sorted(frequent, key=lambda level: (-counts[level], str(level)))

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
        """Raise DataError for text that mostly is numbers or dates; a few plain numbers may be names."""
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
    """Text and numbers, each in order, with numbers in text among these. With both, numbers become text."""
    texts = [level for level in levels if isinstance(level, str)]
    if not all(is_number(text) and number_level(float(text)) == text for text in texts):
        return tuple(sorted({str(level) for level in levels}))
    return tuple(sorted({plain_level(float(x) if isinstance(x, str) else x) for x in levels}))
