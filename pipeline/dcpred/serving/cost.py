"""What a prediction costs, in linear predictions: predicted for settings, and measured for a model."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, SingleArray
from dcpred_tasks.engine.layout import AT_ONCE, FEW_FEATURES, LANES, held_features, walks_by_distances
from dcpred_tasks.model.basis import Prices
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.feature_map import Knots
from dcpred_tasks.model.kernels import Sum
from dcpred_tasks.process import one_thread
from dcpred_tasks.result_fields import ABSENT, result_class, result_field
from dcpred_tasks.scoring.scorer import score_rows

UNIT_FEATURES = 4  # float32 values in 16 bytes: BLAS is slower where rows start elsewhere
CLIP_NS, QUANTILE_NS = 0.6, 2.0  # per mapped feature, in vectors of 16
NEAR_CENTRES = 2**15  # bytes of centres up to which the walk runs at full speed
NEAR_LANDMARKS = 2**18  # the same for landmarks, which a block of rows reads only once


@dataclass(frozen=True)
class PredictedCost:
    """The predicted cost of a row, in nanoseconds."""

    convert: float
    """ns per row to scale it into single precision."""
    descend: float
    """ns per row to walk down the tree and sort rows by leaf."""
    landmarks: float
    """ns per row for the kernel values of its leaf."""
    outputs: float
    """ns per row for the sums of all outputs over them."""
    linear: float
    """ns per row of a linear prediction: the unit of costs."""
    terms: float = 0.0
    """ns per row of the terms beside the leaves."""

    @property
    def ns_per_row(self) -> float:
        return self.convert + self.descend + self.landmarks + self.outputs + self.terms

    @property
    def cost_ratio(self) -> float:
        return self.ns_per_row / self.linear


def _ratio_text(r: Mapping[str, Any]) -> str:
    ratio = f"{r['cost_ratio']:.1f}"
    if r["beside_other_work"]:
        ratio = f"{r['least_cost_ratio']:.1f} to {r['most_cost_ratio']:.1f}, beside other work"
    return f"{ratio}  (in cache {r['cached_cost_ratio']:.1f})"


@result_class
class CostParts:
    """Predicted cost of a row."""

    cost_ratio: float = result_field("Predicted cost of a row, in linear predictions.")
    convert: float = result_field("Its part of reading and scaling the row.")
    descend: float = result_field("Its part of finding the leaf.")
    landmarks: float = result_field("Its part of kernel values.")
    outputs: float = result_field("Its part of the output weights.")
    terms: float = result_field("Its part of terms beside the leaves.", when="trees", default=ABSENT)


def padded_features(n_features: int) -> int:
    """Features per row of the unit: float32 rows padded with zeros to a multiple of 16 bytes."""
    return -(-n_features // UNIT_FEATURES) * UNIT_FEATURES


def linear_ns(n_features: int) -> float:
    """A float32 `X @ w` streaming from memory, of rows aligned to 16 bytes: the unit of costs."""
    return 1.2 + 0.245 * padded_features(n_features)


def predict_cost(model: Model, by_distances: bool | None = None) -> PredictedCost:
    """The cost of float32 rows by the compiled engine.

    by_distances  whether rows walk down the tree in double precision; None: as the centres require
    """
    held = len(held_features(model))
    share = np.maximum(model.leaf_rows, 0) / max(model.leaf_rows.sum(), 1)
    m, p = np.diff(model.landmark_at), np.diff(model.pair_at)
    works = float(share @ (m > 0))
    prices = prices_of(model)
    t = np.diff(model.triangle_at) / np.maximum(m, 1)
    in_leaf: FloatArray = np.sum([prices.landmarks(m), prices.products(p), prices.triangle(t, m)], axis=0)
    values = float(share @ prices.values(m))
    return PredictedCost(
        # Once before the walk, and once more about the middle of the leaf; features of factor 0 count, too.
        convert=((model.tree.n_nodes > 0) + works) * _convert_ns(model) + _encode_ns(model) + _map_ns(model),
        descend=_descend_ns(model, share, held, by_distances),
        landmarks=values,
        outputs=float(share @ in_leaf) - values + all_outputs_ns(model.n_outputs),
        terms=float(sum(term.cost for term in model.terms)),
        linear=linear_ns(model.n_features),
    )


def all_outputs_ns(n_outputs: int) -> float:
    """Decision values of all outputs begin, and end, also those that a leaf has no weights of."""
    return 1.3 * n_outputs if n_outputs > 1 else 0.0


def _encode_ns(model: Model) -> float:
    """Look up categories and write rows with their means, in NumPy: see DECISIONS.md, "Predicted cost"."""
    targets = model.scaling.targets
    return (
        0.0 if targets is None else 0.85 * targets.n_columns + 12.0 * len(targets.feature) * targets.n_means
    )


def _map_ns(model: Model) -> float:
    """Feature maps, once for both conversions, in vectors of 16 features."""
    coding = model.scaling.coding
    if coding is None or coding.map is None:
        return 0.0
    lanes = LANES * -(-model.scaling.n_encoded // LANES)
    return (QUANTILE_NS if isinstance(coding.map, Knots) else CLIP_NS) * lanes


def _convert_ns(model: Model) -> float:
    """One conversion of a row: of contiguous features, or of the columns that they become first. A model
    that accepts missing values checks every number, and with indicators it copies the row.
    """
    d, columns, coding = model.scaling.n_encoded, model.n_columns, model.scaling.coding
    if coding is None:
        return 4.0 + 0.424 * d
    ns = 7.0 + 0.55 * d + 0.4 * columns if coding.is_coded.any() else 4.0 + 0.424 * columns
    if coding.gap is not None:
        ns += 0.8 + 0.07 * columns
    if len(coding.indicated) and not coding.is_coded.any():
        ns += 3.0 + 0.06 * d + 0.5 * len(coding.indicated)
    return ns


def prices_of(model: Model) -> Prices:
    """The cost per row of the bases of a model's leaves."""
    held, family = len(held_features(model)), model.kernel.family
    if len(model.triangle) > 0 or model.triangle_at[-1] > 0:  # row by row in double precision
        return Prices(1, 8.0 + 0.68 * model.n_columns, 0.0, 0.0, 3.0, 15.0, 1.2)
    few, absolute = held <= FEW_FEATURES, family.sum == Sum.ABSOLUTE
    groups = int(np.ceil(np.diff(model.landmark_at) / LANES).sum())
    far = _doublings(4 * LANES * held * groups, NEAR_LANDMARKS)
    # A feature in a sum of |x − u| takes longer than one in a product, and in wide rows much longer.
    of_feature = (0.32 if few else 0.143) * ((1.7 if few else 3.06) if absolute else 1.0)
    of_feature += (0.036 if few else 0.022) * far
    of_group = (1.8 if few else 8.6) + family.group_ns + held * of_feature
    if model.n_outputs == 1:
        return Prices(LANES, of_group, 0.0, 0.0, 0.06, 0.0, 0.0)
    # With several classes a leaf has weights of those that it has rows of.
    outputs = AT_ONCE * -(-model.beta.n_present.astype(float) // AT_ONCE)
    return Prices(LANES, of_group, 0.0, 0.01 * outputs, 0.02 * outputs, 0.0, 0.0)


def _doublings(n_bytes: float, near: float) -> float:
    """log₂ of the bytes over those that a core keeps near: farther reads cost slowly more."""
    return float(np.log2(max(n_bytes / near, 1.0)))


def _descend_ns(model: Model, share: FloatArray, held: int, by_distances: bool | None) -> float:
    """The walk, with the sort of rows by node at each level and by leaf at its end. With more than a few
    features rows are assumed to use the int16 quantised walk, which holds unless a tree's centres are very
    close.
    """
    if model.tree.n_nodes == 0:
        return 0.0
    centres = LANES * held * model.tree.n_nodes
    if by_distances is None:
        by_distances = walks_by_distances(model)
    if by_distances:  # in double precision; not measured with the others
        level = 25.0 + 0.68 * held
    elif held <= FEW_FEATURES:
        level = 9.4 + 0.114 * held * _doublings(4 * centres, NEAR_CENTRES)
    else:
        level = 20.4 + 0.07 * held * _doublings(2 * centres, NEAR_CENTRES)
    return float(share @ model.tree.leaf_levels(model.n_leaves)) * level


STREAM_BYTES = 256 * 2**20
CACHE_BYTES = 2**19
REPEATS = 11
BUDGET_SECONDS = 1.5
LOOP_SECONDS = 0.02
FEWEST_ROWS = 64  # minimum rows of a timed call
SPREAD = 1.25  # maximum spread of ratios of rounds without a warning of other work


@result_class
class Cost:
    """The cost of a prediction, and that of a linear one."""

    us_per_row: float = result_field(
        "Time per row, in microseconds.",
        when="measured cost",
        line="us_per_row",
        text="{us_per_row:.3f}  (measured on this machine)",
    )
    linear_us_per_row: float = result_field(
        "Time of a linear prediction, in microseconds.",
        when="measured cost",
        detail=True,
        line="linear_us_per_row",
        text="{linear_us_per_row:.4f}  (in cache {cached_linear_us_per_row:.4f})",
    )
    cost_ratio: float = result_field(
        "The first time over the second.",
        when="measured cost",
        detail=True,
        line="measured_cost",
        text=_ratio_text,
    )
    cached_us_per_row: float = result_field(
        "Time per row in cache, in microseconds.",
        when="measured cost",
        detail=True,
        line="cached_us_per_row",
        text="{cached_us_per_row:.3f}",
    )
    cached_linear_us_per_row: float = result_field(
        "Time of a linear prediction in cache, in microseconds.", when="measured cost"
    )
    cached_cost_ratio: float = result_field("The ratio of the two in cache.", when="measured cost")
    beside_other_work: bool = result_field(
        "Whether the computer did other work meanwhile.", when="measured cost", default=False
    )
    least_cost_ratio: float = result_field(
        "The 10 % quantile of the ratio.", when="measured cost", default=0.0
    )
    most_cost_ratio: float = result_field(
        "The 90 % quantile of the ratio.", when="measured cost", default=0.0
    )


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
        seconds, _, _ = _measure(predict, many, repeats, budget_seconds or BUDGET_SECONDS)
    return seconds


@lru_cache
def measured_linear_ns(n_features: int, *, stream_bytes: int = 0) -> float:
    """Nanoseconds of a float32 `X @ w` from memory here, once per process: the minimum of many."""
    width = padded_features(n_features)
    rows = np.ones((max((stream_bytes or STREAM_BYTES) // (4 * width), 1), width), np.float32)
    w = np.linspace(-1, 1, width, dtype=np.float32)
    with one_thread():
        loops = _loops(lambda: rows @ w)
        return 1e9 * min(_seconds(lambda: rows @ w, loops) for _ in range(REPEATS)) / len(rows)


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
    linear, predicted = [], []
    for repeat in range(repeats):
        start = (repeat * part) % (len(X) - part + 1)
        linear.append(_seconds(lambda: padded @ w, linear_loops) / len(X))
        predicted.append(_seconds(lambda start=start: predict(X[start : start + part]), loops) / part)  # type: ignore[misc]
    least, most = np.quantile(np.array(predicted) / linear, [0.1, 0.9])
    return (1e6 * float(np.median(predicted)), 1e6 * float(np.median(linear))), float(least), float(most)


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


def cost_parts(model: Model) -> dict[str, float] | None:
    """The predicted cost of a row, in linear predictions and by parts; None for baselines."""
    if model.leaf_models is not None:
        return None
    cost = predict_cost(model)
    parts = {
        name: round(getattr(cost, name) / cost.linear, 1)
        for name in ("convert", "descend", "landmarks", "outputs", *(["terms"] if model.terms else []))
    }
    return {"cost_ratio": round(cost.cost_ratio, 1), **parts}
