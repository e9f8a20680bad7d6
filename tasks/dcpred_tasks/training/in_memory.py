"""Training in the memory of one process, whole models that are trained without held-out rows, and trials of
settings on held-out rows, beside reference models.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from math import log2
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.layout import walks_by_distances
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.label_rule import HALF
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_transform import TargetTransform, fitted_transform
from dcpred_tasks.model.term import Term, offset_of
from dcpred_tasks.model.tree import Router
from dcpred_tasks.model.uncertainty import FEWEST_ROWS
from dcpred_tasks.process import one_thread
from dcpred_tasks.training.categories import NOT_CODED, CodedFeatures, fit_to_rows
from dcpred_tasks.training.fitted_to_targets import (
    FittedToTargets,
    TargetSample,
    WithoutGroups,
    whole_models,
    with_rare_categories,
)
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.held_out import (
    HeldOut,
    LeafRowsToFit,
    fit_and_judge,
    folds_of_leaves,
    joined,
    judge_leaf,
    measured,
    measured_transform,
)
from dcpred_tasks.training.leaf import FittedLeaf
from dcpred_tasks.training.learned_scaling import REPETITIONS, USUAL_REPETITIONS
from dcpred_tasks.training.partition import (
    ROWS_PER_LEAF,
    Division,
    assemble,
    kernel_unit,
    learn_scaling,
    n_outputs,
    row_weights,
)
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey, drawn, sampled_rows, thinned
from dcpred_tasks.training.term_fits import are_asked_for
from dcpred_tasks.training.tree_fitting import (
    SPLIT_SAMPLE_ROWS,
    Split,
    balance,
    flatten,
    levels_for,
    split_centres,
    split_rows,
)

T = TypeVar("T")
NO_TERMS: Mapping[WithoutGroups, tuple[Term, ...]] = {}
# Called at the start of each step with its title, its amount (None where nothing is counted) and the unit;
# returns a function that is called with each finished amount.
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
    folds: Folds | None = None,
    terms: Mapping[WithoutGroups, tuple[Term, ...]] = NO_TERMS,
) -> Model:
    """Train on rows in memory, in two steps.

    X              (n, n_features) real; NaN is a missing value, as in the survey
    target         (n,) class numbers, or float64
    weight         float64 (n,), > 0, sample weights
    class_factors  float64 (n_classes,), or empty
    scaling        in place of the scaling of the settings
    coded          target-encoded features
    folds          how rows are held out; None: by their numbers
    terms          that were fitted to these rows before (TargetSample.terms)
    """
    folds = folds or Folds(settings.seed)
    rows = LabelledSample(X, target, weight, class_factors)
    given = survey, settings, len(classes)
    layout = _laid_out(rows, *given, coded, folds, watch, scaling, terms=terms)
    counts = np.array([len(numbers) for numbers in layout.own_rows])
    whole = whole_models(folds, settings, bool(coded), layout.tree.n_leaves, layout.complete)
    times = np.zeros(len(counts), np.int64)
    if not whole:
        times = folds_of_leaves(counts, n_outputs(len(classes)), settings, survey.class_weights, folds.count)
    leaves, parts = layout.fit(times, n_jobs, watch)
    judged = None if whole else np.array([len(part.target) for part in parts])
    held = held_by_models(rows, *given, coded, folds, layout.scaling, n_jobs) if whole else joined(parts)
    of_classes = len(classes), settings, survey.class_weights, class_factors
    calibrated, uncertainty = measured(leaves, counts, held, judged, *of_classes)
    return assemble(
        calibrated,
        counts,
        layout.tree,
        layout.scaling,
        layout.division.kernels,
        classes,
        settings,
        layout.division.reference,
        uncertainty,
        measured_transform(held, settings),
        terms=layout.fitted.every.terms,
    )


@dataclass(frozen=True)
class LabelledSample:
    """Rows to train on, as `train_rows` takes them."""

    X: NDArray[np.generic]
    target: NDArray[np.generic]
    weight: FloatArray
    class_factors: FloatArray

    def take(self, rows: IntArray) -> "LabelledSample":
        return LabelledSample(self.X[rows], self.target[rows], self.weight[rows], self.class_factors)


def held_by_models(
    rows: LabelledSample,
    survey: Survey,
    settings: Settings,
    n_classes: int,
    coded: CodedFeatures,
    folds: Folds,
    scaling: Scaling,
    n_jobs: int | None = None,
) -> HeldOut:
    """Rows that were held out, each by a whole model of others: all that is fitted is fitted to these.

    survey  of all rows of the data, of which these are all or a sample
    folds   of these rows
    scaling  of all rows: where the others show nothing to learn, this model is not another one
    """
    outputs, number = n_outputs(n_classes), np.arange(len(rows.X), dtype=INDEX_DTYPE)
    held = [HeldOut.none(outputs)]
    target = TargetTransform(settings.target_transform).forward(rows.target)
    part, costs = folds.parts(number), row_weights(rows.target, rows.weight, rows.class_factors)
    for fold in _held_folds(folds, number, outputs, settings, survey):
        out, rest = np.flatnonzero(folds.of(number) == fold), np.flatnonzero(~folds.out_of(fold)[part])
        if not len(out) or not len(rest):
            continue
        rest_settings = settings_of_rest(settings, len(rest) / survey.n_used)
        given = rows.take(rest), survey_of_rest(survey, rows.X[rest]), rest_settings, n_classes
        otherwise = None if folds.by_units else scaling
        layout = _laid_out(*given, coded, folds.take(rest), unwatched, None, USUAL_REPETITIONS, otherwise)
        X, offset = layout.scaling(rows.X[out]), layout.offset(rows.X[out])
        leaf = layout.tree.descend(X)
        counts = np.array([len(numbers) for numbers in layout.own_rows])
        chosen = np.unique(leaf)
        if not folds.by_units:  # Most leaves of many rows are not needed.
            several = counts * len(number) // len(rest), outputs, settings, survey.class_weights, folds.count
            chosen = np.intersect1d(chosen, np.flatnonzero(folds_of_leaves(*several)))
        leaves, _ = layout.fit(np.zeros(len(counts), np.int64), n_jobs, unwatched, chosen)
        for leaf_number, fitted in zip(chosen.tolist(), leaves, strict=True):
            here = leaf == leaf_number
            at = out[here]
            none, beside = np.zeros(len(at), bool), None if offset is None else offset[here]
            judged = LeafRowsToFit(X[here], at, target[at], costs[at], none, beside)
            n_rows = min(int(counts[leaf_number]), settings.max_leaf_rows)
            with one_thread():
                held.append(judge_leaf(fitted, n_rows, judged, layout.division.kernels, folds, rest_settings))
    return joined(held)


def _held_folds(
    folds: Folds, number: IntArray, n_outputs: int, settings: Settings, survey: Survey
) -> Sequence[int]:
    """The folds whose rows whole models judge."""
    if not settings.calibrate or len(number) < FEWEST_ROWS:
        return ()
    if folds.by_units:
        return folds.enough(number)
    leaf_rows = np.full(-(-len(number) // ROWS_PER_LEAF), ROWS_PER_LEAF)
    leaf_rows[-1] -= leaf_rows.sum() - len(number)
    times = folds_of_leaves(leaf_rows, n_outputs, settings, survey.class_weights, folds.count)
    return range(int(times.max()))


def settings_of_rest(settings: Settings, share: float) -> Settings:
    """Settings for a share of the rows: with as many leaves, and features that may have a single category."""
    n_leaves = settings.n_leaves and leaves_of_share(settings.n_leaves, share)
    return replace(with_rare_categories(settings), n_leaves=n_leaves)


def survey_of_rest(survey: Survey, X: NDArray[np.generic]) -> Survey:
    """A survey of all rows, restricted to training rows (n, n_features)."""
    least, most = (each.reduce(X, axis=0).astype(ACC_DTYPE) for each in (np.fmin, np.fmax))
    return replace(
        survey,
        n_used=len(X),
        minimum=np.where(np.isnan(least), survey.minimum, least),
        maximum=np.where(np.isnan(most), survey.maximum, most),
    )


def leaves_of_share(n_leaves: int, share: float) -> int:
    """The power of two nearest to a share of so many leaves: trees have no other numbers of leaves."""
    return 1 << max(round(log2(max(n_leaves * share, 1.0))), 0)


@dataclass(frozen=True)
class _Layout:
    """Rows by leaf, before leaves are fitted.

    rows      stored rows with transformed targets; `fitted` is fitted to all or a sample of them
    complete  whether it is fitted to all
    own       numbers of the rows of each leaf, and `borrowed` of its overlap rows
    """

    rows: LabelledSample
    settings: Settings
    outputs: int
    sample: TargetSample
    complete: bool
    division: Division
    fitted: FittedToTargets
    tree: Router
    own_rows: list[IntArray]
    borrowed: list[IntArray]

    @property
    def scaling(self) -> Scaling:
        """The scaling of a model: of rows that do not train."""
        encoding = self.fitted.encoding
        return replace(self.division.scaling, targets=None if encoding is None else encoding.encoding)

    def offset(self, X: NDArray[np.generic]) -> FloatArray | None:
        """The sum of terms at stored rows that do not train; None without terms."""
        targets, terms = self.scaling.targets, self.fitted.every.terms
        values, rows = [term.engine for term in terms], X if targets is None else targets(X)
        return offset_of(values, rows, self.outputs) if terms else None

    def fit(
        self, times: IntArray, n_jobs: int | None, watch: Watch, which: Iterable[int] | None = None
    ) -> tuple[list[FittedLeaf], list[HeldOut]]:
        """Leaves, and their held-out rows.

        times  int64 (n_leaves,), folds that are held out of each
        which  the leaves to fit; None: all
        """
        with one_thread():
            fitted = self.sample.without_folds(self.fitted, int(times.max(initial=0)))
        costs = row_weights(self.rows.target, self.rows.weight, self.rows.class_factors)
        numbers = range(self.tree.n_leaves) if which is None else list(map(int, which))

        def fit(number: int) -> tuple[FittedLeaf, HeldOut]:
            first, second = chosen(self.own_rows[number], self.borrowed[number], self.settings)
            both = np.concatenate([first, second])
            is_halo = np.arange(len(both)) >= len(first)
            of_leaf = LeafRowsToFit(self.rows.X[both], both, self.rows.target[both], costs[both], is_halo)
            with one_thread("openmp"):  # The limit is that of the thread which sets it.
                given = of_leaf, self.outputs, fitted, self.settings, number
                return fit_and_judge(*given, int(times[number]))

        leaves: list[FittedLeaf] = []
        held: list[HeldOut] = []
        # Threads suffice: LIBSVM and BLAS, which dominate, release the GIL.
        with one_thread(), watch("fitting leaves", len(self.rows.X), "rows") as advance:
            for leaf, out in _in_threads(fit, numbers, thread_count(n_jobs)):
                advance(len(self.own_rows[numbers[len(leaves)]]))
                leaves.append(leaf)
                held.append(out)
        return leaves, held


def _laid_out(
    given: LabelledSample,
    survey: Survey,
    settings: Settings,
    n_classes: int,
    coded: CodedFeatures,
    folds: Folds,
    watch: Watch,
    scaling: Scaling | None = None,
    repetitions: int = REPETITIONS,
    otherwise: Scaling | None = None,
    terms: Mapping[WithoutGroups, tuple[Term, ...]] = NO_TERMS,
) -> _Layout:
    with one_thread():  # With more threads BLAS sums in another order.
        sample = _target_sample(given, survey, settings, coded, folds)
        sample.terms.update(terms)
        with watch("learning the scaling and the tree", None, ""):
            division, fitted = sample.fit(scaling, repetitions, otherwise)
        rows = fitted.columns(given.X, np.arange(len(given.X), dtype=INDEX_DTYPE))
        tree, own_rows = _own_rows(rows, division, settings)
        borrowed = _overlap_rows(rows, tree, settings.overlap)
    stored = replace(given, target=TargetTransform(settings.target_transform).forward(given.target))
    of_rows = stored, settings, n_outputs(n_classes), sample, len(sample.number) == len(given.X)
    return _Layout(*of_rows, division, fitted, tree, own_rows, borrowed)


def _target_sample(
    given: LabelledSample, survey: Survey, settings: Settings, coded: CodedFeatures, folds: Folds
) -> TargetSample:
    number, encoding, of_rows = np.arange(len(given.X), dtype=INDEX_DTYPE), None, (survey, settings)
    if coded:
        encoding = fit_to_rows(given.X, given.target, given.weight, coded, *of_rows, folds=folds)
        survey = encoding.survey(survey)
    most = sampled_rows(settings.sample_rows, given.X.shape[1])
    seen = np.flatnonzero(drawn(number, len(number), most, settings.seed))
    some = given.take(seen)
    target = TargetTransform(settings.target_transform).forward(some.target)
    given_rows = some.X, target, some.weight, number[seen], encoding, survey
    return TargetSample(*given_rows, settings, given.class_factors, folds)


def thread_count(n_jobs: int | None) -> int:
    """Return the number of threads for `n_jobs` as scikit-learn reads it: None is one, -1 all cores."""
    if n_jobs is None or n_jobs > 0:
        return n_jobs or 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cores + 1 + n_jobs, 1)


def _in_threads(fit: Callable[[int], T], of: Sequence[int], n_threads: int) -> Iterator[T]:
    """Yield the results in order. Calls that have not begun are dropped where the caller stops."""
    if n_threads == 1:
        yield from map(fit, of)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield from pool.map(fit, of)


def chosen(own_rows: IntArray, borrowed: IntArray, settings: Settings) -> tuple[IntArray, IntArray]:
    """The numbers of the rows that train a leaf, (own rows, overlap rows): at most max_leaf_rows together."""
    own_rows = own_rows[thinned(own_rows, settings.max_leaf_rows, settings.seed)]
    return own_rows, borrowed[thinned(borrowed, settings.max_leaf_rows - len(own_rows), settings.seed)]


def _own_rows(rows: SingleArray, division: Division, settings: Settings) -> tuple[Router, list[IntArray]]:
    """The final tree, and the numbers of the rows of each leaf, ascending."""
    numbers = np.arange(len(rows), dtype=INDEX_DTYPE)
    leaf = flatten(division.root).descend(rows)
    limit = settings.own_leaf_rows

    def split(requests: Sequence[tuple[int, int]]) -> list[Split]:
        return [split_one(old, first) for old, first in requests]

    def split_one(old: int, first: int) -> Split:
        members = np.flatnonzero(leaf == old)
        seen = members[drawn(numbers[members], len(members), SPLIT_SAMPLE_ROWS, settings.seed)]
        centres = split_centres(rows[seen], len(members), limit, settings.seed)
        child = split_rows(rows[members], centres)
        result = Split(centres, np.bincount(child, minlength=max(len(centres), 1)))
        if result.divides:
            leaf[members] = first + child
        return result

    counts = np.bincount(leaf, minlength=flatten(division.root).n_leaves)
    balanced = balance(division.root, counts, settings.min_leaf_rows, limit, split)
    tree = flatten(balanced.root)
    return tree, _grouped(balanced.final[leaf], numbers, tree.n_leaves)


def _overlap_rows(rows: SingleArray, tree: Router, overlap: int) -> list[IntArray]:
    """The numbers of the rows of other leaves that each leaf is trained on, too."""
    near = tree.near_leaves(rows, overlap - 1)
    number, column = np.nonzero(near >= 0)
    return _grouped(near[number, column], number, tree.n_leaves)


def _grouped(leaf: NDArray[np.int32], numbers: IntArray, n_leaves: int) -> list[IntArray]:
    order = np.argsort(leaf, kind="stable")
    return np.split(numbers[order], np.searchsorted(leaf[order], np.arange(1, n_leaves)))


# Repetitions of learned scalings: a training takes the mean of several, which is better and slower.
TRIAL_REPETITIONS = 1
# Settings that decide what a scaling is (division.learn_scaling), and what terms are (term_fits.fit_terms).
SCALING_SETTINGS = (
    *("task", "scaling", "feature_map", "categorical", "missing", "seed", "kernel", "target_transform"),
)
TERM_SETTINGS = {
    "classification": ("task", "seed", "sample_rows", "trees", "tree_depth", "tree_rate"),
    "regression": (
        *("task", "seed", "sample_rows", "trees", "tree_depth", "tree_rate"),
        *("loss", "quantile", "target_transform"),
    ),
}


@dataclass(frozen=True)
class TrialRows:
    """The rows of a trial, raw, in the order of their numbers.

    X       (n, n_features), codes of categories replaced by target means that know no held-out row
    target  (n,), class numbers or values
    weight  float64 (n,), > 0, sample weights times class weights
    number  int64 (n,), row numbers in the input
    held    bool (n,), rows that are held out
    cell    bool (n,), rows of the cells; all rows where rows are few
    spread  bool (n,), rows from everywhere; all rows where rows are few
    broad   bool (n,), rows from everywhere that scalings and reference models learn from
    """

    X: NDArray[np.generic]
    target: NDArray[np.generic]
    weight: FloatArray
    number: IntArray
    held: NDArray[np.bool_]
    cell: NDArray[np.bool_]
    spread: NDArray[np.bool_]
    broad: NDArray[np.bool_]

    def take(self, index: NDArray[np.generic]) -> "TrialRows":
        return TrialRows(**{name: array[index] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, Any]:
        """Its arrays by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True)
class Trial:
    """How candidate settings are tried.

    spread  whether rows from everywhere train, not those of the cells
    share   share of these rows that trains
    """

    settings: Settings
    spread: bool
    share: float = 1.0


@dataclass(frozen=True)
class FittedScaling:
    """The scaling of a candidate, and γ "scale" in its columns."""

    scaling: Scaling
    unit: float


def fit_trial_scaling(
    rows: TrialRows,
    survey: Survey,
    settings: Settings,
    repetitions: int = TRIAL_REPETITIONS,
    share: float = 1.0,
) -> FittedScaling:
    """The scaling that settings ask for, learned from a share of the rows that are not held out.

    Raises DataError where scaled features do not fit single precision.
    """
    rest = rows.take(_part(rows, np.flatnonzero(~rows.held & rows.broad), share, settings.seed))
    settings = settings_of_rest(settings, 1.0)
    target = TargetTransform(settings.target_transform).forward(rest.target)
    scaling = learn_scaling(rest.X, target, rest.weight, survey, settings, repetitions)
    return FittedScaling(scaling, kernel_unit(scaling(rest.X), rest.weight, settings))


def fit_trial_terms(
    rows: TrialRows,
    survey: Survey,
    trial: Trial,
    groups: Sequence[int],
    terms: Mapping[WithoutGroups, tuple[Term, ...]] = NO_TERMS,
) -> tuple[Term, ...]:
    """The terms of a trial, also without some groups of its rows (TargetSample.terms_without).

    terms  of the same trial, that were fitted before
    """
    rest, survey, settings = _training_rows(rows, survey, trial)
    sample = _target_sample(rest, survey, settings, NOT_CODED, Folds(settings.seed))
    sample.terms.update(terms)
    return sample.terms_without(groups)


def groups_of_terms(settings: Settings) -> list[tuple[int, ...]]:
    """The groups that terms of a trial are fitted without, each time; none without terms."""
    if not are_asked_for(settings):
        return []
    each = range(Folds(settings.seed).n_groups if settings.landmarks else 0)
    return [(), *((group,) for group in each)]


def tried_model(
    rows: TrialRows,
    survey: Survey,
    trial: Trial,
    scaling: Scaling,
    terms: Mapping[WithoutGroups, tuple[Term, ...]] = NO_TERMS,
) -> Model:
    """A model of the rows that are not held out.

    survey  of all rows of the data, with codes replaced
    terms   of `fit_trial_terms`
    """
    rest, survey, settings = _training_rows(rows, survey, trial)
    classes = tuple(range(len(survey.classes)))
    given = rest.X, rest.target, rest.weight, rest.class_factors, survey, settings, classes
    return train_rows(*given, n_jobs=1, scaling=scaling, terms=terms)


def _training_rows(rows: TrialRows, survey: Survey, trial: Trial) -> tuple[LabelledSample, Survey, Settings]:
    """The rows that train in a trial, with their survey and settings."""
    settings = trial.settings
    used = np.flatnonzero(~rows.held & (rows.spread if trial.spread else rows.cell))
    rest = rows.take(_part(rows, used, trial.share, settings.seed))
    n_leaves = leaves_of_share(settings.n_leaves, len(rest.X) / survey.n_used)
    plain = replace(settings, calibrate=False, keep_support_vectors=False, threshold=HALF)
    of_rest = LabelledSample(rest.X, rest.target, rest.weight, np.empty(0))
    return of_rest, replace(survey, n_used=len(rest.X)), replace(plain, n_leaves=n_leaves)


def _part(rows: TrialRows, used: IntArray, share: float, seed: int) -> IntArray:
    """A share of some rows; a smaller share is a part of a larger one."""
    if share >= 1.0:
        return used
    return used[thinned(rows.number[used], max(int(share * len(used)), 1), seed)]


def tried_decisions(
    rows: TrialRows,
    survey: Survey,
    trial: Trial,
    scaling: Scaling,
    terms: Mapping[WithoutGroups, tuple[Term, ...]] = NO_TERMS,
) -> tuple[FloatArray, Model]:
    """Decision values (n_held, n_outputs) of the held-out rows, in their order, and the model."""
    model = tried_model(rows, survey, trial, scaling, terms)
    decision = score_rows(model, rows.X[rows.held])[0].astype(ACC_DTYPE)
    settings = trial.settings
    if settings.task == "regression":
        transform = TargetTransform(settings.target_transform)
        value, target = transform.forward(decision)[:, 0], transform.forward(rows.target[rows.held])
        transform = fitted_transform(transform.name, value, target, rows.weight[rows.held])
        decision = transform.predicted(value)[:, None]
        known = rows.target[~rows.held].astype(ACC_DTYPE)
        decision = np.clip(decision, known.min(), known.max())
    return decision, model


def shape_of(model: Model) -> FloatArray:
    """What the cost of a model follows from, (8,): the share of rows in leaves with landmarks; of a mean row
    there the landmarks, the products, and the outputs that its leaf has rows of; the levels that a mean row
    walks down, by those of an even tree; whether it walks in double precision; nanoseconds of terms, and the
    number of their parts.
    """
    landmarks, products = np.diff(model.landmark_at), np.diff(model.pair_at)
    rows = np.where(landmarks > 0, np.maximum(model.leaf_rows, 0), 0).astype(ACC_DTYPE)
    present = model.beta.n_present.astype(float)
    works = float(rows.sum() / max(model.leaf_rows.sum(), 1))
    share = rows / max(rows.sum(), 1.0)
    walked = np.maximum(model.leaf_rows, 0) / max(model.leaf_rows.sum(), 1)
    levels = float(walked @ model.tree.leaf_levels(model.n_leaves)) if model.tree.n_nodes else 1.0
    uneven = levels / max(len(levels_for(model.n_leaves)), 1)
    terms = sum(term.cost for term in model.terms), sum(term.facts.get("number", 1) for term in model.terms)
    shape = [works, share @ landmarks, share @ products, share @ present]
    return np.array([*shape, uneven, float(walks_by_distances(model)), *terms])


BOOSTING, KERNEL = "HistGradientBoosting", "SVM pipeline"
LEAST_PROBABILITY = 1e-12


def _pipeline(machine: Any) -> Any:
    return make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), machine)


REFERENCES: dict[tuple[str, str], Callable[[], Any]] = {
    (BOOSTING, "classification"): lambda: HistGradientBoostingClassifier(random_state=0),
    (BOOSTING, "regression"): lambda: HistGradientBoostingRegressor(random_state=0),
    (KERNEL, "classification"): lambda: _pipeline(SVC(cache_size=200)),
    (KERNEL, "regression"): lambda: _pipeline(SVR(cache_size=200)),
}


def reference_decisions(
    rows: TrialRows, name: str, task: str, n_classes: int, most: int, seed: int
) -> FloatArray:
    """Decision values (n_held, n_outputs) of the held-out rows by a reference model of the other rows.

    most  rows that train it, at most
    """
    used = np.flatnonzero(~rows.held & rows.broad)
    rest = rows.take(used[thinned(rows.number[used], most, seed)])
    before, after = (X.astype(ACC_DTYPE) for X in (rest.X, rows.X[rows.held]))
    # Gradient boosting of scikit-learn fails on a feature without any value, every model without features.
    known = ~np.isnan(before).all(axis=0)
    before, after = (X[:, known] if known.any() else np.zeros((len(X), 1)) for X in (before, after))
    # Squares of large values overflow; none of the models minds the unit of a feature.
    unit = np.exp2(-np.frexp(np.nanmax(np.abs(before), axis=0, initial=0.0))[1])
    rest, X, model = replace(rest, X=unit * before), unit * after, REFERENCES[name, task]()
    step = "" if name == BOOSTING else f"{model.steps[-1][0]}__"
    weights = {f"{step}sample_weight": rest.weight / rest.weight.mean()}
    if task == "regression":
        target = rest.target.astype(ACC_DTYPE)
        centre, spread = float(target.mean()), float(target.std()) or 1.0
        model.fit(rest.X, (target - centre) / spread, **weights)
        return np.asarray(centre + spread * model.predict(X), ACC_DTYPE)[:, None]
    target = rest.target.astype(np.int64)
    present = np.unique(target)
    if len(present) < 2:
        scores = np.ones((len(X), 1))
    else:
        model.fit(rest.X, target, **weights)
        if name == BOOSTING:
            scores = np.log(np.maximum(model.predict_proba(X), LEAST_PROBABILITY))
        else:
            scores = model.decision_function(X)
            scores = np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
    every = np.full((len(X), n_classes), float(scores.min()) - 1.0)
    every[:, present] = scores
    return every if n_classes > 2 else every[:, 1:] - every[:, :1]
