"""The scores that an output holds, as arrays."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial as bound
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import ArrayLike, NDArray

from dcpred.runs.latest import MANIFEST
from dcpred.runs.ledger import open_ledger
from dcpred_tasks.artifacts.commit_records import ScoreRun, list_records
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.scoring.outputs import STATUS, OutputColumn, StatusArray, Values
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_group
from dcpred_tasks.storage.addresses import check_options, path_on_disk
from dcpred_tasks.storage.addresses import storage_options as given_options

# Size of a read: so many rows or bytes, whichever is less, and at least one chunk.
PIECE_ROWS, PIECE_BYTES = 2**17, 64 * 2**20


@dataclass(frozen=True)
class StoredScores:
    """A readable run."""

    run: ScoreRun
    finished: bool
    """Whether it has a complete manifest, which is written last."""
    arrays: dict[str, zarr.Array[Any]]
    """Arrays by the name of the output column; none if nothing is written yet."""

    @property
    def columns(self) -> tuple[OutputColumn, ...]:
        """Output columns of the run, the status last."""
        return tuple(column for column in self.run.columns if column.name in self.arrays)

    def pieces(self) -> Iterator[tuple[int, int, bool]]:
        """First row, row after the last, and whether they are of a finished block: all rows in their
        order, in pieces of whole chunks.
        """
        run = self.run
        done = None if self.finished else list_records(run)
        row_bytes = sum(int(np.prod(a.shape[1:], dtype=int)) * a.dtype.itemsize for a in self.arrays.values())
        step = max(min(PIECE_ROWS, PIECE_BYTES // row_bytes) // run.chunk_rows, 1) * run.chunk_rows
        for block in range(-(-run.n_rows // run.block_rows)):
            first, last = run.rows(block)
            for start in range(first, last, step):
                yield start, min(start + step, last), done is None or block in done

    def read(self, names: Collection[str], start: int, stop: int, done: bool) -> tuple[Values, StatusArray]:
        """The arrays of these names for some rows, and their status.

        done  whether the rows are of a finished block; else they have status 0 and no values

        Raises DataError if values and status contradict each other, for example after the loss of a chunk.
        """
        if not done:
            unscored = np.full(stop - start, Status.NOT_SCORED, np.uint8)
            return {name: self._absent(name, stop - start) for name in names}, unscored
        status = zarr_arrays.read_rows(self.arrays[STATUS.name], start, stop)
        values = {STATUS.name: status}
        for column in self.columns:
            if column.name in names or column is STATUS:
                array = self.arrays[column.name]
                stored = status if column is STATUS else zarr_arrays.read_rows(array, start, stop)
                values[column.name] = stored
                for so, wrong in column.check(stored, array.fill_value, status):
                    if wrong.any():
                        raise _damaged(self.run, f"row {start + int(wrong.argmax()):,} {so}")
        return {name: values[name] for name in names}, status

    def _absent(self, name: str, n: int) -> NDArray[Any]:
        array = self.arrays[name]
        return np.full((n, *array.shape[1:]), array.fill_value, array.dtype)


def open_stored(output: str | Path, *, partial: bool) -> StoredScores:
    """The arrays of an output.

    partial  whether it may be unfinished

    Raises PlanConflictError if there is no output, DataError if it is unfinished or its arrays differ from
    its plan.
    """
    ledger = open_ledger(output)
    run, finished = ledger.run, ledger.whole_manifest() is not None
    if not finished and ledger.place.read(MANIFEST) is not None:
        raise _damaged(run, f"{MANIFEST} is modified")
    if not finished and not partial:
        raise DataError(
            f"Cannot read scores of {output}: the run is not finished. Run `dcpred score` again, or read"
            " the finished rows with --partial (in Python partial=True)."
        )
    if not finished and not list_records(run):
        raise DataError(
            f"Cannot read scores of {output}: no block of it is done yet. Run `dcpred score` first."
        )
    try:
        open_group(run.scores)
        arrays = {column.name: open_array(run.array(column.name)) for column in run.columns}
    except DataError:
        raise _damaged(run, "its arrays cannot be opened") from None
    for column in run.columns:
        array = arrays[column.name]
        fits = array.shape[:1] == (run.n_rows,) and array.ndim <= len(column.dimensions)
        if not fits or np.dtype(array.dtype) not in map(np.dtype, column.dtypes):
            raise _damaged(run, f"array {column.name} is {array.dtype} of shape {tuple(array.shape)}")
    return StoredScores(run, finished, arrays)


def _damaged(run: ScoreRun, so: str) -> DataError:
    return DataError(
        f"Cannot read scores from {run.output}: {so}. `dcpred verify` shows what is damaged, and"
        " `dcpred score --repair` (in Python dcpred.repair) repairs it."
    )


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
    """Open the scores of a run, on a disk or an object store, lazily.

    Parameters
    ----------
    output : str or Path
        The output of `score`, or the root of `refresh`, whose latest run is opened.
    names : bool, default False
        Return labels as names of classes, if these are strings, and not as their numbers, whose attribute
        `labels` has the names.
    partial : bool, default False
        Accept an unfinished run: rows not yet scored have status 0.
    storage_options : dict, optional
        Options of the object store, as for `load_model`.

    Returns
    -------
    xarray.Dataset or dict of zarr.Array
        Dask arrays over the dimension "sample" (and "output" or "class", labelled by the classes, or
        "bound"); without xarray a dictionary of Zarr arrays.

    Raises
    ------
    PlanConflictError
        If there is no output.
    DataError
        If it is unfinished.
    """
    with given_options(check_options(storage_options or {})):
        scores = open_stored(output, partial=partial)
        known = _names(scores) if names else {}
        if find_spec("xarray") is None:
            arrays: dict[str, Any] = dict(scores.arrays)
            return arrays | {name: NamedLabels(arrays[name], labels) for name, labels in known.items()}
        return _dataset(scores, known)


def _names(scores: StoredScores) -> dict[str, Names]:
    """Names of classes by the array that holds their numbers."""
    labels = {name: array.attrs.get("labels") for name, array in scores.arrays.items()}
    return {
        name: tuple(texts)
        for name, texts in labels.items()
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    }


def _dataset(scores: StoredScores, known: Mapping[str, Names]) -> Any:
    import xarray

    address = scores.run.scores
    # A path can be sent to workers of Dask, a store of an object store cannot.
    where: Any = open_group(address).store_path if path_on_disk(address) is None else None
    store, group = (address, None) if where is None else (where.store, where.path)
    data = xarray.open_zarr(store, group=group, consolidated=False, chunks={})
    for name, labels in known.items():
        decoded: Callable[[ArrayLike], Any] = bound(named, labels)
        options: dict[str, Any] = {"dask": "parallelized", "output_dtypes": [object], "keep_attrs": True}
        data[name] = xarray.apply_ufunc(decoded, data[name], **options)
    for column in scores.columns:
        array = scores.arrays[column.name]
        if array.ndim > 1 and (numbers := column.numbers(array.attrs, array.shape[1])) is not None:
            data = data.assign_coords({column.dimensions[1]: numbers})
    return data.assign_attrs(run=scores.run.run, finished=scores.finished)
