"""Which of the features that look like codes are coded: kernel ridge regressions tell, on rows held out.

A neighbour search is no judge of that. Where a row has few neighbours that share its codes of two features,
their votes do not add the effects of the two, and kernels that reach far do. 40 and 20 codes with effects
that add up (4,500 rows, 5 % of classes flipped) seemed worth nothing to factors learned from neighbours; yet
a model had 71 % of rows right without coding and 91 % with it.

The machine without coding may give the features a larger factor: a few codes far apart are told from each
other as well as by columns of their own, at less cost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.scaling import fit_scaling
from dcpred_tasks.training.labelled_rows import distinct_rows

FEWEST_ROWS = 40  # distinct rows that it takes to decide
# Rows that train a machine and rows that judge it, at most: for the decision, and while sets of features are
# looked for, among few candidates and among many.
DECISION, LOOK, BRIEF_LOOK = (1_200, 3_600), (1_000, 2_000), (600, 1_400)
MANY = 8  # candidates beyond which not every number of them is tried
WIDTHS = (0.03, 0.1, 0.3, 1.0)  # γ × features
RIDGES = (0.03, 0.3, 3.0)
WIDE = (4.0, 16.0)  # factors on squared differences of candidates that are not coded
# A set of features is coded where that leaves this share of the loss, surely by so many standard errors, and
# explains this share of the targets' variance. A feature is in it where the loss without is so many times as
# large.
WORTH_CODING, SURE, WORTH_NAMING, WORTH_A_PLACE = 0.95, 3.0, 0.005, 1.01


def squared_distances(U: SingleArray, to: SingleArray) -> SingleArray:
    """Those of all rows (n, d) to some (m, d): float32 (n, m)."""
    squares, own = np.einsum("ij,ij->i", U, U), np.einsum("ij,ij->i", to, to)
    return np.asarray(np.maximum(squares[:, None] + own - 2 * U @ to.T, 0))


def held_out_residuals(
    D: SingleArray, target: FloatArray, weight: FloatArray, n_blocks: int, ridges: tuple[float, ...]
) -> FloatArray:
    """What a kernel ridge regression predicts too much for held-out rows, (n − m, n_outputs), at the width
    and the ridge that suit them best.

    D         (n, m), squared distances to the first m rows, which train
    target    (n, n_outputs)
    weight    (n,), > 0
    n_blocks  features of variance 1 that the distances are summed of
    """
    n = D.shape[1]
    target = target - np.average(target[:n], axis=0, weights=weight[:n])
    tried: list[FloatArray] = []
    for width in WIDTHS:
        K = np.exp(MODEL_DTYPE(-width / n_blocks) * D)
        for ridge in ridges:
            A = K[:n].astype(ACC_DTYPE)
            A[np.diag_indices(n)] += ridge / weight[:n]
            beta = cho_solve(cho_factor(A, overwrite_a=True, check_finite=False), target[:n])
            tried.append(K[n:] @ beta.astype(MODEL_DTYPE) - target[n:])
    return min(tried, key=lambda residuals: float(held_out_losses(residuals, weight[n:]).mean()))


def held_out_losses(residuals: FloatArray, weight: FloatArray) -> FloatArray:
    """Squared errors of rows (m,), weighted so that their mean is the loss."""
    return np.asarray(weight / weight.mean() * (residuals**2).sum(axis=1))


@dataclass(frozen=True)
class _Judge:
    """Kernel ridge regressions on some of the rows, judged on others."""

    plain: dict[int, SingleArray]  # (n, 1), each feature that varies, of variance 1
    coded: dict[int, SingleArray]  # (n, ·), the columns of each candidate, of variance 1 together
    target: FloatArray  # (n, n_outputs)
    weight: FloatArray  # (n,), > 0
    rows: IntArray  # The first `n_fit` of these train, the others judge.
    n_fit: int
    ridges: tuple[float, ...] = RIDGES
    always: frozenset[int] = frozenset()  # features that are coded in any case

    def losses(self, coded: Iterable[int] = (), wide: Iterable[int] = (), factor: float = 1.0) -> FloatArray:
        """Weighted losses of the rows that judge, at the width and the ridge that suit them best, with some
        candidates coded and `factor` on squared differences of some features.
        """
        of, far, n = frozenset(coded) | self.always, frozenset(wide), self.n_fit
        blocks = [
            (self.coded[f] if f in of else column)[self.rows] * np.sqrt(factor if f in far else 1.0)
            for f, column in self.plain.items()
        ]
        U, weight = np.concatenate(blocks, axis=1, dtype=MODEL_DTYPE), self.weight[self.rows]
        D = squared_distances(U, U[:n])
        residuals = held_out_residuals(D, self.target[self.rows], weight, len(blocks), self.ridges)
        return held_out_losses(residuals, weight[n:])

    @property
    def variance(self) -> float:
        """That of the targets, of all outputs together."""
        mean = np.average(self.target, axis=0, weights=self.weight)
        return float(np.average(((self.target - mean) ** 2).sum(axis=1), weights=self.weight))

    def loss(self, coded: Iterable[int]) -> float:
        return float(self.losses(coded).mean())


def worth_coding(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    codes: Mapping[int, NDArray[np.generic]],
    task: str,
    seed: int,
    gap: FloatArray | None = None,
    always: Mapping[int, NDArray[np.generic]] = MappingProxyType({}),
) -> list[int]:
    """The features, ascending, that had better be coded, beside those that are in any case.

    sample  (n, n_features), real and finite, but for NaN where `gap` (n_features,) stands for it
    target  (n,), class numbers or values
    weight  float64 (n,), > 0
    codes   the values of each candidate that would have a column
    always  those of each feature that is coded in any case
    """
    drawn = np.random.default_rng(seed).permutation(len(sample))[: 2 * sum(DECISION)]
    X = given = sample[drawn]
    if gap is not None:
        X = np.where(np.isnan(given), gap, given)
    low, high = X.min(axis=0).astype(ACC_DTYPE), X.max(axis=0).astype(ACC_DTYPE)
    rows, index = distinct_rows(
        fit_scaling("standard", X, weight[drawn], low, high)(X), target[drawn], weight[drawn], task
    )
    if len(rows.y) < FEWEST_ROWS or np.ptp(rows.y) == 0:
        return []
    plain = {int(f): rows.U[:, f : f + 1] for f in np.flatnonzero(low < high)}
    coded = {f: _columns(given[index, f], own) for f, own in {**codes, **always}.items() if f in plain}

    def judge(n_fit: int, n_held: int, ridges: tuple[float, ...] = RIDGES) -> _Judge:
        n_fit, last = min(n_fit, len(rows.y) // 2), np.arange(len(rows.y))[-n_fit - n_held :]
        target, set_before = outputs(rows.y, task), frozenset(always) & set(coded)
        return _Judge(plain, coded, target, rows.weight, last, n_fit, ridges, set_before)

    few = len(coded.keys() - always.keys()) <= MANY
    found = _looked_for(judge(*LOOK) if few else judge(*BRIEF_LOOK, RIDGES[:1]))
    return sorted(found) if found and _pays(judge(*DECISION), found) else []


def _looked_for(judge: _Judge) -> list[int]:
    """The features of the set that loses least. Candidates come in the order of what each of them loses
    alone; of a few, those leave again without which little is lost.
    """
    alone = {f: judge.loss([f]) for f in judge.coded if f not in judge.always}
    order = sorted(alone, key=alone.__getitem__)
    sizes = set(range(2, len(order) + 1))
    if len(order) > MANY:
        sizes = {2**i for i in range(1, len(order).bit_length())} | {len(order)}
    sets = [(alone[order[0]], 1)] if order else []
    sets += [(judge.loss(order[:size]), size) for size in sorted(sizes)]
    least, size = min(sets, default=(0.0, 0))
    if len(order) > MANY:
        return order[: max(size for loss, size in sets if loss <= WORTH_A_PLACE * least)]
    found = order[:size]
    for f in reversed(found):
        without = [other for other in found if other != f]
        loss = judge.loss(without)
        if loss < WORTH_A_PLACE * least:
            found, least = without, loss
    return found


def _pays(judge: _Judge, found: list[int]) -> bool:
    """Whether held-out rows surely lose less with these features coded than without."""
    plain, coded = (
        min((judge.losses(own, found, factor) for factor in factors), key=lambda losses: float(losses.mean()))
        for own, factors in (((), (1.0, *WIDE)), (found, (1.0, WIDE[0])))
    )
    gain = plain - coded
    sure = gain.mean() > SURE * gain.std() / np.sqrt(len(gain))
    explained = gain.mean() / judge.variance
    return bool(sure and explained > WORTH_NAMING and coded.mean() <= WORTH_CODING * plain.mean())


def _columns(column: NDArray[np.generic], codes: NDArray[np.generic]) -> SingleArray:
    """Columns (n, n_codes) of a coded feature, of variance 1 together."""
    own = column[:, None] == codes
    spread = np.sqrt(own.var(axis=0).sum())
    return np.asarray(own / (spread or 1.0), MODEL_DTYPE)


def outputs(y: FloatArray, task: str) -> FloatArray:
    """(n, 1) values, or −1 and 1; (n, n_classes) 0 and 1 for more classes than two."""
    if task == "regression":
        return y[:, None]
    classes = np.unique(y)
    return np.asarray(y[:, None] == (classes if len(classes) > 2 else classes[1:]), ACC_DTYPE)
