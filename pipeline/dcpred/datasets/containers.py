"""Files and groups that hold named arrays: Zarr of both formats, HDF5 and NetCDF.

Each gives its arrays while it is open: what has a shape and a dtype, and is sliced by rows. Nothing is
followed that leads to another file.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr
from numpy.typing import NDArray
from scipy.io import netcdf_file

from dcpred.datasets.table import damaged
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage import stored_chunks, zarr_arrays

HDF5, NETCDF = (".h5", ".hdf5", ".hdf", ".he5"), (".nc", ".nc4", ".cdf", ".netcdf")
HDF5_MAGIC, NETCDF_3_MAGIC = b"\x89HDF\r\n\x1a\n", b"CDF"
TEXT_DTYPE: np.dtype[Any] = np.dtypes.StringDType()
DIMENSION_ONLY = "This is a netCDF dimension but not a netCDF variable"


class NamedArray(Protocol):
    """An array of a container that is open."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its length, and that of other dimensions."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of its values; StringDType for text."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What is said of it."""

    @property
    def is_index(self) -> bool:
        """Whether it only numbers or labels the rows of the others."""

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Rows in memory."""


class Container(Protocol):
    """What holds named arrays."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

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
        node = zarr_arrays.open_any(self.address)
        arrays = [("X", node)] if isinstance(node, zarr.Array) else zarr_arrays.arrays_of(node)
        yield {name: _ZarrArray(array, *_zarr_dimensions(array, name)) for name, array in arrays}

    def attributes(self) -> dict[str, Any]:
        return dict(zarr_arrays.open_any(self.address).attrs)


class _ZarrArray(_Array):
    def __init__(self, array: zarr.Array[Any], attributes: Mapping[str, Any], is_index: bool) -> None:
        super().__init__(array, array.shape, np.dtype(array.dtype), attributes, is_index)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        if rows.start == 0:  # once for each pass
            stored_chunks.check_complete(zarr_arrays.address_of(self.of), self.of)
        return zarr_arrays.read_rows(self.of, rows.start, min(rows.stop, self.shape[0]))


def _zarr_dimensions(array: zarr.Array[Any], name: str) -> tuple[dict[str, Any], bool]:
    attributes = dict(array.attrs)
    named = getattr(array.metadata, "dimension_names", None) or attributes.get("_ARRAY_DIMENSIONS")
    return attributes, isinstance(named, list | tuple) and list(named) == [name]


# -- HDF5 and NetCDF 4 ---------------------------------------------------------------------------------------


class _Hdf5Array(_Array):
    def __getitem__(self, rows: slice) -> NDArray[Any]:
        try:
            return np.asarray(self.of[rows])
        except (RuntimeError, TypeError) as error:
            raise OSError(str(error)) from error


@dataclass(frozen=True)
class Hdf5File:
    """A file of HDF5, as NetCDF 4 is."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @contextmanager
    def opened(self) -> Iterator[dict[str, NamedArray]]:
        import h5py  # noqa: PLC0415 - optional

        try:
            file = h5py.File(self.path, "r")
        except OSError as error:
            raise damaged(self.path, error) from error
        with file:
            try:
                arrays = dict(self._arrays(h5py, file, ""))
            except DataError:
                raise
            except (RuntimeError, OSError, KeyError, ValueError, TypeError) as error:
                raise damaged(self.path, error) from error
            yield arrays

    def _arrays(self, h5py: Any, group: Any, above: str) -> Iterator[tuple[str, NamedArray]]:
        for name in group:
            # Links may lead to other files, and in circles.
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            node = group[name]
            if isinstance(node, h5py.Group) and above.count("/") < 8:
                yield from self._arrays(h5py, node, f"{above}{name}/")
            elif isinstance(node, h5py.Dataset) and node.shape is not None:
                yield f"{above}{name}", self._array(h5py, node, f"{above}{name}")

    def _array(self, h5py: Any, node: Any, name: str) -> NamedArray:
        if node.is_virtual or node.external:
            raise DataError(
                f"array {name!r} of {self.name} lies in other files, which are not followed; write it into"
                " this one"
            )
        attributes = dict(node.attrs)
        text = h5py.check_string_dtype(node.dtype) is not None
        is_index = bool(node.is_scale) or DIMENSION_ONLY in str(attributes.get("NAME", ""))
        of = node.asstr(errors="strict") if text else node
        return _Hdf5Array(of, node.shape, TEXT_DTYPE if text else node.dtype, attributes, is_index)


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
        try:
            file = netcdf_file(self.path, "r", mmap=True)
        except (TypeError, ValueError, OSError, IndexError, KeyError) as error:
            raise damaged(self.path, error) from error
        try:
            yield {name: _classic(file, name) for name in file.variables}
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # rows that are still looked at keep their memory
                file.close()


class _ClassicArray(_Array):
    def __getitem__(self, rows: slice) -> NDArray[Any]:
        values = np.array(self.of[rows])
        return values.astype(values.dtype.newbyteorder("=")) if values.dtype.kind != "S" else _joined(values)


def _classic(file: Any, name: str) -> NamedArray:
    variable = file.variables[name]
    shape, dtype = tuple(variable.shape), np.dtype(variable.data.dtype).newbyteorder("=")
    attributes = {key: _decoded(value) for key, value in variable._attributes.items()}
    if dtype.kind == "S":
        shape, dtype = shape[:-1], TEXT_DTYPE
    return _ClassicArray(variable.data, shape, dtype, attributes, variable.dimensions == (name,))


def _joined(letters: NDArray[Any]) -> NDArray[Any]:
    """Text from single bytes along the last dimension."""
    texts = np.ascontiguousarray(letters).view(f"S{letters.shape[-1]}")[..., 0]
    return np.char.decode(texts, "utf-8").astype(object)


def _decoded(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def container(path: Path) -> Container:
    """A file of HDF5 or NetCDF, as its first bytes tell. Raises DataError where it is neither, or where h5py
    is not installed.
    """
    with path.open("rb") as file:
        magic = file.read(len(HDF5_MAGIC))
    if magic.startswith(NETCDF_3_MAGIC):
        return NetCdf3File(path)
    if magic != HDF5_MAGIC:
        raise damaged(path, ValueError("its first bytes are those of neither HDF5 nor NetCDF"))
    if find_spec("h5py") is None:
        raise DataError(
            f"{path.name} was to be imported, but h5py, which reads HDF5 and NetCDF 4, is not installed;"
            " install"
            ' it by `pip install "dcpred[hdf5]"`'
        )
    return Hdf5File(path)
