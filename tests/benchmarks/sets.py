"""The data sets of paper.py: loader, split, what the paper prints, the settings that are tried, and what is
aimed at.

Table 1 is on page 7 of Hsieh, Si and Dhillon (NIPS 2014), copied from two extractions of its text that agree.
The values of figure 3 are drawn, not printed, and its text does not hold them; what stands here for
regression is table 2 (page 8), the sizes of the splits. Its Letter has 12,000 / 6,000 rows, which the public
15,000 / 5,000 split does not give; it does not say which task of letter and usps it means; Kddcup is the full
set of 4,898,431 rows, here its public tenth.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from common import covtype, letter
from numpy.typing import NDArray

Values = Mapping[str, object]
SHARE_TRAINED_ON = 0.8  # of the regressions: 6,553 and 16,512 rows (table 2 prints 6,553 and 16,521)
COVTYPE_TRAIN_ROWS = 522_910
DOLLARS = 100_000.0


@dataclass(frozen=True)
class Split:
    """Raw rows and targets to train on and to test on."""

    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]

    def first(self, n_rows: int) -> "Split":
        """Fewer rows to train on, and at most as many to test on."""
        return Split(self.X[:n_rows], self.y[:n_rows], self.X_test[:n_rows], self.y_test[:n_rows])


@dataclass(frozen=True)
class Printed:
    """One cell block of table 1: accuracy in percent, cost in linear predictions, seconds of training."""

    name: str
    accuracy: float
    cost: float
    seconds: float


@dataclass(frozen=True)
class Target:
    """What is aimed at: accuracy in percent or more, RMSE or less; at a cost, trained in a time.

    Costs are in linear predictions of rows that start on 16 bytes. Those of covtype were set in a unit that
    was 1.59 times as long (54 features), those of a9a and kdd in one 1.28 times as long (123 and 119).
    """

    cost: float
    quality: float | None = None
    seconds: float | None = None
    stretch: tuple[float, float] | None = None  # (quality, cost)
    beats_rivals: bool = (
        False  # an RMSE of at most the exact machine's, below those of rivals at the same cost
    )


@dataclass(frozen=True)
class DataSet:
    """A task. `points` are ours, `base` what they share; the one named `point` is judged by the target."""

    name: str
    title: str
    load: Callable[[Path, int], Split]  # of the folder and a seed
    base: Values
    points: Mapping[str, Values]
    point: str
    target: Target
    random_split: bool = False
    regression: bool = False
    exact_rows: int = 60_000  # that the exact machine is trained on, at most
    printed: tuple[Printed, ...] = field(default=())

    def settings(self, point: str) -> dict[str, object]:
        task = {"task": "regression"} if self.regression else {}
        return {**task, **self.base, **self.points[point]}


# -- loaders -------------------------------------------------------------------------------------------------


def _covtype_two(folder: Path, seed: int) -> Split:
    X, y = covtype(folder, seed)
    n = COVTYPE_TRAIN_ROWS
    return Split(X[:n], y[:n], X[n:], y[n:])


def _covtype_seven(folder: Path, seed: int) -> Split:
    with np.load(folder / "covtype.npz") as data:
        order = np.random.default_rng(seed).permutation(len(data["y"]))
        X, y, n = np.ascontiguousarray(data["X"])[order], data["y"][order], COVTYPE_TRAIN_ROWS
    return Split(X[:n], y[:n], X[n:], y[n:])


def _letter_two(folder: Path, seed: int) -> Split:
    return Split(*letter(folder))


def _letter_all(folder: Path, seed: int) -> Split:
    with np.load(folder / "letter.npz") as data:
        X, y = data["X"], data["y"]
    return Split(X[:15_000], y[:15_000], X[15_000:], y[15_000:])


def shipped(name: str) -> Callable[[Path, int], Split]:
    def load(folder: Path, seed: int) -> Split:
        with np.load(folder / f"{name}.npz") as data:
            return Split(*(data[key] for key in ("X_train", "y_train", "X_test", "y_test")))

    return load


def _kdd(folder: Path, seed: int) -> Split:
    """Normal against attack: 38 numbers, then 81 columns for the codes of protocol, service and flag."""
    with np.load(folder / "kddcup99_10pct.npz") as data:
        normal = int(np.flatnonzero(data["label_names"] == "normal.")[0])
        n_codes = [len(data[f"cat_{name}"]) for name in ("protocol_type", "service", "flag")]

        def part(which: str) -> tuple[NDArray[Any], NDArray[Any]]:
            codes = data[f"X_cat_{which}"]
            hot = [codes[:, [column]] == np.arange(n) for column, n in enumerate(n_codes)]
            return np.hstack([data[f"X_num_{which}"], *hot], dtype=np.float32), (
                data[f"y_{which}"] != normal
            ).astype(np.int8)

        X, y = part("train")
        # the file is in order of time; --quick takes the first rows
        order = np.random.default_rng(seed).permutation(len(y))
        return Split(X[order], y[order], *part("test"))


def random_regression(name: str, unit: float) -> Callable[[Path, int], Split]:
    def load(folder: Path, seed: int) -> Split:
        with np.load(folder / f"{name}.npz") as data:
            X, y = data["X"], data["y"] / unit
        order = np.random.default_rng(seed).permutation(len(y))
        A, B = np.split(order, [int(SHARE_TRAINED_ON * len(order))])
        return Split(X[A], y[A], X[B], y[B])

    return load


# -- the sets ------------------------------------------------------------------------------------------------


def _table(*blocks: tuple[float, float, float]) -> tuple[Printed, ...]:
    """A row of table 1: (cost, accuracy, seconds) of its six columns."""
    names = ("DC-Pred++", "LDKL", "k-means Nyström", "AESVM", "STPRtool", "Fastfood")
    return tuple(
        Printed(name, accuracy, cost, seconds)
        for name, (cost, accuracy, seconds) in zip(names, blocks, strict=True)
    )


LETTER = _table(
    (12.8, 95.90, 1.2),
    (29, 95.78, 243),
    (140, 87.58, 3.8),
    (1542, 80.97, 55.2),
    (50, 85.9, 47.7),
    (50, 89.9, 15),
)
COVTYPE = _table(
    (18.8, 95.19, 372),
    (35, 89.53, 4095),
    (200, 73.63, 1442),
    (3157, 75.81, 204),
    (50, 82.14, 77400),
    (60, 66.8, 256),
)
USPS = _table(
    (14.4, 95.56, 2),
    (12.01, 95.96, 19),
    (200, 92.53, 4.8),
    (5787, 85.97, 55.3),
    (50, 93.6, 34.5),
    (80, 94.39, 12),
)
KDD = _table(
    (11.8, 92.3, 154), (26, 92.2, 997), (200, 87, 1481), (604, 92.1, 2717), (50, 89.8, 4925), (80, 91.1, 970)
)
A9A = _table(
    (12.5, 83.9, 6.3),
    (32, 81.95, 490),
    (50, 83.9, 1.28),
    (4859, 81.9, 33.17),
    (50, 82.32, 69.1),
    (80, 61.9, 59.9),
)

LEARNED: Values = {
    "scaling": "learned",
    "gamma": 2.0,
    "compact_gamma": 1.0,
    "C": 32.0,
    "landmarks": 16,
    "products": 0,
}
# covtype, letter: what `dcpred tune` chose within the target's budget from the training rows of seed 0
# (covtype then without the products it chose, to train in time). cal_housing, house_16H, mnist, a9a, kdd:
# from `dcpred train` without settings. letter26, usps and cpusmall: by hand, on rows held out of the training
# rows. covtype7: those of covtype.
FOREST: Values = {
    **LEARNED,
    "overlap": 3,
    "gamma": 6.4,
    "compact_gamma": 3.2,
    "C": 2.0,
    "refine_ridge": 1e-4,
}
LETTERS: Values = {**LEARNED, "overlap": 3, "C": 128.0, "refine_ridge": 1e-4, "min_leaf_rows": 14}
RIDGE: Values = {**LEARNED, "ridge": 0.01, "refine_ridge": 0.1, "overlap": 3}
FOREST_POINTS: Mapping[str, Values] = {
    "256 leaves": {"n_leaves": 256},
    "1,024 leaves": {"n_leaves": 1024},
    "4,096 leaves": {"n_leaves": 4096},
    "4,096 leaves, 32 landmarks": {"n_leaves": 4096, "landmarks": 32},
}


def _leaves(*counts: int, landmarks: tuple[int, ...] = (16,)) -> dict[str, Values]:
    word = {1: "leaf"}
    return {
        f"{n:,} {word.get(n, 'leaves')}, {m} landmarks": {"n_leaves": n, "landmarks": m}
        for m in landmarks
        for n in counts
    }


SETS: tuple[DataSet, ...] = (
    DataSet(
        "covtype",
        "covtype, class 2 / rest",
        _covtype_two,
        FOREST,
        FOREST_POINTS,
        "4,096 leaves",
        Target(13, 98.3, 120, stretch=(98.6, 9.6)),
        random_split=True,
        printed=COVTYPE,
    ),
    DataSet(
        "covtype7",
        "covtype, 7 classes",
        _covtype_seven,
        FOREST,
        FOREST_POINTS,
        "4,096 leaves",
        Target(19, 96.8, stretch=(97.6, 19)),
        random_split=True,
        exact_rows=40_000,
    ),
    DataSet(
        "letter",
        "letter, A–M / N–Z",
        _letter_two,
        LETTERS,
        _leaves(16, 64, 256, landmarks=(16, 32)),
        "256 leaves, 16 landmarks",
        Target(12, 97.5, stretch=(98.2, 12)),
        printed=LETTER,
    ),
    DataSet(
        "letter26",
        "letter, 26 classes",
        _letter_all,
        {
            **LETTERS,
            "gamma": 0.5,
            "compact_gamma": 0.25,
            "C": 16.0,
            "distill_weight": 0.5,
            "overlap": 4,
            "min_leaf_rows": 8,
            "refine_steps": 200,
        },
        _leaves(64, 256, landmarks=(16, 32, 48)),
        "256 leaves, 32 landmarks",
        Target(25, 96.5, stretch=(97.5, 25)),
    ),
    DataSet(
        "usps",
        "usps, 10 classes",
        shipped("usps"),
        {**LEARNED, "gamma": 8.0, "compact_gamma": 4.0, "C": 16.0, "refine_epochs": 60, "local_rows": 2_000},
        _leaves(1, landmarks=(16, 32, 64, 96, 128)),
        "1 leaf, 96 landmarks",
        Target(12, 95.3),
        printed=USPS,
    ),
    DataSet(
        "mnist",
        "mnist, 10 classes",
        shipped("mnist"),
        {
            **LEARNED,
            "gamma": 8.0,
            "compact_gamma": 4.0,
            "C": 16.0,
            "refine_ridge": 1e-4,
            "refine_epochs": 40,
            "max_leaf_rows": 100_000,
            "local_rows": 2_000,
        },
        _leaves(1, landmarks=(64, 128, 256, 384)),
        "1 leaf, 256 landmarks",
        Target(20, 98.2),
    ),
    DataSet(
        "a9a",
        "a9a",
        shipped("a9a"),
        {**LEARNED, "C": 16.0, "refine_epochs": 40, "max_leaf_rows": 100_000, "local_rows": 2_000},
        _leaves(1, landmarks=(8, 16, 32, 64)),
        "1 leaf, 32 landmarks",
        Target(10, 85.0),
        exact_rows=32_561,
        printed=A9A,
    ),
    DataSet(
        "kdd",
        "kddcup99 (10 %), normal / attack",
        _kdd,
        {
            "scaling": "standard",
            "products": 0,
            "gamma": 0.004464,
            "compact_gamma": 0.002232,
            "C": 16.0,
            "overlap": 2,
            "refine_ridge": 1e-4,
        },
        _leaves(256, 1024, 4096, landmarks=(8, 16)),
        "4,096 leaves, 16 landmarks",
        Target(10, 92.8),
        printed=KDD,
    ),
    DataSet(
        "cpusmall",
        "cpusmall",
        random_regression("cpusmall", 1),
        {
            **LEARNED,
            "gamma": 1.0,
            "compact_gamma": 0.5,
            "ridge": 0.03,
            "refine_ridge": 1e-4,
            "refine_steps": 500,
        },
        _leaves(1, 4, 16, landmarks=(16, 32)),
        "1 leaf, 32 landmarks",
        Target(10, beats_rivals=True),
        random_split=True,
        regression=True,
        exact_rows=12_000,
    ),
    DataSet(
        "cal_housing",
        "cal_housing, 100,000 dollars",
        random_regression("cal_housing", DOLLARS),
        {**RIDGE, "gamma": 2.0, "compact_gamma": 1.0, "min_leaf_rows": 16},
        _leaves(16, 64, 256, landmarks=(16, 32)),
        "256 leaves, 16 landmarks",
        Target(10, 0.47, beats_rivals=True),
        random_split=True,
        regression=True,
        exact_rows=12_000,
    ),
    DataSet(
        "house_16H",
        "house_16H, 100,000 dollars",
        random_regression("house_16H", DOLLARS),
        {**RIDGE, "gamma": 8.0, "compact_gamma": 4.0, "max_leaf_rows": 20_000},
        _leaves(16, 64, landmarks=(16, 32, 48)),
        "16 leaves, 32 landmarks",
        Target(10, beats_rivals=True),
        random_split=True,
        regression=True,
        exact_rows=12_000,
    ),
)
