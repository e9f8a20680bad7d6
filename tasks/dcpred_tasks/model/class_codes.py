"""Values as numbers of classes: every place where a value of data becomes a class asks here.

A target holds either positions in a list of names (its attribute `labels`) or the classes themselves. A
value that is neither is refused with its row: it is never rounded, truncated, or compared after a conversion
to a type that merges two values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import LABELS
from dcpred_tasks.model.compact_model import class_array

LONGEST_NAME = 60  # letters of a value that a message shows
OF_CLASSES = (str, int, float, np.integer, np.floating, np.bool_)
LISTED = 10  # most classes that a message lists


def names_of_classes(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], where: str = "y"
) -> tuple[str, ...] | None:
    """The names for the numbers of a target; None without names, or for text."""
    return class_labels(attributes, where) if dtype.kind in "biuf" else None


def class_labels(attributes: Mapping[str, Any], where: str) -> tuple[str, ...] | None:
    """The names of the classes 0, 1, … in an attribute `labels`; None where it lists none. Raises DataError
    for names that do not identify one class each.

    where  the name of the array in messages
    """
    given = attributes.get(LABELS)
    if isinstance(given, np.ndarray):  # lists of HDF5
        given = given.tolist()
    if not isinstance(given, list | tuple):
        return None
    names: list[str] = []
    for number, value in enumerate(given):
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        name = value if isinstance(value, str) else None
        if name is None and isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            name = str(value)
        if not name:
            raise DataError(
                f"The attribute {LABELS} of {where} gives class {number} the name"
                f" {str(value)[:LONGEST_NAME]!r}. Give each class a text as its name."
            )
        if name in names:
            raise DataError(
                f"The attribute {LABELS} of {where} gives the name {name[:LONGEST_NAME]!r} to the classes"
                f" {names.index(name)} and {number}. Give each class its own name."
            )
        names.append(name)
    return tuple(names)


def class_values(values: NDArray[Any], numbered: bool = True) -> NDArray[Any]:
    """Classes in memory without missing ones: text, numbers, booleans or dates. Numbers and booleans in an
    array of objects get a common dtype; text does not change. Raises DataError for other values, for
    infinity, and for text beside other values.

    numbered  whether the first row is row 0, for messages; else it belongs to a later part
    """
    kind = values.dtype.kind
    if kind == "f" and np.isinf(values).any():
        where = f" in row {int(np.flatnonzero(np.isinf(values.ravel()))[0]):,}" if numbered else ""
        raise DataError(f"Cannot use y: it holds an infinite value{where}. Remove or correct such rows.")
    if kind not in "OSV":
        return values
    flat = values.ravel().tolist()
    if kind == "S" or any(isinstance(value, bytes) for value in flat):
        how = "y.astype(str)" if kind == "S" else "[v.decode() for v in y]"
        raise DataError(f"Cannot use y: it holds bytes. Make them text with {how}.")
    is_text = [isinstance(value, str) for value in flat]
    wrong = next((i for i, value in enumerate(flat) if not isinstance(value, OF_CLASSES)), None)
    if wrong is None and not any(is_text):
        array = class_array(flat).reshape(values.shape)
        if array.dtype.kind != "O":
            return class_values(array, numbered)
        wrong = max(range(len(flat)), key=lambda i: abs(flat[i]))  # No dtype of NumPy holds it.
    if wrong is not None:
        where = f" in row {wrong:,}" if numbered else ""
        raise DataError(
            f"Cannot use y: it holds {type(flat[wrong]).__name__}"
            f" ({str(flat[wrong])[:LONGEST_NAME]!r}){where}, which cannot be a class. Make all classes text"
            " with [str(v) for v in y]."
        )
    if not all(is_text):
        raise DataError(
            f"Cannot use y: it holds text ({flat[is_text.index(True)]!r}) and other values"
            f" ({flat[is_text.index(False)]!r}). Make all classes text with y.astype(str), or none."
        )
    return values


def joined_classes(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The different classes of all parts of a target, ascending. Raises DataError for text beside others."""
    text = [part for part in parts if part.dtype.kind == "U" and len(part)]
    other = [part for part in parts if part.dtype.kind != "U" and len(part)]
    if text and other:
        class_values(np.array([text[0][0].item(), other[0][0].item()], object))
    return np.unique(np.concatenate(text or other or parts))


def class_codes(
    values: NDArray[Any], n_names: int, where: str, rows: int | NDArray[np.integer] = 0
) -> IntArray:
    """Values as positions in a list of names, int64. Raises DataError for the first that is not one.

    values  numbers or booleans (n,)
    where   what they are, for messages
    rows    the number of the first row, or of each
    """
    known = (values >= 0) & (values < n_names)
    if values.dtype.kind == "f":
        known &= values == np.floor(values)
    wrong = np.flatnonzero(~known)
    if len(wrong):
        first = int(wrong[0])
        row = rows + first if isinstance(rows, int) else int(rows[first])
        value = values[first]
        what = "no value (NaN)" if value != value else f"the value {value!s}"
        raise DataError(
            f"Cannot use {where}: it has {what} in row {row:,}, and its attribute `{LABELS}` names only the"
            f" classes 0 to {n_names - 1}. Correct that row, or the attribute."
        )
    return values.astype(np.int64)


def class_positions(labels: NDArray[Any], classes: Sequence[Any]) -> IntArray:
    """The position of each label (n,) among distinct classes, int64; −1 for an unknown label.

    Numbers are compared as numbers, exactly. Where either side is text, both are compared as text.
    """
    labels = labels.astype(object) if labels.dtype.kind == "T" else labels  # it has no cast to a fixed width
    text = any(isinstance(label, str) for label in classes)
    if text or labels.dtype.kind not in "biuf":
        labels = labels.astype(str)
        known = [(str(label), i) for i, label in enumerate(classes)]
    else:
        labels = labels.view(np.uint8) if labels.dtype.kind == "b" else labels
        labels = labels.astype(np.float64) if labels.dtype.kind == "f" else labels
        known = [(value, i) for i, c in enumerate(classes) if (value := _as(labels.dtype, c)) is not None]
    if not known:
        return np.full(len(labels), -1, np.int64)
    values = np.array([value for value, _ in known], labels.dtype.kind if text else None)
    if labels.dtype.kind in "biuf":
        values = values.astype(labels.dtype)
    order = np.argsort(values, kind="stable")
    values, positions = values[order], np.array([i for _, i in known], np.int64)[order]
    at = np.minimum(np.searchsorted(values, labels), len(values) - 1)
    return np.where(values[at] == labels, positions[at], -1)


def _as(dtype: np.dtype[Any], value: Any) -> Any:
    """A number in a dtype; None where the dtype cannot hold it."""
    if dtype.kind == "f":
        return float(value) if float(value) == value else None
    limits = np.iinfo(dtype)
    return int(value) if value == value // 1 and limits.min <= value <= limits.max else None


def listed_classes(classes: Sequence[Any]) -> str:
    """Classes as a message lists them."""
    shown = ", ".join(map(str, classes[:LISTED]))
    return shown if len(classes) <= LISTED else f"{shown}, … {len(classes)} classes"
