"""The arrays and attributes of a model file, and whether they are consistent: digests show that nothing
changed since it was written, not who wrote it.

Compiled code follows offsets and numbers of nodes, leaves and landmarks without checks of bounds. Each of
them is checked here, and an inconsistency raises ValueError.
"""

import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, IntArray
from dcpred_tasks.engine.layout import laid_out_bytes
from dcpred_tasks.errors import DataError, ModelFormatError
from dcpred_tasks.model import symlog, terms
from dcpred_tasks.model.basis import BOUNDS
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.compact_model import LeafModels, Model, Reference, Support
from dcpred_tasks.model.feature_map import MAP, Clip, Knots
from dcpred_tasks.model.kernels import DEFAULTS, KERNELS, STORED
from dcpred_tasks.model.leaf_arrays import (
    SIZES,
    Background,
    ModelArray,
    OutputWeights,
    Parts,
    are_offsets,
    from_held,
    held_arrays,
    model_arrays,
    table,
)
from dcpred_tasks.model.leaf_model import check_leaf_model
from dcpred_tasks.model.one_hot import Coding
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_encoding import PREFIX, TargetEncoding
from dcpred_tasks.model.target_transform import TargetTransform
from dcpred_tasks.model.tree import TREE, Tree
from dcpred_tasks.model.uncertainty import LEVELS, Calibration, Intervals, Novelty, Scale, Uncertainty
from dcpred_tasks.process import memory_bytes
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
# in place of compact ones; version 0.1.0 named them so. Scored rows are compared with bins of training rows;
# background rows serve contributions.
OPTIONAL: Held = (
    ("support", Support, "support_"),
    ("leaf_models", LeafModels, "machine_"),
    ("reference", Reference, "feature_"),
    ("bins", Bins, "bin_"),
    ("background", Background, "background_"),
)
SUPPORT, LEAF_MODELS, _REFERENCE, BINS, BACKGROUND = (
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
ARRAYS = COMPACT | PRESENT | SUPPORT | LEAF_MODELS | REFERENCE | BINS | OF_ROWS | SURE | SELF_TEST
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


def arrays_of(model: Model) -> dict[str, NDArray[Any]]:
    """The arrays of a model by their names on disk."""
    arrays = {
        **model.scaling.arrays(),
        **model.tree.arrays(),
        **held_arrays(model),
        "leaf_rows": model.leaf_rows,
    }
    for holder, parts in ((model, OPTIONAL), (model.uncertainty, UNCERTAIN)):
        for name, _, prefix in parts:
            part = getattr(holder, name, None)
            arrays |= {} if part is None else held_arrays(part, prefix)
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


TASKS = ("classification", "regression")
MOST_CLASSES, MOST_LETTERS = 2**16, 2**26  # letters of all names if all are as long as the longest: an array
LARGEST_INTEGER = 2**64  # largest integer that is a class
MOST_CHUNKS, CHUNK_VALUES = 2**14, 2**17  # chunks of an array, or least values of each on average
MOST_ROWS = 2**53  # float64 holds every integer up to here
LARGEST_DEGREE = 10
LARGEST_WEIGHT = 1e300  # A probability over the weight of a class, or over its inverse, is a number.
MOST_LOG_SCALE = 700.0  # exp of it is a number
ITEM_BYTES = {np.dtype(code).name: np.dtype(code).itemsize for code in ("u1", "i2", "i4", "i8", "f4", "f8")}
# A process needs memory for its rows, too. The second limit is of a model as the engine lays it out.
LARGEST_MODEL, LARGEST_LAYOUT = memory_bytes() // 4, memory_bytes() // 2


def check_body(body: Mapping[str, Any]) -> None:
    """Check the body of model.json, before any array is read."""
    if body.get("task") not in TASKS:
        raise ValueError("its task is invalid")
    classes = body.get("classes")
    if not isinstance(classes, list) or len(classes) > MOST_CLASSES:
        raise ValueError("its classes are not a list of names")
    if not all(isinstance(name, str) or _is_number(name, LARGEST_INTEGER) for name in classes):
        raise ValueError("a class is neither a number nor text")
    # Classes are compared as text where one of them is text.
    as_text = any(isinstance(name, str) for name in classes)
    if len(set(map(str, classes) if as_text else classes)) < len(classes):
        raise ValueError("it has a class twice")
    if len(classes) * max((len(name) for name in classes if isinstance(name, str)), default=0) > MOST_LETTERS:
        raise ValueError("a class has a name that is too long")
    if len(classes) == 1 or (body["task"] == "regression") == bool(classes):
        raise ValueError(f"a {body['task']} has {len(classes)} classes")
    for name in ("kernel", "local_kernel"):
        _check_kernel(name, body.get(name))
    if body.get("triangle_bound") not in BOUNDS:
        raise ValueError("its bound of the triangle inequality is invalid")
    if not isinstance(body.get("settings"), dict):
        raise ValueError("its settings are not an object")
    if "machine" in body:
        check_leaf_model(str(body["machine"]))
    _check_terms(body.get("terms", []), "machine" in body)
    if "target" in body:
        if body["task"] != "regression":
            raise ValueError("it has classes and a target transform")
        TargetTransform.of_document(body["target"])
    check_declared(body.get("arrays"))


def _check_terms(names: object, has_leaf_models: bool) -> None:
    known = [term.name for term in terms.TERMS]
    if not isinstance(names, list) or not all(name in known for name in names):
        raise ValueError("its terms are not a list of names that this dcpred knows")
    if len(set(names)) < len(names) or (names and has_leaf_models):
        raise ValueError("it has a term twice, or terms beside leaf models")


def _check_kernel(name: str, kernel: object) -> None:
    if not isinstance(kernel, dict) or not set(STORED) <= set(kernel) <= set(DEFAULTS):
        raise ValueError(f"its {name} lacks name, gamma, degree or coef0")
    if kernel["name"] not in KERNELS:
        raise ValueError(f"its {name} has an unknown name")
    numbers = (value for key, value in kernel.items() if key != "name")
    if not all(type(value) in (int, float) and value >= 0 and _is_number(value) for value in numbers):
        raise ValueError(f"gamma or coef0 of its {name} is not a number from 0")
    if type(kernel["degree"]) is not int or not 1 <= kernel["degree"] <= LARGEST_DEGREE:
        raise ValueError(f"the degree of its {name} is not an integer from 1 to {LARGEST_DEGREE}")


def _is_number(value: object, largest: float = sys.float_info.max) -> bool:
    """Whether a value of JSON is a number, or a boolean, of at most this size: an integer may have any."""
    return isinstance(value, int | float) and (isinstance(value, float) or abs(value) <= largest)


def check_declared(arrays: object) -> None:
    """Check shapes, dtypes and digests of arrays, and the memory that they take."""
    if not isinstance(arrays, dict):
        raise ValueError("its arrays are not an object")
    total = 0
    for name, declared in arrays.items():
        if not isinstance(declared, dict) or not {"shape", "dtype", "digest"} <= set(declared):
            raise ValueError(f"array {name[:40]} lacks shape, dtype or digest")
        shape = declared["shape"]
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"the shape of array {name[:40]} is invalid")
        total += ITEM_BYTES.get(str(declared["dtype"]), 8) * math.prod(shape)
    if total > LARGEST_MODEL:
        raise ValueError(f"its arrays have {total:,} bytes, more than a quarter of this machine's memory")


def check_stored(name: str, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    """Check that a chunk, which is read as a whole, has at most the values of the array, and that there are
    not very many: each is looked for, also where it is absent.
    """
    if math.prod(-(-n // max(size, 1)) for n, size in zip(shape, chunks, strict=True)) > max(
        MOST_CHUNKS, math.prod(shape) // CHUNK_VALUES
    ):
        raise ValueError(f"array {name} of shape {list(shape)} has chunks of only {list(chunks)}")
    if math.prod(chunks) > math.prod(max(n, 1) for n in shape):
        raise ValueError(f"a chunk of array {name} has shape {list(chunks)}, the array {list(shape)}")


def check_model(model: Model) -> None:
    """Check the arrays that scoring follows."""
    n_leaves, n_outputs = model.intercept.shape
    wanted = 1 if len(model.classes) <= 2 else len(model.classes)
    if n_leaves == 0 or n_outputs != wanted:
        raise ValueError(f"it has {n_leaves} leaves and {n_outputs} outputs of {len(model.classes)} classes")
    if model.bounds.shape[1] not in ((2,) if model.task == "regression" else (0,)):
        raise ValueError(f"a {model.task} has {model.bounds.shape[1]} bounds")
    _check_shapes(model)
    if model.reference is not None:
        _check_reference(model, model.reference)
    model.tree.check(n_leaves, model.n_columns)
    for name in ("landmark_at", "pair_at", "triangle_at", "beta_at"):
        _check_offsets(name, getattr(model, name), n_leaves)
    _check_leaves(model)
    _check_map(model)
    if model.support is not None:
        sizes = {"feature": model.n_columns, "leaf": n_leaves, "output": n_outputs}
        _check_arrays("support_", model.support, sizes)
    if (size := laid_out_bytes(model)) > LARGEST_LAYOUT:
        raise ValueError(f"it takes {size:,} bytes to score, more than half of this machine's memory")
    if model.leaf_models is not None:
        _check_offsets("machine_at", model.leaf_models.at, n_leaves)
        for leaf in range(n_leaves):
            model.leaf_model(leaf)
    if model.background is not None:
        _check_offsets("background_at", model.background.at, n_leaves)
        sizes = {"feature": model.n_columns, "background_row": len(model.background.rows)}
        _check_arrays("background_", model.background, sizes)
    for term in model.terms:
        term.check(model.scaling.n_encoded, n_outputs)
    if model.bins is not None:
        _check_bins(model, model.bins)
    if model.uncertainty is not None:
        _check_novelty(model, model.uncertainty.novelty)
        if model.uncertainty.calibration is not None:
            _check_calibration(model, model.uncertainty.calibration)
        if model.uncertainty.scale is not None:
            _check_scale(model, model.uncertainty.scale)
        if model.uncertainty.intervals is not None:
            _check_intervals(model, model.uncertainty.intervals, model.uncertainty.scale)


def _check_map(model: Model) -> None:
    """Check that a number without a map adds nothing where others have one: compiled code rounds it."""
    coding = model.scaling.coding
    if coding is not None and coding.map is not None:
        numbers = np.isnan(coding.code)
        if model.scaling.factor[numbers][coding.map.rate[coding.source[numbers]] == 0].any():
            raise ValueError("array factor is not 0 for a number that the map of features leaves out")


def _check_bins(model: Model, bins: Bins) -> None:
    n = model.n_features + model.n_outputs
    if not are_offsets(bins.at, n):
        raise ValueError(
            f"array bin_at does not ascend from 0 with an edge for each of {n} features and outputs"
        )
    if len(bins.rows) != len(bins.edge) + 2 * n or ((bins.rows < 0) | (bins.rows > MOST_ROWS)).any():
        raise ValueError("array bin_rows does not hold one number of rows for each bin")
    if not np.isfinite(bins.edge).all() or any((np.diff(edges[:-1]) <= 0).any() for edges in bins.edges):
        raise ValueError("array bin_edge does not ascend")


def _check_novelty(model: Model, novelty: Novelty) -> None:
    sizes = {"leaf": model.n_leaves, "feature": model.n_columns, "level": len(LEVELS)}
    _check_arrays("novelty_", novelty, sizes)
    if (np.diff(novelty.edge, axis=1) > 0).any() or (novelty.factor <= 0).any():
        raise ValueError("array novelty_edge does not descend, or one of novelty_factor is not above 0")


def _check_calibration(model: Model, calibration: Calibration) -> None:
    sizes = {"class": len(model.classes), "share": 1}
    _check_arrays("calibration_", calibration, sizes, empty="weight")
    if (
        not len(calibration.knot)
        or (np.diff(calibration.knot) <= 0).any()
        or (np.diff(calibration.value) < 0).any()
    ):
        raise ValueError("arrays calibration_knot and calibration_value do not ascend")
    shares = calibration.prior
    if (shares < 0).any() or abs(shares.sum() - 1) > 1e-6 or not 0 <= calibration.share[0] <= 1:
        raise ValueError("arrays calibration_prior and calibration_share hold a value that is not a share")
    if ((calibration.weight < 1 / LARGEST_WEIGHT) | (calibration.weight > LARGEST_WEIGHT)).any():
        raise ValueError("array calibration_weight has a weight that is not above 0, or too large")


def _check_intervals(model: Model, intervals: Intervals, scale: Scale | None) -> None:
    _check_arrays("interval_", intervals, {"leaf": model.n_leaves})
    if (
        (intervals.spread <= 0).any()
        or (intervals.quantile < 0).any()
        or (np.diff(intervals.quantile) < 0).any()
    ):
        raise ValueError("arrays interval_spread and interval_quantile do not hold ascending sizes")
    if (np.diff(intervals.alpha) >= 0).any() or ((intervals.alpha <= 0) | (intervals.alpha >= 1)).any():
        raise ValueError("array interval_alpha does not hold descending shares")

    if (np.diff(intervals.share) <= 0).any() or ((intervals.share <= 0) | (intervals.share >= 1)).any():
        raise ValueError("array interval_share does not ascend between 0 and 1")
    if (np.diff(intervals.signed) < 0).any():
        raise ValueError("array interval_signed does not ascend")
    with np.errstate(over="ignore"):
        widest = intervals.spread.max() * np.exp(0.0 if scale is None else scale.bounds.max(initial=0.0))
        times = max(1.0, intervals.quantile.max(initial=0.0), np.abs(intervals.signed).max(initial=0.0))
        if not np.isfinite(widest * times):
            raise ValueError("array interval_spread makes intervals that are not finite")


def _check_scale(model: Model, scale: Scale) -> None:
    sizes = {"leaf": model.n_leaves, "output": model.n_outputs, "basis": len(model.beta), "bound": 2}
    _check_arrays("scale_", scale, sizes)
    if not np.array_equal(scale.at, model.beta_at):
        raise ValueError("array scale_at has other offsets than beta_at")
    if (scale.bounds[:, 0] > scale.bounds[:, 1]).any() or np.abs(scale.bounds).max() > MOST_LOG_SCALE:
        raise ValueError("array scale_bounds does not hold ranges of log sizes")


def _check_arrays(prefix: str, holder: Any, sizes: Mapping[str, int], empty: str = "") -> None:
    """Check the shapes of the arrays of a part, also of those without values, whose dimensions on disk state
    nothing; and that all numbers are finite. A dimension without a size has that in its first array; an
    array without any of it may have any other stated size.

    empty  an array that may have no values
    """
    stated = SIZES | dict(sizes)
    known = dict(stated)
    for name, line in table(holder.__class__).items():
        array = getattr(holder, name)
        if not isinstance(array, np.ndarray) or (name == empty and not array.size):
            continue
        given = dict(zip((line.flat,) if line.flat else line.dimensions, array.shape, strict=True))
        is_void = any(n == 0 and dimension not in stated for dimension, n in given.items())
        shape = [
            n if is_void and dimension in stated else known.setdefault(dimension, n)
            for dimension, n in given.items()
        ]
        if [*array.shape] != shape:
            raise ValueError(f"array {prefix}{name} has shape {[*array.shape]}, not {shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"array {prefix}{name} holds a value that is not finite")


def _check_shapes(model: Model) -> None:
    columns, leaves, scaling = model.n_columns, model.n_leaves, model.scaling
    sizes = {"feature": columns, "leaf": leaves, "output": model.n_outputs, "product": len(model.pairs)}
    _check_arrays("", model, sizes, empty="leaf_factor")
    for name, array, shape in (
        ("shift", scaling.shift, (max(columns, 1),)),
        ("factor", scaling.factor, (columns,)),
        ("leaf_rows", model.leaf_rows, (leaves,)),
        ("leaf_factor", model.leaf_factor, (leaves, columns if model.leaf_factor.size else 0)),
        ("beta", model.beta, (len(model.beta), model.n_outputs)),
    ):
        if array.shape != shape:
            raise ValueError(f"array {name} has shape {[*array.shape]}, not {[*shape]}")
    for name, numbers in (("shift", scaling.shift), ("factor", scaling.factor), ("beta", model.beta.weights)):
        if not np.isfinite(numbers).all():
            raise ValueError(f"array {name} holds a value that is not finite")
    if (model.gamma < 0).any():
        raise ValueError("array gamma holds a negative value")
    if ((model.leaf_rows < 0) | (model.leaf_rows > MOST_ROWS)).any():
        raise ValueError("array leaf_rows holds a value that is not a number of rows")


def _check_reference(model: Model, reference: Reference) -> None:
    _check_arrays("feature_", reference, {"feature": model.scaling.n_encoded})
    if (reference.sd < 0).any():
        raise ValueError("array feature_sd holds a negative value")
    if reference.gaps is not None and ((reference.gaps < 0) | (reference.gaps > 1)).any():
        raise ValueError("array feature_gaps holds a value that is not a share of rows")


def _check_offsets(name: str, at: IntArray, n_leaves: int) -> None:
    if not are_offsets(at, n_leaves):
        raise ValueError(f"array {name} does not ascend from 0 with an edge for each of {n_leaves} leaves")


def _check_leaves(model: Model) -> None:
    """Check every leaf: pairs of its own landmarks, and a row of output weights for each basis function."""
    landmarks, products, distances, weights = (
        np.diff(at) for at in (model.landmark_at, model.pair_at, model.triangle_at, model.beta_at)
    )
    points = distances // np.maximum(landmarks, 1)
    if (points * landmarks != distances).any():
        raise ValueError("the distances and landmarks of a leaf differ in number")
    if ((weights != landmarks + products + points) & (weights != 0)).any():
        raise ValueError("the output weights and basis functions of a leaf differ in number")
    most = np.repeat(landmarks, products)[:, None]
    if ((model.pairs < 0) | (model.pairs >= most)).any():
        raise ValueError("array pairs names a landmark that its leaf lacks")


def check_support(support: Support) -> None:
    """Check the local SVMs."""
    _check_offsets("support_at", support.at, len(support.intercept))
    for name in ("vectors", "dual", "intercept", "gamma"):
        if not np.isfinite(getattr(support, name)).all():
            raise ValueError(f"array support_{name} holds a value that is not finite")
