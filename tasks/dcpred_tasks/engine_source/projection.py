"""The work that both passes of the engine share: raw rows are converted, and multiplied with groups of 16
centres or landmarks.

p is Packed (packing.py), room is Room, source is Source (engine.py).
"""

import numpy as np

from dcpred_tasks.engine.layout import FLOATS, LANES, SLAB, STRIP_ROWS, dtype_code
from dcpred_tasks.engine_source.centre_lanes import (
    SHARED_ROWS,
    absolute_own,
    absolute_shared,
    distances_own,
    distances_shared,
    project_own,
    project_shared,
    project_two,
)
from dcpred_tasks.engine_source.compilation import CHECKED, called, compiled, inlined
from dcpred_tasks.engine_source.llvm import LINE
from dcpred_tasks.engine_source.row_columns import admit_gaps, copy_rows, to_columns
from dcpred_tasks.engine_source.row_conversion import load_rows, load_some
from dcpred_tasks.engine_source.row_gaps import load_gap_rows
from dcpred_tasks.engine_source.row_logarithms import to_logarithms
from dcpred_tasks.model.kernel_families import Sum

PRODUCTS, SQUARES, ABSOLUTE = int(Sum.PRODUCTS), int(Sum.SQUARES), int(Sum.ABSOLUTE)
SINGLE_CODE, DOUBLE_CODE = (dtype_code(np.dtype(name)) for name in ("f4", "f8"))
N_FLOATS = len(FLOATS)
LONG_ROW_BYTES = 1024  # longest row that is prefetched here: beyond it the processor does it better by itself


@inlined
def prefetch_amounts(p, source):
    """How raw rows are prefetched: (bytes for every feature during products, bytes at once for every row);
    one of the two is 0. All at once where features are skipped and the raw row is short: its products are
    few, and leave no time for prefetching between them. The same where features are coded.
    """
    if len(p.picks) == 0 and len(p.columns.first) == 0:
        return source.itemsize, 0
    row = source.itemsize * p.n_features
    return (0, row) if row <= LONG_ROW_BYTES else (-(-row // p.group_features), 0)


@inlined
def project(p, room, centres, n, kind, two, ahead):
    """room.products[16 r : 16 r + 16] of the row at row_at[r] with the group at centre_at[r], for r < n:
    products, squared or city-block distances, as `kind` says (kernel_families.Sum). Rows of one group are
    side by side.

        for slab of 256 features:
            for eight rows of one group: project_shared over the slab
            for eight of the other rows: project_own over the slab

    The rows of a group go eight at a time, and share its loads; those that are left over go each with a group
    of its own. Slabs are the outer loop, so that a group is read from first-level cache by all its rows.

    With `two` the same is done with the groups that follow, into the second half of room.products: a feature
    of a row is loaded once for both. For products alone, and where registers are many.

    ahead  what is prefetched meanwhile, for waiting for it later takes longer than the work here: how many of
           the addresses room.upcoming, the bytes of a feature, bytes more, and of several phases this one:
           every phases-th line
    """
    n_shared, n_own = _shared_and_own(room, n)
    if CHECKED:
        _check_project(p, room, centres, n, two, ahead[0])
    length = SLAB // 2 if two else SLAB
    for slab in range(0, p.group_features, length):
        stop = min(slab + length, p.group_features)
        if kind == PRODUCTS:
            _products(p, room, centres, n_shared, n_own, slab, stop, two, ahead)
        else:
            _distances(room, centres, n_shared, n_own, slab, stop, kind)


@inlined
def _shared_and_own(room, n):
    """List where eight rows of one group begin, in room.shared, and the rows left over, in room.own. Returns
    the lengths of both lists.
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
    return n_shared, n_own


@compiled
def _check_project(p, room, centres, n, two, n_upcoming):
    """Touch everything that products are read from and written to (with bounds checks only)."""
    size, half = p.group_features * LANES, len(room.products) // 2
    for r in range(n + 1):
        touch(room.rows, room.row_at[r], p.group_features)
        touch(centres, room.centre_at[r], size)
        touch(room.products, r * LANES, LANES)
        if two:
            touch(centres, room.centre_at[r] + size, size)
            touch(room.products, half + r * LANES, LANES)
    touch(room.upcoming, n_upcoming, SLAB)


@inlined
def _products(p, room, centres, n_shared, n_own, first, stop, two, ahead):
    """`project` over the features first to stop, for products."""
    n_upcoming, n_bytes, more, phase, phases = ahead
    low, high = first * n_bytes + phase * LINE, stop * n_bytes + more * (stop == p.group_features)
    stride, second = 2 * LINE, (2 - phases) * LINE
    size, half = p.group_features * LANES, len(room.products) // 2
    rows, row_at, at, products, upcoming = (
        room.rows,
        room.row_at,
        room.centre_at,
        room.products,
        room.upcoming,
    )
    for i in range(n_shared):
        row, up = room.shared[i], i * n_upcoming // n_shared
        own = rows, row_at, centres, at, row, first, stop, products, upcoming, up, low, high, stride, second
        if two:
            project_two(*own, size, half)
        else:
            project_shared(*own)
    for i in range(0, n_own, SHARED_ROWS):
        project_own(rows, row_at, centres, at, room.own, i, first, stop, products)
        if two:
            project_own(rows, row_at, centres[size:], at, room.own, i, first, stop, products[half:])


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
def load(p, source, n, factor, double_factor, step, high, low, centres, at, look, address, norm, rows, room):
    """Convert the rows at n addresses into `rows`, row r less the centre whose parts are high, low and
    centres from element at[r] on; its factors begin at element step · at[r]. Where features are skipped, the
    first `look` of each raw row, or of its columns, are searched for infinity, and for NaN unless it is a
    gap. Rows with logarithms, or with columns of coded features and indicators, are made a strip at a time.
    """
    given, strip = source.code, n
    through_logarithms, through_columns = len(p.log_scale.rate) > 0, len(p.columns.first) > 0
    if through_logarithms:
        given, strip = DOUBLE_CODE, STRIP_ROWS
    code = given
    if through_columns:
        code, strip = DOUBLE_CODE, STRIP_ROWS
        if not through_logarithms and (source.itemsize <= 2 or given == SINGLE_CODE):  # row_columns.SINGLES
            code = SINGLE_CODE
    for first in range(0, n, max(strip, 1)):
        count, where = min(strip, n - first), address[first:]
        if through_logarithms:
            load_logarithms(p, source.code, where, count, room)
            where = room.logarithms_at
        if through_columns:
            load_columns(p, given, where, count, room)
            where = room.columns_at
        own = rows[first * p.width :]
        scaling = factor, double_factor, step
        _load(p, code, count, *scaling, high, low, centres, at[first:], look, where, norm[first:], own)


@called
def load_logarithms(p, code, address, n, room):
    """At most a strip of rows, with features on a logarithmic scale, into room.logarithms; their addresses
    into room.logarithms_at.
    """
    if CHECKED:
        touch(room.logarithms, 0, n * p.log_scale.stride)
        touch(room.logarithms_at, 0, n)
        touch(p.log_scale.centre, 0, p.n_features)
        touch(p.log_scale.rate, 0, p.n_features)
    to_logarithms(
        code,
        address,
        n,
        p.n_features,
        p.log_scale.centre,
        p.log_scale.rate,
        p.log_scale.stride,
        room.logarithms,
        room.logarithms_at,
    )


@called
def load_columns(p, code, address, n, room):
    """The columns of at most a strip of rows into room.columns, and their addresses into room.columns_at."""
    if CHECKED:
        _check_columns(p, n, room)
    gaps, n_indicated = len(p.gaps.double) > 0 and code < N_FLOATS, len(p.columns.indicated)
    if gaps and not p.columns.coded:
        copy_rows(
            code,
            address,
            n,
            p.n_features,
            p.columns.stride,
            p.columns.indicated,
            n_indicated,
            room.columns,
            room.columns_at,
        )
        return
    to_columns(
        code,
        address,
        n,
        p.n_features,
        p.columns.lowest,
        p.columns.extent,
        p.columns.place_at,
        p.columns.place,
        p.columns.stride,
        room.columns,
        room.columns_at,
    )
    if gaps:
        admit_gaps(
            code,
            address,
            n,
            p.n_features,
            p.columns.lowest,
            p.columns.extent,
            p.columns.indicated,
            n_indicated,
            p.n_columns - n_indicated,
            room.columns_at,
        )


@inlined
def _load(p, code, n, factor, double_factor, step, high, low, centres, at, look, address, norm, rows):
    """`load` of rows that hold features as they are held, of the dtype with this number."""
    if CHECKED:
        touch(rows, 0, n * p.width)
        for r in range(n):
            touch(factor, step * at[r], p.n_converted)
            touch(double_factor, step * at[r], p.n_converted)
            touch(high, at[r], p.n_converted)
            touch(low, at[r], p.n_converted)
            touch(centres, at[r], p.n_converted)
        touch(norm, 0, n)
        if len(p.gaps.double) > 0:
            touch(p.gaps.double, 0, p.n_converted)
            touch(p.gaps.high, 0, p.n_converted)
            touch(p.gaps.low, 0, p.n_converted)
    if len(p.gaps.double) > 0 and code < N_FLOATS:
        load_gap_rows(
            p, code, n, factor, double_factor, step, high, low, centres, at, look, address, norm, rows
        )
        return
    if len(p.picks) > 0:
        if CHECKED:
            touch(p.picks, 0, p.n_converted)
        load_some(
            code,
            address,
            n,
            look,
            p.picks,
            p.n_converted,
            factor,
            high,
            low,
            at,
            rows,
            p.width,
            norm,
            p.shift,
            double_factor,
            centres,
            step,
        )
        return
    load_rows(
        code,
        address,
        n,
        p.n_columns,
        factor,
        high,
        low,
        at,
        rows,
        p.width,
        norm,
        p.shift,
        double_factor,
        centres,
        step,
    )


@compiled
def _check_columns(p, n, room):
    """Touch everything that a strip of rows of columns is read from and written to (with bounds checks
    only).
    """
    touch(room.columns, 0, n * p.columns.stride)
    touch(room.columns_at, 0, n)
    touch(p.columns.lowest, 0, p.n_features)
    touch(p.columns.place_at, 0, p.n_features)
    for f in range(p.n_features):
        for i in range(p.columns.extent[f] + 1):
            touch(room.columns, p.columns.place[p.columns.place_at[f] + i], 1)
    touch(room.columns, p.n_columns - 1, 1)
    for k in range(len(p.columns.indicated)):
        touch(p.columns.lowest, p.columns.indicated[k], 1)


@inlined
def touch(values, at, n):
    """An IndexError unless values[at : at + n] is there (with bounds checks only)."""
    return values[at], values[at + n - 1]
