"""Kernel values in vectors of 16 lanes, lanes being landmarks or rows, for every family of
dcpred_tasks.model.kernel_families.

Families that share a sum and a formula share code: a *form* of the list FORMS, whose place in it is what the
engine is told.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import FORMS, LANES
from dcpred_tasks.engine_source.llvm import (
    VECTOR,
    Loop,
    call,
    constant,
    fma,
    integer,
    load,
    operands,
    splat,
    store,
    switch,
    takes,
)
from dcpred_tasks.model.kernel_families import Family, Sum

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_INTS = ir.VectorType(_I32, LANES)


def _exp2m1_coefficients() -> list[float]:
    """c with 2^r − 1 = r · Σ c_i r^i on [−1/2, 1/2] to a relative error of 4e-9; as many terms of Taylor's
    series leave 2e-7.
    """
    nodes = np.cos(np.pi * (np.arange(64) + 0.5) / 64) / 2
    series = np.polynomial.Chebyshev.fit(nodes, np.expm1(nodes * np.log(2)) / nodes, 5)
    return [float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef]


EXP2M1 = _exp2m1_coefficients()


class Vectors:
    """dcpred_tasks.model.kernel_families.Lanes, as LLVM code of the builder b."""

    def __init__(self, b: Any) -> None:
        self.b = b
        self.add, self.sub, self.mul, self.div = b.fadd, b.fsub, b.fmul, b.fdiv

    def number(self, value: float) -> Any:
        return constant(float(np.float32(value)))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return fma(self.b, x, y, z)

    def sqrt(self, x: Any) -> Any:
        return call(self.b, "llvm.sqrt.v16f32", VECTOR, x)

    def minimum(self, x: Any, y: Any) -> Any:
        """y where x is NaN."""
        return self.where_less(x, y, x, y)

    def maximum(self, x: Any, y: Any) -> Any:
        """y where x is NaN."""
        return self.b.select(self.b.fcmp_ordered(">", x, y), x, y)

    def where_less(self, x: Any, y: Any, then: Any, otherwise: Any) -> Any:
        return self.b.select(self.b.fcmp_ordered("<", x, y), then, otherwise)

    def exp2(self, t: Any) -> tuple[Any, Any]:
        b = self.b
        t = b.select(b.fcmp_ordered(">", t, constant(-126.0)), t, constant(-126.0))
        t = b.select(b.fcmp_ordered("<", t, constant(126.0)), t, constant(126.0))
        whole = call(b, "llvm.rint.v16f32", VECTOR, t)
        rest = b.fsub(t, whole)
        series = constant(EXP2M1[-1])
        for coefficient in EXP2M1[-2::-1]:
            series = fma(b, series, rest, constant(coefficient))
        exponent = b.add(b.fptosi(whole, _INTS), ir.Constant(_INTS, [127] * LANES))
        power = b.bitcast(b.shl(exponent, ir.Constant(_INTS, [23] * LANES)), VECTOR)
        return power, b.fmul(power, b.fmul(series, rest))

    def powers(self, base: Any, start: Any, count: Any) -> Any:
        b = self.b
        times = b.fptosi(b.extract_element(count, ir.Constant(_I32, 0)), _I64)
        loop = Loop(b, times, [constant(1.0), start], first=integer(1))
        with loop as (_, (total, power), following):
            following.extend([fma(b, total, base, power), b.fmul(power, start)])
        return loop.values[0]


def for_form(b: Any, form: Any, generate: Callable[[Family], None]) -> None:
    """A switch on the number of a form, with the code of each form as a case."""
    switch(b, form, {family.name: partial(generate, family) for family in FORMS})


def kernel_input(b: Any, family: Family, total: Any, norm: Any, scale: Any, wide: bool) -> Any:
    """The x of Family.in_lanes, from P = `total` and ‖z‖² = `norm`. `wide` says that the leaf is so wide that
    P is a sum of squared differences and not of products.
    """
    if family.sum == Sum.PRODUCTS:
        return total
    minus = b.fsub(constant(-0.0), norm if family.sum == Sum.SQUARES and not wide else total)
    if family.sum == Sum.SQUARES and not wide:
        return fma(b, minus, scale, total)
    return b.fmul(minus, scale)


@intrinsic
def kernel_values(_, products, row, form, wide, norm, constants, n_constants, group, out, at):
    """out[at : at + 16] = e of a row and 16 landmarks (see dcpred_tasks.model.kernel_families), lanes being
    landmarks.

    products   P of the row and the landmarks of the group, from 16 row on
    constants  of the landmarks: constant k of the group's 16 from 16 (n_constants group + k) on
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        products, row, form, wide, norm, constants, n_constants, group, out, at = operands(
            context, b, signature, args
        )
        total = load(b, products, b.mul(row, integer(LANES)))
        own = b.gep(constants, [b.mul(b.mul(group, n_constants), integer(LANES))])
        lengths = splat(b, norm)

        def values(family: Family) -> None:
            o = Vectors(b)
            known = [load(b, own, integer(LANES * k)) for k in range(family.n_constants)]
            scale = known[0]
            x = kernel_input(b, family, total, lengths, scale, False)
            if family.sum == Sum.SQUARES:
                x = b.select(wide, kernel_input(b, family, total, lengths, scale, True), x)
            store(b, family.in_lanes(o, x, known), out, at)

        for_form(b, form, values)
        return context.get_dummy_value()

    kinds = (products, row, form, wide, norm, constants, n_constants, group, out, at)
    return takes(types.void, *kinds), generate
