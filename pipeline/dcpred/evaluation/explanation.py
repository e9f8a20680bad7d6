"""Explain the prediction of a row: how much each column of the table and the leaf add to the decision value,
and how unusual the row is; on request its landmarks, which sum to the decision value, and the distance to the
nearest one. By the definition, in double precision.
"""

import html
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.public.parameters import documented
from dcpred.serving.served_model import ServedModel, load_model
from dcpred_tasks.artifacts.data_schema import check_same_encoding, find_rows
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.artifacts.model_layout import parts_of_table
from dcpred_tasks.dtypes import FloatArray, Status
from dcpred_tasks.errors import DataError, MissingChunkError
from dcpred_tasks.input_kinds import check_dense, check_exact_rows, is_sparse
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.compact_model import Model, check_features, class_numbers, leaf_values, score_rows
from dcpred_tasks.model.contributions import LEAF, PRODUCT_KERNELS, check_contributions, is_exact, method
from dcpred_tasks.model.contributions import contributions as contributions_of
from dcpred_tasks.model.feature_names import check_same_names, feature_names
from dcpred_tasks.model.kernels import Sum
from dcpred_tasks.model.leaf_arrays import Parts
from dcpred_tasks.model.predictive_outputs import novelty, probabilities
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.result_fields import result_class, result_field
from dcpred_tasks.schema.column import NEVER_SEEN
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.labels import Label, RawScores, score_with_leaves
from dcpred_tasks.scoring.statistics import bad_features
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import Address

LANDMARKS, FEATURES, CLASSES, CONTRIBUTIONS = 5, 5, 3, 8  # maximum numbers to name
MOST_ROWS = 1_000
ROUNDING = 1e-9  # A leaf that adds less, relative to decision values, adds nothing.
HALF = 0.5  # A landmark has a category if its column exceeds this.
WITHOUT = "the model was trained without calibrate=true, and has no uncertainty"
TRAINING_ROWS, LANDMARK_ROWS = "training rows", "landmarks"  # the background of contributions
LANDMARK_BACKGROUND = (
    "the model stores no training rows: the parts compare the row with the landmarks of its leaf; train it"
    " again with calibrate=true to compare with training rows"
)
INTEGRATED = "the parts are integrated gradients, because the {} has no exact Shapley values"
CONSTANT = "its leaf is constant: all of its training rows have this value"
OF_TERMS = "its leaf has no landmarks: {} alone give its value"


@result_class
class Contribution:
    """The contribution of a column of the table to the decision value of a row."""

    name: str = result_field("Name of the column.")
    value: float | str | None = result_field(
        "Its value in the row as in the table: a number, a category, a date; None for a missing value."
    )
    part: float = result_field("Its contribution to the decision value.")


@result_class
class LandmarkPart:
    """A landmark of the leaf."""

    landmark: int = result_field("Its number in the leaf.")
    kernel: float = result_field("Its kernel value K(x, u).")
    part: float = result_field("β K(x, u), its part of the decision value.")


@result_class
class FeaturePart:
    """A feature, and its part of the distance to the nearest landmark."""

    feature: int = result_field("Number of the feature, from 0.")
    name: str | None = result_field("Name of the feature; None in a matrix without names.")
    share: float = result_field(
        "Its fraction of the squared distance to the nearest landmark (laplacian: of the distance)."
    )
    value: float | None = result_field("Its raw value in the row; None for a missing value.")
    of_landmark: float | None = result_field(
        "Its raw value in the landmark; None of a one-hot encoded feature whose category there has no column."
    )
    said: str | None = result_field(
        "The value in the row as in the table: a category or a date; None for numbers.", default=None
    )
    said_of_landmark: str | None = result_field("The same of the landmark.", default=None)


@result_class
class ClassPart:
    """A class, with its decision value and probability."""

    name: Label = result_field("Label of the class.")
    decision: float | None = result_field("Its decision value; None for the first of two classes.")
    probability: float | None = result_field("Its probability, 0 to 1; None for a model without calibration.")


@result_class
class Explanation:
    """The explanation of a prediction. Without a score it holds only the status."""

    row: int = result_field("Number of the row, from 0.")
    status: str = result_field("ok, or why it has no score.")
    bad_feature: int | None = result_field(
        "Number of the first feature that is not finite; None if all are finite.", default=None
    )
    bad_feature_name: str | None = result_field("Name of that feature; None without one.", default=None)
    predicted: Label | float | None = result_field("The predicted label or number.", default=None)
    decision: float | None = result_field(
        "The explained decision value: with two classes positive for the second, with several that of"
        " the label. It is the sum of all parts.",
        default=None,
    )
    classes: list[ClassPart] = result_field("The likeliest classes, the label first.", default_factory=list)
    leaf: int | None = result_field("Number of the leaf, from 0; None without a score.", default=None)
    leaf_rows: int | None = result_field("Number of training rows of the leaf.", default=None)
    contributions: list[Contribution] = result_field(
        "The contribution of each column, largest first; with `leaf_part` and `average` they sum to"
        " the decision value.",
        default_factory=list,
    )
    direction: Label | None = result_field(
        "The class of positive decision values; None for numbers.", default=None
    )
    scale: str | None = result_field(
        "The scale of the decision value and of all parts, log1p or sqrt; None for that of the target.",
        default=None,
    )
    leaf_part: float | None = result_field(
        "The contribution of the leaf: the mean of its background rows minus the average, and the"
        " effect of its bounds.",
        default=None,
    )
    average: float | None = result_field("The mean decision value of the model.", default=None)
    method: str | None = result_field('"Shapley values" or "integrated gradients".', default=None)
    n_landmarks: int = result_field("Number of landmarks of the leaf.", default=0)
    landmarks: list[LandmarkPart] = result_field(
        "The landmarks with the largest parts.", default_factory=list
    )
    other_landmarks: float = result_field("The parts of all other landmarks together.", default=0.0)
    pseudo_landmarks: float = result_field("The parts of pairwise products and triangle points.", default=0.0)
    intercept: float = result_field(
        "The intercept of the leaf model, a part of the decision value.", default=0.0
    )
    clipped: float = result_field("The effect of the bounds of the leaf on a predicted number.", default=0.0)
    nearest: int | None = result_field("Number of the nearest landmark in the leaf.", default=None)
    features: list[FeaturePart] = result_field(
        "The features that make most of the distance to the nearest landmark.", default_factory=list
    )
    novelty: float | None = result_field(
        "The fraction of the leaf's training rows that lie nearer; None if the model does not know.",
        default=None,
    )
    remarks: list[str] = result_field("What is omitted, and why.", default_factory=list)

    def __str__(self) -> str:
        """One sentence."""
        if self.status != "ok":
            return f"row {self.row:,}: no score ({self.status.replace('_', ' ')})"
        named, others = self.largest()
        facts = [f"{part.name} {shown(part.value)} → {part.part:+.3g}" for part in named]
        facts += [f"all others {others:+.3g}"] if len(self.contributions) > len(named) else []
        facts += [f"leaf {self.leaf_part:+.3g}"] if self.leaf_part else []
        facts += [f"average {self.average:.3g}"] if self.average is not None else []
        predicted = f"{self.predicted:.6g}" if isinstance(self.predicted, float) else str(self.predicted)
        why = (
            f" (decision value{self.toward} {self.decision:.3g}{self.compared}: {'; '.join(facts)})"
            if facts
            else ""
        )
        return f"row {self.row:,}: {predicted}{why}"

    @property
    def toward(self) -> str:
        """The class of positive decision values, or the scale, as the end of "decision value"."""
        if self.scale is not None:
            return f" on the {self.scale} scale"
        return "" if self.direction is None else f" for {self.direction}"

    @property
    def compared(self) -> str:
        """The background of the row, if that is no training row."""
        return f", compared with {LANDMARK_ROWS}" if LANDMARK_BACKGROUND in self.remarks else ""

    def largest(self) -> tuple[list[Contribution], float]:
        """Return the largest contributions, and the sum of all others.

        Returns
        -------
        list of Contribution
            Those that sentences and tables name.
        float
            The sum of the parts of all others.
        """
        named = [part for part in self.contributions[:CONTRIBUTIONS] if part.part]
        return named, math.fsum(part.part for part in self.contributions[len(named) :])


class Explanations(list[Explanation]):
    """A list of `Explanation`, one for each row. It prints as sentences and shows as tables in a notebook."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self))

    def _repr_html_(self) -> str:
        return "".join(map(_table, self))


def _table(row: Explanation) -> str:
    """An explanation as a table with bars."""
    named, others = row.largest()
    lines = [(each.name, shown(each.value), each.part) for each in named]
    if len(row.contributions) > len(named):
        lines.append((f"{len(row.contributions) - len(named)} others", "", others))
    lines += [] if not row.leaf_part else [("leaf", str(row.leaf), row.leaf_part)]
    lines += [] if row.average is None else [("average", "", row.average)]
    most = max((abs(part) for _, _, part in lines), default=0.0) or 1.0
    cells = (
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td>"
        f"<td style='text-align:right'>{part:+.3g}</td><td><div style='height:.8em;"
        f"width:{abs(part) / most * 120:.0f}px;background:{'#b2182b' if part > 0 else '#2166ac'}'>"
        "</div></td></tr>"
        for name, value, part in lines
    )
    head = html.escape(str(row).partition(" (decision value")[0])
    total = (
        ""
        if row.decision is None
        else f", decision value{html.escape(row.toward)} {row.decision:.6g}{row.compared}"
    )
    return f"<table><caption>{head}{total}</caption>{''.join(cells)}</table>"


def shown(value: float | str | None) -> str:
    """A value of a table, in a sentence."""
    if value is None:
        return "missing"
    if isinstance(value, str):
        return value if value == NEVER_SEEN else repr(value)
    return f"{value:,.6g}"


@documented
def explain(
    model: ServedModel | str | Path | Any,
    X: Any,
    rows: Sequence[int] | None = None,
    *,
    x: str = "X",
    landmarks: bool = False,
) -> Explanations:
    """Explain predictions: how much each column adds to the decision value, and how unusual a row is.

    Parameters
    ----------
    model : str, Path, ServedModel or fitted estimator
        A model, or its path.
    X : array-like of shape (n_samples, n_features), str, Path or zarr.Array
        Raw rows, as for `predict`; or stored ones, for a model with a path.
    rows : sequence of int, optional
        Numbers of rows. By default all, at most 1,000.
    landmarks : bool, default False
        Also list the landmarks of the leaf, and the distance to the nearest of them.

    Returns
    -------
    Explanations
        One explanation for each row.

    Raises
    ------
    DataError
        For missing rows, and as `predict` does.
    """
    path = model.artifact.path if isinstance(model, ServedModel) else model
    if isinstance(path, str | Path) and (at := _stored(X, x, path)) is not None:
        chosen = range(open_array(at).shape[0]) if rows is None else _numbers(rows)
        return explain_stored(path, at, chosen, landmarks=landmarks)
    opened, values, names, schema = _rows_to_explain(model, X)
    numbers = list(range(len(values))) if rows is None else _numbers(rows)
    check_numbers(numbers, len(values), "X")
    return explain_rows(opened, values[numbers], numbers, names, schema, landmarks=landmarks)


def _stored(X: Any, x: str, model: str | Path) -> Address | None:
    """The address of stored rows; None for rows in memory."""
    if isinstance(X, zarr.Array):
        return zarr_arrays.array_address(X)
    return find_rows(X, x, model) if isinstance(X, str | Path) else None


def _numbers(rows: Sequence[int]) -> list[int]:
    """Numbers of rows. Raises DataError for anything else."""
    given: list[Any] = list(rows) if isinstance(rows, Iterable) and np.ndim(rows) == 1 else [None]
    wrong = [row for row in given if not isinstance(row, Integral) or isinstance(row, bool)]
    if wrong:
        refused = rows if wrong == [None] else wrong[0]
        raise DataError(f"Cannot explain row {refused!r}: rows are a list of integers, for example [0, 7].")
    return [int(row) for row in given]


def _rows_to_explain(model: Any, X: Any) -> tuple[Model, NDArray[Any], list[str] | None, Schema | None]:
    """Rows in memory, and the model that explains them."""
    if not hasattr(model, "_rows_to_explain"):
        model = load_model(model)
    if is_sparse(X):
        check_dense(X)
        X = X.toarray()
    opened, values, names, schema = model._rows_to_explain(X)
    if not isinstance(values, np.ndarray):
        raise DataError(
            f"Cannot explain X: it is not in memory ({type(X).__name__}). Pass some rows of it, computed."
        )
    return opened, values, None if names is None else [str(n) for n in names], schema


def explain_stored(
    model_path: str | Path, x: Address, rows: Sequence[int], *, landmarks: bool = False
) -> Explanations:
    """Explain rows of a Zarr array. Raises RefusedErrors."""
    artifact = open_artifact(model_path)
    model, X = artifact.model(), open_array(x)
    check_same_encoding(x, artifact)
    check_features(X.shape, np.dtype(X.dtype), model.n_features)
    check_same_names(feature_names(X), artifact.feature_names, str(x))
    check_numbers(rows, X.shape[0], str(x))
    values = np.concatenate([_row(X, x, row) for row in rows])
    names, schema = artifact.feature_names, artifact.schema
    return explain_rows(model, values, rows, names, schema, landmarks=landmarks)


def _in_the_table(row: Explanation, schema: Schema | None) -> Explanation:
    """An explanation with features in the form of their table."""
    if schema is None:
        return row

    def worded(part: FeaturePart) -> FeaturePart:
        texts = [schema.says(part.feature, value) for value in (part.value, part.of_landmark)]
        return replace(part, said=texts[0], said_of_landmark=texts[1])

    return replace(row, features=[worded(part) for part in row.features])


def _row(X: Any, x: Address, row: int) -> NDArray[Any]:
    missing = next(stored_chunks.missing_chunks(X, row, row + 1), None)
    if missing is not None:
        raise MissingChunkError(
            f"Cannot explain row {row:,}: chunk {missing} of {x} is missing, which would read as"
            f" fill values. {stored_chunks.REMEDY}"
        )
    values = zarr_arrays.read_rows(X, row, row + 1)
    check_exact_rows(values, feature_names(X))
    return values


def check_numbers(rows: Sequence[int], n_rows: int, source: str) -> None:
    """Raise DataError for missing rows, and for too many."""
    wrong = next((row for row in rows if not 0 <= row < n_rows), None)
    if wrong is not None:
        raise DataError(
            f"Cannot explain row {wrong:,}: {source} has rows 0 to {n_rows - 1:,}. Name one of those."
        )
    if len(rows) > MOST_ROWS:
        raise DataError(f"Cannot explain {len(rows):,} rows: the maximum is {MOST_ROWS:,}. Name fewer.")


def explain_rows(
    model: Model,
    X: NDArray[Any],
    numbers: Sequence[int],
    names: Sequence[str] | None,
    schema: Schema | None = None,
    *,
    landmarks: bool = False,
) -> Explanations:
    """Explain raw rows with these numbers."""
    sure = model.uncertainty is not None
    rows = score_with_leaves(model, X, typicality=sure, score=score_rows)
    parts = parts_of_table(schema, names, model.n_features)
    divided = model.leaf_models is None
    added = contributions_of(model, X, rows.decision, rows.leaf, parts=parts) if divided else None
    blame = bad_features(model.scaling, X)
    new = novelty(model, rows.typicality, rows.leaf) if sure else None
    chances = probabilities(model, rows.decision) if sure and model.task == "classification" else None
    out = Explanations()
    for i, number in enumerate(numbers):
        status = Status(int(rows.status[i]))
        if status != Status.OK:
            bad = int(blame[i])
            name = None if bad < 0 or names is None else names[bad]
            out.append(Explanation(number, status.name.lower(), None if bad < 0 else bad, name))
            continue
        row, x = rows.take(slice(i, i + 1)), X[i : i + 1]
        worded = _scored(Explanation(number, "ok"), model, x, row, names, landmarks)
        if added is not None:
            values = table_values(X[i], parts, schema)
            worded = _divided(worded, model, dict(zip(parts.names, values, strict=True)), added[i])
        classes = _classes(model, rows.decision[i], None if chances is None else chances[i])
        worded = replace(worded, classes=classes, novelty=None if new is None else float(new[i]))
        out.append(_in_the_table(worded, schema))
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


def _divided(
    row: Explanation, model: Model, values: dict[str, float | str | None], added: FloatArray
) -> Explanation:
    """An explanation with the contribution of each column."""
    assert row.decision is not None
    parts = [Contribution(name, values[name], float(part)) for name, part in zip(values, added, strict=False)]
    parts.sort(key=lambda each: -abs(each.part))
    average = float(added[-1])
    rest = row.decision - average - math.fsum(each.part for each in parts)
    if abs(rest) < ROUNDING * (abs(row.decision) + abs(average)):
        rest = 0.0
    remarks = [] if is_exact(model) else [INTEGRATED.format(_basis_in_words(model))]
    remarks += [] if model.background is not None else [LANDMARK_BACKGROUND]
    return replace(
        row,
        contributions=parts,
        leaf_part=rest,
        average=average,
        method=method(model),
        remarks=[*row.remarks, *remarks],
    )


def _basis_in_words(model: Model) -> str:
    return "triangle basis" if model.kernel.name in PRODUCT_KERNELS else f"{model.kernel.name} kernel"


def table_values(x: NDArray[Any], parts: Parts, schema: Schema | None) -> list[float | str | None]:
    """The value of a raw row (n_features,) in each part, in the form of the table."""
    by_part: list[float | str | None] = []
    columns = [] if schema is None or len(schema.sources) != len(parts.names) else schema.sources
    for part in range(len(parts.names)):
        values = [float(x[feature]) for feature in np.flatnonzero(parts.of_feature == part)]
        plain = None if math.isnan(values[0]) else values[0]
        by_part.append(columns[part].in_words(values) if columns else plain)
    return by_part


def _scored(
    explanation: Explanation,
    model: Model,
    X: NDArray[Any],
    row: RawScores,
    names: Sequence[str] | None,
    landmarks: bool,
) -> Explanation:
    """An explanation with the leaf of its row, and its decision value; with its landmarks on request."""
    leaf, number = int(row.leaf[0]), int(class_numbers(row.decision)[0])
    output = number if model.n_outputs > 1 else 0
    scaled = model.scaling.exact(X)
    offset = model.offset(X)
    value = float(leaf_values(model, leaf, scaled, offset)[0, output])
    explanation = replace(
        explanation,
        predicted=model.classes[number] if model.classes else float(row.decision[0, 0]),
        leaf=leaf,
        leaf_rows=int(model.leaf_rows[leaf]),
        remarks=[] if model.uncertainty is not None else [WITHOUT],
        scale=model.target.name if model.target else None,
    )
    if model.classes:
        explanation = replace(explanation, direction=model.classes[number if model.n_outputs > 1 else 1])
    weights = model.beta.of(leaf)[:, output].astype(np.float64)
    if model.leaf_model(leaf) is None and len(weights):
        if not landmarks:
            return replace(explanation, decision=value)
        intercept = float(model.intercept[leaf, output] + offset[0, output : output + 1].sum())
        return _summed(explanation, model, weights, intercept, scaled, X, names)
    terms = " and ".join(term.name for term in model.terms)
    remark = OF_TERMS.format(terms) if terms else CONSTANT
    if model.leaf_model(leaf) is not None:
        assert model.leaf_models is not None
        remark = f"its leaf holds another model ({model.leaf_models.name}), whose decision value has no parts"
    return replace(explanation, decision=value, intercept=value, remarks=[*explanation.remarks, remark])


def _summed(
    explanation: Explanation,
    model: Model,
    weights: FloatArray,
    intercept: float,
    scaled: FloatArray,
    X: NDArray[Any],
    names: Sequence[str] | None,
) -> Explanation:
    """An explanation with its decision value as a sum, and the distance to the nearest landmark."""
    assert explanation.leaf is not None
    basis = model.basis(explanation.leaf)
    kernel = basis(scaled)[0]
    parts, m = weights * kernel, len(basis.landmarks)
    top = np.argsort(-np.abs(parts[:m]), kind="stable")[:LANDMARKS]
    others, pseudo = math.fsum(np.delete(parts[:m], top)), math.fsum(parts[m:])
    summed = math.fsum([*parts[top], others, pseudo, intercept])
    low, high = model.bounds[explanation.leaf] if model.bounds.shape[1] else (-math.inf, math.inf)
    clipped = float(np.clip(summed, low, high)) - summed
    nearest, features, remarks = None, [], [*explanation.remarks]
    if model.kernel.stationary:
        nearest = int(kernel[:m].argmax())
        features = _features(model, basis, nearest, scaled, X, names)
    else:
        remarks.append(f"the {model.kernel.name} kernel is not a function of a distance")
    return replace(
        explanation,
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
    """The features that contribute most to the distance to a landmark."""
    point = basis.landmarks[nearest : nearest + 1].astype(np.float64)
    gap = np.abs(basis.inside(scaled) - point)[0]
    of_columns = gap if model.kernel.family.sum == Sum.ABSOLUTE else gap**2
    size = np.bincount(model.scaling.source, of_columns, model.n_features)
    scale = basis.factor.astype(np.float64) if len(basis.factor) else np.ones(1)
    place = _raw(model.scaling, point / np.where(scale == 0, np.inf, scale))
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
    """The raw values of a scaled point (1, n_columns); None for a category without a column."""
    raw: list[float | None] = [float(value) for value in scaling.raw(point)[0]]
    if scaling.coding is not None:
        columns = (scaling.shift + point / np.where(scaling.factor == 0, np.inf, scaling.factor))[0]
        for feature in scaling.coding.features:
            if columns[scaling.source == feature].max() <= HALF:
                raw[feature] = None
    return raw


@result_class
class ExplainedRows:
    """What `dcpred explain --json` prints."""

    rows: list[Explanation] = result_field("The explanation of each row.")


# -- rows in bulk --------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Contributions:
    """The contributions of columns to the decision values of rows, in the form of the package shap.

    Row by row, `base_values` and the sum of `values` are the decision value, which is on the scale of the
    model if that has a `target_transform`.

    An index of rows gives those rows, a number one row.

    Attributes
    ----------
    values : ndarray
        Contributions of the columns, and of the leaf, float64 of shape (n, n_columns + 1).
    base_values : ndarray
        The mean decision value of the model, float64 of shape (n,).
    data : ndarray
        What the model reads: numbers, numbers of categories and days; float64 of shape (n, n_columns + 1).
    display_data : ndarray
        The same in the words of the table, objects of shape (n, n_columns + 1).
    feature_names : list of str
        Names of the columns, and "leaf".
    method : str
        How the contributions are computed: "Shapley values" or "integrated gradients".
    background : str
        What each row is compared with: "training rows", or "landmarks" where the model was trained with
        ``calibrate=False`` and keeps no rows.
    """

    values: FloatArray
    base_values: FloatArray
    data: FloatArray
    display_data: NDArray[np.object_]
    feature_names: list[str]
    method: str
    background: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `values`."""
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int | slice | np.integer | np.ndarray | list):
            return self._of_shap()[index]
        arrays = (self.values[index], self.base_values[index], self.data[index], self.display_data[index])
        return Contributions(*arrays, self.feature_names, self.method, self.background)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Plots of shap ask for this class. The package is not imported here; whoever plots has done it."""
        return getattr(sys.modules.get("shap"), "Explanation", Contributions)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle compares `__class__` with the type."""
        arrays = self.values, self.base_values, self.data, self.display_data
        return Contributions, (*arrays, self.feature_names, self.method, self.background)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "shap" not in sys.modules or "values" not in self.__dict__:
            raise AttributeError(f"contributions have no attribute {name!r}")
        return getattr(self._of_shap(), name)

    def _of_shap(self) -> Any:
        if "shap" not in sys.modules:
            raise TypeError("Contributions are indexed by rows: a number, a slice or an array of numbers.")
        return sys.modules["shap"].Explanation(
            self.values,
            self.base_values,
            self.data,
            display_data=self.display_data,
            feature_names=self.feature_names,
        )

    def __repr__(self) -> str:
        many = self.values if self.values.ndim > 1 else self.values[None]
        size = np.abs(many).mean(axis=0) if len(many) else np.zeros(many.shape[1])
        top = np.argsort(-size, kind="stable")[:CONTRIBUTIONS]
        named = ", ".join(f"{self.feature_names[j]} {size[j]:.3g}" for j in top)
        return (
            f"Contributions of {many.shape[1] - 1} columns to {len(many):,} rows ({self.method}, compared"
            f" with {self.background}; mean size: {named})"
        )


def contributions(
    model: ServedModel | str | Path | Any, X: Any, *, label: Label | None = None
) -> Contributions:
    """Compute what each column of the table adds to the decision values of rows in memory.

    Parameters
    ----------
    model : str, Path, ServedModel or fitted estimator
        A model, or its path.
    X : array-like of shape (n_samples, n_features)
        Raw rows, as for `predict`.
    label : str or float, optional
        With several classes, the one whose decision value is explained. By default the label of each row.

    Returns
    -------
    Contributions
        Values (n_samples, n_columns + 1), the last of the leaf, and base values; NaN in rows without a score.

    Raises
    ------
    DataError
        What `predict` raises; also for baselines, and for a label that the model does not have.
    """
    opened, values, names, schema = _rows_to_explain(model, X)
    check_contributions(opened)
    parts = parts_of_table(schema, names, opened.n_features)
    rows = score_with_leaves(opened, values)
    output = None
    if label is not None:
        if opened.n_outputs == 1 or label not in opened.classes:
            raise DataError(
                f"Cannot explain label {label!r}: the model has one decision value, or other classes."
            )
        output = np.full(len(values), opened.classes.index(label))
    added = contributions_of(opened, values, rows.decision, rows.leaf, parts=parts, output=output)
    first = np.unique(parts.of_feature, return_index=True)[1]
    data = np.column_stack([values[:, first].astype(np.float64), rows.leaf])
    words = np.empty(data.shape, object)
    for i, x in enumerate(values):
        texts = ("missing" if value is None else value for value in table_values(x, parts, schema))
        words[i] = [*texts, str(rows.leaf[i])]
    background = LANDMARK_ROWS if opened.background is None else TRAINING_ROWS
    found_of_rows = added[:, :-1], added[:, -1], data, words
    return Contributions(*found_of_rows, [*parts.names, LEAF], method(opened), background)
