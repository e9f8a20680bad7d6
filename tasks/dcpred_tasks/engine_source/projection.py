"""The work that both passes of the engine share: raw rows are converted, and multiplied with groups of 16
centres or landmarks.

p is Packed (packing.py), room is Room, source is Source (engine.py).
"""

from dcpred_tasks.engine.layout import LANES, SLAB
from dcpred_tasks.engine_source.centre_lanes import (
    SHARED_ROWS,
    absolute_own,
    absolute_shared,
    distances_own,
    distances_shared,
    project_own,
    project_shared,
)
from dcpred_tasks.engine_source.compilation import CHECKED, inlined
from dcpred_tasks.engine_source.llvm import LINE
from dcpred_tasks.engine_source.row_conversion import load_rows, load_some
from dcpred_tasks.model.kernel_families import Sum

PRODUCTS, SQUARES, ABSOLUTE = int(Sum.PRODUCTS), int(Sum.SQUARES), int(Sum.ABSOLUTE)
LONG_ROW_BYTES = 1024  # longest row that is prefetched here: beyond it the processor does it better by itself


@inlined
def prefetch_amounts(p, source):
    """How raw rows are prefetched: (bytes for every feature during products, bytes at once for every row);
    one of the two is 0. All at once where features are skipped and the raw row is short: its products are
    few, and leave no time for prefetching between them.
    """
    if len(p.picks) == 0:
        return source.itemsize, 0
    row = source.itemsize * p.n_features
    return (0, row) if row <= LONG_ROW_BYTES else (-(-row // p.group_features), 0)


@inlined
def project(p, room, centres, n, n_bytes, phase, phases, kind):
    """room.products[16 r : 16 r + 16] of the row at row_at[r] with the group at centre_at[r], for r < n:
    products, squared or city-block distances, as `kind` says (kernel_families.Sum). Rows of one group are
    side by side.

        for slab of 256 features:
            for eight rows of one group: project_shared over the slab
            for eight of the other rows: project_own over the slab

    The rows of a group go eight at a time, and share its loads; those that are left over go each with a group
    of its own. Slabs are the outer loop, so that a group is read from first-level cache by all its rows.
    Meanwhile every phases-th line of the raw rows at room.upcoming is prefetched, n_bytes for a feature:
    waiting for them later takes longer than the work here.
    """
    n_shared = n_own = first = 0
    for r in range(1, n + 1):
        if r == n or room.centre_at[r] != room.centre_at[first]:
            while r - first >= SHARED_ROWS:
                room.shared[n_shared] = first
                n_shared += 1
                first += SHARED_ROWS
            for i in range(first, r):
                room.own[n_own] = i
                n_own += 1
            first = r
    room.row_at[n], room.centre_at[n] = room.row_at[n - 1], room.centre_at[n - 1]
    for i in range(n_own, -(-n_own // SHARED_ROWS) * SHARED_ROWS):
        # Slot n is never read. A real row, repeated, would get its products twice in the next slab.
        room.own[i] = n
    if CHECKED:
        for r in range(n + 1):
            touch(room.rows, room.row_at[r], p.group_features)
            touch(centres, room.centre_at[r], p.group_features * LANES)
            touch(room.products, r * LANES, LANES)
        touch(room.upcoming, n, SLAB)
    for slab in range(0, p.group_features, SLAB):
        stop = min(slab + SLAB, p.group_features)
        if kind != PRODUCTS:
            _distances(room, centres, n_shared, n_own, slab, stop, kind)
            continue
        low, high = slab * n_bytes + phase * LINE, stop * n_bytes
        for i in range(n_shared):
            project_shared(
                room.rows,
                room.row_at,
                centres,
                room.centre_at,
                room.shared[i],
                slab,
                stop,
                room.products,
                room.upcoming,
                i * n // n_shared,
                low,
                high,
                2 * LINE,
                (2 - phases) * LINE,
            )
        for i in range(0, n_own, SHARED_ROWS):
            project_own(
                room.rows, room.row_at, centres, room.centre_at, room.own, i, slab, stop, room.products
            )


@inlined
def _distances(room, centres, n_shared, n_own, first, stop, kind):
    """`project` over the features first to stop, for squared or city-block distances."""
    rows, row_at, at, products = room.rows, room.row_at, room.centre_at, room.products
    if kind == SQUARES:
        for i in range(n_shared):
            distances_shared(rows, row_at, centres, at, room.shared[i], first, stop, products)
        for i in range(0, n_own, SHARED_ROWS):
            distances_own(rows, row_at, centres, at, room.own, i, first, stop, products)
    else:
        for i in range(n_shared):
            absolute_shared(rows, row_at, centres, at, room.shared[i], first, stop, products)
        for i in range(0, n_own, SHARED_ROWS):
            absolute_own(rows, row_at, centres, at, room.own, i, first, stop, products)


@inlined
def load(p, source, n, high, low, centres, at, look, room):
    """Convert the rows at n addresses into room.rows, row r less the centre whose parts are high, low and
    centres from element at[r] on. Where features are skipped, the first `look` features of each raw row are
    searched for NaN and infinity.
    """
    if CHECKED:
        touch(room.rows, 0, n * p.width)
        touch(p.factor, 0, p.n_converted)
        for r in range(n):
            touch(high, at[r], p.n_converted)
            touch(low, at[r], p.n_converted)
            touch(centres, at[r], p.n_converted)
        touch(room.norm, 0, n)
    if len(p.picks) > 0:
        if CHECKED:
            touch(p.picks, 0, p.n_converted)
        load_some(
            source.code,
            room.address,
            n,
            look,
            p.picks,
            p.n_converted,
            p.factor,
            high,
            low,
            at,
            room.rows,
            p.width,
            room.norm,
            p.shift,
            p.double_factor,
            centres,
        )
        return
    load_rows(
        source.code,
        room.address,
        n,
        p.n_features,
        p.factor,
        high,
        low,
        at,
        room.rows,
        p.width,
        room.norm,
        p.shift,
        p.double_factor,
        centres,
    )


@inlined
def touch(values, at, n):
    """An IndexError unless values[at : at + n] is there (with bounds checks only)."""
    return values[at], values[at + n - 1]
