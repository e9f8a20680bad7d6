"""The arrays and attributes of a model file."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, LEAF_DTYPE, MODEL_DTYPE
from dcpred_tasks.errors import DataError, ModelFormatError
from dcpred_tasks.model.compact_model import LeafModels, Model, Support
from dcpred_tasks.model.feature_map import Symlog
from dcpred_tasks.model.leaf_arrays import EDGE, Background, ModelArray, Parts, model_arrays
from dcpred_tasks.model.output_weights import OutputWeights
from dcpred_tasks.model.uncertainty import Calibration, Intervals, Novelty, Scale, Uncertainty
from dcpred_tasks.schema.schema import Schema, read_schema

# Arrays by their names on disk, with the names of dimensions by which xarray opens them.
COMPACT = {
    "shift": ModelArray(ACC_DTYPE, ("feature",)),
    "factor": ModelArray(ACC_DTYPE, ("feature",)),
    "tree_starts": ModelArray(INDEX_DTYPE, ("node_edge",)),
    "tree_children": ModelArray(LEAF_DTYPE, ("child",)),
    "tree_centres": ModelArray(MODEL_DTYPE, ("child", "feature")),
    **model_arrays(Model),
    "leaf_rows": ModelArray(INDEX_DTYPE, ("leaf",)),
}
# In place of `beta` where leaves lack classes: the weights of each leaf for its outputs.
PRESENT = {
    "output_at": ModelArray(INDEX_DTYPE, (EDGE,), since=7),
    "outputs": ModelArray(LEAF_DTYPE, ("present_output",), offsets="output_at", since=7),
    "weights": ModelArray(MODEL_DTYPE, ("weight",), since=7),
}
SUPPORT = model_arrays(Support, "support_")
# Leaf models in place of compact ones; version 0.1.0 named them so.
LEAF_MODELS = model_arrays(LeafModels, "machine_")
# Optional arrays: earlier readers ignore them, and adding one needs no new version.
REFERENCE = {
    "feature_mean": ModelArray(ACC_DTYPE, ("feature",)),
    "feature_sd": ModelArray(ACC_DTYPE, ("feature",)),
}
# How features become columns; only in models with one-hot encoded features or missing values. Other arrays of
# features then have an entry for each column, except those of raw features.
CODING = {
    "source": ModelArray(INDEX_DTYPE, ("column",), since=3),
    "code": ModelArray(ACC_DTYPE, ("column",), since=3),
}
# Only in models with missing values: their marker, and the share of training rows that lack each feature.
GAPS = {
    "gap": ModelArray(ACC_DTYPE, ("feature",), since=5),
    "feature_gaps": ModelArray(ACC_DTYPE, ("feature",), since=5),
}
# Only in models with features on a logarithmic scale.
SYMLOG = {f"symlog_{f.name}": ModelArray(ACC_DTYPE, ("feature",), since=6) for f in fields(Symlog)}
# Only in models with mapped features; knots only for quantile maps.
MAPS = {f"map_{name}": ModelArray(ACC_DTYPE, ("feature",), since=8) for name in ("centre", "rate", "sd")}
KNOTS = {
    "map_at": ModelArray(INDEX_DTYPE, ("knot_edge",), since=8),
    "map_knot": ModelArray(MODEL_DTYPE, ("map_knot",), offsets="map_at", since=8),
    "map_value": ModelArray(MODEL_DTYPE, ("map_knot",), offsets="map_at", since=8),
}
# Only in models with target encoding. Other arrays of features then describe encoded features.
TARGETS = {
    "target_feature": ModelArray(INDEX_DTYPE, ("target_feature",), since=7),
    "target_at": ModelArray(INDEX_DTYPE, ("target_edge",), since=7),
    "target_table": ModelArray(ACC_DTYPE, ("position", "mean"), since=7),
}
# Uncertainty of a model. Optional: novelty as a whole, and all that its task has. Decision values and labels
# do not depend on it.
NOVELTY = model_arrays(Novelty, "novelty_")
CALIBRATION = {
    "calibration_knot": ModelArray(ACC_DTYPE, ("knot",)),
    "calibration_value": ModelArray(ACC_DTYPE, ("knot",)),
    "calibration_prior": ModelArray(ACC_DTYPE, ("class",)),
    "calibration_share": ModelArray(ACC_DTYPE, ("share",)),
    "calibration_weight": ModelArray(ACC_DTYPE, ("class",), since=9),  # only in models with class weights
}
INTERVALS = {
    "interval_spread": ModelArray(ACC_DTYPE, ("leaf",)),
    "interval_alpha": ModelArray(ACC_DTYPE, ("alpha",)),
    "interval_quantile": ModelArray(ACC_DTYPE, ("alpha",)),
}
# Background rows of contributions. Optional.
BACKGROUND = model_arrays(Background, "background_")
SELF_TEST = {
    "self_test_rows": ModelArray(ACC_DTYPE, ("self_test_row", "feature")),
    "self_test_decision": ModelArray(ACC_DTYPE, ("self_test_row", "output")),
    "self_test_tolerance": ModelArray(ACC_DTYPE, ("self_test_row",)),
}
# The distribution of training rows, which scored rows are compared with. Optional.
BINS = {
    "bin_at": ModelArray(INDEX_DTYPE, ("binned_edge",), since=2),
    "bin_edge": ModelArray(ACC_DTYPE, ("bin_edge",), offsets="bin_at", since=2),
    "bin_rows": ModelArray(INDEX_DTYPE, ("bin",), since=2),
}
# Intervals whose widths follow the prediction. A reader without the scale would compute other widths.
QUANTILES = {
    "interval_share": ModelArray(ACC_DTYPE, ("quantile_share",)),
    "interval_signed": ModelArray(ACC_DTYPE, ("quantile_share",)),
}
SCALE = model_arrays(Scale, "scale_")
SURE = NOVELTY | CALIBRATION | INTERVALS | QUANTILES | SCALE | BACKGROUND
OF_ROWS = CODING | GAPS | SYMLOG | MAPS | KNOTS | TARGETS  # how raw rows become rows of columns
ARRAYS = COMPACT | PRESENT | SUPPORT | LEAF_MODELS | REFERENCE | BINS | OF_ROWS | SURE | SELF_TEST
OF_ENCODED_FEATURES = {*REFERENCE, *GAPS, *SYMLOG, *MAPS}


def named_dimensions(name: str, a: NDArray[Any], among: Collection[str]) -> tuple[str, ...]:
    """Names of the dimensions of an array on disk. An array without values, as the centres of a single leaf,
    shares no dimension with other arrays.
    """
    return dimensions_of(name, among) if a.size else tuple(f"{name}_{axis}" for axis in range(a.ndim))


def dimensions_of(name: str, among: Collection[str]) -> tuple[str, ...]:
    """Names of the dimensions of an array among others of a model, which determine whether it has columns, or
    encoded features, in place of features.
    """
    feature = "feature"
    if name in OF_ENCODED_FEATURES:
        feature = "encoded_feature" if "target_table" in among else "feature"
    elif name not in SELF_TEST and not {"source", "target_table"}.isdisjoint(among):
        feature = "column"
    return tuple(feature if dimension == "feature" else dimension for dimension in ARRAYS[name].dimensions)


def check_sizes(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError where arrays differ in a shared dimension, or where offsets do not end with the size
    of what they index: compiled code would read past the end.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, value in arrays.items():
        dimensions = dimensions_of(name, arrays)
        if value.ndim != len(dimensions):
            raise ValueError(f"array {name} has shape {list(value.shape)}, not ({', '.join(dimensions)})")
        for dimension, size in zip(dimensions, value.shape, strict=True) if value.size else ():
            first, other = sizes.setdefault(dimension, (size, name))
            if size != first:
                raise ValueError(f"array {name} has {size} in {dimension}, where {other} has {first}")
        at = ARRAYS[name].offsets
        if at and not len(arrays[at]):
            raise ValueError(f"array {at} is empty")
        if at and (end := int(arrays[at][-1])) != len(value):
            raise ValueError(f"array {name} has {len(value)} rows, but {at} ends with {end}")


def arrays_of(model: Model) -> dict[str, NDArray[Any]]:
    """The arrays of a model by their names on disk."""
    special: dict[str, NDArray[Any]] = {
        **model.scaling.arrays(),
        **model.tree.arrays(),
    }
    own = [*COMPACT, *(name for name in OF_ROWS if name in special)]
    arrays = {name: special.get(name, getattr(model, name, None)) for name in own}
    if model.support is not None:
        arrays |= {name: getattr(model.support, name.removeprefix("support_")) for name in SUPPORT}
    if model.leaf_models is not None:
        arrays |= {"machine_at": model.leaf_models.at, "machine_packed": model.leaf_models.packed}
    if model.reference is not None:
        arrays |= {"feature_mean": model.reference.mean, "feature_sd": model.reference.sd}
        arrays |= {} if model.reference.gaps is None else {"feature_gaps": model.reference.gaps}
    if model.bins is not None:
        arrays |= {name: getattr(model.bins, name.removeprefix("bin_")) for name in BINS}
    arrays |= uncertainty_arrays(model.uncertainty)
    if model.background is not None:
        arrays |= {name: getattr(model.background, name.removeprefix("background_")) for name in BACKGROUND}
    if not model.leaf_factor.size:
        del arrays["leaf_factor"]
    weights = model.beta
    if model.n_outputs > 1 and weights.nbytes < math.prod(weights.shape) * np.dtype(MODEL_DTYPE).itemsize:
        del arrays["beta"]
        arrays |= {name: getattr(weights, name) for name in PRESENT}
    return {name: np.ascontiguousarray(a, ARRAYS[name].dtype) for name, a in arrays.items()}


def read_weights(arrays: Mapping[str, NDArray[Any]]) -> OutputWeights:
    """Output weights from the arrays of a model. Raises ValueError where they do not fit together."""
    n_leaves, n_outputs = arrays["intercept"].shape
    at, beta = arrays["beta_at"], arrays.get("beta")
    if beta is None:
        found = OutputWeights(n_outputs, at, *(arrays[name] for name in PRESENT))
    else:
        found = OutputWeights.from_dense(beta, at)
    found.check(n_leaves)
    return found


def wanted_of_uncertainty(task: str, declared: Mapping[str, Any]) -> dict[str, ModelArray]:
    """The uncertainty arrays of a model of this task; empty where it declares none of them."""
    own = NOVELTY | (INTERVALS if task == "regression" else CALIBRATION)
    for more in (QUANTILES, SCALE) if task == "regression" else ():
        own = own | more if any(name in declared for name in more) else own
    if not any(name in declared for name in own):
        return {}
    return {name: array for name, array in own.items() if array.since == 1 or name in declared}


def uncertainty_arrays(uncertainty: Uncertainty | None) -> dict[str, NDArray[Any]]:
    """The arrays of uncertainty by their names on disk."""
    if uncertainty is None:
        return {}
    parts = (
        ("novelty_", uncertainty.novelty),
        ("calibration_", uncertainty.calibration),
        ("interval_", uncertainty.intervals),
        ("scale_", uncertainty.scale),
    )
    arrays = {f"{prefix}{k}": v for prefix, part in parts if part is not None for k, v in vars(part).items()}
    if not arrays.get("calibration_weight", np.empty(1)).size:
        del arrays["calibration_weight"]
    return arrays


def uncertainty_of(arrays: Mapping[str, NDArray[Any]]) -> Uncertainty | None:
    """The inverse of `uncertainty_arrays`, among other arrays; None where all are absent."""

    def part(holder: Any, prefix: str) -> Any:
        own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        return holder(**own) if own else None

    novelty = part(Novelty, "novelty_")
    if novelty is None:
        return None
    own = part(Calibration, "calibration_"), part(Intervals, "interval_"), part(Scale, "scale_")
    return Uncertainty(novelty, *own)


def background_of(arrays: Mapping[str, NDArray[Any]]) -> Background | None:
    """The background rows among the arrays of a model; None where it has none."""
    own = {k.removeprefix("background_"): arrays[k] for k in BACKGROUND if k in arrays}
    return Background(**own) if own else None


KEY = "schema"


def schema_documents(schema: Schema | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a schema adds to the body and to the provenance of a model."""
    told: dict[str, Any] = {} if schema is None else {KEY: schema.document()}
    return (told, {}) if schema is not None and schema.encodes else ({}, told)


def read_model_schema(body: Mapping[str, Any], provenance: object, path: str) -> Schema | None:
    """The stored schema of a model, None where it has none. Raises ModelFormatError for a damaged schema in
    the body; a damaged one in the provenance, which no hash covers, is ignored.
    """
    told = body.get(KEY)
    if told is None:
        try:
            told = provenance.get(KEY) if isinstance(provenance, dict) else None
            found = None if told is None else read_schema(told, path)
        except DataError:
            return None
        return None if found is None or found.encodes else found
    try:
        return read_schema(told, path)
    except DataError as error:
        raise ModelFormatError(str(error)) from None


def parts_of_table(schema: Schema | None, names: Sequence[str] | None, n_features: int) -> Parts:
    """The parts that decision values are divided into: the columns of the training table where its schema is
    known, else the features.
    """
    if schema is None or len(schema.features) != n_features:
        return Parts.of_features(
            names if names is not None and len(names) == n_features else None, n_features
        )
    numbers = [j for j, (_, span) in enumerate(schema.spans) for _ in range(span.start, span.stop)]
    return Parts(tuple(column.name for column in schema.sources), tuple(numbers))
