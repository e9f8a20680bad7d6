"""The walk down by whole numbers, compiled: rows of a descent tile go as far as their numbers can tell.

p is Packed (packing.py), room is Room, source is Source (engine.py).
"""

from dcpred_tasks.engine.layout import LANES, ROOT_OF_HUGE
from dcpred_tasks.engine_source.compilation import CHECKED, compiled, inlined
from dcpred_tasks.engine_source.fixed_walk import ROWS, to_fixed, walk_own, walk_root, walk_shared
from dcpred_tasks.engine_source.llvm import LINE
from dcpred_tasks.engine_source.projection import LONG_ROW_BYTES, load, touch

STRIP = 2**12  # features of rows that become whole numbers while they are in first-level cache


@compiled
def load_centred(p, source, n, address, norm, rows, room):
    """The rows at n addresses in single precision, less the tree's origin, and ‖z‖² of each in norm."""
    scaling = p.factor, p.double_factor, 0
    centres = p.origin_high, p.origin_low, p.origin_centre
    load(p, source, n, *scaling, *centres, room.zeros, p.n_columns, address, norm, rows, room)


@inlined
def load_fixed(p, source, n, room):
    """The rows at n addresses as whole numbers in room.numbers, and ‖z‖² in room.norm."""
    at_once = max(STRIP // p.width, 1)
    for first in range(0, n, at_once):
        rows = min(at_once, n - first)
        load_centred(p, source, rows, room.address[first:], room.norm[first:], room.rows, room)
        if CHECKED:
            touch(room.numbers, first * p.width, rows * p.width)
        to_fixed(room.rows, rows, p.width, room.norm, room.numbers, first)


@compiled
def walk_fixed(p, source, start, n, active, leaf, room):
    """Walk rows room.order[:active] of a tile of n down from the root; returns how many are left to single
    precision: room.order[:…], each where it stands in room.node.
    """
    order, next_order = room.order, room.next_order
    counts = room.state
    counts[1] = 0
    ahead, row = source.address + (start + n) * source.stride, source.itemsize * p.n_features
    step = row * ROWS // (p.group_features // 2) if row <= LONG_ROW_BYTES else 0
    going = 0
    for r in range(active):
        i = order[r]
        if room.norm[i] > 1 / ROOT_OF_HUGE:
            order[going] = i
            going += 1
        else:
            room.undecided[counts[1]] = i
            counts[1] += 1
    level = 0
    while going > 0:
        low, high = p.fixed.span[2 * level], p.fixed.span[2 * level + 1]
        n_shared, n_own = _by_node(room, order, going, low, high, next_order)
        order, next_order = next_order, order
        order[going] = n
        room.node[n] = 0
        for k in range(n_own, -(-n_own // ROWS) * ROWS):
            room.own[k] = going
        counts[0] = 0
        if CHECKED:
            _check_level(p, room, n, leaf)
        if step > level * LINE:  # A line of each step on every level.
            line = ahead + level * LINE
            walk_root(p, room, room.shared, n_shared, going, order, next_order, leaf, line, step)
        else:
            walk_shared(p, room, room.shared, n_shared, going, order, next_order, leaf)
        walk_own(p, room, room.own, n_own, going, order, next_order, leaf)
        going = counts[0]
        order, next_order = next_order, order
        level += 1
    for k in range(counts[1]):
        room.order[k] = room.undecided[k]
    return counts[1]


@compiled
def _check_level(p, room, n, leaf):
    """Touch everything that a level of the walk may reach (with bounds checks only)."""
    nodes = len(p.radius)
    touch(p.fixed.numbers, 0, nodes * p.group_features * LANES)
    touch(p.fixed.unit, 0, nodes)
    touch(p.fixed.error, 0, nodes)
    touch(p.half_norms, 0, nodes * LANES)
    touch(p.children, 0, nodes * LANES)
    touch(room.numbers, 0, (n + 1) * p.width)
    touch(room.node, 0, n + 1)
    touch(room.norm, 0, n + 1)
    touch(room.order, 0, n + 1)
    touch(room.next_order, 0, n + 1)
    touch(room.undecided, 0, n + 1)
    touch(leaf, 0, n + 1)


@inlined
def _by_node(room, order, n, low, high, out):
    """Sort order[:n] by node into out, low ≤ node < high, and list where eight rows of one node begin, in
    room.shared, and the rows left over, in room.own. Returns the lengths of both lists.
    """
    counts = room.counts
    counts[: high - low + 1] = 0
    for r in range(n):
        counts[room.node[order[r]] - low + 1] += 1
    n_shared = n_own = first = 0
    for k in range(1, high - low + 1):
        stop = first + counts[k]
        while stop - first >= ROWS:
            room.shared[n_shared] = first
            n_shared += 1
            first += ROWS
        while first < stop:
            room.own[n_own] = first
            n_own += 1
            first += 1
        counts[k] = stop
    for r in range(n):
        i = order[r]
        k = room.node[i] - low
        out[counts[k]] = i
        counts[k] += 1
    return n_shared, n_own
