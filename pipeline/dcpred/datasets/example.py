"""Small tables to try the commands on: real measurements that scikit-learn ships.

569 tumours of the breast by 30 measurements each, of which 212 were malignant (Wolberg, Street and
Mangasarian, 1995; UCI's Breast Cancer Wisconsin (Diagnostic), CC BY 4.0).
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.storage.atomic_files import create_bytes, resource_errors

KNOWN, NEW = "known.csv", "new.csv"
NEW_ROWS = 119
ID, TARGET = "id", "label"


@dataclass(frozen=True)
class Example:
    """The written files."""

    known: str
    """A labelled table, with the column `label`."""
    new: str
    """A table of other rows, without it."""
    n_known: int
    n_new: int
    n_features: int


def write_example(folder: Path) -> Example:
    """Write known.csv and new.csv into a folder, which is created if necessary. Raises PlanConflictError if
    one of them exists, ResourceError.
    """
    paths = folder / KNOWN, folder / NEW
    for path in paths:
        if path.exists():
            raise _is_there(path)
    data = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    order = np.random.RandomState(0).permutation(len(data.target))
    rows = [
        [str(number), *values, str(data.target_names[target])]
        for number, values, target in zip(order, data.data[order].tolist(), data.target[order], strict=True)
    ]
    known, new = rows[NEW_ROWS:], [row[:-1] for row in rows[:NEW_ROWS]]
    tables = _written([ID, *names, TARGET], known), _written([ID, *names], new)
    with resource_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for path, table in zip(paths, tables, strict=True):
        if not create_bytes(path, table):
            raise _is_there(path)
    return Example(str(paths[0]), str(paths[1]), len(known), len(new), len(names))


def _is_there(path: Path) -> PlanConflictError:
    return PlanConflictError(
        f"Cannot write a small table to {path}: it already exists. Remove it, or choose another folder:"
        " `dcpred example FOLDER`."
    )


def _written(head: list[str], rows: Iterable[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue().encode()
