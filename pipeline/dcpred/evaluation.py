"""How good a model is on labelled data, and what it costs."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.cost.measured import measure_cost
from dcpred.execution.progress import COMPILING, SILENT, Reporter
from dcpred.plan import plan_scoring
from dcpred_tasks.artifacts.data_schema import check_same_encoding
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import Model, Scores, check_features, check_matrix, class_numbers
from dcpred_tasks.model.feature_names import check_same_names, feature_names
from dcpred_tasks.process import one_thread
from dcpred_tasks.scoring.scorer import is_compiled, score_rows, warm_up
from dcpred_tasks.storage import stored_chunks, zarr_arrays


@dataclass
class _Tally:
    """Sums over rows of one way to predict."""

    right: int = 0
    squared_error: float = 0.0

    def add(self, model: Model, decision: Scores, target: NDArray[Any]) -> None:
        if model.task == "classification":
            self.right += int((class_numbers(decision) == target).sum())
        else:
            self.squared_error += float(((decision[:, 0].astype(np.float64) - target) ** 2).sum())


@dataclass
class _Targets:
    """The spread of the targets, for R² (sums are taken about the first value)."""

    n: int = 0
    origin: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, target: NDArray[Any]) -> None:
        if self.n == 0 and len(target):
            self.origin = float(target[0])
        off = target.astype(np.float64) - self.origin
        self.n += len(off)
        self.total += float(off.sum())
        self.squares += float((off**2).sum())

    @property
    def spread(self) -> float:
        return self.squares - self.total**2 / max(self.n, 1)


def evaluate(
    path: str | Path, x: str, y: str, *, early: bool = False, cost: bool = True, say: Reporter = SILENT
) -> dict[str, Any]:
    """Quality and cost on the rows of a Zarr data set, in this process, piece by piece.

    Returns accuracy (or rmse and r2), n_samples, n_bad (rows with NaN or infinity, left out), with `early`
    the same quality of the local models as early_accuracy (or early_rmse, early_r2), and with `cost` the
    fields of `Cost`, which takes two or three seconds. Raises RefusedErrors.
    """
    artifact = open_artifact(path)
    model = artifact.model(support=early)
    X, target = zarr_arrays.open_array(x), zarr_arrays.open_array(y)
    check_matrix(X.shape, np.dtype(X.dtype))
    check_same_encoding(x, artifact)
    check_features(X.shape, np.dtype(X.dtype), model.n_features)
    check_same_names(feature_names(X), artifact.feature_names, x)
    _check(X, target, x, y)
    plan = plan_scoring(
        X.shape[0], X.shape[1], np.dtype(X.dtype).itemsize, zarr_arrays.chunk_rows(X), model.n_outputs
    )
    names = target.attrs.get("labels")
    if not is_compiled():
        with say.step(COMPILING, None, ""):
            warm_up(model)
    compact, local, targets, n_bad = _Tally(), _Tally(), _Targets(), 0
    with say.step("evaluating", plan.n_rows, "rows") as advance, one_thread():
        for start in range(0, plan.n_rows, plan.chunk_rows):
            rows = zarr_arrays.read_rows(X, start, min(start + plan.chunk_rows, plan.n_rows))
            raw = zarr_arrays.read_rows(target, start, start + len(rows))
            wanted = raw if model.task == "regression" else _class_numbers(model, raw, names, start)
            decision, status = score_rows(model, rows)
            good = status == Status.OK
            n_bad += int((~good).sum())
            compact.add(model, decision[good], wanted[good])
            if model.task == "regression":
                targets.add(wanted[good])
            if early:
                decision, _ = score_rows(model, rows, early=True)
                local.add(model, decision[good], wanted[good])
            advance(len(rows))
    n = plan.n_rows - n_bad
    if n == 0:
        raise DataError(
            f"none of the {plan.n_rows:,} rows of {x} could be scored (NaN or infinity); clean the data"
        )
    result: dict[str, Any] = {"model": str(path), "data": x, "n_samples": plan.n_rows, "n_bad": n_bad}
    result |= _quality(compact, targets, n, model.task, "")
    if early:
        result |= _quality(local, targets, n, model.task, "early_")
    if not cost:
        return result
    say.say("measuring the cost")
    return result | asdict(
        measure_cost(model, zarr_arrays.read_rows(X, 0, min(plan.chunk_rows, plan.n_rows)))
    )


def _quality(tally: _Tally, targets: _Targets, n: int, task: str, prefix: str) -> dict[str, float | None]:
    if task == "classification":
        return {f"{prefix}accuracy": tally.right / n}
    r2 = 1.0 - tally.squared_error / targets.spread if targets.spread > 0 else None
    return {f"{prefix}rmse": float(np.sqrt(tally.squared_error / n)), f"{prefix}r2": r2}


def _check(X: Any, target: Any, x: str, y: str) -> None:
    if X.shape[0] == 0:
        raise DataError(f"X at {x} has no rows, so that there is nothing to evaluate; pass data with rows")
    if target.shape != (X.shape[0],):
        raise DataError(
            f"y must hold one value for each row of X, shape ({X.shape[0]},), but y at {y} has shape"
            f" {target.shape}; correct the one that is wrong"
        )
    for address, array in ((x, X), (y, target)):
        stored_chunks.check_complete(address, array)


def _class_numbers(model: Model, raw: NDArray[Any], names: Any, first_row: int) -> NDArray[np.int64]:
    """Class numbers of labels as a data set holds them. Raises DataError for one that is not in the model."""
    if isinstance(names, list):
        number = {name: i for i, name in enumerate(model.classes)}
        table = np.array([number.get(str(name), -1) for name in names] + [-1], np.int64)
        codes = raw.astype(np.int64)
        found = table[np.where((codes >= 0) & (codes < len(names)), codes, len(names))]
    else:
        labels = raw.astype(str) if raw.dtype.kind in "OTSU" else raw
        classes = np.array(model.classes)
        if (labels.dtype.kind in "biuf") != (classes.dtype.kind in "biuf"):
            labels, classes = labels.astype(str), classes.astype(str)
        order = np.argsort(classes)
        at = np.minimum(np.searchsorted(classes[order], labels), len(order) - 1)
        found = np.where(classes[order[at]] == labels, order[at], -1)
    unseen = np.flatnonzero(found < 0)
    if len(unseen):
        row = int(unseen[0])
        label = (
            names[int(raw[row])] if isinstance(names, list) and 0 <= int(raw[row]) < len(names) else raw[row]
        )
        raise DataError(
            f"row {first_row + row} has the label {label!s}, which the model was not trained on (it knows "
            f"{_listed(model.classes)}); remove such rows or train with that class"
        )
    return found


def _listed(classes: tuple[Any, ...]) -> str:
    shown = ", ".join(str(c) for c in classes[:10])
    return shown if len(classes) <= 10 else f"{shown}, … {len(classes)} classes"
