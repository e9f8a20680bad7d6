"""Names of features: where data carry them, and how data are reordered as in training.

A frame (pandas, polars, pyarrow, Dask) names its columns, an xarray.DataArray may name them by a coordinate:
these are ordered by name. Zarr arrays, and DataArrays without that coordinate, may have an attribute
`feature_names`, which is compared. Arrays without names are used unchanged, and so are columns numbered 0, 1,
2 and so on, if the model has no names either. Other names are refused. No library of frames is imported here.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from dcpred_tasks.errors import DataError, doubled
from dcpred_tasks.input_kinds import is_a

ATTRIBUTE = "feature_names"
LISTED_NAMES = 3
Names = tuple[str, ...]


def feature_names(X: Any) -> Names | None:
    """The names of the features of X, or None. Raises DataError for duplicates and names of other types."""
    return _column_names(X) or _attribute_names(X)


def in_training_order(X: Any, trained: Sequence[str] | None) -> Any:
    """X with its features in the order of training; X itself where that is so, where the model has no names,
    and where X is an array without names.

    Raises DataError as feature_names does, and where the model has names and columns are missing, were not
    trained with or are only numbered, and where the attribute of an array names other features.
    """
    given = _column_names(X)
    if trained is None:
        return X
    trained = tuple(trained)
    if given is None:
        attribute = _attribute_names(X)
        check_same_names(attribute, trained, "X")
        if attribute is None and _column_labels(X):
            raise DataError(
                "Cannot use X: its columns are only numbered, but the model was trained on"
                f" {_listed(trained)}. Name the columns, or pass an array with columns in the order of"
                " model.feature_names_in_."
            )
        return X
    if given == trained:
        return X
    _check_columns(given, trained)
    if is_a(X, "xarray.DataArray"):
        at = {name: i for i, name in enumerate(given)}
        return X[:, [at[name] for name in trained]]
    return X.select(list(trained)) if is_a(X, "pyarrow.Table") else X[list(trained)]


def check_same_names(given: Names | None, trained: Names | None, source: str) -> None:
    """Raise DataError where data and model both name their features, and differently."""
    if given is None or trained is None or given == trained:
        return
    wrong = [i for i, (a, b) in enumerate(zip(given, trained, strict=False)) if a != b]
    at = wrong[0] if wrong else min(len(given), len(trained))
    pairs = ", ".join(f"{i} {given[i]!r} for {trained[i]!r}" for i in wrong[:LISTED_NAMES]) or f"from {at} on"
    raise DataError(
        f"Cannot use {source}: its features are not those that the model was trained on ({pairs}). Bring them"
        " into the order of training, or remove the attribute feature_names if only names differ."
    )


def _column_names(X: Any) -> Names | None:
    """Names of the columns of a frame or of a DataArray; None without names or with numbers only."""
    labels = _column_labels(X)
    if all(
        isinstance(label, Integral) and label == i and not isinstance(label, bool)
        for i, label in enumerate(labels)
    ):
        return None
    strings = [label for label in labels if isinstance(label, str)]
    others = [label for label in labels if not isinstance(label, str)]
    if strings and others:
        raise DataError(
            f"Cannot use X: some names of its columns are strings and others are not ({strings[0]!r},"
            f" {others[0]!r}). Make all of the names strings with {_renaming(X, joined=False)}."
        )
    if others:
        shown = ", ".join(repr(label) for label in others[:LISTED_NAMES]) + (
            ", ..." if len(others) > LISTED_NAMES else ""
        )
        raise DataError(
            f"Cannot use X: the names of its columns are not strings ({shown}). Make them strings with"
            f" {_renaming(X, joined=all(isinstance(label, tuple) for label in others))}, or pass an array."
        )
    if (twice := doubled(strings)) is not None:
        raise DataError(
            f"Cannot use X: two columns are named {twice!r}, and their order is ambiguous. Rename one of"
            " them, or pass an array."
        )
    return tuple(strings)


def _column_labels(X: Any) -> list[Any]:
    """The labels of the columns of a frame or of a DataArray, of any type; empty for other arrays."""
    if is_a(X, "xarray.DataArray"):
        # `coords.get` would number a dimension that has no labels.
        labelled = X.ndim == 2 and X.dims[1] in X.coords
        return list(X.coords[X.dims[1]].values.tolist()) if labelled else []
    return list(X.column_names if is_a(X, "pyarrow.Table") else getattr(X, "columns", ()))


def _renaming(X: Any, *, joined: bool) -> str:
    """Code that turns names into strings; `joined` where each is a tuple, as in a MultiIndex."""
    if is_a(X, "xarray.DataArray"):
        dimension = repr(X.dims[1])
        without = f"X.reset_index({dimension})" if joined else "X"
        return f"X = {without}.assign_coords({{{dimension}: [str(name) for name in X[{dimension}].values]}})"
    return "X.columns = " + (
        "['_'.join(map(str, name)) for name in X.columns]" if joined else "X.columns.astype(str)"
    )


def _attribute_names(X: Any) -> Names | None:
    names = None if hasattr(X, "columns") else getattr(X, "attrs", {}).get(ATTRIBUTE)
    return tuple(str(name) for name in names) if isinstance(names, list) else None


def _check_columns(given: Names, trained: Names) -> None:
    """Raise DataError unless the columns are those of training in some order."""
    names, wanted = set(given), set(trained)
    missing = [name for name in trained if name not in names]
    if missing:
        raise DataError(
            f"Cannot use X: it lacks {_listed(missing)}, which the model was trained with. Add the columns of"
            " model.feature_names_in_."
        )
    further = [name for name in given if name not in wanted]
    if further:
        raise DataError(
            f"Cannot use X: it has {_listed(further)} beside the features that the model was trained with."
            " Select X[model.feature_names_in_]."
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:LISTED_NAMES])
    more = len(names) - LISTED_NAMES
    return f"the feature{'s' if len(names) > 1 else ''} {shown}" + (f" and {more:,} more" if more > 0 else "")
