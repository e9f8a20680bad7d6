"""Feature maps (the setting `feature_map`): what they do to models with fixed settings, without a search, and
what they cost the scoring engine.

    .venv/bin/python tests/benchmarks/feature_maps.py [--quick] [--rows N] [--splits N] [--data NAME,…]
                                                      [--set KEY=VALUE] [--cost]

Right rows in percent of a test set, means of some splits: at most 12,000 rows to train on, and at most 20,000
of the others to test on; learned scaling, all other settings default. Beside them what a row takes, in
nanoseconds, as `dcpred.serving.cost` predicts it.

With --cost instead: nanoseconds of a feature beyond those of the same model without a map, for float32 rows
of models of 64 leaves, in one thread, processor time, interleaved, the least of some repetitions.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import Table, data_folder
from numpy.typing import NDArray
from synthetic import Cloud, Shape, make_model

from dcpred import DCPredClassifier
from dcpred.estimators.settings import as_parameters
from dcpred.serving.cost import predict_cost
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.feature_map import MOST_KNOTS, Clip, FeatureMap, Knots
from dcpred_tasks.model.one_hot import coded_columns
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.scoring import scorer
from dcpred_tasks.training.settings import FEATURE_MAPS, make_settings

SETS = ("shuttle", "magic", "satimage", "spambase", "adult", "elec2", "segmentation", "ijcnn1")
TEST_ROWS = 20_000
FEATURES, STREAM_BYTES, REPEATS = (8, 16, 54, 123, 784), 2**25, 15


def with_map(model: Model, name: str, rows: NDArray[Any]) -> Model:
    """The same model of mapped features, whose landmarks lie where they lay; knots map each feature to
    about itself.
    """
    shift, factor = model.scaling.shift, model.scaling.factor
    found: FeatureMap = Clip(shift, factor, np.ones(len(shift)))
    if name != "clip":
        u = ((rows.astype(float) - shift) * factor).astype(np.float32)
        knots = [np.unique(np.quantile(column, np.linspace(0, 1, MOST_KNOTS))) for column in u.T]
        at = np.cumsum([0, *map(len, knots)])
        knot = np.concatenate(knots).astype(np.float32)
        found = Knots(shift, factor, np.ones(len(shift)), at, knot, knot, "additive")
    n = len(shift)
    scaling = Scaling(np.zeros(n), np.ones(n), coded_columns(n, {}, feature_map=found))
    return replace(model, scaling=scaling)


def costs(quick: bool) -> None:
    table = Table(
        "features",
        "linear prediction, ns a row",
        "without a map, ns a row",
        *(f"{name}, ns a feature" for name in FEATURE_MAPS[1:]),
    )
    for d in FEATURES[: 2 if quick else None]:
        cloud, n_rows = Cloud(d), 500 if quick else STREAM_BYTES // (4 * d)
        rows, plain = cloud.rows(n_rows, seed=2), make_model(Shape(d, 64), cloud)
        models = [plain, *(with_map(plain, name, rows[:5_000]) for name in FEATURE_MAPS[1:])]
        for model in models:
            found, right = (
                scorer.score_rows(model, rows[:200])[0],
                compact_model.score_rows(model, rows[:200])[0],
            )
            if np.abs(found - right).max() > 1e-4 * max(right.std(), 1e-3):
                raise SystemExit("the engine does not agree with the definition")
        w = np.ones(d, np.float32)
        calls: list[Callable[[], Any]] = [partial(np.matmul, rows, w)]
        calls += [partial(scorer.score_rows, model, rows) for model in models]
        seconds = np.empty((2 if quick else REPEATS, len(calls)))
        for repeat in range(len(seconds)):
            for k, call in enumerate(calls):
                begin = time.process_time()
                call()
                seconds[repeat, k] = time.process_time() - begin
        linear, bare, *mapped = 1e9 * seconds.min(axis=0) / n_rows
        table.add(str(d), f"{linear:.1f}", f"{bare:.1f}", *(f"{(one - bare) / d:.2f}" for one in mapped))
    table.show()


def rows_of(folder: Path, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """All rows of a set, of both parts where it has two."""
    path = folder / f"{name}.npz"
    with np.load(path if path.exists() else folder / "tables" / f"{name}.npz") as data:
        if "X" in data.files:
            return data["X"], data["y"]
        return tuple(np.concatenate([data[f"{k}_train"], data[f"{k}_test"]]) for k in "Xy")  # type: ignore[return-value]


def split(X: NDArray[Any], y: NDArray[Any], n_rows: int, seed: int) -> tuple[NDArray[Any], ...]:
    """Rows to train on, a quarter or more of all left out, and rows to test on."""
    order = np.random.default_rng(seed).permutation(len(y))
    n = min(n_rows, 3 * len(y) // 4)
    seen, new = order[:n], order[n : n + TEST_ROWS]
    return X[seen], y[seen], X[new], y[new]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--data", default=",".join(SETS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.cost or asked.quick:
        costs(asked.quick)
        if asked.cost:
            return
    n_rows, n_splits, names = asked.rows, asked.splits, asked.data.split(",")
    if asked.quick:
        n_rows, n_splits, names = 600, 1, ["segmentation"]
    given = {"scaling": "learned", **dict(one.split("=", 1) for one in asked.set)}
    kept = make_settings(given)
    values = {name: getattr(kept, name) for name in given}
    folder = data_folder()
    table = Table("data", *(f"{name}, % right" for name in FEATURE_MAPS), *(f"{n}, ns" for n in FEATURE_MAPS))
    for name in names:
        X, y = rows_of(folder, name)
        right, ns = np.zeros((2, len(FEATURE_MAPS), n_splits))
        for seed in range(n_splits):
            A, b, C, d = split(X, y, n_rows, seed)
            for k, feature_map in enumerate(FEATURE_MAPS):
                settings = values | {"feature_map": feature_map, "calibrate": False}
                model = DCPredClassifier(**as_parameters(settings), random_state=seed)
                right[k, seed] = 100 * model.fit(A, b).score(C, d)
                ns[k, seed] = predict_cost(model.model_).ns_per_row
        accuracy = [f"{r.mean():.2f} ± {r.std(ddof=min(1, n_splits - 1)):.2f}" for r in right]
        table.add(name, *accuracy, *(f"{r.mean():.0f}" for r in ns))
    table.show()


if __name__ == "__main__":
    main()
