"""Trials: settings judged in one leaf, on rows of it that are held out."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray, SingleArray
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.compact_leaf import Pick, pick_landmarks
from dcpred_tasks.training.leaf import Kernels, compact_model
from dcpred_tasks.training.local_machine import LeafRows, constant_decision, local_machine
from dcpred_tasks.training.sampling import drawn, row_hash
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import DualSolution

HELD_OUT_SHARE = 0.25  # share of a leaf's rows that is held out in a fold
FOLDS = 4  # folds whose held-out rows are disjoint
UNSEEN_FOLD = FOLDS - 1  # No choice is made by its rows: what was chosen is judged on them at last.
RARE = 40  # rows of a class below which its held-out rows are not left to chance
FEWEST_ROWS = 6  # rows of the smallest leaf that is judged
# Slope of the soft error 1 / (1 + exp(STEEP · margin)), which varies less from leaf to leaf than the share of
# wrong rows does.
STEEP = 4.0


@dataclass(frozen=True)
class TrialRows:
    """The rows that may train one leaf.

    X       float32 (n, used features), scaled
    target  (n,), class numbers or values
    weight  float64 (n,), > 0
    number  int64 (n,), row numbers in the input
    rank    (n,), 0 for rows of the leaf, 1 for rows whose nearest other leaf it is, and so on
    fold    (n,), below FOLDS: in which choice of held-out rows each is held out (`folds_of`)
    recoded float32 (n, FOLDS, m), the last m features as they are where the rows of a fold are held out, if
            they are means of the target (target_means.py); else None
    """

    X: SingleArray
    target: NDArray[np.generic]
    weight: FloatArray
    number: IntArray
    rank: IntArray
    fold: IntArray
    recoded: SingleArray | None = None

    def take(self, index: NDArray[np.generic]) -> "TrialRows":
        return TrialRows(**{name: array[index] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, Any]:
        """Its arrays by name."""
        every = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: array for name, array in every.items() if array is not None}

    def without(self, fold: int) -> "TrialRows":
        """These rows as they are where a fold is held out."""
        if self.recoded is None:
            return self
        n_plain = self.X.shape[1] - self.recoded.shape[2]
        return replace(self, X=np.hstack([self.X[:, :n_plain], self.recoded[:, fold]]), recoded=None)


@dataclass(frozen=True)
class Verdict:
    """Errors, means over the held-out rows of a leaf. For a regression both are the mean squared error."""

    soft: float
    """Mean of 1 / (1 + exp(STEEP · margin))."""
    hard: float
    """Share of rows with the wrong class."""
    variance: float = 0.0
    """Squared standard error of `hard`, for the rows that happened to be held out."""


def try_leaf(
    rows: TrialRows, tries: Sequence[Settings], n_outputs: int, seed: int, fold: int = 0, share: float = 1.0
) -> list[Verdict]:
    """Judge settings on one leaf. They name γ as numbers. Local machines are shared by those that want the
    same. NaN where the leaf has too few rows to judge by.

    fold   which rows are held out, below FOLDS: no row is in two of them
    share  of the other rows that train
    """
    rows = rows.without(fold)
    held = (rows.rank == 0) & (rows.fold == fold)
    if np.count_nonzero(rows.rank == 0) < FEWEST_ROWS or not held.any():
        return [Verdict(np.nan, np.nan)] * len(tries)
    judged = rows.take(np.flatnonzero(held))
    rest = rows.take(np.flatnonzero(~held & drawn(rows.number, 1, share, tries[0].seed + 3)))
    shared = _Shared({}, {})
    return [_try(rest, judged, settings, n_outputs, seed, shared) for settings in tries]


# Settings that neither `local_machine` nor, beside it, `pick_landmarks` reads, and that decide nothing about
# the rows of a trial. Whatever is not listed here is part of a key, so that a new setting is, too.
NOT_OF_LANDMARKS = frozenset(
    (
        *("products", "triangle", "triangle_bound", "nystrom_rows", "head_gamma", "head_C", "head_ridge"),
        *("refine_steps", "refine_epochs", "loss", "refine_ridge", "guide", "leaf_scaling"),
        *("keep_support_vectors", "calibrate"),
    )
)
NOT_OF_MACHINES = NOT_OF_LANDMARKS | {"landmarks", "landmark_floor", "halo_weight", "refine"}


def _relevant(settings: Settings, irrelevant: frozenset[str]) -> tuple[object, ...]:
    """The values of all settings but those."""
    return tuple(getattr(settings, f.name) for f in fields(settings) if f.name not in irrelevant)


@dataclass(frozen=True)
class _Shared:
    """What tries that agree on it have in common."""

    machines: dict[tuple[object, ...], tuple[LeafRows, DualSolution]]
    landmarks: dict[tuple[object, ...], SingleArray]

    def pick(self, machine: tuple[object, ...]) -> Pick:
        """Landmarks of a local machine."""

        def pick(*asked: Any) -> SingleArray:
            settings: Settings = asked[3]
            key = (machine, _relevant(settings, NOT_OF_LANDMARKS))
            if key not in self.landmarks:
                self.landmarks[key] = pick_landmarks(*asked)
            return self.landmarks[key]

        return pick


def folds_of(number: IntArray, seed: int, rare: IntArray | None = None) -> IntArray:
    """The folds (n,) of rows of these numbers: the same in every leaf, tree and scaling.

    rare  int64 (2, m), numbers, ascending, and folds of rows of rare classes (`rare_folds`)
    """
    part = row_hash(number, seed + 1).astype(np.float64) / 2.0**64
    fold = np.minimum((part / HELD_OUT_SHARE).astype(np.int64), FOLDS - 1)
    if rare is not None and rare.shape[1]:
        at = np.minimum(np.searchsorted(rare[0], number), rare.shape[1] - 1)
        fold = np.where(rare[0, at] == number, rare[1, at], fold)
    return np.asarray(fold)


def rare_folds(number: IntArray, target: NDArray[np.generic], seed: int) -> IntArray:
    """Numbers, ascending, and folds, int64 (2, m), of the rows of classes with fewer than RARE rows among
    these: drawn each by itself, none of 10 rows would be held out in one of 18 searches. The folds of a class
    differ by one row at most. Of a single row the last one holds it: where it does not train it is wrong.

    number  (n,)
    target  (n,), class numbers
    """
    classes, of = np.unique(target, return_inverse=True)
    counts = np.bincount(of, minlength=len(classes))
    found = [np.zeros((2, 0), np.int64)]
    for one in np.flatnonzero(counts < RARE):
        own = number[of == one]
        own = own[np.argsort(row_hash(own, seed + 1), kind="stable")]
        found.append(np.stack([own, (np.arange(len(own)) + FOLDS - 1) % FOLDS]))
    together = np.concatenate(found, axis=1)
    return np.asarray(together[:, np.argsort(together[0], kind="stable")], dtype=np.int64)


def _try(
    rest: TrialRows,
    judged: TrialRows,
    settings: Settings,
    n_outputs: int,
    seed: int,
    shared: _Shared,
) -> Verdict:
    near = rest.take(np.flatnonzero(rest.rank < settings.overlap))
    constant = constant_decision(near.target, n_outputs, settings.task)
    if constant is not None:
        decision: FloatArray = np.broadcast_to(constant, (len(judged.X), n_outputs))
    else:
        gamma = float(settings.gamma)
        local_kernel = Kernel(settings.kernel, gamma, settings.degree, settings.coef0)
        kernels = Kernels(local_kernel, replace(local_kernel, gamma=settings.head_gamma or gamma))
        key = _relevant(settings, NOT_OF_MACHINES)
        if key not in shared.machines:
            rows = LeafRows(near.X, near.target, near.weight, near.rank > 0, n_outputs, settings.task)
            shared.machines[key] = rows, local_machine(rows, local_kernel, settings)
        machine, pick = shared.machines[key], shared.pick(key)
        basis, beta, intercept = compact_model(*machine, kernels, settings, seed, pick)
        decision = basis(judged.X) @ beta + intercept
    if settings.task == "regression":
        value = np.clip(decision[:, 0], near.target.min(), near.target.max())
        squares = (value - judged.target.astype(np.float64)) ** 2
        error = float(np.average(squares, weights=judged.weight))
        return Verdict(error, error, _variance(squares, judged.weight))
    return _class_verdict(decision, judged)


def _class_verdict(decision: FloatArray, judged: TrialRows) -> Verdict:
    right = judged.target.astype(np.int64)
    if decision.shape[1] == 1:
        margin = decision[:, 0] * (2.0 * right - 1.0)
    else:
        rows = np.arange(len(right))
        others = decision.copy()
        others[rows, right] = -np.inf
        margin = (decision[rows, right] - others.max(axis=1)) / 2
    soft = 1.0 / (1.0 + np.exp(np.clip(STEEP * margin, -50, 50)))
    weight = judged.weight
    wrong = (margin <= 0).astype(np.float64)
    return Verdict(
        float(np.average(soft, weights=weight)),
        float(np.average(wrong, weights=weight)),
        _variance(wrong, weight),
    )


def _variance(values: FloatArray, weight: FloatArray) -> float:
    """Squared standard error of the weighted mean of values."""
    share = weight / weight.sum()
    return float(share**2 @ (values - share @ values) ** 2)
