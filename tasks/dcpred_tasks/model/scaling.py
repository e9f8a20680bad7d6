"""Feature scaling x' = (x − μ) ∘ s, learned once, before the tree; x are raw features, or their columns with
one-hot encoding, maps or missing values. Target encoding comes first
(model/target_encoding.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model import symlog
from dcpred_tasks.model.feature_map import map_from_arrays
from dcpred_tasks.model.leaf_arrays import Line, held_arrays
from dcpred_tasks.model.one_hot import Coding
from dcpred_tasks.model.target_encoding import TargetEncoding, encoding_of

BASES = ("none", "standard", "minmax")  # scalings of `fit_scaling`, which do not look at targets
LEARNED = ("learned", "sharpened")
SCALINGS = (*BASES, *LEARNED)


STRIP_NUMBERS = 2**22  # numbers of rows in double precision at once


def row_strips(n_rows: int, n_columns: int) -> list[slice]:
    """Successive rows, as many as fit double precision; all at once in one column (`column_sums`)."""
    step = max(STRIP_NUMBERS // n_columns, 1) if n_columns > 1 else max(n_rows, 1)
    return [slice(first, first + step) for first in range(0, n_rows, step)]


def column_sums(parts: Iterable[FloatArray]) -> FloatArray:
    """The sums of columns over rows of `row_strips`, rounded as those of all rows together: NumPy adds row
    after row where rows of two columns or more lie in C order. Parts are written.
    """
    total: FloatArray | None = None
    for part in parts:
        if total is not None:
            part[0] += total
        total = part.sum(axis=0)
    assert total is not None, "there are no rows"
    return total


@dataclass(frozen=True)
class Scaling:
    """shift μ and factor s, float64 (n_columns,). Without one-hot encoding columns are the encoded features,
    and without target encoding these are the raw features.
    """

    shift: Annotated[FloatArray, Line(ACC_DTYPE, ("feature",))]
    factor: Annotated[FloatArray, Line(ACC_DTYPE, ("feature",))]
    coding: Coding | None = None
    targets: TargetEncoding | None = None

    @property
    def n_features(self) -> int:
        """Features of a raw row."""
        return self.n_encoded if self.targets is None else self.targets.n_features

    @property
    def n_encoded(self) -> int:
        """Features of a row after the target encoding."""
        return len(self.shift) if self.coding is None else self.coding.n_features

    @property
    def source(self) -> IntArray:
        """int64 (n_columns,), the raw feature of each column."""
        encoded = np.arange(len(self.shift)) if self.coding is None else self.coding.source
        return encoded if self.targets is None else self.targets.source[encoded]

    @property
    def of_encoded(self) -> "Scaling":
        """The same of rows whose categories are encoded already."""
        return replace(self, targets=None)

    def names(self, names: Sequence[str] | None) -> Sequence[str] | None:
        """Names of the encoded features from those of the raw ones."""
        return names if self.targets is None else self.targets.names(names)

    @property
    def knows_gaps(self) -> bool:
        """Whether NaN is a value, and not a bad one."""
        return self.coding is not None and self.coding.gap is not None

    def labels(self, names: Sequence[str] | None) -> list[str] | None:
        """Names of raw features for tables of mean and deviation: of means for target encoding."""
        encoded = set() if self.targets is None else set(self.targets.feature.tolist())
        marked = (f"{name} (target-encoded)" if f in encoded else name for f, name in enumerate(names or ()))
        return None if names is None else list(marked)

    def __call__(self, X: NDArray[np.generic]) -> SingleArray:
        """float32 C-ordered (n_samples, n_columns); the difference is computed in double precision, because
        single precision would round a feature far from zero (a timestamp).
        """
        out = np.empty((len(X), len(self.shift)), MODEL_DTYPE)
        step = max(STRIP_NUMBERS // max(len(self.shift), 1), 1)
        for start in range(0, len(X), step):
            out[start : start + step] = self.exact(X[start : start + step])
        return out

    def exact(self, X: NDArray[np.generic]) -> FloatArray:
        """The same in double precision."""
        X = X if self.targets is None else self.targets(X)
        out = np.array(X, dtype=ACC_DTYPE, order="C") if self.coding is None else self.coding(X)
        out -= self.shift
        out *= self.factor
        return out

    def raw(self, points: FloatArray) -> FloatArray:
        """Raw rows of scaled points (n, n_columns), float64 (n, n_features), with μ in columns of factor 0.
        For one-hot encoded features and missing values see `Coding.raw`.
        """
        columns = self.shift + points / np.where(self.factor == 0, np.inf, self.factor)
        encoded = columns if self.coding is None else self.coding.raw(columns)
        return encoded if self.targets is None else self.targets.raw(encoded)

    def of_features(self) -> "Scaling":
        """A scaling of the raw features themselves, for their statistics: a one-hot encoded one is shifted by
        its least category, and has the factor 0 where all of its columns have; so has one that is mapped,
        which else is shifted by its centre. Missing values stay missing. A
        target-encoded feature is scaled by its first mean.
        """
        if self.targets is not None:
            encoded, means = self.of_encoded.of_features(), self.targets.first_means()
            n = self.n_features
            return Scaling(encoded.shift[:n], encoded.factor[:n], targets=means)
        if self.coding is None:
            return self
        coded, first = self.coding.is_coded, self.coding.first
        counts = np.logical_or.reduceat(self.factor[: self.coding.n_own] != 0, first)
        shift = np.where(coded, self.coding.lowest, self.shift[first])
        factor = np.where(coded, counts.astype(ACC_DTYPE), self.factor[first])
        if self.coding.map is not None:
            centre, rate = self.coding.map.centre, self.coding.map.rate
            shift = np.where(rate > 0, centre, shift)
            factor = np.where((rate > 0) & (factor != 0), rate, factor)
        return Scaling(shift, factor)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its arrays by name, with those of the one-hot and target encodings if present."""
        held = held_arrays(self)
        for part in (self.coding, self.targets):
            held |= {} if part is None else part.arrays()
        return held

    def as_lists(self) -> dict[str, list[Any]]:
        """The same as JSON holds it, which has neither NaN nor infinity."""
        words = {np.inf: "inf"}
        return {
            name: [None if value != value else words.get(value, value) for value in a.tolist()]
            for name, a in self.arrays().items()
        }

    @staticmethod
    def of(arrays: Mapping[str, Any]) -> "Scaling":
        """The scaling among values of `arrays` or `as_lists`. Raises ValueError for an invalid encoding."""
        shift, factor = (np.asarray(arrays[name], ACC_DTYPE) for name in ("shift", "factor"))
        coding = None
        if "source" in arrays:
            source, code = np.asarray(arrays["source"], INDEX_DTYPE), np.asarray(arrays["code"], ACC_DTYPE)
            gap = np.asarray(arrays["gap"], ACC_DTYPE) if "gap" in arrays else None
            coding = Coding(source, code, gap, map=map_from_arrays(arrays))
            if any(arrays.get(name) is not None for name in symlog.NAMES):
                log_scale, shift, factor = symlog.log_knots(arrays, coding, shift, factor)
                coding = replace(coding, map=log_scale)
        scaling = Scaling(shift, factor, coding)
        return replace(scaling, targets=encoding_of(arrays, scaling.n_encoded))


def fit_scaling(
    name: str,
    sample: NDArray[np.generic],
    weight: FloatArray,
    minimum: FloatArray,
    maximum: FloatArray,
    coding: Coding | None = None,
) -> Scaling:
    """`minimum` and `maximum` are those of all rows, `sample` some of the rows with their weights, all of raw
    features. A constant feature keeps factor 1 (minmax and standard then centre it, and it adds nothing to
    any distance). The columns of a one-hot encoded feature have one factor; standard gives their sum variance
    1. A feature without values, whose limits are NaN, gets the factor 0; beside mapped features, so does a
    numeric one that is not mapped, because it is constant.
    """
    if coding is None:
        return _fit(name, lambda rows: rows.astype(ACC_DTYPE), sample, weight, minimum, maximum)
    plain = _fit(name, coding, sample, weight, *coding.limits(minimum, maximum))
    factor = plain.factor
    if name == "standard":
        coded = np.isfinite(coding.code)
        variance = np.where(coded, factor, 1.0)[: coding.n_own] ** -2.0
        together = np.add.reduceat(variance, coding.first)[coding.source]
        factor = np.where(coded, together**-0.5, factor)
    left_out = np.isnan(minimum)[coding.source]
    if coding.map is not None:
        left_out |= np.isnan(coding.code) & (coding.map.rate == 0)[coding.source]
    return Scaling(plain.shift, np.where(left_out, 0.0, factor), coding)


def _fit(
    name: str,
    columns: Callable[[NDArray[np.generic]], FloatArray],
    sample: NDArray[np.generic],
    weight: FloatArray,
    minimum: FloatArray,
    maximum: FloatArray,
) -> Scaling:
    """The same of columns: `columns` makes them, float64 and new, from some rows of the sample."""
    n_columns = len(minimum)
    if name == "none":
        return Scaling(np.zeros(n_columns), np.ones(n_columns))
    if name == "minmax":
        return Scaling(minimum.copy(), _inverse(maximum - minimum))
    sample = np.ascontiguousarray(sample)  # The order in memory decides how sums are rounded.
    origin, strips = columns(sample[:1])[0].copy(), row_strips(len(sample), n_columns)

    def moved(strip: slice) -> FloatArray:
        """A constant column becomes exactly 0; its mean would be off by rounding."""
        rows = columns(sample[strip])
        rows -= origin
        return rows

    def over_largest(strip: slice) -> FloatArray:
        rows = moved(strip)
        rows /= largest  # No square overflows then.
        return rows

    def from_mean(strip: slice) -> FloatArray:
        rows = over_largest(strip)
        rows -= mean
        rows **= 2
        return rows

    largest = 1.0 / _inverse(np.max([np.abs(moved(strip)).max(axis=0) for strip in strips], axis=0))
    mean = column_sums(over_largest(strip) * weight[strip, None] for strip in strips) / weight.sum()
    variance = column_sums(from_mean(strip) * weight[strip, None] for strip in strips) / weight.sum()
    return Scaling(origin + largest * mean, _inverse(largest * np.sqrt(variance)))


def _inverse(width: FloatArray) -> FloatArray:
    """1 / width; 1 where that is not finite, as for a feature that is constant, or nearly so."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / width
    return np.where((width > 0) & np.isfinite(width) & np.isfinite(inverse), inverse, 1.0)
