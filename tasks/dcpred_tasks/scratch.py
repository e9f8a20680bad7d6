"""Scratch files of a training: rows by leaf, its job, and its trials."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, lru_cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.term import Term
from dcpred_tasks.model.terms import read_terms
from dcpred_tasks.model.tree import Router, read_router
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.atomic_files import (
    MemoryPath,
    is_whole,
    new_directory,
    partial_name,
    read_arrays,
    resource_errors,
    write_arrays,
    write_bytes,
)
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.training.categories import (
    NOT_CODED,
    CodedFeatures,
    CrossFitted,
    TargetSums,
    cross_fitted_of,
)
from dcpred_tasks.training.fitted_to_targets import FittedToTargets, Known
from dcpred_tasks.training.folds import MOST_FOLDS, Folds
from dcpred_tasks.training.held_out import HeldOut
from dcpred_tasks.training.in_memory import FittedScaling, TrialRows
from dcpred_tasks.training.leaf import FittedLeaf
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.tree_fitting import Split

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
    folds: Folds | None = None  # how rows are held out, without units (`read_folds`)

    @property
    def root(self) -> Path:
        return Path(self.scratch)

    def array(self, name: str) -> Any:
        """x, y or weight."""
        return open_array(getattr(self, name))

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

    def known_file(self, fold: int) -> Path:
        return self.root / f"known-{fold}.npz"

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
    borrowed: tuple[int, ...] = ()
    folds: int = 0
    """Parts of its rows that are held out of further fits (`held_out.folds_of_leaves`)."""


@dataclass(frozen=True)
class StoredDivision:
    """The partition for workers, without the tree under construction."""

    tree: Router
    known: Known
    classes: NDArray[Any]
    class_factors: FloatArray


# The code that determines the files of a scratch directory and their content.
WRITING: tuple[str, ...] = ("dtypes.py", "model/*.py", "training/*", "scratch/*.py", "task_bodies/t*.py")
WRITING += ("storage/zarr_arrays.py",)


@cache
def scratch_code() -> str:
    """A digest of the code that writes scratch directories: files of other code are not reused."""
    package = Path(__file__).parent.parent
    files = sorted({path for pattern in WRITING for path in package.glob(pattern) if path.is_file()})
    return digest(*(path.read_bytes() for path in files))


def is_done(output: Path) -> bool:
    """Whether the output of a task exists and is intact. Removes a damaged one, which is made anew."""
    if not output.exists():
        return False
    if output.suffix != ".npz" or is_whole(output):
        return True
    output.unlink(missing_ok=True)
    return False


def write_division(job: TrainJob, division: StoredDivision) -> None:
    of_classes = {"classes": division.classes, "class_factors": division.class_factors}
    write_arrays(job.division_file, {**division.known.arrays(), **division.tree.arrays(), **of_classes})


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
    return StoredDivision(read_router(a), Known.from_arrays(a), a["classes"], a["class_factors"])


def write_known(job: TrainJob, fold: int, known: Known) -> None:
    """Store what is fitted to targets without a fold."""
    if not is_done(job.known_file(fold)):
        write_arrays(job.known_file(fold), known.arrays())


def read_fitted(job: TrainJob, folds: int) -> FittedToTargets:
    """Everything that is fitted to targets, also without each of the first so many folds."""
    encoding = read_targets(job) if job.coded else None
    held = tuple(_known(file_stamp(job.known_file(fold))) for fold in range(folds))
    return FittedToTargets(read_division(job).known, read_folds(job), encoding, held)


@lru_cache(maxsize=MOST_FOLDS)
def _known(stamp: tuple[str, int, int]) -> Known:
    return Known.from_arrays(read_arrays(Path(stamp[0])))


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


def write_tree(job: TrainJob, tree: Router) -> None:
    write_arrays(job.tree_file, tree.arrays())


def read_tree(job: TrainJob) -> Router:
    """The final tree, once per process."""
    return _tree(file_stamp(job.tree_file))


@lru_cache(maxsize=2)
def _tree(stamp: tuple[str, int, int]) -> Router:
    return read_router(read_arrays(Path(stamp[0])))


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
    of_survey = {field.name: a.pop(field.name) for field in fields(Survey)}
    of_survey |= {name: int(of_survey[name]) for name in ("n_rows", "n_used", "rows")}
    return Survey(**of_survey | {"means": tuple(of_survey["means"].tolist())}), sample


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


# Chunk size for reads of the rows of a leaf (DECISIONS.md).
INNER_CHUNK_BYTES = 16 * 2**10
INDEX_ENTRIES = 2**20  # entries of an index that the driver sorts at once, in about 100 MiB


@dataclass(frozen=True)
class Rows:
    """Rows on their way to a leaf, in the order of their numbers.

    X       (n, n_features), raw
    target  float64 (n,), class numbers or values
    weight  float64 (n,)
    number  int64 (n,), row numbers in the input
    """

    X: NDArray[Any]
    target: FloatArray
    weight: FloatArray
    number: IntArray

    def take(self, index: NDArray[Any] | slice) -> "Rows":
        return Rows(*(getattr(self, f.name)[index] for f in fields(self)))


def write_piece(path: Path, rows: Rows, leaf: NDArray[np.int32]) -> None:
    """Write rows as one shard sorted by leaf, and how many of each leaf that occurs."""
    order = np.argsort(leaf, kind="stable")
    X, n = rows.X[order], len(order)
    # Row numbers are below 2⁵³: float64 holds them.
    side = np.column_stack([rows.target, rows.weight, rows.number.astype(np.float64)])[order]
    with new_directory(path) as partial:
        group = zarr_arrays.create_group(partial)
        for name, value, names in (
            ("X", X, zarr_arrays.DATA_DIMENSIONS),
            ("side", side, ("sample", "column")),
        ):
            inner = _inner_rows(value.nbytes // max(n, 1))
            shard = max(-(-n // inner), 1) * inner
            zarr_arrays.create_array(
                group, name, value.shape, value.dtype, inner, shard_rows=shard, dimensions=names
            )[...] = value
        np.save(partial / "counts.npy", np.stack(np.unique(leaf, return_counts=True)).astype(np.int64))


def _inner_rows(row_bytes: int) -> int:
    return int(2 ** np.clip(int(INNER_CHUNK_BYTES / max(row_bytes, 1)).bit_length(), 4, 10))


def write_index(job: TrainJob, generation: int, pieces: Iterable[int], n_leaves: int) -> IntArray:
    """Write where the rows of each leaf lie in the pieces of a generation, for every worker to map into
    memory. Returns the number of rows of each leaf, int64 (n_leaves,).

    The index only holds leaves that occur: neither memory nor files grow with pieces × leaves. Part k is two
    arrays, `places` int32 (entries, 3) with piece, first row and row after the last, sorted by leaf, and
    `edges` int64 (n_leaves + 1,) with the entries of each leaf.
    """
    totals = np.zeros(n_leaves, np.int64)
    for part, (leaf, places) in enumerate(
        _index_parts(job, generation, pieces, max(INDEX_ENTRIES, n_leaves))
    ):
        np.add.at(totals, leaf, places[:, 2] - places[:, 1])
        edges = np.zeros(n_leaves + 1, np.int64)
        np.cumsum(np.bincount(leaf, minlength=n_leaves), out=edges[1:])
        order = np.argsort(leaf, kind="stable")
        for name, value in (("places", places[order]), ("edges", edges)):
            path = job.index_file(generation, name, part)
            partial = partial_name(path)
            with resource_errors(path), open(partial, "xb") as file:
                np.save(file, value)
            partial.replace(path)
    return totals


def _index_parts(
    job: TrainJob, generation: int, pieces: Iterable[int], most: int
) -> Iterator[tuple[IntArray, NDArray[np.int32]]]:
    """The leaves (n,) and places (n, 3) of pieces, about `most` entries at once; one part at least."""
    leaves: list[IntArray] = [np.zeros(0, np.int64)]
    places: list[NDArray[np.int32]] = [np.zeros((0, 3), np.int32)]
    held = n_parts = 0
    for piece in pieces:
        leaf, counts = np.load(job.piece(generation, piece) / "counts.npy", allow_pickle=False)
        ends = np.cumsum(counts)
        leaves.append(leaf)
        places.append(np.stack([np.full(len(leaf), piece), ends - counts, ends], axis=1).astype(np.int32))
        held += len(leaf)
        if held >= most:
            yield np.concatenate(leaves), np.concatenate(places)
            del leaves[1:], places[1:]
            held, n_parts = 0, n_parts + 1
    if held or not n_parts:
        yield np.concatenate(leaves), np.concatenate(places)


@lru_cache(maxsize=64)
def _piece_arrays(stamp: tuple[str, int, int]) -> tuple[zarr.Array[Any], zarr.Array[Any]]:
    return open_array(f"{stamp[0]}/X"), open_array(f"{stamp[0]}/side")


def read_leaves(job: TrainJob, sources: Sequence[Source]) -> Iterator[tuple[Source, Rows]]:
    """The rows of routed leaves, piece by piece. Neighbouring leaves are read together: a read has a constant
    cost (DECISIONS.md), and a model may have thousands of small leaves.
    """
    for run in _neighbours(sources):
        generation, first_leaf = run[0].generation, run[0].leaf
        for piece, leaves, spans in _places(job, generation, first_leaf, run[-1].leaf):
            X, side = _piece_arrays(file_stamp(job.piece(generation, piece)))
            first, last = int(spans[0, 0]), int(spans[-1, 1])
            rows = zarr_arrays.read_rows(X, first, last)
            target, weight, number = zarr_arrays.read_rows(side, first, last).T
            everything = Rows(rows, target, weight, number.astype(np.int64))
            for leaf, (start, stop) in zip(leaves.tolist(), (spans - first).tolist(), strict=True):
                yield run[leaf - first_leaf], everything.take(slice(start, stop))


def _places(
    job: TrainJob, generation: int, first: int, last: int
) -> Iterator[tuple[int, IntArray, NDArray[np.int32]]]:
    """Where rows of leaves `first` to `last` lie: pieces, with leaves (n,) and rows (n, 2) of each."""
    for part in count():
        path = job.index_file(generation, "edges", part)
        if not path.exists():
            return
        edges = np.array(np.load(path, mmap_mode="r")[first : last + 2])
        places = np.load(job.index_file(generation, "places", part), mmap_mode="r")
        rows = np.array(places[edges[0] : edges[-1]])
        leaf = np.repeat(np.arange(first, last + 1), np.diff(edges))
        order = np.argsort(rows[:, 0], kind="stable")
        rows, leaf = rows[order], leaf[order]
        bounds = np.flatnonzero(np.diff(rows[:, 0], prepend=-1, append=-1))
        for start, stop in pairwise(bounds.tolist()):
            yield int(rows[start, 0]), leaf[start:stop], rows[start:stop, 1:]


def _neighbours(sources: Sequence[Source]) -> list[list[Source]]:
    """Sources in runs of the same generation and successive leaves."""
    runs: list[list[Source]] = []
    for source in sorted(sources, key=lambda s: (s.generation, s.leaf)):
        if runs and runs[-1][-1] == Source(source.generation, source.leaf - 1):
            runs[-1].append(source)
        else:
            runs.append([source])
    return runs


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Join parts in the order of row numbers."""
    joined = Rows(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Rows)))
    return joined.take(np.argsort(joined.number, kind="stable"))


SURVEY = "survey_"  # prefix of arrays of the survey
TERM_NAMES = "terms"  # array of the names of terms


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
    tree: Router
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


def terms_file(job: TrainJob, fold: int, digest: str) -> Path:
    return job.root / f"terms-{fold}-{digest}.npz"


def tried_file(job: TrainJob, fold: int, digest: str) -> Path:
    return job.root / f"tried-{fold}-{digest}.npz"


def write_cells(job: TrainJob, cells: Cells) -> None:
    (job.root / "cells").mkdir(exist_ok=True)
    rest = {"chosen": cells.chosen, "classes": cells.classes, "class_factors": cells.class_factors}
    write_arrays(cells_file(job), {**cells.scaling.arrays(), **cells.tree.arrays(), **rest})


def read_cells(job: TrainJob) -> Cells:
    a = read_arrays(cells_file(job))
    return Cells(Scaling.of(a), read_router(a), a["chosen"], a["classes"], a["class_factors"])


def write_trial(job: TrainJob, fold: int, rows: TrialRows, survey: Survey) -> None:
    """Write the rows of the trials of a fold, and the survey of all rows."""
    no_sample = {f"sample_{name}": np.empty(0) for name in Sample.__dataclass_fields__}
    of_survey = {SURVEY + name: array for name, array in (survey_arrays(survey) | no_sample).items()}
    write_arrays(trial_file(job, fold), rows.arrays() | of_survey)


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


def write_terms(job: TrainJob, fold: int, digest: str, terms: Sequence[Term]) -> None:
    names = np.array([term.name for term in terms], np.str_)
    arrays = {name: array for term in terms for name, array in term.arrays().items()}
    write_arrays(terms_file(job, fold, digest), {TERM_NAMES: names, **arrays})


def read_fitted_terms(job: TrainJob, fold: int, digest: str) -> tuple[Term, ...]:
    """The content of write_terms."""
    a = read_arrays(terms_file(job, fold, digest))
    return read_terms(a[TERM_NAMES].tolist(), a)


def write_tried(job: TrainJob, fold: int, digest: str, decision: FloatArray, shape: FloatArray) -> None:
    write_arrays(tried_file(job, fold, digest), {"values": decision, "shape": shape})


def read_tried(job: TrainJob, fold: int, digest: str) -> tuple[FloatArray, FloatArray]:
    """The decision values of a trial, and the shape of its model (trial.shape_of)."""
    a = read_arrays(tried_file(job, fold, digest))
    return a["values"], a["shape"]
