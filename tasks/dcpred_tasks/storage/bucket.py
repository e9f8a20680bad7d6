"""A prefix of an object store as a place (place.py), through obstore.

Facts that this module handles (measured with obstore 0.12 and servers of S3, Azure and GCS):

- Where the reply to a conditional put is lost, obstore retries it and raises AlreadyExistsError or
  PreconditionError, though our own bytes are stored; it raises AlreadyExistsError for a 409, though nothing
  is stored. After any result but success, the stored object is read and compared.
- A missing bucket is reported as a missing object. A name counts as missing only once the bucket has answered
  a listing.
- A listing and a get write tags differently: tags omit quotes, and keep a generation apart.
- obstore does not retry replies that break off, as half a page of a listing.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakSet

from dcpred_tasks.errors import DataError, DcpredError
from dcpred_tasks.storage.addresses import Options, StoreAddress, current_options, parse
from dcpred_tasks.storage.place_types import Entry, Stored
from dcpred_tasks.storage.store_requests import (
    ATTEMPTS,
    WAIT_SECONDS,
    StoreError,
    looked,
    obstore,
    open_store,
    request,
    request_threads,
    translate,
    waited_for,
)

Condition = Any  # "create", "overwrite", or the tag to replace, in the form of obstore

REMEMBERED = 1000  # names whose tags a process keeps: a task needs that of its own record soon
PAGE = 1000  # names in a page of a listing
PART_BYTES = 16 * 2**20  # larger objects are sent in parts, and a killed process leaves them invisible
# Stores in this process's memory by the name of their bucket, for memory:// addresses: tests use them.
IN_MEMORY: dict[str, Any] = {}
_in_use: "WeakSet[Bucket]" = WeakSet()


def open_bucket(address: str) -> "Bucket":
    """The place at an address of a store. The process remembers what its bucket answered."""
    if address.startswith("memory://"):
        where = parse(address)
        if where.bucket not in IN_MEMORY:
            raise DataError(
                f"Cannot open {address}: this process has no store in memory of that name. Choose another."
            )
        return Bucket(where, IN_MEMORY[where.bucket])
    return _opened(address, current_options())


@lru_cache(maxsize=256)
def _opened(address: str, options: Options) -> "Bucket":
    where = parse(address)
    bucket = Bucket(where, open_store(where.scheme, where.bucket, options))
    _in_use.add(bucket)
    return bucket


def silent_store(seconds: float) -> str:
    """The address of a store that does not answer this process within so many seconds; "" where all do."""
    asked = {bucket: request_threads().submit(_ping, bucket) for bucket in list(_in_use)}
    end = time.monotonic() + seconds
    for bucket, future in asked.items():
        try:
            future.result(max(end - time.monotonic(), 0.0))
        except TimeoutError:
            return bucket.address
    return ""


def _ping(bucket: "Bucket") -> None:
    with suppress(Exception):  # any answer will do
        obstore().head(bucket.store, bucket._key("lock"))


class Bucket:
    """The objects of a store below a prefix."""

    folder = links = None
    has_tags = True
    many_at_once = True

    def __init__(self, where: StoreAddress, store: Any) -> None:
        self.where, self.store = where, store
        self.seen = False
        """Whether the bucket has answered a listing."""
        self._tags: dict[str, str] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bucket) and self.where == other.where

    def __hash__(self) -> int:
        return hash(self.where)

    @property
    def address(self) -> str:
        return str(self.where)

    def read(self, name: str) -> Stored | None:
        def get() -> Stored:
            reply = obstore().get(self.store, self._key(name))
            data, meta = bytes(reply.bytes()), reply.meta
            return Stored(data, _tag(meta), meta["last_modified"].timestamp())

        try:
            return looked(get, self._at(name))
        except FileNotFoundError:
            self.check_there()
            return None

    @property
    def lists(self) -> bool:
        return self.where.scheme not in ("http", "https")

    def head(self, name: str) -> Entry | None:
        """Size, tag and time of one object; None where it is not there."""
        try:
            meta = looked(partial(obstore().head, self.store, self._key(name)), self._at(name))
        except FileNotFoundError:
            self.check_there()
            return None
        return _entry(meta)

    def part(self, name: str, start: int, stop: int, tag: str) -> bytes | None:
        """Bytes start to stop of an object; None where it is missing or has another tag."""
        e_tag = tag.partition("/")[0]
        options: Any = {"range": (start, stop), **({"if_match": f'"{e_tag}"'} if e_tag else {})}

        def get() -> bytes | None:
            try:
                return bytes(obstore().get(self.store, self._key(name), options=options).bytes())
            except obstore().exceptions.PreconditionError:
                return None

        try:
            return looked(get, self._at(name))
        except FileNotFoundError:
            self.check_there()
            return None

    def fetch(self, name: str, file: BinaryIO) -> None:
        """Write an object to a file, again from where a reply breaks off. Raises FileNotFoundError."""
        address = self._at(name)
        for attempt in range(ATTEMPTS):
            file.seek(0)
            file.truncate()
            try:
                parts = iter(request(lambda: obstore().get(self.store, self._key(name)).stream(), address))
                while part := request(partial(next, parts, b""), address):
                    file.write(part)
                return
            except StoreError:
                if attempt == ATTEMPTS - 1:
                    raise
            time.sleep(WAIT_SECONDS)

    def create(self, name: str, data: bytes) -> bool:
        for _ in range(ATTEMPTS):
            try:
                self._put(name, data, "create")
                return True
            except OSError as error:
                doubt = error
            stored = self.read(name)
            if stored is not None:
                self._remember(name, stored.tag)
                return stored.data == data
            time.sleep(WAIT_SECONDS)
        raise doubt

    def replace(self, name: str, data: bytes, tag: str) -> str | None:
        e_tag, _, generation = tag.partition("/")
        condition = {"e_tag": f'"{e_tag}"'} | ({"version": generation} if generation else {})
        for _ in range(ATTEMPTS):
            try:
                return self._put(name, data, condition)
            except OSError as error:
                doubt = error
            stored = self.read(name)
            if stored is not None and stored.data == data:
                return stored.tag
            if stored is None or not same_tag(stored.tag, tag):
                return None
            time.sleep(WAIT_SECONDS)
        raise doubt

    def guarded(
        self, name: str, seconds: float = 0.0, *, shared: bool = False
    ) -> AbstractContextManager[bool | None]:
        return nullcontext(False)

    def write(self, name: str, data: bytes) -> None:
        for _ in range(ATTEMPTS - 1):
            try:
                self._put(name, data, "overwrite")
                return
            except OSError:
                time.sleep(WAIT_SECONDS)
        self._put(name, data, "overwrite")

    def send(self, name: str, path: Path) -> None:
        """Write the bytes of a file over any content, in parts, visible when the last has arrived."""
        large = path.stat().st_size > PART_BYTES
        put = partial(obstore().put, self.store, self._key(name), path, use_multipart=large)
        for attempt in range(ATTEMPTS):
            try:
                self._remember(name, _tag(request(put, self._at(name))))
                return
            except FileNotFoundError as error:
                self.check_there()
                raise StoreError(str(error)) from None
            except StoreError:
                if attempt == ATTEMPTS - 1:
                    raise
            time.sleep(WAIT_SECONDS)

    def duplicate(self, name: str, new: str) -> None:
        """Copy within the store, over any content of the new name, to which only the caller writes."""
        source, target = self._key(name), self._key(new)
        try:
            request(partial(obstore().copy, self.store, source, target), self._at(new))
        except FileNotFoundError:
            self.check_there()
            raise

    def remove(self, name: str) -> None:
        for attempt in range(ATTEMPTS):
            try:
                request(partial(obstore().delete, self.store, self._key(name)), self._at(name))
                return
            except FileNotFoundError:
                self.check_there()
                return
            except OSError:
                # A lost reply may have confirmed the removal.
                if self.read(name) is None:
                    return
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(WAIT_SECONDS)

    def _check_lists(self) -> None:
        if not self.lists:
            raise DataError(
                f"Cannot list {self.address}: a server of files has no listings. Copy it to a folder or a"
                " bucket, or name a data set or a model there."
            )

    def listing(self, folder: str = "", splits: Sequence[str] = ()) -> dict[str, Entry]:
        self._check_lists()
        ends: list[str | None] = [*(self._key(name) for name in splits), None]
        starts = [None, *ends[:-1]]
        parts = [
            request_threads().submit(self._part, folder, start, stop)
            for start, stop in zip(starts, ends, strict=True)
        ]
        entries: dict[str, Entry] = {}
        for part in parts:
            listed: dict[str, Entry] = waited_for(part, self.address)
            entries |= listed
        self.seen = True
        return entries

    def names(self, folder: str) -> set[str]:
        self._check_lists()

        def directly() -> set[str]:
            page = obstore().list_with_delimiter(self.store, self._key(folder) or None)
            return {str(key).rstrip("/").rpartition("/")[2] for key in _keys(page)}

        names = looked(directly, self._at(folder))
        self.seen = True
        return names

    def present(self, names: Iterable[str]) -> set[str]:
        asked = {name: request_threads().submit(self.head, name) for name in names}
        return {name for name, future in asked.items() if waited_for(future, self.address) is not None}

    def is_there(self) -> bool:
        self._check_lists()

        def first() -> bool:
            return any(page for page in obstore().list(self.store, self._key("") or None, chunk_size=1))

        there = looked(first, self.address)
        self.seen = True
        return there

    def clock(self) -> float:
        """Last-Modified of a probe: whole seconds on S3."""
        name = f"clock.partial-{os.urandom(6).hex()}"
        try:
            self.write(name, os.urandom(8))
            stored = self.read(name)
        finally:
            with suppress(OSError):
                self.remove(name)
        if stored is None:
            raise StoreError(f"{self._at(name)} was written, but does not exist")
        return stored.time

    def make_folder(self, name: str) -> None:
        """Do nothing: a store has no folders."""

    def written_tag(self, name: str) -> str:
        return self._tags.get(name, "")

    def check_there(self) -> None:
        """Raise ResourceError where the bucket itself is missing, which a get reports as a missing object."""
        if self.seen or not self.lists:
            return
        looked(
            lambda: next(iter(obstore().list(self.store, self._key(""), chunk_size=1)), None), self.address
        )
        self.seen = True

    async def look_async(self, folder: str) -> None:
        """Do what `check_there` does, below a folder and within an event loop, with errors of obstore."""
        if self.lists:
            async for _ in obstore().list(self.store, self._key(folder) or None, chunk_size=1):
                break
        self.seen = True

    def _part(self, folder: str, start: str | None, stop: str | None) -> dict[str, Entry]:
        """List page by page the names after `start`, up to and with `stop`."""
        for attempt in range(ATTEMPTS):
            try:
                return dict(self._entries(folder, start, stop))
            except obstore().exceptions.BaseError as error:
                # obstore does not retry half a page.
                meant = translate(error, self._at(folder))
                if isinstance(meant, DcpredError) or attempt == ATTEMPTS - 1:
                    raise meant from None
                time.sleep(WAIT_SECONDS)
        raise AssertionError

    def _entries(self, folder: str, start: str | None, stop: str | None) -> Iterator[tuple[str, Entry]]:
        prefix = self._key(folder)
        for page in obstore().list(self.store, prefix or None, offset=start, chunk_size=PAGE):
            for meta in page:
                key = str(meta["path"])
                if stop is not None and key > stop:
                    return
                name = key.removeprefix(f"{self.where.path}/") if self.where.path else key
                yield name, _entry(meta)

    def _put(self, name: str, data: bytes, condition: Condition) -> str:
        put = partial(obstore().put, self.store, self._key(name), data, mode=condition, use_multipart=False)
        try:
            tag = _tag(request(put, self._at(name)))
            self._remember(name, tag)
            return tag
        except FileNotFoundError as error:
            self.check_there()
            raise StoreError(str(error)) from None

    def _remember(self, name: str, tag: str) -> None:
        self._tags[name] = tag
        if len(self._tags) > REMEMBERED:
            with suppress(KeyError):  # another thread was faster
                del self._tags[next(iter(self._tags))]

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self.where.path, name) if part)

    def _at(self, name: str) -> str:
        return f"{self.address}/{name}".rstrip("/")


def _entry(meta: Any) -> Entry:
    written = meta["last_modified"].timestamp()
    return Entry(int(meta["size"]), _tag(meta), written, written)


def _tag(meta: Any) -> str:
    """Etag without quotes, and the generation where there is one."""
    e_tag, version = (meta.get("e_tag") or "").strip('"'), meta.get("version") or ""
    return f"{e_tag}/{version}" if version else e_tag


def _keys(listing: Any) -> Iterator[str]:
    """The folders and objects of a listing of one level."""
    yield from listing["common_prefixes"]
    yield from (meta["path"] for meta in listing["objects"])


def same_tag(first: str, second: str) -> bool:
    """Whether two tags name the same object: a listing omits the generation, and a second put has another."""
    (e_tag, _, generation), (other_tag, _, other_generation) = first.partition("/"), second.partition("/")
    return e_tag == other_tag and (generation == other_generation or not (generation and other_generation))
