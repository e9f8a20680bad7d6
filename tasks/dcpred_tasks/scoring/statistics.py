"""Statistics of scored rows, small enough for a commit record and independent of the order of blocks, and
their comparison with the training rows.

Every row      decision values in a histogram of fixed bins for each output; labels by class
One in k       rows by bin of each raw feature and of each output (model/bins.py); mean and sd of each scaled
feature, and
               missing values in models with them; rows by leaf; rank sums of pairs of raw features
               (model/relations.py). For all rows they would cost more than scoring

Features are measured as the model sees them, x' = (x − μ) ∘ s: μ is near their middle, which is accurate, and
a feature of factor 0 does not matter, because it changes no score. Reports give them in raw units.
DECISIONS.md has the cost.
"""

import base64
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, IntArray, LeafNumbers, Status
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.moments import Moments, as_features, moments_of, packed_moments
from dcpred_tasks.model.relations import no_sums, pairs_once, pairs_twice, rank_map
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.row_sampling import one_of_each
from dcpred_tasks.scoring.outputs import OUTPUT_COLUMNS, Values, columns

# Their names in commit records; of the first in manifests, too.
HISTOGRAM, BINNED, RELATED = "decision", "bins", "relations"
SAMPLE_ROWS = 2**11  # least sampled rows of a run, if it has so many
STRIDE = 2**10  # k of a large run; only BLOCK_SAMPLE_ROWS makes it longer
BLOCK_SAMPLE_ROWS = 2**11  # most sampled rows of a block
COUNTED_ROWS = 2**14  # rows counted at once, whose intermediate results stay in cache

MANTISSA_BITS = 2  # a bin of decision values is a quarter of an octave
LEAST, MOST = 2.0**-6, 2.0**6  # limits of |decision value|; one more bin lies below, one above
OCTAVES = 12  # octaves from LEAST to MOST
BINS = 2 * (OCTAVES * 2**MANTISSA_BITS + 1) + 1
REGRESSION_BINS = 64
FEW_VALUES = 16  # values counted one by one: 0.06 ns a row and value of int8; all together 1.9
_NONE = np.zeros(0, INDEX_DTYPE)


HASHED_ROWS = "hashed"  # rule of plans: of each k rows one, at a hashed place


def sampled_positions(n_rows: int, first: int, stride: int, rule: str | None) -> IntArray:
    """Positions of sampled rows among n_rows, from number `first` on, by the rule of the plan."""
    if rule == HASHED_ROWS:
        return one_of_each(n_rows, stride, first)
    return np.arange(-first % stride, n_rows, stride)


def sample_stride(n_rows: int, block_rows: int) -> int:
    """k: of each k rows one is sampled. It depends only on the plan: every attempt samples the same rows."""
    return max(min(n_rows // SAMPLE_ROWS, STRIDE), block_rows // BLOCK_SAMPLE_ROWS, 1)


@dataclass(frozen=True)
class ScoredRows:
    """Rows and their results."""

    X: NDArray[np.generic]
    """Raw rows (n, n_features)."""
    decision: NDArray[Any]
    """(n, n_outputs), of the model's score_dtype; NaN where the status is not 1."""
    status: NDArray[np.uint8]
    """Status codes (n,)."""
    leaf: LeafNumbers
    """The leaf that scored each row, int32 (n,)."""
    values: Values
    """The stored values of the rows, by the name of the output column."""


class Statistics:
    """Statistics of rows that one model scored, gathered from output chunks one by one."""

    def __init__(self, model: Model, outputs: Collection[str] = ()) -> None:
        """outputs  names of the output columns whose values are counted, where they have a tally"""
        self.model = model
        self.values = {c.name: c.tally_values(model) for c in columns(outputs) if c.tally}
        self.tallies = {name: np.zeros(len(values), INDEX_DTYPE) for name, values in self.values.items()}
        self.moments = Moments(model.n_features)
        self.leaf_rows = np.zeros(model.n_leaves, INDEX_DTYPE)
        self.bin_rows = np.zeros(0 if model.bins is None else len(model.bins.rows), INDEX_DTYPE)
        self.ranks = rank_map(model.bins, model.relations)
        self.rank_sums = no_sums(0 if self.ranks is None else len(self.ranks.features))
        self.histogram = np.zeros((model.n_outputs, REGRESSION_BINS if _limits(model) else BINS), INDEX_DTYPE)

    def observe(self, scored: ScoredRows, sampled: IntArray) -> None:
        """Add rows, of which those at the positions `sampled` are sampled."""
        ok = scored.status == Status.OK
        all_ok = bool(ok.all())
        decision = scored.decision.reshape(len(ok), -1)
        self.histogram += decision_counts(self.model, decision if all_ok else decision[ok])
        for name, values in self.values.items():
            self.tallies[name] += value_counts(
                scored.values[name] if all_ok else scored.values[name][ok], values
            )
        if self.model.bins is not None:
            # A row that the model refuses for a missing value also shows drift.
            read = sampled[ok[sampled] | (scored.status[sampled] == Status.NON_FINITE_FEATURE)]
            positions = self.model.bins.positions(scored.X[read], decision[sampled[ok[sampled]]])
            self.bin_rows += self.model.bins.counted(positions)
            if self.ranks is not None:
                self.rank_sums += self.ranks.sums(positions)
        sampled = sampled[ok[sampled]]
        self.moments.add(moments_of(as_features(self.model.scaling, scored.X[sampled])))
        self.leaf_rows += np.bincount(scored.leaf[sampled], minlength=len(self.leaf_rows))

    def packed(self) -> dict[str, Any]:
        """The statistics of a block as JSON of its record; moments in single precision take little space."""
        with np.errstate(over="ignore"):
            moments = np.stack([self.moments.mean, self.moments.sd]).astype("<f4")
        gaps = (self.moments.n - self.moments.values).astype("<u4")
        return {
            "sampled_rows": self.moments.n,
            "moments": base64.b64encode(moments.tobytes()).decode(),
            **({"gaps": pack(gaps)} if self.model.scaling.knows_gaps else {}),
            "leaf_rows": pack(self.leaf_rows.astype("<u4")),
            **({} if self.model.bins is None else {BINNED: pack(self.bin_rows.astype("<u4"))}),
            **({} if self.ranks is None else {RELATED: pack(pairs_once(self.rank_sums).astype("<i4"))}),
            HISTOGRAM: pack(self.histogram.astype("<u4")),
            **{c.tally: self.tallies.get(c.name, _NONE).tolist() for c in OUTPUT_COLUMNS if c.tally},
        }

    def add_packed(self, value: Mapping[str, Any]) -> None:
        """Add the statistics of another block, from `packed`."""
        n = int(value["sampled_rows"])
        mean, sd = np.frombuffer(base64.b64decode(value["moments"]), "<f4").astype(ACC_DTYPE).reshape(2, -1)
        gaps = unpack(value["gaps"]) if "gaps" in value else np.zeros(len(mean), INDEX_DTYPE)
        self.moments.add(packed_moments(n, n - gaps, mean, sd))
        self.leaf_rows += unpack(value["leaf_rows"])
        if self.model.bins is not None and BINNED in value:  # Earlier versions omit them.
            self.bin_rows += unpack(value[BINNED])
        if self.ranks is not None and RELATED in value:
            self.rank_sums += pairs_twice(unpack(value[RELATED], "<i4"), len(self.ranks.features))
        self.histogram += unpack(value[HISTOGRAM]).reshape(self.histogram.shape)
        for column in OUTPUT_COLUMNS:
            if column.name in self.tallies and len(value[column.tally]) == len(self.tallies[column.name]):
                self.tallies[column.name] += np.array(value[column.tally], INDEX_DTYPE)


def pack(counts: NDArray[np.uint32 | np.int32]) -> str:
    """Counts, most of them 0, as text."""
    return base64.b64encode(zlib.compress(counts.tobytes(), 1)).decode()


def unpack(text: str, dtype: str = "<u4") -> IntArray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype).astype(INDEX_DTYPE)


def bad_features(scaling: Scaling, rows: NDArray[np.generic]) -> IntArray:
    """The first feature of each raw row that is not finite, or not once it is scaled; -1 where all are."""
    with np.errstate(over="ignore", invalid="ignore"):
        bad = ~np.isfinite(scaling(rows))
    return np.where(bad.any(axis=1), scaling.source[bad.argmax(axis=1)], -1)


def unscored(
    scaling: Scaling, rows: NDArray[np.generic], status: NDArray[np.uint8]
) -> Counter[tuple[int, int]]:
    """Rows without a score by status and first feature that is not finite, or −1."""
    bad = np.flatnonzero(status != Status.OK)
    feature = bad_features(scaling, rows[bad]) if len(bad) else bad
    return Counter(zip(status[bad].tolist(), feature.tolist(), strict=True))


def why_unscored(
    counts: Mapping[int, int], listed: Mapping[tuple[int, int], int], names: Sequence[str] | None
) -> str:
    """The most frequent reason why no row has a score, as the start of a sentence.

    counts  rows by status
    listed  some of these rows as `unscored` counts them
    """
    status, n = max(counts.items(), key=itemgetter(1))
    features = Counter({f: m for (code, f), m in listed.items() if code == status and f >= 0})
    column = ""
    if features:
        most = features.most_common(1)[0][0]
        column = f", most often in column {most if names is None else repr(names[most])}"
    name = Status(status).name.lower().replace("_", " ")
    return f"none of the {sum(counts.values()):,} rows has a score: {n:,} have {name!r}{column}"


def decision_edges(model: Model) -> FloatArray:
    """Edges between the bins of decision values, ascending; they depend only on the model.

    Regression      REGRESSION_BINS equal bins over the possible range of the model (its bounds)
    Classification  quarters of octaves on both sides of 0: margins near 1 matter, and their range is unknown
    """
    limits = _limits(model)
    if limits is not None:
        return np.linspace(*limits, REGRESSION_BINS + 1)[1:-1]
    steps = 1 + np.arange(2**MANTISSA_BITS) / 2**MANTISSA_BITS
    positive = np.append((LEAST * 2.0 ** np.arange(OCTAVES)[:, None] * steps).ravel(), MOST)
    return np.concatenate([-positive[::-1], positive])


def _limits(model: Model) -> tuple[float, float] | None:
    if model.task != "regression" or not model.bounds.size:
        return None
    low, high = float(model.bounds.min()), float(model.bounds.max())
    return (low, high) if high > low and np.isfinite((high - low) * REGRESSION_BINS) else None


def decision_counts(model: Model, decision: NDArray[Any]) -> IntArray:
    """Finite decision values (n, n_outputs), by output and bin; on an edge away from 0, or up for numbers."""
    limits = _limits(model)
    if limits is not None:
        at = ((decision[:, 0] - limits[0]) * (REGRESSION_BINS / (limits[1] - limits[0]))).astype(INDEX_DTYPE)
        return np.bincount(np.clip(at, 0, REGRESSION_BINS - 1), minlength=REGRESSION_BINS)[None]
    with np.errstate(over="ignore"):
        bits = np.ascontiguousarray(decision, np.float32).view(np.uint32)
    # Sign, exponent and the first bits of the mantissa number the bins: 2 ns a value; searchsorted: 30.
    shift = np.uint32(23 - MANTISSA_BITS)
    keys = 2 ** (8 + MANTISSA_BITS)
    low, high = (int(np.float32(limit).view(np.uint32) >> shift) for limit in (LEAST, MOST))
    counts = np.empty((decision.shape[1], BINS), INDEX_DTYPE)
    for column in range(decision.shape[1]):
        signs = np.zeros((2, keys), INDEX_DTYPE)
        for start in range(0, len(bits), COUNTED_ROWS):
            part = bits[start : start + COUNTED_ROWS, column] >> shift
            signs += np.bincount(part, minlength=2 * keys).reshape(2, keys)
        inner, outer = signs[:, low:high], signs[:, high:].sum(axis=1)
        small = signs[:, :low].sum()
        counts[column] = np.concatenate([[outer[1]], inner[1, ::-1], [small], inner[0], [outer[0]]])
    return counts


def value_counts(rows: NDArray[Any], values: NDArray[Any]) -> IntArray:
    """The count of each of the distinct values."""
    if len(values) <= FEW_VALUES:
        return np.array([np.count_nonzero(rows == value) for value in values], INDEX_DTYPE)
    if values.dtype == np.int8:
        total = np.zeros(2**8, INDEX_DTYPE)
        for start in range(0, len(rows), COUNTED_ROWS):
            total += np.bincount(rows[start : start + COUNTED_ROWS].view(np.uint8), minlength=len(total))
        return total[values.view(np.uint8)]
    if values.dtype.kind in "iu" and int(values.max()) - int(values.min()) < 2**16:
        low = int(values.min())
        counts = np.bincount(rows.astype(np.int64) - low, minlength=int(values.max()) - low + 1)
        return np.asarray(counts[values.astype(np.int64) - low])
    order = np.argsort(values)
    counts = np.empty(len(values), INDEX_DTYPE)
    counts[order] = np.bincount(np.searchsorted(values[order], rows), minlength=len(values))
    return counts
