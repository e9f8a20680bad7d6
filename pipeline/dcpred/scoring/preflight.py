"""What is looked at before anything of a scoring run is written: its place and its input."""

import math
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.storage.addresses import absolute, is_remote
from dcpred_tasks.storage.atomic_files import check_new_name, partial_name, resource_errors
from dcpred_tasks.storage.place import Folder, Place
from dcpred_tasks.storage.retry import Retrying

RECORD_BYTES = 8 * 2**10  # bytes of a commit record, at most


def output_bytes(run: ScoreRun, model: Model, n_blocks: int) -> int:
    """The most that a run writes: outputs before compression, and commit records."""
    row = sum(c.dtype(model).itemsize * math.prod(c.row_shape(model)) for c in run.columns)
    return run.n_rows * row + n_blocks * RECORD_BYTES


def check_place(place: Place, needed: int) -> None:
    """Raise ResourceError or DataError unless an output of `needed` bytes can be written there."""
    if isinstance(place, Folder):
        _check_folder(place.path, needed)
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
            f"the scores need up to {needed / 2**20:,.2f} MiB, but {folder} has {free / 2**20:,.2f}"
            " MiB free; make room or name another place"
        )


def check_conditions(place: Place) -> None:
    """Raise DataError unless a store heeds the conditions of a put: some take the header and overwrite, and
    two attempts at a block could then both believe that theirs is the record.
    """
    name = f"probe.partial-{secrets.token_hex(6)}"
    first, second, third = (secrets.token_bytes(16) for _ in range(3))
    try:
        created, again = place.create(name, first), place.create(name, second)
        standing = place.read(name)
        tag = place.replace(name, third, standing.tag) if standing is not None else None
        late = place.replace(name, second, standing.tag) if standing is not None else None
        left = place.read(name)
    except BaseException:
        with suppress(OSError, ResourceError):
            place.remove(name)
        raise
    # What is refused for a while is no rule of the store.
    Retrying()(lambda: place.remove(name))
    heeded = created and not again and standing is not None and standing.data == first
    heeded = heeded and tag is not None and late is None and left is not None and left.data == third
    if not heeded:
        raise DataError(
            f"scores were to be written to {place.address}, but this store does not heed the conditions of"
            " writing (If-None-Match, If-Match), so that two attempts could overwrite each other; use"
            " another store for outputs: it may still hold data and models"
        )
    if place.read(name) is not None:
        raise DataError(
            f"scores were to be written to {place.address}, but what is removed there stays (a retention"
            " rule?), so that no block could be withdrawn; name a bucket without"
        )


def check_apart(x: str, output: str) -> None:
    """Raise DataError where the output would lie inside the input."""
    source, place = absolute(x), absolute(output)
    there = is_remote(source) or Path(source).exists()
    if there and (place == source or place.startswith(f"{source.rstrip('/')}/")):
        raise DataError(
            f"scores were to be written to {output}, but that is inside the input {x}; name a place outside"
        )
