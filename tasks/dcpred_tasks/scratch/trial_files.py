"""The files of a search for settings, beside those of a training job.

SCRATCH/
  cells.npz            cells of space, whose rows are used where rows are many
  cells/000000.npz     the rows of those cells in one block
  trial-0.npz          the rows of the trials of a fold, and the survey of all rows
  scaling-0-c0ffee.npz the scaling for settings of this digest, learned without the held-out rows
  tried-0-c0ffee.npz   decision values of the held-out rows, by the model of a trial of this digest
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.scratch.training_job import Sample, TrainJob, survey_arrays, survey_of
from dcpred_tasks.storage.atomic_files import read_arrays, write_arrays
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.trial import FittedScaling, TrialRows

SURVEY = "survey_"  # prefix of arrays of the survey


@dataclass(frozen=True)
class Cells:
    """The cells of space whose rows are used.

    scaling  of the columns that the tree divides
    tree     whose leaves are cells
    chosen   int64 (n,), the cells in use
    classes  as in training_job.StoredDivision
    class_factors  as in training_job.StoredDivision
    """

    scaling: Scaling
    tree: Tree
    chosen: IntArray
    classes: NDArray[Any]
    class_factors: FloatArray


def cells_file(job: TrainJob) -> Path:
    return job.root / "cells.npz"


def cell_rows_file(job: TrainJob, block: int) -> Path:
    return job.root / "cells" / f"{block:06d}.npz"


def trial_file(job: TrainJob, fold: int) -> Path:
    return job.root / f"trial-{fold}.npz"


def scaling_file(job: TrainJob, fold: int, digest: str) -> Path:
    return job.root / f"scaling-{fold}-{digest}.npz"


def tried_file(job: TrainJob, fold: int, digest: str) -> Path:
    return job.root / f"tried-{fold}-{digest}.npz"


def write_cells(job: TrainJob, cells: Cells) -> None:
    (job.root / "cells").mkdir(exist_ok=True)
    tree: dict[str, NDArray[Any]] = {
        "starts": cells.tree.starts,
        "children": cells.tree.children,
        "centres": cells.tree.centres,
    }
    own = {"chosen": cells.chosen, "classes": cells.classes, "class_factors": cells.class_factors}
    write_arrays(cells_file(job), {**cells.scaling.arrays(), **tree, **own})


def read_cells(job: TrainJob) -> Cells:
    a = read_arrays(cells_file(job))
    tree = Tree(a["starts"], a["children"], a["centres"])
    return Cells(Scaling.of(a), tree, a["chosen"], a["classes"], a["class_factors"])


def write_trial(job: TrainJob, fold: int, rows: TrialRows, survey: Survey) -> None:
    """Write the rows of the trials of a fold, and the survey of all rows."""
    no_sample = {f"sample_{name}": np.empty(0) for name in Sample.__dataclass_fields__}
    kept = {SURVEY + name: array for name, array in (survey_arrays(survey) | no_sample).items()}
    write_arrays(trial_file(job, fold), rows.arrays() | kept)


def read_trial(job: TrainJob, fold: int) -> tuple[TrialRows, Survey]:
    """The content of write_trial."""
    a = read_arrays(trial_file(job, fold))
    survey = {name.removeprefix(SURVEY): a.pop(name) for name in list(a) if name.startswith(SURVEY)}
    return TrialRows(**a), survey_of(survey)[0]


def write_scaling(job: TrainJob, fold: int, digest: str, fitted: FittedScaling) -> None:
    write_arrays(scaling_file(job, fold, digest), {**fitted.scaling.arrays(), "unit": np.array(fitted.unit)})


def read_scaling(job: TrainJob, fold: int, digest: str) -> FittedScaling:
    a = read_arrays(scaling_file(job, fold, digest))
    return FittedScaling(Scaling.of(a), float(a["unit"]))


def write_tried(job: TrainJob, fold: int, digest: str, decision: FloatArray, shape: FloatArray) -> None:
    write_arrays(tried_file(job, fold, digest), {"values": decision, "shape": shape})


def read_tried(job: TrainJob, fold: int, digest: str) -> tuple[FloatArray, FloatArray]:
    """The decision values of a trial, and the shape of its model (trial.shape_of)."""
    a = read_arrays(tried_file(job, fold, digest))
    return a["values"], a["shape"]
