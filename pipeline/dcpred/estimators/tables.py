"""Frames with text, categories, booleans and dates: what their columns are is learned when an estimator is
fitted, as `dcpred import` does, and followed when it predicts.

A frame in memory and a DataFrame of Dask are both taken as parts of one table, one after another. Parts of
Dask are surveyed and encoded by its workers.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.column import Codes, Column, Number
from dcpred_tasks.schema.frames import column_names, encode_frame, is_frame, is_numeric, number_columns
from dcpred_tasks.schema.inference import ESTIMATOR, ColumnSurvey, find_column
from dcpred_tasks.schema.schema import CODES, ColumnRequest, Schema
from dcpred_tasks.task_bodies.evaluate_block import survey_frame

Parts = Sequence[Any]
Compute = Callable[..., list[Any]]
"""Compute(body, argument lists) gives body(*arguments) for each part, in order."""


def in_turn(body: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """One after another, in this process."""
    return [body(*each) for each in arguments]


def needs_schema(X: Any) -> bool:
    """Whether this is a frame in memory with columns of other things than numbers and booleans."""
    return is_frame(X) and not is_numeric(X)


def learn(
    parts: Parts,
    names: Sequence[str],
    numeric: Sequence[str],
    named: Collection[str],
    compute: Compute = in_turn,
) -> tuple[Schema, list[int]]:
    """What the columns of a table are, and the rows of each part.

    names    of its columns, `numeric` those among them that are numbers
    named    columns whose values are names: text gets codes, however many there are
    Raises DataError if the kind of a column is unclear.
    """
    others = [name for name in names if name not in set(numeric)]
    of_parts = compute(survey_frame, [(part, others, named) for part in parts])
    surveys = _joined(of_parts, others)
    columns = [
        Number(name) if name in set(numeric) else _column(surveys[name], name in named) for name in names
    ]
    try:
        schema = Schema(tuple(columns))
    except ValueError as error:
        raise DataError(f"Cannot encode X: {error}. Rename columns, or leave some out.") from None
    return schema, [next(iter(each.values())).n_rows for each in of_parts]


def learn_frame(X: Any, named: Collection[str]) -> tuple[Schema, FloatArray]:
    """What the columns of a frame in memory are, and its rows to train on."""
    schema, _ = learn([X], column_names(X), number_columns(X), named)
    return schema, encode_frame(schema, X)


def _column(survey: ColumnSurvey, named: bool) -> Column:
    wish = ColumnRequest(survey.name, Codes.kind, CODES) if named else None
    return find_column(survey, wish, source="X", words=ESTIMATOR)


def _joined(of_parts: Sequence[dict[str, ColumnSurvey]], names: Sequence[str]) -> dict[str, ColumnSurvey]:
    whole = {name: ColumnSurvey(name) for name in names}
    for each in of_parts:
        for name, survey in each.items():
            whole[name].join(survey)
    return whole
