"""How terms of a model beside its kernels (model/term.py) are fitted, before leaves are.

Leaves learn what terms leave: of a regression the residual, of classes a loss of the sum. The local SVM takes
no offset, so a leaf beside terms is a refined one.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.leaf_model import COMPACT
from dcpred_tasks.model.term import Term
from dcpred_tasks.training.losses import DISTANCE
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.tree_boosting import fit_trees

FitTerm = Callable[
    [NDArray[np.generic], NDArray[np.generic], FloatArray, Survey, Settings, Sequence[Term]], Term | None
]
"""A term, or None where there is nothing to learn: by encoded rows (n, n_features), where NaN is a missing
value, and targets (n,), class numbers or values, with weights > 0. Of classes its outputs are decision
values: about ±1 for the second class and the first, or for each of several and the others. It is as large as
the term of its kind among those given last, of more rows, if one is there.
"""


class TermFit(NamedTuple):
    """How a term is fitted."""

    is_asked_for: Callable[[Settings], bool]
    fit: FitTerm


FITS: tuple[TermFit, ...] = (TermFit(lambda settings: settings.trees > 0, fit_trees),)


def are_asked_for(settings: Settings) -> bool:
    """Whether settings ask for a term."""
    return any(term.is_asked_for(settings) for term in FITS)


def fit_terms(
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
    like: Sequence[Term] = (),
) -> tuple[Term, ...]:
    """The terms that settings ask for; none of no rows. Raises SettingsError for leaves that ignore them.

    like  terms of more rows, which are as large
    """
    asked = [term.fit for term in FITS if len(X) and term.is_asked_for(settings)]
    fits = [fit(X, target, weight, survey, settings, like) for fit in asked]
    terms = tuple(term for term in fits if term is not None)
    if terms and (other := _not_learning(settings)):
        raise SettingsError(
            f"Cannot train {terms[0].name} beside {', '.join(other)}: local SVMs do not take"
            f" {terms[0].name} into account. Set {', '.join(other.values())}, or {terms[0].name}=0."
        )
    return terms


def learn_what_is_left(settings: Settings) -> bool:
    """Whether leaves take terms into account."""
    return not _not_learning(settings)


def _not_learning(settings: Settings) -> dict[str, str]:
    """Settings with which leaves do not take terms into account, and what to set in their place."""
    right = {
        f"loss={DISTANCE}": (settings.loss != DISTANCE, "another loss"),
        f"distill_weight={settings.distill_weight:g}": (not settings.distill_weight, "distill_weight=0"),
        "keep_support_vectors=true": (not settings.keep_support_vectors, "keep_support_vectors=false"),
        "refine=false": (settings.refine, "refine=true"),
        f"leaf_model={settings.leaf_model}": (settings.leaf_model == COMPACT, f"leaf_model={COMPACT}"),
    }
    return {wrong: advice for wrong, (is_right, advice) in right.items() if not is_right}
