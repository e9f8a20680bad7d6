"""The scoring engine: what a row costs, in linear predictions, for models of many shapes; and its rivals on
letter.

    python tests/benchmarks/engine.py [--full] [--plot FILE.png] [--work DIR] [--stream-mib 256] [--quick]

The unit is the time per row of a float32 `X @ w` on the same rows, filled up to a multiple of 16 bytes
(dcpred.serving.cost), in the same thread of the same process, interleaved, medians.
"cost" streams over at least 256 MiB of float32 rows, of which 64 MiB are distinct; "in cache" goes over 512
KiB of them again and again. Every model's decision values are first compared with those of the plain
definition in NumPy.

First the synthetic models of synthetic.py: four shapes that are watched most, then one factor at a time
around 54 features, 1024 leaves in three levels, 16 landmarks, no products, one output, among them models
whose scaling gives most features the factor 0; --full gives the cross product. Then letter, A–M against N–Z:
all rivals predict the same raw float32 rows. LightGBM and scikit-learn-intelex are measured where they are
installed, and the plot is made where matplotlib is: `pip install ".[benchmarks]"`.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from common import Table, data_folder, letter
from numpy.typing import NDArray
from sklearn.svm import SVC
from synthetic import ARITIES, Cloud, Shape, make_model
from threadpoolctl import threadpool_limits

from dcpred import DCPredClassifier
from dcpred.estimators.settings import as_parameters
from dcpred.serving.cost import padded_rows
from dcpred_tasks.dtypes import SingleArray
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring import scorer

MIB = 2**20
DISTINCT_BYTES = 64 * MIB
CACHE_BYTES = MIB // 2
REPEATS = 9
LOOP_SECONDS = 0.02  # shorter calls are looped
LIMIT_BYTES = 3 * 2**29  # of a model and what the engine makes of it
COPIES = 4  # the model, the engine's two layouts of it, and one more while they are made
CHECKED_ROWS = 400
# Of decision values, in standard deviations of them. Weights of opposite signs (C = 32, no refinement) lose
# four digits of single precision.
TOLERANCE = 5e-4

FEATURES, LEAVES = (16, 54, 256, 784), (1, 64, 1024, 4096)
LANDMARKS, PRODUCTS, OUTPUTS = (8, 16, 32, 64), (0, 32, 128), (1, 7, 26)
HEADLINE = (Shape(54, 256), Shape(54, 1024), Shape(784, 256), Shape(16, 256))

# letter: features are whole numbers from 0 to 15, so that this γ is 8 in features from 0 to 1
GAMMA = 8.0 / 15**2
LOCAL = {
    "scaling": "minmax",
    "n_leaves": 128,
    "gamma": 4.0,
    "C": 4.0,
    "landmark_floor": 0.1,
    "random_state": 0,
}
HEAD = {"landmarks": 24, "compact_gamma": 3.0, "nystrom_C": 32.0, "refine": False}  # as in the paper
BLOCK_BYTES = (
    MIB  # kernel values that the exact machine holds at a time: half of a second-level cache of 2 MiB
)

Predict = Callable[[NDArray[Any]], Any]


@dataclass(frozen=True)
class Budget:
    """How much is measured."""

    stream_bytes: int
    seconds: float  # for all repeats of one timing


@dataclass(frozen=True)
class Timing:
    """Microseconds per row: of a predictor and of the linear one beside it."""

    us_per_row: float
    linear_us_per_row: float

    @property
    def cost(self) -> float:
        return self.us_per_row / self.linear_us_per_row


@dataclass(frozen=True)
class Cost:
    """Streaming and in cache."""

    stream: Timing
    cached: Timing


@dataclass(frozen=True)
class Rival:
    """A predictor of raw float32 rows of letter and its test accuracy in percent."""

    name: str
    predict: Predict
    accuracy: float


def say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


@cache
def optional(name: str) -> Any:
    """A module, or None and a remark."""
    try:
        return import_module(name)
    except ImportError:
        say(f"{name} is not installed: left out")
        return None


# -- timing --------------------------------------------------------------------------------------------------


def measure(predict: Predict, rows: NDArray[Any], linear_rows: SingleArray, budget: Budget) -> Cost:
    """rows  (n_samples, n_features), the stream; linear_rows  the same as float32"""
    few = max(CACHE_BYTES // linear_rows[:1].nbytes, 1)
    linear_rows = padded_rows(linear_rows)
    return Cost(
        _time(predict, rows, linear_rows, budget), _time(predict, rows[:few], linear_rows[:few], budget)
    )


def _time(predict: Predict, rows: NDArray[Any], linear_rows: SingleArray, budget: Budget) -> Timing:
    """The predictor takes one part of the rows after another, so that its time is bounded; short calls are
    looped.
    """
    w = np.linspace(-1, 1, linear_rows.shape[1], dtype=np.float32)

    def linear(X: SingleArray) -> SingleArray:
        return X @ w

    per_repeat = budget.seconds / REPEATS
    per_row = _seconds_per_row(predict, rows, per_repeat / 10)
    part = int(np.clip(per_repeat / per_row, 1, len(rows)))
    loops = _loops(per_row * part)
    linear_loops = _loops(_seconds_per_row(linear, linear_rows, per_repeat / 100) * len(linear_rows))
    own, beside = [], []
    for repeat in range(REPEATS):
        start = (repeat * part) % (len(rows) - part + 1)
        beside.append(_seconds(linear, linear_rows, linear_loops) / len(rows))
        own.append(_seconds(predict, rows[start : start + part], loops) / part)
    return Timing(1e6 * float(np.median(own)), 1e6 * float(np.median(beside)))


def _loops(seconds: float) -> int:
    return int(np.clip(LOOP_SECONDS / seconds, 1, 10_000))


def _seconds(predict: Predict, rows: NDArray[Any], loops: int = 1) -> float:
    """Seconds of one call, the mean over loops."""
    begin = time.perf_counter()
    for _ in range(loops):
        predict(rows)
    return (time.perf_counter() - begin) / loops


def _seconds_per_row(predict: Predict, rows: NDArray[Any], enough: float) -> float:
    """Seconds per row, roughly, from more and more rows until it takes long enough."""
    predict(rows[:64])
    n = 64
    while (seconds := _seconds(predict, rows[:n])) < enough and n < len(rows):
        n *= 4
    return max(seconds, 1e-7) / min(n, len(rows))


def repeated(rows: NDArray[Any], n_rows: int) -> NDArray[Any]:
    return np.tile(rows, (-(-n_rows // len(rows)), 1))[:n_rows]


# -- synthetic models ----------------------------------------------------------------------------------------


def shapes(full: bool, quick: bool) -> list[Shape]:
    """The shapes to measure, those watched most first."""
    base = Shape()
    if quick:
        few = [replace(base, n_leaves=1), replace(base, landmarks=8), replace(base, n_features=16)]
        few += [Shape(784, 64, used=300), Shape(784, 4096, 256)]
        return [HEADLINE[0], base, *few, Shape(16, 256, 8, 64, 3, "int16"), replace(base, used=16)]
    if full:
        every = [Shape(*s) for s in product(FEATURES, sorted(ARITIES), LANDMARKS, PRODUCTS, OUTPUTS)]
    else:
        every = [Shape(d, n) for d in FEATURES for n in sorted(ARITIES) if n in LEAVES or d in (54, 784)]
        every += [replace(base, landmarks=m) for m in LANDMARKS]
        every += [replace(base, products=p) for p in PRODUCTS]
        every += [replace(base, outputs=k) for k in OUTPUTS]
    every += [replace(base, used=16), Shape(784, 256, used=300), Shape(784, 1, 64), Shape(784, 1, 256)]
    every += [replace(base, dtype=dtype) for dtype in ("int16", "float64", "uint8")]
    return list(dict.fromkeys([*HEADLINE, *every]))


@lru_cache(maxsize=1)
def synthetic_stream(
    n_features: int, dtype: str, stream_bytes: int
) -> tuple[Cloud, NDArray[Any], SingleArray]:
    """(cloud, rows, the same rows in float32)."""
    cloud, row_bytes = Cloud(n_features, dtype), 4 * n_features
    distinct = cloud.rows(min(DISTINCT_BYTES, stream_bytes) // row_bytes, seed=2)
    rows = repeated(distinct, -(-stream_bytes // row_bytes))
    return cloud, rows, rows.astype(np.float32, copy=False)


def compare(model: Model, rows: NDArray[Any]) -> None:
    """End the benchmark unless the engine agrees with the definition."""
    found, found_status = scorer.score_rows(model, rows)
    right, right_status = compact_model.score_rows(model, rows)
    error = np.abs(found - right).max() / max(float(right.std()), 1e-6)
    if not (error <= TOLERANCE and np.array_equal(found_status, right_status)):
        raise SystemExit(
            f"the engine does not agree with the definition: off by {error:.1e} standard deviations"
        )


def measure_shapes(wanted: list[Shape], budget: Budget) -> Iterator[tuple[Shape, Cost]]:
    for number, shape in enumerate(wanted, 1):
        if COPIES * shape.nbytes > LIMIT_BYTES:
            say(f"{number}/{len(wanted)} {shape}: left out, {COPIES * shape.nbytes / MIB:,.0f} MiB")
            continue
        begin = time.perf_counter()
        cloud, rows, linear_rows = synthetic_stream(shape.n_features, shape.dtype, budget.stream_bytes)
        model = make_model(shape, cloud)
        compare(model, rows[:CHECKED_ROWS])
        cost = measure(partial(scorer.score_rows, model), rows, linear_rows, budget)
        say(
            f"{number}/{len(wanted)} {shape}: cost {cost.stream.cost:.1f},"
            f" {time.perf_counter() - begin:.1f} s"
        )
        yield shape, cost


# -- rivals on letter ----------------------------------------------------------------------------------------


class ExactMachine:
    """A fitted SVC of two classes in single precision: blocks of rows whose kernel values stay in cache, exp
    in place.

    One matrix product gives the whole exponent, −γ‖x − u‖² = [2γx, −γ‖x‖², 1] · [u, 1, −γ‖u‖²].
    """

    def __init__(self, machine: SVC, gamma: float) -> None:
        U = machine.support_vectors_.astype(np.float32)
        ones = np.ones((len(U), 1), np.float32)
        self.right = np.hstack([U, ones, -np.float32(gamma) * (U * U).sum(axis=1, keepdims=True)]).T.copy()
        self.dual = machine.dual_coef_[0].astype(np.float32)
        self.intercept = np.float32(machine.intercept_[0])
        self.gamma = np.float32(gamma)
        self.rows = max(BLOCK_BYTES // (4 * len(U)), 16)
        self.K = np.empty((self.rows, len(U)), np.float32)
        self.left = np.ones((self.rows, U.shape[1] + 2), np.float32)

    def __call__(self, X: SingleArray) -> SingleArray:
        """Decision values."""
        out = np.empty(len(X), np.float32)
        for start in range(0, len(X), self.rows):
            x = X[start : start + self.rows]
            left, K = self.left[: len(x)], self.K[: len(x)]
            np.multiply(x, 2 * self.gamma, out=left[:, :-2])
            np.multiply(np.einsum("ij,ij->i", x, x), -self.gamma, out=left[:, -2])
            np.matmul(left, self.right, out=K)
            np.exp(K, out=K)
            np.matmul(K, self.dual, out=out[start : start + len(x)])
        out += self.intercept
        return out


class Letter:
    """The data, and what is trained on it once."""

    def __init__(self, quick: bool) -> None:
        X, y, X_test, y_test = letter(data_folder())
        n = 1_500 if quick else len(X)
        self.quick = quick
        self.X, self.y = X[:n].astype(np.float32), y[:n].astype(np.int64)
        self.X_test, self.y_test = X_test.astype(np.float32), y_test.astype(np.int64)

    def stream(self, n_bytes: int) -> SingleArray:
        """Rows of letter over and over, with noise that leaves them the nearest whole numbers."""
        rng, row_bytes = np.random.default_rng(3), self.X[:1].nbytes
        rows = repeated(self.X, min(DISTINCT_BYTES, n_bytes) // row_bytes)
        rows += rng.random(rows.shape, np.float32) - np.float32(0.5)
        return repeated(rows, -(-n_bytes // row_bytes))

    def accuracy(self, labels: NDArray[Any]) -> float:
        return 100 * float(np.mean(np.asarray(labels).ravel() == self.y_test))

    def rivals(self) -> Iterator[Rival]:
        yield self.linear()
        yield from self.compact()
        yield from self.exact()
        yield from self.trees()

    def linear(self) -> Rival:
        design = np.hstack([self.X, np.ones((len(self.X), 1), np.float32)])
        w = np.linalg.lstsq(design, 2.0 * self.y - 1.0)[0].astype(np.float32)
        return Rival("linear: X @ w", lambda X: X @ w[:-1], self.accuracy(self.X_test @ w[:-1] + w[-1] > 0))

    def compact(self) -> Iterator[Rival]:
        for products in (0, 300):
            leaves = {"n_leaves": 8} if self.quick else {}
            settings = LOCAL | HEAD | leaves | {"products": products}
            fitted = DCPredClassifier(**as_parameters(settings)).fit(self.X, self.y)
            model: Model = fitted.model_
            compare(model, self.X_test[:CHECKED_ROWS])
            for engine, score in (
                ("engine", scorer.score_rows),
                ("NumPy definition", compact_model.score_rows),
            ):
                labels = compact_model.class_numbers(score(model, self.X_test)[0])
                kind = f"{model.n_leaves} leaves × {HEAD['landmarks']} landmarks, {products} products"
                yield Rival(f"dcpred, {kind}: {engine}", partial(score, model), self.accuracy(labels))

    def exact(self) -> Iterator[Rival]:
        machine = SVC(C=10.0, gamma=GAMMA, cache_size=1000).fit(self.X, self.y)
        size = f"{len(machine.support_):,} support vectors"
        labels = machine.predict(self.X_test)
        ours = ExactMachine(machine, GAMMA)
        self.agree("the blocked exact machine", ours(self.X_test) > 0, labels)
        yield Rival(f"exact SVM, {size}: blocked float32 GEMM", ours, self.accuracy(ours(self.X_test) > 0))
        if optional("daal4py") and optional("sklearnex.svm"):
            optional("daal4py").daalinit(1)
            intel = optional("sklearnex.svm").SVC(C=10.0, gamma=GAMMA).fit(self.X, self.y)
            self.agree("scikit-learn-intelex", intel.predict(self.X_test), labels)
            name = f"exact SVM, {len(intel.support_):,} support vectors: scikit-learn-intelex"
            yield Rival(name, intel.predict, self.accuracy(intel.predict(self.X_test)))
        yield Rival(f"exact SVM, {size}: scikit-learn", machine.predict, self.accuracy(labels))

    def trees(self) -> Iterator[Rival]:
        lightgbm = optional("lightgbm")
        if lightgbm is None:
            return
        n_trees, n_leaves = (20, 15) if self.quick else (500, 127)
        settings = {"objective": "binary", "num_leaves": n_leaves, "num_threads": 1, "verbose": -1, "seed": 0}
        booster = lightgbm.train(settings, lightgbm.Dataset(self.X, self.y), n_trees)
        name = f"LightGBM, {n_trees} trees × {n_leaves} leaves"
        labels = booster.predict(self.X_test, num_threads=1) > 0.5
        yield Rival(f"{name}: its own", lambda X: booster.predict(X, num_threads=1), self.accuracy(labels))
        if optional("daal4py"):
            optional("daal4py").daalinit(1)
            converted = optional("daal4py").mb.convert_model(booster)
            self.agree("daal4py", converted.predict(self.X_test), labels)
            yield Rival(f"{name}: daal4py", converted.predict, self.accuracy(converted.predict(self.X_test)))

    def agree(self, name: str, labels: NDArray[Any], right: NDArray[Any]) -> None:
        """End the benchmark unless labels are the same, but for a few on the border."""
        share = float(np.mean(np.asarray(labels).ravel() == right))
        if share < 0.995:
            raise SystemExit(
                f"{name} predicts only {share:.1%} of the labels of the machine that it stands for"
            )


def measure_rivals(data: Letter, budget: Budget) -> Iterator[tuple[Rival, Cost]]:
    rows = data.stream(budget.stream_bytes)
    for rival in data.rivals():
        cost = measure(rival.predict, rows, rows, budget)
        say(f"{rival.name}: cost {cost.stream.cost:.1f}, accuracy {rival.accuracy:.2f}")
        yield rival, cost


# -- results -------------------------------------------------------------------------------------------------


def add(table: Table, first: list[str], cost: Cost, accuracy: str) -> None:
    times = f"{1e3 * cost.stream.linear_us_per_row:.1f}", number(cost.stream.us_per_row)
    table.add(*first, *times, number(cost.stream.cost), number(cost.cached.cost), accuracy)


def number(value: float) -> str:
    """Three digits, or all before the point."""
    digits = 2 - int(np.floor(np.log10(max(value, 1e-9))))
    return f"{value:,.{min(max(digits, 0), 3)}f}"


def plot(path: Path, synthetic: list[tuple[Shape, Cost]], rivals: list[tuple[Rival, Cost]]) -> None:
    """Cost against leaves, landmarks and features, streaming (solid) and in cache (dashed); rivals beside
    them.
    """
    if optional("matplotlib") is None:
        return
    figure = import_module("matplotlib.figure").Figure(figsize=(13, 10), layout="constrained")
    leaves, landmarks, features, beside = figure.subplots(2, 2).flat
    base = Shape()
    lines(leaves, synthetic, "n_leaves", [(f"{d} features", replace(base, n_features=d)) for d in FEATURES])
    lines(landmarks, synthetic, "landmarks", [("54 features", base)])
    several = [(f"{n:,} leaves", replace(base, n_leaves=n)) for n in sorted(ARITIES)[1:]]
    lines(features, synthetic, "n_features", [("1 leaf", replace(base, n_leaves=1)), *several])
    leaves.set(xlabel="leaves", title="16 landmarks, no products, one output")
    landmarks.set(xlabel="landmarks", title="1,024 leaves, no products, one output")
    features.set(xlabel="features", title="16 landmarks, no products, one output")
    marks(beside, rivals)
    figure.suptitle(
        "Cost of a row in linear predictions: streaming (solid) and in cache (dashed); one thread"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    say(f"plot: {path}")


def lines(
    axes: Any, synthetic: list[tuple[Shape, Cost]], field: str, wanted: list[tuple[str, Shape]]
) -> None:
    """One line of each shape over the values of one field."""
    ticks = set()
    for label, shape in wanted:
        own = {
            getattr(s, field): cost
            for s, cost in synthetic
            if replace(shape, **{field: getattr(s, field)}) == s
        }
        at = sorted(own)
        if not at:
            continue
        ticks |= set(at)
        (line,) = axes.plot(at, [own[x].stream.cost for x in at], "o-", label=label)
        axes.plot(at, [own[x].cached.cost for x in at], "o--", color=line.get_color(), mfc="none", alpha=0.6)
    axes.set(xscale="log", yscale="log", ylabel="linear predictions")
    axes.set_xticks(sorted(ticks), [f"{x:,}" for x in sorted(ticks)])
    axes.set_xticks([], minor=True)
    plain_ticks(axes)
    axes.grid(True, which="both", alpha=0.3)
    if axes.lines:
        axes.legend(loc="upper left", ncols=3)


def plain_ticks(axes: Any) -> None:
    """1, 2, 5, 10, 20, … on the cost axis, and room for the legend above."""
    low, high = axes.get_ylim()
    high *= (high / low) ** 0.25
    usual = [float(f"{a}e{e}") for e in range(-2, 6) for a in (1, 2, 5)]
    shown = [v for v in usual if low <= v <= high]
    axes.set_yticks(shown, [f"{v:,g}" for v in shown])
    axes.set_yticks([], minor=True)
    axes.set_ylim(low, high)


def marks(axes: Any, rivals: list[tuple[Rival, Cost]]) -> None:
    """One bar for each rival, its name above it, so that names of any length have room."""
    for place, (rival, cost) in enumerate(rivals):
        colour = "C0" if rival.name.startswith("dcpred") else "0.6"
        axes.barh(-place, cost.stream.cost, height=0.4, color=colour)
        axes.text(0.55, 0.42 - place, rival.name, va="center", fontsize=9)
        text = f"{number(cost.stream.cost)}×   {rival.accuracy:.1f} %"
        axes.text(cost.stream.cost * 1.1, -place, text, va="center", fontsize=9)
    most = max(cost.stream.cost for _, cost in rivals)
    axes.set(
        xscale="log",
        xlim=(0.5, 30 * most),
        yticks=[],
        xlabel="linear predictions",
        title="letter: cost and test accuracy",
    )
    axes.set_ylim(0.6 - len(rivals), 0.8)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="the cross product of all shapes: hours")
    parser.add_argument(
        "--plot", type=Path, help="where the plot goes; engine.png in the work folder otherwise"
    )
    parser.add_argument("--work", type=Path, default=Path("benchmark-engine"))
    parser.add_argument("--stream-mib", type=int, default=256)
    parser.add_argument(
        "--quick", action="store_true", help="a few small models, little training, short streams"
    )
    args = parser.parse_args()
    budget = Budget(MIB, 0.05) if args.quick else Budget(args.stream_mib * MIB, 5.0)
    columns = ("leaves", "features", "landmarks", "products", "outputs", "dtype")
    table = Table("model", *columns, "linear, ns/row", "µs/row", "cost", "cost in cache", "accuracy, %")
    begin = time.perf_counter(), time.process_time()
    with threadpool_limits(1):
        synthetic = list(measure_shapes(shapes(args.full, args.quick), budget))
        rivals = list(measure_rivals(Letter(args.quick), budget))
    share = (time.process_time() - begin[1]) / (time.perf_counter() - begin[0])
    say(
        f"this process had {share:.0%} of a core"
        + ("; others were at work, so measure again" if share < 0.95 else "")
    )
    for shape, cost in synthetic:
        levels = " × ".join(map(str, ARITIES[shape.n_leaves]))
        leaves = f"{shape.n_leaves:,} ({levels})" if levels else "1"
        cells = leaves, shape.features, shape.landmarks, shape.pairs, shape.outputs, shape.dtype
        add(table, ["synthetic, headline" if shape in HEADLINE else "synthetic", *map(str, cells)], cost, "–")
    for rival, cost in rivals:
        add(table, [f"letter: {rival.name}", *"–" * len(columns)], cost, f"{rival.accuracy:.2f}")
    table.show()
    plot(args.plot or args.work / "engine.png", synthetic, rivals)


if __name__ == "__main__":
    main()
