"""Random oblivious trees, and the definition of how one is grown."""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.oblivious_trees import NEVER, ObliviousTrees


def random_trees(
    seed: int, n_features: int, n_outputs: int = 1, n_trees: int = 20, depth: int = 6, most_borders: int = 40
) -> ObliviousTrees:
    """Trees of features around 0; some levels ask for nothing."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most_borders + 1, n_features)
    borders = [np.unique(rng.normal(size=n).astype(np.float32)) for n in counts]
    for edges in borders[::3]:
        edges[:1] = -np.inf
    feature = rng.integers(0, n_features, (n_trees, depth)).astype(np.int32)
    sizes = np.array([len(edges) for edges in borders])
    least = (1 + rng.integers(0, 2**30, (n_trees, depth)) % np.maximum(sizes[feature], 1)).astype(np.uint8)
    least[rng.random((n_trees, depth)) < 0.05] = NEVER
    largest = 2.0 ** rng.integers(3, 16, (n_trees, 1, 1))
    leaf = rng.uniform(-largest, largest, (n_trees, n_outputs, 1 << depth)).clip(-32767, 32767)
    return ObliviousTrees(
        border_at=np.cumsum([0, *sizes]).astype(np.int64),
        border=np.concatenate(borders),
        feature=feature,
        bin=least,
        leaf=leaf.astype(np.int16),
        scale=2.0 ** rng.integers(-20, 3, n_outputs),
        bias=rng.normal(size=n_outputs),
    )


def grown(
    bins: NDArray[np.uint8],
    whole: IntArray,
    rows: IntArray,
    columns: IntArray,
    depth: int,
    ridge: float,
) -> tuple[list[int], list[int]]:
    """Features and bins of the questions of a tree, by whole gradients (n_rows, n_outputs, 2)."""
    leaf, asked, least = np.zeros(len(bins), np.int64), [], []
    n_bins = -(-(int(bins.max()) + 1) // 16) * 16

    def score(below: FloatArray, total: FloatArray) -> FloatArray:
        g, h = below
        other = total - below
        return g * g / (h + ridge) + other[0] * other[0] / (other[1] + ridge)

    for level in range(depth):
        gains = np.zeros((len(columns), n_bins))
        for number in range(1 << level):
            own = rows[leaf[rows] == number]
            for at, column in enumerate(columns):
                for output in range(whole.shape[1]):
                    sums = np.zeros((n_bins, 2), np.int64)
                    np.add.at(sums, bins[own, column], whole[own, output])
                    below = np.vstack([np.zeros(2, np.int64), np.cumsum(sums, axis=0)]).astype(float).T
                    gains[at] += score(below[:, :-1], below[:, -1:])
        best = int(gains.argmax())
        if not gains.flat[best] > gains[0, 0]:
            break
        asked.append(int(columns[best // n_bins])), least.append(best % n_bins)
        leaf |= (bins[:, asked[-1]] >= least[-1]).astype(np.int64) << level
    rest = depth - len(asked)
    return asked + rest * [int(columns[0])], least + rest * [NEVER]
