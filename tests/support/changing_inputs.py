"""Inputs of a refresh that change from call to call: an array of Zarr, files of Parquet or Arrow, a Delta
table.

All hold the same features. Tables hold them as people do: numbers, a category, a time of day, and two ids, of
which one has missing values in some files.
"""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import zarr
from deltalake import DeltaTable, write_deltalake
from numpy.typing import NDArray

from dcpred_tasks.storage.place import open_place
from support.data import make_blobs, make_group

N_FEATURES = 3
STEP = 1_000_000  # nanoseconds between two times of writing
KINDS = ("new", "old", "used", "lent")
MORNING, DAY = np.datetime64("2026-01-01T06:00:00", "us"), 86_400


def features(n: int, seed: int) -> NDArray[Any]:
    X = make_blobs(n, n_features=N_FEATURES, n_classes=3, seed=seed).X
    X[seed % 7 :: 31] = np.nan  # rows without a score
    return np.asarray(X)


def table(n: int, seed: int) -> pa.Table:
    """Rows of a table, with their class: `y`."""
    rng, blobs = np.random.default_rng(seed), make_blobs(n, n_features=N_FEATURES, n_classes=3, seed=seed)
    latest = (4 * 3_600, DAY - 6 * 3_600)[seed % 2]  # some files have no time of an evening
    code = rng.integers(0, 99, n).astype(object)
    if seed % 3 == 0:
        code[0] = None
    columns = {f"f{i}": blobs.X[:, i] for i in range(N_FEATURES)} | {
        "kind": np.array(KINDS)[rng.integers(0, len(KINDS), n)],
        "at": MORNING + rng.integers(0, latest, n).astype("m8[s]"),
        "order": 1_000_000 * seed + np.arange(n),
        "code": pa.array(code, pa.int64()),
        "y": np.array(["a", "b", "c"])[blobs.y],
    }
    return pa.table(columns)


def files_of(folder: Path) -> dict[str, bytes]:
    """What lies below a folder, but for locks, and for what an attempt left that was cut off."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file()
        and not p.is_symlink()
        and p.name not in ("lock", ".lock.guard")
        and ".partial" not in p.name
    }


def outputs_of(run: Path) -> dict[str, bytes]:
    """The scores of a run, with its tables."""
    folders = [run / name for name in ("scores.zarr", "scores.parquet") if (run / name).exists()]
    return {f"{folder.name}/{name}": data for folder in folders for name, data in files_of(folder).items()}


class Input(ABC):
    """An input in a folder.

    columns  what a refresh of it writes
    """

    columns: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: Path, n: int, per_chunk: int, seed: int = 0) -> None:
        self.folder, self.per_chunk = folder, per_chunk
        self.written, self.time = 0, 10**18

    @property
    @abstractmethod
    def data(self) -> str:
        """What a command takes."""

    @property
    @abstractmethod
    def n_rows(self) -> int: ...

    @abstractmethod
    def state(self) -> str:
        """Another one where a row is another."""

    @abstractmethod
    def append(self, n: int, seed: int) -> None: ...

    @abstractmethod
    def rewrite(self, at: float, seed: int) -> None:
        """The rows at a place, from 0 to 1, get other values."""

    @abstractmethod
    def truncate(self, n: int) -> None:
        """Rows are taken away."""

    def touch(self, at: float) -> None:  # noqa: B027
        """Nothing changes but a time of writing."""

    def change(self, kind: int, at: float, n: int, seed: int) -> None:  # noqa: B027
        """What happens only to this kind of input: one of several changes."""

    def stamp(self, path: Path) -> None:
        """Give a file that was written now a time of its own: clocks of file systems have ticks."""
        self.time += STEP
        os.utime(path, ns=(self.time, self.time))


class ZarrInput(Input):
    """An array of Zarr."""

    def __init__(self, folder: Path, n: int, per_chunk: int, seed: int = 0) -> None:
        super().__init__(folder, n, per_chunk)
        make_group(folder / "data.zarr", features(n, seed), chunk_rows=per_chunk)
        self.stamp_new()

    @property
    def data(self) -> str:
        return f"{self.folder}/data.zarr"

    @property
    def array(self) -> Any:
        return zarr.open_array(f"{self.data}/X", mode="r+")

    @property
    def chunks(self) -> list[Path]:
        return sorted(path for path in Path(self.data, "X", "c").rglob("*") if path.is_file())

    @property
    def n_rows(self) -> int:
        return int(self.array.shape[0])

    def state(self) -> str:
        return str((self.n_rows, [(path, path.stat().st_mtime_ns) for path in self.chunks]))

    def stamp_new(self) -> None:
        for path in self.chunks:
            if path.stat().st_mtime_ns > self.time:
                self.stamp(path)

    def append(self, n: int, seed: int) -> None:
        self.array.append(features(n, seed))
        self.stamp_new()

    def rewrite(self, at: float, seed: int) -> None:
        array = self.array
        start = int(at * -(-array.shape[0] // self.per_chunk)) * self.per_chunk
        stop = min(start + self.per_chunk, array.shape[0])
        array[start:stop] = features(stop - start, seed)
        self.stamp_new()

    def truncate(self, n: int) -> None:
        # Rows that are cut off within a chunk leave all files as they were.
        self.array.resize((self.n_rows - n, N_FEATURES))
        self.stamp_new()

    def touch(self, at: float) -> None:
        chunks = self.chunks
        self.stamp(chunks[int(at * len(chunks))])


class ParquetInput(Input):
    """A folder of Parquet files, whose row groups have many sizes."""

    columns: ClassVar[dict[str, Any]] = {"parquet": True, "id": ("order", "code")}
    ending = "parquet"

    def __init__(self, folder: Path, n: int, per_chunk: int, seed: int = 0) -> None:
        super().__init__(folder, n, per_chunk)
        self.rows: dict[str, pa.Table] = {}
        self.groups: dict[str, int] = {}
        (folder / "data").mkdir()
        large = n // per_chunk // 2 * per_chunk  # one row group of several blocks, after small ones
        self.put("m2", table(n - large, seed))
        self.put("m5", table(large, seed + 1), group=large)

    @property
    def data(self) -> str:
        return f"{self.folder}/data"

    @property
    def n_rows(self) -> int:
        return sum(map(len, self.rows.values()))

    def state(self) -> str:
        return str([(path, path.stat().st_mtime_ns) for path in sorted(Path(self.data).iterdir())])

    def path(self, name: str) -> Path:
        return Path(self.data, f"{name}.{self.ending}")

    def put(self, name: str, rows: pa.Table, group: int = 0) -> None:
        """Write a file anew, in row groups of a length that it keeps."""
        self.written += 1
        sizes = (self.per_chunk, 7, 2 * self.per_chunk)
        self.rows[name] = rows
        self.groups[name] = group or self.groups.get(name) or sizes[self.written % len(sizes)]
        self.write(rows.drop_columns(["y"]), self.path(name), self.groups[name])
        self.stamp(self.path(name))

    def write(self, rows: pa.Table, path: Path, group: int) -> None:
        pq.write_table(rows, path, row_group_size=group)

    def at(self, at: float) -> str:
        return sorted(self.rows)[int(at * len(self.rows))]

    def append(self, n: int, seed: int) -> None:
        self.put(f"z{self.written:04d}", table(n, seed))

    def rewrite(self, at: float, seed: int) -> None:
        name = self.at(at)
        self.put(name, table(len(self.rows[name]), seed))

    def truncate(self, n: int) -> None:
        name = max(self.rows, key=lambda name: len(self.rows[name]))
        self.put(name, self.rows[name].slice(0, max(len(self.rows[name]) - n, 1)))

    def touch(self, at: float) -> None:
        self.stamp(self.path(self.at(at)))

    def change(self, kind: int, at: float, n: int, seed: int) -> None:
        name = self.at(at)
        rows = self.rows[name]
        if kind % 5 == 0:  # rows that sort before all others
            self.put(f"a{9_999 - self.written}", table(n, seed))
        elif kind % 5 == 1:  # a late row in a file
            self.put(name, pa.concat_tables([rows, table(1 + n % 3, seed)]))
        elif kind % 5 == 2:  # other row groups
            self.put(name, rows, group=1 + n)
        elif kind % 5 == 3:  # another name, thus another order
            self.move(name, f"{'az'[seed % 2]}{self.written:04d}-{name}"[:12])
        else:  # as many rows as before, shifted between two files
            other = self.at((at + 0.5) % 1)
            if other != name and len(rows) > 2:
                self.put(name, rows.slice(1))
                self.put(other, pa.concat_tables([rows.slice(0, 1), self.rows[other]]))

    def move(self, name: str, new: str) -> None:
        os.rename(self.path(name), self.path(new))
        self.rows[new], self.groups[new] = self.rows.pop(name), self.groups.pop(name)
        self.written += 1


class ArrowInput(ParquetInput):
    """A folder of files of Arrow."""

    ending = "arrow"

    def write(self, rows: pa.Table, path: Path, group: int) -> None:
        pf.write_feather(rows, path, compression="uncompressed", chunksize=group)


class DeltaInput(Input):
    """A Delta table."""

    columns: ClassVar[dict[str, Any]] = {"parquet": True, "id": ("order", "code")}

    def __init__(self, folder: Path, n: int, per_chunk: int, seed: int = 0) -> None:
        super().__init__(folder, n, per_chunk)
        for number, start in enumerate(range(0, n, 50)):
            self.append(min(50, n - start), seed + number)

    @property
    def data(self) -> str:
        return f"{self.folder}/data"

    @property
    def opened(self) -> DeltaTable:
        return DeltaTable(self.data)

    @property
    def n_rows(self) -> int:
        return int(self.opened.count())

    def state(self) -> str:
        return str(self.opened.version())

    def append(self, n: int, seed: int) -> None:
        write_deltalake(self.data, table(n, seed).drop_columns(["y"]), mode="append")

    def orders(self) -> list[int]:
        return sorted(self.opened.to_pyarrow_table(columns=["order"])["order"].to_pylist())

    def rewrite(self, at: float, seed: int) -> None:
        """By a transaction that removes rows, and one that appends as many."""
        orders = self.orders()
        first = int(at * len(orders))
        self.delete(orders[first : first + self.per_chunk])
        self.append(len(orders[first : first + self.per_chunk]), seed)

    def truncate(self, n: int) -> None:
        self.delete(self.orders()[:n])

    def delete(self, orders: list[int]) -> None:
        self.opened.delete(f"order in ({', '.join(map(str, orders))})")

    def change(self, kind: int, at: float, n: int, seed: int) -> None:
        opened = self.opened
        if kind % 4 == 0:
            opened.optimize.compact()
        elif kind % 4 == 1:  # an earlier version, and rows after it
            opened.restore(max(opened.version() - 1 - seed % 2, 0))
            self.append(n, seed)
        elif kind % 4 == 2:
            write_deltalake(self.data, table(self.n_rows, seed).drop_columns(["y"]), mode="overwrite")
        else:  # metadata alone
            opened.alter.set_table_properties({"delta.logRetentionDuration": f"interval {1 + seed} days"})


INPUTS: dict[str, type[Input]] = {
    "zarr": ZarrInput,
    "parquet": ParquetInput,
    "arrow": ArrowInput,
    "delta": DeltaInput,
}


def bring(folder: Path, address: str) -> None:
    """Make what lies at an address what lies in a folder; nothing else is written again."""
    place = open_place(address)
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    for name, path in sorted(files.items()):
        standing, data = place.read(name), path.read_bytes()
        if standing is None or standing.data != data:
            place.make_folder(str(Path(name).parent))
            place.write(name, data)
    for name in place.listing().keys() - files.keys():
        place.remove(name)
