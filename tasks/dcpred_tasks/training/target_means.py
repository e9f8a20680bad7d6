"""Mean targets of categories, cross-fitted: scikit-learn's TargetEncoder, with its own smoothing.

A row that trains must not be told its own target. Rows fall into folds by the hash of their number; a row is
encoded by an encoder that saw the other folds alone, and a new row by one that saw all of them. Encoders see
a sample of the rows, drawn by the same hash, so that memory is bounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import TargetEncoder

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.column import Level, Means
from dcpred_tasks.schema.schema import MOST_NUMBERS
from dcpred_tasks.training.sampling import drawn, row_hash

FOLDS = 5
MOST_ROWS = 10**6  # rows that encoders see
MOST_CLASSES = 32  # classes that each get a feature
MOST_NUMBERED = 10  # different whole numbers of a target, up to which they are taken as classes
SEED = 1_967  # The hash has its own: other draws of rows, for trials and samples, are independent of it.


def fold_of(rows: IntArray) -> IntArray:
    """int64 (n,), the fold of each row by its number."""
    return (row_hash(rows, SEED) % np.uint64(FOLDS)).astype(np.int64)


def is_seen(rows: IntArray, n_rows: int) -> NDArray[np.bool_]:
    """Which rows encoders see."""
    return drawn(rows, n_rows, MOST_ROWS, SEED + 1)


@dataclass(frozen=True)
class Goal:
    """What is averaged: one number a row, or one for each class.

    values   (n,), class numbers or numbers
    outputs  names of more classes than two; empty for one number
    """

    values: NDArray[np.generic]
    outputs: tuple[str, ...] = ()

    def columns(self) -> list[FloatArray]:
        if not self.outputs:
            return [self.values.astype(ACC_DTYPE)]
        return [(self.values == i).astype(ACC_DTYPE) for i in range(len(self.outputs))]


def averaged(values: NDArray[np.generic], labels: Sequence[object] | None, name: str) -> Goal:
    """What to average of a target.

    labels  names of its classes, of which `values` are numbers; None for a target of numbers, whose few
            different whole numbers are classes
    Raises DataError for more than MOST_CLASSES classes.
    """
    if labels is None:
        known = np.unique(values)
        if not 2 < len(known) <= MOST_NUMBERED or (known != np.rint(known)).any():
            return Goal(values)
        labels, values = [int(one) for one in known], np.searchsorted(known, values)
    if len(labels) > MOST_CLASSES:
        raise DataError(
            f"a column of many categories would become means of {name}, one for each class, but there are"
            f" {len(labels):,} classes, and at most {MOST_CLASSES} features are made; leave it out, or name"
            " it as categorical, so that its frequent values get codes"
        )
    return Goal(values, tuple(map(str, labels)) if len(labels) > 2 else ())


@dataclass
class Fitted:
    """Means of one column: as the schema keeps them, and as rows of the folds are encoded.

    folds  float64 (FOLDS, n_positions, n_outputs)
    """

    column: Means
    folds: FloatArray

    def encode(self, positions: IntArray, rows: IntArray) -> FloatArray:
        """Features of rows that encoders may have seen, float64 (n, n_features)."""
        return np.asarray(self.folds[fold_of(rows), positions])


def fit_means(
    name: str, levels: tuple[Level, ...], positions: IntArray, rows: IntArray, goal: Goal
) -> Fitted:
    """Fit encoders on the rows that they see, and whose target is finite.

    positions  int64 (n,), of each row's category in `levels`; len(levels) + 1 is a gap
    rows       int64 (n,), their numbers
    Raises DataError where the table would be too large.
    """
    n_positions, outputs = len(levels) + 2, goal.columns()
    if n_positions * len(outputs) > MOST_NUMBERS:
        raise DataError(
            f"column {name!r} would become means of {len(outputs)} classes for {len(levels):,} categories,"
            f" more than the {MOST_NUMBERS:,} numbers that a schema holds; leave it out, or name it as"
            " categorical, so that its frequent values get codes"
        )
    folds, finite = fold_of(rows), np.isfinite(outputs[0])
    tables = [
        np.stack(
            [_table(positions[used], output[used], n_positions, output[finite]) for output in outputs], axis=1
        )
        for used in [finite, *(finite & (folds != fold) for fold in range(FOLDS))]
    ]
    whole = tuple(tuple(float(mean) for mean in row) for row in tables[0])
    return Fitted(Means(name, levels, whole, goal.outputs), np.stack(tables[1:]))


def _table(positions: IntArray, target: FloatArray, n_positions: int, of_all: FloatArray) -> FloatArray:
    """The mean of each position, float64 (n_positions,), as single precision holds it: X then may, too. A
    position that no row has gets the mean of all rows.
    """
    table = np.full(n_positions, of_all.mean() if len(of_all) else 0.0)
    if len(target):
        encoder = TargetEncoder(target_type="continuous").fit(positions[:, None], target)
        table[:] = encoder.target_mean_
        table[encoder.categories_[0]] = encoder.encodings_[0]
    return table.astype(MODEL_DTYPE).astype(ACC_DTYPE)
