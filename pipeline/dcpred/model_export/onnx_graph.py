"""A model as a graph of ONNX: the operations of its definition, in double precision.

model/compact_model.py defines them. Rows are side by side in every tensor. A row walks the tree level by
level, with the centres of its node gathered; then the landmarks and the weights of its leaf are gathered.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.model_export.flat_model import FlatModel, leaf_bounds, leaf_tables, padded
from dcpred.version import __version__
from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE
from dcpred_tasks.errors import optional_package
from dcpred_tasks.model.feature_map import FAR, THIRD, FeatureMap, Knots
from dcpred_tasks.model.kernels import LARGEST, Matern32, Sum
from dcpred_tasks.model.one_hot import Coding
from dcpred_tasks.model.target_encoding import FEWEST_POSITIONS, TargetEncoding
from dcpred_tasks.model.target_transform import LOG
from dcpred_tasks.model.uncertainty import TIE, Calibration
from dcpred_tasks.scoring.outputs import DECISION, LABEL, ProbabilityColumn

OPSET, IR_VERSION = 17, 8
LARGEST_SINGLE = 3.4028235677973366e38  # From here on, single precision takes a number for infinite.
ROW_AXIS = "n_samples"
Output = tuple[str, Any, tuple[int, ...]]  # name, dtype, and shape of one row


class Graph:
    """Operations of a graph under construction. A tensor is its name."""

    def __init__(self) -> None:
        with optional_package("export to ONNX", "onnx"):
            import onnx

        self.onnx = onnx
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self._known: dict[tuple[Any, ...], str] = {}

    def constant(self, values: Any, dtype: Any = None) -> str:
        """A tensor with these values, one for all uses."""
        array = np.asarray(values, dtype, order="C")
        if array.dtype.kind == "U":
            array = array.astype(object)
        key = (
            array.dtype.str,
            array.shape,
            str(array.tolist()) if array.dtype == object else array.tobytes(),
        )
        if key not in self._known:
            name = self._known[key] = f"c{len(self._known)}"
            self.initializers[name] = self.onnx.numpy_helper.from_array(array, name)
        return self._known[key]

    def double(self, values: NDArray[Any]) -> str:
        """A constant in double precision, stored as what it is."""
        return self.cast(self.constant(values), ACC_DTYPE)

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """The result of an operator. A number or an array among its inputs is a constant in double
        precision.
        """
        names = [tensor if isinstance(tensor, str) else self.constant(tensor, ACC_DTYPE) for tensor in inputs]
        name = f"t{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [name], **attributes))
        return name

    def name(self, tensor: str, output: str) -> None:
        """Make a tensor an output."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [tensor], [output]))

    def cast(self, tensor: str, dtype: Any) -> str:
        return self.op("Cast", tensor, to=self.type_of(dtype))

    def type_of(self, dtype: Any) -> int:
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reshape(self, tensor: str, *shape: int) -> str:
        return self.op("Reshape", tensor, self.constant(shape, INDEX_DTYPE))

    def unsqueeze(self, tensor: str, axis: int) -> str:
        return self.op("Unsqueeze", tensor, self.constant([axis], INDEX_DTYPE))

    def sum(self, tensor: str, keepdims: int = 0) -> str:
        """The sum over the last axis."""
        return self.op("ReduceSum", tensor, self.constant([-1], INDEX_DTYPE), keepdims=keepdims)

    def columns(self, tensor: str, which: Any) -> str:
        """Some columns of a matrix."""
        return self.op("Gather", tensor, self.constant(which, INDEX_DTYPE), axis=1)

    def all(self, flags: str) -> str:
        """Whether all flags of a row hold, (n, 1)."""
        least = self.op("ReduceMin", self.cast(flags, np.int32), axes=[1], keepdims=1)
        return self.cast(least, np.bool_)

    def is_finite(self, tensor: str) -> str:
        return self.op("Less", self.op("Abs", tensor), np.inf)


def onnx_bytes(flat: FlatModel) -> bytes:
    """The file. Raises SettingsError where the package onnx is not installed."""
    g, model = Graph(), flat.model
    x = g.cast("X", ACC_DTYPE)
    if flat.targets is not None:
        x = target_encoded(g, flat.targets, x)
    rows = scaled(g, flat, x)
    finite = g.all(g.op("Less", g.op("Abs", rows), LARGEST_SINGLE))
    rows = g.op("Where", finite, rows, 0.0)
    leaf = descended(g, flat, rows)
    offsets = [term.onnx_values(g, x) for term in flat.terms]
    decision, scored = decided(g, flat, leaf_values(g, flat, rows, leaf, offsets), finite)
    shape = (model.n_outputs,) if model.n_outputs > 1 else ()
    outputs: list[Output] = [(DECISION, model.score_dtype, shape)]
    if model.classes:
        number = class_number(g, decision, model.n_outputs)
        outputs.insert(0, (LABEL, label_output(g, flat, number, scored), ()))
        if flat.calibration is not None:
            p = probability(g, flat.calibration, g.cast(decision, ACC_DTYPE), number, len(model.classes))
            g.name(g.op("Where", scored, p, np.nan), ProbabilityColumn.name)
            outputs.append((ProbabilityColumn.name, np.dtype(ACC_DTYPE), (len(model.classes),)))
    g.name(decision if model.n_outputs > 1 else g.reshape(decision, -1), DECISION)
    return serialised(g, flat, outputs)


def serialised(g: Graph, flat: FlatModel, outputs: list[Output]) -> bytes:
    """The bytes of the checked graph."""
    helper, checker = g.onnx.helper, g.onnx.checker
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        g.nodes,
        "dcpred",
        [value("X", g.type_of(flat.dtype), [ROW_AXIS, flat.model.n_features])],
        [value(name, g.type_of(dtype), [ROW_AXIS, *shape]) for name, dtype, shape in outputs],
        list(g.initializers.values()),
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="dcpred",
        producer_version=__version__,
    )
    facts = {**flat.facts, "features": json.dumps(flat.features)}
    helper.set_model_props(made, facts | {"classes": json.dumps(flat.model.classes)})
    checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString())


# -- raw rows as scaled columns ------------------------------------------------------------------------------


def scaled(g: Graph, flat: FlatModel, x: str) -> str:
    """Scaled columns of encoded rows, (n, n_columns)."""
    scaling = flat.model.scaling
    if scaling.coding is not None:
        x = coded(g, scaling.coding, x)
    return g.op("Mul", g.op("Sub", x, scaling.shift), scaling.factor)


def target_encoded(g: Graph, targets: TargetEncoding, x: str) -> str:
    """Rows with means in place of categories; see TargetEncoding."""
    size = np.diff(targets.at)
    codes = g.columns(x, targets.feature)
    known = g.op("And", g.op("Less", codes, size.astype(ACC_DTYPE)), g.op("GreaterOrEqual", codes, 0.0))
    known = g.op("And", known, g.op("Equal", codes, g.op("Floor", codes)))
    place = g.op("Where", known, codes, (size - FEWEST_POSITIONS).astype(ACC_DTYPE))
    place = g.op("Add", g.cast(place, INDEX_DTYPE), g.constant(targets.at[:-1]))
    means = g.op("Gather", g.constant(targets.table), place)
    lost = g.unsqueeze(g.op("Not", g.is_finite(codes)), 2)
    means = g.op("Where", lost, g.unsqueeze(codes, 2), means)
    n_encoded, n_means = len(targets.feature), targets.n_means
    both = g.op("Concat", x, g.reshape(means, -1, n_encoded * n_means), axis=1)
    place_of = np.arange(targets.n_columns)
    for number in range(n_encoded):
        place_of[targets.columns(number)] = targets.n_features + number * n_means + np.arange(n_means)
    return g.columns(both, place_of)


def coded(g: Graph, coding: Coding, x: str) -> str:
    """Columns of encoded rows; see Coding."""
    missing = ""
    if coding.gap is not None:
        is_missing = g.op("IsNaN", x)
        if len(coding.indicated):
            missing = g.cast(g.columns(is_missing, coding.indicated), ACC_DTYPE)
        x = g.op("Where", is_missing, coding.gap, x)
    if coding.map is not None:
        x = mapped(g, coding.map, x)
    if len(coding.source) == coding.n_features and not coding.is_coded.any():
        return x
    columns = g.columns(x, coding.source[: coding.n_own])
    code = coding.code[: coding.n_own]
    if coding.is_coded.any():
        is_code = np.isfinite(code)
        hit = g.cast(g.op("Equal", columns, np.where(is_code, code, 0.0)), ACC_DTYPE)
        hit = g.op("Where", g.is_finite(columns), hit, np.nan)
        columns = g.op("Where", g.constant(is_code), hit, columns)
    if missing:
        there = g.is_finite(g.columns(x, coding.indicated))
        columns = g.op("Concat", columns, g.op("Where", there, missing, np.nan), axis=1)
    return columns


def mapped(g: Graph, mapping: FeatureMap, x: str) -> str:
    """See FeatureMap: differences in double precision, the rest in single."""
    amounts = np.flatnonzero(mapping.rate)

    def single(value: Any) -> str:
        return g.constant(value, MODEL_DTYPE)

    given = g.columns(x, amounts)
    u = g.cast(g.op("Mul", g.op("Sub", given, mapping.centre[amounts]), mapping.rate[amounts]), MODEL_DTYPE)
    if not isinstance(mapping, Knots):
        near = g.op("Min", g.op("Max", u, single(-FAR)), single(FAR))
        part = g.op("Mul", near, single(THIRD))
        s = g.op("Div", near, g.op("Sqrt", g.op("Add", g.op("Mul", part, part), single(1.0))))
    else:
        at = np.append(mapping.at[amounts], mapping.at[-1])
        index, exists = padded(at, int(np.diff(at).max()))
        knots = np.where(exists, mapping.knot[index], np.inf)
        above = g.op("GreaterOrEqual", g.unsqueeze(u, 2), single(knots))
        above = g.op("And", above, g.constant(exists))
        count = g.sum(g.cast(above, INDEX_DTYPE))
        last = g.op("Sub", g.op("Max", count, g.constant(1)), g.constant(1))
        k = g.op("Add", last, g.constant(at[:-1]))
        slope = g.op("Gather", single(mapping.slope), k)
        slope = g.op("Where", g.op("Greater", count, g.constant(0)), slope, single(0.0))
        off = g.op("Sub", u, g.op("Gather", single(mapping.knot), k))
        s = g.op("Add", g.op("Mul", off, slope), g.op("Gather", single(mapping.value), k))
    finite = g.op("Less", g.op("Abs", u), single(np.inf))
    s = g.cast(g.op("Where", finite, s, u), ACC_DTYPE)
    place_of = np.arange(len(mapping.rate))
    place_of[amounts] = len(place_of) + np.arange(len(amounts))
    return g.columns(g.op("Concat", x, s, axis=1), place_of)


# -- the tree and its leaves ---------------------------------------------------------------------------------


def descended(g: Graph, flat: FlatModel, rows: str) -> str:
    """The leaf of each scaled row, int64 (n,); see Tree.descend."""
    tree = flat.tree
    if tree.n_nodes == 0:
        zero = g.op("Mul", g.columns(rows, [0]), 0.0)
        return g.reshape(g.cast(zero, INDEX_DTYPE), -1)
    index, exists = padded(tree.starts, int(np.diff(tree.starts).max()))
    double = tree.centres.astype(ACC_DTYPE)
    half = np.einsum("ij,ij->i", double, double) / 2
    halves = np.where(exists, half[index], np.inf)
    children = tree.children[index].astype(INDEX_DTYPE)
    half_square = g.op("Mul", g.sum(g.op("Mul", rows, rows), keepdims=1), 0.5)
    at = ""
    for level in range(tree.depth):
        if level == 0:  # All rows share the root.
            root = g.double(np.ascontiguousarray(tree.centres[index[0]].T))
            scores = g.op("Sub", g.op("MatMul", rows, root), halves[0])
        else:
            node = g.op("Max", at, g.constant(0))
            centres = g.op("Gather", g.double(tree.centres), g.op("Gather", g.constant(index), node))
            scores = g.op("Sub", products(g, centres, rows), g.op("Gather", g.constant(halves), node))
        scores = g.cast(g.op("Sub", scores, half_square), MODEL_DTYPE)
        best = g.op("ArgMax", scores, axis=1, keepdims=1)
        if level == 0:
            at = g.reshape(g.op("Gather", g.constant(children[0]), best), -1)
        else:
            child = g.op("GatherElements", g.op("Gather", g.constant(children), node), best, axis=1)
            on_the_way = g.op("GreaterOrEqual", at, g.constant(0))
            at = g.op("Where", on_the_way, g.reshape(child, -1), at)
    return g.op("Sub", g.constant(-1), at)


def products(g: Graph, points: str, rows: str) -> str:
    """Products of rows (n, d), each with points of its own (n, m, d): (n, m)."""
    return g.op("Squeeze", g.op("MatMul", points, g.unsqueeze(rows, 2)), g.constant([2], INDEX_DTYPE))


def leaf_values(g: Graph, flat: FlatModel, rows: str, leaf: str, offsets: Sequence[str]) -> str:
    """Decision values of rows in their leaves, (n, n_outputs), with those of terms; see compact_model."""
    model, tables = flat.model, leaf_tables(flat)
    value = g.op("Gather", g.constant(model.intercept, ACC_DTYPE), leaf)
    if tables["beta"].shape[1]:
        c = basis(g, flat, tables, rows, leaf)
        beta = g.op("Gather", g.double(tables["beta"]), leaf)
        summed = g.op("MatMul", g.unsqueeze(c, 1), beta)
        value = g.op("Add", g.op("Squeeze", summed, g.constant([1], INDEX_DTYPE)), value)
    for offset in offsets:
        value = g.op("Add", value, offset)
    limits = leaf_bounds(model)
    if limits is not None:
        low, high = (g.op("Gather", g.constant(limit), leaf) for limit in (limits[:, :1], limits[:, 1:]))
        value = g.op("Min", g.op("Max", value, low), high)
    return value


def basis(g: Graph, flat: FlatModel, tables: dict[str, NDArray[Any]], rows: str, leaf: str) -> str:
    """Kernel values, their products and triangle values, (n, m + p + t); see LeafBasis."""
    model = flat.model
    kernel, family = model.kernel, model.kernel.family
    if model.leaf_factor.shape[1]:
        rows = g.op("Mul", rows, g.op("Gather", g.double(model.leaf_factor), leaf))
    index = g.op("Gather", g.constant(tables["landmark"]), leaf)
    points = g.op("Gather", g.double(model.landmarks), index)
    if family.sum == Sum.ABSOLUTE:
        s = g.sum(g.op("Abs", g.op("Sub", g.unsqueeze(rows, 1), points)))
    else:
        s = products(g, points, rows)
    if family.sum == Sum.SQUARES:
        u = model.landmarks.astype(ACC_DTYPE)
        norms = g.op("Gather", g.constant(np.einsum("ij,ij->i", u, u)), index)
        square = g.sum(g.op("Mul", rows, rows), keepdims=1)
        s = g.op("Max", g.op("Add", g.op("Sub", norms, g.op("Mul", s, 2.0)), square), 0.0)
    c = kernel_value(g, flat, g.op("Mul", s, g.op("Gather", g.double(model.gamma), index)))
    parts = [c]
    if tables["left"].shape[1]:
        left, right = (
            g.op("GatherElements", c, g.op("Gather", g.constant(tables[side]), leaf), axis=1)
            for side in ("left", "right")
        )
        parts.append(g.op("Mul", left, right))
    if tables["triangle"].shape[1]:
        r = g.unsqueeze(g.op("Sqrt", s) if family.sum == Sum.SQUARES else s, 1)
        distances = g.op("Gather", g.double(tables["triangle"]), leaf)
        if model.triangle_bound == "lower":
            bound = g.op("ReduceMax", g.op("Abs", g.op("Sub", r, distances)), axes=[2], keepdims=0)
        else:
            bound = g.op("ReduceMin", g.op("Add", r, distances), axes=[2], keepdims=0)
        power = g.op("Mul", bound, bound) if family.sum == Sum.SQUARES else bound
        parts.append(kernel_value(g, flat, g.op("Mul", power, float(kernel.gamma))))
    return g.op("Concat", *parts, axis=1) if len(parts) > 1 else c


def kernel_value(g: Graph, flat: FlatModel, t: str) -> str:
    """κ(t); see the families of model/kernels.py."""
    kernel, family = flat.model.kernel, flat.model.kernel.family
    if family.sum == Sum.PRODUCTS:
        base = g.op("Add", t, float(kernel.coef0))
        return base if kernel.degree == 1 else g.op("Pow", base, float(kernel.degree))
    if not isinstance(family, Matern32):
        return g.op("Exp", g.op("Neg", t))
    a2 = g.op("Min", g.op("Mul", t, family.a2_of_t), LARGEST)
    a = g.op("Sqrt", a2)
    series = g.op("Add", g.op("Add", g.op("Mul", a2, family.k), a), 1.0)
    return g.op("Mul", series, g.op("Exp", g.op("Neg", a)))


# -- outputs -------------------------------------------------------------------------------------------------


def decided(g: Graph, flat: FlatModel, value: str, finite: str) -> tuple[str, str]:
    """Decision values of rows (n, n_outputs), NaN without a score, and whether rows have one, (n, 1)."""
    target = flat.model.target
    if target:
        shift = float(target.shift)
        value = g.op("Add", value, shift) if target.name == LOG else value
        size = g.op("Abs", value)
        back = g.op("Sub", g.op("Exp", size), 1.0) if target.name == LOG else g.op("Mul", size, size)
        value = g.op("Mul", g.op("Sign", value), back)
        value = value if target.name == LOG else g.op("Add", value, shift)
    decision = g.cast(value, flat.model.score_dtype)
    inf, nan = (g.constant(value_of, flat.model.score_dtype) for value_of in (np.inf, np.nan))
    scored = g.op("And", finite, g.all(g.op("Less", g.op("Abs", decision), inf)))
    return g.op("Where", scored, decision, nan), scored


def class_number(g: Graph, decision: str, n_outputs: int) -> str:
    """int64 (n, 1); see class_numbers. ArgMax takes the first one of equal decision values."""
    if n_outputs == 1:
        return g.cast(g.op("Greater", decision, g.constant(0.0, MODEL_DTYPE)), INDEX_DTYPE)
    return g.op("ArgMax", decision, axis=1, keepdims=1)


def label_output(g: Graph, flat: FlatModel, number: str, scored: str) -> np.dtype[Any]:
    """The output `label`, as scores hold it, but text as text, with its missing value."""
    coding = flat.labels
    assert coding is not None
    values: NDArray[Any] = coding.values.astype(ACC_DTYPE if coding.values.dtype.kind == "f" else INDEX_DTYPE)
    missing: Any = np.array(coding.missing, values.dtype)
    if coding.names is not None:
        values, missing = np.array(coding.names, object), np.array("", object)
    labels = g.op("Gather", g.constant(values), number)
    g.name(g.reshape(g.op("Where", scored, labels, g.constant(missing)), -1), LABEL)
    return values.dtype


def probability(g: Graph, calibration: Calibration, decision: str, number: str, n_classes: int) -> str:
    """Probabilities (n, n_classes); see Calibration."""
    s = interpolated(g, calibration, decision)
    if n_classes == 2:
        s = g.op("Concat", g.op("Mul", s, 0.0), s, axis=1)
    q = g.op("Exp", g.op("Sub", s, g.op("ReduceMax", s, axes=[1], keepdims=1)))
    q = g.op("Div", q, g.sum(q, keepdims=1))
    share = calibration.share
    m = g.op("Add", g.op("Mul", q, 1.0 - share), share * calibration.prior)
    of_label = g.op("GatherElements", m, number, axis=1)
    is_own = g.op("Equal", number, g.constant(np.arange(n_classes)[None]))
    m = g.op("Where", is_own, of_label, g.op("Min", m, g.op("Mul", of_label, 1.0 - TIE)))
    m = g.op("Div", m, g.sum(m, keepdims=1))
    if len(calibration.weight):
        m = g.op("Div", m, calibration.weight)
        m = g.op("Div", m, g.sum(m, keepdims=1))
    return m


def interpolated(g: Graph, calibration: Calibration, decision: str) -> str:
    """g of decision values: linear between knots, constant beyond."""
    knot, value = calibration.knot, calibration.value
    if len(knot) == 1:
        return g.op("Add", g.op("Mul", decision, 0.0), value)
    bounded = g.op("Min", g.op("Max", decision, knot[0]), knot[-1])
    above = g.op("GreaterOrEqual", g.unsqueeze(bounded, 2), knot[1:-1])
    piece = g.sum(g.cast(above, INDEX_DTYPE))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.nan_to_num(np.diff(value) / np.diff(knot), posinf=0.0)
    off = g.op("Sub", bounded, g.op("Gather", g.constant(knot), piece))
    part = g.op("Mul", off, g.op("Gather", g.constant(slope), piece))
    return g.op("Add", part, g.op("Gather", g.constant(value), piece))
