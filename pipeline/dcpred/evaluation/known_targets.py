"""Targets as data sets hold them, as a model knows them: numbers of its classes, or values."""

from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.array_attributes import class_labels


def known_targets(model: Model, target: zarr.Array[Any], start: int, stop: int) -> NDArray[Any]:
    """The targets of rows: class numbers int64, or values. Raises DataError for a class that is not in the
    model, and for a value that is not finite.
    """
    raw = zarr_arrays.read_target(target, start, stop)
    if model.task == "classification":
        names = class_labels(target.attrs, f"y at {zarr_arrays.address_of(target)}")
        return _class_numbers(model, raw, names, start)
    if raw.dtype.kind not in "biuf":
        raise DataError(
            f"the model predicts numbers, but targets of {zarr_arrays.address_of(target)} are {raw.dtype};"
            " name an array of numbers with --y"
        )
    bad = np.flatnonzero(~np.isfinite(raw))
    if len(bad):
        raise DataError(
            f"row {start + int(bad[0]):,} has the target {raw[bad[0]]}, which no prediction can be"
            " compared with; remove such rows"
        )
    return raw


def _class_numbers(
    model: Model, raw: NDArray[Any], names: tuple[str, ...] | None, first_row: int
) -> NDArray[np.int64]:
    """Class numbers of labels as a data set holds them. Raises DataError for one that is not in the model."""
    if names is not None and raw.dtype.kind in "biuf":
        number = {name: i for i, name in enumerate(model.classes)}
        table = np.array([number.get(name, -1) for name in names] + [-1], np.int64)
        codes = raw.astype(np.int64)
        found = table[np.where((codes >= 0) & (codes < len(names)), codes, len(names))]
    else:
        labels = raw
        classes = np.array(model.classes)
        if (labels.dtype.kind in "biuf") != (classes.dtype.kind in "biuf"):
            labels, classes = labels.astype(str), classes.astype(str)
        order = np.argsort(classes)
        at = np.minimum(np.searchsorted(classes[order], labels), len(order) - 1)
        found = np.where(classes[order[at]] == labels, order[at], -1)
    unseen = np.flatnonzero(found < 0)
    if len(unseen):
        row = int(unseen[0])
        label = (
            names[int(raw[row])]
            if names is not None and raw.dtype.kind in "biuf" and 0 <= int(raw[row]) < len(names)
            else raw[row]
        )
        raise DataError(
            f"row {first_row + row} has the label {label!s}, which the model was not trained on (it knows "
            f"{_listed(model.classes)}); remove such rows or train with that class"
        )
    return found


def _listed(classes: tuple[Any, ...]) -> str:
    shown = ", ".join(str(c) for c in classes[:10])
    return shown if len(classes) <= 10 else f"{shown}, … {len(classes)} classes"
