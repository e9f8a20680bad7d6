"""Import a source into a Zarr data set: detect its format by name and first bytes, and read its rows as a
`Table` (table.py).
"""

import csv
import json
import os
import shlex
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    read_arrays,
    read_frame,
    read_npy,
    read_npz,
)
from dcpred.datasets.array_sources import held as held_chunks
from dcpred.datasets.containers import Container, ZarrGroup, container
from dcpred.datasets.encoded_table import encoded_table, table_like
from dcpred.datasets.schema_text import WIDEST, schema_texts
from dcpred.datasets.sparse import DENSE_LIMIT, GIB, read_svmlight
from dcpred.datasets.table import Table, damaged
from dcpred.datasets.writing import (
    CLAIM,
    GROUP_FILE,
    NotFinite,
    default_chunk_rows,
    local_source,
    new_data_set,
    not_finite_texts,
    temporary_folder,
    write_table,
)
from dcpred.execution.progress import counted, rows_of, show_step
from dcpred.public.functions import typed
from dcpred.public.remarks import add_remarks
from dcpred.public.results import PublicResult, and_more, plain
from dcpred_tasks.artifacts.followed_schema import counted_features, schema_to_follow
from dcpred_tasks.errors import DataError, ResourceError, SettingsError
from dcpred_tasks.model.class_codes import class_labels
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.result_fields import Unit, result_class, result_field
from dcpred_tasks.schema.column import Column, Id
from dcpred_tasks.schema.inference import Wishes, wishes
from dcpred_tasks.schema.schema import (
    ATTRIBUTE,
    IDS_ATTRIBUTE,
    INDEX_BASE,
    PLAIN_TEXT,
    ColumnRequest,
    Schema,
    SchemaDocument,
    TextFormat,
    read_columns,
)
from dcpred_tasks.schema.unknown_categories import unknown_remark
from dcpred_tasks.storage.addresses import absolute, check_writable, path_on_disk
from dcpred_tasks.storage.atomic_files import PARTIAL, RESOURCE_ERRNOS, check_new_name, is_free
from dcpred_tasks.storage.patterns import is_pattern
from dcpred_tasks.storage.place import is_zarr, open_place
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.tables.sources import (
    HDF5,
    MATRICES,
    NETCDF,
    SOURCES,
    SVMLIGHT,
    ending_of,
    is_read_in_place,
    open_source,
)
from dcpred_tasks.tables.table_files import COMPRESSED, CsvTable, passed_over
from dcpred_tasks.tables.table_source import ReadOptions, TableRows

ZARR = (".zarr",)
COLUMNS = tuple(
    ending for kind in SOURCES for ending in kind.endings
)  # formats whose rows have named columns
CONTAINERS = (*ZARR, *HDF5, *NETCDF)
SUFFIXES = (*COLUMNS, *MATRICES, *ZARR)
OTHERS = {
    ".xls": "Save it as .csv or .parquet",
    ".xlsx": "Save it as .csv or .parquet",
    ".json": "Write it as .csv or .parquet",
    ".jsonl": "Write it as .csv or .parquet",
    ".pkl": "Load it, and save it as .parquet",
    ".orc": "Write it as .parquet",
}
DAMAGE = (pa.ArrowInvalid, csv.Error, UnicodeDecodeError, zipfile.BadZipFile, zlib.error, EOFError)
# The formats of each option.
OPTIONS = {
    "x": (".npz", *CONTAINERS),
    "y": (".npz", *CONTAINERS),
    "features": SVMLIGHT,
    "dense_limit": (".npz", *SVMLIGHT),
    "index_base": SVMLIGHT,
    **{option: kind.endings for kind in SOURCES for option in kind.options},
    "like": (*COLUMNS, *CONTAINERS, *SVMLIGHT),
    **dict.fromkeys(
        ("target", "schema", "categorical", "drop", "id", "gap", "absent", "drop_unlabelled"),
        (*COLUMNS, *CONTAINERS),
    ),
}
# The options that are named in messages, the first unsuitable one alone.
NAMED = (
    *("x", "y", "target", "features", "categorical", "drop", "id", "gap", "schema", "like"),
    *("dense_limit", "separator", "quotes", "absent", "drop_unlabelled", "index_base"),
    *("decimal", "thousands", "not_missing"),
)
OF_TARGETS = ("target", "x", "y")
FLAGS = {
    ("index_base", 0): "--zero-based",
    ("index_base", 1): "--one-based",
    ("quotes", True): "--quotes",
    ("quotes", False): "--no-quotes",
    ("drop_unlabelled", True): "--drop-unlabelled",
}


@dataclass
class Reading:
    """The options of `import_data` that affect reading. Raises DataError if they exclude each other.

    ids     columns to store next to X, those of `id` among them
    gap     texts for missing values, those that `gaps` asks for among them
    gaps    these texts, and those of a schema
    given   columns of a handwritten schema
    follow  the schema to follow, and the address of its owner
    text    the form of values in text, by the options and a schema
    known   numbering of features in the data set of `like`
    """

    source: Any
    x: str | None = None
    y: str | None = None
    target: str | None = None
    features: int | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    gap: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    not_missing: tuple[str, ...] = ()
    schema: str | Path | dict[str, Any] | None = None
    like: str | Path | None = None
    dense_limit: int | None = None
    separator: str | None = None
    quotes: bool | None = None
    decimal: str | None = None
    thousands: str | None = None
    absent: tuple[str, ...] = ()
    drop_unlabelled: bool = False
    index_base: int | None = None
    given: Mapping[str, Column | ColumnRequest] = field(default_factory=dict, init=False)
    follow: tuple[Schema | None, str] | None = field(default=None, init=False)
    text: TextFormat = field(default=PLAIN_TEXT, init=False)
    known: Mapping[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        beside = {"categorical": self.categorical, "drop": self.drop, "schema": self.schema}
        named = [name for name, value in beside.items() if value]
        if self.like is not None and named:
            raise DataError(
                f"Cannot combine --{named[0]} with --like {self.like}: its schema states what every column"
                " is. Omit one of them."
            )
        self.target = None if self.target is None else str(self.target)
        for name in ("categorical", "drop", "absent", "not_missing"):
            setattr(self, name, _names(getattr(self, name)))
        self.ids = (*_names(self.id), *_names(self.ids))
        columns, texts, form = _given(self.schema) if self.schema is not None else ([], (), TextFormat())
        self.given = {column.name: column for column in columns}
        if self.like is not None and ending_of(str(self.source)) in SVMLIGHT:
            self.follow = None, str(self.like)
            self.known = _counted(self.like, self.features, self.index_base)
        elif self.like is not None:
            followed = schema_to_follow(self.like)
            self.follow, texts, form = (followed, str(self.like)), followed.gap_texts, followed.text
        self.gap = (*_names(self.gap), *_names(self.gaps))
        both = sorted({*self.gap} & {*self.not_missing})
        if both:
            text = shlex.quote(both[0])
            raise DataError(
                f"Cannot read {both[0]!r} both as a missing value and as a value: --gap {text} and"
                f" --not-missing {text} exclude each other. Omit one of them."
            )
        self.gaps = tuple(dict.fromkeys((*texts, *self.gap)))
        try:
            self.text = TextFormat(
                form.decimal if self.decimal is None else self.decimal,
                form.thousands if self.thousands is None else self.thousands,
                (*form.not_missing, *self.not_missing),
            )
        except ValueError as error:
            raise SettingsError(f"Cannot read numbers: {error}") from None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that options name, or the schema to follow, each once, those of the schema first."""
        followed = self.follow[0] if self.follow else None
        of_schema = () if followed is None else (column.name for column in followed.columns)
        target = () if self.target is None else (self.target,)
        named = *of_schema, *target, *self.categorical, *self.drop, *self.ids, *self.given
        return tuple(dict.fromkeys(named))

    @property
    def named(self) -> dict[str, object]:
        """The given options, by their names on the command line."""
        limit = None if self.dense_limit is None else f"{self.dense_limit / GIB:g}"
        given = {"id": self.ids, "schema": "FILE" if self.given else None, "dense_limit": limit}
        values: dict[str, object] = {name: getattr(self, name) for name in NAMED} | given
        values["drop_unlabelled"] = self.drop_unlabelled or None
        shown = {name: ",".join(v) if isinstance(v, tuple) else v for name, v in values.items()}
        return {name: value for name, value in shown.items() if value not in (None, "")}

    @property
    def wishes(self) -> Wishes:
        """The requests for columns."""
        if self.follow is None:
            asked = wishes(self.target, self.categorical, self.drop, self.ids, self.given, self.gaps)
        else:
            asked = Wishes(self.target, {name: Id(name) for name in self.ids}, self.gaps)
        return replace(asked, text=self.text, absent=self.absent, labelled=self.drop_unlabelled)


def open_table(path: Path, reading: Reading, scratch: Path) -> Table:
    """The rows of a file, or of a directory of Parquet files or Zarr. Raises DataError."""
    suffix = check_source(path)
    _check_options(path.name, suffix, reading.named)
    limit = DENSE_LIMIT if reading.dense_limit is None else reading.dense_limit
    if suffix in SVMLIGHT:
        return read_svmlight(
            path,
            reading.known.get("n_features", reading.features),
            limit,
            reading.known.get("index_base", reading.index_base),
        )
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".npz":
        return read_npz(path, reading.x, reading.y, scratch, limit)
    if suffix in CONTAINERS:
        held = ZarrGroup(path.name, str(path)) if suffix in ZARR else container(path)
        return container_table(held, reading, scratch)
    return _table_at(str(path), reading)


def _table_at(address: str, reading: Reading) -> Table:
    options = ReadOptions(
        reading.columns, reading.follow is not None, reading.separator, reading.quotes, reading.text
    )
    return _encoded(open_source(address).rows(options), reading)


def frame_table(frame: Any, reading: Reading) -> Table:
    """The rows of a frame of pandas, polars or pyarrow. Raises DataError."""
    for name, value in reading.named.items():
        if ".parquet" not in OPTIONS[name]:
            raise DataError(f"Cannot use {_flag(name, value)} with a frame, which has columns. Omit it.")
    return _encoded(read_frame(frame, reading.columns), reading)


def _encoded(source: TableRows, reading: Reading) -> Table:
    schema, like = reading.follow or (None, "")
    if schema is not None:
        return table_like(source, schema, like, reading.wishes)
    return encoded_table(source, reading.wishes)


def container_table(held: Container, reading: Reading, scratch: Path) -> Table:
    """Named arrays: a matrix with its target, or a table whose columns they are."""
    matrix = find_matrix(held, reading.x, reading.y)
    if matrix is None:
        return _encoded(read_arrays(held, scratch), reading)
    others = {name: v for name, v in reading.named.items() if name not in ("x", "y")}
    if others:
        name, value = next(iter(others.items()))
        raise DataError(
            f"Cannot use {_flag(name, value)}, an option for columns: {held.name} holds the matrix"
            f" {matrix[0]!r}. Omit it, and name the arrays with --x and --y."
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
        with held.opened() as arrays, held_chunks({name: arrays[name] for name in named}, scratch) as chunks:
            X = DecodedMatrix(chunks[x], f"array {x!r} of {held.name}")
            yield X, None if y is None else DecodedTarget(chunks[y], f"array {y!r} of {held.name}")

    return matrix_table(opened, f"array {y!r} of {held.name}", names, labels)


def _strings(value: object) -> tuple[str, ...] | None:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return tuple(map(str, value)) if isinstance(value, list) else None


# -- Before anything is read ---------------------------------------------------------------------------------


def check_source(path: Path) -> str:
    """The suffix that names the format of a source, which has to exist and hold data."""
    packed, suffix = path.suffix.lower() in COMPRESSED, ending_of(path)
    if path.is_dir() and not is_zarr(path) and path.suffix.lower() in ZARR:
        raise DataError(f"Cannot import {path}: it holds no Zarr group or array. Name another.")
    if path.is_dir() or is_pattern(path):
        return ".zarr" if path.is_dir() and is_zarr(path) else ".parquet"
    if suffix not in SUFFIXES or (packed and suffix not in (*CsvTable.endings, *SVMLIGHT)):
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


@contextmanager
def reading_errors(path: str | Path) -> Iterator[None]:
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


DATASET_VERSION = 1
# The parameters of import_data that no read takes.
OF_WRITING = ("dest", "chunk_rows", "progress", "accept", "on_alarm", "verbose")
LARGEST_SCHEMA = 64 * 2**20  # bytes of a file of a schema


IGNORED_SHOWN = 5


def _target_text(r: Mapping[str, Any]) -> str:
    if not r["target"]:
        return "no target"
    return f"y {r['target_dtype']}" + (f", {r['n_classes']} classes" if r["n_classes"] else "")


def _unlabelled_text(r: Mapping[str, Any]) -> str | None:
    n = r["unlabelled"]
    return f"skipped {counted(n, 'row', 'rows')} without a target" if n else None


def _absent_text(r: Mapping[str, Any]) -> str | None:
    names = [repr(name) for name in r["absent"][:IGNORED_SHOWN]]
    return f"values not read: {and_more(names, len(r['absent']))}" if names else None


def import_remarks(table: Table, repeated: Mapping[str, int], follows: bool) -> list[Remark]:
    """Remarks on imported rows.

    repeated  about how many rows repeat an id, by column
    follows   whether columns are encoded like those of another data set
    """
    remarks = []
    if names := [repr(name) for name in table.ignored[:IGNORED_SHOWN]]:
        what = f"columns not known: {and_more(names, len(table.ignored))}"
        remarks.append(remark("unknown-columns", what, columns=table.ignored))
    for name, unknown in ((table.unknown or {}) if follows else {}).items():
        subject = f"{plain(name, WIDEST)} in {counted(unknown.rows, 'row', 'rows')}"
        remarks.append(unknown_remark(unknown, subject, table.n_samples))
    if table.unlabelled_text:
        rows = counted(table.unlabelled[0], "row", "rows")
        do = f"pass --not-missing {shlex.quote(table.unlabelled_text)} if it is a class"
        what = f"skipped {rows} without a target, also where the target is {table.unlabelled_text!r}"
        remarks.append(remark("text-for-missing", what, do))
    if repeated and (least := min(repeated.values())):
        # Several columns may be unique only together: that with the fewest repeats counts.
        name = next(name for name, rows in repeated.items() if rows == least)
        what = f"{counted(least, 'row has', 'rows have')} a value of {name!r} that an earlier row has"
        remarks.append(remark("repeated-ids", what, columns=[name], share=least / table.n_samples))
    return remarks


@result_class
class Imported(PublicResult):
    """The imported data."""

    path: str = result_field("Path of the Zarr group.", unit=Unit.TEXT, line="data")
    n_samples: int = result_field(
        "Number of rows.",
        line="rows",
        text="{n_samples:,} × {n_features:,} {dtype} in chunks of {chunk_rows:,} rows",
    )
    n_features: int = result_field("Number of features, after encoding.")
    dtype: str = result_field("Data type of X.")
    chunk_rows: int = result_field("Rows of a chunk of X and y.")
    target: str | None = result_field(
        'The array that holds the target, "y"; None without a target.', line="target", text=_target_text
    )
    target_dtype: str | None = result_field("Data type of the target; None without a target.")
    n_classes: int | None = result_field("Number of classes of a target of strings, else None.")
    not_finite: NotFinite = result_field(
        "Rows with values that are not finite.",
        line="not finite",
        text=lambda r: not_finite_texts(r["not_finite"]),
    )
    schema: dict[str, Any] | None = result_field(
        "The columns; None for a matrix.",
        default=None,
        of=SchemaDocument,
        line="columns",
        text=lambda r: schema_texts(r["schema"]),
    )
    ids: tuple[str, ...] = result_field("Names of the arrays that are stored next to X.", default=())
    repeated_ids: dict[str, int] = result_field(
        "Estimated number of rows that repeat a value of an earlier row, by array of `ids`.",
        default_factory=dict,
    )
    ignored: tuple[str, ...] = result_field("Columns that the followed schema does not know.", default=())
    unknown: dict[str, int] | None = result_field(
        "Rows by column whose category the followed schema does not know; None if there are none.",
        default=None,
    )
    unlabelled: int = result_field(
        "Number of skipped rows without a target.", default=0, line="unlabelled", text=_unlabelled_text
    )
    unlabelled_text: str | None = result_field(
        "A text, for example NA, that stands for a missing target in some of these rows, but may be a class.",
        default=None,
    )
    absent: tuple[str, ...] = result_field(
        "Columns of the source whose values were not read, because `absent` names them.",
        default=(),
        line="absent",
        text=_absent_text,
    )
    index_base: int | None = result_field(
        "The index of the first feature of an svmlight file, 0 or 1; None for other sources.",
        default=None,
        line="features",
        text="counted from {index_base}",
    )


Names = str | int | Sequence[str | int]


@typed
def import_data(
    source: Any,
    dest: str | Path,
    *,
    target: str | int | None = None,
    categorical: Names = (),
    drop: Names = (),
    id: Names = (),
    gap: Names = (),
    absent: Names = (),
    drop_unlabelled: bool = False,
    not_missing: Names = (),
    schema: str | Path | dict[str, Any] | None = None,
    like: str | Path | None = None,
    separator: str | None = None,
    quotes: bool | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    x: str | None = None,
    y: str | None = None,
    chunk_rows: int | None = None,
    features: int | None = None,
    index_base: int | None = None,
    dense_limit: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    ids: Names = (),
    gaps: Names = (),
    accept: Sequence[str] = (),
    on_alarm: str = "warn",
    verbose: bool = False,
) -> Imported:
    """Import a table or a matrix into the new Zarr group `dest` with arrays X and y.

    Parameters
    ----------
    source : str, Path, frame or list of dict
        A file, a directory of Parquet files or Zarr, a frame of pandas, polars or pyarrow, or records.
    dest : str or Path
        Path or address of the new group.
    target : str or int, optional
        Column of targets, which becomes y. By default no target.
    categorical : str, int or sequence, optional
        Columns whose values are categories.
    drop : str, int or sequence, optional
        Columns to omit.
    id : str, int or sequence, optional
        Columns to store next to X, as arrays of their names.
    gap : str or sequence of str, optional
        Further texts of a CSV that stand for a missing value.
    absent : str, int or sequence, optional
        Columns of `like` or `schema` that are missing in every row.
    not_missing : str or sequence of str, optional
        Texts of a CSV that are values, for example NA.
    schema : str, Path or dict, optional
        File of a column schema in JSON; other columns are inferred. In Python also its content.
    like : str or Path, optional
        A model or data set that columns are encoded like: no new category, no new mean.
    separator : str, optional
        Field separator of a CSV. By default inferred from the first line.
    quotes : bool, optional
        Whether quotation marks enclose fields of a CSV. By default yes, unless that joins rows.
    decimal : str, optional
        Decimal mark of a CSV, a point or a comma. By default a point.
    thousands : str, optional
        Mark between groups of three digits in a CSV. By default none.
    x : str, optional
        Name of the array of features in a .npz, .zarr, .h5 or .nc source. By default X.
    y : str, optional
        Name of the array of targets there. By default y, if there is one.
    chunk_rows : int, optional
        Rows of a chunk. By default about 8 MiB of X.
    features : int, optional
        Number of features of an .svm file whose rows do not use the last ones.
    index_base : int, optional
        Index of the first feature of an .svm file, 0 or 1. By default 0 where it occurs.
    dense_limit : int, optional
        Maximum size of a sparse source (.svm, .npz of SciPy) after it is written dense. In Python in bytes.
        By default 1 GiB.
    progress : callable, optional
        Called with (rows written, rows in all).
    ids : str, int or sequence, optional
        Earlier name of `id`.
    gaps : str or sequence of str, optional
        Earlier name of `gap`.

    Returns
    -------
    Imported
        What was written.

    Raises
    ------
    DataError
        For data that cannot be imported exactly.
    ResourceError
        For a full disk, or a missing permission.

    Notes
    -----
    The group is written completely or not at all. The label of each line of an .svm file becomes y. NaN and
    infinity are imported unchanged, and counted.
    """
    options = {name: value for name, value in locals().items() if name not in OF_WRITING}
    if isinstance(source, str | Path):
        add_remarks(*passed_over(source))
    check_writable(dest, "data")
    dest = str(dest)
    place = open_place(dest)
    if chunk_rows is not None and chunk_rows < 1:
        raise SettingsError(
            f"Cannot use chunk_rows {chunk_rows}: it is less than 1. Omit it for about 8 MiB a chunk."
        )
    check_place(place)
    reading = Reading(**options)
    with (
        show_step("importing", None, "rows") as advance,
        temporary_folder(place) as scratch,
        opened(source, reading, scratch) as (table, name),
    ):
        rows = min(chunk_rows or default_chunk_rows(table.n_features, table.dtype.itemsize), table.n_samples)
        attributes = {"dcpred_dataset": DATASET_VERSION, "source": name, **_column_attributes(table)}
        with new_data_set(place, attributes) as group:
            not_finite, repeated = write_table(table, group, name, rows, progress or rows_of(advance))
            check_place(place)
            add_remarks(*import_remarks(table, repeated, like is not None))
    done = _imported(table, dest, rows, not_finite)
    unknown = None if like is None else {name: its.rows for name, its in table.unknown.items()}
    return replace(done, repeated_ids=repeated, unknown=unknown)


def _imported(table: Table, dest: str, chunk_rows: int, not_finite: NotFinite) -> Imported:
    return Imported(
        path=dest,
        n_samples=table.n_samples,
        n_features=table.n_features,
        dtype=str(table.dtype),
        chunk_rows=chunk_rows,
        target=None if table.target_dtype is None else "y",
        target_dtype=None if table.target_dtype is None else str(table.target_dtype),
        n_classes=None if table.labels is None else len(table.labels),
        not_finite=not_finite,
        schema=None if table.schema is None else table.schema.document(),
        ids=tuple(table.ids),
        ignored=table.ignored,
        unlabelled=table.unlabelled[0],
        unlabelled_text=table.unlabelled_text or None,
        absent=table.absent,
        index_base=table.index_base,
    )


def find_schema(source: Any, **options: Any) -> Schema:
    """The schema that `import_data` would infer with these options; writes nothing. Raises DataError."""
    reading = Reading(source, **options)
    with temporary_folder(None) as scratch, opened(source, reading, scratch) as (table, name):
        if table.schema is None:
            raise DataError(f"Cannot infer the schema of {name}: it holds a matrix, which has no columns.")
        return table.schema


def _column_attributes(table: Table) -> dict[str, Any]:
    """The attributes of the group that describe columns."""
    schema = {} if table.schema is None else {ATTRIBUTE: table.schema.document()}
    counted = {} if table.index_base is None else {INDEX_BASE: table.index_base}
    return schema | ({IDS_ATTRIBUTE: list(table.ids)} if table.ids else {}) | counted


@contextmanager
def opened(source: Any, reading: Reading, scratch: Path) -> Iterator[tuple[Table, str]]:
    """The rows of a source, and its name without a folder."""
    if not isinstance(source, str | os.PathLike):
        yield frame_table(source, reading), f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    elif path_on_disk(str(source)) is None and str(source).rstrip("/").endswith(".zarr"):
        name = str(source).rstrip("/").rpartition("/")[2]
        yield container_table(ZarrGroup(name, str(source)), reading, scratch), name
    elif path_on_disk(str(source)) is None and is_read_in_place(str(source)) and not _is_object(str(source)):
        name = str(source).rstrip("/").rpartition("/")[2]
        _check_options(name, ".parquet", reading.named)
        with reading_errors(str(source)):
            yield _table_at(absolute(str(source)), reading), name
    else:
        with local_source(str(source)) as path, reading_errors(path):
            yield open_table(path, reading, scratch), path.name


def _is_object(address: str) -> bool:
    """Whether an address on a store is that of one file, which is fetched once and read several times."""
    folder, _, name = absolute(address).rpartition("/")
    return not is_pattern(address) and bool(open_place(folder).present([name]))


def _names(given: Names) -> tuple[str, ...]:
    """Names of columns, or texts; a single one may be a string."""
    return (str(given),) if isinstance(given, str | int) else tuple(map(str, given))


def _counted(like: str | Path, features: int | None, index_base: int | None) -> dict[str, int]:
    """The number of features, and the index of the first one. Raises DataError for options that disagree."""
    known = counted_features(like)
    for name, given, option in (
        ("n_features", features, "--features"),
        ("index_base", index_base, ("--zero-based", "--one-based")[index_base or 0]),
    ):
        if given is not None and known.setdefault(name, given) != given:
            raise DataError(f"Cannot combine {option} with --like {like}, which has another. Omit it.")
    if "index_base" not in known:
        raise DataError(
            f"Cannot count features like {like}: it does not state whether the first one is 0 or 1. Pass"
            " --zero-based or --one-based"
        )
    return known


def _given(schema: str | Path | dict[str, Any]) -> tuple[list[Any], tuple[str, ...], TextFormat]:
    if isinstance(schema, dict):
        return read_columns(schema, "the import")
    path = Path(schema)
    if not path.is_file():
        so = "is not a file" if path.exists() else "does not exist"
        raise DataError(f"Cannot read a schema from {path}: it {so}. Check the path.")
    if path.stat().st_size > LARGEST_SCHEMA:
        raise DataError(
            f"Cannot read a schema from {path}: it has more than {LARGEST_SCHEMA / 2**20:.0f} MiB."
            " Name a file of --show-schema."
        )
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"Cannot read a schema from {path}: it is not valid JSON ({error}). Write one with `dcpred"
            " import SOURCE --show-schema`."
        ) from None
    return read_columns(value, path.name)


def check_place(place: Place) -> None:
    """Raise DataError if a place is occupied."""
    if place.folder is not None:
        check_new_name(place.folder, PARTIAL)
        taken = not is_free(place.folder)
    else:
        names = place.names("")
        taken = GROUP_FILE in names or (bool(names) and CLAIM not in names)
    if taken:
        raise DataError(
            f"Cannot import into {place.address}: it already exists. Remove it or choose another path."
        )
