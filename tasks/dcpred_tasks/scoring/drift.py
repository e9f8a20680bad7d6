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

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.compact_model import Reference

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


@dataclass(frozen=True)
class Occupancy:
    """The distribution of scored rows over leaves, compared with training rows."""

    psi: float
    """Population stability index, in nats."""
    by_chance: float
    """The expected psi without drift."""
    n_bins: int
    """The number of bins of merged leaves."""


def feature_shifts(training: Reference, scored: Reference) -> FloatArray:
    """The standardised difference of means of each feature: infinite of constants, 0 of absent ones."""
    gap = scored.mean - training.mean
    pooled = np.hypot(training.sd, scored.sd) / np.sqrt(2)
    # Constants go through single precision on their way here.
    same = np.abs(gap) <= 1e-6 * np.maximum(np.abs(training.mean), np.abs(scored.mean))
    absent = np.zeros(len(gap), bool)
    for one in (training, scored):
        absent |= one.gaps is not None and one.gaps == 1.0
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
    for one in (training, scored):
        nothing |= one.gaps is not None and one.gaps == 1.0
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


def leaf_occupancy(training: IntArray, scored: IntArray) -> Occupancy:
    """The occupancy of leaves from rows by leaf, int64 (n_leaves,) each; neither may be all 0."""
    n, total = int(scored.sum()), int(training.sum())
    pairs = n * total / (n + total)
    n_bins = min(max(int(1 + PSI_BY_CHANCE * pairs), 2), MOST_BINS, len(training))
    middle = np.cumsum(training) - training / 2
    bins = np.minimum((middle * (n_bins / total)).astype(int), n_bins - 1)
    p, q = (np.bincount(bins, weights=rows, minlength=n_bins) + 0.5 for rows in (scored, training))
    p, q = p / p.sum(), q / q.sum()
    psi = float(((p - q) * np.log(p / q)).sum())
    return Occupancy(psi, (n_bins - 1) / pairs, n_bins)


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
    return [Binned(edges[:-1], bins.rows[own], scored[own]) for edges, own in each]


def drift(
    training: Reference | None,
    scored: Reference,
    trained_rows: IntArray,
    scored_rows: IntArray,
    bins: Bins | None = None,
    bin_rows: IntArray | None = None,
    ignored: Collection[int] = (),
) -> dict[str, Any]:
    """The drift for the manifest. `training` and `bins` are None for models of older formats, `*_rows` are by
    leaf, `bin_rows` scored rows by bin. Features `ignored` are omitted but for their largest index.

    `psi` is the largest stability index of leaves, and of features and outputs with a significant test.
    `shift` is null where a constant changed, and `gap_shift` where the missing share changed from 0 or 1 to
    the other; `sd_ratio` is null where training rows were all alike, and `spread_shift` where rows are all
    alike either now or in training.
    """
    n = int(scored_rows.sum())
    if n == 0 or trained_rows.sum() == 0:
        return {"sampled_rows": n, "large": False, "leaves": None, "features": None}
    leaves = _leaves(trained_rows, scored_rows)
    summary: dict[str, Any] = {
        "sampled_rows": n,
        "large": leaves["large"],
        "thresholds": {"psi": LARGE_PSI, "shift": LARGE_SHIFT, "sd_ratio": LARGE_SD_RATIO, "level": LEVEL},
        "psi": leaves["psi"],
        "leaves": leaves,
        "features": None,
    }
    if training is None:
        return summary
    training, scored = _without_rounding(training), _without_rounding(scored, 1e-9 * training.sd)
    spread = spread_shifts(training, scored, int(trained_rows.sum()), n)
    shifts = feature_shifts(training, scored), gap_shifts(training, scored), spread
    most = np.max(np.abs(shifts), axis=0)
    most[list(ignored)] = 0.0
    by_shift = [j for j in np.argsort(-most, kind="stable").tolist() if j not in ignored][:TOP]
    if bins is None or bin_rows is None or not bin_rows.any():
        far = int((most >= LARGE_SHIFT).sum()) if n >= LEAST_ROWS else 0
        top = [_feature(j, shifts, training, scored) for j in by_shift]
        return summary | {"large": summary["large"] or far > 0, "features": {"n_large": far, "top": top}}
    each = binned(bins, bin_rows)
    comparisons = [_compared(one, LEVEL / len(each)) for one in each]
    own = comparisons[: len(most)]
    if ignored:
        summary["ignored_psi"] = max(own[j]["psi"] if own[j]["differs"] else 0.0 for j in ignored)
    for j in ignored:
        own[j] |= {"psi": 0.0, "differs": False, "large": False}
    order = sorted(range(len(own)), key=lambda j: (not own[j]["differs"], -own[j]["psi"]))
    order = [j for j in order if j not in ignored][:TOP]
    order += [j for j in by_shift[:1] if j not in order]  # `max_shift` looks at it.
    top = [_feature(j, shifts, training, scored) | own[j] | _shares(each[j]) for j in order]
    summary["features"] = {"n_large": sum(one["large"] for one in own), "top": top}
    summary["scores"] = [
        a | _shares(b) for a, b in zip(comparisons[len(own) :], each[len(own) :], strict=True)
    ]
    summary["large"] = summary["large"] or any(one["large"] for one in comparisons)
    summary["psi"] = max([leaves["psi"], *(one["psi"] for one in comparisons if one["differs"])])
    summary["beyond"] = _beyond(each[: len(own)], int(trained_rows.sum()))
    return summary


def _leaves(trained: IntArray, scored: IntArray) -> dict[str, Any]:
    found = leaf_occupancy(trained, scored)
    share, before = scored / scored.sum(), trained / trained.sum()
    gained = [leaf for leaf in np.argsort(before - share, kind="stable")[:TOP] if share[leaf] > before[leaf]]
    return {
        "psi": found.psi,
        "psi_by_chance": found.by_chance,
        "n_bins": found.n_bins,
        "large": bool(scored.sum() >= LEAST_ROWS and found.psi > LARGE_PSI),
        "gained": [
            {"leaf": int(leaf), "share": float(share[leaf]), "training_share": float(before[leaf])}
            for leaf in gained
        ],
    }


def _compared(one: Binned, level: float) -> dict[str, Any]:
    n = int(one.scored.sum())
    differs = n >= LEAST_ROWS and one.p_value < level
    summary: dict[str, Any] = {"psi": one.psi, "p_value": one.p_value, "rows": n}
    summary |= {"training_rows": int(one.training.sum()), "differs": differs}
    return summary | {"large": differs and one.psi > LARGE_PSI}


def _shares(one: Binned) -> dict[str, Any]:
    both = [(rows / max(rows.sum(), 1)).tolist() for rows in (one.scored, one.training)]
    return {"edges": one.edges.tolist(), "shares": both[0], "training_shares": both[1]}


def _beyond(each: list[Binned], n_training: int) -> list[dict[str, Any]]:
    """The features with rows below or above all training rows, those with most rows first."""
    found = []
    for j, one in enumerate(each):
        n, below, above = (int(rows) for rows in (one.scored.sum(), one.scored[0], one.scored[-2]))
        if below + above and len(one.edges):
            chance = (n / (n + n_training)) ** max(below, above) >= LEVEL_BEYOND / len(each)
            limits = {"low": float(one.edges[0]), "high": float(one.edges[-1])}
            rows = {"rows": n, "below": below, "above": above}
            found.append({"feature": j, **rows, **limits, "by_chance": bool(chance)})
    return sorted(found, key=lambda one: -one["below"] - one["above"])[:MOST_BEYOND]


def _without_rounding(found: Reference, most: FloatArray | float = 0.0) -> Reference:
    """A constant has the deviation 0, and not that of the rounding of its mean."""
    still = found.sd <= np.maximum(1e-12 * np.abs(found.mean), most)
    return Reference(found.mean, np.where(still, 0.0, found.sd), found.gaps)


def _feature(
    j: int, shifts: tuple[FloatArray, ...], training: Reference, scored: Reference
) -> dict[str, Any]:
    shift, gap_shift, spread = (float(one[j]) if np.isfinite(one[j]) else None for one in shifts)
    summary = {
        "feature": j,
        "shift": shift,
        "sd_ratio": float(scored.sd[j] / training.sd[j]) if training.sd[j] > 0 else None,
        "mean": float(scored.mean[j]),
        "training_mean": float(training.mean[j]),
        "spread_shift": spread,
        "sd": float(scored.sd[j]),
        "training_sd": float(training.sd[j]),
    }
    if training.gaps is None or scored.gaps is None:
        return summary
    shares = {"gaps": float(scored.gaps[j]), "training_gaps": float(training.gaps[j])}
    return summary | {"gap_shift": gap_shift} | shares
