"""How far scored rows are from the training rows.

shift      (m₁ − m₀) / √((s₀² + s₁²) / 2), the standardised difference of means of a feature (Austin,
           Balance diagnostics, Statistics in Medicine 28, 2009, eq. 1). From 0.8 on it is large
           (Cohen, Statistical Power Analysis, 1988).
sd_ratio   s₁ / s₀
spread_shift  ln(s₁ / s₀) in units in which a factor of 3 is as large as a shift of 0.8: it detects another
              unit of a
           feature whose mean is near 0, or a stuck sensor. 0 where a few rows with far values may explain it
           (`few_rows_explain`).
gap_shift  the standardised difference of the share of rows with a missing value, which is a mean of 0 and 1;
           only in models with missing values. Other means and deviations exclude missing values.
psi        Σ_b (p_b − q_b) ln(p_b / q_b), the population stability index of the leaves that rows fall into
           (Siddiqi, Credit Risk Scorecards, 2006). Above 0.25 it is large. Leaves of successive numbers,
           mostly neighbours in the tree, are merged into at most 20 bins of about equal training rows, fewer
           for few rows: without any drift psi is about (bins − 1) (1/n + 1/N) (Yurdakul, Statistical
           Properties of Population Stability Index, 2018), which is kept at 0.01. Each bin gets an extra half
           row, and none is empty. psi is also computed for the bins of features and outputs of the model
           (model/bins.py), unmerged
p          the level of a two-sample Kolmogorov–Smirnov test on those bins, which makes it conservative. A
           feature or output has drifted where psi is large and p is below 0.005 divided by the number of
           features and outputs (Bonferroni). Models of earlier versions have no bins: there large shifts
           count
beyond     rows below and above all training rows, by feature. With N training rows, k of n rows lie above
           all of them by chance with a probability of about (n / (n + N))^k

m₀, s₀, N are of training rows, m₁, s₁, n of scored ones; s is the standard deviation. Fewer than 100 rows are
not evaluated.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.compact_model import Model, Reference
from dcpred_tasks.model.moments import known_reference, scored_reference
from dcpred_tasks.result_fields import ABSENT
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.drift_fields import (
    Beyond,
    Compared,
    Drift,
    DriftThresholds,
    FeatureDrift,
    FeatureDrifts,
    GainedLeaf,
    LeafDrift,
)
from dcpred_tasks.scoring.drift_words import bins_in_words, value_in_words
from dcpred_tasks.scoring.relation_changes import changed_relations
from dcpred_tasks.scoring.statistics import Statistics

LARGE_SHIFT = 0.8
LARGE_PSI = 0.25
LARGE_SD_RATIO = 3.0
FEW_ROWS = 10  # a far value in so few rows may be chance
MOST_BINS = 20
PSI_BY_CHANCE = 0.01
LEAST_ROWS = 100
TOP = 10
LEVEL = 0.005  # error level of all tests together
LEVEL_BEYOND = 0.001
MOST_BEYOND = 100  # features that are listed
THRESHOLDS = DriftThresholds(LARGE_PSI, LARGE_SHIFT, LARGE_SD_RATIO, LEVEL)


def feature_shifts(training: Reference, scored: Reference) -> FloatArray:
    """The standardised difference of means of each feature: infinite of constants, 0 of absent ones."""
    gap = scored.mean - training.mean
    pooled = np.hypot(training.sd, scored.sd) / np.sqrt(2)
    # Constants go through single precision on their way here.
    same = np.abs(gap) <= 1e-6 * np.maximum(np.abs(training.mean), np.abs(scored.mean))
    absent = np.zeros(len(gap), bool)
    for reference in (training, scored):
        absent |= reference.gaps is not None and reference.gaps == 1.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where((pooled == 0) & same | absent, 0.0, gap / pooled)


def gap_shifts(training: Reference, scored: Reference) -> FloatArray:
    """The standardised difference of the missing share of each feature; 0 in models without any."""
    if training.gaps is None or scored.gaps is None:
        return np.zeros(len(training.mean))
    return feature_shifts(*(Reference(p, np.sqrt(p * (1 - p))) for p in (training.gaps, scored.gaps)))


def spread_shifts(training: Reference, scored: Reference, n_training: int, n_scored: int) -> FloatArray:
    """The logarithm of the ratio of standard deviations of each feature, in units of a shift; infinite where
    a feature no longer varies, or was a constant, and 0 where it is absent in training or now.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.log(scored.sd / training.sd) * (LARGE_SHIFT / np.log(LARGE_SD_RATIO))
    nothing = (training.sd == 0) & (scored.sd == 0)
    for reference in (training, scored):
        nothing |= reference.gaps is not None and reference.gaps == 1.0
    nothing |= few_rows_explain(training, scored, n_training, n_scored)
    return np.where(nothing, 0.0, ratio)


def few_rows_explain(
    training: Reference, scored: Reference, n_training: int, n_scored: int
) -> NDArray[np.bool_]:
    """Whether a few rows with a far value may explain the larger standard deviation, as of a rare flag that
    more rows have now, or none has: their number follows from the means, which they move.

    A share p of rows at a distance a moves the mean by p·a and has the variance p(1 − p)·a². It follows that
    p / (1 − p) = (difference of means / larger sd)². At least one training row must have such a distance, and
    among scored rows FEW_ROWS are chance. Scored rows farther than any of the training rows can be, √n
    standard deviations, do not count.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        odds = ((scored.mean - training.mean) / np.maximum(training.sd, scored.sd)) ** 2
        share = odds / (1 + odds)
        ratio = scored.sd / training.sd
        gone = (scored.sd == 0) & (share * n_training >= 1) & (share * n_scored < FEW_ROWS)
        near = (training.sd == 0) | (ratio**2 <= share * n_training)
        come = (ratio > 1) & (share * n_scored < FEW_ROWS) & near
    return np.asarray(gone | come)


def leaf_drift(training: IntArray, scored: IntArray) -> LeafDrift:
    """The drift of rows by leaf, int64 (n_leaves,) each; neither may be all 0."""
    n, total = int(scored.sum()), int(training.sum())
    pairs = n * total / (n + total)
    n_bins = min(max(int(1 + PSI_BY_CHANCE * pairs), 2), MOST_BINS, len(training))
    middle = np.cumsum(training) - training / 2
    bins = np.minimum((middle * (n_bins / total)).astype(int), n_bins - 1)
    p, q = (np.bincount(bins, weights=rows, minlength=n_bins) + 0.5 for rows in (scored, training))
    p, q = p / p.sum(), q / q.sum()
    psi = float(((p - q) * np.log(p / q)).sum())
    share, before = scored / n, training / total
    gained = [leaf for leaf in np.argsort(before - share, kind="stable")[:TOP] if share[leaf] > before[leaf]]
    return LeafDrift(
        psi=psi,
        psi_by_chance=(n_bins - 1) / pairs,
        n_bins=n_bins,
        large=bool(n >= LEAST_ROWS and psi > LARGE_PSI),
        gained=[GainedLeaf(int(leaf), float(share[leaf]), float(before[leaf])) for leaf in gained],
    )


@dataclass(frozen=True)
class Binned:
    """Scored rows in the bins of one feature or output, compared with training rows."""

    edges: FloatArray
    """Finite ones."""
    training: IntArray
    scored: IntArray
    """Rows by bin: below, between edges, above, missing."""

    @cached_property
    def psi(self) -> float:
        p, q = self.shares
        return float(((p - q) * np.log(p / q)).sum())

    @property
    def shares(self) -> tuple[FloatArray, FloatArray]:
        """Shares of scored rows and of training rows, with an extra half row in each bin."""
        used = (self.training > 0) | (self.scored > 0)
        p, q = (np.where(used, rows + 0.5, 1e-300) for rows in (self.scored, self.training))
        return p / p.sum(), q / q.sum()

    @cached_property
    def p_value(self) -> float:
        """The level of the two-sample Kolmogorov–Smirnov test (Stephens 1970)."""
        n, total = int(self.scored.sum()), int(self.training.sum())
        if not n or not total:
            return 1.0
        largest = np.abs(np.cumsum(self.scored / n) - np.cumsum(self.training / total)).max()
        root = np.sqrt(n * total / (n + total))
        size, j = (root + 0.12 + 0.11 / root) * largest, np.arange(1, 101)
        if size < 0.3:  # Here the sum does not converge, and the level is 1.
            return 1.0
        return float(np.clip(2 * ((-1.0) ** (j - 1) * np.exp(-2 * (j * size) ** 2)).sum(), 0, 1))


def binned(bins: Bins, scored: IntArray) -> list[Binned]:
    """The bins by feature, then by output."""
    each = zip(bins.edges, bins.slots, strict=True)
    return [Binned(edges[:-1], bins.rows[slots], scored[slots]) for edges, slots in each]


def describe_drift(
    model: Model,
    gathered: Statistics,
    names: Sequence[str] | None,
    schema: Schema | None,
    ignored: Collection[int] = (),
) -> Drift:
    """The drift of scored rows from the training rows of a model with these names of features. Features
    `ignored` are omitted but for their largest index.
    """
    outputs = [f"score of {name}" for name in model.classes[-model.n_outputs :]] or ["prediction"]
    compared = *(model.scaling.labels(names) or [ABSENT] * model.n_features), *outputs
    training, leaves = known_reference(model), (model.leaf_rows, gathered.leaf_rows)
    scored = scored_reference(model, gathered.moments, training)
    result = drift(training, scored, *leaves, model.bins, gathered.bin_rows, ignored, names, compared, schema)
    if model.bins is None or model.relations is None:
        return result
    each = binned(model.bins, gathered.bin_rows)
    far = {j for j, rows in enumerate(each) if _compared(rows, LEVEL / len(each)).large}
    counts = gathered.bin_rows, gathered.rank_sums
    features = names or [f"feature {j}" for j in range(model.n_features)]
    changed = changed_relations(model.bins, model.relations, *counts, features, {*ignored, *far})
    return result if changed is None else replace(result, large=True, relations=changed)


def drift(
    training: Reference | None,
    scored: Reference,
    trained_rows: IntArray,
    scored_rows: IntArray,
    bins: Bins | None = None,
    bin_rows: IntArray | None = None,
    ignored: Collection[int] = (),
    names: Sequence[str] | None = None,
    compared: Sequence[str] | None = None,
    schema: Schema | None = None,
) -> Drift:
    """`training` and `bins` are None for models of older formats, `*_rows` are by leaf, `bin_rows` scored
    rows by bin. `names` are of features, and `compared` those in comparisons of features, then of outputs.

    `psi` is the largest stability index of leaves, and of features and outputs with a significant test.
    `shift` is None where a constant changed, and `gap_shift` where the missing share changed from 0 or 1 to
    the other; `sd_ratio` is None where training rows were all alike, and `spread_shift` where rows are all
    alike either now or in training.
    """
    n = int(scored_rows.sum())
    if n == 0 or trained_rows.sum() == 0:
        return Drift(n, large=False)
    leaves = leaf_drift(trained_rows, scored_rows)
    result = Drift(n, leaves.large, THRESHOLDS, leaves.psi, leaves)
    if training is None:
        return result
    training, scored = _without_rounding(training), _without_rounding(scored, 1e-9 * training.sd)
    spread = spread_shifts(training, scored, int(trained_rows.sum()), n)
    shifts = feature_shifts(training, scored), gap_shifts(training, scored), spread
    most = np.max(np.abs(shifts), axis=0)
    most[list(ignored)] = 0.0
    by_shift = [j for j in np.argsort(-most, kind="stable").tolist() if j not in ignored][:TOP]
    if bins is None or bin_rows is None or not bin_rows.any():
        far = int((most >= LARGE_SHIFT).sum()) if n >= LEAST_ROWS else 0
        named = {j: Compared(name=_name(compared, j)) for j in by_shift}
        top = [_feature(j, shifts, training, scored, named[j]) for j in by_shift]
        return replace(result, large=leaves.large or far > 0, features=FeatureDrifts(far, top))
    each = binned(bins, bin_rows)
    comparisons = [_compared(rows, LEVEL / len(each)) for rows in each]
    ignored_psi = [comparisons[j].psi if comparisons[j].differs else 0.0 for j in ignored]
    for j in ignored:
        comparisons[j] = replace(comparisons[j], psi=0.0, differs=False, large=False)
    of_features, of_outputs = range(len(most)), range(len(most), len(each))
    order = sorted(of_features, key=lambda j: (not comparisons[j].differs, -comparisons[j].psi))
    order = [j for j in order if j not in ignored][:TOP]
    order += [j for j in by_shift[:1] if j not in order]  # `max_shift` looks at it.
    for j in (*order, *of_outputs):
        in_words = bins_in_words(each[j].edges, each[j].scored, each[j].training, schema, j)
        comparisons[j] = replace(comparisons[j], name=_name(compared, j), bins=in_words)
    top = [_feature(j, shifts, training, scored, comparisons[j]) for j in order]
    return replace(
        result,
        large=leaves.large or any(each.large for each in comparisons),
        psi=max([leaves.psi, *(each.psi for each in comparisons if each.differs)]),
        features=FeatureDrifts(sum(comparisons[j].large for j in of_features), top),
        ignored_psi=max(ignored_psi, default=ABSENT),
        scores=[comparisons[j] for j in of_outputs],
        beyond=_beyond(each[: len(most)], int(trained_rows.sum()), names, schema),
    )


def _name(names: Sequence[str] | None, number: int) -> str:
    return ABSENT if names is None else names[number]


def _compared(rows: Binned, level: float) -> Compared:
    n = int(rows.scored.sum())
    differs = n >= LEAST_ROWS and rows.p_value < level
    large = differs and rows.psi > LARGE_PSI
    return Compared(rows.psi, rows.p_value, n, int(rows.training.sum()), differs, large)


def _beyond(
    each: list[Binned], n_training: int, names: Sequence[str] | None, schema: Schema | None
) -> list[Beyond]:
    """The features with rows below or above all training rows, those with most rows first."""
    features = []
    for j, rows in enumerate(each):
        n, below, above = (int(number) for number in (rows.scored.sum(), rows.scored[0], rows.scored[-2]))
        if below + above and len(rows.edges):
            chance = (n / (n + n_training)) ** max(below, above) >= LEVEL_BEYOND / len(each)
            limits = float(rows.edges[0]), float(rows.edges[-1])
            texts = (value_in_words(limit, schema, j) for limit in limits)
            features.append(Beyond(j, n, below, above, *limits, bool(chance), _name(names, j), *texts))
    return sorted(features, key=lambda feature: -feature.below - feature.above)[:MOST_BEYOND]


def _without_rounding(reference: Reference, most: FloatArray | float = 0.0) -> Reference:
    """A constant has the deviation 0, and not that of the rounding of its mean."""
    still = reference.sd <= np.maximum(1e-12 * np.abs(reference.mean), most)
    return Reference(reference.mean, np.where(still, 0.0, reference.sd), reference.gaps)


def _feature(
    j: int, shifts: tuple[FloatArray, ...], training: Reference, scored: Reference, compared: Compared
) -> FeatureDrift:
    shift, gap_shift, spread = (float(each[j]) if np.isfinite(each[j]) else None for each in shifts)
    gaps = (ABSENT,) * 3
    if training.gaps is not None and scored.gaps is not None:
        gaps = gap_shift, float(scored.gaps[j]), float(training.gaps[j])
    return FeatureDrift(
        feature=j,
        shift=shift,
        sd_ratio=float(scored.sd[j] / training.sd[j]) if training.sd[j] > 0 else None,
        mean=float(scored.mean[j]),
        training_mean=float(training.mean[j]),
        spread_shift=spread,
        sd=float(scored.sd[j]),
        training_sd=float(training.sd[j]),
        gap_shift=gaps[0],
        gaps=gaps[1],
        training_gaps=gaps[2],
        **vars(compared),
    )
