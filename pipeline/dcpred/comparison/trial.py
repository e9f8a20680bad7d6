"""One point of a comparison, in a process of its own: a time limit can end it, and its imports affect no
other:

    python -m dcpred.comparison.trial FOLDER NAME SECONDS

writes FOLDER/points/NAME.json, and NAME.npz with its predictions of the test rows. SECONDS is its limit of
processor time to fit; it ends with SIGXCPU there. It also ends when its standard input does: nothing waits
for its result then.
"""

import json
import os
import platform
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.comparison.kernel_errors import kernel_errors
from dcpred.comparison.rivals import Predict, baseline
from dcpred.comparison.rows import Rows, read_rows
from dcpred.comparison.shared import choose_shared, fitted_with
from dcpred.comparison.systems import Point
from dcpred.cost.measured import measure_call
from dcpred_tasks.engine import machine_code
from dcpred_tasks.model.compact_model import Model, class_numbers
from dcpred_tasks.model.leaf_model import is_exact
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.storage.atomic_files import replace_bytes, write_arrays

SHARED, KERNELS = "shared", "kernel_errors"
POINTS = "points"
COST_SECONDS, COST_REPEATS = 0.5, 5  # approximate time of the timings of a point, and their number
Fit = Callable[[], tuple[Predict, dict[str, Any]]]


def main(folder: Path, name: str, limit_seconds: float) -> None:
    """Write the result of a point."""
    rows = read_rows(folder)
    summary: dict[str, Any]
    if name == SHARED:
        with counted(limit_seconds) as time:
            summary = choose_shared(rows)
        summary["seconds"] = time.seconds
    elif name == KERNELS:
        with counted(limit_seconds) as time:
            summary = {"errors": kernel_errors(rows)}
        summary["seconds"] = time.seconds
    else:
        point = Point(**json.loads((folder / "compare.json").read_text(encoding="utf-8"))["points"][name])
        summary = _tried(folder, point, rows, limit_seconds)
    replace_bytes(folder / POINTS / f"{name}.json", json.dumps({"status": "done"} | summary).encode())


@dataclass
class Spent:
    """Processor seconds, filled in at the end."""

    seconds: float = 0.0


@contextmanager
def counted(limit_seconds: float) -> Iterator[Spent]:
    """Counts the processor time of this process, its threads and its children; the system ends it with
    SIGXCPU at the limit.
    """
    found = Spent()
    begin, own = _processor_seconds(), resource.getrusage(resource.RUSAGE_SELF)
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    most = int(np.ceil(own.ru_utime + own.ru_stime + limit_seconds))
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
    try:
        yield found
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        found.seconds = _processor_seconds() - begin


def _processor_seconds() -> float:
    """Of this process and of children that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _shared(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / POINTS / f"{SHARED}.json").read_text(encoding="utf-8"))
    return found


def _tried(folder: Path, point: Point, rows: Rows, limit_seconds: float) -> dict[str, Any]:
    """A fit, its predictions, and their cost."""
    fit = _fit_of(point, rows, _shared(folder))  # imports happen here, outside the timing
    with counted(limit_seconds) as time:
        predict, summary = fit()
    predicted = predict(rows.X_test)
    write_arrays(folder / POINTS / f"{point.name}.npz", {"predicted": predicted})
    us, linear = measure_call(predict, rows.X_test, COST_SECONDS, repeats=COST_REPEATS)
    return summary | {
        "quality": quality(predicted, rows),
        "us_per_row": us,
        "linear_us": linear,
        "host": platform.node(),
        "seconds": time.seconds,
    }


def quality(predicted: NDArray[Any], rows: Rows) -> float:
    """Accuracy, or the root of the mean squared error."""
    if rows.n_classes:
        return float((predicted == rows.target_test).mean())
    return float(np.sqrt(np.mean((predicted - rows.target_test) ** 2)))


def _fit_of(point: Point, rows: Rows, shared: dict[str, Any]) -> Fit:
    if point.rival:
        return baseline(point.rival, point.size, rows, shared)
    if point.is_ours:
        return _ours(point, rows)
    kind = point.baseline
    if kind is not None:
        import_module(kind.module)

    def fit() -> tuple[Predict, dict[str, Any]]:
        values = shared["settings"] | shared["of"].get(point.system, {}) | point.settings
        scaling = Scaling.of(shared["scalings"][values.pop("scaling")])
        model = fitted_with(rows, scaling, values, kind)
        return _predictor(model), _figures(model) | {"why": note_of(point, rows, model)}

    return fit


def _ours(point: Point, rows: Rows) -> Fit:
    """Ours, by the estimators, which choose settings that are not given; with compiled machine code."""
    from dcpred.estimators.classifier import DCPredClassifier  # noqa: PLC0415 - Dask comes with it
    from dcpred.estimators.regressor import DCPredRegressor  # noqa: PLC0415
    from dcpred.estimators.settings import as_parameters  # noqa: PLC0415

    with suppress(ImportError, OSError):  # Without a compiler NumPy does the work.
        for bitcode in ("engine.machine_code.ENGINE", "training.compiled_refinement.REFINEMENT"):
            module, name = bitcode.rsplit(".", 1)
            machine_code.warm("host", getattr(import_module(f"dcpred_tasks.{module}"), name))
    made = (DCPredClassifier if rows.n_classes else DCPredRegressor)(
        random_state=0, n_jobs=1, cv=rows.held_out(), **as_parameters(point.settings)
    )

    def fit() -> tuple[Predict, dict[str, Any]]:
        model: Model = made.fit(rows.X, rows.target).model_
        return _predictor(model), _figures(model)

    return fit


def _figures(model: Model) -> dict[str, Any]:
    return {"bytes": model.nbytes, "multiplications": _multiplications(model), "leaves": model.n_leaves}


def note_of(point: Point, rows: Rows, model: Model) -> str:
    """A remark of a point besides its size: that it was trained on fewer rows, or differs from its name."""
    largest = int(model.leaf_rows.max())
    most = point.most_trained_on(largest)
    of_rows = f"{most:,} of {largest:,} rows" if model.n_leaves == 1 else f"{most:,} rows of a leaf at most"
    notes = [f"trained on {of_rows}"] if most < largest else []
    kind = point.baseline
    if kind is not None and kind.fallback and is_exact(model.leaf_model(0)):
        notes.append(kind.fallback)
    return "; ".join(notes)


def _predictor(model: Model) -> Predict:
    regression = model.task == "regression"

    def predict(X: NDArray[Any]) -> NDArray[Any]:
        decision, _ = score_rows(model, X)
        return decision[:, 0].astype(np.float64) if regression else class_numbers(decision)

    return predict


def _multiplications(model: Model) -> float | None:
    """Multiplications per row, averaged over training rows, in those of a linear prediction of one output.
    The walk down the tree is not counted. None for compact models, whose engine is timed.
    """
    if model.leaf_models is None:
        return None
    each = [0.0 if (one := model.leaf_model(leaf)) is None else one.cost for leaf in range(model.n_leaves)]
    return float(np.average(each, weights=model.leaf_rows)) / model.n_features


def _end_with_input() -> None:
    while os.read(0, 1):  # not by sys.stdin, whose lock would be held when the interpreter ends
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
