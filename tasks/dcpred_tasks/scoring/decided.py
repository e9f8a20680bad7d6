"""What is made of raw rows for output columns and answers: decision values, status, leaf, and where they are
asked for, how near the row is to the training rows of its leaf, and the contributions of features.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import LEAF_DTYPE, SCORE_DTYPE, FloatArray, LeafNumbers, SingleArray, Status
from dcpred_tasks.model.answers import nearness_model
from dcpred_tasks.model.compact_model import Model, Scores
from dcpred_tasks.model.contributions import contributions
from dcpred_tasks.scoring import scorer

ScoreRows = Callable[..., tuple[Scores, NDArray[np.uint8]]]

_of_nearness: "WeakKeyDictionary[Model, Model]" = WeakKeyDictionary()


@dataclass(frozen=True)
class Decided:
    """Rows as a model sees them."""

    decision: Scores
    """(n, n_outputs), of the model's score_dtype; NaN where the status is not 1."""
    status: NDArray[np.uint8]
    """Status codes (n,)."""
    leaf: LeafNumbers
    """The leaf that scored each row, int32 (n,)."""
    nearness: SingleArray
    """s of dcpred_tasks.model.sureness.Novelty, float32 (n,), NaN where the status is not 1; (0,) where
    nobody asks for it.
    """
    contributions: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    """dcpred_tasks.model.contributions, (n, n_parts + 2); (0, 0) where nobody asks for them."""

    def take(self, index: NDArray[Any] | slice) -> "Decided":
        near = self.nearness[index] if len(self.nearness) else self.nearness
        why = self.contributions[index] if len(self.contributions) else self.contributions
        return Decided(self.decision[index], self.status[index], self.leaf[index], near, why)


def decide(
    model: Model,
    X: NDArray[np.generic],
    *,
    nearness: bool = False,
    reasons: bool = False,
    score: ScoreRows = scorer.score_rows,
) -> Decided:
    """Decide raw rows (n, n_features).

    nearness  whether it is asked for: rows then go down the tree once more, to another model
    reasons   whether contributions are asked for
    score     the scorer, or the definition

    Raises DataError where the model has no nearness or no contributions.
    """
    leaf = np.empty(len(X), LEAF_DTYPE)
    near = nearness_scorer(model) if nearness else None
    decision, status = score(model, X, leaves=leaf)
    why = contributions(model, X, decision, leaf) if reasons else np.empty((0, 0))
    if near is None:
        return Decided(decision, status, leaf, np.empty(0, SCORE_DTYPE), why)
    found: SingleArray = score(near, X)[0][:, 0].astype(SCORE_DTYPE)
    ok = status == Status.OK
    # Of a row so far that its distance overflows there is no value: it is as far as can be.
    found[ok & np.isnan(found)] = 0.0
    found[~ok] = np.nan
    return Decided(decision, status, leaf, found, why)


def nearness_scorer(model: Model) -> Model:
    """The nearness model of a model, made once. Raises DataError."""
    if model not in _of_nearness:
        _of_nearness[model] = nearness_model(model)
    return _of_nearness[model]
