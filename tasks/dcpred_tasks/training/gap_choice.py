"""Which features with gaps get an indicator: kernel ridge regressions tell, on rows held out.

What tells first is what a machine that imputes gets wrong: a feature is a candidate where its residuals on
held-out rows are other ones in rows with a gap. Machines of more and more of these then say how many of the
indicators pay together, and one of many rows says whether they surely do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.coding import Coding
from dcpred_tasks.model.scaling import fit_scaling
from dcpred_tasks.training.coding_choice import (
    DECISION,
    FEWEST_ROWS,
    LOOK,
    RIDGES,
    held_out_losses,
    held_out_residuals,
    outputs,
    squared_distances,
)
from dcpred_tasks.training.labelled_rows import LabelledRows, distinct_rows

# Candidates: residuals differ by so many standard errors, and no more of them than this.
TELLING, MOST_TRIED = 1.0, 32
FEWEST_GAPS = 5  # held-out rows with a gap, and without, that it takes to compare residuals
# Factors on squared differences of indicators: many of them would outweigh what they are beside, and learned
# factors see to that. Ridge while sets are looked for.
STRETCHES, RIDGE = (0.1, 0.3, 1.0), 0.3
# Further indicators are kept where they leave this share of the loss. What is found pays where the loss is
# smaller by this share of it, surely by so many standard errors.
WORTH_MORE, WORTH_INDICATING, SURE = 0.995, 0.005, 2.0


@dataclass(frozen=True)
class _Judge:
    """Kernel ridge regressions on the first `n_fit` rows, judged on the others."""

    D: SingleArray  # (n, n_fit), squared distances in features that are imputed, of variance 1
    n_blocks: int  # how many of these there are
    indicators: SingleArray  # (n, n_candidates), of variance 1
    target: FloatArray  # (n, n_outputs)
    weight: FloatArray  # (n,), > 0

    def residuals(
        self, of: Sequence[int] = (), stretch: float = 1.0, ridges: tuple[float, ...] = RIDGES
    ) -> FloatArray:
        """Those of the rows that judge, with some of the indicators."""
        D = self.D
        if len(of):
            R = self.indicators[:, of]
            D = D + MODEL_DTYPE(stretch) * squared_distances(R, R[: D.shape[1]])
        return held_out_residuals(D, self.target, self.weight, self.n_blocks, ridges)

    def losses(
        self, of: Sequence[int] = (), stretch: float = 1.0, ridges: tuple[float, ...] = RIDGES
    ) -> FloatArray:
        """The losses of the rows that judge."""
        return held_out_losses(self.residuals(of, stretch, ridges), self.weight[self.D.shape[1] :])


def worth_indicating(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    coding: Coding,
    candidates: IntArray,
    task: str,
    seed: int,
) -> list[int]:
    """The features, ascending, that had better have an indicator.

    sample      (n, n_features), real; NaN is a gap
    target      (n,), class numbers or values
    weight      float64 (n,), > 0
    coding      the columns that features become without indicators
    candidates  features with gaps
    """
    drawn = np.random.default_rng(seed).permutation(len(sample))[: 2 * sum(DECISION)]
    X = sample[drawn]
    candidates = candidates[np.isnan(X[:, candidates]).any(axis=0)]
    if not len(candidates):
        return []
    low, high = (extreme.reduce(X, axis=0).astype(ACC_DTYPE) for extreme in (np.fmin, np.fmax))
    U = fit_scaling("standard", X, weight[drawn], low, high, coding)(X)
    missing = np.isnan(X[:, candidates]).astype(MODEL_DTYPE)
    rows, _ = distinct_rows(np.hstack([U, missing]), target[drawn], weight[drawn], task)
    if len(rows.y) < FEWEST_ROWS or np.ptp(rows.y) == 0:
        return []
    n_blocks = max(int((low < high).sum()), 1)

    def judge(n_fit: int, n_held: int) -> _Judge:
        n_fit, last = min(n_fit, len(rows.y) // 2), np.arange(len(rows.y))[-n_fit - n_held :]
        return _judge_of(rows.take(last), n_fit, len(candidates), n_blocks, task)

    found, stretch = _looked_for(judge(*LOOK))
    pays = bool(found) and _pays(judge(*DECISION), found, stretch)
    return sorted(int(candidates[k]) for k in found) if pays else []


def _judge_of(rows: LabelledRows, n_fit: int, n_candidates: int, n_blocks: int, task: str) -> _Judge:
    """The last columns of the rows are indicators."""
    U, missing = rows.U[:, :-n_candidates], rows.U[:, -n_candidates:]
    spread = missing.std(axis=0)
    indicators = np.asarray(missing / np.where(spread > 0, spread, 1), MODEL_DTYPE)
    return _Judge(squared_distances(U, U[:n_fit]), n_blocks, indicators, outputs(rows.y, task), rows.weight)


def _looked_for(judge: _Judge) -> tuple[list[int], float]:
    """The indicators that lose least together, of those that tell most of what imputing gets wrong, and the
    factor on them that suits best.
    """
    told = _told(judge)
    order = [int(k) for k in np.argsort(-told, kind="stable") if told[k] > TELLING][:MOST_TRIED]
    sizes = sorted({2**i for i in range(len(order).bit_length())} | ({len(order)} if order else set()))
    best, least = (0, 1.0), np.inf
    for size in sizes:
        tried = {s: float(judge.losses(order[:size], s, (RIDGE,)).mean()) for s in STRETCHES}
        stretch = min(tried, key=tried.__getitem__)
        if tried[stretch] < WORTH_MORE * least:
            best, least = (size, stretch), tried[stretch]
    return order[: best[0]], best[1]


def _told(judge: _Judge) -> FloatArray:
    """Differences of residuals between rows with a gap and rows without, in standard errors, for each
    candidate (n_candidates,); of several outputs the largest.
    """
    residuals = judge.residuals()
    gaps = judge.indicators[judge.D.shape[1] :] > judge.indicators.min(axis=0)
    told = np.zeros((2, gaps.shape[1], residuals.shape[1]))
    errors = np.zeros_like(told)
    enough = np.minimum(gaps.sum(axis=0), (~gaps).sum(axis=0)) >= FEWEST_GAPS
    for i, own in enumerate((gaps, ~gaps)):
        n = np.maximum(own.sum(axis=0), 1)[:, None]
        told[i] = own.T @ residuals / n
        errors[i] = np.maximum(own.T @ residuals**2 / n - told[i] ** 2, 0) / n
    t = np.abs(told[0] - told[1]) / np.sqrt(np.maximum(errors.sum(axis=0), 1e-300))
    return np.asarray(np.where(enough, t.max(axis=1), 0.0))


def _pays(judge: _Judge, found: list[int], stretch: float) -> bool:
    """Whether held-out rows surely lose less with these indicators than without."""
    plain, indicated = judge.losses(), judge.losses(found, stretch)
    gain = plain - indicated
    sure = gain.mean() > SURE * gain.std() / np.sqrt(len(gain))
    return bool(sure and gain.mean() > WORTH_INDICATING * plain.mean())
