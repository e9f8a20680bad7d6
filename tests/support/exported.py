"""Five small models that are exported, rows for them, and exported files that score rows."""

import ctypes
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dcpred import DCPredClassifier, DCPredRegressor, ServedModel, Settings
from dcpred_tasks.model.compact_model import Model, Scores
from dcpred_tasks.model.leaf_arrays import LeafArrays, join_leaves
from dcpred_tasks.model.tree import Tree
from support.serving import serve

Predict = Callable[..., dict[str, NDArray[Any]]]
KINDS = ("two classes", "several classes", "regression", "missing values and codes", "1,000 leaves")
N_ROWS, N_FEATURES = 2_000, 12
BATCH = 20_000  # rows of a call
FAST: Mapping[str, Any] = {"random_state": 0, "n_leaves": 16, "landmarks": 16}
QUICK = Settings(refine_steps=5, products=16)


def make_served(kind: str) -> ServedModel:
    """The trained model of this kind."""
    rng = np.random.default_rng(0)
    X = random_rows(N_ROWS, 0)
    value = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=N_ROWS)
    if kind == "regression":
        target = np.expm1(value - value.min())
        return serve(DCPredRegressor(**FAST, settings=QUICK, target_transform="log1p").fit(X, target))
    if kind == "missing values and codes":
        frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(N_FEATURES)])
        frame["colour"] = np.array(["red", "green", "blue", None], object)[rng.integers(0, 4, N_ROWS)]
        value = value + (frame["colour"] == "red")
        frame = frame.mask(rng.random(frame.shape) < 0.1)
        return serve(DCPredClassifier(**FAST, settings=QUICK).fit(frame, np.where(value > 0.3, "yes", "no")))
    if kind == "several classes":
        classes = np.array(["ash", "elm", "oak", "yew"])[np.searchsorted([-1, 0.2, 1.2], value)]
        return serve(DCPredClassifier(**FAST, settings=QUICK).fit(X, classes))
    served = serve(DCPredClassifier(**FAST, settings=QUICK).fit(X, (value > 0.2).astype(int)))
    if kind == "1,000 leaves":
        served.model = with_many_leaves(served.model)
    return served


def with_many_leaves(model: Model, arity: int = 10, landmarks: int = 8) -> Model:
    """The same model with a tree of three levels, and with random leaves near their centres."""
    rng = np.random.default_rng(0)
    levels, middle = [], np.zeros((1, model.n_columns))
    for level in range(1, 4):
        middle = np.repeat(middle, arity, axis=0)
        middle = middle + rng.normal(size=middle.shape) / level
        levels.append(middle)
    n_nodes, n_leaves = 1 + arity + arity**2, arity**3
    children = np.append(np.arange(1, n_nodes), ~np.arange(n_leaves)).astype(np.int32)
    starts = np.arange(0, (n_nodes + 1) * arity, arity)
    leaves = [
        LeafArrays(
            landmarks=(own + rng.normal(size=(landmarks, len(own)))).astype(np.float32),
            gamma=np.full(landmarks, model.kernel.gamma, np.float32),
            pairs=np.empty((0, 2), np.int32),
            triangle=np.empty((0, landmarks), np.float32),
            beta=rng.normal(size=(landmarks, 1)).astype(np.float32),
            intercept=rng.normal(size=1),
            bounds=np.empty(0),
            leaf_factor=np.empty(0, np.float32),
        )
        for own in middle
    ]
    tree = Tree(starts, children, np.concatenate(levels).astype(np.float32))
    return replace(model, **join_leaves(Model, leaves), tree=tree, leaf_rows=np.ones(n_leaves, np.int64))


def random_rows(n: int, seed: int) -> NDArray[np.float32]:
    """Rows of numbers."""
    rng = np.random.default_rng([seed, 1])
    X = rng.normal(size=(n, N_FEATURES)).astype(np.float32) * rng.choice([0.5, 1.0, 2.0], (n, 1))
    return X.astype(np.float32)


def encoded_rows(kind: str, n: int, seed: int) -> NDArray[np.float32]:
    """Rows as arrays hold them: categories are numbers."""
    X = random_rows(n, seed)
    if kind != "missing values and codes":
        return X
    rng = np.random.default_rng([seed, 2])
    X = np.column_stack([X, rng.integers(0, 5, n)]).astype(np.float32)
    X[:, :N_FEATURES][rng.random((n, N_FEATURES)) < 0.1] = np.nan
    return X


def run_onnx(path: Path) -> Predict:
    """Scores of an ONNX file, by the name of the output."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda X: dict(zip(names, session.run(names, {"X": X}), strict=True))


def compilers() -> dict[str, list[str]]:
    """The commands of C compilers: gcc where it is installed, and clang of the package ziglang."""
    found = {"gcc": ["gcc"]} if which("gcc") else {}
    return found | ({"clang": [sys.executable, "-m", "ziglang", "cc"]} if find_spec("ziglang") else {})


def run_c(path: Path, compiler: str = "", *flags: str) -> Predict:
    """Scores of a C source, compiled into a library beside it; by the first compiler unless one is named."""
    library, known = path.with_suffix(".so"), compilers()
    command = [
        *known[compiler or next(iter(known))],
        "-O3",
        "-march=native",
        *flags,
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(path),
    ]
    subprocess.run([*command, "-lm"], check=True, capture_output=True, text=True)
    code = ctypes.CDLL(str(library))
    n_outputs, n_classes, is_double, regression, calibrated = (
        ctypes.c_int.in_dll(code, f"dcpred_{name}").value
        for name in ("n_outputs", "n_classes", "takes_double", "is_regression", "has_probability")
    )

    def predict(X: NDArray[Any], *, probability: bool = True) -> dict[str, NDArray[Any]]:
        X, n = np.ascontiguousarray(X, np.float64 if is_double else np.float32), len(X)
        found = {"decision": np.empty((n, n_outputs), np.float64 if regression else np.float32)}
        if n_classes:
            found["label"] = np.empty(n, np.int32)
        if calibrated and probability:
            found["probability"] = np.empty((n, n_classes))
        address = {name: a.ctypes.data_as(ctypes.c_void_p) for name, a in found.items()}
        code.dcpred_predict(
            X.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_long(n),
            *(address.get(name) for name in ("label", "decision", "probability")),
        )
        found["decision"] = found["decision"] if n_outputs > 1 else found["decision"][:, 0]
        return found

    return predict


def off(model: Model, found: NDArray[Any], right: Scores) -> NDArray[Any]:
    """The largest difference of the decision values of each row, on the scale of the leaves."""
    one, two = (
        model.target.to_decision(np.reshape(values, right.shape).astype(float)) for values in (found, right)
    )
    return np.asarray(np.abs(one - two).max(axis=1))
