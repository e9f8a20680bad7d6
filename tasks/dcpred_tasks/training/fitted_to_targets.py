"""What is fitted to targets: target encoding, scaling with its feature map, kernels in scaled features, the
prior, and terms beside kernels. Held-out rows are judged only by what was fitted without the targets of their
fold. A row that trains a leaf has the value of terms that do not know its target either: those of all rows
follow their own targets, and would leave nothing to learn.

Where several leaves divide columns that know targets, the tree knows them, too: held-out rows are then judged
by whole models (in_memory.held_by_models).
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.scaling import LEARNED, Scaling
from dcpred_tasks.model.term import Term, offset_of
from dcpred_tasks.model.terms import read_terms
from dcpred_tasks.training import term_fits
from dcpred_tasks.training.categories import CrossFitted
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.leaf import Kernels
from dcpred_tasks.training.learned_scaling import REPETITIONS, USUAL_REPETITIONS
from dcpred_tasks.training.partition import Division, divide, kernels_of, learn_scaling, row_weights
from dcpred_tasks.training.prior import Prior, fit_prior
from dcpred_tasks.training.settings import ADDITIVE, AUTO, NONE, Settings
from dcpred_tasks.training.survey import Survey

# Groups of rows whose targets a fit does not know, and the fold without whose targets rows are encoded.
WithoutGroups: TypeAlias = tuple[frozenset[int], int | None]


@dataclass(frozen=True)
class Known:
    """What is fitted to the same targets, apart from the target encoding.

    prior    None where no class is rare
    terms    of a model of these rows
    crossed  the same without each group of rows (`Folds.groups`) in turn; () without terms
    """

    scaling: Scaling
    kernels: Kernels
    prior: Prior | None
    terms: tuple[Term, ...] = ()
    crossed: tuple[tuple[Term, ...], ...] = ()

    def offset(self, X: NDArray[Any], group: IntArray, n_outputs: int) -> FloatArray | None:
        """The sum of terms at encoded rows (n, n_features), float64 (n, n_outputs), by terms that do not know
        the group (n,) of the row; None without terms.
        """
        if not self.crossed:
            return None
        total = np.zeros((len(X), n_outputs))
        for number in np.unique(group):
            rows = np.flatnonzero(group == number)
            values = [term.engine for term in self.crossed[number]]
            total[rows] += offset_of(values, X[rows], n_outputs) if values else 0.0
        return total

    def arrays(self) -> dict[str, NDArray[Any]]:
        of_kernels = [self.kernels.local.as_dict(), self.kernels.head.as_dict()]
        names = [[term.name for term in terms] for terms in (self.terms, *self.crossed)]
        arrays = {"known": np.frombuffer(json.dumps([*of_kernels, names]).encode(), np.uint8)}
        for number, terms in enumerate((self.terms, *self.crossed)):
            arrays |= {f"terms{number}_{k}": a for term in terms for k, a in term.arrays().items()}
        return {**self.scaling.arrays(), **(self.prior.arrays() if self.prior else {}), **arrays}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> "Known":
        """The inverse of `arrays`, among others."""
        local, head, names = json.loads(arrays["known"].tobytes())
        kernels, fits = Kernels(Kernel(**local), Kernel(**head)), []
        for number, of_terms in enumerate(names):
            prefix = f"terms{number}_"
            of_fold = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
            fits.append(read_terms(of_terms, of_fold))
        return Known(Scaling.of(arrays), kernels, Prior.among(arrays), fits[0], tuple(fits[1:]))


@dataclass(frozen=True)
class FittedToTargets:
    """Everything that is fitted to targets.

    every     by all rows
    folds     how rows are held out
    encoding  of categories; None without target-encoded features
    held      without the rows of each fold, for the folds that are held out of leaves
    """

    every: Known
    folds: Folds
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

    def columns_and_offset(
        self, X: NDArray[np.generic], number: IntArray, n_outputs: int, fold: int | None = None
    ) -> tuple[SingleArray, FloatArray | None]:
        """The same with the sums of terms, which know neither a target of the fold nor the row's own; None
        without terms.
        """
        rows, known = encoded(self.encoding, X, number, fold), self.without(fold)
        return known.scaling(rows), known.offset(rows, self.folds.groups(number), n_outputs)


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
    folds     how rows are held out
    terms     that were fitted before, by groups that they do not know, and a fold with its own encoding
    """

    X: NDArray[np.generic]
    target: NDArray[np.generic]
    weight: FloatArray
    number: IntArray
    encoding: CrossFitted | None
    survey: Survey
    settings: Settings
    factors: FloatArray
    folds: Folds
    terms: dict[WithoutGroups, tuple[Term, ...]] = field(default_factory=dict, repr=False)

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
        known = Known(scaling, division.kernels, prior, *self._known_terms(None))
        return division, FittedToTargets(known, self.folds, self.encoding)

    def _known_terms(self, fold: int | None) -> tuple[tuple[Term, ...], tuple[tuple[Term, ...], ...]]:
        """`Known.terms` and `Known.crossed`, by the rows of other folds. Raises SettingsError."""
        if not term_fits.are_asked_for(self.settings):
            return (), ()
        held = () if fold is None else (self.folds.group_of(fold),)
        terms = self.terms_without({*held}, fold)
        if not terms:
            return (), ()
        each = range(self.folds.n_groups)
        if not self.settings.landmarks:  # Leaves learn nothing.
            return terms, tuple(terms for _ in each)
        crossed = (terms if g in held else self.terms_without({g, *held}, fold) for g in each)
        return terms, tuple(crossed)

    def terms_without(self, groups: Collection[int], fold: int | None = None) -> tuple[Term, ...]:
        """By the rows of other groups, encoded without the targets of the fold; as large as those of all
        rows, which hold out some to find their size. Raises SettingsError.
        """
        key = frozenset(groups), fold if self.encoding else None
        if key not in self.terms:  # Two groups are left out together twice.
            rest = np.flatnonzero(~np.isin(self.folds.groups(self.number), list(groups)))
            X = encoded(self.encoding, self.X[rest], self.number[rest], fold)
            costs = row_weights(self.target, self.weight, self.factors)[rest]
            given = X, self.target[rest], costs, self.survey, self.settings
            self.terms[key] = term_fits.fit_terms(*given, self.terms_without(()) if groups else ())
        return self.terms[key]

    def without_folds(self, fitted: FittedToTargets, count: int) -> FittedToTargets:
        """The same with what is fitted without each of the first so many folds."""
        self.terms.setdefault((frozenset(), None), fitted.every.terms)
        return replace(fitted, held=tuple(self._without(fitted.every, fold) for fold in range(count)))

    def _without(self, every: Known, fold: int) -> Known:
        rest = np.flatnonzero(self.folds.of(self.number) != fold)
        number, target, weight = self.number[rest], self.target[rest], self.weight[rest]
        known = knows_targets(self.settings, self.encoding is not None)
        if not len(rest) or not (known or every.prior or every.terms):
            return every
        terms = self._known_terms(fold)
        sample = encoded(self.encoding, self.X[rest], number, fold)
        settings = with_rare_categories(self.settings)
        scaling, kernels = every.scaling, every.kernels
        if known:
            given = sample, target, weight, self.survey, settings, USUAL_REPETITIONS, scaling
            try:
                scaling = learn_scaling(*given)
            except DataError:  # Extreme values lie in the held-out rows alone.
                return Known(every.scaling, every.kernels, None, *terms)
            kernels = kernels_of(scaling(sample), weight, settings)
        if every.prior is None:
            return Known(scaling, kernels, None, *terms)
        of_prior = sample, target, weight, self.survey, settings, self.factors
        return Known(scaling, kernels, fit_prior(scaling, kernels, *of_prior), *terms)


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
