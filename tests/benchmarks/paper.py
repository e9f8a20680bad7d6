"""The paper's table 1 and the points of its figure 3 (Hsieh et al. 2014), ours beside what it prints, and
rivals beside both.

    python tests/benchmarks/paper.py [--sets letter,covtype,...] [--seeds 3] [--workers 2] [--work DIR]
    [--quick]
                                     [--no-rivals] [--no-curves] [--tuned | --default]

Every figure of ours comes from `train` on Zarr by Dask workers and from `evaluate`: accuracy or RMSE on the
test rows, and the cost in linear predictions. The training time is that of `train`, everything but the start
of the worker processes. The judged point of each set runs once for every seed (a seed moves everything, and
the split where it is random); the other points of the curves run with the first seed. Rivals are trained once
for every random split, once for a fixed one, and kept in WORK/rivals.json with how they were chosen; so is
the best scaling that is not learned. `--tuned` lets `dcpred tune` choose, `--default` trains without
settings. Plots are written to WORK where matplotlib is installed (`pip install ".[benchmarks]"`).
"""

import argparse
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from common import BRIEF, LONG, Table, data_folder, write_group
from engine import number, optional, say
from machines import scaled
from rivals import Cache, Job, Rival, boosted, exact, fourier, linear, nystroem
from sets import SETS, DataSet, Split, Values
from sklearn.neighbors import NearestNeighbors

from dcpred.evaluation import evaluate as evaluation
from dcpred.execution.pools import connect
from dcpred.execution.workers import InlineWorkers, Workers
from dcpred.serving.cost import measure_cost, predict_cost
from dcpred.training.train import train
from dcpred.training.tune import tune
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.scoring import scorer
from dcpred_tasks.training.learned_scaling import KERNEL_REACH, NEIGHBOURS
from dcpred_tasks.training.settings import Settings, in_effect

OURS, NO_METRIC, NO_REFINEMENT, NO_OVERLAP = (
    "ours",
    "without learned scaling",
    "without refinement",
    "without overlap",
)
# The paper's compact model, pseudo-landmarks and all.
NYSTROM_HEAD: Values = {
    "refine": False,
    "refine_epochs": 0,
    "distill_weight": 0.0,
    "loss": "hinge",
    "products": 64,
}
SCALINGS, FACTORS = ("none", "standard", "minmax"), (0.5, 1.0, 2.0)
TRIED_ROWS, HELD_ROWS = 20_000, 5_000
SAMPLE_ROWS, ANCHORS = 100_000, 500
QUICK_ROWS, QUICK_SETS = 500, "letter,cpusmall"
QUICK: Values = {"n_leaves": 4, "refine_steps": 10, "overlap": 2}
Choose = Callable[[DataSet, "Place"], dict[str, object]]


@dataclass(frozen=True)
class Result:
    """One model: accuracy in percent or RMSE; costs in linear predictions; seconds of training."""

    quality: float
    cost: float
    predicted: float
    seconds: float
    leaves: int


@dataclass
class Findings:
    """Everything about one data set: results of each seed by (curve, point), rivals by name."""

    dataset: DataSet
    results: dict[tuple[str, str], list[Result]] = field(default_factory=dict)
    rivals: dict[str, list[Rival]] = field(default_factory=dict)
    key: tuple[str, str] = (OURS, "")

    def mean(self, attribute: str) -> float:
        return float(np.mean([getattr(result, attribute) for result in self.results[self.key]]))

    def rival(self, name: str) -> float | None:
        return float(np.mean([one.quality for one in self.rivals[name]])) if name in self.rivals else None


@dataclass(frozen=True)
class Place:
    """Where one split lies and who trains on it."""

    work: Path
    workers: Workers
    split: Split
    seed: int
    quick: bool

    def write(self) -> None:
        write_group(self.work / "train.zarr", self.split.X, self.split.y)
        write_group(self.work / "test.zarr", self.split.X_test, self.split.y_test)

    def train(self, settings: Values, data: str = "train.zarr") -> tuple[Path, float, int]:
        """(model, seconds, leaves)."""
        model, group = self.work / "model", self.work / data
        shutil.rmtree(model, ignore_errors=True)
        given = {**settings, "seed": self.seed}
        chosen = in_effect(given, str(given.get("task", Settings.task)))
        begin = time.perf_counter()
        report = train(group, model, settings=chosen, client=lambda: nullcontext(self.workers))
        return model, time.perf_counter() - begin, report.n_leaves

    def run(self, settings: Values) -> Result:
        model, seconds, leaves = self.train(settings)
        found = evaluation.evaluate(model, f"{self.work}/test.zarr")
        quality = 100 * found["accuracy"] if "accuracy" in found else found["rmse"]
        result = Result(
            quality, found["cost_ratio"], predict_cost(read_model(model)).cost_ratio, seconds, leaves
        )
        say(
            f"    {quality:.4g} at {result.cost:.1f} (predicted {result.predicted:.1f}), {seconds:.1f} s,"
            f" {leaves:,} leaves"
        )
        return result


# -- the settings of ours ------------------------------------------------------------------------------------


def tuned(dataset: DataSet, place: Place) -> dict[str, object]:
    """What `dcpred tune` chooses from the training rows."""
    return _searched(dataset, place, f"{dataset.target.cost:g}x", place.quick)


def default(dataset: DataSet, place: Place) -> dict[str, object]:
    """What `dcpred train` without settings chooses."""
    return _searched(dataset, place, None, True)


def _searched(dataset: DataSet, place: Place, budget: str | None, short: bool) -> dict[str, object]:
    group, model = place.work / "train.zarr", place.work / "tuned"
    task = "regression" if dataset.regression else "classification"
    pool = partial(nullcontext, place.workers)
    shutil.rmtree(model, ignore_errors=True)
    model.with_name("tuned.tuned.json").unlink(missing_ok=True)
    found = tune(group, model, budget=budget, task=task, short=short, client=pool)
    trained = found.seconds.pop("train")
    say(
        f"  searched in {sum(found.seconds.values()):.0f} s, trained in {trained:.0f} s; expected"
        f" {found.chosen}: {found.settings}"
    )
    return dict(found.settings)


def curves(dataset: DataSet, place: Place, cache: Cache) -> Iterator[tuple[str, str, dict[str, object]]]:
    """(curve, point, settings)."""
    points = list(dataset.points)
    for point in points:
        yield OURS, point, dataset.settings(point)
    base = dataset.settings(dataset.point)
    key = f"{dataset.name}/scaling/{place.seed}/{len(place.split.y)}/{sorted(base.items())}"
    other = cache.value(key, lambda: best_unlearned(dataset, place))
    for point in points:
        settings = dataset.settings(point)
        yield f"{NO_METRIC} ({other['scaling']})", point, settings | rescaled(settings, other)
    for point in points:
        yield NO_REFINEMENT, point, {**dataset.settings(point), **NYSTROM_HEAD}
    for point in points if int(str(base.get("overlap", 1))) > 1 else ():
        yield NO_OVERLAP, point, {**dataset.settings(point), "overlap": 1}


def rescaled(settings: Values, other: Values) -> dict[str, object]:
    """A scaling that is not learned, and γ in its units."""
    gamma, unit = settings.get("gamma", 1.0), float(str(other["unit"]))
    widths = {"gamma": gamma, "compact_gamma": settings.get("compact_gamma", gamma)}
    return {"scaling": other["scaling"], **{name: float(str(value)) * unit for name, value in widths.items()}}


def best_unlearned(dataset: DataSet, place: Place) -> dict[str, Any]:
    """The best scaling that is not learned and its width, on a validation part of at most 20,000 training
    rows and 5,000 others; the tree has as many rows to a leaf as on all. `unit` is the γ that stands for 1 of
    the learned scaling.
    """
    order = np.random.default_rng(place.seed).permutation(len(place.split.y))
    held, fit = np.split(order, [min(HELD_ROWS, len(order) // 5)])
    fit = fit[: QUICK_ROWS // 3 if place.quick else TRIED_ROWS]
    X, y = np.asarray(place.split.X, np.float32), place.split.y
    write_group(place.work / "tried.zarr", X[fit], y[fit])
    settings = dataset.settings(dataset.point)
    leaves = int(str(settings["n_leaves"])) * len(fit) / len(order)
    scored = []
    for scaling, factor in product(SCALINGS, FACTORS[1:2] if place.quick else FACTORS):
        unit = factor * reach_gamma(X[fit], scaling, dataset.regression)
        tried = {
            **settings,
            **rescaled(settings, {"scaling": scaling, "unit": unit}),
            "n_leaves": max(int(leaves), 1),
        }
        model = read_model(place.train(tried, "tried.zarr")[0])
        decision = scorer.score_rows(model, X[held])[0]
        if dataset.regression:
            score = -float(np.mean((decision[:, 0] - y[held]) ** 2))
        else:
            score = float(np.mean(np.array(model.classes)[class_numbers(decision)] == y[held]))
        say(f"    tried {scaling}, γ × {factor:g}: {score:.4g}")
        scored.append((score, scaling, factor))
    _, scaling, factor = max(scored)
    return {"scaling": scaling, "unit": factor * reach_gamma(X[order], scaling, dataset.regression)}


def reach_gamma(X: np.ndarray[Any, Any], scaling: str, regression: bool) -> float:
    """γ that does for a scaling what is part of a learned one: see KERNEL_REACH."""
    rows = np.unique(X[:SAMPLE_ROWS] if scaling == "none" else scaled(scaling, X)(X[:SAMPLE_ROWS]), axis=0)
    anchors = rows[np.random.default_rng(0).choice(len(rows), min(ANCHORS, len(rows)), replace=False)]
    k = min(NEIGHBOURS, len(rows) // 4) + 1  # a row is its own first neighbour
    distance = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(rows).kneighbors(anchors)[0][:, -1]
    return float(KERNEL_REACH["regression" if regression else "classification"] / np.median(distance) ** 2)


# -- running -------------------------------------------------------------------------------------------------


@contextmanager
def measuring_workers(n_workers: int, quick: bool) -> Iterator[Workers]:
    """Workers to train on, while `evaluate` measures costs for as long as a figure needs. The quick form
    streams over less: from cache a linear prediction takes a fifth of the time, and costs look high. It
    trains in this process.
    """
    how = BRIEF if quick else LONG
    with (
        mock.patch.object(evaluation, "measure_cost", partial(measure_cost, **how)),
        nullcontext(InlineWorkers()) if quick else connect(n_workers) as workers,
    ):
        yield workers


def study(
    dataset: DataSet, args: argparse.Namespace, workers: Workers, cache: Cache, choose: Choose | None
) -> Findings:
    found = Findings(dataset, key=(OURS, dataset.point if choose is None else choose.__name__))
    work, chosen = args.work / dataset.name, dict[str, object]()
    for seed in range(args.seeds):
        split = dataset.load(data_folder(), seed)
        place = Place(work, workers, split.first(QUICK_ROWS) if args.quick else split, seed, args.quick)
        say(f"{dataset.title}, seed {seed}: {len(place.split.y):,} rows")
        place.write()
        if choose is not None:
            chosen = choose(dataset, place) if dataset.random_split or not seed else chosen
            wanted: Any = [(*found.key, chosen)]
        elif seed or args.no_curves or (args.quick and dataset.regression):
            wanted = [(*found.key, dataset.settings(dataset.point))]
        else:
            wanted = curves(dataset, place, cache)
        for curve, point, settings in wanted:
            say(f"  {curve}, {point}")
            found.results.setdefault((curve, point), []).append(place.run(settings))
        shutil.rmtree(work)
    if not args.no_rivals:
        add_rivals(found, args, cache)
    return found


def quick(dataset: DataSet) -> DataSet:
    """One small point."""
    return replace(dataset, points={"quick": {**dataset.points[dataset.point], **QUICK}}, point="quick")


def add_rivals(found: Findings, args: argparse.Namespace, cache: Cache) -> None:
    dataset = found.dataset
    cost = int(np.ceil(found.mean("cost")))  # a whole number: noise in it would find nothing in the cache
    for seed in range(args.seeds if dataset.regression else 1):
        split = dataset.load(data_folder(), seed)
        split = split.first(QUICK_ROWS) if args.quick else split
        job = Job(split, dataset.regression, dataset.exact_rows, seed, args.workers, args.quick)
        jobs: list[tuple[str, Callable[[], Rival | None]]] = [
            (f.__name__, partial(f, job)) for f in (linear, exact, boosted)
        ]
        if dataset.regression:
            jobs += [(f"{f.__name__} {cost}", partial(f, job, cost)) for f in (fourier, nystroem)]
        for name, make in jobs:
            rival = cache.rival(f"{dataset.name}/{name}/{seed}/{len(split.y)}", make)
            if rival is not None:
                found.rivals.setdefault(rival.name, []).append(rival)


# -- results -------------------------------------------------------------------------------------------------


def judge(found: Findings) -> list[tuple[str, str]]:
    """(what is aimed at, "met" or what it misses)."""
    goal, regression = found.dataset.target, found.dataset.regression

    def verdict(
        wanted: float | None, cost: float, seconds: float | None = None, strictly: bool = False
    ) -> str:
        if wanted is None:
            return "not judged"
        quality = found.mean("quality")
        good = quality < wanted if strictly else quality <= wanted if regression else quality >= wanted
        over = {"RMSE" if regression else "accuracy": not good, "cost": found.mean("cost") > cost}
        over["time"] = seconds is not None and found.mean("seconds") > seconds
        return (
            "missed: " + ", ".join(name for name, one in over.items() if one) if any(over.values()) else "met"
        )

    verdicts = []
    if goal.quality is not None:
        wanted = f"RMSE ≤ {goal.quality:g}" if regression else f"≥ {goal.quality:g} %"
        in_time = f", ≤ {goal.seconds:g} s" if goal.seconds else ""
        verdicts.append(
            (f"{wanted} at ≤ {goal.cost:g}{in_time}", verdict(goal.quality, goal.cost, goal.seconds))
        )
    if goal.stretch:
        more, less = goal.stretch
        verdicts.append((f"stretch ≥ {more:g} % at ≤ {less:g}", verdict(more, less)))
    if goal.beats_rivals:
        for name, sign in (
            ("exact kernel ridge", "≤"),
            ("random Fourier features", "<"),
            ("k-means Nyström", "<"),
        ):
            other = found.rival(name)
            shown = "" if other is None else f" ({other:.4g})"
            verdicts.append(
                (
                    f"RMSE {sign} {name}{shown} at ≤ {goal.cost:g}",
                    verdict(other, goal.cost, strictly=sign == "<"),
                )
            )
    return verdicts


def spread(values: list[float], regression: bool) -> str:
    digits = 4 if regression else 2
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values):.{digits}f}" if len(values) > 1 else mean


def cells(found: Findings, key: tuple[str, str]) -> list[str]:
    """Quality, cost, predicted cost, seconds."""
    results = found.results[key]
    quality = spread([r.quality for r in results], found.dataset.regression)
    cost, predicted = (np.mean([getattr(r, name) for r in results]) for name in ("cost", "predicted"))
    return [
        quality,
        number(float(cost)),
        number(float(predicted)),
        f"{np.mean([r.seconds for r in results]):.1f}",
    ]


def show(studies: list[Findings]) -> None:
    ours = ("accuracy, % / RMSE", "cost", "cost, predicted", "training, s")
    printed = ("paper: accuracy, %", "cost", "training, s")
    first = Table("data", *(f"ours: {column}" for column in ours), *printed, "target", "met")
    points = Table("data", "curve", "point", "leaves", *ours)
    beside = Table("data", "rival", "accuracy, % / RMSE", "cost", "training, s", "chosen on validation rows")
    table_1 = Table("table 1 (page 7), as printed", "method", "accuracy, %", "cost", "training, s")
    for found in studies:
        dataset, regression = found.dataset, found.dataset.regression
        theirs = [
            f"{value:,g}" for p in dataset.printed[:1] for value in (p.accuracy, p.cost, p.seconds)
        ] or ["–"] * 3
        aims = ("; ".join(words) for words in zip(*judge(found), strict=True))
        first.add(dataset.title, *cells(found, found.key), *theirs, *aims)
        for curve, point in found.results:
            leaves = np.mean([r.leaves for r in found.results[curve, point]])
            points.add(dataset.title, curve, point, f"{leaves:,.0f}", *cells(found, (curve, point)))
        for name, several in found.rivals.items():
            cost, seconds = (float(np.mean([getattr(r, a) for r in several])) for a in ("cost", "seconds"))
            quality = spread([r.quality for r in several], regression)
            beside.add(dataset.title, name, quality, number(cost), f"{seconds:.1f}", several[0].note)
        for p in dataset.printed:
            table_1.add(dataset.title, p.name, f"{p.accuracy:g}", f"{p.cost:g}", f"{p.seconds:,g}")
    for table in (first, points, beside, table_1):
        if len(table.lines) > 2:
            table.show()
            print()


def plot(path: Path, found: Findings) -> None:
    """Quality against cost: our curves, points of the rivals and of the paper."""
    dataset = found.dataset
    figure = import_module("matplotlib.figure").Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(curve for curve, _ in found.results))
    for name in names:
        several = [results for (curve, _), results in found.results.items() if curve == name]
        at = sorted(
            (float(np.mean([r.cost for r in own])), float(np.mean([r.quality for r in own])))
            for own in several
        )
        axes.plot(
            *zip(*at, strict=True),
            "o-" if name == OURS else "o--",
            lw=2.5 if name == OURS else 1.2,
            label=name,
        )
    for place, (name, own) in enumerate(found.rivals.items()):
        quality, cost = float(np.mean([r.quality for r in own])), float(np.mean([r.cost for r in own]))
        axes.plot(cost, quality, "s", color=f"C{4 + place}", label=name)
        if name.startswith(("exact", "LightGBM", "linear")):
            axes.axhline(quality, color=f"C{4 + place}", lw=0.8, alpha=0.6)
    for p in dataset.printed:
        axes.plot(p.cost, p.accuracy, "*" if p.name == "DC-Pred++" else "x", color="black", ms=9)
        axes.annotate(p.name, (p.cost, p.accuracy), xytext=(5, -10), textcoords="offset points", fontsize=8)
    axes.set(
        xscale="log",
        xlabel="linear predictions",
        ylabel="test RMSE" if dataset.regression else "test accuracy, %",
    )
    axes.set_title(f"{dataset.title}" + (" (black: as the paper prints it)" if dataset.printed else ""))
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)
    say(f"plot: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", help="names with commas; all otherwise: " + ",".join(s.name for s in SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("benchmark-paper"))
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--no-curves", action="store_true", help="only the judged points")
    parser.add_argument(
        "--quick", action="store_true", help=f"letter and cpusmall, {QUICK_ROWS} rows, one seed"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--tuned", action="store_const", const=tuned, dest="choose", help="settings by `dcpred tune`"
    )
    way.add_argument("--default", action="store_const", const=default, dest="choose", help="no settings")
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.workers = 1, 1
    wanted = (args.sets or (QUICK_SETS if args.quick else ",".join(s.name for s in SETS))).split(",")
    known = {s.name: s for s in SETS}
    if missing := [name for name in wanted if name not in known]:
        raise SystemExit(f"there is no set {missing[0]!r}; the sets are {', '.join(known)}")
    args.work.mkdir(parents=True, exist_ok=True)
    cache = Cache(args.work / ("quick.json" if args.quick else "rivals.json"))
    with measuring_workers(args.workers, args.quick) as workers:
        studies = [
            study(quick(known[name]) if args.quick else known[name], args, workers, cache, args.choose)
            for name in wanted
        ]
    show(studies)
    if optional("matplotlib") is not None:
        for found in studies[: 1 if args.quick else None]:
            plot(args.work / f"{found.dataset.name}.png", found)


if __name__ == "__main__":
    main()
