"""Raw rows of any real dtype, converted, scaled and centred into a buffer of single precision, by numba
intrinsics.

    z = (x − a) ∘ s,   a = μ + centre / s,   which is x' − centre without rounding x' first

A dtype that single precision holds exactly is converted there, with a in two parts: (x − a_high) − a_low
loses nothing that matters, however far from 0 the feature lies, and takes a third of the time of double
precision. For the others (double precision, integers of 32 and 64 bits) it is (x − μ) ∘ s − centre in double
precision, rounded once.

A scaling may give features the factor 0: they add nothing, but for a NaN or an infinity, which spoils the
row. Where they are many, the others are picked one by one into whole vectors, which are converted as usual;
the whole row is looked at once.

No copy of a batch is made: a row is read where it lies, from its address, so that one compiled function
serves every dtype, stride and alignment.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.engine_source.compilation import compiled
from dcpred_tasks.engine_source.elements import (
    F32,
    F64,
    I32,
    I64,
    any_bit,
    element_type,
    for_dtype,
    is_gap,
    load_part,
    to_float,
)
from dcpred_tasks.engine_source.llvm import (
    Loop,
    constant,
    fma,
    integer,
    lane_sum,
    operands,
    splat,
    takes,
)


def _chunk(b: Any, dtype: "np.dtype[Any]", n: int, pointers: list[Any], j: Any, raw: Any = None) -> Any:
    """z of n elements from element j on, stored and returned. `raw` holds the elements where they are picked,
    and do not lie side by side in the row.
    """
    source, high, low, factor, target, shift, double_factor, centre, *gaps = pointers

    def part(where: Any, align: int) -> Any:
        return load_part(b, where, j, n, align)

    x, floats = to_float(b, part(source, 1) if raw is None else raw, dtype, n), ir.VectorType(F32, n)
    if x.type == floats:
        rest = part(low, 4)
        if gaps:
            of_gap, gap_rest = part(gaps[1], 4), b.fsub(rest, part(gaps[2], 4))
            rest = b.select(is_gap(b, x), gap_rest, rest)
            x = b.select(is_gap(b, x), of_gap, x)
        z = b.fmul(b.fsub(b.fsub(x, part(high, 4)), rest), part(factor, 4))
    else:
        if gaps:
            x = b.select(is_gap(b, x), part(gaps[0], 8), x)
        scaled = b.fmul(b.fsub(x, part(shift, 8)), part(double_factor, 8))
        z = b.fptrunc(b.fsub(scaled, b.fpext(part(centre, 4), x.type)), floats)
    b.store(z, b.bitcast(b.gep(target, [j]), z.type.as_pointer()), align=4)
    return z


def _pointers(
    b: Any, source: Any, target: Any, shift: Any, own: Any, factors: Any, centre: Any, centres: Any, gaps: Any
) -> list[Any]:
    """What _chunk takes: `own` is the place of the row's factors, `centre` that of its centre."""
    factor, double_factor = (b.gep(values, [own]) for values in factors)
    high, low, middle = (b.gep(values, [centre]) for values in centres)
    return [source, high, low, factor, target, shift, double_factor, middle, *gaps]


def convert(b: Any, dtype: "np.dtype[Any]", operands: list[Any]) -> None:
    """The code of load_rows: vectors of 16 features, or of 8, 4 or 1 where a row has fewer. With three
    further operands, the parts of what stands for gaps, that of load_gap_rows.
    """
    d, after = operands[2], b.append_basic_block("converted")
    for lanes in (LANES, 8, 4):
        enough, fewer = b.append_basic_block("enough"), b.append_basic_block("fewer")
        b.cbranch(b.icmp_signed(">=", d, integer(lanes)), enough, fewer)
        b.position_at_end(enough)
        _convert_by(b, dtype, operands, lanes)
        b.branch(after)
        b.position_at_end(fewer)
    _convert_by(b, dtype, operands, 1)
    b.branch(after)
    b.position_at_end(after)


def _convert_by(b: Any, dtype: "np.dtype[Any]", operands: list[Any], lanes: int) -> None:
    """A row is read in whole vectors, and nothing past its end: where the number of features is no multiple
    of the lanes, the last vector reads some features once more.
    """
    address, n, d, factor, high, low, at, out, width, norms, shift, double_factor, centres, *rest = operands
    step, *gaps = rest
    tail, stop = b.sub(d, integer(lanes)), b.and_(d, integer(-lanes))
    vector = ir.VectorType(F32, lanes)
    numbers = ir.Constant(ir.VectorType(I64, lanes), list(range(lanes)))
    # Lanes of the last vector whose features were not summed before.
    fresh = b.icmp_signed(">=", numbers, splat(b, b.sub(stop, tail), lanes))
    uneven = b.icmp_signed("!=", stop, d)
    zeros = ir.Constant(vector, [0.0] * lanes)
    with Loop(b, n, []) as (r, _, _):
        source = b.inttoptr(b.load(b.gep(address, [r])), element_type(dtype).as_pointer())
        centre = b.load(b.gep(at, [r]))
        own, target = b.mul(step, centre), b.gep(out, [b.mul(r, width)])
        pointers = _pointers(
            b, source, target, shift, own, (factor, double_factor), centre, (high, low, centres), gaps
        )
        whole = Loop(b, stop, [zeros], step=lanes)
        with whole as (j, (total,), following):
            z = _chunk(b, dtype, lanes, pointers, j)
            following.append(b.fadd(b.fmul(z, z), total) if lanes == 1 else fma(b, z, z, total))
        before, more, done = b.block, b.append_basic_block("more"), b.append_basic_block("done")
        b.cbranch(uneven, more, done)
        b.position_at_end(more)
        z = b.select(fresh, _chunk(b, dtype, lanes, pointers, tail), zeros)
        added = fma(b, z, z, whole.values[0])
        b.branch(done)
        b.position_at_end(done)
        squares = b.phi(vector)
        squares.add_incoming(whole.values[0], before)
        squares.add_incoming(added, more)
        b.store(lane_sum(b, squares), b.gep(norms, [r]))


def _picked(b: Any, source: Any, index: Any, j: Any) -> Any:
    """The 16 elements that index[j : j + 16] names, loaded one by one: as fast as a gather instruction, where
    there is one, and faster where microcode against side channels makes that slow.
    """
    raw = ir.Constant(ir.VectorType(source.type.pointee, LANES), ir.Undefined)
    for lane in range(LANES):
        feature = b.sext(b.load(b.gep(index, [b.add(j, integer(lane))])), I64)
        element = b.load(b.gep(source, [feature]), align=1)
        raw = b.insert_element(raw, element, ir.Constant(I32, lane))
    return raw


def convert_some(b: Any, dtype: "np.dtype[Any]", operands: list[Any]) -> None:
    """The code of load_some: whole vectors, for Conversion pads the index and the factors. Gaps as in
    `convert`.
    """
    address, n, d, index, length, *rest = operands
    factor, high, low, at, out, width, norms, shift, double_factor, centres, step, *gaps = rest
    with b.goto_entry_block():
        spoilt = b.alloca(ir.IntType(1))
    with Loop(b, n, []) as (r, _, _):
        source = b.inttoptr(b.load(b.gep(address, [r])), element_type(dtype).as_pointer())
        b.store(ir.Constant(ir.IntType(1), 0), spoilt)
        if dtype.kind == "f":
            with b.if_then(b.icmp_signed(">", d, integer(0))):
                not_finite(b, dtype, source, d, spoilt, bool(gaps))
        centre = b.load(b.gep(at, [r]))
        own, target = b.mul(step, centre), b.gep(out, [b.mul(r, width)])
        pointers = _pointers(
            b, source, target, shift, own, (factor, double_factor), centre, (high, low, centres), gaps
        )
        whole = Loop(b, length, [constant(0.0)], step=LANES)
        with whole as (j, (total,), following):
            z = _chunk(b, dtype, LANES, pointers, j, _picked(b, source, index, j))
            following.append(fma(b, z, z, total))
        norm = b.select(b.load(spoilt), ir.Constant(F32, float("nan")), lane_sum(b, whole.values[0]))
        b.store(norm, b.gep(norms, [r]))


def not_finite(b: Any, dtype: "np.dtype[Any]", source: Any, d: Any, spoilt: Any, gaps: bool = False) -> None:
    """Store in `spoilt` whether one of d numbers is not finite, or in double precision so large that a shift
    may overflow; with `gaps` NaN is none of these. Found by the largest of their bits without sign, as
    integers: these have the order of the numbers, and NaN comes after infinity.
    """
    bits = 8 * dtype.itemsize
    kind = ir.IntType(bits)
    infinity = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF << 52}[bits] << 1
    limit = 0x7FE << 53 if bits == 64 else infinity
    source = b.bitcast(source, kind.as_pointer())

    def every(value: int, n: int) -> Any:
        return ir.Constant(ir.VectorType(kind, n), [value] * n)

    def larger(j: Any, n: int, largest: Any) -> Any:
        size = b.shl(load_part(b, source, j, n), every(1, n))
        if gaps:
            size = b.select(b.icmp_unsigned(">", size, every(infinity, n)), every(0, n), size)
        return b.select(b.icmp_unsigned(">", size, largest), size, largest)

    def keep(largest: Any, n: int) -> None:
        b.store(any_bit(b, b.icmp_unsigned(">=", largest, every(limit, n))), spoilt)

    tail = b.sub(d, integer(LANES))
    with b.if_else(b.icmp_signed(">=", tail, integer(0))) as (many, few):
        with many:  # The last vector reads some numbers once more.
            whole = Loop(b, tail, [every(0, LANES)], step=LANES)
            with whole as (j, (largest,), following):
                following.append(larger(j, LANES, largest))
            keep(larger(tail, LANES, whole.values[0]), LANES)
        with few:
            single = Loop(b, d, [every(0, 1)])
            with single as (j, (largest,), following):
                following.append(larger(j, 1, largest))
            keep(single.values[0], 1)


def _double_row(b: Any, dtype: "np.dtype[Any]", address: Any, n: Any, out: Any) -> None:
    source = b.inttoptr(address, element_type(dtype).as_pointer())
    with Loop(b, n, []) as (j, _, _):
        raw = b.bitcast(b.gep(source, [j]), ir.VectorType(source.type.pointee, 1).as_pointer())
        x = to_float(b, b.load(raw, align=1), dtype, 1)
        double = x if x.type.element == F64 else b.fpext(x, ir.VectorType(F64, 1))
        b.store(b.extract_element(double, ir.Constant(I32, 0)), b.gep(out, [j]))


@intrinsic
def _load_rows(
    _, code, address, n, d, factor, high, low, at, out, width, norms, shift, double_factor, centres, step
):
    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: convert(b, dtype, given))
        return context.get_dummy_value()

    given = (address, n, d, factor, high, low, at, out, width, norms, shift, double_factor, centres, step)
    return takes(types.void, code, *given), generate


@intrinsic
def _load_some(
    _,
    code,
    address,
    n,
    d,
    index,
    length,
    factor,
    high,
    low,
    at,
    out,
    width,
    norms,
    shift,
    double_factor,
    centres,
    step,
):
    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: convert_some(b, dtype, given))
        return context.get_dummy_value()

    given = (
        address,
        n,
        d,
        index,
        length,
        factor,
        high,
        low,
        at,
        out,
        width,
        norms,
        shift,
        double_factor,
        centres,
        step,
    )
    return takes(types.void, code, *given), generate


@intrinsic
def _read_row(_, code, address, n, out):
    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: _double_row(b, dtype, *given))
        return context.get_dummy_value()

    return takes(types.void, code, address, n, out), generate


@compiled
def load_rows(
    code, address, n, d, factor, high, low, at, out, width, norms, shift, double_factor, centres, step
):
    """z of n rows of d features at address[r] into out[width r : …], float32; a = high + low and the centre
    of row r begin at element at[r], its factors at element step · at[r].

    norms[r] becomes ‖z‖², which is not finite where a feature is not.
    """
    _load_rows(
        code, address, n, d, factor, high, low, at, out, width, norms, shift, double_factor, centres, step
    )


@compiled
def load_some(
    code,
    address,
    n,
    d,
    index,
    length,
    factor,
    high,
    low,
    at,
    out,
    width,
    norms,
    shift,
    double_factor,
    centres,
    step,
):
    """The same for the features index[:length] of a row, `length` a multiple of 16; element k of all other
    arrays belongs to feature index[k].

    norms[r] is NaN, too, where one of the first d features is not finite, or nearly too large for double
    precision.
    """
    _load_some(
        code,
        address,
        n,
        d,
        index,
        length,
        factor,
        high,
        low,
        at,
        out,
        width,
        norms,
        shift,
        double_factor,
        centres,
        step,
    )


@compiled
def read_row(code, address, n, out):
    """The n features of the raw row at an address into out (n,), float64."""
    _read_row(code, address, n, out)
