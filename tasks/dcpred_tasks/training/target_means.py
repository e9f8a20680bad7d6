"""Target encoding fitted to training rows (model/target_encoding.py applies it): that of scikit-learn's
TargetEncoder, with its own smoothing (Micci-Barreca 2001).

A training row must not see its own target. Rows fall into parts (folds.py). The encoding of a training row
uses all other parts, that of a scored row all rows. Held-out rows are excluded, too: a held-out row is
encoded by the training rows, and a training row by those in other parts. Two parts make a held-out fold
(trial.py): sums by part and category suffice.

Sums of blocks add up: large data are not sampled. A row counts by its weight, in units of the mean weight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.target_encoding import TargetEncoding
from dcpred_tasks.schema.column import TargetCodes
from dcpred_tasks.schema.schema import MOST_NUMBERS, Schema
from dcpred_tasks.training.feature_list import numbers
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey

LARGEST_ROUNDING = 1e-3  # rounding of a mean by single precision, in standard deviations of the target
NAMED = 3  # most features that a message names
MOST_CLASSES = 32  # classes that each get a mean
REMEDY = (
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
    own = {f: one for f, one in ((s.start, c) for c, s in schema.spans) if isinstance(one, TargetCodes)}
    kept = sorted(set(own) - named)
    return CodedFeatures(tuple(kept), tuple(own[f].gap + 1 for f in kept))


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
    """Those of rows with their numbers. Rows of weight 0 do not count; of more classes than can be encoded
    nothing is summed, for they are refused later.
    """
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
        source, own = self.encoding.source, self.columns
        minimum, maximum = survey.minimum[source], survey.maximum[source]
        minimum[own], maximum[own] = self.limits[:, own]
        gaps = survey.gaps[source]
        return replace(survey, minimum=minimum, maximum=maximum, gaps=gaps, means=tuple(own.tolist()))

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Its arrays by name, without folds, for `cross_fitted_of`."""
        own = {"n_features": np.array(self.encoding.n_features), "tables": self.tables}
        return {**self.encoding.arrays(), **own, "limits": self.limits}


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
    middle = float(np.mean([float(one.centre) for one in parts if len(one.cell)] or [0.0]))
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
    tables = np.stack([[table(~(out | (part == own))) for own in part] for out in held])
    encoding = coded.encoding(len(survey.minimum), table(np.ones(len(part), bool)))
    limits, there = np.full((2, encoding.n_columns), np.nan), sums[:, :, 0] > 0
    for number in range(len(coded.feature)):
        own = slice(encoding.at[number], encoding.at[number + 1])
        if (some := there[:, own]).any():
            means = tables[0][:, own][some]
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
    for one in parts:
        counts[one.cell[:, None], np.searchsorted(classes, one.classes)] += one.value
    own = counts if len(classes) > 2 else counts[:, 1:]
    sums = np.concatenate([counts.sum(axis=1, keepdims=True), own, own], axis=1)
    return sums.reshape(n_parts, n_positions, -1)


def _of_numbers(parts: Sequence[TargetSums], middle: float, n_parts: int, n_positions: int) -> FloatArray:
    """The same of numbers, (n_parts, n_positions, 3), counted from `middle`."""
    sums = np.zeros((n_parts * n_positions, 3))
    for one in parts:
        weight, total, square = one.value.T
        off = float(one.centre) - middle
        moved: list[FloatArray] = [
            weight,
            total + off * weight,
            square + 2 * off * total + off * off * weight,
        ]
        sums[one.cell] += np.stack(moved, axis=1)
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
        own = total / weight
        spread = np.maximum(square / weight - own**2, 0.0)
        share = variance * weight / (variance * weight + spread)
        found = share * own + (1.0 - share) * mean
    return np.asarray(np.where(np.isfinite(found), found, mean))


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
            f" than the limit of {MOST_CLASSES}. {REMEDY}"
        )
    n_means = n_classes if n_classes > 2 else 1
    if n_positions * n_means > MOST_NUMBERS:
        raise DataError(
            f"Cannot target-encode {columns}: {n_positions:,} categories for {n_means} classes take more than"
            f" the {MOST_NUMBERS:,} numbers that a model holds. {REMEDY}"
        )
