"""The scores of a run as arrays in Python: a lazy xarray.Dataset, or Zarr arrays without xarray."""

from collections.abc import Callable, Mapping
from functools import partial as bound
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import ArrayLike, NDArray

from dcpred.results.stored_scores import StoredScores, open_stored
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import check_options, is_remote
from dcpred_tasks.storage.addresses import storage_options as given_options

Names = tuple[str, ...]


class NamedLabels:
    """The labels of rows by name, read lazily: a slice is an object array of str, None for a row without a
    label.
    """

    def __init__(self, array: zarr.Array[Any], names: Names) -> None:
        self.array, self.names = array, names
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, np.dtype(object)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> NDArray[np.object_]:
        return named(self.names, np.asarray(self.array[rows]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[...].astype(dtype or object)


def named(names: Names, labels: NDArray[Any]) -> NDArray[np.object_]:
    """The names of class numbers; None for an invalid number."""
    table = np.array([*names, None], dtype=object)
    return np.asarray(
        table[np.where((labels >= 0) & (labels < len(names)), labels, len(names))], dtype=object
    )


def open_scores(
    output: str | Path,
    *,
    names: bool = False,
    partial: bool = False,
    storage_options: Mapping[str, str | bool | float] | None = None,
) -> Any:
    """The scores of a run, on a disk or an object store, read lazily.

    names            whether labels are the names of classes, as str, if classes are strings;
                     else they are their numbers, with the attribute `labels`
    partial          whether the run may be unfinished: rows not yet scored have status 0
    storage_options  as --storage-option of the command line

    Returns an xarray.Dataset of Dask arrays over the dimension "sample" (and "output" or "class", labelled by
    the classes, or "bound"), or without xarray a dict of zarr.Array by name. Raises
    PlanConflictError if there is no output, DataError if it is unfinished.
    """
    with given_options(check_options(storage_options or {})):
        scores = open_stored(output, partial=partial)
        known = _names(scores) if names else {}
        if find_spec("xarray") is None:
            arrays: dict[str, Any] = dict(scores.arrays)
            return arrays | {name: NamedLabels(arrays[name], own) for name, own in known.items()}
        return _dataset(scores, known)


def _names(scores: StoredScores) -> dict[str, Names]:
    """Names of classes by the array that holds their numbers."""
    found = {name: array.attrs.get("labels") for name, array in scores.arrays.items()}
    return {
        name: tuple(own)
        for name, own in found.items()
        if isinstance(own, list) and all(isinstance(one, str) for one in own)
    }


def _dataset(scores: StoredScores, known: Mapping[str, Names]) -> Any:
    xarray = import_module("xarray")
    address = scores.run.scores
    # A path can be sent to workers of Dask, a store of an object store cannot.
    where: Any = zarr_arrays.open_group(address).store_path if is_remote(address) else None
    store, group = (address, None) if where is None else (where.store, where.path)
    data = xarray.open_zarr(store, group=group, consolidated=False, chunks={})
    for name, own in known.items():
        decoded: Callable[[ArrayLike], Any] = bound(named, own)
        options = {"dask": "parallelized", "output_dtypes": [object], "keep_attrs": True}
        data[name] = xarray.apply_ufunc(decoded, data[name], **options)
    for column in scores.columns:
        array = scores.arrays[column.name]
        if array.ndim > 1 and (summary := column.numbers(array.attrs, array.shape[1])) is not None:
            data = data.assign_coords({column.dimensions[1]: summary})
    return data.assign_attrs(run=scores.run.run, finished=scores.finished)
