"""DataFrames of Dask with text, categories, booleans and dates: workers survey and encode their parts."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np

from dcpred.estimators.tables import learn
from dcpred_tasks.dtypes import ACC_DTYPE
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import NUMBERS, is_a
from dcpred_tasks.schema.frames import check_frame
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.schema.survey import ColumnSurvey
from dcpred_tasks.task_bodies.frame_rows import label_numbers, survey_labels
from dcpred_tasks.task_bodies.predict_block import encoded_block


def needs_schema(X: Any) -> bool:
    """Whether this is a DataFrame of Dask with columns of other things than numbers and booleans."""
    return is_a(X, "dask.dataframe.DataFrame") and not all(dtype.kind in NUMBERS for dtype in X.dtypes)


def learn_frame(X: Any, named: Collection[str]) -> tuple[Schema, da.Array]:
    """What the columns of a DataFrame are, and its rows to train on, which are encoded when they are asked
    for. Every part is read once to survey it.
    """
    numeric = [name for name, dtype in zip(X.columns, X.dtypes, strict=True) if dtype.kind in "iuf"]
    parts = X.to_delayed()
    schema, n_rows = learn(parts, list(X.columns), numeric, named, _in_parallel)
    told = dask.delayed(schema, pure=False)
    blocks = [
        da.from_delayed(dask.delayed(encoded_block)(part, told), (n, len(schema.features)), ACC_DTYPE)
        for part, n in zip(parts, n_rows, strict=True)
    ]
    return schema, da.concatenate([block for block in blocks if block.shape[0]] or blocks)


def numbered_labels(y: Any) -> tuple[Any, tuple[str, ...] | None]:
    """A Series of Dask of text as class numbers, and the names of the classes, sorted; anything else as it
    is, and None. Every part is read once. Raises DataError for a label that is missing.
    """
    if not is_a(y, "dask.dataframe.Series") or y.dtype.kind in NUMBERS:
        return y, None
    parts = y.to_delayed()
    survey = ColumnSurvey("y")
    found = _in_parallel(survey_labels, [(part,) for part in parts])
    for each in found:
        survey.join(each)
    if survey.n_gaps:
        raise DataError("y has missing values; remove the rows where it has none, or fill them in")
    labels = tuple(sorted(map(str, survey.counts)))
    blocks = [
        da.from_delayed(dask.delayed(label_numbers)(part, labels), (each.n_rows,), np.int64)
        for part, each in zip(parts, found, strict=True)
    ]
    return da.concatenate(blocks), labels


def encoded(X: Any, schema: Schema) -> da.Array:
    """Rows of features of a DataFrame, which are encoded when they are asked for. Raises DataError for
    columns that are not those of the schema.
    """
    check_frame(schema, X)
    rows = X.map_partitions(encoded_block, dask.delayed(schema, pure=False), meta=np.empty((0, 0)))
    return da.Array(rows.dask, rows.name, (rows.chunks[0], (len(schema.features),)), ACC_DTYPE)


def _in_parallel(body: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    return list(dask.compute(*[dask.delayed(body)(*each) for each in arguments]))
