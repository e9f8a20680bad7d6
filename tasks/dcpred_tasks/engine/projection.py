"""What both passes of the engine do: raw rows are converted, and multiplied with groups of 16 centres or
landmarks.
"""

from dcpred_tasks.engine.centre_lanes import (
    ROWS,
    absolute_own,
    absolute_shared,
    distances_own,
    distances_shared,
    project_own,
    project_shared,
)
from dcpred_tasks.engine.compilation import CHECKED, inlined
from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.engine.llvm import LINE
from dcpred_tasks.engine.row_conversion import load_rows, load_some
from dcpred_tasks.model.kernel_families import Sum

PRODUCTS, SQUARES, ABSOLUTE = int(Sum.PRODUCTS), int(Sum.SQUARES), int(Sum.ABSOLUTE)
SLAB = 256  # features whose 16 lanes (16 KiB) stay in first-level cache while rows pass by
LONG = 1024  # bytes of a row from which on the processor's own prefetching does better


@inlined
def to_ask(p, source):
    """How raw rows to come are asked for: so many bytes with every feature of products, or so many at once
    with every row. The products of few features leave no time for it, and those of narrow rows are few.
    """
    if len(p.picks) == 0:
        return source.itemsize, 0
    row = source.itemsize * p.n_features
    return (0, row) if row <= LONG else (-(-row // p.even), 0)


@inlined
def project(p, room, centres, n, ask, phase, phases, kind):
    """products[16 r : 16 r + 16] of row_at[r] with centre_at[r] for r < n, equal centres side by side;
    squared or city-block distances, as `kind` says (dcpred_tasks.model.kernel_families.Sum).

    Rows share a group of centres in whole blocks of ROWS; what is left of each group goes with a group of its
    own. Slab by slab of features, so that a group is read from first-level cache by all rows that want it.
    Meanwhile every phases-th line of the raw rows ahead[r] is asked for, `ask` bytes for a feature: waiting
    for them later takes longer than the work here.
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
        room.rest[i] = (
            n  # a slot that nobody reads: a row that came twice would be added to twice in a later slab
        )
    if CHECKED:
        for r in range(n + 1):
            touch(room.rows, room.row_at[r], p.even)
            touch(centres, room.centre_at[r], p.even * LANES)
            touch(room.products, r * LANES, LANES)
        touch(room.ahead, n, SLAB)
    for slab in range(0, p.even, SLAB):
        stop = min(slab + SLAB, p.even)
        if kind != PRODUCTS:
            _distances(room, centres, blocks, rest, slab, stop, kind)
            continue
        low, high = slab * ask + phase * LINE, stop * ask
        for i in range(blocks):
            project_shared(
                room.rows,
                room.row_at,
                centres,
                room.centre_at,
                room.block[i],
                slab,
                stop,
                room.products,
                room.ahead,
                i * n // blocks,
                low,
                high,
                2 * LINE,
                (2 - phases) * LINE,
            )
        for i in range(0, rest, ROWS):
            project_own(
                room.rows, room.row_at, centres, room.centre_at, room.rest, i, slab, stop, room.products
            )


@inlined
def _distances(room, centres, blocks, rest, first, stop, kind):
    """The part of `project` that is of features first to stop, for squared or city-block distances."""
    rows, row_at, at, products = room.rows, room.row_at, room.centre_at, room.products
    if kind == SQUARES:
        for i in range(blocks):
            distances_shared(rows, row_at, centres, at, room.block[i], first, stop, products)
        for i in range(0, rest, ROWS):
            distances_own(rows, row_at, centres, at, room.rest, i, first, stop, products)
    else:
        for i in range(blocks):
            absolute_shared(rows, row_at, centres, at, room.block[i], first, stop, products)
        for i in range(0, rest, ROWS):
            absolute_own(rows, row_at, centres, at, room.rest, i, first, stop, products)


@inlined
def load(p, source, n, high, low, centres, at, look, room):
    """Convert the rows at n addresses into room.rows; look at `look` features that are skipped, too."""
    if CHECKED:
        touch(room.rows, 0, n * p.width)
        touch(p.factor, 0, p.places)
        for r in range(n):
            touch(high, at[r], p.places)
            touch(low, at[r], p.places)
            touch(centres, at[r], p.places)
        touch(room.norm, 0, n)
    if len(p.picks) > 0:
        if CHECKED:
            touch(p.picks, 0, p.places)
        load_some(
            source.code,
            room.address,
            n,
            look,
            p.picks,
            p.places,
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
