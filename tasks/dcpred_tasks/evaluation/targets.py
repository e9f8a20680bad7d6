"""Targets as data sets hold them, as a model knows them: numbers of its classes, or values."""

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
    that is not in the model, for a value that is not finite, and for a row without a target.

    drop_unlabelled  whether rows without a target have any target in place of an error
    """
    address, raw = zarr_arrays.address_of(target), zarr_arrays.read_target(target, start, stop)
    names = names_of_classes(target.attrs, raw.dtype, f"y at {address}")
    _check_kind(model, raw, names, address)
    lacking = is_unlabelled(raw)
    if lacking.any():
        if not drop_unlabelled:
            raise DataError(
                f"row {start + int(np.flatnonzero(lacking)[0]):,} of {address} has no target, and no"
                " prediction can be compared with that; remove such rows, or leave them out by"
                " `dcpred evaluate --drop-unlabelled`"
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
            f"row {start + row:,} of {address} has the target {raw[row]}, and no prediction can be compared"
            " with that; correct or remove such rows"
        )
    return raw, ~lacking


def _check_kind(model: Model, raw: NDArray[Any], names: tuple[str, ...] | None, address: str) -> None:
    if model.task == "classification":
        return
    if raw.dtype.kind not in "biuf":
        raise DataError(
            f"the model predicts numbers, but targets of {address} are {raw.dtype}; name an array of numbers"
            " with --y"
        )
    if names is not None:
        raise DataError(
            f"the model predicts numbers, but {address} holds classes, which its attribute `labels` names"
            f" ({listed_classes(names)}); name an array of numbers with --y"
        )


def _class_numbers(
    model: Model, raw: NDArray[Any], names: tuple[str, ...] | None, start: int, address: str
) -> NDArray[np.int64]:
    """Class numbers of labels as a data set holds them. Raises DataError for one that is not in the model."""
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
            f"row {start + row:,} of {address} has the label {label!s}, which the model was not trained on"
            f" (it knows {listed_classes(model.classes)}); remove such rows, or train with that class"
        )
    return found
