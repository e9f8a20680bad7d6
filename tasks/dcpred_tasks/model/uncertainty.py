"""Uncertainty of predictions, as arrays and their definitions: probabilities of classes, intervals of
numbers, and novelty of rows. Training measures it (dcpred_tasks.training.held_out); predictions work without
it.

predictive_outputs.py applies it to a model.
"""

from dataclasses import dataclass, field
from numbers import Real
from typing import Annotated

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, LeafNumbers, SingleArray
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.leaf_arrays import LEAF, Line

LEAST_ALPHA, LARGEST_ALPHA = 0.01, 0.5  # what may be asked of intervals
DEFAULT_ALPHA = 0.1
FEWEST_ROWS = 40  # training rows below which none is held out
SHARES: FloatArray = np.arange(1, 100) / 100  # one-sided quantiles: shares of rows below them
TIE = 2.0**-20  # By so much the class of a row leads, also in single precision.
STRIP_NUMBERS = 2**14  # numbers processed at once, which stay in cache
# Shares of a leaf's rows whose distance novelty stores, denser where rows are far.
LEVELS: FloatArray = np.array(
    [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 1.0]
)


@dataclass(frozen=True, eq=False)
class Calibration:
    """From decision values f to probabilities p. With q = σ(g(f)) for two classes, and
    q_k = exp g(f_k) / Σ_j exp g(f_j) for several,

        m = (1 − ε) q + ε π,   m_k ← min(m_k, m_label) for every other class,   p_k ∝ m_k / w_k,  Σ p_k = 1

    The second step seldom changes anything: with it the label of a row always has the largest m. Without
    class weights m is p, and the label is the likeliest class. With them the label is the class with the
    largest w_k p_k, and p has the rates of the data.

    knot, value  float64 (m,), g at some decision values, ascending; linear between, and constant beyond
    prior        float64 (n_classes,), π: shares of the classes, weighted
    share        float64 (1,), ε
    weight       float64 (n_classes,), w: weights of the classes in training; (0,) where all are 1
    """

    knot: Annotated[FloatArray, Line(ACC_DTYPE, ("knot",), order="<")]
    value: Annotated[FloatArray, Line(ACC_DTYPE, ("knot",), order="<=")]
    prior: Annotated[FloatArray, Line(ACC_DTYPE, ("class",), values="[0, inf)")]
    share: Annotated[FloatArray, Line(ACC_DTYPE, ("share",), values="[0, 1]")]
    # A probability over the weight of a class, or over its inverse, is a number.
    weight: Annotated[
        FloatArray, Line(ACC_DTYPE, ("class",), since=9, values="[1e-300, 1e300]", optional=True)
    ] = field(default_factory=lambda: np.empty(0))

    def scores(self, decision: FloatArray) -> FloatArray:
        """g of decision values of any shape; NaN stays NaN."""
        if len(self.knot) == 1:  # np.interp then takes NaN for a number.
            return np.where(np.isnan(decision), np.nan, self.value)
        return np.asarray(np.interp(decision, self.knot, self.value))

    def probabilities(self, decision: FloatArray, label: IntArray) -> FloatArray:
        """float64 (n, n_classes), NaN for rows without a score.

        decision  (n, n_outputs)
        label     (n,), the class numbers of decision values
        """
        out = np.empty((len(decision), len(self.prior)), ACC_DTYPE)
        step = max(STRIP_NUMBERS // len(self.prior), 1)
        for start in range(0, len(decision), step):
            part = slice(start, start + step)
            out[part] = self._strip(decision[part], label[part])
        return out

    def _strip(self, decision: FloatArray, label: IntArray) -> FloatArray:
        p = self.free(self.scores(decision))
        rows = np.arange(len(p))
        of_label = p[rows, label]
        np.minimum(p, of_label[:, None] * (1.0 - TIE), out=p)
        p[rows, label] = of_label
        p /= p.sum(axis=1, keepdims=True)
        return self.at_own_rates(p)

    def at_own_rates(self, m: FloatArray) -> FloatArray:
        """p of m, (n, n_classes)."""
        if not len(self.weight):
            return m
        p = m / self.weight
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def free(self, scores: FloatArray) -> FloatArray:
        """m = (1 − ε) q + ε π of scores (n, n_outputs): float64 (n, n_classes)."""
        if scores.shape[1] == 1:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        q = np.exp(scores - scores.max(axis=1, keepdims=True))
        q /= q.sum(axis=1, keepdims=True)
        q *= 1.0 - self.share
        q += self.share * self.prior
        return np.asarray(q)


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals f ± t_α σ_leaf, calibrated as split conformal ones (Lei et al., Distribution-Free Predictive
    Inference for Regression, 2018): t_α is the ⌈(n + 1)(1 − α)⌉-th smallest of |y − f| / σ of n rows that
    were held out. They have no finite-sample guarantee: the leaf that predicts was fitted with these rows.

    spread    float64 (n_leaves,), σ: the size of a residual in each leaf, > 0
    alpha     float64 (m,), descending: shares of rows outside
    quantile  float64 (m,), t of each alpha, ascending
    share     float64 (k,), ascending: shares of rows below a one-sided quantile; (0,) of earlier versions
    signed    float64 (k,), the quantile of (y − f) / σ of each share, ascending
    Where widths follow a Scale, σ is that of the leaf times exp of it.
    """

    spread: Annotated[FloatArray, Line(ACC_DTYPE, ("leaf",), values="(0, inf)")]
    alpha: Annotated[FloatArray, Line(ACC_DTYPE, ("alpha",), values="(0, 1)", order=">")]
    quantile: Annotated[FloatArray, Line(ACC_DTYPE, ("alpha",), values="[0, inf)", order="<=")]
    share: Annotated[FloatArray, Line(ACC_DTYPE, ("quantile_share",), values="(0, 1)", order="<")] = field(
        default_factory=lambda: np.empty(0)
    )
    signed: Annotated[FloatArray, Line(ACC_DTYPE, ("quantile_share",), order="<=")] = field(
        default_factory=lambda: np.empty(0)
    )

    def sizes(self, leaf: LeafNumbers, log_scale: FloatArray) -> FloatArray:
        """σ of rows, float64 (n,).

        leaf       (n,), NO_LEAF where a row has no score
        log_scale  (n,), the result of Scale, or (0,) without one
        """
        spread = self.spread[np.maximum(leaf, 0)]
        return spread * np.exp(log_scale) if len(log_scale) else spread

    def bounds(self, value: FloatArray, size: FloatArray, alpha: float) -> FloatArray:
        """float64 (n, 2), lower and upper; NaN for rows without a score. Raises SettingsError.

        value  float64 (n,), and the `sizes` of the rows
        """
        half = self.at(alpha) * size
        return np.stack([value - half, value + half], axis=1)

    def below(self, value: FloatArray, size: FloatArray, share: float) -> FloatArray:
        """The quantile of rows (n,) below which a share in SHARES lies. Raises SettingsError, DataError."""
        return value + self.signed_at(share) * size

    def signed_at(self, share: float) -> float:
        """The quantile of (y − f) / σ. Raises SettingsError for a share outside of SHARES, and where the
        model lacks it, DataError for a model of an earlier version.
        """
        name = check_share(share)
        if len(self.quantile) and not len(self.share):
            raise DataError(
                f"Cannot compute {name}: the model was trained by a version of dcpred without quantiles."
                " Train it again."
            )
        which = np.flatnonzero(np.abs(self.share - share) < 1e-9)
        if not len(which):
            few = "rows to hold any out" if not len(self.share) else f"rows for {name}"
            needed = max(FEWEST_ROWS, round(1 / min(share, 1 - share)))
            raise SettingsError(
                f"Cannot compute {name}: the model was trained on too few {few}. Train it on {needed} rows or"
                " more."
            )
        return float(self.signed[which[0]])

    def at(self, alpha: float) -> float:
        """t of a share of rows outside: of the next smaller stored one. Raises SettingsError without one."""
        check_alpha(alpha)
        which = np.flatnonzero(self.alpha <= alpha * (1 + 1e-9))
        if not len(which) and not len(self.alpha):
            raise SettingsError(
                "Cannot compute intervals: the model was trained on too few rows to hold any out. Train it on"
                f" {FEWEST_ROWS} rows or more."
            )
        if not len(which):
            raise SettingsError(
                f"Cannot compute intervals with alpha {alpha:g}: the model was trained on so few rows that"
                f" alpha starts at {self.alpha[-1]:.3g}. Set alpha to that or more, or train on more rows."
            )
        return float(self.quantile[which[0]])


def check_alpha(alpha: object) -> None:
    """Raise SettingsError for an impossible share of rows outside an interval."""
    if not (isinstance(alpha, Real) and LEAST_ALPHA <= float(alpha) <= LARGEST_ALPHA):
        raise SettingsError(
            f"Cannot compute intervals with alpha {alpha!r}: it is the share of rows that may lie outside."
            f" Pass a number from {LEAST_ALPHA} to {LARGEST_ALPHA}."
        )


def check_share(share: object) -> str:
    """The name of a quantile, as q05 for 0.05. Raises SettingsError for a share outside of SHARES."""
    if not (isinstance(share, Real) and np.abs(SHARES - float(share)).min() < 1e-9):
        raise SettingsError(
            f"Cannot compute the quantile {share!r}. Choose one of 0.01, 0.02 and so on to 0.99."
        )
    return f"q{round(100 * float(share)):02d}"


@dataclass(frozen=True, eq=False)
class Scale:
    """log σ(x) of a leaf's rows over the size of its residuals, on the functions that the leaf predicts with:
    decision values of a model that is the same but for these arrays. Their fields are those of LeafArrays.
    """

    at: IntArray
    beta: Annotated[
        SingleArray, Line(MODEL_DTYPE, ("basis", "output"), offsets="at", in_leaf="scale_beta", since=9)
    ]
    intercept: Annotated[FloatArray, Line(ACC_DTYPE, (LEAF, "output"), in_leaf="scale_intercept", since=9)]
    bounds: Annotated[
        FloatArray,
        Line(ACC_DTYPE, (LEAF, "bound"), in_leaf="scale_bounds", since=9, values="[-700, 700]", order="<="),
    ]
    """The least and the largest value in each leaf; exp of both is a number."""


@dataclass(frozen=True, eq=False)
class Novelty:
    """Typicality: the distribution of the training rows of each leaf. s(x) = κ(‖x' ∘ φ − u‖), with one point
    u and factors φ of each leaf, and κ(r) = (1 + r) exp(−r), falls with the distance of a row from them.

    `leaf_arrays` describes the layout of arrays of all leaves.
    """

    point: Annotated[SingleArray, Line(MODEL_DTYPE, (LEAF, "feature"), in_leaf="own_point")]
    """u: the mean of the leaf's rows in scaled features, times `factor`."""
    factor: Annotated[
        SingleArray, Line(MODEL_DTYPE, (LEAF, "feature"), in_leaf="own_factor", values="(0, inf)")
    ]
    """φ: about 1 / standard deviation of each scaled feature in the leaf, over the typical distance."""
    edge: Annotated[SingleArray, Line(MODEL_DTYPE, (LEAF, "level"), in_leaf="own_edge", order=">=")]
    """s at each of `LEVELS`, descending: that share of the leaf's rows has a larger s."""

    def of(self, typicality: SingleArray, leaf: LeafNumbers) -> FloatArray:
        """The share of the leaf's training rows that are nearer, float64 (n,): 1 beyond all of them, NaN for
        rows without a score.

        typicality  float32 (n,), the typicality s; NaN for rows without a score
        leaf      (n,), any number where the typicality is NaN
        """
        out = np.empty(len(typicality), ACC_DTYPE)
        step = STRIP_NUMBERS // len(LEVELS)
        for start in range(0, len(typicality), step):
            part = slice(start, start + step)
            known = ~np.isnan(typicality[part])
            out[part] = np.where(known, self._strip(typicality[part], np.where(known, leaf[part], 0)), np.nan)
        return out

    def _strip(self, s: SingleArray, leaf: LeafNumbers) -> FloatArray:
        edge = self.edge[leaf]
        passed = (s[:, None] < edge).sum(axis=1)
        inside = np.clip(passed, 1, len(LEVELS) - 1)
        rows = np.arange(len(s))
        before, after = edge[rows, inside - 1].astype(ACC_DTYPE), edge[rows, inside].astype(ACC_DTYPE)
        way = np.clip((before - s) / np.where(before > after, before - after, 1.0), 0.0, 1.0)
        low, high = LEVELS[inside - 1], LEVELS[inside]
        return np.where(passed == len(LEVELS), 1.0, np.where(passed == 0, 0.0, low + way * (high - low)))


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The uncertainty of a model: probabilities with classes, intervals with numbers."""

    novelty: Novelty
    calibration: Calibration | None = None
    intervals: Intervals | None = None
    scale: Scale | None = None
