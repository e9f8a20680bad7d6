"""Targets of data sets in the terms of a model: numbers of its classes, or values."""

from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError
from dcpred_tasks.model.class_codes import class_codes, class_positions, listed_classes, names_of_classes
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.storage import zarr_arrays


def is_unlabelled(raw: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows have no target: NaN, or an empty text (n,)."""
    if raw.dtype.kind == "f":
        return np.asarray(np.isnan(raw))
    if raw.dtype.kind in "OTSU":
        return np.array([value is None or len(value) == 0 for value in raw.tolist()], bool)
    return np.zeros(len(raw), bool)


def known_targets(
    model: Model, target: zarr.Array[Any], start: int, stop: int, *, drop_unlabelled: bool = False
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(targets of rows, class numbers int64 or values; which rows have one). Raises DataError for a class
    that the model lacks, for a value that is not finite, and for a row without a target.

    drop_unlabelled  accept rows without a target, with an arbitrary value
    """
    address, raw = zarr_arrays.address_of(target), zarr_arrays.read_target(target, start, stop)
    names = names_of_classes(target.attrs, raw.dtype, f"y at {address}")
    _check_kind(model, raw, names, address)
    lacking = is_unlabelled(raw)
    if lacking.any():
        if not drop_unlabelled:
            raise DataError(
                f"Cannot evaluate row {start + int(np.flatnonzero(lacking)[0]):,} of {address}: it has no"
                " target. Remove such rows, or omit them with `dcpred evaluate --drop-unlabelled`."
            )
        if lacking.all():
            return np.zeros(len(raw), np.int64 if model.task == "classification" else np.float64), ~lacking
        raw = raw.copy()
        raw[lacking] = raw[~lacking][0]
    if model.task == "classification":
        return _class_numbers(model, raw, names, start, address), ~lacking
    infinite = np.flatnonzero(~np.isfinite(raw))
    if len(infinite):
        row = int(infinite[0])
        raise DataError(
            f"Cannot evaluate row {start + row:,} of {address}: its target is {raw[row]}. Correct or remove"
            " such rows."
        )
    return raw, ~lacking


def _check_kind(model: Model, raw: NDArray[Any], names: tuple[str, ...] | None, address: str) -> None:
    if model.task == "classification":
        return
    if raw.dtype.kind not in "biuf":
        raise DataError(
            f"Cannot evaluate a regression with {address}: its targets are {raw.dtype}. Name an array of"
            " numbers with --y."
        )
    if names is not None:
        raise DataError(
            f"Cannot evaluate a regression with {address}: it holds classes, named in its attribute `labels`"
            f" ({listed_classes(names)}). Name an array of numbers with --y."
        )


def _class_numbers(
    model: Model, raw: NDArray[Any], names: tuple[str, ...] | None, start: int, address: str
) -> NDArray[np.int64]:
    """Class numbers of stored labels. Raises DataError for a label that the model lacks."""
    if names is not None:
        codes = class_codes(raw, len(names), address, start)
        found = class_positions(np.array(names, dtype=str), [str(one) for one in model.classes])[codes]
    else:
        found = class_positions(raw, model.classes)
    unseen = np.flatnonzero(found < 0)
    if len(unseen):
        row = int(unseen[0])
        label = raw[row] if names is None else names[int(raw[row])]
        raise DataError(
            f"Cannot evaluate row {start + row:,} of {address}: the model was not trained on its label"
            f" {label!s} (classes: {listed_classes(model.classes)}). Remove such rows, or train with that"
            " class."
        )
    return found
