"""The arrays and attributes of a model file."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE
from dcpred_tasks.errors import DataError, ModelFormatError
from dcpred_tasks.model import symlog, terms
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.compact_model import LeafModels, Model, Reference, Support
from dcpred_tasks.model.feature_map import MAP, Clip, Knots
from dcpred_tasks.model.leaf_arrays import (
    Background,
    ModelArray,
    OutputWeights,
    Parts,
    from_held,
    held_arrays,
    model_arrays,
)
from dcpred_tasks.model.one_hot import Coding
from dcpred_tasks.model.relations import Relations
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_encoding import PREFIX, TargetEncoding
from dcpred_tasks.model.tree import TREE, Tree
from dcpred_tasks.model.uncertainty import Calibration, Intervals, Novelty, Scale, Uncertainty
from dcpred_tasks.schema.schema import Schema, read_schema
from dcpred_tasks.scoring.self_test import SelfTest

T = TypeVar("T")
Held = tuple[tuple[str, type, str], ...]


def _since(arrays: Mapping[str, ModelArray], version: int) -> dict[str, ModelArray]:
    return {name: array for name, array in arrays.items() if array.since == version}


# Arrays by their names on disk, as the classes that hold them declare them.
COMPACT = {
    **model_arrays(Scaling),
    **model_arrays(Tree, TREE),
    **model_arrays(Model),
    "leaf_rows": ModelArray(INDEX_DTYPE, ("leaf",)),
}
# In place of `beta` where leaves lack classes: the weights of each leaf for its outputs.
PRESENT = model_arrays(OutputWeights)
# Optional parts of a model, with the class of each, and what begins the names of its arrays. Leaf models are
# in place of compact ones; version 0.1.0 named them so. Scored rows are compared with bins and relations of
# training rows;
# background rows serve contributions.
OPTIONAL: Held = (
    ("support", Support, "support_"),
    ("leaf_models", LeafModels, "machine_"),
    ("reference", Reference, "feature_"),
    ("bins", Bins, "bin_"),
    ("relations", Relations, "relation_"),
    ("background", Background, "background_"),
)
SUPPORT, LEAF_MODELS, _REFERENCE, BINS, RELATIONS, BACKGROUND = (
    model_arrays(part, prefix) for _, part, prefix in OPTIONAL
)
# Optional arrays: earlier readers ignore them, and adding one needs no new version.
REFERENCE = _since(_REFERENCE, 1)
# How features become columns; only in models with one-hot encoded features or missing values. Other arrays of
# features then have an entry for each column, except those of raw features.
CODING = _since(model_arrays(Coding), 3)
# Only in models with missing values: their marker, and the share of training rows that lack each feature.
GAPS = _since(model_arrays(Coding) | _REFERENCE, 5)
# Only in models of earlier versions with features on a logarithmic scale.
SYMLOG = {name: ModelArray(ACC_DTYPE, ("feature",), since=6) for name in symlog.NAMES}
# Only in models with mapped features; knots only for quantile maps.
MAPS = model_arrays(Clip, MAP)
KNOTS = {name: array for name, array in model_arrays(Knots, MAP).items() if name not in MAPS}
# Only in models with target encoding. Other arrays of features then describe encoded features.
TARGETS = model_arrays(TargetEncoding, PREFIX)
# Uncertainty of a model. Optional: novelty as a whole, and all that its task has. Decision values and labels
# do not depend on it.
UNCERTAIN: Held = (
    ("novelty", Novelty, "novelty_"),
    ("calibration", Calibration, "calibration_"),
    ("intervals", Intervals, "interval_"),
    ("scale", Scale, "scale_"),
)
NOVELTY, CALIBRATION, _INTERVALS, SCALE = (model_arrays(part, prefix) for _, part, prefix in UNCERTAIN)
# Intervals whose widths follow the prediction. A reader without the scale would compute other widths.
QUANTILES = {name: array for name, array in _INTERVALS.items() if array.dimensions == ("quantile_share",)}
INTERVALS = {name: array for name, array in _INTERVALS.items() if name not in QUANTILES}
SELF_TEST = model_arrays(SelfTest, "self_test_")
SURE = NOVELTY | CALIBRATION | INTERVALS | QUANTILES | SCALE | BACKGROUND
OF_ROWS = CODING | GAPS | SYMLOG | MAPS | KNOTS | TARGETS  # how raw rows become rows of columns
OF_COLUMNS = GAPS | SYMLOG | MAPS | KNOTS  # only beside CODING
WHOLE = CODING, SYMLOG, MAPS, KNOTS, TARGETS, SCALE, BACKGROUND  # all arrays or none
ARRAYS = COMPACT | PRESENT | SUPPORT | LEAF_MODELS | REFERENCE | BINS | RELATIONS | OF_ROWS | SURE | SELF_TEST
OF_ENCODED_FEATURES = {*REFERENCE, *GAPS, *SYMLOG, *MAPS}


def of_terms(names: Iterable[str] | None = None) -> dict[str, ModelArray]:
    """The arrays of the terms of these names, or of all."""
    chosen = [term for term in terms.TERMS if names is None or term.name in names]
    return {
        name: replace(array, since=term.since)
        for term in chosen
        for name, array in model_arrays(term, f"{term.name}_").items()
    }


def declared_array(name: str) -> ModelArray:
    """How an array of a model lies on disk."""
    return ARRAYS[name] if name in ARRAYS else of_terms()[name]


def named_dimensions(name: str, a: NDArray[Any], among: Collection[str]) -> tuple[str, ...]:
    """Names of the dimensions of an array on disk; one without values shares none."""
    return dimensions_of(name, among) if a.size else tuple(f"{name}_{axis}" for axis in range(a.ndim))


def dimensions_of(name: str, among: Collection[str]) -> tuple[str, ...]:
    """Names of the dimensions of an array, which depend on the other arrays of a model."""
    feature = "feature"
    if name in OF_ENCODED_FEATURES or name not in ARRAYS:
        feature = "encoded_feature" if "target_table" in among else "feature"
    elif name not in SELF_TEST and not {"source", "target_table"}.isdisjoint(among):
        feature = "column"
    return tuple(
        feature if dimension == "feature" else dimension for dimension in declared_array(name).dimensions
    )


def check_sizes(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError where arrays differ in a shared dimension, or where offsets do not end with the size
    of what they index: compiled code would read past the end.
    """
    for group in WHOLE:
        absent = sorted(group.keys() - arrays.keys())
        if 0 < len(absent) < len(group):
            raise ValueError(f"array {absent[0]} is missing")
    if OF_COLUMNS.keys() & arrays.keys() and "source" not in arrays:
        raise ValueError("array source is missing")
    sizes: dict[str, tuple[int, str]] = {}
    for name, value in arrays.items():
        dimensions = dimensions_of(name, arrays)
        if value.ndim != len(dimensions):
            raise ValueError(f"array {name} has shape {list(value.shape)}, not ({', '.join(dimensions)})")
        for dimension, size in zip(dimensions, value.shape, strict=True) if value.size else ():
            first, other = sizes.setdefault(dimension, (size, name))
            if size != first:
                raise ValueError(f"array {name} has {size} in {dimension}, where {other} has {first}")
        at = declared_array(name).offsets
        if at and (at not in arrays or not arrays[at].size):
            raise ValueError(f"array {at} is missing or empty")
        if at and (end := int(arrays[at][-1])) != len(value):
            raise ValueError(f"array {name} has {len(value)} rows, but {at} ends with {end}")


def parts_of(model: Model) -> Iterator[tuple[str, Any]]:
    """Its optional parts, with what begins the names of their arrays."""
    for holder, parts in ((model, OPTIONAL), (model.uncertainty, UNCERTAIN)):
        for name, _, prefix in parts:
            if (part := getattr(holder, name, None)) is not None:
                yield prefix, part


def arrays_of(model: Model) -> dict[str, NDArray[Any]]:
    """The arrays of a model by their names on disk."""
    arrays = {
        **model.scaling.arrays(),
        **model.tree.arrays(),
        **held_arrays(model),
        "leaf_rows": model.leaf_rows,
    }
    for prefix, part in parts_of(model):
        arrays |= held_arrays(part, prefix)
    for name in ("calibration_weight", "leaf_factor"):
        if name in arrays and not arrays[name].size:
            del arrays[name]
    for term in model.terms:
        arrays |= term.arrays()
    weights = model.beta
    if model.n_outputs > 1 and weights.nbytes < math.prod(weights.shape) * np.dtype(MODEL_DTYPE).itemsize:
        del arrays["beta"]
        arrays |= {name: getattr(weights, name) for name in PRESENT}
    return {name: np.ascontiguousarray(a, declared_array(name).dtype) for name, a in arrays.items()}


def read_weights(arrays: Mapping[str, NDArray[Any]]) -> OutputWeights:
    """Output weights from the arrays of a model. Raises ValueError where they do not fit together."""
    n_leaves, n_outputs = arrays["intercept"].shape
    at, beta = arrays["beta_at"], arrays.get("beta")
    if beta is None:
        weights = OutputWeights(n_outputs, at, *(arrays[name] for name in PRESENT))
    else:
        weights = OutputWeights.from_dense(beta, at)
    weights.check(n_leaves)
    return weights


def wanted_of_uncertainty(task: str, declared: Mapping[str, Any]) -> dict[str, ModelArray]:
    """The uncertainty arrays of a model of this task; empty where it declares none of them."""
    wanted = NOVELTY | (INTERVALS if task == "regression" else CALIBRATION)
    for more in (QUANTILES, SCALE) if task == "regression" else ():
        wanted = wanted | more if any(name in declared for name in more) else wanted
    if not any(name in declared for name in wanted):
        return {}
    return {name: array for name, array in wanted.items() if array.since == 1 or name in declared}


def part_of(arrays: Mapping[str, NDArray[Any]], holder: type[T], prefix: str) -> T | None:
    """A part of a model among its arrays; None where they are absent."""
    try:
        return from_held(holder, arrays, prefix)
    except KeyError:
        return None


def uncertainty_of(arrays: Mapping[str, NDArray[Any]]) -> Uncertainty | None:
    """The uncertainty among the arrays of a model; None where it has none."""
    parts: dict[str, Any] = {name: part_of(arrays, part, prefix) for name, part, prefix in UNCERTAIN}
    return None if parts["novelty"] is None else Uncertainty(**parts)


KEY = "schema"


def schema_documents(schema: Schema | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a schema adds to the body and to the provenance of a model."""
    document: dict[str, Any] = {} if schema is None else {KEY: schema.document()}
    return (document, {}) if schema is not None and schema.encodes else ({}, document)


def read_model_schema(body: Mapping[str, Any], provenance: object, path: str) -> Schema | None:
    """The stored schema of a model, None where it has none. Raises ModelFormatError for a damaged schema in
    the body; a damaged one in the provenance, which no hash covers, is ignored.
    """
    document = body.get(KEY)
    if document is None:
        try:
            document = provenance.get(KEY) if isinstance(provenance, dict) else None
            schema = None if document is None else read_schema(document, path)
        except DataError:
            return None
        return None if schema is None or schema.encodes else schema
    try:
        return read_schema(document, path)
    except DataError as error:
        raise ModelFormatError(str(error)) from None


def parts_of_table(schema: Schema | None, names: Sequence[str] | None, n_features: int) -> Parts:
    """The parts of decision values: columns of the training table where its schema is known, or features."""
    if schema is None or len(schema.features) != n_features:
        return Parts.of_features(
            names if names is not None and len(names) == n_features else None, n_features
        )
    numbers = [j for j, (_, span) in enumerate(schema.spans) for _ in range(span.start, span.stop)]
    return Parts(tuple(column.name for column in schema.sources), tuple(numbers))
