"""The compact model as arrays, and its slow, plain definition: the oracle that any faster engine is held to.

    x' = (x − μ) ∘ s;  leaf = descend(x');  f(x) = β_leafᵀ c̄_leaf(x' ∘ φ_leaf) + b_leaf + Σ terms(x)

with φ_leaf = 1 unless leaves have factors of their own. A regression stays within the bounds of the leaf.

This is algorithm 1 of Hsieh et al. 2014.

Arrays of all leaves are stored one after another; `*_at[leaf] : *_at[leaf + 1]` are those of one leaf.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import (
    ACC_DTYPE,
    MODEL_DTYPE,
    NO_LEAF,
    SCORE_DTYPE,
    STATUS_DTYPE,
    VALUE_DTYPE,
    FloatArray,
    IntArray,
    LeafNumbers,
    SingleArray,
    Status,
)
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import check_is_matrix
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.leaf_arrays import BETA, LEAF, Background, LeafArrays, Line, OutputWeights, Parts
from dcpred_tasks.model.leaf_model import LeafModel, needs_double, read_leaf_model
from dcpred_tasks.model.relations import Relations
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_transform import NO_TRANSFORM, TargetTransform, undone
from dcpred_tasks.model.term import Term, offset_of
from dcpred_tasks.model.tree import Router
from dcpred_tasks.model.uncertainty import Uncertainty

Scores = NDArray[np.float32] | NDArray[np.float64]
_one_thread = threading.RLock()
TILE_BYTES = 64 * 2**20  # float64 rows of a tile
MOST_VALUES = 2**26  # kernel values of rows of a leaf that are held at a time


@dataclass(frozen=True)
class Support:
    """The local SVMs, for early prediction: support vectors of all leaves, scaled, and γ of each leaf.
    `leaf_arrays` describes the layout of arrays of all leaves.
    """

    at: IntArray
    vectors: Annotated[
        SingleArray, Line(MODEL_DTYPE, ("support_vector", "feature"), offsets="at", in_leaf="support")
    ]
    dual: Annotated[SingleArray, Line(MODEL_DTYPE, ("support_vector", "output"), offsets="at")]
    intercept: Annotated[FloatArray, Line(ACC_DTYPE, (LEAF, "output"), in_leaf="early_intercept")]
    gamma: Annotated[FloatArray, Line(ACC_DTYPE, (LEAF,), in_leaf="early_gamma", since=2)]


@dataclass(frozen=True, eq=False)
class LeafModels:
    """Leaf models in place of compact ones: their name, and the packed arrays of each leaf; a leaf without
    them is constant. dcpred_tasks.model.leaf_model defines them.
    """

    name: str
    at: IntArray
    packed: Annotated[NDArray[np.uint8], Line(np.uint8, ("byte",), offsets="at", in_leaf="packed", since=4)]
    _made: dict[int, LeafModel] = field(default_factory=dict, repr=False)

    def of(self, leaf: int, shape: tuple[int, int]) -> LeafModel | None:
        """The leaf model of a leaf, of (n_features, n_outputs), built once; None for a constant leaf."""
        span = _span(self.at, leaf)
        if leaf not in self._made and span.start < span.stop:
            with _one_thread:  # else each of several threads builds one, of a large size
                if leaf not in self._made:
                    self._made[leaf] = read_leaf_model(self.name, self.packed[span], shape)
        return self._made.get(leaf)

    def dtype(self, leaf: int) -> type[np.floating]:
        """The precision that the rows of a leaf are scored in."""
        span = _span(self.at, leaf)
        return ACC_DTYPE if span.start == span.stop or needs_double(self.packed[span]) else MODEL_DTYPE


@dataclass(frozen=True)
class Reference:
    """Mean and standard deviation of the raw features of the training rows, and with missing values the share
    of rows that lack each: the reference for scored rows. Prediction does not need them. For target-encoded
    features those of the means.
    """

    mean: Annotated[FloatArray, Line(ACC_DTYPE, ("feature",))]
    sd: Annotated[FloatArray, Line(ACC_DTYPE, ("feature",), values="[0, inf)")]
    """Standard deviations."""
    gaps: Annotated[FloatArray | None, Line(ACC_DTYPE, ("feature",), since=5, values="[0, 1]")] = None

    def first(self, n_features: int) -> "Reference":
        """Those of the first features alone."""
        gaps = None if self.gaps is None else self.gaps[:n_features]
        return Reference(self.mean[:n_features], self.sd[:n_features], gaps)


# Models are compared by identity: the scorer caches one engine for each Model object.
@dataclass(frozen=True, eq=False)
class Model(LeafArrays):
    """Everything that prediction needs. `classes` is empty for regression; n_outputs is 1 for two classes.

    The arrays of leaves are the fields of LeafArrays; `*_at` are their offsets, int64 (n_leaves + 1,), and
    leaf_rows int64 (n_leaves,) the training rows of each. `background` and `parts` serve
    contributions alone. Leaves predict on the scale of `target`, which `score_rows` undoes.
    """

    task: str
    classes: tuple[int | float | str | bool, ...]
    kernel: Kernel
    triangle_bound: str
    scaling: Scaling
    tree: Router
    beta: Annotated[OutputWeights, BETA]  # type: ignore[assignment]  # from_dense of those of its leaves
    landmark_at: IntArray
    pair_at: IntArray
    triangle_at: IntArray
    beta_at: IntArray
    leaf_rows: IntArray
    local_kernel: Kernel
    support: Support | None = None
    reference: Reference | None = None
    leaf_models: LeafModels | None = None
    uncertainty: Uncertainty | None = None
    background: Background | None = None
    parts: Parts | None = None
    bins: Bins | None = None
    relations: Relations | None = None
    target: TargetTransform = NO_TRANSFORM
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.beta, np.ndarray):
            object.__setattr__(self, "beta", OutputWeights.from_dense(self.beta, self.beta_at))

    @property
    def n_features(self) -> int:
        """Features of a raw row."""
        return self.scaling.n_features

    @property
    def n_columns(self) -> int:
        """Features of a scaled row: centres, landmarks and support vectors have as many."""
        return len(self.scaling.shift)

    @property
    def n_leaves(self) -> int:
        return len(self.intercept)

    @property
    def n_outputs(self) -> int:
        return int(self.intercept.shape[1])

    def leaf_model(self, leaf: int) -> LeafModel | None:
        """The model of a leaf where that is not a compact one."""
        if self.leaf_models is None:
            return None
        return self.leaf_models.of(leaf, (self.n_columns, self.n_outputs))

    def basis(self, leaf: int) -> LeafBasis:
        span = _span(self.landmark_at, leaf)
        landmarks = self.landmarks[span]
        triangle = self.triangle[_span(self.triangle_at, leaf)].reshape(-1, max(len(landmarks), 1))
        pairs = self.pairs[_span(self.pair_at, leaf)]
        factor = self.leaf_factor[leaf]
        return LeafBasis(
            self.kernel, self.triangle_bound, landmarks, self.gamma[span], pairs, triangle, factor
        )

    @cached_property
    def bounded(self) -> NDArray[np.bool_]:
        """bool (n_leaves,), the leaves whose bounds predictions stay within: without terms a constant needs
        none.
        """
        at = self.beta_at if self.leaf_models is None else self.leaf_models.at
        return (np.diff(at) > 0) | bool(self.terms) if self.bounds.shape[1] else np.zeros(self.n_leaves, bool)

    def offset(self, X: NDArray[np.generic]) -> FloatArray:
        """The sum of the terms at raw rows, float64 (n, n_outputs); (n, 0) without terms."""
        if self.terms and self.scaling.targets is not None:
            X = self.scaling.targets(X)
        return offset_of([term.values for term in self.terms], X, self.n_outputs)

    @property
    def factors(self) -> FloatArray:
        """From raw units to columns of landmarks, float64 (n_leaves, n_columns) or (1, n_columns)."""
        factor = self.leaf_factor if self.leaf_factor.shape[1] else np.ones((1, self.n_columns), MODEL_DTYPE)
        return np.asarray(self.scaling.factor * factor, ACC_DTYPE)

    @property
    def score_dtype(self) -> np.dtype[np.floating]:
        return np.dtype(VALUE_DTYPE if self.task == "regression" else SCORE_DTYPE)

    @property
    def nbytes(self) -> int:
        """Bytes of the compact model, without support vectors."""
        values = [getattr(self, f.name) for f in fields(self)]
        values += self.tree.arrays().values()
        values += self.scaling.arrays().values()
        values += [] if self.leaf_models is None else [self.leaf_models.packed]
        values += [array for term in self.terms for array in term.arrays().values()]
        return sum(value.nbytes for value in values if isinstance(value, np.ndarray | OutputWeights))


def tile_rows(n_features: int) -> int:
    """Rows of a tile, a power of two by the number of features alone: attempts give the same bits."""
    rows = TILE_BYTES // (8 * max(n_features, 1))
    return int(2 ** np.clip(int(rows).bit_length() - 1, 8, 16))


def check_rows(X: NDArray[np.generic], n_features: int) -> None:
    """Raise DataError unless X can be scored by a model of n_features features."""
    check_features(X.shape, X.dtype, n_features)


def check_features(shape: tuple[int, ...], dtype: np.dtype[np.generic], n_features: int) -> None:
    """The same of what has this shape and dtype."""
    check_matrix(shape, dtype)
    if shape[1] != n_features:
        raise DataError(
            f"X has {shape[1]} features, but the model was trained with {n_features} features. Pass the same"
            " features in the same order as in training."
        )


def check_matrix(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
    """Raise DataError unless this is the shape and dtype of rows of features."""
    check_is_matrix(shape)
    if dtype.kind not in "biuf":
        kind = {"c": "complex numbers"}.get(dtype.kind, "not numbers")
        raise DataError(
            f"Cannot use X: its dtype {dtype} is {kind}. Convert it to real numbers or booleans first."
        )


def score_rows(
    model: Model, X: NDArray[np.generic], *, early: bool = False, leaves: LeafNumbers | None = None
) -> tuple[Scores, NDArray[np.uint8]]:
    """Decision values and status of raw rows.

    X       (n_samples, n_features), any real dtype and memory order, not written
    leaves  int32 (n_samples,), if passed: becomes the leaf of each row, −1 where its status is 2
    returns decision (n_samples, n_outputs), float32 or for regression float64, and status uint8 (n_samples,).
    A row with infinity, or with NaN in a model without missing values, gets status 2 and NaN, without effect
    on the other rows.
    """
    check_rows(X, model.n_features)
    decision = np.full((len(X), model.n_outputs), np.nan, model.score_dtype)
    status = np.full(len(X), Status.OK, STATUS_DTYPE)
    step = tile_rows(model.n_columns)
    for start in range(0, len(X), step):
        tile = slice(start, min(start + step, len(X)))
        given = None if leaves is None else leaves[tile]
        _score_tile(model, X[tile], decision[tile], status[tile], early, given)
    return undone(model.target, decision, status)


def _score_tile(
    model: Model,
    X: NDArray[np.generic],
    decision: Scores,
    status: NDArray[np.uint8],
    early: bool,
    leaves: LeafNumbers | None,
) -> None:
    """Score one tile in place."""
    # A value too large for float32 becomes a status, not a warning.
    with np.errstate(over="ignore", invalid="ignore"):
        rows = model.scaling.exact(X)
        finite = np.isfinite(rows.astype(MODEL_DTYPE)).all(axis=1)
        rows[~finite] = 0.0
        values = np.empty((len(rows), model.n_outputs), ACC_DTYPE)
        own_leaf = model.tree.descend(rows)
        order, spans = by_leaf(own_leaf)
        rows, offset = rows[order], model.offset(X[order])
        for leaf, span in spans:
            values[span] = (
                _early_values(model, leaf, rows[span])
                if early
                else leaf_values(model, leaf, rows[span], offset[span])
            )
        decision[order] = values.astype(model.score_dtype)
    status[~np.isfinite(decision).all(axis=1)] = Status.NON_FINITE_RESULT
    status[~finite] = Status.NON_FINITE_FEATURE
    decision[status != Status.OK] = np.nan
    if leaves is not None:
        leaves[:] = np.where(finite, own_leaf, NO_LEAF)


def by_leaf(leaf: NDArray[np.int32]) -> tuple[IntArray, Iterator[tuple[int, slice]]]:
    """The order that sorts rows by leaf, and the leaves that occur with their spans in that order."""
    order = np.argsort(leaf, kind="stable")
    at = leaf[order]
    bounds = np.flatnonzero(np.diff(at, prepend=-1, append=-1))
    return order, ((int(at[a]), slice(a, b)) for a, b in pairwise(bounds))


def leaf_values(model: Model, leaf: int, rows: RowArray, offset: FloatArray | None = None) -> FloatArray:
    """Decision values of scaled rows of a leaf, float64 (n, n_outputs).

    offset  float64 (n, n_outputs), the sum of the terms at these rows; (n, 0) or None for a model without
    """
    other = model.leaf_model(leaf)
    if other is not None:
        value = other.predict(rows)
    else:  # An output without weights is a constant, also where a kernel value overflows.
        value = np.tile(model.intercept[leaf], (len(rows), 1))
        (outputs, weights), basis = model.beta.present(leaf), model.basis(leaf)
        for part in _parts(len(rows), basis.size) if len(weights) else ():
            value[part, outputs] += basis(rows[part]) @ weights.astype(ACC_DTYPE)
    return summed(model, leaf, value, offset)


def summed(model: Model, leaf: int, value: FloatArray, offset: FloatArray | None) -> FloatArray:
    """Decision values of rows of a leaf from those of its kernels and the sum of the terms: within bounds."""
    bounded = model.bounded[leaf]
    if offset is not None and offset.shape[1]:
        value, bounded = value + offset, model.bounds.shape[1] > 0
    return np.clip(value, *model.bounds[leaf]) if bounded else value


def summed_sizes(model: Model, X: NDArray[np.generic]) -> tuple[FloatArray, FloatArray]:
    """The size of the sums in the decision value of raw rows, of all terms and of intercepts, each float64
    (n_samples,): errors of single precision are relative to it, because terms cancel. A row that is not
    finite counts as zeros. For kernel terms see LeafBasis.summed_sizes.
    """
    terms, intercept = np.zeros(len(X)), np.zeros(len(X))
    with np.errstate(over="ignore", invalid="ignore"):
        rows = model.scaling.exact(X)
        rows[~np.isfinite(rows).all(axis=1)] = 0.0
        order, spans = by_leaf(model.tree.descend(rows))
        for leaf, span in spans:
            mine, beta_span = order[span], _span(model.beta_at, leaf)
            other = model.leaf_model(leaf)
            if other is not None:
                terms[mine] = other.sizes(rows[mine])
            elif beta_span.start < beta_span.stop:
                sizes, weights = model.basis(leaf).summed_sizes(rows[mine]), model.beta.present(leaf)[1]
                terms[mine] = (sizes @ np.abs(weights.astype(ACC_DTYPE))).max(axis=1, initial=0.0)
            intercept[mine] = np.abs(model.intercept[leaf]).max()
        encoded = X if model.scaling.targets is None else model.scaling.targets(X)
        for term in model.terms:
            terms += term.sizes(encoded)
    return terms, intercept


def _early_values(model: Model, leaf: int, rows: RowArray) -> FloatArray:
    if model.support is None:
        raise DataError(
            "Cannot predict early: the model was saved without its support vectors. Train it again with"
            " keep_support_vectors=true."
        )
    span = _span(model.support.at, leaf)
    if span.start == span.stop:
        return np.broadcast_to(model.support.intercept[leaf], (len(rows), model.n_outputs))
    kernel = replace(model.local_kernel, gamma=float(model.support.gamma[leaf]))
    vectors, dual = model.support.vectors[span], model.support.dual[span].astype(ACC_DTYPE)
    parts = [kernel(rows[part], vectors) @ dual for part in _parts(len(rows), len(vectors))]
    value: FloatArray = np.concatenate(parts) + model.support.intercept[leaf]
    return value


def _parts(n_rows: int, width: int) -> Iterator[slice]:
    """Rows at a time that have so many kernel values each; all of them for models of common size."""
    step = max(MOST_VALUES // max(width, 1), 1)
    return (slice(start, start + step) for start in range(0, n_rows, step))


def _span(at: IntArray, leaf: int) -> slice:
    return slice(int(at[leaf]), int(at[leaf + 1]))


def class_numbers(decision: Scores) -> NDArray[np.int64]:
    """The class number of decision values: the sign of one column, else the largest of several."""
    if decision.shape[1] == 1:
        return (decision[:, 0] > 0).astype(np.int64)
    return np.asarray(decision.argmax(axis=1), np.int64)


def class_array(classes: Sequence[Any]) -> NDArray[Any]:
    """Classes (n_classes,) of a dtype that distinguishes them, unlike float64 for integers beyond int64."""
    array = np.array(classes)
    if array.dtype.kind != "f" or not classes or not all(isinstance(value, int) for value in classes):
        return array
    return np.array(classes, np.uint64 if min(classes) >= 0 and max(classes) < 2**64 else object)
