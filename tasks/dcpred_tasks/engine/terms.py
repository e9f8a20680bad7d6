"""The terms of the decision values of a leaf, in the layout of the engine."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.engine.layout import UNROLLED


class Terms(NamedTuple):
    """The terms of the decision values of a leaf: landmarks, then products e[left] · e[right]."""

    n_landmarks: int
    """Landmarks, padded to a multiple of UNROLLED."""
    left: IntArray
    """int64 (n_products,), the first landmark of each product, counted within the leaf; padded as landmarks
    are.
    """
    right: IntArray
    """int64 (n_products,), the second landmark."""
    weights: FloatArray
    """float64 (n_landmarks + n_products, n_outputs), output weights; 0 in padding."""


def terms_of(first: FloatArray, pairs: NDArray[np.int32], second: FloatArray) -> Terms:
    """Landmarks with the weights `first` and products with the weights `second`, each padded with
    weights 0.
    """
    (m, n_outputs), none = first.shape, -len(pairs) % UNROLLED
    left, right = (np.pad(side, (0, none)).astype(np.int64) for side in pairs.T)
    padding = np.zeros((-m % UNROLLED, n_outputs))
    return Terms(
        m + len(padding), left, right, np.vstack([first, padding, second, np.zeros((none, n_outputs))])
    )
