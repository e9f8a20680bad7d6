"""What is looked at before anything of a scoring run is written: its place and its input."""

import math
import os
import shutil
from pathlib import Path

from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.storage.atomic_files import partial_name, resource_errors

RECORD_BYTES = 8 * 2**10  # bytes of a commit record, at most


def output_bytes(run: ScoreRun, model: Model, n_blocks: int) -> int:
    """The most that a run writes: outputs before compression, and commit records."""
    row = sum(c.dtype(model).itemsize * math.prod(c.row_shape(model)) for c in run.columns)
    return run.n_rows * row + n_blocks * RECORD_BYTES


def check_place(output: Path, needed: int) -> None:
    """Raise ResourceError unless files can be created where `output` is to be, with `needed` bytes free."""
    folder = output.absolute()
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise DataError(f"scores were to be written to {output}, but {folder} is a file; name another place")
    probe = partial_name(folder / "probe")
    with resource_errors(folder):
        try:
            probe.write_bytes(b"dcpred")
        finally:
            probe.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ResourceError(
            f"the scores need up to {needed / 2**20:,.0f} MiB, but {folder} has {free / 2**20:,.0f} MiB free;"
            " make room or name another place"
        )


def check_apart(x: str, output: Path) -> None:
    """Raise DataError where the output would lie inside the input."""
    # os.path.realpath, unlike Path.resolve, takes a loop of links as it is.
    source, place = Path(os.path.realpath(x)), Path(os.path.realpath(output))
    if source.exists() and place.is_relative_to(source):
        raise DataError(
            f"scores were to be written to {output}, but that is inside the input {x}; name a place outside"
        )
