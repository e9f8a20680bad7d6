"""Real data for the demonstration: scikit-learn's digits, enlarged by small shifts and rotations.

The infinite-MNIST sets (Loosli, Canu and Bottou 2007) are made in the same way: a deformed digit remains
that digit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

SIDE = 8
HELD_OUT = 450
MAX_SHIFT = 0.6  # pixels
MAX_ROTATION = np.deg2rad(12)


@dataclass(frozen=True)
class Digits:
    """Rows of 64 grey levels 0…16, and labels: deformed ones to train on, held-out originals to test on."""

    X_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]


def enlarged_digits(n_rows: int, seed: int = 0) -> Digits:
    """About n_rows training rows: every original that is not held out, deformed as often as necessary."""
    rng = np.random.default_rng(seed)
    data = load_digits()
    order = rng.permutation(len(data.target))
    X, y = data.data[order], data.target[order].astype(np.uint8)
    kept, y_kept = X[HELD_OUT:], y[HELD_OUT:]
    copies = max(n_rows // len(kept), 1)
    deformed = [kept]
    for _ in range(copies - 1):
        shift = rng.uniform(-MAX_SHIFT, MAX_SHIFT, 2)
        deformed.append(kept @ deformation(shift, rng.uniform(-MAX_ROTATION, MAX_ROTATION)).T)
    rows = np.rint(np.concatenate(deformed)).astype(np.uint8)
    shuffled = rng.permutation(len(rows))
    return Digits(
        rows[shuffled], np.tile(y_kept, copies)[shuffled], X[:HELD_OUT].astype(np.uint8), y[:HELD_OUT]
    )


def deformation(shift: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    """The 64 × 64 matrix that rotates an image about its middle and shifts it, by bilinear interpolation.

    shift  (2,), rows and columns in pixels
    angle  radians
    """
    middle = (SIDE - 1) / 2
    row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
    y, x = row - middle - shift[0], column - middle - shift[1]
    from_row = np.cos(angle) * y + np.sin(angle) * x + middle
    from_column = -np.sin(angle) * y + np.cos(angle) * x + middle
    matrix = np.zeros((SIDE * SIDE, SIDE * SIDE))
    for down in (0, 1):
        for right in (0, 1):
            r, c = np.floor(from_row).astype(int) + down, np.floor(from_column).astype(int) + right
            weight = (1 - np.abs(from_row - r)) * (1 - np.abs(from_column - c))
            inside = (r >= 0) & (r < SIDE) & (c >= 0) & (c < SIDE)
            matrix[np.flatnonzero(inside), (r * SIDE + c)[inside]] += weight[inside]
    return matrix
