"""The engine's second pass, compiled: rows in the order of their leaves, from kernel values to decision
values.

Products with landmarks are of blocks of rows, like those of the walk, or of 16 rows of one leaf where
features are few; what follows is always of 16 rows of one leaf (row_lanes.py).
"""

import numpy as np

from dcpred_tasks.engine.centre_lanes import prefetch, prefetch_at
from dcpred_tasks.engine.compilation import CHECKED, compiled, inlined
from dcpred_tasks.engine.kernel_lanes import kernel_values
from dcpred_tasks.engine.layout import HUGE, LANES, NARROW
from dcpred_tasks.engine.llvm import LINE
from dcpred_tasks.engine.projection import ABSOLUTE, PRODUCTS, SQUARES, load, project, to_ask, touch
from dcpred_tasks.engine.row_conversion import place_rows
from dcpred_tasks.engine.row_lanes import (
    bounded_lanes,
    column_bounded,
    column_results,
    column_sum,
    column_sums,
    column_values,
    turn_rows,
    write_columns,
)

BLOCK = 64  # rows that go through a leaf's products together


@compiled
def score_leaves(p, source, start, narrow, count, out, room):
    """Score the rows of a tile in tile_sorted: `narrow` of them by products, the others of `count` by
    differences. How many were left to double precision: tile_sorted[: left].
    """
    at = left = 0
    while at < count:
        apart = at >= narrow
        rows = min(BLOCK, (count if apart else narrow) - at)
        if rows == BLOCK and at + rows < count:
            rows = _whole(room, at, rows)
        left = _leaf_block(p, source, start, at, rows, count, left, out, room, apart)
        at += rows
    return left


@inlined
def _whole(room, at, n):
    """How many of n sorted rows to take so that the last leaf's are a multiple of 16 if not all of them are
    taken.
    """
    leaf = room.leaf[room.tile_sorted[at + n]]
    own = 0
    while own < n and room.leaf[room.tile_sorted[at + n - 1 - own]] == leaf:
        own += 1
    return n - own % LANES if own % LANES < n else n


@inlined
def _leaf_block(p, source, start, at, n, count, left, out, room, apart):
    """Score n rows, tile_sorted[at : at + n] of `count` of the tile that starts with row `start`; see
    _rows_of_leaf.
    """
    if CHECKED:
        touch(room.tile_sorted, at, n)
        touch(room.node, 0, n)
    narrow = p.even <= NARROW
    place_rows(
        room.tile_sorted,
        at,
        n,
        min(at + BLOCK, count - n),
        room.leaf,
        source.address + start * source.stride,
        source.stride,
        source.itemsize * p.n_features if narrow else 0,
        p.places,
        room.node,
        room.address,
        room.centre_at,
    )
    most = 0 if narrow else _look_ahead(p, source, start, at, n, count, room)
    load(
        p,
        source,
        n,
        p.means,
        p.means_rest,
        p.means_centre,
        room.centre_at,
        p.n_features if len(p.reach) == 0 else 0,
        room,
    )
    if most > 0:
        _values_of_rows(p, source, n, most, room, apart)
    first = 0
    for r in range(1, n + 1):
        if r == n or r - first == LANES or room.node[r] != room.node[first]:
            left = _rows_of_leaf(p, start, at + first, first, r - first, left, out, room, apart)
            first = r
    return left


@inlined
def _look_ahead(p, source, start, at, n, count, room):
    """Where the rows of the block after this one lie; their landmarks are asked for. The most groups of
    landmarks of a row.
    """
    size = p.even * LANES
    most = 0
    for r in range(n):
        leaf = room.node[r]
        most = max(most, p.group_at[leaf + 1] - p.group_at[leaf])
        ahead = room.tile_sorted[min(at + r + BLOCK, count - 1)]
        room.ahead[r] = source.address + (start + ahead) * source.stride
        if room.leaf[ahead] != leaf:
            prefetch(p.groups, p.group_at[room.leaf[ahead]] * size, min(size * 4, LINE))
    return most


@inlined
def _values_of_rows(p, source, n, most, room, apart):
    """room.e[r · p.room : …], the kernel values of n rows with the landmarks of their leaves."""
    size = p.even * LANES
    by_products, at_once = to_ask(p, source)
    kind = ABSOLUTE if p.absolute else (SQUARES if apart else PRODUCTS)
    for g in range(most):
        for r in range(n):
            leaf = room.node[r]
            room.row_at[r] = r * p.width
            room.centre_at[r] = min(p.group_at[leaf] + g, p.group_at[leaf + 1] - 1) * size
        project(p, room, p.groups, n, by_products if g == 0 else 0, 0, 1, kind)
        for r in range(n):
            group = p.group_at[room.node[r]] + g
            if group < p.group_at[room.node[r] + 1]:
                if CHECKED:
                    touch(p.constants, group * p.n_constants * LANES, p.n_constants * LANES)
                    touch(room.e, r * p.room + g * LANES, LANES)
                if g == 0:
                    prefetch_at(room.ahead[r], 0, at_once)
                own = r * p.room + g * LANES
                kernel_values(
                    room.products,
                    r,
                    p.form,
                    apart,
                    room.norm[r],
                    p.constants,
                    p.n_constants,
                    group,
                    room.e,
                    own,
                )


@inlined
def _rows_of_leaf(p, start, at, row, n, left, out, room, apart):
    """Decision values of at most 16 rows of one leaf: tile_sorted[at : at + n], in the buffers from `row` on.
    Those that are not finite, or whose squares overflow, are put to tile_sorted[left :], which rows that are
    done have left; returns its end.
    """
    leaf = np.int64(room.node[row])
    first, last = p.group_at[leaf], p.group_at[leaf + 1]
    pairs, end = p.pair_at[leaf], p.pair_at[leaf + 1]
    here, stop = p.present_at[leaf], p.present_at[leaf + 1]
    m, weight = p.landmarks[leaf], p.weight_at[leaf]
    if CHECKED:
        _check_leaf(p, leaf, row, room)
    if p.even <= NARROW:
        turn_rows(room.rows, row * p.width, p.width, p.width // LANES, room.x_columns)
        column_values(
            room.x_columns,
            p.even,
            p.groups,
            first,
            last,
            p.form,
            apart,
            room.norm,
            row,
            p.constants,
            p.n_constants,
            room.columns,
        )
    else:
        turn_rows(room.e, row * p.room, p.room, last - first, room.columns)
    if p.n_outputs == 1:
        column_sum(room.columns, m, p.left, p.right, pairs, end, p.weights, weight, room.sums)
    else:
        column_sums(
            room.columns, m, p.left, p.right, pairs, end, p.weights, weight, p.stride, stop - here, room.sums
        )
    if p.regression:
        low, high = (p.bounds[leaf, 0], p.bounds[leaf, 1]) if p.bounded[leaf] else (-np.inf, np.inf)
        fine = column_bounded(room.sums, p.constant[leaf, 0], low, high, room.double_results)
        write_columns(room.double_results, 1, room.tile_sorted, at, n, start, out.doubles)
    else:
        own = leaf * p.n_outputs
        fine = column_results(room.sums, p.n_outputs, p.present, here, stop, p.constant, own, room.results)
        write_columns(room.results, p.n_outputs, room.tile_sorted, at, n, start, out.singles)
    fine &= bounded_lanes(room.norm, row, HUGE)
    if fine & ((1 << n) - 1) == (1 << n) - 1:
        return left
    for r in range(n):
        if not fine & (1 << r):
            room.tile_sorted[left] = room.tile_sorted[at + r]
            left += 1
    return left


@compiled
def _check_leaf(p, leaf, row, room):
    """Touch what the decision values of a leaf reach."""
    first, last = p.group_at[leaf], p.group_at[leaf + 1]
    pairs, end = p.pair_at[leaf], p.pair_at[leaf + 1]
    here, stop = p.present_at[leaf], p.present_at[leaf + 1]
    m = p.landmarks[leaf]
    touch(p.groups, first * p.even * LANES, (last - first) * p.even * LANES)
    known = p.n_constants * LANES
    touch(p.constants, first * known, (last - first) * known)
    touch(p.weights, p.weight_at[leaf], (m + end - pairs) * p.stride)
    touch(room.norm, row, LANES)
    touch(room.columns, 0, (last - first) * LANES * LANES)
    if p.even <= NARROW:
        touch(room.rows, row * p.width, LANES * p.width)
        touch(room.x_columns, 0, p.width * LANES)
    else:
        touch(room.e, row * p.room, LANES * p.room)
    for k in range(pairs, end):
        touch(room.columns, p.left[k] * LANES, LANES)
        touch(room.columns, p.right[k] * LANES, LANES)
    for k in range(here, stop):
        touch(room.results, p.present[k] * LANES, LANES)
        touch(p.constant[leaf], p.present[k], 1)
    touch(room.sums, 0, (stop - here) * LANES)
