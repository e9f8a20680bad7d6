"""Checks of a model file. Digests show that nothing changed since it was written, not who wrote it.

Compiled code follows offsets and numbers of nodes, leaves and landmarks without checks of bounds. Each of
them is checked here, and an inconsistency raises ValueError.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from dcpred_tasks.artifacts.model_layout import ARRAYS, of_terms, parts_of
from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.engine.layout import laid_out_bytes
from dcpred_tasks.model import terms
from dcpred_tasks.model.basis import BOUNDS
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.compact_model import Model, Support
from dcpred_tasks.model.kernels import DEFAULTS, KERNELS, STORED
from dcpred_tasks.model.leaf_arrays import (
    are_offsets,
    check_arrays,
)
from dcpred_tasks.model.leaf_model import check_leaf_model
from dcpred_tasks.model.relations import Relations
from dcpred_tasks.model.target_transform import TargetTransform
from dcpred_tasks.model.uncertainty import LEVELS, Uncertainty
from dcpred_tasks.process import memory_bytes

TASKS = ("classification", "regression")
MOST_CLASSES, MOST_LETTERS = 2**16, 2**26  # letters of all names if all are as long as the longest: an array
LARGEST_INTEGER = 2**64  # largest integer that is a class
MOST_CHUNKS, CHUNK_VALUES = 2**14, 2**17  # chunks of an array, or least values of each on average
MOST_ROWS = 2**53  # float64 holds every integer up to here
LARGEST_DEGREE = 10
ITEM_BYTES = {
    np.dtype(each.dtype).name: np.dtype(each.dtype).itemsize for each in (ARRAYS | of_terms()).values()
}
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
    sizes = {
        "feature": model.n_columns,
        "leaf": n_leaves,
        "output": n_outputs,
        "class": len(model.classes),
        "basis": len(model.beta),
        "product": len(model.pairs),
        "bound": model.bounds.shape[1],
        "level": len(LEVELS),
        "background_row": 0 if model.background is None else len(model.background.rows),
    }
    check_arrays("", model, sizes)
    _check_shapes(model)
    if model.bins is not None:
        _check_bins(model, model.bins)
    if model.relations is not None:
        _check_relations(model, model.relations)
    for prefix, part in parts_of(model):
        of_raw = {"feature": model.scaling.n_encoded} if part is model.reference else {}
        check_arrays(prefix, part, sizes | of_raw)
    model.tree.check(n_leaves, model.n_columns)
    for name in ("landmark_at", "pair_at", "triangle_at", "beta_at"):
        _check_offsets(name, getattr(model, name), n_leaves)
    _check_leaves(model)
    _check_map(model)
    if (size := laid_out_bytes(model)) > LARGEST_LAYOUT:
        raise ValueError(f"it takes {size:,} bytes to score, more than half of this machine's memory")
    if model.leaf_models is not None:
        _check_offsets("machine_at", model.leaf_models.at, n_leaves)
        for leaf in range(n_leaves):
            model.leaf_model(leaf)
    if model.background is not None:
        _check_offsets("background_at", model.background.at, n_leaves)
    for term in model.terms:
        term.check(model.scaling.n_encoded, n_outputs)
    if model.uncertainty is not None:
        _check_uncertainty(model, model.uncertainty)


def _check_uncertainty(model: Model, uncertainty: Uncertainty) -> None:
    """Check what its arrays must be together."""
    calibration, intervals, scale = uncertainty.calibration, uncertainty.intervals, uncertainty.scale
    if calibration is not None and not (len(calibration.knot) and abs(calibration.prior.sum() - 1) <= 1e-6):
        raise ValueError("array calibration_knot is empty, or calibration_prior does not sum to 1")
    if scale is not None and not np.array_equal(scale.at, model.beta_at):
        raise ValueError("array scale_at has other offsets than beta_at")
    if intervals is not None:
        with np.errstate(over="ignore"):
            widest = intervals.spread.max() * np.exp(0.0 if scale is None else scale.bounds.max(initial=0.0))
            times = max(1.0, intervals.quantile.max(initial=0.0), np.abs(intervals.signed).max(initial=0.0))
            if not np.isfinite(widest * times):
                raise ValueError("array interval_spread makes intervals that are not finite")


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


def _check_relations(model: Model, relations: Relations) -> None:
    if ((relations.feature < 0) | (relations.feature >= model.n_features)).any():
        raise ValueError(f"array relation_feature does not name {model.n_features} features")


def _check_shapes(model: Model) -> None:
    columns, leaves, scaling = model.n_columns, model.n_leaves, model.scaling
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
    if ((model.leaf_rows < 0) | (model.leaf_rows > MOST_ROWS)).any():
        raise ValueError("array leaf_rows holds a value that is not a number of rows")


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
    check_arrays("support_", support, {"leaf": len(support.intercept)})
