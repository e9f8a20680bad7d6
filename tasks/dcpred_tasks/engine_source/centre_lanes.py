"""Lanes that are centres or landmarks: their products with rows, and the nearest child of a node. Kernel
values are in kernel_lanes.py; in row_lanes.py and few_features.py lanes are rows.

A row is broadcast against 16 centres, so that a product needs no sum across lanes. Every lane is one chain of
fused multiply-adds in the order of the features: a row gets the same bits alone and among others.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import LANES, UNIT
from dcpred_tasks.engine_source.llvm import (
    VECTOR,
    Loop,
    call,
    constant,
    fma,
    integer,
    load,
    operands,
    prefetch_line,
    rotated,
    splat,
    store,
    takes,
)
from dcpred_tasks.model.kernel_families import Sum

_F32, _I8, _I16, _I32, _I64 = ir.FloatType(), *(ir.IntType(bits) for bits in (8, 16, 32, 64))
_INTS = ir.VectorType(_I32, LANES)
SHARED_ROWS = 8  # rows that share one load of a group: 4 leave half of an AVX-512 unit idle
OWN_ROWS = 4  # rows with a group each: as many loads as products, and a register for every address


# -- rows × centres ------------------------------------------------------------------------------------------


def _project(
    b: Any,
    operands: list[Any],
    index: Any = None,
    prefetch: Any = None,
    kind: Sum = Sum.PRODUCTS,
    second: Any = None,
) -> None:
    """Sums over features of SHARED_ROWS rows and groups of 16 centres: all rows with the group of row `at`,
    or those that `index` names with a group each. The loop that is generated, for products:

        for r in rows:                                             # unrolled: 8 at once, or 4 and then 4
            sums[r] = out[16 r : 16 r + 16] if first else 0        # 16 lanes
        for j in range(first, last):                               # two features a turn
            for r in rows:                                         # unrolled
                sums[r] += rows[row_at[r] + j] * centres[centre_at[r] + 16 j : … + 16]
            prefetch two lines of an upcoming row                  # where asked for
        for r in rows:
            out[16 r : 16 r + 16] = sums[r]

    Features are the outer loop, so that sums stay in registers, and a line of the group that rows share is
    read once for all of them. With second = (elements to a second group, elements to its part of out) a
    feature of a row is loaded once for both groups.
    """
    rows, row_at, centres, centre_at, at, first, last, out = operands
    shared = index is None
    width = SHARED_ROWS if shared else OWN_ROWS
    for start in range(0, SHARED_ROWS, width):
        numbers = [b.add(at, integer(r)) for r in range(start, start + width)]
        numbers = numbers if shared else [b.load(b.gep(index, [r])) for r in numbers]
        xs = [b.gep(rows, [b.load(b.gep(row_at, [r]))]) for r in numbers]
        cs = [b.gep(centres, [b.load(b.gep(centre_at, [r]))]) for r in (numbers[:1] if shared else numbers)]
        targets = [b.gep(out, [b.mul(r, integer(LANES))]) for r in numbers]
        if second:
            cs, targets = (
                [*cs, b.gep(cs[0], [second[0]])],
                [*targets, *(b.gep(t, [second[1]]) for t in targets)],
            )
        begun = b.icmp_signed("!=", first, integer(0))
        starts = [b.select(begun, load(b, target, integer(0)), constant(0.0)) for target in targets]
        loop = Loop(b, last, [*starts, *(prefetch.start if prefetch else [])], step=2, first=first)
        with loop as (j, values, following):
            sums, position = values[: len(targets)], values[len(targets) :]
            for feature in (j, b.add(j, integer(1))):
                group = [load(b, c, b.mul(feature, integer(LANES))) for c in cs]
                features = [splat(b, b.load(b.gep(x, [feature]))) for x in xs]
                if shared:
                    group, features = [c for c in group for _ in xs], features * len(cs)
                pairs = zip(features, group, sums, strict=True)
                sums = [add_feature(b, kind, *pair) for pair in pairs]
            following.extend([*sums, *(prefetch.step(*position) if prefetch else [])])
        for target, s in zip(targets, loop.values[: len(targets)], strict=True):
            store(b, s, target, integer(0))


def add_feature(b: Any, kind: Sum, x: Any, centre: Any, total: Any) -> Any:
    """The sum over features with one feature more."""
    if kind == Sum.PRODUCTS:
        return fma(b, x, centre, total)
    difference = b.fsub(x, centre)
    if kind == Sum.SQUARES:
        return fma(b, difference, difference, total)
    return b.fadd(total, call(b, "llvm.fabs.v16f32", VECTOR, difference))


class _Prefetch:
    """Prefetching of rows that come later, two lines in every turn of a loop: row by row from the address
    upcoming[at] on, the line at each of the bytes low, low + stride, … < high, and the line `second` bytes
    after it. More lines in a turn would wait for each other, and fewer would come too late.
    """

    def __init__(self, b: Any, upcoming: Any, at: Any, low: Any, high: Any, stride: Any, second: Any) -> None:
        self.b, self.upcoming, self.low, self.high = b, upcoming, low, high
        self.stride, self.second = stride, second
        self.start = [at, low]

    def step(self, row: Any, offset: Any) -> list[Any]:
        b = self.b
        where = b.inttoptr(b.add(b.load(b.gep(self.upcoming, [row])), offset), _I8.as_pointer())
        prefetch_line(b, where)
        prefetch_line(b, b.gep(where, [self.second]))
        following = b.add(offset, self.stride)
        over = b.icmp_signed(">=", following, self.high)
        return [b.select(over, b.add(row, integer(1)), row), b.select(over, self.low, following)]


@intrinsic
def project_shared(
    _,
    rows,
    row_at,
    centres,
    centre_at,
    at,
    first,
    last,
    out,
    upcoming,
    upcoming_at,
    low,
    high,
    stride,
    second,
):
    """out[16 r : 16 r + 16] += Σ_j rows[row_at[r] + j] · centres[centre_at[at] + 16 j : … + 16] for the rows
    at ≤ r < at + SHARED_ROWS, over an even number of features first ≤ j < last; `out` counts as 0 where
    `first` is 0. Meanwhile rows at the addresses upcoming[upcoming_at], … are prefetched (see _Prefetch).
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        given = operands(context, b, signature, args)
        _project(b, given[:8], prefetch=_Prefetch(b, *given[8:]))
        return context.get_dummy_value()

    own = (rows, row_at, centres, centre_at, at, first, last, out)
    return takes(types.void, *own, upcoming, upcoming_at, low, high, stride, second), generate


@intrinsic
def project_two(
    _,
    rows,
    row_at,
    centres,
    centre_at,
    at,
    first,
    last,
    out,
    upcoming,
    upcoming_at,
    low,
    high,
    stride,
    second,
    apart,
    out_apart,
):
    """As project_shared, and the same with the groups that begin `apart` elements later, into
    out[out_apart:].
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        given = operands(context, b, signature, args)
        _project(b, given[:8], prefetch=_Prefetch(b, *given[8:14]), second=given[14:])
        return context.get_dummy_value()

    own = (rows, row_at, centres, centre_at, at, first, last, out, upcoming, upcoming_at, low, high)
    return takes(types.void, *own, stride, second, apart, out_apart), generate


@intrinsic
def project_own(_, rows, row_at, centres, centre_at, index, at, first, last, out):
    """The same sums, to the same bits, for r = index[at], …, index[at + SHARED_ROWS − 1], each row with a
    group of its own from centres[centre_at[r]] on.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, row_at, centres, centre_at, index, *others = operands(context, b, signature, args)
        _project(b, [rows, row_at, centres, centre_at, *others], index)
        return context.get_dummy_value()

    return takes(types.void, rows, row_at, centres, centre_at, index, at, first, last, out), generate


@intrinsic
def distances_shared(_, rows, row_at, centres, centre_at, at, first, last, out):
    """As project_shared with (rows − centres)² instead of products, and without prefetching."""
    return _shared_sums(Sum.SQUARES, (rows, row_at, centres, centre_at, at, first, last, out))


@intrinsic
def distances_own(_, rows, row_at, centres, centre_at, index, at, first, last, out):
    """As project_own with (rows − centres)² instead of products."""
    return _own_sums(Sum.SQUARES, (rows, row_at, centres, centre_at, index, at, first, last, out))


@intrinsic
def absolute_shared(_, rows, row_at, centres, centre_at, at, first, last, out):
    """As distances_shared with |rows − centres|."""
    return _shared_sums(Sum.ABSOLUTE, (rows, row_at, centres, centre_at, at, first, last, out))


@intrinsic
def absolute_own(_, rows, row_at, centres, centre_at, index, at, first, last, out):
    """As distances_own with |rows − centres|."""
    return _own_sums(Sum.ABSOLUTE, (rows, row_at, centres, centre_at, index, at, first, last, out))


def _shared_sums(kind: Sum, kinds: tuple[Any, ...]) -> Any:
    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _project(b, operands(context, b, signature, args), kind=kind)
        return context.get_dummy_value()

    return takes(types.void, *kinds), generate


def _own_sums(kind: Sum, kinds: tuple[Any, ...]) -> Any:
    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, row_at, centres, centre_at, index, *others = operands(context, b, signature, args)
        _project(b, [rows, row_at, centres, centre_at, *others], index, kind=kind)
        return context.get_dummy_value()

    return takes(types.void, *kinds), generate


# -- the nearest child ---------------------------------------------------------------------------------------


@intrinsic
def nearest_child(_, products, row, half_norms, radius, children, node, norm, error, undecided):
    """The child with the largest products[16 row + t] − half_norms[16 node + t]; `undecided` where single
    precision cannot tell another from it.

    Both products are off by at most `error` · ‖x‖‖c‖ / 2, both half norms by 3/2 units of ‖c‖², and distances
    that round to the same single count as a tie (double_precision.py).
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        products, row, *others = operands(context, b, signature, args)
        return nearest_lane(b, load(b, products, b.mul(row, integer(LANES))), *others)

    return takes(
        types.int64, products, row, half_norms, radius, children, node, norm, error, undecided
    ), generate


@intrinsic
def nearest_by_distance(_, distances, row, half_norms, children, node, norm, error, undecided):
    """The child with the smallest squared distance D = distances[16 row + t] + half_norms[16 node + t];
    centres are exact in single precision. `undecided` as in nearest_child.

    x is off by at most 4 units of itself, √D by as much, and D by `error` / 2 of itself besides; what is
    added keeps clear of squares that underflow.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        distances, row, half_norms, children, node, norm, error, undecided = operands(
            context, b, signature, args
        )
        left_out = load(b, half_norms, b.mul(node, integer(LANES)))
        scores = b.fsub(b.fsub(constant(-0.0), load(b, distances, b.mul(row, integer(LANES)))), left_out)
        nearest = b.fsub(ir.Constant(_F32, -0.0), _largest(b, scores))
        off = b.fadd(b.fmul(norm, ir.Constant(_F32, 10 * UNIT)), ir.Constant(_F32, 1e-15))
        more = b.fadd(ir.Constant(_F32, 1.0), error)
        limit = b.fadd(b.fmul(call(b, "llvm.sqrt.f32", _F32, nearest), more), off)
        floor = b.fsub(ir.Constant(_F32, -0.0), b.fmul(b.fmul(limit, limit), more))
        return _child(b, scores, floor, children, node, undecided)

    return takes(types.int64, distances, row, half_norms, children, node, norm, error, undecided), generate


def nearest_lane(
    b: Any,
    products: Any,
    half_norms: Any,
    radius: Any,
    children: Any,
    node: Any,
    norm: Any,
    error: Any,
    undecided: Any,
) -> Any:
    scores = b.fsub(products, load(b, half_norms, b.mul(node, integer(LANES))))
    largest = _largest(b, scores)
    c = b.load(b.gep(radius, [node]))
    return _child(b, scores, b.fsub(largest, margin(b, norm, c, error)), children, node, undecided)


def margin(b: Any, norm: Any, radius: Any, error: Any) -> Any:
    """How far rounding may move two scores apart, for one row or for 16 in lanes: see nearest_child."""
    both = b.fadd(norm, radius)
    units = constant(4 * UNIT) if norm.type == VECTOR else ir.Constant(_F32, 4 * UNIT)
    return b.fadd(b.fmul(error, b.fmul(norm, radius)), b.fmul(units, b.fmul(both, both)))


def _largest(b: Any, scores: Any) -> Any:
    largest = scores
    for width in (8, 4, 2, 1):
        other = rotated(b, largest, width)
        largest = b.select(b.fcmp_ordered(">", largest, other), largest, other)
    return b.extract_element(largest, ir.Constant(_I32, 0))


def _child(b: Any, scores: Any, floor: Any, children: Any, node: Any, undecided: Any) -> Any:
    """The child whose score alone is not below the floor; `undecided` where there are several, or none (a
    NaN).
    """
    near = b.fcmp_ordered(">=", scores, splat(b, floor))
    bits = b.zext(b.bitcast(near, _I16), _I64)
    lane = call(b, "llvm.cttz.i64", _I64, bits, ir.Constant(ir.IntType(1), 0))
    others = b.and_(bits, b.sub(bits, integer(1)))
    alone = b.and_(b.icmp_signed("==", others, integer(0)), b.icmp_signed("!=", bits, integer(0)))
    place = b.add(b.mul(node, integer(LANES)), b.and_(lane, integer(LANES - 1)))
    return b.select(alone, b.sext(b.load(b.gep(children, [place])), _I64), undecided)


# -- prefetching ---------------------------------------------------------------------------------------------


@intrinsic
def prefetch(_, values, at, n_bytes):
    """Prefetch n_bytes from values[at] on, line by line."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        values, at, n_bytes = operands(context, b, signature, args)
        start = b.bitcast(b.gep(values, [at]), _I8.as_pointer())
        with Loop(b, n_bytes, [], step=64) as (i, _, _):
            prefetch_line(b, b.gep(start, [i]))
        return context.get_dummy_value()

    return takes(types.void, values, at, n_bytes), generate


@intrinsic
def prefetch_at(_, address, first, last):
    """Prefetch the bytes from address + first to address + last, line by line."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        address, first, last = args
        start = b.inttoptr(address, _I8.as_pointer())
        with Loop(b, last, [], step=64, first=first) as (i, _, _):
            prefetch_line(b, b.gep(start, [i]))
        return context.get_dummy_value()

    return takes(types.void, address, first, last), generate
