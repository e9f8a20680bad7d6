"""Map features and indicate missing values, partition rows by the tree, and build the model of its leaves."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import LeafModels, Model, Reference, Support
from dcpred_tasks.model.feature_map import MOST_KNOTS, Clip, FeatureMap, Knots
from dcpred_tasks.model.kernels import BY_NAME, Kernel, Sum
from dcpred_tasks.model.label_rule import check_two_classes
from dcpred_tasks.model.leaf_arrays import Background, join_leaves, kept_rows
from dcpred_tasks.model.leaf_model import COMPACT
from dcpred_tasks.model.moments import feature_reference
from dcpred_tasks.model.one_hot import Coding, coded_columns
from dcpred_tasks.model.scaling import LEARNED, STRIP_NUMBERS, Scaling, column_sums, fit_scaling, row_strips
from dcpred_tasks.model.target_transform import NO_TRANSFORM, TargetTransform
from dcpred_tasks.model.term import Term
from dcpred_tasks.model.tree import Router
from dcpred_tasks.model.uncertainty import Uncertainty
from dcpred_tasks.process import one_thread
from dcpred_tasks.training.categories import choose_codes, most_frequent
from dcpred_tasks.training.leaf import FittedLeaf, Kernels
from dcpred_tasks.training.learned_scaling import REPETITIONS, learn_metric
from dcpred_tasks.training.losses import weighted_quantile, weighted_variance
from dcpred_tasks.training.settings import ADDITIVE, AUTO, INDICATE, NONE, Settings, numbers
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.tree_fitting import Node, fit_tree, levels_for

ROWS_PER_LEAF = 1_000
MAX_AUTO_LEAVES = 4_096


@dataclass(frozen=True)
class Division:
    """How space is divided, learned from a sample: scaling, first tree, and the kernels in scaled features.
    `reference` holds the means and standard deviations of the sample's features.
    """

    scaling: Scaling
    root: Node | int
    kernels: Kernels
    reference: Reference


def learn_scaling(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
    repetitions: int = REPETITIONS,
    otherwise: Scaling | None = None,
) -> Scaling:
    """The scaling of the settings, with the columns of features; learned ones use the targets.

    sample  (n, n_features), raw rows drawn by `sampling.drawn`, in the order of their numbers
    target  (n,), class numbers or values
    weight  float64 (n,), > 0, sample weights
    otherwise  the learned scaling of all rows, where these are some of them and show nothing to learn
    """
    coding = choose_columns(sample, target, weight, survey, settings)
    limits = survey.minimum, survey.maximum
    if settings.scaling in LEARNED:
        sharpen = settings.scaling == "sharpened"
        given = sample, target, weight, *limits, settings.task, settings.seed, sharpen, coding
        metric = learn_metric(*given, repetitions, None if otherwise is None else otherwise.factor)
        metric = metric.sharpened or metric
        scaling = Scaling(metric.shift, metric.factor, coding)
    else:
        scaling = fit_scaling(settings.scaling, sample, weight, *limits, coding)
    check_scaled(scaling, survey)
    return scaling


def divide(
    scaling: Scaling, sample: NDArray[np.generic], weight: FloatArray, survey: Survey, settings: Settings
) -> Division:
    """The tree and the kernels in scaled features."""
    rows = scaling(sample)
    n_leaves = first_leaves(survey.n_used, settings)
    root = fit_tree(rows, weight, levels_for(n_leaves), survey.n_used, settings.min_leaf_rows, settings.seed)
    return Division(scaling, root, kernels_of(rows, weight, settings), feature_reference(scaling, sample))


def first_leaves(n_rows: int, settings: Settings) -> int:
    """The number of leaves of the first tree."""
    return settings.n_leaves or (auto_leaves(n_rows) if settings.landmarks else 1)


def auto_leaves(n_rows: int) -> int:
    """The number of leaves of so many rows where no setting names it."""
    return min(max(n_rows // ROWS_PER_LEAF, 1), MAX_AUTO_LEAVES)


def check_scaled(scaling: Scaling, survey: Survey) -> None:
    """Raise DataError where scaled rows exceed single precision, by the extremes of each feature."""
    with np.errstate(over="ignore"):
        fits = np.isfinite(scaling(np.stack([survey.minimum, survey.maximum]))).all(axis=0)
    if not fits.all():
        column = int(scaling.source[np.flatnonzero(~fits)[0]])
        raise DataError(
            f"Cannot train on column {column} of X: its range from {survey.minimum[column]:g} to"
            f" {survey.maximum[column]:g} is too large for single precision (infinity after scaling). Set"
            " scaling to standard or minmax, or rescale the column."
        )


def kernels_of(rows: SingleArray, weight: FloatArray, settings: Settings) -> Kernels:
    """γ "scale" is 1 where the scaling was learned, for that has the width of the kernel in it, else
    1 / (n_features × variance) as in scikit-learn. "median" gets the same, until each leaf replaces it.
    """
    gamma = kernel_unit(rows, weight, settings) if isinstance(settings.gamma, str) else settings.gamma
    return Kernels(
        local=Kernel.from_settings(settings, gamma),
        head=Kernel.from_settings(settings, settings.compact_gamma or gamma),
    )


def kernel_unit(rows: SingleArray, weight: FloatArray, settings: Settings) -> float:
    """γ "scale" in the columns of these scaled rows."""
    if settings.scaling in LEARNED:
        if BY_NAME[settings.kernel].sum == Sum.SQUARES:
            return 1.0
        rows = rows[:, rows.any(axis=0)]  # Features that the scaling omits are 0 in every row.
    return _scale(rows, weight)


def _scale(rows: SingleArray, weight: FloatArray) -> float:
    if not rows.size:
        return 1.0
    n_columns = rows.shape[1]
    # Never one column of several: of one NumPy sums numbers in pairs.
    parts = np.array_split(np.arange(n_columns), max(min(n_columns // 2, rows.size // STRIP_NUMBERS), 1))

    def means(power: int) -> FloatArray:
        powers = (rows[:, part[0] : part[-1] + 1].astype(np.float64) ** power for part in parts)
        return np.concatenate([np.average(columns, axis=0, weights=weight) for columns in powers])

    moments = [means(power).mean() for power in (1, 2)]
    variance = float(moments[1] - moments[0] ** 2)
    return 1.0 / (rows.shape[1] * variance) if variance > 1e-12 * moments[1] else 1.0


def n_outputs(n_classes: int) -> int:
    """1 for regression (no classes) and for two classes."""
    return n_classes if n_classes > 2 else 1


def row_weights(
    target: NDArray[np.generic], weight: FloatArray | None, class_factors: FloatArray
) -> FloatArray:
    """Sample weight × class weight."""
    weights = np.ones(len(target)) if weight is None else weight.astype(np.float64)
    return weights * class_factors[target.astype(np.int64)] if len(class_factors) else weights


def balanced_factors(survey: Survey) -> FloatArray:
    """Class weights of scikit-learn's "balanced": n / (n_classes × count)."""
    return np.asarray(survey.class_weights.sum() / (len(survey.classes) * survey.class_weights))


def class_factors(survey: Survey, settings: Settings) -> FloatArray:
    """Class weights of the settings; empty where all are 1. Raises DataError."""
    check_two_classes(settings.threshold, len(survey.classes))
    weighed = settings.class_weight == "balanced" and len(survey.classes) > 0
    return balanced_factors(survey) if weighed else np.empty(0)


def assemble(
    leaves: Sequence[FittedLeaf],
    leaf_rows: IntArray,
    tree: Router,
    scaling: Scaling,
    kernels: Kernels,
    classes: tuple[int | float | str | bool, ...],
    settings: Settings,
    reference: Reference | None = None,
    uncertainty: Uncertainty | None = None,
    target: TargetTransform = NO_TRANSFORM,
    leaf_model: str | None = None,
    terms: tuple[Term, ...] = (),
) -> Model:
    """Build a model from leaves in the order of their numbers; leaf_rows are the training rows of each. A
    model with uncertainty stores some rows of each leaf.

    leaf_model  the name of their leaf models; None: that of the settings
    """
    leaf_model = leaf_model or settings.leaf_model
    arrays: dict[str, Any] = join_leaves(Model, leaves)
    support: dict[str, Any] = join_leaves(Support, leaves) if settings.keep_support_vectors else {}
    others: dict[str, Any] = join_leaves(LeafModels, leaves) if leaf_model != COMPACT else {}
    background: dict[str, Any] = {}
    if uncertainty is not None:
        most = kept_rows(len(leaves), len(scaling.shift))
        limited = [replace(leaf, own_rows=leaf.own_rows[:most]) for leaf in leaves]
        background = join_leaves(Background, limited)
    return Model(
        **arrays,
        task=settings.task,
        classes=classes,
        kernel=kernels.head,
        triangle_bound=settings.triangle_bound,
        scaling=scaling,
        tree=tree,
        leaf_rows=leaf_rows.astype(INDEX_DTYPE),
        local_kernel=kernels.local,
        support=Support(**support) if support else None,
        reference=reference,
        leaf_models=LeafModels(leaf_model, **others) if others else None,
        uncertainty=uncertainty,
        background=Background(**background) if background else None,
        target=target,
        terms=terms,
    )


# Successively wider ranges, as quantiles: the first that is not 0 is the unit of a feature.
RANGES = ((0.25, 0.75), (0.1, 0.9), (0.05, 0.95), (0.01, 0.99), (0.001, 0.999))
MOST_ROWS = 20_000  # rows of a sample that quantiles are taken of
LEAST_APART = 1e-30  # between knots, in units: a slope between closer ones is infinite in single precision
MOST_POINTS = 400  # points of a curve, which has at most 255 steps
MOST_CURVE_NUMBERS = 2_000_000  # rows × features × outputs that an additive model is fitted to
LEAST_CONTRIBUTION = 1e-12  # variance of a mapped feature, as a share of the largest one
ROUNDING = 1e-9  # differences of a curve, as a share of its values
FEWEST_OF_CLASS = 20  # rows of a class that an additive model is fitted to
FARTHEST = 1e30  # units from the median to an extreme value: single precision holds no more


def with_map(
    coding: Coding | None,
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
) -> Coding | None:
    """The columns of `coding` (None: columns are the features), with a map of the features that are not
    one-hot encoded. A missing value becomes the mean of the mapped values, or as much as it contributes.

    sample  (n, n_features), real and finite, but for NaN where `coding` knows missing values
    target  (n,), class numbers or values
    weight  float64 (n,), > 0
    """
    n, seen = sample.shape[1], _drawn(len(sample), MOST_ROWS, settings.seed)
    sample, target, weight = sample[seen], target[seen], weight[seen]
    amounts = np.ones(n, bool) if coding is None else ~coding.is_coded
    absent = np.full(n, np.nan)  # values of missing ones
    if settings.feature_map == ADDITIVE:
        feature_map, absent = additive_map(sample, target, weight, survey, amounts, settings)
    else:
        feature_map = fit_map(sample, weight, survey, amounts, settings.feature_map)
    if feature_map is None:
        return coding
    if coding is None:
        return coded_columns(n, {}, feature_map=feature_map)
    if coding.gap is not None:
        for f in feature_map.features:
            values, weights = _values(sample, weight, f)
            mean = np.average(_mapped(feature_map, f, values), weights=weights) if len(values) else 0.0
            absent[f] = mean if np.isnan(absent[f]) else absent[f]
        gap = np.where(feature_map.rate > 0, feature_map.raw(np.nan_to_num(absent)[None])[0], coding.gap)
        coding = replace(coding, gap=gap)
    return replace(coding, map=feature_map)


def _drawn(n_rows: int, most: int, seed: int) -> IntArray | slice:
    """Some rows, ascending: every n-th one might be of one class."""
    if n_rows <= most:
        return slice(None)
    return np.sort(np.random.default_rng(seed).permutation(n_rows)[:most])


def fit_map(
    sample: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    amounts: NDArray[np.bool_],
    name: str,
) -> FeatureMap | None:
    """The map of the features in `amounts`, bool (n_features,), that vary in the sample; None without one.
    Target encodings are mapped, too, but never by quantiles, which would separate the means of one category.
    """
    quantiles = name == "quantile"
    maps: dict[int, tuple[float, float, KnotArrays | None]] = {}
    for f, values, weights, middle, inverse in _units(sample, weight, survey, amounts):
        u = ((values - middle) * inverse).astype(MODEL_DTYPE)
        maps[f] = middle, inverse, _knots(u, weights, f in survey.means) if quantiles else None
    return _joined(maps, sample, weight, name)


def additive_map(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    amounts: NDArray[np.bool_],
    settings: Settings,
) -> tuple[FeatureMap | None, FloatArray]:
    """The map of features to what they contribute to an additive model of the target, f(x) = Σ f_j(x_j): by
    gradient boosting of trees of one feature each, as in generalized additive models (Lou, Caruana, Gehrke,
    2012). Of several classes, contributions are those to the direction in which they vary most. Their sum has
    variance 1 if they are independent; features that contribute nothing are not mapped.

    Returns also the mapped value of a missing one, float64 (n_features,); NaN where no row has one.
    """
    predict = _additive_model(sample, target, weight, settings)
    curves = dict[int, _Curve]()
    for f, values, weights, middle, inverse in (
        _units(sample, weight, survey, amounts) if predict is not None else ()
    ):
        points = np.unique(values)
        points = points[np.unique(np.linspace(0, len(points) - 1, MOST_POINTS).astype(np.int64))]
        rows = np.zeros((len(points) + 1, sample.shape[1]))
        rows[:, f] = np.append(points, np.nan if len(values) < len(sample) else points[0])
        assert predict is not None
        at = np.searchsorted(points, values, side="right") - 1
        share = np.bincount(at, weights, len(points)) / weights.sum()
        heights = _direction(predict(rows), share)
        variance = float(share @ heights[:-1] ** 2)
        u = ((points - middle) * inverse).astype(MODEL_DTYPE)
        absent = float(heights[-1]) if len(values) < len(sample) else np.nan
        curves[f] = _Curve(middle, inverse, u, heights[:-1], share, absent, variance)
    largest = max((curve.variance for curve in curves.values()), default=0.0)
    curves = {f: curve for f, curve in curves.items() if curve.variance > LEAST_CONTRIBUTION * largest}
    unit = 1.0 / np.sqrt(sum(curve.variance for curve in curves.values()) or 1.0)
    maps = {
        f: (curve.middle, curve.inverse, _steps(curve.u, unit * curve.s, curve.share))
        for f, curve in curves.items()
    }
    absent_values = np.full(sample.shape[1], np.nan)
    for f, curve in curves.items():
        absent_values[f] = unit * curve.absent
    return _joined(maps, sample, weight, "additive"), absent_values


@dataclass(frozen=True)
class _Curve:
    """The contributions of a feature: s at points u, which have such shares of all weight, and where it is
    missing.
    """

    middle: float
    inverse: float
    u: SingleArray
    s: FloatArray
    share: FloatArray
    absent: float
    variance: float


def _direction(curve: FloatArray, share: FloatArray) -> FloatArray:
    """Contributions (n + 1,) from those to each output, (n + 1, n_outputs), along the direction in which they
    vary most, with the mean 0; 0 where they differ by rounding only.

    share  (n,), of weight at each point but the last one, which is that of a missing value
    """
    level = np.abs(curve).max()
    curve = curve - share @ curve[:-1]
    if not np.abs(curve).max() > ROUNDING * level:
        return np.zeros(len(curve))
    if curve.shape[1] > 1:
        _, _, directions = np.linalg.svd(np.sqrt(share)[:, None] * curve[:-1], full_matrices=False)
        curve = curve @ (directions[:1].T * np.sign(directions[0, np.abs(directions[0]).argmax()]))
    return np.asarray(curve[:, 0])


def _additive_model(
    sample: NDArray[np.generic], target: NDArray[np.generic], weight: FloatArray, settings: Settings
) -> Callable[[FloatArray], FloatArray] | None:
    """Predictions (n, n_outputs) of an additive model; None where the target does not vary."""
    regression = settings.task == "regression"
    outputs = 1 if regression else n_outputs(len(np.unique(target)))
    most = max(MOST_CURVE_NUMBERS // (sample.shape[1] * outputs), FEWEST_OF_CLASS)
    seen = _drawn(len(sample), most, settings.seed)
    sample, target, weight = sample[seen], target[seen], weight[seen]
    if not regression:  # Some rows of each class decide when to stop.
        counts = np.bincount(target.astype(np.int64))
        often = counts[target.astype(np.int64)] >= FEWEST_OF_CLASS
        sample, target, weight = sample[often], target[often], weight[often]
    if len(target) < FEWEST_OF_CLASS or (target == target[0]).all():
        return None
    kind = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    model = kind(
        interaction_cst="no_interactions",
        max_leaf_nodes=4,
        max_iter=300,
        min_samples_leaf=int(np.clip(len(target) // 20, 3, 20)),
        early_stopping=True,
        random_state=settings.seed,
    )
    X = sample.astype(ACC_DTYPE)
    X[:, np.isnan(X).all(axis=0)] = 0.0
    unit = np.exp2(-np.frexp(np.nanmax(np.abs(X), axis=0))[1])  # Thresholds between large values overflow.
    weights = None if (weight == weight[0]).all() else weight / weight.mean()  # Weighted quantiles take long.
    y = target.astype(ACC_DTYPE)
    centre, spread = (float(y.mean()), float(y.std()) or 1.0) if regression else (0.0, 1.0)
    with one_thread():  # Sums of several threads are rounded differently.
        model.fit(unit * X, (y - centre) / spread, sample_weight=weights)

    def predict(rows: FloatArray) -> FloatArray:
        with one_thread():
            out = model.predict(unit * rows) if regression else model.decision_function(unit * rows)
        return np.asarray(out, ACC_DTYPE).reshape(len(rows), -1)

    return predict


KnotArrays: TypeAlias = tuple[SingleArray, SingleArray]


def _units(
    sample: NDArray[np.generic], weight: FloatArray, survey: Survey, amounts: NDArray[np.bool_]
) -> Iterator[tuple[int, FloatArray, FloatArray, float, float]]:
    """The features that vary, each with its sorted values, their weights, their median, and the rate of the
    map.
    """
    for f in map(int, np.flatnonzero(amounts)):
        values, weights = _values(sample, weight, f)
        if len(values) and values[0] != values[-1]:
            middle, inverse = _unit(values, weights, float(survey.minimum[f]), float(survey.maximum[f]))
            if inverse:
                yield f, values, weights, middle, inverse


def _joined(
    maps: Mapping[int, tuple[float, float, KnotArrays | None]],
    sample: NDArray[np.generic],
    weight: FloatArray,
    name: str,
) -> FeatureMap | None:
    """One map of several features; None without features."""
    n = sample.shape[1]
    if not maps:
        return None
    centre, rate, sd = np.zeros((3, n))
    for f, (middle, inverse, knots) in maps.items():
        values, weights = _values(sample, weight, f)
        mapped = _of_one(middle, inverse, knots, name)(values[:, None])[:, 0].astype(ACC_DTYPE)
        centre[f], rate[f], sd[f] = middle, inverse, np.sqrt(weighted_variance(mapped, weights))
    parts = [maps[f][2] for f in sorted(maps)]
    some = [knots for knots in parts if knots is not None]
    if not some:
        return Clip(centre, rate, sd)
    sizes = np.zeros(n, INDEX_DTYPE)
    sizes[sorted(maps)] = [len(knot) for knot, _ in some]
    knot, value = (np.concatenate(part) for part in zip(*some, strict=True))
    at = np.append(0, np.cumsum(sizes)).astype(INDEX_DTYPE)
    return Knots(centre, rate, sd, at, knot, value, name)


def _values(sample: NDArray[np.generic], weight: FloatArray, feature: int) -> tuple[FloatArray, FloatArray]:
    """The values of a feature that are not missing, float64, ascending, and their weights."""
    column = sample[:, feature].astype(ACC_DTYPE)
    order = np.argsort(column, kind="stable")[: np.count_nonzero(~np.isnan(column))]
    return column[order], weight[order]


def _of_one(centre: float, rate: float, knots: KnotArrays | None, name: str) -> FeatureMap:
    """The map of a single feature."""
    plain = np.array([centre]), np.array([rate]), np.zeros(1)
    if knots is None:
        return Clip(*plain)
    return Knots(*plain, np.array([0, len(knots[0])], INDEX_DTYPE), *knots, name)


def _mapped(feature_map: FeatureMap, feature: int, values: FloatArray) -> FloatArray:
    """Values of a feature as a map has them."""
    u = (values[:, None] - feature_map.centre[feature]) * feature_map.rate[feature]
    return feature_map.mapped(u.astype(MODEL_DTYPE), np.array([feature]))[:, 0].astype(ACC_DTYPE)


def _unit(values: FloatArray, weight: FloatArray, low: float, high: float) -> tuple[float, float]:
    """The median of sorted values, and 1 / the interquartile range; of a wider range where that is 0, or so
    small that single precision does not hold an extreme value in its units. The rate is 0 where no range is
    wide enough.

    low, high  limits of all rows
    """

    def quantile(share: float) -> float:
        return weighted_quantile(values, weight, share)

    middle = quantile(0.5)
    with np.errstate(over="ignore"):
        farthest = max(high - middle, middle - low)
        for width in [*(quantile(b) - quantile(a) for a, b in RANGES), high - low]:
            rate = 1.0 / width if 0 < width < np.inf else 0.0
            if 0 < rate < np.inf and farthest * rate <= FARTHEST:
                return middle, rate
    return middle, 0.0


def _knots(u: SingleArray, weight: FloatArray, linear: bool) -> tuple[SingleArray, SingleArray]:
    """At most 63 quantiles of sorted values, and shares of values below plus half of the equal ones."""
    points, which = np.unique(u, return_inverse=True)
    sizes = np.bincount(which, weight / weight.sum())
    below = np.cumsum(sizes)
    share = below - sizes / 2
    if linear:
        picked = np.unique([0, len(points) - 1])
    elif len(points) <= MOST_KNOTS:
        picked = np.arange(len(points))
    else:
        at = np.searchsorted(below, np.linspace(0, 1, MOST_KNOTS) * (1 - 1e-12))
        picked = np.unique(np.append(at, len(points) - 1))
    apart = np.append(np.inf, np.diff(points[picked].astype(ACC_DTYPE))) > LEAST_APART
    picked = picked[apart]
    return points[picked], share[picked].astype(MODEL_DTYPE)


def _steps(u: SingleArray, curve: FloatArray, share: FloatArray) -> KnotArrays:
    """At most 63 knots of a curve of steps: the ends of its runs of equal values. Of more runs, neighbours
    that differ least are joined (Ward, 1963).

    u       float32 (n,), ascending points
    curve   float64 (n,), values there
    share   (n,), > 0, weight of each point
    """
    u, first = np.unique(u, return_index=True)
    equal = 1e-9 * np.ptp(curve)
    apart = np.diff(u.astype(ACC_DTYPE), prepend=-np.inf) > LEAST_APART
    starts = [0]
    for i in first[apart]:
        if abs(curve[i] - curve[starts[-1]]) > equal:
            starts.append(int(i))
    size = np.add.reduceat(share.astype(ACC_DTYPE), starts)
    mean = np.add.reduceat(share * curve, starts) / size
    while len(starts) > MOST_KNOTS // 2:
        i = int((size[:-1] * size[1:] / (size[:-1] + size[1:]) * np.diff(mean) ** 2).argmin())
        mean[i] = (size[i] * mean[i] + size[i + 1] * mean[i + 1]) / (size[i] + size[i + 1])
        size[i] += size[i + 1]
        size, mean = np.delete(size, i + 1), np.delete(mean, i + 1)
        del starts[i + 1]
    begins = np.searchsorted(first, starts)
    ends = np.append(begins[1:], len(u)) - 1
    at, value = np.stack([begins, ends], axis=1).ravel(), np.repeat(mean, 2)
    apart = np.diff(u[at].astype(ACC_DTYPE), prepend=-np.inf) > LEAST_APART
    return u[at][apart], value[apart].astype(MODEL_DTYPE)


def choose_columns(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
) -> Coding | None:
    """The columns of the settings; None where columns are the features, and NaN is a bad value.

    sample  (n, n_features), raw rows in the order of their numbers
    target  (n,), class numbers or values
    weight  float64 (n,), > 0, sample weights
    survey  of all rows

    Raises SettingsError for a feature that cannot be one-hot encoded.
    """
    codes = choose_codes(sample, settings, weight)
    coding = coded_columns(sample.shape[1], codes, *_missing_values(codes, sample, weight, survey, settings))
    if settings.feature_map == NONE:
        return coding
    return with_map(coding, sample, target, weight, survey, settings)


def _missing_values(
    codes: Iterable[int], sample: NDArray[np.generic], weight: FloatArray, survey: Survey, settings: Settings
) -> tuple[FloatArray | None, list[int]]:
    """The raw value that replaces a missing one in each feature, None where NaN is a bad value, and the
    features with a missing indicator.

    codes  the one-hot encoded features
    """
    if not knows_gaps(survey, settings):
        return None, []
    value = middle_values(sample, weight, survey)
    for f in codes:
        value[f] = most_frequent(sample[:, f], weight)
    some = (survey.gaps > 0) & (survey.gaps < survey.n_used)
    if settings.missing in (AUTO, INDICATE):
        return value, np.flatnonzero(some).tolist()
    return value, [f for f in numbers(settings.missing) if some[f]]


def knows_gaps(survey: Survey, settings: Settings) -> bool:
    """Whether a model of these rows takes NaN for a value."""
    if settings.missing == AUTO:
        return bool(survey.gaps.any())
    return settings.missing != "refuse"


def middle_values(sample: NDArray[np.generic], weight: FloatArray, survey: Survey) -> FloatArray:
    """The weighted mean of each feature over sampled rows that have it, else the middle, else 0."""
    rows = np.ascontiguousarray(sample)  # The order in memory decides how sums are rounded.
    low, high = survey.minimum / 2, survey.maximum / 2  # No difference of halves overflows.
    strips = row_strips(*rows.shape)

    def there(strip: slice) -> NDArray[np.bool_]:
        return ~np.isnan(rows[strip]) if rows.dtype.kind == "f" else np.ones(rows[strip].shape, bool)

    def moved(strip: slice) -> FloatArray:
        """A constant feature stays one: differences from its least value are exactly 0."""
        from_least = rows[strip].astype(ACC_DTYPE) / 2 - low
        return np.where(there(strip), weight[strip, None] * from_least, 0.0)

    total = column_sums(weight[strip, None] * there(strip) for strip in strips)
    sums = column_sums(moved(strip) for strip in strips)
    mean = np.where(total > 0, low + sums / np.where(total > 0, total, 1.0), (low + high) / 2)
    return np.where(np.isnan(mean), 0.0, np.clip(2 * mean, survey.minimum, survey.maximum))
