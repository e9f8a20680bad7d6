"""Containers of several arrays: HDF5, NetCDF and Zarr."""

import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.datasets.table import damaged
from dcpred_tasks.errors import DataError, optional_package
from dcpred_tasks.input_kinds import LABELS
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_node
from dcpred_tasks.storage.object_arrays import MARKERS
from dcpred_tasks.tables.sources import NETCDF

HDF5_MAGIC, NETCDF_3_MAGIC = b"\x89HDF\r\n\x1a\n", b"CDF"
TEXT_DTYPE: np.dtype[Any] = np.dtypes.StringDType()
DEFAULT_MARKERS = {  # NC_FILL_FLOAT and others
    **dict.fromkeys(("f4", "f8"), 9.969209968386869e36),
    "i4": -2147483647,
    "i8": -9223372036854775806,
}
DIMENSION_ONLY = "This is a netCDF dimension but not a netCDF variable"


class NamedArray(Protocol):
    """An array of an open container."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its length, and that of other dimensions."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of its values; StringDType for text."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Its attributes."""

    @property
    def is_index(self) -> bool:
        """Whether it only numbers or labels the rows of the others."""

    @property
    def chunk_rows(self) -> int | None:
        """Rows that are decoded together; None if any rows can be read alone."""

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Rows in memory."""


class Container(Protocol):
    """A container of named arrays."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    def opened(self) -> AbstractContextManager[dict[str, NamedArray]]:
        """Its arrays by name; those in groups of it are named `group/array`."""


@dataclass(frozen=True)
class _Array:
    """An array of Zarr or HDF5."""

    of: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any]
    is_index: bool
    chunk_rows: int | None = None

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return np.asarray(self.of[rows])


# -- Zarr ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ZarrGroup:
    """A group of Zarr, or a single array, which is then named X."""

    name: str
    address: str

    @contextmanager
    def opened(self) -> Iterator[dict[str, NamedArray]]:
        node = open_node(self.address)
        if isinstance(node, zarr.Array):
            arrays = [("X", node)]
        else:
            arrays = [*zarr_arrays.arrays_of(node), *zarr_arrays.sparse_parts(node)]
        yield {name: _ZarrArray(name, array, *_zarr_dimensions(array, name)) for name, array in arrays}

    def attributes(self) -> dict[str, Any]:
        return dict(open_node(self.address).attrs)


class _ZarrArray(_Array):
    def __init__(
        self, name: str, array: zarr.Array[Any], attributes: Mapping[str, Any], is_index: bool
    ) -> None:
        self.may_hold_classes = name == "y" or LABELS in attributes
        rows = zarr_arrays.chunk_rows(array) if array.ndim else None
        super().__init__(array, array.shape, np.dtype(array.dtype), attributes, is_index, rows)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        if rows.start == 0:  # once per pass
            check = stored_chunks.check_labels if self.may_hold_classes else stored_chunks.check_complete
            check(zarr_arrays.address_of(self.of), self.of)
        return zarr_arrays.read_rows(self.of, rows.start, min(rows.stop, self.shape[0]))


def _zarr_dimensions(array: zarr.Array[Any], name: str) -> tuple[dict[str, Any], bool]:
    attributes = zarr_arrays.value_attributes(array)
    named = getattr(array.metadata, "dimension_names", None) or attributes.get(zarr_arrays.DIMENSIONS_2)
    return attributes, isinstance(named, list | tuple) and list(named) == [name]


# -- HDF5 and NetCDF 4 ---------------------------------------------------------------------------------------


class _Hdf5Array(_Array):
    def __getitem__(self, rows: slice) -> NDArray[Any]:
        try:
            return np.asarray(self.of[rows])
        except UnicodeDecodeError as error:
            raise DataError(
                f"Cannot read an array of text: {error.object[:60]!r} is not UTF-8. Write it as UTF-8."
            ) from None
        except (RuntimeError, TypeError) as error:
            raise OSError(str(error)) from error


@dataclass(frozen=True)
class Hdf5File:
    """A file of HDF5 or NetCDF 4."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @contextmanager
    def opened(self) -> Iterator[dict[str, NamedArray]]:
        with optional_package(f"import {self.name}", "hdf5"):
            import h5py

        try:
            file = h5py.File(self.path, "r")
        except OSError as error:
            raise damaged(self.path, error) from error
        with file:
            try:
                arrays = dict(self._arrays(h5py, file))
            except DataError:
                raise
            except (RuntimeError, OSError, KeyError, ValueError, TypeError) as error:
                raise damaged(self.path, error) from error
            yield arrays

    def _arrays(self, h5py: Any, file: Any) -> Iterator[tuple[str, NamedArray]]:
        """Breadth first: a group with several links gets its shortest name."""
        is_netcdf = self.path.suffix.lower() in NETCDF or "_NCProperties" in file.attrs
        waiting, visited = deque([("", file)]), {h5py.h5o.get_info(file["/"].id).addr}
        while waiting:
            above, group = waiting.popleft()
            for name in group:
                # Soft and external links may lead to other files, and hard ones may form cycles.
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    continue
                node, path = group[name], f"{above}{name}"
                if isinstance(node, h5py.Group):
                    place = h5py.h5o.get_info(node.id).addr
                    if place not in visited:
                        visited.add(place)
                        waiting.append((f"{path}/", node))
                elif isinstance(node, h5py.Dataset) and node.shape is not None:
                    yield path, self._array(h5py, node, path, is_netcdf=is_netcdf)

    def _array(self, h5py: Any, node: Any, name: str, *, is_netcdf: bool) -> NamedArray:
        if node.is_virtual or node.external:
            raise DataError(
                f"Cannot read array {name!r} of {self.name}: it lies in other files, and links to them are"
                " not followed. Write it into this file."
            )
        attributes = dict(node.attrs)
        text = h5py.check_string_dtype(node.dtype) is not None
        is_index = bool(node.is_scale) or DIMENSION_ONLY in str(attributes.get("NAME", ""))
        of = node.asstr(errors="strict") if text else node
        dtype = TEXT_DTYPE if text else node.dtype
        attributes = _with_default_marker(attributes, dtype) if is_netcdf else attributes
        chunk_rows = node.chunks[0] if node.chunks else None
        return _Hdf5Array(of, node.shape, dtype, attributes, is_index, chunk_rows)


def _with_default_marker(attributes: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """netCDF4 masks by a default value if no attribute names one; integers of 8 or 16 bits are all data."""
    default = DEFAULT_MARKERS.get(f"{dtype.kind}{dtype.itemsize}")
    if default is None or any(name in attributes for name in MARKERS):
        return attributes
    return {**attributes, MARKERS[0]: default}


# -- NetCDF 3 ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetCdf3File:
    """A file of the classic NetCDF format."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @contextmanager
    def opened(self) -> Iterator[dict[str, NamedArray]]:
        from scipy.io import netcdf_file

        try:
            file = netcdf_file(self.path, "r", mmap=True)
        except (TypeError, ValueError, OSError, IndexError, KeyError) as error:
            raise damaged(self.path, error) from error
        try:
            yield {name: _classic(file, name) for name in file.variables}
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # rows in use keep their memory
                file.close()


class _ClassicArray(_Array):
    def __getitem__(self, rows: slice) -> NDArray[Any]:
        values = np.array(self.of[rows])
        if values.dtype.kind != "S":
            return values.astype(values.dtype.newbyteorder("="))
        # Text is stored as single bytes along the last dimension.
        return np.ascontiguousarray(values).view(f"S{values.shape[-1]}")[..., 0]


def _classic(file: Any, name: str) -> NamedArray:
    variable = file.variables[name]
    shape, dtype = tuple(variable.shape), np.dtype(variable.data.dtype).newbyteorder("=")
    attributes = {key: _decoded(value) for key, value in variable._attributes.items()}
    attributes = _with_default_marker(attributes, dtype)
    if dtype.kind == "S":
        shape, dtype = shape[:-1], TEXT_DTYPE
    return _ClassicArray(variable.data, shape, dtype, attributes, variable.dimensions == (name,))


def _decoded(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def container(path: Path) -> Container:
    """A file of HDF5 or NetCDF, by its first bytes. Raises DataError, also where h5py is not installed."""
    with path.open("rb") as file:
        magic = file.read(len(HDF5_MAGIC))
    if magic.startswith(NETCDF_3_MAGIC):
        return NetCdf3File(path)
    if magic != HDF5_MAGIC:
        raise damaged(path, ValueError("its first bytes are those of neither HDF5 nor NetCDF"))
    return Hdf5File(path)
