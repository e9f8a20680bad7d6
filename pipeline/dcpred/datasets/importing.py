"""Import a source into a Zarr data set."""

import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dcpred.datasets.containers import ZarrGroup
from dcpred.datasets.opening import (
    Reading,
    container_table,
    frame_table,
    is_svmlight,
    open_table,
    reading_errors,
)
from dcpred.datasets.store_files import CLAIM, GROUP_FILE, local_source, new_data_set, temporary_folder
from dcpred.datasets.table import Table
from dcpred.datasets.writing import NotFinite, default_chunk_rows, write_table
from dcpred.summary import Summary
from dcpred_tasks.artifacts.data_schema import counted_features, schema_to_follow
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.schema.schema import ATTRIBUTE, IDS_ATTRIBUTE, INDEX_BASE, Schema, TextFormat, read_columns
from dcpred_tasks.storage.addresses import check_writable, path_on_disk
from dcpred_tasks.storage.atomic_files import PARTIAL, check_new_name, is_free
from dcpred_tasks.storage.place import Place, open_place

DATASET_VERSION = 1
LARGEST_SCHEMA = 64 * 2**20  # bytes of a file of a schema


@dataclass(frozen=True, repr=False)
class Imported(Summary):
    """The imported data.

    Attributes
    ----------
    path : str
        Path of the Zarr group.
    n_samples : int
        Number of rows.
    n_features : int
        Number of features, after encoding.
    dtype : str
        Data type of X.
    chunk_rows : int
        Rows of a chunk of X and y.
    target : str or None
        The array that holds the target, "y"; None without a target.
    target_dtype : str or None
        Data type of the target; None without a target.
    n_classes : int or None
        Number of classes of a target of strings, else None.
    not_finite : NotFinite
        Rows with values that are not finite.
    schema : dict or None
        The columns; None for a matrix.
    ids : tuple of str
        Names of the arrays that are stored next to X.
    repeated_ids : dict of str to int
        Estimated number of rows that repeat a value of an earlier row, by array of `ids`.
    ignored : tuple of str
        Columns that the followed schema does not know.
    unknown : dict of str to int or None
        Rows by column whose category the followed schema does not know; None if there are none.
    unlabelled : int
        Number of skipped rows without a target.
    unlabelled_text : str or None
        A text, for example NA, that stands for a missing target in some of these rows, but may be a class.
    absent : tuple of str
        Columns of the source whose values were not read, because `absent` names them.
    index_base : int or None
        The index of the first feature of an svmlight file, 0 or 1; None for other sources.
    """

    path: str
    n_samples: int
    n_features: int
    dtype: str
    chunk_rows: int
    target: str | None
    target_dtype: str | None
    n_classes: int | None
    not_finite: NotFinite
    schema: dict[str, Any] | None = None
    ids: tuple[str, ...] = ()
    repeated_ids: dict[str, int] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    unknown: dict[str, int] | None = None
    unlabelled: int = 0
    unlabelled_text: str | None = None
    absent: tuple[str, ...] = ()
    index_base: int | None = None


Names = str | int | Sequence[str | int]


def import_data(
    source: Any,
    dest: str | Path,
    *,
    x: str | None = None,
    y: str | None = None,
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
    chunk_rows: int | None = None,
    features: int | None = None,
    index_base: int | None = None,
    dense_limit: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    ids: Names = (),
    gaps: Names = (),
) -> Imported:
    """Write `source` to the new Zarr group `dest`, completely or not at all.

    Parameters
    ----------
    source : str, Path, frame or list of dict
        A file, a directory of Parquet files or Zarr, a frame of pandas, polars or pyarrow, or records.
    dest : str or Path
        Path or address of the new group.
    x : str, optional
        Name of the array of features in a file or group of arrays. By default X.
    y : str, optional
        Name of the array of targets there. By default y, which may be missing.
    target : str or int, optional
        Column that becomes y. Without it there is no y.
    categorical : str, int or sequence, optional
        Columns whose values are categories.
    drop : str, int or sequence, optional
        Columns to omit.
    id : str, int or sequence, optional
        Columns to store next to X under their names.
    gap : str or sequence of str, optional
        Further texts of a .csv file that stand for a missing value.
    absent : str, int or sequence, optional
        Columns of `like` or `schema` that are missing in every row.
    drop_unlabelled : bool, default False
        Skip rows without a target.
    not_missing : str or sequence of str, optional
        Texts of a .csv file that are values, although they usually stand for a missing one (NA).
    schema : str, Path or dict, optional
        A file of a schema, or its content: it describes all or some columns.
    like : str or Path, optional
        A model or data set whose encoding is followed: no new category, no new mean.
    separator : str, optional
        Field separator of a .csv file. By default inferred.
    quotes : bool, optional
        Whether quotation marks enclose fields of a .csv file. By default they do, and a mark that joins rows
        is refused.
    decimal : str, optional
        Decimal mark of numbers in a .csv file: ``"."`` or ``","``.
    thousands : str, optional
        Mark between groups of three digits in a .csv file.
    chunk_rows : int, optional
        Rows of a chunk. By default about 8 MiB of X, and at most all rows.
    features : int, optional
        Number of features of an svmlight file whose rows do not use the last ones.
    index_base : int, optional
        Index of the first feature of an svmlight file, 0 or 1. By default 0 if it occurs.
    dense_limit : int, optional
        Maximum bytes of a sparse source after it is written dense. By default 1 GiB.
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
    The label of each line of an svmlight file becomes y. NaN and infinity are imported unchanged, and
    counted.
    """
    check_writable(dest, "data")
    dest = str(dest)
    place = open_place(dest)
    if chunk_rows is not None and chunk_rows < 1:
        raise SettingsError(
            f"Cannot use chunk_rows {chunk_rows}: it is less than 1. Omit it for about 8 MiB a chunk."
        )
    check_place(place)
    reading = make_reading(
        source,
        x=x,
        y=y,
        target=target,
        categorical=categorical,
        drop=drop,
        absent=absent,
        drop_unlabelled=drop_unlabelled,
        not_missing=not_missing,
        schema=schema,
        like=like,
        separator=separator,
        quotes=quotes,
        decimal=decimal,
        thousands=thousands,
        features=features,
        index_base=index_base,
        dense_limit=dense_limit,
        id=(*_names(id), *_names(ids)),
        gap=(*_names(gap), *_names(gaps)),
    )
    with temporary_folder(place) as scratch, opened(source, reading, scratch) as (table, name):
        rows = min(chunk_rows or default_chunk_rows(table.n_features, table.dtype.itemsize), table.n_samples)
        summary = {"dcpred_dataset": DATASET_VERSION, "source": name, **_column_attributes(table)}
        with new_data_set(place, summary) as group:
            not_finite, repeated = write_table(table, group, name, rows, progress)
            check_place(place)
    done = _imported(table, dest, rows, not_finite)
    return replace(done, repeated_ids=repeated, unknown=None if like is None else table.unknown)


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
    """The schema that `import_data` would infer, with the same options; writes nothing. Raises
    DataError.
    """
    reading = make_reading(source, **options)
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
    else:
        with local_source(str(source)) as path, reading_errors(path):
            yield open_table(path, reading, scratch), path.name


def make_reading(
    source: Any,
    *,
    x: str | None = None,
    y: str | None = None,
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
    features: int | None = None,
    index_base: int | None = None,
    dense_limit: int | None = None,
    ids: Names = (),
    gaps: Names = (),
) -> Reading:
    """The options of a read. Raises DataError if options exclude each other."""
    beside = {"categorical": categorical, "drop": drop, "schema": schema}
    named = [name for name, value in beside.items() if value]
    if like is not None and named:
        raise DataError(
            f"Cannot combine --{named[0]} with --like {like}: its schema states what every column is. Omit"
            " one"
            " of them."
        )
    columns, texts, form = _given(schema) if schema is not None else ([], (), TextFormat())
    followed: tuple[Schema | None, str] | None = None
    known: dict[str, int] = {}
    if like is not None and is_svmlight(source):
        followed, known = (None, str(like)), _counted(like, features, index_base)
    elif like is not None:
        followed = (schema_to_follow(like), str(like))
        texts, form = followed[0].gap_texts, followed[0].text
    both = sorted({*_names(gap), *_names(gaps)} & set(_names(not_missing)))
    if both:
        text = shlex.quote(both[0])
        raise DataError(
            f"Cannot read {both[0]!r} both as a missing value and as a value: --gap {text} and --not-missing"
            f" {text} exclude each other. Omit one of them."
        )
    try:
        form = TextFormat(
            form.decimal if decimal is None else decimal,
            form.thousands if thousands is None else thousands,
            (*form.not_missing, *_names(not_missing)),
        )
    except ValueError as error:
        raise SettingsError(f"Cannot read numbers: {error}") from None
    return Reading(
        x,
        y,
        None if target is None else str(target),
        features,
        _names(categorical),
        _names(drop),
        (*_names(id), *_names(ids)),
        tuple(dict.fromkeys((*texts, *_names(gap), *_names(gaps)))),
        {column.name: column for column in columns},
        followed,
        dense_limit,
        form,
        {"decimal": decimal, "thousands": thousands, "not_missing": ",".join(_names(not_missing))},
        separator,
        quotes,
        _names(absent),
        drop_unlabelled,
        index_base,
        known,
    )


def _names(given: Names) -> tuple[str, ...]:
    """Names of columns, or texts; a single one may be a string."""
    return (str(given),) if isinstance(given, str | int) else tuple(map(str, given))


def _counted(like: str | Path, features: int | None, index_base: int | None) -> dict[str, int]:
    """The number of features, and the index of the first one. Raises DataError if options disagree with the
    data that are followed.
    """
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
