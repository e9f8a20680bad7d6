"""Contributions of features: whether their mean sizes rank features as permutation importances do, whether
they sum to the decision, and what a row takes.

    .venv/bin/python tests/benchmarks/contributions.py [--quick] [--data NAME,…] [--rows N]

Estimators with default settings, seed 0: at most 6,000 rows to train on. The permutation importance of a
feature is the loss (mean squared error; log-loss) that shuffling it adds on at most 4,000 other rows, in the
mean of five shuffles. The rank correlation is Spearman's, over all features; beside it that of
`distance_shares_`. Sums of contributions are decision values of the engine; the last but one column is the
largest difference from the definition, which is the engine's rounding, as a share of 1 + |decision|.
Microseconds are processor time in one thread.
"""

import argparse
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from common import Table, data_folder
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.inspection import permutation_importance

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred import DCPredClassifier, DCPredRegressor
from dcpred_tasks.model.compact_model import score_rows
from dcpred_tasks.process import one_thread
from dcpred_tasks.scoring.labels import score_with_leaves
from support.searches import few_candidates

REGRESSION = ("cal_housing", "cpusmall", "house_16H")
SETS = (*REGRESSION, "magic", "elec2", "satimage")
TEST_ROWS, TIMED_ROWS, SHUFFLES = 4_000, 500, 5


def rows_of(folder: Path, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """All rows of a set in random order, of both parts where it has two."""
    path = folder / f"{name}.npz"
    with np.load(path if path.exists() else folder / "tables" / f"{name}.npz") as data:
        parts = ("",) if "X" in data.files else ("_train", "_test")
        X, y = (np.concatenate([data[f"{k}{part}"] for part in parts]) for k in "Xy")
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order].astype(float) if name in REGRESSION else y[order]


def line(folder: Path, name: str, n_rows: int, n_new: int) -> list[str]:
    X, y = rows_of(folder, name)
    n = min(n_rows, 3 * len(y) // 4)
    kind = DCPredRegressor if name in REGRESSION else DCPredClassifier
    fitted = kind(random_state=0).fit(X[:n], y[:n])
    new, target = X[n : n + n_new], y[n : n + n_new]
    loss = "neg_mean_squared_error" if name in REGRESSION else "neg_log_loss"
    shuffled = permutation_importance(
        fitted, new, target, scoring=loss, n_repeats=SHUFFLES, random_state=0
    ).importances_mean
    ranks = [
        spearmanr(shuffled, found).statistic
        for found in (fitted.feature_importances_, fitted.distance_shares_)
    ]
    timed = new[:TIMED_ROWS]
    score_with_leaves(fitted.model_, timed[:1], reasons=True)
    with one_thread():
        begin = time.process_time()
        rows = score_with_leaves(fitted.model_, timed, reasons=True)
        seconds = time.process_time() - begin
    right = score_rows(fitted.model_, timed)[0]
    right = right.max(axis=1) if fitted.model_.n_outputs > 1 else right[:, 0]
    off = np.abs(rows.contributions.sum(axis=1) - right) / (1 + np.abs(right))
    basis = fitted.model_.basis(0).size
    ranked = [f"{rank:.2f}" for rank in ranks]
    return [
        name,
        str(X.shape[1]),
        str(basis),
        *ranked,
        f"{off.max():.0e}",
        f"{1e6 * seconds / len(timed):.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--data", default=",".join(SETS))
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    names, n_rows, n_new = asked.data.split(","), asked.rows, TEST_ROWS
    if asked.quick:
        names, n_rows, n_new = ["cal_housing", "magic"], 300, 100
    table = Table(
        "data",
        "features",
        "basis functions",
        "rank correlation",
        "of distance shares",
        "sum against definition",
        "µs a row",
    )
    with few_candidates() if asked.quick else nullcontext():
        for name in names:
            table.add(*line(data_folder(), name, n_rows, n_new))
    table.show()


if __name__ == "__main__":
    main()
