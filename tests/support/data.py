"""Small data with known answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.storage import zarr_arrays


@dataclass(frozen=True)
class Classes:
    X: NDArray[np.float32]
    y: NDArray[np.int64]


def make_blobs(n: int, n_features: int, n_classes: int, seed: int) -> Classes:
    """Rows around 4 centres for each class, which a linear model does not separate."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 3, (4 * n_classes, n_features))
    group = rng.integers(0, len(centres), n)
    X = (centres[group] + rng.normal(0, 0.7, (n, n_features))).astype(np.float32)
    return Classes(X, group % n_classes)


def make_group(
    path: Path,
    X: NDArray[Any],
    y: NDArray[Any] | None = None,
    *,
    chunk_rows: int = 100,
    shard_rows: int | None = None,
    labels: list[str] | None = None,
    **more: NDArray[Any],
) -> Path:
    """A Zarr data set."""
    group = zarr_arrays.create_group(path)
    zarr_arrays.create_array(group, "X", X.shape, X.dtype, chunk_rows, shard_rows=shard_rows)[...] = X
    if y is not None:
        attributes = {"labels": labels} if labels else None
        zarr_arrays.create_array(group, "y", y.shape, y.dtype, chunk_rows, attributes=attributes)[...] = y
    for name, value in more.items():
        zarr_arrays.create_array(group, name, value.shape, value.dtype, chunk_rows)[...] = value
    return path
