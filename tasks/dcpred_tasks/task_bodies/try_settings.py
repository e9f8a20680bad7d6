"""The task bodies of tuning: rows of a few leaves are gathered from everywhere, and settings are tried on them.

SCRATCH/
  tree-0.npz           a tree that is tried, its scaling, the leaves that are looked at, and which share of their rows
  probe-0/000000.npz   the rows of those leaves and of their halos in one block
  tried-0/000017.npz   the same of one leaf in all blocks
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.scratch.training_job import TrainJob
from dcpred_tasks.storage.atomic_files import read_arrays, write_arrays
from dcpred_tasks.task_bodies.train_model import Receipt, block_rows, receipt
from dcpred_tasks.training.overlap import near_leaves
from dcpred_tasks.training.sampling import row_hash
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import TrialRows, Verdict, try_leaf


@dataclass(frozen=True)
class TrialTree:
    """A tree that is tried.

    leaves  int64 (L,), those looked at · kept float64 (L,), the share of their rows that is read
    classes, class_factors  as in training_job.StoredDivision
    """

    scaling: Scaling
    tree: Tree
    leaves: IntArray
    kept: FloatArray
    classes: NDArray[Any]
    class_factors: FloatArray


def tree_file(job: TrainJob, number: int) -> Path:
    return job.root / f"tree-{number}.npz"


def probe_file(job: TrainJob, number: int, block: int) -> Path:
    return job.root / f"probe-{number}" / f"{block:06d}.npz"


def tried_file(job: TrainJob, number: int, leaf: int) -> Path:
    return job.root / f"tried-{number}" / f"{leaf:06d}.npz"


def write_trial_tree(job: TrainJob, number: int, trial: TrialTree) -> None:
    for folder in ("probe", "tried"):
        (job.root / f"{folder}-{number}").mkdir(exist_ok=True)
    parts: dict[str, NDArray[Any]] = {"shift": trial.scaling.shift, "factor": trial.scaling.factor, "starts": trial.tree.starts}
    parts |= {"children": trial.tree.children, "centres": trial.tree.centres, "leaves": trial.leaves, "kept": trial.kept}
    write_arrays(tree_file(job, number), parts | {"classes": trial.classes, "class_factors": trial.class_factors})


def read_trial_tree(job: TrainJob, number: int) -> TrialTree:
    a = read_arrays(tree_file(job, number))
    scaling, tree = Scaling(a["shift"], a["factor"]), Tree(a["starts"], a["children"], a["centres"])
    return TrialTree(scaling, tree, a["leaves"], a["kept"], a["classes"], a["class_factors"])


def probe_block(job: TrainJob, trees: Sequence[int], overlap: int, block: int, start: int, stop: int) -> Receipt:
    """Keep the rows of a block that the trials of any of these trees need."""
    trials = {number: read_trial_tree(job, number) for number in trees}
    first = trials[trees[0]]
    rows = block_rows(job, first.classes, first.class_factors, start, stop)
    for number, trial in trials.items():
        X = trial.scaling(rows.X)
        with threadpool_limits(1):
            leaves = np.column_stack([trial.tree.descend(X), near_leaves(trial.tree, X, overlap - 1)])
        kept = np.zeros(trial.tree.n_leaves + 1)  # the last for "no leaf", −1
        kept[trial.leaves] = trial.kept
        chance = row_hash(rows.number, job.settings.seed + 2).astype(np.float64) / 2.0**64
        row, rank = np.nonzero(chance[:, None] < kept[leaves])
        used = trial.scaling.factor != 0
        used[0] |= not used.any()  # a solver wants a feature, be it 0
        found = TrialRows(
            X[row][:, used], rows.target[row], rows.weight[row], rows.number[row], rank.astype(np.int64)
        )
        write_arrays(probe_file(job, number, block), asdict(found) | {"leaf": leaves[row, rank]})
    return receipt(stop - start)


@dataclass(frozen=True)
class Gathered:
    """Of each leaf that is looked at: its rows, the different targets among them and their neighbours', their mean weight, and
    the overlap from which on its rows differ in their target (below, the leaf is a constant)."""

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
        write_arrays(tried_file(job, number, int(one)), asdict(found))
        other = np.flatnonzero(found.target != found.target[0]) if len(own) else own
        mixed_from.append(int(found.rank[other].min()) + 1 if len(other) else np.iinfo(np.int64).max)
        n_rows.append(int((found.rank == 0).sum()))
        targets.append(len(np.unique(found.target)))
        weight.append(float(found.weight[found.rank == 0].mean()) if n_rows[-1] else 0.0)
    return Gathered(np.array(n_rows), np.array(targets), np.array(weight), np.array(mixed_from))


def try_settings(
    job: TrainJob, number: int, leaf: int, tries: Sequence[Settings], n_outputs: int, fold: int
) -> tuple[Receipt, list[Verdict]]:
    """Judge settings on one leaf."""
    rows = TrialRows(**read_arrays(tried_file(job, number, leaf)))
    with threadpool_limits(1):
        verdicts = try_leaf(rows, tries, n_outputs, leaf, fold)
    return receipt(len(rows.X)), verdicts
