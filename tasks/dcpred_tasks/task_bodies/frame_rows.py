"""What is done with one frame of many while a model learns what its columns are, and with one of many Series
of labels. Workers of Dask import this.
"""

from collections.abc import Collection, Sequence
from typing import Any

from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.schema.column import Category
from dcpred_tasks.schema.frames import frame_cells, series_cells
from dcpred_tasks.schema.survey import ColumnSurvey


def survey_frame(frame: Any, names: Sequence[str], coded: Collection[str]) -> dict[str, ColumnSurvey]:
    """A survey of each of these columns, of which `coded` are categories, also where they are numbers or
    booleans. Raises DataError for what is no value of a table.
    """
    surveys = {name: ColumnSurvey(name, counts_numbers=name in coded) for name in names}
    for name, survey in surveys.items():
        survey.add(frame_cells(frame, name))
    return surveys


def survey_labels(series: Any) -> ColumnSurvey:
    """A survey of a target of text."""
    survey = ColumnSurvey("y")
    survey.add(series_cells(series, "y"))
    return survey


def label_numbers(series: Any, labels: Sequence[str]) -> IntArray:
    """The number of each row's label, int64 (n,)."""
    return Category("y", tuple(labels)).positions(series_cells(series, "y"))
