"""The compiled scorer: the compact model of predictor.py, fused over tiles, within rounding of it. Serial; it releases the GIL.

A batch goes through in tiles of rows, a tile in two passes. Nothing as long as the batch is made but the results.

descend  small tiles, so that converted rows stay in cache: convert, then level by level: products with 16 centres, the nearest,
         and the rows in order of their nodes, so that eight rows share a load of a centre
leaves   large tiles, so that a leaf has several rows in it: rows in order of their leaves; convert again, centred on the leaf,
         products with 16 landmarks at a time, kernel values, output weights

Rows keep their bits wherever they stand: each lane is one chain of operations in the order of features, so that tiles, blocks
of eight and neighbours cannot be told from a result.

A row whose two nearest centres are closer than single precision can tell (a rigorous bound) is walked down in double precision,
and so is one whose squares overflow (exact.py).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.compiled import compiled, compiled_and_kept, inlined
from dcpred_tasks.conversion import dtype_code, load_rows, read_row
from dcpred_tasks.dtypes import STATUS_DTYPE, Status
from dcpred_tasks.exact import Exact, exact_arrays, exact_leaf, exact_row, exact_values
from dcpred_tasks.lanes import (
    LANES,
    ROWS,
    kernel_values,
    nearest_child,
    output_lanes,
    prefetch,
    project_own,
    project_shared,
    quadratic_form,
)
from dcpred_tasks.packing import Packed, aligned_empty, pack
from dcpred_tasks.predictor import Model, Scores, check_rows

DESCENT_BYTES = 2**19  # converted rows of a descent tile: half of a second-level cache of 1 MiB
LEAF_ROWS = 16  # rows of a leaf that a leaf tile aims at
LEAF_TILE = (2**12, 2**16)
BLOCK = 64  # rows that go through a leaf's products together
SLAB = 256  # features whose 16 lanes (16 KiB) stay in first-level cache while rows pass by
HUGE = 1e30  # squares and products of single precision stay finite below it
NOWHERE = 2**32 - 1  # the leaf of a row that cannot be scored
FAR = 1 << 40  # no child: the row is walked down in double precision

OK, NON_FINITE_FEATURE, NON_FINITE_RESULT = int(Status.OK), int(Status.NON_FINITE_FEATURE), int(Status.NON_FINITE_RESULT)


class Source(NamedTuple):
    """Where raw rows lie."""

    code: int  # see conversion.dtype_code
    itemsize: int
    address: int
    stride: int  # bytes from row to row


class Out(NamedTuple):
    """Where results go: decision values into the one of two that the task has."""

    singles: NDArray[np.float32]  # (n, n_outputs), or (0, n_outputs)
    doubles: NDArray[np.float64]
    status: NDArray[np.uint8]


class Room(NamedTuple):
    """Buffers of one call."""

    rows: NDArray[np.float32]  # (descent rows · width,), converted rows
    norm: NDArray[np.float32]
    node: NDArray[np.uint32]
    order: NDArray[np.uint32]
    spare: NDArray[np.uint32]
    address: NDArray[np.int64]  # of raw rows
    row_at: NDArray[np.int64]
    ahead: NDArray[np.int64]  # addresses of rows that come next
    centre_at: NDArray[np.int64]
    zeros: NDArray[np.int64]
    products: NDArray[np.float32]
    counts: NDArray[np.int64]
    leaf: NDArray[np.uint32]  # (leaf rows,)
    tile_order: NDArray[np.uint32]
    tile_sorted: NDArray[np.uint32]
    e: NDArray[np.float32]  # kernel values of one row
    sums: NDArray[np.float32]
    x: NDArray[np.float64]  # one row, and what exact.py needs for it
    c: NDArray[np.float64]
    r: NDArray[np.float64]
    values: NDArray[np.float64]  # outputs of one row


class Engine:
    """A model laid out for scoring. Made once, used by any number of threads."""

    def __init__(self, model: Model) -> None:
        self.packed: Packed = pack(model)
        self.exact: Exact = exact_arrays(model)
        self.score_dtype = model.score_dtype
        p = self.packed
        descent = DESCENT_BYTES // (4 * p.width)
        self.descent_rows = int(2 ** np.clip(descent.bit_length() - 1, 6, 12))
        wanted = LEAF_ROWS * (len(p.group_at) - 1)
        self.leaf_rows = int(np.clip(2 ** (wanted - 1).bit_length(), *LEAF_TILE))

    def score(self, X: NDArray[np.generic]) -> tuple[Scores, NDArray[np.uint8]]:
        """As predictor.score_rows. Raises DataError for the wrong shape or dtype."""
        p = self.packed
        check_rows(X, p.n_features)
        n = len(X)
        decision = np.empty((n, p.n_outputs), self.score_dtype)
        status = np.empty(n, STATUS_DTYPE)
        none = np.empty((0, p.n_outputs), np.float32 if p.regression else np.float64)
        singles, doubles = (none, decision) if p.regression else (decision, none)
        room = self._room(n)
        for start, stop, rows in self._readable(X):
            part = slice(start, stop)
            source = Source(dtype_code(rows.dtype), rows.itemsize, rows.__array_interface__["data"][0], rows.strides[0])
            out = Out(singles[part], doubles[part], status[part])
            _score(p, self.exact, source, stop - start, out, room, self.descent_rows, self.leaf_rows)
        return decision, status

    def _readable(self, X: NDArray[np.generic]) -> Any:
        """(start, stop, rows) with the features of a row side by side in native byte order: X itself, or copies of leaf tiles."""
        code = dtype_code(X.dtype)
        if code >= 0 and (X.strides[1] == X.itemsize or X.shape[1] == 1 or len(X) == 0):
            yield 0, len(X), X
            return
        dtype = X.dtype.newbyteorder("=") if dtype_code(X.dtype.newbyteorder("=")) >= 0 else np.dtype(np.float64)
        for start in range(0, len(X), self.leaf_rows):
            stop = min(start + self.leaf_rows, len(X))
            yield start, stop, np.ascontiguousarray(X[start:stop], dtype)

    def _room(self, n: int) -> Room:
        p = self.packed
        small, large = min(self.descent_rows, n), min(self.leaf_rows, n)
        padded = max(small, BLOCK) + BLOCK

        def ints(length: int) -> NDArray[np.int64]:
            return np.empty(length, np.int64)

        def numbers(length: int) -> NDArray[np.uint32]:
            return np.empty(length, np.uint32)

        rows = aligned_empty(max(small, BLOCK) * p.width, np.float32)
        rows.reshape(-1, p.width)[:, p.n_features : p.even] = 0.0
        return Room(
            rows=rows,
            norm=np.empty(padded, np.float32),
            node=numbers(padded),
            order=numbers(padded),
            spare=numbers(padded),
            address=ints(padded),
            row_at=ints(padded),
            ahead=ints(padded),
            centre_at=ints(padded),
            zeros=np.zeros(padded, np.int64),
            products=aligned_empty(padded * LANES, np.float32),
            counts=ints(max(len(p.reach), len(p.group_at)) + 2),
            leaf=numbers(large),
            tile_order=numbers(large),
            tile_sorted=numbers(large),
            e=aligned_empty(BLOCK * p.room, np.float32),
            sums=aligned_empty(LANES, np.float32),
            x=np.empty(p.n_features),
            c=np.empty(max(self.exact.most, 1)),
            r=np.empty(max(self.exact.most, 1)),
            values=np.empty(p.n_outputs),
        )


@compiled_and_kept
def _score(p, q, source, n, out, room, small, large):
    """Score n rows, `small` at a time down the tree and `large` at a time in the leaves."""
    for start in range(0, n, large):
        stop = min(start + large, n)
        for a in range(start, stop, small):
            _descend(p, q, source, a, min(a + small, stop) - a, room.leaf[a - start :], out.status, room)
        count = 0
        for i in range(stop - start):
            leaf = room.leaf[i]
            if leaf != NOWHERE and p.group_at[leaf] < p.group_at[leaf + 1]:
                room.tile_order[count] = i
                count += 1
            else:
                _finish_plain(p, q, source, leaf, start + i, out, room)
        _sort(room.leaf, room.tile_order, count, room.counts, 0, len(p.group_at) - 2, room.tile_sorted)
        for at in range(0, count, BLOCK):
            _leaf_block(p, q, source, start, at, min(BLOCK, count - at), count, out, room)


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
def _project(p, room, centres, n, itemsize):
    """products[16 r : 16 r + 16] of row_at[r] with centre_at[r] for r < n; the two have room for a whole number of ROWS.

    Slab by slab of features, so that a group of centres is read from first-level cache by all rows that want it."""
    last = -(-n // ROWS) * ROWS
    for r in range(n, last):
        room.row_at[r] = room.row_at[n - 1]
        room.centre_at[r] = room.centre_at[n - 1]
    for first in range(0, p.even, SLAB):
        stop = min(first + SLAB, p.even)
        for r in range(0, last, ROWS):
            if itemsize > 0:
                for i in range(r, min(r + ROWS, n)):
                    prefetch(room.ahead[i], first * itemsize, (stop - first) * itemsize)
            if room.centre_at[r] == room.centre_at[r + ROWS - 1]:
                project_shared(room.rows, room.row_at, centres, room.centre_at, r, first, stop, room.products)
            else:
                project_own(room.rows, room.row_at, centres, room.centre_at, r, first, stop, room.products)


@compiled
def _descend(p, q, source, start, n, leaf, status, room):
    """The leaf of each of n rows from `start` on; NOWHERE and status 2 for a row that cannot be scored."""
    for i in range(n):
        room.address[i] = source.address + (start + i) * source.stride
    _load(p, source, n, p.origin, p.origin_rest, room.zeros, room)
    order, spare = room.order, room.spare
    active = 0
    for i in range(n):
        status[start + i] = OK
        leaf[i] = 0
        norm = room.norm[i]
        if not (norm < HUGE):
            leaf[i] = _walk(q, source, start + i, status, room)
        elif len(p.reach) > 0:
            room.norm[i] = np.sqrt(norm)
            room.node[i] = 0
            order[active] = i
            active += 1
    low = high = 0
    first = True
    while active > 0:
        if high > low:
            _sort(room.node, order, active, room.counts, low, high, spare)
            order, spare = spare, order
        for r in range(active):
            i = order[r]
            room.row_at[r] = i * p.width
            room.centre_at[r] = room.node[i] * p.even * LANES
        if first:
            for r in range(active):
                room.ahead[r] = source.address + (start + n + order[r]) * source.stride
        _project(p, room, p.nodes, active, source.itemsize if first else 0)
        low, high, left = len(p.reach), 0, 0
        for r in range(active):
            i = order[r]
            node = room.node[i]
            child = nearest_child(room.products, r, p.half_norms, p.reach, p.children, node, room.norm[i], p.error, FAR)
            if child == FAR:
                leaf[i] = _walk(q, source, start + i, status, room)
                continue
            if child < 0:
                leaf[i] = ~child
            else:
                room.node[i] = child
                low, high = min(low, child), max(high, child)
                order[left] = i
                left += 1
        active = left
        first = False


@inlined
def _load(p, source, n, high, low, at, room):
    """Convert the rows at n addresses into room.rows."""
    load_rows(source.code, room.address, n, p.n_features, p.factor, high, low, at, room.rows, p.width, room.norm)


@compiled
def _walk(q, source, i, status, room):
    """The leaf of row i in double precision, or NOWHERE and its status."""
    read_row(source.code, source.address + i * source.stride, len(room.x), room.x)
    if exact_row(q, room.x):
        return np.int64(exact_leaf(q, room.x))
    status[i] = NON_FINITE_FEATURE
    return NOWHERE


@compiled
def _leaf_block(p, q, source, start, at, n, count, out, room):
    """Score n rows, tile_sorted[at : at + n] of `count` of the tile that starts with row `start`."""
    size = p.even * LANES
    most = 0
    for r in range(n):
        i = room.tile_sorted[at + r]
        leaf = room.leaf[i]
        room.node[r] = leaf
        room.address[r] = source.address + (start + i) * source.stride
        room.centre_at[r] = leaf * p.n_features
        most = max(most, p.group_at[leaf + 1] - p.group_at[leaf])
        ahead = room.tile_sorted[min(at + r + BLOCK, count - 1)]  # of the block after this one
        room.ahead[r] = source.address + (start + ahead) * source.stride
        if room.leaf[ahead] != leaf:
            prefetch(p.groups, p.group_at[room.leaf[ahead]] * size, min(size * 4, 512))
    _load(p, source, n, p.means, p.means_rest, room.centre_at, room)
    for g in range(most):
        for r in range(n):
            leaf = room.node[r]
            room.row_at[r] = r * p.width
            room.centre_at[r] = min(p.group_at[leaf] + g, p.group_at[leaf + 1] - 1) * size
        _project(p, room, p.groups, n, source.itemsize if g == 0 else 0)
        for r in range(n):
            group = p.group_at[room.node[r]] + g
            if group < p.group_at[room.node[r] + 1]:
                norm = room.norm[r] * p.scale
                kernel_values(room.products, r, norm, p.offset, p.difference, group, room.e, r * p.room + g * LANES)
    for r in range(n):
        i = room.tile_sorted[at + r]
        if room.norm[r] < HUGE:
            _outputs(p, room.node[r], r * p.room, room)
            _finish(p, room.node[r], start + i, out, room)
        else:
            _finish_plain(p, q, source, room.node[r], start + i, out, room)


@inlined
def _outputs(p, leaf, e, room):
    """Decision values from the kernel values of one row."""
    first, last = p.group_at[leaf], p.group_at[leaf + 1]
    if p.n_outputs == 1:
        total = np.float32(0.0)
        for g in range(first, last):
            own, terms = (g - first) * LANES, (p.term_at[g], p.term_at[g + 1])
            total += quadratic_form(room.e, e, p.linear, g, own, p.left, p.weights, terms[0], terms[1])
        room.values[0] = total + p.constant[leaf, 0]
        return
    room.e[e + (last - first) * LANES] = np.float32(1.0)
    for lane in range(0, p.stride, LANES):
        output_lanes(room.e, e, p.left, p.right, p.weights, p.term_at[leaf], p.term_at[leaf + 1], p.stride, lane, room.sums)
        for k in range(lane, min(lane + LANES, p.n_outputs)):
            room.values[k] = room.sums[k - lane] + p.constant[leaf, k]


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


@inlined
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
