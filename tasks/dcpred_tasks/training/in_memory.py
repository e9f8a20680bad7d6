"""Training in the memory of one process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from dcpred_tasks.dtypes import INDEX_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.process import one_thread
from dcpred_tasks.training.assembly import assemble
from dcpred_tasks.training.division import Division, divide, learn_scaling, n_outputs, row_weights
from dcpred_tasks.training.folds import folds_of
from dcpred_tasks.training.held_out import (
    HeldOut,
    LeafRowsToFit,
    Recoded,
    fit_and_judge,
    folds_of_leaves,
    joined,
    measured,
)
from dcpred_tasks.training.leaf import LeafModel
from dcpred_tasks.training.leaf_balance import SPLIT_SAMPLE_ROWS, Split, balance, split_centres, split_rows
from dcpred_tasks.training.overlap import near_leaves
from dcpred_tasks.training.prior import fit_prior
from dcpred_tasks.training.sampling import drawn, sampled_rows, thinned
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.target_means import (
    NOT_CODED,
    CodedFeatures,
    CrossFitted,
    fit_to_rows,
)
from dcpred_tasks.training.tree_fitting import flatten

# Called at the start of each step with its title, its amount (None where nothing is counted) and the unit;
# gives a function that is called with each amount that is done.
Watch: TypeAlias = Callable[[str, int | None, str], AbstractContextManager[Callable[[float], None]]]


@contextmanager
def unwatched(title: str, total: int | None, unit: str) -> Iterator[Callable[[float], None]]:
    """A Watch that shows nothing."""
    yield lambda amount: None


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
    scaling: Scaling | None = None,
    coded: CodedFeatures = NOT_CODED,
) -> Model:
    """Train on rows in memory, in two steps.

    X              (n, n_features) real; NaN is a gap, as the survey has counted it
    target         (n,) class numbers, or float64
    weight         float64 (n,), > 0, sample weights
    class_factors  float64 (n_classes,), or empty
    scaling        in place of one that the settings would learn
    coded          features whose codes means of the target replace
    """
    with one_thread():  # With more threads BLAS sums in another order.
        numbers = np.arange(len(X), dtype=INDEX_DTYPE)
        seen = drawn(numbers, len(X), sampled_rows(settings.sample_rows, X.shape[1]), settings.seed)
        stored, fitted = X, None
        if coded:
            fitted = fit_to_rows(X, target, weight, coded, survey, settings)
            X, survey = fitted(stored, numbers), fitted.survey(survey)
        with watch("learning the scaling and the tree", None, ""):
            sample = X[seen]
            scaling = scaling or learn_scaling(sample, target[seen], weight[seen], survey, settings)
            division = divide(scaling, sample, weight[seen], survey, settings)
            of_sample = sample, target[seen], weight[seen]
            prior = fit_prior(division, *of_sample, survey, settings, class_factors)
        costs = row_weights(target, weight, class_factors)
        rows = division.scaling(X)
        tree, own = _own_rows(rows, division, settings)
        halo = _halo_rows(rows, tree, settings.overlap)
        outputs, counts = n_outputs(len(classes)), np.array([len(part) for part in own])
        folds = folds_of_leaves(counts, outputs, settings, survey.class_weights)

        def fit(number: int) -> tuple[LeafModel, HeldOut]:
            first, second = chosen(own[number], halo[number], settings)
            both = np.concatenate([first, second])
            recoded = None if fitted is None else _recoded(fitted, division.scaling, stored[both], both)
            is_halo = np.arange(len(both)) >= len(first)
            of_leaf = LeafRowsToFit(rows[both], target[both], costs[both], is_halo, recoded)
            with one_thread("openmp"):  # The limit is that of the thread which sets it.
                return fit_and_judge(
                    of_leaf, outputs, division.kernels, settings, number, int(folds[number]), prior
                )

        # Threads: LIBSVM and BLAS, where the time goes, release the interpreter's lock.
        fitting = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
        leaves: list[LeafModel] = []
        held: list[HeldOut] = []
        with watch("fitting leaves", len(X), "rows") as advance:
            for leaf, out in fitting(delayed(fit)(number) for number in range(tree.n_leaves)):
                advance(len(own[len(leaves)]))
                leaves.append(leaf)
                held.append(out)
        calibrated, sureness = measured(
            leaves, counts, joined(held), len(classes), settings, survey.class_weights, class_factors
        )
    return assemble(
        calibrated,
        counts,
        tree,
        replace(division.scaling, targets=None if fitted is None else fitted.encoding),
        division.kernels,
        classes,
        settings,
        division.reference,
        sureness,
    )


def _recoded(fitted: CrossFitted, scaling: Scaling, stored: NDArray[np.generic], rows: IntArray) -> Recoded:
    return Recoded(folds_of(rows, fitted.seed), lambda held: scaling(fitted(stored, rows, held)))


def chosen(own: IntArray, halo: IntArray, settings: Settings) -> tuple[IntArray, IntArray]:
    """The numbers of the rows that a leaf is trained on, (own rows, halo rows): at most max_leaf_rows
    together.
    """
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
