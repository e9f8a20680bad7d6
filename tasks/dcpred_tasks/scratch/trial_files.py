"""The files of a search for settings, beside those of a training job.

SCRATCH/
  tree-0.npz           a tree that is tried, its scaling, the leaves that are looked at, their share of rows
  probe-0/000000.npz   the rows of those leaves and of their halos in one block
  tried-0/000017.npz   the same of one leaf in all blocks
  whole.npz            sampled rows that whole models are judged on
  whole-0-c0ffee.npz   losses of one such model, with the scaling of a tree and settings of this digest
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
from dcpred_tasks.training.trial import TrialRows


@dataclass(frozen=True)
class TrialTree:
    """A tree that is tried.

    leaves         int64 (L,), the leaves that are looked at
    kept           float64 (L,), the share of their rows that is read
    classes        as in training_job.StoredDivision
    class_factors  as in training_job.StoredDivision
    rare           int64 (2, m), folds of rows of rare classes (trial.rare_folds)
    """

    scaling: Scaling
    tree: Tree
    leaves: IntArray
    kept: FloatArray
    classes: NDArray[Any]
    class_factors: FloatArray
    rare: IntArray


def tree_file(job: TrainJob, number: int) -> Path:
    return job.root / f"tree-{number}.npz"


def probe_file(job: TrainJob, number: int, block: int) -> Path:
    return job.root / f"probe-{number}" / f"{block:06d}.npz"


def tried_file(job: TrainJob, number: int, leaf: int) -> Path:
    return job.root / f"tried-{number}" / f"{leaf:06d}.npz"


def whole_file(job: TrainJob) -> Path:
    return job.root / "whole.npz"


def losses_file(job: TrainJob, number: int, digest: str) -> Path:
    return job.root / f"whole-{number}-{digest}.npz"


def write_whole(job: TrainJob, rows: Sample, held: NDArray[np.bool_], survey: Survey) -> None:
    """Keep sampled rows, with those that are held out, and the survey of all rows."""
    parts = {f"sample_{name}": value for name, value in vars(rows).items()} | {"held": held}
    write_arrays(whole_file(job), parts | survey_arrays(survey))


def read_whole(job: TrainJob) -> tuple[Sample, NDArray[np.bool_], Survey]:
    """What write_whole kept."""
    a: dict[str, Any] = dict(read_arrays(whole_file(job)))
    held = a.pop("held")
    survey, rows = survey_of(a)
    return rows, held, survey


def write_trial_tree(job: TrainJob, number: int, trial: TrialTree) -> None:
    for folder in ("probe", "tried"):
        (job.root / f"{folder}-{number}").mkdir(exist_ok=True)
    parts: dict[str, NDArray[Any]] = {
        **trial.scaling.arrays(),
        "starts": trial.tree.starts,
    }
    parts |= {
        "children": trial.tree.children,
        "centres": trial.tree.centres,
        "leaves": trial.leaves,
        "kept": trial.kept,
    }
    parts |= {"classes": trial.classes, "class_factors": trial.class_factors, "rare": trial.rare}
    write_arrays(tree_file(job, number), parts)


def read_trial_tree(job: TrainJob, number: int) -> TrialTree:
    a = read_arrays(tree_file(job, number))
    scaling, tree = Scaling.of(a), Tree(a["starts"], a["children"], a["centres"])
    return TrialTree(scaling, tree, a["leaves"], a["kept"], a["classes"], a["class_factors"], a["rare"])


@dataclass(frozen=True)
class Gathered:
    """What is known of the L leaves that are looked at.

    rows        int64 (L,), the rows of each leaf, without its halo
    targets     int64 (L,), different targets among its rows and its halo
    weight      float64 (L,), mean weight of its rows
    mixed_from  int64 (L,), the least overlap with two different targets: with less, the leaf is a constant
    """

    rows: IntArray
    targets: IntArray
    weight: FloatArray
    mixed_from: IntArray


def gather_trial(job: TrainJob, number: int, n_blocks: int) -> Gathered:
    """Put the rows of each leaf together, in the order of rank and number."""
    n_rows, targets, weight, mixed_from = [], [], [], []
    parts = [read_arrays(probe_file(job, number, block)) for block in range(n_blocks)]
    together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    leaf = together.pop("leaf")
    rows = TrialRows(**together)
    for one in read_trial_tree(job, number).leaves:
        own = np.flatnonzero(leaf == one)
        own = own[np.lexsort((rows.number[own], rows.rank[own]))]
        found = rows.take(own)
        write_arrays(tried_file(job, number, int(one)), found.arrays())
        other = np.flatnonzero(found.target != found.target[0]) if len(own) else own
        mixed_from.append(int(found.rank[other].min()) + 1 if len(other) else np.iinfo(np.int64).max)
        n_rows.append(int((found.rank == 0).sum()))
        targets.append(len(np.unique(found.target)))
        weight.append(float(found.weight[found.rank == 0].mean()) if n_rows[-1] else 0.0)
    return Gathered(np.array(n_rows), np.array(targets), np.array(weight), np.array(mixed_from))
