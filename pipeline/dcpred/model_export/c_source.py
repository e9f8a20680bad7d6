"""A model as one C source without dependencies: its arrays, and the functions of model.c that read them.

Rows are scored in single precision as by the engine (native/DESIGN.md), whose packed arrays these are. Rows
that single precision cannot decide are scored in double precision.
"""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.model_export.flat_model import FlatModel
from dcpred.version import __version__
from dcpred_tasks.dtypes import ACC_DTYPE
from dcpred_tasks.engine.layout import held_features
from dcpred_tasks.model.feature_map import FAR, THIRD, Knots
from dcpred_tasks.model.kernels import FAMILIES, Matern32, Sum
from dcpred_tasks.model.target_transform import TRANSFORMS

BLOCK_ROWS, LARGE_BLOCK_ROWS, MANY_LEAVES = 2_048, 16_384, 64
ON_A_LINE = 12  # numbers of an array
C_TYPES = {
    "f": {4: "float", 8: "double"},
    "i": {1: "int", 2: "short", 4: "int", 8: "int"},
    "u": {1: "unsigned char"},
    "b": {1: "int"},
}
HEADER = """\
/* A model of dcpred {version}, made by `dcpred export-model`. One file without dependencies:
 *
 *     gcc -O3 -march=native -shared -fPIC -o model.so model.c -lm      (or clang)
 *
 *     void dcpred_predict(const {row} *x, long n, int *label, {value} *decision, double *probability);
 *
 * x            n rows of {features} features, raw, in the order below, row by row
 * label        n numbers of classes, −1 for a row without a score; or NULL
 * decision     n times {outputs} {meaning}, NaN for a row without a score; or NULL
 * probability  n times {classes} probabilities of the classes, NaN for a row without a score; or NULL
 *
 * A row with infinity{missing} has no score. Several threads may call the function at once. Do not compile
 * this file with -ffast-math: NaN would be lost.
 *
{facts}
 */

"""


def c_bytes(flat: FlatModel) -> bytes:
    """The file."""
    parts = [_header(flat), "#include <math.h>\n#include <string.h>\n", *_definitions(flat)]
    parts += [_array(name, values) for name, values in _arrays(flat).items()]
    if flat.terms:
        terms = "\n".join(f"{{{term.c_source}\n}}" for term in flat.terms)
        parts.append(f"static void add_terms(const double *x, double *out) {{\n{terms}\n}}")
    body = (files("dcpred.model_export") / "model.c").read_text(encoding="utf-8")
    return ("\n".join(parts) + "\n\n" + body).encode()


def _row_type(flat: FlatModel) -> str:
    return "double" if flat.dtype == "float64" else "float"


def _value_type(flat: FlatModel) -> str:
    return "double" if flat.model.score_dtype == ACC_DTYPE else "float"


def _header(flat: FlatModel) -> str:
    model, classes = flat.model, flat.model.classes
    facts = [f"{key}: {value}" for key, value in flat.facts.items()]
    facts += [f"feature {number}: {name}" for number, name in enumerate(flat.features)]
    facts += [f"class {number}: {name}" for number, name in enumerate(classes)]
    return HEADER.format(
        version=__version__,
        row=_row_type(flat),
        value=_value_type(flat),
        features=model.n_features,
        outputs=model.n_outputs,
        meaning="decision values" if classes else "predictions",
        classes=len(classes) if flat.calibration is not None else 0,
        missing="" if model.scaling.knows_gaps else " or NaN",
        facts="\n".join(f" * {_in_comment(fact)}" for fact in facts),
    )


def _in_comment(text: str) -> str:
    """Text that neither ends a comment nor continues a line."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain.replace("*/", "* /").replace("\\", "/").replace("??", "? ?")


def _definitions(flat: FlatModel) -> Iterator[str]:
    """The numbers of a model as macros, its types, and what a program may read."""
    names = [json.dumps(str(name), ensure_ascii=False).replace("??", '?""?') for name in flat.model.classes]
    yield f"typedef {_row_type(flat)} dcpred_row;\ntypedef {_value_type(flat)} dcpred_value;"
    for name, value in _numbers(flat).items():
        yield f"#define {name} {_number(value)}"
    for name, macro in (
        ("n_features", "N_FEATURES"),
        ("n_outputs", "N_OUTPUTS"),
        ("n_classes", "N_CLASSES"),
        ("takes_double", "TAKES_DOUBLE"),
        ("is_regression", "IS_REGRESSION"),
        ("has_probability", "HAS_PROBABILITY"),
    ):
        yield f"extern const int dcpred_{name};\nconst int dcpred_{name} = {macro};"
    yield "extern const char *const dcpred_class_names[];"
    yield f"const char *const dcpred_class_names[] = {{{', '.join([*names, '0'])}}};"


def _number(value: Any) -> str:
    if isinstance(value, bool | int | np.integer):
        return str(int(value))
    text = _float(float(value))
    return f"{text}f" if isinstance(value, np.float32) and text[-1] not in "YN" else text


def _float(value: float) -> str:
    """A number in hexadecimal: exact."""
    return {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}.get(str(value), "") or value.hex()


def _numbers(flat: FlatModel) -> dict[str, Any]:
    model, p, q, kernel = flat.model, flat.packed, flat.exact, flat.model.kernel
    family, targets, coding, calibration = kernel.family, flat.targets, model.scaling.coding, flat.calibration
    many = model.n_leaves > MANY_LEAVES
    matern = isinstance(family, Matern32)
    numbers: dict[str, Any] = {family.name.upper(): place for place, family in enumerate(FAMILIES)}
    return numbers | {
        "KERNEL": p.kernel,
        "DEGREE": kernel.degree,
        "COEF0": float(kernel.coef0),
        "MATERN_A2": float(family.a2_of_t) if isinstance(family, Matern32) else 0.0,
        "MATERN_K": float(family.k) if isinstance(family, Matern32) and matern else 0.0,
        "TRIANGLE_GAMMA": float(kernel.gamma),
        "LOWER_BOUND": model.triangle_bound == "lower",
        "N_FEATURES": model.n_features,
        "N_ENCODED": p.n_features,
        "N_COLUMNS": p.n_columns,
        "N_OWN": p.n_columns - len(p.columns.indicated),
        "N_HELD": len(held_features(flat.encoded)),
        "STRIDE": p.n_converted,
        "FACTOR_STEP": p.leaf_factors.step * p.n_converted,
        "GROUP_FEATURES": p.group_features,
        "N_OUTPUTS": p.n_outputs,
        "N_CLASSES": len(model.classes),
        "N_NODES": model.tree.n_nodes,
        "N_LEAVES": model.n_leaves,
        "MOST_KEYS": max(model.tree.n_nodes, model.n_leaves),
        "MOST_LANDMARKS": max(q.most_landmarks, 1),
        "MOST_VALUES": p.row_values,
        "N_CONSTANTS": family.n_constants,
        "TERM_WEIGHTS": p.term_weights,
        "BLOCK": LARGE_BLOCK_ROWS if many else BLOCK_ROWS,
        "WALK_ERROR": np.float32(p.error),
        "BY_DISTANCES": p.by_distances,
        "IS_REGRESSION": p.regression,
        "HAS_TERMS": len(flat.terms) > 0,
        "TRANSFORM": TRANSFORMS.index(model.target.name),
        "TARGET_SHIFT": float(model.target.shift),
        "TAKES_DOUBLE": flat.dtype == "float64",
        "HAS_COLUMNS": coding is not None or targets is not None,
        "HAS_PICKS": len(p.picks) > 0,
        "HAS_GAPS": len(q.gap) > 0,
        "HAS_CODES": p.columns.coded,
        "HAS_MAP": 0 if coding is None or coding.map is None else 1 + isinstance(coding.map, Knots),
        "HAS_LEAF_FACTOR": len(q.leaf_factor) > 0,
        "HAS_PROBABILITY": calibration is not None,
        "N_KNOTS": 0 if calibration is None else len(calibration.knot),
        "SHARE": 0.0 if calibration is None else float(calibration.share[0]),
        "N_TARGETS": 0 if targets is None else len(targets.feature),
        "N_MEANS": 1 if targets is None else targets.n_means,
        "MAP_FAR": FAR,
        "MAP_THIRD": THIRD,
    }


def _arrays(flat: FlatModel) -> dict[str, NDArray[Any]]:
    """The arrays of a model by their names in model.c."""
    p, q = flat.packed, flat.exact
    squares = flat.model.kernel.family.sum == Sum.SQUARES
    return {
        **_column_arrays(flat),
        "picks": p.picks,
        "factor": p.factor,
        "shift": p.shift,
        "double_factor": p.double_factor,
        "origin_high": p.origin_high,
        "origin_low": p.origin_low,
        "origin_centre": p.origin_centre,
        "nodes": p.nodes,
        "half_norms": p.half_norms,
        "radius": p.radius,
        "children": p.children,
        "leaf_factor": p.leaf_factors.single,
        "double_leaf_factor": p.leaf_factors.double,
        "means_high": p.means_high,
        "means_low": p.means_low,
        "means_centre": p.means_centre,
        "group_at": p.group_at,
        "landmark_groups": p.groups,
        "constants": p.constants,
        "is_wide": (p.rank >= p.n_by_products) & squares,
        "n_landmarks": p.n_landmarks,
        "pair_at": p.pair_at,
        "left": p.left,
        "right": p.right,
        "weight_at": p.weight_at,
        "weights": p.weights,
        "present_at": p.present_at,
        "present": p.present,
        "constant": p.constant,
        "bounds": p.bounds,
        "bounded": p.bounded,
        "exact_shift": q.shift,
        "exact_factor": q.factor,
        "exact_starts": q.starts,
        "exact_children": q.children,
        "centres": q.centres,
        "landmark_at": q.landmark_at,
        "landmarks": q.landmarks,
        "exact_gamma": q.gamma,
        "exact_leaf_factor": q.leaf_factor,
        "exact_pair_at": q.pair_at,
        "pairs": q.pairs,
        "triangle_at": flat.model.triangle_at,
        "triangle": flat.model.triangle,
        "beta_at": q.beta_at,
        "beta": np.asarray(flat.model.beta),
        "intercept": q.intercept,
        **{name: array for term in flat.terms for name, array in term.arrays().items()},
    }


def _column_arrays(flat: FlatModel) -> dict[str, NDArray[Any]]:
    """How raw rows become columns, and decision values probabilities."""
    p, q, targets, calibration = flat.packed, flat.exact, flat.targets, flat.calibration
    coding = flat.model.scaling.coding
    feature_map = None if coding is None else coding.map
    arrays: dict[str, NDArray[Any]] = {
        "indicated": p.columns.indicated,
        "column_first": np.append(p.columns.first, p.n_columns - len(p.columns.indicated)),
        "code_lowest": p.columns.lowest,
        "code_extent": p.columns.extent,
        "code_at": p.columns.place_at,
        "code_place": p.columns.place,
        "gap": q.gap,
    }
    if feature_map is not None:
        arrays |= {"amount_centre": feature_map.centre, "amount_rate": feature_map.rate}
    if isinstance(feature_map, Knots):
        of_map = {name: getattr(feature_map, name) for name in ("at", "knot", "value", "slope")}
        arrays |= {f"map_{name}": values for name, values in of_map.items()}
    if targets is not None:
        arrays |= {"target_feature": targets.feature, "target_at": targets.at, "target_table": targets.table}
    if calibration is not None:
        weight = calibration.weight if len(calibration.weight) else np.ones(len(calibration.prior))
        arrays |= {"knot": calibration.knot, "knot_value": calibration.value}
        arrays |= {"prior": calibration.prior, "class_weight": weight}
    return arrays


def _array(name: str, values: NDArray[Any]) -> str:
    """An array as C, with one element at least, aligned as vectors are."""
    flat, kind = values.ravel(), values.dtype.kind
    c_type = C_TYPES[kind][values.dtype.itemsize]
    if kind == "f":
        words = [_float(value) for value in flat.tolist()]
        words = [f"{word}f" if c_type == "float" and word[-1] not in "YN" else word for word in words]
    else:
        words = [str(int(value)) for value in flat]
    lines = (", ".join(words[at : at + ON_A_LINE]) for at in range(0, len(words), ON_A_LINE))
    return (
        f"static const {c_type} {name}[] __attribute__((aligned(64), unused)) = {{\n"
        + (",\n".join(lines) or "0")
        + "};"
    )
