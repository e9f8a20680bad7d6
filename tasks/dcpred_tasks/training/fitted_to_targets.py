"""What is fitted to targets: target encoding, scaling with its feature map, kernels in scaled features, and
the prior. Held-out rows are judged only by what was fitted without the targets of their fold.

Where several leaves divide columns that know targets, the tree knows them, too: held-out rows are then judged
by whole models (in_memory.held_by_models).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.scaling import LEARNED, Scaling
from dcpred_tasks.training.categories import CrossFitted
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.leaf import Kernels
from dcpred_tasks.training.learned_scaling import REPETITIONS, USUAL_REPETITIONS
from dcpred_tasks.training.partition import Division, divide, kernels_of, learn_scaling
from dcpred_tasks.training.prior import Prior, fit_prior
from dcpred_tasks.training.settings import ADDITIVE, AUTO, NONE, Settings
from dcpred_tasks.training.survey import Survey


@dataclass(frozen=True)
class Known:
    """What is fitted to the same targets, apart from the target encoding.

    prior  None where no class is rare
    """

    scaling: Scaling
    kernels: Kernels
    prior: Prior | None

    def arrays(self) -> dict[str, NDArray[Any]]:
        kernels = json.dumps([self.kernels.local.as_dict(), self.kernels.head.as_dict()])
        own = {"kernels": np.frombuffer(kernels.encode(), np.uint8)}
        return {**self.scaling.arrays(), **(self.prior.arrays() if self.prior else {}), **own}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> "Known":
        """The inverse of `arrays`, among others."""
        local, head = json.loads(arrays["kernels"].tobytes())
        kernels = Kernels(Kernel(**local), Kernel(**head))
        return Known(Scaling.of(arrays), kernels, Prior.among(arrays))


@dataclass(frozen=True)
class FittedToTargets:
    """Everything that is fitted to targets.

    every     by all rows
    encoding  of categories; None without target-encoded features
    held      without the rows of each fold, for the folds that are held out of leaves
    """

    every: Known
    encoding: CrossFitted | None = None
    held: tuple[Known, ...] = ()

    def without(self, fold: int | None) -> Known:
        """By the rows of all other folds; None: by all rows."""
        return self.every if fold is None else self.held[fold]

    def columns(self, X: NDArray[np.generic], number: IntArray, fold: int | None = None) -> SingleArray:
        """Stored rows as scaled columns, which know no target of the fold. A row that trains is encoded
        without its own target.
        """
        return self.without(fold).scaling(encoded(self.encoding, X, number, fold))


def encoded(
    encoding: CrossFitted | None, X: NDArray[np.generic], number: IntArray, fold: int | None = None
) -> NDArray[np.generic]:
    """Stored rows with target-encoded features as numbers, by means without the targets of the fold."""
    return X if encoding is None else encoding(X, number, fold)


@dataclass(frozen=True)
class TargetSample:
    """Sampled rows, to which all of it is fitted.

    X         (n, n_features), stored rows, in the order of their numbers
    target    (n,), class numbers or transformed values
    weight    float64 (n,), > 0, sample weights
    number    int64 (n,), row numbers
    encoding  of categories, by all rows of the data
    survey    of all rows, with encoded features
    factors   float64 (n_classes,), class weights; or (0,)
    """

    X: NDArray[np.generic]
    target: NDArray[np.generic]
    weight: FloatArray
    number: IntArray
    encoding: CrossFitted | None
    survey: Survey
    settings: Settings
    factors: FloatArray

    def fit(
        self,
        scaling: Scaling | None = None,
        repetitions: int = REPETITIONS,
        otherwise: Scaling | None = None,
    ) -> tuple[Division, FittedToTargets]:
        """By all rows, with the division of space.

        scaling      in place of the one of the settings
        repetitions  of a learned scaling, at most
        otherwise    as for `learn_scaling`
        """
        sample = encoded(self.encoding, self.X, self.number)
        given = self.survey, self.settings
        scaling = scaling or learn_scaling(sample, self.target, self.weight, *given, repetitions, otherwise)
        division = divide(scaling, sample, self.weight, *given)
        of_prior = sample, self.target, self.weight, *given, self.factors
        prior = fit_prior(scaling, division.kernels, *of_prior)
        return division, FittedToTargets(Known(scaling, division.kernels, prior), self.encoding)

    def without_folds(self, fitted: FittedToTargets, folds: Folds, count: int) -> FittedToTargets:
        """The same with what is fitted without each of the first so many folds."""
        held = tuple(self._without(fitted.every, folds, fold) for fold in range(count))
        return replace(fitted, held=held)

    def _without(self, every: Known, folds: Folds, fold: int) -> Known:
        rest = np.flatnonzero(folds.of(self.number) != fold)
        number, target, weight = self.number[rest], self.target[rest], self.weight[rest]
        known = knows_targets(self.settings, self.encoding is not None)
        if not len(rest) or not (known or every.prior):
            return every
        sample = encoded(self.encoding, self.X[rest], number, fold)
        settings = with_rare_categories(self.settings)
        scaling, kernels = every.scaling, every.kernels
        if known:
            given = sample, target, weight, self.survey, settings, USUAL_REPETITIONS, scaling
            try:
                scaling = learn_scaling(*given)
            except DataError:  # Extreme values lie in the held-out rows alone.
                return replace(every, prior=None)
            kernels = kernels_of(scaling(sample), weight, settings)
        if every.prior is None:
            return Known(scaling, kernels, None)
        of_prior = sample, target, weight, self.survey, settings, self.factors
        return Known(scaling, kernels, fit_prior(scaling, kernels, *of_prior))


def knows_targets(settings: Settings, coded: bool) -> bool:
    """Whether columns depend on targets.

    coded  whether features are target-encoded
    """
    return coded or settings.scaling in LEARNED or settings.feature_map == ADDITIVE


def whole_models(folds: Folds, settings: Settings, coded: bool, n_leaves: int, complete: bool) -> bool:
    """Whether held-out rows need whole models of the others: by time or by group, and where the tree knows
    targets. In data larger than the sample, most leaves hold rows that the tree does not know.

    complete  whether the sample has all rows
    """
    return folds.by_units or (complete and n_leaves > 1 and knows_targets(settings, coded))


def with_rare_categories(settings: Settings) -> Settings:
    """Settings for a part of the rows, in which a named feature may have a single category."""
    if settings.categorical in (AUTO, NONE):
        return settings
    return replace(settings, categorical=f"{AUTO},{settings.categorical}")
