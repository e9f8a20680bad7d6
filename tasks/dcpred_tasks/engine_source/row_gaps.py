"""Raw rows with gaps, converted as row_conversion.py does: where a feature is NaN, what stands for its gaps
takes its place, in the vector that is at hand. Only dtypes that have NaN need it, and only models that know
gaps.

It is given in double precision, and as the sum of two single numbers: (g_high − a_high) − (a_low − g_low)
loses as little as the conversion of a value does, however far from 0 the feature lies.
"""

from typing import Any

from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import FLOATS
from dcpred_tasks.engine_source.compilation import called
from dcpred_tasks.engine_source.elements import for_dtype
from dcpred_tasks.engine_source.llvm import operands, takes
from dcpred_tasks.engine_source.row_conversion import convert, convert_some


@intrinsic
def _load_rows(
    _,
    code,
    address,
    n,
    d,
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
    gap,
    gap_high,
    gap_low,
):
    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: convert(b, dtype, given), FLOATS)
        return context.get_dummy_value()

    kinds = (address, n, d, factor, high, low, at, out, width, norms, shift, double_factor, centres, step)
    return takes(types.void, code, *kinds, gap, gap_high, gap_low), generate


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
    gap,
    gap_high,
    gap_low,
):
    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        code, *given = operands(context, b, signature, args)
        for_dtype(b, code, lambda dtype: convert_some(b, dtype, given), FLOATS)
        return context.get_dummy_value()

    kinds = (address, n, d, index, length, factor, high, low, at, out, width, norms, shift, double_factor)
    return takes(types.void, code, *kinds, centres, step, gap, gap_high, gap_low), generate


@called
def load_gap_rows(p, code, n, factor, double_factor, step, high, low, centres, at, look, address, norm, rows):
    """The rows at n addresses as projection.load takes them, of the dtype of FLOATS with this number."""
    gaps = p.gaps
    if len(p.picks) > 0:
        _load_some(
            code,
            address,
            n,
            look,
            p.picks,
            p.n_converted,
            factor,
            high,
            low,
            at,
            rows,
            p.width,
            norm,
            p.shift,
            double_factor,
            centres,
            step,
            gaps.double,
            gaps.high,
            gaps.low,
        )
        return
    _load_rows(
        code,
        address,
        n,
        p.n_columns,
        factor,
        high,
        low,
        at,
        rows,
        p.width,
        norm,
        p.shift,
        double_factor,
        centres,
        step,
        gaps.double,
        gaps.high,
        gaps.low,
    )
