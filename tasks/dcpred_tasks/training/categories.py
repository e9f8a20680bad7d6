"""Categories: one-hot encoding and target encoding."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.one_hot import LARGEST_CODE, LARGEST_TABLE, WIDEST_RANGE
from dcpred_tasks.model.target_encoding import TargetEncoding
from dcpred_tasks.schema.column import TargetCodes
from dcpred_tasks.schema.schema import MOST_NUMBERS, Schema
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.settings import AUTO, MISSING, NONE, OF_FEATURES, Settings, as_text, numbers, parts
from dcpred_tasks.training.survey import Survey

MOST_VALUES = 256  # distinct values of a one-hot encoded feature
LARGEST_FEATURE = 10**6  # largest number of a span, which bounds the memory for named features
# Fewest distinct values of a candidate of a search, and most columns of all candidates together.
FEWEST_AUTO, MOST_COLUMNS = 3, 512
FIRST_ROWS = 4_096  # rows whose values decide whether a feature may be a candidate
REMEDY = "Number its categories from 0 on, or leave it out."
RAREST = 10  # sampled rows of a value that has a column


class FeatureError(SettingsError):
    """A feature that a setting names is unsuitable: its number, the reason and the remedy."""

    def __init__(self, setting: str, feature: int, why: str, remedy: str, name: str | None = None) -> None:
        shown = feature if name is None else repr(name)
        super().__init__(f"Cannot use feature {shown} in {setting}: {why}. {remedy}")
        self.setting, self.feature, self.why, self.remedy = setting, feature, why, remedy


@contextmanager
def features_named(names: Sequence[str] | None) -> Iterator[None]:
    """Name features in errors of the `with` statement by their names, where these exist."""
    try:
        yield
    except FeatureError as error:
        if names is None:
            raise
        name = names[error.feature]
        raise FeatureError(error.setting, error.feature, error.why, error.remedy, name) from None


def numbered(settings: Settings, names: Sequence[str] | None, n_features: int | None = None) -> Settings:
    """Replace names of features in settings by numbers. Quoted text is a name; digits are a number: numbered
    settings do not change.

    names  of features; those from n_features on have only names

    Raises SettingsError for a feature that the data do not have.
    """
    texts = {name: str(getattr(settings, name)) for name in OF_FEATURES}
    for name, text in texts.items():
        if text not in OF_FEATURES[name]:
            texts[name] = _numbered(name, text, names, n_features)
    return replace(settings, **texts)  # type: ignore[arg-type]


def _numbered(setting: str, text: str, names: Sequence[str] | None, n_features: int | None) -> str:
    words = OF_FEATURES[setting]
    of_others = False  # whether other features are candidates
    places = {name: number for number, name in enumerate(() if names is None else names)}
    wanted: set[int] = set()
    spans: set[int] = set()
    for part, quoted in parts(text, setting):
        span = None if quoted else re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if part == AUTO and setting == "categorical" and (AUTO not in places or not quoted):
            of_others = True
        elif part in places and (span is None or span[2]):
            wanted.add(places[part])
        elif span:
            first, last = int(span[1]), int(span[2] or span[1])
            if last < first or last > LARGEST_FEATURE:
                raise SettingsError(
                    f"Cannot use features {part} in {setting}: a span goes from a smaller number to a larger"
                    f" one, up to {LARGEST_FEATURE:,}. Write it as 1-3, with numbers of features."
                )
            spans.update(range(first, last + 1))
        elif not quoted and part in words:
            raise SettingsError(
                f"Cannot use {setting}={text!r}: {part} concerns all features. Write it alone, or only list"
                " features."
            )
        elif part in words:
            raise SettingsError(
                f"Cannot use feature {part!r} in {setting}: the data have no feature of that name. For the"
                f" choice {part}, set {setting} to it outside of a list."
            )
        else:
            raise SettingsError(
                f"Cannot use feature {part!r} in {setting}: the data"
                f" {'have no feature of that name' if places else 'do not name their features'}"
                f"{_nearest(part, (*places, *words))}. Write {', '.join(words)}, or numbers of features (3,7"
                " or 0-41), or names of features, in double quotes where they hold commas."
            )
    if n_features is not None and spans and max(spans) >= n_features:
        raise _absent(setting, max(spans), n_features, places)
    return _text(wanted | spans, of_others)


def with_codes(settings: Settings, coded: Sequence[int], places: Mapping[int, int] | None = None) -> Settings:
    """Numbered settings, with the features that a schema declares among the one-hot encoded ones; none stays
    none.

    places  the feature of each number, where settings number columns of a table: the feature of the same name
            for a column, and features themselves

    Raises SettingsError where `missing` names a column without such a feature.
    """
    if places is not None and settings.missing not in MISSING:
        if others := [column for column in numbers(settings.missing) if column not in places]:
            why = "it is a column of categories, of which the features are means of the target"
            raise FeatureError("missing", others[0], why, "Leave it out, or name its features.")
        settings = replace(settings, missing=_text(_placed(settings.missing, places), False))
    if settings.categorical == NONE or (not coded and places is None):
        return settings
    named = _placed(settings.categorical, places)
    text = _text({*named, *coded}, _looks_at_others(settings.categorical)) or AUTO
    return replace(settings, categorical=text)


def named_columns(settings: Settings) -> list[int]:
    """The ascending numbers of the one-hot encoded features of numbered settings."""
    return numbers(settings.categorical)


def _placed(text: str, places: Mapping[int, int] | None) -> list[int]:
    """The features in a numbered text; those of its columns, with `places`."""
    return [f if places is None else places[f] for f in numbers(text) if places is None or f in places]


def _text(features: Iterable[int], of_others: bool) -> str:
    listed = as_text(sorted(features)) if features else ""
    return ",".join([*([AUTO] if of_others else []), *([listed] if listed else [])])


def _looks_at_others(text: str) -> bool:
    return AUTO in {part for part, _ in parts(text)}


def check_present(setting: str, features: Sequence[int], n_features: int) -> None:
    """Raise SettingsError where data lack the last of the ascending features of a setting."""
    if features and features[-1] >= n_features:
        raise _absent(setting, features[-1], n_features)


def _absent(setting: str, feature: int, n_features: int, names: Collection[str] = ()) -> SettingsError:
    quoted = f', or write "{feature}" in double quotes for the feature of that name'
    return SettingsError(
        f"Cannot use feature {feature} in {setting}: the data have features 0 to {n_features - 1}. Choose"
        f" some of these{quoted if str(feature) in names else ''}."
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    lower = {candidate.lower(): candidate for candidate in reversed(known)}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return f" (did you mean {lower[close[0]]!r}?)" if close else ""


def choose_codes(
    sample: NDArray[np.generic], settings: Settings, weight: FloatArray
) -> dict[int, NDArray[np.generic]]:
    """The features of settings, and the values of each with a column; NaN is a missing value.

    sample  (n, n_features), raw rows
    weight  float64 (n,), > 0, sample weights

    Raises SettingsError for a feature that cannot be one-hot encoded.
    """
    if settings.categorical == NONE:
        return {}
    text = numbered(settings, None).categorical
    return _named(sample, numbers(text), weight, alone=not _looks_at_others(text))


def most_frequent(column: NDArray[np.generic], weight: FloatArray) -> float:
    """The value of a one-hot encoded feature that replaces a missing one: that of most weight, which has no
    column.
    """
    values, _, weights = _values(column, weight)
    return float(values[weights.argmax()])


def _present(column: NDArray[np.generic]) -> NDArray[np.generic]:
    return column[~np.isnan(column)] if column.dtype.kind == "f" else column


def _values(
    column: NDArray[np.generic], weight: FloatArray
) -> tuple[NDArray[np.generic], IntArray, FloatArray]:
    """The distinct present values of a column, ascending, with their rows and their weights."""
    there = np.ones(len(column), bool) if column.dtype.kind != "f" else ~np.isnan(column)
    values, number, rows = np.unique(column[there], return_inverse=True, return_counts=True)
    weights = np.bincount(number, weight[there], len(values)).astype(ACC_DTYPE, copy=False)
    return values, rows.astype(INDEX_DTYPE, copy=False), weights


def _named(
    sample: NDArray[np.generic], features: Sequence[int], weight: FloatArray, *, alone: bool
) -> dict[int, NDArray[np.generic]]:
    """The values with a column of named features. Raises SettingsError for one that cannot be encoded."""
    check_present("categorical", features, sample.shape[1])
    codes = {}
    for feature in features:
        values, counts, weights = _values(sample[:, feature], weight)
        wrong = _not_codes(values)
        if wrong:
            raise FeatureError("categorical", feature, wrong, REMEDY)
        if len(encoded := _with_columns(values, counts, weights)):
            codes[feature] = encoded
        elif alone and len(features) == 1:  # In a span, some features may be constant in few rows.
            most, others = _number(values[counts.argmax()]), counts.sum() - counts.max()
            but = f", and only {others} in which it is another" if others else ""
            why = f"it is {most} in {counts.max():,} sampled rows{but}, so it has a single category"
            raise FeatureError("categorical", feature, why, REMEDY)
    if (reach := sum(int(encoded[-1]) - int(encoded[0]) for encoded in codes.values())) > LARGEST_TABLE:
        raise SettingsError(
            f"Cannot use the features in categorical: their categories reach over {reach:,} integers, more"
            f" than {LARGEST_TABLE:,}. Number the categories of each feature from 0 on, or leave some out."
        )
    return codes


def _not_codes(values: NDArray[np.generic]) -> str:
    """Why these distinct values, ascending, are not categories; empty where they are."""
    if not len(values):
        return "it has no value in any sampled row"
    fraction = values[values != np.rint(values)] if values.dtype.kind == "f" else values[:0]
    if len(fraction):
        return f"it holds {fraction[0]:g}, which is not an integer"
    if len(values) > MOST_VALUES:
        return f"it has more than {MOST_VALUES} different values"
    low, high = int(values[0]), int(values[-1])
    reach = f"its values reach from {_number(values[0])} to {_number(values[-1])}"
    if high - low >= WIDEST_RANGE:
        return f"{reach}, more than {WIDEST_RANGE - 1:,} apart"
    if max(-low, high) > LARGEST_CODE:
        return f"{reach}, and codes lie from -{LARGEST_CODE:,} to {LARGEST_CODE:,}"
    return ""


def _number(value: np.generic) -> str:
    """An integer as text, or shortened where it has more digits than its dtype distinguishes."""
    number = int(value)
    return f"{number:,}" if value.dtype.kind != "f" or abs(number) < 2**53 else f"{value:g}"


def code_candidates(sample: NDArray[np.generic], named: set[int], most: int) -> list[int]:
    """The features, ascending, with at most so many distinct values that were not named: those with few
    values come first, up to a limit of columns.
    """
    looked_at = [f for f in range(sample.shape[1]) if f not in named]
    few = {f: values for f in looked_at if (values := _few(sample[:FIRST_ROWS, f])) is not None}
    codes, left = [], MOST_COLUMNS
    for f in sorted(few, key=lambda f: len(few[f])):
        if len(few[f]) - 1 > left:
            break
        values, counts = np.unique(_present(sample[:, f]), return_counts=True)
        if not FEWEST_AUTO <= len(values) <= most or _not_codes(values):
            continue
        encoded = _with_columns(values, counts, counts)
        if 1 < len(encoded) <= left:
            codes.append(f)
            left -= len(encoded)
    return sorted(codes)


def _few(column: NDArray[np.generic]) -> NDArray[np.generic] | None:
    """The distinct values of a column, None where they are not categories."""
    values = np.unique(_present(column))
    return None if _not_codes(values) else values


def _with_columns(
    values: NDArray[np.generic], counts: IntArray, weights: NDArray[np.generic]
) -> NDArray[np.generic]:
    """The values of a feature that have a column: all but that of most weight, and those of few rows."""
    often = counts >= min(RAREST, counts.max())
    often[weights.argmax()] = False
    encoded: NDArray[np.generic] = values[often]
    return encoded


LARGEST_ROUNDING = 1e-3  # rounding of a mean by single precision, in standard deviations of the target
NAMED = 3  # most features that a message names
MOST_CLASSES = 32  # classes that each get a mean
MEANS_REMEDY = (
    "Import the data again and leave it out with --drop, or encode its frequent values with --categorical (of"
    " a frame: name it in `categorical`)."
)


@dataclass(frozen=True)
class CodedFeatures:
    """The target-encoded features of X.

    feature  their numbers, ascending
    size     positions of each: its categories, all others, and a missing value
    """

    feature: tuple[int, ...] = ()
    size: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.feature)

    def encoding(self, n_features: int, table: FloatArray) -> TargetEncoding:
        at = np.append(0, np.cumsum(self.size)).astype(INDEX_DTYPE)
        return TargetEncoding(n_features, np.array(self.feature, INDEX_DTYPE), at, table)

    def empty(self, n_features: int) -> TargetEncoding:
        """The encoding before anything is fitted."""
        return self.encoding(n_features, np.zeros((sum(self.size), 1)))


NOT_CODED = CodedFeatures()


def target_coded(schema: Schema | None, settings: Settings) -> CodedFeatures:
    """The target-encoded features: those of a schema, without those that numbered settings one-hot encode."""
    if schema is None:
        return NOT_CODED
    named = set(numbers(settings.categorical))
    columns = {span.start: column for column, span in schema.spans if isinstance(column, TargetCodes)}
    features = sorted(set(columns) - named)
    return CodedFeatures(tuple(features), tuple(columns[f].gap + 1 for f in features))


@dataclass(frozen=True)
class TargetSums:
    """Sums over some rows by part and position.

    cell     int64 (m,), ascending: part × positions + position, of occurring ones
    value    float64 (m, k): with classes the weight of each class, in the order of `classes`; else the
             weight, and sums of weight × (y − centre) and of weight × (y − centre)²
    classes  (k,), ascending; empty for numbers
    centre   float64 (), near the middle of the targets
    """

    cell: IntArray
    value: FloatArray
    classes: NDArray[np.generic]
    centre: FloatArray


def target_sums(
    X: NDArray[np.generic],
    y: NDArray[np.generic],
    weight: FloatArray | None,
    rows: IntArray,
    coded: CodedFeatures,
    task: str,
    folds: Folds,
) -> TargetSums:
    """Those of rows with their numbers. Nothing is summed of more classes than can be encoded."""
    w = np.ones(len(X)) if weight is None else weight.astype(ACC_DTYPE)
    used = np.flatnonzero(w > 0)
    X, y, w, part = X[used], y[used], w[used], folds.parts(rows[used])
    classes, centre = y[:0], np.zeros(())
    if task == "regression":
        numbers_of = y.astype(ACC_DTYPE)
        centre = np.array(numbers_of.mean() if len(y) else 0.0)
        off = numbers_of - float(centre)
        each = np.stack([w, w * off, w * off**2], axis=1)
    else:
        classes, number = np.unique(y, return_inverse=True)
        each = w[:, None] * (number[:, None] == np.arange(min(len(classes), MOST_CLASSES)))
    if len(classes) > MOST_CLASSES or not len(y):
        return TargetSums(np.empty(0, INDEX_DTYPE), np.empty((0, each.shape[1])), classes, centre)
    encoding = coded.empty(X.shape[1])
    places = [encoding.places(number, X[:, feature]) for number, feature in enumerate(coded.feature)]
    cells = np.concatenate([part * len(encoding.table) + place for place in places])
    cell, at = np.unique(cells, return_inverse=True)
    value = [np.bincount(at, np.tile(column, len(places)), len(cell)) for column in each.T]
    return TargetSums(cell, np.stack(value, axis=1), classes, centre)


@dataclass(frozen=True)
class CrossFitted:
    """Means of the target, fitted to rows that train.

    encoding  by all of them, for the model
    tables    float64 (1 + folds, parts, n_positions, n_means): without the rows of each part; first by all
              other rows, then by the training rows while each fold is held out
    limits    float64 (2, n_encoded features), least and largest values in rows that train, encoded without
              their own part
    folds     of all rows
    """

    encoding: TargetEncoding
    tables: FloatArray
    limits: FloatArray
    folds: Folds

    def __call__(
        self, X: NDArray[np.generic], rows: IntArray, held: int | None = None
    ) -> FloatArray | SingleArray:
        """Rows that train encoded, (n, n_columns), by their numbers.

        held  the fold that is held out, if one is: its rows are encoded without all of it
        """
        table = self.tables[0 if held is None else 1 + held]
        first = self.folds.parts(rows) * table.shape[1]
        return self.encoding.encoded(X, table.reshape(-1, table.shape[2]), first)

    @property
    def columns(self) -> IntArray:
        """The encoded features that differ with the fold that is held out."""
        count = range(len(self.encoding.feature))
        return np.sort(np.concatenate([self.encoding.columns(number) for number in count]))

    def survey(self, survey: Survey) -> Survey:
        """A survey of stored rows as one of encoded ones. Means are missing where their categories are."""
        source, encoded = self.encoding.source, self.columns
        minimum, maximum = survey.minimum[source], survey.maximum[source]
        minimum[encoded], maximum[encoded] = self.limits[:, encoded]
        gaps = survey.gaps[source]
        return replace(survey, minimum=minimum, maximum=maximum, gaps=gaps, means=tuple(encoded.tolist()))

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Its arrays by name, without folds, for `cross_fitted_of`."""
        fitted = {"tables": self.tables, "limits": self.limits}
        return {**self.encoding.arrays(), "n_features": np.array(self.encoding.n_features), **fitted}


def cross_fitted_of(arrays: Mapping[str, NDArray[Any]], folds: Folds) -> CrossFitted:
    """The inverse of `arrays`."""
    names = ("target_feature", "target_at", "target_table")
    encoding = TargetEncoding(int(arrays["n_features"]), *(arrays[name] for name in names))
    return CrossFitted(encoding, arrays["tables"], arrays["limits"], folds)


def fit_target_means(
    parts: Sequence[TargetSums],
    coded: CodedFeatures,
    survey: Survey,
    folds: Folds,
    names: Sequence[str] | None = None,
) -> CrossFitted:
    """Means from the sums of all rows, by their parts.

    survey  of all stored rows
    names   of features, for messages
    Raises DataError for more classes than can be encoded, and where the table would be too large.
    """
    n_classes, n_positions = len(survey.classes), sum(coded.size)
    _check_size(coded, n_classes, n_positions, names)
    middle = float(np.mean([float(of_part.centre) for of_part in parts if len(of_part.cell)] or [0.0]))
    sums = (
        _of_numbers(parts, middle, folds.n_parts, n_positions)
        if not n_classes
        else _of_classes(parts, survey.classes, folds.n_parts, n_positions)
    )
    total = float(sums[:, : coded.size[0], 0].sum())  # A row has one position of each feature.
    sums *= survey.n_used / total if total else 1.0  # The mean weight is 1.

    deviation = np.sqrt(_moments(sums.sum(axis=0), coded.size[0])[1].max())
    single = abs(middle) * np.finfo(MODEL_DTYPE).eps < LARGEST_ROUNDING * deviation

    def table(used: NDArray[np.bool_]) -> FloatArray:
        means = middle + _means(sums[used].sum(axis=0), coded.size[0])
        return means.astype(MODEL_DTYPE).astype(ACC_DTYPE) if single else means

    part = np.arange(folds.n_parts)
    held = [np.zeros(len(part), bool), *map(folds.out_of, range(folds.count))]
    tables = np.stack([[table(~(out | (part == number))) for number in part] for out in held])
    encoding = coded.encoding(len(survey.minimum), table(np.ones(len(part), bool)))
    limits, there = np.full((2, encoding.n_columns), np.nan), sums[:, :, 0] > 0
    for number in range(len(coded.feature)):
        span = slice(encoding.at[number], encoding.at[number + 1])
        if (some := there[:, span]).any():
            means = tables[0][:, span][some]
            limits[:, encoding.columns(number)] = means.min(axis=0), means.max(axis=0)
    return CrossFitted(encoding, tables, limits, folds)


def fit_to_rows(
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    coded: CodedFeatures,
    survey: Survey,
    settings: Settings,
    names: Sequence[str] | None = None,
    folds: Folds | None = None,
) -> CrossFitted:
    """The same from rows in memory, which are numbered from 0 on."""
    rows = np.arange(len(X), dtype=INDEX_DTYPE)
    folds = folds or Folds(settings.seed)
    sums = target_sums(X, target, weight, rows, coded, settings.task, folds)
    return fit_target_means([sums], coded, survey, folds, names)


def _of_classes(
    parts: Sequence[TargetSums], classes: NDArray[np.generic], n_parts: int, n_positions: int
) -> FloatArray:
    """float64 (n_parts, n_positions, 1 + 2 n_means), weights, then sums of weight × y and of weight × y² for
    each mean: y is 1 for its class and else 0. Two classes have one mean, of the second.
    """
    counts = np.zeros((n_parts * n_positions, len(classes)))
    for of_part in parts:
        counts[of_part.cell[:, None], np.searchsorted(classes, of_part.classes)] += of_part.value
    with_means = counts if len(classes) > 2 else counts[:, 1:]
    sums = np.concatenate([counts.sum(axis=1, keepdims=True), with_means, with_means], axis=1)
    return sums.reshape(n_parts, n_positions, -1)


def _of_numbers(parts: Sequence[TargetSums], middle: float, n_parts: int, n_positions: int) -> FloatArray:
    """The same of numbers, (n_parts, n_positions, 3), counted from `middle`."""
    sums = np.zeros((n_parts * n_positions, 3))
    for of_part in parts:
        weight, total, square = of_part.value.T
        off = float(of_part.centre) - middle
        moved: list[FloatArray] = [
            weight,
            total + off * weight,
            square + 2 * off * total + off * off * weight,
        ]
        sums[of_part.cell] += np.stack(moved, axis=1)
    return sums.reshape(n_parts, n_positions, 3)


def _means(sums: FloatArray, first: int) -> FloatArray:
    """The means of each position (n_positions, n_means), shrunk to the mean of all rows, the more the fewer
    and the more varied rows it has. A position without rows has the mean of all.

    sums   (n_positions, 1 + 2 n_means), as from `_of_classes`
    first  positions of the first feature: each row has one of them
    """
    weight, (total, square) = sums[:, :1], np.split(sums[:, 1:], 2, axis=1)
    mean, variance = _moments(sums, first)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        unshrunk = total / weight
        spread = np.maximum(square / weight - unshrunk**2, 0.0)
        share = variance * weight / (variance * weight + spread)
        shrunk = share * unshrunk + (1.0 - share) * mean
    return np.asarray(np.where(np.isfinite(shrunk), shrunk, mean))


def _moments(sums: FloatArray, first: int) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of all rows, each (n_means,)."""
    every = sums[:first].sum(axis=0)
    mean, square = np.split(every[1:] / (every[0] or 1.0), 2)
    return mean, np.maximum(square - mean**2, 0.0)


def _check_size(coded: CodedFeatures, n_classes: int, n_positions: int, names: Sequence[str] | None) -> None:
    """Raise DataError for more means than a model may hold."""
    named = ", ".join(repr(str(names[f])) if names else str(f) for f in coded.feature[:NAMED])
    columns = f"column{'s' if len(coded.feature) > 1 else ''} {named}"
    if n_classes > MOST_CLASSES:
        raise DataError(
            f"Cannot target-encode {columns}: each class needs a mean, and y has {n_classes:,} classes, more"
            f" than the limit of {MOST_CLASSES}. {MEANS_REMEDY}"
        )
    n_means = n_classes if n_classes > 2 else 1
    if n_positions * n_means > MOST_NUMBERS:
        raise DataError(
            f"Cannot target-encode {columns}: {n_positions:,} categories for {n_means} classes take more than"
            f" the {MOST_NUMBERS:,} numbers that a model holds. {MEANS_REMEDY}"
        )
