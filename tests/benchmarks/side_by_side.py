"""Systems side by side on many data sets: which of them no cheaper one beats, and Table 1 of the paper beside
what is measured.

    python tests/benchmarks/side_by_side.py [--paper] [--sets letter,magic,...] [--rows 2000]
                                            [--test-rows 2000] [--time-limit 60] [--work DIR] [--quick]
                                            [--picture letter]

Each set is compared as by `dcpred compare`, in WORK/SET: what was cut off goes on, and `dcpred report` makes
a page of it. Points are tried in forks of this process, which saves their imports. Without `--paper` the
systems are those that may cost at most 100 linear predictions, of such sizes, and the exact machine; with it
those of Table 1, and XGBoost, of all sizes. `--picture` records the points of one of the sets in
side_by_side.csv, beside this file, and draws side_by_side.svg from it; with `--quick` both are written to the
current folder.
"""

import argparse
import datetime
import io
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from common import Table, data_folder, write_group
from engine import number, say
from more_sets import EVERY
from picture import HERE, Measured, read, write
from sets import DataSet, Printed

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred.pages.charts import PAPER, drawing
from dcpred_compare import comparison, trial
from dcpred_compare.comparison import CompareRequest
from dcpred_compare.files import KERNELS, POINTS, REQUEST
from dcpred_compare.page import PLOT, frontier, score_paint, unbeaten
from dcpred_compare.result import CompareReport, CompareResult
from dcpred_compare.systems import EXACT, OURS, PACKAGED, Point, chosen_systems, points_of
from dcpred_tasks.process import cpu_name
from dcpred_tasks.storage.atomic_files import replace_bytes
from support.pools import inline

KNOWN = {dataset.name: dataset for dataset in EVERY}
BUDGETS = (20.0, 100.0)
COST_SECONDS = 0.1  # about what the timings of a point take
ALWAYS_DEAR = (
    "lmkl",
    "ball_tree",
    "support_tree",
    "sklearnex_svc",
)  # as many kernel values as exact machines
DEAR_TREES = ("lightgbm", "hist_gradient_boosting", "random_forest")  # 20 trees cost 100 and more
# The most that a system of size may count, by the least number of features.
SIZES = ((200, 1_024), (50, 256), (0, 64))
PAPER_SETS = "letter,covtype,usps,a9a,kdd"
# The columns of Table 1 by our names; XGBoost has none.
PRINTED = {
    "dcpred": "DC-Pred++",
    "ldkl": "LDKL",
    "kmeans_nystrom": "k-means Nyström",
    "aesvm": "AESVM",
    "reduced_set": "STPRtool",
    "fastfood": "Fastfood",
    "xgboost": "",
}
CSV, SVG = "side_by_side.csv", "side_by_side.svg"
QUICK_SYSTEMS = "dcpred,kmeans_nystrom,ldkl,exact"


def may_be_cheap(point: Point, n_features: int) -> bool:
    """Whether it may cost 100 linear predictions or less."""
    if point.system in (OURS, EXACT):
        return True
    if point.system == "dc_svm":
        return int(point.settings["n_leaves"]) > 4
    if point.system in PACKAGED:
        return point.size <= (20 if point.system in DEAR_TREES else 100)
    if point.system == "ldkl":
        return True
    return int(point.settings.get("size", 0)) <= next(most for least, most in SIZES if n_features >= least)


def tried_in_forks(folder: str, module: str, points: Sequence[str], limit: float, stop: str) -> list[str]:
    """As dcpred_compare.processes, without errors of kernel functions."""
    spent = 0.0
    for point in points:
        file = Path(folder) / POINTS / f"{point}.json"
        if point == KERNELS and not file.exists():
            replace_bytes(file, json.dumps({"status": "done", "errors": []}).encode())
        if not file.exists():
            told: dict[str, object] = {"status": "time limit", "limit_seconds": limit}
            child = multiprocessing.get_context("fork").Process(
                target=trial.main, args=(Path(folder), point, limit - spent)
            )
            if spent < limit:
                child.start()
                child.join()
                if (child.exitcode or 0) > 0:
                    told = {"status": "failed", "why": f"it ended with {child.exitcode}"}
            if not file.exists():
                replace_bytes(file, json.dumps(told).encode())
        found = json.loads(file.read_text())
        spent += limit if found["status"] == "time limit" else found.get("seconds") or 0.0
    return list(points)


def compared(dataset: DataSet, args: argparse.Namespace) -> CompareReport:
    """What came of one set."""
    folder = args.work / dataset.name
    addresses = []
    for part, n in (("train", args.rows), ("test", args.test_rows)):
        group = args.work / f"{dataset.name}-{part}.zarr"
        addresses.append((f"{group}/X", f"{group}/y"))
        if not (folder / REQUEST).exists():
            split = dataset.load(data_folder(), 0)
            X, y = (split.X, split.y) if part == "train" else (split.X_test, split.y_test)
            rows = np.sort(np.random.default_rng(0).permutation(len(y))[:n])
            write_group(group, X[rows], y[rows])
    task = "regression" if dataset.regression else "classification"
    request = CompareRequest(addresses[0], addresses[1], task, args.rows, args.test_rows, 0)
    n_features = json.loads((args.work / f"{dataset.name}-train.zarr/X/zarr.json").read_text())["shape"][1]
    systems = [s for s in chosen_systems(None, task) if args.paper or s not in ALWAYS_DEAR]
    if args.paper:
        systems = [s for s in PRINTED if s in systems]
    if args.quick:
        systems = QUICK_SYSTEMS.split(",")

    def points(system: str, budgets: Sequence[str], task: str, metric: str | None) -> list[Point]:
        every = points_of(system, budgets, task, metric)
        its = [p for p in every if args.paper or may_be_cheap(p, n_features)]
        return its[:1] if args.quick else its

    with (
        mock.patch.object(comparison, "points_of", points),
        mock.patch.object(comparison, "run_points", tried_in_forks),
        mock.patch.object(trial, "COST_SECONDS", COST_SECONDS),
    ):
        return comparison.run_comparison(
            request,
            folder,
            inline,
            systems=",".join(systems),
            budgets=(),
            limit_seconds=args.time_limit,
        )


# -- tables --------------------------------------------------------------------------------------------------


def best(report: CompareReport, points: list[CompareResult]) -> CompareResult | None:
    kept = unbeaten(points, report.task == "classification")
    return kept[-1] if kept else None


def within(report: CompareReport, budget: float) -> list[CompareResult]:
    return [one for one in report.results if one.status == "done" and (one.cost_ratio or 0.0) <= budget]


def in_words(report: CompareReport, one: CompareResult | None, name: bool = True) -> str:
    if one is None:
        return "–"
    value = one.quality or 0.0
    told = f"{100 * value:.2f}" if report.task == "classification" else f"{value:.4g}"
    return f"{one.system + ' ' if name else ''}{told} at {number(one.cost_ratio or 0.0)}"


def show_frontier(reports: dict[str, CompareReport]) -> None:
    """By set, and by system on how many sets."""
    heads = [f"{who}, ≤ {budget:g}" for budget in BUDGETS for who in ("dcpred", "best other")]
    table = Table("data", "exact", *heads, "others on the frontier, ≤ 100")
    counts: dict[str, list[int]] = {}
    for name, report in reports.items():
        cells = [in_words(report, next((o for o in report.results if o.system == EXACT), None), name=False)]
        for place, budget in enumerate(BUDGETS):
            points = within(report, budget)
            ours = best(report, [one for one in points if one.system == OURS])
            others = {one.system for one in points} - {OURS}
            cells += [
                in_words(report, ours, name=False),
                in_words(report, best(report, [one for one in points if one.system != OURS])),
            ]
            front = {one.system for one in frontier(report) if one in points}
            for system in others:
                count = counts.setdefault(system, [0] * 2 * len(BUDGETS))
                count[2 * place] += system in front
                one = best(report, [p for p in points if p.system == system])
                pair = [o for o in (ours, one) if o is not None]
                count[2 * place + 1] += best(report, pair) is one and one is not None
        front_others = dict.fromkeys(
            one.system
            for one in frontier(report)
            if one in within(report, BUDGETS[-1]) and one.system != OURS
        )
        table.add(KNOWN[name].title, *cells, ", ".join(front_others) or "none")
    table.show()
    print()
    heads = [f"{what}, ≤ {b:g}" for b in BUDGETS for what in ("on the frontier", "more accurate than dcpred")]
    systems = Table("system", *heads)
    for system, count in sorted(counts.items(), key=lambda item: -sum(item[1])):
        systems.add(system, *(f"{n} of {len(reports)}" for n in count))
    systems.show()


def at_printed_cost(report: CompareReport, system: str, printed: Printed | None) -> CompareResult | None:
    """The most accurate point that costs no more than what is printed; the cheapest where none does; the most
    accurate of all where nothing is printed.
    """
    its = [one for one in report.results if one.system == system and one.status == "done"]
    most = printed.cost if printed else np.inf
    cheap = [one for one in its if (one.cost_ratio or 0.0) <= most]
    return best(report, cheap) or min(its, key=lambda one: one.cost_ratio or 0.0, default=None)


def show_paper(reports: dict[str, CompareReport]) -> None:
    heads = ["accuracy, %", "cost", "training, s"]
    table = Table(
        "data",
        "system",
        *(f"printed: {h}" for h in heads),
        *(f"measured: {h}" for h in heads),
        "with",
        "most accurate",
    )
    for name, report in reports.items():
        for system, title in PRINTED.items():
            printed = next((one for one in KNOWN[name].printed if one.name == title), None)
            cells = (
                [f"{v:g}" for v in (printed.accuracy, printed.cost, printed.seconds)]
                if printed
                else ["–"] * 3
            )
            one = at_printed_cost(report, system, printed)
            why = next((o.status for o in report.results if o.system == system), "–")
            found = [why, *["–"] * 4]
            if one is not None:
                its = [o for o in report.results if o.system == system and o.status == "done"]
                found = [f"{100 * (one.quality or 0.0):.2f}", number(one.cost_ratio or 0.0)]
                found += [
                    number(one.seconds or 0.0),
                    one.what,
                    in_words(report, best(report, its), name=False),
                ]
            table.add(KNOWN[name].title, title or "XGBoost", *cells, *found)
    table.show()


# -- the picture ---------------------------------------------------------------------------------------------


def recorded(name: str, report: CompareReport, command: str) -> list[Measured]:
    """Its points with a result."""
    told = {
        "data": f"{KNOWN[name].title}, {report.n_rows:,} training rows",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{cpu_name()}, {os.cpu_count()} cores",
        "command": command,
    }
    done = [one for one in report.results if one.status == "done"]
    return [
        Measured(
            who=one.system,
            name=one.what,
            accuracy=f"{100 * (one.quality or 0.0):.2f}",
            cost=f"{one.cost_ratio:.3g}",
            **told,
        )
        for one in done
    ]


def drawn(lines: list[Measured]) -> str:
    """The SVG document, on white, so that it reads on dark pages, too."""
    points = [
        CompareResult(one.who, one.name, "done", "", float(one.accuracy) / 100, float(one.cost), *[None] * 5)
        for one in lines
    ]
    report = CompareReport("", "classification", 0, 0, 0, {}, points, [], 0.0, [])
    with drawing(*PLOT) as figure:
        axes = figure.add_subplot()
        axes.set_title(lines[0].data)
        score_paint(report)(axes)
        file = io.BytesIO()
        figure.savefig(file, format="svg", facecolor=PAPER, metadata={"Date": None})
    return file.getvalue().decode()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", help="names with commas; all otherwise: " + ",".join(s.name for s in EVERY))
    parser.add_argument("--paper", action="store_true", help="Table 1 of the paper, on its sets")
    parser.add_argument("--rows", type=int, default=2_000, help="training rows of a set, at most")
    parser.add_argument("--test-rows", type=int, default=2_000)
    parser.add_argument("--time-limit", type=float, default=60.0, help="processor seconds of a system")
    parser.add_argument("--work", type=Path, default=Path("benchmark-side-by-side"))
    parser.add_argument("--picture", metavar="SET", help="record and draw this one of the sets")
    parser.add_argument("--quick", action="store_true", help="letter, 300 rows, four systems, one point each")
    args = parser.parse_args()
    wanted = (args.sets or ("letter" if args.quick else PAPER_SETS if args.paper else ",".join(KNOWN))).split(
        ","
    )
    if missing := [name for name in wanted if name not in KNOWN]:
        raise SystemExit(f"there is no set {missing[0]!r}; the sets are {', '.join(KNOWN)}")
    if args.quick:
        args.rows = args.test_rows = 300
        args.picture = "letter"
    args.work.mkdir(parents=True, exist_ok=True)
    reports: dict[str, CompareReport] = {}
    for name in wanted:
        say(KNOWN[name].title)
        reports[name] = compared(KNOWN[name], args)
    if args.picture:
        here = Path() if args.quick else HERE
        command = f"tests/benchmarks/side_by_side.py --sets {args.picture} --picture {args.picture}"
        command += f" --rows {args.rows} --test-rows {args.test_rows}"
        write(here / CSV, recorded(args.picture, reports[args.picture], command))
        (here / SVG).write_text(drawn(read(here / CSV)))
    if args.paper or args.quick:
        show_paper(reports)
    if not args.paper:
        show_frontier(reports)


if __name__ == "__main__":
    main()
