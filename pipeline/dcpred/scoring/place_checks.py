"""Whether an output can be written at a place, before anything else is."""

import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.storage.addresses import Address, absolute, path_on_disk
from dcpred_tasks.storage.atomic_files import check_new_name, partial_name, resource_errors
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.store_requests import Retrying


def check_place(place: Place, needed: int) -> None:
    """Raise ResourceError or DataError unless an output of `needed` bytes can be written there."""
    if place.folder is not None:
        _check_folder(place.folder, needed)
    else:
        check_conditions(place)


def _check_folder(output: Path, needed: int) -> None:
    check_new_name(output)
    folder = output.absolute()
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise DataError(f"Cannot write to {output}: {folder} is a file. Choose another path.")
    probe = partial_name(folder / "probe")
    with resource_errors(folder):
        try:
            probe.write_bytes(b"dcpred")
        finally:
            probe.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ResourceError(
            f"Cannot write up to {needed / 2**20:,.2f} MiB of scores: {folder} has {free / 2**20:,.2f}"
            " MiB free. Free some space or choose another path."
        )


def check_conditions(place: Place) -> None:
    """Raise DataError unless a store obeys the conditions of a put: some take the header and overwrite, and
    two attempts at a block could then both take theirs for the record.
    """
    name = f"probe.partial-{secrets.token_hex(6)}"
    first, second, third = (secrets.token_bytes(16) for _ in range(3))
    try:
        created, again = place.create(name, first), place.create(name, second)
        stored = place.read(name)
        tag = place.replace(name, third, stored.tag) if stored is not None else None
        late = place.replace(name, second, stored.tag) if stored is not None else None
        left = place.read(name)
    except BaseException:
        with suppress(OSError, ResourceError):
            place.remove(name)
        raise
    # A temporary refusal is not a rule of the store.
    Retrying()(lambda: place.remove(name))
    heeded = created and not again and stored is not None and stored.data == first
    heeded = heeded and tag is not None and late is None and left is not None and left.data == third
    if not heeded:
        raise DataError(
            f"Cannot write scores to {place.address}: this store ignores the conditions of"
            " writing (If-None-Match, If-Match), and two attempts could overwrite each other. Use"
            " another store for outputs: it may still hold data and models."
        )
    if place.read(name) is not None:
        raise DataError(
            f"Cannot write scores to {place.address}: removed objects stay there (a retention"
            " rule?), and no block could be withdrawn. Name a bucket without that."
        )


def check_apart(x: Address, output: str) -> None:
    """Raise DataError if the output would lie inside the input."""
    source, place = absolute(str(x)), absolute(output)
    path = path_on_disk(source)
    there = path is None or path.exists()
    if there and (place == source or place.startswith(f"{source.rstrip('/')}/")):
        raise DataError(
            f"Cannot write scores to {output}: it is inside the input {x}. Choose a path outside."
        )
