"""Survey the training rows: counts, ranges and samples."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.bins import SAMPLE, fit_bins
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.relations import fit_relations
from dcpred_tasks.model.target_transform import PLAIN, TargetTransform, check_targets
from dcpred_tasks.process import one_thread
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.row_sampling import row_hash
from dcpred_tasks.schema.column import Codes, TargetCodes
from dcpred_tasks.schema.schema import Schema

SAMPLE_NUMBERS = 2**28  # most numbers of a sample: 1 GiB of float32
LEAST_SAMPLE_ROWS = 16
HASHED = 2**13  # numbers that are hashed while they stay in a cache


def sampled_rows(sample_rows: int, n_features: int) -> int:
    """Rows of the sample that scaling and tree are learned from: so many, or fewer of wide rows."""
    return min(sample_rows, max(SAMPLE_NUMBERS // max(n_features, 1), LEAST_SAMPLE_ROWS))


def drawn(rows: IntArray, n_rows: int, size: float, seed: int) -> NDArray[np.bool_]:
    """Which of these rows belong to a sample of about `size` out of `n_rows`: all if size ≥ n_rows."""
    if size >= n_rows:
        return np.ones(len(rows), dtype=bool)
    return row_hash(rows, seed) < np.uint64(int(size / n_rows * 2.0**64))


def thinned(rows: IntArray, size: int, seed: int) -> IntArray:
    """Positions, ascending, of exactly min(size, len(rows)) of these rows: those of the smallest hash."""
    if size >= len(rows):
        return np.arange(len(rows), dtype=np.int64)
    return np.sort(np.argsort(row_hash(rows, seed), kind="stable")[:size]).astype(np.int64)


def fold_rows(rows: IntArray) -> int:
    """One 64-bit value of a set of row numbers, whatever their order: the sum of their hashes. Sums of joined
    sets add up (modulo 2⁶⁴) and reveal lost, duplicated or exchanged rows.
    """
    return int(row_hash(rows, 0).sum(dtype=np.uint64))


MAX_CLASSES = 1_000
# So many classes may be of any numbers. More of them are whole ones, of so many rows in the mean.
FEW_CLASSES, ROWS_OF_CLASS = 20, 3

LARGEST_TARGET = 1e34
LEAST_RANGE = 1e-34  # Output weights are smaller than the targets differ, and single precision ends at 1e-45.


NO_RANGE: FloatArray = np.array([np.inf, -np.inf])


@dataclass(frozen=True)
class Survey:
    """The statistics of some rows, or of all."""

    n_rows: int
    n_used: int  # rows of weight > 0
    minimum: FloatArray  # (n_features,), in raw units; NaN for a feature without any value
    maximum: FloatArray  # (n_features,)
    gaps: IntArray  # (n_features,), used rows with NaN
    classes: NDArray[np.generic]  # (n_classes,), ascending; empty for a regression
    class_weights: FloatArray  # (n_classes,), sums of row weights
    rows: int = 0  # fold_rows of the numbers of the rows that are used
    means: tuple[int, ...] = ()  # target-encoded features
    target_range: FloatArray = field(default_factory=lambda: NO_RANGE)  # (2,), least and largest, transformed
    weights: FloatArray = field(default_factory=lambda: np.zeros(3))  # their sum, the largest, and its row

    @property
    def mean_weight(self) -> float:
        """The mean weight of a row, with classes: local SVMs multiply C by weights; a search absorbs it."""
        return float(self.class_weights.sum() / self.n_used)


def survey_rows(
    X: NDArray[np.generic],
    y: NDArray[np.generic],
    weight: FloatArray | None,
    first_row: int,
    task: str,
    missing: str = "auto",
    transform: str = PLAIN,
) -> Survey:
    """Survey some rows; first_row is the number of the first, for messages, `missing` and
    `transform` (target_transform) are settings. Raises DataError for the first bad value.
    """
    _check_features(X, first_row, missing)
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(
            f"Cannot train on y: row {first_row + row} has the target {y[row]} (NaN or infinity). Remove the"
            " row."
        )
    if y.dtype.kind == "U" and (y == "").any():
        raise DataError(
            f"Cannot train on y: its text is empty in row {first_row + int(np.flatnonzero(y == '')[0])}. Fill"
            " in the class, or remove the row."
        )
    if task == "regression" and y.dtype.kind in "iuf" and len(y) and np.abs(y).max() > LARGEST_TARGET:
        row = int(np.abs(y).argmax())
        raise DataError(
            f"Cannot train on y: row {first_row + row} has the target {y[row]}, above the limit of"
            f" {LARGEST_TARGET:g} of output weights in single precision. Train on targets in a larger unit."
        )
    check_targets(transform, y, first_row)
    if weight is not None:
        wrong = ~(np.isfinite(weight) & (weight >= 0))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"Cannot use the sample weights: row {first_row + row} has {weight[row]}, and weights must be"
                " ≥ 0. Correct it."
            )
    used = np.ones(len(X), bool) if weight is None else weight > 0
    classes, class_weights = _classes(y[used], None if weight is None else weight[used], task)
    rows, no_value = X[used], np.full(X.shape[1], np.nan)
    gaps = np.isnan(rows) if X.dtype.kind == "f" else np.zeros(rows.shape, bool)
    return Survey(
        n_rows=len(X),
        n_used=len(rows),
        minimum=np.fmin.reduce(rows, axis=0).astype(ACC_DTYPE) if len(rows) else no_value,
        maximum=np.fmax.reduce(rows, axis=0).astype(ACC_DTYPE) if len(rows) else no_value,
        gaps=np.count_nonzero(gaps, axis=0).astype(INDEX_DTYPE),
        classes=classes,
        class_weights=class_weights,
        rows=fold_rows(first_row + np.flatnonzero(used)),
        target_range=_range(y[used], transform) if task == "regression" else NO_RANGE,
        weights=_weights(np.ones(len(X)) if weight is None else weight, first_row),
    )


def _weights(weight: FloatArray, first_row: int) -> FloatArray:
    """The field of a survey."""
    row = int(weight.argmax()) if len(weight) else 0
    return np.array([weight.sum(), weight.max(initial=0.0), first_row + row])


def _range(target: NDArray[np.generic], transform: str) -> FloatArray:
    """The least and the largest target, transformed."""
    if not len(target) or target.dtype.kind not in "iuf":
        return NO_RANGE
    return np.asarray(TargetTransform(transform).forward(np.array([target.min(), target.max()], ACC_DTYPE)))


def _check_features(X: NDArray[np.generic], first_row: int, missing: str) -> None:
    """Raise DataError for infinity, and for NaN where missing values are refused."""
    if X.dtype.kind != "f":
        return
    # `division.check_scaled` checks whether scaled rows fit single precision.
    bad = ~np.isfinite(X)
    if missing != "refuse":
        bad &= ~np.isnan(X)
    if not bad.any():
        return
    row, column = np.argwhere(bad)[0]
    is_gap = bool(np.isnan(X[row, column]))
    what = "Remove or impute such rows (NaN) first, or set missing to auto" if is_gap else "Correct such rows"
    raise DataError(
        f"Cannot train on X: it has {X[row, column]} in row {first_row + row}, column {column}"
        f"{', and missing is refuse' if is_gap else ''}. {what}."
    )


def _classes(
    y: NDArray[np.generic], weight: FloatArray | None, task: str
) -> tuple[NDArray[np.generic], FloatArray]:
    if task == "regression":
        return y[:0], np.zeros(0)
    classes, number = np.unique(y, return_inverse=True)
    _check_number_of_classes(len(classes))
    return classes, np.bincount(number, weights=weight, minlength=len(classes)).astype(np.float64)


def _check_are_classes(survey: Survey) -> None:
    """Raise DataError for a target of numbers in place of classes."""
    classes, n = survey.classes, len(survey.classes)
    if n <= FEW_CLASSES or classes.dtype.kind not in "iuf":
        return
    fractions = classes[classes != np.rint(classes)]
    if len(fractions) or ROWS_OF_CLASS * n > survey.n_used:
        example = f" ({fractions[0]:g})" if len(fractions) else ""
        raise DataError(
            f"Cannot train a classification: y has {n:,} different values in {survey.n_used:,} rows{example},"
            " and each would be a class. Use regression (--task regression), or combine values into fewer"
            " classes."
        )


def _check_number_of_classes(n_classes: int) -> None:
    if n_classes > MAX_CLASSES:
        raise DataError(
            f"Cannot train a classification: y has more than {MAX_CLASSES:,} different values. Use regression"
            " (--task regression), or give y fewer classes."
        )


def merge_surveys(parts: Iterable[Survey]) -> Survey:
    """Merge the surveys of consecutive blocks, of which one at a time is in memory."""
    parts = iter(parts)
    whole = next(parts)
    for part in parts:
        classes = np.union1d(whole.classes, part.classes)
        weights = np.zeros(len(classes))
        weights[np.searchsorted(classes, whole.classes)] = whole.class_weights
        weights[np.searchsorted(classes, part.classes)] += part.class_weights
        whole = Survey(
            n_rows=whole.n_rows + part.n_rows,
            n_used=whole.n_used + part.n_used,
            minimum=np.fmin(whole.minimum, part.minimum),
            maximum=np.fmax(whole.maximum, part.maximum),
            gaps=whole.gaps + part.gaps,
            classes=classes,
            class_weights=weights,
            rows=(whole.rows + part.rows) % 2**64,
            target_range=np.array(
                [
                    min(whole.target_range[0], part.target_range[0]),
                    max(whole.target_range[1], part.target_range[1]),
                ]
            ),
            weights=np.append(
                whole.weights[0] + part.weights[0],
                max(whole.weights[1:].tolist(), part.weights[1:].tolist(), key=itemgetter(0)),
            ),
        )
    return whole


WEIGHED_ROWS, REPORTED_SHARE = 100, 0.25  # A row of so many is reported from this share of all weight on.


def heavy_row(weights: FloatArray, n_rows: int, limit: float) -> Remark | None:
    """A remark on one of n_rows rows of weight that outweighs the others. Raises DataError where its share is
    above the setting `largest_weight`.

    weights  as in `Survey`
    """
    total, largest, row = weights.tolist()
    if n_rows < WEIGHED_ROWS or largest <= min(limit, REPORTED_SHARE) * total:
        return None
    which = f"row {int(row):,} has {100 * largest / total:.4g} % of the weight of all {n_rows:,} rows"
    if largest > limit * total:
        raise DataError(
            f"Cannot use the sample weights: {which}, and largest_weight is {limit:g}. Correct its weight, or"
            " allow it with the setting largest_weight=1."
        )
    return remark("heavy-row", f"{which}, and the model learns little else", share=1 / n_rows)


def check_survey(
    survey: Survey, task: str, names: Sequence[object] | None = None, largest_weight: float = 1.0
) -> None:
    """Raise DataError where nothing can be learned. `names` are those of numbered classes, `largest_weight`
    is a setting.
    """
    if survey.n_used == 0:
        raise DataError(
            "Cannot train without rows: X has 0 samples, or every sample weight is 0. Pass some rows."
        )
    heavy_row(survey.weights, survey.n_used, largest_weight)
    least, largest = survey.target_range
    if 0 < largest - least < LEAST_RANGE:
        raise DataError(
            f"Cannot train on targets that differ by {largest - least:.3g} at most: output weights are kept"
            f" in single precision, which needs {LEAST_RANGE:g}. Train on targets in a smaller unit."
        )
    if task == "classification":
        _check_number_of_classes(len(survey.classes))
        if names is None:
            _check_are_classes(survey)
    if task == "classification" and len(survey.classes) < 2:
        only = survey.classes[0]
        name = names[int(only)] if names is not None and 0 <= int(only) < len(names) else only
        raise DataError(
            f"Cannot train a classification: y has only one class, {name}. Check the target and the sample"
            " weights."
        )


SCORED = 2**11  # rows whose scores are binned


def with_bins(
    model: Model, X: NDArray[np.generic], number: IntArray, survey: Survey, schema: Schema | None, seed: int
) -> Model:
    """The model with the bins of its features and scores, and the relations of its features.

    X, number  sampled raw rows, and the numbers of these rows
    """
    columns = () if schema is None else schema.spans
    codes = {span.start: c.gap + 1 for c, span in columns if isinstance(c, Codes | TargetCodes)}
    with one_thread():
        decision, _ = score_rows(model, X[thinned(number, SCORED, seed)])
    n = model.n_features
    rows = X[thinned(number, SAMPLE, seed)]
    bins = fit_bins(rows, survey.minimum[:n], survey.maximum[:n], decision, codes)
    return replace(model, bins=bins, relations=fit_relations(bins, rows))


RARE_OF_SEVERAL = 0.2  # share of a class below which it is rare, in even shares of three classes or more
RARE_SHARE = 0.9  # share of the most frequent class from which the others are rare


def rare_classes(totals: FloatArray) -> IntArray:
    """Numbers of the rare classes: the rarer of two, below `RARE_SHARE`; of several, those below
    `RARE_OF_SEVERAL` of an even share.

    totals  float64 (n_classes,), weights of all rows of each class
    """
    if len(totals) == 2:
        return np.array([totals.argmin()] if totals.max() >= RARE_SHARE * totals.sum() else [], np.int64)
    return np.flatnonzero(totals * len(totals) < RARE_OF_SEVERAL * totals.sum())


@dataclass(frozen=True)
class LabelledRows:
    """Distinct rows in standardised features, without the constant ones."""

    U: SingleArray  # (n, d)
    y: FloatArray  # (n,): class numbers, or values of mean 0 and variance 1
    weight: FloatArray  # (n,), > 0, mean 1

    def take(self, rows: IntArray) -> "LabelledRows":
        return LabelledRows(self.U[rows], self.y[rows], self.weight[rows])


def distinct_rows(
    U: SingleArray, target: NDArray[np.generic], weight: FloatArray, task: str
) -> tuple[LabelledRows, IntArray]:
    """One row for each that differs, of all their weight and their heaviest class or mean value: a copy of a
    row among its neighbours would predict its label at any metric. With the numbers of these rows.
    """
    first, group = equal_rows(U)
    total = np.bincount(group, weights=weight)
    if task == "classification":
        classes, number = np.unique(target, return_inverse=True)
        pairs, pair = np.unique(group * len(classes) + number, return_inverse=True)
        heaviest = pairs[np.lexsort((np.bincount(pair, weights=weight), pairs // len(classes)))]
        y = (heaviest[np.append(np.diff(heaviest // len(classes)) > 0, True)] % len(classes)).astype(
            ACC_DTYPE
        )
    else:
        values = target.astype(ACC_DTYPE)
        largest = np.abs(values).max(initial=0.0) or 1.0  # Dividing by it keeps squares from overflowing.
        y = np.bincount(group, weights=weight * (values / largest)) / total
        spread = y.std()
        y = (y - y.mean()) / spread if spread > 1e-12 else np.zeros(len(y))
    rows = U if len(first) == len(U) else U[first]
    return LabelledRows(rows, y, np.maximum(total / total.mean(), 1e-6)), first


def _keys(X: SingleArray, of: Callable[[Any, Any], Any]) -> NDArray[np.uint64]:
    """A sum of values of the bits of each number and of its column, for each row."""
    keys, n_rows = np.empty(len(X), np.uint64), max(HASHED // max(X.shape[1], 1), 1)
    column = np.arange(X.shape[1], dtype=np.uint64)
    for at in range(0, len(X), n_rows):
        bits = (X[at : at + n_rows] + MODEL_DTYPE(0)).view(np.uint32)  # −0 is 0.
        keys[at : at + n_rows] = of(bits.astype(np.uint64), column).sum(axis=1, dtype=np.uint64)
    return keys


def equal_rows(X: SingleArray) -> tuple[IntArray, IntArray]:
    """The first of all equal rows, ascending, and for each row (n,) the position of its own among these."""
    ordered = np.sort(_keys(X, lambda bits, column: bits * (2 * row_hash(column, 1) + 1)))
    if (ordered[1:] != ordered[:-1]).all():  # Equal rows have equal sums, few others.
        numbers = np.arange(len(X), dtype=INDEX_DTYPE)
        return numbers, numbers
    keys = _keys(X, lambda bits, column: row_hash(bits | column << np.uint64(32), 0))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(first), INDEX_DTYPE)
    number[order] = np.arange(len(first))
    return first[order].astype(INDEX_DTYPE), number[group]
