"""What is looked at before anything of a scoring run is written: its place and its input."""

import os
import shutil
from pathlib import Path

import numpy as np

from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.dtypes import STATUS_DTYPE
from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.labels import label_coding
from dcpred_tasks.storage.atomic_files import partial_name, resource_errors

RECORD_BYTES = 8 * 2**10


def output_bytes(run: ScoreRun, model: Model, n_blocks: int) -> int:
    """The most that a run writes: outputs before compression, and commit records."""
    row = np.dtype(STATUS_DTYPE).itemsize
    if "decision" in run.outputs:
        row += model.score_dtype.itemsize * model.n_outputs
    if "label" in run.outputs:
        row += label_coding(model.classes).values.dtype.itemsize
    return run.n_rows * row + n_blocks * RECORD_BYTES


def check_place(output: Path, needed: int) -> None:
    """Raise ResourceError unless files can be created where `output` is to be, and `needed` bytes are free
    there.
    """
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
    # which take a loop of links as it is
    source, place = (
        Path(os.path.realpath(x)),
        Path(os.path.realpath(output)),
    )
    if source.exists() and place.is_relative_to(source):
        raise DataError(
            f"scores were to be written to {output}, but that is inside the input {x}; name a place outside"
        )
