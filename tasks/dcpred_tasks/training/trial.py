"""Trials: settings judged in one leaf, on rows of it that are held out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    """

    X: SingleArray
    target: NDArray[np.generic]
    weight: FloatArray
    number: IntArray
    rank: IntArray

    def take(self, index: NDArray[np.generic]) -> "TrialRows":
        return TrialRows(
            self.X[index], self.target[index], self.weight[index], self.number[index], self.rank[index]
        )


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
    held = (rows.rank == 0) & held_out(rows.number, tries[0].seed, fold)
    if np.count_nonzero(rows.rank == 0) < FEWEST_ROWS or not held.any():
        return [Verdict(np.nan, np.nan)] * len(tries)
    judged = rows.take(np.flatnonzero(held))
    rest = rows.take(np.flatnonzero(~held & drawn(rows.number, 1, share, tries[0].seed + 3)))
    shared = _Shared({}, {})
    return [_try(rest, judged, settings, n_outputs, seed, shared) for settings in tries]


@dataclass(frozen=True)
class _Shared:
    """What tries that agree on it have in common."""

    machines: dict[tuple[object, ...], tuple[LeafRows, DualSolution]]
    landmarks: dict[tuple[object, ...], SingleArray]

    def pick(self, machine: tuple[object, ...]) -> Pick:
        """Landmarks of a local machine."""

        def pick(*asked: Any) -> SingleArray:
            settings: Settings = asked[3]
            key = (*machine, settings.landmarks, settings.landmark_floor, settings.halo_weight)
            if key not in self.landmarks:
                self.landmarks[key] = pick_landmarks(*asked)
            return self.landmarks[key]

        return pick


def held_out(number: IntArray, seed: int, fold: int = 0) -> NDArray[np.bool_]:
    """Which rows (n,) of these numbers are held out: the same in every leaf, tree and scaling."""
    part = row_hash(number, seed + 1).astype(np.float64) / 2.0**64
    return np.asarray((part >= fold * HELD_OUT_SHARE) & (part < (fold + 1) * HELD_OUT_SHARE))


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
        key = (settings.overlap, gamma, settings.C, settings.ridge)
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
