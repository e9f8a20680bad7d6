"""The logistic loss of sixteen rows at a time, over all outputs together (columns.py says how rows lie)."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.engine_source.llvm import (
    VECTOR,
    Loop,
    constant,
    fma,
    integer,
    lane_sum,
    load,
    operands,
    splat,
    store,
    takes,
)
from dcpred_tasks.refinement_source.columns import _DOUBLES, _INTS, _at, _column, _exp2, _off


def _log2_coefficients() -> list[float]:
    """c with log2(1.5 + r) = Σ c_i r^i on [−1/2, 1/2] to an error of 1e-8."""
    nodes = np.cos(np.pi * (np.arange(64) + 0.5) / 64) / 2
    series = np.polynomial.Chebyshev.fit(nodes, np.log2(1.5 + nodes), 9)
    return [float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef]


LOG2 = _log2_coefficients()
LN_2 = float(np.log(2.0))
_ZEROS = ir.Constant(_DOUBLES, [0.0] * LANES)


def _log2(b: Any, x: Any) -> Any:
    """log2 x for x ≥ 1; NaN where x is NaN."""
    bits = b.bitcast(x, _INTS)
    exponent = b.sub(b.lshr(bits, ir.Constant(_INTS, [23] * LANES)), ir.Constant(_INTS, [127] * LANES))
    fraction = b.and_(bits, ir.Constant(_INTS, [0x7FFFFF] * LANES))
    mantissa = b.bitcast(b.or_(fraction, ir.Constant(_INTS, [0x3F800000] * LANES)), VECTOR)
    rest = b.fsub(mantissa, constant(1.5))
    series = constant(LOG2[-1])
    for coefficient in LOG2[-2::-1]:
        series = fma(b, series, rest, constant(coefficient))
    found = b.fadd(series, b.sitofp(exponent, VECTOR))
    return b.select(b.fcmp_unordered("uno", x, x), x, found)


def _add_sums(b: Any, f: Any, f_stride: Any, strips: Any, outputs: Any, slopes: Any) -> None:
    """Add the sum over rows of each column of f to slopes (outputs,)."""
    with Loop(b, outputs, []) as (k, _, _):
        loop = Loop(b, strips, [_ZEROS])
        with loop as (s, (slope,), following):
            fall = _column(b, f, b.mul(s, f_stride), k)
            following.append(b.fadd(slope, b.fpext(fall, _DOUBLES)))
        where = b.gep(slopes, [k])
        b.store(b.fadd(b.load(where), lane_sum(b, loop.values[0])), where)


@intrinsic
def logistic_columns(_, f, f_stride, strips, outputs, goals, first, weight, share, sharpness, powers, slopes):
    """Σ w (−(1 − share) log p + share Σ_outputs off_guide²); f becomes its derivative by f, as in
    loss_columns. p is the share of the right class in exp(sharpness · f) over all outputs; over f and −f
    where there is one.

    goals   as of loss_columns; the right class is the output whose interval lies above 0
    powers  room for `outputs` columns
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        f, f_stride, strips, outputs, goals, first, weight, share, sharpness, powers, slopes = operands(
            context, b, signature, args
        )
        share, sharpness = (splat(b, b.fptrunc(x, ir.FloatType())) for x in (share, sharpness))
        rest = b.fsub(constant(1.0), share)
        steep = b.fmul(sharpness, constant(1.0 / LN_2))
        one = b.icmp_signed("==", outputs, integer(1))
        pulls = b.fmul(rest, b.select(one, b.fadd(sharpness, sharpness), sharpness))
        zero = constant(0.0)

        def goal_at(row: Any, k: Any) -> Any:
            return _at(b, goals, b.mul(b.add(b.mul(row, outputs), k), integer(4)))

        def is_right(row: Any, k: Any) -> Any:
            return b.fcmp_ordered(">", _column(b, goal_at(row, k), integer(0)), zero)

        all_strips = Loop(b, strips, [_ZEROS])
        with all_strips as (s, (value,), following_strips):
            row, own = b.add(first, s), _at(b, f, b.mul(s, f_stride))
            begin = _column(b, own, integer(0))
            other = b.select(one, b.fneg(begin), begin)
            highest = Loop(b, outputs, [other])
            with highest as (k, (most,), following):
                here = _column(b, own, k)
                following.append(b.select(b.fcmp_ordered(">", here, most), here, most))
            (most,) = highest.values
            behind = b.fmul(b.fsub(other, most), steep)
            start = [
                b.select(one, _exp2(b, behind), zero),
                b.select(one, b.select(is_right(row, integer(0)), zero, behind), zero),
            ]
            loop = Loop(b, outputs, start)
            with loop as (k, (total, reached), following):
                ahead = b.fmul(b.fsub(_column(b, own, k), most), steep)
                power = _exp2(b, ahead)
                store(b, power, _at(b, powers, k), integer(0))
                following.append(b.fadd(total, power))
                following.append(b.fadd(reached, b.select(is_right(row, k), ahead, zero)))
            total, reached = loop.values
            w, part = _column(b, weight, row), b.fdiv(constant(1.0), total)
            missed = b.fmul(constant(LN_2), b.fsub(_log2(b, total), reached))
            loop = Loop(b, outputs, [b.fmul(rest, missed)])
            with loop as (k, (loss,), following):
                goal, place = goal_at(row, k), _at(b, own, k)
                off = _off(b, load(b, place, integer(0)), *(_column(b, goal, integer(i)) for i in (2, 3)))
                far = b.fmul(share, off)
                p = b.fmul(_column(b, powers, k), part)
                high = b.fsub(p, b.select(is_right(row, k), constant(1.0), zero))
                fall = b.fmul(w, fma(b, pulls, high, b.fadd(far, far)))
                store(b, fall, place, integer(0))
                following.append(fma(b, far, off, loss))
            following_strips.append(b.fadd(value, b.fpext(b.fmul(w, loop.values[0]), _DOUBLES)))
        _add_sums(b, f, f_stride, strips, outputs, slopes)
        return lane_sum(b, all_strips.values[0])

    kinds = (f, f_stride, strips, outputs, goals, first, weight, share, sharpness, powers, slopes)
    return takes(types.float64, *kinds), generate
