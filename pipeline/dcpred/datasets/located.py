"""Where the model and the data of a call lie, for as long as it runs."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import numpy as np
import zarr

from dcpred.public.remarks import add_remarks
from dcpred.serving.served_model import ServedModel
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError, RefusedError
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import Address, absolute
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.table_files import passed_over

A = TypeVar("A", bound=Address)


@dataclass(frozen=True)
class Addresses(Generic[A]):
    """Addresses of the arrays of a data set."""

    x: A | str
    y: A | str = ""
    weight: A | str | None = None


def address_of_model(model: Any) -> str | Path:
    """The path or address of a model. Raises DataError for a model that is only in memory."""
    if isinstance(model, ServedModel):
        return model.artifact.path
    if isinstance(model, str | Path):
        return model
    raise DataError(
        f"Cannot use a value of type {type(model).__name__} as model: it is not a path. Pass the path of a"
        " model; an estimator writes one by its method save."
    )


@contextmanager
def labelled_rows(data: Any, x: str, y: Any, model: str | Path, client: Any) -> Iterator[Addresses[Address]]:
    """As `located`, of labelled rows that a model scores. Some may have no target."""
    check_target(y)

    def find(address: str | Path, name: str) -> Address:
        return find_rows(address, name, model, with_target=True)

    with located(data, x, y, None, find, client, None, model) as addresses:
        yield addresses


@contextmanager
def located(
    data: Any,
    x: str,
    y: Any,
    weight: Any,
    find: Callable[[str | Path, str], A],
    client: Any,
    beside: str | Path | None,
    model: str | Path | None = None,
) -> Iterator[Addresses[A]]:
    """Where arrays lie. Those that no worker could open are written as Zarr first: to BESIDE.data.zarr, where
    a later call finds them, or to a temporary directory.

    y, weight  names of arrays in stored data, or arrays; None: there is none
    model      the features of rows are brought into its order
    """
    if data is None:
        raise DataError("Cannot use None as data. Pass a path, an address or an array.")
    if isinstance(data, zarr.Group) and zarr_arrays.array_address(data) is not None:
        data = zarr_arrays.address_of(data)
    if isinstance(data, str | Path):
        check_names(y=y, sample_weight=weight)
        add_remarks(*passed_over(data))
        target = "" if y is None else find(data, y)
        yield Addresses(find(data, x), target, None if weight is None else find(data, weight))
        return
    if isinstance(data, zarr.Group):
        held = {name: name if isinstance(name, str) else None for name in (x, y, weight)}
        data, y, weight = (None if held[name] is None else data[name] for name in (x, y, weight))
    arrays = {"X": data, "y": y, "sample_weight": weight}
    for name, array in arrays.items():
        if isinstance(array, str):
            raise DataError(
                f"Cannot use {name}={array!r}: it is the name of an array, but data is an array itself."
                " Pass an array, too; of a frame its column, and the frame without it."
            )
    _check_lengths(arrays)
    addresses = {name: zarr_arrays.stored_address(a) for name, a in arrays.items() if a is not None}
    if all(addresses.values()):
        yield Addresses(str(addresses["X"]), addresses.get("y") or "", addresses.get("sample_weight"))
        return
    from dcpred.datasets.dask_rows import write_data

    names = None if model is None else open_artifact(model).feature_names
    with TemporaryDirectory(prefix="dcpred-") as folder:
        place = f"{folder}/data.zarr" if beside is None else f"{absolute(beside).rstrip('/')}.data.zarr"
        was_there = open_place(place).is_there()
        written = write_data(data, y, weight, place, names, client, unlabelled=model is not None)
        paths = {name: f"{place}/{name}" for name in written}
        weights = paths.get("weight") or addresses.get("sample_weight")
        try:
            yield Addresses(
                paths.get("X") or str(addresses["X"]), paths.get("y") or addresses.get("y") or "", weights
            )
        except RefusedError:
            if not was_there:
                _remove(place)
            raise


def _remove(address: str) -> None:
    """Remove a data set that this call wrote."""
    place = open_place(address)
    if place.folder is not None:
        shutil.rmtree(place.folder, ignore_errors=True)
        return
    for name in place.listing():
        place.remove(name)


def _check_lengths(arrays: Mapping[str, Any]) -> None:
    """Raise DataError for arrays that do not belong together, before any is written."""
    shapes = {name: getattr(array, "shape", None) or np.shape(array) for name, array in arrays.items()}
    rows = shapes["X"][0] if shapes["X"] else None
    for name, shape in shapes.items():
        if not shape and isinstance(arrays[name], Real):
            raise DataError(f"Cannot use {name}={arrays[name]!r}: it is one number. Pass an array.")
        if shape and isinstance(rows, int) and isinstance(shape[0], int) and shape[0] != rows:
            raise DataError(
                f"Cannot use {name} with X: it has {shape[0]:,} rows, X has {rows:,}. Pass arrays of the same"
                " rows."
            )


def check_target(y: Any) -> None:
    if y is None or (isinstance(y, str) and not y):
        raise DataError(f"Cannot use y={y!r}: it names no targets. Pass an array, or the name of one.")


def check_names(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise DataError(
                f"Cannot use a value of type {type(value).__name__} as {name}: data is stored at an address."
                " Pass the name of the array there, or data as an array."
            )
