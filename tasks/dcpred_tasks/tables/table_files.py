"""Files of rows, of one table: where they lie, and what reads them. Nothing here needs pyarrow."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import ClassVar, Self

from dcpred_tasks.errors import DataError
from dcpred_tasks.errors import listed as listed_names
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.storage.addresses import below, current_options, is_remote
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.once import LISTING, once
from dcpred_tasks.storage.patterns import files_of, is_pattern, match_pattern
from dcpred_tasks.storage.place import is_zarr, open_place
from dcpred_tasks.storage.place_types import Entry
from dcpred_tasks.tables.file_formats import FORMATS, STREAM
from dcpred_tasks.tables.footers import TableFile, local_file
from dcpred_tasks.tables.table_formats import refuse_logged_tables
from dcpred_tasks.tables.table_source import ReadOptions, TableRows, TableSource

COMPRESSED = (".gz", ".bz2")  # endings of compressed text


def is_rows(name: str) -> bool:
    """Whether a file is one of rows, by the ending of its name."""
    return name.lower().endswith(FileTable.endings)


@dataclass(frozen=True)
class FileTable(TableSource):
    """A file of Parquet or Arrow, or those of a folder or pattern: a source (sources.py)."""

    endings: ClassVar = tuple(ending for kind in FORMATS for ending in kind.endings)
    address: str

    @classmethod
    def is_at(cls, address: str) -> bool:
        path = address.rstrip("/")
        if is_pattern(path):
            return True
        is_folder = not is_remote(path) and os.path.isdir(path)
        if is_rows(path) and not is_folder:
            return True
        if not (open_place(path).lists if is_remote(path) else is_folder) or is_zarr(path):
            return False
        return bool(_names_of(address)[1])

    @classmethod
    def open(cls, address: str) -> Self:
        return cls(address)

    @cached_property
    def files(self) -> list[TableFile]:
        """By name."""
        return list_files(self.address)


class ImportedFile(FileTable):
    """A file that only an import reads."""

    in_place: ClassVar = False
    compressed: ClassVar[tuple[str, ...]] = ()
    """Endings of compressed files of this kind."""

    @classmethod
    def is_at(cls, address: str) -> bool:
        path = address.rstrip("/")
        endings = (*cls.endings, *(a + b for a in cls.endings for b in cls.compressed))
        return path.lower().endswith(endings) and (is_remote(path) or os.path.isfile(path))


class CsvTable(ImportedFile):
    """A file of CSV, compressed or not: a source."""

    endings: ClassVar = (".csv", ".tsv")
    compressed: ClassVar = COMPRESSED
    options: ClassVar = ("separator", "quotes", "decimal", "thousands", "not_missing")

    def rows(self, options: ReadOptions) -> TableRows:
        from dcpred_tasks.tables.csv_files import csv_file

        return csv_file(Path(self.address), options)


class StreamFile(ImportedFile):
    """A stream of Arrow, which has no footer: a source."""

    endings: ClassVar = STREAM.endings


def list_files(address: str) -> list[TableFile]:
    """The files of a table, by name. Raises DataError where there is none."""
    path = address.rstrip("/")
    if not is_pattern(path) and is_remote(path) and (single := _one_object(path)):
        return single
    if not is_pattern(path) and not is_remote(path) and not os.path.isdir(address):
        return [local_file(os.path.basename(path), path)]
    base, names, listed = _names_of(address)
    if not names:
        raise DataError(f"Cannot read {address}: no .parquet file is there. Name a file or a folder of them.")
    refuse_logged_tables(base, names, listed)
    if listed is None:
        return [local_file(name, os.path.join(base, name)) for name in names]
    return [TableFile(name, below(base, name), listed[name].size, listed[name].tag) for name in names]


Names = tuple[str, list[str], dict[str, Entry] | None]


def _names_of(address: str) -> Names:
    """The folder of a table, the names of its files below it, sorted, and what a store lists there."""

    def read() -> Names:
        base, names = address.rstrip("/") or address, [""]
        if is_pattern(base):
            base, matches = match_pattern(base)
            names = [match.name for match in matches]
        listed = open_place(base).listing() if is_remote(base) else None
        files = files_of(base, names, is_rows, listed)
        of_rows = sorted((name for some in files for name in _rows(some)), key=lambda name: name.split("/"))
        return base, of_rows, listed

    where = address if is_remote(address) else os.path.realpath(address)
    return once(LISTING, ("names", where, current_options()), read)


# Files that systems leave beside rows, and folders of tables with a log.
HARMLESS = re.compile(r"_SUCCESS|_metadata|_common_metadata|_delta_log|.*\.crc|\.DS_Store", re.IGNORECASE)
PARTS = re.compile(r"\.(parquet|arrow|feather|csv|tsv)\b|^_temporary", re.IGNORECASE)
MOST_LISTED = 10_000  # names that are compared with those of rows


def passed_over(address: str | Path) -> list[Remark]:
    """At most one remark, on files beside those of a table that may hold rows of it, by their names:
    unfinished ones, hidden ones, and those of another format.
    """
    where = str(address)
    if is_pattern(where) or is_rows(where) or not FileTable.is_at(where):
        return []
    base, names, listed = _names_of(where)
    every = _below(base) if listed is None else listed
    read = set(names)
    others = [
        name
        for name in islice(every, MOST_LISTED)
        if name not in read and not any(map(HARMLESS.fullmatch, name.split("/"))) and PARTS.search(name)
    ]
    if not others:
        return []
    text = f"{listed_names(sorted(others), 3)} in {base} {'is' if len(others) == 1 else 'are'} ignored"
    return [remark("passed-over-files", text, file=base)]


def _below(folder: str) -> Iterator[str]:
    """The paths of all files below a folder of a disk."""
    for path, _, files in os.walk(folder):
        yield from (os.path.relpath(os.path.join(path, name), folder) for name in files)


def _rows(files: list[str]) -> list[str]:
    """The files of rows of a folder: those of the first of FORMATS that is there."""
    of_formats = ([name for name in files if name.lower().endswith(kind.endings)] for kind in FORMATS)
    return next(filter(None, of_formats), [])


def _one_object(path: str) -> list[TableFile]:
    folder, _, name = path.rpartition("/")
    place = open_place(folder)
    entry = place.head(name) if isinstance(place, Bucket) else None
    return [] if entry is None else [TableFile(name, path, entry.size, entry.tag)]
