"""Rare classes: how well rows are ranked and how honest probabilities are, beside boosting and a linear one.

    python tests/benchmarks/rare.py [--seeds 3] [--rows 20000] [--quick]

The made-up table has twelve features, of which four matter (the largest AUC that is possible is about 0.82);
its rates are those of the rows. The others are real tables, one class of each against the rest, with a
quarter of the rows held out. `dcpred` is without settings, `64 leaves` with these alone, `boosting` that of
scikit-learn with default settings, CatBoost with early stopping on a fifth of the training rows. The second
table is of one leaf with and without `class_weight`: the mean probability of the made-up rows, and the
calibration error by ten quantiles of the prediction.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import Table, data_folder
from engine import optional, say
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dcpred import DCPredClassifier, Settings

RATES = {0.003: -7.45, 0.01: -6.2, 0.02: -5.45, 0.042: -4.55, 0.1: -3.4, 0.47: -0.78}  # rates by intercepts
REAL = {
    **{"letter": 0, "satimage": 4, "shuttle": 4, "ijcnn1": 1, "covtype": 4},
    **{"tables/page_blocks": 2, "tables/optdigits": 3, "tables/yeast": 4, "tables/ann_thyroid": 2},
}
TEST_ROWS, MOST_ROWS = 40_000, 20_000
Rows = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def made(n: int, rate: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 12))
    z = RATES[rate] + X[:, 0] + 0.8 * X[:, 1] * X[:, 2] + 0.8 * np.abs(X[:, 3])
    return X, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(np.int8)


def real(folder: Path, name: str, seed: int, most: int) -> Rows:
    """One class of a table against the rest: the one whose number REAL gives, by its share, ascending."""
    with np.load(folder / f"{name}.npz") as data:
        X, y = (np.concatenate([data[part] for part in data.files if part[0] == name]) for name in "Xy")
    order = np.random.default_rng(seed).permutation(len(X))[:most]
    X, y = X[order].astype(float), y[order]
    classes, counts = np.unique(y, return_counts=True)
    able = np.flatnonzero((counts >= 24) & (counts < 0.1 * len(y)))
    chosen = classes[able[np.argsort(counts[able])[REAL[name] % max(len(able), 1)]]]
    target, cut = (y == chosen).astype(np.int8), 3 * len(X) // 4
    return X[:cut], target[:cut], X[cut:], target[cut:]


def cases(seeds: int, rows: int, test_rows: int, names: list[str]) -> Iterator[tuple[str, list[Rows]]]:
    for rate in RATES:
        parts = [(*made(rows, rate, 2 * s), *made(test_rows, rate, 2 * s + 1)) for s in range(seeds)]
        yield f"made up, {100 * rate:g} %", parts
    for name in names:
        found = [real(data_folder(), name, s, min(rows, MOST_ROWS)) for s in range(seeds)]
        share = np.mean([y.mean() for _, y, _, _ in found])
        yield f"{name.removeprefix('tables/')}, {100 * share:.1f} %", found


class Boosted:
    """CatBoost with early stopping."""

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> "Boosted":
        train, valid, y_train, y_valid = train_test_split(X, y, test_size=0.2, random_state=0, stratify=y)
        options = {"random_seed": 0, "thread_count": 1, "allow_writing_files": False, "verbose": False}
        self.model = optional("catboost").CatBoostClassifier(early_stopping_rounds=50, **options)
        self.model.fit(train, y_train, eval_set=(valid, y_valid))
        return self

    def predict_proba(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self.model.predict_proba(X))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--tables", default=",".join(REAL), help="real ones")
    parser.add_argument("--quick", action="store_true", help="one seed, 1,500 rows, settings by hand")
    args = parser.parse_args()
    quick = {"n_leaves": 2, "landmarks": 4, "settings": Settings(refine_steps=10)}
    by_hand: dict[str, Any] = quick if args.quick else {}
    systems: dict[str, Any] = {
        "dcpred": partial(DCPredClassifier, random_state=0, **by_hand),
        "64 leaves": partial(DCPredClassifier, random_state=0, **(by_hand | {"n_leaves": 64})),
        "boosting": partial(HistGradientBoostingClassifier, random_state=0),
        "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    }
    if optional("catboost"):
        systems["CatBoost"] = Boosted
    sizes = (1, 1_500, 1_500) if args.quick else (args.seeds, args.rows, TEST_ROWS)
    table = Table("table", "system", "AUC", "average precision", "log-loss")
    for name, parts in cases(*sizes, [] if args.quick else args.tables.split(",")):
        for system, make in systems.items():
            found = []
            for X, y, new, true in parts:
                p = make().fit(X, y).predict_proba(new)[:, 1]
                ranks = roc_auc_score(true, p), average_precision_score(true, p)
                found.append((*ranks, log_loss(true, p, labels=[0, 1])))
            mean, off = np.mean(found, axis=0), np.std(found, axis=0)
            line = name, system, *(f"{m:.4f} ± {s:.4f}" for m, s in zip(mean, off, strict=True))
            table.add(*line)
            say(*line)
    table.show()
    weighted(
        *sizes,
        quick if args.quick else {"n_leaves": 1, "landmarks": 32, "scaling": "learned", "loss": "logistic"},
    )


def weighted(seeds: int, rows: int, test_rows: int, settings: dict[str, Any]) -> None:
    """Probabilities with and without weights of classes."""
    table = Table(
        "rate, draw", "rate of test rows", "mean", "balanced", "ratio", "calibration error", "balanced"
    )
    for rate in (0.01, 0.042, 0.1):
        for seed in range(seeds):
            X, y = made(rows, rate, 2 * seed)
            new, true = made(test_rows, rate, 2 * seed + 1)
            p, q = (
                DCPredClassifier(class_weight=weight, random_state=0, **settings)
                .fit(X, y)
                .predict_proba(new)[:, 1]
                for weight in (None, "balanced")
            )
            errors = (calibration_error(true, one) for one in (p, q))
            means = f"{p.mean():.5f}", f"{q.mean():.5f}", f"{q.mean() / p.mean():.3f}"
            table.add(
                f"{100 * rate:g} %, {seed}", f"{true.mean():.5f}", *means, *(f"{e:.4f}" for e in errors)
            )
    table.show()


def calibration_error(true: NDArray[Any], p: NDArray[Any]) -> float:
    """The mean distance of predicted and observed rates by tenths of the rows, in the order of p."""
    parts = np.array_split(np.argsort(p, kind="stable"), 10)
    return float(sum(abs(p[k].mean() - true[k].mean()) * len(k) for k in parts) / len(p))


if __name__ == "__main__":
    main()
