"""Checks before anything of a scoring run is written: its place and its input."""

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

RECORD_BYTES = 8 * 2**10  # maximum bytes of a commit record


def output_bytes(run: ScoreRun, model: Model, n_blocks: int) -> int:
    """Maximum bytes of a run: outputs before compression, and commit records."""
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
        standing = place.read(name)
        tag = place.replace(name, third, standing.tag) if standing is not None else None
        late = place.replace(name, second, standing.tag) if standing is not None else None
        left = place.read(name)
    except BaseException:
        with suppress(OSError, ResourceError):
            place.remove(name)
        raise
    # A temporary refusal is not a rule of the store.
    Retrying()(lambda: place.remove(name))
    heeded = created and not again and standing is not None and standing.data == first
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


def check_apart(x: str, output: str) -> None:
    """Raise DataError if the output would lie inside the input."""
    source, place = absolute(x), absolute(output)
    there = is_remote(source) or Path(source).exists()
    if there and (place == source or place.startswith(f"{source.rstrip('/')}/")):
        raise DataError(
            f"Cannot write scores to {output}: it is inside the input {x}. Choose a path outside."
        )
