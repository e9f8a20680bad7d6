"""The files that blocks leave in an output: chunks of Zarr arrays, a file for each format of tables, and what
can be wrong with them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.result_fields import result_class, result_field


class Kind(StrEnum):
    """The kinds of findings in an output."""

    MISSING_RECORD = "missing record"
    ALTERED_RECORD = "altered record"
    FOREIGN_RECORD = "foreign record"
    RECORD_OF_NO_BLOCK = "record of no block"
    CONFLICT = "conflicting record"
    MISSING_CHUNK = "missing chunk"
    CHUNK_SIZE = "chunk of another size"
    FOREIGN_FILE = "foreign file"
    METADATA = "altered metadata"
    MANIFEST = "altered manifest"
    DAMAGED_CHUNK = "damaged chunk"
    WRONG_VALUES = "wrong values"
    STATUS = "status and scores disagree"
    WRONG_SCORE = "wrong score"
    ROWS_GIVEN_UP = "rows given up"
    """No damage: stored values are right, but rows have no score because their input was unreadable."""
    MISSING_TABLE = "missing Parquet file"
    TABLE_SIZE = "Parquet file of another size"
    DAMAGED_TABLE = "damaged Parquet file"
    DELTA = "Delta table"
    """The Delta table lacks the run, or a file of it."""
    LEFTOVER = "leftover"
    """No damage: a file of an interrupted attempt."""
    SYSTEM_FILE = "system file"
    """No damage: a file of the operating system or a file manager, which is ignored."""


ZARR, PARQUET = "zarr", "parquet"  # names of artifacts: each run has the arrays, and tables on request


@dataclass(frozen=True)
class TableFormat:
    """A format of tables, of which each block leaves one file. Its entry in `TABLE_FORMATS`
    is all that a new one needs, besides an argument of the functions that take it.

    label    its name in messages
    ending   of its files, and of their folder
    key      what commit records and the identity of a run state about it
    missing, resized, damaged  the kinds of findings in its files
    """

    label: str
    ending: str
    key: str
    missing: Kind
    resized: Kind
    damaged: Kind

    @property
    def folder(self) -> str:
        """The name of the folder of its files in an output."""
        return f"scores{self.ending}"

    def file(self, block: int) -> str:
        """The name of the file of a block in an output."""
        return f"{self.folder}/{block:06d}{self.ending}"


TABLE_FORMATS = {
    PARQUET: TableFormat(
        "Parquet", ".parquet", "table", Kind.MISSING_TABLE, Kind.TABLE_SIZE, Kind.DAMAGED_TABLE
    )
}
HARMLESS = (Kind.LEFTOVER, Kind.ROWS_GIVEN_UP, Kind.SYSTEM_FILE)


@result_class
class Finding:
    """One finding of a verification."""

    kind: Kind = result_field("What is wrong: one of the kinds of `dcpred verify`.")
    block: int | None = result_field("The number of the affected block; None for all or none.")
    file: str = result_field("The path of the file, relative to the output.")
    sentence: str = result_field("The error, as text that follows the name of the file.")

    @property
    def is_damage(self) -> bool:
        """Whether something is wrong: a leftover of an interrupted attempt is not."""
        return self.kind not in HARMLESS


class Ids(Protocol):
    """Reads the ids of rows, chunk by chunk, for tables."""

    reader: Any
    """Reads their columns; None where they are the numbers of rows."""

    @property
    def columns(self) -> dict[str, Any]:
        """Those of the rows that were read last, by name."""

    def read(self, start: int, stop: int) -> None:
        """Read the ids of rows. Raises MissingChunkError, DamagedChunkError."""

    def digest(self) -> str:
        """A digest of the ids that were read last."""

    def hashes(self) -> NDArray[np.uint64]:
        """Hashes of the ids that were read last, without missing ones."""
