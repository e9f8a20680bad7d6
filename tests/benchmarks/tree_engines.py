"""The time of a row in trees: ours beside CatBoost, LightGBM, Treelite (compiled) and lleaves, in turns.

    python tests/benchmarks/tree_engines.py [--features 10,54,200] [--depths 4,6,8] [--trees 20,50,100,300]
                                            [--lleaves PYTHON] [--work DIR] [--quick]

Each system boosts as many trees of one depth on 20,000 rows of a smooth made target (LightGBM with as many
leaves as such a tree has, which Treelite and lleaves then compile), and predicts 100,000 other rows of single
precision, which it gets in the form that it likes best: CatBoost a pool, Treelite a DMatrix, lleaves doubles.
Nanoseconds of a row are medians of five turns, one thread, of processor time; 100 R² of the same rows stands
beside them. Ours keeps fewer trees where held-out rows say so. Systems that are not installed are left out.
lleaves needs an older llvmlite than ours: --lleaves names an interpreter that has it, and gcc links its code.
Run it with OMP_NUM_THREADS=1.
"""

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from common import Table
from numpy.typing import NDArray

from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows
from dcpred_tasks.training.tree_boosting import fit_trees

TURNS = 5
Predict = Callable[[], NDArray[Any]]


def made(n: int, d: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Rows of d features, all of which matter."""
    X = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    weight = 1.0 / np.sqrt(1.0 + np.arange(d))
    y = np.sin(2.0 * X) @ weight + X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3]
    return X, y + 0.3 * np.random.default_rng(seed + 1).normal(size=n)


def ours(X: Any, y: Any, rows: Any, n_trees: int, depth: int) -> tuple[Predict, int]:
    survey = survey_rows(X, y, None, 0, "regression")
    values = {"task": "regression", "trees": n_trees, "tree_depth": depth}
    trees = fit_trees(X, y, np.ones(len(y)), survey, make_settings(values))
    assert trees is not None
    engine, kept = trees.engine, len(trees.leaf)
    return (lambda: engine(rows)[:, 0]), kept


def catboost(X: Any, y: Any, rows: Any, n_trees: int, depth: int) -> Predict:
    library = import_module("catboost")
    options = {"thread_count": 1, "verbose": False, "allow_writing_files": False, "learning_rate": 0.1}
    model = library.CatBoostRegressor(iterations=n_trees, depth=depth, **options).fit(X, y)
    pool = library.Pool(rows)
    return lambda: model.predict(pool, thread_count=1)


def lightgbm(X: Any, y: Any, rows: Any, n_trees: int, depth: int) -> tuple[Predict, Any]:
    library = import_module("lightgbm")
    options = {"num_leaves": 1 << depth, "max_depth": depth, "num_threads": 1, "verbose": -1}
    booster = library.train(options | {"learning_rate": 0.1}, library.Dataset(X, y), n_trees)
    return (lambda: booster.predict(rows, num_threads=1)), booster


def treelite(text: Path, rows: Any) -> Predict:
    """A forest of LightGBM as C, compiled by gcc."""
    compiler, path = import_module("tl2cgen"), text.with_suffix(".treelite.so")
    model = import_module("treelite").frontend.load_lightgbm_model(text)
    compiler.export_lib(model, toolchain="gcc", libpath=path, params={"parallel_comp": 4, "quantize": 1})
    predictor, matrix = compiler.Predictor(path, nthread=1), compiler.DMatrix(rows)
    return lambda: predictor.predict(matrix).ravel()


def lleaves(text: Path, rows: Any, python: str) -> Predict:
    """A forest of LightGBM as machine code, called without lleaves."""
    made_of, library = text.with_suffix(".o"), text.with_suffix(".lleaves.so")
    code = f"import lleaves; lleaves.Model(model_file={str(text)!r}).compile(cache={str(made_of)!r})"
    subprocess.run([python, "-c", code], check=True)
    subprocess.run(["gcc", "-shared", "-o", library, made_of], check=True)
    call = ctypes.CDLL(str(library)).forest_root
    doubles, out = np.ascontiguousarray(rows, np.float64), np.empty(len(rows))

    def predict() -> NDArray[Any]:
        call(ctypes.c_void_p(doubles.ctypes.data), ctypes.c_void_p(out.ctypes.data), 0, len(doubles))
        return out

    return predict


def systems(d: int, depth: int, n_trees: int, args: argparse.Namespace, work: Path) -> Iterator[Any]:
    """Names and calls."""
    (X, y), (rows, _) = made(args.rows, d, 0), made(args.predicted, d, 2)
    own, kept = ours(X, y, rows, n_trees, depth)
    yield f"ours ({kept} trees)", own
    if find_spec("catboost"):
        yield "CatBoost", catboost(X, y, rows, n_trees, depth)
    if not find_spec("lightgbm"):
        return
    predict, booster = lightgbm(X, y, rows, n_trees, depth)
    yield "LightGBM", predict
    text = work / f"{d}_{depth}_{n_trees}.txt"
    booster.save_model(text)
    if find_spec("tl2cgen") and find_spec("treelite"):
        yield "Treelite", treelite(text, rows)
    if args.lleaves:
        yield "lleaves", lleaves(text, rows, args.lleaves)


def measured(calls: dict[str, Predict], truth: NDArray[Any]) -> dict[str, tuple[float, float]]:
    """Nanoseconds of a row, and 100 R²."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    quality = {name: 100 * (1 - np.mean((call() - truth) ** 2) / truth.var()) for name, call in calls.items()}
    for _ in range(TURNS):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            seconds[name].append(time.process_time() - begin)
    return {name: (1e9 * float(np.median(own)) / len(truth), quality[name]) for name, own in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", default="10,54,200")
    parser.add_argument("--depths", default="4,6,8")
    parser.add_argument("--trees", default="20,50,100,300")
    parser.add_argument("--lleaves", help="a Python interpreter that has lleaves")
    parser.add_argument("--work", type=Path, help="a folder for compiled forests")
    parser.add_argument("--quick", action="store_true", help="10 features, 10 trees of depth 3, few rows")
    args = parser.parse_args()
    args.rows, args.predicted = 20_000, 100_000
    if args.quick:
        args.features, args.depths, args.trees, args.rows, args.predicted = "10", "3", "10", 500, 1_000
    table = Table("features", "depth", "trees", "system", "ns a row", "beside ours", "100 R²")
    with tempfile.TemporaryDirectory() as scratch:
        for d in map(int, args.features.split(",")):
            _, truth = made(args.predicted, d, 2)
            for depth in map(int, args.depths.split(",")):
                for n_trees in map(int, args.trees.split(",")):
                    calls = dict(systems(d, depth, n_trees, args, args.work or Path(scratch)))
                    results = measured(calls, truth)
                    own = next(iter(results.values()))[0]
                    for name, (ns, quality) in results.items():
                        cells = d, depth, n_trees, name, f"{ns:.1f}", f"{ns / own:.1f}", f"{quality:.2f}"
                        table.add(*map(str, cells))
    table.show()


if __name__ == "__main__":
    main()
