"""Training in the memory of one process, and the decisions that it shares with training on a Dask cluster."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dcpred_tasks.dtypes import INDEX_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import Model, Reference
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.moments import feature_reference
from dcpred_tasks.model.scaling import Scaling, fit_scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.training.assembly import assemble
from dcpred_tasks.training.leaf import Kernels, LeafModel, fit_leaf
from dcpred_tasks.training.leaf_balance import SPLIT_SAMPLE_ROWS, Split, balance, split_centres, split_rows
from dcpred_tasks.training.learned_scaling import learn_metric
from dcpred_tasks.training.overlap import near_leaves
from dcpred_tasks.training.sampling import drawn, thinned
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.tree_fitting import Node, fit_tree, flatten, levels_for

ROWS_PER_LEAF = 1_000
MAX_AUTO_LEAVES = 4_096

# Told the title of each step, how much there is to count in it (None: nothing), of what; gives what is told as that is done.
Watch: TypeAlias = Callable[[str, int | None, str], AbstractContextManager[Callable[[float], None]]]


@contextmanager
def unwatched(title: str, total: int | None, unit: str) -> Iterator[Callable[[float], None]]:
    """For those who need not see what goes on."""
    yield lambda amount: None


@dataclass(frozen=True)
class Division:
    """How space is divided, learned from a sample: scaling, first tree, and the kernels in scaled features. `reference` says
    what the sample was like."""

    scaling: Scaling
    root: Node | int
    kernels: Kernels
    reference: Reference


def learn_division(
    sample: NDArray[np.generic], target: NDArray[np.generic], weight: FloatArray, survey: Survey, settings: Settings
) -> Division:
    """sample  raw rows drawn by `sampling.drawn`, in the order of their numbers, with their targets (class numbers or values)
    and their sample weights > 0."""
    scaling = learn_scaling(sample, target, weight, survey, settings)
    return divide(scaling, sample, weight, survey, settings)


def learn_scaling(
    sample: NDArray[np.generic], target: NDArray[np.generic], weight: FloatArray, survey: Survey, settings: Settings
) -> Scaling:
    """The scaling that the settings ask for; `learned` looks at the targets."""
    if settings.scaling == "learned":
        metric = learn_metric(sample, target, weight, survey.minimum, survey.maximum, settings.task, settings.seed)
        scaling = Scaling(metric.shift, metric.factor)
    else:
        scaling = fit_scaling(settings.scaling, sample, weight, survey.minimum, survey.maximum)
    check_scaled(scaling, survey)
    return scaling


def divide(
    scaling: Scaling, sample: NDArray[np.generic], weight: FloatArray, survey: Survey, settings: Settings
) -> Division:
    """The tree and the kernels in scaled features."""
    rows = scaling(sample)
    n_leaves = settings.n_leaves or min(max(survey.n_used // ROWS_PER_LEAF, 1), MAX_AUTO_LEAVES)
    root = fit_tree(rows, weight, levels_for(n_leaves), survey.n_used, settings.min_leaf_rows, settings.seed)
    return Division(scaling, root, _kernels(rows, weight, settings), feature_reference(scaling, sample))


def check_scaled(scaling: Scaling, survey: Survey) -> None:
    """Scaled rows are kept in single precision; the extremes of each feature show whether they fit."""
    with np.errstate(over="ignore"):
        fits = np.isfinite(scaling(np.stack([survey.minimum, survey.maximum]))).all(axis=0)
    if not fits.all():
        column = int(np.flatnonzero(~fits)[0])
        raise DataError(
            f"column {column} of X reaches from {survey.minimum[column]:g} to {survey.maximum[column]:g}, which is too "
            "large for single precision (infinity after scaling); set scaling to standard or minmax, or rescale it first"
        )


def _kernels(rows: SingleArray, weight: FloatArray, settings: Settings) -> Kernels:
    """γ "scale" is 1 where the scaling was learned, width and all, else 1 / (n_features × variance) as in scikit-learn; what
    stands here for "median" is replaced leaf by leaf."""
    if isinstance(settings.gamma, str):
        if settings.scaling == "learned":
            rows = rows[:, rows.any(axis=0)]  # without the features that were left out
        gamma = 1.0 if settings.scaling == "learned" and settings.kernel == "rbf" else _scale(rows, weight)
    else:
        gamma = settings.gamma
    return Kernels(
        local=Kernel(settings.kernel, gamma, settings.degree, settings.coef0),
        head=Kernel(settings.kernel, settings.head_gamma or gamma, settings.degree, settings.coef0),
    )


def _scale(rows: SingleArray, weight: FloatArray) -> float:
    if not rows.size:
        return 1.0
    moments = [np.average(rows.astype(np.float64) ** power, axis=0, weights=weight).mean() for power in (1, 2)]
    variance = float(moments[1] - moments[0] ** 2)
    return 1.0 / (rows.shape[1] * variance) if variance > 1e-12 * moments[1] else 1.0


def n_outputs(n_classes: int) -> int:
    """1 for regression (no classes) and for two classes."""
    return n_classes if n_classes > 2 else 1


def row_weights(target: NDArray[np.generic], weight: FloatArray | None, class_factors: FloatArray) -> FloatArray:
    """Sample weight × class weight."""
    own = np.ones(len(target)) if weight is None else weight.astype(np.float64)
    return own * class_factors[target.astype(np.int64)] if len(class_factors) else own


def balanced_factors(survey: Survey) -> FloatArray:
    """Class weights of scikit-learn's "balanced": n / (n_classes × count)."""
    return np.asarray(survey.class_weights.sum() / (len(survey.classes) * survey.class_weights))


def train_rows(
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    class_factors: FloatArray,
    survey: Survey,
    settings: Settings,
    classes: tuple[int | float | str | bool, ...],
    n_jobs: int | None = None,
    watch: Watch = unwatched,
) -> Model:
    """Train on rows in memory, in two steps.

    X              (n, n_features) real and finite
    target         (n,) class numbers, or float64
    weight         float64 (n,), > 0, sample weights
    class_factors  float64 (n_classes,), or empty
    """
    with threadpool_limits(1):  # BLAS sums in another order with more threads
        numbers = np.arange(len(X), dtype=INDEX_DTYPE)
        seen = drawn(numbers, len(X), settings.sample_rows, settings.seed)
        with watch("learning the scaling and the tree", None, ""):
            division = learn_division(X[seen], target[seen], weight[seen], survey, settings)
        costs = row_weights(target, weight, class_factors)
        rows = division.scaling(X)
        tree, own = _own_rows(rows, division, settings)
        halo = _halo_rows(rows, tree, settings.overlap)
        outputs = n_outputs(len(classes))

        def fit(number: int) -> LeafModel:
            first, second = chosen(own[number], halo[number], settings)
            both = np.concatenate([first, second])
            is_halo = np.arange(len(both)) >= len(first)
            with threadpool_limits(1, user_api="openmp"):  # a limit of the thread that sets it
                return fit_leaf(
                    rows[both], target[both], costs[both], outputs, division.kernels, settings, number, is_halo
                )  # fmt: skip

        # Threads: LIBSVM and BLAS, where the time goes, release the interpreter's lock.
        fitting = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
        leaves: list[LeafModel] = []
        with watch("fitting leaves", len(X), "rows") as advance:
            for leaf in fitting(delayed(fit)(number) for number in range(tree.n_leaves)):
                advance(len(own[len(leaves)]))
                leaves.append(leaf)
    counts = np.array([len(part) for part in own])
    return assemble(leaves, counts, tree, division.scaling, division.kernels, classes, settings, division.reference)


def chosen(own: IntArray, halo: IntArray, settings: Settings) -> tuple[IntArray, IntArray]:
    """Row numbers that a leaf is trained on, its own and those of its halo, no more than max_leaf_rows."""
    own = own[thinned(own, settings.max_leaf_rows, settings.seed)]
    return own, halo[thinned(halo, settings.max_leaf_rows - len(own), settings.seed)]


def _own_rows(rows: SingleArray, division: Division, settings: Settings) -> tuple[Tree, list[IntArray]]:
    """The final tree, and the numbers of the rows of each leaf, ascending."""
    numbers = np.arange(len(rows), dtype=INDEX_DTYPE)
    leaf = flatten(division.root).descend(rows)
    limit = settings.own_leaf_rows

    def split(requests: Sequence[tuple[int, int]]) -> list[Split]:
        return [split_one(old, first) for old, first in requests]

    def split_one(old: int, first: int) -> Split:
        own = np.flatnonzero(leaf == old)
        seen = own[drawn(numbers[own], len(own), SPLIT_SAMPLE_ROWS, settings.seed)]
        centres = split_centres(rows[seen], len(own), limit, settings.seed)
        child = split_rows(rows[own], centres)
        result = Split(centres, np.bincount(child, minlength=max(len(centres), 1)))
        if result.divides:
            leaf[own] = first + child
        return result

    counts = np.bincount(leaf, minlength=flatten(division.root).n_leaves)
    balanced = balance(division.root, counts, settings.min_leaf_rows, limit, split)
    tree = flatten(balanced.root)
    return tree, _grouped(balanced.final[leaf], numbers, tree.n_leaves)


def _halo_rows(rows: SingleArray, tree: Tree, overlap: int) -> list[IntArray]:
    """The numbers of the rows of other leaves that each leaf is trained on, too."""
    near = near_leaves(tree, rows, overlap - 1)
    number, column = np.nonzero(near >= 0)
    return _grouped(near[number, column], number, tree.n_leaves)


def _grouped(leaf: NDArray[np.int32], numbers: IntArray, n_leaves: int) -> list[IntArray]:
    order = np.argsort(leaf, kind="stable")
    return np.split(numbers[order], np.searchsorted(leaf[order], np.arange(1, n_leaves)))
