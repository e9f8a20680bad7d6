"""The prior: a model of all of space, for leaves with few rows of a rare class.

A leaf of 300 rows has twelve of a class of 4 %, or none. Its own model ranks rows by chance, and its rate is
not comparable with those of other leaves. Therefore each row counts in part as the prior expects: with q rows
of the class in place of one,

    q = (1 − λ) y + λ p(x),   λ = STRENGTH / (STRENGTH + rare rows of the leaf)

as if the leaf had seen `STRENGTH` more rare rows that follow the prior (shrinkage, as with conjugate priors).
A leaf of one class then predicts a rate that varies by row, and a leaf with many rare rows follows these
(DECISIONS.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.leaf_model import COMPACT
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.row_sampling import row_hash
from dcpred_tasks.training.leaf import Kernels, fit_leaf
from dcpred_tasks.training.losses import SHARPNESS
from dcpred_tasks.training.partition import first_leaves, n_outputs
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey, rare_classes, thinned

STRENGTH = 200.0  # rare rows that the prior counts as
FREQUENT_ROWS = 10_000  # rows of the frequent class that train the prior, at most
LOCAL_ROWS = 1_000  # rows that landmarks begin from, at most
EXPECTED_ROWS = 2_000  # rows of a leaf that count as the other class, too, at most
MOST_CLASSES = 32  # classes up to which there is a prior
LEAST, STRIP_ROWS = 1e-6, 8_000


@dataclass(frozen=True)
class Prior:
    """f(x) = Σ β c̄(x) + b in scaled features.

    rare     numbers of the rare classes
    factors  float64 (n_classes,), weights of classes; or (0,)
    """

    landmarks: SingleArray
    gamma: SingleArray
    pairs: NDArray[np.int32]
    beta: SingleArray
    intercept: FloatArray
    rare: IntArray
    factors: FloatArray

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {f"prior_{name}": value for name, value in vars(self).items()}

    @staticmethod
    def among(arrays: Mapping[str, NDArray[Any]]) -> "Prior | None":
        """The inverse of `arrays`, among others; None where it is absent."""
        prior_arrays = {k.removeprefix("prior_"): v for k, v in arrays.items() if k.startswith("prior_")}
        return Prior(**prior_arrays) if prior_arrays else None

    def expected(self, X: SingleArray, kernels: Kernels) -> FloatArray:
        """p of each class, float64 (n, n_classes)."""
        nothing = np.empty((0, len(self.landmarks)), MODEL_DTYPE)
        basis = LeafBasis(kernels.head, "lower", self.landmarks, self.gamma, self.pairs, nothing)
        beta = self.beta if self.beta.shape[1] > 1 else self.beta[:, 0]
        parts = [basis(X[at : at + STRIP_ROWS]) @ beta for at in range(0, len(X), STRIP_ROWS)]
        f = np.concatenate(parts).astype(ACC_DTYPE)
        if f.ndim == 1:
            f = np.clip(-SHARPNESS * (f + self.intercept[0]), -50, 50)
            second = np.clip(1.0 / (1.0 + np.exp(f)), LEAST, 1 - LEAST)
            return np.stack([1.0 - second, second], axis=1)
        f = SHARPNESS * (f + self.intercept)
        q = np.maximum(np.exp(f - f.max(axis=1, keepdims=True)), LEAST)
        return np.asarray(q / q.sum(axis=1, keepdims=True))

    def rows(
        self, X: SingleArray, target: NDArray[np.generic], weight: FloatArray, kernels: Kernels
    ) -> tuple[IntArray, NDArray[np.generic], FloatArray]:
        """Numbers of the rows that train a leaf, with their targets and weights: all of them, with less
        weight, and some again as a rare class, or in place of one. The shares of other classes among
        themselves do not change.
        """
        p, labels = self.expected(X, kernels), target.astype(np.int64)
        n_classes = p.shape[1]
        share = np.zeros(n_classes)
        share[self.rare] = STRENGTH / (STRENGTH + np.bincount(labels, minlength=n_classes)[self.rare])
        of_rare = share[labels][:, None]
        other = np.where(of_rare > 0, of_rare * p, share * p)
        other[np.arange(len(labels)), labels] = 0.0
        factors = self.factors if len(self.factors) else np.ones(n_classes)
        plain = weight / factors[labels]
        at = np.flatnonzero(other)
        drawn, amount = _systematic((plain[:, None] * other).ravel()[at])
        row, number = np.divmod(at[drawn], n_classes)
        targets = np.concatenate([labels, number])
        weights = np.concatenate([plain * (1.0 - other.sum(axis=1)), amount]) * factors[targets]
        number = np.concatenate([np.arange(len(X)), row])
        return number, targets, weights


def _systematic(amount: FloatArray) -> tuple[IntArray, FloatArray]:
    """At most `EXPECTED_ROWS` rows and amounts of the same sum: all, or one at a hashed place
    of each even step of amounts.
    """
    if len(amount) <= EXPECTED_ROWS:
        return np.arange(len(amount)), amount
    total = np.cumsum(amount)
    step = total[-1] / EXPECTED_ROWS
    steps = np.arange(EXPECTED_ROWS)
    at = np.searchsorted(total, (steps + row_hash(steps, 0) / 2.0**64) * step)
    number, times = np.unique(np.minimum(at, len(amount) - 1), return_counts=True)
    return number, times * step


def fit_prior(
    scaling: Scaling,
    kernels: Kernels,
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
    factors: FloatArray,
) -> Prior | None:
    """The prior where a class is rare; None with one leaf, or without a rare class. With several classes it
    serves probabilities, and calibrate=false omits it.

    sample, target, weight  as in `division.learn_scaling`
    factors                 float64 (2,), weights of classes; or (0,)
    """
    totals = survey.class_weights
    rare = rare_classes(totals)
    if len(totals) > MOST_CLASSES or (len(totals) > 2 and not settings.calibrate):
        return None
    several = first_leaves(survey.n_used, settings) > 1 or survey.n_used > settings.own_leaf_rows
    if not len(rare) or not several or settings.leaf_model != COMPACT:
        return None
    of_rare = np.isin(target, rare)
    others = np.flatnonzero(~of_rare)
    drawn = others[thinned(others, FREQUENT_ROWS, settings.seed)]
    rows = np.sort(np.concatenate([np.flatnonzero(of_rare), drawn]))
    if len(rows) == len(drawn):
        return None
    scale = np.where(of_rare[rows], 1.0, weight[others].sum() / weight[drawn].sum())
    once = replace(settings, loss="logistic", refine=True, triangle=0, leaf_scaling=False, distill_weight=0.0)
    once = replace(once, local_rows=LOCAL_ROWS, keep_support_vectors=False, max_leaf_rows=len(rows))
    costs = weight[rows] * scale
    leaf = fit_leaf(
        scaling(sample[rows]),
        target[rows],
        costs,
        n_outputs(len(totals)),
        kernels,
        once,
        len(scaling.shift),
    )
    arrays = {name: getattr(leaf, name) for name in ("landmarks", "gamma", "pairs", "beta", "intercept")}
    return Prior(**arrays, rare=rare, factors=factors)
