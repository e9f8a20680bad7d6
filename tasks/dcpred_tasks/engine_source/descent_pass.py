"""The engine's first pass, compiled: rows walk down the tree to their leaves; and the loop over tiles, which
runs both passes.

p is Packed (packing.py), q is Exact (double_precision.py), room is Room, source is Source, out is Out
(engine.py); DESIGN.md tells the whole with one row as an example.
"""

import numpy as np

from dcpred_tasks.dtypes import Status
from dcpred_tasks.engine.layout import FEW_FEATURES, HUGE, LANES, NOWHERE, ROOT_OF_HUGE
from dcpred_tasks.engine_source.centre_lanes import nearest_by_distance, nearest_child, prefetch_at
from dcpred_tasks.engine_source.compilation import CHECKED, compiled, inlined
from dcpred_tasks.engine_source.double_precision import (
    exact_leaf,
    exact_row,
    finish_constant,
    finish_plain,
    read_columns,
)
from dcpred_tasks.engine_source.few_features import UNDECIDED, walk_from_root, walk_rows
from dcpred_tasks.engine_source.fixed_descent import load_centred, load_fixed, walk_fixed
from dcpred_tasks.engine_source.leaf_pass import score_leaves
from dcpred_tasks.engine_source.llvm import LINE
from dcpred_tasks.engine_source.own_instructions import has_pair_products
from dcpred_tasks.engine_source.projection import (
    LONG_ROW_BYTES,
    PRODUCTS,
    SQUARES,
    prefetch_amounts,
    project,
    touch,
)
from dcpred_tasks.engine_source.row_maps import map_rows

PREFETCHED_LEVELS = 2  # levels on which rows to come are prefetched
OK, NON_FINITE_FEATURE = int(Status.OK), int(Status.NON_FINITE_FEATURE)


@compiled
def score_tiles(p, q, room, descent_rows, leaf_rows, source, n, out):
    """Score n rows, descent_rows at a time down the tree and leaf_rows at a time in the leaves. Where amounts
    are mapped, these are mapped first.
    """
    for start in range(0, n, leaf_rows):
        stop = min(start + leaf_rows, n)
        rows = map_rows(p, source, start, stop - start, room) if p.maps.stride > 0 else source
        for a in range(start, stop, descent_rows):
            last = min(a + descent_rows, stop)
            _descend(p, q, rows, a, last - a, room.leaf[a - start :], out.status, room)
        by_digits, by_products, count = _sort_by_leaf(p, stop - start, room)
        n_redo = score_leaves(p, rows, start, by_digits, by_products, count, out, room)
        for k in range(n_redo + stop - start - count):
            i = room.tile_sorted[k if k < n_redo else k - n_redo + count]
            leaf = room.leaf[i]
            if not finish_constant(p, q, leaf, start + i, out):
                finish_plain(p, q, rows, leaf, start + i, out, room)
        if len(out.leaf) > 0:
            for i in range(stop - start):
                out.leaf[start + i] = room.leaf[i]


@inlined
def _sort_by_leaf(p, n, room):
    """Sort the rows of a tile into tile_sorted: by rank of their leaf, those without landmarks last. Returns
    how many go by digits (these come first), how many by digits or products, and how many have landmarks.
    """
    n_leaves = len(p.group_at) - 1
    if n_leaves == 1 and p.group_at[1] > 0 and len(p.radius) == 0:
        for i in range(n):
            room.tile_sorted[i] = i
        return n if p.n_by_digits > 0 else 0, n if p.n_by_products > 0 else 0, n
    counts = room.counts
    counts[: n_leaves + 2] = 0
    for i in range(n):
        counts[_sort_key(p, room.leaf[i]) + 1] += 1
    for leaf in range(n_leaves):
        counts[leaf + 1] += counts[leaf]
    by_digits, by_products, count = counts[p.n_by_digits], counts[p.n_by_products], counts[n_leaves]
    for i in range(n):
        key = _sort_key(p, room.leaf[i])
        room.tile_sorted[counts[key]] = i
        counts[key] += 1
    return by_digits, by_products, count


@inlined
def _sort_key(p, leaf):
    """The rank of a leaf; the number of leaves where it has no landmarks in lanes."""
    if leaf != NOWHERE and p.group_at[leaf] < p.group_at[leaf + 1]:
        return p.rank[leaf]
    return len(p.group_at) - 1


@inlined
def _sort(keys, order, n, counts, low, high, out):
    """out[:n] = order[:n] sorted by keys[order], low ≤ key ≤ high; rows of equal keys keep their order."""
    counts[: high - low + 2] = 0
    for i in range(n):
        counts[keys[order[i]] - low + 1] += 1
    for k in range(high - low + 1):
        counts[k + 1] += counts[k]
    for i in range(n):
        k = keys[order[i]] - low
        out[counts[k]] = order[i]
        counts[k] += 1


@compiled
def _descend(p, q, source, start, n, leaf, status, room):
    """The leaf of each of n rows from `start` on; NOWHERE and NON_FINITE_FEATURE for a row that cannot be
    scored. A tree of one leaf with landmarks gives no row a status here: the leaf pass finds those rows.
    """
    if len(p.radius) == 0 and p.group_at[1] > 0:
        leaf[:n] = 0
        status[start : start + n] = OK
        return
    for i in range(n):
        room.address[i] = source.address + (start + i) * source.stride
        room.upcoming[i] = source.address + (start + n + i) * source.stride
    fixed = has_pair_products() and len(p.fixed.unit) > 0
    if fixed:
        load_fixed(p, source, n, room)
    else:
        load_centred(p, source, n, room.address, room.norm, room.rows, room)
    active, level = _start_at_root(p, q, source, start, n, leaf, status, room), 0
    if len(p.radius) == 0:
        return
    if fixed:
        active = walk_fixed(p, source, start, n, active, leaf, room)
        for r in range(active):
            i = room.order[r]
            load_centred(p, source, 1, room.address[i:], room.norm[i:], room.rows[i * p.width :], room)
            room.norm[i] = np.sqrt(room.norm[i])
        level = PREFETCHED_LEVELS
    if p.group_features <= FEW_FEATURES and not p.by_distances:
        _descend_few(p, q, source, start, n, active, leaf, status, room)
        return
    _descend_wide(p, q, source, start, active, level, leaf, status, room)


@inlined
def _descend_wide(p, q, source, start, active, level, leaf, status, room):
    """Walk rows room.order[:active] down from where they stand, lanes being centres. Rows to come are
    prefetched on the first levels, this one being number `level`.
    """
    order, next_order = room.order, room.next_order
    low, high = 0, len(p.radius) - 1 if level > 0 else 0
    by_products, at_once = prefetch_amounts(p, source)
    by_products = by_products if source.itemsize * p.n_features <= LONG_ROW_BYTES else 0
    half_row = (at_once // PREFETCHED_LEVELS + LINE - 1) // LINE * LINE  # bytes, in whole lines
    kind = SQUARES if p.by_distances else PRODUCTS
    while active > 0:
        if high > low and p.group_features > FEW_FEATURES:
            _sort(room.node, order, active, room.counts, low, high, next_order)
            order, next_order = next_order, order
        for r in range(active):
            i = order[r]
            room.row_at[r] = i * p.width
            room.centre_at[r] = room.node[i] * p.group_features * LANES
        ahead = active, by_products if level < PREFETCHED_LEVELS else 0, 0, level, PREFETCHED_LEVELS
        project(p, room, p.nodes, active, kind, False, ahead)
        low, high, remaining = len(p.radius), 0, 0
        for r in range(active):
            i = order[r]
            node, norm = room.node[i], room.norm[i]
            if CHECKED:
                touch(p.half_norms, node * LANES, LANES)
                touch(p.children, node * LANES, LANES)
                touch(p.radius, node, 1)
            if level < PREFETCHED_LEVELS:
                prefetch_at(room.upcoming[i], level * half_row, min((level + 1) * half_row, at_once))
            if p.by_distances:
                child = nearest_by_distance(
                    room.products, r, p.half_norms, p.children, node, norm, p.error, UNDECIDED
                )
            else:
                child = nearest_child(
                    room.products, r, p.half_norms, p.radius, p.children, node, norm, p.error, UNDECIDED
                )
            if child < 0:
                leaf[i] = ~child
            elif child == UNDECIDED:
                leaf[i] = _walk_in_double(q, source, start + i, node, status, room)
            else:
                room.node[i] = child
                low, high = min(low, child), max(high, child)
                order[remaining] = i
                remaining += 1
        active = remaining
        level += 1


@inlined
def _descend_few(p, q, source, start, n, active, leaf, status, room):
    """Walk rows of few features down: at the root lanes are rows, on the other levels centres."""
    if CHECKED:
        touch(room.rows, 0, n * p.width)
        touch(p.nodes, 0, len(p.radius) * p.group_features * LANES)
        touch(p.half_norms, 0, len(p.radius) * LANES)
        touch(p.children, 0, len(p.radius) * LANES)
        touch(leaf, 0, n)
    if active == n:
        active = walk_from_root(
            room.order,
            n,
            room.rows,
            p.width,
            p.group_features,
            p.nodes,
            p.half_norms,
            p.radius,
            p.children,
            room.node,
            room.norm,
            p.error,
            leaf,
            room.feature_columns,
        )
    while active > 0:
        active = walk_rows(
            room.order,
            active,
            room.rows,
            p.width,
            p.group_features,
            p.nodes,
            p.half_norms,
            p.radius,
            p.children,
            room.node,
            room.norm,
            p.error,
            leaf,
        )
    for i in range(n):
        if leaf[i] == NOWHERE:
            leaf[i] = _walk_in_double(q, source, start + i, 0, status, room)


@inlined
def _start_at_root(p, q, source, start, n, leaf, status, room):
    """Put all rows at the root, and return how many are to be walked down in single precision. Rows whose
    squares overflow are walked down here, in double precision.
    """
    all_fit = True
    for i in range(n):
        status[start + i] = OK
        leaf[i] = 0
        room.node[i] = 0
        room.order[i] = i
        all_fit &= room.norm[i] < HUGE
        room.norm[i] = np.sqrt(room.norm[i])
    if all_fit:
        return n if len(p.radius) > 0 else 0
    active = 0
    for i in range(n):
        if not (room.norm[i] < ROOT_OF_HUGE):
            leaf[i] = _walk_in_double(q, source, start + i, 0, status, room)
        elif len(p.radius) > 0:
            room.order[active] = i
            active += 1
    return active


@compiled
def _walk_in_double(q, source, i, node, status, room):
    """The leaf of row i, which stands at a node, in double precision, or NOWHERE and its status."""
    read_columns(q, source, i, room)
    if exact_row(q, room.x):
        return np.int64(exact_leaf(q, room.x, np.int64(node)))
    status[i] = NON_FINITE_FEATURE
    return NOWHERE
