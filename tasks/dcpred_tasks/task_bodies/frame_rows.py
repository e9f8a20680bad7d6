"""What is done with one frame of many while a model learns what its columns are: columns are surveyed, and
rows encoded to train on. Workers of Dask import this.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.schema.column import Category
from dcpred_tasks.schema.frames import frame_cells, series_cells
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.schema.survey import ColumnSurvey
from dcpred_tasks.training.target_means import Fitted, is_seen


def survey_frame(frame: Any, names: Sequence[str], coded: Collection[str]) -> dict[str, ColumnSurvey]:
    """A survey of each of these columns, of which `coded` are categories, also where they are numbers or
    booleans. Raises DataError for what is no value of a table.
    """
    surveys = {name: ColumnSurvey(name, counts_numbers=name in coded) for name in names}
    for name, survey in surveys.items():
        survey.add(frame_cells(frame, name))
    return surveys


def positions_seen(
    frame: Any, columns: Sequence[Category], first_row: int, n_rows: int
) -> tuple[IntArray, list[IntArray]]:
    """The numbers of the rows that encoders of means see, and where the category of each stands in each of
    these columns.

    first_row  number of the frame's first row, of n_rows in all
    """
    rows = first_row + np.arange(len(frame))
    seen = is_seen(rows, n_rows)
    return rows[seen], [column.positions(frame_cells(frame, column.name))[seen] for column in columns]


def survey_labels(series: Any) -> ColumnSurvey:
    """A survey of a target of text."""
    survey = ColumnSurvey("y")
    survey.add(series_cells(series, "y"))
    return survey


def label_numbers(series: Any, labels: Sequence[str]) -> IntArray:
    """The number of each row's label, int64 (n,)."""
    return Category("y", tuple(labels)).positions(series_cells(series, "y"))


def training_rows(frame: Any, schema: Schema, fitted: Mapping[str, Fitted], first_row: int) -> FloatArray:
    """Rows of features to train on, float64 (n, n_features): means are those of the other folds."""
    rows = first_row + np.arange(len(frame))
    out = np.empty((len(frame), len(schema.features)), ACC_DTYPE)
    for column, span in schema.spans:
        cells = frame_cells(frame, column.name)
        if isinstance(column, Category) and column.name in fitted:
            out[:, span] = fitted[column.name].encode(column.positions(cells), rows)
        else:
            out[:, span] = column.encode(cells)
    return out
