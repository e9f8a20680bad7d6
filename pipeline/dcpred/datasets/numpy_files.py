"""Readers of files of NumPy, .npy and .npz. Each returns a `Table` (table.py)."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dcpred.datasets.sparse import SPARSE, SparseFile, check_dense, unpacked
from dcpred.datasets.table import Batch, Table, TargetSurvey, damaged, label_dtype, target_values
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import NUMBERS
from dcpred_tasks.model.class_codes import class_codes
from dcpred_tasks.model.compact_model import check_matrix
from dcpred_tasks.storage.zarr_arrays import plain_text

SURVEY_ROWS = 2**20  # rows of y per survey step
Names = tuple[str, ...] | None


def read_npy(path: Path) -> Table:
    """One matrix, memory-mapped."""
    with path.open("rb") as file:
        check_features(path.name, *_header(path.name, file))
    try:
        X = np.load(path, mmap_mode="r")
    except ValueError as error:
        raise damaged(path, error) from None
    return matrix_table(lambda: nullcontext((X, None)), "")


def read_npz(path: Path, x: str | None, y: str | None, scratch: Path, dense_limit: int) -> Table:
    """Two arrays, unpacked in the directory `scratch` and memory-mapped in any memory order; or a sparse
    matrix of SciPy, which has a target if an array y lies in the same file.

    dense_limit  maximum bytes of a sparse matrix after it is written dense
    """
    with zipfile.ZipFile(path) as archive:
        held = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        is_sparse = x is None and set(held) >= SPARSE
        chosen = {"x": "data" if is_sparse else x or "X", "y": y or ("y" if "y" in held else None)}
        where = {option: f"array {name!r} of {path.name}" for option, name in chosen.items()}
        for option, name in chosen.items():
            if name is not None and name not in held:
                raise DataError(
                    f"Cannot use array {name!r} as {option}: {path.name} holds"
                    f" {', '.join(held) or 'no arrays'}. Pass --{option} with the name of one of them."
                )
        if is_sparse:
            X: Any = SparseFile(path, archive, scratch)
            check_dense(path.name, X.shape, X.n_values, X.dtype.itemsize, dense_limit)
        else:
            with archive.open(f"{chosen['x']}.npy") as file:
                shape = check_features(where["x"], *_header(where["x"], file))
        if chosen["y"] is not None:
            n_samples = X.shape[0] if is_sparse else shape
            with archive.open(f"{chosen['y']}.npy") as file:
                check_target(where["y"], n_samples, *_header(where["y"], file))
        wanted = [name for option, name in chosen.items() if name and not (is_sparse and option == "x")]
        files = unpacked(path, archive, wanted, scratch)
    try:
        X = X if is_sparse else np.load(files[str(chosen["x"])], mmap_mode="r")
        target = None if chosen["y"] is None else np.load(files[chosen["y"]], mmap_mode="r")
    except ValueError as error:
        raise damaged(path, error) from None
    return matrix_table(lambda: nullcontext((X, target)), where["y"])


def _header(where: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an array that NumPy saved."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    except ValueError as error:
        raise DataError(f"Cannot read {where} as a NumPy array: {error}. Save it again.") from None
    return shape, dtype


def check_features(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The number of rows of an array that can be X. Raises DataError for another array."""
    try:
        check_matrix(shape, dtype)
    except DataError as error:
        raise DataError(f"Cannot use {where} as X: {error}.") from None
    if 0 in shape or dtype.itemsize > 8:
        so = f"its shape is {shape}" if 0 in shape else f"its dtype is {dtype}"
        raise DataError(
            f"Cannot use {where} as X: {so}. It needs rows, features and at most 64 bits per number."
        )
    return shape[0]


def check_target(where: str, n_samples: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biufUST" or (dtype.kind == "f" and dtype.itemsize > 8):
        raise DataError(
            f"Cannot use {where} as y: its dtype is {dtype}. Convert it to real numbers or strings."
        )
    if shape != (n_samples,):
        raise DataError(
            f"Cannot use {where} as y: its shape is {shape}, but X has {n_samples:,} rows."
            " Pass another array or reshape it."
        )


# -- A matrix and a target, whatever holds them --------------------------------------------------------------

Opened = Callable[[], AbstractContextManager[tuple[Any, Any]]]


def matrix_table(opened: Opened, y_where: str, names: Names = None, labels: Names = None) -> Table:
    """A matrix X and its target, or None, while they are open: arrays that are sliced by rows.

    y_where  name of the target in messages
    names    of the features
    labels   of the classes that y numbers
    """
    with opened() as (X, y):
        shape, dtype = X.shape, np.dtype(X.dtype).newbyteorder("=")
        y_dtype = None if y is None or y.dtype.kind in "OT" else np.dtype(y.dtype).newbyteorder("=")
        survey = TargetSurvey(y_where)
        for start in range(0, shape[0], SURVEY_ROWS) if y is not None else ():
            target = y[start : start + SURVEY_ROWS]
            survey.add(_as_arrow(target, y_where))
            if labels is not None and target.dtype.kind in NUMBERS:
                there = np.ma.filled(target == target, False)  # Missing ones are counted.
                class_codes(np.asarray(target[there]), len(labels), y_where, start + np.flatnonzero(there))
    found = survey.labels

    def batches(rows: int) -> Iterator[Batch]:
        with opened() as (X, y):
            for start in range(0, shape[0], rows):
                here = slice(start, start + rows)
                target = None if y is None else target_values(_as_arrow(y[here], y_where), found)
                yield Batch(np.asarray(X[here]), target)

    target_dtype = label_dtype(found) if found else y_dtype
    return Table(shape[0], shape[1], dtype, target_dtype, found or labels, names, batches)


def _as_arrow(values: NDArray[Any], where: str) -> Any:
    if isinstance(values, np.ma.MaskedArray):
        return pa.array(np.ma.getdata(values), mask=np.ma.getmaskarray(values))
    if values.dtype.kind in "OT":
        return pa.array([None if value is None else str(value) for value in values.tolist()], pa.string())
    text = plain_text(values, where)
    return pa.array(np.asarray(text, text.dtype.newbyteorder("=")))
