"""Commit records as they are read from a store: many at once, and none twice."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun, record_bytes
from dcpred_tasks.storage.bucket import same_tag
from dcpred_tasks.storage.place_types import Entry
from dcpred_tasks.storage.store_requests import Retrying, StoreError, each_of


@dataclass
class CachedRecords:
    """Records with their tags on the store, in a temporary file: the same tag is not read again."""

    file: IO[bytes] | None = None
    at: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """Tag, offset and length of each block's record."""

    def add(self, record: CommitRecord) -> None:
        if not record.tag:
            return
        self.file = self.file or tempfile.TemporaryFile()  # noqa: SIM115
        data = record_bytes(record)
        offset = self.file.seek(0, 2)
        self.file.write(data)
        self.at[record.block] = record.tag, offset, len(data)

    def forget(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()
        self.file, self.at = None, {}

    def find(self, block: int, entry: Entry) -> bytes | None:
        tag, offset, length = self.at.get(block, ("", 0, 0))
        if self.file is None or not tag or not same_tag(tag, entry.tag):
            return None
        self.file.seek(offset)
        return self.file.read(length)


def read_records(
    run: ScoreRun, listed: Mapping[int, Entry], cache: CachedRecords
) -> Iterator[tuple[int, bytes | None]]:
    """The bytes of the records of these blocks, in ascending order; None for a removed one."""
    place = run.place

    def read(item: tuple[int, bytes | None]) -> bytes | None:
        block, data = item
        if data is not None:
            return data
        call = partial(place.read, run.record_name(block))
        try:
            stored = Retrying()(call) if place.many_at_once else call()
        except StoreError:
            raise
        except OSError:  # An unreadable file is not a record.
            return None
        return None if stored is None else stored.data

    cached = ((block, cache.find(block, listed[block])) for block in sorted(listed))
    for (block, _), data in each_of(place, read, cached):
        yield block, data
