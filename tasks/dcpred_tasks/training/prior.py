"""What leaves with few rows of a rare class go by: a model of all of space, the prior.

A leaf of 300 rows has twelve of a class of 4 %, or none. Its own model ranks rows by chance, and its rate is
not comparable with those of other leaves. So each row counts in part as what the prior expects of it: with q
rows of the class expected in place of one,

    q = (1 − λ) y + λ p(x),   λ = STRENGTH / (STRENGTH + rare rows of the leaf)

as if the leaf had seen `STRENGTH` more rare rows that obey the prior (shrinkage as of conjugate priors). A
leaf of one class then answers with a rate that differs from row to row, and a leaf with many rare rows goes
by these.

20,000 rows with 4.2 % positives, 12 features, AUC with 8 and 64 leaves of 16 landmarks; one leaf 0.805 with
the logistic loss, 0.797 with the hinge (2026-11-26):

    STRENGTH            0        30       200
    logistic  8        0.762    0.776    0.796
             64        0.658    0.776    0.795
    hinge     8        0.750    0.753    0.785
             64        0.612    0.735    0.783
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.leaf_model import COMPACT
from dcpred_tasks.training.division import Division, first_leaves, n_outputs
from dcpred_tasks.training.labelled_rows import rare_classes
from dcpred_tasks.training.leaf import Kernels, fit_leaf
from dcpred_tasks.training.losses import SHARPNESS
from dcpred_tasks.training.sampling import thinned
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey

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
        """What `arrays` gave, among others; None where there is none."""
        own = {k.removeprefix("prior_"): v for k, v in arrays.items() if k.startswith("prior_")}
        return Prior(**own) if own else None

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
        """Numbers of the rows that train a leaf, with their targets and weights: all as they are, of less
        weight, and some once more as a rare class, or in place of one. Shares of other classes among
        themselves stay those of the leaf's own rows.
        """
        p, own = self.expected(X, kernels), target.astype(np.int64)
        n_classes = p.shape[1]
        share = np.zeros(n_classes)
        share[self.rare] = STRENGTH / (STRENGTH + np.bincount(own, minlength=n_classes)[self.rare])
        of_rare = share[own][:, None]
        other = np.where(of_rare > 0, of_rare * p, share * p)
        other[np.arange(len(own)), own] = 0.0
        factors = self.factors if len(self.factors) else np.ones(n_classes)
        plain = weight / factors[own]
        at = np.flatnonzero(other)
        drawn, amount = _systematic((plain[:, None] * other).ravel()[at])
        row, number = np.divmod(at[drawn], n_classes)
        targets = np.concatenate([own, number])
        weights = np.concatenate([plain * (1.0 - other.sum(axis=1)), amount]) * factors[targets]
        number = np.concatenate([np.arange(len(X)), row])
        return number, targets, weights


def _systematic(amount: FloatArray) -> tuple[IntArray, FloatArray]:
    """At most `EXPECTED_ROWS` rows and their amounts, which have the same sum: all rows, or as often as their
    amounts are whole parts of it, at even steps.
    """
    if len(amount) <= EXPECTED_ROWS:
        return np.arange(len(amount)), amount
    total = np.cumsum(amount)
    step = total[-1] / EXPECTED_ROWS
    at = np.searchsorted(total, (np.arange(EXPECTED_ROWS) + 0.5) * step)
    number, times = np.unique(np.minimum(at, len(amount) - 1), return_counts=True)
    return number, times * step


def fit_prior(
    division: Division,
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
    factors: FloatArray,
) -> Prior | None:
    """The prior where a class is rare; None where there is one leaf, or no rare class. Of several classes it
    is for the sake of probabilities, and calibrate=false leaves it out.

    sample, target, weight  as in `division.learn_scaling`
    factors                 float64 (2,), weights of classes; or (0,)
    """
    totals = survey.class_weights
    rare = rare_classes(totals)
    if len(totals) > MOST_CLASSES or (len(totals) > 2 and not settings.calibrate):
        return None
    several = first_leaves(survey.n_used, settings) > 1 or survey.n_used > settings.own_leaf_rows
    if not len(rare) or not several or settings.machine != COMPACT:
        return None
    of_rare = np.isin(target, rare)
    others = np.flatnonzero(~of_rare)
    drawn = others[thinned(others, FREQUENT_ROWS, settings.seed)]
    own = np.sort(np.concatenate([np.flatnonzero(of_rare), drawn]))
    if len(own) == len(drawn):
        return None
    scale = np.where(of_rare[own], 1.0, weight[others].sum() / weight[drawn].sum())
    once = replace(settings, loss="logistic", refine=True, triangle=0, leaf_scaling=False, guide=0.0)
    once = replace(once, local_rows=LOCAL_ROWS, keep_support_vectors=False, max_leaf_rows=len(own))
    costs = weight[own] * scale
    leaf = fit_leaf(
        division.scaling(sample[own]),
        target[own],
        costs,
        n_outputs(len(totals)),
        division.kernels,
        once,
        len(division.scaling.shift),
    )
    arrays = {name: getattr(leaf, name) for name in ("landmarks", "gamma", "pairs", "beta", "intercept")}
    return Prior(**arrays, rare=rare, factors=factors)
