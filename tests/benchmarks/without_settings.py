"""dcpred without any setting on seventeen data sets, beside the best exact machine of its grid and LightGBM.

    python tests/benchmarks/without_settings.py [--sets letter,magic,...] [--splits 3] [--workers 2]
                                                [--work DIR] [--no-rivals] [--beside] [--quick]

The search is that of `dcpred train` without `--set`, and what is judged is the model that it trains: quality
on the test rows, the quality that it foretold with its error, the predicted cost. `--beside` trains with the
settings that were found once more, with and without each addition to the paper's method that a search may
choose, at the same number of leaves and landmarks. All results, ours by version, are kept in
WORK/without_settings.json, so that a run that was cut off goes on, and one without `--beside`, too.
"""

import argparse
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import Table, data_folder, write_group
from engine import number, say
from more_sets import EVERY
from rivals import Cache, Job, boosted, exact
from sets import DataSet, Split

from dcpred.execution.pools import connect
from dcpred.execution.workers import InlineWorkers, Workers
from dcpred.serving.cost import predict_cost
from dcpred.training.train import train
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.scoring import scorer
from dcpred_tasks.training.losses import DISTANCE
from dcpred_tasks.training.settings import OF_DISTANCE

QUICK_ROWS, QUICK_SETS = 400, "magic"
Found = dict[str, Any]
# Each addition, and settings without it, which are the paper's.
ADDITIONS: tuple[tuple[str, Found, Found], ...] = (
    ("clipping", {"feature_map": "clip"}, {"feature_map": "none"}),
    ("quantiles", {"feature_map": "quantile"}, {"feature_map": "none"}),
    ("factors of leaves", {"leaf_scaling": True}, {"leaf_scaling": False}),
    ("logistic loss", {"loss": "logistic"}, {"loss": "hinge"}),
    ("near the machines", {**OF_DISTANCE, "loss": DISTANCE, "compact_gamma": 0.0}, {"loss": "hinge"}),
)
OF_CLASSES = ("logistic loss", "near the machines")


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


@dataclass(frozen=True)
class Task:
    """One split of a set, and where to work at it."""

    dataset: DataSet
    split: Split
    workers: Workers
    work: Path

    @contextmanager
    def rows(self) -> Iterator[Path]:
        """The data set to train on, in a new folder that is removed in the end."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        write_group(self.work / "train.zarr", self.split.X, self.split.y)
        yield self.work / "train.zarr"
        shutil.rmtree(self.work)

    def searched(self) -> Found:
        """What a search without settings comes to."""
        regression, model = self.dataset.regression, self.work / "model"
        with self.rows() as data:
            begin = time.perf_counter()
            pool = partial(nullcontext, self.workers)
            report = train(data, model, task="regression" if regression else None, client=pool)
            seconds = time.perf_counter() - begin
            value, cost, ns = quality(model, self.split, regression)
        foretold = report.chosen.get("accuracy", report.chosen.get("rmse"))
        scale = 1.0 if regression else 100.0
        return {
            "quality": value,
            "foretold": scale * (foretold or np.nan),
            "error": scale * (report.chosen["standard_error"] or np.nan),
            "cost": cost,
            "ns": ns,
            "seconds": seconds,
            "settings": report.settings,
        }

    def beside(self, found: Found, changes: dict[str, Any]) -> Found:
        """What settings that a search has found come to with others in their place."""
        # Those near the machines have settings that other additions cannot have.
        hinge = {"loss": "hinge"} if found["settings"].get("loss") == DISTANCE else {}
        settings, model = found["settings"] | hinge | changes, self.work / "model"
        with self.rows() as data:
            begin = time.perf_counter()
            train(data, model, settings=settings, client=partial(nullcontext, self.workers))
            seconds = time.perf_counter() - begin
            value, cost, _ = quality(model, self.split, self.dataset.regression)
        return {"quality": value, "cost": cost, "seconds": seconds}


def study(dataset: DataSet, args: argparse.Namespace, workers: Workers, cache: Cache) -> Iterator[list[Any]]:
    """The results of each split: [ours, exact machine, LightGBM]."""
    # Large sets and those with a split of their own are searched once.
    for seed in range(args.splits if dataset.random_split else 1):
        split = dataset.load(data_folder(), seed)
        split = split.first(QUICK_ROWS) if args.quick else split
        task = Task(dataset, split, workers, args.work / dataset.name)
        key = f"{dataset.name}/{{}}/{seed}/{len(split.y)}"
        found = dict(cache.value(key.format(f"ours{args.tag}"), task.searched))
        say(f"{dataset.title}, split {seed}: {found}")
        if args.beside:
            found["beside"] = {
                name: [
                    cache.value(key.format(f"{name}{args.tag}/{i}"), partial(task.beside, found, changes))
                    for i, changes in enumerate(pair)
                ]
                for name, *pair in ADDITIONS
                if not (dataset.regression and name in OF_CLASSES)
            }
        rivals = []
        for make in () if args.no_rivals else (exact, boosted):
            job = Job(split, dataset.regression, dataset.exact_rows, seed, args.workers, args.quick)
            rivals.append(cache.rival(key.format(make.__name__), partial(make, job)))
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
