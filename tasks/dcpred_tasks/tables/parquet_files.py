"""Parquet files: their footers and row groups."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow.parquet as pq

from dcpred_tasks.storage.addresses import Options, is_remote
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.tables.table_files import Footer, TableFile, opened, reading, tail

MAGIC, TAIL_BYTES = b"PAR1", 2**16
WIDTH = {"DOUBLE": 8, "INT64": 8, "FLOAT": 4, "INT32": 4, "INT96": 8, "BOOLEAN": 1}


@dataclass(frozen=True, eq=False)
class ParquetFooter(Footer):
    """The footer of a Parquet file."""

    metadata: Any

    def read(self, group: int, names: Sequence[str]) -> Any:
        with (
            reading(self.file, f"its row group {group}"),
            pq.ParquetFile(
                opened(self.file),
                metadata=self.metadata,
                pre_buffer=is_remote(self.file.address),
                page_checksum_verification=True,  # where a writer stored checksums
            ) as file,
        ):
            return file.read_row_group(group, columns=list(names), use_threads=False)

    def group_bytes(self, group: int, names: Collection[str]) -> int:
        row_group = self.metadata.row_group(group)
        total = 0
        for i in range(row_group.num_columns):
            chunk = row_group.column(i)
            if chunk.path_in_schema.partition(".")[0] in names:
                fixed = WIDTH.get(chunk.physical_type, 0) * row_group.num_rows
                total += max(chunk.total_uncompressed_size, fixed)
        return total

    def nulls(self, name: str) -> int | None:
        """By the statistics of row groups."""
        total, at = 0, self.schema.get_field_index(name)
        for group in range(self.metadata.num_row_groups):
            found = self.metadata.row_group(group).column(at).statistics
            if found is None or not found.has_null_count:
                return None
            total += found.null_count
        return total


@lru_cache(maxsize=2**14)
def parquet_footer(file: TableFile, options: Options) -> ParquetFooter:
    """The footer of a file, read once by each process. Raises DamagedChunkError."""
    with reading(file, "its footer"):
        end = tail(file, min(TAIL_BYTES, file.size))
        length = int.from_bytes(end[-8:-4], "little") + 8
        if end[-4:] != MAGIC or length > file.size:
            raise ValueError("it does not end as Parquet does: it may be truncated")
        if length > len(end):
            end = tail(file, length)
        with pq.ParquetFile(opened(file)) as found:
            metadata, schema = found.metadata, found.schema_arrow
    rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    return ParquetFooter(file, schema, rows, digest(end[-length:]), metadata)
