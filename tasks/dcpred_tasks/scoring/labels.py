"""Labels of raw scores, and rows that get none."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import (
    LEAF_DTYPE,
    SCORE_DTYPE,
    FloatArray,
    IntArray,
    LeafNumbers,
    SingleArray,
    Status,
)
from dcpred_tasks.model.compact_model import Model, Scores
from dcpred_tasks.model.contributions import contributions
from dcpred_tasks.model.predictive_outputs import scale_model, typicality_model
from dcpred_tasks.scoring import scorer

Label = int | float | str | bool


@dataclass(frozen=True)
class LabelCoding:
    """How the labels of one model are stored."""

    values: NDArray[Any]
    """(n_classes,), of the dtype of the array: values[class number] is what the array holds."""
    missing: int | float
    """The value of rows without a label."""
    names: tuple[str, ...] | None
    """The classes as text, where the array holds their numbers; else None."""


def label_coding(classes: tuple[Label, ...]) -> LabelCoding:
    """Integers and booleans as the smallest signed integer with a spare value for `missing` (−1 unless a
    class has it), other numbers as float64, strings and numbers beyond int64 as class numbers.
    """
    if any(isinstance(c, str) for c in classes) or _is_beyond_int64(classes):
        coding = label_coding(tuple(range(len(classes))))
        return LabelCoding(coding.values, coding.missing, tuple(str(c) for c in classes))
    if any(isinstance(c, float) for c in classes):
        return LabelCoding(np.array(classes, np.float64), float("nan"), None)
    whole = [int(c) for c in classes]
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        if min(whole) > low and max(whole) <= high:
            return LabelCoding(np.array(whole, dtype), low if -1 in whole else -1, None)
    # No spare value: the least of int64 is a class.
    return LabelCoding(
        np.array(whole, np.int64), next(n for n in range(-1, len(whole)) if n not in whole), None
    )


def _is_beyond_int64(classes: tuple[Label, ...]) -> bool:
    """Whether a class is an integer beyond int64, which float64 would merge with its neighbours."""
    return any(isinstance(c, int) and not -(2**63) <= c < 2**63 for c in classes)


def encode_labels(coding: LabelCoding, number: IntArray, status: NDArray[np.uint8]) -> NDArray[Any]:
    """The labels of scored rows with these class numbers, as the array holds them."""
    labels = coding.values[number]
    labels[status != Status.OK] = coding.missing
    return labels


ScoreRows = Callable[..., tuple[Scores, NDArray[np.uint8]]]

_further: "WeakKeyDictionary[Model, dict[str, Model | None]]" = WeakKeyDictionary()
_none: SingleArray = np.empty(0, SCORE_DTYPE)


@dataclass(frozen=True)
class RawScores:
    """The raw scores of rows."""

    decision: Scores
    """(n, n_outputs), of the model's score_dtype; NaN where the status is not 1."""
    status: NDArray[np.uint8]
    """Status codes (n,)."""
    leaf: LeafNumbers
    """The leaf that scored each row, int32 (n,)."""
    typicality: SingleArray
    """s of dcpred_tasks.model.uncertainty.Novelty, float32 (n,), NaN where the status is not 1; (0,) unless
    requested.
    """
    log_scale: FloatArray = field(default_factory=lambda: np.empty(0))
    """The decision values of model.predictive_outputs.scale_model, float64 (n,), 0 where the status is not 1;
    (0,) for a model without one.
    """
    log_scale_off: FloatArray = field(default_factory=lambda: np.empty(0))
    """Their error by rounding, for verification."""
    contributions: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    """dcpred_tasks.model.contributions, (n, n_parts + 2); (0, 0) unless requested."""

    def take(self, index: NDArray[Any] | slice) -> "RawScores":
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        return RawScores(**{name: value[index] if len(value) else value for name, value in arrays.items()})


def score_with_leaves(
    model: Model,
    X: NDArray[np.generic],
    *,
    typicality: bool = False,
    scale: bool = False,
    reasons: bool = False,
    score: ScoreRows = scorer.score_rows,
) -> RawScores:
    """Score raw rows (n, n_features).

    typicality  whether typicality is requested: rows then go down the tree once more, to another model
    scale     whether log_scale is requested
    reasons   whether contributions are requested
    score     the scorer, or the definition

    Raises DataError where the model has no typicality or no contributions.
    """
    leaf = np.empty(len(X), LEAF_DTYPE)
    near = typicality_scorer(model) if typicality else None
    spread = scale_scorer(model) if scale else None
    decision, status = score(model, X, leaves=leaf)
    distance, log_scale, ok = _none, np.empty(0), status == Status.OK
    # A row whose distance overflows has no value: it counts as farthest.
    if near is not None:
        distance = np.nan_to_num(score(near, X)[0][:, 0].astype(SCORE_DTYPE), copy=False)
        distance[~ok] = np.nan
    if spread is not None:
        log_scale = np.where(ok, np.nan_to_num(score(spread, X)[0][:, 0]), 0.0)
    why = contributions(model, X, decision, leaf) if reasons else np.empty((0, 0))
    return RawScores(decision, status, leaf, distance, log_scale, contributions=why)


def typicality_scorer(model: Model) -> Model:
    """The typicality model of a model, built once. Raises DataError."""
    near = _made(model, typicality_model)
    assert near is not None
    return near


def scale_scorer(model: Model) -> Model | None:
    """The scale model of a model, built once; None for a model without one."""
    return _made(model, scale_model)


def _made(model: Model, make: Callable[[Model], Model | None]) -> Model | None:
    made = _further.setdefault(model, {})
    if make.__name__ not in made:
        made[make.__name__] = make(model)
    return made[make.__name__]
