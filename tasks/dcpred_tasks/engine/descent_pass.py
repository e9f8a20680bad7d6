"""The engine's two passes over tiles, compiled.

engine.py says what they do, packing.py what p holds, double_precision.py what q holds.
"""

import numpy as np

from dcpred_tasks.dtypes import Status
from dcpred_tasks.engine.centre_lanes import nearest_apart, nearest_child, prefetch_at
from dcpred_tasks.engine.compilation import CHECKED, compiled, compiled_and_kept, inlined
from dcpred_tasks.engine.double_precision import exact_leaf, exact_row, finish_constant, finish_plain
from dcpred_tasks.engine.few_features import FAR, walk_from_root, walk_rows
from dcpred_tasks.engine.layout import HUGE, LANES, NARROW, NOWHERE
from dcpred_tasks.engine.leaf_pass import score_leaves
from dcpred_tasks.engine.llvm import LINE
from dcpred_tasks.engine.projection import LONG, PRODUCTS, SQUARES, load, project, to_ask, touch
from dcpred_tasks.engine.row_conversion import read_row

ROOT_OF_HUGE = 1e15
OK, NON_FINITE_FEATURE = int(Status.OK), int(Status.NON_FINITE_FEATURE)


@compiled_and_kept
def score_tiles(p, q, source, n, out, room, small, large):
    """Score n rows, `small` at a time down the tree and `large` at a time in the leaves."""
    for start in range(0, n, large):
        stop = min(start + large, n)
        for a in range(start, stop, small):
            _descend(p, q, source, a, min(a + small, stop) - a, room.leaf[a - start :], out.status, room)
        narrow, count = _sort_by_leaf(p, stop - start, room)
        left = score_leaves(p, source, start, narrow, count, out, room)
        for k in range(left + stop - start - count):
            i = room.tile_sorted[k if k < left else k - left + count]
            leaf = room.leaf[i]
            if not finish_constant(p, q, leaf, start + i, out):
                finish_plain(p, q, source, leaf, start + i, out, room)
        if len(out.leaf) > 0:
            for i in range(stop - start):
                out.leaf[start + i] = room.leaf[i]


@inlined
def _sort_by_leaf(p, n, room):
    """Rows of a tile that have landmarks, by rank of their leaf, into tile_sorted, then the others; how many
    narrow ones there are, and how many with landmarks.
    """
    n_leaves = len(p.group_at) - 1
    if n_leaves == 1 and p.group_at[1] > 0 and len(p.reach) == 0:
        for i in range(n):
            room.tile_sorted[i] = i
        return n if p.n_narrow > 0 else 0, n
    counts = room.counts
    counts[: n_leaves + 2] = 0
    for i in range(n):
        counts[_place(p, room.leaf[i]) + 1] += 1
    for leaf in range(n_leaves):
        counts[leaf + 1] += counts[leaf]
    narrow, count = counts[p.n_narrow], counts[n_leaves]
    for i in range(n):
        place = _place(p, room.leaf[i])
        room.tile_sorted[counts[place]] = i
        counts[place] += 1
    return narrow, count


@inlined
def _place(p, leaf):
    """Where rows of a leaf come: by its rank, those without landmarks in lanes at the end."""
    if leaf != NOWHERE and p.group_at[leaf] < p.group_at[leaf + 1]:
        return p.rank[leaf]
    return len(p.group_at) - 1


@inlined
def _sort(keys, order, n, counts, low, high, out):
    """out[:n] = order[:n] by keys[order], which lie from low to high; equal keys keep their order."""
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
    """The leaf of each of n rows from `start` on; NOWHERE and status 2 for a row that cannot be scored (where
    there is one leaf with landmarks, it is found there).
    """
    if len(p.reach) == 0 and p.group_at[1] > 0:
        leaf[:n] = 0
        status[start : start + n] = OK
        return
    for i in range(n):
        room.address[i] = source.address + (start + i) * source.stride
        room.ahead[i] = source.address + (start + n + i) * source.stride
    load(p, source, n, p.origin, p.origin_rest, p.origin_centre, room.zeros, p.n_features, room)
    order, spare = room.order, room.spare
    active = _begin(p, q, source, start, n, leaf, status, room)
    level = low = high = 0
    if len(p.reach) == 0:
        return
    if p.even <= NARROW and not p.apart:
        _descend_narrow(p, q, source, start, n, active, leaf, status, room)
        return
    by_products, at_once = to_ask(p, source)
    by_products = by_products if source.itemsize * p.n_features <= LONG else 0
    half = (at_once // 2 + LINE - 1) // LINE * LINE
    kind = SQUARES if p.apart else PRODUCTS
    while active > 0:
        if high > low and p.even > NARROW:
            _sort(room.node, order, active, room.counts, low, high, spare)
            order, spare = spare, order
        for r in range(active):
            i = order[r]
            room.row_at[r] = i * p.width
            room.centre_at[r] = room.node[i] * p.even * LANES
        project(p, room, p.nodes, active, by_products if level < 2 else 0, level, 2, kind)
        low, high, left = len(p.reach), 0, 0
        for r in range(active):
            i = order[r]
            node = room.node[i]
            if CHECKED:
                touch(p.half_norms, node * LANES, LANES)
                touch(p.children, node * LANES, LANES)
                touch(p.reach, node, 1)
            if level < 2:
                prefetch_at(room.ahead[i], level * half, min((level + 1) * half, at_once))
            if p.apart:
                child = nearest_apart(
                    room.products, r, p.half_norms, p.children, node, room.norm[i], p.error, FAR
                )
            else:
                child = nearest_child(
                    room.products, r, p.half_norms, p.reach, p.children, node, room.norm[i], p.error, FAR
                )
            if child < 0:
                leaf[i] = ~child
            elif child == FAR:
                leaf[i] = _walk(q, source, start + i, status, room)
            else:
                room.node[i] = child
                low, high = min(low, child), max(high, child)
                order[left] = i
                left += 1
        active = left
        level += 1


@inlined
def _descend_narrow(p, q, source, start, n, active, leaf, status, room):
    """Walk rows of few features down."""
    if CHECKED:
        touch(room.rows, 0, n * p.width)
        touch(p.nodes, 0, len(p.reach) * p.even * LANES)
        touch(p.half_norms, 0, len(p.reach) * LANES)
        touch(p.children, 0, len(p.reach) * LANES)
        touch(leaf, 0, n)
    if active == n:
        active = walk_from_root(
            room.order,
            n,
            room.rows,
            p.width,
            p.even,
            p.nodes,
            p.half_norms,
            p.reach,
            p.children,
            room.node,
            room.norm,
            p.error,
            leaf,
            room.x_columns,
        )
    while active > 0:
        active = walk_rows(
            room.order,
            active,
            room.rows,
            p.width,
            p.even,
            p.nodes,
            p.half_norms,
            p.reach,
            p.children,
            room.node,
            room.norm,
            p.error,
            leaf,
        )
    for i in range(n):
        if leaf[i] == NOWHERE:
            leaf[i] = _walk(q, source, start + i, status, room)


@inlined
def _begin(p, q, source, start, n, leaf, status, room):
    """Put all rows at the root, and return how many there are to be walked down: not those that squares
    overflow for.
    """
    usual = True
    for i in range(n):
        status[start + i] = OK
        leaf[i] = 0
        room.node[i] = 0
        room.order[i] = i
        usual &= room.norm[i] < HUGE
        room.norm[i] = np.sqrt(room.norm[i])
    if usual:
        return n if len(p.reach) > 0 else 0
    active = 0
    for i in range(n):
        if not (room.norm[i] < ROOT_OF_HUGE):
            leaf[i] = _walk(q, source, start + i, status, room)
        elif len(p.reach) > 0:
            room.order[active] = i
            active += 1
    return active


@compiled
def _walk(q, source, i, status, room):
    """The leaf of row i in double precision, or NOWHERE and its status."""
    read_row(source.code, source.address + i * source.stride, len(room.x), room.x)
    if exact_row(q, room.x):
        return np.int64(exact_leaf(q, room.x))
    status[i] = NON_FINITE_FEATURE
    return NOWHERE
