"""Tables as people have them: categories, gaps, dates, booleans, ids and labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

CITIES = [f"Ort {i:03d}" for i in range(90)]
COLOURS = ["blue", "gréen", "red"]


def table(n: int = 600, seed: int = 0) -> pd.DataFrame:
    """Columns of every kind, of which the label depends on most: the same rows for the same seed."""
    rng = np.random.default_rng(seed)
    city, colour = rng.integers(0, len(CITIES), n), rng.integers(0, 3, n)
    age, old = rng.integers(18, 90, n).astype(float), rng.random(n) < 0.4
    amount = rng.normal(size=n).round(3)
    effect = np.random.default_rng(99).normal(size=len(CITIES))
    score = effect[city] + (colour == 2) + 0.03 * (age - 50) + old + amount
    frame = pd.DataFrame(
        {
            "id": [f"{i:05d}" for i in range(n)],
            "age": age,
            "colour": np.array(COLOURS, object)[colour],
            "old": old,
            "city": np.array(CITIES, object)[city],
            "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "seen": pd.to_datetime("2021-06-01") + pd.to_timedelta(rng.integers(0, 10**6, n), "s"),
            "amount": amount,
            "label": np.where(score > 0.8, "yes", "no"),
        }
    )
    frame.loc[rng.random(n) < 0.05, "age"] = np.nan
    frame.loc[rng.random(n) < 0.05, "colour"] = None
    frame.loc[rng.random(n) < 0.05, "seen"] = pd.NaT
    frame.loc[rng.random(n) < 0.05, "city"] = None
    return frame


def write_csv(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_csv(path, index=False)
    return path


def plain_rows(frame: pd.DataFrame) -> list[list[Any]]:
    """The features of a table without its column `city`, value by value, as the guide says."""
    rows = []
    for row in frame.itertuples():
        code = 4 if pd.isna(row.colour) else COLOURS.index(row.colour)
        day = row.day
        parts = [(day - pd.Timestamp("1970-01-01")).days, day.weekday(), day.timetuple().tm_yday]
        seen = [np.nan] * 4
        if not pd.isna(row.seen):
            when = row.seen
            seen = [(when - pd.Timestamp("1970-01-01")).days, when.weekday(), when.timetuple().tm_yday]
            seen.append(when.hour * 3600 + when.minute * 60 + when.second)
        rows.append([row.age, code, float(row.old), *parts, *seen, row.amount])
    return rows
