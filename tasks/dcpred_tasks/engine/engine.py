"""The compiled engine: scores of rows by machine code."""

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import (
    ACC_DTYPE,
    NO_LEAF,
    STATUS_DTYPE,
    FloatArray,
    IntArray,
    LeafNumbers,
    SingleArray,
    Status,
)
from dcpred_tasks.engine.layout import (
    LANES,
    PART_SUMS,
    PARTS,
    SLAB,
    STEP,
    STRIP_ROWS,
    SUMMED_GROUPS,
    Columns,
    Source,
    aligned_empty,
    columns_of,
    dtype_code,
    raw_gaps,
    tree_of,
)
from dcpred_tasks.engine.machine_code import MachineCode, check_taken, load, own_code
from dcpred_tasks.engine.native_modules import ENGINE, taken_by, words
from dcpred_tasks.engine.packing import Packed, pack
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import Model, Scores, check_rows
from dcpred_tasks.model.kernels import FAMILIES
from dcpred_tasks.model.term import offset_of


class Exact(NamedTuple):
    """The arrays of a model for native/exact.h: `q` in compiled code. All are flat but `intercept`, and hold
    scaled features; `*_at` are offsets by leaf, as in compact_model.Model.
    """

    kernel: int
    """The place of the kernel's family in FAMILIES."""
    sum: int
    """The sum over features in the kernel: a kernel_families.Sum."""
    gamma: FloatArray
    """float64 (n_landmarks,), γ of each landmark."""
    shape: FloatArray
    """float64, KernelNumbers.shape."""
    columns: Columns
    """How raw features become columns, with one-hot encoded features or missing indicators."""
    gap: FloatArray
    """float64 (n_features,), the markers of missing values, on the scale of their features; (0,) where NaN is
    a bad value.
    """
    shift: FloatArray
    """float64 (n_columns,), μ in raw units."""
    factor: FloatArray
    """float64 (n_columns,), s in 1 / raw units."""
    starts: IntArray
    """int64 (n_nodes + 1,), the first centre of each node."""
    children: NDArray[np.int32]
    """int32 (n_centres,), the node that a centre leads to, or ~leaf."""
    centres: SingleArray
    """float32 (n_centres · n_columns,), row by row."""
    landmark_at: IntArray
    """int64 (n_leaves + 1,), offsets into `gamma`, and times n_columns into `landmarks`."""
    landmarks: SingleArray
    """float32 (n_landmarks · n_columns,), feature by feature in each leaf: a loop over them is a vector
    loop.
    """
    leaf_factor: SingleArray
    """float32 (n_leaves · n_features,), the ARD scales of each leaf; (0,) where
    leaves have none.
    """
    pair_at: IntArray
    """int64 (n_leaves + 1,), offsets of pairs."""
    pairs: NDArray[np.int32]
    """int32 (n_products · 2,), the two landmarks of each product, counted within the leaf."""
    beta_at: IntArray
    """int64 (n_leaves + 1,), offsets of basis functions: landmarks, then products."""
    present_at: IntArray
    """int64 (n_leaves + 1,), offsets into `present`."""
    present: NDArray[np.int32]
    """int32, the outputs that a leaf has weights for."""
    weight_at: IntArray
    """int64 (n_leaves + 1,), offsets into `weights`."""
    weights: SingleArray
    """float32, for each basis function of a leaf the weights of the leaf's outputs."""
    intercept: FloatArray
    """float64 (n_leaves, n_outputs), in units of decision values."""
    most_landmarks: int
    """The largest number of landmarks of a leaf."""


def exact_arrays(model: Model, columns: Columns | None = None) -> Exact:
    """The arrays of a model as native/exact.h takes them; `columns` are shared with `Packed` if passed."""
    at = model.landmark_at
    turned = [model.landmarks[at[leaf] : at[leaf + 1]].T.ravel() for leaf in range(model.n_leaves)]
    return Exact(
        kernel=FAMILIES.index(model.kernel.family),
        sum=int(model.kernel.family.sum),
        gamma=_flat(model.gamma, ACC_DTYPE),
        shape=np.array(model.kernel.shape, ACC_DTYPE),
        columns=columns_of(model) if columns is None else columns,
        gap=_flat(raw_gaps(model), ACC_DTYPE),
        shift=_flat(model.scaling.shift, ACC_DTYPE),
        factor=_flat(model.scaling.factor, ACC_DTYPE),
        starts=_flat(tree_of(model).starts, np.int64),
        children=_flat(tree_of(model).children, np.int32),
        centres=_flat(tree_of(model).centres, np.float32),
        landmark_at=_flat(at, np.int64),
        landmarks=_flat(np.concatenate(turned), np.float32),
        leaf_factor=_flat(model.leaf_factor, np.float32),
        pair_at=_flat(model.pair_at, np.int64),
        pairs=_flat(model.pairs, np.int32),
        beta_at=_flat(model.beta_at, np.int64),
        present_at=_flat(model.beta.output_at, np.int64),
        present=_flat(model.beta.outputs, np.int32),
        weight_at=_flat(model.beta.weight_at, np.int64),
        weights=_flat(model.beta.weights, np.float32),
        intercept=np.array(model.intercept, ACC_DTYPE, order="C"),
        most_landmarks=int(np.diff(at).max()),
    )


def _flat(values: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """A flat, writable copy: one type for the compiler, whatever the arrays were read from."""
    return np.array(values, dtype, order="C").ravel()


DESCENT_BYTES = 2**20  # converted rows of a descent tile: half of a second-level cache of 2 MiB
# Aimed rows per leaf of a leaf tile, the second for rows of at least WIDE_ROW_BYTES: 16 landmarks take as
# many bytes as 16 rows, and are read once for all rows of their leaf in a tile.
LEAF_ROWS, WIDE_LEAF_ROWS, WIDE_ROW_BYTES = 16, 64, 2**10
LEAF_BYTES = 2**22  # A leaf tile grows to at most four times that, while its rows fit in this many bytes.
LEAF_TILE = (2**13, 2**16)  # fewest and most rows of a leaf tile
MAPPED_BYTES = 2**23  # most bytes of a leaf tile whose rows are mapped
COPY_BYTES = 2**23  # size of a copy of rows with scattered features


class Out(NamedTuple):
    """The buffers of results: decision values go into the one of the task."""

    singles: NDArray[np.float32]
    """float32 (n, n_outputs), decision values of classes; (0, n_outputs) for a regression."""
    doubles: NDArray[np.float64]
    """float64 (n, n_outputs), values of a regression; (0, n_outputs) for classes."""
    status: NDArray[np.uint8]
    """uint8 (n,), a Status."""
    leaf: NDArray[np.uint32]
    """uint32 (n,), the leaf of each row, or NOWHERE; (0,) unless requested."""
    offset: FloatArray
    """float64 (n, n_outputs), the sum of the terms of rows, which is added before bounds; (n, 0) without."""


class Room(NamedTuple):
    """The workspace of one call, `room` in compiled functions.

    `small` is the number of rows of a descent tile or of a strip, whichever is larger, with padding; `large`
    that of a leaf tile. Arrays of `small` elements belong to the descent tile in the first pass, and to the
    strip in the second.
    """

    rows: NDArray[np.float32]
    """float32 (small · width,), converted rows: scaled, and centred on the tree's origin or on their leaf."""
    mapped: NDArray[np.float32]
    """float32 (large · maps.stride,), the mapped rows of a leaf tile, in models with mapped features."""
    columns: NDArray[np.float64]
    """float64 (strip · columns.stride,), raw rows as columns, in single or double precision, where columns
    are not the features.
    """
    columns_at: NDArray[np.int64]
    """int64 (strip,), the addresses of these rows."""
    norm: NDArray[np.float32]
    """float32 (small,), ‖z‖ of a converted row on the walk, else ‖z‖²."""
    node: NDArray[np.uint32]
    """uint32 (small,), the node of a row; in the second pass its leaf."""
    order: NDArray[np.uint32]
    """uint32 (small,), the numbers of the rows still on the walk, sorted by node."""
    next_order: NDArray[np.uint32]
    """uint32 (small,), the target of a sort of `order`; the two are then swapped."""
    undecided: NDArray[np.uint32]
    """uint32 (small,), the numbers of rows for single precision."""
    state: NDArray[np.int64]
    """int64 (2,), how many rows of a tile are on the walk after the quantised walk (0), and how many it left
    to single precision.
    """
    numbers: NDArray[np.int16]
    """int16 (small · width,), quantised rows, for the int16 quantised walk."""
    address: NDArray[np.int64]
    """int64 (small,), addresses of the raw rows, in bytes."""
    row_at: NDArray[np.int64]
    """int64 (small,), offsets of rows in `rows`."""
    upcoming: NDArray[np.int64]
    """int64 (small,), addresses of later raw rows, to prefetch."""
    shared: NDArray[np.int64]
    """int64 (small,), the first of each eight rows that share a group of centres."""
    alone: NDArray[np.int64]
    """int64 (small,), the rows with a group of their own."""
    centre_at: NDArray[np.int64]
    """int64 (small,), offsets of the groups that rows are multiplied with, or of the means of their leaves.
    """
    zeros: NDArray[np.int64]
    """int64 (small,), 0: offsets of the one origin of the tree."""
    products: NDArray[np.float32]
    """float32 (2 · small · 16,), sums over features of each row and 16 centres or landmarks, or twice 16."""
    counts: NDArray[np.int64]
    """int64 (nodes or leaves, and 2), counts of a sort."""
    leaf: NDArray[np.uint32]
    """uint32 (large,), the leaf of each row of the leaf tile, or NOWHERE."""
    tile_sorted: NDArray[np.uint32]
    """uint32 (large,), the numbers of the tile's rows, sorted by leaf."""
    e: NDArray[np.float32]
    """float32 (strip and 16, · row_values,), kernel values e of the rows of a strip."""
    digits: NDArray[np.int8]
    """int8 (strip and 16, · steps · 3 · 64,), rows of a strip as int8 limbs, for leaves that use them."""
    row_units: NDArray[np.float32]
    """float32 (strip,), the units of rows as limbs."""
    digit_sums: NDArray[np.int32]
    """int32 (2 · strip · 4 · 16,), sums of products of limbs of a strip and two groups of landmarks."""
    feature_columns: NDArray[np.float32]
    """float32 (width · 16,), the features of 16 rows, transposed."""
    value_columns: NDArray[np.float32]
    """float32 (row_values · 16,), the kernel values of 16 rows, transposed."""
    sums: NDArray[np.float32]
    """float32 (term_weights · 16,), the sums over terms of 16 rows, by output."""
    results: NDArray[np.float32]
    """float32 (n_outputs · 16,), the decision values of 16 rows, for classes."""
    double_results: NDArray[np.float64]
    """float64 (16,), the values of 16 rows, for a regression."""
    x: NDArray[np.float64]
    """float64 (n_columns,), one row in double precision."""
    raw: NDArray[np.float64]
    """float64 (n_features,), the raw features that become its columns; (0,) where features are columns."""
    c: NDArray[np.float64]
    """float64 (most landmarks,), the kernel values of that row."""
    outputs: NDArray[np.float64]
    """float64 (n_outputs,), its decision values."""


def is_compiled() -> bool:
    """Whether machine code exists, in this process or on disk."""
    return own_code(ENGINE).is_there()


def check() -> None:
    """Compile the engine if necessary, and load it. Raises CompilerError."""
    load(ENGINE)


@taken_by(ENGINE)
class Arguments(NamedTuple):
    """The arguments of compiled code: `score` of native/engine.cpp."""

    p: Packed
    q: Exact
    room: Room
    descent_rows: int
    """Rows of a descent tile."""
    leaf_rows: int
    """Rows of a leaf tile."""
    source: Source
    n: int
    """The number of rows."""
    out: Out


class Engine:
    """A model laid out for scoring: built once, used by any number of threads."""

    def __init__(self, model: Model, code: MachineCode | None = None) -> None:
        """Raises CompilerError without machine code for this processor."""
        self._code = code or own_code(ENGINE)
        self._code.entry()
        self.packed: Packed = pack(model)
        self.exact: Exact = exact_arrays(model, self.packed.columns)
        self.score_dtype, self._terms = model.score_dtype, [term.engine for term in model.terms]
        self._of_thread = threading.local()
        p = self.packed
        descent = DESCENT_BYTES // (4 * p.width)
        self.descent_rows = int(2 ** np.clip(descent.bit_length() - 1, 6, 8))
        per_leaf = WIDE_LEAF_ROWS if 4 * p.n_columns >= WIDE_ROW_BYTES else LEAF_ROWS
        wanted = per_leaf * (len(p.group_at) - 1)
        wanted = max(wanted, min(4 * wanted, LEAF_BYTES // (4 * p.n_features)))
        rows = int(np.clip(2 ** (wanted - 1).bit_length(), *LEAF_TILE))
        if p.maps.stride:
            rows = min(
                rows, max(2 ** ((MAPPED_BYTES // (4 * p.maps.stride)).bit_length() - 1), self.descent_rows)
            )
        self.leaf_rows = rows

    def score(
        self, X: NDArray[np.generic], leaves: LeafNumbers | None = None
    ) -> tuple[Scores, NDArray[np.uint8]]:
        """Do what compact_model.score_rows does. Raises DataError for the wrong shape or dtype."""
        check_rows(X, self.packed.n_features)
        if leaves is not None and (leaves.shape != (len(X),) or not leaves.flags.c_contiguous):
            raise DataError(f"Cannot write {len(X)} leaf numbers: the buffer has shape {leaves.shape}")
        decision = np.empty((len(X), self.packed.n_outputs), self.score_dtype)
        status = np.empty(len(X), STATUS_DTYPE)
        leaf = np.empty(0, np.uint32) if leaves is None else leaves.view(np.uint32)
        entry = self._code.entry()
        first, block = self._kept_block()
        for start, stop, rows in self._readable(X):
            part = slice(start, stop)
            offset = offset_of(self._terms, rows, self.packed.n_outputs)
            block[first:] = words(self._of_call(rows, decision[part], status[part], leaf[part], offset))
            code = entry(block.__array_interface__["data"][0])
            if code != 0:
                raise IndexError(f"compiled code left an array, and ended with status {code}")
        if leaves is not None:
            leaves[status == Status.NON_FINITE_FEATURE] = NO_LEAF
        return decision, status

    def arguments(self, rows: NDArray[np.generic]) -> Arguments:
        """The arguments of compiled code for rows that are read in place."""
        decision = np.empty((len(rows), self.packed.n_outputs), self.score_dtype)
        leaf, status = np.empty(0, np.uint32), np.empty(len(rows), STATUS_DTYPE)
        offset = offset_of(self._terms, rows, self.packed.n_outputs)
        return Arguments(*self._of_engine(), *self._of_call(rows, decision, status, leaf, offset))

    def _of_engine(self) -> tuple[Packed, Exact, Room, int, int]:
        return self.packed, self.exact, self._new_room(), self.descent_rows, self.leaf_rows

    def _of_call(
        self,
        rows: NDArray[Any],
        decision: Scores,
        status: NDArray[np.uint8],
        leaf: NDArray[np.uint32],
        offset: FloatArray,
    ) -> tuple[Source, int, Out]:
        regression = self.packed.regression
        none: Any = np.empty((0, self.packed.n_outputs), np.float32 if regression else np.float64)
        values: Any = decision
        singles, doubles = (none, values) if regression else (values, none)
        address = rows.__array_interface__["data"][0]
        source = Source(dtype_code(rows.dtype), rows.itemsize, address, rows.strides[0])
        return source, len(rows), Out(singles, doubles, status, leaf, offset)

    def _readable(self, X: NDArray[np.generic]) -> Any:
        """(start, stop, rows) with features side by side in native byte order: X itself, or copies."""
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
            with np.errstate(over="ignore"):  # A long double may overflow; its row gets a status.
                rows = np.ascontiguousarray(X[start:stop], dtype)
            yield start, stop, rows

    def _kept_block(self) -> tuple[int, NDArray[np.int64]]:
        """The words of this thread's arguments, kept, and the offset of those that change with each call."""
        sizes = self.descent_rows, self.leaf_rows
        if getattr(self._of_thread, "sizes", None) != sizes:
            arguments = self.arguments(np.empty((0, self.packed.n_features), np.float32))
            check_taken(ENGINE, arguments)
            fixed = words(arguments[:5])
            self._of_thread.block = len(fixed), np.array(words(arguments), np.int64)
            self._of_thread.arguments, self._of_thread.sizes = arguments, sizes
        block: tuple[int, NDArray[np.int64]] = self._of_thread.block
        return block

    def _new_room(self) -> Room:
        p = self.packed
        small, large = self.descent_rows, self.leaf_rows
        padded = max(small, STRIP_ROWS) + STRIP_ROWS

        def ints(length: int) -> NDArray[np.int64]:
            return np.empty(length, np.int64)

        def numbers(length: int) -> NDArray[np.uint32]:
            return np.empty(length, np.uint32)

        rows = aligned_empty((max(small, STRIP_ROWS) + LANES) * p.width, np.float32)
        rows.reshape(-1, p.width)[:, p.n_converted :] = 0.0
        mapped = aligned_empty(large * p.maps.stride, np.float32)
        mapped[:] = 0.0  # Padding of vectors is finite.
        return Room(
            rows=rows,
            mapped=mapped,
            columns=aligned_empty(STRIP_ROWS * p.columns.stride, np.float64),
            columns_at=ints(STRIP_ROWS),
            norm=np.empty(padded, np.float32),
            node=numbers(padded),
            order=numbers(padded),
            next_order=numbers(padded),
            undecided=numbers(padded),
            state=ints(2),
            numbers=aligned_empty((small + LANES) * p.width if len(p.fixed.unit) else 0, np.int16),
            address=ints(padded),
            row_at=ints(padded),
            upcoming=np.zeros(padded + STRIP_ROWS + SLAB, np.int64),
            shared=ints(padded),
            alone=ints(padded),
            centre_at=ints(padded),
            zeros=np.zeros(padded, np.int64),
            products=aligned_empty(2 * padded * LANES, np.float32),
            counts=ints(max(len(p.radius), len(p.group_at)) + 2),
            leaf=numbers(large + LANES),
            tile_sorted=numbers(large),
            e=aligned_empty((STRIP_ROWS + LANES) * p.row_values, np.float32),
            digits=aligned_empty((STRIP_ROWS + LANES) * p.digits.steps * PARTS * STEP, np.int8),
            row_units=np.empty(STRIP_ROWS, np.float32),
            digit_sums=aligned_empty(SUMMED_GROUPS * STRIP_ROWS * PART_SUMS * LANES, np.int32),
            feature_columns=aligned_empty(p.width * LANES, np.float32),
            value_columns=aligned_empty(p.row_values * LANES, np.float32),
            sums=aligned_empty(p.term_weights * LANES, np.float32),
            results=aligned_empty(p.n_outputs * LANES, np.float32),
            double_results=aligned_empty(LANES, np.float64),
            x=np.empty(p.n_columns),
            raw=np.empty(len(p.columns.first)),
            c=np.empty(max(self.exact.most_landmarks, 1)),
            outputs=np.empty(p.n_outputs),
        )
