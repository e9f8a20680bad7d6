"""The 47 data sets of all_tables.py, and the half of them that the design of a search may use.

Names are sorted within the thirty tables and within the seventeen sets of more_sets.py; those at even places
(0, 2, 4, …) are DEVELOPMENT, the others REPORTED. letter and letter26 have the same rows with other targets,
and so have covtype and covtype7; the rule puts one of each pair in each half.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from more_sets import EVERY
from numpy.typing import NDArray
from sets import Split
from sklearn.model_selection import train_test_split

DEVELOPMENT = (
    "201_pol",
    "344_mv",
    "529_pollen",
    "547_no2",
    "adult",
    "ann_thyroid",
    "dna",
    "krkopt",
    "mfeat_zernike",
    "optdigits",
    "phoneme",
    "segmentation",
    "splice",
    "vehicle",
    "wine_quality_white",
    "a9a",
    "connect_4",
    "covtype7",
    "elec2",
    "ijcnn1",
    "letter",
    "magic",
    "protein",
    "usps",
)
REPORTED = (
    "225_puma8NH",
    "503_wind",
    "537_houses",
    "564_fried",
    "allhypo",
    "churn",
    "german",
    "mfeat_fourier",
    "nursery",
    "page_blocks",
    "ring",
    "spambase",
    "texture",
    "vowel",
    "yeast",
    "cal_housing",
    "covtype",
    "cpusmall",
    "house_16H",
    "kdd",
    "letter26",
    "mnist",
    "satimage",
)
REGRESSIONS = (
    "201_pol",
    "225_puma8NH",
    "344_mv",
    "503_wind",
    "529_pollen",
    "537_houses",
    "547_no2",
    "564_fried",
)
TEST_SHARE = 0.25


@dataclass(frozen=True)
class Named:
    """A data set by its name."""

    name: str
    load: Callable[[Path, int], Split]  # of the folder and a seed
    regression: bool
    random_split: bool  # False: it has a split of its own


def parted(X: NDArray[Any], y: NDArray[Any], regression: bool, seed: int) -> Split:
    """Training and test rows, of every class its share."""
    A, B = train_test_split(
        np.arange(len(y)), test_size=TEST_SHARE, random_state=seed, stratify=None if regression else y
    )
    return Split(X[A], y[A], X[B], y[B])


def _table(name: str) -> Named:
    regression = name in REGRESSIONS

    def load(folder: Path, seed: int) -> Split:
        with np.load(folder / "tables" / f"{name}.npz") as data:
            return parted(data["X"], data["y"], regression, seed)

    return Named(name, load, regression, True)


_SEVENTEEN = {s.name: Named(s.name, s.load, s.regression, s.random_split) for s in EVERY}
# The tables first, each group by name.
ALL = {
    name: _SEVENTEEN[name] if name in _SEVENTEEN else _table(name)
    for name in sorted((*DEVELOPMENT, *REPORTED), key=lambda name: (name in _SEVENTEEN, name))
}
