"""Landmarks of weighted rows: α of a local SVM holds the weight of its row. Before, the weight counted three
times among the importances, and not in the Nyström factor; now once in both. 1,500 rows, 5 % positives,
class_weight=balanced, 12 landmarks.

    python weights.py [--quick]
"""

import sys
from typing import Any

import numpy as np
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from dcpred_tasks.model.compact_model import score_rows
from dcpred_tasks.training import leaf
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.partition import class_factors
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows

SEEDS = 12
GIVEN = {"class_weight": "balanced", "n_leaves": 1, "landmarks": 12, "products": 0, "calibrate": False}
PICK, ROOT = leaf.pick_landmarks, leaf.nystrom_root


def rows(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.05).astype(np.int64)
    X = rng.normal(size=(n, 6))
    X[:, 0] += 1.2 * y
    X[:, 1] = np.where(y == 1, np.abs(X[:, 1]) + 0.3, X[:, 1])
    return X, y


def thrice(X: Any, dual: Any, weight: Any, settings: Any, seed: int) -> Any:
    """Landmarks as they were chosen before: by α with the weight in it, over its mean without weights."""
    alpha2 = ((dual * (weight / weight.max())[:, None]) ** 2).sum(axis=1)
    floor = settings.landmark_floor
    importance = ((1 - floor) * alpha2 / alpha2.mean() + floor) * weight
    start: Any = "random" if settings.refine else "k-means++"
    return leaf.k_means(X, settings.landmarks, settings.seed + seed, importance, start)


def without_weights(C_I: Any, G_II: Any, weight: Any = None) -> Any:
    return ROOT(C_I, G_II)


def found(refine: bool) -> tuple[float, float]:
    settings = make_settings(GIVEN | {"refine": refine})
    scores = []
    for seed in range(2 if "--quick" in sys.argv else SEEDS):
        X, y = rows(1_500, seed)
        survey = survey_rows(X, y, None, 0, "classification")
        given = X, y, np.ones(len(y)), class_factors(survey, settings), survey, settings, (0, 1)
        other, truth = rows(6_000, 100 + seed)
        decision = score_rows(train_rows(*given), other)[0][:, 0]
        scores.append((balanced_accuracy_score(truth, decision > 0), roc_auc_score(truth, decision)))
    return tuple(np.mean(scores, axis=0))


def main() -> None:
    print("| refine | weight counts | balanced accuracy | AUC |\n|---|---|---|---|", flush=True)
    for refine in (False, True):
        for name, pick, root in (("three times", thrice, without_weights), ("once", PICK, ROOT)):
            leaf.compact_model.__defaults__, leaf.nystrom_root = (pick,), root
            accuracy, auc = found(refine)
            print(f"| {str(refine).lower()} | {name} | {100 * accuracy:.1f} % | {auc:.3f} |", flush=True)


if __name__ == "__main__":
    main()
