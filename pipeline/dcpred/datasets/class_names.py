"""Names of classes: where a target of integers carries them, and how numbers are put as names; and
what their weights may be.

Zarr arrays and xarray.DataArrays may hold an attribute `labels`, as data sets that were imported do: the
names of 0, 1, …
"""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.public.remarks import add_remarks
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.input_kinds import check_one_table, is_a, is_lazy, is_missing, unmasked_list
from dcpred_tasks.model.class_codes import class_codes, names_of_classes
from dcpred_tasks.model.compact_model import class_array
from dcpred_tasks.storage.zarr_arrays import plain_text
from dcpred_tasks.training.survey import FEW_CLASSES, heavy_row

Names = tuple[str, ...]


def class_names(y: Any) -> Names | None:
    """The names of classes that an array of numbers carries, None where it has none."""
    if not (is_a(y, "xarray.DataArray") or is_a(y, "zarr.Array")):
        return None
    return names_of_classes(y.attrs, np.dtype(y.dtype))


def named(y: Any, names: Names | None) -> Any:
    """A target in memory with names of classes, y itself without names. Raises DataError without a name."""
    if names is None:
        is_array = is_a(y, "zarr.Array") or isinstance(y, np.ndarray)
        return plain_text(np.asarray(y), "y") if is_array and y.dtype.kind == "T" else y
    numbers: NDArray[Any] = np.asarray(y)
    check_known(y)
    return np.array(names)[class_codes(numbers.ravel(), len(names), "y").reshape(numbers.shape)]


def is_gap(y: Any, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which cells of a column in memory are missing; `values` are the same as an array."""
    if np.ma.is_masked(y):
        return np.ma.getmaskarray(y)
    if values.ndim and values.dtype.kind in "OT":
        return np.array([is_missing(value) for value in values.flat], bool).reshape(values.shape)
    return np.asarray(values != values) if values.dtype.kind in "fmM" else np.zeros(values.shape, bool)


def check_known(y: Any, name: str = "y") -> None:
    """Raise DataError for a column in memory, a target or weights, with a missing value."""
    if is_gap(y, np.asarray(unmasked_list(y))).any():
        raise DataError(
            f"Cannot use {name}: it has missing values. Remove those rows, or fill the values in."
        )


def plain_column(column: Any, name: str = "y") -> Any:
    """A target or weights in memory as a NumPy array of their own values: NumPy and scikit-learn convert some
    to float64, in which large integers are the same. Anything else as it is. Raises DataError for a
    missing value.
    """
    if column is None or is_lazy(column):
        return column
    if is_a(column, "pandas.DataFrame") and column.shape[1] == 1:
        values = plain_column(column.iloc[:, 0], name)
        return values[:, None] if isinstance(values, np.ndarray) else column
    check_one_table(column, name)
    check_known(column, name)
    if is_a(column, "pandas.Series") and hasattr(column.dtype, "numpy_dtype"):
        return column.to_numpy(dtype=column.dtype.numpy_dtype)
    if isinstance(column, list | tuple):
        values = np.asarray(column)
        check_one_table(values, name)
        if values.dtype.kind == "f" and values.ndim == 1 and any(isinstance(v, int) for v in column):
            return class_array(column)
        return column
    values = np.asarray(column)
    if values.dtype.kind == "O" and values.ndim == 1 and all(type(v) is int for v in values):
        return class_array(values.tolist())
    if values.dtype.kind == "T":  # NumPy's StringDType, which np.unique and JSON do without
        return np.array(values.tolist(), dtype=str)
    return values if _is_of_arrow(column) or isinstance(column, np.ma.MaskedArray) else column


def _is_of_arrow(column: Any) -> bool:
    return any(is_a(column, kind) for kind in ("pyarrow.Array", "pyarrow.ChunkedArray", "polars.Series"))


def check_are_classes(y: NDArray[Any]) -> None:
    """Raise DataError for numbers in memory that are to be predicted, and are no classes: as for rows out of
    core, few of them may have a fraction. scikit-learn asks for the words in parentheses.
    """
    if y.dtype.kind == "f" and (y != np.rint(y)).any() and len(np.unique(y)) > FEW_CLASSES:
        raise DataError(
            "Cannot classify y: it is continuous (Unknown label type: continuous). Train a DCPredRegressor,"
            " or group its values into classes."
        )


def known_weight(weight: Any, n_rows: int, largest: float) -> Any:
    """Weights of rows in memory as numbers, or None. Raises DataError for what is no weight; warns of a row
    that outweighs all others.

    largest  the setting `largest_weight`
    """
    weight = plain_column(weight, "sample_weight")
    if weight is None:
        return None
    if isinstance(weight, Real):
        weight = np.full(n_rows, weight)
    try:
        values = np.asarray(weight).astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "Cannot use sample_weight: it holds values that are not numbers. Pass numbers of 0 or more."
        ) from None
    if values.shape != (n_rows,):
        raise DataError(
            f"Cannot use sample_weight: it has shape {values.shape}, but X has {n_rows:,} rows. Pass one"
            " weight for each row."
        )
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise DataError(
            f"Cannot use sample_weight: it holds {values[wrong[0]]} in row {wrong[0]:,}, which is negative"
            " or not finite. Pass numbers of 0 or more."
        )
    if not values.any():
        raise DataError(
            "Cannot use sample_weight: every weight is zero. Pass a weight above zero for some row."
        )
    heaviest = np.array([values.sum(), values.max(), values.argmax()])
    if heavy := heavy_row(heaviest, int(np.count_nonzero(values)), largest):
        add_remarks(heavy)
    return values


def check_one_each(y: NDArray[Any], n_rows: int) -> None:
    """Raise DataError for a target in memory that has not one value for each row."""
    n = y.shape[0] if y.ndim else n_rows
    if n != n_rows:
        raise DataError(
            f"Cannot use y: it has {n:,} values, but X has {n_rows:,} rows. Pass one value for each row."
        )


def check_numbers(y: Any) -> None:
    """Raise DataError if y cannot be a target of regression: it holds class labels, text or dates."""
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    if kind in ("M", "m"):
        raise DataError(
            "Cannot use y for regression: it holds dates or times. Pass numbers, for example days since the"
            " first date."
        )
    if y is not None and not is_lazy(y) and not is_a(y, "zarr.Array"):
        values = np.asarray(unmasked_list(y))
        text = (
            next((v for v in values.flat if isinstance(v, str | bytes)), None) if _of_text(values) else None
        )
        if text is not None:
            raise DataError(
                f"Cannot use y for regression: it holds text, for example {str(text)!r}. Pass numbers, or"
                " train a DCPredClassifier."
            )
        if values.dtype.kind == "f" and np.isinf(values).any():
            raise DataError(
                "Cannot use y for regression: it holds an infinite value in row"
                f" {int(np.flatnonzero(np.isinf(values))[0]):,}. Correct or remove such rows."
            )
    if class_names(y) is not None:
        raise DataError(
            "Cannot use y for regression: it holds class labels (its attribute `labels` names them). Train a"
            " DCPredClassifier."
        )


def _of_text(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "OUST"


def check_class_weight(given: Any) -> None:
    """Raise SettingsError for weights that are neither "balanced" nor positive numbers by class."""
    if isinstance(given, Mapping):
        for name, weight in given.items():
            if not (isinstance(weight, Real) and 0 < float(weight) < np.inf):
                raise SettingsError(
                    f"Cannot use class_weight: class {name} has the weight {weight!r}, which is not a"
                    " number above 0. Correct it, or remove the rows of that class."
                )
    elif given != "balanced":
        raise SettingsError(
            f"Cannot use class_weight={given!r}: it is neither 'balanced' nor a dict. Pass one of them, a"
            " dict with the weight of each class."
        )
