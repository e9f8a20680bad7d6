"""Whether another process sees a place, and may write there."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dcpred_tasks.errors import DcpredError
from dcpred_tasks.storage.addresses import Options, is_remote, storage_options
from dcpred_tasks.storage.atomic_files import partial_name
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.store_requests import Retrying

PROBE = "probe.partial-"  # prefix of names of probes


@contextmanager
def nonce_written(address: str) -> Iterator[tuple[str, bytes]]:
    """A name and bytes that exist on a store within a `with` statement: a process that reads them sees the
    same place. A folder is recognized by its files, and nothing is written there.
    """
    name, nonce = f"{PROBE}{secrets.token_hex(6)}", secrets.token_bytes(16)
    if not is_remote(address):
        yield "", b""
        return
    place = open_place(address)
    Retrying()(lambda: place.write(name, nonce))
    try:
        yield name, nonce
    finally:
        with suppress(OSError, DcpredError):
            place.remove(name)


def can_write(address: str, name: str = "", nonce: bytes = b"", options: Options = ()) -> str:
    """An empty string where this process can write there and read what the driver wrote, else the reason."""
    if not is_remote(address):
        return _can_write_files(address)
    try:
        with storage_options(options):
            place = open_place(address)
            written = Retrying()(lambda: place.read(name))
            if written is None or written.data != nonce:
                return "does not see"
            probe = f"{PROBE}{secrets.token_hex(6)}"
            Retrying()(lambda: place.write(probe, nonce))
            Retrying()(lambda: place.remove(probe))
    except (OSError, DcpredError) as error:
        return f"cannot read and write ({error})"
    return ""


def _can_write_files(folder: str) -> str:
    if not os.path.isdir(folder):
        return "does not see"
    probe = partial_name(Path(folder) / "probe")
    try:
        probe.write_bytes(b"dcpred")
        probe.unlink()
    except OSError as error:
        return f"cannot write ({error.strerror}) to"
    return ""
