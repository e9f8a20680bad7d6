"""Names of classes: where a target of whole numbers carries them, and how numbers are put as names; and
what their weights may be.

Zarr arrays and xarray.DataArrays may hold an attribute `labels`, as data sets that were imported do: the
names of 0, 1, …
"""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.input_kinds import is_a
from dcpred_tasks.storage.array_attributes import class_labels
from dcpred_tasks.storage.zarr_arrays import plain_text

Names = tuple[str, ...]


def class_names(y: Any) -> Names | None:
    """The names of classes that an array of numbers carries, None where it has none."""
    if not (is_a(y, "xarray.DataArray") or is_a(y, "zarr.Array")) or np.dtype(y.dtype).kind not in "biuf":
        return None
    return class_labels(y.attrs, "y")


def named(y: Any, names: Names | None) -> Any:
    """A target in memory with names of classes in place of numbers; y itself where there are no names, its
    text as scikit-learn takes it. Raises DataError for a number without a name.
    """
    if names is None:
        is_array = is_a(y, "zarr.Array") or isinstance(y, np.ndarray)
        return plain_text(np.asarray(y), "y") if is_array and y.dtype.kind == "T" else y
    numbers: NDArray[Any] = np.asarray(y)
    check_known(numbers)
    wrong = numbers[(numbers < 0) | (numbers >= len(names)) | (numbers % 1 != 0)]
    if wrong.size:
        raise DataError(
            f"y holds {wrong.flat[0]}, but its attribute `labels` names only {len(names)} classes; correct"
            " the attribute"
        )
    return np.array(names)[numbers.astype(np.int64)]


def check_known(y: Any) -> None:
    """Raise DataError for a target in memory with a missing value."""
    values = np.asarray(y)
    if values.ndim and values.dtype.kind == "O":
        missing = any(map(_is_missing, values.flat))
    else:
        missing = values.dtype.kind in "fmM" and bool((values != values).any())
    if missing:
        raise DataError("y has missing values; remove the rows where it has none, or fill them in")


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas.NA, which is neither true nor false."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def check_numbers(y: Any) -> None:
    """Raise DataError where regression was asked for and y holds names of classes, text or dates."""
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    if kind in ("M", "m"):
        raise DataError(
            "regression was asked for, but y holds dates or times; pass numbers, such as days from the first"
        )
    if isinstance(y, list | np.ndarray) and np.asarray(y).dtype.kind in "US" and len(y):
        raise DataError(
            f"regression was asked for, but y holds text such as {str(np.asarray(y).ravel()[0])!r}; pass"
            " numbers, or train a DCPredClassifier"
        )
    if class_names(y) is not None:
        raise DataError(
            "regression was asked for, but y holds class labels (its attribute `labels` names them); train a"
            " DCPredClassifier"
        )


def check_class_weight(given: Any) -> None:
    """Raise SettingsError for weights that are neither "balanced" nor positive numbers by class."""
    if isinstance(given, Mapping):
        for name, weight in given.items():
            if not (isinstance(weight, Real) and 0 < float(weight) < np.inf):
                raise SettingsError(
                    f"class_weight gives class {name} the weight {weight!r}, but a weight is a number more"
                    " than 0; correct it, or leave out the rows of that class"
                )
    elif given != "balanced":
        raise SettingsError(
            f"class_weight was set to {given!r}, but it must be balanced, or a dict with the weight of each"
            " class"
        )
