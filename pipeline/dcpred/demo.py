"""`dcpred demo`: the whole job on real digits, with a linear model and an exact SVM as baselines."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC, LinearSVC

from dcpred.datasets.digits import Digits, enlarged_digits
from dcpred.evaluation.evaluate import evaluate
from dcpred.execution.progress import Reporter
from dcpred.execution.workers import connect, started_once
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.process import one_thread
from dcpred_tasks.scoring.scorer import compiled_ahead
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.atomic_files import new_directory
from dcpred_tasks.training.settings import Settings

N_ROWS = 100_000
BASELINE_ROWS = 20_000  # training an exact SVM on all rows would take most of the demonstration
CHUNK_ROWS = 8_192
GAMMA, C = 0.001, 10.0
SETTINGS = Settings(
    scaling="none",
    gamma=GAMMA,
    C=C,
    n_leaves=64,
    landmarks=32,
    products=128,
    head_gamma=0.0005,
    refine=False,  # the paper's way, which takes less time
    keep_support_vectors=True,
)


def run_demo(out: Path, n_workers: int | None, say: Reporter) -> dict[str, Any]:
    """Write everything into the new directory `out`, or resume in it. Returns the figures."""
    begin = time.perf_counter()
    digits = enlarged_digits(N_ROWS)
    _claim(out)
    data, held_out = out / "digits.zarr", out / "held-out.zarr"
    _write(data, digits.X_train, digits.y_train)
    _write(held_out, digits.X_test, digits.y_test)
    say.say(
        f"{len(digits.X_train):,} digits of {digits.X_train.shape[1]} pixels, {len(digits.X_test)} originals"
        " held out"
    )
    model, scores = out / "model", out / "scores"
    with compiled_ahead(), started_once(partial(connect, n_workers, None)) as pool:
        trained = train(f"{data}/X", f"{data}/y", model, SETTINGS, pool, say=say)
        scored = score(model, f"{data}/X", scores, pool, say=say)
    quality = evaluate(model, f"{held_out}/X", f"{held_out}/y", early=True, say=say)
    say.say(f"training a linear model and an exact SVM on {BASELINE_ROWS:,} of the rows, for comparison")
    baselines = _baselines(digits)
    return {
        "out": str(out),
        "accuracy": quality["accuracy"],
        "early_accuracy": quality["early_accuracy"],
        "linear_accuracy": baselines["linear"][0],
        "svm_accuracy": baselines["svm"][0],
        "cost_ratio": quality["predicted_cost_ratio"],
        "us_per_row": quality["us_per_row"],
        "linear_us_per_row": quality["linear_us_per_row"],
        "svm_us_per_row": baselines["svm"][1],
        "rows_per_second": scored.rows_per_second,
        "n_rows": scored.n_rows,
        "n_leaves": trained.n_leaves,
        "train_seconds": sum(trained.seconds.values()),
        "rival_rows": BASELINE_ROWS,
        "seconds": time.perf_counter() - begin,
    }


def _claim(out: Path) -> None:
    known = {"digits.zarr", "held-out.zarr", "model", "model.scratch", "scores"}
    if out.exists() and any(entry.name.split(".partial-")[0] not in known for entry in out.iterdir()):
        raise PlanConflictError(
            f"Cannot write the demonstration to {out}: it holds other files. Use --out DIR."
        )
    out.mkdir(parents=True, exist_ok=True)


def _write(path: Path, X: NDArray[Any], y: NDArray[Any]) -> None:
    if path.exists():
        return
    with new_directory(path) as partial_path:
        group = zarr_arrays.create_group(partial_path)
        for name, value in (("X", X), ("y", y)):
            names = zarr_arrays.DATA_DIMENSIONS[: value.ndim]
            zarr_arrays.create_array(group, name, value.shape, value.dtype, CHUNK_ROWS, dimensions=names)[
                ...
            ] = value


def _baselines(digits: Digits) -> dict[str, tuple[float, float]]:
    """(accuracy on the held-out originals, µs per predicted row) of a linear model and an exact SVM."""
    X, y = digits.X_train[:BASELINE_ROWS].astype(np.float64), digits.y_train[:BASELINE_ROWS]
    X_test = digits.X_test.astype(np.float64)
    found = {}
    for name, model in (("linear", LinearSVC(C=0.01, dual=False)), ("svm", SVC(C=C, gamma=GAMMA))):
        with one_thread():
            model.fit(X, y)
            start = time.perf_counter()
            accuracy = float((model.predict(X_test) == digits.y_test).mean())
            found[name] = accuracy, 1e6 * (time.perf_counter() - start) / len(X_test)
    return found
