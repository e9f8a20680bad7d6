"""Lanes that are centres or landmarks: products with rows, and what comes of them at a node: the nearest
child. Kernel values are in kernel_lanes.py.

A row is broadcast against 16 centres, so that a product needs no sum across lanes; where lanes are rows, see
row_lanes.py. Every lane is one chain of fused multiply-adds in the order of the features: a row gets the same
bits alone and among others.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import LANES, UNIT
from dcpred_tasks.engine.llvm import (
    VECTOR,
    Loop,
    ask,
    call,
    constant,
    fma,
    integer,
    load,
    operands,
    splat,
    store,
    takes,
    turned,
)
from dcpred_tasks.model.kernel_families import Sum

_F32, _I8, _I16, _I32, _I64 = ir.FloatType(), *(ir.IntType(bits) for bits in (8, 16, 32, 64))
_INTS = ir.VectorType(_I32, LANES)
ROWS = 8  # rows that share one load of a centre: 4 leave half of an AVX-512 unit idle
OWN = 4  # rows with a centre each: as many loads as products, and a register for every address


# -- rows × centres ------------------------------------------------------------------------------------------


def _project(
    b: Any, operands: list[Any], index: Any = None, ahead: Any = None, kind: Sum = Sum.PRODUCTS
) -> None:
    """Sums over features of rows and centres."""
    rows, row_at, centres, centre_at, at, first, last, out = operands
    shared = index is None
    width = ROWS if shared else OWN
    for start in range(0, ROWS, width):
        numbers = [b.add(at, integer(r)) for r in range(start, start + width)]
        numbers = numbers if shared else [b.load(b.gep(index, [r])) for r in numbers]
        xs = [b.gep(rows, [b.load(b.gep(row_at, [r]))]) for r in numbers]
        cs = [b.gep(centres, [b.load(b.gep(centre_at, [r]))]) for r in (numbers[:1] if shared else numbers)]
        targets = [b.gep(out, [b.mul(r, integer(LANES))]) for r in numbers]
        begun = b.icmp_signed("!=", first, integer(0))
        starts = [b.select(begun, load(b, target, integer(0)), constant(0.0)) for target in targets]
        loop = Loop(b, last, [*starts, *(ahead.start if ahead else [])], step=2, first=first)
        with loop as (j, values, following):
            sums, fetch = values[:width], values[width:]
            for feature in (j, b.add(j, integer(1))):
                group = [load(b, c, b.mul(feature, integer(LANES))) for c in cs] * (width if shared else 1)
                features = [splat(b, b.load(b.gep(x, [feature]))) for x in xs]
                pairs = zip(features, group, sums, strict=True)
                sums = [add_feature(b, kind, *pair) for pair in pairs]
            following.extend([*sums, *(ahead.step(*fetch) if ahead else [])])
        for target, s in zip(targets, loop.values[:width], strict=True):
            store(b, s, target, integer(0))


def add_feature(b: Any, kind: Sum, x: Any, centre: Any, total: Any) -> Any:
    """The sum over features after one more."""
    if kind == Sum.PRODUCTS:
        return fma(b, x, centre, total)
    apart = b.fsub(x, centre)
    if kind == Sum.SQUARES:
        return fma(b, apart, apart, total)
    return b.fadd(total, call(b, "llvm.fabs.v16f32", VECTOR, apart))


class _Ahead:
    """Ask for rows to come, two lines in every turn of a loop: row by row from ahead[at] on, bytes from `low`
    to `high` in steps of `stride`, and `also` bytes further. More at once would wait for each other, and
    later the work would wait for them.
    """

    def __init__(self, b: Any, ahead: Any, at: Any, low: Any, high: Any, stride: Any, also: Any) -> None:
        self.b, self.ahead, self.low, self.high, self.stride, self.also = b, ahead, low, high, stride, also
        self.start = [at, low]

    def step(self, row: Any, offset: Any) -> list[Any]:
        b = self.b
        where = b.inttoptr(b.add(b.load(b.gep(self.ahead, [row])), offset), _I8.as_pointer())
        ask(b, where)
        ask(b, b.gep(where, [self.also]))
        following = b.add(offset, self.stride)
        over = b.icmp_signed(">=", following, self.high)
        return [b.select(over, b.add(row, integer(1)), row), b.select(over, self.low, following)]


@intrinsic
def project_shared(
    _, rows, row_at, centres, centre_at, at, first, last, out, ahead, ahead_at, low, high, stride, also
):
    """out[16 r : 16 r + 16] += Σ_j rows[row_at[r] + j] · centres[centre_at[at] + 16 j : … + 16], at ≤ r < at
    + ROWS, over an even number of features first ≤ j < last; out counts as 0 where first is 0. Meanwhile ask
    for bytes low, low + stride, … < high of the rows at the addresses ahead[ahead_at], …, and for those
    `also` bytes further.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        given = operands(context, b, signature, args)
        _project(b, given[:8], ahead=_Ahead(b, *given[8:]))
        return context.get_dummy_value()

    own = (rows, row_at, centres, centre_at, at, first, last, out)
    return takes(types.void, *own, ahead, ahead_at, low, high, stride, also), generate


@intrinsic
def project_own(_, rows, row_at, centres, centre_at, index, at, first, last, out):
    """The same for r = index[at], …, index[at + ROWS − 1] with a group of each row's own, centre_at[r]; the
    same bits.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, row_at, centres, centre_at, index, *others = operands(context, b, signature, args)
        _project(b, [rows, row_at, centres, centre_at, *others], index)
        return context.get_dummy_value()

    return takes(types.void, rows, row_at, centres, centre_at, index, at, first, last, out), generate


@intrinsic
def distances_shared(_, rows, row_at, centres, centre_at, at, first, last, out):
    """As project_shared with (rows − centres)² instead of products, and without asking for rows to come."""
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
def nearest_child(_, products, row, half_norms, reach, children, node, norm, error, far):
    """The child with the largest products[16 row + t] − half_norms[16 node + t]; `far` if another is too near
    to be told from it.

    Both products are off by at most `error` · ‖x‖‖c‖ / 2, both half norms by 3/2 units of ‖c‖², and distances
    that round to the same single count as a tie (double_precision.py).
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        products, row, *others = operands(context, b, signature, args)
        return nearest_lane(b, load(b, products, b.mul(row, integer(LANES))), *others)

    return takes(types.int64, products, row, half_norms, reach, children, node, norm, error, far), generate


@intrinsic
def nearest_apart(_, distances, row, half_norms, children, node, norm, error, far):
    """The same with the smallest squared distance D = distances[16 row + t] + half_norms[16 node + t] from
    centres that single precision holds exactly.

    x is off by at most 4 units of itself, √D by as much, and D by `error` / 2 of itself besides; what is
    added keeps clear of squares that underflow.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        distances, row, half_norms, children, node, norm, error, far = operands(context, b, signature, args)
        left_out = load(b, half_norms, b.mul(node, integer(LANES)))
        scores = b.fsub(b.fsub(constant(-0.0), load(b, distances, b.mul(row, integer(LANES)))), left_out)
        nearest = b.fsub(ir.Constant(_F32, -0.0), _largest(b, scores))
        off = b.fadd(b.fmul(norm, ir.Constant(_F32, 10 * UNIT)), ir.Constant(_F32, 1e-15))
        more = b.fadd(ir.Constant(_F32, 1.0), error)
        limit = b.fadd(b.fmul(call(b, "llvm.sqrt.f32", _F32, nearest), more), off)
        floor = b.fsub(ir.Constant(_F32, -0.0), b.fmul(b.fmul(limit, limit), more))
        return _child(b, scores, floor, children, node, far)

    return takes(types.int64, distances, row, half_norms, children, node, norm, error, far), generate


def nearest_lane(
    b: Any,
    products: Any,
    half_norms: Any,
    reach: Any,
    children: Any,
    node: Any,
    norm: Any,
    error: Any,
    far: Any,
) -> Any:
    scores = b.fsub(products, load(b, half_norms, b.mul(node, integer(LANES))))
    largest = _largest(b, scores)
    c = b.load(b.gep(reach, [node]))
    return _child(b, scores, b.fsub(largest, margin(b, norm, c, error)), children, node, far)


def margin(b: Any, norm: Any, reach: Any, error: Any) -> Any:
    """By how much two scores may seem to differ, of one row or in lanes: see nearest_child."""
    both = b.fadd(norm, reach)
    units = constant(4 * UNIT) if norm.type == VECTOR else ir.Constant(_F32, 4 * UNIT)
    return b.fadd(b.fmul(error, b.fmul(norm, reach)), b.fmul(units, b.fmul(both, both)))


def _largest(b: Any, scores: Any) -> Any:
    largest = scores
    for width in (8, 4, 2, 1):
        other = turned(b, largest, width)
        largest = b.select(b.fcmp_ordered(">", largest, other), largest, other)
    return b.extract_element(largest, ir.Constant(_I32, 0))


def _child(b: Any, scores: Any, floor: Any, children: Any, node: Any, far: Any) -> Any:
    """The child of the one score that is not below the floor; `far` where there are several, or none, as with
    a NaN.
    """
    near = b.fcmp_ordered(">=", scores, splat(b, floor))
    bits = b.zext(b.bitcast(near, _I16), _I64)
    lane = call(b, "llvm.cttz.i64", _I64, bits, ir.Constant(ir.IntType(1), 0))
    others = b.and_(bits, b.sub(bits, integer(1)))
    alone = b.and_(b.icmp_signed("==", others, integer(0)), b.icmp_signed("!=", bits, integer(0)))
    place = b.add(b.mul(node, integer(LANES)), b.and_(lane, integer(LANES - 1)))
    return b.select(alone, b.sext(b.load(b.gep(children, [place])), _I64), far)


# -- asking ahead -------------------------------------------------------------------------------------------


@intrinsic
def prefetch(_, values, at, n_bytes):
    """Ask for values[at] and what follows, line by line."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        values, at, n_bytes = operands(context, b, signature, args)
        start = b.bitcast(b.gep(values, [at]), _I8.as_pointer())
        with Loop(b, n_bytes, [], step=64) as (i, _, _):
            ask(b, b.gep(start, [i]))
        return context.get_dummy_value()

    return takes(types.void, values, at, n_bytes), generate


@intrinsic
def prefetch_at(_, address, first, last):
    """Ask for bytes first to last from an address on, line by line."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        address, first, last = args
        start = b.inttoptr(address, _I8.as_pointer())
        with Loop(b, last, [], step=64, first=first) as (i, _, _):
            ask(b, b.gep(start, [i]))
        return context.get_dummy_value()

    return takes(types.void, address, first, last), generate
