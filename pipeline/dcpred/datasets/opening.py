"""Detect a source's format by its name and first bytes, and read its rows as a `Table` (table.py)."""

import csv
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dcpred.datasets.array_sources import (
    DecodedMatrix,
    DecodedTarget,
    check_features,
    check_target,
    find_matrix,
    matrix_table,
    read_columns,
    read_frame,
    read_npy,
    read_npz,
)
from dcpred.datasets.array_sources import held as held_chunks
from dcpred.datasets.arrow_files import FEATHER, read_ipc, read_parquet
from dcpred.datasets.containers import HDF5, NETCDF, Container, ZarrGroup, container
from dcpred.datasets.csv_reader import csv_file
from dcpred.datasets.encoded_table import encoded_table, table_like
from dcpred.datasets.source import Source
from dcpred.datasets.sparse import DENSE_LIMIT, read_svmlight
from dcpred.datasets.table import Table, damaged
from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.model.class_codes import class_labels
from dcpred_tasks.schema.column import Column, Id
from dcpred_tasks.schema.inference import Wishes, wishes
from dcpred_tasks.schema.schema import PLAIN_TEXT, ColumnRequest, Schema, TextFormat
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS
from dcpred_tasks.tables.table_files import PARQUET

CSV, SVMLIGHT, ZARR = (".csv", ".tsv"), (".svm", ".libsvm", ".svmlight"), (".zarr",)
COLUMNS = (*CSV, *PARQUET, *FEATHER)  # formats whose rows have named columns
CONTAINERS = (*ZARR, *HDF5, *NETCDF)
SUFFIXES = (*COLUMNS, ".npy", ".npz", *SVMLIGHT, *CONTAINERS)
COMPRESSED = (".gz", ".bz2")  # endings of compressed text
OTHERS = {
    ".xls": "Save it as .csv or .parquet",
    ".xlsx": "Save it as .csv or .parquet",
    ".json": "Write it as .csv or .parquet",
    ".jsonl": "Write it as .csv or .parquet",
    ".pkl": "Load it, and save it as .parquet",
    ".orc": "Write it as .parquet",
}
METADATA = ("zarr.json", ".zgroup", ".zarray")  # a directory of Zarr has one of these files
DAMAGE = (pa.ArrowInvalid, csv.Error, UnicodeDecodeError, zipfile.BadZipFile, zlib.error, EOFError)
# The formats of each option.
OPTIONS = {
    "x": (".npz", *CONTAINERS),
    "y": (".npz", *CONTAINERS),
    "features": SVMLIGHT,
    "dense_limit": (".npz", *SVMLIGHT),
    "index_base": SVMLIGHT,
    **dict.fromkeys(("separator", "quotes", "decimal", "thousands", "not_missing"), CSV),
    "like": (*COLUMNS, *CONTAINERS, *SVMLIGHT),
    **dict.fromkeys(
        ("target", "schema", "categorical", "drop", "id", "gap", "absent", "drop_unlabelled"),
        (*COLUMNS, *CONTAINERS),
    ),
}
OF_TARGETS = ("target", "x", "y")
FLAGS = {
    ("index_base", 0): "--zero-based",
    ("index_base", 1): "--one-based",
    ("quotes", True): "--quotes",
    ("quotes", False): "--no-quotes",
    ("drop_unlabelled", True): "--drop-unlabelled",
}


@dataclass(frozen=True)
class Reading:
    """The options of `import_data` that affect reading.

    given            columns of a handwritten schema, with its texts for missing values
    like             the schema to follow, and the address of its owner
    text             the form of values in text, by the options and a schema
    marks            the same by the options alone
    absent           columns that are missing in every row
    drop_unlabelled  whether to skip rows without a target
    index_base       index of the first feature of an svmlight file
    known            numbering of features in the data set of `like`
    """

    x: str | None = None
    y: str | None = None
    target: str | None = None
    features: int | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    given: Mapping[str, Column | ColumnRequest] = field(default_factory=dict)
    like: tuple[Schema | None, str] | None = None
    dense_limit: int | None = None
    text: TextFormat = PLAIN_TEXT
    marks: Mapping[str, object] = field(default_factory=dict)
    separator: str | None = None
    quotes: bool | None = None
    absent: tuple[str, ...] = ()
    drop_unlabelled: bool = False
    index_base: int | None = None
    known: Mapping[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that options name, or the schema to follow."""
        followed = self.like[0] if self.like else None
        of_schema = () if followed is None else (column.name for column in followed.columns)
        target = () if self.target is None else (self.target,)
        return frozenset([*self.categorical, *self.drop, *self.ids, *self.given, *of_schema, *target])

    @property
    def named(self) -> dict[str, object]:
        """The given options, by their names on the command line."""
        summary = {
            "x": self.x,
            "y": self.y,
            "target": self.target,
            "features": self.features,
            "categorical": ",".join(self.categorical),
            "drop": ",".join(self.drop),
            "id": ",".join(self.ids),
            "gap": ",".join(self.gaps),
            "schema": "FILE" if self.given else None,
            "like": self.like[1] if self.like else None,
            "dense_limit": self.dense_limit,
            "separator": self.separator,
            "quotes": self.quotes,
            "absent": ",".join(self.absent),
            "drop_unlabelled": self.drop_unlabelled or None,
            "index_base": self.index_base,
            **self.marks,
        }
        return {name: value for name, value in summary.items() if value not in (None, "")}

    @property
    def wishes(self) -> Wishes:
        """The requests for columns."""
        if self.like is None:
            asked = wishes(self.target, self.categorical, self.drop, self.ids, self.given, self.gaps)
        else:
            asked = Wishes(self.target, {name: Id(name) for name in self.ids}, self.gaps)
        return replace(asked, text=self.text, absent=self.absent, labelled=self.drop_unlabelled)


def open_table(path: Path, reading: Reading, scratch: Path) -> Table:
    """The rows of a file, or of a directory of Parquet files or Zarr. Raises DataError."""
    suffix = check_source(path)
    _check_options(path.name, suffix, reading.named)
    if suffix in SVMLIGHT:
        return read_svmlight(
            path,
            reading.known.get("n_features", reading.features),
            reading.dense_limit or DENSE_LIMIT,
            reading.known.get("index_base", reading.index_base),
        )
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".npz":
        return read_npz(path, reading.x, reading.y, scratch, reading.dense_limit or DENSE_LIMIT)
    if suffix in CONTAINERS:
        held = ZarrGroup(path.name, str(path)) if suffix in ZARR else container(path)
        return container_table(held, reading, scratch)
    if suffix in CSV:
        named = None if reading.like else reading.columns
        separator, quotes, form = reading.separator, reading.quotes, reading.text
        return _encoded(csv_file(path, named, separator=separator, quotes=quotes, form=form), reading)
    rows = read_parquet(path, reading.columns) if suffix in PARQUET else read_ipc(path)
    return _encoded(rows, reading)


def frame_table(frame: Any, reading: Reading) -> Table:
    """The rows of a frame of pandas, polars or pyarrow. Raises DataError."""
    for name, value in reading.named.items():
        if ".parquet" not in OPTIONS[name]:
            raise DataError(f"Cannot use {_flag(name, value)} with a frame, which has columns. Omit it.")
    return _encoded(read_frame(frame, reading.columns), reading)


def _encoded(source: Source, reading: Reading) -> Table:
    schema, like = reading.like or (None, "")
    if schema is not None:
        return table_like(source, schema, like, reading.wishes)
    return encoded_table(source, reading.wishes)


def container_table(held: Container, reading: Reading, scratch: Path) -> Table:
    """Named arrays: a matrix with its target, or a table whose columns they are."""
    matrix = find_matrix(held, reading.x, reading.y)
    if matrix is None:
        return _encoded(read_columns(held, scratch), reading)
    own = {name: v for name, v in reading.named.items() if name not in ("x", "y")}
    if own:
        name, value = next(iter(own.items()))
        raise DataError(
            f"Cannot use {_flag(name, value)}, an option for columns: {held.name} holds the matrix"
            f" {matrix[0]!r}."
            " Omit it, and name the arrays with --x and --y."
        )
    x, y = matrix
    with held.opened() as arrays:
        n_samples = check_features(f"array {x!r} of {held.name}", arrays[x].shape, arrays[x].dtype)
        names = _strings(arrays[x].attributes.get("feature_names"))
        labels = None
        if y is not None:
            check_target(f"array {y!r} of {held.name}", n_samples, arrays[y].shape, arrays[y].dtype)
            labels = class_labels(arrays[y].attributes, f"array {y!r} of {held.name}")

    @contextmanager
    def opened() -> Iterator[tuple[Any, Any]]:
        named = [x] if y is None else [x, y]
        with held.opened() as arrays, held_chunks({name: arrays[name] for name in named}, scratch) as found:
            X = DecodedMatrix(found[x], f"array {x!r} of {held.name}")
            yield X, None if y is None else DecodedTarget(found[y], f"array {y!r} of {held.name}")

    return matrix_table(opened, f"array {y!r} of {held.name}", names, labels)


def _strings(value: object) -> tuple[str, ...] | None:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return tuple(map(str, value)) if isinstance(value, list) else None


# -- Before anything is read ---------------------------------------------------------------------------------


def check_source(path: Path) -> str:
    """The suffix that names the format of a source, which has to exist and hold data."""
    if path.is_dir():
        return ".zarr" if any((path / name).exists() for name in METADATA) else _of_directory(path)
    name = Path(path.name.lower())
    packed = name.suffix in COMPRESSED
    suffix = Path(name.stem).suffix if packed else name.suffix
    if suffix not in SUFFIXES or (packed and suffix not in (*CSV, *SVMLIGHT)):
        do = OTHERS.get(
            suffix, f"Name it {', '.join(SUFFIXES)}, and if it is text and compressed, .gz or .bz2 after that"
        )
        raise DataError(f"Cannot import {path}: its name has no known ending. {do}.")
    if not path.is_file() or suffix in ZARR:
        so = "is a file" if path.is_file() else "does not exist"
        raise DataError(f"Cannot import {path}: it {so}. Name a file on this computer.")
    if path.stat().st_size == 0:
        raise DataError(f"Cannot import {path}: it is empty. Name a file with data.")
    return suffix


def _of_directory(path: Path) -> str:
    if path.suffix.lower() in ZARR:
        raise DataError(f"Cannot import {path}: it holds no Zarr group or array. Name another.")
    return ".parquet"


def _check_options(name: str, suffix: str, options: Mapping[str, object]) -> None:
    advice = (
        dict.fromkeys(SUFFIXES, "Omit it")
        | {
            ".npy": "Save X and y together with numpy.savez, and import the .npz file",
            ".npz": "Name its arrays with --x and --y",
        }
        | dict.fromkeys(COLUMNS, "Name a column with --target")
    )
    if suffix in SVMLIGHT:
        advice[suffix] = "Omit it: the label of each line becomes y"
    for option, value in options.items():
        if suffix not in OPTIONS[option]:
            do = advice[suffix] if option in OF_TARGETS else "Omit it"
            *others, last = OPTIONS[option]
            kinds = f"{', '.join(others)} and {last}" if others else last
            flag = _flag(option, value)
            raise DataError(f"Cannot use {flag} with {name}: it is for {kinds} files. {do}.")


def _flag(name: str, value: Any) -> str:
    """An option with its value, in the form of the command line."""
    return FLAGS.get((name, value), f"--{name.replace('_', '-')} {value}")


def is_svmlight(source: Any) -> bool:
    """Whether the name of a source has the ending of an svmlight file."""
    name = Path(str(source).lower())
    return Path(name.stem if name.suffix in COMPRESSED else name.name).suffix in SVMLIGHT


@contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Convert errors of libraries about a damaged or unreadable file into ours."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f"Cannot import {path}: it holds unreadable values ({error}). Write it again without them."
        ) from error
    except (OSError, *DAMAGE) as error:
        number = getattr(error, "errno", None)  # errors of decompressors have none
        if number in RESOURCE_ERRNOS:
            raise ResourceError(f"Cannot read {path}: {error}. Get permission, then run again.") from error
        if number is not None:
            raise
        raise damaged(path, error) from error
