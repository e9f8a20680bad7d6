"""Which trees tuning tries and which of their leaves it looks at: arithmetic without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.leaf_arrays import outlined
from dcpred_tasks.scratch.training_job import Sample
from dcpred_tasks.training.division import Division
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.tree_fitting import flatten
from dcpred_tasks.training.trial import HELD_OUT_SHARE

TREES = (1, 4, 16, 64, 256, 1024, 4096)  # numbers of leaves; whole levels of 16 are the cheapest to walk down
FEW_ROWS = 10_000  # Up to so many rows scalings beside the learned one are tried with large leaves, too.
LEAST_ROWS, MOST_ROWS = 40, 2_500  # mean rows of a leaf, from and to
MOST_TREES = 3  # trees that are tried within the budget
# Beside one leaf of all rows a short search tries a single tree, of leaves of a middle size: with so many
# features one leaf was better on every set that was looked at (usps, mnist, a9a), and trees take most time.
TREES_BESIDE_WHOLE, VERY_WIDE_FEATURES = 1, 128  # below so many features there is time for one more
# With more rows than this a short search tries two trees, not three: the third has the largest leaves, which
# take the most time.
MANY_ROWS = 100_000
FLOOR_ROWS = 50_000  # sampled rows that whole models are trained and judged on (floor.py)
HELD_ROWS = 6_000  # rows that settings are judged on
LEAVES = (6, 256)  # leaves of a tree that are looked at, from and to
OWN_ROWS = 1_000  # rows of a leaf that is looked at, about
LOOKED_AT_NUMBERS = 10_000_000  # rows × features of the leaves that are looked at, without halos, at most
TRIED_ROWS = 3_000  # rows of such a leaf together with its halo, about
# One leaf of all rows, with many landmarks, suits wide rows, which a tree divides poorly (usps, mnist).
WHOLE_FEATURES = 64  # Rows with at least so many features are wide.
# For other rows it is tried where they are so few that training it, which one core does, is short: where
# labels are noisy (magic), small leaves learn the noise.
WHOLE_FEW_ROWS = 60_000
WHOLE_BYTES = 3 * 2**29  # memory that its rows and what is computed of them may take
# Up to so many rows a quick search refines one leaf of all by L-BFGS, which is as fast and better there.
WHOLE_BY_DESCENT = 5_000
WHOLE_ROWS, WHOLE_NUMBERS = 16_000, 12_000_000  # limits of what is looked at: rows, and rows × features
# The error of a trial on a share of the rows of its leaves, times share**power, is taken for the error of a
# training on all. Of wide rows half of the fall that mnist shows from 12,000 to 50,000 rows (3.4 to 2.3 %);
# of others what connect_4 shows in one leaf from 16,000 to 54,000 rows (17.6 to 16.8 %).
WIDE_ERROR_POWER, ERROR_POWER = 0.15, 0.04
WHOLE: Mapping[str, Any] = {"n_leaves": 1, "overlap": 1, "refine_epochs": 40}
# Rows of a local machine. 16 leaves of cal_housing and house_16H err as little with 2,000 as with 8,000, and
# train in a third of the time (RMSE 0.467 and 0.466, 0.344 and 0.342, three splits).
LOCAL_ROWS = 2_000
# Ridges that searches start from. With smaller ones leaves of numbers seem worse than they are, small ones
# more so, and trees are given up before larger ones are tried (cal_housing).
START_RIDGE, NUMBERS_RIDGE, SMALL_LEAF_RIDGE = 1e-3, 1e-2, 1e-1
SMALL_LEAF = 300  # rows
LARGER = 1.25  # a leaf may have this many times the rows that the sample foretells
MAX_LEAF_ROWS = 10**6
# A base scaling stands in for the standard one where neighbours lose at most so many times as much with it: a
# smaller difference is chance.
BASE_WORTH = 0.95


def tree_sizes(n_rows: int) -> tuple[list[int], list[int]]:
    """Numbers of leaves that may be tried, the largest first; and smaller ones, for budgets below those."""
    sizes = [n for n in reversed(TREES) if n_rows / n >= LEAST_ROWS] or [1]
    fine = [n for n in sizes if n_rows / n <= MOST_ROWS] or sizes[:1]
    return fine, [n for n in sizes if n not in fine]


def tries_whole(n_rows: int, n_features: int, start: Settings) -> bool:
    """Whether one leaf of all rows is worth a look beside trees, and allowed."""
    return (
        (n_features >= WHOLE_FEATURES or n_rows <= WHOLE_FEW_ROWS)
        and n_rows > MOST_ROWS
        and undivided(n_rows, n_features, 1, start) is not None
    )


def undivided(n_rows: int, n_features: int, overlap: int, start: Settings) -> Settings | None:
    """Settings with which a leaf of n_rows rows is not divided in training, with as much of the overlap as
    there is room for; None where it is too large for a task, or for a limit that was asked for.
    """
    room = min(MAX_LEAF_ROWS, WHOLE_BYTES // (32 * n_features))
    if start.max_leaf_rows != Settings().max_leaf_rows:
        room = min(room, start.max_leaf_rows)
    if n_rows > room:
        return None
    overlap = min(overlap, room // n_rows)
    return replace(start, overlap=overlap, max_leaf_rows=max(start.max_leaf_rows, overlap * n_rows))


def start_ridge(task: str, rows: float) -> float:
    """The ridge that a search starts from in leaves of so many rows."""
    if task == "classification":
        return START_RIDGE
    return SMALL_LEAF_RIDGE if rows <= SMALL_LEAF else NUMBERS_RIDGE


def best_base(scores: dict[str, float], task: str) -> list[str]:
    """The scaling to try beside the learned one, by scores on held-out rows; none without scores."""
    if "standard" not in scores:
        return sorted(set(scores) - {"learned"}, key=scores.__getitem__)[-1:]
    loss = {name: (1.0 if task == "regression" else 0.0) - score for name, score in scores.items()}
    best = min((name for name in loss if name != "learned"), key=loss.__getitem__)
    return [best if loss[best] < BASE_WORTH * loss["standard"] else "standard"]


@dataclass(frozen=True)
class TreeSample:
    """The rows that trees are grown on."""

    rows: Sample
    """All that were sampled."""
    other_scalings: list[str]
    """Names of the scalings to try beside the learned one. The best base is among them, with all features:
    neighbours may agree without features that a kernel needs."""
    thinned: bool
    """Whether the learned scaling is that base without some of the features."""


@dataclass(frozen=True)
class GrownTree:
    """A tree that is tried."""

    start: Settings
    """Settings that the search in it starts from."""
    division: Division
    counts: IntArray
    """Sampled rows of every leaf, (n_leaves,)."""
    leaves: IntArray
    """Numbers of the leaves that are looked at, (n_looked_at,), in the order in which they were drawn."""
    draws: IntArray
    """Draws after which each of those was found, (n_looked_at,)."""
    error_factor: float
    """Factor by which a trial's error is expected to shrink once all rows train."""
    most_overlap: int
    """Most leaves that a row may help to train."""

    def sampling_weights(self, n: int) -> FloatArray:
        """Share of all rows that each of the first n of `leaves` stands for (Horvitz and Thompson)."""
        share = self.counts / max(int(self.counts.sum()), 1)
        some = share[self.leaves[:n]]
        if n >= np.count_nonzero(self.counts):
            return some
        return np.asarray(some / (1.0 - (1.0 - some) ** self.draws[n - 1]))


DRAWS = 200_000  # sampled rows that are drawn at most


def draw_leaves(
    leaf: NDArray[np.int32], n_leaves: int, n_rows: int, n_features: int, seed: int
) -> tuple[IntArray, IntArray]:
    """Numbers of leaves that are drawn in proportion to their rows, and after how many draws each was found.
    Both are (n_drawn,). What is drawn are rows of the sample, the same for every tree, so that the first
    leaves of all trees lie in the same places and their errors can be compared.

    leaf        leaf of every sampled row, (n_sampled,)
    n_rows      rows of the data
    n_features  features of the data
    """
    rows = min(HELD_ROWS / HELD_OUT_SHARE, LOOKED_AT_NUMBERS / n_features)
    wanted = int(np.clip(rows / max(min(n_rows / max(n_leaves, 1), OWN_ROWS), 1.0), *LEAVES))
    drawn = leaf[np.random.default_rng(seed).integers(len(leaf), size=DRAWS)]
    found, first = np.unique(drawn, return_index=True)
    order = np.argsort(first)[:wanted]
    leaves, draws = found[order], first[order] + 1
    missed = np.setdiff1d(leaf, found)[: max(wanted - len(leaves), 0)]
    return np.append(leaves, missed), np.append(draws, np.full(len(missed), DRAWS))


def outline(settings: Settings, m: int, division: Division, counts: IntArray, outputs: int) -> Model:
    """A model with the shape that settings give, for what it would cost; its numbers mean nothing."""
    tree = flatten(division.root)
    n = tree.n_leaves
    p = min(settings.products, m * (m + 1) // 2)
    rows = {"landmark": m, "product": p, "basis": m + p}
    sizes = {"feature": len(division.scaling.shift), "output": outputs}
    arrays: dict[str, Any] = outlined(Model, n, rows, sizes)
    arrays["leaf_factor"] = arrays["leaf_factor"][:, : None if settings.leaf_scaling else 0]
    return Model(
        **arrays,
        task=settings.task,
        classes=(),
        kernel=division.kernels.head,
        triangle_bound=settings.triangle_bound,
        scaling=division.scaling,
        tree=tree,
        leaf_rows=counts,
        local_kernel=division.kernels.local,
        support=None,
        reference=None,
    )
