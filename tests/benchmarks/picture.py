"""Accuracy against cost on letter and covtype, as the picture of the README: ours, the paper's, the rivals'.

    python tests/benchmarks/picture.py [--measure] [--sets letter,covtype] [--workers 2] [--work DIR]
    [--quick]

Draws accuracy_cost.svg, beside this file, from accuracy_cost.csv, beside it, and from what the paper prints
(sets.py). Each line of the CSV file is a result with its date, machine and command. `--measure` measures the
named sets on one split, and puts these results in the place of their lines. Costs are then measured in
processor time of the thread: other work on the machine takes nothing of it, though it takes caches. Measuring
needs the real data sets and several minutes for each set; drawing needs nothing. `--quick` measures a small
model of each kind on letter, and writes both files to the current folder.
"""

import argparse
import csv
import datetime
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import engine
from common import Table, data_folder
from covtype import CHOICES, COMMON
from engine import number, say
from letter import HEAD, TREE
from paper import OURS, QUICK_ROWS, Findings, Place, Result, add_rivals, measuring_workers, quick
from rivals import Cache, Rival
from scatter import Panel, Point, draw
from sets import SETS, DataSet, Values

from dcpred.serving import cost as measured
from dcpred_tasks.process import cpu_name

HERE = Path(__file__).parent
CSV, SVG = "accuracy_cost.csv", "accuracy_cost.svg"
LETTER: Values = {**TREE, **HEAD, "gamma": 4.0, "C": 4.0, "landmark_floor": 0.1}  # as in letter.py
DRAWN = ("letter", "covtype")
AS_IN_THE_PAPER: dict[str, dict[str, Values]] = {
    "letter": {
        "128 leaves, 24 landmarks": {**LETTER, "products": 0},
        "128 leaves, 24 landmarks, 300 products": {**LETTER, "products": 300},
    },
    "covtype": {name: {**COMMON, **CHOICES[name]} for name in ("1,024 leaves", "4,096 leaves")},
}
DATA_SETS = {dataset.name: dataset for dataset in SETS}


@dataclass(frozen=True)
class Measured:
    """One line of the CSV file: accuracy in percent on the test rows, cost in linear predictions."""

    data: str
    who: str  # "ours", "as in the paper" (ours without learned scaling and refinement) or "rival"
    name: str
    accuracy: str
    cost: str
    date: str
    machine: str
    command: str


def measure(dataset: DataSet, args: argparse.Namespace, cache: Cache) -> Iterator[Measured]:
    """Our points and the rivals of one data set, on one split."""
    split = dataset.load(data_folder(), 0)
    found = Findings(dataset, key=(OURS, dataset.point))
    with measuring_workers(args.workers, args.quick) as workers, processor_time():
        work = args.work / dataset.name
        place = Place(work, workers, split.first(QUICK_ROWS) if args.quick else split, 0, args.quick)
        say(f"{dataset.title}: {len(place.split.y):,} rows")
        place.write()
        for point in dataset.points:
            found.results[OURS, point] = [place.run(dataset.settings(point))]
            yield line(dataset, "ours", point, found.results[OURS, point][0])
        for point, settings in list(AS_IN_THE_PAPER[dataset.name].items())[: 1 if args.quick else None]:
            yield line(dataset, "as in the paper", point, place.run(settings))
    with processor_time():
        add_rivals(found, args, cache)
    for name, (rival,) in found.rivals.items():
        yield line(dataset, "rival", name, rival)


@contextmanager
def processor_time() -> Iterator[None]:
    """What measures costs reads the processor time of its thread. A model and a rival use one thread each."""
    clock = SimpleNamespace(perf_counter=time.thread_time, thread_time=time.thread_time)
    with mock.patch.object(measured, "time", clock), mock.patch.object(engine, "time", clock):
        yield


def line(dataset: DataSet, who: str, name: str, found: Result | Rival) -> Measured:
    machine = f"{cpu_name()}, {os.cpu_count()} cores"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    command = f"tests/benchmarks/picture.py --measure --sets {dataset.name}"
    return Measured(
        dataset.name, who, name, f"{found.quality:.2f}", f"{found.cost:.3g}", date, machine, command
    )


def read(path: Path) -> list[Measured]:
    with path.open(newline="") as file:
        return [Measured(**row) for row in csv.DictReader(file)]


def write(path: Path, lines: Iterable[Measured]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Measured)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(one) for one in lines)


def picture(lines: list[Measured]) -> str:
    """The SVG document: a panel for each data set that has lines."""
    panels = []
    for name in DRAWN:
        own = [one for one in lines if one.data == name]
        points = [Point(one.who, one.name, float(one.cost), float(one.accuracy)) for one in own]
        points += [Point("paper", p.name, p.cost, p.accuracy) for p in DATA_SETS[name].printed]
        if own:
            panels.append(Panel(DATA_SETS[name].title, points))
    return draw(panels)


def table(lines: list[Measured]) -> Table:
    shown = Table("data", "who", "name", "accuracy, %", "cost")
    for one in lines:
        shown.add(DATA_SETS[one.data].title, one.who, one.name, one.accuracy, number(float(one.cost)))
    for name in dict.fromkeys(one.data for one in lines):
        for p in DATA_SETS[name].printed:
            shown.add(DATA_SETS[name].title, "paper", p.name, f"{p.accuracy:g}", number(p.cost))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="measure again before drawing")
    parser.add_argument("--sets", default=",".join(DRAWN), help="what to measure, names with commas")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("benchmark-picture"))
    parser.add_argument("--quick", action="store_true", help=f"letter, {QUICK_ROWS} rows, one point each")
    args = parser.parse_args()
    args.seeds = 1
    here = HERE
    lines = read(HERE / CSV) if (HERE / CSV).exists() else []
    if args.quick:
        here, args.sets, args.workers, args.measure, lines = Path(), "letter", 1, True, []
    for name in args.sets.split(",") if args.measure else ():
        if name not in DRAWN:
            raise SystemExit(f"there is no set {name!r} in the picture; its sets are {', '.join(DRAWN)}")
        dataset = quick(DATA_SETS[name]) if args.quick else DATA_SETS[name]
        args.work.mkdir(parents=True, exist_ok=True)
        cache = Cache(args.work / ("quick.json" if args.quick else "rivals.json"))
        lines = [one for one in lines if one.data != name]
        for one in measure(dataset, args, cache):
            lines.append(one)
            write(here / CSV, lines)  # each line as soon as it is there: a set takes minutes
    (here / SVG).write_text(picture(lines))
    table(lines).show()


if __name__ == "__main__":
    main()
