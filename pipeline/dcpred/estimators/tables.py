"""Frames with text, categories, booleans and dates: what their columns are is learned when an estimator is
fitted, as `dcpred import` does, and followed when it predicts.

A frame in memory and a DataFrame of Dask are both taken as parts of one table, one after another. Parts of
Dask are surveyed and encoded by its workers; the target, and the categories of a sample of rows where many
of them become means, come here.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.column import Category, Codes, Column, Number
from dcpred_tasks.schema.frames import column_names, is_frame, is_numeric, number_columns
from dcpred_tasks.schema.inference import ESTIMATOR, find_column, means_levels
from dcpred_tasks.schema.schema import CODES, Asked, Schema
from dcpred_tasks.schema.survey import ColumnSurvey
from dcpred_tasks.task_bodies.frame_rows import positions_seen, survey_frame, training_rows
from dcpred_tasks.training.target_means import Fitted, averaged, fit_means

Parts = Sequence[Any]
Target = tuple[NDArray[Any], Sequence[object] | None]
Compute = Callable[..., list[Any]]
"""Compute(body, argument lists) gives body(*arguments) for each part, in order."""


def in_turn(body: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """One after another, in this process."""
    return [body(*each) for each in arguments]


@dataclass(frozen=True)
class Learned:
    """What was learned of a table.

    fitted      means, with those of their folds
    first_rows  number of the first row of each part
    n_rows      of all parts
    """

    schema: Schema
    fitted: dict[str, Fitted]
    first_rows: tuple[int, ...]
    n_rows: int


def needs_schema(X: Any) -> bool:
    """Whether this is a frame in memory with columns of other things than numbers and booleans."""
    return is_frame(X) and not is_numeric(X)


def learn(
    parts: Parts,
    names: Sequence[str],
    numeric: Sequence[str],
    target: Callable[[IntArray, int], Target],
    named: Collection[str],
    compute: Compute = in_turn,
) -> Learned:
    """What the columns of a table are.

    names    of its columns, `numeric` those among them that are numbers
    target   gives the target of rows by their numbers and the number of all rows, where it is needed: class
             numbers with the names of classes, or numbers with None
    named    columns whose values are names: text gets codes, however many there are
    Raises DataError where it cannot be told what a column is.
    """
    others = [name for name in names if name not in set(numeric)]
    found = compute(survey_frame, [(part, others, named) for part in parts])
    surveys = _joined(found, others)
    told: list[Column | Asked] = [
        Number(name) if name in set(numeric) else _column(surveys[name], name in named) for name in names
    ]
    n_rows = [next(iter(each.values())).n_rows for each in found]
    first_rows = tuple(int(n) for n in np.cumsum([0, *n_rows[:-1]]))
    asked = {one.name: means_levels(surveys[one.name]) for one in told if isinstance(one, Asked)}
    fitted: dict[str, Fitted] = {}
    if asked:
        columns = [Category(name, levels) for name, levels in asked.items()]
        arguments = [
            (part, columns, first, sum(n_rows)) for part, first in zip(parts, first_rows, strict=True)
        ]
        seen = compute(positions_seen, arguments)
        rows = np.concatenate([numbers for numbers, _ in seen])
        values, labels = target(rows, sum(n_rows))
        what = averaged(values, labels, "y")
        for i, (name, levels) in enumerate(asked.items()):
            positions = np.concatenate([own[i] for _, own in seen])
            fitted[name] = fit_means(name, levels, positions, rows, what)
    try:
        schema = Schema(tuple(fitted[c.name].column if isinstance(c, Asked) else c for c in told))
    except ValueError as error:
        raise DataError(f"X cannot be encoded: {error}; rename columns, or leave some out") from None
    return Learned(schema, fitted, first_rows, sum(n_rows))


def learn_frame(
    X: Any, target: Callable[[IntArray, int], Target], named: Collection[str]
) -> tuple[Schema, FloatArray]:
    """What the columns of a frame in memory are, and its rows to train on."""
    learned = learn([X], column_names(X), number_columns(X), target, named)
    return learned.schema, training_rows(X, learned.schema, learned.fitted, 0)


def _column(survey: ColumnSurvey, named: bool) -> Column | Asked:
    wish = Asked(survey.name, Codes.kind, CODES) if named else None
    return find_column(survey, wish, has_target=True, source="X", words=ESTIMATOR)


def _joined(found: Sequence[dict[str, ColumnSurvey]], names: Sequence[str]) -> dict[str, ColumnSurvey]:
    whole = {name: ColumnSurvey(name) for name in names}
    for each in found:
        for name, survey in each.items():
            whole[name].join(survey)
    return whole
