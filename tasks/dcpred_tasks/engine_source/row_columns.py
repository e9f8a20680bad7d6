"""Raw rows with coded features as rows of columns (model/coding.py), before they are converted like any
others: in single precision where that holds the raw numbers exactly, else in double.

A row is set to 0, and then the columns of its codes to 1. Where these are is found for 16 features at once,
without branches: which code a row has cannot be foretold, and one wrong guess takes as long as 16 features.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import DTYPES, LANES
from dcpred_tasks.engine_source.elements import (
    F32,
    F64,
    I32,
    I64,
    element_type,
    for_dtype,
    load_part,
    to_float,
)
from dcpred_tasks.engine_source.llvm import Loop, integer, operands, takes
from dcpred_tasks.engine_source.row_conversion import not_finite

SINGLES = tuple(dtype.itemsize <= 2 or dtype == np.float32 for dtype in DTYPES)


@intrinsic
def to_columns(_, code, address, n, d, lowest, extent, place_at, place, stride, out, out_at):
    """The columns of n rows of d features at address[r] into out, a buffer; out_at[r] becomes the address of
    those of row r, `stride` numbers after those of the row before. The arrays in between are those of
    dcpred_tasks.engine.columns.Columns. The loop that is generated, 16 features at a time:

        for r in range(n):
            row[:] = 0
            for f in range(d):
                i = x[f] − lowest[f] where that is in range(extent[f]), else extent[f]
                row[place[place_at[f] + i]] = 1, or x[f] where extent[f] == 0
            row[0] = NaN where a feature is not finite, or nearly too large for double precision
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: _to_columns(b, dtype, given))
        return context.get_dummy_value()

    kinds = (code, address, n, d, lowest, extent, place_at, place, stride, out, out_at)
    return takes(types.void, *kinds), generate


def _to_columns(b: Any, dtype: "np.dtype[Any]", given: list[Any]) -> None:
    address, n, d, *tables, stride, out, out_at = given
    kind = F32 if SINGLES[DTYPES.index(dtype)] else F64
    zeros = ir.Constant(ir.VectorType(kind, LANES), [0.0] * LANES)
    out = b.bitcast(out, kind.as_pointer())
    with b.goto_entry_block():
        spoilt = b.alloca(ir.IntType(1))
        found = b.alloca(I32, size=LANES), b.alloca(kind, size=LANES)
    with Loop(b, n, []) as (r, _, _):
        source = b.inttoptr(b.load(b.gep(address, [r])), element_type(dtype).as_pointer())
        row = b.gep(out, [b.mul(r, stride)])
        b.store(b.ptrtoint(row, I64), b.gep(out_at, [r]))
        with Loop(b, stride, [], step=LANES) as (j, _, _):
            b.store(zeros, b.bitcast(b.gep(row, [j]), zeros.type.as_pointer()), align=4)
        # The last vector sets some features once more.
        with b.if_else(b.icmp_signed(">=", d, integer(LANES))) as (many, few):
            with many:
                _set_all(b, dtype, source, d, tables, found, row, LANES)
            with few, b.if_else(b.icmp_signed(">=", d, integer(4))) as (several, single):
                with several:
                    _set_all(b, dtype, source, d, tables, found, row, 4)
                with single:
                    _set_all(b, dtype, source, d, tables, found, row, 1)
        if dtype.kind == "f":
            b.store(ir.Constant(ir.IntType(1), 0), spoilt)
            not_finite(b, dtype, source, d, spoilt)
            with b.if_then(b.load(spoilt)):
                b.store(ir.Constant(kind, float("nan")), row)


def _set_all(
    b: Any, dtype: "np.dtype[Any]", source: Any, d: Any, tables: list[Any], found: Any, row: Any, n: int
) -> None:
    """Set what all features set, n of them at once."""
    last = b.sub(d, integer(n))
    with Loop(b, d, [], step=n) as (f, _, _):
        _set(b, dtype, source, b.select(b.icmp_signed("<", f, last), f, last), tables, found, row, n)


def _set(
    b: Any, dtype: "np.dtype[Any]", source: Any, f: Any, tables: list[Any], found: Any, row: Any, n: int
) -> None:
    """Set what n features from f on set: their own column to their value, or that of their code to 1."""
    x = to_float(b, load_part(b, source, f, n), dtype, n)
    ints = ir.VectorType(I32, n)
    low, extent, at = (load_part(b, table, f, n, 4) for table in tables[:3])
    # A number that is too large for 32 bits, or none at all, becomes 0, and is not whole then.
    kind, limit = (I32, 0x4E800000) if x.type.element == F32 else (I64, 0x41D << 52)
    bits = b.bitcast(x, ir.VectorType(kind, n))

    def every(value: int) -> Any:
        return ir.Constant(bits.type, [value] * n)

    fits = b.icmp_unsigned("<", b.shl(bits, every(1)), every(limit << 1))
    number = b.fptosi(b.bitcast(b.and_(bits, b.sext(fits, bits.type)), x.type), ints)
    same = b.sext(b.fcmp_ordered("==", b.sitofp(number, x.type), x), ints)
    # Unsigned, a number below the least code is above all of them.
    above = b.or_(b.sub(number, low), b.not_(same))
    index = b.add(at, b.select(b.icmp_unsigned("<", above, extent), above, extent))
    is_number = b.icmp_signed("==", extent, ir.Constant(ints, [0] * n))
    value = b.select(is_number, x, ir.Constant(x.type, [1.0] * n))
    for part, where in zip((index, value), found, strict=True):
        b.store(part, b.bitcast(where, part.type.as_pointer()), align=4)
    for lane in range(n):
        number, entry = (b.load(b.gep(where, [integer(lane)])) for where in found)
        column = b.load(b.gep(tables[3], [b.sext(number, I64)]))
        b.store(entry, b.gep(row, [b.sext(column, I64)]))
