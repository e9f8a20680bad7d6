"""Elements of any real dtype as vectors of floats: LLVM code by dtype."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir

from dcpred_tasks.engine.layout import DTYPES, LANES
from dcpred_tasks.engine_source.llvm import integer, switch

F32, F64, I8, I32, I64 = ir.FloatType(), ir.DoubleType(), *(ir.IntType(bits) for bits in (8, 32, 64))


def element_type(dtype: "np.dtype[Any]") -> Any:
    return {"f8": F64, "f4": F32}.get(dtype.str[1:], ir.IntType(8 * dtype.itemsize))


def to_float(b: Any, raw: Any, dtype: "np.dtype[Any]", n: int) -> Any:
    """n raw elements in single precision where that is exact, else in double."""
    exact = dtype.itemsize <= 2 or dtype == np.float32
    vector = ir.VectorType(F32 if exact else F64, n)
    if dtype.kind == "b":  # Whatever is not 0 is true, as NumPy reads it.
        return b.uitofp(b.icmp_unsigned("!=", raw, ir.Constant(raw.type, [0] * n)), vector)
    if dtype.kind == "f":
        return _from_half(b, raw, n) if dtype.itemsize == 2 else raw
    return b.sitofp(raw, vector) if dtype.kind == "i" else b.uitofp(raw, vector)


def _from_half(b: Any, raw: Any, n: int) -> Any:
    """Half precision by integer arithmetic: shift the bits, and let a product right the exponent, of
    subnormals too.

    Not LLVM's own conversion, which calls a library function on processors that have no instruction for it.
    """
    ints, floats = ir.VectorType(I32, n), ir.VectorType(F32, n)

    def every(value: int) -> Any:
        return ir.Constant(ints, [value] * n)

    bits = b.zext(raw, ints)
    magnitude = b.and_(bits, every(0x7FFF))
    small = b.bitcast(b.shl(magnitude, every(13)), floats)
    righted = b.bitcast(b.fmul(small, ir.Constant(floats, [2.0**112] * n)), ints)
    special = b.icmp_unsigned(">=", magnitude, every(0x7C00))
    righted = b.select(special, b.or_(righted, every(0x7F800000)), righted)
    return b.bitcast(b.or_(righted, b.shl(b.and_(bits, every(0x8000)), every(16))), floats)


def load_part(b: Any, where: Any, j: Any, n: int, align: int = 1) -> Any:
    """n elements from where[j] on."""
    return b.load(
        b.bitcast(b.gep(where, [j]), ir.VectorType(where.type.pointee, n).as_pointer()), align=align
    )


def for_dtype(
    b: Any,
    code: Any,
    generate: Callable[["np.dtype[Any]"], None],
    dtypes: "Sequence[np.dtype[Any]]" = DTYPES,
) -> None:
    """A switch on the code of a dtype, with the code of each of the first dtypes as a case."""
    switch(b, code, {dtype.name: partial(generate, dtype) for dtype in dtypes})


def in_vectors(b: Any, d: Any, generate: Callable[[int], None]) -> None:
    """The code for d features by 16, 4 or 1 of them at once, as there are so many."""
    with b.if_else(b.icmp_signed(">=", d, integer(LANES))) as (many, few):
        with many:
            generate(LANES)
        with few, b.if_else(b.icmp_signed(">=", d, integer(4))) as (several, single):
            with several:
                generate(4)
            with single:
                generate(1)


def is_gap(b: Any, x: Any) -> Any:
    """Where floats are NaN, a vector of bits."""
    return b.fcmp_unordered("uno", x, x)


def any_bit(b: Any, bits: Any) -> Any:
    """Whether one of a vector of bits is set."""
    whole = b.bitcast(bits, ir.IntType(bits.type.count))
    return b.icmp_unsigned("!=", whole, ir.Constant(whole.type, 0))
