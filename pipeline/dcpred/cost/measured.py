"""The cost of a prediction, in linear predictions: the unit of Hsieh et al. 2014.

Processor time per row of the model divided by that of a float32 `X @ w` on the same rows, in the same
thread of the same process, interleaved, medians. Both stream over rows that do not fit in cache, as bulk
scoring does; the ratio in cache is measured, too. The linear prediction reads 256 MiB of rows, padded with
zeros to a multiple of 16 bytes: BLAS is up to three times slower without that alignment, and the unit would
jump from 7 to 8 features. The model reads unpadded rows. predicted.py predicts the same cost from the
arrays of a model.

Processor time excludes the turns of other work, but not its use of shared caches and memory: the
spread of ratios from round to round shows that. See DECISIONS.md, "Cost beside other work".
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from dcpred.cost.predicted import padded_features
from dcpred_tasks.dtypes import SingleArray
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.process import one_thread
from dcpred_tasks.scoring.scorer import score_rows

STREAM_BYTES = 256 * 2**20
CACHE_BYTES = 2**19
REPEATS = 11
BUDGET_SECONDS = 1.5
LOOP_SECONDS = 0.02
FEWEST_ROWS = 64  # minimum rows of a timed call
SPREAD = 1.25  # maximum spread of ratios of rounds without a warning of other work


@dataclass(frozen=True)
class Cost:
    """The cost of a prediction, and that of a linear one."""

    us_per_row: float
    """Microseconds per row of the model, streaming from memory."""
    linear_us_per_row: float
    """Microseconds per row of a linear prediction, streaming from memory."""
    cost_ratio: float
    """The cost: the first divided by the second."""
    cached_us_per_row: float
    """Microseconds per row of the model, on rows in cache."""
    cached_linear_us_per_row: float
    """Microseconds per row of a linear prediction, on rows in cache."""
    cached_cost_ratio: float
    """The ratio of the two in cache."""
    beside_other_work: bool = False
    """Whether the computer did other work meanwhile: the numbers are then rough."""
    least_cost_ratio: float = 0.0
    """The 10 % quantile of the ratio over rounds that stream from memory."""
    most_cost_ratio: float = 0.0
    """The 90 % quantile of that ratio."""


def measure_cost(
    model: Model,
    X: NDArray[np.generic],
    *,
    stream_bytes: int = 0,
    repeats: int = REPEATS,
    budget_seconds: float = 0.0,
) -> Cost:
    """Measures the cost of a model.

    X               some raw rows, (n_samples, n_features), repeated to fill the stream
    stream_bytes    size of the padded rows; 0: STREAM_BYTES
    repeats         number of timings, of which the median counts
    budget_seconds  approximate time of the model in all timings, and again at most that in cache;
                    0: BUDGET_SECONDS
    """
    rows, budget_seconds = np.ascontiguousarray(X, np.float32), budget_seconds or BUDGET_SECONDS
    with one_thread():
        predict, many = partial(score_rows, model), _repeated(rows, stream_bytes or STREAM_BYTES)
        stream, least, most = _measure(predict, many, repeats, budget_seconds)
        few = _repeated(rows, CACHE_BYTES)[: max(CACHE_BYTES // rows[:1].nbytes, 1)]
        cached, _, _ = _measure(predict, few, repeats, budget_seconds)
    busy = most > SPREAD * least
    return Cost(*stream, stream[0] / stream[1], *cached, cached[0] / cached[1], busy, least, most)


def measure_call(
    predict: Callable[[SingleArray], object],
    X: NDArray[np.generic],
    budget_seconds: float = 0.0,
    *,
    stream_bytes: int = 0,
    repeats: int = REPEATS,
) -> tuple[float, float]:
    """(microseconds per row of a prediction, of a linear one), streaming from memory as in measure_cost."""
    rows = np.ascontiguousarray(X, np.float32)
    with one_thread():
        many = _repeated(rows, stream_bytes or STREAM_BYTES)
        found, _, _ = _measure(predict, many, repeats, budget_seconds or BUDGET_SECONDS)
    return found


@lru_cache
def measured_linear_ns(n_features: int, *, stream_bytes: int = 0, repeats: int = REPEATS) -> float:
    """The unit of costs on this computer, in nanoseconds: a float32 `X @ w` streaming from memory. Measured
    once per process, in about a second; the minimum excludes other work.
    """
    width = padded_features(n_features)
    rows = np.ones((max((stream_bytes or STREAM_BYTES) // (4 * width), 1), width), np.float32)
    w = np.linspace(-1, 1, width, dtype=np.float32)
    with one_thread():
        loops = _loops(lambda: rows @ w)
        return 1e9 * min(_seconds(lambda: rows @ w, loops) for _ in range(repeats)) / len(rows)


def _measure(
    predict: Callable[[SingleArray], object], X: SingleArray, repeats: int, budget_seconds: float
) -> tuple[tuple[float, float], float, float]:
    """Medians of µs per row, (prediction, linear), and the 10 and 90 % quantiles of the ratio.

    A slow model reads one part of X after another: its time is bounded, and it never finds its rows in cache
    where a linear prediction would not. Short calls are looped: data that fit in cache are there, and the
    clock measures more than its own noise.
    """
    padded = padded_rows(X)
    w = np.linspace(-1, 1, padded.shape[1], dtype=np.float32)
    predict(X[:2])  # the first call does work that later ones do not
    n_probe = min(FEWEST_ROWS, len(X))
    while (spent := _seconds(partial(predict, X[:n_probe]))) < budget_seconds / 64 and 8 * n_probe < len(X):
        n_probe *= 8
    per_row = spent / n_probe
    # Two more calls than repeats: _loops makes them.
    part = int(np.clip(budget_seconds / (repeats + 2) / max(per_row, 1e-9), n_probe, len(X)))
    linear_loops = _loops(lambda: padded @ w)
    loops = _loops(lambda: predict(X[:part]))
    linear, own = [], []
    for repeat in range(repeats):
        start = (repeat * part) % (len(X) - part + 1)
        linear.append(_seconds(lambda: padded @ w, linear_loops) / len(X))
        own.append(_seconds(lambda start=start: predict(X[start : start + part]), loops) / part)  # type: ignore[misc]
    least, most = np.quantile(np.array(own) / linear, [0.1, 0.9])
    return (1e6 * float(np.median(own)), 1e6 * float(np.median(linear))), float(least), float(most)


def padded_rows(rows: SingleArray) -> SingleArray:
    """Rows padded with zeros until their bytes are a multiple of 16; the same array if they are."""
    n_features = padded_features(rows.shape[1])
    if n_features == rows.shape[1]:
        return rows
    padded = np.zeros((len(rows), n_features), np.float32)
    padded[:, : rows.shape[1]] = rows
    return padded


def _loops(call: Callable[[], object]) -> int:
    call()
    return max(int(LOOP_SECONDS / max(_seconds(call), 1e-9)), 1)


def _seconds(call: Callable[[], object], loops: int = 1) -> float:
    begin = time.thread_time()
    for _ in range(loops):
        call()
    return (time.thread_time() - begin) / loops


def _repeated(rows: SingleArray, n_bytes: int) -> SingleArray:
    """Rows, repeated to so many bytes after padding."""
    copies = -(-n_bytes // (4 * len(rows) * padded_features(rows.shape[1])))
    return rows if copies <= 1 else np.tile(rows, (copies, 1))
