"""How sure models say they are, held against test rows: probabilities, intervals and novelty; their cost.

    python tests/benchmarks/sureness.py [--sets letter,cal_housing,...] [--seeds 1] [--no-cost] [--quick]

Settings are those of paper.py and, for other sets, plain ones; covtype has 60,000 of its rows. *Before* are
probabilities of decision values as they are: σ of two classes, softmax of several. The calibration error is
that of 15 bins (dcpred_tasks.evaluation.measures). Beside intervals whose width is that of their leaf stand
those of one width, conformal as well. Novelty is told by the share of rows that are beyond 0.95: of test
rows, of test rows with noise of one standard deviation in each feature, and of rows drawn evenly from the
box of the training rows. Seconds are processor time of training in memory, on one thread, without and with.

Costs are of rows of 54 features (covtype, 256 leaves of 16 landmarks), in linear predictions, by processor
time, with a column and without.
"""

import argparse
import time
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from common import BRIEF, Table, data_folder
from engine import say
from more_sets import EVERY
from numpy.typing import NDArray
from sets import DataSet, Split

from dcpred.serving.cost import measure_call
from dcpred_tasks.dtypes import SingleArray, Status
from dcpred_tasks.evaluation.measures import Measures
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.uncertainty import Calibration
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.scoring.outputs import columns, default_outputs, encode_outputs, needed, possible_outputs
from dcpred_tasks.task_bodies.predict_block import novelty_block
from dcpred_tasks.training import held_out
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import in_effect, make_settings
from dcpred_tasks.training.survey import survey_rows

CLASSES = ("letter", "letter26", "magic", "satimage", "a9a", "connect_4", "elec2", "covtype", "covtype7")
NUMBERS = ("cal_housing", "house_16H", "cpusmall", "protein")
PLAIN: dict[str, object] = {"scaling": "learned", "overlap": 3, "landmarks": 16, "products": 0, "gamma": 2.0}
FEWER_ROWS = {"covtype": 60_000, "covtype7": 60_000}
FEWER_LEAVES = {"covtype": {"n_leaves": 256}, "covtype7": {"n_leaves": 256}}
QUICK: dict[str, object] = {
    "n_leaves": 2,
    "refine_steps": 5,
    "overlap": 1,
    "scaling": "standard",
    "landmarks": 4,
}
QUICK_SETS, QUICK_ROWS = ("magic", "cpusmall"), 600
NEW = 0.95
SURE = ("probability", "interval", "novelty")


class Trained:
    """A model of one split, and what training it took."""

    def __init__(self, data: DataSet, split: Split, more: dict[str, object]) -> None:
        self.split, task = split, "regression" if data.regression else "classification"
        own = data.settings(data.point) if data.points else PLAIN
        self.values, self.task = {**own, **FEWER_LEAVES.get(data.name, {}), **more, "task": task}, task
        self.survey = survey_rows(split.X, split.y, None, 0, task)
        self.classes = () if data.regression else tuple(self.survey.classes.tolist())

    def target(self, y: NDArray[Any]) -> NDArray[Any]:
        return np.searchsorted(self.classes, y) if self.classes else y.astype(np.float64)

    def model(self, calibrate: bool) -> tuple[Model, float]:
        """And the seconds that training it took."""
        settings = make_settings(in_effect(self.values | {"calibrate": calibrate}, self.task))
        y, ones = self.target(self.split.y), np.ones(len(self.split.X))
        begin = time.process_time()
        model = train_rows(self.split.X, y, ones, np.empty(0), self.survey, settings, self.classes, 1)
        return model, time.process_time() - begin

    def told(self, model: Model) -> dict[str, Any]:
        """What `dcpred evaluate` says of the test rows."""
        rows = score_with_leaves(model, self.split.X_test, scale=True)
        good = rows.status == Status.OK
        found, rows = Measures(model), rows.take(good)
        found.add(model, rows.decision, self.target(self.split.y_test)[good], rows)
        return found.as_dict()

    def new(self, model: Model) -> list[str]:
        """Shares of rows beyond NEW: test rows, those with noise, and rows of the box."""
        rng, X = np.random.default_rng(0), self.split.X.astype(np.float32)
        test = self.split.X_test[:5_000].astype(np.float32)
        noisy = (test + rng.normal(size=test.shape) * X.std(axis=0)).astype(np.float32)
        box = rng.uniform(X.min(axis=0), X.max(axis=0), test.shape).astype(np.float32)
        return [f"{100 * np.mean(novelty_block(rows, model) > NEW):.1f}" for rows in (test, noisy, box)]


def as_they_are(model: Model) -> Model:
    """The model whose probabilities are those of decision values as they are."""
    assert model.uncertainty is not None
    n, ends = len(model.classes), np.array([-1e30, -500.0, 500.0, 1e30])
    plain = Calibration(ends, np.clip(ends, -500, 500), np.full(n, 1 / n), np.zeros(1))
    return replace(model, uncertainty=replace(model.uncertainty, calibration=plain))


def seconds(with_it: list[float], without: list[float]) -> str:
    return f"{np.mean(without):.1f} → {np.mean(with_it):.1f}"


def mean(values: list[float], digits: int) -> str:
    return f"{np.mean(values):.{digits}f}"


def of_classes(table: Table, data: DataSet, splits: list[Split], more: dict[str, object]) -> None:
    before, after, new, took, took_less, leaves = [], [], [], [], [], 0
    for split in splits:
        trained = Trained(data, split, more)
        model, spent = trained.model(True)
        took.append(spent)
        took_less.append(trained.model(False)[1])
        after.append(trained.told(model))
        before.append(trained.told(as_they_are(model)))
        new.append(trained.new(model))
        leaves = model.n_leaves
    table.add(
        data.name,
        str(leaves),
        mean([100 * one["accuracy"] for one in after], 2),
        *(
            " → ".join(mean([scale * one[name] for one in told], digits) for told in (before, after))
            for name, scale, digits in (("log_loss", 1, 3), ("calibration_error", 100, 2))
        ),
        " / ".join(new[0]),
        seconds(took, took_less),
    )


def of_numbers(table: Table, data: DataSet, splits: list[Split], more: dict[str, object]) -> None:
    own, one_width, new, took, took_less, leaves = [], [], [], [], [], 0
    for split in splits:
        trained = Trained(data, split, more)
        model, spent = trained.model(True)
        took.append(spent)
        took_less.append(trained.model(False)[1])
        own.append(trained.told(model))
        with mock.patch.object(held_out, "PRIOR_ROWS", 1e30):
            one_width.append(trained.told(trained.model(True)[0]))
        new.append(trained.new(model))
        leaves = model.n_leaves
    cells = [
        f"{100 * np.mean([one['interval_coverage'] for one in told]):.1f} % in"
        f" {np.mean([one['interval_width'] for one in told]):.3g}"
        for told in (own, one_width)
    ]
    each = " ".join(f"{100 * one['interval_coverage']:.1f}" for one in own)
    table.add(data.name, str(leaves), *cells, each, " / ".join(new[0]), seconds(took, took_less))


def costs(rows: int, more: dict[str, object], timing: dict[str, Any]) -> Table:
    """What columns cost on covtype's features: classes, and whether it is class 2 as a number."""
    table = Table("54 features", "label, decision", "with probability", "with interval", "with novelty")
    names = {one.name: one for one in EVERY}
    two, seven = (names[name].load(data_folder(), 0).first(rows) for name in ("covtype", "covtype7"))
    number = replace(two, y=two.y.astype(np.float64), y_test=two.y_test.astype(np.float64))
    plain = {**PLAIN, "scaling": "standard", "overlap": 1, "refine_steps": 5, **more}
    for title, data, split in (
        ("2 classes", names["covtype"], two),
        ("7 classes", names["covtype7"], seven),
        ("numbers", replace(names["covtype"], regression=True), number),
    ):
        say("cost of", title)
        model, _ = Trained(replace(data, points={}), split, plain).model(True)
        basic = default_outputs(model.task)
        asked = [basic, *((*basic, name) for name in SURE)]
        told = [
            f"{cost(model, outputs, split.X, timing):.1f}" if possible(model, outputs) else "–"
            for outputs in asked
        ]
        table.add(title, *told)
    return table


def possible(model: Model, outputs: tuple[str, ...]) -> bool:
    return set(outputs) <= set(possible_outputs(model.task))


def cost(model: Model, outputs: tuple[str, ...], X: NDArray[Any], timing: dict[str, Any]) -> float:
    """Of a row, in linear predictions."""
    asked = columns(outputs)

    def encode(rows: SingleArray) -> object:
        return encode_outputs(model, asked, score_with_leaves(model, rows, **needed(asked)))

    own, linear = measure_call(encode, X, **timing)
    return own / linear


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join((*CLASSES, *NUMBERS)))
    parser.add_argument("--seeds", type=int, default=1, help="each another split where that is random")
    parser.add_argument("--no-cost", action="store_true")
    parser.add_argument("--quick", action="store_true", help="two sets of 600 rows")
    args = parser.parse_args()
    asked = QUICK_SETS if args.quick else args.sets.split(",")
    rows, seeds = (QUICK_ROWS, 1) if args.quick else (None, args.seeds)
    more = QUICK if args.quick else {}
    classes = Table(
        "classes", "leaves", "accuracy, %", "log-loss", "calibration error, %", "new, %", "seconds"
    )
    numbers = Table(
        "numbers", "leaves", "intervals of leaves", "of one width", "inside, %", "new, %", "seconds"
    )
    for data in (one for one in EVERY if one.name in asked):
        say(data.name)
        loaded = [data.load(data_folder(), seed) for seed in range(seeds if data.random_split else 1)]
        most = rows or FEWER_ROWS.get(data.name)
        splits = [split.first(most) if most else split for split in loaded]
        fill, table = (of_numbers, numbers) if data.regression else (of_classes, classes)
        fill(table, data, splits, more)
    for table in (classes, numbers):
        table.show()
        print()
    if not args.no_cost:
        costs(QUICK_ROWS if args.quick else 20_000, more, BRIEF if args.quick else {}).show()


if __name__ == "__main__":
    main()
