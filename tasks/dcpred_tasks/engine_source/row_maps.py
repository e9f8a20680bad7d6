"""Raw rows whose amounts are mapped (model/feature_map.py), a tile at a time, by the operations of the
definition. All that comes after takes the mapped rows, which are in single precision, for the raw ones.

The unit of a feature is taken off in double precision, and what follows is done in single precision, in
vectors of 16 features.

By quantiles, six comparisons find the knots that a number is between: those of the first knots are the same
for all rows, and later ones are chosen by the results of earlier ones, in registers. So they take no load of
an address that has to be computed first, as a gather does. The line between two knots is then looked up for
one feature after the other.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import LANES, STRIP_ROWS, dtype_code
from dcpred_tasks.engine.row_layout import Source
from dcpred_tasks.engine_source.compilation import CHECKED, called
from dcpred_tasks.engine_source.elements import (
    F32,
    F64,
    I32,
    I64,
    any_bit,
    element_type,
    for_dtype,
    in_vectors,
    load_part,
    to_float,
)
from dcpred_tasks.engine_source.llvm import (
    VECTOR,
    Loop,
    call,
    constant,
    integer,
    load,
    operands,
    store,
    takes,
)
from dcpred_tasks.engine_source.projection import touch
from dcpred_tasks.model.feature_map import FAR, MOST_KNOTS, THIRD

SINGLE_CODE = dtype_code(np.dtype(np.float32))
SINGLE_BYTES = 4
WORD: Any = np.int64  # what a Source is made of
STEPS = (MOST_KNOTS + 1).bit_length() - 1  # comparisons that find one of 64 pieces
PIECE = 3  # numbers of a piece: knot, slope, value
NO_CODE = 0.5  # stands for a number that single precision does not hold, and that is the code of no column
INTS = ir.VectorType(I32, LANES)
INFINITY = 0x7F800000


@called
def map_rows(p, source, start, n, room):
    """The n rows of a tile that begins with row `start` into room.mapped; returns where they lie."""
    width = p.maps.stride
    if CHECKED:
        touch(room.mapped, 0, n * width)
        touch(p.maps.centre, 0, width)
        touch(p.maps.rate, 0, width)
        if len(p.maps.knots) > 0:
            touch(p.maps.knots, 0, width * MOST_KNOTS)
            touch(p.maps.pieces, 0, width * (MOST_KNOTS + 1) * PIECE)
    for first in range(0, n, STRIP_ROWS):
        count, own = min(STRIP_ROWS, n - first), room.mapped[first * width :]
        address = source.address + (start + first) * source.stride
        to_units(
            source.code,
            address,
            source.stride,
            count,
            p.n_features,
            p.maps.centre,
            p.maps.rate,
            width,
            own,
        )
        if len(p.maps.knots) > 0:
            to_quantiles(count, width, p.maps.knots, p.maps.pieces, own)
        else:
            clip_smoothly(count, width, p.maps.rate, own)
    stride = WORD(SINGLE_BYTES * width)
    address = WORD(room.mapped.ctypes.data - start * stride)
    return Source(WORD(SINGLE_CODE), WORD(SINGLE_BYTES), address, stride)


@intrinsic
def to_units(_, code, address, row_bytes, n, d, centre, rate, width, out):
    """The n rows of d features from an address on, row_bytes apart, into out, `width` numbers a row:

    for r in range(n):
        for f in range(d):
            row[f] = single((x[f] - centre[f]) * rate[f]) if rate[f] > 0 else x[f]
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: _to_units(b, dtype, given))
        return context.get_dummy_value()

    return takes(types.void, code, address, row_bytes, n, d, centre, rate, width, out), generate


@intrinsic
def clip_smoothly(_, n, width, rate, out):
    """Features of n rows clipped where their rate is not 0. A number that is not finite stays as it is."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        n, width, rate, out = operands(context, b, signature, args)
        with Loop(b, n, []) as (r, _, _):
            row = b.gep(out, [b.mul(r, width)])
            with Loop(b, width, [], step=LANES) as (f, _, _):
                own_rate = load_part(b, rate, f, LANES, 8)
                u = load(b, row, f)
                stays = b.fcmp_ordered("==", own_rate, ir.Constant(own_rate.type, [0.0] * LANES))
                s = b.select(_is_finite(b, u), _clipped(b, u), u)
                store(b, b.select(stays, u, s), row, f)
        return context.get_dummy_value()

    return takes(types.void, n, width, rate, out), generate


@intrinsic
def to_quantiles(_, n, width, knots, pieces, out):
    """Features of n rows, each on the line of its piece: a number beyond the knots has the value of the
    nearest one, and an infinite one stays as it is.

    knots   of 16 features side by side, 63 after another; infinite after the last one
    pieces  knot, slope and value of 64 pieces of each feature: before the first knot, and after each
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        n, width, knots, pieces, out = operands(context, b, signature, args)
        with b.goto_entry_block():
            place = b.alloca(I32, size=LANES)
        with Loop(b, width, [], step=LANES) as (f, _, _):
            own = b.gep(knots, [b.mul(f, integer(MOST_KNOTS))])
            lines = b.gep(pieces, [b.mul(f, integer((MOST_KNOTS + 1) * PIECE))])
            with Loop(b, n, []) as (r, _, _):
                row = b.gep(out, [b.add(b.mul(r, width), f)])
                u = load(b, row, integer(0))
                store(b, b.mul(_piece(b, u, own), ir.Constant(INTS, [PIECE] * LANES)), place, integer(0))
                for lane in range(LANES):
                    _to_line(b, row, lane, lines, place)
                infinite = b.icmp_unsigned("==", _size(b, u), ir.Constant(INTS, [INFINITY] * LANES))
                with b.if_then(any_bit(b, infinite), likely=False):
                    store(b, b.select(infinite, u, load(b, row, integer(0))), row, integer(0))
        return context.get_dummy_value()

    return takes(types.void, n, width, knots, pieces, out), generate


def _to_units(b: Any, dtype: "np.dtype[Any]", given: list[Any]) -> None:
    address, row_bytes, n, d, centre, rate, width, out = given
    with Loop(b, n, []) as (r, _, _):
        here = b.add(address, b.mul(r, row_bytes))
        source = b.inttoptr(here, element_type(dtype).as_pointer())
        row = b.gep(out, [b.mul(r, width)])
        in_vectors(b, d, lambda lanes: _unit_row(b, dtype, source, d, centre, rate, row, lanes))


def _unit_row(
    b: Any, dtype: "np.dtype[Any]", source: Any, d: Any, centre: Any, rate: Any, row: Any, n: int
) -> None:
    """One row, n features at once; the last vector does some again."""
    singles, doubles = ir.VectorType(F32, n), ir.VectorType(F64, n)
    last = b.sub(d, integer(n))
    with Loop(b, d, [], step=n) as (f, _, _):
        at = b.select(b.icmp_signed("<", f, last), f, last)
        x = to_float(b, load_part(b, source, at, n), dtype, n)
        if x.type == singles:
            kept, x = x, b.fpext(x, doubles)
        else:
            near = b.fptrunc(x, singles)
            same = b.fcmp_unordered("==", b.fpext(near, doubles), x)
            kept = b.select(same, near, ir.Constant(singles, [NO_CODE] * n))
        own_rate = load_part(b, rate, at, n, 8)
        moved = b.fmul(b.fsub(x, load_part(b, centre, at, n, 8)), own_rate)
        stays = b.fcmp_ordered("==", own_rate, ir.Constant(doubles, [0.0] * n))
        u = b.select(stays, kept, b.fptrunc(moved, singles))
        b.store(u, b.bitcast(b.gep(row, [at]), singles.as_pointer()), align=4)


def _clipped(b: Any, u: Any) -> Any:
    """u / √(1 + (u/3)²)."""
    far, near = constant(float(FAR)), constant(-float(FAR))
    u = b.select(b.fcmp_ordered("<", u, far), u, far)
    u = b.select(b.fcmp_ordered(">", u, near), u, near)
    part = b.fmul(u, constant(float(THIRD)))
    root = call(b, f"llvm.sqrt.v{LANES}f32", VECTOR, b.fadd(constant(1.0), b.fmul(part, part)))
    return b.fdiv(u, root)


def _piece(b: Any, u: Any, knots: Any) -> Any:
    """How many of the 63 knots of each of 16 features are not above u, by bisection."""
    at: Any = ir.Constant(INTS, [0] * LANES)
    results: list[Any] = []
    for step in range(STEPS):
        width = (MOST_KNOTS + 1) >> (step + 1)
        candidates = [load(b, knots, integer((width * (2 * k + 1) - 1) * LANES)) for k in range(2**step)]
        for above in results:
            half = len(candidates) // 2
            candidates = [b.select(above, candidates[half + k], candidates[k]) for k in range(half)]
        results.append(b.fcmp_ordered(">=", u, candidates[0]))
        add = b.select(results[-1], ir.Constant(INTS, [width] * LANES), ir.Constant(INTS, [0] * LANES))
        at = b.add(at, add)
    return at


def _to_line(b: Any, row: Any, lane: int, lines: Any, place: Any) -> None:
    """One number to its place on the line of its piece."""
    where, first = b.gep(row, [integer(lane)]), integer(lane * (MOST_KNOTS + 1) * PIECE)
    own = b.gep(lines, [b.add(first, b.zext(b.load(b.gep(place, [integer(lane)])), I64))])
    knot, slope, value = (b.load(b.gep(own, [integer(k)])) for k in range(PIECE))
    b.store(b.fadd(b.fmul(b.fsub(b.load(where), knot), slope), value), where)


def _size(b: Any, u: Any) -> Any:
    """The bits of numbers without their signs."""
    return b.and_(b.bitcast(u, INTS), ir.Constant(INTS, [0x7FFFFFFF] * LANES))


def _is_finite(b: Any, u: Any) -> Any:
    return b.icmp_unsigned("<", _size(b, u), ir.Constant(INTS, [INFINITY] * LANES))
