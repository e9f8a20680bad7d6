"""What a prediction will cost, from a model's arrays alone: counts of what the engine does for a row, times nanoseconds.

The nanoseconds were fitted to the 26 models of float32 rows in tests/benchmarks/engine.py, on one machine (x86-64 with AVX-512
and 2 MiB of second-level cache), within 14 % then; those of groups of landmarks were set again since, by models of 16 features
with up to 48 landmarks, which moves none of the 26 by more than 5 %. Those of skipped features were fitted to twenty models more,
12 to 300 features held of 54 to 784, within 11 %, by their times relative to the same models with all features. On other machines
times differ more than their ratio, which is what is predicted.
Rows are taken to fall into leaves as the training rows did, and to be walked down by products: a model that is walked by
distances (dcpred_tasks.packing says which) takes about twice what is predicted.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dcpred_tasks.descent import Tree
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.predictor import Model

LANES = 16  # as in dcpred_tasks.lanes, which would load the compiler
FEW, MANY = 0.65, 24  # as in dcpred_tasks.places
NEAR_BYTES = 2**20  # of centres and landmarks that a core keeps near


@dataclass(frozen=True)
class PredictedCost:
    """Nanoseconds per row by what they go into, and of a linear prediction; their ratio is the cost."""

    convert: float
    descend: float
    landmarks: float
    outputs: float
    linear: float

    @property
    def ns_per_row(self) -> float:
        return self.convert + self.descend + self.landmarks + self.outputs

    @property
    def cost_ratio(self) -> float:
        return self.ns_per_row / self.linear


def linear_ns(n_features: int) -> float:
    """A float32 `X @ w` streaming from memory: BLAS takes longer where rows do not start on 16 bytes."""
    return 1.2 + 0.245 * n_features + (8.0 if n_features % 4 else 0.0)


def predict_cost(model: Model) -> PredictedCost:
    """The cost of float32 rows by the compiled engine."""
    d = model.n_features
    held = held_features(model)
    share = np.maximum(model.leaf_rows, 0) / max(model.leaf_rows.sum(), 1)
    m, p = np.diff(model.landmark_at), np.diff(model.pair_at)
    groups = -(-m // LANES)
    works = float(share @ (m > 0))
    nearby = 4 * LANES * held * (model.tree.n_nodes + int(groups.sum())) / NEAR_BYTES
    far = float(np.log2(max(nearby, 1.0)))  # what is read from farther away grows slowly with how much there is
    levels = float(share @ _depths(model.tree, model.n_leaves))
    if model.kernel.name == "rbf" and len(model.triangle) == 0:
        landmarks = works * 10.0 + float(share @ groups) * (9.0 + held * (0.075 + 0.052 * far))
        if model.n_outputs == 1:  # landmarks that are multiplied with a group of them
            outputs = 0.81 * float(share @ np.minimum(p, m * groups))
        else:
            outputs = 2.33 * float(share @ ((m + p) * -(-_present(model) // LANES)))
    else:  # row by row in double precision
        t = np.diff(model.triangle_at) / np.maximum(m, 1)
        landmarks = float(share @ m) * (8.0 + 0.68 * d)
        outputs = 3.0 * float(share @ p) + float(share @ (t * (15.0 + 1.2 * m)))
    return PredictedCost(
        convert=_convert_ns(d, held, works),
        descend=levels * (12.0 + held * (0.155 + 0.073 * far)),
        landmarks=landmarks,
        outputs=outputs,
        linear=linear_ns(d),
    )


def _present(model: Model) -> FloatArray:
    """Outputs that each leaf has weights for: of several classes those that it has rows of."""
    if len(model.beta) < model.beta_at[-1]:  # an outline of a model, without weights
        return np.full(model.n_leaves, float(model.n_outputs))
    return np.array([float(model.beta[a:b].any(axis=0).sum()) for a, b in pairwise(model.beta_at)])


def held_features(model: Model) -> int:
    """Features that the engine computes with: where many have the factor 0, the others."""
    used = int(np.count_nonzero(model.scaling.factor))
    return used if model.n_features >= MANY and used <= FEW * model.n_features else model.n_features


def _convert_ns(n_features: int, held: int, works: float) -> float:
    """Rows are converted twice where there are landmarks; whole rows, or vectors of 16 features picked out of them."""
    if held == n_features:
        return (1.0 + works) * (2.0 + 0.365 * n_features)
    picked = -(-max(held, 1) // LANES) * LANES
    return (1.0 + works) * (0.362 * n_features + 0.249 * picked - 4.0)


def _depths(tree: Tree, n_leaves: int) -> FloatArray:
    """Levels down to each leaf, a mean where several centres lead to one."""
    total, count = np.zeros(n_leaves), np.zeros(n_leaves)
    depth = np.ones(max(tree.n_nodes, 1))
    for node in range(tree.n_nodes):  # a node comes before its children
        below = tree.children[tree.starts[node] : tree.starts[node + 1]]
        depth[below[below >= 0]] = depth[node] + 1
        np.add.at(total, ~below[below < 0], depth[node])
        np.add.at(count, ~below[below < 0], 1)
    return total / np.maximum(count, 1)
