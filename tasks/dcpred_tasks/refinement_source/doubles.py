"""Vectors of L-BFGS in double precision, padded with zeros to a multiple of 32."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.engine_source.llvm import Loop, call, integer, lane_sum, operands, splat, takes

PADDING = 2 * LANES
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)


def _load(b: Any, where: Any, index: Any) -> Any:
    return b.load(b.bitcast(b.gep(where, [index]), _DOUBLES.as_pointer()), align=8)


def _fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    return call(b, "llvm.fma.v16f64", _DOUBLES, x, y, z)


@intrinsic
def dot(_, x, x_at, y, y_at, n):
    """Σ x[x_at + i] y[y_at + i], i < n, always in the same order."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, x_at, y, y_at, n = operands(context, b, signature, args)
        # Two vectors are as many chains of sums as keep two units busy.
        loop = Loop(b, n, [ir.Constant(_DOUBLES, [0.0] * LANES)] * 2, step=PADDING)
        with loop as (i, totals, following):
            for t, total in enumerate(totals):
                at = b.add(i, integer(t * LANES))
                following.append(_fma(b, _load(b, x, b.add(x_at, at)), _load(b, y, b.add(y_at, at)), total))
        return lane_sum(b, b.fadd(*loop.values))

    return takes(types.float64, x, x_at, y, y_at, n), generate


@intrinsic
def add_scaled(_, x, factor, y, y_at, n):
    """x[i] += factor · y[y_at + i], i < n."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, factor, y, y_at, n = operands(context, b, signature, args)
        scale = splat(b, factor)
        with Loop(b, n, [], step=LANES) as (i, _, _):
            at = b.bitcast(b.gep(x, [i]), _DOUBLES.as_pointer())
            b.store(_fma(b, scale, _load(b, y, b.add(y_at, i)), b.load(at, align=8)), at, align=8)
        return context.get_dummy_value()

    return takes(types.void, x, factor, y, y_at, n), generate
