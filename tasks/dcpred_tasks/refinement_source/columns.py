"""Sixteen rows at a time, lanes being rows: kernel values, decision values, and the way back to gradients.

A *strip* is 16 rows. A matrix of rows lies strip by strip, and in a strip column by column: the value of row
16 s + r in column j is element 16 (s · stride + j) + r. Landmarks are padded to a multiple of AT_ONCE with
output weights of 0, rows to one of 16 with weights of 0.
"""

from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import AT_ONCE, LANES, UNROLLED
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

ACROSS = LANES // AT_ONCE  # columns that eight landmarks are summed with in one loop

_I32, _F64 = ir.IntType(32), ir.DoubleType()
_INTS, _DOUBLES = ir.VectorType(_I32, LANES), ir.VectorType(_F64, LANES)

# 1.5 · 2²³: added to a number below 2²², it leaves the nearest whole number in the last bits.
ROUND = 12_582_912.0
# Kernel values below 2^SMALLEST count as 0: products of smaller ones would leave the range of fast numbers.
SMALLEST = -60.0


def _exp2_coefficients() -> list[float]:
    """c with 2^r = Σ c_i r^i on [−1/2, 1/2] to a relative error of 3e-9."""
    nodes = np.cos(np.pi * (np.arange(64) + 0.5) / 64) / 2
    series = np.polynomial.Chebyshev.fit(nodes, np.exp2(nodes), 6)
    return [float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef]


EXP2 = _exp2_coefficients()


def _exp2(b: Any, t: Any) -> Any:
    """2^min(t, 0); NaN where t is NaN."""
    t = b.select(b.fcmp_ordered(">", t, constant(0.0)), constant(0.0), t)
    small = b.fcmp_ordered("<", t, constant(SMALLEST))
    t = b.select(small, constant(SMALLEST), t)
    shifted = b.fadd(t, constant(ROUND))
    rest = b.fsub(t, b.fsub(shifted, constant(ROUND)))
    series = constant(EXP2[-1])
    for coefficient in EXP2[-2::-1]:
        series = fma(b, series, rest, constant(coefficient))
    exponent = b.shl(b.bitcast(shifted, _INTS), ir.Constant(_INTS, [23] * LANES))
    power = b.bitcast(b.add(b.bitcast(series, _INTS), exponent), VECTOR)
    return b.select(small, constant(0.0), power)


def _at(b: Any, where: Any, *columns: Any) -> Any:
    """The address of a column, whose number is the sum of some."""
    number = columns[0]
    for more in columns[1:]:
        number = b.add(number, more)
    return b.gep(where, [b.mul(number, integer(LANES))])


def _column(b: Any, where: Any, *columns: Any) -> Any:
    return load(b, _at(b, where, *columns), integer(0))


def _every(b: Any, where: Any, index: Any) -> Any:
    """The number where[index] in every lane."""
    return splat(b, b.load(b.gep(where, [index])))


@intrinsic
def kernel_columns(_, x, first, strips, width, terms, factors, groups, K, stride):
    """K = 2^min(t, 0), t = x · factors + constant, of `strips` strips from `first` on and 8 · groups
    landmarks.

    x        strips of `width` columns, of which `terms` count
    factors  of each group (terms + 1, 8), the last of them constants
    K        strips of `stride` columns
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, first, strips, width, terms, factors, groups, K, stride = operands(context, b, signature, args)
        size = b.mul(b.add(terms, integer(1)), integer(AT_ONCE))
        with Loop(b, strips, []) as (s, _, _):
            row = _at(b, x, b.mul(b.add(first, s), width))
            out = _at(b, K, b.mul(s, stride))
            with Loop(b, groups, []) as (g, _, _):
                own = b.gep(factors, [b.mul(g, size)])
                last = b.mul(terms, integer(AT_ONCE))
                start = [_every(b, own, b.add(last, integer(t))) for t in range(AT_ONCE)]
                loop = Loop(b, terms, start)
                with loop as (f, totals, following):
                    value, at = _column(b, row, f), b.gep(own, [b.mul(f, integer(AT_ONCE))])
                    following.extend(
                        fma(b, _every(b, at, integer(t)), value, totals[t]) for t in range(AT_ONCE)
                    )
                j = b.mul(g, integer(AT_ONCE))
                for t, total in enumerate(loop.values):
                    store(b, _exp2(b, total), _at(b, out, j, integer(t)), integer(0))
        return context.get_dummy_value()

    kinds = (x, first, strips, width, terms, factors, groups, K, stride)
    return takes(types.void, *kinds), generate


@intrinsic
def square_columns(_, x, first, strips, width, features, squares):
    """Column `features` of x = Σ_f squares[f] x_f², of `strips` strips from `first` on."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, first, strips, width, features, squares = operands(context, b, signature, args)
        with Loop(b, strips, []) as (s, _, _):
            row = _at(b, x, b.mul(b.add(first, s), width))
            loop = Loop(b, features, [constant(0.0)])
            with loop as (f, (total,), following):
                value = _column(b, row, f)
                following.append(fma(b, b.fmul(value, _every(b, squares, f)), value, total))
            store(b, loop.values[0], _at(b, row, features), integer(0))
        return context.get_dummy_value()

    return takes(types.void, x, first, strips, width, features, squares), generate


@intrinsic
def square_sums(_, K, stride, strips, landmarks, coefficients, x, first, width, features, by_row, sums):
    """Add Σ_rows by_row x_f² to sums[f], with by_row = Σ_j coefficients[j] K[j]: in single precision over
    these rows, in double over calls.

    by_row  room for `strips` strips of one column
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        K, stride, strips, landmarks, coefficients, x, first, width, features, by_row, sums = operands(
            context, b, signature, args
        )
        with Loop(b, strips, []) as (s, _, _):
            own = _at(b, K, b.mul(s, stride))
            loop = Loop(b, landmarks, [constant(0.0)] * AT_ONCE, step=AT_ONCE)
            with loop as (j, totals, following):
                for t, total in enumerate(totals):
                    at = b.add(j, integer(t))
                    following.append(fma(b, _every(b, coefficients, at), _column(b, own, at), total))
            store(b, reduce(b.fadd, loop.values), _at(b, by_row, s), integer(0))
        with Loop(b, features, []) as (f, _, _):
            loop = Loop(b, strips, [constant(0.0)])
            with loop as (s, (total,), following):
                value = _column(b, _at(b, x, b.mul(b.add(first, s), width)), f)
                following.append(fma(b, b.fmul(value, value), _column(b, by_row, s), total))
            where = b.gep(sums, [f])
            b.store(b.fadd(b.load(where), lane_sum(b, b.fpext(loop.values[0], _DOUBLES))), where)
        return context.get_dummy_value()

    kinds = (K, stride, strips, landmarks, coefficients, x, first, width, features, by_row, sums)
    return takes(types.void, *kinds), generate


@intrinsic
def product_columns(_, K, stride, strips, left, right, n_pairs, at):
    """K[at + q] = K[left[q]] · K[right[q]]."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        K, stride, strips, left, right, n_pairs, at = operands(context, b, signature, args)
        with Loop(b, strips, []) as (s, _, _):
            own = _at(b, K, b.mul(s, stride))
            with Loop(b, n_pairs, []) as (q, _, _):
                i, j = (b.load(b.gep(side, [q])) for side in (left, right))
                store(b, b.fmul(_column(b, own, i), _column(b, own, j)), _at(b, own, at, q), integer(0))
        return context.get_dummy_value()

    return takes(types.void, K, stride, strips, left, right, n_pairs, at), generate


@intrinsic
def weighted_columns(_, K, stride, strips, terms, beta, intercept, outputs, f, f_stride):
    """f = intercept + Σ_j beta[j] K[j] of each output; beta (outputs, terms), terms filled up to UNROLLED."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        K, stride, strips, terms, beta, intercept, outputs, f, f_stride = operands(
            context, b, signature, args
        )
        with Loop(b, strips, []) as (s, _, _):
            own, out = _at(b, K, b.mul(s, stride)), _at(b, f, b.mul(s, f_stride))
            with Loop(b, outputs, []) as (k, _, _):
                weights = b.gep(beta, [b.mul(k, terms)])
                start = [_every(b, intercept, k)] + [constant(0.0)] * (UNROLLED - 1)
                loop = Loop(b, terms, start, step=UNROLLED)
                with loop as (j, totals, following):
                    for t, total in enumerate(totals):
                        at = b.add(j, integer(t))
                        following.append(fma(b, _every(b, weights, at), _column(b, own, at), total))
                store(b, reduce(b.fadd, loop.values), _at(b, out, k), integer(0))
        return context.get_dummy_value()

    kinds = (K, stride, strips, terms, beta, intercept, outputs, f, f_stride)
    return takes(types.void, *kinds), generate


def _off(b: Any, f: Any, low: Any, high: Any) -> Any:
    """f − its nearest value in [low, high]; NaN where one of the three is."""
    near = b.select(b.fcmp_ordered(">", f, low), f, low)
    return b.fsub(f, b.select(b.fcmp_ordered("<", near, high), near, high))


@intrinsic
def loss_columns(_, f, f_stride, strips, outputs, goals, first, weight, share, slopes):
    """Σ w ((1 − share) off² + share off_guide²); f becomes its derivative by f, whose sums over rows are
    added to slopes (outputs,). `off` is the distance to an interval.

    goals   strips of 4 · outputs columns: of each output the interval of the target and that of the guide
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        f, f_stride, strips, outputs, goals, first, weight, share, slopes = operands(
            context, b, signature, args
        )
        share = splat(b, b.fptrunc(share, ir.FloatType()))
        rest = b.fsub(constant(1.0), share)
        zeros = ir.Constant(_DOUBLES, [0.0] * LANES)
        all_outputs = Loop(b, outputs, [zeros])
        with all_outputs as (k, (value,), following_outputs):
            loop = Loop(b, strips, [value, zeros])
            with loop as (s, (total, slope), following):
                row = b.add(first, s)
                at = _at(b, goals, b.mul(b.add(b.mul(row, outputs), k), integer(4)))
                low, high, low_guide, high_guide = (_column(b, at, integer(i)) for i in range(4))
                place = _at(b, f, b.mul(s, f_stride), k)
                here, w = load(b, place, integer(0)), _column(b, weight, row)
                off, off_guide = _off(b, here, low, high), _off(b, here, low_guide, high_guide)
                near, far = b.fmul(rest, off), b.fmul(share, off_guide)
                loss = b.fmul(w, fma(b, near, off, b.fmul(far, off_guide)))
                fall = b.fmul(b.fadd(w, w), b.fadd(near, far))
                store(b, fall, place, integer(0))
                following.append(b.fadd(total, b.fpext(loss, _DOUBLES)))
                following.append(b.fadd(slope, b.fpext(fall, _DOUBLES)))
            following_outputs.append(loop.values[0])
            where = b.gep(slopes, [k])
            b.store(b.fadd(b.load(where), lane_sum(b, loop.values[1])), where)
        return lane_sum(b, all_outputs.values[0])

    kinds = (f, f_stride, strips, outputs, goals, first, weight, share, slopes)
    return takes(types.float64, *kinds), generate


@intrinsic
def scale_columns(_, K, stride, strips, landmarks, df, f_stride):
    """K[j] · df in the place of K[j]."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        K, stride, strips, landmarks, df, f_stride = operands(context, b, signature, args)
        with Loop(b, strips, []) as (s, _, _):
            own, slope = _at(b, K, b.mul(s, stride)), _column(b, df, b.mul(s, f_stride))
            with Loop(b, landmarks, [], step=AT_ONCE) as (j, _, _):
                for t in range(AT_ONCE):
                    at = _at(b, own, j, integer(t))
                    store(b, b.fmul(load(b, at, integer(0)), slope), at, integer(0))
        return context.get_dummy_value()

    return takes(types.void, K, stride, strips, landmarks, df, f_stride), generate


@intrinsic
def pull_columns(
    _, K, stride, strips, landmarks, terms, df, f_stride, outputs, beta, left, right, n_pairs, G
):
    """K[j] · ∂L/∂c_j in the place of K[j], j < landmarks.

    beta  (outputs, terms): of landmarks, then of the pairs
    G     room for `terms` columns
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        K, stride, strips, landmarks, terms, df, f_stride, outputs, beta, left, right, n_pairs, G = operands(
            context, b, signature, args
        )
        with Loop(b, strips, []) as (s, _, _):
            own, slopes = _at(b, K, b.mul(s, stride)), _at(b, df, b.mul(s, f_stride))
            with Loop(b, terms, [], step=UNROLLED) as (j, _, _):
                loop = Loop(b, outputs, [constant(0.0)] * UNROLLED)
                with loop as (k, totals, following):
                    slope, at = _column(b, slopes, k), b.gep(beta, [b.add(b.mul(k, terms), j)])
                    following.extend(
                        fma(b, _every(b, at, integer(t)), slope, totals[t]) for t in range(UNROLLED)
                    )
                for t, total in enumerate(loop.values):
                    store(b, total, _at(b, G, j, integer(t)), integer(0))
            with Loop(b, n_pairs, []) as (q, _, _):
                i, j = (b.load(b.gep(side, [q])) for side in (left, right))
                slope = _column(b, G, landmarks, q)
                for one, other in ((i, j), (j, i)):
                    at = _at(b, G, one)
                    store(b, fma(b, slope, _column(b, own, other), load(b, at, integer(0))), at, integer(0))
            with Loop(b, landmarks, []) as (j, _, _):
                at = _at(b, own, j)
                store(b, b.fmul(load(b, at, integer(0)), _column(b, G, j)), at, integer(0))
        return context.get_dummy_value()

    kinds = (K, stride, strips, landmarks, terms, df, f_stride, outputs, beta, left, right, n_pairs, G)
    return takes(types.void, *kinds), generate


def _sums_of_all(b: Any, vectors: list[Any]) -> Any:
    """Lane l is the sum of vector l, of 16 vectors."""
    for step in (8, 4, 2, 1):
        first = [i if not i & step else LANES + i - step for i in range(LANES)]
        second = [i + step if not i & step else LANES + i for i in range(LANES)]
        vectors = [
            b.fadd(
                b.shuffle_vector(vectors[i], vectors[i + step], ir.Constant(_INTS, first)),
                b.shuffle_vector(vectors[i], vectors[i + step], ir.Constant(_INTS, second)),
            )
            for i in range(step)
        ]
    return vectors[0]


@intrinsic
def outer_sums(_, A, a_stride, a_columns, B, first, b_stride, b_columns, strips, sums):
    """Add Σ_rows A[i] B[j] to sums, in single precision over these rows, in double over calls. Strips of A
    from 0 on, of B from `first` on.

    sums   (a_columns / AT_ONCE, b_columns / ACROSS, ACROSS, AT_ONCE)
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        A, a_stride, a_columns, B, first, b_stride, b_columns, strips, sums = operands(
            context, b, signature, args
        )
        B = _at(b, B, b.mul(first, b_stride))
        rows, columns = Loop(b, a_columns, [], step=AT_ONCE), Loop(b, b_columns, [], step=ACROSS)
        with rows as (i, _, _), columns as (j, _, _):
            loop = Loop(b, strips, [constant(0.0)] * LANES)
            with loop as (s, totals, following):
                row, column = _at(b, A, b.mul(s, a_stride), i), _at(b, B, b.mul(s, b_stride), j)
                ours = [_column(b, row, integer(t)) for t in range(AT_ONCE)]
                theirs = [_column(b, column, integer(t)) for t in range(ACROSS)]
                for n, total in enumerate(totals):
                    following.append(fma(b, ours[n % AT_ONCE], theirs[n // AT_ONCE], total))
            found = b.fpext(_sums_of_all(b, loop.values), _DOUBLES)
            place = b.add(b.mul(i, b_columns), b.mul(j, integer(AT_ONCE)))
            at = b.bitcast(b.gep(sums, [place]), _DOUBLES.as_pointer())
            b.store(b.fadd(b.load(at, align=8), found), at, align=8)
        return context.get_dummy_value()

    kinds = (A, a_stride, a_columns, B, first, b_stride, b_columns, strips, sums)
    return takes(types.void, *kinds), generate
