"""The demo on real digits, and small tables to try the commands on."""

import csv
import io
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.svm import SVC, LinearSVC

from dcpred.evaluation.evaluate import evaluate
from dcpred.execution.pools import connect, started_once
from dcpred.execution.progress import show
from dcpred.scoring.score import score
from dcpred.training.fit import TrainingRequest, fit_model
from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.process import one_thread
from dcpred_tasks.result_fields import Unit, result_class, result_field
from dcpred_tasks.scoring.scorer import compiled_ahead
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.atomic_files import create_bytes, new_directory, resource_errors
from dcpred_tasks.training.settings import Settings

SIDE = 8
HELD_OUT = 450
MAX_SHIFT = 0.6  # pixels
MAX_ROTATION = np.deg2rad(12)


@dataclass(frozen=True)
class Digits:
    """Rows of 64 grey levels 0…16, and labels: deformed ones to train on, held-out originals to test on."""

    X_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]


def enlarged_digits(n_rows: int) -> Digits:
    """About n_rows training rows: every original that is not held out, deformed as often as necessary."""
    rng = np.random.default_rng(0)
    data = load_digits()
    order = rng.permutation(len(data.target))
    X, y = data.data[order], data.target[order].astype(np.uint8)
    originals, y_kept = X[HELD_OUT:], y[HELD_OUT:]
    copies = max(n_rows // len(originals), 1)
    deformed = [originals]
    for _ in range(copies - 1):
        shift = rng.uniform(-MAX_SHIFT, MAX_SHIFT, 2)
        deformed.append(originals @ deformation(shift, rng.uniform(-MAX_ROTATION, MAX_ROTATION)).T)
    rows = np.rint(np.concatenate(deformed)).astype(np.uint8)
    shuffled = rng.permutation(len(rows))
    return Digits(
        rows[shuffled], np.tile(y_kept, copies)[shuffled], X[:HELD_OUT].astype(np.uint8), y[:HELD_OUT]
    )


def deformation(shift: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    """The 64 × 64 matrix that rotates an image about its middle and shifts it, by bilinear interpolation.

    shift  (2,), rows and columns in pixels
    angle  radians
    """
    middle = (SIDE - 1) / 2
    row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
    y, x = row - middle - shift[0], column - middle - shift[1]
    from_row = np.cos(angle) * y + np.sin(angle) * x + middle
    from_column = -np.sin(angle) * y + np.cos(angle) * x + middle
    matrix = np.zeros((SIDE * SIDE, SIDE * SIDE))
    for down in (0, 1):
        for right in (0, 1):
            r, c = np.floor(from_row).astype(int) + down, np.floor(from_column).astype(int) + right
            weight = (1 - np.abs(from_row - r)) * (1 - np.abs(from_column - c))
            inside = (r >= 0) & (r < SIDE) & (c >= 0) & (c < SIDE)
            matrix[np.flatnonzero(inside), (r * SIDE + c)[inside]] += weight[inside]
    return matrix


KNOWN, NEW = "known.csv", "new.csv"
NEW_ROWS = 119
ID, TARGET = "id", "label"


def _known_text(r: Mapping[str, Any]) -> str:
    return f"{r['known']}  ({r['n_known']:,} rows: {ID}, {r['n_features']} measurements, {TARGET})"


@result_class
class Example:
    """The written tables."""

    known: str = result_field(
        "Path of a labelled table, with the column `label`.", line="known", text=_known_text
    )
    new: str = result_field(
        "Path of a table of other rows, without it.",
        line="new",
        text="{new}  ({n_new:,} rows without " + TARGET + ")",
    )
    n_known: int = result_field(
        "Number of labelled rows.",
        line="next",
        text="dcpred import {known} known.zarr --target " + f"{TARGET} --id {ID}",
    )
    n_new: int = result_field("Number of other rows.")
    n_features: int = result_field("Number of features.")


def write_example(folder: Path) -> Example:
    """Write known.csv and new.csv into a folder, which is created if necessary. Raises PlanConflictError if
    one of them exists, ResourceError.
    """
    paths = folder / KNOWN, folder / NEW
    for path in paths:
        if path.exists():
            raise _is_there(path)
    data = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    order = np.random.RandomState(0).permutation(len(data.target))
    rows = [
        [str(number), *values, str(data.target_names[target])]
        for number, values, target in zip(order, data.data[order].tolist(), data.target[order], strict=True)
    ]
    known, new = rows[NEW_ROWS:], [row[:-1] for row in rows[:NEW_ROWS]]
    tables = _written([ID, *names, TARGET], known), _written([ID, *names], new)
    with resource_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for path, table in zip(paths, tables, strict=True):
        if not create_bytes(path, table):
            raise _is_there(path)
    return Example(str(paths[0]), str(paths[1]), len(known), len(new), len(names))


def _is_there(path: Path) -> PlanConflictError:
    return PlanConflictError(
        f"Cannot write a small table to {path}: it already exists. Remove it, or choose another folder:"
        " `dcpred example FOLDER`."
    )


def _written(head: list[str], rows: Iterable[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue().encode()


N_ROWS = 100_000
BASELINE_ROWS = 20_000  # training an exact SVM on all rows would take most of the demonstration
CHUNK_ROWS = 8_192
WRITTEN = 10**9  # the time of all files of data, in seconds
GAMMA, C = 0.001, 10.0
SETTINGS = Settings(
    scaling="none",
    gamma=GAMMA,
    C=C,
    n_leaves=64,
    landmarks=32,
    products=128,
    compact_gamma=0.0005,
    refine=False,  # the paper's way, which takes less time
    keep_support_vectors=True,
)


def _accuracy_text(r: Mapping[str, Any]) -> str:
    cost = f"{r['us_per_row']:.2f} µs a row, {r['cost_ratio']:.0f} linear predictions"
    return f"{100 * r['accuracy']:.2f} % on held-out originals  ({r['n_rows']:,} rows; {cost})"


def _svm_text(r: Mapping[str, Any]) -> str:
    return f"{100 * r['svm_accuracy']:.2f} %  ({r['rival_rows']:,} rows; {r['svm_us_per_row']:.0f} µs a row)"


def _scores_text(r: Mapping[str, Any]) -> str:
    speed = f"  ({r['rows_per_second']:,.0f} rows/s)" if r["rows_per_second"] else ""
    return f"{r['out']}/scores/scores.zarr{speed}"


@result_class
class Demonstration:
    """Figures of the demonstration."""

    out: str = result_field(
        "Folder of all results.", line="data", text="{out}/digits.zarr, {out}/held-out.zarr"
    )
    accuracy: float = result_field(
        "Accuracy of the model on held-out digits.", line="dcpred", text=_accuracy_text
    )
    early_accuracy: float = result_field(
        "Accuracy of its local models.",
        line="its local SVMs",
        text=lambda r: f"{100 * r['early_accuracy']:.2f} %  (early prediction)",
    )
    linear_accuracy: float = result_field(
        "Accuracy of a linear model.",
        line="linear model",
        text=lambda r: f"{100 * r['linear_accuracy']:.2f} %  ({r['rival_rows']:,} rows)",
    )
    svm_accuracy: float = result_field("Accuracy of an exact SVM.", line="exact SVM", text=_svm_text)
    cost_ratio: float = result_field("Predicted cost of a row, in linear predictions.")
    us_per_row: float = result_field("Time per row, in microseconds.")
    linear_us_per_row: float = result_field("Time per row of the linear model, in microseconds.")
    svm_us_per_row: float = result_field("Time per row of the exact SVM, in microseconds.")
    rows_per_second: float = result_field(
        "Rate of scoring, in rows per second.", line="scores", text=_scores_text
    )
    n_rows: int = result_field("Number of scored rows.")
    n_leaves: int = result_field(
        "Number of leaves.",
        line="model",
        text="{out}/model  ({n_leaves} leaves, trained in {train_seconds:.1f} s)",
    )
    train_seconds: float = result_field("Time of the training, in seconds.")
    rival_rows: int = result_field("Number of training rows of the other models.")
    seconds: float = result_field(
        "Time of the whole demonstration, in seconds.", unit=Unit.SECONDS, line="seconds"
    )


def run_demo(out: Path, n_workers: int | None) -> Demonstration:
    """Write everything into the new directory `out`, or resume in it. Returns the figures."""
    begin = time.perf_counter()
    digits = enlarged_digits(N_ROWS)
    _claim(out)
    data, held_out = out / "digits.zarr", out / "held-out.zarr"
    _write(data, digits.X_train, digits.y_train)
    _write(held_out, digits.X_test, digits.y_test)
    show(
        f"{len(digits.X_train):,} digits of {digits.X_train.shape[1]} pixels, {len(digits.X_test)} originals"
        " held out"
    )
    model, scores = out / "model", out / "scores"
    with compiled_ahead(), started_once(partial(connect, n_workers, None)) as pool:
        trained = fit_model(TrainingRequest(f"{data}/X", f"{data}/y", model, SETTINGS, pool))
        scored = score(model, data, scores, client=pool)
    quality = evaluate(model, held_out, early=True)
    show(f"training a linear model and an exact SVM on {BASELINE_ROWS:,} of the rows, for comparison")
    baselines = _baselines(digits)
    return Demonstration(
        out=str(out),
        accuracy=quality["accuracy"],
        early_accuracy=quality["early_accuracy"],
        linear_accuracy=baselines["linear"][0],
        svm_accuracy=baselines["svm"][0],
        cost_ratio=quality["predicted_cost_ratio"],
        us_per_row=quality["us_per_row"],
        linear_us_per_row=quality["linear_us_per_row"],
        svm_us_per_row=baselines["svm"][1],
        rows_per_second=scored.rows_per_second,
        n_rows=scored.n_rows,
        n_leaves=trained.n_leaves,
        train_seconds=sum(trained.seconds.values()),
        rival_rows=BASELINE_ROWS,
        seconds=time.perf_counter() - begin,
    )


def _claim(out: Path) -> None:
    known = {"digits.zarr", "held-out.zarr", "model", "model.scratch", "scores"}
    if out.exists() and any(entry.name.split(".partial-")[0] not in known for entry in out.iterdir()):
        raise PlanConflictError(
            f"Cannot write the demonstration to {out}: it holds other files. Use --out DIR."
        )
    out.mkdir(parents=True, exist_ok=True)


def _write(path: Path, X: NDArray[Any], y: NDArray[Any]) -> None:
    if path.exists():
        return _date(path)
    with new_directory(path) as partial_path:
        group = zarr_arrays.create_group(partial_path)
        for name, value in (("X", X), ("y", y)):
            names = zarr_arrays.DATA_DIMENSIONS[: value.ndim]
            zarr_arrays.create_array(group, name, value.shape, value.dtype, CHUNK_ROWS, dimensions=names)[
                ...
            ] = value
    _date(path)


def _date(path: Path) -> None:
    """Give all files one time: those of a copied folder are the data that its model was trained on."""
    for file in path.rglob("*"):
        os.utime(file, (WRITTEN, WRITTEN))


def _baselines(digits: Digits) -> dict[str, tuple[float, float]]:
    """(accuracy on the held-out originals, µs per predicted row) of a linear model and an exact SVM."""
    X, y = digits.X_train[:BASELINE_ROWS].astype(np.float64), digits.y_train[:BASELINE_ROWS]
    X_test = digits.X_test.astype(np.float64)
    results = {}
    for name, model in (("linear", LinearSVC(C=0.01, dual=False)), ("svm", SVC(C=C, gamma=GAMMA))):
        with one_thread():
            model.fit(X, y)
            start = time.perf_counter()
            accuracy = float((model.predict(X_test) == digits.y_test).mean())
            results[name] = accuracy, 1e6 * (time.perf_counter() - start) / len(X_test)
    return results
