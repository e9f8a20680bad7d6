"""The arrays of a model for compiled code in double precision: those of the definition, flat."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.columns import Columns, LogScale, columns_of, log_scale_of, raw_gaps
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernel_families import FAMILIES


class Exact(NamedTuple):
    """The arrays of a model for native/exact.h: `q` in compiled code. All are flat but `intercept`, and hold
    scaled features; `*_at` are offsets by leaf, as in compact_model.Model.
    """

    kernel: int
    """The place of the kernel's family in FAMILIES."""
    sum: int
    """The sum over features in the kernel: a kernel_families.Sum."""
    gamma: FloatArray
    """float64 (n_landmarks,), γ of each landmark."""
    triangle_gamma: float
    """γ of triangle pseudo-landmarks: that of the kernel."""
    shape: FloatArray
    """float64, KernelNumbers.shape."""
    lower_bound: bool
    """Whether triangle distances are lower bounds, max |r − s|; else upper ones, min (r + s)."""
    columns: Columns
    """How raw features become columns, with one-hot encoded features or missing indicators."""
    gap: FloatArray
    """float64 (n_features,), the markers of missing values, on the scale of their features; (0,) where NaN is
    a bad value.
    """
    log_scale: LogScale
    """The features on a logarithmic scale."""
    shift: FloatArray
    """float64 (n_columns,), μ in raw units."""
    factor: FloatArray
    """float64 (n_columns,), s in 1 / raw units."""
    starts: IntArray
    """int64 (n_nodes + 1,), the first centre of each node."""
    children: NDArray[np.int32]
    """int32 (n_centres,), the node that a centre leads to, or ~leaf."""
    centres: SingleArray
    """float32 (n_centres · n_columns,), row by row."""
    landmark_at: IntArray
    """int64 (n_leaves + 1,), offsets into `gamma`, and times n_columns into `landmarks`."""
    landmarks: SingleArray
    """float32 (n_landmarks · n_columns,), feature by feature in each leaf: a loop over them is a vector
    loop.
    """
    leaf_factor: SingleArray
    """float32 (n_leaves · n_features,), the ARD scales of each leaf; (0,) where
    leaves have none.
    """
    pair_at: IntArray
    """int64 (n_leaves + 1,), offsets of pairs."""
    pairs: NDArray[np.int32]
    """int32 (n_products · 2,), the two landmarks of each product, counted within the leaf."""
    triangle_at: IntArray
    """int64 (n_leaves + 1,), offsets into `triangle`."""
    triangle: SingleArray
    """float32, the distances of each triangle point to the landmarks of its leaf, point by point."""
    beta_at: IntArray
    """int64 (n_leaves + 1,), offsets of basis functions: landmarks, products, triangle points."""
    beta: SingleArray
    """float32 (n_basis · n_outputs,), output weights."""
    intercept: FloatArray
    """float64 (n_leaves, n_outputs), in units of decision values."""
    most_landmarks: int
    """The largest number of landmarks of a leaf."""


def exact_arrays(model: Model) -> Exact:
    """The arrays of a model as native/exact.h takes them."""
    at = model.landmark_at
    turned = [model.landmarks[at[leaf] : at[leaf + 1]].T.ravel() for leaf in range(model.n_leaves)]
    return Exact(
        kernel=FAMILIES.index(model.kernel.family),
        sum=int(model.kernel.family.sum),
        gamma=_own(model.gamma, ACC_DTYPE),
        triangle_gamma=float(model.kernel.gamma),
        shape=np.array(model.kernel.shape, ACC_DTYPE),
        lower_bound=model.triangle_bound == "lower",
        columns=columns_of(model),
        gap=_own(raw_gaps(model), ACC_DTYPE),
        log_scale=log_scale_of(model),
        shift=_own(model.scaling.shift, ACC_DTYPE),
        factor=_own(model.scaling.factor, ACC_DTYPE),
        starts=_own(model.tree.starts, np.int64),
        children=_own(model.tree.children, np.int32),
        centres=_own(model.tree.centres, np.float32),
        landmark_at=_own(at, np.int64),
        landmarks=_own(np.concatenate(turned), np.float32),
        leaf_factor=_own(model.leaf_factor, np.float32),
        pair_at=_own(model.pair_at, np.int64),
        pairs=_own(model.pairs, np.int32),
        triangle_at=_own(model.triangle_at, np.int64),
        triangle=_own(model.triangle, np.float32),
        beta_at=_own(model.beta_at, np.int64),
        beta=_own(model.beta, np.float32),
        intercept=np.array(model.intercept, ACC_DTYPE, order="C"),
        most_landmarks=int(np.diff(at).max()),
    )


def _own(values: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """A flat, writable copy: one type for the compiler, whatever the arrays were read from."""
    return np.array(values, dtype, order="C").ravel()
