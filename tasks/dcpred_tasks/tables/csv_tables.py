"""CSV files: a source of tables that only an import reads."""

from pathlib import Path
from typing import ClassVar

from dcpred_tasks.tables.table_files import ImportedFile
from dcpred_tasks.tables.table_source import ReadOptions, TableRows

COMPRESSED = (".gz", ".bz2")  # endings of compressed text


class CsvTable(ImportedFile):
    """A file of CSV, compressed or not: a source (sources.py)."""

    endings: ClassVar[tuple[str, ...]] = (".csv", ".tsv")
    compressed: ClassVar = COMPRESSED
    options: ClassVar[tuple[str, ...]] = ("separator", "quotes", "decimal", "thousands", "not_missing")

    def rows(self, options: ReadOptions) -> TableRows:
        from dcpred_tasks.tables.csv_files import csv_file

        return csv_file(Path(self.address), options)
