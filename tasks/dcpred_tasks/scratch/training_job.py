"""A training job: the addresses for its tasks, and the layout of its scratch directory.

SCRATCH/
  job.json             the run that the directory belongs to, and the code that writes there
  survey/000000-N.npz  what one block holds, and its part of a sample of N rows
  folds.npy            the unit of each row, where rows are held out by time or by group
  targets.npz          means of the target for target encoding
  division.npz         scaling, first tree, kernels
  tree.npz             the final tree (with overlap)
  rows-0/000000.zarr   the rows of one block, sorted by leaf: X, side; counts.npy beside them
  rows-1/ …            the rows of one divided leaf, likewise, in pieces; then the rows of neighbouring leaves
                       again, by the leaf that is nearest after their own, and so on (overlap)
  rows-*/edges-0.npy   with places-0.npy, edges-1.npy, …: where the rows of each leaf lie in the pieces
  rows-*/000000.npz    how many pieces a task wrote, from this number on (overlap)
  leaves/000000.npz    one fitted leaf, and its held-out rows (held_*)

Files are written atomically: an interrupted job continues from the existing ones.
"""

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.atomic_files import MemoryPath, is_whole, read_arrays, write_arrays, write_bytes
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.held_out import HeldOut
from dcpred_tasks.training.leaf import FittedLeaf, Kernels
from dcpred_tasks.training.leaf_balance import Split
from dcpred_tasks.training.prior import Prior
from dcpred_tasks.training.refinement import arithmetic
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.target_means import (
    NOT_CODED,
    CodedFeatures,
    CrossFitted,
    TargetSums,
    cross_fitted_of,
)

HELD = "held_"  # prefix of arrays of held-out rows
SUMS = "sums_"  # prefix of sums of targets by category


@dataclass(frozen=True)
class TrainJob:
    """What every training task receives: addresses and small values only."""

    x: str
    y: str
    weight: str | None
    scratch: str
    settings: Settings
    n_rows: int
    piece_rows: int  # rows that a task may hold in memory
    coded: CodedFeatures = NOT_CODED  # target-encoded features
    refined_by: str | None = field(default_factory=arithmetic)  # what refines in the planning process
    folds: Folds | None = None  # how rows are held out, without units (`read_folds`)

    @property
    def root(self) -> Path:
        return Path(self.scratch)

    def array(self, name: str) -> Any:
        """x, y or weight."""
        return zarr_arrays.open_array(getattr(self, name))

    def rows_of(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Some rows of x, y or weight, text as `plain_text` gives it."""
        return zarr_arrays.read_target(self.array(name), start, stop)

    def survey_file(self, block: int, sample_rows: int) -> Path:
        return self.root / "survey" / f"{block:06d}-{sample_rows}.npz"

    @property
    def folds_file(self) -> Path:
        return self.root / "folds.npy"

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

    def index_file(self, generation: int, name: str, part: int) -> Path:
        return self.rows(generation) / f"{name}-{part}.npy"

    def halo_file(self, generation: int, first: int) -> Path:
        return self.rows(generation) / f"{first:06d}.npz"

    def leaf_file(self, leaf: int) -> Path:
        return self.root / "leaves" / f"{leaf:06d}.npz"


@dataclass(frozen=True)
class MemoryJob(TrainJob):
    """A search in the memory of this process, without files."""

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """x, y and weight."""
    memory: MemoryPath = field(default_factory=MemoryPath)

    @property
    def root(self) -> Path:
        return cast(Path, self.memory)

    def array(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def rows_of(self, name: str, start: int, stop: int) -> NDArray[Any]:
        return self.arrays[name][start:stop]


@dataclass(frozen=True)
class Source:
    """Rows of one routed leaf: number `leaf` in the index of generation `generation`."""

    generation: int
    leaf: int


@dataclass(frozen=True)
class LeafWork:
    """A final leaf to fit: where its rows are, how many, and the generations that hold its overlap rows."""

    leaf: int
    sources: tuple[Source, ...]
    n_rows: int
    halo: tuple[int, ...] = ()
    folds: int = 0
    """Parts of its rows that are held out of further fits (`held_out.folds_of_leaves`)."""


@dataclass(frozen=True)
class StoredDivision:
    """The partition for workers, without the tree under construction."""

    scaling: Scaling
    tree: Tree
    kernels: Kernels
    classes: NDArray[Any]
    class_factors: FloatArray
    prior: Prior | None = None


# The code that determines the files of a scratch directory and their content.
WRITING: tuple[str, ...] = (
    "dtypes.py",
    "model/*.py",
    "training/*",
    "scratch/*.py",
    "task_bodies/t*.py",
)
WRITING += ("storage/zarr_arrays.py",)


@cache
def scratch_code() -> str:
    """A digest of the code that writes scratch directories. Files of other code, even of the same version,
    are not reused: they may differ under the same names.
    """
    package = Path(__file__).parent.parent
    files = sorted({path for pattern in WRITING for path in package.glob(pattern) if path.is_file()})
    return digest(*(path.read_bytes() for path in files))


def is_done(output: Path) -> bool:
    """Whether the output of a task exists and passes its checksum. Removes a damaged one, which is then made
    anew.
    """
    if not output.exists():
        return False
    if output.suffix != ".npz" or is_whole(output):
        return True
    output.unlink(missing_ok=True)
    return False


def write_division(job: TrainJob, division: StoredDivision) -> None:
    kernels = json.dumps([division.kernels.local.as_dict(), division.kernels.head.as_dict()])
    write_arrays(
        job.division_file,
        {
            **division.scaling.arrays(),
            "starts": division.tree.starts,
            "children": division.tree.children,
            "centres": division.tree.centres,
            "classes": division.classes,
            "class_factors": division.class_factors,
            **(division.prior.arrays() if division.prior else {}),
            "kernels": np.frombuffer(kernels.encode(), np.uint8),
        },
    )


def file_stamp(path: Path) -> tuple[str, int, int]:
    """Identifies the content of a file: cached content is looked up by name and stamp.

    1. A worker reads division.npz of one training, and caches it.
    2. The training is abandoned, and its scratch directory removed.
    3. Another training writes its own division.npz at the same path, and gives the same worker a task.
    4. The stamp differs, and the worker reads the file again.
    """
    stat = path.stat()
    return str(path), stat.st_ino, stat.st_mtime_ns


def read_division(job: TrainJob) -> StoredDivision:
    """The partition, read once per process."""
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
        Prior.among(a),
    )


def with_folds(job: TrainJob, folds: Folds | None) -> TrainJob:
    """A job that holds rows out by these folds, with units in its scratch directory."""
    if folds is None or folds.unit is None:
        return replace(job, folds=folds)
    data = io.BytesIO()
    np.save(data, folds.unit)
    write_bytes(job.folds_file, data.getvalue())
    return replace(job, folds=replace(folds, unit=None, stored=True))


def read_folds(job: TrainJob) -> Folds:
    """How rows are held out; units are mapped into memory."""
    if job.folds is None:
        return Folds(job.settings.seed)
    return replace(job.folds, unit=_units(file_stamp(job.folds_file))) if job.folds.stored else job.folds


@lru_cache(maxsize=2)
def _units(stamp: tuple[str, int, int]) -> NDArray[np.uint16]:
    return cast(NDArray[np.uint16], np.load(stamp[0], mmap_mode="r", allow_pickle=False))


def write_targets(job: TrainJob, fitted: CrossFitted) -> None:
    if not is_done(job.targets_file):
        write_arrays(job.targets_file, fitted.arrays())


def read_targets(job: TrainJob) -> CrossFitted:
    """The means of the target, read once per process."""
    return replace(_targets(file_stamp(job.targets_file)), folds=read_folds(job))


@lru_cache(maxsize=2)
def _targets(stamp: tuple[str, int, int]) -> CrossFitted:
    return cross_fitted_of(read_arrays(Path(stamp[0])), Folds(0))


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
    target  (n,), as in the data; class numbers from `Training.sample`
    weight  float64 (n,), > 0
    number  int64 (n,), row numbers in the data, ascending
    """

    X: NDArray[Any]
    target: NDArray[Any]
    weight: FloatArray
    number: IntArray

    def take(self, index: NDArray[np.generic]) -> "Sample":
        return Sample(self.X[index], self.target[index], self.weight[index], self.number[index])


def join_samples(parts: Iterable[Sample], n_rows: int) -> Sample:
    """Join the samples of consecutive blocks to one of so many rows. Holds the whole and one part."""
    whole: dict[str, NDArray[Any]] = {}
    at = 0
    for part in parts:
        end = at + len(part.number)
        for name, value in vars(part).items():
            if name not in whole:
                whole[name] = np.empty((n_rows, *value.shape[1:]), value.dtype)
            # Text may be longer in a later block.
            whole[name] = whole[name].astype(np.result_type(whole[name], value), copy=False)
            whole[name][at:end] = value
        at = end
    return Sample(**whole)


def read_survey(job: TrainJob, block: int, sample_rows: int) -> tuple[Survey, Sample]:
    """The survey and the sampled rows of survey_block."""
    return survey_of(dict(read_arrays(job.survey_file(block, sample_rows))))


def survey_arrays(survey: Survey) -> dict[str, NDArray[Any]]:
    """The fields of a survey as arrays of a file."""
    return {name: np.asarray(value) for name, value in asdict(survey).items()} | {
        "rows": np.array(survey.rows, np.uint64),
        "means": np.array(survey.means, np.int64),
    }


def survey_of(a: dict[str, Any]) -> tuple[Survey, Sample]:
    """The survey and the sampled rows of the arrays of a file; removes them from `a`."""
    sample = Sample(*(a.pop(f"sample_{field.name}") for field in fields(Sample)))
    own = {field.name: a.pop(field.name) for field in fields(Survey)}
    own |= {name: int(own[name]) for name in ("n_rows", "n_used", "rows")}
    return Survey(**own | {"means": tuple(own["means"].tolist())}), sample


def read_sums(job: TrainJob, block: int, sample_rows: int) -> TargetSums:
    """The sums of targets by category of survey_block."""
    a = read_arrays(job.survey_file(block, sample_rows))
    return TargetSums(*(a[f"{SUMS}{field.name}"] for field in fields(TargetSums)))


def read_split(job: TrainJob, generation: int) -> Split:
    return Split(**read_arrays(job.split_file(generation)))


def read_fitted_leaf(job: TrainJob, leaf: int) -> tuple[FittedLeaf, HeldOut, int]:
    """A fitted leaf, its held-out rows, and fold_rows of its rows."""
    arrays = read_arrays(job.leaf_file(leaf))
    rows = int(arrays.pop("rows"))
    held = {name: arrays.pop(f"{HELD}{name}") for name in HeldOut.__dataclass_fields__}
    return FittedLeaf(**arrays), HeldOut(**held), rows
