"""One trial of a comparison: a system, its settings, what it learns and what it costs."""

import json
import os
import pickle
import platform
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import ensemble
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dcpred.serving.cost import measure_call
from dcpred_compare.baselines.leaf_model_type import LeafModelType, leaf_model_types
from dcpred_compare.files import KERNELS, POINTS, REQUEST, SHARED, store_result, stored_result
from dcpred_compare.result import KernelError
from dcpred_compare.rows import Rows, read_rows
from dcpred_compare.systems import OURS, PACKAGED, Point
from dcpred_tasks.annotations import from_document
from dcpred_tasks.engine.machine_code import warm
from dcpred_tasks.engine.native_modules import BITCODES
from dcpred_tasks.model.compact_model import Model, class_numbers
from dcpred_tasks.model.kernels import Kernel, median_gamma
from dcpred_tasks.model.leaf_model import EXACT, is_exact
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.process import one_thread
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.storage.atomic_files import write_arrays
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.leaf import leaf_rows, with_leaf_model
from dcpred_tasks.training.partition import assemble, divide, learn_scaling, n_outputs
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows

ERROR_ROWS, SEEDS = 500, 3
LANDMARKS = "landmarks"  # what the size of a basis of rows counts


def kernel_errors(rows: Rows) -> list[dict[str, Any]]:
    """By basis, kernel and size: the number of functions, and the mean error over seeds.

    rbf         rows of standard scaling, γ by the median distance
    polynomial  (x·u + 1)², rows of standard scaling and length 1
    """
    rng = np.random.default_rng(0)
    X = rows.X[rng.permutation(len(rows.X))[:ERROR_ROWS]].astype(np.float64)
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    length = np.linalg.norm(X, axis=1, keepdims=True)
    of_unit_length = (X / np.where(length > 0, length, 1.0)).astype(np.float32)
    standard = X.astype(np.float32)
    lines = []
    for name, kind in leaf_model_types().items():
        if kind.fit_basis is None:
            continue
        if kind.kernel == "rbf":
            kernel, scaled = Kernel("rbf", median_gamma(Kernel("rbf", 1.0), standard)), standard
        else:
            kernel, scaled = Kernel("polynomial", 1.0, 2, 1.0), of_unit_length
        K = kernel(scaled, scaled)
        # A basis of rows is exact where every row is one.
        for size in (size for size in kind.sizes if len(scaled) > size or kind.counted != LANDMARKS):
            errors, functions = [], 0
            for seed in range(SEEDS):
                basis = kind.fit_basis(name, scaled, kernel, size, np.random.default_rng(seed))
                Z = basis(scaled.astype(np.float64))
                functions = Z.shape[1]
                errors.append(float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)))
            error = float(np.mean(errors))
            lines.append(asdict(KernelError(name, kernel.name, functions, error)))
    return lines


Predict = Callable[[NDArray[Any]], NDArray[Any]]


def packaged(name: str, size: int, rows: Rows, shared: dict[str, Any]) -> Callable[[], tuple[Predict, Any]]:
    """Returns a fit of a baseline of another package, which returns a function that predicts, and pickled
    bytes. Raises ImportError.
    """
    made = _made(name, size, rows, shared)

    def fit() -> tuple[Predict, dict[str, Any]]:
        made.fit(rows.X, rows.target)
        return (lambda X: np.asarray(made.predict(X))), {"bytes": len(pickle.dumps(made))}

    return fit


def _made(name: str, size: int, rows: Rows, shared: dict[str, Any]) -> Any:
    several = bool(rows.n_classes)
    if name == "lightgbm":
        import lightgbm

        kind = lightgbm.LGBMClassifier if several else lightgbm.LGBMRegressor
        return kind(n_estimators=size, num_leaves=63, n_jobs=1, random_state=0, verbosity=-1)
    if name == "xgboost":
        import xgboost

        kind = xgboost.XGBClassifier if several else xgboost.XGBRegressor
        return kind(n_estimators=size, n_jobs=1, random_state=0, verbosity=0)
    if name == "sklearnex_svc":
        return _sklearnex(several, shared["standard"])
    if name == "random_forest":
        forest = ensemble.RandomForestClassifier if several else ensemble.RandomForestRegressor
        return forest(n_estimators=size, n_jobs=1, random_state=0)
    boosted = ensemble.HistGradientBoostingClassifier if several else ensemble.HistGradientBoostingRegressor
    return boosted(max_iter=size, random_state=0)


def _sklearnex(several: bool, settings: dict[str, Any]) -> Any:
    """With γ and C that suit the exact SVM with standard scaling; targets of SVR are scaled, its C is 10."""
    import daal4py
    from sklearnex.svm import SVC, SVR

    daal4py.daalinit(1)  # It has its own threads.
    gamma = settings["gamma"]
    if several:
        return make_pipeline(StandardScaler(), SVC(C=settings["C"], gamma=gamma))
    machine = make_pipeline(StandardScaler(), SVR(C=10.0, gamma=gamma))
    return TransformedTargetRegressor(machine, transformer=StandardScaler())


WIDTH_ROWS, MOST_HELD = 1_500, 2_000
SCALINGS = ("standard", "minmax")
WIDTHS = (0.25, 1.0, 4.0, 16.0)  # factors of γ = 1 / (features × variance)
LEARNED_WIDTHS = (0.5, 1.0, 2.0)  # values of γ with ARD scaling
PENALTIES = (1.0, 10.0, 100.0)
OWN_PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0)
RIDGES = (1e-3, 1e-2, 1e-1)


def choose_shared(rows: Rows) -> dict[str, Any]:
    """Settings; `standard`, the best with standard scaling; `of`, exceptions of some models; `scalings` of
    all training rows by name; and all candidates. ARD scaling, which takes longer, is evaluated only with the
    C or ridge that is best for the others.
    """
    held = min(MOST_HELD, len(rows.X) // 3)
    order = np.random.default_rng(0).permutation(len(rows.X))
    test, train = order[:held], order[held : held + WIDTH_ROWS]
    if pairs := rows.held_out():
        train, test = (order[np.isin(order, side)] for side in pairs[-1])
        train, test = train[:WIDTH_ROWS], test[:held]
    some = rows.taken(train)
    scalings = {name: scaling_of(some, name) for name in (*SCALINGS, "learned")}
    tried: list[dict[str, Any]] = []
    name, values = ("C", PENALTIES) if rows.n_classes else ("ridge", RIDGES)

    def error(values: Mapping[str, object], kind: LeafModelType | None = None) -> float:
        scaling = scalings[str(values["scaling"])]
        given = {key: value for key, value in values.items() if key != "scaling"}
        given = given if kind else {"leaf_model": EXACT} | given
        return _error(fitted_with(some, scaling, given, kind), rows, test)

    def attempt(scaling: str, gamma: float, value: float) -> None:
        settings = {"scaling": scaling, "gamma": gamma, name: value}
        tried.append({"settings": settings, "error": error(settings)})

    for scaling in SCALINGS:
        unit = _unit_gamma(scalings[scaling](some.X))
        for width, value in product(WIDTHS, values):
            attempt(scaling, width * unit, value)
    own_penalties = {}
    for kind in leaf_model_types().values():
        if kind.own_penalty and rows.n_classes:
            sized = replace(kind, size=kind.sizes[1])
            errors = {C: error({"scaling": "standard", "C": C}, sized) for C in OWN_PENALTIES}
            own_penalties[kind.name] = {"C": min(errors, key=errors.__getitem__)}
    strength = min(tried, key=lambda candidate: candidate["error"])["settings"][name]
    for width in LEARNED_WIDTHS:
        attempt("learned", width, strength)
    best = min(tried, key=lambda candidate: candidate["error"])
    of_standard = [candidate for candidate in tried if candidate["settings"]["scaling"] == "standard"]
    used = dict.fromkeys((best["settings"]["scaling"], "standard"))
    return {
        "settings": best["settings"],
        "error": best["error"],
        "standard": min(of_standard, key=lambda candidate: candidate["error"])["settings"],
        "of": own_penalties,
        "scalings": {scaling: scaling_of(rows, scaling).as_lists() for scaling in used},
        "tried": tried,
    }


def scaling_of(rows: Rows, name: str) -> Scaling:
    """The scaling of all these rows."""
    settings = make_settings({"task": rows.task, "scaling": name, "categorical": "none"})
    weight = np.ones(len(rows.X))
    survey = survey_rows(rows.X, rows.target, weight, 0, rows.task)
    return learn_scaling(rows.X, rows.target, weight, survey, settings)


def fitted_with(
    rows: Rows, scaling: Scaling, values: Mapping[str, object], kind: LeafModelType | None = None
) -> Model:
    """A model of these settings with an existing scaling, in one leaf of all rows unless they state
    otherwise.

    kind  a baseline that is fitted to the leaf; None: what the settings name
    """
    one_leaf = {"n_leaves": 1, "max_leaf_rows": 1_000_000}
    settings = make_settings(
        {"task": rows.task, "categorical": "none", "calibrate": False, **one_leaf, **values}
    )
    weight = np.ones(len(rows.X))
    survey = survey_rows(rows.X, rows.target, weight, 0, rows.task)
    classes = tuple(range(rows.n_classes))
    if kind is None:
        factors = np.ones(rows.n_classes)
        return train_rows(rows.X, rows.target, weight, factors, survey, settings, classes, 1, scaling=scaling)
    kernels = divide(scaling, rows.X, weight, survey, settings).kernels
    X = scaling(rows.X)
    of_leaf = leaf_rows(X, rows.target, weight, None, n_outputs(rows.n_classes), settings)
    with one_thread():  # Training has one, too.
        leaf = with_leaf_model(of_leaf, kind.fit(kind, of_leaf, kernels.local, settings, 0), settings)
    tree = Tree.single(X.shape[1])
    count = np.array([len(X)])
    return assemble([leaf], count, tree, scaling, kernels, classes, settings, leaf_model=kind.name)


def _unit_gamma(X: Any) -> float:
    """1 / (features × variance) of scaled rows."""
    return float(1.0 / (X.shape[1] * max(float(X.astype(np.float64).var()), 1e-12)))


def _error(model: Model, rows: Rows, test: Any) -> float:
    decision = score_rows(model, rows.X[test])[0]
    if rows.n_classes:
        return float((class_numbers(decision) != rows.target[test]).mean())
    return float(((decision[:, 0] - rows.target[test]) ** 2).mean())


COST_SECONDS, COST_REPEATS = 0.5, 5  # approximate time of the timings of a point, and their number
Fit = Callable[[], tuple[Predict, dict[str, Any]]]


def main(folder: Path, name: str, limit_seconds: float) -> None:
    """Write the result of a point."""
    rows = read_rows(folder)
    result: dict[str, Any]
    if name in (SHARED, KERNELS):
        with counted(limit_seconds) as time:
            result = choose_shared(rows) if name == SHARED else {"errors": kernel_errors(rows)}
        result["seconds"] = time.seconds
    else:
        document = json.loads((folder / REQUEST).read_text(encoding="utf-8"))["points"][name]
        result = _tried(folder, from_document(Point, document), rows, limit_seconds)
    store_result(folder, name, {"status": "done"} | result)


@dataclass
class Spent:
    """Processor seconds, filled in at the end."""

    seconds: float = 0.0


@contextmanager
def counted(limit_seconds: float) -> Iterator[Spent]:
    """Counts processor time, also of threads and children; the system ends the process at the limit."""
    spent = Spent()
    begin, usage = _processor_seconds(), resource.getrusage(resource.RUSAGE_SELF)
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    most = int(np.ceil(usage.ru_utime + usage.ru_stime + limit_seconds))
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
    try:
        yield spent
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        spent.seconds = _processor_seconds() - begin


def _processor_seconds() -> float:
    """Of this process and of children that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _tried(folder: Path, point: Point, rows: Rows, limit_seconds: float) -> dict[str, Any]:
    """A fit, its predictions, and their cost."""
    fit = _fit_of(point, rows, stored_result(folder, SHARED))  # imports happen here, outside the timing
    with counted(limit_seconds) as time:
        predict, figures = fit()
    predicted = predict(rows.X_test)
    write_arrays(folder / POINTS / f"{point.name}.npz", {"predicted": predicted})
    us, linear = measure_call(predict, rows.X_test, COST_SECONDS, repeats=COST_REPEATS)
    return figures | {
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
    if point.system in PACKAGED:
        return packaged(point.system, point.size, rows, shared)
    if point.system == OURS:
        return _ours(point, rows)
    kind = point.baseline

    def fit() -> tuple[Predict, dict[str, Any]]:
        values = shared["settings"] | shared["of"].get(point.system, {}) | point.settings
        scaling = Scaling.of(shared["scalings"][values.pop("scaling")])
        model = fitted_with(rows, scaling, values, kind)
        return _predictor(model), _figures(model) | {"why": note_of(point, rows, model)}

    return fit


def _ours(point: Point, rows: Rows) -> Fit:
    """Ours, by the estimators, which choose settings that are not given; with compiled machine code."""
    from dcpred.estimators.classifier import DCPredClassifier
    from dcpred.estimators.regressor import DCPredRegressor
    from dcpred.estimators.settings import as_parameters

    with suppress(ImportError, OSError):  # Without a compiler NumPy does the work.
        for bitcode in BITCODES:
            warm("host", bitcode)
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
    """Mean multiplications per row over those of a linear prediction, without the walk; None if compiled."""
    if model.leaf_models is None:
        return None
    each = [
        0.0 if (leaf_model := model.leaf_model(leaf)) is None else leaf_model.cost
        for leaf in range(model.n_leaves)
    ]
    return float(np.average(each, weights=model.leaf_rows)) / model.n_features


def _end_with_input() -> None:
    while os.read(0, 1):  # not by sys.stdin, whose lock would be held when the interpreter ends
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
