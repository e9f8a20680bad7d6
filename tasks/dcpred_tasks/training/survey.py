"""Statistics of all rows before training: limits, classes, and a check that every value is usable."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.target_transform import PLAIN, TargetTransform, check_targets
from dcpred_tasks.training.sampling import fold_rows

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

    @property
    def mean_weight(self) -> float:
        """The mean weight of a row, with classes: local SVMs multiply C by weights, whose unit a search
        absorbs.
        """
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
    )


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
        )
    return whole


def check_survey(survey: Survey, task: str, names: Sequence[object] | None = None) -> None:
    """Raise DataError where nothing can be learned. `names` are those of numbered classes."""
    if survey.n_used == 0:
        raise DataError(
            "Cannot train without rows: X has 0 samples, or every sample weight is 0. Pass some rows."
        )
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
            " weights, or train a regression."
        )
