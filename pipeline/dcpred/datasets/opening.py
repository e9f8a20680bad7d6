"""What a source is, told from its name and its first bytes, and its rows as a `Table` (table.py)."""

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

from dcpred.datasets.arrow_files import FEATHER, PARQUET, read_ipc, read_parquet
from dcpred.datasets.containers import HDF5, NETCDF, Container, ZarrGroup, container
from dcpred.datasets.csv_reader import csv_file
from dcpred.datasets.encoded_table import encoded_table, table_like
from dcpred.datasets.frame_source import read_frame
from dcpred.datasets.held_chunks import held as held_chunks
from dcpred.datasets.named_arrays import DecodedMatrix, DecodedTarget, find_matrix, read_columns
from dcpred.datasets.numpy_files import (
    check_features,
    check_target,
    matrix_table,
    read_npy,
    read_npz,
)
from dcpred.datasets.source import Source
from dcpred.datasets.sparse import DENSE_LIMIT
from dcpred.datasets.svmlight import read_svmlight
from dcpred.datasets.table import Table, damaged
from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.model.class_codes import class_labels
from dcpred_tasks.schema.column import Column, Id
from dcpred_tasks.schema.inference import Wishes, wishes
from dcpred_tasks.schema.schema import PLAIN_TEXT, Asked, Schema, TextFormat
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS

CSV, SVMLIGHT, ZARR = (".csv", ".tsv"), (".svm", ".libsvm", ".svmlight"), (".zarr",)
COLUMNS = (*CSV, *PARQUET, *FEATHER)  # formats whose rows have named columns
CONTAINERS = (*ZARR, *HDF5, *NETCDF)
SUFFIXES = (*COLUMNS, ".npy", ".npz", *SVMLIGHT, *CONTAINERS)
COMPRESSED = (".gz", ".bz2")  # endings of compressed text
OTHERS = {
    ".xls": "save it as .csv or .parquet",
    ".xlsx": "save it as .csv or .parquet",
    ".json": "write it as .csv or .parquet",
    ".jsonl": "write it as .csv or .parquet",
    ".pkl": "load it, and save it as .parquet",
    ".orc": "write it as .parquet",
}
METADATA = ("zarr.json", ".zgroup", ".zarray")  # files that a directory of Zarr has one of
DAMAGE = (pa.ArrowInvalid, csv.Error, UnicodeDecodeError, zipfile.BadZipFile, zlib.error, EOFError)
# The formats that each option is for.
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
    """How a source is to be read, as `import_data` is told.

    given            columns of a schema that was made by hand, with its texts of gaps
    like             the schema to follow, and the address of what has it
    text             how text writes values, as the options and a schema state it
    marks            the same as the options alone state it
    absent           columns that are missing in every row
    drop_unlabelled  whether rows without a target are left out
    index_base       number of the first feature of an svmlight file
    known            what the data set of `like` states of features that are counted
    """

    x: str | None = None
    y: str | None = None
    target: str | None = None
    features: int | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    given: Mapping[str, Column | Asked] = field(default_factory=dict)
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
        """The columns that options name, or the schema that is followed."""
        followed = self.like[0] if self.like else None
        of_schema = () if followed is None else (column.name for column in followed.columns)
        target = () if self.target is None else (self.target,)
        return frozenset([*self.categorical, *self.drop, *self.ids, *self.given, *of_schema, *target])

    @property
    def named(self) -> dict[str, object]:
        """The options that were given, by their names on the command line."""
        told = {
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
        return {name: value for name, value in told.items() if value not in (None, "")}

    @property
    def wishes(self) -> Wishes:
        """What was said of columns."""
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
            raise DataError(f"{_flag(name, value)} was given with a frame, which has columns; leave it out")
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
            f"{_flag(name, value)} is for columns, but {held.name} holds the matrix {matrix[0]!r}; leave it"
            " out, and name the arrays with --x and --y"
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
    """The suffix that names the format of a source that is there and not empty."""
    if path.is_dir():
        return ".zarr" if any((path / name).exists() for name in METADATA) else _of_directory(path)
    name = Path(path.name.lower())
    packed = name.suffix in COMPRESSED
    suffix = Path(name.stem).suffix if packed else name.suffix
    if suffix not in SUFFIXES or (packed and suffix not in (*CSV, *SVMLIGHT)):
        do = OTHERS.get(
            suffix, f"name it {', '.join(SUFFIXES)}, and if it is text and compressed, .gz or .bz2 after that"
        )
        raise DataError(f"{path} was to be imported, but its name has no known ending; {do}")
    if not path.is_file() or suffix in ZARR:
        so = "is a file" if path.is_file() else "does not exist"
        raise DataError(f"{path} was to be imported, but it {so}; name a file on this machine")
    if path.stat().st_size == 0:
        raise DataError(f"{path} was to be imported, but it is empty; name a file with data")
    return suffix


def _of_directory(path: Path) -> str:
    if path.suffix.lower() in ZARR:
        raise DataError(f"{path} was to be imported, but it holds no Zarr group or array; name another")
    return ".parquet"


def _check_options(name: str, suffix: str, options: Mapping[str, object]) -> None:
    advice = (
        dict.fromkeys(SUFFIXES, "leave it out")
        | {
            ".npy": "save X and y together with numpy.savez, and import the .npz file",
            ".npz": "name its arrays with --x and --y",
        }
        | dict.fromkeys(COLUMNS, "name a column with --target")
    )
    if suffix in SVMLIGHT:
        advice[suffix] = "leave it out: the label of each line becomes y"
    for option, value in options.items():
        if suffix not in OPTIONS[option]:
            do = advice[suffix] if option in OF_TARGETS else "leave it out"
            *others, last = OPTIONS[option]
            kinds = f"{', '.join(others)} and {last}" if others else last
            flag = _flag(option, value)
            raise DataError(f"{flag} is for {kinds} files, but the source is {name}; {do}")


def _flag(name: str, value: Any) -> str:
    """An option with its value, as the command line has it."""
    return FLAGS.get((name, value), f"--{name.replace('_', '-')} {value}")


def is_svmlight(source: Any) -> bool:
    """Whether the name of a source has the ending of an svmlight file."""
    name = Path(str(source).lower())
    return Path(name.stem if name.suffix in COMPRESSED else name.name).suffix in SVMLIGHT


@contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """What libraries raise about a file that is damaged or may not be read, in our words."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f"Cannot import {path}: it holds values that cannot be read ({error}). Write it again"
            " without them"
        ) from error
    except (OSError, *DAMAGE) as error:
        number = getattr(error, "errno", None)  # errors of decompressors have none
        if number in RESOURCE_ERRNOS:
            raise ResourceError(f"reading {path} failed: {error}; get permission, then run again") from error
        if number is not None:
            raise
        raise damaged(path, error) from error
