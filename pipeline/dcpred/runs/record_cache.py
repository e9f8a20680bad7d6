"""Commit records as they are read from a store: many at once, and none twice."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import IO

from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun, record_bytes
from dcpred_tasks.storage.bucket import same_tag
from dcpred_tasks.storage.place import Entry, Place, Stored
from dcpred_tasks.storage.store_requests import Retrying, request_threads, waited_for

READ_AT_ONCE = 32


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
    place, blocks = run.place, iter(sorted(listed))
    if not place.many_at_once:
        for block in blocks:
            with suppress(OSError):  # an unreadable file is not a record
                stored = place.read(run.record_name(block))
                yield block, None if stored is None else stored.data
                continue
            yield block, None
        return
    while some := list(islice(blocks, READ_AT_ONCE)):
        known = {block: data for block in some if (data := cache.find(block, listed[block])) is not None}
        asked = {
            block: request_threads().submit(_get, place, run.record_name(block))
            for block in some
            if block not in known
        }
        for block in some:
            if block in known:
                yield block, known[block]
            else:
                stored = waited_for(asked[block], place.address)
                yield block, None if stored is None else stored.data


def _get(place: Place, name: str) -> Stored | None:
    return Retrying()(lambda: place.read(name))
