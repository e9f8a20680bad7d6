"""Raw rows with coded features or indicators of gaps as rows of columns (model/coding.py), before they are
converted like any others: in single precision where that holds the raw numbers exactly, else in double.

A row is set to 0, and then the columns of its codes to 1. Where these are is found for 16 features at once,
without branches: which code a row has cannot be foretold, and one wrong guess takes as long as 16 features.

Where gaps are known and no feature is coded, a row is copied. A gap of a feature that is not coded stays NaN
until the row is converted (row_gaps.py); indicators, which come last, are set in rows that have gaps.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import DTYPES, FLOATS, LANES
from dcpred_tasks.engine_source.elements import (
    F32,
    F64,
    I32,
    I64,
    any_bit,
    element_type,
    for_dtype,
    in_vectors,
    is_gap,
    load_part,
    to_float,
)
from dcpred_tasks.engine_source.llvm import Loop, integer, operands, takes
from dcpred_tasks.engine_source.row_conversion import not_finite

FEW_INDICATORS = 4
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


@intrinsic
def copy_rows(_, code, address, n, d, stride, indicated, n_indicated, out, out_at):
    """The same of n rows of d features of which none is coded, of a dtype of FLOATS, where NaN is a gap.
    Column d + k is the indicator of feature indicated[k]:

        for r in range(n):
            row[:d], row[d:] = x, 0
            if isnan(x).any() or n_indicated <= FEW_INDICATORS:
                row[d + k] = isnan(x[indicated[k]]) for k in range(n_indicated)
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: _copy_rows(b, dtype, given), FLOATS)
        return context.get_dummy_value()

    return takes(types.void, code, address, n, d, stride, indicated, n_indicated, out, out_at), generate


@intrinsic
def admit_gaps(_, code, address, n, d, lowest, extent, indicated, n_indicated, first, row_at):
    """Rows of columns at row_at[r], which to_columns made of n rows of a dtype of FLOATS, where NaN is a gap.
    Column first + k is the indicator of feature indicated[k]:

        for r in range(n):
            if isnan(row[0]):                                  # to_columns found a gap, or worse
                row[0] = infinity where a feature is infinite, or nearly too large for double precision, else
                         x[0], or whether that is the least code of feature 0
                row[first + k] = isnan(x[indicated[k]]) for k in range(n_indicated)
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: _admit_gaps(b, dtype, given), FLOATS)
        return context.get_dummy_value()

    kinds = (code, address, n, d, lowest, extent, indicated, n_indicated, first, row_at)
    return takes(types.void, *kinds), generate


def _to_columns(b: Any, dtype: "np.dtype[Any]", given: list[Any]) -> None:
    address, n, d, *tables, stride, out, out_at = given
    kind = _kind(dtype)
    out = b.bitcast(out, kind.as_pointer())
    with b.goto_entry_block():
        spoilt = b.alloca(ir.IntType(1))
        found = b.alloca(I32, size=LANES), b.alloca(kind, size=LANES)
    with Loop(b, n, []) as (r, _, _):
        source, row = _source_and_row(b, dtype, address, out, stride, out_at, r)
        in_vectors(b, d, lambda n: _set_all(b, dtype, source, d, tables, found, row, n))
        if dtype.kind == "f":
            b.store(ir.Constant(ir.IntType(1), 0), spoilt)
            not_finite(b, dtype, source, d, spoilt)
            with b.if_then(b.load(spoilt)):
                b.store(ir.Constant(kind, float("nan")), row)


def _copy_rows(b: Any, dtype: "np.dtype[Any]", given: list[Any]) -> None:
    address, n, d, stride, indicated, n_indicated, out, out_at = given
    out = b.bitcast(out, _kind(dtype).as_pointer())
    with b.goto_entry_block():
        gap = b.alloca(ir.IntType(1))
    with Loop(b, n, []) as (r, _, _):
        # What is set to 0 begins with a whole vector; the row is copied over that.
        source, row = _source_and_row(b, dtype, address, out, stride, out_at, r, b.and_(d, integer(-LANES)))
        in_vectors(b, d, lambda n: _copy(b, dtype, source, d, row, gap, n))
        # Few are set in any row: a wrong guess whether it has a gap would take longer.
        few = b.icmp_signed("<=", n_indicated, integer(FEW_INDICATORS))
        with b.if_then(b.or_(b.load(gap), few)):
            _indicate(b, dtype, source, indicated, n_indicated, b.gep(row, [d]))


def _admit_gaps(b: Any, dtype: "np.dtype[Any]", given: list[Any]) -> None:
    address, n, d, lowest, extent, indicated, n_indicated, first, row_at = given
    kind, none = _kind(dtype), ir.Constant(I32, 0)
    with b.goto_entry_block():
        spoilt = b.alloca(ir.IntType(1))
    with Loop(b, n, []) as (r, _, _):
        row = b.inttoptr(b.load(b.gep(row_at, [r])), kind.as_pointer())
        marked = b.load(row)
        with b.if_then(b.fcmp_unordered("uno", marked, marked)):
            source = b.inttoptr(b.load(b.gep(address, [r])), element_type(dtype).as_pointer())
            not_finite(b, dtype, source, d, spoilt, gaps=True)
            x = b.extract_element(to_float(b, load_part(b, source, integer(0), 1), dtype, 1), none)
            is_code = b.uitofp(b.fcmp_ordered("==", x, b.sitofp(b.load(lowest), kind)), kind)
            value = b.select(b.icmp_signed("==", b.load(extent), none), x, is_code)
            b.store(b.select(b.load(spoilt), ir.Constant(kind, float("inf")), value), row)
            _indicate(b, dtype, source, indicated, n_indicated, b.gep(row, [first]))


def _indicate(b: Any, dtype: "np.dtype[Any]", source: Any, indicated: Any, n: Any, row: Any) -> None:
    """Set the indicators of a row, which begin where `row` points to: sixteen at once where their features
    lie side by side, else one by one. Which way is the same for every row, and foretold; whether a feature
    has a gap is not, and there is no branch on that.
    """

    def is_missing(feature: Any, n: int) -> Any:
        missing = is_gap(b, to_float(b, load_part(b, source, feature, n), dtype, n))
        return b.uitofp(missing, ir.VectorType(row.type.pointee, n))

    def feature_of(k: Any) -> Any:
        return b.sext(b.load(b.gep(indicated, [k])), I64)

    def one(k: Any) -> None:
        b.store(
            is_missing(feature_of(k), 1),
            b.bitcast(b.gep(row, [k]), ir.VectorType(row.type.pointee, 1).as_pointer()),
            align=4,
        )

    whole = b.and_(n, integer(-LANES))
    with Loop(b, whole, [], step=LANES) as (k, _, _):
        first, end = feature_of(k), feature_of(b.add(k, integer(LANES - 1)))
        with b.if_else(b.icmp_signed("==", b.sub(end, first), integer(LANES - 1))) as (together, apart):
            with together:
                values = is_missing(first, LANES)
                b.store(values, b.bitcast(b.gep(row, [k]), values.type.as_pointer()), align=4)
            with apart, Loop(b, b.add(k, integer(LANES)), [], first=k) as (own, _, _):
                one(own)
    with Loop(b, n, [], first=whole) as (k, _, _):
        one(k)


def _kind(dtype: "np.dtype[Any]") -> Any:
    """The type of columns of rows of a dtype."""
    return F32 if SINGLES[DTYPES.index(dtype)] else F64


def _source_and_row(
    b: Any,
    dtype: "np.dtype[Any]",
    address: Any,
    out: Any,
    stride: Any,
    out_at: Any,
    r: Any,
    first: Any = None,
) -> tuple[Any, Any]:
    """Raw row r, and its row of columns, which is set to 0 from `first` on."""
    zeros = ir.Constant(ir.VectorType(_kind(dtype), LANES), [0.0] * LANES)
    source = b.inttoptr(b.load(b.gep(address, [r])), element_type(dtype).as_pointer())
    row = b.gep(out, [b.mul(r, stride)])
    b.store(b.ptrtoint(row, I64), b.gep(out_at, [r]))
    with Loop(b, stride, [], step=LANES, first=first) as (j, _, _):
        b.store(zeros, b.bitcast(b.gep(row, [j]), zeros.type.as_pointer()), align=4)
    return source, row


def _copy(b: Any, dtype: "np.dtype[Any]", source: Any, d: Any, row: Any, gap: Any, n: int) -> None:
    """Copy d numbers to a row, n of them at once; and store in `gap` whether one of them is NaN."""
    last, none = b.sub(d, integer(n)), ir.Constant(ir.VectorType(ir.IntType(1), n), [0] * n)
    whole = Loop(b, d, [none], step=n)
    with whole as (f, (seen,), following):
        at = b.select(b.icmp_signed("<", f, last), f, last)
        x = to_float(b, load_part(b, source, at, n), dtype, n)
        following.append(b.or_(seen, is_gap(b, x)))
        b.store(x, b.bitcast(b.gep(row, [at]), x.type.as_pointer()), align=4)
    b.store(any_bit(b, whole.values[0]), gap)


def _set_all(
    b: Any, dtype: "np.dtype[Any]", source: Any, d: Any, tables: list[Any], found: Any, row: Any, n: int
) -> None:
    """Set what all features set, n of them at once; the last vector sets some once more."""
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
