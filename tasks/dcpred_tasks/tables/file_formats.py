"""Formats of files of rows, by the endings of their names. Their readers, which need pyarrow, load lazily."""

from collections.abc import Callable
from typing import NamedTuple

from dcpred_tasks.storage.addresses import Options, current_options, is_remote
from dcpred_tasks.tables.footers import Footer, TableFile


def _parquet_footer(file: TableFile, options: Options) -> Footer:
    from dcpred_tasks.tables.parquet_files import parquet_footer

    return parquet_footer(file, options)


def _ipc_footer(file: TableFile, options: Options) -> Footer:
    from dcpred_tasks.tables.ipc_files import ipc_footer

    return ipc_footer(file, options)


class FileFormat(NamedTuple):
    """Files of rows, by the endings of their names, and what reads their footers. Raises DataError."""

    endings: tuple[str, ...]
    footer: Callable[[TableFile, Options], Footer]


# In a folder, files of the first of these formats hold the rows.
FORMATS = (
    FileFormat((".parquet", ".pq"), _parquet_footer),
    FileFormat((".feather", ".arrow", ".ipc"), _ipc_footer),
)
STREAM = FileFormat((".arrows",), _ipc_footer)


def read_footer(file: TableFile) -> Footer:
    """The footer of a file, read once by each process; of Parquet, where its name has no known ending."""
    options = current_options() if is_remote(file.address) else ()
    of_name = (kind for kind in (*FORMATS, STREAM) if file.name.lower().endswith(kind.endings))
    return next(of_name, FORMATS[0]).footer(file, options)
