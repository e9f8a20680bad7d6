"""What gaps cost the scoring engine: a model that knows them beside the same model that refuses NaN.

    python tests/benchmarks/gap_cost.py [--quick]

Of every shape there are models that impute, that have an indicator of every fourth feature besides, or of
all. They score float32 rows without gaps, with 5 % and with 50 % of cells missing. A number is the time of a
row beyond that of the same model without indicators, which refuses NaN, on rows without gaps, in linear
predictions (`X @ w` on the same rows). A column more has its price by itself: "as features" is what a model
that refuses costs more where it has so many features more. All in one thread, processor time, interleaved,
medians.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from common import Table
from numpy.typing import NDArray
from synthetic import Cloud, Shape, make_model

from dcpred.serving.cost import padded_rows
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.one_hot import coded_columns
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.scoring import scorer

FEATURES, SHARES, REPEATS = (8, 54, 784), (0.0, 0.05, 0.5), 9
STREAM_BYTES = 2**26
CHECKED_ROWS = 200


def knowing_gaps(model: Model, indicated: list[int]) -> Model:
    """The same model, which takes a gap for the mean; indicators have small random places in it."""
    rng = np.random.default_rng(3)
    n, m = model.n_features, len(indicated)
    scaling = Scaling(
        np.append(model.scaling.shift, np.full(m, 0.1)),
        np.append(model.scaling.factor, np.full(m, 0.5)),
        coded_columns(n, {}, model.scaling.shift + 0.3 / model.scaling.factor, indicated),
    )

    def wider(points: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.hstack([points, 0.1 * rng.standard_normal((len(points), m), np.float32)])

    tree = replace(model.tree, centres=wider(model.tree.centres))
    return replace(model, scaling=scaling, tree=tree, landmarks=wider(model.landmarks))


def with_gaps(rows: NDArray[Any], share: float) -> NDArray[Any]:
    missing = np.random.default_rng(4).random(rows.shape, np.float32) < share
    return np.where(missing, np.float32(np.nan), rows)


def check(model: Model, rows: NDArray[Any]) -> None:
    """End the benchmark unless the engine agrees with the definition, and scores every row."""
    found, status = scorer.score_rows(model, rows)
    right, _ = compact_model.score_rows(model, rows)
    if not (status == 1).all() or np.abs(found - right).max() > 1e-4 * right.std():
        raise SystemExit("the engine does not agree with the definition")


def medians(calls: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Seconds of processor time of each call, one after the other, again and again."""
    seconds = np.empty((repeats, len(calls)))
    for repeat in range(repeats):
        for i, call in enumerate(calls):
            begin = time.process_time()
            call()
            seconds[repeat, i] = time.process_time() - begin
    return [float(median) for median in np.median(seconds, axis=0)]


def measure(shape: Shape, table: Table, n_rows: int, repeats: int) -> None:
    d = shape.n_features
    cloud = Cloud(d)
    rows, plain = cloud.rows(n_rows, seed=2), make_model(shape, cloud)
    linear_rows = padded_rows(rows)
    w = np.linspace(-1, 1, linear_rows.shape[1], dtype=np.float32)
    calls: list[Callable[[], Any]] = [lambda: linear_rows @ w, partial(scorer.score_rows, plain, rows)]
    indicated = {
        "imputes": [],
        "every fourth indicated": list(range(0, d, 4)),
        "all indicated": list(range(d)),
    }
    for own in indicated.values():
        wide = Cloud(d + len(own))
        model = knowing_gaps(plain, own)
        as_features = make_model(replace(shape, n_features=d + len(own)), wide) if own else plain
        calls.append(partial(scorer.score_rows, as_features, wide.rows(n_rows, seed=2) if own else rows))
        for X in (with_gaps(rows, share) for share in SHARES):
            check(model, X[:CHECKED_ROWS])
            calls.append(partial(scorer.score_rows, model, X))
    linear, refuses, *others = medians(calls, repeats)
    for i, name in enumerate(indicated):
        first = (
            (str(d), f"{1e9 * linear / n_rows:.1f}", f"{refuses / linear:.1f}") if i == 0 else ("", "", "")
        )
        beyond = [(seconds - refuses) / linear for seconds in others[4 * i : 4 * i + 4]]
        told = [f"{beyond[0]:+.1f}" if i else "–", *(f"{one:+.1f}" for one in beyond[1:])]
        table.add(*first, name, *told)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows, few repetitions")
    args = parser.parse_args()
    table = Table(
        "features",
        "linear prediction, ns",
        "cost of the model that refuses",
        "model",
        "as features",
        "no gaps",
        *(f"{100 * share:.0f} % gaps" for share in SHARES[1:]),
    )
    for d in FEATURES:
        n_rows = 500 if args.quick else STREAM_BYTES // (4 * d)
        measure(Shape(d, 64 if args.quick else 256), table, n_rows, 2 if args.quick else REPEATS)
    table.show()


if __name__ == "__main__":
    main()
