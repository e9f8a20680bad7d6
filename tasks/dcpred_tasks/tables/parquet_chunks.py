"""What the footer of a Parquet file states about its column chunks.

pyarrow ends the process by an uncaught exception of C++ where the metadata of a column chunk are encrypted or
damaged. This module reads them from the bytes of the footer: Thrift's compact protocol, every length checked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Numbers of fields in parquet.thrift.
ROW_GROUPS, FILE_ENCRYPTION = 4, 8
GROUP_COLUMNS = 1
CHUNK_METADATA, CHUNK_ENCRYPTION = 3, (8, 9)
TYPE, PATH, UNCOMPRESSED_SIZE, STATISTICS, NULL_COUNT = 1, 3, 6, 12, 3
WIDTHS = {0: 1, 1: 4, 2: 8, 3: 8, 4: 4, 5: 8}  # bytes of decoded values, by physical type
# Types of the compact protocol.
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)


@dataclass(frozen=True, slots=True)  # a file may have millions
class Chunk:
    """A column chunk.

    path   the name of its column, and of fields within it
    size   bytes of its pages, uncompressed
    width  bytes of a value; 0 where they differ
    nulls  the number of missing values; None where it is not stated
    """

    path: tuple[str, ...]
    size: int
    width: int
    nulls: int | None


class EncryptedError(Exception):
    """A file has encrypted columns."""


def read_chunks(footer: bytes | memoryview) -> list[list[Chunk]]:
    """The column chunks of each row group. Raises EncryptedError, and ValueError for a damaged footer.

    footer  the bytes of the file's metadata
    """
    groups: list[list[Chunk]] = []
    reader, paths = _Reader(footer), dict[tuple[str, ...], tuple[str, ...]]()

    def row_group() -> None:
        columns = reader.struct().get(GROUP_COLUMNS, [])
        groups.append([_chunk(column, paths) for column in columns])

    try:
        if FILE_ENCRYPTION in reader.struct({ROW_GROUPS: row_group}):
            raise EncryptedError
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("its metadata are not those of Parquet") from error
    return groups


def _chunk(fields: dict[int, Any], paths: dict[tuple[str, ...], tuple[str, ...]]) -> Chunk:
    """paths  those of earlier chunks, which are shared"""
    if not fields.keys().isdisjoint(CHUNK_ENCRYPTION):
        raise EncryptedError
    stated = fields[CHUNK_METADATA]
    nulls = stated.get(STATISTICS, {}).get(NULL_COUNT)
    path = tuple(name.decode() for name in stated[PATH])
    path = paths.setdefault(path, path)
    size, width = stated[UNCOMPRESSED_SIZE], WIDTHS.get(stated[TYPE], 0)
    if not path or type(size) is not int or not (nulls is None or type(nulls) is int):
        raise ValueError("its metadata are not those of Parquet")
    return Chunk(path, size, width, nulls)


class _Reader:
    """Values of the compact protocol, one after the other. Raises IndexError or ValueError at a wrong one."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self.at = data, 0

    def struct(self, visitors: dict[int, Callable[[], None]] | None = None) -> dict[int, Any]:
        """The fields of a struct, by their numbers.

        visitors  by the number of a list: read each of its items
        """
        fields: dict[int, Any] = {}
        number = 0
        while head := self.data[self.at]:
            self.at += 1
            number = number + (head >> 4) if head >> 4 else self.integer()
            kind = head & 15
            if visitors and number in visitors and kind == LIST:
                n, _ = self.list_head()
                for _ in range(n):
                    visitors[number]()
            elif kind in (TRUE, FALSE):
                fields[number] = kind == TRUE
            else:
                fields[number] = self.value(kind)
        self.at += 1
        return fields

    def value(self, kind: int) -> Any:
        if kind in (I16, I32, I64):
            return self.integer()
        if kind == BINARY:
            return self.take(self.unsigned())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            n, of = self.list_head()
            return [self.value(of) for _ in range(n)]
        if kind == MAP:
            if n := self.unsigned():
                of = self.take(1)[0]
                return [(self.value(of >> 4), self.value(of & 15)) for _ in range(n)]
            return []
        if kind in (TRUE, FALSE, BYTE):  # a boolean of a list is a byte
            return self.take(1)[0]
        if kind == DOUBLE:
            return self.take(8)
        raise ValueError(f"its metadata have a value of the unknown type {kind}")

    def list_head(self) -> tuple[int, int]:
        """The number of items of a list, and their type."""
        head = self.take(1)[0]
        n = head >> 4
        return (self.unsigned() if n == 15 else n), head & 15

    def take(self, n: int) -> bytes:
        start, self.at = self.at, self.at + n
        if self.at > len(self.data):
            raise IndexError
        return bytes(self.data[start : self.at])

    def unsigned(self) -> int:
        byte = self.data[self.at]
        self.at += 1
        if byte < 128:
            return byte
        result, shift = byte & 127, 7
        while byte >= 128:
            byte = self.data[self.at]
            self.at += 1
            result |= (byte & 127) << shift
            shift += 7
            if shift > 70:
                raise ValueError("its metadata have a number of more than 64 bits")
        return result

    def integer(self) -> int:
        number = self.unsigned()
        return (number >> 1) ^ -(number & 1)
