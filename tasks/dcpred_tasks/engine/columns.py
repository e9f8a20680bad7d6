"""How raw rows become rows of columns for compiled code: one-hot encoding and missing values
(model/one_hot.py), mapped features (model/feature_map.py) and features on a logarithmic scale
(model/feature_map.py).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, SingleArray
from dcpred_tasks.engine.layout import LANES, Conversion, aligned
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.feature_map import MOST_KNOTS


class Columns(NamedTuple):
    """How a raw row becomes a row of columns; arrays are empty without one-hot encoded features and missing
    indicators.
    """

    stride: int
    """Length of a row of columns: a multiple of 16 above n_columns. The last column is spare.
    """
    coded: int
    """1 with one-hot encoded features; else columns are the features, then the missing indicators."""
    first: NDArray[np.int32]
    """int32 (n_features,), the first column of each feature."""
    lowest: NDArray[np.int32]
    """int32 (n_features,), the least category of each feature."""
    extent: NDArray[np.int32]
    """int32 (n_features,), how many integers lie from the least category to the largest; 0 for a feature that
    is not one-hot encoded.
    """
    place_at: NDArray[np.int32]
    """int32 (n_features,), where the first of these integers is in `place`."""
    place: NDArray[np.int32]
    """int32, the columns of the integers of a feature, the spare one for an integer without a column, and the
    spare one again; for a feature that is not one-hot encoded its own column.
    """
    indicated: NDArray[np.int32]
    """int32 (n_indicators,), the features of the missing indicators in the last columns."""


class LogScale(NamedTuple):
    """The features on a logarithmic scale, which raw rows are brought to first; arrays are empty without such
    features.
    """

    stride: int
    """Length of a row on that scale: n_features, padded to a multiple of 8."""
    centre: FloatArray
    """float64 (n_features,), in raw units."""
    rate: FloatArray
    """float64 (n_features,), in 1 / raw units; 0 for a feature that stays as it is."""


class Maps(NamedTuple):
    """The map of heavy-tailed features, which is applied first; arrays are empty without such features."""

    stride: int
    """Length of a mapped row: n_features, padded to a multiple of 16; 0 where no feature is mapped."""
    centre: FloatArray
    """float64 (stride,), in raw units."""
    rate: FloatArray
    """float64 (stride,), in 1 / raw units; 0 for a feature that stays as it is."""
    knots: SingleArray
    """float32 (stride / 16 · 63 · 16,), the knots of 16 features side by side, infinite after the last one;
    (0,) where features are clipped.
    """
    pieces: SingleArray
    """float32 (stride · 64 · 3,), knot, slope and value of the lines before the first knot and after each;
    of a feature that stays as it is a line that changes nothing.
    """


class Gaps(NamedTuple):
    """The markers of missing values in converted columns; arrays are empty where NaN is a bad value."""

    double: FloatArray
    """float64 (n_converted,), in units of columns; without meaning for one-hot encoded features and
    indicators.
    """
    high: SingleArray
    """float32 (n_converted,), the part that one float32 holds."""
    low: SingleArray
    """float32 (n_converted,), the rest."""


def log_scale_of(model: Model) -> LogScale:
    """The features of a model on a logarithmic scale."""
    coding = model.scaling.coding
    if coding is None or coding.symlog is None:
        return LogScale(0, np.empty(0), np.empty(0))
    centre, rate = coding.symlog.centre, coding.symlog.rate
    return LogScale(-(-len(rate) // 8) * 8, aligned(centre), aligned(rate))


def maps_of(model: Model) -> Maps:
    """The map of a model's features."""
    none, coding = np.empty(0, np.float32), model.scaling.coding
    if coding is None or coding.map is None:
        return Maps(0, np.empty(0), np.empty(0), none, none)
    found, n = coding.map, coding.n_features
    stride = -(-n // LANES) * LANES
    centre, rate = (np.pad(values, (0, stride - n)) for values in (found.centre, found.rate))
    if found.at is None or found.knot is None or found.value is None:
        return Maps(stride, aligned(centre), aligned(rate), none, none)
    knots = np.full((stride, MOST_KNOTS), np.inf, np.float32)
    pieces = np.zeros((stride, MOST_KNOTS + 1, 3), np.float32)
    pieces[:, :, 1] = 1.0
    for f in found.features:
        own = slice(int(found.at[f]), int(found.at[f + 1]))
        last = own.stop - own.start
        knots[f, :last] = found.knot[own]
        pieces[f, 1 : last + 1] = np.stack([found.knot[own], found.slope[own], found.value[own]], axis=1)
        pieces[f, 0] = found.knot[own.start], 0.0, found.value[own.start]
    side_by_side = knots.reshape(-1, LANES, MOST_KNOTS).transpose(0, 2, 1)
    return Maps(
        stride, aligned(centre), aligned(rate), aligned(side_by_side.ravel()), aligned(pieces.ravel())
    )


def raw_gaps(model: Model) -> FloatArray:
    """The marker of missing values of each raw feature, mapped or on its scale, float64 (n_features,); (0,)
    where NaN is a bad value.
    """
    coding = model.scaling.coding
    if coding is None or coding.gap is None:
        return np.empty(0)
    return coding.gap if coding.amounts is None else coding.amounts(coding.gap[None])[0]


def gaps_of(model: Model, conversion: Conversion) -> Gaps:
    """The markers of missing values of columns, in their order."""
    gap = raw_gaps(model)
    double = gap[model.scaling.source[conversion.feature]] if len(gap) else gap
    # The engine computes rows with an infinite part in double precision.
    with np.errstate(over="ignore", invalid="ignore"):
        high = double.astype(np.float32)
        low = (double - high).astype(np.float32)
    return Gaps(aligned(double), aligned(high), aligned(low))


def columns_of(model: Model) -> Columns:
    """How the raw rows of a model become columns."""
    coding = model.scaling.coding
    if coding is None or not (coding.is_coded.any() or len(coding.indicated)):
        return Columns(0, 0, *(np.empty(0, np.int32) for _ in range(6)))
    stride = -(-(model.n_columns + 1) // LANES) * LANES
    places = []
    for feature, is_coded in enumerate(coding.is_coded):
        own = coding.columns(feature)
        if is_coded:
            above = (coding.code[own] - coding.lowest[feature]).astype(np.int64)
            place = np.full(above[-1] + 2, stride - 1, np.int32)
            place[above] = own
        places.append(place if is_coded else own.astype(np.int32))
    length = np.array([len(place) for place in places])
    return Columns(
        stride=stride,
        coded=int(coding.is_coded.any()),
        first=coding.first.astype(np.int32),
        lowest=np.where(coding.is_coded, coding.lowest, 0.0).astype(np.int32),
        extent=(length - 1).astype(np.int32),
        place_at=(np.cumsum(length) - length).astype(np.int32),
        place=np.concatenate(places),
        indicated=coding.indicated.astype(np.int32),
    )
