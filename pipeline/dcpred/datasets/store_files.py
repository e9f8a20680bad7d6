"""Data sets and their sources on object stores: a group that appears when it is complete, and a file that is
fetched before it is read."""

import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import zarr

from dcpred_tasks.errors import DataError, DcpredError, InterruptedRunError
from dcpred_tasks.storage.addresses import absolute, path_on_disk
from dcpred_tasks.storage.atomic_files import new_directory, resource_errors
from dcpred_tasks.storage.place import Place, open_place
from dcpred_tasks.storage.zarr_arrays import create_group, memory_group, metadata_file, unwritten_group

GROUP_FILE = "zarr.json"
CLAIM = "importing.json"  # present while a data set is written to a store
SILENT_SECONDS = 3.0  # maximum wait for the removal of one object


@contextmanager
def local_source(source: str) -> Iterator[Path]:
    """A file on this computer with the bytes of `source`, and its name. One on a store is fetched into the
    folder for temporary files.
    """
    if (local := path_on_disk(source)) is not None:
        yield local
        return
    address, _, name = absolute(source).rpartition("/")
    place = open_place(address)
    with tempfile.TemporaryDirectory(prefix="dcpred-import-") as folder:
        path = Path(folder) / name
        try:
            with resource_errors(path), path.open("wb") as file:
                place.fetch(name, file)
        except FileNotFoundError:
            raise DataError(f"Cannot import {source}: it does not exist. Name an existing file.") from None
        yield path


@contextmanager
def new_data_set(place: Place, attributes: dict[str, Any]) -> Iterator[zarr.Group]:
    """A group to fill, which becomes valid when everything in it is written.

    On a store, which cannot rename, the metadata of the group are created last. Guards against:

    1. Imports A and B find the place free.
    2. A creates the claim; B's create finds it, and B is refused before it writes.
    3. A is killed. The claim stays, and marks the data as incomplete.
    """
    if place.folder is not None:
        with new_directory(place.folder, alike=False) as partial_folder:
            yield create_group(partial_folder, attributes)
        return
    if not place.create(CLAIM, secrets.token_bytes(16)):
        raise DataError(
            f"Cannot import into {place.address}: another import writes there, or was interrupted."
            " Choose another path, or remove what is there."
        )
    try:
        yield unwritten_group(place.address, attributes)
    except BaseException as error:
        if not _emptied(place) and isinstance(error, KeyboardInterrupt):
            raise InterruptedRunError(
                f"interrupted, and the store does not answer; remove what is in {place.address} before the"
                " next import"
            ) from None
        raise
    # Nothing is removed from here on: the contents may be another process's.
    if not place.create(GROUP_FILE, metadata_file(memory_group(attributes))):
        raise DataError(
            f"Cannot import into {place.address}: another import finished there meanwhile. Choose"
            " another path."
        )
    place.remove(CLAIM)


def _emptied(place: Place) -> bool:
    """Whether everything in a place was removed. Does not wait for a store that does not answer."""
    removed: list[str] = []

    def remove() -> None:
        with suppress(OSError, DcpredError):
            for name in place.listing():
                place.remove(name)
                removed.append(name)

    thread = threading.Thread(target=remove, name="dcpred-emptied", daemon=True)
    thread.start()
    before = -1
    while thread.is_alive() and len(removed) > before:
        before = len(removed)
        thread.join(SILENT_SECONDS)
    return not thread.is_alive()


@contextmanager
def temporary_folder(place: Place | None) -> Iterator[Path]:
    """A directory next to a future folder, to find out early whether it is writable; for a store, or without
    a future folder, among temporary files. It is removed at the end.
    """
    if place is not None and place.folder is not None:
        beside = next(parent for parent in place.folder.parents if parent.exists())
        with resource_errors(place.folder):
            folder = tempfile.mkdtemp(prefix=f"{place.folder.name}.partial-", dir=beside)
    else:
        folder = tempfile.mkdtemp(prefix="dcpred-import-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
