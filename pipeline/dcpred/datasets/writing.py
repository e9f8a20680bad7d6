"""Write a `Table` (table.py) as arrays of a Zarr group, chunk by chunk. On object stores a group appears when
it is complete, and a file is fetched before it is read.
"""

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.datasets.table import Batch, Table
from dcpred.execution.progress import counted
from dcpred.public.results import and_more
from dcpred_tasks.artifacts.trained_rows import Hashes, mixed
from dcpred_tasks.errors import DataError, DcpredError, InterruptedRunError
from dcpred_tasks.result_fields import result_class, result_field
from dcpred_tasks.storage.addresses import absolute, path_on_disk
from dcpred_tasks.storage.atomic_files import new_directory, resource_errors
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.zarr_arrays import (
    DATA_DIMENSIONS,
    create_array,
    create_group,
    memory_group,
    metadata_file,
    unwritten_group,
)

LISTED = 20  # maximum number of rows, and of features, to name


NAMED = 5  # maximum number of rows, and of features, to name


@result_class
class NotFiniteFeature:
    """A feature with NaN or infinity."""

    feature: int = result_field("Number of the feature, from 0.")
    name: str | None = result_field("Name of the feature; None in a matrix without names.")
    n_rows: int = result_field("Number of rows where it is not finite.")


@result_class
class NotFinite:
    """Rows of X with NaN or infinity, and infinite values of y, where NaN is refused."""

    n_rows: int = result_field("Number of rows of X with NaN or infinity.")
    rows: list[int] = result_field("The first of these rows, counted from 0.")
    n_features: int = result_field("Number of features with NaN or infinity.")
    features: list[NotFiniteFeature] = result_field(
        "The features with the most of these rows, the most first."
    )
    n_targets: int = result_field("Number of infinite targets.")
    target_rows: list[int] = result_field("The first rows with infinite targets.")


def not_finite_texts(r: Mapping[str, Any]) -> list[str]:
    """What is not finite in imported data, where it is, and the consequence; nothing if all is finite."""
    texts = []
    if r["n_rows"]:
        names = [
            (f["feature"] if f["name"] is None else f["name"], f["n_rows"]) for f in r["features"][:NAMED]
        ]
        features = [f"feature {name} ({counted(n, 'row', 'rows')})" for name, n in names]
        texts.append(
            f"{counted(r['n_rows'], 'row of X holds', 'rows of X hold')} NaN or infinity "
            f"({_first(r['rows'], r['n_rows'])}) in {and_more(features, r['n_features'])}; "
            "NaN is a missing value, which a model may accept (setting missing); training refuses infinity,"
            " and scoring gives it status 2"
        )
    if r["n_targets"]:
        texts.append(
            f"{counted(r['n_targets'], 'value of y is', 'values of y are')} infinite "
            f"({_first(r['target_rows'], r['n_targets'])}); training refuses such rows"
        )
    return texts


def _first(numbers: Sequence[int], n: int) -> str:
    """The first of n rows, in words."""
    first = and_more([f"{number:,}" for number in numbers[:NAMED]], n)
    return f"{'row' if n == 1 else 'rows'} {first}, counted from 0"


class NotFiniteSurvey:
    """Counts rows that are not finite, chunk by chunk. Integers cost nothing, and finite chunks one pass."""

    def __init__(self, n_features: int, names: tuple[str, ...] | None) -> None:
        self.names = names
        self.by_feature = np.zeros(n_features, np.int64)
        self.n_rows = self.n_targets = 0
        self.rows: list[int] = []
        self.target_rows: list[int] = []

    def add(self, first_row: int, X: NDArray[Any], y: NDArray[Any] | None) -> None:
        """Count the rows of a chunk; X and y are not modified.

        X  (n_rows, n_features), its first row being row `first_row` of the data
        y  (n_rows,)
        """
        if X.dtype.kind == "f" and not (finite := np.isfinite(X)).all():
            self.by_feature += len(X) - finite.sum(axis=0)
            self.n_rows += _note(~finite.all(axis=1), first_row, self.rows)
        if y is not None and y.dtype.kind == "f":
            self.n_targets += _note(~np.isfinite(y), first_row, self.target_rows)

    def not_finite(self) -> NotFinite:
        n_features = int(np.count_nonzero(self.by_feature))
        features = [
            NotFiniteFeature(int(j), None if self.names is None else self.names[j], int(self.by_feature[j]))
            for j in np.argsort(-self.by_feature, kind="stable")[: min(n_features, LISTED)]
        ]
        return NotFinite(self.n_rows, self.rows, n_features, features, self.n_targets, self.target_rows)


def _note(bad: NDArray[np.bool_], first_row: int, rows: list[int]) -> int:
    """The number of bad rows; the first of them are added to `rows`, up to LISTED."""
    at = np.flatnonzero(bad)
    rows += (at[: LISTED - len(rows)] + first_row).tolist()
    return len(at)


MOST_HASHES = 2**20  # different hashes, 16 MiB with their counts
WAITING = 2**18  # hashes that are merged at once


class Repeats:
    """The values of some rows, by their hashes."""

    def __init__(self) -> None:
        self.hashes: Hashes = np.empty(0, np.uint64)
        self.rows = np.empty(0, np.int64)
        self.limit = 2**64 - 1
        """The largest hash to keep."""
        self.waiting: list[Hashes] = []
        self.n_waiting = 0

    def add(self, hashes: Hashes) -> None:
        small = hashes if self.limit == 2**64 - 1 else hashes[hashes <= np.uint64(self.limit)]
        self.waiting.append(small)
        self.n_waiting += len(small)
        if self.n_waiting >= WAITING:
            self.settle()

    def settle(self) -> "Repeats":
        """Merge the waiting hashes."""
        new = np.concatenate([self.hashes, *self.waiting])
        before = np.concatenate([self.rows, np.ones(self.n_waiting, np.int64)])
        self.waiting, self.n_waiting = [], 0
        distinct, at = np.unique(new, return_inverse=True)
        rows = np.bincount(at, weights=before, minlength=len(distinct)).astype(np.int64)
        if len(distinct) > MOST_HASHES:
            self.limit = int(distinct[MOST_HASHES - 1])
        self.hashes, self.rows = distinct[:MOST_HASHES], rows[:MOST_HASHES]
        return self

    @property
    def share(self) -> float:
        """The fraction of all hashes that may be kept."""
        return self.limit / (2**64 - 1)

    def repeated(self) -> int:
        """About how many rows repeat a value of an earlier row."""
        self.settle()
        return round((int(self.rows.sum()) - len(self.rows)) / self.share)

    def rows_also_in(self, other: "Repeats") -> int:
        """About how many rows have a value that the other also has."""
        mine, theirs = self.settle(), other.settle()
        most = np.uint64(min(mine.limit, theirs.limit))
        same = np.isin(mine.hashes, theirs.hashes) & (mine.hashes <= most)
        return round(int(mine.rows[same].sum()) / min(mine.share, theirs.share))


def hashes_of_values(values: NDArray[np.generic]) -> Hashes:
    """A hash of each value (n,), a number or text, stable within this process."""
    hashes = np.fromiter((hash(value) for value in values.tolist()), np.int64, len(values)).view(np.uint64)
    return mixed(hashes)  # Python's hash of a number is the number.


CHUNK_BYTES = 8 * 2**20  # bytes of a chunk of X, before compression
CHUNK_MULTIPLE = 1024  # rows: longer chunks are a multiple of it


def default_chunk_rows(n_features: int, itemsize: int) -> int:
    """Rows in about 8 MiB; multiples of 1,024 if they are more."""
    rows = max(CHUNK_BYTES // (n_features * itemsize), 1)
    return rows if rows < CHUNK_MULTIPLE else rows // CHUNK_MULTIPLE * CHUNK_MULTIPLE


def write_table(
    table: Table,
    group: zarr.Group,
    source: str,
    chunk_rows: int,
    progress: Callable[[int, int | None], None] | None,
) -> tuple[NotFinite, dict[str, int]]:
    """Write all chunks of X, y and ids; returns the rows that are not finite, and about how many rows repeat
    an id of an earlier row, by column.

    source    name of the table in messages
    progress  called with (rows written, rows in all)
    """
    n = table.n_samples
    X = _new_array(group, "X", (n, table.n_features), table.dtype, chunk_rows, "feature_names", table.names)
    arrays = {
        name: _new_array(group, name, (n,), dtype, chunk_rows, "", None) for name, dtype in table.ids.items()
    }
    y = None
    if table.target_dtype is not None:
        y = _new_array(group, "y", (n,), table.target_dtype, chunk_rows, "labels", table.labels)
    survey, done = NotFiniteSurvey(table.n_features, table.names), 0
    repeats = {name: Repeats() for name in arrays}
    for rows, targets, ids in _chunks(table, chunk_rows):
        start, done = done, done + len(rows)
        if done > n:
            break
        X[start:done] = rows
        if y is not None and targets is not None:
            y[start:done] = targets
        for name, values in ids.items():
            arrays[name][start:done] = values
            repeats[name].add(hashes_of_values(values))
        survey.add(start, rows, targets)
        if progress is not None:
            progress(done, n)
    if done != n:
        raise DataError(
            f"Cannot import {source}: it changed after the first pass, which found {n:,} rows. Import it when"
            " nothing writes to it."
        )
    return survey.not_finite(), {name: its.repeated() for name, its in repeats.items()}


def _new_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: Any,
    chunk_rows: int,
    attribute: str,
    strings: tuple[str, ...] | None,
) -> zarr.Array[Any]:
    attributes = None if strings is None else {attribute: list(strings)}
    names = DATA_DIMENSIONS[: len(shape)]
    fill_value = _fill_value(dtype)
    return create_array(
        group, name, shape, dtype, chunk_rows, fill_value=fill_value, attributes=attributes, dimensions=names
    )


def _fill_value(dtype: Any) -> Any:
    """The value of a lost chunk: for floats it must not look like data."""
    if dtype is str:
        return ""
    return np.nan if dtype.kind == "f" else dtype.type(0)


def _chunks(table: Table, chunk_rows: int) -> Iterator[Batch]:
    """Rows in chunks of `chunk_rows`, the last one shorter; each is overwritten by the next."""
    buffer = _buffer(table, chunk_rows)
    held = 0
    for batch in table.batches(chunk_rows):
        given, first = _columns(batch), 0
        while first < len(batch.X):
            n = min(chunk_rows - held, len(batch.X) - first)
            for name, values in given.items():
                buffer[name][held : held + n] = values[first : first + n]
            held, first = held + n, first + n
            if held == chunk_rows:
                yield _batch(buffer, held)
                held = 0
    if held:
        yield _batch(buffer, held)


Named = dict[tuple[str, str], NDArray[Any]]  # arrays by kind, X, y or id, and by name


def _buffer(table: Table, chunk_rows: int) -> Named:
    buffer: Named = {("X", ""): np.empty((chunk_rows, table.n_features), table.dtype)}
    if table.target_dtype is not None:
        buffer["y", ""] = np.empty(chunk_rows, table.target_dtype)
    for name, dtype in table.ids.items():
        buffer["id", name] = np.empty(chunk_rows, np.dtypes.StringDType() if dtype is str else dtype)
    return buffer


def _columns(batch: Batch) -> Named:
    y = {} if batch.y is None else {("y", ""): batch.y}
    return {("X", ""): batch.X, **y, **{("id", name): values for name, values in batch.ids.items()}}


def _batch(buffer: Named, n: int) -> Batch:
    y = buffer.get(("y", ""))
    ids = {name: values[:n] for (kind, name), values in buffer.items() if kind == "id"}
    return Batch(buffer["X", ""][:n], None if y is None else y[:n], ids)


GROUP_FILE = "zarr.json"
CLAIM = "importing.json"  # present while a data set is written to a store
SILENT_SECONDS = 3.0  # maximum wait for the removal of one object


@contextmanager
def local_source(source: str) -> Iterator[Path]:
    """A file on this computer with the bytes of `source`, and its name; one on a store is fetched first."""
    if (local := path_on_disk(source)) is not None:
        yield local
        return
    address, _, name = absolute(source).rpartition("/")
    place = open_place(address)
    with tempfile.TemporaryDirectory(prefix="dcpred-import-") as folder:
        path = Path(folder) / name
        try:
            with resource_errors(path), path.open("wb") as file:
                place.fetch(name, file)
        except FileNotFoundError:
            raise DataError(f"Cannot import {source}: it does not exist. Name an existing file.") from None
        yield path


@contextmanager
def new_data_set(place: Place, attributes: dict[str, Any]) -> Iterator[zarr.Group]:
    """A group to fill, which becomes valid when everything in it is written.

    On a store, which cannot rename, the metadata of the group are created last. Guards against:

    1. Imports A and B find the place free.
    2. A creates the claim; B's create finds it, and B is refused before it writes.
    3. A is killed. The claim stays, and marks the data as incomplete.
    """
    if place.folder is not None:
        with new_directory(place.folder, alike=False) as partial_folder:
            yield create_group(partial_folder, attributes)
        return
    if not place.create(CLAIM, secrets.token_bytes(16)):
        raise DataError(
            f"Cannot import into {place.address}: another import writes there, or was interrupted."
            " Choose another path, or remove what is there."
        )
    try:
        yield unwritten_group(place.address, attributes)
    except BaseException as error:
        if not _emptied(place) and isinstance(error, KeyboardInterrupt):
            raise InterruptedRunError(
                f"interrupted, and the store does not answer; remove what is in {place.address} before the"
                " next import"
            ) from None
        raise
    # Nothing is removed from here on: the contents may be another process's.
    if not place.create(GROUP_FILE, metadata_file(memory_group(attributes))):
        raise DataError(
            f"Cannot import into {place.address}: another import finished there meanwhile. Choose"
            " another path."
        )
    place.remove(CLAIM)


def _emptied(place: Place) -> bool:
    """Whether everything in a place was removed. Does not wait for a store that does not answer."""
    removed: list[str] = []

    def remove() -> None:
        with suppress(OSError, DcpredError):
            for name in place.listing():
                place.remove(name)
                removed.append(name)

    thread = threading.Thread(target=remove, name="dcpred-emptied", daemon=True)
    thread.start()
    before = -1
    while thread.is_alive() and len(removed) > before:
        before = len(removed)
        thread.join(SILENT_SECONDS)
    return not thread.is_alive()


@contextmanager
def temporary_folder(place: Place | None) -> Iterator[Path]:
    """A directory next to a future folder, to find out early whether it is writable; for a store, or without
    a future folder, among temporary files. It is removed at the end.
    """
    if place is not None and place.folder is not None:
        beside = next(parent for parent in place.folder.parents if parent.exists())
        with resource_errors(place.folder):
            folder = tempfile.mkdtemp(prefix=f"{place.folder.name}.partial-", dir=beside)
    else:
        folder = tempfile.mkdtemp(prefix="dcpred-import-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
