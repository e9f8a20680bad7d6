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


def labels_of(values: Any) -> tuple[tuple[str, ...], int]:
    """The different labels of some rows, a Series or array of text, and the number of rows. Raises DataError
    for a label that is missing or no text.
    """
    rows = values.tolist()
    for value in rows:
        if is_missing(value):
            raise DataError("y has missing values; remove the rows where it has none, or fill them in")
        if not isinstance(value, str):
            raise DataError(
                f"y holds {type(value).__name__} such as {str(value)[:60]!r} where other labels are text;"
                " make all classes text, as y.astype(str) does, or numbers"
            )
    return tuple(dict.fromkeys(rows)), len(rows)


def label_numbers(values: Any, labels: Sequence[str]) -> IntArray:
    """The number of each row's label, int64 (n,)."""
    number = {label: i for i, label in enumerate(labels)}
    return np.array([number[value] for value in values.tolist()], np.int64)


def part_values(part: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values of a frame or Series of pandas of numbers, NaN where one is missing."""
    return np.asarray(
        part.to_numpy(dtype=dtype, na_value=np.nan) if dtype.kind == "f" else part.to_numpy(dtype=dtype)
    )
