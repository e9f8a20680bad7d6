"""Names of features: where data carry them, and how data are brought into the order of training.

A frame (pandas, polars, pyarrow, Dask) names its columns, an xarray.DataArray may name them by a coordinate: these are put in
order by name. Zarr arrays, and DataArrays without that coordinate, may hold an attribute `feature_names`: it is compared.
Arrays without names are taken as they are. No library of frames is imported here.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import is_a

ATTRIBUTE = "feature_names"
LISTED_NAMES = 3
Names = tuple[str, ...]


def feature_names(X: Any) -> Names | None:
    """The names of the features of X, None where it has none. Raises DataError where only some of them are strings."""
    return _column_names(X) or _attribute_names(X)


def in_training_order(X: Any, trained: Sequence[str] | None) -> Any:
    """X with its features in the order of training; X itself where that is so, or where one of the two has no names.

    Raises DataError where columns are missing, were not trained with, or are named twice, and where the attribute of an array
    names other features.
    """
    if trained is None:
        return X
    trained = tuple(trained)
    given = _column_names(X)
    if given is None:
        check_same_names(_attribute_names(X), trained, "X")
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
        f"the features of {source} are not those that the model was trained on ({pairs}); bring them into the order of training, "
        "or remove the attribute feature_names if only names differ"
    )


def _column_names(X: Any) -> Names | None:
    """Names of the columns of a frame or of the second dimension of a DataArray, where they are strings."""
    if is_a(X, "xarray.DataArray"):
        coordinate = X.coords.get(X.dims[1]) if X.ndim == 2 else None
        names = [] if coordinate is None else coordinate.values.tolist()
    else:
        names = list(X.column_names if is_a(X, "pyarrow.Table") else getattr(X, "columns", ()))
    strings = [name for name in names if isinstance(name, str)]
    if strings and len(strings) < len(names):
        other = next(name for name in names if not isinstance(name, str))
        raise DataError(
            f"the columns of X are named by strings and by other things ({strings[0]!r}, {other!r}); make all of the names "
            "strings, by X.columns = X.columns.astype(str), or none"
        )
    return tuple(strings) or None


def _attribute_names(X: Any) -> Names | None:
    names = None if hasattr(X, "columns") else getattr(X, "attrs", {}).get(ATTRIBUTE)
    return tuple(str(name) for name in names) if isinstance(names, list) else None


def _check_columns(given: Names, trained: Names) -> None:
    """Raise DataError unless the columns are those of training in some order."""
    twice = [name for name, n in Counter(given).items() if n > 1]
    if twice:
        raise DataError(f"two columns of X are named {twice[0]!r}, so that names do not tell their order; rename one of them")
    here, wanted = set(given), set(trained)
    missing = [name for name in trained if name not in here]
    if missing:
        raise DataError(f"X lacks {_listed(missing)}, which the model was trained with; add what is in model.feature_names_in_")
    further = [name for name in given if name not in wanted]
    if further:
        raise DataError(
            f"X has {_listed(further)} beside the features that the model was trained with; select these by "
            "X[model.feature_names_in_]"
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:LISTED_NAMES])
    more = len(names) - LISTED_NAMES
    return f"the feature{'s' if len(names) > 1 else ''} {shown}" + (f" and {more:,} more" if more > 0 else "")
