"""dcpred without any setting on seventeen data sets, beside the best exact machine of its grid and LightGBM.

    python tests/benchmarks/without_settings.py [--sets letter,magic,...] [--splits 3] [--workers 2]
                                                [--work DIR] [--no-rivals] [--beside] [--quick]

The search is that of `dcpred train` without `--set`, and what is judged is the model that it trains: quality
on the test rows, the quality that it foretold with its error, the predicted cost. `--beside` trains with the
settings that were found once more, with and without each addition to the paper's method that a search may
choose, at the same number of leaves and landmarks. Results of rivals, and ours by version, are kept in
WORK/without_settings.json, so that a run that was cut off goes on.
"""

import argparse
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import Table, data_folder, write_group
from engine import number, say
from more_sets import EVERY
from rivals import Cache, Job, exact, trees
from sets import DataSet, Split

from dcpred.cost.predicted import predict_cost
from dcpred.execution.workers import InlineWorkers, Workers, connect
from dcpred.training.train import train
from dcpred.tuning import tree_search, tune
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.scoring import scorer
from dcpred_tasks.training.settings import Settings, make_settings

QUICK_ROWS, QUICK_SETS = 400, "magic"
# Each addition with the value that is the paper's.
ADDITIONS: dict[str, tuple[Any, Any]] = {
    "categorical": ("auto", "none"),
    "symlog": ("auto", "none"),
    "leaf_scaling": (True, False),
    "loss": ("logistic", "hinge"),
}
Found = dict[str, Any]


def quality(path: Path, split: Split, regression: bool) -> tuple[float, float, float]:
    """(accuracy in percent or RMSE on the test rows, predicted cost in linear predictions, in ns)."""
    model = read_model(path)
    decision = scorer.score_rows(model, np.ascontiguousarray(split.X_test))[0]
    cost = predict_cost(model)
    if regression:
        found = float(np.sqrt(np.mean((decision[:, 0] - split.y_test.astype(np.float64)) ** 2)))
    else:
        found = 100 * float(np.mean(np.array(model.classes)[class_numbers(decision)] == split.y_test))
    return found, cost.cost_ratio, cost.ns_per_row


def searched(dataset: DataSet, split: Split, workers: Workers, work: Path, beside: bool) -> Found:
    """What a search without settings comes to, on one split."""
    write_group(work / "train.zarr", split.X, split.y)
    X, y, model = f"{work}/train.zarr/X", f"{work}/train.zarr/y", work / "model"
    start = make_settings({"task": "regression"} if dataset.regression else {})
    pool = partial(nullcontext, workers)
    begin = time.perf_counter()
    report = tune.tune(X, y, model, pool, start=start, extent=tree_search.SHORT)
    seconds = time.perf_counter() - begin
    value, cost, ns = quality(model, split, dataset.regression)
    foretold = report.chosen.get("accuracy", report.chosen.get("rmse"))
    scale = 1.0 if dataset.regression else 100.0
    found: Found = {
        "quality": value,
        "foretold": scale * (foretold or np.nan),
        "error": scale * (report.chosen["standard_error"] or np.nan),
        "cost": cost,
        "ns": ns,
        "seconds": seconds,
        "settings": report.settings,
    }
    if beside:
        chosen = make_settings(report.settings)
        found["beside"] = {
            name: [trained(replace(chosen, **{name: v}), X, y, work / "other", pool, split) for v in values]
            for name, values in ADDITIONS.items()
            if not (name == "loss" and dataset.regression)
        }
    return found


def trained(settings: Settings, X: str, y: str, model: Path, pool: Any, split: Split) -> Found:
    begin = time.perf_counter()
    train(X, y, model, settings, pool)
    seconds = time.perf_counter() - begin
    value, cost, _ = quality(model, split, settings.task == "regression")
    shutil.rmtree(model)
    return {"quality": value, "cost": cost, "seconds": seconds}


def study(dataset: DataSet, args: argparse.Namespace, workers: Workers, cache: Cache) -> Iterator[list[Any]]:
    """The results of each split: [ours, exact machine, LightGBM]."""
    # Large sets and those with a split of their own are searched once.
    for seed in range(args.splits if dataset.random_split else 1):
        split = dataset.load(data_folder(), seed)
        split = split.first(QUICK_ROWS) if args.quick else split
        work = args.work / dataset.name
        key = f"{args.tag}/{dataset.name}/{seed}/{len(split.y)}/{args.beside}"

        def ours(split: Split = split, work: Path = work) -> Found:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            found = searched(dataset, split, workers, work, args.beside)
            shutil.rmtree(work)
            return found

        found = cache.value(key, ours)
        say(f"{dataset.title}, split {seed}: {found}")
        rivals = []
        for make in () if args.no_rivals else (exact, trees):
            job = Job(split, dataset.regression, dataset.exact_rows, seed, args.workers, args.quick)
            name = f"{dataset.name}/{make.__name__}/{seed}/{len(split.y)}"
            rivals.append(cache.rival(name, partial(make, job)))
        yield [found, *rivals]


def show(studies: list[tuple[DataSet, list[list[Any]]]], beside: bool) -> None:
    table = Table(
        "data",
        "exact machine",
        "LightGBM",
        "without settings",
        "foretold",
        "predicted cost",
        "search + training, s",
    )
    additions = Table("data", "addition", "with: quality, cost, s", "without: quality, cost, s")
    for dataset, results in studies:
        own = [found for found, *_ in results]
        rivals = [
            _spread([r.quality for r in made if r]) for made in zip(*(r[1:] for r in results), strict=True)
        ]
        table.add(
            dataset.title,
            *(rivals or ["–", "–"]),
            _spread([f["quality"] for f in own]),
            ", ".join(f"{f['foretold']:.4g} ± {f['error']:.2g}" for f in own),
            " / ".join(f"{number(f['cost'])} ({f['ns']:.0f} ns)" for f in own),
            " / ".join(f"{f['seconds']:.0f}" for f in own),
        )
        for name in own[0].get("beside", {}):
            pairs = [f["beside"][name] for f in own]
            means = [
                [float(np.mean([pair[i][key] for pair in pairs])) for key in ("quality", "cost", "seconds")]
                for i in range(2)
            ]
            additions.add(dataset.title, name, *(f"{q:.4g}, {number(c)}, {s:.1f}" for q, c, s in means))
    table.show()
    if beside:
        print()
        additions.show()


def _spread(values: list[float]) -> str:
    """Their mean and standard deviation."""
    if not values:
        return "–"
    spread = f" ± {np.std(values):.2g} ({len(values)} splits)" if len(values) > 1 else ""
    return f"{np.mean(values):.4g}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", help="names with commas; all otherwise: " + ",".join(s.name for s in EVERY))
    parser.add_argument("--splits", type=int, default=3, help="of sets that have no split of their own")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("benchmark-without-settings"))
    parser.add_argument("--tag", default="", help="name of the version in the file of results")
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--beside", action="store_true", help="with and without each addition, too")
    parser.add_argument("--quick", action="store_true", help=f"magic, {QUICK_ROWS} rows, one split")
    args = parser.parse_args()
    if args.quick:
        args.splits, args.workers, args.beside = 1, 1, True
    wanted = (args.sets or (QUICK_SETS if args.quick else ",".join(s.name for s in EVERY))).split(",")
    known = {s.name: s for s in EVERY}
    if missing := [name for name in wanted if name not in known]:
        raise SystemExit(f"there is no set {missing[0]!r}; the sets are {', '.join(known)}")
    args.work.mkdir(parents=True, exist_ok=True)
    cache = Cache(args.work / ("quick.json" if args.quick else "without_settings.json"))
    with nullcontext(InlineWorkers()) if args.quick else connect(args.workers) as workers:
        studies = [(known[name], list(study(known[name], args, workers, cache))) for name in wanted]
    show(studies, args.beside)


if __name__ == "__main__":
    main()
