"""Sparse matrices: read piece by piece, and written dense, because kernels of scaled rows see all features.
The size is checked before the memory and the disk are used.
"""

import math
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dcpred.datasets.table import damaged
from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.storage.atomic_files import resource_errors

SPARSE = {"format", "shape", "data"}  # arrays of every file that scipy.sparse.save_npz writes
DENSE_LIMIT = 2**30  # bytes
SPARSE_SHARE = 0.1  # fraction of values from which on rows count as dense
LARGEST_SMALL = 2**16  # bytes of the arrays that hold a format and a shape
LEFT_FREE = 2**28  # bytes of a disk that unpacked arrays leave free
GIB, MIB = 2**30, 2**20


def check_dense(name: str, shape: tuple[int, int], n_values: int, itemsize: int, limit: int) -> None:
    """Raise DataError if dense rows would exceed the limit of bytes, and few of their values are stored.

    n_values  stored values; all others are zero
    """
    n_rows, n_features = shape
    size, share = n_rows * n_features * itemsize, n_values / (n_rows * n_features)
    if size > limit and share < SPARSE_SHARE:
        raise DataError(
            f"Cannot import {name}: it is sparse ({100 * share:.2g} % of its values are stored), and its"
            f" {n_rows:,} dense rows of {n_features:,} features take {_bytes(size)}, more than the limit of"
            f" {_bytes(limit)}, and about four times as much in training. Choose or project features first"
            " (sklearn.feature_selection, sklearn.decomposition.TruncatedSVD), or raise"
            " --dense-limit."
        )


def unpacked(path: Path, archive: zipfile.ZipFile, names: Sequence[str], scratch: Path) -> dict[str, str]:
    """The files that arrays of an .npz file become in a folder, by name. Raises DataError if an array's size
    differs from its header, ResourceError if the disk is too small: some kilobytes may unpack to
    terabytes.
    """
    sizes = {}
    for name in names:
        sizes[name] = archive.getinfo(f"{name}.npy").file_size
        with archive.open(f"{name}.npy") as file:
            declared = _declared_bytes(file)
        if declared not in (None, sizes[name]):
            raise damaged(
                path, ValueError(f"array {name} declares {declared:,} bytes and has {sizes[name]:,}")
            )
    free = max(shutil.disk_usage(scratch).free - LEFT_FREE, 0)
    if sum(sizes.values()) > free:
        raise ResourceError(
            f"Cannot import {path.name}: its arrays {', '.join(sizes)} take {_bytes(sum(sizes.values()))}"
            f" unpacked, but {_bytes(free)} are free at {scratch.parent}. Free some space, or"
            " import to another disk."
        )
    with resource_errors(scratch):
        return {name: archive.extract(f"{name}.npy", scratch) for name in names}


def _declared_bytes(file: IO[bytes]) -> int | None:
    """Bytes of an .npy file by its own header; None for another kind of header."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            return None
        is_first = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except ValueError:
        return None
    return None if dtype.hasobject else file.tell() + math.prod(shape) * dtype.itemsize


def _bytes(size: int) -> str:
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / MIB:,.1f} MiB"


class SparseFile:
    """A matrix in the format CSR of scipy.sparse.save_npz, whose arrays are unpacked: rows become
    dense on demand. Raises DataError for other contents.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile, scratch: Path) -> None:
        held = {name.removesuffix(".npy") for name in archive.namelist()}
        self.path, self.archive = path, archive
        kind = self._small("format").item()
        summary = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
        if summary != "csr" or not {"indices", "indptr"} <= held:
            raise DataError(
                f"Cannot import {path.name}: it holds a sparse matrix of the format {summary}, which cannot"
                " be"
                " read row by"
                " row. Write it again by scipy.sparse.save_npz(file, X.tocsr())."
            )
        shape = self._small("shape")
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 1).any():
            raise DataError(f"Cannot use {path.name} as X: its shape is {shape.tolist()}. Write it again.")
        self.shape = int(shape[0]), int(shape[1])
        files = unpacked(path, archive, ("data", "indices", "indptr"), scratch)
        self.data, self.indices, self.indptr = map(self._mapped, files.values())
        self.dtype, self.n_values = self.data.dtype, len(self.data)
        self._check()

    def _small(self, name: str) -> NDArray[Any]:
        if self.archive.getinfo(f"{name}.npy").file_size > LARGEST_SMALL:
            raise damaged(self.path, ValueError(f"its array {name} has thousands of values"))
        with self.archive.open(f"{name}.npy") as file:
            return np.atleast_1d(np.lib.format.read_array(file, allow_pickle=False))

    def _mapped(self, file: str) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(file, mmap_mode="r")
        except ValueError as error:
            raise damaged(self.path, error) from None
        return array

    def _check(self) -> None:
        ends = self.indptr
        sound = (
            all(a.ndim == 1 for a in (self.data, self.indices, ends))
            and self.data.dtype.kind in "biuf"
            and self.data.dtype.itemsize <= 8
            and all(a.dtype.kind in "iu" for a in (self.indices, ends))
            and len(ends) == self.shape[0] + 1
            and int(ends[0]) == 0
            and int(ends[-1]) == len(self.indices) == len(self.data)
            and bool((np.diff(ends) >= 0).all())
        )
        if not sound:
            raise damaged(
                self.path, ValueError("its arrays are not those of a sparse matrix of real numbers")
            )

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        ends = self.indptr[rows.start : min(rows.stop, self.shape[0]) + 1].astype(np.int64)
        at = slice(int(ends[0]), int(ends[-1]))
        columns = np.asarray(self.indices[at], np.int64)
        if len(columns) and not 0 <= columns.min() <= columns.max() < self.shape[1]:
            raise damaged(self.path, ValueError(f"a row has a feature beyond its {self.shape[1]:,} features"))
        kept = csr_array((self.data[at], columns, ends - ends[0]), shape=(len(ends) - 1, self.shape[1]))
        return np.asarray(kept.toarray())
