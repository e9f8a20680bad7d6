"""How raw rows of coded features become rows of columns (model/coding.py), as compiled code takes it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.model.compact_model import Model


class Columns(NamedTuple):
    """How a raw row becomes a row of columns; arrays are empty where no feature is coded."""

    stride: int
    """Length of a row of columns: n_columns and some to spare, a multiple of 16. The last one is the spare
    column.
    """
    first: NDArray[np.int32]
    """int32 (n_features,), the first column of each feature."""
    lowest: NDArray[np.int32]
    """int32 (n_features,), the least code of each feature."""
    extent: NDArray[np.int32]
    """int32 (n_features,), how many whole numbers there are from the least code to the largest; 0 for a
    feature that is not coded.
    """
    place_at: NDArray[np.int32]
    """int32 (n_features,), where the first of these numbers is in `place`."""
    place: NDArray[np.int32]
    """int32, the columns that the numbers of a feature are coded by, the spare one for a number without a
    column, and once more the spare one; of a feature that is not coded its own column.
    """


def columns_of(model: Model) -> Columns:
    """How the raw rows of a model become columns."""
    coding = model.scaling.coding
    if coding is None:
        return Columns(0, *(np.empty(0, np.int32) for _ in range(5)))
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
        first=coding.first.astype(np.int32),
        lowest=np.where(coding.is_coded, coding.lowest, 0.0).astype(np.int32),
        extent=(length - 1).astype(np.int32),
        place_at=(np.cumsum(length) - length).astype(np.int32),
        place=np.concatenate(places),
    )
