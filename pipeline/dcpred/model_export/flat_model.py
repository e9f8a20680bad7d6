"""A model as flat arrays, of which ONNX graphs and C sources are made."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.serving.served_model import ServedModel
from dcpred_tasks.dtypes import INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray
from dcpred_tasks.engine.engine import Exact, exact_arrays
from dcpred_tasks.engine.layout import Maps, maps_of
from dcpred_tasks.engine.packing import Packed, pack
from dcpred_tasks.errors import DataError, listed
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.exact import Exact as ExactLeaf
from dcpred_tasks.model.leaf_arrays import LeafArrays, join_leaves, rowless_leaf
from dcpred_tasks.model.leaf_model import EXACT
from dcpred_tasks.model.target_encoding import TargetEncoding
from dcpred_tasks.model.term import ExportedTerm
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.model.uncertainty import Calibration
from dcpred_tasks.schema.column import Category
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.labels import LabelCoding, label_coding

DTYPES = ("float32", "float64")  # data types of the rows of an exported model


@dataclass(frozen=True, eq=False)
class FlatModel:
    """The arrays of a model whose leaves are compact, with what describes it.

    model     it, with leaves of landmarks
    features  the name of each feature of a row, with its categories if it has any
    facts     what the file states about its origin, as text
    dtype     of rows, one of DTYPES
    """

    model: Model
    features: tuple[str, ...]
    facts: Mapping[str, str]
    dtype: str

    @property
    def targets(self) -> TargetEncoding | None:
        """The target encoding, which comes first."""
        return self.model.scaling.targets

    @cached_property
    def encoded(self) -> Model:
        """The model of rows whose categories are target-encoded already."""
        return replace(self.model, scaling=self.model.scaling.of_encoded)

    @cached_property
    def exact(self) -> Exact:
        """The arrays of the definition, in double precision."""
        return exact_arrays(self.encoded)

    @cached_property
    def packed(self) -> Packed:
        """The arrays of the engine, in single precision."""
        return pack(self.encoded)

    @cached_property
    def maps(self) -> Maps:
        return maps_of(self.encoded)

    @property
    def terms(self) -> tuple[ExportedTerm, ...]:
        """What a row adds to the kernels of its leaf."""
        return tuple(term for term in self.model.terms if isinstance(term, ExportedTerm))

    @property
    def tree(self) -> Tree:
        """The only router that files hold."""
        assert isinstance(self.model.tree, Tree)
        return self.model.tree

    @property
    def calibration(self) -> Calibration | None:
        return None if self.model.uncertainty is None else self.model.uncertainty.calibration

    @cached_property
    def labels(self) -> LabelCoding | None:
        """How labels are stored; None for a regression."""
        return label_coding(self.model.classes) if self.model.classes else None

    @cached_property
    def counts(self) -> IntArray:
        """int64 (n_leaves,), the landmarks of each leaf; 0 for a constant leaf."""
        return np.diff(self.model.landmark_at) * (np.diff(self.model.beta_at) > 0)


def flat_model(served: ServedModel, dtype: str) -> FlatModel:
    """The flat form of a model. Raises DataError where its leaves hold models that no file can hold."""
    artifact, model = served.artifact, served.model
    schema, names = artifact.schema, artifact.feature_names
    if schema is not None:
        features = feature_notes(schema)
    else:
        features = names or tuple(f"feature {number}" for number in range(model.n_features))
    facts = {"model": artifact.hash, "task": model.task}
    return FlatModel(compact(model), tuple(features), facts, dtype)


def compact(model: Model) -> Model:
    """The same model with support vectors of exact leaves as landmarks. Raises DataError for other leaves,
    and for terms that no file can hold.
    """
    if lost := [term.name for term in model.terms if not isinstance(term, ExportedTerm)]:
        raise DataError(
            f"Cannot export the model: no exported file can hold {listed(lost)}, which it adds to its"
            f" kernels. Train one without {'it' if len(lost) == 1 else 'them'}."
        )
    leaf_models = model.leaf_models
    if leaf_models is None:
        return model
    if leaf_models.name != EXACT:
        raise DataError(
            f"Cannot export the model: its leaves hold models of {leaf_models.name}, and only leaves with"
            " landmarks can be exported. Train one without this baseline."
        )
    sizes = {"feature": model.n_columns, "output": model.n_outputs}
    leaves, kernel = [], model.kernel
    for leaf in range(model.n_leaves):
        leaf_values = {"intercept": model.intercept[leaf], "bounds": model.bounds[leaf]}
        arrays: dict[str, NDArray[Any]] = {**rowless_leaf(LeafArrays, sizes), **leaf_values}
        arrays["leaf_factor"] = np.empty(0, MODEL_DTYPE)
        exact = model.leaf_model(leaf)
        if isinstance(exact, ExactLeaf):
            kernel = exact.kernel
            gamma = np.full(len(exact.support), kernel.gamma, MODEL_DTYPE)
            arrays |= {"landmarks": exact.support, "gamma": gamma, "beta": exact.dual}
            arrays["intercept"] = exact.intercept
        leaves.append(LeafArrays(**arrays))
    joined: dict[str, Any] = join_leaves(LeafArrays, leaves)
    return replace(model, **joined, kernel=kernel, leaf_models=None)


def feature_notes(schema: Schema) -> tuple[str, ...]:
    """The name of each feature of encoded rows; of a category also the number of each of its values."""
    notes: list[str] = []
    for column, span in schema.spans:
        names = column.features
        if isinstance(column, Category) and span.stop - span.start == 1:
            named = (schema.says(span.start, float(code)) for code in range(len(column.categories)))
            levels = ", ".join(f"{code} = {name}" for code, name in enumerate(named))
            n = len(column.categories)
            names = (f"{column.name} ({levels}, {n} = other values, {n + 1} = missing)",)
        notes.extend(names)
    return tuple(notes)


def padded(at: IntArray, width: int) -> tuple[IntArray, NDArray[np.bool_]]:
    """The numbers of the elements of each part, (n_parts, width), and which of them exist. Others repeat the
    first element of their part, or element 0 in an empty one.

    at  offsets (n_parts + 1,)
    """
    first, size = at[:-1, None], np.diff(at)[:, None]
    place = np.arange(width)
    exists = np.broadcast_to(place < size, (len(size), width))
    start = np.where(size > 0, first, 0)
    return np.where(exists, first + place, start).astype(INDEX_DTYPE), exists


def leaf_tables(flat: FlatModel) -> dict[str, NDArray[Any]]:
    """What each leaf sums, side by side: landmarks (n_leaves, m), pairs left and right (n_leaves, p),
    distances of triangle points (n_leaves, t, m), and beta (n_leaves, m + p + t, n_outputs).
    """
    model, n = flat.model, flat.model.n_leaves
    m_of, p_of = flat.counts, np.diff(model.pair_at)
    t_of = np.diff(model.triangle_at) // np.maximum(m_of, 1)
    m, p, t = (int(sizes.max(initial=0)) for sizes in (m_of, p_of, t_of))
    landmark, _ = padded(model.landmark_at, m)
    pair = np.zeros((n, p, 2), INDEX_DTYPE)
    triangle = np.zeros((n, t, m), MODEL_DTYPE)
    beta = np.zeros((n, m + p + t, model.n_outputs), MODEL_DTYPE)
    for leaf in np.flatnonzero(np.diff(model.beta_at)).tolist():
        beta_of_leaf, sizes = model.beta.of(leaf), (m_of[leaf], p_of[leaf], t_of[leaf])
        parts = np.split(beta_of_leaf, np.cumsum(sizes)[:-1])
        for start, part in zip((0, m, m + p), parts, strict=True):
            beta[leaf, start : start + len(part)] = part
        pair[leaf, : sizes[1]] = model.pairs[model.pair_at[leaf] : model.pair_at[leaf + 1]]
        distances = model.triangle[model.triangle_at[leaf] : model.triangle_at[leaf + 1]]
        # Lanes without a landmark repeat the first one: neither a maximum nor a minimum changes.
        triangle[leaf, : sizes[2]] = distances.reshape(-1, sizes[0])[:, padded_lanes(sizes[0], m)]
    left, right = np.moveaxis(pair, 2, 0)
    return {"landmark": landmark, "left": left, "right": right, "triangle": triangle, "beta": beta}


def padded_lanes(n: int, width: int) -> IntArray:
    """The numbers 0 to n, and 0 up to this width."""
    lanes = np.arange(width)
    return np.where(lanes < n, lanes, 0)


def leaf_bounds(model: Model) -> FloatArray | None:
    """The least and largest value of leaves, (n_leaves, 2), infinite without bounds; None for classes."""
    if not model.bounds.shape[1]:
        return None
    return np.where(model.bounded[:, None], model.bounds, [-np.inf, np.inf])
