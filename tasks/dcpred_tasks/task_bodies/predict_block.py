"""Prediction of one block (in the sense of Dask) of an array: decision values, labels and uncertainty.

A row has a score where all its decision values are finite. Rows without one get no class: their label is the
missing value of the dtype, and an error where the dtype has none. Workers of lazy prediction import this
module and nothing else of dcpred.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, Status
from dcpred_tasks.errors import DataError, listed
from dcpred_tasks.input_kinds import as_matrix
from dcpred_tasks.model.compact_model import Model, Scores, class_numbers
from dcpred_tasks.model.feature_names import in_training_order
from dcpred_tasks.model.label_rule import Rule
from dcpred_tasks.model.predictive_outputs import intervals, novelty, quantile
from dcpred_tasks.model.uncertainty import Calibration
from dcpred_tasks.schema.frames import encode_frame
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.scoring.statistics import unscored, why_unscored

# The label of a row without a score, by the kind of the dtype of labels.
MISSING_LABELS = {"f": np.nan, "O": None, "M": np.datetime64("NaT"), "m": np.timedelta64("NaT")}
WITHOUT_SCORE = "holds NaN, infinity or a value too large"


def rows_without_score(decision: Scores) -> NDArray[np.intp]:
    """The numbers of rows that have no score, of decision values (n_samples, n_outputs)."""
    return np.flatnonzero(~np.isfinite(decision).all(axis=1))


def check_scored(decision: Scores, row: Callable[[int], str] | None = None) -> None:
    """Raise DataError, which names the first row without a score, unless every row of `decision` has one.

    decision  (n_samples, n_outputs)
    row       what is wrong with a row, by its number, as from `wrong_in_row`
    """
    _refuse(rows_without_score(decision), row)


def _warn_unscored(status: NDArray[np.uint8], X: NDArray[Any], model: Model) -> None:
    """Warn where no row has a score."""
    if len(X) and not (status == Status.OK).any():
        listed = unscored(model.scaling, X, status)
        counts = Counter(status.tolist())
        warnings.warn(f"{why_unscored(counts, listed, None)}. Correct the rows.", stacklevel=4)


def check_numbered(numbers: NDArray[np.int64], row: Callable[[int], str] | None = None) -> None:
    """Do what `check_scored` does, from class numbers of `number_block`."""
    _refuse(np.flatnonzero(numbers < 0), row)


def _refuse(bad: NDArray[np.intp], row: Callable[[int], str] | None) -> None:
    if len(bad):
        what = WITHOUT_SCORE if row is None else row(int(bad[0]))
        raise DataError(
            f"Cannot predict row {bad[0]} of X: it {what}. Remove it, or use decision_function,"
            f" which returns NaN there (status {int(Status.NON_FINITE_FEATURE)} in scored arrays)."
        )


def wrong_in_row(row: NDArray[Any], names: Sequence[Any] | None, schema: Schema | None = None) -> str:
    """What is wrong with a row of features that has no score, with the columns that it is in."""
    if schema is not None:
        names = [column.name for column, span in schema.spans for _ in range(span.stop - span.start)]
    values = np.asarray(row, np.float64)
    finite = np.where(np.isfinite(values), np.abs(values), 0)
    if np.isinf(values).any():
        at, what = np.flatnonzero(np.isinf(values)), "infinity"
    elif np.isnan(values).any():
        at, what = np.flatnonzero(np.isnan(values)), "NaN"
    else:
        at = np.array([np.argmax(finite)])
        what = f"a value too large ({values[at[0]]:.3g})"
    columns = list(dict.fromkeys(repr(names[i]) if names is not None else str(i) for i in at.tolist()))
    return f"holds {what} in column{'s' * (len(columns) > 1)} {listed(columns, 3)}"


def encoded_block(frame: Any, schema: Schema, warns: bool | str = False) -> FloatArray:
    """Rows of features, float64 (n_samples, n_features), of one of the frames that make a table. Raises
    DataError for columns that are not those of the schema, or hold other values.
    """
    return encode_frame(schema, frame, warns=warns)


def framed_block(
    frame: Any,
    *more: Any,
    block: Callable[..., NDArray[Any]],
    schema: Schema | None,
    names: Sequence[str] | None,
    columns: Sequence[Any] | None,
    call: str,
) -> Any:
    """The result of `block` for the rows of one of many frames of pandas, with its index: a Series, or a
    frame of `columns`. Rows are encoded by the schema, or reordered by `names`. One frame of a `call` warns
    of unknown categories.
    """
    ordered = frame if schema is not None else in_training_order(frame, names)
    rows = as_matrix(ordered) if schema is None else encoded_block(frame, schema, call)
    values = block(rows, *more, **({"index": frame.index} if block is label_rows else {}))
    predicted = type(frame)(values[:, None] if columns is None else values, index=frame.index)
    return predicted[0].rename(None) if columns is None else predicted.set_axis(list(columns), axis=1)


def value_block(X: NDArray[Any], model: Model, early: bool) -> Scores:
    """Decision values (n_samples,) of raw rows of a model with one output; NaN in rows without a score."""
    return decision_block(X, model, early)[:, 0]


def label_rows(
    X: NDArray[Any],
    model: Model,
    early: bool,
    classes: NDArray[Any],
    rule: Rule = class_numbers,
    index: Any = None,
) -> NDArray[Any]:
    """Labels (n_samples,) of raw rows, as from `label_block`. index: of their frame."""
    return label_block(decision_block(X, model, early), classes, rule, index=index)


def probability_rows(X: NDArray[Any], model: Model, calibration: Calibration) -> FloatArray:
    """Probabilities (n_samples, n_classes) of raw rows; NaN in rows without a score."""
    return probability_block(decision_block(X, model, False), calibration)


def decision_block(X: NDArray[Any], model: Model, early: bool) -> Scores:
    """Decision values (n_samples, n_outputs) of raw rows; NaN in rows without a score."""
    decision, status = score_rows(model, X, early=early)
    _warn_unscored(status, X, model)
    return decision


def probability_block(decision: Scores, calibration: Calibration) -> FloatArray:
    """Probabilities (n_samples, n_classes) of decision values; NaN in rows without a score."""
    return calibration.probabilities(decision.astype(ACC_DTYPE), class_numbers(decision))


def interval_block(X: NDArray[Any], model: Model, alpha: float) -> FloatArray:
    """Lower and upper bounds (n_samples, 2) of raw rows; NaN in rows without a score."""
    rows = score_with_leaves(model, X, scale=True)
    _warn_unscored(rows.status, X, model)
    return intervals(model, rows.decision[:, 0].astype(ACC_DTYPE), rows.leaf, rows.log_scale, alpha)


def quantile_block(X: NDArray[Any], model: Model, shares: Sequence[float]) -> FloatArray:
    """The number below which each share of rows lies (n_samples, n_shares); NaN without a score."""
    rows = score_with_leaves(model, X, scale=True)
    _warn_unscored(rows.status, X, model)
    given = rows.decision[:, 0].astype(ACC_DTYPE), rows.leaf, rows.log_scale
    return np.stack([quantile(model, *given, share) for share in shares], axis=1)


def novelty_block(X: NDArray[Any], model: Model) -> FloatArray:
    """Novelty (n_samples,) of raw rows; NaN in rows without a score."""
    rows = score_with_leaves(model, X, typicality=True)
    _warn_unscored(rows.status, X, model)
    return novelty(model, rows.typicality, rows.leaf)


def number_block(decision: Scores) -> NDArray[np.int64]:
    """Class numbers (n_samples,) of decision values (n_samples, n_outputs); −1 in rows without a score."""
    numbers = class_numbers(decision)
    numbers[rows_without_score(decision)] = -1
    return numbers


def label_block(
    decision: Scores,
    classes: NDArray[Any],
    rule: Rule = class_numbers,
    block_info: Any = None,
    index: Any = None,
) -> NDArray[Any]:
    """Labels (n_samples,), of the dtype of `classes`, of a block of decision values (n_samples, n_outputs).

    rule        the class numbers of decision values
    block_info  the position of the block, from dask.array.map_blocks
    index       of the frame of the block

    A row without a score gets the missing value of the dtype. Raises DataError where the dtype has none, as
    for integers.
    """
    bad = rows_without_score(decision)
    labels: NDArray[Any] = classes[rule(decision)]
    if len(bad) == 0:
        return labels
    dtype = classes.dtype
    if dtype.kind in MISSING_LABELS:
        labels[bad] = MISSING_LABELS[dtype.kind]
    elif hasattr(dtype, "na_object"):  # a StringDType with a missing value
        labels[bad] = dtype.na_object
    else:
        raise DataError(
            f"Cannot predict {_place(int(bad[0]), block_info, index)}: it {WITHOUT_SCORE}, and labels of"
            f" dtype {dtype} have no missing value. Remove it, or use decision_function, which returns NaN"
            " there."
        )
    return labels


def _place(row: int, block_info: Any, index: Any) -> str:
    """The row in words; its number in X where the sizes of the blocks before are known."""
    if index is not None:
        return f"the row of X with index {index[row]!r}"
    if not block_info:
        return f"row {row} of X"
    first, block = block_info[0]["array-location"][0][0], block_info[0]["chunk-location"][0]
    return f"row {row} of block {block} of X" + ("" if np.isnan(first) else f" (row {int(first) + row})")
