"""The data sets that without_settings.py adds to those of sets.py: the search was not made with them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from sets import SETS, SHARE_TRAINED_ON, DataSet, Split, Target, random_regression, shipped

BUDGET = 20.0  # linear predictions, or 100 ns a row


def _random(name: str) -> Callable[[Path, int], Split]:
    def load(folder: Path, seed: int) -> Split:
        with np.load(folder / f"{name}.npz") as data:
            X, y = data["X"], data["y"]
        order = np.random.default_rng(seed).permutation(len(y))
        A, B = np.split(order, [int(SHARE_TRAINED_ON * len(order))])
        return Split(X[A], y[A], X[B], y[B])

    return load


def _other(
    name: str,
    title: str,
    load: Callable[[Path, int], Split],
    quality: float,
    *,
    regression: bool = False,
    random_split: bool = True,
) -> DataSet:
    return DataSet(
        name, title, load, {}, {}, "", Target(BUDGET, quality), random_split, regression, exact_rows=15_000
    )


OTHERS = (
    _other("ijcnn1", "ijcnn1", shipped("ijcnn1"), 99.0, random_split=False),
    _other("satimage", "satimage, 6 classes", _random("satimage"), 92.0),
    _other("connect_4", "connect_4, 3 classes", _random("connect_4"), 86.0),
    _other("elec2", "elec2, random split", _random("elec2"), 93.5),
    _other("magic", "magic", _random("magic"), 88.0),
    # R² of 0.74
    _other("protein", "protein", random_regression("protein", 1), 0.394, regression=True),
)
EVERY = (*SETS, *OTHERS)
