"""One point of a comparison, in a process of its own, so that a time limit can end it and what it imports is
nobody's but its own:

    python -m dcpred.comparison.trial FOLDER NAME

writes FOLDER/points/NAME.json, and NAME.npz with its predictions of the test rows. The process ends when its
standard input does: nobody waits for its result then.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.comparison.kernel_errors import kernel_errors
from dcpred.comparison.rivals import fit_rival
from dcpred.comparison.rows import Rows, read_rows
from dcpred.comparison.shared import choose_shared
from dcpred.cost.measured import measure_call
from dcpred.estimators.classifier import DCPredClassifier
from dcpred.estimators.regressor import DCPredRegressor
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.storage.atomic_files import replace_bytes, write_arrays

SHARED, KERNELS = "shared", "kernel_errors"
POINTS = "points"
COST_SECONDS, COST_REPEATS = 0.5, 5  # about what the timings of a point take, and how many they are


def main(folder: Path, name: str) -> None:
    """Write what came of a point."""
    rows = read_rows(folder)
    told: dict[str, Any]
    if name == SHARED:
        told = choose_shared(rows)
    elif name == KERNELS:
        told = {"errors": kernel_errors(rows, _shared(folder))}
    else:
        point = json.loads((folder / "compare.json").read_text())["points"][name]
        told = _tried(folder, name, point, rows)
    replace_bytes(folder / POINTS / f"{name}.json", json.dumps({"status": "done"} | told).encode())


def _shared(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / POINTS / f"{SHARED}.json").read_text())
    return found


def _tried(folder: Path, name: str, point: dict[str, Any], rows: Rows) -> dict[str, Any]:
    begin = time.perf_counter()
    if point["rival"]:
        predict, n_bytes = fit_rival(point["rival"], point["size"], rows, _shared(folder))
        told: dict[str, Any] = {}
    else:
        chosen = _shared(folder)
        shared = chosen["settings"] | chosen["of"].get(point["system"], {}) if point["shared"] else {}
        model = _fitted(rows, {"random_state": 0, "n_jobs": 1} | shared | point["settings"])
        predict, n_bytes = _predictor(model), model.nbytes
        told = {"multiplications": _multiplications(model), "leaves": model.n_leaves}
    seconds = time.perf_counter() - begin
    predicted = predict(rows.X_test)
    write_arrays(folder / POINTS / f"{name}.npz", {"predicted": predicted})
    us, linear = measure_call(predict, rows.X_test, COST_SECONDS, repeats=COST_REPEATS)
    return told | {
        "quality": quality(predicted, rows),
        "us_per_row": us,
        "cost_ratio": us / linear,
        "seconds": seconds,
        "bytes": n_bytes,
    }


def quality(predicted: NDArray[Any], rows: Rows) -> float:
    """The share of right classes, or the root of the mean squared error."""
    if rows.n_classes:
        return float((predicted == rows.target_test).mean())
    return float(np.sqrt(np.mean((predicted - rows.target_test) ** 2)))


def _fitted(rows: Rows, parameters: dict[str, Any]) -> Model:
    made = (DCPredClassifier if rows.n_classes else DCPredRegressor)(**parameters)
    model: Model = made.fit(rows.X, rows.target).model_
    return model


def _predictor(model: Model) -> Callable[[NDArray[Any]], NDArray[Any]]:
    regression, two = model.task == "regression", model.n_outputs == 1

    def predict(X: NDArray[Any]) -> NDArray[Any]:
        decision, _ = score_rows(model, X)
        if regression:
            return decision[:, 0].astype(np.float64)
        return (decision[:, 0] > 0).astype(np.int64) if two else decision.argmax(axis=1)

    return predict


def _multiplications(model: Model) -> float | None:
    """Of a row in the mean over training rows, in those of a linear prediction of one output. The walk down
    the tree is not counted. None for compact models, whose engine is timed.
    """
    if model.machines is None:
        return None
    each = [
        0.0 if (one := model.machine(leaf)) is None else one.multiplications for leaf in range(model.n_leaves)
    ]
    return float(np.average(each, weights=model.leaf_rows)) / model.n_features


def _end_with_input() -> None:
    while os.read(0, 1):  # not by sys.stdin, whose lock would be held when the interpreter ends
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    main(Path(sys.argv[1]), sys.argv[2])
