"""dcpred without settings on thirty tables and seventeen data sets, beside five baselines.

    python tests/benchmarks/all_tables.py [--sets vowel,magic,...] [--splits 3] [--entry fit|train]
                                          [--ours-only] [--baselines-only] [--tag NAME] [--again]
                                          [--earlier FILE.json] [--systems LightGBM,...] [--record]
                                          [--rows N] [--work DIR] [--quick]

Tables: 75 % of the rows train, drawn by the seed of the split, of every class its share. The seventeen sets
have the splits of without_settings.py. Quality is accuracy in percent or R² on the test rows. The baselines
are those of baselines.py: the defaults of scikit-learn's HistGradientBoosting, 100 trees of a random forest,
a tuned SVC or SVR, and LightGBM and CatBoost with early stopping.

Ours is `DCPredClassifier()` or `DCPredRegressor()`, fitted to rows in memory; --entry train is `dcpred train`
without --set. Seconds are those of the call by the clock, and in parentheses of all its processors; memory is
the peak of its process. *Foretold* is what the search states of its model. It holds where it differs from
the quality on the test rows by at most two standard errors: the stated one and that of the test rows,
combined. Regret is the quality of the best baseline minus ours, in points (R² times 100); the summary counts
negative regret as 0.

The halves are those of halves.py: the design of a search may use the first. --sets fresh are those of
fresh_tables.py. Seconds of baselines in all_tables.csv are of all processors.

WORK/ours-TAG.json keeps ours, and WORK/baselines.json the baselines by version, so that an interrupted run
goes on; --again measures ours anew. Baselines that WORK lacks are read from all_tables.csv; remove lines
there to measure them again. --record writes all known baselines to it. --earlier names another ours-TAG.json
to print beside ours, with the mean difference of the sets and its standard error. --rows trains with the
first rows of each split, where baselines of all rows do not count.
"""

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from baselines import BASELINES, MOST_ROUNDS, Problem, version
from common import Table, data_folder, write_group
from engine import number, say
from fresh_tables import FRESH
from halves import ALL, DEVELOPMENT, REPORTED, Named
from numpy.typing import NDArray
from rivals import Cache
from sets import Split
from threadpoolctl import threadpool_limits

from dcpred import DCPredClassifier, DCPredRegressor, load_model
from dcpred.serving.cost import predict_cost
from dcpred_tasks.artifacts.model_artifact import read_model

CSV = Path(__file__).with_suffix(".csv")
FIELDS = ("set", "kind", "split", "rows", "system", "quality", "seconds", "memory_mb", "version", "note")
KINDS = ("classes", "numbers")
SETS = ALL | FRESH
QUICK_SETS, QUICK_ROWS, QUICK_ROUNDS = "vehicle,547_no2", 200, 10
GRACE = 4.0  # a process is ended after so many times the seconds that boosting may take
WHOSE = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
Record = dict[str, Any]

# -- work in a process of its own ----------------------------------------------------------------------------


def isolated(seconds: float, work: Callable[..., Record], *arguments: Any) -> Record:
    """What work returns, with the peak memory of its process; {} where it fails or takes longer."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["sklearn.ensemble", "sklearn.svm", "dcpred.estimators"])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(there, work, arguments))
    process.start()
    there.close()
    try:
        return dict(here.recv()) if here.poll(seconds) else {}
    except EOFError:
        return {}
    finally:
        process.kill()
        process.join()


def _send(there: Connection, work: Callable[..., Record], arguments: tuple[Any, ...]) -> None:
    before = _processor_seconds()
    found = work(*arguments)
    peak = max(resource.getrusage(who).ru_maxrss for who in WHOSE)
    there.send(found | {"memory_mb": round(peak / 1000), "processor_seconds": _processor_seconds() - before})


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in WHOSE]
    return sum(one.ru_utime + one.ru_stime for one in used)


def loaded(name: str, seed: int, args: argparse.Namespace) -> Split:
    split = SETS[name].load(data_folder(), seed)
    split = split.first(QUICK_ROWS) if args.quick else split
    split = Split(split.X[: args.rows], split.y[: args.rows], split.X_test, split.y_test)
    return Split(np.ascontiguousarray(split.X), split.y, np.ascontiguousarray(split.X_test), split.y_test)


def quality(predicted: NDArray[Any], split: Split, regression: bool) -> float:
    """R², or accuracy in percent."""
    if regression:
        return float(1.0 - np.mean((predicted - split.y_test) ** 2) / np.var(split.y_test, dtype=np.float64))
    return 100 * float(np.mean(predicted == split.y_test))


def baseline(name: str, seed: int, system: str, args: argparse.Namespace) -> Record:
    split, regression = loaded(name, seed, args), SETS[name].regression
    X, X_test = (rows.astype(np.float32) for rows in (split.X, split.X_test))
    rounds = QUICK_ROUNDS if args.quick else MOST_ROUNDS
    problem = Problem(X, split.y, regression, seed, args.threads, args.seconds, rounds)
    begin = time.process_time()
    with threadpool_limits(args.threads):
        fitted = BASELINES[system][0](problem)
    seconds = time.process_time() - begin
    found = quality(np.ravel(fitted.predict(X_test)), split, regression)
    return {
        "set": name,
        "kind": KINDS[regression],
        "split": seed,
        "rows": len(split.y),
        "system": system,
        "quality": round(found, 5),
        "seconds": round(seconds, 2),
        "version": version(BASELINES[system][1]),
        "note": fitted.note,
    }


# -- ours ----------------------------------------------------------------------------------------------------


def fit(split: Split, regression: bool, folder: Path) -> tuple[Any, Any, Record]:
    """An estimator without settings: what predicts, its compact model, and what the search states of it."""
    estimator = (DCPredRegressor if regression else DCPredClassifier)(random_state=0).fit(split.X, split.y)
    return estimator, estimator.model_, stated(getattr(estimator, "tuned_", None))


def train(split: Split, regression: bool, folder: Path) -> tuple[Any, Any, Record]:
    """The same of `dcpred train` without settings."""
    data, model = write_group(folder / "data.zarr", split.X, split.y), folder / "model"
    task = "regression" if regression else "classification"
    subprocess.run(
        [sys.executable, "-m", "dcpred", "train", data, model, "--task", task],
        check=True,
        capture_output=True,
    )
    report = json.loads(Path(f"{model}.tuned.json").read_text(encoding="utf-8"))
    return load_model(model), read_model(model), stated(report.get("found"))


ENTRIES = {"fit": fit, "train": train}


def stated(report: Any) -> Record:
    """Foretold accuracy (a share) or RMSE, and its standard error, of a report of a search as a dictionary or
    an object; nothing where there is none.
    """
    chosen = report.get("chosen") if isinstance(report, dict) else getattr(report, "chosen", None)
    value = chosen and chosen.get("accuracy", chosen.get("rmse"))
    return {"foretold": value, "error": chosen["standard_error"]} if value is not None else {}


def ours(name: str, seed: int, args: argparse.Namespace) -> Record:
    split, regression = loaded(name, seed, args), SETS[name].regression
    with tempfile.TemporaryDirectory(prefix="all-tables-") as folder:
        begin = time.perf_counter()
        predictor, model, foretold = ENTRIES[args.entry](split, regression, Path(folder))
        seconds = time.perf_counter() - begin
        predicted = predictor.predict(split.X_test)
    if regression:
        squares = (predicted - split.y_test.astype(np.float64)) ** 2
        found = float(np.sqrt(squares.mean()))
        error = float(squares.std() / np.sqrt(len(squares)) / (2 * found))
    else:
        found = float(np.mean(predicted == split.y_test))
        error = float(np.sqrt(found * (1 - found) / len(predicted)))
    cost = predict_cost(model)
    return {
        "quality": quality(predicted, split, regression),
        "rows": len(split.y),
        "seconds": seconds,
        "cost": cost.cost_ratio,
        "ns": cost.ns_per_row,
        "found": found,
        "found_error": error,
        "variance": float(np.var(split.y_test, dtype=np.float64)) if regression else 0.0,
        "n_leaves": model.n_leaves,
        **foretold,
    }


def foretold_holds(one: Record) -> bool:
    return bool(abs(one["foretold"] - one["found"]) <= 2 * np.hypot(one["error"], one["found_error"]))


def shown_foretold(runs: list[Record], regression: bool) -> str:
    """Means over splits, as accuracy in percent or R²."""
    runs = [one for one in runs if "foretold" in one]
    if not runs:
        return "–"
    value, error = (np.array([one[key] for one in runs]) for key in ("foretold", "error"))
    if regression:
        variance = np.array([one["variance"] for one in runs])
        value, error = 1 - value**2 / variance, 2 * value * error / variance
    else:
        value, error = 100 * value, 100 * error
    digits = 4 if regression else 2
    marks = "" if all(map(foretold_holds, runs)) else " (missed)"
    return f"{value.mean():.{digits}f} ± {error.mean():.{digits}f}{marks}"


# -- results -------------------------------------------------------------------------------------------------


class Results:
    """Ours and the baselines, each measured once."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        prefix = "quick-" if args.quick else f"rows{args.rows}-" if args.rows else ""
        own = args.work / f"{prefix}ours{args.tag and '-' + args.tag}.json"
        if args.again:
            own.unlink(missing_ok=True)
        self.own, self.others = Cache(own), Cache(args.work / f"{prefix}baselines.json")
        self.recorded = {} if prefix else {_key(line): line for line in recorded()}

    def ours(self, name: str, seed: int) -> Record:
        key = f"{name}/{seed}"
        if self.args.baselines_only:
            return self.own.held.get(key, {})
        return self.own.value(key, partial(self._measured, key, ours, name, seed, self.args))

    def baseline(self, name: str, seed: int, system: str) -> Record:
        known = {_key(line): line for line in self.others.held.values() if line}
        key = (name, seed, system)
        release = version(BASELINES[system][1])
        cached = self.others.held.get("/".join((name, str(seed), system, release)), {})
        measures = release and not self.args.ours_only and system in self.args.systems
        found = cached or self.recorded.get(key) or ({} if measures else known.get(key, {}))
        if found or not measures:
            return found
        label = "/".join((name, str(seed), system, release))
        return self.others.value(
            label, partial(self._measured, label, baseline, name, seed, system, self.args)
        )

    def _measured(self, label: str, work: Callable[..., Record], *arguments: Any) -> Record:
        found = isolated(GRACE * self.args.seconds, work, *arguments)
        say(f"{label}: {found or 'failed, or took too long'}")
        return found

    def record(self) -> None:
        """Write all baselines that are known to the file of the project."""
        lines = self.recorded | {_key(line): line for line in self.others.held.values() if line}
        with CSV.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            order = {system: i for i, system in enumerate(BASELINES)}
            writer.writerows(lines[key] for key in sorted(lines, key=lambda k: (k[0], k[1], order[k[2]])))


def recorded() -> Iterator[Record]:
    if CSV.exists():
        with CSV.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                numbers = {name: float(line[name]) for name in ("quality", "seconds", "memory_mb")}
                yield line | numbers | {"split": int(line["split"]), "rows": int(line["rows"])}


def _key(line: Record) -> tuple[str, int, str]:
    return line["set"], line["split"], line["system"]


class Study:
    """The splits of a data set: ours where there is one, and the baselines."""

    def __init__(self, dataset: Named, results: Results, splits: int) -> None:
        self.dataset = dataset
        self.digits = 4 if dataset.regression else 2
        self.runs = [
            (
                results.ours(dataset.name, seed),
                {system: results.baseline(dataset.name, seed, system) for system in BASELINES},
            )
            for seed in range(splits if dataset.random_split else 1)
        ]
        self.own = [own for own, _ in self.runs if own]

    def mean(self, system: str, *, beside_ours: bool = True) -> float:
        """Mean quality of a baseline, over the splits that ours has; NaN where one is not known."""
        runs = [others[system] for own, others in self.runs if own or not beside_ours]
        known = [one["quality"] for one in runs if one]
        return float(np.mean(known)) if known and (len(known) == len(runs) or not beside_ours) else np.nan

    @property
    def quality(self) -> float:
        return float(np.mean([one["quality"] for one in self.own])) if self.own else np.nan

    def regret(self) -> float:
        """In points, below 0 where ours is best; NaN where ours or all baselines are not known."""
        means = [mean for system in BASELINES if np.isfinite(mean := self.mean(system))]
        points = 100 if self.dataset.regression else 1
        return points * (max(means) - self.quality) if means else np.nan

    def above(self, system: str) -> bool | None:
        mean = self.mean(system)
        return None if not np.isfinite(mean) or not self.own else self.quality > mean

    def cells(self, beside_ours: bool) -> list[str]:
        """The baselines, the best in bold."""
        means = [self.mean(system, beside_ours=beside_ours) for system in BASELINES]
        best = max((mean for mean in means if np.isfinite(mean)), default=np.nan)
        text = [f"{mean:.{self.digits}f}" if np.isfinite(mean) else "–" for mean in means]
        return [f"**{one}**" if mean == best else one for one, mean in zip(text, means, strict=True)]


# -- tables --------------------------------------------------------------------------------------------------


def show_ours(studies: list[Study], earlier: dict[str, Record]) -> None:
    columns = ["data", "half", "ours", "foretold", "cost", "seconds", "MB", *BASELINES, "regret"]
    table = Table(*columns, *(["ours earlier", "seconds earlier"] if earlier else []))
    for study in studies:
        if not study.own:
            continue
        name = study.dataset.name
        mean = {
            key: float(np.mean([one[key] for one in study.own]))
            for key in ("cost", "ns", "seconds", "processor_seconds")
        }
        before = [found for seed in range(len(study.runs)) if (found := earlier.get(f"{name}/{seed}"))]
        table.add(
            name,
            "development" if name in DEVELOPMENT else "fresh" if name in FRESH else "reported",
            f"{study.quality:.{study.digits}f}",
            shown_foretold(study.own, study.dataset.regression),
            f"{number(mean['cost'])} ({mean['ns']:.0f} ns)",
            f"{mean['seconds']:.1f} ({mean['processor_seconds']:.1f})",
            f"{max(one['memory_mb'] for one in study.own):.0f}",
            *study.cells(beside_ours=True),
            _finite(study.regret()),
            *([_average(before, "quality", study.digits), _average(before, "seconds", 1)] if earlier else []),
        )
    table.show()


def _average(runs: list[Record], key: str, digits: int) -> str:
    return f"{np.mean([one[key] for one in runs]):.{digits}f}" if runs else "–"


def show_difference(studies: list[Study], earlier: dict[str, Record]) -> None:
    """Ours less ours of an earlier version in points, and the ratios of costs and of seconds."""
    table = Table("kind", "sets", "difference", "worst", "cost ratio", "processor seconds ratio")
    for kind in KINDS:
        chosen = [s for s in studies if KINDS[s.dataset.regression] == kind]
        pairs = {
            s.dataset.name: [
                (own, earlier[key])
                for n, (own, _) in enumerate(s.runs)
                if own and (key := f"{s.dataset.name}/{n}") in earlier
            ]
            for s in chosen
        }
        pairs = {name: known for name, known in pairs.items() if known}
        if not pairs:
            continue
        points = 100 if kind == "numbers" else 1
        gains = {
            name: points * np.mean([a["quality"] - b["quality"] for a, b in known])
            for name, known in pairs.items()
        }
        error = np.std([*gains.values()], ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
        worst = min(gains, key=gains.__getitem__)
        ratios = [
            np.exp(np.mean([np.log(a[key] / b[key]) for known in pairs.values() for a, b in known]))
            for key in ("cost", "processor_seconds")
        ]
        mean = f"{np.mean([*gains.values()]):+.2f} ± {error:.2f}"
        table.add(
            kind, str(len(gains)), mean, f"{gains[worst]:+.2f} ({worst})", *(f"{r:.2f}" for r in ratios)
        )
    print()
    table.show()


def _finite(value: float) -> str:
    return f"{value:+.2f}" if np.isfinite(value) else "–"


def show_baselines(studies: list[Study]) -> None:
    table = Table("data", "training rows", "splits", *BASELINES)
    for study in studies:
        known = [one for _, others in study.runs for one in others.values() if one]
        if known:
            splits = len({one["split"] for one in known})
            cells = study.cells(beside_ours=False)
            table.add(study.dataset.name, f"{int(known[0]['rows']):,}", str(splits), *cells)
    table.show()


def show_summary(studies: list[Study]) -> None:
    """The halves, each with classes and numbers apart."""
    table = Table(
        "half",
        "kind",
        "sets",
        "mean regret",
        "worst regret",
        "above HistGradientBoosting",
        "above CatBoost",
        "mean cost",
        "foretold holds",
    )
    groups = {"development": DEVELOPMENT, "reported": REPORTED, "both": ALL, "fresh": FRESH}
    for half, names in groups.items():
        for kind in KINDS:
            chosen = [
                study
                for study in studies
                if study.own and study.dataset.name in names and KINDS[study.dataset.regression] == kind
            ]
            if chosen:
                table.add(half, kind, *_summary(chosen))
    print()
    table.show()


def _summary(studies: list[Study]) -> list[str]:
    regrets = [(max(regret, 0.0), s.dataset.name) for s in studies if np.isfinite(regret := s.regret())]
    shares = []
    for system in ("HistGradientBoosting", "CatBoost"):
        known = [above for study in studies if (above := study.above(system)) is not None]
        shares.append(f"{sum(known)} of {len(known)}" if known else "–")
    stating = [
        all(map(foretold_holds, study.own)) for study in studies if all("foretold" in o for o in study.own)
    ]
    worst = max(regrets, default=None)
    return [
        str(len(studies)),
        f"{np.mean([regret for regret, _ in regrets]):.2f}" if regrets else "–",
        f"{worst[0]:.2f} ({worst[1]})" if worst else "–",
        *shares,
        f"{np.mean([one['cost'] for study in studies for one in study.own]):.1f}",
        f"{sum(stating)} of {len(stating)}" if stating else "–",
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sets",
        help="fresh, development, reported, or names with commas; by default those of halves.py: "
        + ",".join(SETS),
    )
    parser.add_argument("--splits", type=int, default=3, help="of sets that have no split of their own")
    parser.add_argument("--entry", choices=ENTRIES, default="fit", help="how ours is called")
    parser.add_argument("--ours-only", action="store_true", help="measure no baselines")
    parser.add_argument("--systems", default=",".join(BASELINES), help="baselines to measure, with commas")
    parser.add_argument("--baselines-only", "--rivals-only", action="store_true", help="do not measure ours")
    parser.add_argument("--tag", default="", help="name of our version in the file of results")
    parser.add_argument("--again", action="store_true", help="measure ours again")
    parser.add_argument("--earlier", type=Path, help="an ours-TAG.json to print beside ours")
    parser.add_argument("--record", action="store_true", help=f"write the baselines to {CSV.name}")
    parser.add_argument("--threads", type=int, default=2, help="of baselines")
    parser.add_argument(
        "--seconds", type=float, default=600, help="of processor time, after which boosting stops"
    )
    parser.add_argument("--rows", type=int, help="most rows to train with; None: all")
    parser.add_argument("--work", type=Path, default=Path("benchmark-all-tables"))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SETS}, {QUICK_ROWS} rows, one split")
    args = parser.parse_args()
    if args.quick:
        args.splits, args.threads, args.record = 1, 1, False
        args.sets = args.sets or QUICK_SETS
    groups = {"fresh": FRESH, "development": DEVELOPMENT, "reported": REPORTED, None: ALL}
    args.sets = [*groups[args.sets]] if args.sets in groups else args.sets.split(",")
    args.systems = args.systems.split(",")
    if missing := [name for name in args.sets if name not in SETS]:
        raise SystemExit(f"There is no data set {missing[0]!r}. The sets are {', '.join(SETS)}.")
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def main() -> None:
    args = parsed()
    results, studies = Results(args), []
    for name in args.sets:
        studies.append(Study(SETS[name], results, args.splits))
        if args.record:
            results.record()
    if args.baselines_only:
        show_baselines(studies)
        return
    earlier = json.loads(args.earlier.read_text(encoding="utf-8")) if args.earlier else {}
    show_ours(studies, earlier)
    if earlier:
        show_difference(studies, earlier)
    show_summary(studies)


if __name__ == "__main__":
    main()
