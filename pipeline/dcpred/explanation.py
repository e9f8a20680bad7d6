"""Why a row gets what it gets: its leaf, the landmarks that its decision value is summed of, the features
that its distance to the nearest of them is made of, and how new it is. By the definition, in double
precision.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.serving import ServedModel, load_model
from dcpred_tasks.artifacts.data_schema import check_same_encoding
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.dtypes import FloatArray, Status
from dcpred_tasks.errors import DataError, MissingChunkError
from dcpred_tasks.input_kinds import check_dense, check_exact_rows, is_sparse
from dcpred_tasks.model.answers import novelty, probabilities
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.compact_model import Model, check_features, class_numbers, leaf_values, score_rows
from dcpred_tasks.model.feature_names import check_same_names, feature_names
from dcpred_tasks.model.kernel_families import Sum
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.decided import Decided, decide
from dcpred_tasks.scoring.labels import Label
from dcpred_tasks.scoring.statistics import bad_features
from dcpred_tasks.storage import stored_chunks, zarr_arrays

LANDMARKS, FEATURES, CLASSES = 5, 5, 3  # how many are named
MOST_ROWS = 1_000
HALF = 0.5  # A landmark has a code if the column of that is more.
WITHOUT = "the model was trained without calibrate=true, and does not know how sure it is"
CONSTANT = "its leaf is constant: all of its training rows have this value"


@dataclass(frozen=True)
class LandmarkPart:
    """A landmark of the leaf."""

    landmark: int
    """Its number in the leaf."""
    kernel: float
    """Its kernel value K(x, u)."""
    part: float
    """β K(x, u), its part of the decision value."""


@dataclass(frozen=True)
class FeaturePart:
    """A feature."""

    feature: int
    name: str | None
    share: float
    """Its share of the squared distance to the nearest landmark (laplacian: of the distance)."""
    value: float | None
    """Its raw value in the row; None for a gap."""
    of_landmark: float | None
    """Its raw value in the landmark; None of a coded feature whose code there has no column."""
    said: str | None = None
    """What the value in the row is in the table, a category or a date; None for numbers."""
    said_of_landmark: str | None = None
    """The same of the landmark."""


@dataclass(frozen=True)
class ClassPart:
    """A class."""

    name: Label
    decision: float | None
    """Its decision value; None for the first of two classes."""
    probability: float | None


@dataclass(frozen=True)
class Explanation:
    """Why a row gets what it gets. Without a score there is nothing but the status."""

    row: int
    status: str
    """ok, or why it has no score."""
    bad_feature: int | None = None
    """The first feature that is not finite."""
    predicted: Label | float | None = None
    """The label, or the number."""
    decision: float | None = None
    """The decision value that is explained: of two classes, where above 0 it is the second; of several, that
    of the label. It is the sum of all parts.
    """
    classes: list[ClassPart] = field(default_factory=list)
    """The likeliest classes, the label first."""
    leaf: int | None = None
    leaf_rows: int | None = None
    """Training rows of the leaf."""
    n_landmarks: int = 0
    """Landmarks of the leaf."""
    landmarks: list[LandmarkPart] = field(default_factory=list)
    """Those with the largest parts."""
    other_landmarks: float = 0.0
    """The parts of all others."""
    pseudo_landmarks: float = 0.0
    """The parts of products and triangle points."""
    intercept: float = 0.0
    clipped: float = 0.0
    """What the bounds of the leaf took away or added, of a number."""
    nearest: int | None = None
    """The landmark that is nearest."""
    features: list[FeaturePart] = field(default_factory=list)
    """Those that make most of the distance to it."""
    novelty: float | None = None
    """The share of the leaf's training rows that lie nearer; None where the model does not know."""
    remarks: list[str] = field(default_factory=list)
    """What is not told, and why."""


def explain(
    model: ServedModel | str | Path | Any, X: Any, rows: Sequence[int] | None = None
) -> list[Explanation]:
    """Explain rows in memory.

    model  a served model, its path, or a fitted estimator
    X      (n_samples, n_features) raw rows, as `predict` takes them
    rows   which of them; None: all, of which there may be 1,000

    Raises DataError for rows that there are not, and as `predict` does.
    """
    if not hasattr(model, "rows_to_explain"):
        model = load_model(model)
    if is_sparse(X):
        check_dense(X)
        X = X.toarray()
    own, found, names, schema = model.rows_to_explain(X)
    if not isinstance(found, np.ndarray):
        raise DataError(
            f"X is a {type(X).__name__} that is not in memory, but rows in memory are explained; pass some"
            " rows of it, computed"
        )
    numbers = list(range(len(found))) if rows is None else [int(row) for row in rows]
    check_numbers(numbers, len(found), "X")
    told = explain_rows(own, found[numbers], numbers, None if names is None else [str(n) for n in names])
    return _in_the_table(told, schema)


def explain_stored(model_path: str | Path, x: str, rows: Sequence[int]) -> list[Explanation]:
    """Explain rows of a Zarr array. Raises RefusedErrors."""
    artifact = open_artifact(model_path)
    model, X = artifact.model(), zarr_arrays.open_array(x)
    check_same_encoding(x, artifact)
    check_features(X.shape, np.dtype(X.dtype), model.n_features)
    check_same_names(feature_names(X), artifact.feature_names, x)
    check_numbers(rows, X.shape[0], x)
    found = np.concatenate([_row(X, x, row) for row in rows])
    return _in_the_table(explain_rows(model, found, rows, artifact.feature_names), artifact.schema)


def _in_the_table(found: list[Explanation], schema: Schema | None) -> list[Explanation]:
    """Explanations with what features are in the table that they come from."""
    if schema is None:
        return found

    def told(part: FeaturePart) -> FeaturePart:
        says = [schema.says(part.feature, value) for value in (part.value, part.of_landmark)]
        return replace(part, said=says[0], said_of_landmark=says[1])

    return [replace(one, features=[told(part) for part in one.features]) for one in found]


def _row(X: Any, x: str, row: int) -> NDArray[Any]:
    missing = next(stored_chunks.missing_chunks(X, row, row + 1), None)
    if missing is not None:
        raise MissingChunkError(
            f"row {row:,} was to be explained, but chunk {missing} of {x} is missing, which would read as"
            f" fill values; {stored_chunks.REMEDY}"
        )
    found = zarr_arrays.read_rows(X, row, row + 1)
    check_exact_rows(found, feature_names(X))
    return found


def check_numbers(rows: Sequence[int], n_rows: int, source: str) -> None:
    """Raise DataError for rows that there are not, and for too many."""
    wrong = next((row for row in rows if not 0 <= row < n_rows), None)
    if wrong is not None:
        raise DataError(
            f"row {wrong:,} was to be explained, but {source} has rows 0 to {n_rows - 1:,}; name one of those"
        )
    if len(rows) > MOST_ROWS:
        raise DataError(
            f"{len(rows):,} rows were to be explained, but at most {MOST_ROWS:,} can be at once; name fewer"
        )


def explain_rows(
    model: Model, X: NDArray[Any], numbers: Sequence[int], names: Sequence[str] | None
) -> list[Explanation]:
    """Explain raw rows, whose numbers are those that are told."""
    sure = model.sureness is not None
    rows = decide(model, X, nearness=sure, score=score_rows)
    blame = bad_features(model.scaling, X)
    new = novelty(model, rows.nearness, rows.leaf) if sure else None
    chances = probabilities(model, rows.decision) if sure and model.task == "classification" else None
    out = []
    for i, number in enumerate(numbers):
        status = Status(int(rows.status[i]))
        if status != Status.OK:
            bad = int(blame[i])
            out.append(Explanation(number, status.name.lower(), None if bad < 0 else bad))
            continue
        told = _scored(Explanation(number, "ok"), model, X[i : i + 1], rows.take(slice(i, i + 1)), names)
        classes = _classes(model, rows.decision[i], None if chances is None else chances[i])
        out.append(replace(told, classes=classes, novelty=None if new is None else float(new[i])))
    return out


def _classes(model: Model, decision: FloatArray, chance: FloatArray | None) -> list[ClassPart]:
    if not model.classes:
        return []
    if model.n_outputs == 1:
        order = [1, 0] if decision[0] > 0 else [0, 1]
        values: list[float | None] = [None, float(decision[0])]
    else:
        order = np.argsort(-decision, kind="stable")[:CLASSES].tolist()
        values = [float(value) for value in decision]
    return [
        ClassPart(model.classes[k], values[k], None if chance is None else float(chance[k])) for k in order
    ]


def _scored(
    one: Explanation, model: Model, X: NDArray[Any], row: Decided, names: Sequence[str] | None
) -> Explanation:
    """An explanation with what is to be told of the leaf of its row."""
    leaf, number = int(row.leaf[0]), int(class_numbers(row.decision)[0])
    output = number if model.n_outputs > 1 else 0
    scaled = model.scaling.exact(X)
    value = float(leaf_values(model, leaf, scaled)[0, output])
    one = replace(
        one,
        predicted=model.classes[number] if model.classes else value,
        leaf=leaf,
        leaf_rows=int(model.leaf_rows[leaf]),
        remarks=[] if model.sureness is not None else [WITHOUT],
    )
    weights = model.beta[model.beta_at[leaf] : model.beta_at[leaf + 1], output].astype(np.float64)
    if model.machine(leaf) is None and len(weights):
        return _summed(one, model, weights, float(model.intercept[leaf, output]), scaled, X, names)
    remark = CONSTANT
    if model.machine(leaf) is not None:
        assert model.machines is not None
        remark = f"its leaf has a machine of another system ({model.machines.name}), which has no landmarks"
    return replace(one, decision=value, intercept=value, remarks=[*one.remarks, remark])


def _summed(
    one: Explanation,
    model: Model,
    weights: FloatArray,
    intercept: float,
    scaled: FloatArray,
    X: NDArray[Any],
    names: Sequence[str] | None,
) -> Explanation:
    """An explanation with its decision value as a sum, and the distance to the nearest landmark."""
    assert one.leaf is not None
    basis = model.basis(one.leaf)
    kernel = basis(scaled)[0]
    parts, m = weights * kernel, len(basis.landmarks)
    top = np.argsort(-np.abs(parts[:m]), kind="stable")[:LANDMARKS]
    others, pseudo = math.fsum(np.delete(parts[:m], top)), math.fsum(parts[m:])
    summed = math.fsum([*parts[top], others, pseudo, intercept])
    low, high = model.bounds[one.leaf] if model.bounds.shape[1] else (-math.inf, math.inf)
    clipped = float(np.clip(summed, low, high)) - summed
    nearest, features, remarks = None, [], [*one.remarks]
    if model.kernel.stationary:
        nearest = int(kernel[:m].argmax())
        features = _features(model, basis, nearest, scaled, X, names)
    else:
        remarks.append(f"the {model.kernel.name} kernel is no function of a distance")
    return replace(
        one,
        decision=summed + clipped,
        n_landmarks=m,
        landmarks=[LandmarkPart(int(j), float(kernel[j]), float(parts[j])) for j in top],
        other_landmarks=others,
        pseudo_landmarks=pseudo,
        intercept=intercept,
        clipped=clipped,
        nearest=nearest,
        features=features,
        remarks=remarks,
    )


def _features(
    model: Model,
    basis: LeafBasis,
    nearest: int,
    scaled: FloatArray,
    X: NDArray[Any],
    names: Sequence[str] | None,
) -> list[FeaturePart]:
    """The features that make most of the distance to a landmark."""
    point = basis.landmarks[nearest : nearest + 1].astype(np.float64)
    gap = np.abs(basis.inside(scaled) - point)[0]
    of_columns = gap if model.kernel.family.sum == Sum.ABSOLUTE else gap**2
    size = np.bincount(model.scaling.source, of_columns, model.n_features)
    own = basis.factor.astype(np.float64) if len(basis.factor) else np.ones(1)
    place = _raw(model.scaling, point / np.where(own == 0, np.inf, own))
    return [
        FeaturePart(
            int(j),
            None if names is None else names[j],
            float(size[j] / size.sum()),
            None if np.isnan(X[0, j]) else float(X[0, j]),
            place[j],
        )
        for j in np.argsort(-size, kind="stable")[:FEATURES]
        if size[j] > 0
    ]


def _raw(scaling: Scaling, point: FloatArray) -> list[float | None]:
    """The raw values of a scaled point (1, n_columns); None of a coded feature where no column says its
    code.
    """
    raw: list[float | None] = [float(value) for value in scaling.raw(point)[0]]
    if scaling.coding is not None:
        columns = (scaling.shift + point / np.where(scaling.factor == 0, np.inf, scaling.factor))[0]
        for feature in scaling.coding.features:
            if columns[scaling.source == feature].max() <= HALF:
                raw[feature] = None
    return raw
