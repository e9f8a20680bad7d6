"""The engine's two passes over tiles, compiled. engine.py says what they do, packing.py what p holds, exact.py what q holds."""

import numpy as np

from dcpred_tasks.compiled import CHECKED, compiled, compiled_and_kept, inlined
from dcpred_tasks.conversion import load_rows, load_some, read_row
from dcpred_tasks.dtypes import Status
from dcpred_tasks.exact import exact_leaf, exact_row, exact_values
from dcpred_tasks.lanes import (
    LANES,
    ROWS,
    distances_own,
    distances_shared,
    kernel_values,
    nearest_apart,
    nearest_child,
    output_lanes,
    prefetch,
    prefetch_at,
    project_own,
    project_shared,
    quadratic_form,
)

NARROW = 32  # features up to which a sort by node costs more than a group of centres for each row
BLOCK = 64  # rows that go through a leaf's products together
SLAB = 256  # features whose 16 lanes (16 KiB) stay in first-level cache while rows pass by
LONG = 1024  # bytes of a row from which on the processor's own prefetching does better
LINE = 64  # bytes that come from memory at once
HUGE = 1e30  # squares and products of single precision stay finite below it
ROOT_OF_HUGE = 1e15
NOWHERE = 2**32 - 1  # the leaf of a row that cannot be scored
FAR = 1 << 40  # no child: the row is walked down in double precision

OK, NON_FINITE_FEATURE, NON_FINITE_RESULT = int(Status.OK), int(Status.NON_FINITE_FEATURE), int(Status.NON_FINITE_RESULT)


@compiled_and_kept
def score_tiles(p, q, source, n, out, room, small, large):
    """Score n rows, `small` at a time down the tree and `large` at a time in the leaves."""
    for start in range(0, n, large):
        stop = min(start + large, n)
        for a in range(start, stop, small):
            _descend(p, q, source, a, min(a + small, stop) - a, room.leaf[a - start :], out.status, room)
        narrow, count = _sort_by_leaf(p, q, source, start, stop - start, out, room)
        at = 0
        while at < count:
            apart = at >= narrow
            rows = min(BLOCK, (count if apart else narrow) - at)
            _leaf_block(p, q, source, start, at, rows, count, out, room, apart)
            at += rows


@inlined
def _to_ask(p, source):
    """How raw rows to come are asked for: so many bytes with every feature of products, or so many at once with every row. The
    products of few features leave no time for it, and those of narrow rows are few."""
    if len(p.picks) == 0:
        return source.itemsize, 0
    row = source.itemsize * p.n_features
    return (0, row) if row <= LONG else (-(-row // p.even), 0)


@inlined
def _sort_by_leaf(p, q, source, start, n, out, room):
    """The rows of a tile that have landmarks, by rank of their leaf, into tile_sorted; how many narrow ones, how many in all.
    The others are done."""
    counts = room.counts
    counts[: len(p.group_at)] = 0
    for i in range(n):
        leaf = room.leaf[i]
        if leaf != NOWHERE and p.group_at[leaf] < p.group_at[leaf + 1]:
            counts[p.rank[leaf] + 1] += 1
        else:
            _finish_plain(p, q, source, leaf, start + i, out, room)
            room.leaf[i] = NOWHERE
    for leaf in range(len(p.group_at) - 1):
        counts[leaf + 1] += counts[leaf]
    narrow, count = counts[p.n_narrow], counts[len(p.group_at) - 1]
    for i in range(n):
        leaf = room.leaf[i]
        if leaf != NOWHERE:
            rank = p.rank[leaf]
            room.tile_sorted[counts[rank]] = i
            counts[rank] += 1
    return narrow, count


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


@inlined
def _project(p, room, centres, n, ask, phase, phases, apart):
    """products[16 r : 16 r + 16] of row_at[r] with centre_at[r] for r < n, equal centres side by side; distances if `apart`.

    Rows share a group of centres in whole blocks of ROWS; what is left of each group goes with a group of its own. Slab by slab
    of features, so that a group is read from first-level cache by all rows that want it. Meanwhile every phases-th line of the
    raw rows ahead[r] is asked for, `ask` bytes for a feature: waiting for them later takes longer than the work here.
    """
    blocks = rest = first = 0
    for r in range(1, n + 1):
        if r == n or room.centre_at[r] != room.centre_at[first]:
            while r - first >= ROWS:
                room.block[blocks] = first
                blocks += 1
                first += ROWS
            for i in range(first, r):
                room.rest[rest] = i
                rest += 1
            first = r
    room.row_at[n], room.centre_at[n] = room.row_at[n - 1], room.centre_at[n - 1]
    for i in range(rest, -(-rest // ROWS) * ROWS):
        room.rest[i] = n  # a slot that nobody reads: a row that came twice would be added to twice in a later slab
    if CHECKED:
        for r in range(n + 1):
            _touch(room.rows, room.row_at[r], p.even)
            _touch(centres, room.centre_at[r], p.even * LANES)
            _touch(room.products, r * LANES, LANES)
        _touch(room.ahead, n, SLAB)
    for slab in range(0, p.even, SLAB):
        stop = min(slab + SLAB, p.even)
        low, high = slab * ask + phase * LINE, stop * ask
        if apart:
            for i in range(blocks):
                distances_shared(room.rows, room.row_at, centres, room.centre_at, room.block[i], slab, stop, room.products)
            for i in range(0, rest, ROWS):
                distances_own(room.rows, room.row_at, centres, room.centre_at, room.rest, i, slab, stop, room.products)
            continue
        for i in range(blocks):
            project_shared(
                room.rows, room.row_at, centres, room.centre_at, room.block[i], slab, stop, room.products,
                room.ahead, i * n // blocks, low, high, 2 * LINE, (2 - phases) * LINE,
            )  # fmt: skip
        for i in range(0, rest, ROWS):
            project_own(room.rows, room.row_at, centres, room.centre_at, room.rest, i, slab, stop, room.products)


@compiled
def _descend(p, q, source, start, n, leaf, status, room):
    """The leaf of each of n rows from `start` on; NOWHERE and status 2 for a row that cannot be scored."""
    for i in range(n):
        room.address[i] = source.address + (start + i) * source.stride
        room.ahead[i] = source.address + (start + n + i) * source.stride
    _load(p, source, n, p.origin, p.origin_rest, p.origin_centre, room.zeros, p.n_features, room)
    order, spare = room.order, room.spare
    active = _begin(p, q, source, start, n, leaf, status, room)
    level = low = high = 0
    by_products, at_once = _to_ask(p, source)
    by_products = by_products if source.itemsize * p.n_features <= LONG else 0
    half = (at_once // 2 + LINE - 1) // LINE * LINE
    while active > 0:
        if high > low and p.even > NARROW:
            _sort(room.node, order, active, room.counts, low, high, spare)
            order, spare = spare, order
        for r in range(active):
            i = order[r]
            room.row_at[r] = i * p.width
            room.centre_at[r] = room.node[i] * p.even * LANES
        _project(p, room, p.nodes, active, by_products if level < 2 else 0, level, 2, p.apart)
        low, high, left = len(p.reach), 0, 0
        for r in range(active):
            i = order[r]
            node = room.node[i]
            if CHECKED:
                _touch(p.half_norms, node * LANES, LANES)
                _touch(p.children, node * LANES, LANES)
                _touch(p.reach, node, 1)
            if level < 2:
                prefetch_at(room.ahead[i], level * half, min((level + 1) * half, at_once))
            if p.apart:
                child = nearest_apart(room.products, r, p.half_norms, p.children, node, room.norm[i], p.error, FAR)
            else:
                child = nearest_child(room.products, r, p.half_norms, p.reach, p.children, node, room.norm[i], p.error, FAR)
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
def _begin(p, q, source, start, n, leaf, status, room):
    """Put all rows at the root, and return how many there are to be walked down: not those that squares overflow for."""
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


@inlined
def _touch(values, at, n):
    """An IndexError unless values[at : at + n] is there (with bounds checks only)."""
    return values[at], values[at + n - 1]


@inlined
def _load(p, source, n, high, low, centres, at, look, room):
    """Convert the rows at n addresses into room.rows; look at `look` features that are skipped, too."""
    if CHECKED:
        _touch(room.rows, 0, n * p.width)
        _touch(p.factor, 0, p.places)
        for r in range(n):
            _touch(high, at[r], p.places)
            _touch(low, at[r], p.places)
            _touch(centres, at[r], p.places)
        _touch(room.norm, 0, n)
    if len(p.picks) > 0:
        if CHECKED:
            _touch(p.picks, 0, p.places)
        load_some(
            source.code, room.address, n, look, p.picks, p.places, p.factor, high, low, at, room.rows, p.width, room.norm,
            p.shift, p.double_factor, centres,
        )  # fmt: skip
        return
    load_rows(
        source.code, room.address, n, p.n_features, p.factor, high, low, at, room.rows, p.width, room.norm,
        p.shift, p.double_factor, centres,
    )  # fmt: skip


@compiled
def _walk(q, source, i, status, room):
    """The leaf of row i in double precision, or NOWHERE and its status."""
    read_row(source.code, source.address + i * source.stride, len(room.x), room.x)
    if exact_row(q, room.x):
        return np.int64(exact_leaf(q, room.x))
    status[i] = NON_FINITE_FEATURE
    return NOWHERE


@compiled
def _leaf_block(p, q, source, start, at, n, count, out, room, apart):
    """Score n rows, tile_sorted[at : at + n] of `count` of the tile that starts with row `start`."""
    size = p.even * LANES
    most = 0
    for r in range(n):
        i = room.tile_sorted[at + r]
        leaf = room.leaf[i]
        room.node[r] = leaf
        room.address[r] = source.address + (start + i) * source.stride
        room.centre_at[r] = leaf * p.places
        most = max(most, p.group_at[leaf + 1] - p.group_at[leaf])
        ahead = room.tile_sorted[min(at + r + BLOCK, count - 1)]  # of the block after this one
        room.ahead[r] = source.address + (start + ahead) * source.stride
        if room.leaf[ahead] != leaf:
            prefetch(p.groups, p.group_at[room.leaf[ahead]] * size, min(size * 4, LINE))
    _load(p, source, n, p.means, p.means_rest, p.means_centre, room.centre_at, 0, room)
    by_products, at_once = _to_ask(p, source)
    for g in range(most):
        for r in range(n):
            leaf = room.node[r]
            room.row_at[r] = r * p.width
            room.centre_at[r] = min(p.group_at[leaf] + g, p.group_at[leaf + 1] - 1) * size
        _project(p, room, p.groups, n, by_products if g == 0 else 0, 0, 1, apart)
        for r in range(n):
            group = p.group_at[room.node[r]] + g
            if group < p.group_at[room.node[r] + 1]:
                if CHECKED:
                    _touch(p.scale, group * LANES, LANES)
                    _touch(p.offset, group * LANES, LANES)
                    _touch(p.difference, group * LANES, LANES)
                    _touch(room.e, r * p.room + g * LANES, LANES)
                if g == 0:
                    prefetch_at(room.ahead[r], 0, at_once)
                own = r * p.room + g * LANES
                kernel_values(room.products, r, apart, room.norm[r], p.scale, p.offset, p.difference, group, room.e, own)
    for r in range(n):
        i = room.tile_sorted[at + r]
        if room.norm[r] < HUGE:
            _outputs(p, room.node[r], r * p.room, start + i, out, room)
        else:
            _finish_plain(p, q, source, room.node[r], start + i, out, room)


@inlined
def _outputs(p, leaf, e, i, out, room):
    """Decision values of row i from its kernel values, which start at e."""
    first, last = p.group_at[leaf], p.group_at[leaf + 1]
    if CHECKED:
        _check_terms(p, leaf, e, room)
    if p.n_outputs == 1:
        total = np.float32(0.0)
        for g in range(first, last):
            own, terms = (g - first) * LANES, (p.term_at[g], p.term_at[g + 1])
            total += quadratic_form(room.e, e, p.linear, g, own, p.left, p.weights, terms[0], terms[1])
        value = total + p.constant[leaf, 0]
        if not p.regression and np.isfinite(np.float32(value)):  # the usual case, short
            out.singles[i, 0] = np.float32(value)
            return
        room.values[0] = value
        _finish(p, leaf, i, out, room)
        return
    room.e[e + (last - first) * LANES] = np.float32(1.0)
    terms = p.term_at[leaf], p.term_at[leaf + 1]
    here, end = p.present_at[leaf], p.present_at[leaf + 1]
    for lane in range(0, end - here, LANES):
        output_lanes(room.e, e, p.left, p.right, p.weights, terms[0], terms[1], p.stride, lane, room.sums)
    for k in range(p.n_outputs):
        room.values[k] = p.constant[leaf, k]
    for k in range(here, end):
        room.values[p.present[k]] += room.sums[k - here]
    fine = not p.regression
    for k in range(p.n_outputs):
        if not p.regression:
            out.singles[i, k] = np.float32(room.values[k])
            fine &= np.isfinite(out.singles[i, k])
    if not fine:
        _finish(p, leaf, i, out, room)


@compiled
def _check_terms(p, leaf, e, room):
    """Touch what the output weights of a leaf reach."""
    first, last = p.group_at[leaf], p.group_at[leaf + 1]
    _touch(room.e, e, (last - first + (p.n_outputs > 1)) * LANES)
    start, stop = (p.term_at[first], p.term_at[last]) if p.n_outputs == 1 else (p.term_at[leaf], p.term_at[leaf + 1])
    if p.n_outputs > 1:
        here, end = p.present_at[leaf], p.present_at[leaf + 1]
        for k in range(here, end):
            _touch(room.values, p.present[k], 1)
        _touch(room.sums, 0, end - here)
    for q in range(start, stop):
        _touch(p.weights, q * p.stride, p.stride)
        _touch(room.e, e + p.left[q], 1)
        _touch(room.e, e + p.right[q], 1)
    if p.n_outputs == 1:
        _touch(p.linear, first * LANES, (last - first) * LANES)


@compiled
def _finish_plain(p, q, source, leaf, i, out, room):
    """A row without kernel work in lanes: not scored, of a constant leaf, or scored in double precision."""
    if leaf == NOWHERE:
        for k in range(p.n_outputs):
            if p.regression:
                out.doubles[i, k] = np.nan
            else:
                out.singles[i, k] = np.nan
        return
    if q.beta_at[leaf] < q.beta_at[leaf + 1]:
        read_row(source.code, source.address + i * source.stride, len(room.x), room.x)
        exact_row(q, room.x)
    exact_values(q, leaf, room.x, room.c, room.r, room.values)
    _finish(p, leaf, i, out, room)


@compiled
def _finish(p, leaf, i, out, room):
    """Write the decision values of row i; NaN and status 4 where one of them is not finite."""
    fine = True
    for k in range(p.n_outputs):
        value = room.values[k]
        if p.regression:
            if p.bounded[leaf]:
                value = min(max(value, p.bounds[leaf, 0]), p.bounds[leaf, 1])
            out.doubles[i, k] = value
            fine = fine and np.isfinite(value)
        else:
            out.singles[i, k] = np.float32(value)
            fine = fine and np.isfinite(out.singles[i, k])
    if not fine:
        out.status[i] = NON_FINITE_RESULT
        for k in range(p.n_outputs):
            if p.regression:
                out.doubles[i, k] = np.nan
            else:
                out.singles[i, k] = np.nan
