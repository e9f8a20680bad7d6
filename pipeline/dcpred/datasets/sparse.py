"""Sparse matrices, and files of svmlight's format."""

import io
import math
import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dcpred.datasets.table import Batch, Table, TargetSurvey, damaged
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.storage.atomic_files import resource_errors
from dcpred_tasks.tables import csv_files
from dcpred_tasks.tables.arrow_columns import first_rounded, rounded
from dcpred_tasks.tables.csv_files import open_bytes
from dcpred_tasks.tables.table_columns import Spread, no_rows

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
            " (sklearn.feature_selection, sklearn.decomposition.TruncatedSVD), or raise --dense-limit."
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
        layout = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
        if layout != "csr" or not {"indices", "indptr"} <= held:
            raise DataError(
                f"Cannot import {path.name}: it holds a sparse matrix of the format {layout}, which cannot"
                " be read row by row. Write it again by scipy.sparse.save_npz(file, X.tocsr())."
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
        from scipy.sparse import csr_array

        ends = self.indptr[rows.start : min(rows.stop, self.shape[0]) + 1].astype(np.int64)
        at = slice(int(ends[0]), int(ends[-1]))
        columns = np.asarray(self.indices[at], np.int64)
        if len(columns) and not 0 <= columns.min() <= columns.max() < self.shape[1]:
            raise damaged(self.path, ValueError(f"a row has a feature beyond its {self.shape[1]:,} features"))
        part = csr_array((self.data[at], columns, ends - ends[0]), shape=(len(ends) - 1, self.shape[1]))
        return np.asarray(part.toarray())


# Labels and values that are integers of 16 digits or more, which float64 may round.
SVM_WHOLE = re.compile(rb"(?m)(?:^|(?<!qid):)(-?\d{16,300})(?=\s|$)")


def read_svmlight(
    path: Path, n_features: int | None = None, dense_limit: int = DENSE_LIMIT, index_base: int | None = None
) -> Table:
    """`label index:value …` per line; the rest of a line after # and the query ids `qid:…` are ignored.

    index_base  the index of the first feature, 0 or 1; by default 0 if that index occurs anywhere
                in the file, else 1
    n_features  the number of features, if the largest index is not the last feature
    dense_limit  maximum bytes of the rows after they are written dense
    """
    spread, goal, survey = Spread(1), Spread(1), TargetSurvey(f"the label of {path.name}")
    n_values, lowest, last_index = 0, 1, 0
    for X, y, lines in _svm_batches(path, zero_based=True):  # indices stay as they are written
        spread.add(X.data[:, None])
        goal.add(y[:, None])
        survey.add(pa.array(y))
        if spread.wide().size or goal.wide().size:
            value = first_rounded(map(int, SVM_WHOLE.findall(b"".join(lines))))
            if value is not None:
                raise rounded(path.name, value)
        if X.nnz:
            lowest = min(lowest, int(X.indices.min()))
            last_index = max(last_index, int(X.indices.max()))
        n_values += X.nnz
    if survey.n_rows == 0:
        raise no_rows(path.name)
    first_index = lowest if index_base is None else index_base
    if lowest < first_index:
        raise DataError(
            f"Cannot count the features of {path.name} from 1: it has the index 0. Pass --zero-based"
        )
    counted = last_index + 1 - first_index if n_values else 0
    if n_features is not None and n_features < counted:
        raise DataError(
            f"Cannot import {path.name} with {n_features:,} features: it has {counted:,}, counted"
            f" from {first_index}. Pass no fewer, or pass --zero-based or --one-based."
        )
    n_features = n_features or counted
    if n_features == 0:
        raise DataError(f"Cannot import {path.name}: no line has an index:value. Add features.")
    if n_values < survey.n_rows * n_features:
        spread.add(np.zeros((1, 1)))  # a value that is not written is zero
    check_dense(path.name, (survey.n_rows, n_features), n_values, spread.dtype().itemsize, dense_limit)

    def batches(rows: int) -> Iterator[Batch]:
        for X, y, _ in _svm_batches(path, zero_based=first_index == 0, n_features=n_features):
            for start in range(0, len(y), rows):
                yield Batch(X[start : start + rows].toarray(), y[start : start + rows])

    return Table(
        survey.n_rows, n_features, spread.dtype(), goal.dtype(), None, None, batches, index_base=first_index
    )


def _svm_batches(path: Path, **options: Any) -> Iterator[tuple[Any, FloatArray, list[bytes]]]:
    """X sparse by rows, y, and their lines."""

    def parsed(lines: list[bytes]) -> Any:
        from sklearn.datasets import load_svmlight_file

        return load_svmlight_file(io.BytesIO(b"".join(lines)), **options)

    n_lines = 0
    with open_bytes(path) as file:
        while lines := file.readlines(csv_files.BATCH_BYTES):
            try:
                X, y = parsed(lines)
            except (ValueError, OverflowError) as error:
                bad = csv_files.first_refused(lines, parsed)
                raise DataError(
                    f"Cannot read line {n_lines + bad + 1:,} of {path.name}: it is not `label index:value"
                    f" ...`, but {lines[bad][:60].decode(errors='replace').strip()!r} ({error}). Correct it."
                ) from None
            yield X, y, lines
            n_lines += len(lines)
