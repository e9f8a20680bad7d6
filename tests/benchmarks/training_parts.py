"""Where the processor time of a training goes, part by part, and the quality of its models on held-out rows.

    python tests/benchmarks/training_parts.py [--sets made,phoneme,...] [--seeds 3] [--search]
                                              [--shapes default,...] [--json FILE] [--quick]

Each shape of SHAPES is trained on each set; --search fits without settings instead. Seconds are of all
threads, and a part has none of another part that it calls. Set OMP_NUM_THREADS=1. Sets are those of
halves.py, and `made`: 5,000 × 20 of two classes. Quality is accuracy in percent, or R² times 100. For two
versions of the code run this file with each in PYTHONPATH, in turn, with --json, which adds a line for each
run to a file.
"""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from common import Table, data_folder
from halves import ALL
from sets import Split
from sklearn.datasets import make_classification

from dcpred import DCPredClassifier, DCPredRegressor, Settings

SHAPES: dict[str, dict[str, Any]] = {
    "leaves": {},
    "one leaf": {"n_leaves": 1, "landmarks": 64, "products": 0},
    "learned": {"n_leaves": 1, "landmarks": 64, "products": 0, "scaling": "learned", "loss": "logistic"},
    "small leaves": {"leaf_rows": 125, "overlap": 3, "loss": "logistic"},
}
# Functions by module, with the part that their own time counts as; those that a version lacks are left out.
PARTS: dict[str, dict[str, str]] = {
    "learned_scaling": {
        "learn_metric": "scaling: rest",
        "neighbours": "scaling: neighbours",
        "learn": "scaling: steps",
        "judge": "scaling: judging",
    },
    "leaf": {
        "fit_leaf": "leaf: rest",
        "local_machine": "leaf: local SVM",
        "slack_landmarks": "k-means",
        "_basis": "leaf: basis",
        "refine": "leaf: refinement",
        "_nearest": "leaf: nearest to the SVM",
    },
    "clusters": {"k_means": "k-means"},
    "held_out": {"fit_and_judge": "leaf: judging"},
    "tree_boosting": {
        "borders_of": "trees: bins",
        "bins_of": "trees: bins",
        "boosted": "trees: growth",
    },
    "term_fits": {"fit_terms": "trees: rest"},
    "calibration": {"fit_calibration": "calibration"},
    "partition": {"divide": "tree", "additive_map": "additive maps", "fit_map": "maps"},
    "in_memory": {
        "reference_decisions": "reference models",
        "_own_rows": "rows to leaves",
        "_overlap_rows": "overlap rows",
    },
}


class Stopwatch:
    """Processor seconds of functions, each without those that it calls."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.stack, self.lock = threading.local(), threading.Lock()

    def watch(self, name: str, part: str, module: Any) -> None:
        """Count a function, under each name that a module of dcpred has for it."""
        original = getattr(module, name, None)
        if original is None:
            return
        counted = self._counted(original, part)
        for one in list(sys.modules.values()):
            if getattr(one, "__name__", "").startswith("dcpred") and getattr(one, name, None) is original:
                setattr(one, name, counted)

    def _counted(self, original: Callable[..., Any], part: str) -> Callable[..., Any]:
        @wraps(original)
        def counted(*given: Any, **named: Any) -> Any:
            inner = self.stack.__dict__.setdefault("inner", [])
            begin = time.thread_time()
            inner.append(0.0)
            try:
                return original(*given, **named)
            finally:
                spent = time.thread_time() - begin
                own = spent - inner.pop()
                if inner:
                    inner[-1] += spent
                with self.lock:
                    self.seconds[part] += own
                    self.calls[part] += 1

        return counted


def split_of(name: str, seed: int) -> Split:
    if name != "made":
        return ALL[name].load(data_folder(), seed)
    kind = {"n_informative": 8, "n_redundant": 0, "n_clusters_per_class": 3, "random_state": seed}
    X, y = make_classification(11_000, 20, **kind)
    return Split(X[:5_000], y[:5_000], X[5_000:], y[5_000:])


def settings_of(shape: dict[str, Any], regression: bool, n_rows: int) -> dict[str, Any]:
    """The arguments of an estimator."""
    values = {"landmarks": 16, **shape}
    if rows := values.pop("leaf_rows", 0):
        values["n_leaves"] = 1 << max(round(np.log2(n_rows / rows)), 0)
    rare = {key: values.pop(key) for key in ("products", "overlap") if key in values}
    if regression:
        values.pop("loss", None)
    return values | ({"settings": Settings(**rare)} if rare else {})


def run(name: str, shape: str, seed: int, quick: bool, watch: Stopwatch) -> tuple[float, float]:
    """Processor seconds of a training, and the quality of its model."""
    split = split_of(name, seed)
    split = split.first(400) if quick else split
    X, X_test = (np.ascontiguousarray(rows) for rows in (split.X, split.X_test))
    regression = name in ALL and ALL[name].regression
    kind = DCPredRegressor if regression else DCPredClassifier
    settings = settings_of(SHAPES[shape], regression, len(X)) if shape else {}
    begin = time.process_time()
    model = kind(random_state=seed, **settings).fit(X, split.y)
    seconds = time.process_time() - begin
    watch.seconds["rest"] += seconds
    return seconds, 100 * float(model.score(X_test, split.y_test))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default="made,phoneme,churn,texture,adult,magic,krkopt")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--search", action="store_true", help="without settings")
    parser.add_argument("--json", type=Path, help="a file that gets a line for each run")
    parser.add_argument("--quick", action="store_true", help="400 rows of made, one seed")
    args = parser.parse_args()
    if args.quick:
        args.sets, args.seeds = "made", 1
    run("made", "learned", 0, True, Stopwatch())  # Machine code is made or read here.
    watch = Stopwatch()
    for module, functions in PARTS.items():
        for function, part in functions.items():
            watch.watch(function, part, sys.modules[f"dcpred_tasks.training.{module}"])
    parts: dict[str, Counter[str]] = {}
    for name in args.sets.split(","):
        for shape in [""] if args.search else args.shapes.split(","):
            watch.seconds.clear()
            runs = [run(name, shape, seed, args.quick, watch) for seed in range(args.seeds)]
            watch.seconds["rest"] -= sum(v for part, v in watch.seconds.items() if part != "rest")
            seconds, quality = np.mean(runs, axis=0)
            label = f"{name}, {shape or 'search'}"
            parts[f"{label}: {seconds:.2f} s, {quality:.2f}"] = Counter(watch.seconds)
            print(label, f"{seconds:.2f} s", f"{quality:.2f}", file=sys.stderr, flush=True)
            if args.json:
                with args.json.open("a", encoding="utf-8") as file:
                    own = {part: value / args.seeds for part, value in watch.seconds.items()}
                    line = {"set": name, "shape": shape, "runs": runs, "parts": own}
                    file.write(json.dumps(line) + "\n")
    names = sorted({part for own in parts.values() for part in own})
    table = Table("training: processor seconds, quality", *names)
    for label, own in parts.items():
        table.add(label, *(f"{100 * own[part] / sum(own.values()):.0f} %" for part in names))
    table.show()


if __name__ == "__main__":
    main()
