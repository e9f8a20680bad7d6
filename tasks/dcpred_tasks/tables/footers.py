"""One file of rows: where it lies, and what its footer states. Nothing here needs pyarrow."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS


@dataclass(frozen=True)
class TableFile:
    """A file of a table."""

    name: str
    """Its path below the folder of the table."""
    address: str
    size: int
    tag: str
    """Of the store, or the time of the last change on a disk: another one shows another content."""
    values: tuple[tuple[str, Any], ...] | None = None
    """Values of columns that the file lacks, where a log states them; None: those in the names of folders."""
    changed: int = 0
    """When anything about it changed on a disk, in nanoseconds since 1970, which no user can set."""


def local_file(name: str, path: str) -> TableFile:
    try:
        state = os.stat(path)
    except OSError as error:
        if error.errno in RESOURCE_ERRNOS:
            raise ResourceError(
                f"Cannot read {path}: {error.strerror}. Get permission, then run again."
            ) from None
        raise DataError(f"Cannot read {path}: it does not exist. Check the path.") from None
    return TableFile(name, path, state.st_size, str(state.st_mtime_ns), changed=state.st_ctime_ns)


@dataclass(frozen=True, eq=False)  # some versions of pyarrow hash no schema
class Footer:
    """What a file states about its rows. A row group is the unit that is decoded at once.

    group_rows  rows of each row group
    digest      of the bytes of the footer
    """

    file: TableFile
    schema: Any
    group_rows: tuple[int, ...]
    digest: str
    only_imported: ClassVar[str] = ""
    """Why the file is not read where it lies, and what to do; empty where it is."""

    def read(self, group: int, names: Sequence[str]) -> Any:
        """These columns of a row group, as a table of Arrow. Raises DamagedChunkError."""
        raise NotImplementedError

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """These columns of all rows, as tables or record batches of at most `rows` rows."""
        for group, n_rows in enumerate(self.group_rows):
            whole = self.read(group, names)
            for start in range(0, n_rows, rows):
                yield whole.slice(start, rows)

    @property
    def index_columns(self) -> Collection[str]:
        """Columns that hold an index of pandas: an import omits those that no option names."""
        return ()

    def group_bytes(self, group: int, names: Collection[str]) -> int:
        """About the memory of these columns of a row group in Arrow."""
        raise NotImplementedError

    def nulls(self, name: str) -> int | None:
        """The number of missing values of a column; None where the file does not state it."""
        raise NotImplementedError
