"""Raw rows with features on a symmetric logarithmic scale (model/symlog.py), before they are converted or
become columns: in double precision, whatever they were, as the definition has them.

A logarithm is made of the bits of a number: its exponent and its fraction, each made a number by giving it
the bits of a power of two, for few processors convert whole numbers of 64 bits in vectors. Their sum is
rounded once, as the whole number is that the definition speaks of.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine_source.elements import (
    F64,
    I64,
    element_type,
    for_dtype,
    in_vectors,
    load_part,
    to_float,
)
from dcpred_tasks.engine_source.llvm import Loop, integer, operands, takes
from dcpred_tasks.model.symlog import BITS_OF_ONE, TOO_LARGE

FRACTION = (1 << 52) - 1  # the bits of a number after its exponent
ABOVE = 0x433 << 52  # the bits of 2^52: with a whole number in the fraction, that much more
SIZE = (1 << 63) - 1  # all bits but the sign
LIMIT = int(np.float64(TOO_LARGE).view(np.int64))


@intrinsic
def to_logarithms(_, code, address, n, d, centre, rate, stride, out, out_at):
    """The n rows of d features at address[r] into out, float64; out_at[r] becomes the address of row r,
    `stride` numbers after that of the row before. The loop that is generated, 16 features at a time:

        for r in range(n):
            for f in range(d):
                row[f] = symlog((x[f] - centre[f]) * rate[f]) if rate[f] > 0 else x[f]
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: _to_logarithms(b, dtype, given))
        return context.get_dummy_value()

    return takes(types.void, code, address, n, d, centre, rate, stride, out, out_at), generate


@intrinsic
def read_logarithms(_, code, address, d, centre, rate, out):
    """The d features of the raw row at an address into out (d,), float64, as to_logarithms."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, address, d, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: _row(b, dtype, _pointer(b, dtype, address), d, *given))
        return context.get_dummy_value()

    return takes(types.void, code, address, d, centre, rate, out), generate


def _to_logarithms(b: Any, dtype: "np.dtype[Any]", given: list[Any]) -> None:
    address, n, d, centre, rate, stride, out, out_at = given
    with Loop(b, n, []) as (r, _, _):
        row = b.gep(out, [b.mul(r, stride)])
        b.store(b.ptrtoint(row, I64), b.gep(out_at, [r]))
        _row(b, dtype, _pointer(b, dtype, b.load(b.gep(address, [r]))), d, centre, rate, row)


def _pointer(b: Any, dtype: "np.dtype[Any]", address: Any) -> Any:
    return b.inttoptr(address, element_type(dtype).as_pointer())


def _row(b: Any, dtype: "np.dtype[Any]", source: Any, d: Any, centre: Any, rate: Any, row: Any) -> None:
    """One row, in vectors of 16 features, or of 4 or 1 where there are fewer; the last does some again."""

    def by(n: int) -> None:
        last = b.sub(d, integer(n))
        with Loop(b, d, [], step=n) as (f, _, _):
            at = b.select(b.icmp_signed("<", f, last), f, last)
            x = to_float(b, load_part(b, source, at, n), dtype, n)
            if x.type.element != F64:
                x = b.fpext(x, ir.VectorType(F64, n))
            own_rate = load_part(b, rate, at, n, 8)
            s = _symlog(b, b.fmul(b.fsub(x, load_part(b, centre, at, n, 8)), own_rate), n)
            stays = b.fcmp_ordered("==", own_rate, ir.Constant(own_rate.type, [0.0] * n))
            b.store(b.select(stays, x, s), b.bitcast(b.gep(row, [at]), x.type.as_pointer()), align=8)

    in_vectors(b, d, by)


def _symlog(b: Any, u: Any, n: int) -> Any:
    """sign(u) · l(1 + |u|), infinite where u is too large for single precision, and NaN where it is NaN."""
    ints = ir.VectorType(I64, n)

    def every(value: int) -> Any:
        return ir.Constant(ints, [value] * n)

    def number(bits: Any) -> Any:
        return b.bitcast(bits, u.type)

    def less(x: Any, value: float) -> Any:
        return b.fsub(x, ir.Constant(u.type, [value] * n))

    bits = b.bitcast(u, ints)
    one = ir.Constant(u.type, [1.0] * n)
    beside = b.bitcast(b.fadd(one, number(b.and_(bits, every(SIZE)))), ints)
    exponent = less(number(b.or_(b.lshr(beside, every(52)), every(ABOVE))), 2.0**52 + 1023)
    fraction = less(number(b.or_(b.and_(beside, every(FRACTION)), every(BITS_OF_ONE))), 1.0)
    sign = b.and_(bits, every(1 << 63))
    s = number(b.or_(b.bitcast(b.fadd(exponent, fraction), ints), sign))
    beyond = b.fmul(u, ir.Constant(u.type, [float("inf")] * n))
    return b.select(b.icmp_unsigned("<", beside, every(LIMIT)), s, beyond)
