"""The compiled scorer: model/compact_model.py, fused over tiles, within rounding of it. Serial; it releases
the GIL.

A batch goes through in tiles of rows, a tile in two passes. Nothing as long as the batch is made but the
results.

descend  small tiles, so that converted rows stay in cache: convert, then level by level: products with 16
centres, the nearest,
         and the rows in order of their nodes, so that eight rows share a load of a centre
leaves   large tiles, so that a leaf has several rows in it: rows in order of their leaves; convert again,
         centred on the leaf;
         products with 16 landmarks at a time, kernel values; then lanes change from landmarks to rows, and
         output weights are one number for sixteen rows

Rows of few features spend more time between these steps than in them, and go their own way: lanes are rows at
the root and in the leaves (few_features.py, row_lanes.py). Where there is one leaf there is no walk.

Rows keep their bits wherever they stand: each lane is one chain of operations in the order of features, so
that tiles, blocks of eight and neighbours cannot be told from a result.

A row whose two nearest centres are closer than single precision can tell (a rigorous bound) is walked down in
double precision, and so is one whose squares overflow (double_precision.py).
"""

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import NO_LEAF, STATUS_DTYPE, LeafNumbers, Status
from dcpred_tasks.engine.descent_pass import score_tiles
from dcpred_tasks.engine.double_precision import Exact, exact_arrays
from dcpred_tasks.engine.elements import dtype_code
from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.engine.leaf_pass import BLOCK
from dcpred_tasks.engine.packing import Packed, pack
from dcpred_tasks.engine.projection import SLAB
from dcpred_tasks.engine.row_layout import aligned_empty
from dcpred_tasks.model.compact_model import Model, Scores, check_rows

DESCENT_BYTES = 2**20  # converted rows of a descent tile: half of a second-level cache of 2 MiB
# rows of a leaf that a leaf tile aims at; as many more as fit in so many bytes of rows
LEAF_ROWS, LEAF_BYTES = (
    16,
    2**22,
)
LEAF_TILE = (2**13, 2**16)
COPY_BYTES = 2**23  # of rows whose features do not lie side by side


class Source(NamedTuple):
    """Where raw rows lie."""

    code: int  # see elements.dtype_code
    itemsize: int
    address: int
    stride: int  # bytes from row to row


class Out(NamedTuple):
    """Where results go: decision values into the one of two that the task has."""

    singles: NDArray[np.float32]  # (n, n_outputs), or (0, n_outputs)
    doubles: NDArray[np.float64]
    status: NDArray[np.uint8]
    leaf: NDArray[np.uint32]  # (n,), or (0,) where nobody asks


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
    block: NDArray[np.int64]
    rest: NDArray[np.int64]
    centre_at: NDArray[np.int64]
    zeros: NDArray[np.int64]
    products: NDArray[np.float32]
    counts: NDArray[np.int64]
    leaf: NDArray[np.uint32]  # (leaf rows,)
    tile_sorted: NDArray[np.uint32]
    e: NDArray[np.float32]  # kernel values of a block of rows
    x_columns: NDArray[np.float32]  # of 16 rows: features,
    columns: NDArray[np.float32]  # kernel values,
    sums: NDArray[np.float32]  # sums over them,
    results: NDArray[np.float32]  # decision values of classes, and of a regression
    double_results: NDArray[np.float64]
    x: NDArray[np.float64]  # one row, and what double_precision.py needs for it
    c: NDArray[np.float64]
    r: NDArray[np.float64]
    values: NDArray[np.float64]  # outputs of one row


def is_compiled() -> bool:
    """Whether the first score will find machine code, in this process or on disk."""
    return score_tiles.is_there()


class Engine:
    """A model laid out for scoring. Made once, used by any number of threads."""

    def __init__(self, model: Model) -> None:
        self.packed: Packed = pack(model)
        self.exact: Exact = exact_arrays(model)
        self.score_dtype = model.score_dtype
        self._kept = threading.local()
        p = self.packed
        descent = DESCENT_BYTES // (4 * p.width)
        self.descent_rows = int(2 ** np.clip(descent.bit_length() - 1, 6, 8))
        wanted = LEAF_ROWS * (len(p.group_at) - 1)
        wanted = max(wanted, min(4 * wanted, LEAF_BYTES // (4 * p.n_features)))
        self.leaf_rows = int(np.clip(2 ** (wanted - 1).bit_length(), *LEAF_TILE))

    def score(
        self, X: NDArray[np.generic], leaves: LeafNumbers | None = None
    ) -> tuple[Scores, NDArray[np.uint8]]:
        """As compact_model.score_rows. Raises DataError for the wrong shape or dtype."""
        p = self.packed
        check_rows(X, p.n_features)
        n = len(X)
        decision = np.empty((n, p.n_outputs), self.score_dtype)
        status = np.empty(n, STATUS_DTYPE)
        none = np.empty((0, p.n_outputs), np.float32 if p.regression else np.float64)
        singles, doubles = (none, decision) if p.regression else (decision, none)
        leaf = np.empty(0, np.uint32) if leaves is None else leaves.view(np.uint32)
        room = self._room()
        for start, stop, rows in self._readable(X):
            part = slice(start, stop)
            source = Source(
                dtype_code(rows.dtype), rows.itemsize, rows.__array_interface__["data"][0], rows.strides[0]
            )
            out = Out(singles[part], doubles[part], status[part], leaf[part])
            score_tiles(p, self.exact, source, stop - start, out, room, self.descent_rows, self.leaf_rows)
        if leaves is not None:
            leaves[status == Status.NON_FINITE_FEATURE] = NO_LEAF
        return decision, status

    def _readable(self, X: NDArray[np.generic]) -> Any:
        """(start, stop, rows) with the features of a row side by side in native byte order: X itself, or
        copies of parts.
        """
        code = dtype_code(X.dtype)
        if code >= 0 and (X.strides[1] == X.itemsize or X.shape[1] == 1 or len(X) == 0):
            yield 0, len(X), X
            return
        dtype = (
            X.dtype.newbyteorder("=") if dtype_code(X.dtype.newbyteorder("=")) >= 0 else np.dtype(np.float64)
        )
        step = int(np.clip(COPY_BYTES // (X.shape[1] * dtype.itemsize), 1, self.leaf_rows))
        for start in range(0, len(X), step):
            stop = min(start + step, len(X))
            with np.errstate(over="ignore"):  # of long doubles: a row that overflows gets its status
                rows = np.ascontiguousarray(X[start:stop], dtype)
            yield start, stop, rows

    def _room(self) -> Room:
        """The buffers of this thread, made once: a call of few rows would spend half its time on them."""
        sizes = self.descent_rows, self.leaf_rows
        if getattr(self._kept, "sizes", None) != sizes:
            self._kept.room, self._kept.sizes = self._new_room(), sizes
        room: Room = self._kept.room
        return room

    def _new_room(self) -> Room:
        p = self.packed
        small, large = self.descent_rows, self.leaf_rows
        padded = max(small, BLOCK) + BLOCK

        def ints(length: int) -> NDArray[np.int64]:
            return np.empty(length, np.int64)

        def numbers(length: int) -> NDArray[np.uint32]:
            return np.empty(length, np.uint32)

        rows = aligned_empty((max(small, BLOCK) + LANES) * p.width, np.float32)
        rows.reshape(-1, p.width)[:, p.places : p.even] = 0.0
        return Room(
            rows=rows,
            norm=np.empty(padded, np.float32),
            node=numbers(padded),
            order=numbers(padded),
            spare=numbers(padded),
            address=ints(padded),
            row_at=ints(padded),
            ahead=np.zeros(padded + SLAB, np.int64),
            block=ints(padded),
            rest=ints(padded),
            centre_at=ints(padded),
            zeros=np.zeros(padded, np.int64),
            products=aligned_empty(padded * LANES, np.float32),
            counts=ints(max(len(p.reach), len(p.group_at)) + 2),
            leaf=numbers(large + LANES),
            tile_sorted=numbers(large),
            e=aligned_empty((BLOCK + LANES) * p.room, np.float32),
            x_columns=aligned_empty(p.width * LANES, np.float32),
            columns=aligned_empty(p.room * LANES, np.float32),
            sums=aligned_empty(p.stride * LANES, np.float32),
            results=aligned_empty(p.n_outputs * LANES, np.float32),
            double_results=aligned_empty(LANES, np.float64),
            x=np.empty(p.n_features),
            c=np.empty(max(self.exact.most, 1)),
            r=np.empty(max(self.exact.most, 1)),
            values=np.empty(p.n_outputs),
        )
