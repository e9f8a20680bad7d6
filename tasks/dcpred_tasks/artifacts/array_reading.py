"""Arrays of a model on disk, read and checked against what its model.json declares of them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.model_checks import check_stored
from dcpred_tasks.artifacts.model_layout import check_sizes
from dcpred_tasks.errors import ModelFormatError, ResourceError
from dcpred_tasks.model.leaf_arrays import ModelArray
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import is_remote
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.storage.store_requests import StoreError, at_once


def read_arrays(
    path: str, address: str, declared: Mapping[str, Any], wanted: Mapping[str, ModelArray]
) -> dict[str, NDArray[Any]]:
    """The wanted arrays of the group at `address`, of the model at `path`. Raises ModelFormatError where one
    is damaged or not declared.
    """
    try:
        group, names = zarr_arrays.open_group(address), _in(declared, wanted)
        calls = [
            partial(_read_array, path, group, name, declared[name], np.dtype(wanted[name].dtype))
            for name in names
        ]
        values = at_once(calls, address) if is_remote(address) else [call() for call in calls]
        arrays = dict(zip(names, values, strict=True))
    except (ModelFormatError, ResourceError, StoreError):
        raise
    except Exception as error:  # a damaged chunk can raise anything from the codec pipeline
        raise altered(path, f"its arrays cannot be read ({type(error).__name__}: {error})") from None
    with checked(path):
        check_sizes(arrays)
    return arrays


def _in(declared: Mapping[str, Any], wanted: Iterable[str]) -> list[str]:
    names = list(wanted)
    absent = [name for name in names if name not in declared]
    if absent:
        raise KeyError(f"array {absent[0]} is not declared")
    return names


def _read_array(
    path: str, group: Any, name: str, declared: Mapping[str, Any], dtype: np.dtype[Any]
) -> NDArray[Any]:
    stored = zarr_arrays.member(group, name)
    check_stored(name, stored.shape, stored.chunks)
    shape, of = list(stored.shape), np.dtype(stored.dtype).name
    if shape != declared["shape"] or of != declared["dtype"] or of != dtype.name:
        raise altered(path, f"array {name} is {of} {shape}, not {dtype.name} {declared['shape']}")
    value = np.asarray(stored[...])
    if digest(value) != declared["digest"]:
        raise altered(path, f"array {name} does not match its digest")
    return value


@contextmanager
def checked(path: str) -> Iterator[None]:
    """A ValueError inside becomes the ModelFormatError of the model at `path`."""
    try:
        yield
    except ValueError as error:
        raise altered(path, str(error)) from None


def altered(path: str, how: str) -> ModelFormatError:
    return ModelFormatError(
        f"Cannot use the model at {path}: it is damaged or was altered: {how}. Copy it again from its source"
        " or train it again."
    )
