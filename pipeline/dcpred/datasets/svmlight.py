"""A streaming reader of svmlight files. It returns a `Table` (table.py)."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_svmlight_file

from dcpred.datasets import csv_reader
from dcpred.datasets.rounding import first_rounded, rounded
from dcpred.datasets.sparse import DENSE_LIMIT, check_dense
from dcpred.datasets.table import (
    Batch,
    Spread,
    Table,
    TargetSurvey,
    no_rows,
    open_bytes,
)
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import DataError

# Labels and values that are integers of 16 digits or more, which float64 may round.
SVM_WHOLE = re.compile(rb"(?m)(?:^|(?<!qid):)(-?\d{16,300})(?=\s|$)")


def read_svmlight(
    path: Path, n_features: int | None = None, dense_limit: int = DENSE_LIMIT, index_base: int | None = None
) -> Table:
    """`label index:value …` per line; the rest of a line after # and the query ids `qid:…` are ignored.

    index_base  the index of the first feature, 0 or 1; by default 0 if that index occurs anywhere
                in the file, else 1
    n_features  the number of features, if the largest index is not the last feature
    dense_limit  maximum bytes of the rows after they are written dense
    """
    spread, goal, survey = Spread(1), Spread(1), TargetSurvey(f"the label of {path.name}")
    n_values, lowest, last_index = 0, 1, 0
    for X, y, lines in _svm_batches(path, zero_based=True):  # indices stay as they are written
        spread.add(X.data[:, None])
        goal.add(y[:, None])
        survey.add(pa.array(y))
        if spread.wide().size or goal.wide().size:
            value = first_rounded(map(int, SVM_WHOLE.findall(b"".join(lines))))
            if value is not None:
                raise rounded(path.name, value)
        if X.nnz:
            lowest = min(lowest, int(X.indices.min()))
            last_index = max(last_index, int(X.indices.max()))
        n_values += X.nnz
    if survey.n_rows == 0:
        raise no_rows(path.name)
    first_index = lowest if index_base is None else index_base
    if lowest < first_index:
        raise DataError(
            f"Cannot count the features of {path.name} from 1: it has the index 0. Pass --zero-based"
        )
    found = last_index + 1 - first_index if n_values else 0
    if n_features is not None and n_features < found:
        raise DataError(
            f"Cannot import {path.name} with {n_features:,} features: it has {found:,}, counted"
            f" from {first_index}. Pass no fewer, or pass --zero-based or --one-based."
        )
    n_features = n_features or found
    if n_features == 0:
        raise DataError(f"Cannot import {path.name}: no line has an index:value. Add features.")
    if n_values < survey.n_rows * n_features:
        spread.add(np.zeros((1, 1)))  # a value that is not written is zero
    check_dense(path.name, (survey.n_rows, n_features), n_values, spread.dtype().itemsize, dense_limit)

    def batches(rows: int) -> Iterator[Batch]:
        for X, y, _ in _svm_batches(path, zero_based=first_index == 0, n_features=n_features):
            for start in range(0, len(y), rows):
                yield Batch(X[start : start + rows].toarray(), y[start : start + rows])

    return Table(
        survey.n_rows, n_features, spread.dtype(), goal.dtype(), None, None, batches, index_base=first_index
    )


def _svm_batches(path: Path, **options: Any) -> Iterator[tuple[Any, FloatArray, list[bytes]]]:
    """X sparse by rows, y, and their lines."""
    n_lines = 0
    with open_bytes(path) as file:
        while lines := file.readlines(csv_reader.BATCH_BYTES):
            try:
                X, y = load_svmlight_file(io.BytesIO(b"".join(lines)), **options)
            except (ValueError, OverflowError) as error:
                bad = _first_bad(lines, options)
                raise DataError(
                    f"Cannot read line {n_lines + bad + 1:,} of {path.name}: it is not `label index:value"
                    " ...`, but "
                    f"{lines[bad][:60].decode(errors='replace').strip()!r} ({error}). Correct it."
                ) from None
            yield X, y, lines
            n_lines += len(lines)


def _first_bad(lines: list[bytes], options: dict[str, Any]) -> int:
    """By bisection: the first line that cannot be parsed, if there is one."""
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            load_svmlight_file(io.BytesIO(b"".join(lines[low:middle])), **options)
            low = middle
        except (ValueError, OverflowError):
            high = middle
    return low
