"""Parquet files of one table: where they lie, what they hold, and their row groups."""

import io
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dcpred_tasks.errors import DamagedChunkError, DataError, DcpredError, ResourceError
from dcpred_tasks.storage.addresses import Options, below, current_options, is_remote, local_path
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.computed_arrays import refuse_changed
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.arrow_columns import is_text_or_levels

PARQUET = (".parquet", ".pq")
MAGIC, TAIL_BYTES = b"PAR1", 2**16
WILD = re.compile(r"[*?\[]")
EXTENSION = b"ARROW:extension:name"  # in the metadata of a field
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"  # replaces a missing value
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
IGNORED = ("_", ".")  # first letters of files that writers of folders add to the rows


@dataclass(frozen=True)
class TableFile:
    """A Parquet file of a table."""

    name: str
    """Its path below the folder of the table."""
    address: str
    size: int
    tag: str
    """Of the store, or the time of the last change on a disk: another one shows another content."""


@dataclass(frozen=True)
class Footer:
    """The metadata of a Parquet file.

    digest  of the bytes of the footer
    """

    file: TableFile
    metadata: Any
    schema: Any
    digest: str

    @property
    def n_rows(self) -> int:
        return int(self.metadata.num_rows)


def is_rows(name: str) -> bool:
    """Whether the path of a file, below the folder of a table, is one of rows."""
    parts = name.split("/")
    return name.lower().endswith(PARQUET) and not any(part.startswith(IGNORED) for part in parts)


def is_parquet(address: str | Path) -> bool:
    """Whether an address names Parquet: a file by its ending, a pattern, or a folder on a disk."""
    path = local_path(address)
    if path.lower().endswith(PARQUET) or WILD.search(path):
        return path.lower().endswith(PARQUET) or not path.lower().rstrip("/").endswith(".zarr")
    if is_remote(path):
        return False
    return os.path.isdir(path) and next(_local_names(path), None) is not None


def _local_names(path: str) -> Iterator[str]:
    for folder, folders, names in os.walk(path, followlinks=True):
        folders.sort()
        for name in sorted(names):
            found = os.path.relpath(os.path.join(folder, name), path)
            if is_rows(found):
                yield found


def list_files(address: str) -> list[TableFile]:
    """The files of a table, by name. Raises DataError where there is none."""
    path = address.rstrip("/")
    wild = WILD.search(path)
    if wild is not None:
        base = path[: wild.start()].rpartition("/")[0] or ("/" if path.startswith("/") else ".")
        matches = re.compile(_pattern(path[len(base) + 1 :] if base != "." else path)).fullmatch
        found = [file for file in _below(base) if matches(file.name)]
    elif is_remote(path):
        found = _one_object(path) or _below(path)
    elif os.path.isdir(path):
        found = _below(path)
    else:
        found = [_local(os.path.basename(path), path)]
    if not found:
        raise DataError(f"Cannot read {address}: no .parquet file is there. Name a file or a folder of them.")
    return found


def _pattern(text: str) -> str:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]*\])", text)
    return "".join(parts.get(one) or (one if one.startswith("[") else re.escape(one)) for one in pieces)


def _local(name: str, path: str) -> TableFile:
    try:
        state = os.stat(path)
    except OSError as error:
        if error.errno in RESOURCE_ERRNOS:
            raise ResourceError(
                f"Cannot read {path}: {error.strerror}. Get permission, then run again."
            ) from None
        raise DataError(f"Cannot read {path}: it does not exist. Check the path.") from None
    return TableFile(name, path, state.st_size, str(state.st_mtime_ns))


def _denied(path: str, error: Exception) -> ResourceError:
    return ResourceError(f"Cannot read {path}: {error}. Get permission, then run again.")


def _below(path: str) -> list[TableFile]:
    if not is_remote(path):
        return [_local(name, os.path.join(path, name)) for name in _local_names(path)]
    listed = open_place(path).listing()
    return [
        TableFile(name, below(path, name), entry.size, entry.tag)
        for name, entry in sorted(listed.items())
        if is_rows(name)
    ]


def _one_object(path: str) -> list[TableFile]:
    folder, _, name = path.rpartition("/")
    place = open_place(folder)
    entry = place.head(name) if isinstance(place, Bucket) else None
    return [] if entry is None else [TableFile(name, path, entry.size, entry.tag)]


# -- Reading -------------------------------------------------------------------------------------------------


class _Object(io.RawIOBase):
    """An object of a store as a file, in ranges. Raises DataError once it has another tag."""

    def __init__(self, file: TableFile) -> None:
        folder, _, self.key = file.address.rpartition("/")
        self.place, self.file, self.at = open_place(folder), file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.file.size)[whence]
        return self.at

    def read(self, n: int | None = -1) -> bytes:
        stop = self.file.size if n is None or n < 0 else min(self.at + n, self.file.size)
        if stop <= self.at:
            return b""
        assert isinstance(self.place, Bucket)
        data = self.place.part(self.key, self.at, stop, self.file.tag)
        if data is None:
            raise refuse_changed(self.file.address)
        self.at = stop
        return data


def _opened(file: TableFile) -> Any:
    """What pyarrow and `open` read: a path, or a file of a store."""
    return pa.PythonFile(_Object(file), "r") if is_remote(file.address) else file.address


@contextmanager
def reading(file: TableFile, what: str) -> Iterator[None]:
    """Translate errors of pyarrow, and refuse a file that changed meanwhile.

    what  is read: "its footer", "its row group 3"
    """
    try:
        yield
    except DcpredError:
        raise
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        _check_unchanged(file)
        if getattr(error, "errno", None) in RESOURCE_ERRNOS:
            raise ResourceError(
                f"Cannot read {file.address}: {error}. Get permission, then run again."
            ) from None
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedChunkError(
            f"Cannot read {file.address}: {what} is damaged or of another format ({line})."
            " Restore the file and run again."
        ) from None
    _check_unchanged(file)


def _check_unchanged(file: TableFile) -> None:
    """Objects of stores are read by their tag."""
    if not is_remote(file.address) and _local(file.name, file.address) != file:
        raise refuse_changed(file.address)


def footer(file: TableFile) -> Footer:
    """The metadata of a file, read once by each process. Raises DamagedChunkError."""
    return _footer(file, current_options() if is_remote(file.address) else ())


@lru_cache(maxsize=2**14)
def _footer(file: TableFile, options: Options) -> Footer:
    with reading(file, "its footer"):
        tail = _tail(file, min(TAIL_BYTES, file.size))
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if tail[-4:] != MAGIC or length > file.size:
            raise ValueError("it does not end as Parquet does: it may be truncated")
        if length > len(tail):
            tail = _tail(file, length)
        with pq.ParquetFile(_opened(file)) as opened:
            return Footer(file, opened.metadata, opened.schema_arrow, digest(tail[-length:]))


def _tail(file: TableFile, n: int) -> bytes:
    with _Object(file) if is_remote(file.address) else open(file.address, "rb") as source:
        source.seek(-n, 2)
        return bytes(source.read(n))


def read_group(of: Footer, group: int, names: Sequence[str]) -> Any:
    """These columns of a row group, as a table of Arrow. Raises DamagedChunkError."""
    with (
        reading(of.file, f"its row group {group}"),
        pq.ParquetFile(
            _opened(of.file),
            metadata=of.metadata,
            pre_buffer=is_remote(of.file.address),
            page_checksum_verification=True,  # where a writer stored checksums
        ) as file,
    ):
        return file.read_row_group(group, columns=list(names), use_threads=False)


def group_bytes(of: Footer, group: int, names: Collection[str]) -> int:
    """About the memory of these columns of a row group in Arrow."""
    row_group = of.metadata.row_group(group)
    total = 0
    for i in range(row_group.num_columns):
        chunk = row_group.column(i)
        if chunk.path_in_schema.partition(".")[0] in names:
            width = {"DOUBLE": 8, "INT64": 8, "FLOAT": 4, "INT32": 4, "INT96": 8, "BOOLEAN": 1}
            fixed = width.get(chunk.physical_type, 0) * row_group.num_rows
            total += max(chunk.total_uncompressed_size, fixed)
    return total


def stored_nulls(footers: Sequence[Footer], name: str) -> int | None:
    """The number of missing values of a column by the statistics of its files; None where they lack it."""
    total = 0
    for one in footers:
        at = one.schema.get_field_index(name)
        for group in range(one.metadata.num_row_groups):
            found = one.metadata.row_group(group).column(at).statistics
            if found is None or not found.has_null_count:
                return None
            total += found.null_count
    return total


# -- Columns -------------------------------------------------------------------------------------------------


def foreign_types(schema: Any) -> dict[str, str]:
    """The columns with an extension type that Arrow does not know here, with its name: the meaning of their
    values is unknown.
    """
    return {
        field.name: field.metadata[EXTENSION].decode(errors="replace")
        for field in schema
        if EXTENSION in (field.metadata or {}) and not isinstance(field.type, pa.BaseExtensionType)
    }


def common_columns(
    source: str, files: Sequence[str], schemas: Sequence[Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The types of the columns of several files, and the values in the folder names of each file.

    source  name of the table, for messages
    files   their paths below its folder

    Raises DataError for files of different columns.
    """
    first = schemas[0]
    for file, schema in zip(files, schemas, strict=True):
        for one, other, where in ((schema, first, file), (first, schema, files[0])):
            for name in one.names:
                if name not in other.names:
                    at = files[0] if where is file else file
                    raise DataError(
                        f"Cannot read {source}: its files have different columns. {name!r} is in"
                        f" {where} and not in {at}. Add it, or take the files one by one."
                    )
    summary = _folder_values(source, files)
    types = _common_types(source, files, schemas) | {
        name: _type_of([each[name] for each in summary]) for name in summary[0]
    }
    clash = set(summary[0]) & set(first.names)
    if clash:
        raise DataError(
            f"Cannot read {source}: column {sorted(clash)[0]!r} is in its files and in the names of its"
            " folders. Rename one of them."
        )
    return types, summary


def _common_types(source: str, files: Sequence[str], schemas: Sequence[Any]) -> dict[str, Any]:
    """A type for each column that holds the values of all files."""
    found: dict[str, Any] = dict(zip(schemas[0].names, schemas[0].types, strict=True))
    for file, schema in zip(files, schemas, strict=True):
        for name, kind in zip(schema.names, schema.types, strict=True):
            if is_text_or_levels(kind) and is_text_or_levels(found[name]) and kind != found[name]:
                found[name] = pa.string()
                continue
            both = [pa.schema([(name, found[name])]), pa.schema([(name, kind)])]
            try:
                found[name] = pa.unify_schemas(both, promote_options="permissive").field(0).type
            except (pa.ArrowTypeError, pa.ArrowInvalid):
                raise DataError(
                    f"Cannot read {source}: column {name!r} is {found[name]} in"
                    f" {files[0]} and {kind} in {file}. Convert one of"
                    " them."
                ) from None
    return found


def _folder_values(source: str, files: Sequence[str]) -> list[dict[str, Any]]:
    """The values in folder names for each file: integers if all of a column are, else text."""
    found = [
        {unquote(name): unquote(value) for name, _, value in map(_split, file.split("/")[:-1]) if name}
        for file in files
    ]
    for file, summary in zip(files, found, strict=True):
        if summary.keys() != found[0].keys():
            raise DataError(
                f"Cannot read {source}: its files lie below folders of different columns:"
                f" {files[0]} and {file}. Move one of them."
            )
    whole = {
        name: all(WHOLE.fullmatch(summary[name]) or summary[name] == HIVE_NULL for summary in found)
        for name in found[0]
    }
    return [
        {
            name: None if value == HIVE_NULL else int(value) if whole[name] else value
            for name, value in summary.items()
        }
        for summary in found
    ]


def _split(folder: str) -> tuple[str, str, str]:
    """Name and value of a folder called `name=value`; an empty name for another folder."""
    name, equals, value = folder.partition("=")
    return (name, equals, value) if equals else ("", "", "")


def _type_of(values: Sequence[Any]) -> Any:
    return pa.array(values).type
