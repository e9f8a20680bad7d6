"""The engine's second pass, compiled: rows in the order of their leaves, from kernel values to decision
values.

Products with landmarks are computed for a strip of 64 sorted rows, as on the walk, or where features are few
for 16 rows of one leaf; decision values are always computed for 16 rows of one leaf (row_lanes.py).

p is Packed (packing.py), room is Room, source is Source, out is Out (engine.py).
"""

import numpy as np

from dcpred_tasks.engine.layout import FEW_FEATURES, HUGE, LANES, STRIP_ROWS
from dcpred_tasks.engine_source.centre_lanes import prefetch_at
from dcpred_tasks.engine_source.compilation import CHECKED, compiled, inlined
from dcpred_tasks.engine_source.digit_products import kernel_values_by_digits
from dcpred_tasks.engine_source.kernel_lanes import kernel_values
from dcpred_tasks.engine_source.llvm import LINE
from dcpred_tasks.engine_source.own_instructions import has_wide_vectors
from dcpred_tasks.engine_source.projection import (
    ABSOLUTE,
    PRODUCTS,
    SQUARES,
    load,
    prefetch_amounts,
    project,
    touch,
)
from dcpred_tasks.engine_source.row_lanes import (
    bounded_lanes,
    column_bounded,
    column_results,
    column_sum,
    column_sums,
    column_values,
    transpose_rows,
    write_columns,
)
from dcpred_tasks.engine_source.row_places import place_rows

SINGLE = 4  # bytes of a landmark's feature


@compiled
def score_leaves(p, source, start, by_digits, by_products, count, out, room):
    """Score the rows tile_sorted[:count] of the tile that begins with row `start`: the first `by_digits` of
    them by digits, those up to `by_products` by products, the others, of wide leaves, by differences. Returns
    n_redo: the rows tile_sorted[:n_redo] are left to double precision.
    """
    at = n_redo = 0
    while at < count:
        wide = at >= by_products
        stop = by_digits if at < by_digits else (count if wide else by_products)
        rows = min(STRIP_ROWS, stop - at)
        if rows == STRIP_ROWS and at + rows < count:
            rows = _whole_groups(room, at, rows)
        digits = at < by_digits
        n_redo = _score_strip(p, source, start, at, rows, count, n_redo, out, room, wide, digits)
        at += rows
    return n_redo


@inlined
def _whole_groups(room, at, n):
    """How many of the n sorted rows from `at` on to take: where the leaf of the last ones goes on behind
    them, it takes part with a multiple of 16 rows.
    """
    leaf = room.leaf[room.tile_sorted[at + n]]
    own = 0
    while own < n and room.leaf[room.tile_sorted[at + n - 1 - own]] == leaf:
        own += 1
    return n - own % LANES if own % LANES < n else n


@inlined
def _score_strip(p, source, start, at, n, count, n_redo, out, room, wide, digits):
    """Score the rows tile_sorted[at : at + n] of `count`; returns the new n_redo, as score_leaves."""
    if CHECKED:
        touch(room.tile_sorted, at, n)
        touch(room.node, 0, n)
    few = p.group_features <= FEW_FEATURES
    # Rows of several leaves lie apart: the last line of one is not the first of the next.
    within = LINE - 1 if len(p.radius) > 0 else 0
    place_rows(
        room.tile_sorted,
        at,
        n,
        min(at + STRIP_ROWS, count - n),
        room.leaf,
        source.address + start * source.stride,
        source.stride,
        source.itemsize * p.n_features if few else 0,
        within if few else 0,
        p.n_converted,
        room.node,
        room.address,
        room.centre_at,
    )
    fewest = most = n_upcoming = 0
    if not few:
        fewest, most, n_upcoming = _look_ahead(p, source, start, at, n, count, within, room)
    load(
        p,
        source,
        n,
        p.leaf_factors.single,
        p.leaf_factors.double,
        p.leaf_factors.step,
        p.means_high,
        p.means_low,
        p.means_centre,
        room.centre_at,
        p.n_columns if len(p.radius) == 0 else 0,
        room.address,
        room.norm,
        room.rows,
        room,
    )
    if digits:
        kernel_values_by_digits(p, n, source.itemsize * p.n_features, room)
    elif most > 0:
        _kernel_values_of_strip(p, source, n, n_upcoming, within, fewest, most, room, wide)
    first = 0
    for r in range(1, n + 1):
        if r == n or r - first == LANES or room.node[r] != room.node[first]:
            n_redo = _score_rows_of_leaf(p, start, at + first, first, r - first, n_redo, out, room, wide)
            first = r
    return n_redo


@inlined
def _look_ahead(p, source, start, at, n, count, within, room):
    """The fewest and the most groups of landmarks that a leaf of these n rows has, and the length of the list
    room.upcoming: what will be read a strip later. That is the raw rows, and the first group of landmarks of
    each leaf that is new there, in pieces as long as a raw row of products.
    """
    size = p.group_features * LANES * SINGLE
    piece = max(source.itemsize * p.group_features, LINE)
    fewest, most, n_upcoming = len(p.groups), 0, n
    known = room.node[n - 1]
    for r in range(n):
        leaf = room.node[r]
        groups = p.group_at[leaf + 1] - p.group_at[leaf]
        fewest, most = min(fewest, groups), max(most, groups)
        following = room.tile_sorted[min(at + r + STRIP_ROWS, count - 1)]
        row = source.address + (start + following) * source.stride
        room.upcoming[r] = row - (row & within)
        if room.leaf[following] != known:
            known = room.leaf[following]
            first = p.groups.ctypes.data + p.group_at[known] * size
            for byte in range(0, size, piece):
                if n_upcoming < 2 * STRIP_ROWS:
                    room.upcoming[n_upcoming] = first + byte
                    n_upcoming += 1
    return fewest, most, n_upcoming


@inlined
def _kernel_values_of_strip(p, source, n, n_upcoming, within, fewest, most, room, wide):
    """room.e[r · p.row_values : …]: the kernel values e of n rows at the landmarks of their leaves, which
    have from `fewest` to `most` groups of 16.
    """
    size = p.group_features * LANES
    by_products, at_once = prefetch_amounts(p, source)
    kind = ABSOLUTE if p.absolute else (SQUARES if wide else PRODUCTS)
    pairs = fewest - fewest % 2 if kind == PRODUCTS and has_wide_vectors() else 0
    g = 0
    while g < most:
        for r in range(n):
            leaf = room.node[r]
            room.row_at[r] = r * p.width
            room.centre_at[r] = min(p.group_at[leaf] + g, p.group_at[leaf + 1] - 1) * size
        two = g < pairs
        ahead = n_upcoming, by_products if g == 0 else 0, within, 0, 1
        project(p, room, p.groups, n, kind, two, ahead)
        _kernel_values_of_group(p, n, g, 0, at_once if g == 0 else 0, room, wide)
        if two:
            _kernel_values_of_group(p, n, g + 1, len(room.products) // 2 // LANES, 0, room, wide)
        g += 2 if two else 1


@inlined
def _kernel_values_of_group(p, n, g, first, n_bytes, room, wide):
    """The kernel values of n rows at group g of their leaves, from products of rows first to first + n − 1;
    n_bytes of each raw row to come are prefetched.
    """
    for r in range(n):
        group = p.group_at[room.node[r]] + g
        if group < p.group_at[room.node[r] + 1]:
            own = r * p.row_values + g * LANES
            if CHECKED:
                touch(p.constants, group * p.n_constants * LANES, p.n_constants * LANES)
                touch(room.e, own, LANES)
                touch(room.products, (first + r) * LANES, LANES)
            if n_bytes > 0:
                prefetch_at(room.upcoming[r], 0, n_bytes)
            kernel_values(
                room.products,
                first + r,
                p.form,
                wide,
                room.norm[r],
                p.constants,
                p.n_constants,
                group,
                room.e,
                own,
            )


@inlined
def _score_rows_of_leaf(p, start, at, row, n, n_redo, out, room, wide):
    """Decision values of at most 16 rows of one leaf: tile_sorted[at : at + n], in the buffers from `row` on.

    Rows whose results are not finite, or whose squares overflow, are done again in double precision: they are
    added to tile_sorted[:n_redo], over rows that are done. Returns the new n_redo.
    """
    leaf = np.int64(room.node[row])
    first, last = p.group_at[leaf], p.group_at[leaf + 1]
    pairs, end = p.pair_at[leaf], p.pair_at[leaf + 1]
    first_output, last_output = p.present_at[leaf], p.present_at[leaf + 1]
    m, weight = p.n_landmarks[leaf], p.weight_at[leaf]
    if CHECKED:
        _check_leaf(p, leaf, row, room)
    if p.group_features <= FEW_FEATURES:
        transpose_rows(room.rows, row * p.width, p.width, p.width // LANES, room.feature_columns)
        column_values(
            room.feature_columns,
            p.group_features,
            p.groups,
            first,
            last,
            p.form,
            wide,
            room.norm,
            row,
            p.constants,
            p.n_constants,
            room.value_columns,
        )
    else:
        transpose_rows(room.e, row * p.row_values, p.row_values, last - first, room.value_columns)
    if p.n_outputs == 1:
        column_sum(room.value_columns, m, p.left, p.right, pairs, end, p.weights, weight, room.sums)
    else:
        column_sums(
            room.value_columns,
            m,
            p.left,
            p.right,
            pairs,
            end,
            p.weights,
            weight,
            p.term_weights,
            last_output - first_output,
            room.sums,
        )
    if p.regression:
        low, high = (p.bounds[leaf, 0], p.bounds[leaf, 1]) if p.bounded[leaf] else (-np.inf, np.inf)
        finite = column_bounded(room.sums, p.constant[leaf, 0], low, high, room.double_results)
        write_columns(room.double_results, 1, room.tile_sorted, at, n, start, out.doubles)
    else:
        own = leaf * p.n_outputs
        finite = column_results(
            room.sums, p.n_outputs, p.present, first_output, last_output, p.constant, own, room.results
        )
        write_columns(room.results, p.n_outputs, room.tile_sorted, at, n, start, out.singles)
    finite &= bounded_lanes(room.norm, row, HUGE)
    if finite & ((1 << n) - 1) == (1 << n) - 1:
        return n_redo
    for r in range(n):
        if not finite & (1 << r):
            room.tile_sorted[n_redo] = room.tile_sorted[at + r]
            n_redo += 1
    return n_redo


@compiled
def _check_leaf(p, leaf, row, room):
    """Touch everything that the decision values of a leaf are read from (with bounds checks only)."""
    first, last = p.group_at[leaf], p.group_at[leaf + 1]
    pairs, end = p.pair_at[leaf], p.pair_at[leaf + 1]
    first_output, last_output = p.present_at[leaf], p.present_at[leaf + 1]
    m = p.n_landmarks[leaf]
    touch(p.groups, first * p.group_features * LANES, (last - first) * p.group_features * LANES)
    size = p.n_constants * LANES
    touch(p.constants, first * size, (last - first) * size)
    touch(p.weights, p.weight_at[leaf], (m + end - pairs) * p.term_weights)
    touch(room.norm, row, LANES)
    touch(room.value_columns, 0, (last - first) * LANES * LANES)
    if p.group_features <= FEW_FEATURES:
        touch(room.rows, row * p.width, LANES * p.width)
        touch(room.feature_columns, 0, p.width * LANES)
    else:
        touch(room.e, row * p.row_values, LANES * p.row_values)
    for k in range(pairs, end):
        touch(room.value_columns, p.left[k] * LANES, LANES)
        touch(room.value_columns, p.right[k] * LANES, LANES)
    for k in range(first_output, last_output):
        touch(room.results, p.present[k] * LANES, LANES)
        touch(p.constant[leaf], p.present[k], 1)
    touch(room.sums, 0, (last_output - first_output) * LANES)
