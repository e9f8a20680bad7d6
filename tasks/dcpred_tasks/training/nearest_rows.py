"""The nearest rows of many, in a diagonal metric."""

import numpy as np

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.scaling import row_strips

BATCH_ROWS = 128  # rows of a neighbour search at once: it holds 4 bytes for each of them and each sample row


def neighbours(A: SingleArray, own: IntArray | None, pool: SingleArray, w: FloatArray, k: int) -> IntArray:
    """The k nearest rows of the pool, in any order: (m, k).

    A     (m, d) rows
    own   (m,) the numbers of these rows in the pool, which are excluded, or None
    w     (d,), ≥ 0

    The pool is divided into groups, each of every n_groups-th row. The k nearest rows lie in the k groups
    whose nearest row is nearest: a fast minimum over groups leaves a small part to select from.
    """
    used = np.flatnonzero(w > 0)
    s = np.sqrt(w[used]).astype(MODEL_DTYPE)
    n = len(pool)
    # A row of D is partitioned twice: n / group_rows minima, then k · group_rows values.
    group_rows = 1 << max(round(np.log2(n / (2 * k)) / 2), 0) if n > 2 * k else 1
    n_groups = max(-(-n // group_rows), k)
    # With |q|² in the last column, D − |a|² is one product.
    Q = np.zeros((n_groups * group_rows, len(used) + 1), MODEL_DTYPE)
    for strip in row_strips(*pool.shape):
        np.multiply(pool[strip][:, used], s, out=Q[:n, :-1][strip])
    Q[:, -1] = np.finfo(MODEL_DTYPE).max
    Q[:n, -1] = np.einsum("ij,ij->i", Q[:n, :-1], Q[:n, :-1])
    B = np.concatenate([-2 * s * A[:, used], np.ones((len(A), 1), MODEL_DTYPE)], axis=1)
    out = np.empty((len(A), k), np.int64)
    space = np.empty((min(BATCH_ROWS, len(A)), len(Q)), MODEL_DTYPE)
    in_group = np.arange(group_rows)[:, None] * n_groups
    for at in range(0, len(A), BATCH_ROWS):
        rows = B[at : at + BATCH_ROWS]
        D = np.matmul(rows, Q.T, out=space[: len(rows)])
        if own is not None:
            D[np.arange(len(D)), own[at : at + BATCH_ROWS]] = np.inf
        least = D.reshape(len(D), group_rows, n_groups).min(axis=1)
        near = np.argpartition(least, k - 1, axis=1)[:, :k]
        inside = (in_group + near[:, None, :]).reshape(len(D), -1)
        first = np.arange(len(D))[:, None] * len(Q)
        found = np.argpartition(D.ravel().take(first + inside), k - 1, axis=1)[:, :k]
        out[at : at + BATCH_ROWS] = np.take_along_axis(inside, found, axis=1)
    return out


def squared_distances(A: SingleArray, pool: SingleArray, near: IntArray, w: FloatArray) -> SingleArray:
    """Squared distances (m, k), summed of differences: |a|² − 2a·b + |b|² cancels between neighbours."""
    used = np.flatnonzero(w > 0)
    s = np.sqrt(w[used]).astype(MODEL_DTYPE)
    B = A[:, used] * s
    D = np.empty(near.shape, MODEL_DTYPE)
    for at in range(0, len(A), BATCH_ROWS):
        part = slice(at, at + BATCH_ROWS)
        rows = np.take(pool[near[part]], used, axis=2)
        rows *= s
        rows -= B[part, None]
        D[part] = np.square(rows, out=rows).sum(axis=2)
    return D
