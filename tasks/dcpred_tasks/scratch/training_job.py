"""A training job: the addresses that its tasks are given, and the layout of its scratch directory.

SCRATCH/
  job.json             the run that the directory belongs to
  survey/000000-N.npz  what one block holds, and its part of a sample of N rows
  targets.npz          means of the target that replace codes of categories
  division.npz         scaling, first tree, kernels
  tree.npz             the final tree (with overlap)
  rows-0/000000.zarr   the rows of one block, sorted by leaf: X, side; counts.npy beside them
  rows-1/ …            the rows of one leaf that was divided, likewise, in pieces; then the rows of every
                       block once more by the leaf that is nearest after their own, and so on (overlap)
  rows-*/offsets.npy   where each leaf starts in each piece, int64 (n_pieces, n_leaves + 1)
  leaves/000000.npz    one fitted leaf, and rows that were held out of further fits (held_*)

Every file appears whole or not at all, so that a job that was cut off goes on from what is there.
"""

import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.storage.atomic_files import is_whole, read_arrays, write_arrays
from dcpred_tasks.training.held_out import HeldOut
from dcpred_tasks.training.leaf import Kernels, LeafModel
from dcpred_tasks.training.leaf_balance import Split
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.target_means import (
    NOT_CODED,
    CodedFeatures,
    CrossFitted,
    TargetSums,
    cross_fitted_of,
)

HELD = "held_"  # begins the names of arrays of rows that were held out
SUMS = "sums_"  # begins the names of sums of targets by category


@dataclass(frozen=True)
class TrainJob:
    """What every training task is told. Addresses and small values only."""

    x: str
    y: str
    weight: str | None
    scratch: str
    settings: Settings
    n_rows: int
    piece_rows: int  # rows that a task may hold at once
    coded: CodedFeatures = NOT_CODED  # features whose codes means of the target replace

    @property
    def root(self) -> Path:
        return Path(self.scratch)

    def survey_file(self, block: int, sample_rows: int) -> Path:
        return self.root / "survey" / f"{block:06d}-{sample_rows}.npz"

    @property
    def targets_file(self) -> Path:
        return self.root / "targets.npz"

    @property
    def division_file(self) -> Path:
        return self.root / "division.npz"

    @property
    def tree_file(self) -> Path:
        return self.root / "tree.npz"

    def rows(self, generation: int) -> Path:
        return self.root / f"rows-{generation}"

    def piece(self, generation: int, number: int) -> Path:
        return self.rows(generation) / f"{number:06d}.zarr"

    def split_file(self, generation: int) -> Path:
        return self.rows(generation) / "split.npz"

    def offsets_file(self, generation: int) -> Path:
        return self.rows(generation) / "offsets.npy"

    def leaf_file(self, leaf: int) -> Path:
        return self.root / "leaves" / f"{leaf:06d}.npz"


@dataclass(frozen=True)
class Source:
    """Rows of one routed leaf: column `leaf` of the offsets of generation `generation`."""

    generation: int
    leaf: int


@dataclass(frozen=True)
class LeafWork:
    """A final leaf to fit: where its rows are, how many, and where those of its halo are."""

    leaf: int
    sources: tuple[Source, ...]
    n_rows: int
    halo: tuple[Source, ...] = ()
    folds: int = 0
    """Parts of its rows that are held out of further fits (`held_out.folds_of_leaves`)."""


@dataclass(frozen=True)
class StoredDivision:
    """The division as workers need it: no tree under construction."""

    scaling: Scaling
    tree: Tree
    kernels: Kernels
    classes: NDArray[Any]
    class_factors: FloatArray


def is_done(output: Path) -> bool:
    """Whether what a task writes is there, and whole as far as a checksum tells. What is damaged is removed,
    so that it is made anew.
    """
    if not output.exists():
        return False
    if output.suffix != ".npz" or is_whole(output):
        return True
    output.unlink(missing_ok=True)
    return False


def write_division(job: TrainJob, division: StoredDivision) -> None:
    kernels = json.dumps([asdict(division.kernels.local), asdict(division.kernels.head)])
    write_arrays(
        job.division_file,
        {
            **division.scaling.arrays(),
            "starts": division.tree.starts,
            "children": division.tree.children,
            "centres": division.tree.centres,
            "classes": division.classes,
            "class_factors": division.class_factors,
            "kernels": np.frombuffer(kernels.encode(), np.uint8),
        },
    )


def file_stamp(path: Path) -> tuple[str, int, int]:
    """A file as it is now: what is kept of it in memory is looked up by its name and this.

    1. A worker reads division.npz of one training, and keeps it.
    2. The training is given up, and its scratch directory removed.
    3. Another training writes its own division.npz at the same path, and gives the same worker a task.
    4. The stamp differs, so that the worker reads the file again.
    """
    stat = path.stat()
    return str(path), stat.st_ino, stat.st_mtime_ns


def read_division(job: TrainJob) -> StoredDivision:
    """The division, read once per process."""
    return _division(file_stamp(job.division_file))


@lru_cache(maxsize=2)
def _division(stamp: tuple[str, int, int]) -> StoredDivision:
    a = read_arrays(Path(stamp[0]))
    local, head = json.loads(a["kernels"].tobytes())
    return StoredDivision(
        Scaling.of(a),
        Tree(a["starts"], a["children"], a["centres"]),
        Kernels(Kernel(**local), Kernel(**head)),
        a["classes"],
        a["class_factors"],
    )


def write_targets(job: TrainJob, fitted: CrossFitted) -> None:
    if not is_done(job.targets_file):
        write_arrays(job.targets_file, fitted.arrays())


def read_targets(job: TrainJob) -> CrossFitted:
    """The means of the target, read once per process."""
    return _targets(file_stamp(job.targets_file))


@lru_cache(maxsize=2)
def _targets(stamp: tuple[str, int, int]) -> CrossFitted:
    return cross_fitted_of(read_arrays(Path(stamp[0])))


def write_tree(job: TrainJob, tree: Tree) -> None:
    write_arrays(job.tree_file, {"starts": tree.starts, "children": tree.children, "centres": tree.centres})


def read_tree(job: TrainJob) -> Tree:
    """The final tree, once per process."""
    return _tree(file_stamp(job.tree_file))


@lru_cache(maxsize=2)
def _tree(stamp: tuple[str, int, int]) -> Tree:
    return Tree(**read_arrays(Path(stamp[0])))


@dataclass(frozen=True)
class Sample:
    """Sampled rows of the data.

    X       raw rows (n, n_features)
    target  (n,), as they are in the data; class numbers where `Training.sample` gives them
    weight  float64 (n,), > 0
    number  int64 (n,), row numbers in the data, ascending
    """

    X: NDArray[Any]
    target: NDArray[Any]
    weight: FloatArray
    number: IntArray

    def take(self, index: NDArray[np.generic]) -> "Sample":
        return Sample(self.X[index], self.target[index], self.weight[index], self.number[index])


def read_survey(job: TrainJob, block: int, sample_rows: int) -> tuple[Survey, Sample]:
    """What survey_block wrote: the survey, and the sampled rows."""
    a = read_arrays(job.survey_file(block, sample_rows))
    sample = Sample(*(a[f"sample_{field.name}"] for field in fields(Sample)))
    own: dict[str, Any] = {field.name: a[field.name] for field in fields(Survey) if field.name in a}
    own |= {name: int(a[name]) for name in ("n_rows", "n_used", "rows")}
    return Survey(**own), sample


def read_sums(job: TrainJob, block: int, sample_rows: int) -> TargetSums:
    """The sums of targets by category that survey_block wrote."""
    a = read_arrays(job.survey_file(block, sample_rows))
    return TargetSums(*(a[f"{SUMS}{field.name}"] for field in fields(TargetSums)))


def read_split(job: TrainJob, generation: int) -> Split:
    return Split(**read_arrays(job.split_file(generation)))


def read_fitted_leaf(job: TrainJob, leaf: int) -> tuple[LeafModel, HeldOut, int]:
    """A fitted leaf, rows that were held out of further fits, and fold_rows of the rows that came to it."""
    arrays = read_arrays(job.leaf_file(leaf))
    rows = int(arrays.pop("rows"))
    held = {name: arrays.pop(f"{HELD}{name}") for name in HeldOut.__dataclass_fields__}
    return LeafModel(**arrays), HeldOut(**held), rows
