"""How class labels are written into an array: rows without a label stay distinguishable."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray, Status

Label = int | float | str | bool


@dataclass(frozen=True)
class LabelCoding:
    """How the labels of one model are stored."""

    values: NDArray[Any]
    """(n_classes,), of the dtype of the array: values[class number] is what the array holds."""
    missing: int | float
    """The value of rows without a label."""
    names: tuple[str, ...] | None
    """The classes as text, where the array holds their numbers; else None."""


def label_coding(classes: tuple[Label, ...]) -> LabelCoding:
    """Integers and booleans as the smallest signed integer with a spare value for `missing` (−1 unless a
    class has it), other numbers as float64, strings and numbers beyond int64 as class numbers.
    """
    if any(isinstance(c, str) for c in classes) or _is_beyond_int64(classes):
        coding = label_coding(tuple(range(len(classes))))
        return LabelCoding(coding.values, coding.missing, tuple(str(c) for c in classes))
    if any(isinstance(c, float) for c in classes):
        return LabelCoding(np.array(classes, np.float64), float("nan"), None)
    whole = [int(c) for c in classes]
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        if min(whole) > low and max(whole) <= high:
            return LabelCoding(np.array(whole, dtype), low if -1 in whole else -1, None)
    # No spare value: the least of int64 is a class.
    return LabelCoding(
        np.array(whole, np.int64), next(n for n in range(-1, len(whole)) if n not in whole), None
    )


def _is_beyond_int64(classes: tuple[Label, ...]) -> bool:
    """Whether a class is an integer beyond int64, which float64 would merge with its neighbours."""
    return any(isinstance(c, int) and not -(2**63) <= c < 2**63 for c in classes)


def encode_labels(coding: LabelCoding, number: IntArray, status: NDArray[np.uint8]) -> NDArray[Any]:
    """The labels of scored rows with these class numbers, as the array holds them."""
    labels = coding.values[number]
    labels[status != Status.OK] = coding.missing
    return labels
