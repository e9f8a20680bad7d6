"""Which features are on a symmetric logarithmic scale (model/symlog.py): those that the setting `symlog`
names, and with "auto" those of the longest tails, if learned factors do better so on rows that are held out
(learned_columns.py).

A tail is how far the outermost of some thousand rows lies from the median, in median distances from it. Short
tails are left alone: rows are told apart in them by differences that the scale makes small. How long a tail
has to be, kernel ridge regressions tell.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.model.coding import Coding, coded_columns
from dcpred_tasks.model.scaling import fit_scaling
from dcpred_tasks.model.symlog import Symlog, symlog
from dcpred_tasks.training.categories import FeatureError, check_present
from dcpred_tasks.training.coding_choice import (
    DECISION,
    FEWEST_ROWS,
    RIDGES,
    held_out_losses,
    held_out_residuals,
    outputs,
    squared_distances,
)
from dcpred_tasks.training.feature_list import numbers
from dcpred_tasks.training.labelled_rows import distinct_rows
from dcpred_tasks.training.settings import AUTO, NONE, Settings

TAILS = (100.0, 40.0, 15.0)  # Features whose tail is at least as long are tried together.
LONGEST = 1e30  # Single precision holds what is said of a longer one no more.
WORTH_A_TRY = 0.99  # share of the loss that a scale may leave, so that factors are learned with it


def named_on_log_scale(
    coding: Coding | None, sample: NDArray[np.generic], settings: Settings
) -> Coding | None:
    """The columns of `coding`, which is None for features as they are, with those features on a logarithmic
    scale that settings name.

    sample  (n, n_features), real and finite, but for NaN where `coding` knows gaps

    Raises SettingsError for a feature that cannot be on such a scale.
    """
    named = [] if settings.symlog in (AUTO, NONE) else numbers(settings.symlog)
    if not named:
        return coding
    check_present("symlog", named, sample.shape[1])
    if coding is not None and (both := [f for f in named if coding.is_coded[f]]):
        why = "its values are codes, each with a column of its own"
        raise FeatureError("symlog", both[0], why, "leave it out, or set categorical so that it is not coded")
    own = np.isin(np.arange(sample.shape[1]), named)
    tails = _Tails.of(sample[_drawn(sample, settings)])
    if len(too_long := np.flatnonzero(own & ~(tails.length < LONGEST))):
        why = f"it has values more than {LONGEST:g} median distances from its median"
        raise FeatureError("symlog", int(too_long[0]), why, "mend these, or leave it out of X")
    return tails.columns(coding, own)


def likeliest_on_log_scale(
    coding: Coding | None,
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    settings: Settings,
) -> Coding | None:
    """The columns of `coding` with those features of long tails on a logarithmic scale with which held-out
    rows lose least; None where no tail is long, or rows lose hardly less by it.

    sample  as for named_on_log_scale
    target  (n,), class numbers or values
    weight  float64 (n,), > 0
    """
    drawn = _drawn(sample, settings)
    tails = _Tails.of(sample[drawn])
    free = np.ones(sample.shape[1], bool) if coding is None else ~coding.is_coded
    free &= tails.length < LONGEST
    sets = [(tails.length >= length) & free for length in TAILS]
    tried = [own for k, own in enumerate(sets) if own.any() and (k == 0 or (own != sets[k - 1]).any())]
    if not tried:
        return None
    candidates = [tails.columns(coding, own) for own in tried]
    return _best(coding, candidates, sample[drawn], target[drawn], weight[drawn], settings.task)


def _drawn(sample: NDArray[np.generic], settings: Settings) -> IntArray:
    return np.random.default_rng(settings.seed).permutation(len(sample))[: 2 * sum(DECISION)]


@dataclass(frozen=True)
class _Tails:
    """Features as some rows (n, n_features) show them.

    centre  (n_features,), their medians
    rate    (n_features,), 1 / the median distance from these; 0 for a feature that is constant, or whose
            length is more than single precision holds
    length  (n_features,), the largest distance in median distances
    """

    rows: FloatArray
    centre: FloatArray
    rate: FloatArray
    length: FloatArray

    @staticmethod
    def of(sample: NDArray[np.generic]) -> "_Tails":
        """Those of rows (n, n_features); NaN is a gap. Where most rows have one value, the median distance is
        that of the others.
        """
        rows = np.array(sample, ACC_DTYPE)
        centre, rate, length = np.zeros((3, rows.shape[1]))
        for f, column in enumerate(rows.T):
            there = column[~np.isnan(column)]
            if not len(there) or (there == there[0]).all():
                continue
            with np.errstate(over="ignore"):
                middle = np.median(there)
                distance = np.abs(there - middle)
                inverse = 1.0 / (np.median(distance) or np.median(distance[distance > 0]))
                farthest = distance.max() * inverse
            if np.isfinite(inverse):
                length[f] = farthest
                centre[f], rate[f] = (middle, inverse) if farthest < LONGEST else (0.0, 0.0)
        return _Tails(rows, centre, rate, length)

    def columns(self, coding: Coding | None, own: NDArray[np.bool_]) -> Coding | None:
        """The columns of `coding`, or of features as they are, with some features, bool (n_features,), on
        their scale; a gap is the mean there. Without any, as those which are constant, `coding` itself.
        """
        rate = np.where(own, self.rate, 0.0)
        if not rate.any():
            return coding
        centre = np.where(rate > 0, self.centre, 0.0)
        gap = np.isnan(self.rows)
        there = symlog((np.where(gap, centre, self.rows) - centre) * rate)
        sd, mean = there.std(axis=0), there.sum(axis=0) / np.maximum((~gap).sum(axis=0), 1)
        scale = Symlog(centre, rate, sd)
        if coding is None:
            return coded_columns(len(rate), {}, symlog=scale)
        if coding.gap is not None:
            coding = replace(coding, gap=np.where(rate > 0, scale.raw(mean[None])[0], coding.gap))
        return replace(coding, symlog=scale)


def _best(
    plain: Coding | None,
    candidates: list[Coding | None],
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    task: str,
) -> Coding | None:
    """The candidate whose held-out rows lose least; None where they lose hardly less than with `plain`, or
    are too few to tell.
    """
    low, high = (extreme.reduce(X, axis=0).astype(ACC_DTYPE) for extreme in (np.fmin, np.fmax))

    def scaled(coding: Coding | None) -> NDArray[np.float32]:
        return fit_scaling("standard", X, weight, low, high, coding)(X)

    rows, index = distinct_rows(scaled(plain), target, weight, task)
    if len(rows.y) < FEWEST_ROWS or np.ptp(rows.y) == 0:
        return None
    n_fit = min(DECISION[0], len(rows.y) // 2)
    last = np.arange(len(rows.y))[-n_fit - DECISION[1] :]
    goal, own_weight, n_blocks = (
        outputs(rows.y, task)[last],
        rows.weight[last],
        max(int((low < high).sum()), 1),
    )

    def loss(coding: Coding | None) -> float:
        U = scaled(coding)[index][last]
        D = squared_distances(U, U[:n_fit])
        residuals = held_out_residuals(D, goal, own_weight, n_blocks, RIDGES)
        return float(held_out_losses(residuals, own_weight[n_fit:]).mean())

    least, chosen = min(((loss(one), one) for one in candidates), key=lambda tried: tried[0])
    return chosen if least <= WORTH_A_TRY * loss(plain) else None
