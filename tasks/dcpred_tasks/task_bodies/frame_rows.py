"""What is done with one frame of many while a model learns what its columns are, and with one of many Series
of labels. Workers of Dask import this.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import is_missing
from dcpred_tasks.model.class_codes import class_values
from dcpred_tasks.schema.frames import frame_cells
from dcpred_tasks.schema.survey import ColumnSurvey


def survey_frame(frame: Any, names: Sequence[str], coded: Collection[str]) -> dict[str, ColumnSurvey]:
    """A survey of each of these columns, of which `coded` are categories, also where they are numbers or
    booleans. Raises DataError for what is no value of a table.
    """
    surveys = {name: ColumnSurvey(name, counts_numbers=name in coded) for name in names}
    for name, survey in surveys.items():
        survey.add(frame_cells(frame, name))
    return surveys


def labels_of(values: Any) -> tuple[NDArray[Any], int]:
    """The different classes of some rows, a Series or array, and the number of rows. Raises DataError for a
    label that is missing or no class.
    """
    rows = _labels(values)
    return np.unique(rows), len(rows)


def label_numbers(values: Any, classes: NDArray[Any]) -> IntArray:
    """The number of each row's class, int64 (n,)."""
    return np.searchsorted(classes, _labels(values)).astype(np.int64)


def _labels(values: Any) -> NDArray[Any]:
    rows: NDArray[Any] = np.asarray(values)
    rows = rows.astype(object) if rows.dtype.kind == "T" else rows
    if any(map(is_missing, rows.flat)) if rows.dtype.kind == "O" else (rows != rows).any():
        raise DataError("Cannot use y: it has missing values. Remove those rows, or fill the values in.")
    found = class_values(rows, numbered=False)
    return found.astype(str) if found.dtype.kind == "O" else found


def part_values(part: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values of a frame or Series of pandas of numbers, NaN where one is missing."""
    return np.asarray(
        part.to_numpy(dtype=dtype, na_value=np.nan) if dtype.kind == "f" else part.to_numpy(dtype=dtype)
    )
